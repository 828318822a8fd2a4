//! The group: what happens to it, and what holds in each state and at the end.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;

use netsim::explore::{Fingerprint, Nodes, Outbox, START};
use tcpxm::wire::Segment;
use tcpxm::{Duration, Error, GroupMode, Instant, Meta, Mode, Seq, SynNumber, Transmit};

use crate::hosts::{MULTICAST, Receiver, SEGMENT, Sender, WINDOW, address, node_at};
use crate::modes::{Reception, Sent, Span, check_copies};

pub(crate) const SENDER: usize = 0;
const RECEIVERS: [usize; 2] = [1, 2];
/// The most segments that a host sends in one call.
const MAX_SENT: u32 = 1_000;

/// What varies between the worlds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) mode: GroupMode,
    /// Bytes that the sender begins with.
    pub(crate) first: u64,
    /// Bytes that its store has space for.
    pub(crate) capacity: u64,
    /// Nothing is added to the first bytes ([`Change::More`]).
    pub(crate) is_whole: bool,
    /// A receiver to which packets take no time at all, and are not lost.
    pub(crate) near: Option<usize>,
    /// A receiver that answers without the group.
    pub(crate) refusing: Option<usize>,
    /// When an idle receiver asks whether the sender lives.
    pub(crate) keep_alive: Option<Duration>,
    /// Nodes of which one may die.
    pub(crate) deaths: &'static [usize],
    /// Whether it may start again, without its memory.
    pub(crate) restarts: bool,
    /// Receivers that multicast may stop to reach, and how often.
    pub(crate) failing: (&'static [usize], u32),
}

impl Setup {
    /// One segment by unicast, and nothing happens.
    pub(crate) const UNICAST: Setup = Setup {
        mode: GroupMode::Unicast,
        first: SEGMENT,
        capacity: 1 << 20,
        is_whole: true,
        near: None,
        refusing: None,
        keep_alive: None,
        deaths: &[],
        restarts: false,
        failing: (&[], 0),
    };

    /// By multicast as well.
    pub(crate) const AUTO: Setup = Setup {
        mode: GroupMode::Auto,
        ..Setup::UNICAST
    };

    /// By multicast alone.
    pub(crate) const MULTICAST: Setup = Setup {
        mode: GroupMode::Multicast,
        ..Setup::UNICAST
    };

    /// A group that sent this many segments before, and goes on with others.
    pub(crate) const fn after(self, segments: u64) -> Setup {
        Setup {
            first: segments * SEGMENT,
            is_whole: false,
            ..self
        }
    }

    /// The second receiver is at the sender's side.
    pub(crate) const fn beside(self) -> Setup {
        Setup {
            near: Some(2),
            ..self
        }
    }
}

/// Something that happens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// Multicast does not reach this receiver any more.
    Fail(usize),
    /// It does again.
    Return(usize),
    /// The node dies.
    Death(usize),
    /// It starts again.
    Restart(usize),
    /// The application has this many segments more.
    More(u64),
    /// It has this many segments more, and no others.
    Last(u64),
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Packet {
    from: usize,
    is_multicast: bool,
    bytes: Vec<u8>,
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let segment = Segment::parse(&self.bytes).expect("what is sent can be read");
        let way = if self.is_multicast { " multicast" } else { "" };
        write!(f, "from {}{way}", self.from)?;
        let flags = segment.flags;
        let names = [
            (flags.syn, " SYN"),
            (flags.fin, " FIN"),
            (flags.rst, " RST"),
        ];
        for (_, name) in names.iter().filter(|(is_set, _)| *is_set) {
            f.write_str(name)?;
        }
        write!(f, " {}+{}", segment.seq, segment.payload.len())?;
        if flags.ack && !self.is_multicast {
            write!(f, " ack {} window {}", segment.ack, segment.window)?;
        }
        if let Some(feedback) = segment.options.feedback {
            write!(f, " feedback {}", feedback.percent)?;
        }
        let sack = segment.options.sack.as_slice();
        if sack.is_empty() {
            Ok(())
        } else {
            write!(f, " sack {sack:?}")
        }
    }
}

