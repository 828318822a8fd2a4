//! A data node in the simulated network, and its end of the native network.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use bfed::data::{DataEvent, Destination, EdgeId, HEADER_LEN, Meta, Transmit, Verdict};
use bfed::native::{ChannelId, Direction, NativeError, NativeFlow};
use bfed::wire::MAX_MESSAGE_LEN;
use bfed::{ConnId, DataConfig, DataNode, Instant, NativeNet, SessionName};
use netsim::ip::Datagram;
use netsim::{Io, Node, Port};

/// Room for the longest packet.
const PACKET_BYTES: usize = HEADER_LEN + (1 << 16);

/// A channel of the native network.
struct Channel {
    session: SessionName,
    /// Where it sends.
    address: Vec<u8>,
    /// Where it receives.
    listens: Option<Vec<u8>>,
}

/// One data node's end of its native network: broadcast among clients and gateways, without loss.
pub(super) struct Native {
    /// Begins each of its addresses.
    name: String,
    next: u64,
    channels: BTreeMap<ChannelId, Channel>,
    /// Sessions that the network does not have.
    missing: Vec<SessionName>,
    /// Frames sent, with their addresses.
    sent: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The address to which the source of a session sends in its own network.
pub(super) fn own_address(session: &SessionName, flow: &str) -> Vec<u8> {
    format!("own {session} {flow}").into_bytes()
}

impl Native {
    pub(super) fn new(name: String, missing: Vec<SessionName>) -> Self {
        Self {
            name,
            next: 0,
            channels: BTreeMap::new(),
            missing,
            sent: Vec::new(),
        }
    }

    /// The channels that receive what is sent to an address.
    pub(super) fn listeners(&self, address: &[u8]) -> Vec<ChannelId> {
        let all = self.channels.iter();
        let own = all.filter(|(_, channel)| channel.listens.as_deref() == Some(address));
        own.map(|(id, _)| *id).collect()
    }

    /// The sessions that have channels.
    pub(super) fn sessions(&self) -> BTreeSet<SessionName> {
        let all = self.channels.values();
        all.map(|channel| channel.session.clone()).collect()
    }
}

impl NativeNet for Native {
    fn allocate_channel(
        &mut self,
        _: Instant,
        flow: NativeFlow<'_>,
    ) -> Result<(ChannelId, Vec<u8>), NativeError> {
        if flow.direction == Direction::Up && self.missing.contains(flow.session) {
            return Err(NativeError::NoSession);
        }
        self.next += 1;
        let id = ChannelId(self.next);
        let address = format!("{} {}", self.name, self.next).into_bytes();
        let channel = Channel {
            session: flow.session.clone(),
            address: address.clone(),
            listens: None,
        };
        self.channels.insert(id, channel);
        Ok((id, address))
    }

    fn subscribe(
        &mut self,
        _: Instant,
        flow: NativeFlow<'_>,
        channel: ChannelId,
        address: Option<&[u8]>,
    ) -> Result<(), NativeError> {
        let open = self.channels.get_mut(&channel).expect("an open channel");
        if flow.direction == Direction::Up {
            // What comes from downstream goes where the source sends, or to the gateway upstream.
            let own = || own_address(flow.session, flow.name);
            open.address = address.map_or_else(own, <[u8]>::to_vec);
        }
        open.listens = Some(open.address.clone());
        Ok(())
    }

    fn reclaim_channel(&mut self, _: Instant, _: NativeFlow<'_>, channel: ChannelId) {
        self.channels.remove(&channel).expect("an open channel");
    }

