//! Hosts with an endpoint and a simple application, and the switch between them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use netsim::ip::Datagram;
use netsim::{Io, LinkConfig, LinkId, Node, NodeId, Port, Sim};
use tcpxm::store::{NullStore, Store};
use tcpxm::{
    Config, ConnId, Duration, Endpoint, Event, Failure, GroupConfig, GroupId, Instant, Meta, Mode,
    Received,
};

pub(crate) type AnyStore = Box<dyn Store>;

pub(crate) const PORT: u16 = 7000;

pub(crate) fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, (host >> 8) as u8, host as u8)
}

pub(crate) fn socket(host: usize, port: u16) -> SocketAddr {
    SocketAddr::new(address(host).into(), port)
}

/// What a host does for each connection.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Bytes to send on a connection of its own.
    pub(crate) send: u64,
    /// Read at most this many bytes a second.
    pub(crate) read_bps: Option<u64>,
    /// Do not read before this time.
    pub(crate) read_from: Instant,
    /// Close only when the other side has.
    pub(crate) close_last: bool,
    /// Abort after reading this number of bytes.
    pub(crate) abort_after: Option<u64>,
    /// Do not check the bytes read: only rates matter.
    pub(crate) trusting: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            send: 0,
            read_bps: None,
            read_from: Instant::ZERO,
            close_last: false,
            abort_after: None,
            trusting: false,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Peer {
    pub(crate) read: u64,
    pub(crate) written: u64,
    pub(crate) end: bool,
    pub(crate) shut: bool,
    pub(crate) closed: bool,
}

pub(crate) struct Host {
    pub(crate) number: usize,
    pub(crate) endpoint: Endpoint<AnyStore>,
    pub(crate) plan: Plan,
    pub(crate) peers: BTreeMap<ConnId, Peer>,
    pub(crate) joined: BTreeSet<IpAddr>,
    pub(crate) group: Option<GroupId>,
    pub(crate) group_closed: bool,
    pub(crate) ready: bool,
    /// Every connection that ended, and how.
    pub(crate) ends: Vec<(SocketAddr, Option<Failure>)>,
    pub(crate) delivered: Vec<ConnId>,
    pub(crate) modes: Vec<(ConnId, Mode)>,
    pub(crate) events: Vec<Event>,
    pub(crate) errors: u64,
    pub(crate) finished_at: Option<Instant>,
    pub(crate) detached_at: Option<Instant>,
    pub(crate) left_at: Option<Instant>,
    wake: Option<Instant>,
}

impl Host {
    pub(crate) fn new(number: usize, config: Config, seed: [u8; 32], plan: Plan) -> Self {
        Self {
            number,
            endpoint: Endpoint::new(config, seed, Instant::ZERO),
            plan,
            peers: BTreeMap::new(),
            joined: BTreeSet::new(),
            group: None,
            group_closed: false,
            ready: false,
            ends: Vec::new(),
            delivered: Vec::new(),
            modes: Vec::new(),
            events: Vec::new(),
            errors: 0,
            finished_at: None,
            detached_at: None,
            left_at: None,
            wake: None,
        }
    }

    pub(crate) fn listen(&mut self, now: Instant) {
        self.endpoint.listen(now, PORT).unwrap();
    }

    pub(crate) fn connect(&mut self, now: Instant, host: usize) -> ConnId {
        let local = socket(self.number, 0);
        let id = self
            .endpoint
            .connect(now, local, socket(host, PORT))
            .unwrap();
        self.peers.insert(id, Peer::default());
        id
    }

    pub(crate) fn open_group(
        &mut self,
        now: Instant,
        group: &GroupConfig,
        store: AnyStore,
    ) -> GroupId {
        let id = self.endpoint.open_group(now, group, store).unwrap();
        for member in self.endpoint.members(id).unwrap().collect::<Vec<_>>() {
            self.peers.insert(member, Peer::default());
        }
        self.group = Some(id);
        id
    }

    /// All that this host will ever read, from all peers.
    pub(crate) fn total_read(&self) -> u64 {
        self.peers.values().map(|peer| peer.read).sum()
    }

    /// The state, for the message of a failed test.
    pub(crate) fn summary(&self) -> String {
        let drops = self.endpoint.stats().drops.iter();
        let drops: Vec<_> = drops.filter(|(_, count)| *count > 0).collect();
        format!(
            "{:?} {:?} {:?} {drops:?}",
            self.peers, self.ends, self.events
        )
    }

