//! One session at a data node: its flows, its edges, and its channels in the native network.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use proto_core::time::Instant;

use super::edge::{Carrier, Edge};
use super::{DataConfig, EdgeId, Plane};
use crate::name::SessionName;
use crate::native::{ChannelId, Direction, NativeError, NativeFlow, NativeNet};
use crate::types::{ChannelAddress, Content, PeerId};
use crate::wire::allocate::Outcome;
use crate::wire::join::FlowChannel;
use crate::wire::statistics::Entry;
use crate::wire::subscribe::Edge as Link;
use crate::wire::transport::Transport;

/// What a session needs to change its edges.
pub(super) struct Context<'a, N: ?Sized> {
    pub(super) now: Instant,
    pub(super) config: &'a DataConfig,
    pub(super) plane: &'a mut Plane,
    pub(super) native: &'a mut N,
}

/// One side of a session, with an edge for each flow: a receiver, or the source.
#[derive(Debug, Default)]
struct Side {
    /// Channels that the control node named.
    remote: Vec<FlowChannel>,
    /// This node's channels, as told to the control node.
    local: Vec<FlowChannel>,
    edges: Vec<EdgeId>,
    /// Native channels, one for each flow.
    channels: Vec<ChannelId>,
}

impl Side {
    fn new(remote: Vec<FlowChannel>) -> Self {
        Side {
            remote,
            ..Side::default()
        }
    }
}

/// Channels on which a peer can send a session to this node.
#[derive(Debug)]
struct Allocated {
    flows: Vec<FlowChannel>,
    /// The number of the last packet that was sent up with each label. The labels stay the same when the peer's
    /// channels change; its data node may already have received packets with them.
    sequences: Vec<u32>,
}

/// A session.
#[derive(Debug)]
pub(super) struct Session {
    name: SessionName,
    flow_names: Vec<String>,
    flows: Vec<u32>,
    receivers: BTreeMap<Link, Side>,
    source: Option<(Link, Side)>,
    /// Channels for sources that have not been subscribed to yet, and for the present one.
    allocated: BTreeMap<Link, Allocated>,
    pub(super) expires: Instant,
    /// The stream to the control node on which it was last requested or refreshed.
    pub(super) stream: u32,
}

fn outcome(error: NativeError) -> Outcome {
    match error {
        NativeError::NoSession => Outcome::NoSession,
        NativeError::Full | NativeError::Busy => Outcome::Full,
        NativeError::Refused => Outcome::Refused,
    }
}

/// Returns a link without its rate limit, which may change.
fn key(link: Link) -> Link {
    match link {
        Link::Native => Link::Native,
        Link::Peer { peer, .. } => Link::Peer { peer, rate_bps: 0 },
    }
}

fn limit(link: Link) -> Option<(PeerId, u64)> {
    match link {
        Link::Native => None,
        Link::Peer { peer, rate_bps } => Some((peer, rate_bps)),
    }
}

/// Returns the transport of a channel.
fn transport(address: &ChannelAddress) -> Transport {
    match address {
        ChannelAddress::Quic(..) => Transport::Quic,
        _ => Transport::Plain,
    }
}

impl Session {
    pub(super) fn new(name: &SessionName, plane: &mut Plane) -> Self {
        let flow_names: Vec<String> = name.flows().map(Into::into).collect();
        let lifetime = name.deadline();
        let add = |_: &String| plane.add_flow(name.content(), name.multi_source(), lifetime);
        let flows = flow_names.iter().map(add).collect();
        Session {
            name: name.clone(),
            flow_names,
            flows,
            receivers: BTreeMap::new(),
            source: None,
            allocated: BTreeMap::new(),
            expires: Instant::ZERO,
            stream: 0,
        }
    }

