//! What this host says: IGMPv3 or MLDv2 reports with its offers.

use rand_core::Rng;

use super::{Endpoint, Session};
use crate::hier::Cost;
use crate::{Duration, Family, Instant, NextHop, Transmit};
use igmp::datagram::{self, membership_at};
use igmp::wire::{RecordType, ReportWriter};

/// A late driver may catch up on this time at once.
const CATCH_UP: Duration = Duration::from_millis(100);
/// A withdrawal is repeated within this time.
const AGAIN: Duration = Duration::from_secs(1);
/// The shortest buffer that `poll_transmit` takes: one offer with its source.
const fn min_len<A: Family>() -> usize {
    membership_at::<A>() + 8 + (4 + 2 * A::LEN) + 4
}

impl<A: Family> Endpoint<'_, A> {
    /// The next report to send raw, a whole IP packet within the smallest MTU of its family; `None` also where
    /// `buffer` is shorter than one with one offer, 48 or 96 bytes.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit<A>> {
        let (first, _) = self.sessions.next_due()?;
        if first > now || self.next_allowed > now || buffer.len() < min_len::<A>() {
            return None;
        }
        let end = buffer.len().min(A::SMALLEST_MTU);
        let mut writer = ReportWriter::<A>::new(&mut buffer[membership_at::<A>()..end])?;
        // Up to a tenth earlier, so that hosts that started together drift apart; what shares a
        // report keeps sharing it.
        let refresh = self.refresh.total_micros();
        let again = now + Duration::from_micros(refresh - self.random(refresh / 10));
        while let Some((at, s)) = self.sessions.next_due() {
            let session = &self.sessions[s];
            if at > now || writer.room(true).is_none_or(|sources| sources < 1) {
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
        if count == 0 {
            return None;
        }
        self.stats.reports_sent += 1;
        self.stats.records_sent += u64::from(count);
        let gap = Duration::from_micros(1_000_000 / u64::from(self.config.reports_per_s));
        self.next_allowed = self.next_allowed.max(now - CATCH_UP) + gap;
        let source = self.config.interface.link_local;
        let len = writer.finish();
        let len = datagram::finish_membership(buffer, source, A::REPORT_DESTINATION, len)?;
        Some(Transmit {
            iface: self.config.iface,
            next_hop: NextHop::Group,
            len,
        })
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
