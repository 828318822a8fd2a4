//! A data node with a native network that records requests.

use bfed::data::{DataEvent, Destination, Meta, Transmit, Verdict};
use bfed::native::ChannelId;
use bfed::wire::allocate::{Outcome, Request, Response};
use bfed::wire::data::{HEADER_LEN, Kind, Packet, Repr};
use bfed::wire::join::FlowChannel;
use bfed::wire::reclaim::{ReclaimTarget, Repr as Reclaim};
use bfed::wire::subscribe::{Edge, Repr as Subscribe};
use bfed::wire::transport::Transport;
use bfed::wire::{MAX_MESSAGE_LEN, Message};
use bfed::*;

use crate::native::FakeNative;

/// A packet that was sent.
pub(crate) type Sent = (Destination, Vec<u8>);

/// A data node, its network, and the packets that it sent.
pub(crate) struct Station {
    pub(crate) node: DataNode<FakeNative>,
    pub(crate) now: Instant,
    pub(crate) address: std::net::SocketAddr,
    requests: u32,
    /// The edge that the native network took nothing on lately.
    pub(crate) last_blocked: Option<data::EdgeId>,
}

pub(crate) const PEER: Edge = Edge::Peer {
    peer: PeerId(1),
    rate_bps: 0,
};
pub(crate) const OTHER: Edge = Edge::Peer {
    peer: PeerId(2),
    rate_bps: 0,
};

impl Station {
    pub(crate) fn new(number: u8) -> Self {
        Self::with(number, |_| ())
    }

    pub(crate) fn with(number: u8, change: impl FnOnce(&mut DataConfig)) -> Self {
        let now = Instant::from_secs(100);
        let mut config = DataConfig::new(NodeId(number.into()));
        let address = ([10, 0, 0, number], 4000).into();
        config.datagram = Some(address);
        config.stream = Some(address);
        // Most tests have no node at the other end that would answer.
        config.plane.init_wait = Duration::ZERO;
        change(&mut config);
        let mut node = DataNode::new(config, Box::new(FakeNative::default()), [number; 32], now);
        node.connected(now);
        let mut buffer = vec![0; MAX_MESSAGE_LEN];
        while node.poll_transmit_control(&mut buffer).is_some() {}
        Station {
            node,
            now,
            address,
            requests: 0,
            last_blocked: None,
        }
    }

    pub(crate) fn native(&mut self) -> &mut FakeNative {
        self.node.native_mut()
    }

    pub(crate) fn receive(&mut self, message: &Message) -> Result<(), data::DataError> {
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        self.node.handle_packet(self.now, &(), &bytes)
    }

    pub(crate) fn sent(&mut self) -> Vec<Message> {
        let mut buffer = vec![0; MAX_MESSAGE_LEN];
        let mut sent = vec![];
        while let Some(len) = self.node.poll_transmit_control(&mut buffer) {
            sent.push(Message::parse(&buffer[..len]).unwrap());
        }
        sent
    }