    /// Returns the sums of its flows' counters.
    pub(super) fn counts(&self, name: &SessionName, plane: &Plane) -> Entry {
        let mut sum = super::flow::FlowCounts::default();
        for &flow in &self.flows {
            sum.add(&plane.counts(flow));
        }
        Entry {
            packets: sum.packets,
            bytes: sum.bytes,
            copies: sum.copies,
            dropped: sum.dropped,
            session: name.clone(),
        }
    }

    /// Returns channels on which a peer can send the session to this node.
    pub(super) fn allocate<N: ?Sized>(
        &mut self,
        cx: &mut Context<'_, N>,
        link: Link,
        transport: Transport,
    ) -> Result<Vec<FlowChannel>, Outcome> {
        if link == Link::Native {
            return Err(Outcome::Refused);
        }
        let address = self.address(cx.config, transport)?;
        let known = self.allocated.get(&key(link));
        let same = |own: &&Allocated| own.flows.iter().all(|flow| flow.address == address);
        if let Some(own) = known.filter(same) {
            return Ok(own.flows.clone());
        }
        let multi = self.name.multi_source();
        let channel = |_: &u32| FlowChannel {
            label: multi.then(|| cx.plane.new_label()),
            address: address.clone(),
        };
        let flows: Vec<_> = self.flows.iter().map(channel).collect();
        let own = Allocated {
            flows: flows.clone(),
            sequences: vec![0; flows.len()],
        };
        self.allocated.insert(key(link), own);
        Ok(flows)
    }

    /// Returns this node's address for a transport.
    fn address(
        &self,
        config: &DataConfig,
        transport: Transport,
    ) -> Result<ChannelAddress, Outcome> {
        let address = match (transport, self.name.content()) {
            (Transport::Quic, _) => {
                let quic = config.datagram.zip(config.key);
                quic.map(|(address, key)| ChannelAddress::Quic(address, key))
            }
            (Transport::Plain, Content::RealTime) => config.datagram.map(ChannelAddress::Datagram),
            (Transport::Plain, Content::Bulk) => config.stream.map(ChannelAddress::Stream),
        };
        address.ok_or(Outcome::Refused)
    }

    /// Returns the carrier of an edge to a data node; over QUIC, the edge is counted at its path until it is removed.
    fn carrier<N: ?Sized>(
        &self,
        cx: &mut Context<'_, N>,
        address: &ChannelAddress,
    ) -> Result<Carrier, Outcome> {
        match (address, self.name.content()) {
            (ChannelAddress::Datagram(to), _) => Ok(Carrier::Datagram(*to)),
            (ChannelAddress::Stream(to), _) => Ok(Carrier::Stream(*to)),
            (ChannelAddress::Quic(..), _) if cx.config.key.is_none() => Err(Outcome::Refused),
            (ChannelAddress::Quic(to, key), content) => {
                let path = cx.plane.paths.add(*to, *key);
                Ok(match content {
                    Content::RealTime => Carrier::PathDatagram(*to, path),
                    Content::Bulk => Carrier::PathStream(*to, path),
                })
            }
            (ChannelAddress::Native(_), _) => Err(Outcome::Refused),
        }
    }

    /// Sends the session to `link` from now on. Returns this node's channels for it.
    pub(super) fn add_receiver<N: NativeNet + ?Sized>(
        &mut self,
        cx: &mut Context<'_, N>,
        link: Link,
        remote: Vec<FlowChannel>,
    ) -> Result<Vec<FlowChannel>, Outcome> {
        if let Some(side) = self.receivers.get(&key(link))
            && side.remote == remote
        {
            cx.plane.set_bound(limit(link));
            return Ok(side.local.clone());
        }
        self.remove_receiver(cx, link);
        let mut side = Side::new(remote);
        let added = (0..self.flows.len()).try_for_each(|at| match link {
            Link::Native => self.add_native(cx, &mut side, at, Direction::Down, None),
            Link::Peer { .. } => self.add_peer_receiver(cx, link, &mut side, at),
        });
        if let Err(refused) = added {
            self.remove_side(cx, &side, Direction::Down);
            return Err(refused);
        }
        let local = side.local.clone();
        self.receivers.insert(key(link), side);
        Ok(local)
    }

