//! Memory of a stream of a known container (MPEG-TS, WebM, fragmented MP4) for viewers that arrive late: the
//! initialisation, the bytes since the last key frame, and segments of HLS while clients request them.
//!
//! | memory for each flow | bound |
//! | --- | --- |
//! | bytes since the last key frame, and those of the frame that is arriving | half of `queue`, and a chunk for 128 bytes of that; more is forgotten until the next key frame |
//! | segments of HLS, from the first request for them until 60 s after the last | `hls-memory` |
//! | addresses that have asked for the playlist in the last 30 s | 1024; requests of further ones are counted |

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bfed::wire::init::MAX_INIT_LEN;
use hyper::body::Bytes;
use media::hls::{Config, Recorder};
use media::{Container, Event, Prefix, Priority, Reader, Unit};
use tokio::sync::Notify;

/// Time after the last request for which segments are made.
const UNASKED: Duration = Duration::from_secs(60);
/// Time after its last request for the playlist in which an address is a viewer: several target durations, and longer than a
/// request waits.
const VIEWING: Duration = Duration::from_secs(30);
/// Most addresses that are viewers of one flow.
const MAX_VIEWERS: usize = 1024;

/// Memory of a chunk beside its bytes, at most.
const CHUNK_COST: u64 = 128;
/// Average length of pieces from which on they are worth sharing, in bytes.
const MIN_PIECE: u64 = 512;

/// Bytes by which the beginning of a stream is recognised: the head of `ftyp`, or of EBML with its first element.
const FRONT: usize = 12;

/// Where a new reader of a stream begins.
pub(super) enum Join {
    /// With these bytes, then with what arrives next.
    Now(Vec<Bytes>),
    /// With the next key frame.
    Wait,
}

/// The newest bytes of one stream.
#[derive(Default)]
pub(super) struct Live {
    reader: Reader,
    chunks: VecDeque<Bytes>,
    /// Offset of the first byte in `chunks`, and of the next byte of the stream.
    first: u64,
    end: u64,
    /// Most bytes in `chunks`.
    max: u64,
    init: Bytes,
    /// The initialisation of a container without which its stream cannot be joined, and has not been taken yet.
    changed_init: Option<Bytes>,
    /// How much the bytes matter that came last.
    priority: Priority,
    /// The last unit that a decoder can start with.
    start: Option<(u64, Prefix)>,
    /// There has been one.
    has_starts: bool,
    recorder: Option<Recorder<Bytes>>,
    /// Its playlist, written once for all clients.
    playlist: Option<Bytes>,
    /// The client that asks for segments, while it is the only one.
    client: Option<IpAddr>,
    /// When segments were asked for last.
    asked: Option<Instant>,
    /// When each address has asked for the playlist last.
    viewers: BTreeMap<IpAddr, Instant>,
    hls: Config,
    /// Notified when the playlist has changed.
    pub(super) changed: Arc<Notify>,
}

impl Live {
    pub(super) fn new(max: usize, hls: Config) -> Self {
        Live {
            max: max as u64,
            hls,
            ..Live::default()
        }
    }

    /// Forgets the old source, but for its segments: a new one follows.
    pub(super) fn restart(&mut self) {
        let changed_init = self.own_init().map(|_| Bytes::new());
        *self = Live {
            changed_init: changed_init.or_else(|| self.changed_init.take()),
            recorder: self.recorder.take(),
            playlist: self.playlist.take(),
            asked: self.asked.take(),
            viewers: std::mem::take(&mut self.viewers),
            changed: Arc::clone(&self.changed),
            ..Live::new(self.max as usize, self.hls.clone())
        };
    }

    /// Returns whether the stream is of no known container, so that nothing is kept.
    pub(super) fn is_unknown(&self) -> bool {
        self.reader.is_unknown()
    }

    pub(super) fn container(&self) -> Option<Container> {
        self.reader.container()
    }

    pub(super) fn codecs(&self) -> &[String] {
        self.reader.codecs()
    }

