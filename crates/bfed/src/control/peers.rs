//! Peers and their streams.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use proto_core::TokenBucket;
use proto_core::time::{Duration, Instant};

use super::{ControlNode, PeerState, StreamOwner};
use crate::config::{Config, ConfigError, PeerConfig};
use crate::coordination::{Coordinator, Node};
use crate::event::Event;
use crate::session::{Admission, CloseReason, Due, Session, VERSIONS};
use crate::tree::Slot;
use crate::types::{ConnId, PeerId, Table};
use crate::wire::liveness::State as Liveness;
use crate::wire::notification::{Reason, Repr as Notification};
use crate::wire::open::{Graceful, Repr as Open};
use crate::wire::transport::Transport;

impl<C: Coordinator> ControlNode<C> {
    /// Replaces the configuration and all peers, or changes nothing. Peers with the same identity keep their
    /// streams; sessions with the others end with the reason "reconfigured".
    ///
    /// | change | takes effect |
    /// | --- | --- |
    /// | authorisation | at once: sessions that are no longer allowed end; clients whose address decides, when they refresh |
    /// | costs, policies, damping | at once: peers are sent the routes that change |
    /// | lower [`PeerConfig::max_routes`] | at once: a peer that has announced more loses the session |
    /// | higher [`PeerConfig::max_routes`] | at once: a peer that was refused because of it is dialled again |
    /// | [`PeerConfig::rate_bps`] | at once: data nodes are told |
    /// | [`PeerConfig::transport`] | at once: the session ends, and starts again when the peer agrees |
    /// | [`Limits`](crate::Limits) | at once, for new entries |
    /// | fields of OPEN: hold time, restart time, a new table | with the next session |
    ///
    /// # Errors
    /// The configuration is wrong; nothing has changed.
    pub fn reconfigure(
        &mut self,
        now: Instant,
        config: Config,
        peers: BTreeMap<PeerId, PeerConfig>,
    ) -> Result<(), ConfigError> {
        self.now = now;
        config.check()?;
        if config.gateway != self.config.gateway {
            return Err(ConfigError::Identity);
        }
        if peers.len() > config.limits.max_peers {
            return Err(ConfigError::TooManyPeers);
        }
        for peer in peers.values() {
            peer.check(config.gateway)?;
        }
        let same = |a: &PeerConfig, b: &PeerConfig| a.gateway == b.gateway;
        let mut others = peers.values().enumerate();
        if others.any(|(at, peer)| peers.values().skip(at + 1).any(|other| same(peer, other))) {
            return Err(ConfigError::SamePeer);
        }
        let restarting = self.config.restarting;
        self.config = Config {
            restarting,
            ..config
        };
        self.rib.reconfigure(&self.config);
        let gone: Vec<_> = self
            .peers
            .iter()
            .filter(|(id, state)| !peers.get(id).is_some_and(|new| same(new, &state.config)))
            .map(|(&id, _)| id)
            .collect();
        for id in gone {
            self.drop_peer(now, id, Reason::Reconfigured);
        }
        for (id, peer) in peers {
            self.put_peer(now, id, peer);
        }
        self.authorise_all();
        self.trees.mark_all();
        Ok(())
    }

    /// Adds a peer, or changes its configuration.
    ///
    /// # Errors
    /// The configuration is wrong; nothing has changed.
    pub fn add_peer(
        &mut self,
        now: Instant,
        id: PeerId,
        peer: PeerConfig,
    ) -> Result<(), ConfigError> {
        self.now = now;
        peer.check(self.config.gateway)?;
        let others = || self.peers.iter().filter(|(other, _)| **other != id);
        if others().any(|(_, state)| state.config.gateway == peer.gateway) {
            return Err(ConfigError::SamePeer);
        }
        if others().count() >= self.config.limits.max_peers {
            return Err(ConfigError::TooManyPeers);
        }
        if self
            .peers
            .get(&id)
            .is_some_and(|state| state.config.gateway != peer.gateway)
        {
            self.drop_peer(now, id, Reason::Reconfigured);
        }
        self.put_peer(now, id, peer);
        Ok(())
    }

