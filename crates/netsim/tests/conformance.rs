//! The conformance suite finds each flaw that it looks for: one small machine, broken in one way at a time.

use std::collections::VecDeque;

use netsim::conformance::{self, Input, Rule, Scenario, Violation};
use netsim::{Duration, Instant};
use proto_core::Machine;

/// What is wrong with a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flaw {
    None,
    /// Its first packet has another number in each machine.
    Global,
    /// Repeats its hello whenever it is called, due or not.
    Impatient,
    /// Counts calls of `handle_timeout` into its hello.
    CountsCalls,
    /// Repeats its hello when called twice at one instant.
    Stutters,
    /// Stops when a timeout comes late.
    Punctual,
    /// Sends one more packet when asked after `None`.
    Afterthought,
    /// Has an answer and asks for no timeout.
    ForgetsOutput,
    /// Polls itself twice a second.
    Ticks,
    /// Asks for a timeout at the same instant again and again.
    Spins,
    /// Goes on after the end.
    Undead,
    /// Empty packets are answered.
    AnswersJunk,
    /// Counts packets that it refuses into its answers.
    RemembersJunk,
    /// Drops a packet that does not fit.
    LosesLarge,
    /// Says that it wrote more than the buffer holds.
    Overruns,
    /// Never answers.
    Mute,
}

/// Sends a hello each second, ten times, and answers requests: a byte 1 and its complement.
struct Toy {
    flaw: Flaw,
    now: Instant,
    hello_at: Option<Instant>,
    tick_at: Option<Instant>,
    hellos: u8,
    salt: u8,
    calls: u8,
    last_hello: Instant,
    refused: u8,
    is_drained: bool,
    output: VecDeque<Vec<u8>>,
    events: VecDeque<&'static str>,
}

const HELLO: Duration = Duration::from_secs(1);