    /// Takes the stream's next bytes. Returns whether a reader that waits can begin.
    pub(super) fn push(&mut self, data: &Bytes) -> bool {
        if self.is_unknown() {
            return false;
        }
        self.reader.push(data);
        self.chunks.push_back(data.clone());
        self.end += data.len() as u64;
        let (mut started, mut changed) = (false, false);
        self.priority = Priority::Other;
        while let Some(event) = self.reader.poll_event() {
            match event {
                Event::Init => {
                    self.priority = Priority::Key;
                    changed |= self.initialise();
                }
                Event::Unit(unit) => {
                    self.priority = self.priority.max(unit.priority());
                    if unit.is_start && unit.offset >= self.first {
                        self.start = Some((unit.offset, unit.prefix));
                        self.has_starts = true;
                        started = true;
                    }
                    changed |= self.record(&unit);
                }
            }
        }
        self.priority = self.priority.max(self.reader.open_priority());
        if self.is_unknown() {
            self.chunks.clear();
        }
        self.forget();
        if changed {
            let playlist = self.recorder.as_ref().and_then(Recorder::playlist);
            self.playlist = playlist.map(Bytes::from);
            self.changed.notify_waiters();
        }
        started
    }

    /// Returns the initialisation, if readers cannot begin without it and other gateways can have it.
    pub(super) fn own_init(&self) -> Option<Bytes> {
        let needed = self.container().is_some_and(Container::needs_init);
        let fits = (1..=MAX_INIT_LEN).contains(&self.init.len());
        (needed && fits).then(|| self.init.clone())
    }

    /// Returns whether these bytes are the beginning of the stream whose initialisation was set before. They are read as
    /// such.
    pub(super) fn begins_with(&mut self, data: &[u8]) -> bool {
        let front = &data[..data.len().min(FRONT)];
        let begins = self.end == 0 && front.len() == FRONT && self.init.starts_with(front);
        if begins {
            self.reader = Reader::new();
        }
        begins
    }

    /// Returns how much the bytes matter that came last; of an unknown container all matter alike.
    pub(super) fn priority(&self) -> Priority {
        self.priority
    }

    /// Returns whether the initialisation is too long for other gateways.
    pub(super) fn is_init_long(&self) -> bool {
        self.init.len() > MAX_INIT_LEN
    }

    /// Returns the initialisation once after each change; empty if there is none any more.
    pub(super) fn take_changed_init(&mut self) -> Option<Bytes> {
        self.changed_init.take()
    }

    /// Continues a stream after its initialisation, from anywhere. Returns false if nothing changes: the stream has that
    /// initialisation already, or it is of no known container.
    pub(super) fn set_init(&mut self, init: &[u8]) -> bool {
        let known = self.own_init().unwrap_or_default();
        if known == init {
            return false;
        }
        if init.is_empty() {
            self.restart();
            return true;
        }
        let Some(reader) = Reader::resume(init) else {
            return false;
        };
        self.restart();
        self.reader = reader;
        while let Some(event) = self.reader.poll_event() {
            if event == Event::Init {
                self.initialise();
            }
        }
        true
    }

    fn initialise(&mut self) -> bool {
        let before = core::mem::replace(&mut self.init, Bytes::copy_from_slice(self.reader.init()));
        if self.container().is_some_and(Container::needs_init) && self.init != before {
            self.changed_init = Some(self.own_init().unwrap_or_default());
        }
        if self.container().is_some_and(Container::needs_init) {
            self.start = None;
        }
        let container = self.container();
        self.recorder = self
            .recorder
            .take()
            .filter(|recorder| Some(recorder.container()) == container);
        if let Some(recorder) = &mut self.recorder {
            recorder.set_init(self.init.clone(), self.init.len());
        }
        self.recorder.is_some()
    }

