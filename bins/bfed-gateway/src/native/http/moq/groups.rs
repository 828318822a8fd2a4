//! Cuts a stream into groups, and joins groups to a stream. No I/O.
//!
//! | stream | a group begins |
//! | --- | --- |
//! | of a known container | with the stream, and at key frames at least [`MIN_GROUP_MS`] apart |
//! | of no known container | with the stream, and with the next piece after [`MAX_PLAIN_MS`] or [`MAX_PLAIN`] bytes |
//! | any | with the next piece after [`MAX_GROUP`] bytes; such a group only continues the one before |
//!
//! Bytes that may belong to a key frame that has not ended wait here, at most [`MAX_HELD`] of them.

use std::collections::VecDeque;

use hyper::body::Bytes;
use media::group::Header;
use media::{Event, Prefix, Reader};

/// Shortest group that ends with a key frame: streams of sound alone can start anywhere.
const MIN_GROUP_MS: u64 = 250;
/// Longest group of a stream of no known container.
const MAX_PLAIN_MS: u64 = 1000;
/// Most bytes of such a group, but for its last piece.
const MAX_PLAIN: u64 = 1 << 20;
/// Most bytes of any group, but for its last piece.
const MAX_GROUP: u64 = 8 << 20;
/// Most bytes that wait for the end of a unit.
const MAX_HELD: u64 = 1 << 20;

/// A part of a stream in groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// A group begins, with this header.
    Group(Bytes),
    /// The next bytes of the stream.
    Frame(Bytes),
}

/// Cuts a stream into groups.
pub(super) struct Grouper {
    reader: Reader,
    /// What is not in a group yet, from offset `at` to offset `end`.
    held: VecDeque<Bytes>,
    at: u64,
    end: u64,
    /// Key frames that have been found from `at` on.
    starts: VecDeque<(u64, Prefix)>,
    /// The initialisation of the current stream, once it is known.
    init: Bytes,
    /// Where the group began, and when; `None`: there is none.
    group: Option<(u64, u64)>,
}

impl Grouper {
    pub(super) fn new() -> Self {
        Grouper {
            reader: Reader::new(),
            held: VecDeque::new(),
            at: 0,
            end: 0,
            starts: VecDeque::new(),
            init: Bytes::new(),
            group: None,
        }
    }

    /// Takes the stream's next bytes at a time in milliseconds. Returns what is complete.
    pub(super) fn push(&mut self, data: Bytes, now_ms: u64) -> Vec<Part> {
        self.reader.push(&data);
        self.end += data.len() as u64;
        self.held.push_back(data);
        while let Some(event) = self.reader.poll_event() {
            match event {
                Event::Init => self.init = Bytes::copy_from_slice(self.reader.init()),
                Event::Unit(unit) if unit.is_start && unit.offset >= self.at => {
                    self.starts.push_back((unit.offset, unit.prefix));
                }
                Event::Unit(_) => {}
            }
        }
        let open = match self.reader.is_unknown() {
            true => self.end,
            false => self.reader.open_offset(),
        };
        let until = open.max(self.end.saturating_sub(MAX_HELD)).min(self.end);
        self.cut(until, now_ms)
    }

    /// Returns the rest of the stream, which has ended.
    pub(super) fn finish(&mut self, now_ms: u64) -> Vec<Part> {
        self.cut(self.end, now_ms)
    }

    fn cut(&mut self, until: u64, now_ms: u64) -> Vec<Part> {
        let mut parts = Vec::new();
        while self.at < until {
            while self.starts.front().is_some_and(|(at, _)| *at < self.at) {
                self.starts.pop_front();
            }
            let start = self.starts.front().copied();
            let starts_here = start.filter(|(at, _)| *at == self.at);
            if let Some(header) = self.begins(starts_here, now_ms) {
                parts.push(Part::Group(header));
                self.group = Some((self.at, now_ms));
            }
            if starts_here.is_some() {
                self.starts.pop_front();
            }
            let next = self.starts.front().map_or(until, |(at, _)| until.min(*at));
            self.take(next, &mut parts);
        }
        parts
    }

    /// Returns the header if a group begins at `at`.
    fn begins(&self, start: Option<(u64, Prefix)>, now_ms: u64) -> Option<Bytes> {
        let header = |is_start, prefix: &Prefix| {
            let init: &[u8] = if is_start { &self.init } else { &[] };
            let prefix = prefix.as_bytes();
            Bytes::from(
                Header {
                    is_start,
                    init,
                    prefix,
                }
                .to_vec(),
            )
        };
        let none = Prefix::default();
        let Some((from, since)) = self.group else {
            // The stream's own first bytes hold the initialisation, unless it starts with a key frame.
            let first = Header {
                is_start: true,
                ..Header::default()
            };
            return Some(start.map_or(first.to_vec().into(), |(_, prefix)| header(true, &prefix)));
        };
        let (bytes, age) = (self.at - from, now_ms.saturating_sub(since));
        match start {
            Some((_, prefix)) if age >= MIN_GROUP_MS || bytes >= MAX_GROUP => {
                Some(header(true, &prefix))
            }
            None if self.reader.is_unknown() => {
                (age >= MAX_PLAIN_MS || bytes >= MAX_PLAIN).then(|| header(true, &none))
            }
            _ => (bytes >= MAX_GROUP).then(|| header(false, &none)),
        }
    }

