//! What this host says: IGMPv3 or MLDv2 reports with its offers.

use rand_core::Rng;

use super::{Endpoint, Offers, Session};
use crate::hier::{Cost, hold_time};
use crate::wire::hier::{self, Header, Kind, Writer};
use crate::{Duration, Family, Instant, NextHop, Transmit};
use igmp::datagram::{self, membership_at, udp_at};
use igmp::wire::{RecordType, ReportWriter};

/// A late driver may catch up on this time at once.
const CATCH_UP: Duration = Duration::from_millis(100);
/// A withdrawal is repeated within this time.
const AGAIN: Duration = Duration::from_secs(1);
/// The shortest buffer that `poll_transmit` takes: one offer with its source.
const fn min_len<A: Family>(offers: Offers) -> usize {
    match offers {
        Offers::Reports => membership_at::<A>() + 8 + (4 + 2 * A::LEN) + 4,
        Offers::Updates => udp_at::<A>() + hier::HEADER_LEN + hier::entry_len::<A>(),
    }
}

impl<A: Family> Endpoint<'_, A> {
    /// The next packet with offers, a whole IP packet within the smallest MTU of its family: a membership report to send
    /// raw, or, with [`Offers::Updates`], a message of LMS-HIER, whose payload a UDP socket may send. `None` also where
    /// `buffer` is shorter than one with one offer: 48 and 60 bytes for IPv4, 96 and 116 for IPv6.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit<A>> {
        let (first, _) = self.sessions.next_due()?;
        if first > now || self.next_allowed > now || buffer.len() < min_len::<A>(self.config.offers)
        {
            return None;
        }
        let end = buffer.len().min(A::SMALLEST_MTU);
        let buffer = &mut buffer[..end];
        let (count, len) = match self.config.offers {
            Offers::Reports => self.write_report(now, buffer)?,
            Offers::Updates => self.write_update(now, buffer)?,
        };
        self.stats.reports_sent += 1;
        self.stats.records_sent += u64::from(count);
        let gap = Duration::from_micros(1_000_000 / u64::from(self.config.reports_per_s));
        self.next_allowed = self.next_allowed.max(now - CATCH_UP) + gap;
        Some(Transmit {
            iface: self.config.iface,
            next_hop: NextHop::Group,
            len,
        })
    }

    /// Writes the offers that are due as records of a membership report. Returns their number and the packet's length.
    fn write_report(&mut self, now: Instant, buffer: &mut [u8]) -> Option<(u16, usize)> {
        let mut writer = ReportWriter::<A>::new(&mut buffer[membership_at::<A>()..])?;
        let again = self.next_refresh(now);
        while let Some(s) = self.due(now) {
            let session = &self.sessions[s];
            if writer.room(true).is_none_or(|sources| sources < 1) {
                break;
            }
            let (kind, cost) = what_to_say(session);
            let key = session.key;
            let source = (!key.is_any_source()).then_some(key.source);
            if !writer.push(kind, key.group, source.into_iter(), Some(cost)) {
                break;
            }
            self.said(now, s, again);
        }
        let count = writer.count();
        let len = writer.finish();
        let source = self.config.interface.link_local;
        let len = datagram::finish_membership(buffer, source, A::REPORT_DESTINATION, len)?;
        (count > 0).then_some((count, len))
    }

    /// Writes the offers that are due as entries of an UPDATE. Returns their number and the packet's length.
    fn write_update(&mut self, now: Instant, buffer: &mut [u8]) -> Option<(u16, usize)> {
        let mut writer = Writer::<A>::new(&mut buffer[udp_at::<A>()..])?;
        let again = self.next_refresh(now);
        while let Some(s) = self.due(now) {
            let session = &self.sessions[s];
            let entry = hier::Entry {
                key: session.key,
                neighbour: None,
                cost: session.cost,
            };
            if !writer.push(&entry) {
                break;
            }
            self.said(now, s, again);
        }
        let count = writer.count() as u16;
        if count == 0 {
            return None;
        }
        self.sequence = self.sequence.wrapping_add(1);
        let len = writer.finish(&Header {
            kind: Kind::Update,
            boot: self.boot,
            sequence: self.sequence,
            hold_time_ms: hold_time(self.refresh).total_millis() as u16,
        });
        let source = self.config.interface.link_local;
        let len = datagram::finish_udp(buffer, source, A::LINK_GROUP, hier::PORT, len)?;
        Some((count, len))
    }

    /// When what is said now is repeated: up to a tenth earlier than the refresh time, so that hosts that started together
    /// drift apart; what shares a packet keeps sharing it.
    fn next_refresh(&mut self, now: Instant) -> Instant {
        let refresh = self.refresh.total_micros();
        now + Duration::from_micros(refresh - self.random(refresh / 10))
    }

    /// The first session that is due.
    fn due(&self, now: Instant) -> Option<u32> {
        let (at, s) = self.sessions.next_due()?;
        (at <= now).then_some(s)
    }

    /// A session was reported: schedules its next report, or removes it.
    fn said(&mut self, now: Instant, s: u32, again: Instant) {
        let session = &mut self.sessions[s];
        if session.cost.is_offer() {
            session.was_told = true;
            self.sessions.schedule(s, again);
            return;
        }
        session.withdrawals = session.withdrawals.saturating_sub(1);
        if session.withdrawals > 0 {
            let later = self.random(AGAIN.total_micros()) + 1;
            self.sessions
                .schedule(s, now + Duration::from_micros(later));
        } else if session.is_leaving {
            self.forget(s);
        } else {
            self.sessions.cancel(s);
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        ((u128::from(self.rng.next_u64()) * u128::from(below)) >> 64) as u64
    }
}

/// The record of a session. Offers are current-state records, which change no membership that
/// the kernel has; a leave is one.
fn what_to_say<A: Family>(session: &Session<A>) -> (RecordType, Cost) {
    let kind = match (session.is_leaving, session.key.is_any_source()) {
        (false, false) => RecordType::ModeIsInclude,
        (false, true) => RecordType::ModeIsExclude,
        (true, false) => RecordType::BlockOldSources,
        (true, true) => RecordType::ChangeToInclude,
    };
    (kind, session.cost)
}
