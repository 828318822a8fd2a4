//! Drives one machine through one run, as a driver that follows the contract would, or nearly.

use proto_core::Machine;
use proto_core::time::{Duration, Instant};

use super::{IDLE, Input, InputOf, Rule, START, Scenario, Summary, Violation, junk};
use crate::rng::Rng;

/// Most wake-ups in a row at one instant, without a packet or an event.
const MAX_SPIN: usize = 256;
/// Packets at which every buffer size is tried; later ones get three sizes.
const ALL_SIZES: usize = 48;
/// Most packets and events from one drain: more is a machine that never stops.
const MAX_DRAIN: usize = 1_000_000;

/// How a run differs from the recorded one.
#[derive(Clone, Debug, Default)]
pub(super) struct Variation {
    is_early: bool,
    is_doubled: bool,
    late: Option<Duration>,
    junk: Option<Rng>,
    has_small_buffers: bool,
}

impl Variation {
    pub(super) fn early() -> Self {
        let is_early = true;
        Variation {
            is_early,
            ..Self::default()
        }
    }

    pub(super) fn doubled() -> Self {
        let is_doubled = true;
        Variation {
            is_doubled,
            ..Self::default()
        }
    }

    pub(super) fn late(by: Duration) -> Self {
        let late = Some(by);
        Variation {
            late,
            ..Self::default()
        }
    }

    pub(super) fn junk(rng: Rng) -> Self {
        let junk = Some(rng);
        Variation {
            junk,
            ..Self::default()
        }
    }

    pub(super) fn small_buffers() -> Self {
        let has_small_buffers = true;
        Variation {
            has_small_buffers,
            ..Self::default()
        }
    }
}

/// Something that a machine did.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Output {
    /// A packet: the `Transmit` in words, and its bytes.
    Packet(String, Vec<u8>),
    Event(String),
    /// What `handle_packet` returned.
    Result(String),
    /// The answer of `poll_timeout` when everything was drained.
    Timeout(Option<Instant>),
}

/// One whole run.
#[derive(Debug)]
pub(super) struct Recording<I> {
    /// The inputs of the machine.
    pub(super) script: Vec<(Instant, I)>,
    outputs: Vec<(Instant, Output)>,
    received: usize,
    idle_wakeups: usize,
}

impl<I> Recording<I> {
    /// Describes the first output that differs; timeouts are compared for `Rule::Determinism` only.
    pub(super) fn difference<J>(&self, other: &Recording<J>, rule: Rule) -> Option<String> {
        let is_compared = |(_, output): &&(Instant, Output)| {
            rule == Rule::Determinism || !matches!(output, Output::Timeout(_))
        };
        let left: Vec<_> = self.outputs.iter().filter(is_compared).collect();
        let right: Vec<_> = other.outputs.iter().filter(is_compared).collect();
        let at = (0..left.len().max(right.len())).find(|&i| left.get(i) != right.get(i))?;
        let describe = |output: Option<&&(Instant, Output)>| match output {
            None => "nothing".into(),
            Some((at, output)) => {
                let mut text = format!("{:?}", output);
                text.truncate(400);
                format!("{} after the start: {text}", *at - START)
            }
        };
        let (expected, got) = (describe(left.get(at)), describe(right.get(at)));
        Some(format!("output {at}: expected {expected}; got {got}"))
    }

    pub(super) fn summary(&self) -> Summary {
        let count = |is: fn(&Output) -> bool| {
            let matching = self.outputs.iter().filter(|(_, output)| is(output));
            matching.count()
        };
        Summary {
            received: self.received,
            sent: count(|output| matches!(output, Output::Packet(..))),
            events: count(|output| matches!(output, Output::Event(_))),
            idle_wakeups: self.idle_wakeups,
        }
    }
}

/// The source of inputs: the scenario, or a recording.
enum Source<'s, S: Scenario> {
    Live(&'s mut S),
    Script(&'s S, std::slice::Iter<'s, (Instant, InputOf<S>)>),
}

