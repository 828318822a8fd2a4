//! The tree, its machines, and what holds in each state and at the end.
//!
//! ```text
//! sender -- relay --+-- receiver 2
//!                   +-- receiver 3
//!                   +-- receiver 4
//! ```
//!
//! The relay asks receiver 2 first. Packets by unicast between the receivers and the sender do not go through the relay.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;

use dyram::storage::{Limits, Storage};
use dyram::wire::{Body, Nack, Packet as View, Repr, Service};
use dyram::{Carriage, Config, Relay, RelayId, Seq, SessionInfo, SessionKey, Verdict, packets};
use ltp::wire::Header;
use ltp::{Assist, Destination, Duration, Instant, Meta, relayed};
use netsim::explore::{Fingerprint, Nodes, Outbox, START};

use crate::group::{self, Application, Memory, PACKETS, READER, address, group, node_at};

pub(crate) const SENDER: usize = 0;
pub(crate) const RELAY: usize = 1;
/// The receiver that the relay asks first.
pub(crate) const REPLIER: usize = 2;
const COUNT: usize = 5;
const RECEIVERS: [usize; 3] = [REPLIER, 3, 4];

/// Time between two JOINs of a child.
const REFRESH: Duration = Duration::from_millis(500);
/// A silent child is removed at the first refresh after it has missed three. The clock of children has steps of a
/// sixteenth of a refresh.
const REMOVED_WITHIN: Duration = Duration::from_millis(500 * 4 + 500 / 16);
/// How long the relay waits for an answer at least.
const HOLD: Duration = Duration::from_millis(5);
/// The parent is asked six times, and each wait is twice as long as the one before.
const RECOVERED_WITHIN: Duration = Duration::from_secs(1);

/// What varies between the worlds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// Receivers report to the sender, which waits for them.
    pub(crate) has_reports: bool,
    /// IP multicast carries the data, and the relay serves recovery beside it.
    pub(crate) is_over_multicast: bool,
    /// Nodes of which one may die.
    pub(crate) deaths: &'static [usize],
    /// Receivers of which one may leave.
    pub(crate) leaves: &'static [usize],
    /// The relay may start again without its state.
    pub(crate) restarts: bool,
    /// Packets that are lost on the way to a node the first time.
    pub(crate) lost: &'static [(usize, u32)],
}

impl Setup {
    /// Nothing happens, and receivers do not report.
    pub(crate) const NOTHING: Setup = Setup {
        has_reports: false,
        is_over_multicast: false,
        deaths: &[],
        leaves: &[],
        restarts: false,
        lost: &[],
    };

    fn is_lost(&self, to: usize, packet: &[u8]) -> bool {
        let Ok(packet) = View::new_checked(packet) else {
            return false;
        };
        packet.service() == Service::Data && self.lost.contains(&(to, packet.sequence().0))
    }
}

fn key() -> SessionKey {
    SessionKey::new(address(SENDER).ip(), group().ip()).expect("one address family")
}

fn relays() -> relayed::Parents {
    [address(RELAY)].into_iter().collect()
}

fn sender(setup: Setup) -> relayed::Sender<'static, Memory> {
    let mut config = group::sender_config(setup.has_reports);
    // The group's, the relay's and those of receivers.
    config.limits.targets = 5;
    let (sender, source) = (group::sender(config), address(SENDER));
    let sender = relayed::Sender::new(sender, source, group().ip(), relays(), [2; 32], START);
    let sender = sender.expect("one address family");
    match setup.is_over_multicast {
        true => sender.over_multicast(),
        false => sender,
    }
}

fn receiver(node: usize) -> relayed::Receiver<'static, Memory> {
    let source = address(SENDER).ip();
    let mut config = group::receiver_config(node);
    config.assist = Assist::Dyram;
    config.source = Some(source);
    let (receiver, seed) = (group::receiver(node, config), [20 + node as u8; 32]);
    relayed::Receiver::new(receiver, source, group().ip(), relays(), seed, START)
        .expect("one address family")
}

