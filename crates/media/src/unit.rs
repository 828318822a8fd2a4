//! What readers report.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use proto_core::time::Duration;

/// Most bytes of an initialisation, and of a box or element that is read as a whole.
pub const MAX_INIT: usize = 256 << 10;
/// Most bytes of a unit.
pub const MAX_UNIT: u64 = 64 << 20;
/// Longest duration of a unit that is believed.
const MAX_DURATION_US: u64 = 10_000_000;

/// How much a unit matters to a viewer, for queues that must drop something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Priority {
    /// No later unit needs it.
    Discardable,
    /// Later units may need it; a decoder cannot start with it.
    #[default]
    Other,
    /// A decoder can start with it; every unit until the next one needs it.
    Key,
}

/// Bytes that a reader of the stream needs between the initialisation and a unit that it starts with. Empty unless the
/// container is WebM and the unit lies inside a cluster: then the head of a cluster with the same time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Prefix {
    bytes: [u8; Prefix::MAX],
    len: u8,
}

impl Prefix {
    const MAX: usize = 22;

    /// Creates a prefix of the first bytes of `bytes`, at most as many as fit.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let mut prefix = Prefix::default();
        let len = bytes.len().min(Prefix::MAX);
        prefix.bytes[..len].copy_from_slice(&bytes[..len]);
        prefix.len = len as u8;
        prefix
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// A range of the stream: a picture with the sound around it (MPEG-TS), a block (WebM), a fragment (MP4). Units do not
/// overlap. Bytes between two units are damage or belong to an initialisation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unit {
    /// Bytes of the stream before the unit.
    pub offset: u64,
    /// Length in bytes, at most [`MAX_UNIT`].
    pub len: u64,
    /// Time of the first frame of the main track (the first video track, else the first audio track), in the order of
    /// decoding. It starts anywhere, and goes back when the source starts again. `None`: no frame of that track.
    pub time: Option<Duration>,
    /// How long the unit's frames of the main track play.
    pub duration: Option<Duration>,
    /// A decoder can start here, after the initialisation and `prefix`.
    pub is_start: bool,
    /// Bytes to insert when starting here.
    pub prefix: Prefix,
}

impl Unit {
    /// Returns how much the unit matters.
    #[must_use]
    pub fn priority(&self) -> Priority {
        match self.is_start {
            true => Priority::Key,
            false => Priority::Other,
        }
    }

    /// Returns the offset of the byte after the unit.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }
}

/// What the reader has found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The initialisation is complete or has changed: see [`Reader::init`](crate::Reader::init).
    Init,
    /// A unit has ended.
    Unit(Unit),
}

/// Returns a number of ticks as a time; `None` for a timescale of 0.
pub(crate) fn ticks(value: u64, timescale: u32) -> Option<Duration> {
    let micros = u128::from(value) * 1_000_000 / u128::from(timescale.max(1));
    let micros = u64::try_from(micros).unwrap_or(u64::MAX);
    (timescale > 0).then(|| Duration::from_micros(micros))
}

/// Returns the duration if a unit may be that long.
pub(crate) fn believed(duration: Duration) -> Option<Duration> {
    let micros = duration.total_micros();
    (1..=MAX_DURATION_US).contains(&micros).then_some(duration)
}

/// What all containers' parsers write.
#[derive(Default, Debug)]
pub(crate) struct Output {
    /// The initialisation.
    pub(crate) init: Vec<u8>,
    /// Codec strings of its tracks; empty if one is unknown.
    pub(crate) codecs: Vec<String>,
    events: VecDeque<Event>,
}

impl Output {
    /// Replaces the initialisation.
    pub(crate) fn set_init(&mut self, init: Vec<u8>, codecs: Vec<String>) {
        self.init = init;
        self.codecs = codecs;
        self.events.push_back(Event::Init);
    }

    pub(crate) fn unit(&mut self, unit: Unit) {
        if unit.len > 0 && unit.len <= MAX_UNIT {
            self.events.push_back(Event::Unit(unit));
        }
    }

    pub(crate) fn next(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}
