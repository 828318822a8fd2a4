//! WebM (RFC 9559): a unit is a block, with the elements between the block before and it. Segments and clusters are
//! entered whatever length they name, because live streams name none.

use alloc::string::String;
use alloc::vec::Vec;

use proto_core::time::Duration;

use crate::codecs;
use crate::ebml::{self, Head, MAX_HEAD, Parsed};
use crate::unit::{MAX_INIT, Output, Prefix, Unit, believed};

/// Most bytes of a block, and of an element that is skipped.
const MAX_BLOCK: u64 = 16 << 20;
/// Most bytes of the numbers at the front of a block: track, time, flags.
const BLOCK_HEAD: usize = 11;
/// A segment that names no length.
const SEGMENT: [u8; 12] = [0x18, 0x53, 0x80, 0x67, 1, 255, 255, 255, 255, 255, 255, 255];
/// Nanoseconds of a tick if the stream does not say.
const DEFAULT_SCALE: u64 = 1_000_000;

#[derive(Debug)]
enum State {
    /// The head of an element, at most 12 bytes.
    Head(Vec<u8>),
    /// The content of an element that is read as a whole, with its head in front; its length with the head.
    Gather(Vec<u8>, Head),
    /// The front of a block, and the number of bytes after it.
    Block(Vec<u8>, u64),
    Skip(u64),
    /// Looking for a cluster or a new stream: the last four bytes.
    Lost(u32),
}

#[derive(Clone, Copy, Debug)]
struct Block {
    track: u64,
    time: Option<Duration>,
    is_key: bool,
    duration: Option<Duration>,
}

#[derive(Debug)]
pub(crate) struct WebM {
    state: State,
    at: u64,
    /// Offset after the last block.
    open: u64,
    ebml: Vec<u8>,
    info: Vec<u8>,
    /// Nanoseconds of a tick.
    scale: u64,
    /// Number of the main track, and whether it is video.
    main: Option<(u64, bool)>,
    /// Ticks of the cluster.
    cluster: Option<u64>,
    /// The bytes since `open` hold the head of a cluster.
    has_cluster: bool,
    /// The block that is being read, and where its group ends.
    block: Option<Block>,
    group_end: Option<u64>,
}

impl WebM {
    pub(crate) fn new() -> Self {
        WebM {
            state: State::Head(Vec::new()),
            at: 0,
            open: 0,
            ebml: Vec::new(),
            info: Vec::new(),
            scale: DEFAULT_SCALE,
            main: None,
            cluster: None,
            has_cluster: false,
            block: None,
            group_end: None,
        }
    }

    pub(crate) fn open_offset(&self) -> u64 {
        self.open
    }

    pub(crate) fn is_in_start(&self) -> bool {
        let main = self.main.map(|(track, _)| track);
        self.block
            .is_some_and(|block| block.is_key && Some(block.track) == main)
    }

    /// Forgets the place in the stream, whose next byte has offset 0.
    pub(crate) fn resume(&mut self) {
        self.at = 0;
        self.state = self.lost();
    }

    pub(crate) fn push(&mut self, at: u64, mut bytes: &[u8], out: &mut Output) {
        self.at = at;
        while !bytes.is_empty() {
            let state = core::mem::replace(&mut self.state, State::Lost(0));
            self.state = match state {
                State::Head(mut head) => {
                    head.extend_from_slice(self.take(&mut bytes, 1));
                    match ebml::head(&head) {
                        Parsed::Head(found) => self.element(found, head),
                        Parsed::Short if head.len() < MAX_HEAD => State::Head(head),
                        _ => self.lost(),
                    }
                }
                State::Gather(mut whole, head) => {
                    let len = head.head_len + head.len.unwrap_or(0) as usize;
                    whole.extend_from_slice(self.take(&mut bytes, len - whole.len()));
                    match whole.len() == len {
                        true => self.gathered(&whole, head, out),
                        false => State::Gather(whole, head),
                    }
                }
                State::Block(mut front, left) => {
                    let most = left.min((BLOCK_HEAD - front.len()) as u64) as usize;
                    let now = self.take(&mut bytes, most);
                    front.extend_from_slice(now);
                    let left = left - now.len() as u64;
                    match front.len() == BLOCK_HEAD || left == 0 {
                        true => self.front(&front, left),
                        false => State::Block(front, left),
                    }
                }
                State::Skip(left) => {
                    let most = usize::try_from(left).unwrap_or(usize::MAX);
                    let now = self.take(&mut bytes, most).len() as u64;
                    match left - now {
                        0 => State::Head(Vec::new()),
                        left => State::Skip(left),
                    }
                }
                State::Lost(last) => self.search(last, &mut bytes),
            };
            if matches!(&self.state, State::Head(head) if head.is_empty()) {
                self.ended(out);
            }
        }
    }

