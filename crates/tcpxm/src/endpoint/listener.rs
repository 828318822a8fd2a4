//! Listening ports, and the bounds on handshakes that peers begin.

use alloc::collections::VecDeque;
use core::net::IpAddr;

use proto_core::time::Instant;

use super::Endpoint;
use crate::config::Carrier;
use crate::error::Error;
use crate::event::{ConnId, Meta};
use crate::group::{Buffer, Flow, Mode, Session};
use crate::pcb::{Key, NewConnection, Pcb, Role, State};
use crate::store::{Ring, Store};
use crate::wire::{Segment, Signer};

/// A listening port.
#[derive(Default, Debug)]
pub(super) struct Listener {
    /// Connections that wait to be accepted.
    pub(super) complete: VecDeque<ConnId>,
    /// The key that the peer signs its segments with.
    pub(super) signer: Option<Signer>,
    /// The only peer that is accepted, by address and TCP port.
    pub(super) only: Option<(IpAddr, u16)>,
}

impl Listener {
    fn accepts(&self, key: &Key) -> bool {
        self.only
            .is_none_or(|only| only == (key.remote, key.remote_port))
    }
}

impl<S: Store> Endpoint<S> {
    /// RFC 9293 §3.10.7.2: a segment of no known connection for a port that listens.
    pub(super) fn in_listen(
        &mut self,
        now: Instant,
        key: Key,
        meta: &Meta,
        segment: &Segment<'_>,
    ) -> Result<(), Error> {
        let flags = segment.flags;
        if flags.rst {
            return self.count(Error::ListenerIgnored);
        }
        let is_unknown = !self.listeners[&key.local_port].accepts(&key);
        if flags.ack || (flags.syn && is_unknown) {
            self.queue_reset(now, meta, segment);
            return self.count(Error::NoConnection);
        }
        if !flags.syn {
            return self.count(Error::ListenerIgnored);
        }
        let listener = &self.listeners[&key.local_port];
        if listener.complete.len() >= self.config.accept_backlog {
            return self.count(Error::BacklogFull);
        }
        self.make_room_half_open();
        if self.pcbs.len() >= self.config.max_connections {
            return self.count(Error::ConnectionsFull);
        }
        let signer = self.listeners[&key.local_port].signer.clone();
        let index = self.new_single(key, meta.destination, now, |config, new| {
            let new = NewConnection { signer, ..new };
            Pcb::accept(config, new, segment, now)
        });
        self.half_open_count += 1;
        if let Some(pcb) = self.pcbs.get(index) {
            self.half_open.push_back((index, pcb.generation));
        }
        self.sync(index);
        Ok(())
    }

    /// A flood of SYNs costs no more than the bound: the oldest handshake goes. One that a real
    /// peer completes within the time in which the bound is filled gets through.
    fn make_room_half_open(&mut self) {
        while self.half_open_count >= self.config.max_half_open.max(1) {
            let Some((index, generation)) = self.half_open.pop_front() else {
                return;
            };
            let pending = self
                .pcbs
                .get(index)
                .is_some_and(|pcb| pcb.generation == generation && pcb.handshake.is_pending());
            if pending {
                self.stats.half_open_evicted += 1;
                self.forget_half_open(index);
            }
        }
        if self.half_open.len() > 2 * self.config.max_half_open {
            let pcbs = &self.pcbs;
            self.half_open.retain(|&(index, generation)| {
                pcbs.get(index)
                    .is_some_and(|pcb| pcb.generation == generation && pcb.handshake.is_pending())
            });
        }
    }

    /// Drops a pending handshake silently.
    pub(super) fn forget_half_open(&mut self, index: u32) {
        if let Some(pcb) = self.pcbs.get_mut(index) {
            pcb.become_closed();
        }
        self.sync(index);
    }

    /// Adds a connection of its own: a session with one flow and one block.
    pub(super) fn new_single(
        &mut self,
        key: Key,
        local: IpAddr,
        now: Instant,
        make: impl FnOnce(&crate::config::Config, NewConnection) -> Pcb,
    ) -> u32 {
        let generation = self.next_generation();
        let mut flow = Flow::new(
            self.config.mss(key.remote),
            self.secrets.stamp_base(&key),
            self.config.nagle,
        );
        flow.members = 1;
        flow.limits.set(0, 0);
        let index = self.pcbs.next_index();
        let store = Buffer::Ring(Ring::new(self.config.send_buffer));
        let mut session = Session::new(generation, store, self.config.max_rate_bps);
        session.flows.push(flow);
        session.add_member(index);
        let session = self.sessions.insert(session);
        let new = NewConnection {
            key,
            local,
            generation,
            session,
            flow: 0,
            member: 0,
            iss: self.secrets.isn(&key, now),
            mode: Mode::UnicastOnly,
            offered_group: None,
            signer: None,
            role: Role::Active,
        };
        let pcb = make(&self.config, new);
        self.pcbs.insert(pcb);
        self.keys.insert(key, index);
        self.stats.opened += 1;
        index
    }

    /// The key of a segment that came from there.
    pub(super) fn key_of(&self, meta: &Meta, segment: &Segment<'_>) -> Key {
        Key {
            local_port: segment.destination_port,
            remote: meta.source.ip(),
            remote_port: segment.source_port,
            outer_port: match self.config.carrier {
                Carrier::Udp => meta.source.port(),
                Carrier::Ip => segment.source_port,
            },
        }
    }

    /// Whether a SYN may replace a connection in TIME-WAIT (RFC 9293 §3.10.7.4, MAY-2; RFC 6191): its sequence
    /// number, or its timestamp, is later. The application must know of the end and have read everything.
    pub(super) fn reopens(&self, index: u32, segment: &Segment<'_>) -> bool {
        let Some(pcb) = self.pcbs.get(index) else {
            return false;
        };
        pcb.state() == State::TimeWait
            && pcb.closed.is_taken()
            && pcb.receive.data.readable() == 0
            && segment.flags.syn
            && !segment.flags.ack
            && !segment.flags.rst
            && self.listeners.contains_key(&pcb.key.local_port)
            && pcb.is_later_incarnation(segment)
    }
}