    /// Ends the peering and removes the peer.
    pub fn remove_peer(&mut self, now: Instant, id: PeerId) {
        self.now = now;
        self.drop_peer(now, id, Reason::Shutdown);
    }

    /// Ends every peering with the reason "shutdown", and every tree. A gateway that only restarts does not call
    /// this, so that its peers wait for it.
    pub fn close(&mut self, now: Instant) {
        self.now = now;
        let slots: Vec<_> = self.trees.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.fail(now, slot, crate::wire::no_route::Reason::Unreachable);
        }
        let ids: Vec<_> = self.peers.keys().copied().collect();
        for id in ids {
            self.drop_peer(now, id, Reason::Shutdown);
        }
    }

    fn put_peer(&mut self, now: Instant, id: PeerId, config: PeerConfig) {
        let own = self.open(config.transport);
        let delay = self.config.retry_delay;
        self.rib.set_peer(id, config.clone());
        if let Some(state) = self.peers.get_mut(&id) {
            state.session.set_own(own, config.dial, delay, now);
            let before = core::mem::replace(&mut state.config, config);
            self.peer_changed(now, id, &before);
        } else {
            let session = Session::new(own, config.gateway, config.dial, delay, now);
            let state = PeerState {
                config,
                session,
                incarnation: self.numbers.next_term(),
                sessions: self.numbers.next_term(),
                stale_until: None,
                restart_time: Duration::ZERO,
                address: None,
                announce_at: None,
                announcing: false,
                refused_until: None,
                bucket: TokenBucket::FULL,
                echoes: super::echo::Echoes::default(),
            };
            self.peers.insert(id, state);
        }
    }

    /// Applies the other consequences of a peer's new configuration.
    fn peer_changed(&mut self, now: Instant, id: PeerId, before: &PeerConfig) {
        let Some(state) = self.peers.get_mut(&id) else {
            return;
        };
        if state.config.max_routes > before.max_routes && state.refused_until.take().is_some() {
            state.session.dial_now(now);
        }
        let moved = state.config.transport != before.transport && state.session.stream.is_some();
        if state.config.rate_bps != before.rate_bps {
            self.rate_changed(id);
        }
        if moved {
            let why = Notification::new(Reason::Reconfigured, "another transport");
            self.end_peer(now, id, CloseReason::Local(why), Duration::ZERO);
        }
        self.update_echoes(now, id);
        if let Some(table) = self.rib.over_limit(id) {
            self.too_many_routes(now, id, table);
        }
        self.schedule_announcements(now);
    }

    /// Ends the session of a peer that has announced too many routes, and refuses its streams for a while.
    pub(super) fn too_many_routes(&mut self, now: Instant, id: PeerId, table: Table) {
        let Some(config) = self.peers.get(&id).map(|state| &state.config) else {
            return;
        };
        let (max, rest) = (config.max_routes, config.rest_after_limit);
        let text = alloc::format!("more than {max} routes in table {table}");
        let why = Notification::new(Reason::PrefixLimit, &text);
        self.end_peer(now, id, CloseReason::Local(why), rest);
    }

    fn drop_peer(&mut self, now: Instant, id: PeerId, reason: Reason) {
        self.end_peer(
            now,
            id,
            CloseReason::Local(Notification::new(reason, "")),
            Duration::ZERO,
        );
        self.rib.remove_peer(now, id);
        self.peers.remove(&id);
        self.trees.mark_all();
    }

    /// Returns this side's OPEN.
    fn open(&self, transport: Transport) -> Open {
        // A gateway that does not restart gracefully can still wait for peers that do.
        let restart_time_s = self.config.restart_time_s;
        let graceful = Some(Graceful {
            restarting: self.rib.deferred,
            preserved: restart_time_s > 0,
            restart_time_s,
        });
        Open {
            version_low: VERSIONS.0,
            version_high: VERSIONS.1,
            hold_time_s: self.config.hold_time_s,
            gateway: self.config.gateway,
            boot: self.numbers.boot,
            tables: self.config.tables,
            graceful,
            transport,
            echo: true,
        }
    }

    /// Starts a session on a stream with a peer; `dialled` if this side opened it. A table of
    /// [`session`](crate::session) says which of two streams is kept; the other is closed by an event.
    pub fn connected(&mut self, now: Instant, conn: ConnId, id: PeerId, dialled: bool) {
        self.now = now;
        let transport = self.peers.get(&id).map(|state| state.config.transport);
        let own = self.open(transport.unwrap_or(Transport::Plain));
        let delay = self.config.retry_delay;
        let Some(state) = self.peers.get_mut(&id).filter(|_| self.active) else {
            self.events.push_back(Event::Close(conn));
            return;
        };
        if state.refused_until.is_some_and(|until| until > now) {
            let why = Notification::new(Reason::PrefixLimit, "rests after too many routes");
            self.streams.close(now, conn, why);
            return;
        }
        match state.session.admit(dialled) {
            Admission::Refused => {
                let why = Notification::new(Reason::Collision, "another stream is kept");
                self.streams.close(now, conn, why);
                return;
            }
            Admission::Replaced => {
                let why = Notification::new(Reason::Collision, "replaced by another stream");
                self.end_peer(now, id, CloseReason::Local(why), Duration::ZERO);
            }
            Admission::Taken => {}
        }
        if let Some(state) = self.peers.get_mut(&id) {
            state.session.set_own(own, state.config.dial, delay, now);
            state.session.connected(now, conn, dialled);
            self.streams.insert(conn, StreamOwner::Peer(id));
            self.streams.wake(conn);
        }
    }

    /// Reports that the stream that [`Event::Dial`] asked for cannot be opened. The event is repeated later.
    pub fn dial_failed(&mut self, now: Instant, id: PeerId) {
        self.now = now;
        let jitter = self.numbers.jitter();
        if let Some(state) = self.peers.get_mut(&id) {
            state.session.dial_failed(now, jitter);
        }
    }

    /// Reports that a stream has ended: closed by the other side, or broken.
    pub fn disconnected(&mut self, now: Instant, conn: ConnId) {
        self.now = now;
        match self.streams.remove(conn) {
            Some(StreamOwner::Peer(id)) => {
                self.end_peer(now, id, CloseReason::Lost, Duration::ZERO);
            }
            Some(StreamOwner::Node(id)) => self.node_lost(now, id),
            Some(StreamOwner::Unregistered(..)) | None => {}
        }
    }

    /// Reports that a stream takes no more bytes for now.
    pub fn blocked(&mut self, conn: ConnId) {
        self.set_blocked(conn, true);
    }

    /// Reports that a stream takes bytes again.
    pub fn writable(&mut self, now: Instant, conn: ConnId) {
        self.now = now;
        self.set_blocked(conn, false);
        self.streams.wake(conn);
    }

    fn set_blocked(&mut self, conn: ConnId, blocked: bool) {
        match self.streams.owner(conn) {
            Some(StreamOwner::Peer(id)) => {
                if let Some(state) = self.peers.get_mut(&id)
                    && let Some(stream) = &mut state.session.stream
                {
                    stream.blocked = blocked;
                }
            }
            Some(StreamOwner::Node(id)) => {
                if let Some(node) = self.nodes.map.get_mut(&id) {
                    node.blocked = blocked;
                }
            }
            _ => {}
        }
        if blocked {
            self.streams.sleep(conn);
        }
    }

    /// Ends the session with a peer.
    pub(super) fn end_peer(
        &mut self,
        now: Instant,
        id: PeerId,
        reason: CloseReason,
        rest: Duration,
    ) {
        let jitter = self.numbers.jitter();
        let silent = self.is_silent(id);
        let Some(state) = self.peers.get_mut(&id) else {
            return;
        };
        let stream = state.session.stream;
        let was_established = state.session.is_established();
        let restart = state.session.agreed.and_then(|agreed| agreed.graceful);
        let wait = restart.map_or(0, |graceful| graceful.restart_time_s);
        let keep = was_established && reason.is_graceful() && wait > 0 && !silent;
        state.session.ended(now, jitter, rest);
        if rest != Duration::ZERO {
            state.refused_until = Some(now + rest);
        }
        state.announcing = false;
        state.announce_at = None;
        state.echoes.stop();
        if keep {
            state.restart_time = Duration::from_secs(wait.into());
            state.stale_until = Some(now + state.restart_time);
        } else if was_established || !reason.is_graceful() {
            state.stale_until = None;
            state.incarnation = self.numbers.next_term();
            self.trees.mark_all();
        }
        let kept = state.stale_until.is_some();
        self.rib.peer_down(now, id, kept);
        if let Some(stream) = stream {
            self.streams.remove(stream.conn);
            match &reason {
                CloseReason::Local(why) => self.streams.close(now, stream.conn, why.clone()),
                CloseReason::Remote(_) => self.events.push_back(Event::Close(stream.conn)),
                CloseReason::Lost => {}
            }
            self.events.push_back(Event::PeerDown {
                peer: id,
                why: reason,
            });
        }
    }

    /// Returns whether a data node that carries sessions of the peer has stopped receiving from it, and no other
    /// data node receives from it. A data node that carries none cannot tell.
    fn is_silent(&self, id: PeerId) -> bool {
        let carries = |slot: &Slot| self.trees.get(*slot).is_some_and(|tree| tree.is_with(id));
        let witness = |node: &Node| {
            let silent = node.peer_states.get(&id) == Some(&Liveness::Silent);
            silent && node.sessions.iter().any(carries)
        };
        self.nodes.liveness(id) == Liveness::Silent && self.nodes.map.values().any(witness)
    }

    /// Handles a change of the state of a peer's data nodes. A peer whose data nodes are silent forwards nothing:
    /// its routes and trees are discarded, whatever its control node says.
    pub(super) fn peer_state_changed(&mut self, now: Instant, id: PeerId) {
        if !self.is_silent(id) {
            return;
        }
        let Some(state) = self.peers.get_mut(&id) else {
            return;
        };
        if state.session.is_established() {
            self.stats.silent += 1;
            let why = Notification::new(Reason::Silent, "nothing is heard of its data nodes");
            self.end_peer(now, id, CloseReason::Local(why), Duration::ZERO);
        } else if state.stale_until.take().is_some() {
            self.stats.silent += 1;
            state.incarnation = self.numbers.next_term();
            self.rib.peer_down(now, id, false);
            self.trees.mark_all();
        }
        // The data nodes report the peer again only for new sessions.
        for node in self.nodes.map.values_mut() {
            node.peer_states.remove(&id);
        }
    }

    /// Starts the exchange of routes and trees with a peer.
    pub(super) fn established(&mut self, now: Instant, id: PeerId) {
        let Some(state) = self.peers.get_mut(&id) else {
            return;
        };
        state.sessions = self.numbers.next_term();
        self.stats.peerings += 1;
        let Some(agreed) = state.session.agreed else {
            return;
        };
        let preserved = agreed.graceful.is_some_and(|graceful| graceful.preserved);
        if state.stale_until.is_some() && preserved {
            // Its downstream state could not be refreshed in the meantime.
            let expires = now + self.config.soft_state_lifetime;
            self.trees.refresh_down(id, expires);
        } else if state.stale_until.is_some() {
            // It has lost its state: the state kept for it is invalid.
            state.stale_until = None;
            state.incarnation = self.numbers.next_term();
            self.rib.sweep(now, id, None);
        }
        state.announce_at = Some(now);
        // Routes of tables that this session does not have are not announced again (RFC 4724, section 4.2).
        for table in Table::all().filter(|&table| !agreed.tables.contains(table)) {
            self.rib.sweep(now, id, Some(table));
        }
        self.rib.peer_up(id, agreed.tables);
        self.update_echoes(now, id);
        self.trees.mark_all();
        self.events.push_back(Event::PeerUp(id));
    }

    /// Handles the end of a peer's full table.
    pub(super) fn table_complete(&mut self, now: Instant, id: PeerId) {
        if self.rib.is_awaited(id) {
            return;
        }
        if let Some(state) = self.peers.get_mut(&id) {
            state.stale_until = None;
        }
        let all = self
            .peers
            .iter()
            .all(|(&id, state)| state.session.is_established() && !self.rib.is_awaited(id));
        if all && self.startup.deferral_until.is_some() {
            self.end_deferral(now);
        }
    }

    fn end_deferral(&mut self, now: Instant) {
        self.startup.deferral_until = None;
        self.config.restarting = false;
        self.rib.end_deferral();
        self.schedule_announcements(now);
        // During the deferral any peer could join its previous sessions.
        let trees = self.trees.iter();
        let trees: Vec<_> = trees
            .filter_map(|(slot, tree)| Some((slot, tree.network?)))
            .collect();
        for (slot, network) in trees {
            self.check_announced(slot, network);
        }
    }

    /// Schedules the announcement of changed routes after the advertisement interval.
    pub(super) fn schedule_announcements(&mut self, now: Instant) {
        let at = now + self.config.advertisement_interval;
        for state in self.peers.values_mut() {
            if state.session.is_established() && state.announce_at.is_none() {
                state.announce_at = Some(at);
            }
        }
    }

    pub(super) fn expire_peers(&mut self, now: Instant) {
        if self
            .startup
            .deferral_until
            .is_some_and(|until| until <= now)
        {
            self.end_deferral(now);
        }
        let ids: Vec<_> = self.peers.keys().copied().collect();
        for id in ids {
            self.expire_peer(now, id);
        }
    }

    fn expire_peer(&mut self, now: Instant, id: PeerId) {
        let Some(state) = self.peers.get_mut(&id) else {
            return;
        };
        if state.announce_at.is_some_and(|at| at <= now) {
            state.announce_at = None;
            state.announcing = true;
        }
        if state.stale_until.is_some_and(|until| until <= now) {
            let away = !state.session.is_established();
            if away && self.nodes.liveness(id) == Liveness::Alive {
                // Its data nodes still forward: keep its state.
                state.stale_until = Some(now + state.restart_time);
            } else {
                state.stale_until = None;
                if away {
                    state.incarnation = self.numbers.next_term();
                }
                self.rib.sweep(now, id, None);
                self.trees.mark_all();
            }
        }
        self.expire_echo(now, id);
        let Some(state) = self.peers.get_mut(&id) else {
            return;
        };
        let due = state.session.handle_timeout(now);
        if let Some(stream) = state.session.stream
            && (state.announcing || !state.session.queue.is_empty() || state.echoes.is_ready())
            && !stream.blocked
        {
            self.streams.wake(stream.conn);
        }
        match due {
            Some(Due::Dial) => {
                state.session.calling(now);
                self.events.push_back(Event::Dial(id));
            }
            // Jitter is drawn only here: an early or doubled timeout must not move later attempts.
            Some(Due::DialOverdue) => state.session.dial_failed(now, self.numbers.jitter()),
            Some(Due::End(reason, text)) => {
                let why = Notification::new(reason, text);
                self.end_peer(now, id, CloseReason::Local(why), Duration::ZERO);
            }
            None => {}
        }
    }

    /// Closes streams that have not written their last message, and data nodes that have not registered, in time.
    pub(super) fn expire_streams(&mut self, now: Instant) {
        while let Some(conn) = self.streams.poll_expired(now) {
            self.events.push_back(Event::Close(conn));
        }
    }
}
