//! A world of one peer, which is a machine too.

use std::collections::BTreeMap;
use std::fmt;

use proto_core::Machine;
use proto_core::time::{Duration, Instant};

use super::{Input, InputOf, START, Scenario};

/// Time that a packet takes from one machine to the other.
const DELAY: Duration = Duration::from_millis(5);
/// Size of the peer's largest packet in bytes.
const PEER_BUFFER: usize = 65_536;

/// The metadata of a packet that arrives at a machine.
pub type MetaOf<M> = <M as Machine>::Meta;
/// The metadata of a packet to send.
pub type TransmitOf<M> = <M as Machine>::Transmit;
/// The events of a machine.
pub type EventOf<M> = <M as Machine>::Event;

/// A machine under test, and another one that it talks to.
pub trait Pair {
    /// The machine under test.
    type Machine: Machine<Meta: Clone, Transmit: fmt::Debug, Event: fmt::Debug, Error: fmt::Debug>;
    /// Its peer.
    type Peer: Machine;
    /// A command of the application. `()` for a machine without commands.
    type Command: Clone;

    /// Creates the machine, always in the same state.
    fn machine(&self, now: Instant) -> Self::Machine;

    /// Creates the peer, always in the same state.
    fn peer(&self, now: Instant) -> Self::Peer;

    /// Returns the commands of the application that do not depend on events, each with its time after the start.
    fn commands(&self) -> Vec<(Duration, Self::Command)> {
        Vec::new()
    }

    /// Executes a command on the machine.
    fn command(&self, machine: &mut Self::Machine, now: Instant, command: &Self::Command);

    /// Returns the length of a packet of the machine, and what the peer's driver knows of it; `None` if it does
    /// not reach the peer.
    fn to_peer(&self, transmit: &TransmitOf<Self::Machine>) -> (usize, Option<MetaOf<Self::Peer>>);

    /// Returns the length of a packet of the peer, and what the machine's driver knows of it; `None` if it does
    /// not reach the machine.
    fn to_machine(
        &self,
        transmit: &TransmitOf<Self::Peer>,
    ) -> (usize, Option<MetaOf<Self::Machine>>);

    /// Receives an event of the machine, and returns the commands with which the application reacts.
    fn notified(&mut self, now: Instant, event: &EventOf<Self::Machine>) -> Vec<Self::Command>;

    /// Acts as the application of the peer: receives its event, executes commands on it.
    fn peer_notified(&mut self, peer: &mut Self::Peer, now: Instant, event: EventOf<Self::Peer>);

    /// Number of packets between two losses in each direction; 0 for no loss.
    fn loses_every(&self) -> u32 {
        0
    }

    /// See [`Scenario::is_goal_reached`].
    fn is_goal_reached(&self) -> bool;

    /// See [`Scenario::duration`].
    fn duration(&self) -> Duration {
        Duration::from_secs(60)
    }

    /// See [`Scenario::max_idle_wakeups`].
    fn max_idle_wakeups(&self) -> usize {
        32
    }

    /// See [`Scenario::has_ended`].
    fn has_ended(&self) -> bool {
        false
    }

    /// See [`Scenario::is_junk`].
    fn is_junk(&self, _meta: &MetaOf<Self::Machine>, _packet: &[u8]) -> bool {
        true
    }

    /// See [`Scenario::junk_meta`].
    fn junk_meta(&self, meta: &MetaOf<Self::Machine>) -> MetaOf<Self::Machine> {
        meta.clone()
    }

    /// See [`Scenario::fits_packets_to_buffers`].
    fn fits_packets_to_buffers(&self) -> bool {
        false
    }

    /// See [`Scenario::is_paced`].
    fn is_paced(&self) -> bool {
        false
    }
}

/// What is on its way, by the time of its arrival and its number.
type OnTheWay<T> = BTreeMap<(Instant, u64), T>;
type PeerPacket<P> = (MetaOf<<P as Pair>::Peer>, Vec<u8>);
type PairInput<P> = Input<MetaOf<<P as Pair>::Machine>, <P as Pair>::Command>;

/// The scenario of a [`Pair`].
pub struct Paired<P: Pair> {
    pair: P,
    peer: P::Peer,
    to_peer: OnTheWay<PeerPacket<P>>,
    inputs: OnTheWay<PairInput<P>>,
    numbered: u64,
    packets: [u32; 2],
    buffer: Vec<u8>,
}