impl<S: Scenario> Source<'_, S> {
    fn scenario(&self) -> &S {
        match self {
            Source::Live(scenario) => scenario,
            Source::Script(scenario, _) => scenario,
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Source::Live(scenario) => scenario.poll_timeout(),
            Source::Script(_, script) => script.as_slice().first().map(|(at, _)| *at),
        }
    }

    fn poll_input(&mut self, now: Instant) -> Option<InputOf<S>> {
        match self {
            Source::Live(scenario) => scenario.poll_input(now),
            Source::Script(_, script) => {
                let (at, input) = script.as_slice().first()?;
                (*at <= now).then(|| script.next())?;
                Some(input.clone())
            }
        }
    }
}

/// A machine and what it has done.
pub(super) struct Driver<S: Scenario> {
    machine: S::Machine,
    variation: Variation,
    buffer: Vec<u8>,
    recording: Recording<InputOf<S>>,
    /// Lengths of the packets of the recorded run, in order.
    expected_lens: Vec<usize>,
    sent: usize,
    is_paced: bool,
    /// Wake-ups since the last output or input.
    silent_wakeups: usize,
    /// Valid packets, from which truncated ones are made.
    samples: Vec<(<S::Machine as Machine>::Meta, Vec<u8>)>,
}

impl<S: Scenario> Driver<S> {
    pub(super) fn new(scenario: &S, variation: Variation) -> Self {
        Driver {
            machine: scenario.machine(START),
            variation,
            buffer: vec![0; scenario.buffer_len()],
            recording: Recording {
                script: Vec::new(),
                outputs: Vec::new(),
                received: 0,
                idle_wakeups: 0,
            },
            expected_lens: Vec::new(),
            sent: 0,
            is_paced: scenario.is_paced(),
            silent_wakeups: 0,
            samples: Vec::new(),
        }
    }

    /// Small buffers are chosen by what the recorded run sent; junk by what it received.
    pub(super) fn expecting(mut self, recorded: &Recording<InputOf<S>>) -> Self {
        let lens = recorded
            .outputs
            .iter()
            .filter_map(|(_, output)| match output {
                Output::Packet(_, packet) => Some(packet.len()),
                _ => None,
            });
        self.expected_lens = lens.collect();
        self
    }

    /// Runs against the live world.
    pub(super) fn record(self, scenario: &mut S) -> Result<Recording<InputOf<S>>, Violation> {
        self.run(&mut Source::Live(scenario))
    }

    /// Runs with the inputs of another run.
    pub(super) fn replay(
        self,
        scenario: &S,
        script: &[(Instant, InputOf<S>)],
    ) -> Result<Recording<InputOf<S>>, Violation> {
        self.run(&mut Source::Script(scenario, script.iter()))
    }

    fn run(mut self, source: &mut Source<'_, S>) -> Result<Recording<InputOf<S>>, Violation> {
        let end = START + source.scenario().duration();
        let mut now = START;
        let mut stuck = 0;
        self.settle(now, source)?;
        loop {
            let wakeup = self.wakeup(now);
            let next = [wakeup, source.poll_timeout()].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else {
                break;
            };
            let next = next.max(now);
            self.call_early(now, next, source)?;
            stuck = if next > now { 0 } else { stuck + 1 };
            assert!(
                stuck < MAX_DRAIN,
                "the scenario asks to be polled at one instant without end"
            );
            now = next;
            self.time_out(now, source)?;
            while let Some(input) = source.poll_input(now) {
                self.input(now, input, source)?;
                self.settle(now, source)?;
            }
        }
        self.idle(now, end, source)?;
        Ok(self.recording)
    }

    /// When this driver wakes up: late, if so varied.
    fn wakeup(&self, now: Instant) -> Option<Instant> {
        let at = self.machine.poll_timeout()?.max(now);
        Some(at + self.variation.late.unwrap_or(Duration::ZERO))
    }

