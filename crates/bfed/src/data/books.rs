//! What a data node has for each session, and how it comes about.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use proto_core::time::Instant;

use super::edge::{Carrier, Edge};
use super::node::DataConfig;
use super::{EdgeId, Plane};
use crate::name::SessionName;
use crate::native::{ChannelId, Direction, NativeError, NativeNet};
use crate::types::{ChannelAddress, Content};
use crate::wire::allocate::Outcome;
use crate::wire::join::FlowChannel;
use crate::wire::subscribe::Edge as Link;

/// An edge of all flows of a session: a receiver of it, or its source.
#[derive(Debug)]
struct Side {
    /// As control said.
    theirs: Vec<FlowChannel>,
    /// As control was answered.
    ours: Vec<FlowChannel>,
    edges: Vec<EdgeId>,
    /// Native channels, one a flow.
    channels: Vec<ChannelId>,
}

/// A session.
#[derive(Debug)]
pub(super) struct Books {
    name: SessionName,
    flow_names: Vec<String>,
    pub(super) flows: Vec<u32>,
    down: BTreeMap<Link, Side>,
    up: Option<(Link, Side)>,
    /// Channels for sources that have not been subscribed to yet, and for the present one.
    allocated: BTreeMap<Link, Vec<FlowChannel>>,
    pub(super) expires: Instant,
    /// The stream to control on which it was asked for or refreshed last.
    pub(super) stream: u32,
}

fn outcome(error: NativeError) -> Outcome {
    match error {
        NativeError::NoSession => Outcome::NoSession,
        NativeError::Full | NativeError::Busy => Outcome::Full,
        NativeError::Refused => Outcome::Refused,
    }
}

/// A link without its bound on the rate, which may change.
fn same(link: Link) -> Link {
    match link {
        Link::Native => Link::Native,
        Link::Peer { peer, .. } => Link::Peer { peer, rate_bps: 0 },
    }
}

impl Books {
    pub(super) fn new(name: &SessionName, plane: &mut Plane, expires: Instant) -> Self {
        let flow_names: Vec<String> = name.flows().map(Into::into).collect();
        let add = |_: &String| plane.add_flow(name.content(), name.multi_source());
        let flows = flow_names.iter().map(add).collect();
        Books {
            name: name.clone(),
            flow_names,
            flows,
            down: BTreeMap::new(),
            up: None,
            allocated: BTreeMap::new(),
            expires,
            stream: 0,
        }
    }

    /// Channels on which a peer can send the session to this node.
    pub(super) fn allocate(
        &mut self,
        config: &DataConfig,
        plane: &mut Plane,
        link: Link,
    ) -> Result<Vec<FlowChannel>, Outcome> {
        if link == Link::Native {
            return Err(Outcome::Refused);
        }
        if let Some(flows) = self.allocated.get(&same(link)) {
            return Ok(flows.clone());
        }
        let address = self.address(config).ok_or(Outcome::Refused)?;
        let multi = self.name.multi_source();
        let channel = |_: &u32| {
            let label = multi.then(|| plane.new_label());
            FlowChannel {
                label,
                address: address.clone(),
            }
        };
        let flows: Vec<_> = self.flows.iter().map(channel).collect();
        self.allocated.insert(same(link), flows.clone());
        Ok(flows)
    }

    fn address(&self, config: &DataConfig) -> Option<ChannelAddress> {
        match self.name.content() {
            Content::RealTime => config.datagram.map(ChannelAddress::Datagram),
            Content::Bulk => config.stream.map(ChannelAddress::Stream),
        }
    }

    /// The session goes to `link` from now on; this node's channels for it.
    pub(super) fn add_receiver(
        &mut self,
        now: Instant,
        config: &DataConfig,
        plane: &mut Plane,
        native: &mut dyn NativeNet,
        link: Link,
        theirs: Vec<FlowChannel>,
    ) -> Result<Vec<FlowChannel>, Outcome> {
        if let Some(side) = self.down.get(&same(link))
            && side.theirs == theirs
        {
            plane.set_bound(bound(link));
            return Ok(side.ours.clone());
        }
        self.drop_receiver(now, plane, native, link);
        let side = match link {
            Link::Native => self.native_receiver(now, plane, native)?,
            Link::Peer { .. } => self.peer_receiver(now, config, plane, link, theirs)?,
        };
        let ours = side.ours.clone();
        self.down.insert(same(link), side);
        Ok(ours)
    }