impl<P: Pair> Paired<P> {
    /// Creates the scenario.
    pub fn new(pair: P) -> Self {
        let mut paired = Paired {
            peer: pair.peer(START),
            to_peer: BTreeMap::new(),
            inputs: BTreeMap::new(),
            numbered: 0,
            packets: [0; 2],
            buffer: vec![0; PEER_BUFFER],
            pair,
        };
        for (after, command) in paired.pair.commands() {
            paired.schedule(START + after, Input::Command(command));
        }
        paired.drain_peer(START);
        paired
    }

    fn number(&mut self) -> u64 {
        self.numbered += 1;
        self.numbered
    }

    fn schedule(&mut self, at: Instant, input: PairInput<P>) {
        let number = self.number();
        self.inputs.insert((at, number), input);
    }

    /// Whether the next packet in this direction is lost.
    fn is_lost(&mut self, direction: usize) -> bool {
        self.packets[direction] += 1;
        let every = self.pair.loses_every();
        every > 0 && self.packets[direction].is_multiple_of(every)
    }

    /// Lets the peer act until nothing is due.
    fn advance_peer(&mut self, now: Instant) {
        while let Some(first) = self.to_peer.first_entry().filter(|e| e.key().0 <= now) {
            let (meta, packet) = first.remove();
            // The peer counts what it refuses.
            let _ = self.peer.handle_packet(now, &meta, &packet);
            self.drain_peer(now);
        }
        if self.peer.poll_timeout().is_some_and(|at| at <= now) {
            self.peer.handle_timeout(now);
            self.drain_peer(now);
        }
    }

    fn drain_peer(&mut self, now: Instant) {
        loop {
            let mut is_drained = true;
            while let Some(transmit) = self.peer.poll_transmit(now, &mut self.buffer) {
                is_drained = false;
                let (len, meta) = self.pair.to_machine(&transmit);
                let packet = self.buffer[..len].to_vec();
                if let Some(meta) = meta.filter(|_| !self.is_lost(1)) {
                    self.schedule(now + DELAY, Input::Packet(meta, packet));
                }
            }
            while let Some(event) = self.peer.poll_event() {
                is_drained = false;
                self.pair.peer_notified(&mut self.peer, now, event);
            }
            if is_drained {
                return;
            }
        }
    }
}

impl<P: Pair> Scenario for Paired<P> {
    type Machine = P::Machine;
    type Command = P::Command;

    fn machine(&self, now: Instant) -> P::Machine {
        self.pair.machine(now)
    }

    fn command(&self, machine: &mut P::Machine, now: Instant, command: &P::Command) {
        self.pair.command(machine, now, command);
    }

    fn packet_len(&self, transmit: &TransmitOf<P::Machine>) -> usize {
        self.pair.to_peer(transmit).0
    }

    fn transmitted(&mut self, now: Instant, transmit: &TransmitOf<P::Machine>, packet: &[u8]) {
        let (_, meta) = self.pair.to_peer(transmit);
        if let Some(meta) = meta.filter(|_| !self.is_lost(0)) {
            let number = self.number();
            let packet = (meta, packet.to_vec());
            self.to_peer.insert((now + DELAY, number), packet);
        }
    }

    fn notified(&mut self, now: Instant, event: &EventOf<P::Machine>) {
        for command in self.pair.notified(now, event) {
            self.schedule(now, Input::Command(command));
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let inputs = self.inputs.keys().next().map(|(at, _)| *at);
        let to_peer = self.to_peer.keys().next().map(|(at, _)| *at);
        let peer = self.peer.poll_timeout();
        [inputs, to_peer, peer].into_iter().flatten().min()
    }

    fn poll_input(&mut self, now: Instant) -> Option<InputOf<Self>> {
        self.advance_peer(now);
        let first = self.inputs.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    fn is_goal_reached(&self) -> bool {
        self.pair.is_goal_reached()
    }

    fn duration(&self) -> Duration {
        self.pair.duration()
    }

    fn max_idle_wakeups(&self) -> usize {
        self.pair.max_idle_wakeups()
    }

    fn has_ended(&self) -> bool {
        self.pair.has_ended()
    }

    fn is_junk(&self, meta: &MetaOf<P::Machine>, packet: &[u8]) -> bool {
        self.pair.is_junk(meta, packet)
    }

    fn junk_meta(&self, meta: &MetaOf<P::Machine>) -> MetaOf<P::Machine> {
        self.pair.junk_meta(meta)
    }

    fn fits_packets_to_buffers(&self) -> bool {
        self.pair.fits_packets_to_buffers()
    }

    fn is_paced(&self) -> bool {
        self.pair.is_paced()
    }
}
