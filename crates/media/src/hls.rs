//! Live playlists of HTTP Live Streaming with partial segments (RFC 8216, and its second edition
//! draft-pantos-hls-rfc8216bis, "8216bis" below) from memory.
//!
//! A [`Recorder`] takes the units of an MPEG-TS or fragmented MP4 stream, with their bytes, and keeps the newest ones as
//! segments, each of which is made of parts. The bytes are not changed: a segment of MPEG-TS has the tables in front, one
//! of MP4 refers to the initialisation. WebM has no form in HLS.
//!
//! | file | content |
//! | --- | --- |
//! | `index.m3u8` | the playlist: [`Recorder::playlist`] |
//! | `N.ts`, `N.m4s` | segment N |
//! | `N.P.ts`, `N.P.m4s` | part P of segment N |
//! | `init.N.mp4` | the initialisation, of MP4 |
//!
//! # Segments and parts
//!
//! A segment begins with a unit that a decoder can start with, and lasts at least a second. A segment that would exceed
//! the target duration is cut all the same, and the next one then begins with another unit. The target duration is that
//! of the first segment, at least 2 s and at most 10 s, so there is no playlist until the first segment is complete.
//! A part is as long as the units allow within [`Config::part_target`]; a longer unit is a part of its own.
//!
//! Delta updates (`EXT-X-SKIP`) are not offered: they need playlists of more than six target durations, and these
//! have [`Config::listed`] segments.
//!
//! # Limits
//!
//! | quantity | bound | at the bound |
//! | --- | --- | --- |
//! | bytes of all segments | [`Config::bytes`] | the oldest segment is removed |
//! | bytes of one segment | a quarter of that | the segment ends |
//! | bytes of a unit | the same | the unit is left out, and a discontinuity announced |
//! | segments | twice [`Config::listed`] | the oldest segment is removed |
//! | initialisations | two more than that, each of [`MAX_INIT`](crate::MAX_INIT) bytes | the oldest is removed |

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use proto_core::time::Duration;

use crate::reader::Container;
use crate::unit::Unit;

/// Shortest segment, unless a discontinuity ends it.
const MIN_SEGMENT: Duration = Duration::from_secs(1);
/// Least and greatest target duration, in seconds.
const TARGET_S: (u64, u64) = (2, 10);
/// Difference of times from which on they do not follow each other.
const MAX_GAP: Duration = Duration::from_secs(1);
/// Complete segments whose parts are listed: at least three target durations would be enough (8216bis §4.4.4.9).
const WITH_PARTS: u64 = 3;

/// Bounds of a recorder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Longest part.
    pub part_target: Duration,
    /// Complete segments in the playlist. As many again are kept for slow readers.
    pub listed: usize,
    /// Most bytes of all segments.
    pub bytes: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            part_target: Duration::from_millis(300),
            listed: 6,
            bytes: 16 << 20,
        }
    }
}

#[derive(Debug)]
struct Part<T> {
    duration: Duration,
    is_start: bool,
    pieces: Vec<T>,
}

#[derive(Debug)]
struct Segment<T> {
    number: u64,
    parts: Vec<Part<T>>,
    duration: Duration,
    bytes: usize,
    /// Number of the initialisation.
    init: u64,
    follows_discontinuity: bool,
    /// Discontinuities up to this segment, its own with them.
    discontinuities: u64,
}

/// Whether a part or a playlist is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found<T> {
    /// It is there.
    Now(T),
    /// It comes next: wait for it.
    Later,
    /// It is gone, or too far ahead.
    Never,
}

/// Keeps the newest segments of one stream. `T` is a piece of the stream.
#[derive(Debug)]
pub struct Recorder<T> {
    config: Config,
    container: Container,
    inits: VecDeque<(u64, T, usize)>,
    next_init: u64,
    /// Complete segments.
    segments: VecDeque<Segment<T>>,
    bytes: usize,
    /// The segment that is being made; `None` before the first unit that a decoder can start with.
    open: Option<Segment<T>>,
    /// The part that is being made.
    part: Option<Part<T>>,
    next: u64,
    discontinuities: u64,
    /// The next segment does not follow the one before it.
    broken: bool,
    /// When the next unit is expected, in the stream's time.
    expected: Option<Duration>,
    target_s: Option<u64>,
    longest_part: Duration,
}

