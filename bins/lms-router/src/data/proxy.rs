//! The IGMP or MLD proxy as a source of routes (RFC 4605): the machine knows the memberships, the kernel
//! asks about packets it has no route for, and here both become routes, in the kernel for the
//! data and in the router for requests and repairs.
//!
//! Routes are made when a source's first packet arrives, also for packets without receivers (else the
//! kernel would ask again for each), and go when their source has been silent for a while.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};

use igmp::{Member, ProxyEvent, Querier, Storage};
use linux_net::mroute::{Route, Table, Upcall, UpcallKind};
use lms_proto::router::Meta;
use lms_proto::{Duration, Iface, Instant, InterfaceConfig, Key, Transmit};

use super::family::Family;
use super::interfaces::Interfaces;
use super::routes::{Follow, Installer};
use crate::config::{Config, IgmpProxy};
use crate::metrics::IGMP_ROUTES;
use daemon_kit::RunError;

/// Groups that one link may ask for, at most; and the sources of all these groups.
const MOST_GROUPS: usize = 4096;
/// A source that has sent nothing for this long loses its route.
const SILENCE: Duration = Duration::from_secs(210);
/// How often routes are looked through for such sources.
const SWEEP: Duration = Duration::from_secs(30);
/// Questions of the kernel that one call answers.
const UPCALLS: usize = 256;

/// What is known of one route.
#[derive(Clone, Debug)]
struct Known {
    input: Iface,
    outputs: Vec<Iface>,
    packets: u64,
    last_seen: Instant,
}

/// Counters that the machines do not have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProxyStats {
    pub(crate) upcalls: u64,
    /// Sources left without a route: the table is full.
    pub(crate) refused: u64,
    /// Sources on a downstream link whose address is not of that link.
    pub(crate) wrong_source: u64,
    pub(crate) kernel_errors: u64,
}

/// The driver of the machine.
#[derive(Debug)]
pub(crate) struct Proxy<A: Family> {
    config: IgmpProxy,
    most_routes: usize,
    seed: [u8; 32],
    seeds_used: u64,
    kernel: Table<A>,
    /// There is none while the upstream interface is missing.
    machine: Option<igmp::Proxy<'static, A>>,
    /// Interfaces that take part, as the machine and the kernel know them.
    taking_part: BTreeMap<Iface, (u32, InterfaceConfig<A>)>,
    /// By group and source.
    routes: BTreeMap<(A, A), Known>,
    next_sweep: Instant,
    pub(crate) stats: ProxyStats,
    /// Counters of the machines of interfaces that are gone: counters never decrease.
    past: BTreeMap<String, u64>,
}

impl<A: Family> Proxy<A> {
    /// Takes the kernel's multicast routing; fails where another program has it.
    pub(crate) fn open(
        config: &Config,
        proxy: &IgmpProxy,
        seed: [u8; 32],
    ) -> Result<Proxy<A>, RunError> {
        // A kernel may have multicast routing of one version of IP alone, or another program own one.
        let what = match A::NAME {
            "ipv4" => "source.kind = \"igmp-proxy\"",
            _ => "source.kind = \"igmp-proxy\", IPv6 (do without: ipv6 = false)",
        };
        Ok(Proxy {
            config: proxy.clone(),
            most_routes: config.limits.groups as usize,
            seed,
            seeds_used: 0,
            kernel: Table::open_for().map_err(RunError::open(what))?,
            machine: None,
            taking_part: BTreeMap::new(),
            routes: BTreeMap::new(),
            next_sweep: Instant::ZERO,
            stats: ProxyStats::default(),
            past: BTreeMap::new(),
        })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.kernel.as_fd()
    }

    /// Handles an IGMP or MLD packet; [`Proxy::drain`] applies the changes.
    pub(crate) fn handle_packet(&mut self, now: Instant, meta: Meta, packet: &[u8]) {
        if let Some(machine) = &mut self.machine {
            // Refusals are counted by the machine.
            let _ = machine.handle_packet(now, &meta, packet);
        }
    }

    pub(crate) fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit<A>> {
        self.machine.as_mut()?.poll_transmit(now, buffer)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let machine = self.machine.as_ref()?.poll_timeout();
        machine.into_iter().chain([self.next_sweep]).min()
    }

