//! The data of a session in order: numbered frames are taken apart, missing ones counted.

use std::io;

use crate::frames::{ABORTED, Deframer, Found};
use crate::{Event, Sink, Stats};

/// What is wrong with a session of numbered frames that ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Incomplete {
    /// So many frames did not arrive.
    #[error("{0} frames are missing")]
    Missing(u64),
    /// The first frame that arrived was not the first of the session.
    #[error("the beginning was missed")]
    MissedStart,
    /// The source's last frame did not arrive.
    #[error("the end did not come")]
    NoEnd,
    /// The source gave up before the end.
    #[error("the source gave up")]
    Aborted,
    /// The data differs from what the source sent.
    #[error("the digest is not the source's")]
    WrongDigest,
}

/// What a source said at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Announced {
    frames: u64,
    bytes: u64,
    digest: [u8; 32],
}

/// The numbered frames of a session.
#[derive(Debug, Default)]
struct Numbered {
    deframer: Deframer,
    /// The number that comes next, once one came.
    next: Option<u64>,
    /// The first that came was not the first of all.
    missed_start: bool,
    end: Option<Announced>,
    /// The version of the first frame of another one.
    other_version: Option<u8>,
}

/// Counts and orders the incoming data.
#[derive(Debug)]
pub(crate) struct Assembly {
    hasher: blake3::Hasher,
    numbered: Option<Numbered>,
    max_bytes: Option<u64>,
    pub(crate) stats: Stats,
}

impl Assembly {
    pub(crate) fn new(numbered: bool, max_bytes: Option<u64>) -> Self {
        Assembly {
            hasher: blake3::Hasher::new(),
            numbered: numbered.then(Numbered::default),
            max_bytes,
            stats: Stats::default(),
        }
    }

    /// Takes a datagram, or a piece of a stream, and gives its data to the sink.
    pub(crate) fn take(&mut self, bytes: &[u8], sink: &mut dyn Sink) -> io::Result<()> {
        self.stats.datagrams += 1;
        let Some(mut numbered) = self.numbered.take() else {
            self.stats.frames += 1;
            return self.write(bytes, sink);
        };
        numbered.deframer.push(bytes);
        let mut done = Ok(());
        while let Some(found) = numbered.deframer.next().filter(|_| done.is_ok()) {
            done = self.found(&mut numbered, found, sink);
        }
        self.numbered = Some(numbered);
        done
    }

    fn found(
        &mut self,
        numbered: &mut Numbered,
        found: Found,
        sink: &mut dyn Sink,
    ) -> io::Result<()> {
        let reached = match &found {
            Found::Data { number, .. } => *number,
            Found::End { frames, .. } => *frames,
            Found::OtherVersion(_) => numbered.next.unwrap_or(0),
        };
        match numbered.next {
            Some(next) if reached < next => {
                self.stats.late += 1;
                return Ok(());
            }
            Some(next) if reached > next => {
                self.stats.lost = self.stats.lost.saturating_add(reached - next);
                sink.event(Event::Gap {
                    frames: reached - next,
                });
            }
            Some(_) => {}
            None => numbered.missed_start = reached > 0,
        }
        match found {
            Found::Data { number, payload } => {
                numbered.next = Some(number.saturating_add(1));
                self.stats.frames += 1;
                self.write(&payload, sink)
            }
            Found::End {
                frames,
                bytes,
                digest,
            } => {
                numbered.next = Some(frames);
                numbered.end = Some(Announced {
                    frames,
                    bytes,
                    digest,
                });
                Ok(())
            }
            Found::OtherVersion(version) => {
                numbered.other_version.get_or_insert(version);
                Ok(())
            }
        }
    }

    fn write(&mut self, bytes: &[u8], sink: &mut dyn Sink) -> io::Result<()> {
        let room = self
            .max_bytes
            .map_or(u64::MAX, |max| max - self.stats.bytes);
        let len = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
        self.hasher.update(&bytes[..len]);
        self.stats.bytes += len as u64;
        sink.data(&bytes[..len])
    }

    /// Nothing more is wanted: the end came, or as much as was asked for.
    pub(crate) fn is_done(&self) -> bool {
        let ended = self
            .numbered
            .as_ref()
            .is_some_and(|numbered| numbered.end.is_some());
        ended || self.max_bytes == Some(self.stats.bytes)
    }

    /// Returns the version of the frames where they are of another version, all that came.
    pub(crate) fn other_version(&self) -> Option<u8> {
        let numbered = self.numbered.as_ref()?;
        numbered.other_version.filter(|_| numbered.next.is_none())
    }

    /// What is wrong with what arrived.
    pub(crate) fn incomplete(&self) -> Option<Incomplete> {
        let numbered = self.numbered.as_ref()?;
        let asked_for = self.max_bytes == Some(self.stats.bytes);
        match &numbered.end {
            _ if self.stats.lost > 0 => Some(Incomplete::Missing(self.stats.lost)),
            _ if numbered.missed_start => Some(Incomplete::MissedStart),
            None if asked_for => None,
            None => Some(Incomplete::NoEnd),
            Some(end) if end.bytes == ABORTED => (!asked_for).then_some(Incomplete::Aborted),
            Some(end) if end.bytes != self.stats.bytes || end.digest != self.digest() => {
                (!asked_for).then_some(Incomplete::WrongDigest)
            }
            Some(_) => None,
        }
    }

