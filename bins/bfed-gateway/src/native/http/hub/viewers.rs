//! Segments of HLS, the list of sessions, readers and segments that have become idle, counters.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use hyper::body::Bytes;
use media::Container;
use media::hls::Recorder;
use tokio::sync::Notify;

use super::{Hub, Key, Live};
use crate::native::Counter;

/// A stream, for viewers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in super::super) struct Viewed {
    pub(in super::super) key: Key,
    /// The container, once it is known.
    pub(in super::super) container: Option<Container>,
    pub(in super::super) codecs: Vec<String>,
    /// Readers of the stream, without those of segments.
    pub(in super::super) readers: usize,
    /// Readers, and addresses that ask for the playlist; the subscribers of MoQ are not among them.
    pub(in super::super) viewers: usize,
    pub(in super::super) is_recorded: bool,
}

/// Why there are no segments of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum NoSegments {
    /// The stream is not here.
    NoStream,
    /// It is of a container that HLS does not know, or of several sources.
    NoContainer,
    /// As many sessions as `hls-sessions` allows have segments.
    Limit,
    /// As many as `hls-sessions-per-client` allows are watched by this client alone.
    ClientLimit,
}

impl Hub {
    /// Requests segments of a stream for a client. Returns the notifier of new ones.
    pub(in super::super) fn ask_segments(
        &mut self,
        key: &Key,
        client: IpAddr,
    ) -> Result<Arc<Notify>, NoSegments> {
        let client = crate::limiter::source(client);
        let lives = self.streams.values();
        let lives = lives.filter_map(|stream| stream.live.as_ref());
        let (mut count, mut own) = (0, 0);
        for live in lives.filter(|live| live.is_recorded()) {
            count += 1;
            own += usize::from(live.is_for_alone(client));
        }
        let most = self.bounds.hls_sessions;
        let most_own = self.bounds.hls_sessions_per_client;
        let stream = self.streams.get_mut(key).ok_or(NoSegments::NoStream)?;
        let live = stream.live.as_mut().ok_or(NoSegments::NoContainer)?;
        let has_segments = |of: Container| of != Container::WebM;
        if live.is_unknown() || !live.container().is_none_or(has_segments) {
            return Err(NoSegments::NoContainer);
        }
        if !live.is_recorded() && count >= most {
            return Err(NoSegments::Limit);
        }
        if !live.is_recorded() && own >= most_own {
            return Err(NoSegments::ClientLimit);
        }
        live.ask(client);
        Ok(Arc::clone(&live.changed))
    }

    /// Notes that an address asks for the playlist of a stream.
    pub(in super::super) fn note_viewer(&mut self, key: &Key, from: IpAddr) {
        let live = self.streams.get_mut(key);
        let live = live.and_then(|stream| stream.live.as_mut());
        if live.is_some_and(|live| !live.view(from, Instant::now())) {
            self.counts.uncounted += 1;
        }
    }

    /// Returns the segments of a stream, and the playlist of them.
    pub(in super::super) fn segments(
        &self,
        key: &Key,
    ) -> Option<(&Recorder<Bytes>, Option<Bytes>)> {
        let live = self.streams.get(key)?.live.as_ref()?;
        Some((live.recorder()?, live.playlist()))
    }

    /// Returns a stream.
    pub(in super::super) fn viewed(&self, key: &Key) -> Option<Viewed> {
        let stream = self.streams.get(key)?;
        let live = stream.live.as_ref();
        Some(Viewed {
            key: key.clone(),
            container: live.and_then(Live::container),
            codecs: live.map(|live| live.codecs().to_vec()).unwrap_or_default(),
            readers: stream.readers.len(),
            viewers: self.viewers_of(&stream.readers)
                + live.map_or(0, |live| live.viewers(Instant::now())),
            is_recorded: live.is_some_and(Live::is_recorded),
        })
    }

    /// Returns how many of some readers are viewers.
    fn viewers_of(&self, readers: &[u64]) -> usize {
        let all = readers.iter().filter_map(|id| self.readers.get(id));
        all.filter(|reader| reader.is_viewer).count()
    }

    /// Notes that a reader passes the stream on and is no viewer.
    pub(in super::super) fn passes_on(&mut self, id: u64) {
        if let Some(reader) = self.readers.get_mut(&id) {
            reader.is_viewer = false;
        }
    }

    /// Returns up to `most` streams that are here.
    pub(in super::super) fn all_viewed(&self, most: usize) -> Vec<Viewed> {
        let here = self.streams.keys().filter(|key| self.is_here(key));
        here.take(most).filter_map(|key| self.viewed(key)).collect()
    }

    /// Cuts off readers, also of real-time sessions, that take nothing while their queue has data, and ends segments
    /// without requests. Called regularly.
    pub(in super::super) fn sweep(&mut self) {
        for live in self
            .streams
            .values_mut()
            .filter_map(|stream| stream.live.as_mut())
        {
            live.sweep();
        }
        for reader in self.readers.values_mut() {
            let stuck =
                !reader.queue.is_empty() && reader.took.elapsed() >= self.bounds.idle_timeout * 3;
            if stuck && !reader.ended {
                reader.cut_off();
                self.counts.cut += 1;
            }
        }
    }

    pub(in super::super) fn gauges(&self) -> Vec<Counter> {
        let now = Instant::now();
        let lives = self.streams.values().filter_map(|of| of.live.as_ref());
        let hls: usize = lives.map(|live| live.viewers(now)).sum();
        let http = self.readers.values().filter(|reader| reader.is_viewer);
        vec![
            ("readers", self.readers.len() as u64),
            ("streams", self.streams.len() as u64),
            ("http_viewers", http.count() as u64),
            ("hls_viewers", hls as u64),
        ]
    }

    pub(in super::super) fn counters(&self) -> Vec<Counter> {
        let counts = &self.counts;
        vec![
            ("chunks_received", counts.received),
            ("frames_sent", counts.sent),
            ("frames_dropped_slow_reader", counts.dropped),
            ("readers_cut_off", counts.cut),
            ("sources_refused", counts.refused),
            ("inits_too_long", counts.long_inits),
            ("hls_viewers_not_counted", counts.uncounted),
        ]
    }
}