    fn send_data(&mut self, _: Instant, id: ChannelId, data: &[u8]) -> Result<(), NativeError> {
        let channel = self.channels.get(&id).ok_or(NativeError::Refused)?;
        self.sent.push((channel.address.clone(), data.to_vec()));
        Ok(())
    }
}

/// What a data node asks of the world outside the network of datagrams.
pub(super) enum Output {
    /// A message for its control node.
    Control(Vec<u8>),
    /// The stream to its control node has ended for it.
    ControlLost,
    /// A packet on a stream.
    Packet(ConnId, EdgeId, Vec<u8>),
    /// Open a stream.
    Dial(EdgeId, SocketAddr),
    /// Close a stream.
    Close(ConnId),
    /// A frame for an address of its native network.
    Native(Vec<u8>, Vec<u8>),
}

/// A data node, or the place of one that has died.
pub(super) struct Host {
    pub(super) address: SocketAddrV4,
    /// The links to other data nodes.
    pub(super) ports: BTreeMap<Ipv4Addr, Port>,
    pub(super) node: Option<Box<DataNode<Native>>>,
    pub(super) is_frozen: bool,
    paused: BTreeSet<ChannelId>,
    waiting: VecDeque<(ChannelId, Vec<u8>)>,
    output: Vec<Output>,
    buffer: Vec<u8>,
}

impl Host {
    pub(super) fn new(address: SocketAddrV4) -> Self {
        Self {
            address,
            ports: BTreeMap::new(),
            node: None,
            is_frozen: false,
            paused: BTreeSet::new(),
            waiting: VecDeque::new(),
            output: Vec::new(),
            buffer: vec![0; PACKET_BYTES],
        }
    }

    /// Starts a data node without memory.
    pub(super) fn start(
        &mut self,
        mut config: DataConfig,
        native: Native,
        seed: [u8; 32],
        now: Instant,
    ) {
        config.datagram = Some(self.address.into());
        config.stream = Some(self.address.into());
        self.node = Some(Box::new(DataNode::new(config, Box::new(native), seed, now)));
        self.paused.clear();
        self.waiting.clear();
        self.output.clear();
    }

    /// Whether it does anything.
    pub(super) fn runs(&self) -> bool {
        self.node.is_some() && !self.is_frozen
    }

    /// Changes the node, then sends what it has to send. Returns what is left for the caller.
    pub(super) fn act(
        &mut self,
        now: Instant,
        io: &mut Io<'_>,
        change: impl FnOnce(&mut DataNode<Native>),
    ) -> Vec<Output> {
        if let Some(node) = self.node.as_mut().filter(|_| !self.is_frozen) {
            change(node);
        }
        self.pump(now, io);
        std::mem::take(&mut self.output)
    }

    /// A packet arrives on a stream.
    pub(super) fn packet(
        &mut self,
        now: Instant,
        io: &mut Io<'_>,
        meta: &Meta,
        bytes: &[u8],
    ) -> Vec<Output> {
        self.forward(now, io, meta, bytes);
        self.pump(now, io);
        std::mem::take(&mut self.output)
    }

    /// A frame arrives on a native channel.
    pub(super) fn frame(
        &mut self,
        now: Instant,
        io: &mut Io<'_>,
        channel: ChannelId,
        data: &[u8],
    ) -> Vec<Output> {
        self.waiting.push_back((channel, data.to_vec()));
        self.pump(now, io);
        std::mem::take(&mut self.output)
    }

    fn forward(&mut self, now: Instant, io: &mut Io<'_>, meta: &Meta, bytes: &[u8]) {
        let Some(node) = self.node.as_mut().filter(|_| !self.is_frozen) else {
            return;
        };
        let mut frame = bytes.to_vec();
        let mut copies = Vec::new();
        match node.plane().forward(now, meta, &mut frame) {
            Verdict::Only(copy) => copies.push((copy.clone(), frame[copy.range].to_vec())),
            Verdict::Forward(mut cursor) => {
                while let Some(copy) = node.plane().next_transmit(now, &mut cursor, &mut frame) {
                    let bytes = frame[copy.range.clone()].to_vec();
                    copies.push((copy, bytes));
                }
            }
            Verdict::Taken | Verdict::Drop(_) => {}
        }
        for (copy, bytes) in copies {
            self.send(now, io, &copy, &bytes);
        }
    }