fn relay(setup: Setup, seed: u8, now: Instant) -> Relay<'static> {
    let mut config = Config::new(RelayId(1));
    config.refresh = REFRESH;
    config.hold_min = HOLD;
    // Acknowledgements go up while packets are missing.
    config.ack_interval = Duration::from_millis(2);
    if setup.is_over_multicast {
        config.carriage = Carriage::Multicast;
    }
    let limits = Limits {
        sessions: 1,
        children: RECEIVERS.len(),
        nack_states: PACKETS,
        window: 64,
    };
    let storage = Storage::owned(limits).expect("sizes of tables");
    Relay::new(config, storage, [seed; 32], now).expect("the configuration is right")
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Packet {
    from: usize,
    /// It was sent to the group.
    is_group: bool,
    bytes: Vec<u8>,
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Packet { from, bytes, .. } = self;
        write!(f, "from {from}, ")?;
        let Ok(view) = View::new_checked(&bytes[..]) else {
            let header = Header::parse(bytes).expect("what is sent can be read");
            return write!(f, "plain {:?}", header.kind);
        };
        match Repr::parse(&view) {
            Repr {
                sequence,
                body: Body::Data(_) | Body::Repair(_) | Body::Cast(_),
                ..
            } => write!(f, "{:?} {}", view.service(), sequence.0),
            Repr { sequence, body, .. } => write!(f, "{body:?} {}", sequence.0),
        }
    }
}

/// What happens to nodes; one of it in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum Change {
    Death(usize),
    Leave(usize),
    /// The relay starts again without its state.
    Restart,
}

/// What the relay has done for packets, as far as a neighbour sees it.
#[derive(Default, Debug)]
struct Recoveries {
    /// Packets that a receiver has requested, or said that it lacks, and that were not sent to it since.
    lacking: BTreeSet<(u32, usize)>,
    /// The receiver that was asked for a packet and has not answered, and when.
    asked: BTreeMap<u32, (usize, Instant)>,
    violation: Option<String>,
}

impl Recoveries {
    /// A receiver lacks these packets, so it will not repair them.
    fn lacks(&mut self, node: usize, sequences: impl Iterator<Item = Seq>) {
        for Seq(sequence) in sequences {
            self.lacking.insert((sequence, node));
            self.answered(node, sequence);
        }
    }

    fn answered(&mut self, node: usize, sequence: u32) {
        if self
            .asked
            .get(&sequence)
            .is_some_and(|&(asked, _)| asked == node)
        {
            self.asked.remove(&sequence);
        }
    }

    /// The relay takes a packet of a receiver.
    fn taken(&mut self, from: usize, newest: Option<Seq>, packet: &Repr<'_>) {
        let first = packet.sequence;
        // It records nothing about packets that it does not know of.
        let is_known = |seq: &Seq| newest.is_none_or(|newest| !newest.before(*seq));
        match packet.body {
            Body::Nack(Nack { mask, .. }) | Body::Absent(mask) => {
                self.lacks(from, packets(first, mask).filter(is_known));
            }
            Body::Repair(_) => self.answered(from, first.0),
            _ => {}
        }
    }

    /// The relay sends a packet.
    fn sent(&mut self, now: Instant, to: usize, packet: &Repr<'_>) {
        let first = packet.sequence;
        match packet.body {
            Body::Data(_) | Body::Repair(_) => {
                self.lacking.remove(&(first.0, to));
            }
            Body::Nack(Nack { mask, .. }) => {
                for Seq(sequence) in packets(first, mask) {
                    self.asks(now, to, sequence);
                }
            }
            _ => {}
        }
    }

    fn asks(&mut self, now: Instant, to: usize, sequence: u32) {
        if self.lacking.contains(&(sequence, to)) {
            let what = format!("receiver {to} is asked for packet {sequence}, which it lacks");
            self.violation = Some(what);
        }
        let before = self.asked.remove(&sequence);
        if let Some((other, at)) = before
            && other != to
            && now < at + HOLD
        {
            let what = format!("{other} and {to} are asked for packet {sequence} at once");
            self.violation = Some(what);
        }
        // The sender answers for all receivers: repairs of it may come at any time.
        if to != SENDER {
            self.asked.insert(sequence, (to, now));
        }
    }
}