impl<T: Clone> Recorder<T> {
    /// Creates a recorder; `None` for WebM.
    #[must_use]
    pub fn new(config: Config, container: Container) -> Option<Self> {
        let longest_part = config.part_target;
        (container != Container::WebM).then_some(Recorder {
            config,
            container,
            inits: VecDeque::new(),
            next_init: 0,
            segments: VecDeque::new(),
            bytes: 0,
            open: None,
            part: None,
            next: 0,
            discontinuities: 0,
            broken: false,
            expected: None,
            target_s: None,
            longest_part,
        })
    }

    /// Sets the initialisation of what follows, of `len` bytes.
    pub fn set_init(&mut self, init: T, len: usize) {
        if !self.inits.is_empty() {
            self.end_segment();
            self.broken = true;
        }
        self.inits.push_back((self.next_init, init, len));
        self.next_init += 1;
        // One for each segment that may be kept.
        if self.inits.len() > 2 * self.config.listed + 2 {
            self.inits.pop_front();
        }
    }

    /// Adds a unit, whose bytes are in `pieces`. Returns whether a part or a segment was completed.
    pub fn push(&mut self, unit: &Unit, pieces: impl IntoIterator<Item = T>) -> bool {
        let before = (self.next, self.open.as_ref().map(|open| open.parts.len()));
        let len = usize::try_from(unit.len).unwrap_or(usize::MAX);
        if let (Some(time), Some(expected)) = (unit.time, self.expected) {
            let gap = |a: Duration, b: Duration| a.total_micros().saturating_sub(b.total_micros());
            let most = MAX_GAP.total_micros();
            self.broken |= gap(time, expected) > most || gap(expected, time) > most;
        }
        if unit.time.is_some() {
            let duration = unit.duration.unwrap_or_default();
            self.expected = unit.time.map(|time| {
                Duration::from_micros(time.total_micros().saturating_add(duration.total_micros()))
            });
        }
        if len > self.config.bytes / 4 || self.inits.is_empty() {
            self.broken |= self.open.is_some();
            return false;
        }
        self.cut(unit, len);
        if self.open.is_none() {
            if !unit.is_start {
                return false;
            }
            self.open();
        }
        self.add(unit, len, pieces);
        (self.next, self.open.as_ref().map(|open| open.parts.len())) != before
    }

    /// Ends the part and the segment if the unit does not belong to them.
    fn cut(&mut self, unit: &Unit, len: usize) {
        let Some(open) = &self.open else {
            return;
        };
        let part = self
            .part
            .as_ref()
            .map_or(Duration::ZERO, |part| part.duration);
        let unit_duration = unit.duration.unwrap_or_default();
        let whole = open.duration + part + unit_duration;
        let (least, greatest) = TARGET_S;
        let most = self.target_s.unwrap_or(greatest).max(least) * 1_000_000 + 499_999;
        let is_long = whole.total_micros() > most;
        let is_due = unit.is_start && open.duration + part >= MIN_SEGMENT;
        if self.broken || is_due || is_long || open.bytes + len > self.config.bytes / 4 {
            self.end_segment();
            if !self.broken && !unit.is_start {
                self.open();
            }
        } else if part > Duration::ZERO && part + unit_duration > self.config.part_target {
            self.end_part();
        }
    }

