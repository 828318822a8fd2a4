//! Children that do not advance: the relay stops waiting for them, and names them to the source.
//!
//! The acknowledgement that goes upward is that of the slowest child: a child that refreshes its JOIN and never advances
//! would stop the session for all receivers. A child stalls when it lacks packets and its acknowledgement has not
//! advanced for [`Config::stall_timeout`](crate::Config::stall_timeout). This is checked at each refresh, so that it
//! takes up to two refreshes more. A stalled child still gets data and repairs, but does not count in the
//! acknowledgement until the source starts another run. Its address is remembered when it leaves. Another child at the
//! same IP address gets an eighth of the time.

use proto_core::time::{Duration, Instant};

use super::table::{Set, has_bit};
use super::{Notice, Origin, Relay};
use crate::event::Event;
use crate::stats::DropReason;
use crate::types::Addr;
use crate::wire::{Body, MAX_PATH, NO_CHILD, Packet, Stalled, emit};
use crate::{SessionKey, Transmit};

/// Steps of a child's clocks in a refresh interval, and in a stall timeout.
pub(super) const STEPS: u8 = 16;

/// Returns the time in sixteenths of a period. It wraps after 16 periods; stored values are checked at each refresh.
fn clock(now: Instant, period: Duration) -> u8 {
    let step = (period.total_micros() / u64::from(STEPS)).max(1);
    (now.total_micros().max(0) as u64 / step) as u8
}

impl Relay<'_> {
    /// Returns the time for [`Child::heard`](super::Child).
    pub(super) fn refresh_clock(&self, now: Instant) -> u8 {
        clock(now, self.config.refresh)
    }

    /// Returns the time for [`Child::advanced`](super::Child).
    pub(super) fn stall_clock(&self, now: Instant) -> u8 {
        clock(now, self.config.stall_timeout)
    }

    /// Restarts the clocks of all children, because their periods may have changed.
    pub(super) fn restart_clocks(&mut self, now: Instant) {
        let (heard, advanced) = (self.refresh_clock(now), self.stall_clock(now));
        for number in 0..self.tables.limits.sessions as u16 {
            for child in 0..self.tables.limits.children as u16 {
                if self.tables.is_member(number, child) {
                    let entry = self.tables.child_mut(number, child);
                    (entry.heard, entry.advanced) = (heard, advanced);
                }
            }
        }
    }

    /// Returns after how many steps of the stall clock without progress a child stalls.
    fn allowance(&self, number: u16, child: u16) -> u8 {
        let mut steps = u32::from(STEPS);
        if has_bit(self.tables.set(number, Set::Relays), child) {
            // A quarter of the timeout more for each relay that can be below it: the relay nearest to a stalled
            // receiver stops waiting first.
            let path = self.tables.session(number).parent.as_ref();
            let above = path.map_or(0, |parent| parent.path.len());
            steps += (MAX_PATH - above.min(MAX_PATH)) as u32 * u32::from(STEPS) / 4;
        } else {
            let address = self.tables.child(number, child).address;
            if self.tables.at_host(number, &[Set::Stalled], address) > 0 {
                steps /= 8;
            }
        }
        // The clock was last set up to one refresh before the child began to lack packets.
        let step = self.config.stall_timeout.total_micros() / u64::from(STEPS);
        let refresh = self.config.refresh.total_micros().div_ceil(step.max(1));
        (steps + refresh as u32).min(250) as u8
    }

    /// Checks at a refresh whether a child advances.
    pub(super) fn check_progress(
        &mut self,
        now: Instant,
        number: u16,
        key: SessionKey,
        child: u16,
    ) {
        let clock = self.stall_clock(now);
        let entry = *self.tables.child(number, child);
        let newest = self.tables.session(number).track.newest();
        let lacks = newest.is_some_and(|newest| entry.ack.before(newest.plus(1)));
        if !lacks || !has_bit(self.tables.set(number, Set::Acked), child) {
            self.tables.child_mut(number, child).advanced = clock;
            return;
        }
        let is_stalled = has_bit(self.tables.set(number, Set::Stalled), child);
        if is_stalled || clock.wrapping_sub(entry.advanced) <= self.allowance(number, child) {
            return;
        }
        self.tables.set_stalled(number, child);
        self.stats.stalled = self.stats.stalled.wrapping_add(1);
        self.notify(Event::ChildStalled(key, entry.address.into(), entry.ack));
        let session = self.tables.session_mut(number);
        session.acks.due = session.acks.due.min(now);
        session.feedbacks.forget(child);
    }

    /// Names one stalled child to the source at each refresh, one after the other, because a STALLED message may be lost.
    pub(super) fn name_stalled(&mut self, now: Instant, number: u16) {
        let Some(id) = self.tables.session(number).id else {
            return;
        };
        let is_stalled = |&child: &u16| {
            self.tables.is_member(number, child)
                && has_bit(self.tables.set(number, Set::Stalled), child)
        };
        let children = 0..self.tables.limits.children as u16;
        let count = children.clone().filter(is_stalled).count() as u64;
        if count == 0 {
            return;
        }
        let turn = now.total_micros().max(0) as u64 / self.config.refresh.total_micros().max(1);
        let named = children
            .clone()
            .filter(is_stalled)
            .nth((turn % count) as usize);
        let Some(child) = named else {
            return;
        };
        let entry = self.tables.child(number, child);
        let notice = Notice {
            session: number,
            id,
            ack: entry.ack,
            stalled: Stalled {
                child: entry.address.into(),
                relay: self.config.id,
            },
        };
        // If the queue is full, the child is named again later.
        let _ = self.notices.push_back(notice);
    }

    /// Forwards a STALLED message of a relay below, at most one in each acknowledgement interval.
    pub(super) fn stalled(
        &mut self,
        now: Instant,
        number: u16,
        from: Addr,
        packet: &Packet<&[u8]>,
    ) -> Result<(), DropReason> {
        let Origin::Child(child) = self.origin(number, from, packet.child())? else {
            return Err(DropReason::WrongWay);
        };
        if !has_bit(self.tables.set(number, Set::Relays), child) {
            return Err(DropReason::WrongWay);
        }
        self.same_session(number, packet.session())?;
        if now < self.notice_after {
            return Err(DropReason::NoticeFlood);
        }
        self.notice_after = now + self.config.ack_interval;
        let notice = Notice {
            session: number,
            id: packet.session(),
            ack: packet.sequence(),
            stalled: Stalled::read(packet),
        };
        self.notices
            .push_back(notice)
            .map_err(|_| DropReason::NoticeFlood)?;
        Ok(())
    }

    /// Writes the next pending STALLED message.
    pub(super) fn send_notice(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        while let Some(notice) = self.notices.pop_front() {
            let session = self.tables.session(notice.session);
            let (name, above) = (session.name(), self.above(notice.session));
            let (Some(key), Some(above), true) = (name, above, session.id == Some(notice.id))
            else {
                continue;
            };
            let parent = session.parent.as_ref();
            let own_number = parent.map_or(NO_CHILD, |parent| parent.child());
            let body = Body::Stalled(notice.stalled);
            return Some(emit(
                above, key, notice.id, own_number, notice.ack, body, buffer,
            ));
        }
        None
    }
}