    fn peer_receiver(
        &mut self,
        now: Instant,
        config: &DataConfig,
        plane: &mut Plane,
        link: Link,
        theirs: Vec<FlowChannel>,
    ) -> Result<Side, Outcome> {
        let address = self.address(config).ok_or(Outcome::Refused)?;
        let mut side = Side {
            theirs,
            ours: Vec::new(),
            edges: Vec::new(),
            channels: Vec::new(),
        };
        for at in 0..self.flows.len() {
            let carrier = carrier(side.theirs.get(at)).ok_or(Outcome::Refused);
            let mut edge = match carrier {
                Ok(carrier) => Edge::new(self.flows[at], false, carrier),
                Err(refused) => {
                    self.drop_side(now, plane, None, &side, Direction::Down);
                    return Err(refused);
                }
            };
            let label = plane.new_label();
            edge.label_out = Some(label);
            edge.rest.label_in = side.theirs[at].label.filter(|_| self.name.multi_source());
            edge.rest.session = self.flows[0];
            let Some(id) = plane.add_edge(now, edge, bound(link)) else {
                self.drop_side(now, plane, None, &side, Direction::Down);
                return Err(Outcome::Full);
            };
            side.edges.push(id);
            side.ours.push(FlowChannel {
                label: Some(label),
                address: address.clone(),
            });
        }
        Ok(side)
    }

    fn native_receiver(
        &mut self,
        now: Instant,
        plane: &mut Plane,
        native: &mut dyn NativeNet,
    ) -> Result<Side, Outcome> {
        let mut side = Side {
            theirs: Vec::new(),
            ours: Vec::new(),
            edges: Vec::new(),
            channels: Vec::new(),
        };
        for at in 0..self.flows.len() {
            let made =
                self.native_channel(now, plane, native, &mut side, at, Direction::Down, None);
            if let Err(refused) = made {
                self.drop_side(now, plane, Some(native), &side, Direction::Down);
                return Err(refused);
            }
        }
        Ok(side)
    }

    #[expect(clippy::too_many_arguments, reason = "one step of two loops")]
    fn native_channel(
        &self,
        now: Instant,
        plane: &mut Plane,
        native: &mut dyn NativeNet,
        side: &mut Side,
        at: usize,
        direction: Direction,
        address: Option<&[u8]>,
    ) -> Result<(), Outcome> {
        let flow = &self.flow_names[at];
        let (channel, own) = native
            .allocate_channel(now, &self.name, flow, direction)
            .map_err(outcome)?;
        side.channels.push(channel);
        // Downwards only sessions of many sources listen.
        if direction == Direction::Up || self.name.multi_source() {
            native
                .subscribe(now, &self.name, flow, direction, channel, address)
                .map_err(outcome)?;
        }
        let up = direction == Direction::Up;
        let edge = Edge::new(self.flows[at], up, Carrier::Native(channel));
        side.edges
            .push(plane.add_edge(now, edge, None).ok_or(Outcome::Full)?);
        side.ours.push(FlowChannel {
            label: None,
            address: ChannelAddress::Native(own),
        });
        Ok(())
    }

    /// The session comes from `link` from now on.
    pub(super) fn set_source(
        &mut self,
        now: Instant,
        plane: &mut Plane,
        native: &mut dyn NativeNet,
        link: Link,
        theirs: Vec<FlowChannel>,
    ) -> Result<(), Outcome> {
        if let Some((old, side)) = &self.up
            && *old == same(link)
            && side.theirs == theirs
        {
            plane.set_bound(bound(link));
            return Ok(());
        }
        self.drop_source(now, plane, native);
        let mut side = Side {
            theirs,
            ours: Vec::new(),
            edges: Vec::new(),
            channels: Vec::new(),
        };
        for at in 0..self.flows.len() {
            let theirs = side.theirs.get(at).cloned();
            let made = match (link, theirs) {
                (Link::Native, None) => {
                    self.native_channel(now, plane, native, &mut side, at, Direction::Up, None)
                }
                (
                    Link::Native,
                    Some(FlowChannel {
                        address: ChannelAddress::Native(to),
                        ..
                    }),
                ) => {
                    let up = Direction::Up;
                    self.native_channel(now, plane, native, &mut side, at, up, Some(&to))
                }
                (Link::Peer { .. }, Some(theirs)) => {
                    self.peer_source(now, plane, link, &mut side, at, &theirs)
                }
                _ => Err(Outcome::Refused),
            };
            if let Err(refused) = made {
                self.drop_side(now, plane, Some(native), &side, Direction::Up);
                return Err(refused);
            }
        }
        self.up = Some((same(link), side));
        Ok(())
    }