    fn on_event(&mut self, now: Instant, event: Event) {
        self.events.push(event);
        match event {
            Event::Incoming { port } => {
                while let Some(id) = self.endpoint.accept(now, port) {
                    self.peers.insert(id, Peer::default());
                }
            }
            Event::Join { group, .. } => {
                self.joined.insert(group);
            }
            Event::Leave { group, .. } => {
                self.joined.remove(&group);
                self.left_at = Some(now);
            }
            Event::Detached { .. } => self.detached_at = Some(now),
            Event::ModeChanged { connection, mode } => self.modes.push((connection, mode)),
            Event::Delivered { connection } => self.delivered.push(connection),
            Event::GroupReady { .. } => self.ready = true,
            Event::GroupClosed { .. } => {
                self.group_closed = true;
                self.finished_at = Some(now);
            }
            Event::Closed {
                connection,
                remote,
                failure,
            } => {
                self.ends.push((remote, failure));
                if let Some(peer) = self.peers.get_mut(&connection) {
                    peer.closed = true;
                }
                if self.group.is_none() {
                    self.finished_at = Some(now);
                }
            }
            _ => {}
        }
    }

    fn serve(&mut self, now: Instant) {
        let ids: Vec<ConnId> = self.peers.keys().copied().collect();
        self.wake = None;
        for id in ids {
            let mut peer = self.peers[&id].clone();
            self.read(now, id, &mut peer);
            let member = self.group.is_some();
            if !member && !peer.closed && self.endpoint.conn_stats(id).is_ok() {
                self.write(now, id, &mut peer);
            }
            self.peers.insert(id, peer);
        }
    }

    fn write(&mut self, now: Instant, id: ConnId, peer: &mut Peer) {
        let mut chunk = [0; 4096];
        while peer.written < self.plan.send {
            let len = (self.plan.send - peer.written).min(4096) as usize;
            let looked_at = if self.plan.trusting { 0 } else { 4096 };
            for (byte, at) in chunk[..looked_at].iter_mut().zip(peer.written..) {
                *byte = NullStore::byte(at);
            }
            match self.endpoint.send(now, id, &chunk[..len]) {
                Ok(0) | Err(_) => return,
                Ok(written) => peer.written += written as u64,
            }
        }
        let may = !self.plan.close_last || peer.end;
        if may && !peer.shut {
            peer.shut = self.endpoint.shutdown(now, id).is_ok();
        }
    }

    fn read(&mut self, now: Instant, id: ConnId, peer: &mut Peer) {
        if now < self.plan.read_from {
            self.wake = Some(self.plan.read_from);
            return;
        }
        let mut buffer = [0; 8192];
        loop {
            let mut most = buffer.len() as u64;
            if let Some(rate) = self.plan.read_bps {
                let us = (now.total_micros() - self.plan.read_from.total_micros()) as u64;
                let may = (rate * us / 8_000_000).saturating_sub(peer.read);
                most = most.min(may);
                if most == 0 {
                    self.wake = Some(now + Duration::from_millis(20));
                    if self.endpoint.readable(id).is_ok_and(|(a, _)| !a.is_empty()) {
                        return;
                    }
                }
            }
            match self.endpoint.recv(now, id, &mut buffer[..most as usize]) {
                Ok(Received::Data(len)) => {
                    let looked_at = if self.plan.trusting { 0 } else { len };
                    for (byte, at) in buffer[..looked_at].iter().zip(peer.read..) {
                        assert_eq!(*byte, NullStore::byte(at), "host {} at {at}", self.number);
                    }
                    peer.read += len as u64;
                    if self.plan.abort_after.is_some_and(|most| peer.read >= most) {
                        self.endpoint.abort(now, id).unwrap();
                        return;
                    }
                }
                Ok(Received::End) => {
                    peer.end = true;
                    return;
                }
                Ok(Received::Nothing) | Err(_) => return,
            }
        }
    }

    /// Lets the application and the endpoint act until nothing more happens.
    pub(crate) fn pump(&mut self, now: Instant, io: &mut Io<'_>) {
        let mut buffer = vec![0; self.endpoint.max_segment_bytes()];
        loop {
            let mut busy = false;
            while let Some(event) = self.endpoint.poll_event() {
                self.on_event(now, event);
                busy = true;
            }
            self.serve(now);
            while let Some(transmit) = self.endpoint.poll_transmit(now, &mut buffer) {
                busy = true;
                let payload = &buffer[..transmit.len];
                let source_port = u16::from_be_bytes([payload[0], payload[1]]);
                let IpAddr::V4(to) = transmit.destination.ip() else {
                    panic!("the simulation is IPv4");
                };
                let packet = Datagram {
                    source: SocketAddrV4::new(address(self.number), source_port),
                    destination: SocketAddrV4::new(to, transmit.destination.port()),
                    ttl: 64,
                    options: &[],
                    payload,
                };
                io.send(Port(0), &packet.emit());
            }
            if !busy {
                return;
            }
        }
    }
}

