//! Connections of the control node: calls to peers, and inputs of streams and listeners.

use std::net::SocketAddr;
use std::sync::Arc;

use bfed::wire::notification::Reason;
use bfed::wire::{Header, Type, statistics};
use bfed::{ConnId, Event, Instant, PeerId};

use super::lease::Guarded;
use super::peering::{self, Call, Caller, Outcome, call};
use super::streams::{Conn, Cutter, Stream};
use super::{Carried, Driver, Input, show};
use crate::config::Endpoint;

impl Driver {
    pub(super) fn call(&mut self, now: Instant, peer: PeerId) {
        let known = self.config.peers.get(&peer);
        let Some((known, to)) = known.and_then(|known| Some((known, known.address.clone()?)))
        else {
            self.node.dial_failed(now, peer);
            return;
        };
        let wanted = Call {
            to,
            tls_name: known.tls_name.clone(),
            min_ttl: known.machine.min_ttl(),
        };
        let (credentials, inputs) = (self.credentials.clone(), self.to_self.clone());
        tokio::spawn(async move {
            let result = call(wanted, credentials).await;
            let _ = inputs.send(Input::Called(Outcome { peer, result })).await;
        });
    }

    /// Records the address that a peer's name led to, after the peer has proved its identity there.
    fn reached(&mut self, peer: PeerId, at: SocketAddr) {
        let known = self.config.peers.get(&peer);
        let is_named =
            known.is_some_and(|known| matches!(known.address, Some(Endpoint::Name { .. })));
        if is_named {
            self.node.set_peer_address(peer, at.ip());
            self.resolved.insert(peer, at.ip());
            self.ports.configure(&self.config, &self.resolved);
        }
    }

    /// Starts to carry a stream.
    pub(super) fn take(&mut self, stream: Stream, cutter: Cutter, is_node: bool) -> ConnId {
        self.next_conn += 1;
        let id = ConnId(self.next_conn);
        let lease = self.node.coordinator().lease().cloned();
        let stream = Guarded::new(stream, lease);
        let conn = Conn::start(id, stream, cutter, self.to_self.clone(), is_node);
        self.conns.insert(id, conn);
        id
    }

    pub(super) fn input(&mut self, input: Input) {
        let now = self.clock.now();
        match input {
            Input::Message(conn, message) => {
                if self.conns.get(&conn).is_some_and(|conn| conn.is_node) {
                    self.record_statistics(now, &message);
                }
                if let Err(error) = self.node.handle_packet(now, &conn, &message) {
                    tracing::debug!(%error, conn = conn.0, "message dropped");
                }
            }
            Input::Writable(conn) => self.node.writable(now, conn),
            Input::Ended(conn) => {
                self.node.disconnected(now, conn);
                if let Some(conn) = self.conns.remove(&conn) {
                    conn.close();
                }
            }
            Input::Caller(caller) => self.caller(now, *caller),
            Input::Stranger(from, why) => {
                if self.is_stranger_logged() {
                    tracing::warn!(event = "connection_refused", address = %from, error = why, "connection refused");
                }
            }
            Input::Called(Outcome { peer, result }) => match result {
                Ok((stream, at)) => {
                    self.reached(peer, at);
                    let conn = self.take(stream, Cutter::new(), false);
                    self.node.connected(now, conn, peer, true);
                }
                Err(why) => {
                    tracing::info!(event = "peer_unreachable", peer = %self.name(peer), error = why, "cannot connect to the peer");
                    self.last_down.insert(peer, why);
                    self.node.dial_failed(now, peer);
                }
            },
            Input::Node(registrant) => {
                let conn = self.take(registrant.stream, registrant.cutter, true);
                self.node.node_connected(now, conn, registrant.identity);
                if let Some(first) = registrant.first {
                    // The machine counts the result.
                    let _ = self.node.handle_packet(now, &conn, &first);
                }
            }
        }
    }