    /// Moves the bytes up to offset `until` into the group.
    fn take(&mut self, until: u64, parts: &mut Vec<Part>) {
        while self.at < until {
            let Some(mut piece) = self.held.pop_front() else {
                return;
            };
            let wanted = until - self.at;
            if piece.len() as u64 > wanted {
                let rest = piece.split_off(wanted as usize);
                self.held.push_front(rest);
            }
            self.at += piece.len() as u64;
            if !piece.is_empty() {
                parts.push(Part::Frame(piece));
            }
        }
    }
}

/// Joins groups to a stream.
#[derive(Default)]
pub(super) struct Joiner {
    /// The group that was read as a whole.
    whole: Option<u64>,
}

impl Joiner {
    /// Takes the first frame of a group. Returns the bytes to insert before the group, or `None` if the group is of no use:
    /// it continues a group that was lost, or the frame is no header.
    pub(super) fn begin(&mut self, sequence: u64, header: &[u8]) -> Option<Vec<u8>> {
        let follows = self.whole.take().and_then(|whole| whole.checked_add(1)) == Some(sequence);
        let header = Header::parse(header).ok()?;
        match (follows, header.is_start) {
            (true, _) => Some(Vec::new()),
            (false, true) => Some([header.init, header.prefix].concat()),
            (false, false) => None,
        }
    }

    /// The group was read to its end.
    pub(super) fn end(&mut self, sequence: u64) {
        self.whole = Some(sequence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TS: &[u8] = include_bytes!("../../../../../../crates/media/tests/samples/h264.ts");
    const MP4: &[u8] = include_bytes!("../../../../../../crates/media/tests/samples/h264.mp4");
    const WEBM: &[u8] = include_bytes!("../../../../../../crates/media/tests/samples/vp8.webm");

    /// The groups of a stream whose pieces come 100 ms apart.
    fn groups(stream: &[u8], len: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (mut grouper, mut groups) = (Grouper::new(), Vec::new());
        let mut now = 0;
        let mut add = |parts: Vec<Part>| {
            for part in parts {
                match part {
                    Part::Group(header) => groups.push((header.to_vec(), Vec::new())),
                    Part::Frame(bytes) => groups.last_mut().unwrap().1.extend_from_slice(&bytes),
                }
            }
        };
        for piece in stream.chunks(len) {
            now += 100;
            add(grouper.push(Bytes::copy_from_slice(piece), now));
            let held: usize = grouper.held.iter().map(Bytes::len).sum();
            assert!(held as u64 <= MAX_HELD);
        }
        add(grouper.finish(now));
        groups
    }

    fn joined(groups: &[(Vec<u8>, Vec<u8>)], lost: &[usize]) -> Vec<u8> {
        let (mut joiner, mut bytes) = (Joiner::default(), Vec::new());
        for (at, (header, data)) in groups.iter().enumerate() {
            if lost.contains(&at) {
                continue;
            }
            if let Some(before) = joiner.begin(at as u64, header) {
                bytes.extend_from_slice(&before);
                bytes.extend_from_slice(data);
                joiner.end(at as u64);
            }
        }
        bytes
    }

    fn units(bytes: &[u8]) -> (usize, bool) {
        let (mut reader, mut units, mut first) = (Reader::new(), 0, None);
        reader.push(bytes);
        while let Some(event) = reader.poll_event() {
            if let Event::Unit(unit) = event {
                units += 1;
                first.get_or_insert(unit.is_start);
            }
        }
        (units, first.unwrap_or(false))
    }

    #[test]
    fn all_groups_in_a_row_are_the_stream() {
        for stream in [TS, MP4, WEBM, &[7; 3 << 20]] {
            for len in [188, 1000, 16 << 10] {
                let groups = groups(stream, len);
                assert!(groups.len() > 1, "{} groups", groups.len());
                assert_eq!(joined(&groups, &[]), stream);
            }
        }
    }

    #[test]
    fn a_reader_that_lost_the_first_groups_starts_with_a_key_frame() {
        for stream in [TS, MP4, WEBM] {
            let groups = groups(stream, 1000);
            let rest = joined(&groups, &[0]);
            let (units, is_start) = units(&rest);
            assert!(is_start && units > 0, "{units} units");
        }
    }

    #[test]
    fn a_group_that_continues_a_lost_one_is_not_read() {
        let continues = Header::default().to_vec();
        let mut joiner = Joiner::default();
        assert_eq!(joiner.begin(5, &continues), None);
        let start = Header {
            is_start: true,
            init: b"i",
            prefix: b"p",
        };
        assert_eq!(joiner.begin(6, &start.to_vec()), Some(b"ip".to_vec()));
        joiner.end(6);
        assert_eq!(joiner.begin(7, &continues), Some(Vec::new()));
        assert_eq!(joiner.begin(8, b"no header"), None);
        joiner.end(u64::MAX);
        assert_eq!(joiner.begin(0, &continues), None);
    }

    #[test]
    fn a_stream_without_key_frames_is_cut_all_the_same() {
        // Fragments that never come: a box that is announced longer than what waits.
        let mut stream = b"\0\0\0\x10ftypisom\0\0\0\0".to_vec();
        stream.extend_from_slice(b"\x7f\xff\xff\xffmdat");
        stream.resize(20 << 20, 0);
        let groups = groups(&stream, 64 << 10);
        assert!(groups.len() >= 2, "{}", groups.len());
        assert_eq!(joined(&groups, &[]), stream);
        let header = Header::parse(&groups[1].0).unwrap();
        assert!(!header.is_start);
    }
}
