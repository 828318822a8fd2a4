//! The host's side of IGMPv3 or MLDv2 on one interface (RFC 3376 §5, RFC 9777 §6): reports the groups and sources that it receives, on each
//! change and when a querier asks. The proxy uses it upstream.
//!
//! Changes are reported at once and [`Config::robustness`] - 1 times more, each within
//! [`Config::unsolicited_report`] (§5.1). Queries are answered after a random part of the time
//! that they allow (§5.2). While a querier of version 1 or 2 is on the link, reports are of its
//! version (§7.2): they name groups without sources. Reports of other hosts do not suppress those of this
//! member.
//!
//! Bytes a slot, tested: group 80, source 48; with IPv6 group 88, source 64.

mod answer;
mod report;

use core::convert::Infallible;
use core::net::Ipv4Addr;

use super::config::{Config, MemberStorage};
use super::querier::FilterMode;
use super::stats::{DropReason, Stats};
use crate::{Duration, Family, Instant, InterfaceConfig, Numbered};
use proto_core::slab::{Keyed, NIL, Slab};

use proto_core::TokenBucket;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// What a member says of one group.
#[derive(Clone, Debug)]
pub struct MemberGroup<A = Ipv4Addr> {
    address: A,
    /// INCLUDE with no source: left; the slot is freed once that has been reported.
    mode: FilterMode,
    first_source: u32,
    source_count: u32,
    /// Reports left of a change of the filter mode.
    mode_reports: u8,
    /// Reports left of any change, the next at `change_at`.
    change_reports: u8,
    change_at: Instant,
    /// A query is to be answered then: about the sources that are `is_asked`, or about all.
    answer_at: Option<Instant>,
    answers_sources: bool,
    /// Slots of its list, with sources that were removed and are not reported yet.
    slot_count: u32,
}

impl<A: Family> Default for MemberGroup<A> {
    fn default() -> Self {
        MemberGroup {
            address: A::UNSPECIFIED,
            mode: FilterMode::Include,
            first_source: NIL,
            source_count: 0,
            mode_reports: 0,
            change_reports: 0,
            change_at: Instant::ZERO,
            answer_at: None,
            answers_sources: false,
            slot_count: 0,
        }
    }
}

impl<A: Family> Keyed for MemberGroup<A> {
    type Key = Numbered<A>;

    fn key(&self) -> Numbered<A> {
        Numbered::new(0, self.address)
    }
}

/// What a member says of one source of a group.
#[derive(Clone, Debug)]
pub struct MemberSource<A = Ipv4Addr> {
    group: u32,
    address: A,
    /// In the group's source list. A source that is not is kept until its removal has been reported.
    is_listed: bool,
    /// Reports left of its addition or removal.
    reports: u8,
    is_asked: bool,
    is_marked: bool,
    next: u32,
    back: u32,
}

impl<A: Family> Default for MemberSource<A> {
    fn default() -> Self {
        MemberSource {
            group: NIL,
            address: A::UNSPECIFIED,
            is_listed: false,
            reports: 0,
            is_asked: false,
            is_marked: false,
            next: NIL,
            back: NIL,
        }
    }
}

impl<A: Family> Keyed for MemberSource<A> {
    type Key = Numbered<A>;

    fn key(&self) -> Numbered<A> {
        Numbered::new(self.group, self.address)
    }
}

/// The machine; see the [module's documentation](self).
#[derive(Debug)]
pub struct Member<'a, A = Ipv4Addr> {
    config: Config<A>,
    groups: Slab<'a, MemberGroup<A>>,
    sources: Slab<'a, MemberSource<A>>,
    /// Queriers of version 1 and 2 are present until then.
    v1_until: Option<Instant>,
    v2_until: Option<Instant>,
    /// A general query is to be answered then; in a slot-by-slot walk from `general_from` on.
    general_at: Option<Instant>,
    general_from: u32,
    /// The querier's variables (§4.1.6, §4.1.7).
    robustness: u8,
    query_interval: Duration,
    bucket: TokenBucket,
    rng: ChaCha8Rng,
    stats: Stats,
}

impl<'a, A: Family> Member<'a, A> {
    /// A member of no group.
    pub fn new(
        config: Config<A>,
        storage: MemberStorage<'a, A>,
        seed: [u8; 32],
        _now: Instant,
    ) -> Self {
        let config = config.clamped();
        let mut rng = ChaCha8Rng::from_seed(seed);
        Member {
            groups: Slab::new(storage.groups, &mut rng),
            sources: Slab::new(storage.sources, &mut rng),
            v1_until: None,
            v2_until: None,
            general_at: None,
            general_from: 0,
            robustness: config.robustness,
            query_interval: config.query_interval,
            bucket: TokenBucket::FULL,
            rng,
            stats: Stats::default(),
            config,
        }
    }

    /// The configuration, with every value inside its bounds.
    pub fn config(&self) -> &Config<A> {
        &self.config
    }