    /// Runs timers and applies the machine's changes.
    pub(crate) fn drain(&mut self, install: &mut Installer<'_, A>) {
        let now = install.now;
        if let Some(machine) = &mut self.machine {
            machine.handle_timeout(now);
        }
        while let Some(event) = self.machine.as_mut().and_then(igmp::Proxy::poll_event) {
            match event {
                ProxyEvent::Changed { group } => self.group_changed(group, install),
                ProxyEvent::Role { iface, role } => {
                    let interface = install.interfaces.name(iface);
                    tracing::info!(
                        event = "igmp_role",
                        family = A::NAME,
                        interface,
                        ?role,
                        "the role of the querier changed"
                    );
                    self.all_changed(install);
                }
            }
        }
        if self.next_sweep <= now {
            self.next_sweep = now + SWEEP;
            self.sweep(install);
        }
    }

    /// What the kernel asks.
    pub(crate) fn upcalls(&mut self, install: &mut Installer<'_, A>) -> Follow {
        for _ in 0..UPCALLS {
            match self.kernel.next_upcall() {
                Ok(Some(upcall)) => self.upcall(upcall, install),
                Ok(None) => return Follow::Done,
                Err(error) => {
                    self.stats.kernel_errors += 1;
                    if install.may_log() {
                        tracing::warn!(event = "route_requests_not_read", %error, "cannot read the kernel's requests for multicast routes");
                    }
                    // What waits keeps the descriptor readable.
                    return Follow::Done;
                }
            }
        }
        Follow::More
    }

    fn upcall(&mut self, upcall: Upcall<A>, install: &mut Installer<'_, A>) {
        self.stats.upcalls += 1;
        let Some(input) = install.interfaces.number(upcall.interface) else {
            return;
        };
        let link_local = upcall.group.is_link_local_group();
        if upcall.kind != UpcallKind::NoRoute || link_local {
            return;
        }
        let key = (upcall.group, upcall.source);
        if !self.routes.contains_key(&key) && self.routes.len() >= self.most_routes {
            self.stats.refused += 1;
            return;
        }
        let known = Known {
            input,
            outputs: Vec::new(),
            packets: 0,
            last_seen: install.now,
        };
        self.routes.insert(key, known);
        self.route_changed(key, true, install);
    }

    /// Where packets of a source that come in by `input` go.
    fn outputs(&mut self, key: Key<A>, input: Iface) -> Vec<Iface> {
        let Some(machine) = &self.machine else {
            return Vec::new();
        };
        let upstream = machine.parent();
        let below = machine.downstream(key).filter(|iface| *iface != input);
        if input == upstream {
            return below.collect();
        }
        let on_link = |(_, config): &(u32, InterfaceConfig<A>)| config.on_link(key.source);
        if !self.taking_part.get(&input).is_some_and(on_link) {
            self.stats.wrong_source += 1;
            return Vec::new();
        }
        below.chain([upstream]).collect()
    }

    fn group_changed(&mut self, group: A, install: &mut Installer<'_, A>) {
        let least = (group, <A as lms_proto::Address>::UNSPECIFIED);
        let from = self.routes.range(least..).map(|(key, _)| *key);
        let keys: Vec<_> = from.take_while(|(of, _)| *of == group).collect();
        for key in keys {
            self.route_changed(key, false, install);
        }
    }

    fn all_changed(&mut self, install: &mut Installer<'_, A>) {
        let keys: Vec<_> = self.routes.keys().copied().collect();
        for key in keys {
            self.route_changed(key, false, install);
        }
    }

    fn route_changed(
        &mut self,
        (group, source): (A, A),
        is_new: bool,
        install: &mut Installer<'_, A>,
    ) {
        let key = Key::new(source, group);
        let Some(input) = self.routes.get(&(group, source)).map(|known| known.input) else {
            return;
        };
        let outputs = self.outputs(key, input);
        let Some(known) = self.routes.get_mut(&(group, source)) else {
            return;
        };
        if known.outputs == outputs && !is_new {
            return;
        }
        known.outputs.clone_from(&outputs);
        let index = |iface: &Iface| install.interfaces.get(*iface).map(|slot| slot.index);
        let route = Route {
            source,
            group,
            input: index(&input).unwrap_or(0),
            outputs: outputs.iter().filter_map(index).collect(),
        };
        if let Err(error) = self.kernel.set_route(&route) {
            self.stats.kernel_errors += 1;
            if install.may_log() {
                tracing::warn!(event = "route_not_set", route = %key, %error, "cannot set the multicast route");
            }
        }
        match outputs.is_empty() {
            true => install.remove(key),
            false => install.install(key, Some(input), outputs),
        }
    }

