//! Contents of a session: files, or streams with an end, one after the other.
//!
//! The federation carries bytes and knows no end. In a session with the parameter `framing=numbered`, numbered
//! [`frames`] tell where a content begins, whether it is whole and where it ends. [`Numbering`] writes them,
//! [`Reader`] reads them:
//!
//! | in a numbered session | means |
//! | --- | --- |
//! | frame 0 | a content begins; one that was not complete is aborted |
//! | the next frame | more of it |
//! | a frame that came before | nothing |
//! | a frame with a gap before it, or of another version | the content is aborted |
//! | END with the right numbers and digest | it is complete |
//! | any other END | it is aborted |
//! | frames of a content whose beginning is missing | nothing, until another begins |
//!
//! Without the parameter, a content begins with the first byte and never ends: it can only be aborted.
//!
//! A reader stores the bytes that were pushed last, and one frame.

use std::collections::VecDeque;

use super::frames::{self, Deframer, Found};

/// Writes one content as numbered frames.
#[derive(Debug, Default)]
pub struct Numbering {
    frames: u64,
    bytes: u64,
    hasher: blake3::Hasher,
}

impl Numbering {
    /// Writes a frame over `out`; the payload is at most [`frames::MAX_PAYLOAD`] bytes.
    pub fn data(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        frames::emit_data(self.frames, payload, out);
        self.frames += 1;
        self.bytes += payload.len() as u64;
        self.hasher.update(payload);
    }

    /// Writes the end over `out`.
    pub fn end(&self, out: &mut Vec<u8>) {
        let digest = *self.hasher.finalize().as_bytes();
        frames::emit_end(self.frames, self.bytes, &digest, out);
    }

    /// Writes the end of a content whose rest will not come. Returns false if none of it was sent.
    pub fn aborted(&self, out: &mut Vec<u8>) -> bool {
        frames::emit_aborted(self.frames, out);
        self.frames > 0
    }
}

/// What happens to a content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// One begins.
    Begin,
    /// More of it.
    Data(Vec<u8>),
    /// It is complete.
    End,
    /// It will not be complete, for this reason.
    Abort(&'static str),
}

/// What an END says: frames, bytes, digest.
type End = (u64, u64, [u8; 32]);

#[derive(Debug)]
enum Phase {
    /// Between contents; the last one ended so.
    Outside(Option<End>),
    /// Within one; the number of its next frame.
    Inside {
        next: u64,
        bytes: u64,
        hasher: Box<blake3::Hasher>,
    },
    /// Within one that was aborted, or whose beginning is missing.
    Skipping,
}

/// Reads the contents of a session.
#[derive(Debug)]
pub struct Reader {
    /// `None`: the session is not numbered.
    deframer: Option<Deframer>,
    phase: Phase,
    steps: VecDeque<Step>,
    /// Frames that belong to no content that could become whole.
    pub skipped_frames: u64,
}

impl Reader {
    /// Creates a reader of a session that is numbered or not.
    #[must_use]
    pub fn new(is_numbered: bool) -> Self {
        Reader {
            deframer: is_numbered.then(Deframer::default),
            phase: Phase::Outside(None),
            steps: VecDeque::new(),
            skipped_frames: 0,
        }
    }

    /// Takes bytes of the session; then [`Reader::next`] until `None`.
    pub fn push(&mut self, bytes: &[u8]) {
        if let Some(deframer) = &mut self.deframer {
            return deframer.push(bytes);
        }
        if !matches!(self.phase, Phase::Inside { .. }) {
            self.begin();
        }
        self.steps.push_back(Step::Data(bytes.to_vec()));
    }

    /// Returns the next item.
    #[expect(clippy::should_implement_trait, reason = "more may come after None")]
    pub fn next(&mut self) -> Option<Step> {
        loop {
            if let Some(step) = self.steps.pop_front() {
                return Some(step);
            }
            let found = self.deframer.as_mut()?.next()?;
            self.found(found);
        }
    }

    /// The content that has begun cannot be delivered: its rest is skipped. In a session without numbers the next byte
    /// begins another one.
    pub fn abandon(&mut self) {
        if let Some(at) = self.steps.iter().position(|step| *step == Step::Begin) {
            // The source has begun another one already.
            self.steps.drain(..at);
            return;
        }
        self.steps.clear();
        self.phase = match self.deframer {
            Some(_) => Phase::Skipping,
            None => Phase::Outside(None),
        };
    }