pub(crate) struct Group {
    setup: Setup,
    sender: Sender,
    receivers: [Receiver; 2],
    receptions: [Reception; 2],
    /// Whether multicast reaches each receiver.
    is_reached: [bool; 2],
    /// How often it stopped to.
    failed: u32,
    /// The node that has died, and whether it runs again.
    dead: Option<(usize, bool)>,
    is_last: bool,
    /// Sequence number of the sender's SYN, and the end of the data that it has sent.
    iss: Seq,
    sent: u64,
    /// Packets from and to the near receiver.
    near: VecDeque<(usize, Packet)>,
    violation: Option<String>,
}

impl Group {
    pub(crate) fn new(setup: Setup) -> Self {
        Group {
            setup,
            sender: Sender::new(&setup, RECEIVERS.len()),
            receivers: RECEIVERS.map(|node| Receiver::new(START, &setup, node, 10 + node as u8)),
            receptions: Default::default(),
            is_reached: [true; 2],
            failed: 0,
            dead: None,
            is_last: setup.is_whole,
            iss: Seq(0),
            sent: 0,
            near: VecDeque::new(),
            violation: None,
        }
    }

    fn note(&mut self, result: Result<(), String>) {
        if let Err(violation) = result {
            self.violation.get_or_insert(violation);
        }
    }

    /// Whether the sender's connection to a receiver has not ended.
    fn is_open(&self, receiver: usize) -> bool {
        self.sender.peer(receiver).end.is_none()
    }

    /// Whether the receiver never died.
    fn is_whole(&self, receiver: usize) -> bool {
        self.dead.is_none_or(|(node, _)| node != receiver)
    }

    fn mode(&self, receiver: usize) -> Mode {
        self.sender.peer(receiver).mode
    }

    /// Takes the events of the sender, of which changes of modes are checked.
    fn take_events(&mut self) {
        let before = RECEIVERS.map(|receiver| self.mode(receiver));
        for (receiver, mode) in self.sender.poll_events() {
            let member = self.sender.member(receiver);
            if let Ok(stats) = self.sender.endpoint.conn_stats(member) {
                let from = before[receiver - 1];
                let result = self.receptions[receiver - 1].changed(from, mode, &stats);
                self.note(result.map_err(|error| format!("receiver {receiver}: {error}")));
            }
        }
    }

    /// Sends a packet.
    fn send(&mut self, to: usize, packet: Packet, out: &mut Outbox<Packet>) {
        let near = self.setup.near;
        if near != Some(to) && near != Some(packet.from) {
            out.send(to, packet);
        } else if self.is_alive(to) {
            self.near.push_back((to, packet));
        }
    }

    /// Delivers what is on the way to and from the near receiver.
    fn deliver_near(&mut self, now: Instant, out: &mut Outbox<Packet>) {
        while let Some((to, packet)) = self.near.pop_front() {
            self.arrived(now, to, &packet, out);
        }
    }

    fn arrived(&mut self, now: Instant, node: usize, packet: &Packet, out: &mut Outbox<Packet>) {
        let port = u16::from_be_bytes([packet.bytes[0], packet.bytes[1]]);
        let meta = Meta {
            source: SocketAddr::new(address(packet.from), port),
            destination: match packet.is_multicast {
                true => MULTICAST,
                false => address(node),
            },
        };
        match node {
            SENDER => self.at_sender(now, packet, &meta),
            node => self.at_receiver(now, node, packet, &meta),
        }
        self.drain(now, node, out);
    }

    /// Lets a node send what it has.
    fn drain(&mut self, now: Instant, node: usize, out: &mut Outbox<Packet>) {
        match node {
            SENDER => self.drain_sender(now, out),
            node => self.drain_receiver(now, node, out),
        }
    }