impl Node for Host {
    fn handle_packet(&mut self, now: Instant, _port: Port, packet: &[u8], io: &mut Io<'_>) {
        let Some(datagram) = Datagram::parse(packet) else {
            return;
        };
        if std::env::var_os("TRACE").is_some() {
            let segment = tcpxm::wire::Segment::parse(datagram.payload).unwrap();
            let (flags, len) = (segment.flags, segment.payload.len());
            println!(
                "{now} to {} {:?} {:?} len {len} win {} {flags:?}",
                self.number, segment.seq, segment.ack, segment.window
            );
        }
        let to = IpAddr::V4(*datagram.destination.ip());
        let ours = to == IpAddr::V4(address(self.number)) || self.joined.contains(&to);
        if !ours {
            return;
        }
        let meta = Meta {
            source: SocketAddr::V4(datagram.source),
            destination: to,
        };
        if self
            .endpoint
            .handle_packet(now, &meta, datagram.payload)
            .is_err()
        {
            self.errors += 1;
        }
        self.pump(now, io);
    }

    fn handle_timeout(&mut self, now: Instant, io: &mut Io<'_>) {
        self.endpoint.handle_timeout(now);
        self.pump(now, io);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let timeouts = [self.endpoint.poll_timeout(), self.wake];
        timeouts.into_iter().flatten().min()
    }
}

/// Time, port to which a packet would go, packet: is it lost?
pub(crate) type DropRule = Box<dyn FnMut(Instant, u16, &[u8]) -> bool>;

/// A host that is not what it seems: sees what goes to it, and replaces what comes from it.
pub(crate) trait Disguise {
    /// A packet on its way to the host, which gets it. Returns packets to host 0 and when they leave.
    fn towards(&mut self, now: Instant, packet: &[u8]) -> Vec<(Instant, Vec<u8>)>;

    /// A packet of the host. Returns those that go to host 0 instead, and when they leave.
    fn from(&mut self, now: Instant, packet: &[u8]) -> Vec<(Instant, Vec<u8>)>;
}

/// Forwards by host number: port 0 leads to host 0, port n to host n. Multicast goes to all but its
/// source, as far as it is allowed to.
pub(crate) struct Switch {
    /// By port: from when to when multicast is not forwarded there.
    pub(crate) deaf: BTreeMap<u16, Vec<(Instant, Instant)>>,
    /// Packets dropped by a test's own rule.
    pub(crate) drop: Option<DropRule>,
    /// Multicast and unicast packets with data that came from host 0.
    pub(crate) from_sender: (u64, u64),
    /// Groups that packets came for.
    pub(crate) groups: BTreeSet<Ipv4Addr>,
    /// Ports without a group member.
    pub(crate) left: BTreeSet<u16>,
    /// Where the groups that are named here go; the others go everywhere.
    pub(crate) trees: BTreeMap<Ipv4Addr, BTreeSet<u16>>,
    /// By port.
    pub(crate) disguises: BTreeMap<u16, Box<dyn Disguise>>,
    /// Packets of hosts in disguise to host 0, by when they leave and by number.
    held: BTreeMap<(Instant, u64), Vec<u8>>,
    numbered: u64,
}

impl Switch {
    fn hold(&mut self, packets: Vec<(Instant, Vec<u8>)>) {
        for (at, packet) in packets {
            self.numbered += 1;
            self.held.insert((at, self.numbered), packet);
        }
    }

    fn release(&mut self, now: Instant, io: &mut Io<'_>) {
        while let Some(first) = self.held.first_entry()
            && first.key().0 <= now
        {
            io.send(Port(0), &first.remove());
        }
    }

    pub(crate) fn new() -> Self {
        Self {
            deaf: BTreeMap::new(),
            drop: None,
            from_sender: (0, 0),
            groups: BTreeSet::new(),
            left: BTreeSet::new(),
            trees: BTreeMap::new(),
            disguises: BTreeMap::new(),
            held: BTreeMap::new(),
            numbered: 0,
        }
    }
}

impl Node for Switch {
    fn handle_timeout(&mut self, now: Instant, io: &mut Io<'_>) {
        self.release(now, io);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.held.first_key_value().map(|((at, _), _)| *at)
    }

