//! Whether a message is newer than what its sender sent before.

use crate::wire::hier::Header;
use crate::{Duration, Instant};

/// What is remembered of one sender's boot and sequence numbers: the last of each, and the boot
/// before, which may not come again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Freshness {
    heard: Option<(u32, u32)>,
    previous_boot: Option<u32>,
    boot_at: Option<Instant>,
}

impl Freshness {
    /// Whether the sequence number is newer (RFC 1982) than the last of the same boot, or the
    /// boot is new, not the previous one, and not within `restart_interval` of the last.
    pub(crate) fn is_news(
        &self,
        now: Instant,
        header: &Header,
        restart_interval: Duration,
    ) -> bool {
        let Some((boot, sequence)) = self.heard else {
            return true;
        };
        if header.boot == boot {
            return (header.sequence.wrapping_sub(sequence) as i32) > 0;
        }
        let may_restart = self
            .boot_at
            .is_none_or(|at| now >= at && now - at >= restart_interval);
        self.previous_boot != Some(header.boot) && may_restart
    }

    /// Remembers an accepted message.
    pub(crate) fn note(&mut self, now: Instant, header: &Header) {
        match self.heard {
            Some((boot, _)) if boot == header.boot => {}
            before => {
                self.previous_boot = before.map(|(boot, _)| boot);
                self.boot_at = Some(now);
            }
        }
        self.heard = Some((header.boot, header.sequence));
    }
}