    fn take<'b>(&mut self, bytes: &mut &'b [u8], most: usize) -> &'b [u8] {
        let (now, rest) = bytes.split_at(bytes.len().min(most));
        *bytes = rest;
        self.at += now.len() as u64;
        now
    }

    fn lost(&mut self) -> State {
        self.block = None;
        self.group_end = None;
        self.cluster = None;
        self.has_cluster = false;
        self.open = self.at;
        State::Lost(0)
    }

    /// Begins an element after its head.
    fn element(&mut self, head: Head, bytes: Vec<u8>) -> State {
        let next = State::Head(Vec::new());
        let len = match (head.id, head.len) {
            (ebml::ID_SEGMENT, _) => return next,
            (ebml::ID_CLUSTER, _) => {
                self.cluster = None;
                self.has_cluster = true;
                return next;
            }
            (_, None) => return self.lost(),
            (_, Some(len)) => len,
        };
        match head.id {
            ebml::ID_EBML | ebml::ID_INFO | ebml::ID_TRACKS
                if (1..=(MAX_INIT / 2) as u64).contains(&len) =>
            {
                State::Gather(bytes, head)
            }
            ebml::ID_TIMESTAMP | ebml::ID_BLOCK_DURATION if (1..=8).contains(&len) => {
                State::Gather(bytes, head)
            }
            ebml::ID_SIMPLE_BLOCK | ebml::ID_BLOCK if (4..=MAX_BLOCK).contains(&len) => {
                self.block = None;
                if head.id == ebml::ID_SIMPLE_BLOCK {
                    self.group_end = None;
                }
                State::Block(Vec::new(), len)
            }
            ebml::ID_BLOCK_GROUP if (1..=MAX_BLOCK).contains(&len) => {
                self.block = None;
                self.group_end = Some(self.at + len);
                next
            }
            ebml::ID_REFERENCE_BLOCK if len <= 8 => {
                if let Some(block) = &mut self.block {
                    block.is_key = false;
                }
                skip(len)
            }
            ebml::ID_EBML | ebml::ID_INFO | ebml::ID_TRACKS | ebml::ID_TIMESTAMP => self.lost(),
            _ if len <= MAX_BLOCK => skip(len),
            _ => self.lost(),
        }
    }

    fn gathered(&mut self, whole: &[u8], head: Head, out: &mut Output) -> State {
        let content = &whole[head.head_len..];
        match head.id {
            ebml::ID_EBML => {
                let state = State::Head(Vec::new());
                let ebml = whole.to_vec();
                let open = self.at - whole.len() as u64;
                *self = WebM {
                    state,
                    at: self.at,
                    open,
                    ebml,
                    ..WebM::new()
                };
            }
            ebml::ID_INFO => {
                self.info = whole.to_vec();
                ebml::each(content, |id, content| {
                    if id == ebml::ID_TIMESTAMP_SCALE {
                        self.scale = ebml::number(content)
                            .filter(|&n| n > 0)
                            .unwrap_or(DEFAULT_SCALE);
                    }
                });
            }
            ebml::ID_TRACKS => {
                let (main, codecs) = tracks(content);
                self.main = main;
                let init = [&self.ebml[..], &SEGMENT, &self.info, whole].concat();
                out.set_init(init, codecs);
                self.open = self.at;
            }
            ebml::ID_TIMESTAMP => self.cluster = ebml::number(content),
            _ => {
                let scale = self.scale;
                if let Some(block) = &mut self.block {
                    block.duration = ebml::number(content)
                        .and_then(|ticks| time(ticks, scale))
                        .and_then(believed);
                }
            }
        }
        State::Head(Vec::new())
    }

    /// Reads the front of a block (RFC 9559 §10).
    fn front(&mut self, front: &[u8], left: u64) -> State {
        let parsed = ebml::vint(front).and_then(|(track, len)| {
            let [high, low, flags, ..] = *front.get(len..)? else {
                return None;
            };
            let relative = i64::from(i16::from_be_bytes([high, low]));
            Some((track?, relative, flags))
        });
        let (Some((track, relative, flags)), Some(cluster)) = (parsed, self.cluster) else {
            return self.lost();
        };
        self.block = Some(Block {
            track,
            time: cluster
                .checked_add_signed(relative)
                .and_then(|ticks| time(ticks, self.scale)),
            // In a group the absence of a reference says so.
            is_key: self.group_end.is_some() || flags & 0x80 != 0,
            duration: None,
        });
        skip(left)
    }

    /// Reports the block if it has ended.
    fn ended(&mut self, out: &mut Output) {
        match self.group_end {
            Some(end) if self.at < end => return,
            Some(end) if self.at > end => {
                self.state = self.lost();
                return;
            }
            _ => self.group_end = None,
        }
        let Some(block) = self.block.take() else {
            return;
        };
        let is_main = self.main.is_some_and(|(track, _)| track == block.track);
        let prefix = match (self.has_cluster, self.cluster) {
            (false, Some(time)) => cluster(time),
            _ => Prefix::default(),
        };
        out.unit(Unit {
            offset: self.open,
            len: self.at - self.open,
            time: block.time.filter(|_| is_main),
            duration: block.duration.filter(|_| is_main),
            is_start: is_main && block.is_key,
            prefix,
        });
        self.open = self.at;
        self.has_cluster = false;
    }

    /// Looks for a cluster, or a new stream.
    fn search(&mut self, mut last: u32, bytes: &mut &[u8]) -> State {
        while !bytes.is_empty() {
            last = last << 8 | u32::from(self.take(bytes, 1)[0]);
            if matches!(last, ebml::ID_CLUSTER | ebml::ID_EBML) {
                self.open = self.at - 4;
                return State::Head(last.to_be_bytes().to_vec());
            }
        }
        self.open = self.at;
        State::Lost(last)
    }
}