pub(crate) struct Tree {
    setup: Setup,
    sender: relayed::Sender<'static, Memory>,
    relay: Relay<'static>,
    receivers: [relayed::Receiver<'static, Memory>; 3],
    applications: [Application; 3],
    recoveries: Recoveries,
    changed: Option<Change>,
}

impl Tree {
    pub(crate) fn new(setup: Setup) -> Self {
        Tree {
            setup,
            sender: sender(setup),
            relay: relay(setup, 30, START),
            receivers: RECEIVERS.map(receiver),
            applications: RECEIVERS.map(|_| Application::default()),
            recoveries: Recoveries::default(),
            changed: None,
        }
    }

    fn receiver(&self, node: usize) -> &relayed::Receiver<'static, Memory> {
        &self.receivers[node - REPLIER]
    }

    /// Sends a packet, unless it is lost.
    fn send(&self, out: &mut Outbox<Packet>, from: usize, to: Destination, bytes: &[u8]) {
        let mut send = |to, is_group| {
            let bytes = bytes.to_vec();
            if !self.setup.is_lost(to, &bytes) {
                out.send(
                    to,
                    Packet {
                        from,
                        is_group,
                        bytes,
                    },
                );
            }
        };
        match to {
            Destination::Unicast(to) => send(node_at(to), false),
            Destination::Group => (RELAY..COUNT).for_each(|to| send(to, true)),
            other => panic!("a node of a tree never sends {other:?}"),
        }
    }

    fn drain_sender(&mut self, now: Instant, out: &mut Outbox<Packet>) {
        let mut buffer = [0; 2048];
        while let Some(transmit) = self.sender.poll_transmit(now, &mut buffer) {
            self.send(out, SENDER, transmit.destination, &buffer[..transmit.len]);
        }
        while self.sender.poll_event().is_some() {}
    }

    fn drain_relay(&mut self, now: Instant, out: &mut Outbox<Packet>) {
        let mut buffer = [0; 2048];
        while let Some(transmit) = self.relay.poll_transmit(now, &mut buffer) {
            self.send_from_relay(now, out, transmit.destination, &buffer[..transmit.len]);
        }
        while self.relay.poll_event().is_some() {}
    }

    fn send_from_relay(
        &mut self,
        now: Instant,
        out: &mut Outbox<Packet>,
        to: SocketAddr,
        bytes: &[u8],
    ) {
        let packet = Repr::parse(&View::new_checked(bytes).expect("what is sent can be read"));
        self.recoveries.sent(now, node_at(to), &packet);
        self.send(out, RELAY, Destination::Unicast(to), bytes);
    }

    fn drain_receiver(&mut self, now: Instant, node: usize, out: &mut Outbox<Packet>) {
        let receiver = &mut self.receivers[node - REPLIER];
        let application = &mut self.applications[node - REPLIER];
        if node == READER {
            application.read_from(now, receiver.receiver_mut());
        }
        let mut packets = Vec::new();
        let mut buffer = [0; 2048];
        while let Some(transmit) = receiver.poll_transmit(now, &mut buffer) {
            packets.push((transmit.destination, buffer[..transmit.len].to_vec()));
        }
        while let Some(event) = receiver.poll_event() {
            if let relayed::ReceiverEvent::Receiver(event) = event {
                application.take(&event);
            }
        }
        for (to, bytes) in packets {
            self.send(out, node, to, &bytes);
        }
    }

