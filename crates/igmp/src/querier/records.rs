//! What reports and timers do to a group (RFC 3376 §6.4, §6.5, §7.3.2).

use super::{DropReason, FilterMode, Group, Querier, Role, Source, is_idle};
use crate::wire::{RecordType, Sources};
use crate::{Duration, Family, Instant, Numbered};
use proto_core::slab::NIL;

/// What a record does to one source that it names.
enum Act {
    /// Its timer runs for this long; it is added where it is missing.
    Run(Instant),
    /// Added with no timer where it is missing.
    Stop,
    /// Nothing.
    Keep,
}

impl<A: Family> Querier<'_, A> {
    pub(super) fn older_report(&mut self, now: Instant, group: A, version: u8) {
        self.record(now, RecordType::ModeIsExclude, group, Sources::NONE);
        let until = now + self.membership_interval();
        if let Some(g) = self.groups.find(Numbered::new(0, group)) {
            match version {
                1 => self.groups[g].v1_until = Some(until),
                _ => self.groups[g].v2_until = Some(until),
            }
        }
    }

    /// The record as an older host on the link lets it count (§7.3.2): such a host cannot say
    /// which sources it wants, nor, with version 1, that it leaves.
    fn compatible<'s>(
        &self,
        now: Instant,
        group: A,
        kind: RecordType,
        sources: Sources<'s, A>,
    ) -> Option<Sources<'s, A>> {
        let Some(g) = self.groups.find(Numbered::new(0, group)) else {
            return Some(sources);
        };
        let is_present = |until: Option<Instant>| until.is_some_and(|until| until > now);
        let group = &self.groups[g];
        let (v1, v2) = (is_present(group.v1_until), is_present(group.v2_until));
        match kind {
            RecordType::ChangeToInclude if v1 => None,
            RecordType::BlockOldSources if v1 || v2 => None,
            RecordType::ChangeToExclude if v1 || v2 => Some(Sources::NONE),
            _ => Some(sources),
        }
    }

    pub(super) fn record(
        &mut self,
        now: Instant,
        kind: RecordType,
        group: A,
        sources: Sources<'_, A>,
    ) {
        if matches!(kind, RecordType::Unknown(_)) {
            return;
        }
        if group.is_link_local_group() {
            self.stats.drop(DropReason::LinkLocalGroup);
            return;
        }
        let Some(sources) = self.compatible(now, group, kind, sources) else {
            return;
        };
        let g = match self.groups.find(Numbered::new(0, group)) {
            Some(g) => g,
            // Nothing is known of it: a leave changes nothing.
            None if !adds(kind, &sources) => return,
            None => match self.groups.insert(Group {
                address: group,
                ..Group::default()
            }) {
                Ok(g) => g,
                Err(_) => {
                    self.stats.drop(DropReason::GroupsFull);
                    return;
                }
            },
        };
        for source in sources.iter() {
            self.named(now, g, kind, source);
        }
        self.unnamed(now, g, kind);
        self.conclude(now, g, kind);
        self.queue_queries(now, g);
        self.retime(g);
        self.release(g);
    }

    /// One source that a record names: the columns of the table in the module's documentation.
    fn named(&mut self, now: Instant, g: u32, kind: RecordType, address: A) {
        use FilterMode::{Exclude, Include};
        use RecordType::{
            AllowNewSources, BlockOldSources, ChangeToExclude, ChangeToInclude, ModeIsExclude,
            ModeIsInclude,
        };
        let full = now + self.membership_interval();
        let (mode, group_timer) = (self.groups[g].mode, self.groups[g].expires);
        let found = self.sources.find(Numbered::new(g, address));
        let runs = found.is_some_and(|s| self.sources[s].expires.is_some());
        let (act, is_asked) = match (mode, kind, found.is_some()) {
            (_, ModeIsInclude | AllowNewSources | ChangeToInclude, _) => (Act::Run(full), false),
            (Include, ModeIsExclude, true) => (Act::Keep, false),
            (Include, ChangeToExclude, true) => (Act::Keep, true),
            (Include, ModeIsExclude | ChangeToExclude, false) => (Act::Stop, false),
            (Include, BlockOldSources, known) => (Act::Keep, known),
            (Exclude, ModeIsExclude, true) => (Act::Keep, false),
            (Exclude, ModeIsExclude, false) => (Act::Run(full), false),
            (Exclude, ChangeToExclude | BlockOldSources, true) => (Act::Keep, runs),
            (Exclude, ChangeToExclude | BlockOldSources, false) => (Act::Run(group_timer), true),
            (_, RecordType::Unknown(_), _) => return,
        };
        let s = match (act, found) {
            (Act::Keep, found) => found,
            (Act::Run(until), Some(s)) => {
                self.run_source(s, until);
                Some(s)
            }
            (Act::Run(until), None) => {
                let s = self.add_source(g, address);
                if let Some(s) = s {
                    self.run_source(s, until);
                }
                s
            }
            (Act::Stop, Some(s)) => Some(s),
            (Act::Stop, None) => self.add_source(g, address),
        };
        if let Some(s) = s {
            self.sources[s].is_marked = true;
            if is_asked {
                self.ask_source(now, s);
            }
        }
    }

    /// The sources that the record does not name.
    fn unnamed(&mut self, now: Instant, g: u32, kind: RecordType) {
        let mut at = self.groups[g].first_source;
        while at != NIL {
            let source = &mut self.sources[at];
            let next = source.next;
            let is_named = core::mem::take(&mut source.is_marked);
            let runs = source.expires.is_some();
            match kind {
                _ if is_named => {}
                RecordType::ModeIsExclude | RecordType::ChangeToExclude => self.remove_source(at),
                RecordType::ChangeToInclude if runs => self.ask_source(now, at),
                _ => {}
            }
            at = next;
        }
    }

    /// What the record does to the group itself.
    fn conclude(&mut self, now: Instant, g: u32, kind: RecordType) {
        let mode = self.groups[g].mode;
        match kind {
            RecordType::ModeIsExclude | RecordType::ChangeToExclude => {
                if mode == FilterMode::Include {
                    self.groups[g].mode = FilterMode::Exclude;
                    self.note_changed(g);
                }
                self.groups[g].expires = now + self.membership_interval();
                self.retime(g);
            }
            RecordType::ChangeToInclude if mode == FilterMode::Exclude => self.ask_group(now, g),
            _ => {}
        }
    }

    fn add_source(&mut self, g: u32, address: A) -> Option<u32> {
        let first = self.groups[g].first_source;
        let source = Source {
            group: g,
            address,
            next: first,
            ..Source::default()
        };
        let is_full = self.groups[g].source_count >= self.config.sources_per_group;
        let added = if is_full {
            None
        } else {
            self.sources.insert(source).ok()
        };
        let Some(s) = added else {
            self.stats.drop(DropReason::SourcesFull);
            return None;
        };
        if first != NIL {
            self.sources[first].back = s;
        }
        self.groups[g].first_source = s;
        self.groups[g].source_count += 1;
        self.note_changed(g);
        Some(s)
    }

    fn remove_source(&mut self, s: u32) {
        let Source {
            group: g,
            next,
            back,
            ..
        } = self.sources.remove(s);
        match back {
            NIL => self.groups[g].first_source = next,
            back => self.sources[back].next = next,
        }
        if next != NIL {
            self.sources[next].back = back;
        }
        self.groups[g].source_count -= 1;
        self.note_changed(g);
    }

    fn run_source(&mut self, s: u32, until: Instant) {
        let source = &mut self.sources[s];
        let (g, was_running) = (source.group, source.expires.is_some());
        source.expires = Some(until);
        self.sources.schedule(s, until);
        if !was_running {
            self.note_changed(g);
        }
    }

    /// Lowers a source's timer, if it runs longer.
    pub(super) fn lower_source(&mut self, s: u32, until: Instant) -> bool {
        let is_longer = self.sources[s].expires.is_some_and(|at| at > until);
        if is_longer {
            self.sources[s].expires = Some(until);
            self.sources.schedule(s, until);
        }
        is_longer
    }

    /// `Q(G, {s})`: the querier asks whether another host receives the source (§6.6.3.2).
    fn ask_source(&mut self, now: Instant, s: u32) {
        let until = now + self.last_member_time();
        if self.role != Role::Querier || !self.lower_source(s, until) {
            return;
        }
        let g = self.sources[s].group;
        self.sources[s].queries_left = self.robustness;
        self.groups[g].asks_sources = true;
        self.groups[g].source_query_at = now;
        self.retime(g);
    }

    /// `Q(G)`: the querier asks whether another host receives the group (§6.6.3.1).
    fn ask_group(&mut self, now: Instant, g: u32) {
        let until = now + self.last_member_time();
        if self.role != Role::Querier || self.groups[g].expires <= until {
            return;
        }
        let group = &mut self.groups[g];
        group.expires = until;
        group.queries_left = self.robustness;
        group.query_at = now;
        self.retime(g);
    }

    pub(super) fn source_expired(&mut self, s: u32) {
        let g = self.sources[s].group;
        match self.groups[g].mode {
            FilterMode::Include => {
                self.remove_source(s);
                self.release(g);
            }
            FilterMode::Exclude => {
                self.sources.cancel(s);
                self.sources[s].expires = None;
                self.sources[s].queries_left = 0;
                self.note_changed(g);
            }
        }
    }

    /// The group timer ran out, or queries are due again.
    pub(super) fn group_due(&mut self, now: Instant, g: u32) {
        let group = &self.groups[g];
        if group.mode == FilterMode::Exclude && group.expires <= now {
            // §6.5: back to INCLUDE with the sources that hosts asked for.
            self.groups[g].mode = FilterMode::Include;
            self.groups[g].queries_left = 0;
            let mut at = self.groups[g].first_source;
            while at != NIL {
                let next = self.sources[at].next;
                if self.sources[at].expires.is_none() {
                    self.remove_source(at);
                }
                at = next;
            }
            self.note_changed(g);
        }
        self.queue_queries(now, g);
        self.retime(g);
        self.release(g);
    }

    pub(super) fn note_changed(&mut self, g: u32) {
        let group = &mut self.groups[g];
        if !group.is_changed {
            group.is_changed = true;
            group.next_changed = core::mem::replace(&mut self.changed_head, g);
        }
    }

    /// Frees a group without receivers, once nothing refers to its slot.
    pub(super) fn release(&mut self, g: u32) {
        let group = &self.groups[g];
        if is_idle(group) && !group.is_changed && group.to_send == 0 {
            self.groups.remove(g);
        }
    }

    /// Sets the group's timer to the earliest of its times.
    pub(super) fn retime(&mut self, g: u32) {
        let group = &self.groups[g];
        let expiry = (group.mode == FilterMode::Exclude).then_some(group.expires);
        let query = (group.queries_left > 0).then_some(group.query_at);
        let source_query = group.asks_sources.then_some(group.source_query_at);
        match [expiry, query, source_query].into_iter().flatten().min() {
            Some(at) => self.groups.schedule(g, at),
            None => self.groups.cancel(g),
        }
    }

    /// A query that another router sent lowers our timers as its own (§6.6.1).
    pub(super) fn lower_group(&mut self, now: Instant, g: u32, time: Duration) {
        let until = now + time;
        let group = &mut self.groups[g];
        if group.mode == FilterMode::Exclude && group.expires > until {
            group.expires = until;
            self.retime(g);
        }
    }
}

/// Whether a record of a group that nothing is known of makes a difference.
fn adds<A: Family>(kind: RecordType, sources: &Sources<'_, A>) -> bool {
    match kind {
        RecordType::ModeIsExclude | RecordType::ChangeToExclude => true,
        RecordType::ModeIsInclude | RecordType::AllowNewSources | RecordType::ChangeToInclude => {
            !sources.is_empty()
        }
        RecordType::BlockOldSources | RecordType::Unknown(_) => false,
    }
}
