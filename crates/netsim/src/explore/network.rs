//! Worlds of nodes that exchange packets.

use std::fmt;
use std::hash::Hash;

use proto_core::time::{Duration, Instant};

use super::{Fingerprint, Trace, World};

/// When every run starts: the clock with which [`Nodes`] create their machines.
pub const START: Instant = Instant::from_secs(1_000);

/// The most actions at one instant on the way to the end: more is a run that never ends.
const MAX_AT_ONCE: u32 = 10_000;

/// Machines with their drivers, and what connects them.
///
/// Nodes are numbered from 0. After each call a driver sends all that its machine has to send.
pub trait Nodes {
    /// A packet, with what the receiving driver has to know of it. Its `Debug` describes it in a counterexample.
    type Packet: Clone + Hash + fmt::Debug;
    /// Something that happens to the nodes, such as the death of one. `Infallible` where nothing does.
    type Command: Clone + fmt::Debug;

    /// Returns how many nodes there are.
    fn count(&self) -> usize;

    /// Whether a node runs. One that does not gets no call, and packets to it are lost.
    fn is_alive(&self, _node: usize) -> bool {
        true
    }

    /// Handles a packet that arrived.
    fn handle_packet(
        &mut self,
        now: Instant,
        node: usize,
        packet: &Self::Packet,
        out: &mut Outbox<Self::Packet>,
    );

    /// Handles the time that [`Nodes::poll_timeout`] returned. Also called for each node at the start.
    fn handle_timeout(&mut self, now: Instant, node: usize, out: &mut Outbox<Self::Packet>);

    /// Returns when a node next acts.
    fn poll_timeout(&self, node: usize) -> Option<Instant>;

    /// Adds the commands that may come now. Each changes the state so that it cannot come again without end.
    fn commands(&self, _commands: &mut Vec<Self::Command>) {}

    /// Executes a command.
    fn command(
        &mut self,
        _now: Instant,
        _command: &Self::Command,
        _out: &mut Outbox<Self::Packet>,
    ) {
    }

    /// Adds all state of all nodes.
    fn fingerprint(&self, fingerprint: &mut Fingerprint);

    /// Checks what holds in every state.
    ///
    /// # Errors
    ///
    /// What is wrong.
    fn check(&self, _now: Instant) -> Result<(), String> {
        Ok(())
    }

    /// Whether all has happened that can be waited for. A run ends then, or when [`Faults::settle`] is over.
    fn has_ended(&self) -> bool {
        false
    }

    /// Checks what holds at the end of a run.
    ///
    /// # Errors
    ///
    /// What is wrong.
    fn check_end(&mut self, _now: Instant) -> Result<(), String>;
}

/// Packets that a node sends.
#[derive(Debug)]
pub struct Outbox<P> {
    packets: Vec<(usize, Option<u32>, P)>,
    /// Receivers and numbers of streams that have ended.
    ended: Vec<(usize, u32)>,
}

impl<P> Outbox<P> {
    /// Sends a packet to a node.
    pub fn send(&mut self, to: usize, packet: P) {
        self.packets.push((to, None, packet));
    }

    /// Sends a packet to a node in a stream with this number: these packets arrive once and in order.
    pub fn send_in_stream(&mut self, to: usize, stream: u32, packet: P) {
        self.packets.push((to, Some(stream), packet));
    }

    /// Ends a stream to a node: packets of it that were in flight before this call are lost.
    pub fn end_stream(&mut self, to: usize, stream: u32) {
        self.ended.push((to, stream));
    }
}

/// What may happen to packets and timers.
///
/// A packet may take any time up to `max_delay`, so packets overtake each other. Time passes only when a timer expires.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Packets that may be lost.
    pub losses: u32,
    /// Packets that may arrive twice.
    pub duplicates: u32,
    /// The longest time that a packet takes.
    pub max_delay: Duration,
    /// How much later than asked for a timer may expire; earlier timers of other nodes then expire after it.
    pub max_lateness: Duration,
    /// How long all this happens. From then on packets arrive at once and timers expire in time.
    pub horizon: Duration,
    /// How long it may then take until [`Nodes::has_ended`].
    pub settle: Duration,
}

/// A packet on its way.
struct InFlight<P> {
    to: usize,
    packet: P,
    stream: Option<u32>,
    /// Of all fields above.
    hash: u128,
    /// When it has arrived at the latest.
    arrives_by: Instant,
}