    /// Routes of silent sources go.
    fn sweep(&mut self, install: &mut Installer<'_, A>) {
        let now = install.now;
        let mut silent = Vec::new();
        for ((group, source), known) in &mut self.routes {
            match self.kernel.counters(*source, *group) {
                Ok(counters) if counters.packets != known.packets => {
                    known.packets = counters.packets;
                    known.last_seen = now;
                }
                _ if known.last_seen + SILENCE <= now => silent.push((*group, *source)),
                _ => {}
            }
        }
        for key in silent {
            self.remove(key, install);
        }
    }

    fn remove(&mut self, (group, source): (A, A), install: &mut Installer<'_, A>) {
        self.routes.remove(&(group, source));
        // The kernel removes routes of interfaces that are gone.
        let _ = self.kernel.remove_route(source, group);
        install.remove(Key::new(source, group));
    }

    /// Interfaces came, went, or have another address.
    pub(crate) fn interfaces_changed(&mut self, install: &mut Installer<'_, A>) {
        let now = install.now;
        let wanted = self.wanted(install.interfaces);
        self.set_addresses(now, &wanted);
        let is_gone = |(iface, before): &(&Iface, &_)| wanted.get(iface) != Some(before);
        let taking_part = || self.taking_part.iter();
        let parent = self.machine.as_ref().map(igmp::Proxy::parent);
        // The queriers are part of the machine, which ends with its upstream interface.
        let ends = taking_part().any(|entry| Some(*entry.0) == parent && is_gone(&entry));
        let gone: Vec<Iface> = taking_part()
            .filter(|entry| ends || is_gone(entry))
            .map(|(iface, _)| *iface)
            .collect();
        for iface in gone {
            self.leave(now, iface, install);
        }
        let upstream = install.interfaces.named(&self.config.upstream);
        // The upstream interface first: without it there is no machine to add others to.
        let first = wanted.iter().filter(|(iface, _)| Some(**iface) == upstream);
        let rest = wanted.iter().filter(|(iface, _)| Some(**iface) != upstream);
        for (iface, (index, config)) in first.chain(rest) {
            if self.taking_part.contains_key(iface) {
                continue;
            }
            if let Err(error) = self.kernel.add_interface(*index) {
                self.stats.kernel_errors += 1;
                let interface = install.interfaces.name(*iface);
                tracing::warn!(event = "mroute_interface_failed", interface, %error, "cannot use the interface for multicast routing");
                continue;
            }
            self.taking_part.insert(*iface, (*index, *config));
            self.add_machine(now, *iface, *config, Some(*iface) == upstream);
        }
        self.all_changed(install);
    }

    /// Follows other addresses of interfaces that take part already; memberships stay.
    fn set_addresses(&mut self, now: Instant, wanted: &BTreeMap<Iface, (u32, InterfaceConfig<A>)>) {
        let Some(machine) = &mut self.machine else {
            return;
        };
        for (iface, (index, before)) in &mut self.taking_part {
            match wanted.get(iface) {
                Some((at, config)) if at == index && config != before => {
                    *before = *config;
                    machine.set_interface(now, *iface, *config);
                }
                _ => {}
            }
        }
    }

    /// The interfaces that should take part: the upstream one, and those downstream that fit.
    fn wanted(&self, interfaces: &Interfaces) -> BTreeMap<Iface, (u32, InterfaceConfig<A>)> {
        let upstream = interfaces.named(&self.config.upstream);
        let fits = |name: &str| {
            name == self.config.upstream || self.config.downstream.iter().any(|p| p.matches(name))
        };
        let mut wanted = BTreeMap::new();
        for (iface, slot) in interfaces.iter().filter(|(_, slot)| fits(&slot.name)) {
            let Some(config) = A::config(interfaces, iface) else {
                continue;
            };
            wanted.insert(iface, (slot.index, config));
        }
        // Without an upstream interface no downstream interface is served.
        if !upstream.is_some_and(|upstream| wanted.contains_key(&upstream)) {
            wanted.clear();
        }
        wanted
    }