    fn record(&mut self, unit: &Unit) -> bool {
        if self.recorder.is_none() && self.asked.is_some() {
            self.recorder = self
                .container()
                .and_then(|of| Recorder::new(self.hls.clone(), of));
            if let Some(recorder) = self.recorder.as_mut().filter(|_| !self.init.is_empty()) {
                recorder.set_init(self.init.clone(), self.init.len());
            }
        }
        let Some(mut recorder) = self.recorder.take() else {
            return false;
        };
        let changed = unit.offset >= self.first && recorder.push(unit, self.pieces(unit));
        self.recorder = Some(recorder);
        changed
    }

    /// Returns the bytes between two offsets, as far as they are kept.
    fn slice(&self, from: u64, to: u64) -> Vec<Bytes> {
        let mut at = self.first;
        let mut pieces = Vec::new();
        for chunk in &self.chunks {
            let next = at + chunk.len() as u64;
            let (first, last) = (from.max(at), to.min(next));
            if first < last {
                pieces.push(chunk.slice((first - at) as usize..(last - at) as usize));
            }
            if next >= to {
                break;
            }
            at = next;
        }
        pieces
    }

    /// Returns the bytes of a unit: shared, or copied if the pieces are tiny.
    fn pieces(&self, unit: &Unit) -> Vec<Bytes> {
        let pieces = self.slice(unit.offset, unit.end());
        match pieces.len() as u64 * MIN_PIECE > unit.len + 2 * MIN_PIECE {
            true => vec![pieces.concat().into()],
            false => pieces,
        }
    }

    /// Drops bytes that are not needed, and all bytes at the bound.
    fn forget(&mut self) {
        let open = self.reader.open_offset();
        let mut needed = self.start.map_or(open, |(start, _)| start.min(open));
        // A chunk costs more than its bytes, if it is tiny.
        let is_crumbled = self.chunks.len() as u64 * CHUNK_COST > self.max;
        if self.end - needed > self.max || is_crumbled {
            self.start = None;
            needed = match self.end - open > self.max || is_crumbled {
                true => self.end,
                false => open,
            };
        }
        while let Some(chunk) = self.chunks.front() {
            let next = self.first + chunk.len() as u64;
            if next > needed {
                return;
            }
            self.first = next;
            self.chunks.pop_front();
        }
        self.first = self.end;
    }

    /// Returns where a new reader begins.
    pub(super) fn join(&self) -> Join {
        match (self.container(), self.start) {
            (None, _) => Join::Now(Vec::new()),
            (Some(_), Some((start, prefix))) => {
                let mut pieces = vec![self.init.clone()];
                pieces.push(Bytes::copy_from_slice(prefix.as_bytes()));
                pieces.extend(self.slice(start, self.end));
                pieces.retain(|piece| !piece.is_empty());
                Join::Now(pieces)
            }
            // No key frame is marked in this stream, so decoders find their own way.
            (Some(container), None) if !container.needs_init() && !self.has_starts => {
                Join::Now(Vec::new())
            }
            (Some(_), None) => Join::Wait,
        }
    }

    /// Notes a request for segments.
    pub(super) fn ask(&mut self, client: IpAddr) {
        self.client = match self.is_recorded() {
            true => self.client.filter(|first| *first == client),
            false => Some(client),
        };
        self.asked = Some(Instant::now());
    }

    /// Returns whether segments are made that no other client has asked for.
    pub(super) fn is_for_alone(&self, client: IpAddr) -> bool {
        self.is_recorded() && self.client == Some(client)
    }

    /// Notes a request for the playlist by an address. Returns false if there are too many viewers to count it.
    pub(super) fn view(&mut self, from: IpAddr, now: Instant) -> bool {
        if self.viewers.len() >= MAX_VIEWERS && !self.viewers.contains_key(&from) {
            self.viewers.retain(|_, last| is_viewing(*last, now));
            if self.viewers.len() >= MAX_VIEWERS {
                return false;
            }
        }
        self.viewers.insert(from, now);
        true
    }

    /// Returns the number of addresses that have asked for the playlist lately.
    pub(super) fn viewers(&self, now: Instant) -> usize {
        let all = self.viewers.values();
        all.filter(|last| is_viewing(**last, now)).count()
    }