    /// Leaves the machine alone for an hour.
    fn idle(
        &mut self,
        mut now: Instant,
        from: Instant,
        source: &mut Source<'_, S>,
    ) -> Result<(), Violation> {
        let outputs = self.recording.outputs.len();
        let max = source.scenario().max_idle_wakeups();
        while let Some(next) = self.wakeup(now).filter(|next| *next <= from + IDLE) {
            self.call_early(now, next, source)?;
            now = next;
            let before = self.recording.summary();
            self.time_out(now, source)?;
            let after = self.recording.summary();
            if (before.sent, before.events) == (after.sent, after.events) {
                self.recording.idle_wakeups += 1;
            }
            if self.recording.idle_wakeups > max {
                let detail = format!("more than {max} wake-ups without output in an idle hour");
                return Err(Violation::new(Rule::Idle, at(now, &detail)));
            }
        }
        if source.scenario().has_ended() && self.variation.late.is_none() {
            let later = &self.recording.outputs[outputs..];
            let is_output = |output: &Output| !matches!(output, Output::Timeout(_));
            if later.iter().any(|(_, output)| is_output(output)) {
                return Err(Violation::new(Rule::Silence, "output after the end"));
            }
            if let Some(timeout) = self.machine.poll_timeout() {
                let detail = format!("a timeout {} after the start", timeout - START);
                return Err(Violation::new(Rule::Silence, detail));
            }
        }
        Ok(())
    }

    /// Calls `handle_timeout` between two instants at which something happens.
    fn call_early(
        &mut self,
        now: Instant,
        next: Instant,
        source: &mut Source<'_, S>,
    ) -> Result<(), Violation> {
        if !self.variation.is_early {
            return Ok(());
        }
        let gap = (next - now).total_micros();
        let mut instants = [1, gap / 2, gap.saturating_sub(1)];
        instants.sort_unstable();
        for offset in instants {
            if offset > 0 && offset < gap {
                let early = now + Duration::from_micros(offset);
                self.machine.handle_timeout(early);
                self.drain(early, source)?;
            }
        }
        Ok(())
    }

    /// Calls `handle_timeout` as often as the machine asks for it now.
    fn time_out(&mut self, now: Instant, source: &mut Source<'_, S>) -> Result<(), Violation> {
        let mut has_woken = false;
        while self.machine.poll_timeout().is_some_and(|at| at <= now) {
            has_woken = true;
            self.machine.handle_timeout(now);
            if self.variation.is_doubled {
                self.machine.handle_timeout(now);
            }
            self.silent_wakeups += 1;
            self.drain(now, source)?;
            if self.silent_wakeups > MAX_SPIN {
                let detail = format!("{MAX_SPIN} wake-ups in a row at one instant without output");
                return Err(Violation::new(Rule::Idle, at(now, &detail)));
            }
        }
        self.silent_wakeups = 0;
        if has_woken {
            let timeout = self.machine.poll_timeout();
            self.log(now, Output::Timeout(timeout));
        }
        Ok(())
    }

    /// Drains, then handles timeouts that are due.
    fn settle(&mut self, now: Instant, source: &mut Source<'_, S>) -> Result<(), Violation> {
        self.drain(now, source)?;
        self.time_out(now, source)
    }

    fn input(
        &mut self,
        now: Instant,
        input: InputOf<S>,
        source: &mut Source<'_, S>,
    ) -> Result<(), Violation> {
        if let Input::Packet(meta, packet) = &input {
            self.samples.push((meta.clone(), packet.clone()));
            self.inject(now, source)?;
        }
        self.recording.script.push((now, input.clone()));
        match input {
            Input::Command(command) => {
                let scenario = source.scenario();
                scenario.command(&mut self.machine, now, &command);
            }
            Input::Packet(meta, packet) => {
                let result = self.machine.handle_packet(now, &meta, &packet);
                self.recording.received += 1;
                self.log(now, Output::Result(format!("{result:?}")));
            }
        }
        Ok(())
    }

