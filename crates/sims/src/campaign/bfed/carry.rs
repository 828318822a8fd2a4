//! What goes between control nodes, data nodes and native networks.

use std::net::SocketAddr;

use bfed::data::{EdgeId, Meta};
use bfed::native::ChannelId;
use bfed::wire::MAX_MESSAGE_LEN;
use bfed::{
    BnNum, ConnId, ControlNode, Duration, Event, Instant, NodeIdentity, PeerId, SessionName,
};
use netsim::NodeId as HostId;
use netsim::streams::{Event as StreamEvent, StreamId};

use super::host::{Host, Output};
use super::world::{End, Happening, World};

/// Between the processes of one gateway, and in a native network.
const INSIDE: Duration = Duration::from_micros(300);
/// Until a dial over a dead link fails.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);

impl World {
    /// Calls a data node, then carries out its requests.
    pub(super) fn with_node(
        &mut self,
        host: usize,
        act: impl FnOnce(&mut Host, Instant, &mut netsim::Io<'_>) -> Vec<Output>,
    ) {
        let output = self.sim.with_node(HostId(host as u32), act);
        self.emit(host, output.unwrap_or_default());
    }

    pub(super) fn emit(&mut self, host: usize, output: Vec<Output>) {
        let now = self.now;
        for output in output {
            match output {
                Output::Control(bytes) => {
                    if let Some(stream) = self.hosts[host].control {
                        self.streams.send(now, stream, End::Node(host), &bytes);
                    }
                }
                Output::ControlLost => {
                    if let Some(stream) = self.hosts[host].control.take() {
                        self.streams.close(now, stream, End::Node(host));
                        self.redial(host);
                    }
                }
                Output::Packet(conn, edge, bytes) => {
                    let stream = StreamId(conn.0);
                    self.streams.send(now, stream, End::Node(host), &bytes);
                    if self.streams.is_held(stream)
                        && self.hosts[host].blocked.insert((stream, edge))
                    {
                        self.with_node(host, |host, now, io| {
                            host.act(now, io, |node| node.plane().blocked(edge))
                        });
                    }
                }
                Output::Dial(edge, to) => self.dial_data(host, edge, to),
                Output::Close(conn) => {
                    self.streams.close(now, StreamId(conn.0), End::Node(host));
                }
                Output::Native(address, data) => {
                    let network = self.network(self.hosts[host].gateway);
                    self.broadcast(network, Some(host), None, &address, &data);
                }
            }
        }
    }

    /// A frame goes to everything in a native network that listens to its address, except its sender.
    pub(super) fn broadcast(
        &mut self,
        network: BnNum,
        from: Option<usize>,
        client: Option<usize>,
        address: &[u8],
        data: &[u8],
    ) {
        let gateways: Vec<usize> = self.plan.of(network).collect();
        let hosts = gateways.iter().flat_map(|at| &self.gateways[*at].hosts);
        let hosts: Vec<usize> = hosts.copied().collect();
        for host in hosts {
            let node = self.sim.node(HostId(host as u32));
            let node = node.filter(|host| host.runs());
            let node = node.and_then(|host| host.node.as_ref());
            let channels = node.map(|node| node.native().listeners(address));
            let boot = self.hosts[host].boot;
            for channel in channels.unwrap_or_default() {
                if from != Some(host) {
                    self.after(INSIDE, Happening::Frame(host, boot, channel, data.to_vec()));
                }
            }
        }
        for other in 0..self.clients.len() {
            let home = self.plan.clients[other].home;
            if client != Some(other) && self.network(home) == network {
                self.after(
                    INSIDE,
                    Happening::Heard(other, address.to_vec(), data.to_vec()),
                );
            }
        }
    }

    fn dial_data(&mut self, host: usize, edge: EdgeId, to: SocketAddr) {
        let is_there = |host: &Host| SocketAddr::from(host.address) == to;
        let far = self.sim.nodes().find(|(_, host)| is_there(host));
        let far = far.map(|(id, _)| id.0 as usize);
        let (own, now) = (End::Node(host), self.now);
        let stream = match far.map(End::Node) {
            Some(far) => self.open(own, far),
            None => self.streams.refuse(now, own, own, DIAL_TIMEOUT),
        };
        self.hosts[host].dialling.insert(stream, (edge, to));
    }

    /// Opens a stream if both ends run and the link between them is up.
    fn open(&mut self, from: End, to: End) -> StreamId {
        let ends = [self.gateway_of(from), self.gateway_of(to)];
        let now = self.now;
        if ends[0] == ends[1] {
            return match self.runs(to) {
                true => self.streams.open(now, from, to, INSIDE),
                false => self.streams.refuse(now, from, to, INSIDE),
            };
        }
        let peering = self.peering(ends[0], ends[1]);
        let delay = peering.map(|at| self.plan.peerings[at].delay);
        let is_up = peering.is_some_and(|at| self.links[at].0);
        match delay.filter(|_| is_up) {
            Some(delay) if self.runs(to) => self.streams.open(now, from, to, delay),
            // A port without a process refuses at once.
            Some(delay) if !matches!(to, End::Control(at) if self.gateways[at].is_frozen) => {
                self.streams.refuse(now, from, to, delay)
            }
            _ => self.streams.refuse(now, from, to, DIAL_TIMEOUT),
        }
    }

    fn redial(&mut self, host: usize) {
        let wait = Duration::from_millis(200) + self.random(Duration::from_millis(800));
        let boot = self.hosts[host].boot;
        self.after(wait, Happening::Dial(host, boot));
    }

    /// A data node dials its control node.
    pub(super) fn dial_control(&mut self, host: usize, boot: u64) {
        if self.hosts[host].boot == boot && self.hosts[host].control.is_none() {
            if self.runs(End::Node(host)) {
                self.open(End::Node(host), End::Control(self.hosts[host].gateway));
            } else {
                self.redial(host);
            }
        }
    }

    /// A native frame reaches a data node.
    pub(super) fn frame(&mut self, host: usize, boot: u64, channel: ChannelId, data: &[u8]) {
        if self.hosts[host].boot == boot && self.runs(End::Node(host)) {
            self.with_node(host, |host, now, io| host.frame(now, io, channel, data));
        }
    }

    pub(super) fn stream_event(&mut self, event: StreamEvent<End>) {
        match event {
            StreamEvent::Opened { stream, from, to } => self.opened(stream, from, to),
            StreamEvent::Refused { stream, from, to } => match (from, to) {
                (End::Control(at), End::Control(peer)) => {
                    let peer = PeerId(peer as u32);
                    self.with_control(at, |control, now| control.dial_failed(now, peer));
                }
                (End::Node(host), End::Control(_)) => self.redial(host),
                (End::Node(host), _) => self.dial_failed(host, stream),
                (End::Control(_), End::Node(_)) => {}
            },
            StreamEvent::Message { stream, to, bytes } => self.message(stream, to, &bytes),
            StreamEvent::Ended { stream, at } => self.ended(stream, at),
        }
    }

    fn dial_failed(&mut self, host: usize, stream: StreamId) {
        if let Some((edge, to)) = self.hosts[host].dialling.remove(&stream) {
            self.with_node(host, |host, now, io| {
                host.act(now, io, |node| node.dial_failed(now, edge, to))
            });
        }
    }

    fn opened(&mut self, stream: StreamId, from: End, to: End) {
        let conn = ConnId(stream.0);
        match (from, to) {
            (End::Control(a), End::Control(b)) => {
                for (own, peer, dialled) in [(a, b, true), (b, a, false)] {
                    let peer = PeerId(peer as u32);
                    self.with_control(own, |control, now| {
                        control.connected(now, conn, peer, dialled);
                    });
                }
            }
            (End::Node(host), End::Control(at)) => {
                let identity = NodeIdentity(host as u32 + 1);
                self.hosts[host].control = Some(stream);
                self.with_control(at, |control, now| {
                    control.node_connected(now, conn, identity);
                });
                self.with_node(host, |host, now, io| {
                    host.act(now, io, |node| node.connected(now))
                });
            }
            (End::Node(host), End::Node(_)) => {
                let Some((edge, _)) = self.hosts[host].dialling.remove(&stream) else {
                    return;
                };
                let mut is_wanted = false;
                self.with_node(host, |host, now, io| {
                    host.act(now, io, |node| is_wanted = node.dialled(edge, conn))
                });
                if !is_wanted {
                    self.streams.close(self.now, stream, from);
                }
            }
            (End::Control(_), End::Node(_)) => {}
        }
    }

    fn message(&mut self, stream: StreamId, to: End, bytes: &[u8]) {
        let conn = ConnId(stream.0);
        match to {
            End::Control(at) => self.with_control(at, |control, now| {
                // What is refused is the gateway's business.
                let _ = control.handle_packet(now, &conn, bytes);
            }),
            End::Node(host) if self.hosts[host].control == Some(stream) => {
                self.with_node(host, |host, now, io| {
                    host.act(now, io, |node| {
                        let _ = node.handle_packet(now, &(), bytes);
                    })
                });
            }
            End::Node(host) => {
                let ends = self.streams.iter().find(|(id, _)| *id == stream);
                let far = ends.map(|(_, ends)| if ends[0] == to { ends[1] } else { ends[0] });
                let Some(End::Node(far)) = far else {
                    return;
                };
                let address = self.sim.node(HostId(far as u32)).map(|host| host.address);
                let Some(address) = address else {
                    return;
                };
                let meta = Meta::Stream(conn, (*address.ip()).into());
                self.with_node(host, |host, now, io| host.packet(now, io, &meta, bytes));
            }
        }
    }

    fn ended(&mut self, stream: StreamId, at: End) {
        let conn = ConnId(stream.0);
        match at {
            End::Control(at) => {
                self.with_control(at, |control, now| control.disconnected(now, conn));
            }
            End::Node(host) if self.hosts[host].control == Some(stream) => {
                self.hosts[host].control = None;
                self.with_node(host, |host, now, io| {
                    host.act(now, io, bfed::DataNode::disconnected)
                });
                self.redial(host);
            }
            End::Node(host) if self.hosts[host].dialling.contains_key(&stream) => {
                self.dial_failed(host, stream);
            }
            End::Node(host) => {
                self.hosts[host].blocked.retain(|(on, _)| *on != stream);
                self.with_node(host, |host, now, io| {
                    host.act(now, io, |node| node.stream_ended(now, conn))
                });
            }
        }
    }

    /// Streams that were held take more again.
    pub(super) fn unblock(&mut self) {
        for host in 0..self.hosts.len() {
            let streams = &self.streams;
            let blocked = &mut self.hosts[host].blocked;
            let free: Vec<_> = blocked
                .iter()
                .filter(|(stream, _)| !streams.is_held(*stream))
                .copied()
                .collect();
            blocked.retain(|one| !free.contains(one));
            for (_, edge) in free {
                self.with_node(host, |host, now, io| {
                    host.act(now, io, |node| node.plane().writable(now, edge))
                });
            }
        }
    }

    /// Calls a control node that runs, then carries out its requests.
    pub(super) fn with_control(&mut self, at: usize, act: impl FnOnce(&mut ControlNode, Instant)) {
        let gateway = &mut self.gateways[at];
        if let Some(control) = gateway.control.as_mut().filter(|_| !gateway.is_frozen) {
            act(control, self.now);
            self.settle(at);
        }
    }

    /// Takes all messages and events from a control node.
    pub(super) fn settle(&mut self, at: usize) {
        let now = self.now;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(MAX_MESSAGE_LEN, 0);
        loop {
            let gateway = &mut self.gateways[at];
            let Some(control) = gateway.control.as_mut().filter(|_| !gateway.is_frozen) else {
                gateway.next = None;
                break;
            };
            if let Some(event) = control.poll_event() {
                self.control_event(at, event);
            } else if let Some(out) = control.poll_transmit(now, &mut buffer) {
                let (stream, own) = (StreamId(out.conn.0), End::Control(at));
                self.streams.send(now, stream, own, &buffer[..out.len]);
            } else {
                gateway.next = control.poll_timeout();
                break;
            }
        }
        self.buffer = buffer;
    }

    fn control_event(&mut self, at: usize, event: Event) {
        match event {
            Event::Dial(PeerId(peer)) => {
                self.open(End::Control(at), End::Control(peer as usize));
            }
            Event::Close(conn) => {
                let stream = StreamId(conn.0);
                self.streams.close(self.now, stream, End::Control(at));
            }
            Event::GetSroutes {
                request, session, ..
            } => {
                let boot = self.gateways[at].boot;
                let wait = self.random(Duration::from_millis(20));
                self.after(wait, Happening::Sroutes(at, boot, request, session));
            }
            event => self.mediate(at, event),
        }
    }

    /// The native network's answer about costs.
    pub(super) fn sroutes(&mut self, at: usize, boot: u64, request: u32, name: &SessionName) {
        if self.gateways[at].boot != boot {
            return;
        }
        let known = self.plan.sessions.iter();
        let answer = known
            .filter(|session| session.name == *name)
            .map(|session| session.sroutes.clone())
            .next();
        if let Some(answer) = answer {
            self.with_control(at, |control, now| control.sroutes(now, request, answer));
        }
    }
}
