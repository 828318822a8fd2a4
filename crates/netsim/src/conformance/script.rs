//! A world that does not react: inputs at set times.

use std::collections::VecDeque;
use std::fmt;

use proto_core::Machine;
use proto_core::time::{Duration, Instant};

use super::{Input, START, Scenario};

/// A command as a function.
pub type Action<M> = fn(&mut M, Instant);

type Timed<M> = (Instant, Input<<M as Machine>::Meta, Action<M>>);

/// A scenario of inputs at set times, for machines whose peers need not answer.
///
/// Its goal is to send at least [`min_sent`](Script::min_sent) packets and raise at least
/// [`min_events`](Script::min_events) events.
pub struct Script<M: Machine> {
    machine: fn(Instant) -> M,
    packet_len: fn(&M::Transmit) -> usize,
    inputs: VecDeque<Timed<M>>,
    sent: usize,
    events: usize,
    /// Packets that make the goal.
    pub min_sent: usize,
    /// Events that make the goal.
    pub min_events: usize,
    /// See [`Scenario::max_idle_wakeups`].
    pub max_idle_wakeups: usize,
    /// See [`Scenario::is_junk`].
    pub is_junk: fn(&M::Meta, &[u8]) -> bool,
    /// See [`Scenario::fits_packets_to_buffers`].
    pub fits_packets_to_buffers: bool,
    /// See [`Scenario::is_paced`].
    pub is_paced: bool,
}

impl<M: Machine> Script<M> {
    /// Creates a scenario without inputs.
    pub fn new(machine: fn(Instant) -> M, packet_len: fn(&M::Transmit) -> usize) -> Self {
        Script {
            machine,
            packet_len,
            inputs: VecDeque::new(),
            sent: 0,
            events: 0,
            min_sent: 1,
            min_events: 0,
            max_idle_wakeups: 32,
            is_junk: |_, _| true,
            fits_packets_to_buffers: false,
            is_paced: false,
        }
    }

    /// Adds a packet, `at` after the start. Inputs are added in the order of their times.
    #[must_use]
    pub fn packet(mut self, at: Duration, meta: M::Meta, packet: Vec<u8>) -> Self {
        let input = Input::Packet(meta, packet);
        self.inputs.push_back((START + at, input));
        self
    }

    /// Adds a command, `at` after the start.
    #[must_use]
    pub fn command(mut self, at: Duration, action: Action<M>) -> Self {
        let input = Input::Command(action);
        self.inputs.push_back((START + at, input));
        self
    }
}

impl<M> Scenario for Script<M>
where
    M: Machine<Meta: Clone, Transmit: fmt::Debug, Event: fmt::Debug, Error: fmt::Debug>,
{
    type Machine = M;
    type Command = Action<M>;

    fn machine(&self, now: Instant) -> M {
        (self.machine)(now)
    }

    fn command(&self, machine: &mut M, now: Instant, action: &Action<M>) {
        action(machine, now);
    }

    fn packet_len(&self, transmit: &M::Transmit) -> usize {
        (self.packet_len)(transmit)
    }

    fn transmitted(&mut self, _now: Instant, _transmit: &M::Transmit, _packet: &[u8]) {
        self.sent += 1;
    }

    fn notified(&mut self, _now: Instant, _event: &M::Event) {
        self.events += 1;
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.inputs.front().map(|(at, _)| *at)
    }

    fn poll_input(&mut self, now: Instant) -> Option<Input<M::Meta, Action<M>>> {
        self.poll_timeout().filter(|at| *at <= now)?;
        self.inputs.pop_front().map(|(_, input)| input)
    }

    fn is_goal_reached(&self) -> bool {
        self.sent >= self.min_sent && self.events >= self.min_events
    }

    fn max_idle_wakeups(&self) -> usize {
        self.max_idle_wakeups
    }

    fn is_junk(&self, meta: &M::Meta, packet: &[u8]) -> bool {
        (self.is_junk)(meta, packet)
    }

    fn fits_packets_to_buffers(&self) -> bool {
        self.fits_packets_to_buffers
    }

    fn is_paced(&self) -> bool {
        self.is_paced
    }
}