    /// Counts a refused connection; returns whether to log it.
    fn is_stranger_logged(&mut self) -> bool {
        self.strangers += 1;
        self.log_suppressed();
        self.strangers_log.admit(std::time::Instant::now())
    }

    /// Logs that a rule denied a request.
    pub(super) fn log_denial(&mut self, denied: &Event) {
        if let Event::Denied {
            rule,
            right,
            subject,
            session,
        } = denied
            && self.denials_log.admit(std::time::Instant::now())
        {
            let (right, by) = (right.name(), show::subject(*subject));
            tracing::warn!(event = "authorisation_denied", rule, right, by, %session, "request denied by a rule");
        }
    }

    pub(super) fn log_suppressed(&mut self) {
        if let Some(count) = self.strangers_log.summary(std::time::Instant::now()) {
            tracing::warn!(
                event = "connection_refused",
                count,
                "more connections refused"
            );
        }
        if let Some(count) = self.denials_log.summary(std::time::Instant::now()) {
            tracing::warn!(
                event = "authorisation_denied",
                count,
                "more requests denied by rules"
            );
        }
    }

    /// Takes an incoming connection of a configured peer that has proved its identity, and refuses others.
    fn caller(&mut self, now: Instant, caller: Caller) {
        let known = self
            .config
            .peers
            .iter()
            .find(|(_, peer)| peer.machine.gateway == caller.gateway);
        let checked = match known {
            None => Err("no such peer is configured here".to_owned()),
            Some((&id, peer)) => {
                let host = peer.tls_name.clone();
                let host = host.or_else(|| peer.address.as_ref().map(Endpoint::host));
                let host = host.unwrap_or_else(|| caller.from.ip().to_canonical().to_string());
                let proved = caller
                    .proof
                    .as_ref()
                    .map_or(Ok(()), |proof| proof.is_for(&host));
                let bound = peer.machine.min_ttl().map_or(Ok(()), |min_ttl| {
                    peering::bound_hops(&caller.socket, caller.from, min_ttl)
                });
                proved.and(bound).map(|()| id)
            }
        };
        match checked {
            Ok(id) => {
                let conn = self.take(caller.stream, caller.cutter, false);
                self.node.set_peer_address(id, caller.from.ip());
                self.node.connected(now, conn, id, false);
                // The machine counts the result.
                let _ = self.node.handle_packet(now, &conn, &caller.first);
            }
            Err(why) => {
                if self.is_stranger_logged() {
                    tracing::warn!(event = "connection_refused", address = %caller.from, peer = %caller.gateway, error = why, "connection refused");
                }
                // A peer that does not read holds its place for three seconds; without a place no reason is sent.
                if let Ok(place) = Arc::clone(&self.dismissals).try_acquire_owned() {
                    tokio::spawn(async move {
                        peering::dismiss(caller.stream, Reason::BadPeer, &why).await;
                        drop(place);
                    });
                }
            }
        }
    }

    /// Records a data node's statistics for status documents.
    fn record_statistics(&mut self, now: Instant, message: &[u8]) {
        let header = Header::new_checked(message);
        if !header.is_ok_and(|header| header.type_number() == Type::Statistics as u8) {
            return;
        }
        let Ok(statistics) = statistics::Repr::parse(message) else {
            return;
        };
        for entry in statistics.entries {
            let full = self.carried.len() >= self.config.machine.limits.max_sessions;
            let before = self.carried.get(&entry.session).copied();
            if full && before.is_none() {
                continue;
            }
            let rate_bps = before.map_or(0, |before| {
                let millis = now.total_millis().saturating_sub(before.at.total_millis());
                let millis = u64::try_from(millis).unwrap_or(0).max(1);
                entry
                    .bytes
                    .saturating_sub(before.bytes)
                    .saturating_mul(8000)
                    / millis
            });
            let carried = Carried {
                packets: entry.packets,
                bytes: entry.bytes,
                copies: entry.copies,
                dropped: entry.dropped,
                rate_bps,
                at: now,
            };
            self.carried.insert(entry.session, carried);
        }
    }
}