    fn drain_sender(&mut self, now: Instant, out: &mut Outbox<Packet>) {
        let mut buffer = [0; 2048];
        let mut all = Sent::default();
        let mut count = 0;
        let before = self.sent;
        loop {
            self.take_events();
            self.sender.act(now, self.is_last);
            let Some(transmit) = self.sender.endpoint.poll_transmit(now, &mut buffer) else {
                break;
            };
            count += 1;
            assert!(count < MAX_SENT, "the sender does not stop");
            self.pass(&transmit, &buffer[..transmit.len], &mut all, out);
        }
        for receiver in RECEIVERS {
            if !self.is_open(receiver) {
                continue;
            }
            let unicast = &all.unicast[receiver - 1];
            let result = check_copies(self.mode(receiver), before, &all.multicast, unicast);
            self.note(result.map_err(|error| format!("receiver {receiver}: {error}")));
        }
    }

    /// Passes on a segment of the sender.
    fn pass(
        &mut self,
        transmit: &Transmit,
        bytes: &[u8],
        all: &mut Sent,
        out: &mut Outbox<Packet>,
    ) {
        let segment = Segment::parse(bytes).expect("what is sent can be read");
        if segment.flags.syn {
            self.iss = segment.seq;
        }
        let start = self.iss.offset_of(segment.seq, self.sent).max(0) as u64;
        let end = start + segment.payload.len() as u64;
        let span = Span { start, end };
        let is_multicast = transmit.is_multicast();
        let packet = Packet {
            from: SENDER,
            is_multicast,
            bytes: bytes.to_vec(),
        };
        if is_multicast {
            all.multicast.push(span);
            for receiver in RECEIVERS {
                let at = receiver - 1;
                let is_member = self.receivers[at].joined == Some(transmit.destination.ip());
                self.receptions[at].sent_by_multicast(self.mode(receiver));
                if self.is_reached[at] && is_member {
                    self.send(receiver, packet.clone(), out);
                }
            }
        } else {
            let receiver = node_at(transmit.destination.ip());
            if start < end {
                if start < self.sent {
                    let mode = self.mode(receiver);
                    self.receptions[receiver - 1].sent_again(mode, span);
                }
                all.unicast[receiver - 1].push(span);
            }
            self.send(receiver, packet, out);
        }
        if start < end {
            self.sent = self.sent.max(end);
        }
    }

    /// A segment of a receiver arrived.
    fn at_sender(&mut self, now: Instant, packet: &Packet, meta: &Meta) {
        let receiver = packet.from;
        let member = self.sender.member(receiver);
        let endpoint = &mut self.sender.endpoint;
        let before = endpoint.conn_stats(member);
        let result = endpoint.handle_packet(now, meta, &packet.bytes);
        let after = endpoint.conn_stats(member);
        let (Ok(before), Ok(after)) = (before, after) else {
            return;
        };
        self.take_events();
        self.receptions[receiver - 1].acknowledged(before.acknowledged, after.acknowledged);
        let segment = Segment::parse(&packet.bytes).expect("what is sent can be read");
        if let (Mode::UnicastGroup, Ok(()), Some(feedback)) =
            (before.mode, result, segment.options.feedback)
            && self.is_open(receiver)
        {
            let reception = &self.receptions[receiver - 1];
            let falls = reception.falls_forward(feedback.percent, after.acknowledged);
            if falls != (self.mode(receiver) == Mode::Multicast) {
                let error = format!(
                    "receiver {receiver}: {:?} after feedback {} at {}",
                    after.mode, feedback.percent, after.acknowledged
                );
                self.note(Err(error));
            }
        }
    }

    /// A segment of the sender arrived.
    fn at_receiver(&mut self, now: Instant, node: usize, packet: &Packet, meta: &Meta) {
        let endpoint = &mut self.receivers[node - 1].endpoint;
        let result = endpoint.handle_packet(now, meta, &packet.bytes);
        let segment = Segment::parse(&packet.bytes).expect("what is sent can be read");
        let counts = matches!(result, Ok(()) | Err(Error::Duplicate));
        if counts && !segment.payload.is_empty() {
            self.receptions[node - 1].arrived(packet.is_multicast);
        }
    }

