//! Commands of the application.

use core::net::{IpAddr, SocketAddr};

use proto_core::time::Instant;

use super::Endpoint;
use super::listener::Listener;
use super::secrets::random_port;
use crate::config::Carrier;
use crate::error::{CommandError, Failure};
use crate::event::{ConnId, GroupId, Target};
use crate::pcb::{Pcb, State};
use crate::stats::ConnStats;
use crate::store::Store;
use crate::wire::SegmentKey;

/// The result of a read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Received {
    /// This number of bytes, at least one.
    Data(usize),
    /// Nothing now; [`Event::Readable`](crate::Event::Readable) will follow.
    Nothing,
    /// The other side has closed, and everything was read.
    End,
}

impl<S: Store> Endpoint<S> {
    /// Takes connections on a port (RFC 9293 §3.10.1, passive OPEN), on any of our addresses.
    ///
    /// # Errors
    ///
    /// [`CommandError::PortInUse`] when it listens already; [`CommandError::Address`] for port 0.
    pub fn listen(&mut self, now: Instant, port: u16) -> Result<(), CommandError> {
        self.listen_with(now, port, Listener::default())
    }

    /// As [`Endpoint::listen`], for peers that sign their segments with this key
    /// ([`GroupConfig::key`](crate::GroupConfig::key)). All other segments are dropped, on the group's address
    /// and on ours.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::listen`].
    pub fn listen_keyed(
        &mut self,
        now: Instant,
        port: u16,
        key: SegmentKey,
    ) -> Result<(), CommandError> {
        let signer = Some(key.signer());
        self.listen_with(
            now,
            port,
            Listener {
                signer,
                ..Listener::default()
            },
        )
    }

    /// As [`Endpoint::listen_keyed`], or without a key as [`Endpoint::listen`], for one peer only, by its
    /// address and TCP port. For all others the port is closed.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::listen`].
    pub fn listen_to(
        &mut self,
        now: Instant,
        port: u16,
        peer: SocketAddr,
        key: Option<SegmentKey>,
    ) -> Result<(), CommandError> {
        let only = Some((peer.ip(), peer.port()));
        self.listen_with(
            now,
            port,
            Listener {
                signer: key.map(|key| key.signer()),
                only,
                ..Listener::default()
            },
        )
    }

    fn listen_with(
        &mut self,
        now: Instant,
        port: u16,
        listener: Listener,
    ) -> Result<(), CommandError> {
        self.advance(now);
        if port == 0 {
            return Err(CommandError::Address);
        }
        if self.listeners.contains_key(&port) {
            return Err(CommandError::PortInUse);
        }
        self.listeners.insert(port, listener);
        Ok(())
    }

