//! Announcements to peers, by the table of [`routing`](super). Only changes since the last announcement are sent,
//! as late as the peer can take them: a route that changes ten times while a peer is slow is announced once. So the
//! number of routes bounds the queue for a peer.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::policy::Action;
use super::{Rib, Route};
use crate::types::{BnNum, GatewayId, PeerId, Table, Tables};
use crate::wire::attributes::{Attributes, MAX_PATH};
use crate::wire::update::{Announced, Repr as Update};
use crate::wire::{MAX_MESSAGE_LEN, Message};

/// Most bytes of routes in one UPDATE: a full one and the longest route still fit a message.
const UPDATE_ROOM: usize = MAX_MESSAGE_LEN / 4;

/// Routes that were announced to one peer, and those to announce.
#[derive(Debug, Default)]
pub(super) struct Out {
    announced: BTreeMap<(Table, GatewayId), Route>,
    dirty: BTreeSet<(Table, GatewayId)>,
    /// Tables whose end is sent once all their routes have been.
    pub(super) end_of_table: Tables,
}

impl Out {
    pub(super) fn has_announced(&self, table: Table, network: BnNum) -> bool {
        self.announced
            .range(gateways(table, network))
            .next()
            .is_some()
    }

    /// Returns gateways of a network with changes to announce.
    pub(super) fn pending(
        &self,
        table: Table,
        network: BnNum,
    ) -> impl Iterator<Item = GatewayId> + '_ {
        let queued = self.dirty.range(gateways(table, network));
        queued.map(|(_, destination)| *destination)
    }
}

/// Returns the range of all possible gateways of a network.
fn gateways(table: Table, network: BnNum) -> RangeInclusive<(Table, GatewayId)> {
    let gateway = |number| (table, GatewayId { network, number });
    gateway(0)..=gateway(u32::MAX)
}

/// Returns the range of all possible gateways.
pub(super) fn of_table(table: Table) -> RangeInclusive<(Table, GatewayId)> {
    let first = GatewayId {
        network: BnNum::FIRST,
        number: 0,
    };
    let last = GatewayId {
        network: BnNum::LAST,
        number: u32::MAX,
    };
    (table, first)..=(table, last)
}

impl Rib {
    /// Schedules the announcement of a route to all peers.
    pub(super) fn queue_export(&mut self, table: Table, destination: GatewayId) {
        for peer in self
            .peers
            .values_mut()
            .filter(|peer| peer.tables.contains(table))
        {
            peer.out.dirty.insert((table, destination));
        }
    }

    pub(super) fn schedule_all(&mut self) {
        let ids: Vec<_> = self.peers.keys().copied().collect();
        for id in ids {
            self.schedule_all_for(id);
        }
    }

    /// Schedules the announcement of all routes to a peer.
    pub(super) fn schedule_all_for(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        let tables = peer.tables;
        let known = self
            .destinations
            .keys()
            .chain(peer.out.announced.keys())
            .copied();
        let all: Vec<_> = known.filter(|(table, _)| tables.contains(*table)).collect();
        peer.out.dirty.extend(all);
    }

    /// Returns the next message of routes for a peer, `None` if nothing has changed for it.
    pub(crate) fn next_message(&mut self, id: PeerId) -> Option<Message> {
        if self.deferred {
            return None;
        }
        loop {
            let out = &self.peers.get(&id)?.out;
            // The end of a table is sent before the next table begins.
            let first = out.dirty.first().map(|(table, _)| *table);
            let ended = out.end_of_table.iter().next();
            if let Some(table) = ended.filter(|ended| first.is_none_or(|first| *ended < first)) {
                let out = &mut self.peers.get_mut(&id)?.out;
                out.end_of_table = out.end_of_table.without(table);
                return Some(Message::EndOfTable(table));
            }
            let update = self.next_update(id, first?);
            if !update.withdrawn.is_empty() || !update.announced.is_empty() {
                self.stats.told += (update.withdrawn.len() + update.announced.len()) as u64;
                return Some(Message::Update(update));
            }
        }
    }

    fn next_update(&mut self, id: PeerId, table: Table) -> Update {
        let mut update = Update {
            table,
            withdrawn: Vec::new(),
            announced: Vec::new(),
        };
        let mut room = UPDATE_ROOM;
        while let Some(destination) = self.take_dirty(id, table) {
            let route = self.export(id, table, destination);
            let Some(peer) = self.peers.get_mut(&id) else {
                break;
            };
            let announced = &mut peer.out.announced;
            let before = announced.get(&(table, destination));
            match route {
                Some(route) if before == Some(&route) => continue,
                Some(route) => {
                    let attributes = Attributes {
                        cost: route.cost,
                        path: route.path.to_vec(),
                        tags: route.tags.to_vec(),
                    };
                    room = room.saturating_sub(10 + attributes.buffer_len());
                    announced.insert((table, destination), route);
                    update.announced.push(Announced {
                        destination,
                        attributes,
                    });
                }
                None if before.is_none() => continue,
                None => {
                    announced.remove(&(table, destination));
                    update.withdrawn.push(destination);
                    room = room.saturating_sub(8);
                }
            }
            if room == 0 {
                break;
            }
        }
        update
    }

    fn take_dirty(&mut self, id: PeerId, table: Table) -> Option<GatewayId> {
        let dirty = &mut self.peers.get_mut(&id)?.out.dirty;
        let &(of, destination) = dirty.first().filter(|(of, _)| *of == table)?;
        dirty.remove(&(of, destination));
        Some(destination)
    }

    /// Returns the route to `destination` as it is announced to the peer.
    pub(super) fn export(&self, id: PeerId, table: Table, destination: GatewayId) -> Option<Route> {
        let peer = self.peers.get(&id)?;
        if !peer.tables.contains(table) || !self.config.tables.contains(table) {
            return None;
        }
        let mut route = if destination == self.own {
            let cost = self.config.origin.get(table);
            Route {
                cost,
                path: [self.own].into(),
                tags: [].into(),
            }
        } else {
            // Sessions end at the first gateway of their owner, so no route leads through it to another one.
            if destination.network == self.own.network && !peer.internal {
                return None;
            }
            let (from, candidate) = self.best(table, destination)?;
            let from_internal = self.peers.get(&from)?.internal;
            if from == id || (from_internal && peer.internal) {
                return None;
            }
            self.lengthen(&candidate.route, peer)?
        };
        if !peer.internal && destination != self.own {
            let transit = self.config.transit.get(table);
            route.cost = table.metric().join(route.cost, transit);
        }
        match peer.config.export.decide(table, destination, &route) {
            Action::Accept(changes) => changes.apply(table, &mut route),
            Action::Reject => return None,
        }
        route.cost.is_finite().then_some(route)
    }

    /// Returns a route with this gateway prepended; `None` if the peer would find a loop in it.
    fn lengthen(&self, route: &Route, peer: &super::Peer) -> Option<Route> {
        let to = peer.config.gateway;
        let meets = |on: &GatewayId| *on == to || (!peer.internal && on.network == to.network);
        if route.path.len() >= MAX_PATH || route.path.iter().any(meets) {
            return None;
        }
        let path = core::iter::once(self.own)
            .chain(route.path.iter().copied())
            .collect();
        Some(Route {
            cost: route.cost,
            path,
            tags: route.tags.clone(),
        })
    }
}