    fn drain_receiver(&mut self, now: Instant, node: usize, out: &mut Outbox<Packet>) {
        let mut buffer = [0; 2048];
        let mut count = 0;
        loop {
            let receiver = &mut self.receivers[node - 1];
            let result = receiver.act(now);
            let transmit = receiver.endpoint.poll_transmit(now, &mut buffer);
            self.note(result.map_err(|error| format!("receiver {node}: {error}")));
            let Some(transmit) = transmit else {
                return;
            };
            count += 1;
            assert!(count < MAX_SENT, "receiver {node} does not stop");
            let bytes = buffer[..transmit.len].to_vec();
            let segment = Segment::parse(&bytes).expect("what is sent can be read");
            if let Some(feedback) = segment.options.feedback {
                let result = self.receptions[node - 1].check_feedback(feedback.percent);
                self.note(result.map_err(|error| format!("receiver {node}: {error}")));
            }
            let packet = Packet {
                from: node,
                is_multicast: false,
                bytes,
            };
            self.send(SENDER, packet, out);
        }
    }

    fn check_receiver(&self, node: usize) -> Result<(), String> {
        let Receiver { read, has_end, .. } = self.receivers[node - 1];
        if read > self.sender.len {
            return Err(format!("receiver {node} read {read} bytes"));
        }
        if has_end && !(self.is_last && read == self.sender.len) {
            return Err(format!("receiver {node} read the end after {read} bytes"));
        }
        let member = self.sender.member(node);
        let mode = self.mode(node);
        match self.sender.endpoint.conn_stats(member) {
            Ok(stats) if self.is_alive(SENDER) && stats.mode != mode => {
                let is = stats.mode;
                Err(format!(
                    "receiver {node} is {is:?}, and reported as {mode:?}"
                ))
            }
            _ => Ok(()),
        }
    }

    /// A receiver that lives, or has started again, at the end.
    fn check_end_of(&self, node: usize) -> Result<(), String> {
        let Receiver {
            read,
            has_end,
            ends,
            ..
        } = &self.receivers[node - 1];
        let is_done = *has_end && *read == self.sender.len && *ends == [None];
        let error = format!("receiver {node}: {read} bytes, end {has_end}, {ends:?}");
        if !self.is_alive(SENDER) {
            let has_failed = ends.iter().any(Option::is_some) || ends.is_empty();
            return if is_done || has_failed {
                Ok(())
            } else {
                Err(error)
            };
        }
        let peer = self.sender.peer(node);
        let is_known = peer.is_delivered && peer.end == Some(None);
        match self.is_whole(node) {
            true if is_done && is_known => Ok(()),
            // What it knew of the connection is lost; the sender knows that, or knows that it had everything.
            false if peer.is_delivered || peer.end.is_some_and(|end| end.is_some()) => Ok(()),
            _ => Err(format!("{error}; {peer:?}")),
        }
    }
}

impl Nodes for Group {
    type Packet = Packet;
    type Command = Change;

    fn count(&self) -> usize {
        1 + RECEIVERS.len()
    }

    fn is_alive(&self, node: usize) -> bool {
        self.dead != Some((node, false))
    }

    fn handle_packet(
        &mut self,
        now: Instant,
        node: usize,
        packet: &Packet,
        out: &mut Outbox<Packet>,
    ) {
        self.arrived(now, node, packet, out);
        self.deliver_near(now, out);
    }

    fn handle_timeout(&mut self, now: Instant, node: usize, out: &mut Outbox<Packet>) {
        let endpoint = match node {
            SENDER => &mut self.sender.endpoint,
            node => &mut self.receivers[node - 1].endpoint,
        };
        endpoint.handle_timeout(now);
        self.drain(now, node, out);
        self.deliver_near(now, out);
    }