    fn open(&mut self) {
        let broken = core::mem::take(&mut self.broken) && self.next > 0;
        self.discontinuities += u64::from(broken);
        let mut segment = Segment {
            number: self.next,
            parts: Vec::new(),
            duration: Duration::ZERO,
            bytes: 0,
            init: self.next_init.saturating_sub(1),
            follows_discontinuity: broken,
            discontinuities: self.discontinuities,
        };
        self.next += 1;
        let mut pieces = Vec::new();
        // A segment of MPEG-TS begins with the tables (RFC 8216 §3.2).
        if self.container == Container::Ts
            && let Some((_, init, len)) = self.inits.back()
        {
            pieces.push(init.clone());
            segment.bytes += len;
            self.bytes += len;
        }
        self.part = Some(Part {
            duration: Duration::ZERO,
            is_start: false,
            pieces,
        });
        self.open = Some(segment);
    }

    fn add(&mut self, unit: &Unit, len: usize, pieces: impl IntoIterator<Item = T>) {
        let Some(open) = &mut self.open else {
            return;
        };
        let part = self.part.get_or_insert(Part {
            duration: Duration::ZERO,
            is_start: false,
            pieces: Vec::new(),
        });
        part.is_start |= unit.is_start && part.duration == Duration::ZERO;
        part.pieces.extend(pieces);
        part.duration += unit.duration.unwrap_or_default();
        open.bytes += len;
        self.bytes += len;
        if part.duration >= self.config.part_target {
            self.end_part();
        }
        while self.bytes > self.config.bytes || self.segments.len() > 2 * self.config.listed {
            let Some(oldest) = self.segments.pop_front() else {
                return;
            };
            self.bytes -= oldest.bytes;
            let needed = self
                .segments
                .front()
                .or(self.open.as_ref())
                .map(|segment| segment.init);
            while self.inits.len() > 1 && self.inits.front().map(|(number, ..)| *number) < needed {
                self.inits.pop_front();
            }
        }
    }

    fn end_part(&mut self) {
        if let (Some(open), Some(part)) = (&mut self.open, self.part.take()) {
            open.duration += part.duration;
            self.longest_part = self.longest_part.max(part.duration);
            open.parts.push(part);
        }
    }

    fn end_segment(&mut self) {
        self.end_part();
        let Some(segment) = self.open.take() else {
            return;
        };
        if self.target_s.is_none() {
            let rounded = (segment.duration.total_micros() + 500_000) / 1_000_000;
            self.target_s = Some(rounded.clamp(TARGET_S.0, TARGET_S.1));
        }
        self.segments.push_back(segment);
    }