    fn send(&mut self, now: Instant, io: &mut Io<'_>, copy: &Transmit, bytes: &[u8]) {
        match copy.to {
            Destination::Datagram(SocketAddr::V4(destination)) => {
                // A data node that is no neighbour cannot be reached.
                if let Some(&port) = self.ports.get(destination.ip()) {
                    let packet = Datagram {
                        source: self.address,
                        destination,
                        ttl: 64,
                        options: &[],
                        payload: bytes,
                    };
                    io.send(port, &packet.emit());
                }
            }
            // Data nodes without keys have no paths, and these networks no containers.
            Destination::Datagram(SocketAddr::V6(_))
            | Destination::Path(_)
            | Destination::NativeInit(_) => {}
            Destination::Stream(conn) => {
                self.output
                    .push(Output::Packet(conn, copy.edge, bytes.to_vec()));
            }
            Destination::Native(channel) => {
                if let Some(node) = &mut self.node {
                    // A channel that is gone takes nothing.
                    let _ = node.native_mut().send_data(now, channel, bytes);
                    let sent = std::mem::take(&mut node.native_mut().sent);
                    let sent = sent.into_iter();
                    self.output
                        .extend(sent.map(|(to, data)| Output::Native(to, data)));
                }
            }
        }
    }

    /// Everything that the node has to do now.
    fn pump(&mut self, now: Instant, io: &mut Io<'_>) {
        loop {
            let Some(node) = self.node.as_mut().filter(|_| !self.is_frozen) else {
                return;
            };
            let mut is_idle = true;
            while let Some(event) = node.poll_event() {
                is_idle = false;
                match event {
                    DataEvent::Dial { edge, to } => self.output.push(Output::Dial(edge, to)),
                    DataEvent::Close(conn) => self.output.push(Output::Close(conn)),
                    DataEvent::Pause(Destination::Native(channel)) => {
                        self.paused.insert(channel);
                    }
                    DataEvent::Resume(Destination::Native(channel)) => {
                        self.paused.remove(&channel);
                    }
                    // Streams are read as fast as they come.
                    DataEvent::Pause(_) | DataEvent::Resume(_) => {}
                    DataEvent::ControlLost => {
                        node.disconnected();
                        self.output.push(Output::ControlLost);
                    }
                }
            }
            let mut message = vec![0; MAX_MESSAGE_LEN];
            while let Some(len) = node.poll_transmit_control(&mut message) {
                is_idle = false;
                self.output.push(Output::Control(message[..len].to_vec()));
            }
            let mut buffer = std::mem::take(&mut self.buffer);
            while let Some(copy) = self
                .node
                .as_mut()
                .and_then(|node| node.plane().poll_transmit(now, &mut buffer))
            {
                is_idle = false;
                self.send(now, io, &copy, &buffer[copy.range.clone()]);
            }
            self.buffer = buffer;
            is_idle &= !self.read_native(now, io);
            if is_idle {
                break;
            }
        }
        if !self.output.is_empty() {
            io.stop();
        }
    }

    /// Forwards the next frame of the native network that is not paused.
    fn read_native(&mut self, now: Instant, io: &mut Io<'_>) -> bool {
        let mut waiting = self.waiting.iter();
        let next = waiting.position(|(channel, _)| !self.paused.contains(channel));
        let Some((channel, data)) = next.and_then(|at| self.waiting.remove(at)) else {
            return false;
        };
        let frame = [&[0; HEADER_LEN], &data[..]].concat();
        self.forward(now, io, &Meta::Native(channel), &frame);
        true
    }

    pub(super) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// What is left for the world after the simulator ran the node.
    pub(super) fn take_output(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.output)
    }
}

impl Node for Host {
    fn handle_packet(&mut self, now: Instant, _: Port, packet: &[u8], io: &mut Io<'_>) {
        // The kernel drops what is corrupted.
        if let Some(datagram) = Datagram::parse(packet)
            && datagram.destination == self.address
        {
            let meta = Meta::Datagram(datagram.source.into());
            self.forward(now, io, &meta, datagram.payload);
            self.pump(now, io);
        }
    }

    fn handle_timeout(&mut self, now: Instant, io: &mut Io<'_>) {
        if let Some(node) = self.node.as_mut().filter(|_| !self.is_frozen) {
            node.handle_timeout(now);
        }
        self.pump(now, io);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let node = self.node.as_ref().filter(|_| !self.is_frozen)?;
        node.poll_timeout()
    }
}