    /// Injects one junk packet with the metadata of a valid one.
    fn inject(&mut self, now: Instant, source: &mut Source<'_, S>) -> Result<(), Violation> {
        let Some(rng) = &mut self.variation.junk else {
            return Ok(());
        };
        let index = rng.below(self.samples.len() as u64) as usize;
        let (meta, sample) = &self.samples[index];
        let packet = junk::generate(rng, Some(sample));
        let meta = source.scenario().junk_meta(meta);
        if source.scenario().is_junk(&meta, &packet) {
            let _ = self.machine.handle_packet(now, &meta, &packet);
            self.settle(now, source)?;
        }
        Ok(())
    }

    /// Polls packets and events until neither is left, then polls again.
    fn drain(&mut self, now: Instant, source: &mut Source<'_, S>) -> Result<(), Violation> {
        for _ in 0..MAX_DRAIN {
            let due = self.machine.poll_timeout();
            let has_sent = self.poll_transmit(now, due, source)?;
            let event = self.machine.poll_event();
            let is_drained = !has_sent && event.is_none();
            if let Some(event) = event {
                let text = format!("{event:?}");
                if let Source::Live(scenario) = source {
                    scenario.notified(now, &event);
                }
                self.log(now, Output::Event(text));
            }
            if is_drained {
                return self.check_drained(now);
            }
        }
        Err(Violation::new(Rule::Drained, at(now, "output without end")))
    }

    fn check_drained(&mut self, now: Instant) -> Result<(), Violation> {
        if let Some(transmit) = self.machine.poll_transmit(now, &mut self.buffer) {
            let detail = format!("{transmit:?} after None");
            return Err(Violation::new(Rule::Drained, at(now, &detail)));
        }
        if let Some(event) = self.machine.poll_event() {
            let detail = format!("{event:?} after None");
            return Err(Violation::new(Rule::Drained, at(now, &detail)));
        }
        Ok(())
    }

    fn poll_transmit(
        &mut self,
        now: Instant,
        due: Option<Instant>,
        source: &mut Source<'_, S>,
    ) -> Result<bool, Violation> {
        let mut sizes = Vec::new();
        let needed = self.expected_lens.get(self.sent).copied();
        if self.variation.has_small_buffers {
            match needed {
                Some(needed) if self.sent < ALL_SIZES => sizes.extend(0..needed),
                Some(needed) => sizes.extend([0, needed / 2, needed.saturating_sub(1)]),
                None => sizes.extend([0, 1, 7, 20, 33, 64, 100]),
            }
        }
        sizes.push(self.buffer.len());
        for size in sizes {
            let transmit = self.machine.poll_transmit(now, &mut self.buffer[..size]);
            let Some(transmit) = transmit else {
                continue;
            };
            let len = source.scenario().packet_len(&transmit);
            let text = format!("{transmit:?}");
            if len > size {
                let detail = format!("{text} in a buffer of {size} bytes");
                return Err(Violation::new(Rule::SmallBuffer, at(now, &detail)));
            }
            self.check_due(now, due, &text)?;
            self.sent += 1;
            let packet = self.buffer[..len].to_vec();
            if let Source::Live(scenario) = source {
                scenario.transmitted(now, &transmit, &packet);
            }
            self.log(now, Output::Packet(text, packet));
            return Ok(true);
        }
        Ok(false)
    }

    fn check_due(&self, now: Instant, due: Option<Instant>, output: &str) -> Result<(), Violation> {
        if self.is_paced || due.is_some_and(|due| due <= now) {
            return Ok(());
        }
        let due = due.map_or("none".into(), |due| format!("{}", due - START));
        let detail = format!("{output} waits while the next timeout is {due}");
        Err(Violation::new(Rule::OutputDue, at(now, &detail)))
    }

    fn log(&mut self, now: Instant, output: Output) {
        self.silent_wakeups = 0;
        self.recording.outputs.push((now, output));
    }
}

fn at(now: Instant, what: &str) -> String {
    format!("{} after the start: {what}", now - START)
}
