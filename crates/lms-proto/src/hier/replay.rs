//! Replay protection by boot and sequence numbers.

use crate::wire::hier::Header;
use crate::{Duration, Instant};

/// The last boot and sequence numbers of one sender, and the previous boot number, which is not accepted again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReplayGuard {
    last: Option<(u32, u32)>,
    previous_boot: Option<u32>,
    boot_at: Option<Instant>,
}

impl ReplayGuard {
    /// Returns whether the sequence number is newer (RFC 1982) than the last of the same boot, or the boot number is
    /// new, not the previous one, and `restart_interval` or more after the last.
    pub(crate) fn is_newer(
        &self,
        now: Instant,
        header: &Header,
        restart_interval: Duration,
    ) -> bool {
        let Some((boot, sequence)) = self.last else {
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

    /// Records an accepted message.
    pub(crate) fn note(&mut self, now: Instant, header: &Header) {
        match self.last {
            Some((boot, _)) if boot == header.boot => {}
            before => {
                self.previous_boot = before.map(|(boot, _)| boot);
                self.boot_at = Some(now);
            }
        }
        self.last = Some((header.boot, header.sequence));
    }
}
