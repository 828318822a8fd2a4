//! The peer's timestamps: which segments they show to be too old or too new (RFC 7323 §5), and which one is echoed.

use proto_core::time::{Duration, Instant};

use crate::seq::stamp_before;
use crate::wire::Segment;

/// A remembered timestamp is not held against segments after this (RFC 7323 §5.5).
const LIFETIME: Duration = Duration::from_secs(24 * 24 * 3600);
/// Allowed drift between the clocks of both sides and between the delays of their packets.
const CLOCKS_APART: Duration = Duration::from_secs(10);

/// The timestamp to echo (RFC 7323 §4.3), and when it was taken; none where the option was not agreed on.
#[derive(Default, Debug)]
pub(super) struct Stamps {
    recent: Option<(u32, Instant)>,
}

impl Stamps {
    /// Takes a segment's timestamp, unless it is from before the last one.
    pub(super) fn take(&mut self, now: Instant, segment: &Segment<'_>) {
        if let Some((value, _)) = segment.options.timestamps
            && self
                .recent
                .is_none_or(|(recent, _)| !stamp_before(value, recent))
        {
            self.recent = Some((value, now));
        }
    }

    /// Returns the timestamp to echo.
    pub(super) fn echo(&self) -> u32 {
        self.recent.map_or(0, |(value, _)| value)
    }

    /// The segment's timestamp; the last one, and when that was taken.
    fn pair(&self, segment: &Segment<'_>) -> Option<(u32, u32, Instant)> {
        let (value, _) = segment.options.timestamps?;
        let (recent, when) = self.recent?;
        Some((value, recent, when))
    }

    /// Whether the timestamp is from before the last one by more than `apart_ms`.
    pub(super) fn is_stale(&self, now: Instant, segment: &Segment<'_>, apart_ms: u32) -> bool {
        self.pair(segment).is_some_and(|(value, recent, when)| {
            stamp_before(value.wrapping_add(apart_ms), recent) && now - when < LIFETIME
        })
    }

    /// Whether the peer's clock, in milliseconds, cannot have reached the timestamp yet. Accepted, it would make
    /// all later segments look old.
    pub(super) fn is_from_the_future(&self, now: Instant, segment: &Segment<'_>) -> bool {
        self.pair(segment).is_some_and(|(value, recent, when)| {
            let most = now - when + CLOCKS_APART;
            let most_ms = u32::try_from(most.total_millis()).unwrap_or(u32::MAX);
            !stamp_before(value, recent) && value.wrapping_sub(recent) > most_ms
        })
    }

    /// Whether a SYN's timestamp is later than the last one (RFC 6191); `None` if that says nothing.
    pub(super) fn precede(&self, syn: &Segment<'_>) -> Option<bool> {
        let (value, recent, _) = self.pair(syn)?;
        (value != recent).then(|| stamp_before(recent, value))
    }
}