    /// Hands a packet to the relay.
    fn relay_packet(&mut self, now: Instant, packet: &Packet, out: &mut Outbox<Packet>) {
        let mut bytes = packet.bytes.clone();
        let meta = dyram::Meta {
            source: address(packet.from),
            group: packet.is_group,
        };
        let newest = self.session().and_then(|session| session.newest);
        match self.relay.forward(now, &meta, &mut bytes) {
            Verdict::Drop(_) => return,
            Verdict::Done => {}
            Verdict::Send(fanout) => {
                let targets: Vec<_> = self.relay.targets(&fanout).collect();
                for to in targets {
                    self.send_from_relay(now, out, to, &bytes);
                }
            }
        }
        if RECEIVERS.contains(&packet.from) {
            let view = View::new_checked(&packet.bytes[..]).expect("the relay has read it");
            let packet_taken = Repr::parse(&view);
            self.recoveries.taken(packet.from, newest, &packet_taken);
        }
        self.drain_relay(now, out);
    }

    fn session(&self) -> Option<SessionInfo> {
        self.relay.sessions().next()
    }

    fn is_over(&self, node: usize) -> bool {
        match node {
            _ if !self.is_alive(node) => true,
            SENDER => self.sender.sender().is_ended(),
            // It ends with the last child.
            RELAY => true,
            node => self.receiver(node).receiver().is_finished(),
        }
    }

    /// What the relay acknowledges, all receivers have that it waits for.
    fn check_acks(&self) -> Result<(), String> {
        let children: Vec<_> = self.relay.children(&key()).collect();
        let Some(session) = self.session() else {
            return Ok(());
        };
        if children.len() != usize::from(session.children) || children.len() > RECEIVERS.len() {
            return Err(format!("{} children, {session:?}", children.len()));
        }
        for child in children {
            let node = node_at(child.address);
            if !self.is_alive(node) || child.acknowledged.is_none() {
                continue;
            }
            let has = self.receiver(node).receiver().acknowledged().map(Seq);
            let beyond =
                |ack: Option<Seq>| ack.is_some_and(|ack| has.is_none_or(|has| has.before(ack)));
            if beyond(child.acknowledged) || !child.stalled && beyond(session.acknowledged) {
                return Err(format!(
                    "receiver {node} has {has:?}: {child:?}, {session:?}"
                ));
            }
        }
        Ok(())
    }

    /// The relay forgets a session whose source and receivers are silent.
    fn check_relay_end(&mut self, now: Instant) -> Result<(), String> {
        self.run_relay(now + RECOVERED_WITHIN);
        // The only public trace of a recovery.
        let shown = format!("{:?}", self.relay);
        let states = shown.matches("phase: ").count();
        if states != shown.matches("phase: Free").count() {
            return Err(format!("a recovery has not ended: {shown}"));
        }
        self.run_relay(now + REMOVED_WITHIN);
        if let Some(session) = self.session() {
            let children: Vec<_> = self.relay.children(&key()).collect();
            return Err(format!("the relay keeps {session:?} of {children:?}"));
        }
        match self.relay.poll_timeout() {
            Some(at) => Err(format!("the relay has no session, and a timer at {at}")),
            None => Ok(()),
        }
    }

    /// Lets the relay alone until then; what it sends is lost.
    fn run_relay(&mut self, end: Instant) {
        let mut buffer = [0; 256];
        while let Some(at) = self.relay.poll_timeout().filter(|&at| at <= end) {
            self.relay.handle_timeout(at);
            while self.relay.poll_transmit(at, &mut buffer).is_some() {}
        }
    }
}

impl Nodes for Tree {
    type Packet = Packet;
    type Command = Change;

    fn count(&self) -> usize {
        COUNT
    }

    fn is_alive(&self, node: usize) -> bool {
        !matches!(self.changed, Some(Change::Death(gone) | Change::Leave(gone)) if gone == node)
    }