    fn add_peer_receiver<N: ?Sized>(
        &self,
        cx: &mut Context<'_, N>,
        link: Link,
        side: &mut Side,
        at: usize,
    ) -> Result<(), Outcome> {
        let remote = side.remote.get(at).ok_or(Outcome::Refused)?;
        let address = self.address(cx.config, transport(&remote.address))?;
        let carrier = self.carrier(cx, &remote.address)?;
        let mut edge = Edge::new(self.flows[at], false, carrier);
        let label = cx.plane.new_label();
        edge.label_out = Some(label);
        edge.rest.label_in = remote.label.filter(|_| self.name.multi_source());
        edge.rest.session = self.flows[0];
        let id = cx.plane.add_edge(cx.now, edge, limit(link));
        side.edges.push(id.ok_or(Outcome::Full)?);
        side.local.push(FlowChannel {
            label: Some(label),
            address,
        });
        Ok(())
    }

    /// Adds an edge over the native network, which listens at `address` or at the session's own.
    fn add_native<N: NativeNet + ?Sized>(
        &self,
        cx: &mut Context<'_, N>,
        side: &mut Side,
        at: usize,
        direction: Direction,
        address: Option<&[u8]>,
    ) -> Result<(), Outcome> {
        let now = cx.now;
        let flow = NativeFlow::new(&self.name, &self.flow_names[at], direction);
        let allocated = cx.native.allocate_channel(now, flow);
        let (channel, own) = allocated.map_err(outcome)?;
        side.channels.push(channel);
        let up = direction == Direction::Up;
        // Clients send upstream only in sessions with many sources.
        if up || self.name.multi_source() {
            let subscribed = cx.native.subscribe(now, flow, channel, address);
            subscribed.map_err(outcome)?;
        }
        let edge = Edge::new(self.flows[at], up, Carrier::Native(channel));
        let id = cx.plane.add_edge(now, edge, None);
        side.edges.push(id.ok_or(Outcome::Full)?);
        side.local.push(FlowChannel {
            label: None,
            address: ChannelAddress::Native(own),
        });
        Ok(())
    }

    /// Receives the session from `link` from now on.
    pub(super) fn set_source<N: NativeNet + ?Sized>(
        &mut self,
        cx: &mut Context<'_, N>,
        link: Link,
        remote: Vec<FlowChannel>,
    ) -> Result<(), Outcome> {
        if let Some((old, side)) = &self.source
            && *old == key(link)
            && side.remote == remote
        {
            cx.plane.set_bound(limit(link));
            return Ok(());
        }
        self.remove_source(cx);
        let mut side = Side::new(remote);
        let added = (0..self.flows.len()).try_for_each(|at| {
            let remote = side.remote.get(at).cloned();
            match (link, remote) {
                (Link::Native, None) => self.add_native(cx, &mut side, at, Direction::Up, None),
                (Link::Native, Some(remote)) => match &remote.address {
                    ChannelAddress::Native(address) => {
                        self.add_native(cx, &mut side, at, Direction::Up, Some(address))
                    }
                    _ => Err(Outcome::Refused),
                },
                (Link::Peer { .. }, Some(remote)) => {
                    self.add_peer_source(cx, link, &mut side, at, &remote)
                }
                (Link::Peer { .. }, None) => Err(Outcome::Refused),
            }
        });
        if let Err(refused) = added {
            self.remove_side(cx, &side, Direction::Up);
            return Err(refused);
        }
        self.source = Some((key(link), side));
        Ok(())
    }

