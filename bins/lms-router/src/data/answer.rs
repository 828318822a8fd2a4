//! Answers to the control thread, each in bounded time.

use std::collections::BTreeMap;

use lms_proto::hier;
use lms_proto::router::{DropReason, Stats};
use lms_proto::table::EntryId;

use super::DataPath;
use super::routes::Routes;
use crate::config::Policy;
use crate::control::{Command, PAGE, Page, Readings, Summary};
use crate::status::{Counters, Group, Replier};

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
                let _ = reply.send(self.interfaces.status());
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
        Summary {
            policy: self.config.replier.policy.name(),
            groups: self.router.table().len() as u64,
            neighbours: self.router.hierarchy().offer_count() as u64,
            interfaces: self.interfaces.len() as u64,
        }
    }

    fn page(&self, from: usize) -> Page {
        let table = self.router.table();
        let end = table.capacity().min(from.saturating_add(PLACES));
        let mut groups = Vec::new();
        let mut place = from;
        while place < end && groups.len() < PAGE {
            let id = u32::try_from(place).ok().map(EntryId::from_index);
            groups.extend(id.and_then(|id| self.group(id)));
            place += 1;
        }
        Page {
            groups,
            next: (place < table.capacity()).then_some(place),
        }
    }

    fn group(&self, id: EntryId) -> Option<Group> {
        let table = self.router.table();
        let entry = table.get(id)?;
        let key = entry.key();
        let replier = entry.replier().map(|replier| Replier {
            interface: self.interfaces.name(replier.iface),
            neighbour: replier
                .neighbour
                .map(|neighbour| neighbour.addr.to_string()),
            cost: (self.config.replier.policy == Policy::Hierarchy).then_some(replier.cost),
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
                .then(|| self.interfaces.name(entry.parent())),
            downstream: table
                .downstream(id)
                .map(|iface| self.interfaces.name(iface))
                .collect(),
            replier,
        })
    }

    fn readings(&mut self) -> Readings {
        // The kernel counts from the last reading.
        if let Ok(since) = self.capture.stats() {
            self.ring_stats.received += since.received;
            self.ring_stats.dropped_full += since.dropped_full;
            self.ring_stats.dropped_truncated += since.dropped_truncated;
        }
        let (path, routes) = (&self.path_stats, &self.route_stats);
        let mut drops: BTreeMap<String, u64> = DropReason::ALL
            .iter()
            .map(|reason| {
                (
                    reason.name().to_owned(),
                    self.router.stats().drops.get(*reason),
                )
            })
            .collect();
        drops.insert("total_request_rate".to_owned(), path.requests_over_total);
        drops.insert("total_dmcast_rate".to_owned(), path.dmcasts_over_total);
        let counters = Counters {
            packets: packets(self.router.stats(), path.control),
            drops,
            hierarchy: hierarchy(self.router.hierarchy().stats()),
            routes: named([
                ("installed", routes.installed),
                ("removed", routes.removed),
                ("refused", routes.refused),
                ("ignored", self.routes.ignored()),
                ("static_repliers_refused", routes.repliers_refused),
                ("read_errors", routes.errors),
                ("interfaces_refused", self.interfaces.refused),
            ]),
            queues: named([
                ("ring_received", self.ring_stats.received),
                ("ring_full", self.ring_stats.dropped_full),
                ("ring_truncated", self.ring_stats.dropped_truncated),
                ("sent", path.sent),
                ("send_failed", path.send_failed),
                ("unused_interface", path.unused_interface),
                ("interface_gone", path.gone),
                ("unresolved_neighbour", path.unresolved),
                ("unguarded", path.unguarded),
                ("sources_seen", self.watch.stats.seen),
                ("sources_not_watched", self.watch.stats.full),
            ]),
            igmp: match &self.routes {
                Routes::Proxy(proxy) => proxy.counters(),
                Routes::Kernel(_) | Routes::Static(_) => BTreeMap::new(),
            },
        };
        Readings {
            summary: self.summary(),
            counters,
            interfaces: self.interfaces.status(),
        }
    }
}

fn packets(stats: &Stats, control: u64) -> BTreeMap<String, u64> {
    named([
        ("passed", stats.passed),
        ("request_to_parent", stats.requests_to_parent),
        ("request_turned", stats.requests_turned),
        ("request_to_replier", stats.requests_to_replier),
        ("dmcast", stats.dmcasts),
        ("dropped", stats.drops.total()),
        ("control", control),
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
