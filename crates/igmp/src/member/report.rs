//! Reports that a member sends (RFC 3376 §4.2, §5.1, §7.2).

use super::{FilterMode, Member};
use crate::datagram::{self, membership_at};
use crate::wire::{Message, RecordType, ReportWriter};
use crate::{Family, Instant, NextHop, Transmit};
use proto_core::slab::NIL;

/// Which sources a record names.
#[derive(Clone, Copy)]
enum Which {
    Listed,
    Came,
    Went,
    AskedListed,
}

impl<A: Family> Member<'_, A> {
    /// Writes the next report to send, a whole IP packet; `buffer` needs room for 48 bytes and 8 for each of the sources
    /// that a group may have, with IPv6 for 96 and 32. Groups that are due share a report.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit<A>> {
        let room = membership_at::<A>()
            + 8
            + 2 * (4 + A::LEN)
            + 2 * A::LEN * self.config.sources_per_group as usize;
        if buffer.len() < room {
            return None;
        }
        match self.version(now) {
            3 => self.report_v3(now, buffer),
            version => self.report_older(now, version, buffer),
        }
    }

    /// The version that the link's querier understands (§7.2.1).
    fn version(&self, now: Instant) -> u8 {
        let is_present = |until: Option<Instant>| until.is_some_and(|until| until > now);
        match (is_present(self.v1_until), is_present(self.v2_until)) {
            (true, _) => 1,
            (_, true) => 2,
            _ => 3,
        }
    }

    fn report_v3(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit<A>> {
        let mut writer = ReportWriter::<A>::new(&mut buffer[membership_at::<A>()..])?;
        while let Some((_, g)) = self.groups.next_due().filter(|(at, _)| *at <= now) {
            if self.groups[g].change_reports > 0 && self.groups[g].change_at <= now {
                if !self.write_change(&mut writer, g) {
                    break;
                }
                self.change_reported(now, g);
            } else {
                if !self.write_answer(&mut writer, g) {
                    break;
                }
                self.answered(g);
            }
        }
        if self.general_at.is_some_and(|at| at <= now) {
            while let Some(g) = self.groups.next_used(self.general_from) {
                if !self.write_state(&mut writer, g) {
                    break;
                }
                // The answer to all is the answer to the group as well (§5.2, rule 1).
                self.answered(g);
                self.general_from = g + 1;
            }
            if self.groups.next_used(self.general_from).is_none() {
                self.general_at = None;
            }
        }
        if writer.count() == 0 {
            return None;
        }
        let len = writer.finish();
        self.finish(buffer, A::REPORT_DESTINATION, len)
    }

    fn finish(&mut self, buffer: &mut [u8], to: A, len: usize) -> Option<Transmit<A>> {
        let len = datagram::finish_membership(buffer, self.config.interface.link_local, to, len)?;
        self.stats.reports_sent += 1;
        Some(Transmit {
            iface: self.config.iface,
            next_hop: NextHop::Group,
            len,
        })
    }

    fn named(&self, g: u32, which: Which) -> impl Iterator<Item = A> + Clone {
        let mut at = self.groups[g].first_source;
        core::iter::from_fn(move || {
            let source = self.sources.get(at)?;
            at = source.next;
            Some(source)
        })
        .filter(move |source| match which {
            Which::Listed => source.is_listed,
            Which::Came => source.is_listed && source.reports > 0,
            Which::Went => !source.is_listed && source.reports > 0,
            Which::AskedListed => source.is_listed && source.is_asked,
        })
        .map(|source| source.address)
    }

    /// What changed: the filter mode with its whole list, or the sources that came and went.
    fn write_change(&self, writer: &mut ReportWriter<'_, A>, g: u32) -> bool {
        let group = &self.groups[g];
        if group.mode_reports > 0 {
            let kind = match group.mode {
                FilterMode::Include => RecordType::ChangeToInclude,
                FilterMode::Exclude => RecordType::ChangeToExclude,
            };
            return writer.push(kind, group.address, self.named(g, Which::Listed), None);
        }
        let (allowed, blocked) = match group.mode {
            FilterMode::Include => (Which::Came, Which::Went),
            FilterMode::Exclude => (Which::Went, Which::Came),
        };
        let count = |which| self.named(g, which).count();
        let (allow, block) = (count(allowed), count(blocked));
        let fits = writer
            .room(false)
            .is_some_and(|room| room >= allow + block + 2);
        if !fits && writer.count() > 0 {
            return false;
        }
        let kinds = [
            (RecordType::AllowNewSources, allowed, allow),
            (RecordType::BlockOldSources, blocked, block),
        ];
        for (kind, which, count) in kinds {
            if count > 0 {
                writer.push(kind, group.address, self.named(g, which), None);
            }
        }
        true
    }

    /// The current state of a group; nothing of one that is not wanted.
    fn write_state(&self, writer: &mut ReportWriter<'_, A>, g: u32) -> bool {
        let group = &self.groups[g];
        let kind = match group.mode {
            FilterMode::Include if group.source_count == 0 => return true,
            FilterMode::Include => RecordType::ModeIsInclude,
            FilterMode::Exclude => RecordType::ModeIsExclude,
        };
        writer.push(kind, group.address, self.named(g, Which::Listed), None)
    }

    /// The answer to a query of a group, or of some of its sources (§5.2, last table).
    fn write_answer(&self, writer: &mut ReportWriter<'_, A>, g: u32) -> bool {
        let group = &self.groups[g];
        // An EXCLUDE list that was asked about names nothing that is wanted.
        let names = group.answers_sources && group.mode == FilterMode::Include;
        if !group.answers_sources {
            return self.write_state(writer, g);
        }
        if !names || self.named(g, Which::AskedListed).next().is_none() {
            return true;
        }
        let asked = self.named(g, Which::AskedListed);
        writer.push(RecordType::ModeIsInclude, group.address, asked, None)
    }

    fn answered(&mut self, g: u32) {
        self.groups[g].answer_at = None;
        self.groups[g].answers_sources = false;
        let mut at = self.groups[g].first_source;
        while at != NIL {
            self.sources[at].is_asked = false;
            at = self.sources[at].next;
        }
        self.retime(g);
    }

    fn change_reported(&mut self, now: Instant, g: u32) {
        let mut at = self.groups[g].first_source;
        while at != NIL {
            let source = &mut self.sources[at];
            let next = source.next;
            source.reports = source.reports.saturating_sub(1);
            if !source.is_listed && source.reports == 0 {
                self.remove_source(at);
            }
            at = next;
        }
        let later = self.random(self.config.unsolicited_report);
        let group = &mut self.groups[g];
        group.mode_reports = group.mode_reports.saturating_sub(1);
        group.change_reports = group.change_reports.saturating_sub(1);
        group.change_at = now + later;
        self.retime(g);
        self.release(g);
    }

    /// Frees a group that was left, once that has been reported.
    fn release(&mut self, g: u32) {
        let group = &self.groups[g];
        let is_left = group.mode == FilterMode::Include && group.source_count == 0;
        if is_left && group.change_reports == 0 && group.first_source == NIL {
            self.groups.remove(g);
        }
    }

    /// A report or leave of an older version: one group a packet, no sources (§7.2.1).
    fn report_older(
        &mut self,
        now: Instant,
        version: u8,
        buffer: &mut [u8],
    ) -> Option<Transmit<A>> {
        while self.general_at.is_some_and(|at| at <= now) {
            let Some(g) = self.groups.next_used(self.general_from) else {
                self.general_at = None;
                break;
            };
            self.general_from = g + 1;
            self.answered(g);
            if self.is_wanted(g) {
                return self.emit_older(g, version, buffer);
            }
        }
        while let Some((_, g)) = self.groups.next_due().filter(|(at, _)| *at <= now) {
            let is_change = self.groups[g].change_reports > 0 && self.groups[g].change_at <= now;
            let transmit = match (self.is_wanted(g), version) {
                (true, _) => self.emit_older(g, version, buffer),
                (false, 2) if is_change => self.leave_v2(g, buffer),
                // Version 1 leaves by silence.
                (false, _) => None,
            };
            if is_change {
                self.change_reported(now, g);
            } else {
                self.answered(g);
            }
            if transmit.is_some() {
                return transmit;
            }
        }
        None
    }

    fn leave_v2(&mut self, g: u32, buffer: &mut [u8]) -> Option<Transmit<A>> {
        let leave = Message::V2Leave(self.groups[g].address);
        let len = leave.emit(buffer.get_mut(membership_at::<A>()..)?).ok()?;
        self.finish(buffer, A::LEAVE_DESTINATION, len)
    }

    fn is_wanted(&self, g: u32) -> bool {
        self.groups[g].mode == FilterMode::Exclude || self.groups[g].source_count > 0
    }

    fn emit_older(&mut self, g: u32, version: u8, buffer: &mut [u8]) -> Option<Transmit<A>> {
        let group = self.groups[g].address;
        let message = if version == 1 {
            Message::V1Report(group)
        } else {
            Message::V2Report(group)
        };
        let len = message.emit(buffer.get_mut(membership_at::<A>()..)?).ok()?;
        self.finish(buffer, group, len)
    }
}