impl Toy {
    fn new(flaw: Flaw, now: Instant) -> Self {
        use std::sync::atomic::{AtomicU8, Ordering};
        static GLOBAL: AtomicU8 = AtomicU8::new(0);
        let salt = match flaw {
            Flaw::Global => GLOBAL.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        Toy {
            flaw,
            now,
            hello_at: Some(now + HELLO),
            tick_at: (flaw == Flaw::Ticks).then_some(now),
            hellos: 0,
            salt,
            calls: 0,
            last_hello: now,
            refused: 0,
            is_drained: false,
            output: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    fn hello(&mut self, now: Instant) {
        let tail = if self.flaw == Flaw::CountsCalls {
            self.calls
        } else {
            0
        };
        self.output
            .push_back(vec![b'h', self.hellos, self.salt, tail]);
        self.hellos += 1;
        self.last_hello = now;
        let is_last = self.hellos == 10 && self.flaw != Flaw::Undead;
        self.hello_at = (!is_last).then_some(now + HELLO);
        self.hellos %= 10;
    }
}

impl Machine for Toy {
    type Meta = u16;
    type Transmit = usize;
    type Event = &'static str;
    type Error = &'static str;

    fn handle_packet(&mut self, now: Instant, _: &u16, packet: &[u8]) -> Result<(), Self::Error> {
        self.now = now;
        match packet {
            [1, a, b] if *a == !*b => {}
            [] if self.flaw == Flaw::AnswersJunk => self.events.push_back("empty"),
            _ => {
                self.refused = self.refused.wrapping_add(1);
                return Err("malformed");
            }
        }
        if self.flaw != Flaw::Mute {
            let tail = if self.flaw == Flaw::RemembersJunk {
                self.refused
            } else {
                0
            };
            self.output.push_back(vec![b'a', packet.len() as u8, tail]);
        }
        self.events.push_back("asked");
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.flaw == Flaw::Stutters && self.last_hello == now {
            self.hello(now);
        }
        self.now = now;
        self.calls = self.calls.wrapping_add(1);
        if self.tick_at.is_some_and(|at| at <= now) {
            self.tick_at = Some(now + HELLO / 2);
        }
        let Some(at) = self.hello_at else {
            return;
        };
        if self.flaw == Flaw::Punctual && at < now {
            self.hello_at = None;
            return;
        }
        if at <= now || self.flaw == Flaw::Impatient {
            self.hello(now);
        }
    }

    fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize> {
        self.now = now;
        let Some(packet) = self.output.front() else {
            if self.flaw == Flaw::Afterthought && self.is_drained {
                self.is_drained = false;
                return Some(0);
            }
            self.is_drained = true;
            return None;
        };
        let len = packet.len();
        if self.flaw == Flaw::Overruns && buffer.len() < len {
            self.output.pop_front();
            return Some(len);
        }
        if let Some(target) = buffer.get_mut(..len) {
            target.copy_from_slice(packet);
            self.output.pop_front();
            return Some(len);
        }
        if self.flaw == Flaw::LosesLarge {
            self.output.pop_front();
        }
        None
    }

    fn poll_event(&mut self) -> Option<&'static str> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let has_output = !self.output.is_empty() && self.flaw != Flaw::ForgetsOutput;
        let is_due = has_output || self.flaw == Flaw::Spins;
        let due = is_due.then_some(self.now);
        [due, self.hello_at, self.tick_at]
            .into_iter()
            .flatten()
            .min()
    }
}

/// Asks three times a second, for eight seconds.
struct Asker {
    flaw: Flaw,
    asked: u8,
    answers: usize,
    hellos: usize,
}

impl Asker {
    fn next(&self) -> Option<Instant> {
        let at = Duration::from_millis(333) * u32::from(self.asked) + Duration::from_millis(7);
        (self.asked < 24).then_some(conformance::START + at)
    }
}

impl Scenario for Asker {
    type Machine = Toy;
    type Command = ();

    fn machine(&self, now: Instant) -> Toy {
        Toy::new(self.flaw, now)
    }

    fn command(&self, _: &mut Toy, _: Instant, (): &()) {}

    fn packet_len(&self, transmit: &usize) -> usize {
        *transmit
    }

    fn transmitted(&mut self, _: Instant, _: &usize, packet: &[u8]) {
        self.answers += usize::from(packet.first() == Some(&b'a'));
        self.hellos += usize::from(packet.first() == Some(&b'h'));
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.next()
    }

    fn poll_input(&mut self, now: Instant) -> Option<Input<u16, ()>> {
        self.next().filter(|at| *at <= now)?;
        self.asked += 1;
        Some(Input::Packet(7, vec![1, self.asked, !self.asked]))
    }

    fn is_goal_reached(&self) -> bool {
        self.answers == 24 && self.hellos >= 10
    }

    fn has_ended(&self) -> bool {
        true
    }
}

fn run(flaw: Flaw) -> Result<conformance::Summary, Violation> {
    conformance::run(|| Asker {
        flaw,
        asked: 0,
        answers: 0,
        hellos: 0,
    })
}

#[test]
fn a_sound_machine_conforms() {
    let summary = run(Flaw::None).unwrap();
    assert_eq!(
        (summary.received, summary.sent, summary.events),
        (24, 34, 24)
    );
    assert_eq!(summary.idle_wakeups, 0);
}

#[test]
fn each_flaw_is_found_by_its_rule() {
    for (flaw, rule) in [
        (Flaw::Global, Rule::Determinism),
        (Flaw::Impatient, Rule::EarlyTimeout),
        (Flaw::CountsCalls, Rule::EarlyTimeout),
        (Flaw::Stutters, Rule::DoubledTimeout),
        (Flaw::Punctual, Rule::LateTimeout),
        (Flaw::Afterthought, Rule::Drained),
        (Flaw::ForgetsOutput, Rule::OutputDue),
        (Flaw::Ticks, Rule::Idle),
        (Flaw::Spins, Rule::Idle),
        (Flaw::Undead, Rule::Silence),
        (Flaw::AnswersJunk, Rule::Junk),
        (Flaw::RemembersJunk, Rule::Junk),
        (Flaw::LosesLarge, Rule::SmallBuffer),
        (Flaw::Overruns, Rule::SmallBuffer),
        (Flaw::Mute, Rule::Goal),
    ] {
        let violation = run(flaw).expect_err("a flaw");
        assert_eq!(violation.rule, rule, "{flaw:?}: {violation}");
    }
}