/// An action of a [`Network`].
#[derive(Clone, Debug)]
pub enum Action<C> {
    /// The packet at this place arrives.
    Deliver(usize),
    /// The packet at this place arrives, and will arrive once more.
    Duplicate(usize),
    /// The packet at this place is lost.
    Lose(usize),
    /// The timer of this node expires.
    Timeout(usize),
    /// A command comes.
    Command(C),
}

/// Nodes, and the packets between them.
pub struct Network<N: Nodes> {
    nodes: N,
    faults: Faults,
    now: Instant,
    /// When the faults end.
    horizon: Instant,
    /// In the order in which they were sent.
    in_flight: Vec<InFlight<N::Packet>>,
    losses: u32,
    duplicates: u32,
}

impl<N: Nodes> Network<N> {
    /// Starts the nodes.
    pub fn new(nodes: N, faults: Faults) -> Self {
        let mut network = Network {
            nodes,
            faults,
            now: START,
            horizon: START + faults.horizon,
            in_flight: Vec::new(),
            losses: 0,
            duplicates: 0,
        };
        for node in 0..network.nodes.count() {
            network.call(|nodes, now, out| nodes.handle_timeout(now, node, out));
        }
        network
    }

    /// Runs without faults for a time, so that exploration starts later. The horizon moves with it.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(action) = self.next_without_faults(end) {
            self.apply(&action);
        }
        self.now = end;
        self.horizon = end + self.faults.horizon;
    }

    /// Executes a command before exploration starts.
    pub fn execute(&mut self, command: &N::Command) {
        self.call(|nodes, now, out| nodes.command(now, command, out));
    }

    /// What comes next until `end` where packets take no time.
    fn next_without_faults(&self, end: Instant) -> Option<Action<N::Command>> {
        if !self.in_flight.is_empty() {
            return Some(Action::Deliver(0));
        }
        let (at, node) = self.next_timeout()?;
        (at <= end).then_some(Action::Timeout(node))
    }

    /// Returns the nodes.
    pub fn nodes(&self) -> &N {
        &self.nodes
    }

    /// Calls the nodes, and takes what they send.
    fn call(&mut self, run: impl FnOnce(&mut N, Instant, &mut Outbox<N::Packet>)) {
        let mut out = Outbox {
            packets: Vec::new(),
            ended: Vec::new(),
        };
        run(&mut self.nodes, self.now, &mut out);
        let is_open = |packet: &InFlight<_>| {
            let ended = |&(to, stream)| to == packet.to && Some(stream) == packet.stream;
            !out.ended.iter().any(ended)
        };
        self.in_flight.retain(is_open);
        for (to, stream, packet) in out.packets {
            let mut fingerprint = Fingerprint::new();
            fingerprint.hash(&(to, stream, &packet));
            self.in_flight.push(InFlight {
                to,
                packet,
                stream,
                hash: fingerprint.finish(),
                arrives_by: self.now + self.faults.max_delay,
            });
        }
        let nodes = &self.nodes;
        self.in_flight.retain(|packet| nodes.is_alive(packet.to));
    }

    /// When the timer of a node that runs expires.
    fn timeout(&self, node: usize) -> Option<Instant> {
        let timeout = self.nodes.poll_timeout(node);
        timeout
            .filter(|_| self.nodes.is_alive(node))
            .map(|at| at.max(self.now))
    }

    /// The timer that expires next.
    fn next_timeout(&self) -> Option<(Instant, usize)> {
        let timeouts = (0..self.nodes.count()).map(|node| Some((self.timeout(node)?, node)));
        timeouts.flatten().min()
    }

    /// Whether a packet may arrive: it is the first of its stream, and no equal one stands before it.
    fn may_arrive(&self, at: usize) -> bool {
        let InFlight { stream, hash, .. } = &self.in_flight[at];
        let mut before = self.in_flight[..at].iter();
        !before.any(|other| other.hash == *hash || stream.is_some() && other.stream == *stream)
    }

    /// The timers that may expire next.
    fn timeouts(&self) -> impl Iterator<Item = usize> {
        let arrivals = self.in_flight.iter().map(|packet| packet.arrives_by);
        let end = arrivals.fold(self.horizon, Instant::min);
        let latest = self
            .next_timeout()
            .map(|(at, _)| end.min(at + self.faults.max_lateness));
        (0..self.nodes.count())
            .filter(move |&node| self.timeout(node).is_some_and(|at| Some(at) <= latest))
    }

    fn deliver(&mut self, packet: &InFlight<N::Packet>) {
        self.call(|nodes, now, out| nodes.handle_packet(now, packet.to, &packet.packet, out));
    }
}