    fn handle_packet(
        &mut self,
        now: Instant,
        node: usize,
        packet: &Packet,
        out: &mut Outbox<Packet>,
    ) {
        let source = address(packet.from);
        let meta = match packet.is_group {
            true => Meta::group(source),
            false => Meta::unicast(source),
        };
        // What is refused is counted.
        match node {
            SENDER => {
                let _ = self.sender.handle_packet(now, &meta, &packet.bytes);
                self.drain_sender(now, out);
            }
            RELAY => self.relay_packet(now, packet, out),
            node => {
                let receiver = &mut self.receivers[node - REPLIER];
                let _ = receiver.handle_packet(now, &meta, &packet.bytes);
                self.drain_receiver(now, node, out);
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant, node: usize, out: &mut Outbox<Packet>) {
        match node {
            SENDER => {
                self.sender.handle_timeout(now);
                self.drain_sender(now, out);
            }
            RELAY => {
                self.relay.handle_timeout(now);
                self.drain_relay(now, out);
            }
            node => {
                self.receivers[node - REPLIER].handle_timeout(now);
                self.drain_receiver(now, node, out);
            }
        }
    }

    fn poll_timeout(&self, node: usize) -> Option<Instant> {
        match node {
            SENDER => self.sender.poll_timeout(),
            RELAY => self.relay.poll_timeout(),
            node => self.receiver(node).poll_timeout(),
        }
    }

    fn commands(&self, commands: &mut Vec<Change>) {
        if self.changed.is_none() {
            let Setup {
                deaths,
                leaves,
                restarts,
                ..
            } = self.setup;
            commands.extend(deaths.iter().map(|&node| Change::Death(node)));
            commands.extend(leaves.iter().map(|&node| Change::Leave(node)));
            commands.extend(restarts.then_some(Change::Restart));
        }
    }

    fn command(&mut self, now: Instant, change: &Change, out: &mut Outbox<Packet>) {
        self.changed = Some(*change);
        match *change {
            Change::Death(_) => {}
            Change::Leave(node) => {
                let mut buffer = [0; 256];
                let leave = self.receivers[node - REPLIER].leave(&mut buffer);
                if let Some(transmit) = leave {
                    self.send(out, node, transmit.destination, &buffer[..transmit.len]);
                }
            }
            Change::Restart => {
                self.relay = relay(self.setup, 40, now);
                self.recoveries = Recoveries::default();
            }
        }
    }

    fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        fingerprint.hash(&self.changed);
        let skipped = ["stats", "config"];
        if self.is_alive(SENDER) {
            fingerprint.debug_without(&self.sender, &skipped);
        }
        if self.is_alive(RELAY) {
            fingerprint.debug_without(&self.relay, &skipped);
            fingerprint.hash(&(&self.recoveries.lacking, &self.recoveries.asked));
        }
        for node in RECEIVERS.into_iter().filter(|&node| self.is_alive(node)) {
            let receiver = self.receiver(node);
            fingerprint.debug_without(receiver, &skipped);
            fingerprint.hash(receiver.receiver().store().0.as_bytes());
            fingerprint.hash(&self.applications[node - REPLIER]);
        }
    }

    fn check(&self, _now: Instant) -> Result<(), String> {
        if let Some(violation) = &self.recoveries.violation {
            return Err(violation.clone());
        }
        for node in RECEIVERS {
            let application = &self.applications[node - REPLIER];
            application.check(node, self.receiver(node).receiver())?;
        }
        if self.is_alive(RELAY) {
            self.check_acks()?;
        }
        Ok(())
    }

    fn has_ended(&self) -> bool {
        (0..COUNT).all(|node| self.is_over(node))
    }

    fn check_end(&mut self, now: Instant) -> Result<(), String> {
        if let Some(node) = (0..COUNT).find(|&node| !self.is_over(node)) {
            return Err(format!("node {node} has not ended"));
        }
        let digest = self.sender.sender().digest();
        // Without a source or a relay that live a named failure is right too.
        let may_fail = !self.is_alive(SENDER) || !self.is_alive(RELAY);
        for node in RECEIVERS.into_iter().filter(|&node| self.is_alive(node)) {
            self.applications[node - REPLIER].check_end(node, digest, may_fail)?;
        }
        if self.is_alive(RELAY) {
            self.check_relay_end(now)?;
        }
        Ok(())
    }
}