    /// Returns whether a content has begun and not ended.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        matches!(self.phase, Phase::Inside { .. })
    }

    fn begin(&mut self) {
        self.steps.push_back(Step::Begin);
        self.phase = Phase::Inside {
            next: 0,
            bytes: 0,
            hasher: Box::default(),
        };
    }

    fn abort(&mut self, why: &'static str) {
        if self.is_inside() {
            self.steps.push_back(Step::Abort(why));
        }
        self.phase = Phase::Skipping;
    }

    fn found(&mut self, found: Found) {
        match found {
            Found::Data { number, payload } => self.data(number, payload),
            Found::End {
                frames,
                bytes,
                digest,
            } => self.end((frames, bytes, digest)),
            Found::OtherVersion(_) => self.abort("its frames are of another version"),
        }
    }

    fn data(&mut self, number: u64, payload: Vec<u8>) {
        if number == 0 {
            self.abort("the source began again");
            self.begin();
        }
        let Phase::Inside {
            next,
            bytes,
            hasher,
        } = &mut self.phase
        else {
            self.skipped_frames += 1;
            return;
        };
        if number > *next {
            return self.abort("frames are missing");
        }
        if number < *next {
            self.skipped_frames += 1;
            return;
        }
        *next += 1;
        *bytes += payload.len() as u64;
        hasher.update(&payload);
        self.steps.push_back(Step::Data(payload));
    }

    fn end(&mut self, end: End) {
        let empty = (0, 0, *blake3::hash(b"").as_bytes());
        match &self.phase {
            // Sources repeat it.
            Phase::Outside(Some(last)) if *last == end => return,
            Phase::Outside(_) if end == empty => self.begin(),
            Phase::Outside(_) | Phase::Skipping => return,
            Phase::Inside { .. } => {}
        }
        let Phase::Inside {
            next,
            bytes,
            hasher,
        } = &self.phase
        else {
            return;
        };
        if (*next, *bytes, *hasher.finalize().as_bytes()) == end {
            self.steps.push_back(Step::End);
            self.phase = Phase::Outside(Some(end));
            return;
        }
        self.abort(match end.1 {
            frames::ABORTED => "the source gave up",
            _ => "the digest is not the source's",
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(payloads: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut numbering = Numbering::default();
        let mut all = Vec::new();
        for payload in payloads {
            let mut out = Vec::new();
            numbering.data(payload, &mut out);
            all.push(out);
        }
        let mut end = Vec::new();
        numbering.end(&mut end);
        all.push(end);
        all
    }

    fn aborted(frames: u64) -> Vec<u8> {
        let mut out = Vec::new();
        frames::emit_aborted(frames, &mut out);
        out
    }

    fn read(pieces: &[Vec<u8>]) -> Vec<Step> {
        let mut reader = Reader::new(true);
        steps(&mut reader, pieces)
    }

    fn steps(reader: &mut Reader, pieces: &[Vec<u8>]) -> Vec<Step> {
        let mut steps = Vec::new();
        for piece in pieces {
            reader.push(piece);
            steps.extend(std::iter::from_fn(|| reader.next()));
        }
        steps
    }

    fn data(bytes: &[u8]) -> Step {
        Step::Data(bytes.to_vec())
    }

    #[test]
    fn contents_come_one_after_the_other() {
        let mut pieces = numbered(&[b"one", b"two"]);
        pieces.push(pieces[2].clone());
        pieces.extend(numbered(&[b"three"]));
        let want = [
            Step::Begin,
            data(b"one"),
            data(b"two"),
            Step::End,
            Step::Begin,
            data(b"three"),
            Step::End,
        ];
        assert_eq!(read(&pieces), want);
        // However the stream is cut.
        let bytes = pieces.concat();
        let cut: Vec<Vec<u8>> = bytes.chunks(7).map(<[u8]>::to_vec).collect();
        assert_eq!(read(&cut), want);
    }

    #[test]
    fn an_empty_content_has_an_end_too() {
        let end = numbered(&[]);
        assert_eq!(read(&[end.clone(), end].concat()), [Step::Begin, Step::End]);
    }

    #[test]
    fn what_cannot_become_whole_is_aborted_once() {
        let all = numbered(&[b"one", b"two", b"three"]);
        let gap = [all[0].clone(), all[2].clone(), all[3].clone()];
        let missing = Step::Abort("frames are missing");
        assert_eq!(read(&gap), [Step::Begin, data(b"one"), missing]);
        let gave_up = [all[0].clone(), aborted(1), aborted(1)];
        let why = Step::Abort("the source gave up");
        assert_eq!(read(&gave_up), [Step::Begin, data(b"one"), why]);
        let lying = [all[0].clone(), all[3].clone()];
        let why = Step::Abort("the digest is not the source's");
        assert_eq!(read(&lying), [Step::Begin, data(b"one"), why]);
        let again = [vec![all[0].clone()], numbered(&[b"new"])].concat();
        let want = [
            Step::Begin,
            data(b"one"),
            Step::Abort("the source began again"),
            Step::Begin,
            data(b"new"),
            Step::End,
        ];
        assert_eq!(read(&again), want);
    }

    #[test]
    fn the_rest_of_a_content_is_skipped() {
        let all = numbered(&[b"one", b"two"]);
        let mut reader = Reader::new(true);
        assert_eq!(steps(&mut reader, &all[1..]), []);
        assert_eq!(reader.skipped_frames, 1);
        assert_eq!(steps(&mut reader, &all[..1]).len(), 2);
        reader.abandon();
        assert!(!reader.is_inside());
        assert_eq!(steps(&mut reader, &all[1..]), []);
        assert_eq!(steps(&mut reader, &all).len(), 4);
    }

    #[test]
    fn without_numbers_all_is_one_content() {
        let mut reader = Reader::new(false);
        let pieces = [b"one".to_vec(), b"two".to_vec()];
        assert_eq!(
            steps(&mut reader, &pieces),
            [Step::Begin, data(b"one"), data(b"two")]
        );
        reader.abandon();
        assert_eq!(
            steps(&mut reader, &pieces[..1]),
            [Step::Begin, data(b"one")]
        );
    }

    #[test]
    fn hostile_bytes_begin_nothing() {
        let noise: Vec<u8> = (0..200_000u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8)
            .collect();
        let cut: Vec<Vec<u8>> = noise.chunks(1400).map(<[u8]>::to_vec).collect();
        assert_eq!(read(&cut), []);
    }
}