    fn handle_packet(&mut self, now: Instant, port: Port, packet: &[u8], io: &mut Io<'_>) {
        if let Some(disguise) = self.disguises.get_mut(&port.0) {
            let packets = disguise.from(now, packet);
            self.hold(packets);
            self.release(now, io);
            return;
        }
        let to = Ipv4Addr::new(packet[16], packet[17], packet[18], packet[19]);
        if to.is_multicast() {
            self.groups.insert(to);
        }
        if port.0 == 0 && packet.len() > 300 {
            if to.is_multicast() {
                self.from_sender.0 += 1;
            } else {
                self.from_sender.1 += 1;
            }
        }
        let mut answers = Vec::new();
        let mut forward = |port: u16, io: &mut Io<'_>| {
            if let Some(disguise) = self.disguises.get_mut(&port) {
                answers.extend(disguise.towards(now, packet));
            }
            let drop = self.drop.as_mut();
            if !drop.is_some_and(|drop| drop(now, port, packet)) {
                io.forward(Port(port));
            }
        };
        if !to.is_multicast() {
            let [_, _, high, low] = to.octets();
            forward(u16::from_be_bytes([high, low]), io);
            self.hold(answers);
            self.release(now, io);
            return;
        }
        for other in 0..io.ports() {
            let deaf = self
                .deaf
                .get(&other)
                .is_some_and(|times| times.iter().any(|(from, to)| *from <= now && now < *to));
            let pruned = self.left.contains(&other)
                || self
                    .trees
                    .get(&to)
                    .is_some_and(|tree| !tree.contains(&other));
            if other != port.0 && !deaf && !pruned {
                forward(other, io);
            }
        }
        self.hold(answers);
        self.release(now, io);
    }
}

pub(crate) struct Net {
    pub(crate) sim: Sim,
    pub(crate) switch: NodeId,
    pub(crate) hosts: Vec<NodeId>,
    /// Of each host, to the switch.
    pub(crate) links: Vec<LinkId>,
    /// The switch no longer forwards multicast to receivers that have left, 50 ms later at most.
    pub(crate) prunes: bool,
}

/// Hosts around a switch, each with the configuration, plan and link given for it.
pub(crate) fn net(seed: u64, hosts: Vec<(Config, Plan, LinkConfig)>) -> Net {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    let mut sim: Sim = Sim::new(bytes);
    let switch = sim.add_node(Box::new(Switch::new()));
    let (mut ids, mut links) = (Vec::new(), Vec::new());
    for (number, (config, plan, link)) in hosts.into_iter().enumerate() {
        let seed = sim.derive_seed(77, number as u64);
        let id = sim.add_node(Box::new(Host::new(number, config, seed, plan)));
        links.push(sim.add_link(switch, id, link));
        ids.push(id);
    }
    Net {
        sim,
        switch,
        hosts: ids,
        links,
        prunes: false,
    }
}

impl Net {
    /// The receivers of host 0 that failed, each with the reason.
    pub(crate) fn failed(&self) -> Vec<(SocketAddr, Failure)> {
        let ends = self.host(0).ends.iter();
        ends.filter_map(|end| Some((end.0, end.1?))).collect()
    }

    pub(crate) fn host(&self, number: usize) -> &Host {
        self.sim.get::<Host>(self.hosts[number])
    }

    pub(crate) fn with<R>(
        &mut self,
        number: usize,
        act: impl FnOnce(&mut Host, Instant) -> R,
    ) -> R {
        self.sim
            .with::<Host, R>(self.hosts[number], |host, now, io| {
                let result = act(host, now);
                host.pump(now, io);
                result
            })
    }

    pub(crate) fn switch<R>(&mut self, act: impl FnOnce(&mut Switch) -> R) -> R {
        self.sim
            .with::<Switch, R>(self.switch, |switch, _, _| act(switch))
    }

    fn prune(&mut self) {
        let hosts = 1..self.hosts.len();
        let left = |number: &usize| {
            let host = self.host(*number);
            host.left_at.is_some() && host.joined.is_empty()
        };
        let left: Vec<u16> = hosts.filter(left).map(|number| number as u16).collect();
        self.switch(|switch| switch.left.extend(left));
    }

    /// Runs until the condition holds; says whether it did before `seconds` had passed.
    pub(crate) fn run(&mut self, seconds: i64, mut done: impl FnMut(&Net) -> bool) -> bool {
        let end = Instant::from_secs(seconds);
        while !done(self) {
            let next = self.sim.now() + Duration::from_millis(50);
            if next > end {
                return false;
            }
            self.sim.run_until(next);
            if self.prunes {
                self.prune();
            }
        }
        true
    }
}

/// A small configuration: short timers, modest buffers.
pub(crate) fn config() -> Config {
    let mut config = Config::default();
    config.receive_buffer = 256 << 10;
    config.send_buffer = 256 << 10;
    config.time_wait = Duration::from_secs(3600);
    config
}

/// Names the seed of a run that fails: `SEED=n cargo test ...` runs it alone.
pub(crate) struct Named(pub(crate) u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("failed with SEED={}", self.0);
        }
    }
}

/// A cheap generator for parameters of a run.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}