    fn peer_source(
        &self,
        now: Instant,
        plane: &mut Plane,
        link: Link,
        side: &mut Side,
        at: usize,
        theirs: &FlowChannel,
    ) -> Result<(), Outcome> {
        let carrier = carrier(Some(theirs)).ok_or(Outcome::Refused)?;
        let mut edge = Edge::new(self.flows[at], true, carrier);
        edge.rest.label_in = Some(theirs.label.ok_or(Outcome::Refused)?);
        edge.rest.session = self.flows[0];
        // The label that the JOIN named for packets that go up.
        let own = self
            .allocated
            .get(&same(link))
            .and_then(|flows| flows.get(at));
        edge.label_out = own.and_then(|own| own.label);
        let id = plane
            .add_edge(now, edge, bound(link))
            .ok_or(Outcome::Full)?;
        side.edges.push(id);
        if let Carrier::Stream(to) = carrier {
            plane.dials.push_back((id, to));
        }
        Ok(())
    }

    pub(super) fn drop_receiver(
        &mut self,
        now: Instant,
        plane: &mut Plane,
        native: &mut dyn NativeNet,
        link: Link,
    ) {
        if let Some(side) = self.down.remove(&same(link)) {
            self.drop_side(now, plane, Some(native), &side, Direction::Down);
        }
    }

    fn drop_source(&mut self, now: Instant, plane: &mut Plane, native: &mut dyn NativeNet) {
        if let Some((_, side)) = self.up.take() {
            self.drop_side(now, plane, Some(native), &side, Direction::Up);
        }
    }

    /// A source is gone, or will not be subscribed to.
    pub(super) fn forget_source(
        &mut self,
        now: Instant,
        plane: &mut Plane,
        native: &mut dyn NativeNet,
        link: Link,
    ) {
        self.allocated.remove(&same(link));
        if self.up.as_ref().is_some_and(|(up, _)| *up == same(link)) {
            self.drop_source(now, plane, native);
        }
    }

    fn drop_side(
        &self,
        now: Instant,
        plane: &mut Plane,
        native: Option<&mut dyn NativeNet>,
        side: &Side,
        direction: Direction,
    ) {
        for &edge in &side.edges {
            plane.remove_edge(edge);
        }
        let Some(native) = native else {
            return;
        };
        for (flow, &channel) in self.flow_names.iter().zip(&side.channels) {
            native.unsubscribe(now, &self.name, flow, direction, channel);
            native.reclaim_channel(now, &self.name, flow, direction, channel);
        }
    }

    /// Native subscriptions are still wanted.
    pub(super) fn refresh(&self, now: Instant, native: &mut dyn NativeNet) {
        let down = self.down.values().map(|side| (side, Direction::Down));
        let up = self.up.iter().map(|(_, side)| (side, Direction::Up));
        for (side, direction) in down.chain(up) {
            for (flow, &channel) in self.flow_names.iter().zip(&side.channels) {
                native.refresh(now, &self.name, flow, direction, channel);
            }
        }
    }

    /// The session is gone.
    pub(super) fn close(mut self, now: Instant, plane: &mut Plane, native: &mut dyn NativeNet) {
        self.drop_source(now, plane, native);
        let links: Vec<_> = self.down.keys().copied().collect();
        for link in links {
            self.drop_receiver(now, plane, native, link);
        }
        for flow in self.flows {
            plane.remove_flow(flow);
        }
    }
}

fn carrier(channel: Option<&FlowChannel>) -> Option<Carrier> {
    match &channel?.address {
        ChannelAddress::Datagram(to) => Some(Carrier::Datagram(*to)),
        ChannelAddress::Stream(to) => Some(Carrier::Stream(*to)),
        ChannelAddress::Native(_) => None,
    }
}

fn bound(link: Link) -> Option<(crate::types::PeerId, u64)> {
    match link {
        Link::Native => None,
        Link::Peer { peer, rate_bps } => Some((peer, rate_bps)),
    }
}