fn skip(len: u64) -> State {
    match len {
        0 => State::Head(Vec::new()),
        len => State::Skip(len),
    }
}

fn time(ticks: u64, scale: u64) -> Option<Duration> {
    let micros = u128::from(ticks) * u128::from(scale) / 1000;
    u64::try_from(micros).ok().map(Duration::from_micros)
}

/// Returns the head of a cluster with that time, which names no length.
fn cluster(time: u64) -> Prefix {
    let mut bytes = [0; 22];
    bytes[..4].copy_from_slice(&ebml::ID_CLUSTER.to_be_bytes());
    bytes[4..12].copy_from_slice(&SEGMENT[4..]);
    bytes[12..14].copy_from_slice(&[ebml::ID_TIMESTAMP as u8, 0x88]);
    bytes[14..].copy_from_slice(&time.to_be_bytes());
    Prefix::new(&bytes)
}

/// Reads `Tracks`: the main track and whether it is video, and the codec strings of all.
fn tracks(content: &[u8]) -> (Option<(u64, bool)>, Vec<String>) {
    let (mut main, mut codecs) = (None::<(u64, bool)>, Some(Vec::new()));
    ebml::each(content, |id, content| {
        if id != ebml::ID_TRACK {
            return;
        }
        let (mut number, mut kind, mut codec, mut private) = (None, None, &[][..], &[][..]);
        ebml::each(content, |id, content| match id {
            ebml::ID_TRACK_NUMBER => number = ebml::number(content),
            ebml::ID_TRACK_TYPE => kind = ebml::number(content),
            ebml::ID_CODEC => codec = content,
            ebml::ID_CODEC_PRIVATE => private = content,
            _ => {}
        });
        let (Some(number), Some(kind @ (1 | 2))) = (number, kind) else {
            return;
        };
        let is_video = kind == 1;
        if main.is_none_or(|(_, video)| is_video && !video) {
            main = Some((number, is_video));
        }
        match (&mut codecs, codecs::of_webm(codec, private)) {
            (Some(all), Some(codec)) if all.len() < 16 => all.push(codec),
            (codecs, _) => *codecs = None,
        }
    });
    (main, codecs.unwrap_or_default())
}