    /// Returns whether segments are being made.
    pub(super) fn is_recorded(&self) -> bool {
        self.asked.is_some()
    }

    /// Stops making segments some time after the last request.
    pub(super) fn sweep(&mut self) {
        if self.asked.is_some_and(|asked| asked.elapsed() > UNASKED) {
            self.asked = None;
            self.recorder = None;
            self.playlist = None;
            self.viewers.clear();
        }
    }

    pub(super) fn playlist(&self) -> Option<Bytes> {
        self.playlist.clone()
    }

    pub(super) fn recorder(&self) -> Option<&Recorder<Bytes>> {
        self.recorder.as_ref()
    }
}

fn is_viewing(last: Instant, now: Instant) -> bool {
    now.saturating_duration_since(last) <= VIEWING
}

#[cfg(test)]
mod tests {
    use super::*;

    const TS: &[u8] = include_bytes!("../../../../../crates/media/tests/samples/h264.ts");

    fn pour(live: &mut Live, stream: &[u8], len: usize) {
        for piece in stream.chunks(len) {
            live.push(&Bytes::copy_from_slice(piece));
            let kept = live.chunks.iter().map(Bytes::len).sum::<usize>() as u64;
            assert!(kept <= live.max + len as u64, "{kept} bytes are kept");
            assert!(live.chunks.len() as u64 * CHUNK_COST <= live.max + CHUNK_COST);
        }
    }

    #[test]
    fn tiny_chunks_and_rare_key_frames_stay_within_the_bound() {
        for (len, max) in [
            (1, 1 << 20),
            (1, 20_000),
            (188, 9_000),
            (1316, 1 << 20),
            (1316, 3_000),
        ] {
            let mut live = Live::new(max, Config::default());
            live.ask([127, 0, 0, 1].into());
            pour(&mut live, TS, len);
            let recorder = live.recorder().expect("segments");
            assert!(recorder.bytes() <= TS.len() * 2);
        }
    }

    #[test]
    fn segments_of_tiny_chunks_are_in_few_pieces() {
        let mut live = Live::new(4 << 20, Config::default());
        live.ask([127, 0, 0, 1].into());
        pour(&mut live, TS, 2);
        let segment = live.recorder().unwrap().segment(0);
        let media::hls::Found::Now(pieces) = segment else {
            panic!("{segment:?}");
        };
        let bytes: usize = pieces.iter().map(Bytes::len).sum();
        assert!(pieces.len() <= 30, "{} pieces, {bytes} bytes", pieces.len());
    }

    #[test]
    fn a_flood_of_viewers_is_bounded_and_idle_ones_are_forgotten() {
        let (mut live, now) = (Live::new(1 << 20, Config::default()), Instant::now());
        let address = |number: u32| IpAddr::from(number.to_be_bytes());
        for number in 0..10_000 {
            assert_eq!(
                live.view(address(number), now),
                (number as usize) < MAX_VIEWERS
            );
        }
        assert_eq!(
            (live.viewers.len(), live.viewers(now)),
            (MAX_VIEWERS, MAX_VIEWERS)
        );
        assert!(live.view(address(1), now), "one that is known stays one");
        let later = now + VIEWING + Duration::from_secs(1);
        assert_eq!(live.viewers(later), 0);
        assert!(live.view(address(20_000), later));
        assert_eq!((live.viewers.len(), live.viewers(later)), (1, 1));
    }

    #[test]
    fn a_new_source_begins_anew_and_its_segments_follow_a_discontinuity() {
        let mut live = Live::new(1 << 20, Config::default());
        live.ask([127, 0, 0, 1].into());
        pour(&mut live, TS, 1316);
        live.restart();
        assert!(live.container().is_none());
        pour(&mut live, TS, 1316);
        let playlist = live.recorder().unwrap().playlist().unwrap();
        assert!(playlist.contains("#EXT-X-DISCONTINUITY\n"), "{playlist}");
    }
}