    pub(crate) fn digest(&self) -> [u8; 32] {
        *self.hasher.finalize().as_bytes()
    }

    pub(crate) fn skipped_bytes(&self) -> u64 {
        self.numbered
            .as_ref()
            .map_or(0, |numbered| numbered.deframer.skipped)
    }

    /// How many frames the source says that there were.
    #[cfg(test)]
    fn announced(&self) -> Option<u64> {
        self.numbered.as_ref()?.end.map(|end| end.frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::{emit_data, emit_end};

    struct Null;

    impl Sink for Null {
        fn data(&mut self, _: &[u8]) -> io::Result<()> {
            Ok(())
        }
    }

    fn frames(payloads: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut all = vec![];
        for (number, payload) in (0..).zip(payloads) {
            let mut frame = vec![];
            emit_data(number, payload, &mut frame);
            all.push(frame);
        }
        let (data, mut frame) = (payloads.concat(), vec![]);
        emit_end(
            payloads.len() as u64,
            data.len() as u64,
            blake3::hash(&data).as_bytes(),
            &mut frame,
        );
        all.push(frame);
        all
    }

    fn took(frames: &[Vec<u8>], most: Option<u64>) -> Assembly {
        let mut output = Assembly::new(true, most);
        frames
            .iter()
            .for_each(|frame| output.take(frame, &mut Null).unwrap());
        output
    }

    #[test]
    fn frames_of_another_version_count_where_no_others_come() {
        let mut newer = frames(&[b"one"]).remove(0);
        newer[2] = 2;
        newer[16..20].fill(0);
        let check = blake3::hash(&newer);
        newer[16..20].copy_from_slice(&check.as_bytes()[..4]);
        let output = took(std::slice::from_ref(&newer), None);
        assert_eq!(output.other_version(), Some(2));
        assert!(!output.is_done());
        let mut all = frames(&[b"one"]);
        all.push(newer);
        let output = took(&all, None);
        assert_eq!(output.other_version(), None);
        assert_eq!(output.incomplete(), None);
    }

    #[test]
    fn a_whole_session_has_nothing_to_complain_of() {
        let all = frames(&[b"one", b"two", b"three"]);
        let output = took(&all, None);
        assert!(output.is_done());
        assert_eq!(
            (output.stats.bytes, output.stats.frames, output.announced()),
            (11, 3, Some(3))
        );
        assert_eq!(output.incomplete(), None);
        assert_eq!(output.digest(), *blake3::hash(b"onetwothree").as_bytes());
    }

    #[test]
    fn what_is_missing_is_counted_and_complained_of() {
        let all = frames(&[b"one", b"two", b"three", b"four"]);
        let without = |gone: &[usize]| {
            let kept = |(n, _): &(usize, &Vec<u8>)| !gone.contains(n);
            let left: Vec<Vec<u8>> = all
                .iter()
                .enumerate()
                .filter(kept)
                .map(|(_, f)| f.clone())
                .collect();
            took(&left, None)
        };
        for (gone, lost) in [(&[1][..], 1), (&[1, 2], 2), (&[3], 1)] {
            let output = without(gone);
            assert_eq!((output.stats.lost, output.stats.late), (lost, 0));
            assert!(output.incomplete().unwrap().to_string().contains("missing"));
        }
        assert!(
            without(&[0])
                .incomplete()
                .unwrap()
                .to_string()
                .contains("beginning")
        );
        assert!(
            without(&[4])
                .incomplete()
                .unwrap()
                .to_string()
                .contains("end did not")
        );
        // Nothing but the end: the beginning was missed, whatever came before it.
        assert!(
            without(&[0, 1, 2, 3])
                .incomplete()
                .unwrap()
                .to_string()
                .contains("beginning")
        );
    }

    #[test]
    fn repeated_and_late_frames_are_not_written_twice() {
        let all = frames(&[b"one", b"two"]);
        let mixed = [0, 0, 1, 0, 2, 2].map(|n: usize| all[n].clone());
        let output = took(&mixed, None);
        assert_eq!(
            (output.stats.bytes, output.stats.late, output.stats.lost),
            (6, 2, 0)
        );
        assert_eq!(output.incomplete(), None);
    }

    #[test]
    fn a_wrong_end_is_noticed() {
        let mut all = frames(&[b"one"]);
        let mut end = vec![];
        emit_end(1, 3, &[7; 32], &mut end);
        all[1] = end;
        assert!(
            took(&all, None)
                .incomplete()
                .unwrap()
                .to_string()
                .contains("digest")
        );
    }

    #[test]
    fn a_source_that_gave_up_is_named() {
        let mut all = frames(&[b"one"]);
        let mut end = vec![];
        crate::frames::emit_aborted(1, &mut end);
        all[1] = end;
        let output = took(&all, None);
        assert!(output.is_done(), "nothing more is waited for");
        assert_eq!(output.incomplete(), Some(Incomplete::Aborted));
    }

    #[test]
    fn no_more_than_was_asked_for_is_written() {
        let mut output = Assembly::new(false, Some(5));
        output.take(b"hel", &mut Null).unwrap();
        assert!(!output.is_done());
        output.take(b"lo, world", &mut Null).unwrap();
        assert!(output.is_done());
        assert_eq!(
            (output.stats.bytes, output.digest()),
            (5, *blake3::hash(b"hello").as_bytes())
        );
        assert_eq!(output.incomplete(), None);
    }
}
