//! A real data node with its driver: it dials the control nodes in turn, and its packets of data are those of one source.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bfed::data::{DataEvent, Destination, Meta, Verdict};
use bfed::native::Direction;
use bfed::wire::data::{Kind, Repr};
use bfed::wire::{MAX_MESSAGE_LEN, Message};
use bfed::*;
use netsim::explore::{Fingerprint, START};

use crate::cluster::CONTROLS;
use crate::gateway::SECOND;
use crate::native::FakeNative;

/// The number of the data node.
pub(crate) const NUMBER: NodeId = NodeId(1);
/// Time until it dials the next control node.
const RETRY: Duration = SECOND;
/// Where the packets come from.
const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 1, 1));

/// Fields of the data node that decide nothing: constant ones, and counters.
const SKIPPED: [&str; 3] = ["config", "reported_bytes", "sequence"];

pub(crate) struct Carrier {
    node: DataNode<FakeNative>,
    /// The stream to a control node.
    pub(crate) conn: Option<ConnId>,
    /// When the next control node is dialled.
    pub(crate) dial_at: Option<Instant>,
    turn: usize,
    /// The machine has given up the stream.
    pub(crate) is_lost: bool,
    /// Its channels to the source.
    channels: BTreeSet<ConnId>,
    dialled: u64,
    /// The highest epoch that it has obeyed.
    obeyed: u64,
    /// Where data of the source goes at present.
    pub(crate) delivers_to: BTreeSet<ChannelAddress>,
    buffer: Vec<u8>,
}

/// The epoch of a command.
fn epoch(message: &Message) -> Option<u64> {
    match message {
        Message::Heartbeat(heartbeat) => Some(heartbeat.epoch),
        Message::Allocate(request) => Some(request.epoch),
        Message::Subscribe(request) => Some(request.epoch),
        Message::Reclaim(reclaim) => Some(reclaim.epoch),
        _ => None,
    }
}

impl Carrier {
    pub(crate) fn new() -> Self {
        let mut config = DataConfig::new(NUMBER);
        config.stream = Some(SocketAddr::from(([10, 1, 1, 1], 4000)));
        config.soft_state_lifetime = SECOND * 6;
        config.heartbeat_interval = SECOND;
        config.statistics_interval = SECOND * 2;
        let native = Box::new(FakeNative::default());
        Carrier {
            node: DataNode::new(config, native, [7; 32], START),
            conn: None,
            // Once a control node is elected.
            dial_at: Some(START + Duration::from_millis(50)),
            turn: 0,
            is_lost: false,
            channels: BTreeSet::new(),
            dialled: 0,
            obeyed: 0,
            delivers_to: BTreeSet::new(),
            buffer: vec![0; MAX_MESSAGE_LEN],
        }
    }

    /// Returns the control node to dial.
    pub(crate) fn next_control(&mut self) -> usize {
        self.turn += 1;
        self.dial_at = None;
        (self.turn - 1) % CONTROLS
    }

    pub(crate) fn refused(&mut self, now: Instant) {
        self.dial_at = Some(now + RETRY);
    }

    pub(crate) fn connected(&mut self, now: Instant, conn: ConnId) {
        self.conn = Some(conn);
        self.node.connected(now);
    }

    pub(crate) fn disconnected(&mut self, now: Instant) {
        self.conn = None;
        self.node.disconnected();
        self.refused(now);
    }

    /// Handles a message of a control node.
    pub(crate) fn handle_message(&mut self, now: Instant, bytes: &[u8]) -> Result<(), String> {
        let message = Message::parse(bytes).expect("what is sent can be read");
        let obeys = self.node.handle_packet(now, &(), bytes).is_ok();
        let Some(epoch) = epoch(&message).filter(|_| obeys) else {
            return Ok(());
        };
        if epoch < self.obeyed {
            return Err(format!("epoch {epoch} is obeyed after {}", self.obeyed));
        }
        self.obeyed = epoch;
        Ok(())
    }

    /// Does what the machine asks for. Returns messages to the control node.
    pub(crate) fn drive(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        loop {
            self.node.handle_timeout(now);
            while let Some(event) = self.node.poll_event() {
                match event {
                    DataEvent::Dial { edge, .. } => {
                        self.dialled += 1;
                        let channel = ConnId(self.dialled);
                        if self.node.dialled(edge, channel) {
                            self.channels.insert(channel);
                        }
                    }
                    DataEvent::Close(channel) => drop(self.channels.remove(&channel)),
                    DataEvent::ControlLost => self.is_lost = true,
                    DataEvent::Pause(_) | DataEvent::Resume(_) => {}
                }
            }
            while let Some(len) = self.node.poll_transmit_control(&mut self.buffer) {
                messages.push(self.buffer[..len].to_vec());
            }
            // The neighbour answers no PROBE, so that it is never judged.
            let plane = self.node.plane();
            while plane.poll_transmit(now, &mut self.buffer).is_some() {}
            if self.node.poll_timeout().is_none_or(|at| at > now) {
                return messages;
            }
        }
    }

    /// Finds out where a packet of the source with this label would go now.
    pub(crate) fn probe(&mut self, now: Instant, label: Option<FlowLabel>) {
        self.delivers_to.clear();
        let Some(label) = label else {
            return;
        };
        let repr = Repr::new(Kind::Data, label);
        for &channel in &self.channels {
            let mut frame = vec![0; repr.buffer_len()];
            repr.emit(&mut frame);
            let meta = Meta::Stream(channel, SOURCE);
            let plane = self.node.plane();
            let mut copies = Vec::new();
            match plane.forward(now, &meta, &mut frame) {
                Verdict::Only(copy) => copies.push(copy),
                Verdict::Forward(mut cursor) => {
                    while let Some(copy) = plane.next_transmit(now, &mut cursor, &mut frame) {
                        copies.push(copy);
                    }
                }
                Verdict::Taken | Verdict::Drop(_) => {}
            }
            for copy in copies {
                let Destination::Native(to) = copy.to else {
                    continue;
                };
                if let Some((_, _, Direction::Down, _)) = self.node.native().open.get(&to) {
                    let address = format!("239.0.0.{}", to.0).into_bytes();
                    self.delivers_to.insert(ChannelAddress::Native(address));
                }
            }
        }
    }

    /// What it has: sessions, edges, native channels.
    pub(crate) fn counts(&mut self) -> [usize; 3] {
        let edges = self.node.plane().edge_count();
        [
            self.node.session_count(),
            edges,
            self.node.native().open.len(),
        ]
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let times = [self.node.poll_timeout(), self.dial_at];
        times.into_iter().flatten().min()
    }

    pub(crate) fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        fingerprint.debug_without(&self.node, &SKIPPED);
        fingerprint.debug(&self.node.native().open);
        // The plane decides what a packet does, and when it probes its neighbour.
        fingerprint.hash(&(self.node.poll_timeout(), &self.channels, self.dialled));
        fingerprint.hash(&(self.conn, self.dial_at, self.turn % CONTROLS, self.is_lost));
        fingerprint.hash(&(self.obeyed, &self.delivers_to));
    }
}
