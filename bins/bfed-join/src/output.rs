//! Where the data goes, and what is known of it.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::frames::{Deframer, Found};

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
}

/// A writer that counts.
pub(crate) struct Output {
    writer: BufWriter<Box<dyn Write>>,
    hasher: blake3::Hasher,
    numbered: Option<Numbered>,
    most: Option<u64>,
    pub(crate) bytes: u64,
    pub(crate) pieces: u64,
    pub(crate) frames: u64,
    pub(crate) lost: u64,
    pub(crate) late: u64,
}

impl Output {
    pub(crate) fn open(path: &Path, numbered: bool, most: Option<u64>) -> io::Result<Self> {
        let writer: Box<dyn Write> = match path.as_os_str() == "-" {
            true => Box::new(io::stdout()),
            false => Box::new(File::create(path)?),
        };
        Ok(Self::new(writer, numbered, most))
    }

    fn new(writer: Box<dyn Write>, numbered: bool, most: Option<u64>) -> Self {
        Output {
            writer: BufWriter::with_capacity(256 << 10, writer),
            hasher: blake3::Hasher::new(),
            numbered: numbered.then(Numbered::default),
            most,
            bytes: 0,
            pieces: 0,
            frames: 0,
            lost: 0,
            late: 0,
        }
    }

    /// A datagram, or a piece of a stream, came.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.pieces += 1;
        let Some(mut numbered) = self.numbered.take() else {
            self.frames += 1;
            return self.write(bytes);
        };
        numbered.deframer.push(bytes);
        let mut done = Ok(());
        while let Some(found) = numbered.deframer.next().filter(|_| done.is_ok()) {
            done = self.found(&mut numbered, found);
        }
        self.numbered = Some(numbered);
        done
    }

    fn found(&mut self, numbered: &mut Numbered, found: Found) -> io::Result<()> {
        let reached = match &found {
            Found::Data { number, .. } => *number,
            Found::End { frames, .. } => *frames,
        };
        match numbered.next {
            Some(next) if reached < next => {
                self.late += 1;
                return Ok(());
            }
            Some(next) => self.lost = self.lost.saturating_add(reached - next),
            None => numbered.missed_start = reached > 0,
        }
        match found {
            Found::Data { number, payload } => {
                numbered.next = Some(number.saturating_add(1));
                self.frames += 1;
                self.write(&payload)
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
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let room = self.most.map_or(u64::MAX, |most| most - self.bytes);
        let len = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
        self.hasher.update(&bytes[..len]);
        self.bytes += len as u64;
        self.writer.write_all(&bytes[..len])
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    /// Nothing more is wanted: the end came, or as much as was asked for.
    pub(crate) fn is_done(&self) -> bool {
        let ended = self
            .numbered
            .as_ref()
            .is_some_and(|numbered| numbered.end.is_some());
        ended || self.most == Some(self.bytes)
    }

    /// What is not as it should be.
    pub(crate) fn complaint(&self, late: bool) -> Option<String> {
        let numbered = self.numbered.as_ref()?;
        let asked_for = self.most == Some(self.bytes);
        match &numbered.end {
            _ if late => None,
            _ if self.lost > 0 => Some(format!("{} frames are missing", self.lost)),
            _ if numbered.missed_start => Some("the beginning was missed".into()),
            None if asked_for => None,
            None => Some("the end did not come".into()),
            Some(end) if end.bytes != self.bytes || end.digest != self.digest() => {
                (!asked_for).then(|| "the digest is not the source's".into())
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

    fn took(frames: &[Vec<u8>], most: Option<u64>) -> Output {
        let mut output = Output::new(Box::new(io::sink()), true, most);
        frames.iter().for_each(|frame| output.take(frame).unwrap());
        output
    }

    #[test]
    fn a_whole_session_has_nothing_to_complain_of() {
        let all = frames(&[b"one", b"two", b"three"]);
        let output = took(&all, None);
        assert!(output.is_done());
        assert_eq!(
            (output.bytes, output.frames, output.announced()),
            (11, 3, Some(3))
        );
        assert_eq!(output.complaint(false), None);
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
            assert_eq!((output.lost, output.late), (lost, 0));
            assert!(output.complaint(false).unwrap().contains("missing"));
            assert_eq!(output.complaint(true), None);
        }
        assert!(
            without(&[0])
                .complaint(false)
                .unwrap()
                .contains("beginning")
        );
        assert!(
            without(&[4])
                .complaint(false)
                .unwrap()
                .contains("end did not")
        );
        // Nothing but the end: the beginning was missed, whatever came before it.
        assert!(
            without(&[0, 1, 2, 3])
                .complaint(false)
                .unwrap()
                .contains("beginning")
        );
    }

    #[test]
    fn repeated_and_late_frames_are_not_written_twice() {
        let all = frames(&[b"one", b"two"]);
        let mixed = [0, 0, 1, 0, 2, 2].map(|n: usize| all[n].clone());
        let output = took(&mixed, None);
        assert_eq!((output.bytes, output.late, output.lost), (6, 2, 0));
        assert_eq!(output.complaint(false), None);
    }

    #[test]
    fn a_wrong_end_is_noticed() {
        let mut all = frames(&[b"one"]);
        let mut end = vec![];
        emit_end(1, 3, &[7; 32], &mut end);
        all[1] = end;
        assert!(
            took(&all, None)
                .complaint(false)
                .unwrap()
                .contains("digest")
        );
    }

    #[test]
    fn no_more_than_was_asked_for_is_written() {
        let mut output = Output::new(Box::new(io::sink()), false, Some(5));
        output.take(b"hel").unwrap();
        assert!(!output.is_done());
        output.take(b"lo, world").unwrap();
        assert!(output.is_done());
        assert_eq!(
            (output.bytes, output.digest()),
            (5, *blake3::hash(b"hello").as_bytes())
        );
        assert_eq!(output.complaint(false), None);
    }
}
