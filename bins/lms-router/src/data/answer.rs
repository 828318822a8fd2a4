//! Answers to the control thread, each in bounded time.

use std::collections::BTreeMap;

use lms_proto::fast_path::Refusal;
use lms_proto::router::{DropReason, Stats};
use lms_proto::table::EntryId;
use lms_proto::{Iface, hier};

use super::DataPath;
use super::family::Family;
use super::fast::{self, Fast};
use super::interfaces::Interfaces;
use super::routes::Routes;
use super::side::Side;
use crate::config::Policy;
use crate::control::{Command, PAGE, Page, Readings, Summary};
use crate::status::{Counters, Group, Interface, Replier};

/// Places of the table that one page looks at: removed entries leave empty ones.
const PLACES: usize = 16 * PAGE;

impl DataPath {
    pub(super) fn answer(&mut self, command: Command) {
        // The connection that asked may be closed.
        match command {
            Command::Summary(reply) => {
                let _ = reply.send(self.summary());
            }
            Command::Groups { from, reply } => {
                let _ = reply.send(self.page(from));
            }
            Command::Interfaces(reply) => {
                let _ = reply.send(self.interfaces());
            }
            Command::Counters(reply) => {
                let _ = reply.send(self.readings());
            }
            Command::Reload(config, reply) => {
                self.reload(&config);
                let _ = reply.send(());
            }
            Command::Stop => {}
        }
    }

    fn summary(&self) -> Summary {
        let of = |table: usize, offers: usize| (table as u64, offers as u64);
        let router = &self.ipv4.router;
        let (groups, neighbours) = of(router.table().len(), router.hierarchy().offer_count());
        let (groups6, neighbours6) = self.ipv6.as_ref().map_or((0, 0), |ipv6| {
            let router = &ipv6.router;
            of(router.table().len(), router.hierarchy().offer_count())
        });
        Summary {
            policy: self.config.replier.policy.name(),
            groups: groups + groups6,
            neighbours: neighbours + neighbours6,
            interfaces: self.shared.interfaces.len() as u64,
            fast_groups: self.shared.fast.as_ref().map(Fast::published),
        }
    }

    /// The interfaces, with what the fast path counted.
    fn interfaces(&self) -> Vec<Interface> {
        let mut interfaces = self.shared.interfaces.status();
        let Some(fast) = &self.shared.fast else {
            return interfaces;
        };
        for interface in &mut interfaces {
            let iface = Iface(interface.number);
            interface.fast_path = Some(fast.mode(iface));
            let (counters, more) = (&mut interface.counters, fast.port(iface));
            counters.received += more.received;
            counters.dropped += more.dropped;
            counters.requests_sent += more.requests_sent;
            counters.dmcasts_sent += more.dmcasts_sent;
            counters.too_long += more.too_long;
        }
        interfaces
    }

    /// Routes of IPv4 come first; the places of IPv6 are counted behind them.
    fn page(&self, from: usize) -> Page {
        let capacity = self.ipv4.router.table().capacity();
        let interfaces = &self.shared.interfaces;
        let policy = self.config.replier.policy;
        let (page, start) = if from < capacity {
            (self.ipv4.page(interfaces, policy, from), 0)
        } else {
            let ipv6 = self.ipv6.as_ref();
            let page = ipv6.map(|ipv6| ipv6.page(interfaces, policy, from - capacity));
            (page.unwrap_or_default(), capacity)
        };
        let behind = (start == 0 && self.ipv6.is_some()).then_some(capacity);
        Page {
            groups: page.groups,
            next: page.next.map(|next| start + next).or(behind),
        }
    }

    fn readings(&mut self) -> Readings {
        let shared = &self.shared;
        let (path, routes) = (&shared.path_stats, &shared.route_stats);
        let mut counters = Counters {
            drops: named([
                ("total_request_rate", path.requests_over_total),
                ("total_dmcast_rate", path.dmcasts_over_total),
            ]),
            packets: named([("control", path.control)]),
            routes: named([
                ("installed", routes.installed),
                ("removed", routes.removed),
                ("refused", routes.refused),
                ("static_repliers_refused", routes.repliers_refused),
                ("read_errors", routes.errors),
                ("interfaces_refused", shared.interfaces.refused),
            ]),
            queues: named([
                ("sent", path.sent),
                ("send_failed", path.send_failed),
                ("unused_interface", path.unused_interface),
                ("interface_gone", path.gone),
                ("unresolved_neighbour", path.unresolved),
                ("unguarded", path.unguarded),
                ("not_routed", path.not_routed),
                ("fast_path_contended", path.contended),
            ]),
            ..Counters::default()
        };
        self.ipv4.add_to(&mut counters);
        if let Some(ipv6) = &mut self.ipv6 {
            ipv6.add_to(&mut counters);
        }
        if let Some(fast) = &self.shared.fast {
            add_fast_path(&mut counters, &fast.readings());
        }
        Readings {
            summary: self.summary(),
            counters,
            interfaces: self.interfaces(),
        }
    }
}