    /// Stops accepting connections on a port. Connections that were not accepted are aborted, and pending
    /// handshakes are dropped.
    ///
    /// # Errors
    ///
    /// [`CommandError::Unknown`] when the port does not listen.
    pub fn unlisten(&mut self, now: Instant, port: u16) -> Result<(), CommandError> {
        self.advance(now);
        let listener = self.listeners.remove(&port).ok_or(CommandError::Unknown)?;
        for id in listener.complete {
            // It may have gone meanwhile.
            let _ = self.abort(now, id);
        }
        for (index, generation) in core::mem::take(&mut self.half_open) {
            match self.pcbs.get(index) {
                Some(pcb) if pcb.generation == generation && pcb.handshake.is_pending() => {
                    if pcb.key.local_port == port {
                        self.forget_half_open(index);
                    } else {
                        self.half_open.push_back((index, generation));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A connection that a peer opened on a listening port, if there is one.
    pub fn accept(&mut self, now: Instant, port: u16) -> Option<ConnId> {
        self.advance(now);
        self.listeners.get_mut(&port)?.complete.pop_front()
    }

    /// Opens a connection (RFC 9293 §3.10.1, active OPEN). `local`: our address, as far as the
    /// carrier needs it ([`Carrier::Ip`]), and port; port 0: a random one.
    ///
    /// # Errors
    ///
    /// [`CommandError::Address`], [`CommandError::PortInUse`], [`CommandError::Limit`].
    pub fn connect(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<ConnId, CommandError> {
        let now = self.advance(now);
        let bad = |ip: IpAddr| ip.is_unspecified() || ip.is_multicast();
        let needs_local = self.config.carrier == Carrier::Ip && bad(local.ip());
        if bad(remote.ip()) || remote.port() == 0 || needs_local {
            return Err(CommandError::Address);
        }
        if local.is_ipv4() != remote.is_ipv4() && !local.ip().is_unspecified() {
            return Err(CommandError::Address);
        }
        if self.pcbs.len() >= self.config.max_connections {
            return Err(CommandError::Limit);
        }
        let port = self.choose_port(local.port(), remote)?;
        let key = Self::remote_key(port, remote.ip(), remote.port());
        let index = self.new_single(key, local.ip(), now, |config, new| {
            Pcb::connect(config, new, now)
        });
        self.sync(index);
        Ok(self.id_of(index))
    }

    fn choose_port(&mut self, wanted: u16, remote: SocketAddr) -> Result<u16, CommandError> {
        let used = |this: &Self, port: u16| {
            let key = Self::remote_key(port, remote.ip(), remote.port());
            this.keys.contains_key(&key)
        };
        if wanted != 0 {
            let free = !used(self, wanted);
            return free.then_some(wanted).ok_or(CommandError::PortInUse);
        }
        for _ in 0..64 {
            let port = random_port(&mut self.rng);
            if !used(self, port) && !self.listeners.contains_key(&port) {
                return Ok(port);
            }
        }
        Err(CommandError::PortInUse)
    }

    pub(super) fn id_of(&self, index: u32) -> ConnId {
        let generation = self.pcbs.get(index).map_or(0, |pcb| pcb.generation);
        ConnId { index, generation }
    }

    pub(super) fn pcb(&self, id: ConnId) -> Result<&Pcb, CommandError> {
        let pcb = self.pcbs.get(id.index).ok_or(CommandError::Unknown)?;
        let same = pcb.generation == id.generation;
        same.then_some(pcb).ok_or(CommandError::Unknown)
    }

    fn pcb_mut(&mut self, id: ConnId) -> Result<&mut Pcb, CommandError> {
        self.pcb(id)?;
        self.pcbs.get_mut(id.index).ok_or(CommandError::Unknown)
    }

    /// The session that a target names. A member of a group does not: its group does.
    pub(super) fn session_of(&self, target: Target) -> Result<u32, CommandError> {
        match target {
            Target::Group(id) => {
                let session = self.sessions.get(id.index).ok_or(CommandError::Unknown)?;
                let same = session.generation == id.generation && session.group.is_some();
                same.then_some(id.index).ok_or(CommandError::Unknown)
            }
            Target::Connection(id) => {
                let pcb = self.pcb(id)?;
                let session = self.sessions.get(pcb.slot.session);
                let single = session.is_some_and(|session| session.group.is_none());
                if !single {
                    return Err(CommandError::Unknown);
                }
                if pcb.failure().is_some() {
                    return Err(CommandError::Failed);
                }
                Ok(pcb.slot.session)
            }
        }
    }

    /// Appends bytes to the stream, for all receivers of a group at once, and returns how many there was space
    /// for. After fewer than all, [`Event::Writable`](crate::Event::Writable) follows (TCP-XM §2.1, step 6;
    /// they are stored once).
    ///
    /// # Errors
    ///
    /// [`CommandError::Unknown`], also for a member of a group; [`CommandError::Failed`];
    /// [`CommandError::Closed`] after [`Endpoint::shutdown`].
    pub fn send(
        &mut self,
        now: Instant,
        target: impl Into<Target>,
        bytes: &[u8],
    ) -> Result<usize, CommandError> {
        self.advance(now);
        let index = self.session_of(target.into())?;
        let Some(session) = self.sessions.get_mut(index) else {
            return Err(CommandError::Unknown);
        };
        if session.closing {
            return Err(CommandError::Closed);
        }
        let written = session.store.write(bytes);
        session.wants_room |= written < bytes.len();
        session.refresh_unsent();
        let flows = session.flows.len() as u32;
        for flow in 0..flows {
            self.schedule(index, flow);
        }
        Ok(written)
    }

    /// Returns how many bytes [`Endpoint::send`] would accept now.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::send`].
    pub fn room(&self, target: impl Into<Target>) -> Result<usize, CommandError> {
        let index = self.session_of(target.into())?;
        let session = self.sessions.get(index).ok_or(CommandError::Unknown)?;
        Ok(session.store.room())
    }

    /// Reads received bytes in order, which makes space for more.
    ///
    /// # Errors
    ///
    /// [`CommandError::Unknown`]; [`CommandError::Failed`] when the connection failed, and its received data is
    /// lost; [`CommandError::Closed`] after [`Endpoint::close`].
    pub fn recv(
        &mut self,
        now: Instant,
        id: ConnId,
        out: &mut [u8],
    ) -> Result<Received, CommandError> {
        let (a, b) = self.readable(id)?;
        let (a_len, b_len) = (
            a.len().min(out.len()),
            b.len().min(out.len() - a.len().min(out.len())),
        );
        out[..a_len].copy_from_slice(&a[..a_len]);
        out[a_len..a_len + b_len].copy_from_slice(&b[..b_len]);
        let len = a_len + b_len;
        if len > 0 {
            self.consume(now, id, len)?;
            return Ok(Received::Data(len));
        }
        let pcb = self.pcb(id)?;
        let end = pcb.receive.fin_is_taken() && pcb.receive.data.readable() == 0;
        Ok(if end {
            Received::End
        } else {
            Received::Nothing
        })
    }

    /// Returns the bytes that can be read, in place: the second slice follows the first. [`Endpoint::consume`]
    /// removes them.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::recv`].
    pub fn readable(&self, id: ConnId) -> Result<(&[u8], &[u8]), CommandError> {
        let pcb = self.pcb(id)?;
        if pcb.failure().is_some() {
            return Err(CommandError::Failed);
        }
        if pcb.receive.is_shut() {
            return Err(CommandError::Closed);
        }
        Ok(pcb.receive.data.slices())
    }

    /// Takes away bytes that [`Endpoint::readable`] showed.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::recv`].
    pub fn consume(&mut self, now: Instant, id: ConnId, len: usize) -> Result<(), CommandError> {
        self.advance(now);
        let pcb = self.pcb_mut(id)?;
        pcb.receive.data.consume(len);
        pcb.after_read();
        self.sync(id.index);
        Ok(())
    }

    /// Ends our direction: stored data is still sent, then a FIN, to each receiver of a group (RFC 9293 §3.6,
    /// half-close). The other direction continues.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::send`]; a second time is fine.
    pub fn shutdown(
        &mut self,
        now: Instant,
        target: impl Into<Target>,
    ) -> Result<(), CommandError> {
        self.advance(now);
        let index = self.session_of(target.into())?;
        self.shut_sending(index);
        Ok(())
    }

    fn shut_sending(&mut self, index: u32) {
        let Some(session) = self.sessions.get_mut(index) else {
            return;
        };
        session.closing = true;
        session.refresh_unsent();
        let flows = session.flows.len() as u32;
        for number in 0..flows {
            if self
                .flow(index, number)
                .is_some_and(|flow| flow.is_complete())
            {
                self.wake_members(index, number);
            }
            self.schedule(index, number);
        }
    }

    /// Ends both directions: stored data is still sent. Unread data is discarded, and the peer is told by a
    /// reset (RFC 1122 §4.2.2.13). [`Event::Closed`](crate::Event::Closed) follows.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::send`].
    pub fn close(&mut self, now: Instant, target: impl Into<Target>) -> Result<(), CommandError> {
        let now = self.advance(now);
        let index = self.session_of(target.into())?;
        for member in self.member_indexes(index) {
            if let Some(pcb) = self.pcbs.get_mut(member) {
                if pcb.state() == State::SynSent {
                    pcb.fail(Failure::Aborted);
                } else {
                    pcb.shut_reading();
                    pcb.linger(now);
                }
                self.sync(member);
            }
        }
        self.shut_sending(index);
        Ok(())
    }

    /// Ends a connection, or all of a group, at once, with a reset.
    ///
    /// # Errors
    ///
    /// [`CommandError::Unknown`].
    pub fn abort(&mut self, now: Instant, target: impl Into<Target>) -> Result<(), CommandError> {
        self.advance(now);
        let members = match target.into() {
            Target::Connection(id) => {
                self.pcb(id)?;
                alloc::vec![id.index]
            }
            group @ Target::Group(_) => self.member_indexes(self.session_of(group)?),
        };
        for member in members {
            if let Some(pcb) = self.pcbs.get_mut(member) {
                if pcb.state() == State::TimeWait {
                    pcb.become_closed();
                } else {
                    pcb.abort(Failure::Aborted);
                }
                self.sync(member);
            }
        }
        Ok(())
    }

    pub(super) fn member_indexes(&self, session: u32) -> alloc::vec::Vec<u32> {
        let session = self.sessions.get(session);
        let members = session.map(|session| session.members.as_slice());
        members.unwrap_or(&[]).iter().flatten().copied().collect()
    }

    /// The connections of a group that are not gone yet, in the order of its receivers.
    ///
    /// # Errors
    ///
    /// [`CommandError::Unknown`].
    pub fn members(
        &self,
        group: GroupId,
    ) -> Result<impl Iterator<Item = ConnId> + '_, CommandError> {
        let session = self.session_of(group.into())?;
        let session = self.sessions.get(session).ok_or(CommandError::Unknown)?;
        Ok(session
            .members
            .iter()
            .flatten()
            .map(|&index| self.id_of(index)))
    }

    /// The multicast address that a group offers its receivers; `None` without multicast.
    ///
    /// # Errors
    ///
    /// [`CommandError::Unknown`].
    pub fn group_address(&self, group: GroupId) -> Result<Option<IpAddr>, CommandError> {
        let session = self.session_of(group.into())?;
        let session = self.sessions.get(session).ok_or(CommandError::Unknown)?;
        Ok(session.group.as_ref().and_then(|group| group.offered))
    }

    /// The other side's address and UDP port (TCP port where there is no UDP).
    ///
    /// # Errors
    ///
    /// [`CommandError::Unknown`].
    pub fn remote(&self, id: ConnId) -> Result<SocketAddr, CommandError> {
        Ok(self.pcb(id)?.remote())
    }

    /// Returns the peer's TCP port: that of [`Endpoint::remote`], unless an address translator changed that.
    ///
    /// # Errors
    ///
    /// [`CommandError::Unknown`].
    pub fn remote_port(&self, id: ConnId) -> Result<u16, CommandError> {
        Ok(self.pcb(id)?.key.remote_port)
    }

    /// Returns the group by which a connection's data may be sent or received: both sides agreed on it, and
    /// neither has left it.
    ///
    /// # Errors
    ///
    /// [`CommandError::Unknown`].
    pub fn group_of(&self, id: ConnId) -> Result<Option<IpAddr>, CommandError> {
        Ok(self.pcb(id)?.multicast.group)
    }

    /// Why the connection has failed, if it has: also before [`Event::Closed`](crate::Event::Closed)
    /// is taken.
    ///
    /// # Errors
    ///
    /// [`CommandError::Unknown`].
    pub fn failure(&self, id: ConnId) -> Result<Option<Failure>, CommandError> {
        Ok(self.pcb(id)?.failure())
    }

    /// Our port of a connection.
    ///
    /// # Errors
    ///
    /// [`CommandError::Unknown`].
    pub fn local_port(&self, id: ConnId) -> Result<u16, CommandError> {
        Ok(self.pcb(id)?.key.local_port)
    }

    /// The state of a connection.
    ///
    /// # Errors
    ///
    /// [`CommandError::Unknown`].
    pub fn conn_stats(&self, id: ConnId) -> Result<ConnStats, CommandError> {
        let pcb = self.pcb(id)?;
        let session = self
            .sessions
            .get(pcb.slot.session)
            .ok_or(CommandError::Unknown)?;
        let flow = &session.flows[pcb.slot.flow as usize];
        let una = pcb.send.board.una();
        let agreed = pcb.handshake.agreed();
        Ok(ConnStats {
            state: pcb.state(),
            mode: pcb.multicast.mode,
            acknowledged: una,
            outstanding: flow.nxt - una,
            received: pcb.receive.data.next(),
            congestion_window: pcb.send.cc.window(),
            bandwidth_bps: pcb.send.cc.bandwidth_bps(),
            governs: !flow.is_governed_by_another(pcb.slot.member),
            send_window: pcb.send.window.edge().saturating_sub(una),
            smoothed_rtt: pcb.send.rtt.smoothed(),
            rto: pcb.send.rtt.rto(),
            retransmissions: pcb.send.retransmissions,
            payload: usize::from(flow.payload),
            negotiated: (
                agreed.timestamps,
                agreed.receive_shift > 0 || agreed.send_shift > 0,
                agreed.sack,
            ),
            receive_memory: pcb.receive.data.allocated(),
            feedback: pcb.multicast.reception.percent(),
        })
    }

    /// Limits IP packets to a host, or to a group, to this many bytes (RFC 1191, RFC 8201): all its
    /// connections, and the whole groups that they are in, use smaller segments from now on, and data
    /// outstanding in longer ones is sent again at once. The driver has checked that the report is not forged.
    /// A larger limit than before is ignored, and one below the minimum of IP counts as that minimum.
    pub fn set_path_mtu(&mut self, now: Instant, destination: IpAddr, mtu: u16) {
        let now = self.advance(now);
        let least = if destination.is_ipv4() { 576 } else { 1280 };
        let overhead = self.config.carrier_overhead(destination) + 20;
        let mss = mtu.max(least) - overhead;
        let meant = |pcb: &Pcb| {
            pcb.key.remote == destination
                || (pcb.multicast.group == Some(destination) && !pcb.handshake.is_passive())
        };
        let indexes: alloc::vec::Vec<u32> = self
            .pcbs
            .numbers()
            .filter(|&index| self.pcbs.get(index).is_some_and(meant))
            .collect();
        for index in indexes {
            if let Some((pcb, flow, _)) = self.parts(index) {
                pcb.set_mtu(now, mss, flow);
            }
            self.sync(index);
        }
    }

    /// Changes the rate that new data is held to, of all receivers of a group together; `None`: no
    /// bound.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::send`].
    pub fn set_max_rate(
        &mut self,
        now: Instant,
        target: impl Into<Target>,
        rate_bps: Option<u64>,
    ) -> Result<(), CommandError> {
        let now = self.advance(now);
        let index = self.session_of(target.into())?;
        let Some(session) = self.sessions.get_mut(index) else {
            return Err(CommandError::Unknown);
        };
        session.turns.cap.change(now, rate_bps.unwrap_or(0));
        if rate_bps.is_none() {
            for number in core::mem::take(&mut session.turns.waiting) {
                if let Some(flow) = self.flow(index, number) {
                    flow.waiting = false;
                }
                self.schedule(index, number);
            }
        }
        self.give_turn(index);
        Ok(())
    }
}