    fn leave(&mut self, now: Instant, iface: Iface, install: &mut Installer<'_, A>) {
        let Some((index, _)) = self.taking_part.remove(&iface) else {
            return;
        };
        // Routes that came in there have lost their source.
        let lost: Vec<_> = self
            .routes
            .iter()
            .filter(|(_, known)| known.input == iface)
            .map(|(key, _)| *key)
            .collect();
        for key in lost {
            self.remove(key, install);
        }
        match &mut self.machine {
            Some(machine) if machine.parent() == iface => {
                for stats in all_stats(machine) {
                    add(&mut self.past, stats);
                }
                self.machine = None;
            }
            Some(machine) => {
                let mut queriers = machine.queriers().iter();
                if let Some(querier) = queriers.find(|querier| querier.config().iface == iface) {
                    add(&mut self.past, querier.stats());
                }
                machine.remove_downstream(now, iface);
            }
            None => {}
        }
        // Gone already, most likely.
        let _ = self.kernel.remove_interface(index);
    }

    fn add_machine(&mut self, now: Instant, iface: Iface, interface: InterfaceConfig<A>, up: bool) {
        let duration = |d: std::time::Duration| {
            Duration::from_micros(u64::try_from(d.as_micros()).unwrap_or(u64::MAX))
        };
        let config = igmp::Config {
            robustness: self.config.robustness,
            query_interval: duration(self.config.query_interval),
            query_response: duration(self.config.response_interval),
            last_member: duration(self.config.last_member_interval),
            ..igmp::Config::new(iface, interface)
        };
        let groups = self.most_routes.min(MOST_GROUPS);
        let seed = self.next_seed();
        if up {
            let member = Member::new(config, Storage::owned(groups, 4 * groups), seed, now);
            self.machine = Some(igmp::Proxy::new(member, Vec::new().into(), now));
            return;
        }
        if let Some(machine) = &mut self.machine {
            let querier = Querier::new(config, Storage::owned(groups, 4 * groups), seed, now);
            // It owns its memory, so it takes the querier.
            let _ = machine.add_downstream(now, querier);
        }
    }

    /// A seed that no machine had before.
    fn next_seed(&mut self) -> [u8; 32] {
        self.seeds_used += 1;
        let mut seed = self.seed;
        for (byte, count) in seed.iter_mut().zip(self.seeds_used.to_le_bytes()) {
            *byte ^= count;
        }
        seed
    }

    /// Returns the counters of all machines together, those that are gone included.
    pub(crate) fn counters(&self) -> BTreeMap<String, u64> {
        let mut counters = self.past.clone();
        for stats in self.machine.iter().flat_map(all_stats) {
            add(&mut counters, stats);
        }
        for (name, count) in [
            ("upcalls", self.stats.upcalls),
            (IGMP_ROUTES, self.routes.len() as u64),
            ("routes_refused", self.stats.refused),
            ("wrong_source", self.stats.wrong_source),
            ("kernel_errors", self.stats.kernel_errors),
        ] {
            counters.insert(name.to_owned(), count);
        }
        counters
    }
}

/// Returns the counters of the upstream interface and of each downstream one.
fn all_stats<'a, A: Family>(
    machine: &'a igmp::Proxy<'static, A>,
) -> impl Iterator<Item = &'a igmp::Stats> {
    let downstream = machine.queriers().iter().map(Querier::stats);
    std::iter::once(machine.upstream().stats()).chain(downstream)
}

fn add(sum: &mut BTreeMap<String, u64>, stats: &igmp::Stats) {
    let mut count = |name: String, count| *sum.entry(name).or_default() += count;
    count("reports_received".to_owned(), stats.reports_received);
    count("queries_received".to_owned(), stats.queries_received);
    count("queries_sent".to_owned(), stats.queries_sent);
    count("reports_sent".to_owned(), stats.reports_sent);
    for (reason, drops) in stats.drops.iter() {
        count(format!("refused_{}", reason.name()), drops);
    }
}
