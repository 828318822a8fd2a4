//! Received offers: checks, the table of neighbours, election.

use proto_core::RateLimit;

use super::config::hold_time;
use super::state::{Neighbour, Peer, neighbour_key, peer_key, stream_key};
use super::{DropReason, EntryId, Full, Hierarchy, election};
use crate::wire::hier::{self, Cost, Kind};
use crate::{Family, Iface, Instant, Key, LinkAddr, Meta};
use igmp::datagram::{self, Ip};
use igmp::wire::{Message, Record, RecordType, Records};
use proto_core::slab::NIL;

const PROTOCOL_UDP: u8 = 17;

/// Returns the sender and the version of an LMS-HIER message, a whole IP packet; `None` for other packets. Drivers
/// name both where a message was refused with [`DropReason::Version`].
pub fn sender_version<A: Family>(packet: &[u8]) -> Option<(A, u8)> {
    let ip = datagram::parse::<A>(packet, PROTOCOL_UDP)?;
    let version = hier::version(datagram::udp_payload(&ip, hier::PORT)?)?;
    Some((ip.source, version))
}

impl<A: Family> Hierarchy<'_, A> {
    /// Handles an LMS-HIER message or an IGMP or MLD packet, a whole IP packet. Every interface but the parent counts as
    /// downstream in an entry.
    ///
    /// Records of an accepted packet are refused one by one, and only counted. IGMP and MLD packets without a replier's cost
    /// are accepted and change nothing.
    ///
    /// # Errors
    ///
    /// The whole packet was refused; nothing but the counter of the reason has changed.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        meta: &Meta,
        packet: &[u8],
    ) -> Result<(), DropReason> {
        self.handle_packet_with(now, meta, packet, |_, _| true)
    }

    /// [`Hierarchy::handle_packet`] for a driver with a table of downstream interfaces: `is_downstream` says whether an
    /// interface other than the parent is downstream in an entry.
    ///
    /// # Errors
    ///
    /// As [`Hierarchy::handle_packet`].
    pub fn handle_packet_with(
        &mut self,
        now: Instant,
        meta: &Meta,
        packet: &[u8],
        is_downstream: impl Fn(Key<A>, Iface) -> bool,
    ) -> Result<(), DropReason> {
        let result = if let Some(ip) = datagram::parse::<A>(packet, PROTOCOL_UDP) {
            self.handle_update(now, meta, &ip, is_downstream)
        } else if let Some(ip) = datagram::parse::<A>(packet, <A as igmp::Family>::PROTOCOL) {
            self.handle_membership(now, meta, &ip, is_downstream)
        } else {
            Err(DropReason::Malformed)
        };
        result.map_err(|reason| self.stats.drop(reason))
    }

    fn handle_update(
        &mut self,
        now: Instant,
        meta: &Meta,
        ip: &Ip<'_, A>,
        is_downstream: impl Fn(Key<A>, Iface) -> bool,
    ) -> Result<(), DropReason> {
        if ip.destination != A::LINK_GROUP {
            return Err(DropReason::Malformed);
        }
        let payload = datagram::udp_payload(ip, hier::PORT).ok_or(DropReason::Malformed)?;
        self.check_sender(meta.iface, ip)?;
        let view = hier::View::<A>::new_checked(payload).map_err(|error| match error {
            hier::ParseError::Version => DropReason::Version,
            _ => DropReason::Malformed,
        })?;
        let header = view.header();
        if header.kind != Kind::Update {
            // The parent's router announces to its link, on which this router is one of the neighbours.
            let is_ours = |entry: hier::Entry<A>| {
                let id = self.find(entry.key);
                id.is_some_and(|id| self.is_below(id, meta.iface, &is_downstream))
            };
            return match view.entries().any(is_ours) {
                true => Err(DropReason::WrongType),
                false => Ok(()),
            };
        }
        let known = self.peers.find(peer_key(meta.iface, ip.source));
        let restart_interval = self.config.restart_interval;
        let is_newer = |p| {
            self.peers[p]
                .replay_guard
                .is_newer(now, &header, restart_interval)
        };
        if !known.is_none_or(is_newer) {
            return Err(DropReason::Replay);
        }
        let peer = self.admit(now, meta, ip.source)?;
        self.peers[peer].replay_guard.note(now, &header);
        self.stats.updates_received += 1;
        let expires = now + header.hold_time();
        for entry in view.entries() {
            self.record(now, peer, entry.key, entry.cost, expires, &is_downstream);
        }
        Ok(())
    }

    fn handle_membership(
        &mut self,
        now: Instant,
        meta: &Meta,
        ip: &Ip<'_, A>,
        is_downstream: impl Fn(Key<A>, Iface) -> bool,
    ) -> Result<(), DropReason> {
        let message = Message::of(ip).map_err(|_| DropReason::Malformed)?;
        let Message::V3Report(records) = message else {
            return Ok(());
        };
        let is_known = self.peers.find(peer_key(meta.iface, ip.source)).is_some();
        if !records
            .iter()
            .any(|record| record.cost().is_some() || is_known && is_leave(&record))
        {
            return Ok(());
        }
        self.check_sender(meta.iface, ip)?;
        let peer = self.admit(now, meta, ip.source)?;
        self.stats.reports_received += 1;
        self.take_records(now, peer, &records, &is_downstream);
        Ok(())
    }

    fn take_records(
        &mut self,
        now: Instant,
        peer: u32,
        records: &Records<'_, A>,
        is_downstream: &impl Fn(Key<A>, Iface) -> bool,
    ) {
        let expires = now + hold_time(self.config.refresh);
        for record in records.iter() {
            let leaves = is_leave(&record);
            let cost = match record.cost() {
                _ if leaves => Cost::WITHDRAWN,
                Some(cost) => cost,
                None => continue,
            };
            if matches!(record.kind, RecordType::Unknown(_)) {
                continue;
            }
            if record.sources.is_empty() {
                let key = Key::any_source(record.group);
                if record.cost().is_some() || self.find(key).is_some() {
                    self.record(now, peer, key, cost, expires, is_downstream);
                }
            }
            for source in record.sources.iter() {
                let key = Key::new(source, record.group);
                if record.cost().is_some() || self.find(key).is_some() {
                    self.record(now, peer, key, cost, expires, is_downstream);
                }
            }
        }
    }

    /// One offer, or its withdrawal, for one entry: `(S, G)`, else `(*, G)`.
    fn record(
        &mut self,
        now: Instant,
        peer: u32,
        key: Key<A>,
        cost: Cost,
        expires: Instant,
        is_downstream: &impl Fn(Key<A>, Iface) -> bool,
    ) {
        let found = self
            .find(key)
            .or_else(|| self.find(Key::any_source(key.group)));
        let result = match found {
            None => Err(DropReason::UnknownGroup),
            Some(id) if !self.is_below(id, self.peers[peer].iface, is_downstream) => {
                Err(DropReason::WrongInterface)
            }
            Some(id) => self.offer(now, id.0, peer, cost, expires),
        };
        match result {
            Ok(()) => self.stats.records_accepted += 1,
            Err(reason) => {
                self.stats.drop(reason);
            }
        }
    }

    fn is_below(
        &self,
        id: EntryId,
        iface: Iface,
        is_downstream: &impl Fn(Key<A>, Iface) -> bool,
    ) -> bool {
        let entry = &self.entries[id.0];
        entry.parent != iface && is_downstream(entry.key, iface)
    }

    fn check_sender(&self, iface: Iface, ip: &Ip<'_, A>) -> Result<(), DropReason> {
        let stream = self.streams.find(stream_key(iface, Kind::Update));
        let config = self.streams[stream.ok_or(DropReason::UnknownInterface)?].config;
        if ip.ttl != 1 {
            return Err(DropReason::Ttl);
        }
        if config.is_own(ip.source) {
            return Err(DropReason::OwnAddress);
        }
        if !ip.source.is_unicast() || !config.on_link(ip.source) {
            return Err(DropReason::WrongSubnet);
        }
        Ok(())
    }

    /// The neighbour that sent a packet, if it may send one more.
    fn admit(&mut self, now: Instant, meta: &Meta, source: A) -> Result<u32, DropReason> {
        let p = self.peer(meta.iface, source).ok_or(DropReason::PeersFull)?;
        let config = &self.config;
        let limit = RateLimit::new(config.neighbour_packets_per_s, config.neighbour_burst);
        let peer = &mut self.peers[p];
        if !peer.bucket.take(now, &limit) {
            return Err(DropReason::Rate);
        }
        if meta.link_source.is_some() {
            self.set_link(p, meta.link_source);
        }
        Ok(p)
    }

    /// Sets the link address of a neighbour, which entries with an offer of it send to.
    pub(super) fn set_link(&mut self, peer: u32, link: Option<LinkAddr>) {
        let peer = &mut self.peers[peer];
        self.links_changed |= peer.offer_count > 0 && peer.link != link;
        peer.link = link;
    }

    /// Returns whether a neighbour that may be elected got another link address since the last call.
    pub(crate) fn take_links_changed(&mut self) -> bool {
        core::mem::take(&mut self.links_changed)
    }

    /// Finds or adds a neighbour; a full table evicts the one that was idle for longest.
    pub(super) fn peer(&mut self, iface: Iface, address: A) -> Option<u32> {
        if let Some(known) = self.peers.find(peer_key(iface, address)) {
            return Some(known);
        }
        if self.peers.is_full() {
            let oldest = self.idle_head;
            if oldest == NIL {
                return None;
            }
            self.remove_from_idle(oldest);
            self.peers.remove(oldest);
        }
        let peer = Peer {
            iface,
            address,
            ..Peer::default()
        };
        let p = self.peers.insert(peer).ok()?;
        self.add_to_idle(p);
        Some(p)
    }

    fn add_to_idle(&mut self, p: u32) {
        let tail = core::mem::replace(&mut self.idle_tail, p);
        (self.peers[p].back_idle, self.peers[p].next_idle) = (tail, NIL);
        match tail {
            NIL => self.idle_head = p,
            tail => self.peers[tail].next_idle = p,
        }
    }

    pub(super) fn remove_from_idle(&mut self, p: u32) {
        let (back, next) = (self.peers[p].back_idle, self.peers[p].next_idle);
        match back {
            NIL => self.idle_head = next,
            back => self.peers[back].next_idle = next,
        }
        match next {
            NIL => self.idle_tail = back,
            next => self.peers[next].back_idle = back,
        }
    }

    /// Adds, changes, refreshes or withdraws an offer. Messages do not change configured offers.
    fn offer(
        &mut self,
        now: Instant,
        e: u32,
        peer: u32,
        cost: Cost,
        expires: Instant,
    ) -> Result<(), DropReason> {
        let Some(n) = self.neighbours.find(neighbour_key(e, peer)) else {
            if cost.is_offer() {
                self.check_room(e, self.peers[peer].iface).map_err(|full| {
                    self.stats.adverts_full += u64::from(full == Full::Adverts);
                    DropReason::TableFull
                })?;
                self.add(now, e, peer, cost, Some(expires));
            }
            return Ok(());
        };
        let Some(old) = self.neighbours[n].expires else {
            return Ok(());
        };
        if !cost.is_offer() {
            self.remove_neighbour(now, n);
            return Ok(());
        }
        self.neighbours[n].expires = Some(expires);
        if expires < old {
            self.neighbours.schedule(n, expires);
        }
        if self.neighbours[n].cost != cost {
            let rest = election::remove(&mut self.neighbours, self.entries[e].root, n);
            self.neighbours[n].cost = cost;
            self.entries[e].root = election::insert(&mut self.neighbours, rest, n);
            self.elect(now, e);
        }
        Ok(())
    }

    /// Whether another neighbour's offer from `iface` fits into an entry.
    pub(super) fn check_room(&self, e: u32, iface: Iface) -> Result<(), Full> {
        let bound = self.config.neighbours_per_entry;
        if self.neighbours.is_full() || self.entries[e].neighbour_count >= bound {
            return Err(Full::Neighbours);
        }
        if self.adverts.is_full() && self.find_advert(e, iface, Kind::Elected).is_none() {
            return Err(Full::Adverts);
        }
        Ok(())
    }

    /// Adds an offer that fits ([`Hierarchy::check_room`]), of a neighbour that had none.
    pub(super) fn add(
        &mut self,
        now: Instant,
        e: u32,
        peer: u32,
        cost: Cost,
        expires: Option<Instant>,
    ) {
        let Peer { iface, address, .. } = self.peers[peer];
        let neighbour = Neighbour {
            entry: e,
            peer,
            cost,
            iface,
            address,
            expires,
            ..Neighbour::default()
        };
        let Ok(n) = self.neighbours.insert(neighbour) else {
            return;
        };
        let branch = match self.find_advert(e, iface, Kind::Elected) {
            Some(branch) => branch,
            None => self.add_advert(e, iface, Kind::Elected),
        };
        if let Some(expires) = expires {
            self.neighbours.schedule(n, expires);
        }
        self.adverts[branch].offer_count += 1;
        self.entries[e].neighbour_count += 1;
        self.entries[e].root = election::insert(&mut self.neighbours, self.entries[e].root, n);
        if self.peers[peer].offer_count == 0 {
            self.remove_from_idle(peer);
        }
        self.peers[peer].offer_count += 1;
        self.elect(now, e);
        // A new neighbour must learn the elected one, even without a change.
        self.touch(now, branch);
    }

    pub(super) fn remove_neighbour(&mut self, now: Instant, n: u32) {
        let Neighbour {
            entry: e,
            peer,
            iface,
            ..
        } = self.neighbours[n];
        self.entries[e].root = election::remove(&mut self.neighbours, self.entries[e].root, n);
        self.neighbours.remove(n);
        self.entries[e].neighbour_count -= 1;
        if self.entries[e].elected == n {
            self.entries[e].elected = NIL;
        }
        self.peers[peer].offer_count -= 1;
        if self.peers[peer].offer_count == 0 {
            self.add_to_idle(peer);
        }
        let branch = self.find_advert(e, iface, Kind::Elected);
        if let Some(branch) = branch {
            self.adverts[branch].offer_count -= 1;
        }
        self.elect(now, e);
        if let Some(branch) = branch.filter(|&b| self.adverts[b].offer_count == 0) {
            self.touch(now, branch);
            self.release_advert(branch);
        }
    }

    /// Lowest cost; on equal cost the elected neighbour stays; then lowest address.
    fn elect(&mut self, now: Instant, e: u32) {
        let entry = &self.entries[e];
        let (old, best) = (entry.elected, entry.root);
        let stays = old != NIL && self.neighbours[old].cost <= self.neighbours[best].cost;
        let elected = if stays { old } else { best };
        let (iface, cost, peer) = match self.neighbours.get(elected) {
            Some(n) => (n.iface, n.cost, n.peer),
            None => (Iface::UNSET, Cost::WITHDRAWN, NIL),
        };
        let (old_iface, old_cost) = (entry.replier_iface, entry.replier_cost);
        if elected == old && cost == old_cost && iface == old_iface {
            return;
        }
        if elected != old {
            self.stats.elections += 1;
        }
        let changed_head = self.changed_head;
        let entry = &mut self.entries[e];
        entry.elected = elected;
        (entry.replier_iface, entry.replier_cost, entry.replier_peer) = (iface, cost, peer);
        let parent = entry.parent;
        if !entry.is_changed {
            entry.is_changed = true;
            entry.next_changed = changed_head;
            self.changed_head = e;
        }
        for branch in [old_iface, iface] {
            if let Some(advert) = self.find_advert(e, branch, Kind::Elected) {
                self.touch(now, advert);
            }
        }
        if cost != old_cost
            && let Some(advert) = self.find_advert(e, parent, Kind::Update)
        {
            self.touch(now, advert);
        }
    }
}

/// Whether a record says, with no cost of its own, that its host left (RFC 3376 §4.2.12).
fn is_leave<A: Family>(record: &Record<'_, A>) -> bool {
    match record.kind {
        RecordType::BlockOldSources => !record.sources.is_empty(),
        RecordType::ChangeToInclude => record.sources.is_empty(),
        _ => false,
    }
}
