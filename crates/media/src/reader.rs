//! Recognises the container of a stream, and reads it.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::ebml;
use crate::mp4::Mp4;
use crate::ts::{PACKET, SYNC, Ts};
use crate::unit::{Event, Output, Priority};
use crate::webm::WebM;

/// Bytes within which a container must show itself.
pub const MAX_SNIFF: usize = 4096;

/// The container of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Container {
    /// MPEG-TS with packets of 188 bytes.
    Ts,
    /// Fragmented MP4.
    Mp4,
    /// WebM, or Matroska.
    WebM,
}

impl Container {
    /// Returns the content type.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Container::Ts => "video/mp2t",
            Container::Mp4 => "video/mp4",
            Container::WebM => "video/webm",
        }
    }

    /// Returns whether a reader can be given the stream only from a unit's first byte on. Decoders of MPEG-TS find its
    /// packets by themselves.
    #[must_use]
    pub const fn needs_init(self) -> bool {
        !matches!(self, Container::Ts)
    }
}

#[derive(Debug)]
enum State {
    /// The first bytes, at most [`MAX_SNIFF`].
    Sniffing(Vec<u8>),
    Ts(Box<Ts>),
    Mp4(Mp4),
    WebM(WebM),
    /// No known container.
    Unknown,
}

/// Reads one stream. See the [crate's documentation](crate).
#[derive(Debug)]
pub struct Reader {
    state: State,
    /// Offset of the next byte.
    at: u64,
    output: Output,
}

impl Default for Reader {
    fn default() -> Self {
        Reader::new()
    }
}

impl Reader {
    /// Creates a reader of a stream from its first byte.
    #[must_use]
    pub fn new() -> Self {
        Reader {
            state: State::Sniffing(Vec::new()),
            at: 0,
            output: Output::default(),
        }
    }

    /// Creates a reader that starts in the middle of a stream whose initialisation is known: [`Event::Init`] comes first, then
    /// the units from the next fragment or cluster on. Offsets count the bytes after the initialisation. Returns `None` if
    /// `init` is not the initialisation of a container that needs one.
    #[must_use]
    pub fn resume(init: &[u8]) -> Option<Self> {
        let mut reader = Reader::new();
        reader.push(init);
        reader.at = 0;
        match &mut reader.state {
            State::Mp4(mp4) => mp4.resume(),
            State::WebM(webm) => webm.resume(),
            State::Sniffing(_) | State::Ts(_) | State::Unknown => return None,
        }
        (!reader.output.init.is_empty()).then_some(reader)
    }

    /// Reads the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        let at = self.at;
        self.at += bytes.len() as u64;
        if let State::Sniffing(first) = &mut self.state {
            let room = MAX_SNIFF - first.len();
            first.extend_from_slice(&bytes[..bytes.len().min(room)]);
            let Some(state) = sniff(first) else {
                return;
            };
            let first = core::mem::take(first);
            self.state = state;
            self.read(0, &first);
            let read = (first.len() as u64 - at) as usize;
            self.read(first.len() as u64, &bytes[read..]);
        } else {
            self.read(at, bytes);
        }
    }

    fn read(&mut self, at: u64, bytes: &[u8]) {
        match &mut self.state {
            State::Ts(ts) => ts.push(at, bytes, &mut self.output),
            State::Mp4(mp4) => mp4.push(at, bytes, &mut self.output),
            State::WebM(webm) => webm.push(at, bytes, &mut self.output),
            State::Sniffing(_) | State::Unknown => {}
        }
    }

    /// Returns the next event; drain until `None`.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.output.next()
    }

    /// Returns the container; `None` while it is not known.
    #[must_use]
    pub fn container(&self) -> Option<Container> {
        match self.state {
            State::Ts(_) => Some(Container::Ts),
            State::Mp4(_) => Some(Container::Mp4),
            State::WebM(_) => Some(Container::WebM),
            State::Sniffing(_) | State::Unknown => None,
        }
    }

    /// Returns whether the stream is of no known container: nothing more is read.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self.state, State::Unknown)
    }

    /// Returns the initialisation: the tables of MPEG-TS, `ftyp` and `moov` of MP4, all before the first cluster that a
    /// decoder of WebM needs. Empty until [`Event::Init`].
    #[must_use]
    pub fn init(&self) -> &[u8] {
        &self.output.init
    }

    /// Returns the codec strings of the tracks (RFC 6381), as `MediaSource.isTypeSupported` takes them; none if a track's
    /// codec is not known by such a string.
    #[must_use]
    pub fn codecs(&self) -> &[String] {
        &self.output.codecs
    }

    /// Returns how much the unit matters to which the next byte may belong, as far as is known.
    #[must_use]
    pub fn open_priority(&self) -> Priority {
        let is_start = match &self.state {
            State::Ts(ts) => ts.is_in_start(),
            State::Mp4(mp4) => mp4.is_in_start(),
            State::WebM(webm) => webm.is_in_start(),
            State::Sniffing(_) | State::Unknown => false,
        };
        match is_start {
            true => Priority::Key,
            false => Priority::Other,
        }
    }

    /// Returns the offset from which on bytes may belong to a unit that is not reported yet.
    #[must_use]
    pub fn open_offset(&self) -> u64 {
        match &self.state {
            State::Sniffing(_) => 0,
            State::Ts(ts) => ts.open_offset(),
            State::Mp4(mp4) => mp4.open_offset(),
            State::WebM(webm) => webm.open_offset(),
            State::Unknown => self.at,
        }
    }
}

/// Recognises the container by the first bytes; `None`: there are not enough.
fn sniff(first: &[u8]) -> Option<State> {
    if ebml::ID_EBML
        .to_be_bytes()
        .starts_with(&first[..first.len().min(4)])
    {
        return (first.len() >= 4).then(|| State::WebM(WebM::new()));
    }
    let is_mp4 = |name: &[u8]| matches!(name, b"ftyp" | b"styp" | b"moov");
    if first.len() >= 8 && is_mp4(&first[4..8]) {
        return Some(State::Mp4(Mp4::new()));
    }
    // Three packets in a row, from anywhere.
    let packets = |at: usize| (0..3).all(|n| first.get(at + n * PACKET) == Some(&SYNC));
    if (0..PACKET).any(packets) {
        return Some(State::Ts(Box::new(Ts::new())));
    }
    (first.len() >= MAX_SNIFF).then_some(State::Unknown)
}