    fn add_peer_source<N: ?Sized>(
        &self,
        cx: &mut Context<'_, N>,
        link: Link,
        side: &mut Side,
        at: usize,
        remote: &FlowChannel,
    ) -> Result<(), Outcome> {
        let label = remote.label.ok_or(Outcome::Refused)?;
        let carrier = self.carrier(cx, &remote.address)?;
        let mut edge = Edge::new(self.flows[at], true, carrier);
        edge.rest.label_in = Some(label);
        edge.rest.session = self.flows[0];
        // The label that this gateway's JOIN named for upstream packets.
        let own = self.allocated.get(&key(link));
        edge.label_out = own.and_then(|own| own.flows.get(at)?.label);
        let id = cx.plane.add_edge(cx.now, edge, limit(link));
        let id = id.ok_or(Outcome::Full)?;
        let sequence = own.and_then(|own| own.sequences.get(at).copied());
        if let Some((sender, sequence)) = cx.plane.sender_mut(id).zip(sequence) {
            sender.set_sequence(sequence);
        }
        side.edges.push(id);
        if let Carrier::Stream(to) | Carrier::PathStream(to, _) = carrier {
            cx.plane.dials.push_back((id, to));
        }
        Ok(())
    }

    pub(super) fn remove_receiver<N: NativeNet + ?Sized>(
        &mut self,
        cx: &mut Context<'_, N>,
        link: Link,
    ) {
        if let Some(side) = self.receivers.remove(&key(link)) {
            self.remove_side(cx, &side, Direction::Down);
        }
    }

    fn remove_source<N: NativeNet + ?Sized>(&mut self, cx: &mut Context<'_, N>) {
        if let Some((link, side)) = self.source.take() {
            if let Some(own) = self.allocated.get_mut(&link) {
                let sequence =
                    |&id: &EdgeId| cx.plane.sender_mut(id).map_or(0, |one| one.sequence());
                own.sequences = side.edges.iter().map(sequence).collect();
            }
            self.remove_side(cx, &side, Direction::Up);
        }
    }

    /// Releases a source, subscribed to or only allocated.
    pub(super) fn release_source<N: NativeNet + ?Sized>(
        &mut self,
        cx: &mut Context<'_, N>,
        link: Link,
    ) {
        self.allocated.remove(&key(link));
        if matches!(&self.source, Some((source, _)) if *source == key(link)) {
            self.remove_source(cx);
        }
    }

    fn remove_side<N: NativeNet + ?Sized>(
        &self,
        cx: &mut Context<'_, N>,
        side: &Side,
        direction: Direction,
    ) {
        for &edge in &side.edges {
            cx.plane.remove_edge(edge);
        }
        for (flow, channel) in self.native_channels(side, direction) {
            cx.native.unsubscribe(cx.now, flow, channel);
            cx.native.reclaim_channel(cx.now, flow, channel);
        }
    }

    fn native_channels<'a>(
        &'a self,
        side: &'a Side,
        direction: Direction,
    ) -> impl Iterator<Item = (NativeFlow<'a>, ChannelId)> {
        let flows = self.flow_names.iter();
        let flows = flows.map(move |flow| NativeFlow::new(&self.name, flow, direction));
        flows.zip(side.channels.iter().copied())
    }

    /// Refreshes the native subscriptions.
    pub(super) fn refresh<N: NativeNet + ?Sized>(&self, cx: &mut Context<'_, N>) {
        let receivers = self.receivers.values().map(|side| (side, Direction::Down));
        let source = self.source.iter().map(|(_, side)| (side, Direction::Up));
        for (side, direction) in receivers.chain(source) {
            for (flow, channel) in self.native_channels(side, direction) {
                cx.native.refresh(cx.now, flow, channel);
            }
        }
    }

    /// Releases everything.
    pub(super) fn close<N: NativeNet + ?Sized>(mut self, cx: &mut Context<'_, N>) {
        self.remove_source(cx);
        while let Some((_, side)) = self.receivers.pop_first() {
            self.remove_side(cx, &side, Direction::Down);
        }
        for flow in self.flows {
            cx.plane.remove_flow(flow);
        }
    }
}