    fn response(&mut self, message: Message) -> Response {
        self.receive(&message).unwrap();
        match self.sent().pop() {
            Some(Message::AllocateResponse(response)) => {
                assert_eq!(response.request, self.requests);
                response
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn subscribe(
        &mut self,
        up: bool,
        name: &str,
        edge: Edge,
        flows: &[FlowChannel],
    ) -> Result<Vec<FlowChannel>, Outcome> {
        self.requests += 1;
        let (request, flows) = (self.requests, flows.to_vec());
        let session = SessionName::parse(name).unwrap();
        let subscribe = Subscribe {
            up,
            request,
            epoch: 1,
            edge,
            flows,
            session,
        };
        let response = self.response(Message::Subscribe(subscribe));
        match response.outcome {
            Outcome::Done => Ok(response.flows),
            refused => Err(refused),
        }
    }

    pub(crate) fn allocate(&mut self, name: &str, edge: Edge) -> Vec<FlowChannel> {
        self.allocate_over(Transport::Plain, name, edge).flows
    }

    pub(crate) fn allocate_over(
        &mut self,
        transport: Transport,
        name: &str,
        edge: Edge,
    ) -> Response {
        self.requests += 1;
        let session = SessionName::parse(name).unwrap();
        let request = Request {
            request: self.requests,
            epoch: 1,
            edge,
            transport,
            session,
        };
        self.response(Message::Allocate(request))
    }

    pub(crate) fn reclaim(&mut self, name: &str, what: Option<ReclaimTarget>) {
        let session = SessionName::parse(name).unwrap();
        self.receive(&Message::Reclaim(Reclaim {
            epoch: 1,
            what,
            session,
        }))
        .unwrap();
    }

    /// A packet arrives; what goes out at once.
    pub(crate) fn packet(&mut self, meta: Meta, mut frame: Vec<u8>) -> Result<Vec<Sent>, Verdict> {
        let mut sent = vec![];
        match self.node.plane().forward(self.now, &meta, &mut frame) {
            Verdict::Only(copy) => {
                self.send(&copy, &frame, &mut sent);
                Ok(sent)
            }
            Verdict::Forward(mut cursor) => {
                while let Some(copy) =
                    self.node
                        .plane()
                        .next_transmit(self.now, &mut cursor, &mut frame)
                {
                    self.send(&copy, &frame, &mut sent);
                }
                Ok(sent)
            }
            verdict => Err(verdict),
        }
    }

    fn send(&mut self, copy: &Transmit, frame: &[u8], sent: &mut Vec<Sent>) {
        let bytes = &frame[copy.range.clone()];
        if let Destination::Native(channel) = copy.to
            && self
                .node
                .native_mut()
                .send_data(self.now, channel, bytes)
                .is_err()
        {
            self.node.plane().blocked(copy.edge);
            self.last_blocked = Some(copy.edge);
            return;
        }
        sent.push((copy.to, bytes.to_vec()));
    }

    /// The address of an edge with that label proves that it receives packets sent there.
    pub(crate) fn prove(&mut self, from: std::net::SocketAddr, label: FlowLabel) {
        let mut cookie = 0;
        for _ in 0..2 {
            let repr = Repr {
                sequence: 1,
                ..Repr::new(Kind::Probe, label).with_cookie(cookie)
            };
            let mut probe = vec![0; repr.buffer_len()];
            repr.emit(&mut probe);
            let taken = self.packet(Meta::Datagram(from), probe);
            assert!(matches!(taken, Err(Verdict::Taken)));
            let mut buffer = vec![0; 70_000];
            let echo = self.node.plane().poll_transmit(self.now, &mut buffer);
            let echo = Packet::new_checked(&buffer[echo.unwrap().range]).unwrap();
            assert_eq!(echo.kind(), Kind::Echo);
            cookie = echo.cookie();
        }
    }

    /// Data of the native network.
    pub(crate) fn native_data(&mut self, channel: u64, data: &[u8]) -> Result<Vec<Sent>, Verdict> {
        let frame = [&[0; HEADER_LEN], data].concat();
        self.packet(Meta::Native(ChannelId(channel)), frame)
    }

    /// What waited and may go.
    pub(crate) fn drain(&mut self) -> Vec<Sent> {
        let mut buffer = vec![0; 70_000];
        let mut sent = vec![];
        while let Some(copy) = self.node.plane().poll_transmit(self.now, &mut buffer) {
            self.send(&copy, &buffer, &mut sent);
        }
        sent
    }

    /// What the driver has to do; that control is silent in most tests is left out.
    pub(crate) fn events(&mut self) -> Vec<DataEvent> {
        let mut events = self.all_events();
        events.retain(|event| *event != DataEvent::ControlLost);
        events
    }

    pub(crate) fn all_events(&mut self) -> Vec<DataEvent> {
        std::iter::from_fn(|| self.node.poll_event()).collect()
    }

    pub(crate) fn wait(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
        self.node.handle_timeout(self.now);
    }
}

/// What waits at either is carried to the other, three times: their addresses are proved then.
pub(crate) fn introduce(one: &mut Station, other: &mut Station) {
    for _ in 0..3 {
        carry(one, other);
        carry(other, one);
    }
}

fn carry(from: &mut Station, at: &mut Station) {
    let to = Destination::Datagram(at.address);
    for (_, bytes) in from.drain().into_iter().filter(|sent| sent.0 == to) {
        let _ = at.packet(Meta::Datagram(from.address), bytes);
    }
}

pub(crate) fn payload(sent: &Sent) -> &[u8] {
    match sent.0 {
        Destination::Native(_) | Destination::NativeInit(_) => &sent.1,
        _ => &sent.1[HEADER_LEN..],
    }
}