    /// Returns the playlist; `None` before the first segment is complete.
    #[must_use]
    pub fn playlist(&self) -> Option<String> {
        let target = self.target_s?;
        let skip = self.segments.len().saturating_sub(self.config.listed);
        let first = self.segments.get(skip)?;
        let before = first.discontinuities - u64::from(first.follows_discontinuity);
        let part = seconds(self.longest_part);
        let hold = seconds(self.longest_part + self.longest_part + self.longest_part);
        let mut text = format!(
            "#EXTM3U\n#EXT-X-VERSION:9\n#EXT-X-TARGETDURATION:{target}\n\
             #EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK={hold}\n\
             #EXT-X-PART-INF:PART-TARGET={part}\n#EXT-X-MEDIA-SEQUENCE:{}\n\
             #EXT-X-DISCONTINUITY-SEQUENCE:{before}\n",
            first.number
        );
        let mut init = None;
        let listed = self.segments.iter().skip(skip);
        for segment in listed.chain(self.open.as_ref()) {
            self.list(segment, &mut init, &mut text);
        }
        let (number, part) = self.awaited();
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"{number}.{part}.{}\"",
            self.extension()
        );
        Some(text)
    }

    fn list(&self, segment: &Segment<T>, init: &mut Option<u64>, text: &mut String) {
        let (number, extension) = (segment.number, self.extension());
        let is_open = self.open.as_ref().is_some_and(|open| open.number == number);
        if is_open && segment.parts.is_empty() {
            return;
        }
        let mut line = |line: core::fmt::Arguments<'_>| {
            let _ = writeln!(text, "{line}");
        };
        if segment.follows_discontinuity {
            line(format_args!("#EXT-X-DISCONTINUITY"));
        }
        if self.container == Container::Mp4 && *init != Some(segment.init) {
            *init = Some(segment.init);
            line(format_args!("#EXT-X-MAP:URI=\"init.{}.mp4\"", segment.init));
        }
        if number + WITH_PARTS >= self.next {
            for (at, part) in segment.parts.iter().enumerate() {
                let independent = if part.is_start {
                    ",INDEPENDENT=YES"
                } else {
                    ""
                };
                let duration = seconds(part.duration);
                line(format_args!(
                    "#EXT-X-PART:DURATION={duration},URI=\"{number}.{at}.{extension}\"{independent}"
                ));
            }
        }
        if !is_open {
            line(format_args!(
                "#EXTINF:{},\n{number}.{extension}",
                seconds(segment.duration)
            ));
        }
    }

    /// Returns the extension of segments and parts.
    #[must_use]
    pub fn extension(&self) -> &'static str {
        match self.container {
            Container::Mp4 => "m4s",
            _ => "ts",
        }
    }

    /// Returns the container.
    #[must_use]
    pub fn container(&self) -> Container {
        self.container
    }

    /// Returns the bytes of all segments.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of the next part: its segment, and its place there.
    fn awaited(&self) -> (u64, u64) {
        match &self.open {
            Some(open) => (open.number, open.parts.len() as u64),
            None => (self.next, 0),
        }
    }

    fn find(&self, number: u64) -> Option<&Segment<T>> {
        let first = self.segments.front()?.number;
        let at = usize::try_from(number.checked_sub(first)?).ok()?;
        self.segments.get(at)
    }

    /// Returns whether the playlist lists the segment, or the part of it (8216bis §6.2.5.2). A part after the segment's
    /// last one means the first part of the next segment.
    #[must_use]
    pub fn lists(&self, number: u64, part: Option<u64>) -> Found<()> {
        let (open, next) = self.awaited();
        let complete = |number: u64| {
            self.segments
                .back()
                .is_some_and(|last| number <= last.number)
        };
        let is_there = match part {
            None => complete(number),
            Some(part) if complete(number) => {
                let parts = self
                    .find(number)
                    .map_or(usize::MAX, |segment| segment.parts.len());
                part < parts as u64 || open > number + 1 || next > 0
            }
            Some(part) => number == open && part < next,
        };
        match is_there {
            true => Found::Now(()),
            false if number <= open + 1 => Found::Later,
            false => Found::Never,
        }
    }

    /// Returns a segment.
    #[must_use]
    pub fn segment(&self, number: u64) -> Found<Vec<T>> {
        match self.find(number) {
            Some(segment) => {
                let pieces = segment.parts.iter().flat_map(|part| &part.pieces);
                Found::Now(pieces.cloned().collect())
            }
            None if number == self.awaited().0 => Found::Later,
            None => Found::Never,
        }
    }

    /// Returns a part.
    #[must_use]
    pub fn part(&self, number: u64, part: u64) -> Found<Vec<T>> {
        let open = self.open.as_ref().filter(|open| open.number == number);
        let at = usize::try_from(part).unwrap_or(usize::MAX);
        match open
            .or(self.find(number))
            .and_then(|segment| segment.parts.get(at))
        {
            Some(part) => Found::Now(part.pieces.clone()),
            // The part after the last one of a segment may become the first of the next.
            None if (number, part) == self.awaited() => Found::Later,
            None => Found::Never,
        }
    }

    /// Returns an initialisation.
    #[must_use]
    pub fn init(&self, number: u64) -> Option<&T> {
        let mut all = self.inits.iter();
        all.find(|(this, ..)| *this == number)
            .map(|(_, init, _)| init)
    }
}

/// Returns a duration in seconds, with milliseconds.
fn seconds(duration: Duration) -> String {
    let millis = (duration.total_micros() + 500) / 1000;
    format!("{}.{:03}", millis / 1000, millis % 1000)
}
