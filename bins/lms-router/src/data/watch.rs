//! Sources of shared trees, `(*, G)`, that requests name: the capture shows their datagrams until
//! the first one has arrived, which proves to the machine that the kernel has seen the source.

use linux_net::packet::{Capture, Ring};
use lms_proto::{Duration, Iface, Instant, Key, Router};

use super::family::Family;

/// Time for which a source is searched. A receiver with gaps requests again later.
const TIMEOUT: Duration = Duration::from_secs(10);

/// One source that is looked for.
#[derive(Clone, Copy, Debug)]
struct Wanted<A> {
    key: Key<A>,
    until: Instant,
}

/// Counters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WatchStats {
    /// Sources whose datagrams have arrived where they should.
    pub(crate) seen: u64,
    /// Sources that were not looked for: as many as the ring takes are being looked for already.
    pub(crate) full: u64,
}

/// The sources that are looked for: [`Ring::MAX_SOURCES`] at most.
#[derive(Debug)]
pub(crate) struct SourceWatch<A> {
    wanted: Vec<Wanted<A>>,
    /// The capture shows other sources than `wanted`.
    changed: bool,
    pub(crate) stats: WatchStats,
}

impl<A> Default for SourceWatch<A> {
    fn default() -> Self {
        SourceWatch {
            wanted: Vec::new(),
            changed: false,
            stats: WatchStats::default(),
        }
    }
}

impl<A: Family> SourceWatch<A> {
    /// Looks for a source from now on.
    pub(crate) fn want(&mut self, now: Instant, key: Key<A>) {
        let until = now + TIMEOUT;
        if let Some(wanted) = self.wanted.iter_mut().find(|wanted| wanted.key == key) {
            wanted.until = until;
        } else if self.wanted.len() < Ring::MAX_SOURCES {
            self.wanted.push(Wanted { key, until });
            self.changed = true;
        } else {
            self.stats.full += 1;
        }
    }

    /// Handles a packet that is not for LMS.
    #[inline]
    pub(crate) fn passed(
        &mut self,
        now: Instant,
        iface: Iface,
        packet: &[u8],
        router: &mut Router<'_, A>,
    ) {
        if self.wanted.is_empty() {
            return;
        }
        let Some((source, group)) = A::udp_ends(packet) else {
            return;
        };
        let key = Key::new(source, group);
        let found = self.wanted.iter().position(|wanted| wanted.key == key);
        if let Some(found) = found
            && router.source_seen(now, iface, key)
        {
            self.wanted.swap_remove(found);
            self.changed = true;
            self.stats.seen += 1;
        }
    }

    /// When [`SourceWatch::apply`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.wanted.iter().map(|wanted| wanted.until).min()
    }

    /// Removes sources whose search has expired, and restricts the capture to the others.
    pub(crate) fn apply(&mut self, now: Instant, capture: &mut Capture) -> std::io::Result<()> {
        let before = self.wanted.len();
        self.wanted.retain(|wanted| now < wanted.until);
        if !std::mem::take(&mut self.changed) && self.wanted.len() == before {
            return Ok(());
        }
        let sources: Vec<(A, A)> = self
            .wanted
            .iter()
            .map(|wanted| (wanted.key.source, wanted.key.group))
            .collect();
        capture.watch_sources(&sources)
    }
}