    fn poll_timeout(&self, node: usize) -> Option<Instant> {
        match node {
            SENDER => self.sender.endpoint.poll_timeout(),
            node => self.receivers[node - 1].endpoint.poll_timeout(),
        }
    }

    fn commands(&self, commands: &mut Vec<Change>) {
        match self.dead {
            None => commands.extend(self.setup.deaths.iter().map(|&node| Change::Death(node))),
            Some((node, false)) if self.setup.restarts && node != SENDER => {
                commands.push(Change::Restart(node));
            }
            Some(_) => {}
        }
        let (failing, times) = self.setup.failing;
        for &node in failing {
            match self.is_reached[node - 1] {
                true if self.failed < times => commands.push(Change::Fail(node)),
                false => commands.push(Change::Return(node)),
                true => {}
            }
        }
    }

    fn command(&mut self, now: Instant, change: &Change, out: &mut Outbox<Packet>) {
        match *change {
            Change::Fail(node) => {
                self.is_reached[node - 1] = false;
                self.failed += 1;
            }
            Change::Return(node) => self.is_reached[node - 1] = true,
            Change::Death(node) => self.dead = Some((node, false)),
            Change::Restart(node) => {
                self.dead = Some((node, true));
                self.receivers[node - 1] = Receiver::new(now, &self.setup, node, 20 + node as u8);
                self.receptions[node - 1].forget();
            }
            Change::More(segments) | Change::Last(segments) => {
                self.sender.len += segments * SEGMENT;
                self.is_last = matches!(change, Change::Last(_));
                self.drain_sender(now, out);
                self.deliver_near(now, out);
            }
        }
    }

    fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        fingerprint.hash(&(self.is_reached, self.failed, self.dead, self.is_last));
        if self.is_alive(SENDER) {
            self.sender.fingerprint(fingerprint);
        }
        for node in RECEIVERS {
            self.receptions[node - 1].fingerprint(fingerprint);
            if self.is_alive(node) {
                self.receivers[node - 1].fingerprint(fingerprint);
            }
        }
    }

    fn check(&self, _: Instant) -> Result<(), String> {
        if let Some(violation) = &self.violation {
            return Err(violation.clone());
        }
        let needed = RECEIVERS.into_iter().filter(|&node| self.is_whole(node));
        let needed = needed.filter(|&node| self.is_open(node) && self.is_alive(SENDER));
        for node in needed {
            let (read, released) = (self.receivers[node - 1].read, self.sender.released.get());
            if released > read {
                return Err(format!(
                    "released up to {released}, receiver {node} read {read}"
                ));
            }
        }
        RECEIVERS
            .into_iter()
            .try_for_each(|node| self.check_receiver(node))
    }

    fn has_ended(&self) -> bool {
        let is_over = |node: usize| match node {
            _ if !self.is_alive(node) => true,
            SENDER => self.sender.is_over && self.sender.endpoint.connections() == 0,
            node => self.receivers[node - 1].endpoint.connections() == 0,
        };
        (0..self.count()).all(is_over)
    }

    fn check_end(&mut self, _: Instant) -> Result<(), String> {
        if !self.has_ended() {
            let connections = |node: usize| match node {
                SENDER => self.sender.endpoint.connections(),
                node => self.receivers[node - 1].endpoint.connections(),
            };
            let left: Vec<usize> = (0..self.count()).map(connections).collect();
            return Err(format!("not ended: {left:?} connections"));
        }
        for node in RECEIVERS {
            if self.is_alive(node) {
                self.check_end_of(node)?;
                let mode = self.mode(node);
                let flight = WINDOW.min(self.setup.capacity / SEGMENT);
                self.receptions[node - 1].check_end(mode, flight)?;
            } else if self.is_alive(SENDER) {
                let peer = self.sender.peer(node);
                let is_named = peer.end.is_some_and(|end| end.is_some());
                if !peer.is_delivered && !is_named {
                    return Err(format!("dead receiver {node}: {peer:?}"));
                }
            }
        }
        Ok(())
    }
}