impl<N: Nodes> World for Network<N> {
    type Action = Action<N::Command>;

    fn actions(&self, actions: &mut Vec<Self::Action>) {
        let arrivals = (0..self.in_flight.len()).filter(|&at| self.may_arrive(at));
        for at in arrivals {
            actions.push(Action::Deliver(at));
            let is_datagram = self.in_flight[at].stream.is_none();
            if is_datagram && self.duplicates < self.faults.duplicates {
                actions.push(Action::Duplicate(at));
            }
            if is_datagram && self.losses < self.faults.losses {
                actions.push(Action::Lose(at));
            }
        }
        actions.extend(self.timeouts().map(Action::Timeout));
        let mut commands = Vec::new();
        self.nodes.commands(&mut commands);
        actions.extend(commands.into_iter().map(Action::Command));
    }

    fn may_end(&self) -> bool {
        self.in_flight.is_empty() && self.timeouts().next().is_none()
    }

    fn apply(&mut self, action: &Self::Action) {
        match action {
            Action::Deliver(at) => {
                let packet = self.in_flight.remove(*at);
                self.deliver(&packet);
            }
            Action::Duplicate(at) => {
                self.duplicates += 1;
                let packet = self.in_flight.remove(*at);
                self.deliver(&packet);
                if self.nodes.is_alive(packet.to) {
                    self.in_flight.insert(*at, packet);
                }
            }
            Action::Lose(at) => {
                self.losses += 1;
                self.in_flight.remove(*at);
            }
            Action::Timeout(node) => {
                self.now = self.timeout(*node).unwrap_or(self.now);
                self.call(|nodes, now, out| nodes.handle_timeout(now, *node, out));
            }
            Action::Command(command) => {
                self.call(|nodes, now, out| nodes.command(now, command, out));
            }
        }
    }

    fn describe(&self, action: &Self::Action) -> String {
        let packet = |at: usize| {
            let InFlight { to, packet, .. } = &self.in_flight[at];
            format!("to node {to}: {packet:?}")
        };
        let action = match action {
            Action::Deliver(at) => format!("deliver {}", packet(*at)),
            Action::Duplicate(at) => format!("deliver and keep {}", packet(*at)),
            Action::Lose(at) => format!("lose {}", packet(*at)),
            Action::Timeout(node) => {
                let at = self.timeout(*node).unwrap_or(self.now);
                format!("timer of node {node} at {}", at - START)
            }
            Action::Command(command) => format!("{command:?}"),
        };
        format!("{} {action}", self.now - START)
    }

    fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        self.nodes.fingerprint(fingerprint);
        fingerprint.hash(&(self.now, self.losses, self.duplicates));
        // The order in which packets were sent matters in a stream only.
        let mut all = 0u128;
        for (at, packet) in self.in_flight.iter().enumerate() {
            let before = self.in_flight[..at].iter();
            let place = match packet.stream {
                Some(_) => before.filter(|other| other.stream == packet.stream).count(),
                None => 0,
            };
            let mut one = Fingerprint::new();
            one.hash(&(packet.hash, packet.arrives_by, place));
            all = all.wrapping_add(one.finish());
        }
        fingerprint.hash(&all);
    }

    fn check(&self) -> Result<(), String> {
        self.nodes.check(self.now)
    }

    fn finish(&mut self, trace: &mut Trace) -> Result<(), String> {
        let end = self.now + self.faults.settle;
        let mut at_once = 0;
        while !self.nodes.has_ended()
            && let Some(action) = self.next_without_faults(end)
        {
            trace.note(|| self.describe(&action));
            let before = self.now;
            self.apply(&action);
            self.nodes.check(self.now)?;
            at_once = if self.now == before { at_once + 1 } else { 0 };
            if at_once > MAX_AT_ONCE {
                return Err(format!("more than {MAX_AT_ONCE} actions at one instant"));
            }
        }
        self.nodes.check_end(self.now)
    }
}