/// Adds what the fast path counted, among the packets of the router and on its own.
fn add_fast_path(counters: &mut Counters, fast: &fast::Readings) {
    let sent = &fast.counters;
    let mut dropped = 0;
    for (refusal, count) in &fast.refusals {
        let name = match (refusal.reason(), refusal) {
            (Some(reason), _) => reason.name(),
            (None, Refusal::AllRequests) => "total_request_rate",
            (None, Refusal::AllDmcasts) => "total_dmcast_rate",
            // Those that are too long are counted at their interface, contended ones below.
            _ => continue,
        };
        *counters.drops.entry(name.to_owned()).or_default() += count;
        dropped += if refusal.reason().is_some() {
            *count
        } else {
            0
        };
    }
    let packets = named([
        ("request_to_parent", sent.to_parent),
        ("request_turned", sent.turned),
        ("request_to_replier", sent.to_replier),
        ("dmcast", sent.dmcasts),
        ("dropped", dropped),
        ("fast_path", sent.sent()),
    ]);
    add(&mut counters.packets, packets);
    let queues = named([
        ("sent", sent.sent()),
        ("fast_path_contended", fast.count(Refusal::Busy)),
        ("fast_path_full", fast.refused),
    ]);
    add(&mut counters.queues, queues);
}

impl<A: Family> Side<A> {
    fn page(&self, interfaces: &Interfaces, policy: Policy, from: usize) -> Page {
        let table = self.router.table();
        let end = table.capacity().min(from.saturating_add(PLACES));
        let mut groups = Vec::new();
        let mut place = from;
        while place < end && groups.len() < PAGE {
            let id = u32::try_from(place).ok().map(EntryId::from_index);
            groups.extend(id.and_then(|id| self.group(interfaces, policy, id)));
            place += 1;
        }
        Page {
            groups,
            next: (place < table.capacity()).then_some(place),
        }
    }

    fn group(&self, interfaces: &Interfaces, policy: Policy, id: EntryId) -> Option<Group> {
        let table = self.router.table();
        let entry = table.get(id)?;
        let key = entry.key();
        let replier = entry.replier().map(|replier| Replier {
            interface: interfaces.name(replier.iface),
            neighbour: replier
                .neighbour
                .map(|neighbour| neighbour.addr.to_string()),
            cost: (policy == Policy::Hierarchy).then_some(replier.cost),
        });
        Some(Group {
            source: match key.is_any_source() {
                true => "*".to_owned(),
                false => key.source.to_string(),
            },
            group: key.group.to_string(),
            upstream: entry
                .parent()
                .is_set()
                .then(|| interfaces.name(entry.parent())),
            downstream: table
                .downstream(id)
                .map(|iface| interfaces.name(iface))
                .collect(),
            replier,
        })
    }

    /// Adds the counters of this family.
    fn add_to(&mut self, counters: &mut Counters) {
        let ring = self.read_ring();
        let stats = self.router.stats();
        for reason in DropReason::ALL {
            *counters.drops.entry(reason.name().to_owned()).or_default() +=
                stats.drops.get(*reason);
        }
        add(&mut counters.packets, packets(stats));
        add(
            &mut counters.hierarchy,
            hierarchy(self.router.hierarchy().stats()),
        );
        add(
            &mut counters.routes,
            named([("ignored", self.routes.ignored())]),
        );
        let queues = named([
            ("ring_received", ring.received),
            ("ring_full", ring.dropped_full),
            ("ring_truncated", ring.dropped_truncated),
            ("sources_seen", self.watch.stats.seen),
            ("sources_not_watched", self.watch.stats.full),
        ]);
        add(&mut counters.queues, queues);
        if let Routes::Proxy(proxy) = &self.routes {
            add(&mut counters.igmp, proxy.counters());
        }
    }
}

fn add(sum: &mut BTreeMap<String, u64>, counts: BTreeMap<String, u64>) {
    for (name, count) in counts {
        *sum.entry(name).or_default() += count;
    }
}

fn packets(stats: &Stats) -> BTreeMap<String, u64> {
    named([
        ("passed", stats.passed),
        ("request_to_parent", stats.requests_to_parent),
        ("request_turned", stats.requests_turned),
        ("request_to_replier", stats.requests_to_replier),
        ("dmcast", stats.dmcasts),
        ("request_routed", stats.requests_routed),
        ("dropped", stats.drops.total()),
    ])
}

fn hierarchy(stats: &hier::Stats) -> BTreeMap<String, u64> {
    let mut counts = named([
        ("updates_received", stats.updates_received),
        ("reports_received", stats.reports_received),
        ("records_accepted", stats.records_accepted),
        ("updates_sent", stats.updates_sent),
        ("elected_sent", stats.elected_sent),
        ("elections", stats.elections),
        ("expired", stats.expired),
        ("adverts_full", stats.adverts_full),
    ]);
    for reason in hier::DropReason::ALL {
        counts.insert(
            format!("refused_{}", reason.name()),
            stats.drops.get(*reason),
        );
    }
    counts
}

fn named<const N: usize>(counts: [(&str, u64); N]) -> BTreeMap<String, u64> {
    counts
        .into_iter()
        .map(|(name, count)| (name.to_owned(), count))
        .collect()
}