    /// Changes this system's addresses and keeps the groups. Where the source of its reports is another, all groups are
    /// reported again.
    pub fn set_interface(&mut self, now: Instant, interface: InterfaceConfig<A>) {
        let before = core::mem::replace(&mut self.config.interface, interface);
        if before.link_local != interface.link_local && !self.groups.is_empty() {
            self.general_at = Some(now);
            self.general_from = 0;
        }
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the number of groups, with those whose leave is still being reported.
    pub fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// Sets the filter of a group: `INCLUDE` with no sources leaves it. Sources
    /// that do not fit are left out and counted; a list that should exclude them asks for more
    /// than is wanted, one that should include them for less.
    ///
    /// A host receives 224.0.0.1 and ff02::1 at all times, and no report names them or a group of scope 0 or 1 (RFC 3376
    /// §4, RFC 9777 §6): for these the call succeeds and changes nothing.
    ///
    /// # Errors
    /// [`DropReason::GroupsFull`] when there is no room for a new group; nothing changed.
    /// [`DropReason::SourcesFull`] when sources were left out; the rest of the filter is set.
    pub fn set(
        &mut self,
        now: Instant,
        group: A,
        mode: FilterMode,
        sources: impl Iterator<Item = A>,
    ) -> Result<(), DropReason> {
        if !group.is_reported() {
            return Ok(());
        }
        let mut sources = sources.peekable();
        let g = match self.groups.find(Numbered::new(0, group)) {
            Some(g) => g,
            None if mode == FilterMode::Include && sources.peek().is_none() => return Ok(()),
            None => {
                let fresh = MemberGroup {
                    address: group,
                    ..MemberGroup::default()
                };
                let full = DropReason::GroupsFull;
                self.groups
                    .insert(fresh)
                    .map_err(|_| self.stats.drop(full))?
            }
        };
        let has_new_mode = self.groups[g].mode != mode;
        let mut result = Ok(());
        let mut is_changed = has_new_mode;
        for source in sources {
            match self.list(g, source) {
                Ok(is_new) => is_changed |= is_new,
                Err(reason) => result = Err(reason),
            }
        }
        is_changed |= self.unlist_unmarked(g);
        let reports = self.robustness;
        let changed = &mut self.groups[g];
        changed.mode = mode;
        if has_new_mode {
            changed.mode_reports = reports;
        }
        if is_changed {
            changed.change_reports = reports;
            changed.change_at = now;
            self.retime(g);
        }
        result
    }

    /// Wants everything of a group.
    ///
    /// # Errors
    /// [`DropReason::GroupsFull`] when there is no room for a new group; nothing changed.
    pub fn join(&mut self, now: Instant, group: A) -> Result<(), DropReason> {
        self.set(now, group, FilterMode::Exclude, core::iter::empty())
    }

    /// Wants nothing of a group any more.
    pub fn leave(&mut self, now: Instant, group: A) {
        // Leaving takes no room, so it cannot fail.
        let _ = self.set(now, group, FilterMode::Include, core::iter::empty());
    }

    /// Puts a source in the list of a group; whether it was not in it.
    fn list(&mut self, g: u32, address: A) -> Result<bool, DropReason> {
        let reports = self.robustness;
        if let Some(s) = self.sources.find(Numbered::new(g, address)) {
            let source = &mut self.sources[s];
            source.is_marked = true;
            let was_listed = core::mem::replace(&mut source.is_listed, true);
            if !was_listed {
                source.reports = reports;
                self.groups[g].source_count += 1;
            }
            return Ok(!was_listed);
        }
        let first = self.groups[g].first_source;
        let source = MemberSource {
            group: g,
            address,
            is_listed: true,
            is_marked: true,
            reports,
            next: first,
            ..MemberSource::default()
        };
        let MemberGroup {
            source_count,
            slot_count,
            ..
        } = self.groups[g];
        let bound = self.config.sources_per_group;
        let is_full = source_count >= bound || slot_count >= 2 * bound;
        let added = if is_full {
            None
        } else {
            self.sources.insert(source).ok()
        };
        let s = added.ok_or_else(|| self.stats.drop(DropReason::SourcesFull))?;
        if first != NIL {
            self.sources[first].back = s;
        }
        self.groups[g].first_source = s;
        self.groups[g].source_count += 1;
        self.groups[g].slot_count += 1;
        Ok(true)
    }

    /// Takes the sources out of the list that have not just been put there; whether any was.
    fn unlist_unmarked(&mut self, g: u32) -> bool {
        let mut is_changed = false;
        let mut at = self.groups[g].first_source;
        while at != NIL {
            let source = &mut self.sources[at];
            let was_named = core::mem::take(&mut source.is_marked);
            if !was_named && source.is_listed {
                source.is_listed = false;
                source.reports = self.robustness;
                self.groups[g].source_count -= 1;
                is_changed = true;
            }
            at = self.sources[at].next;
        }
        is_changed
    }

    fn remove_source(&mut self, s: u32) {
        let MemberSource {
            group: g,
            next,
            back,
            ..
        } = self.sources.remove(s);
        self.groups[g].slot_count -= 1;
        match back {
            NIL => self.groups[g].first_source = next,
            back => self.sources[back].next = next,
        }
        if next != NIL {
            self.sources[next].back = back;
        }
    }

    fn retime(&mut self, g: u32) {
        let group = &self.groups[g];
        let change = (group.change_reports > 0).then_some(group.change_at);
        match [change, group.answer_at].into_iter().flatten().min() {
            Some(at) => self.groups.schedule(g, at),
            None => self.groups.cancel(g),
        }
    }

    fn random(&mut self, below: Duration) -> Duration {
        let below = u128::from(below.total_micros());
        Duration::from_micros(((u128::from(self.rng.next_u64()) * below) >> 64) as u64)
    }

    /// Harmless: all that time does is to make reports due, which `poll_transmit` writes.
    pub fn handle_timeout(&mut self, _now: Instant) {}

    /// A member has no events.
    pub fn poll_event(&mut self) -> Option<Infallible> {
        None
    }

    /// When to call `poll_transmit`.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let group = self.groups.next_due().map(|(at, _)| at);
        [group, self.general_at].into_iter().flatten().min()
    }
}

proto_core::impl_machine! {
    impl['a, A: Family] Member<'a, A> {
        Meta = crate::Meta; Transmit = crate::Transmit<A>; Event = Infallible; Error = DropReason;
    }
}
