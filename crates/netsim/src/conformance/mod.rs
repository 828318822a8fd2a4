//! The conformance suite of the [`Machine`] contract.
//!
//! A test describes a machine, its commands and the world around it as a [`Scenario`]; [`run`] records one run
//! against that world, then replays the recorded packets and commands into fresh machines under variations.
//!
//! Two scenarios are ready-made: [`Script`] of inputs at set times, and [`Paired`] of two machines that talk to
//! each other.
//!
//! | rule | what is checked |
//! | --- | --- |
//! | [`Rule::Goal`] | the recorded run reaches the scenario's goal, so that the other rules check something |
//! | [`Rule::Determinism`] | equal inputs lead to equal packets, events, results and timeouts, byte for byte |
//! | [`Rule::EarlyTimeout`] | calls of `handle_timeout` before `poll_timeout` change nothing |
//! | [`Rule::DoubledTimeout`] | each `handle_timeout` called twice changes nothing |
//! | [`Rule::LateTimeout`] | timeouts that come late break no other rule; a live run still reaches its goal |
//! | [`Rule::Drained`] | after `None`, a second poll at the same instant returns `None` |
//! | [`Rule::OutputDue`] | while a packet waits, `poll_timeout` is not later than now |
//! | [`Rule::Idle`] | wake-ups without a packet or an event are bounded, at one instant and in an idle hour |
//! | [`Rule::Silence`] | a machine that has ended sends nothing and asks for no timeout |
//! | [`Rule::Junk`] | random and truncated packets change no later packet, event or result |
//! | [`Rule::SmallBuffer`] | a buffer that is too small neither panics, nor loses a packet, nor is overrun |
//!
//! ```
//! use netsim::conformance::{self, Input, Scenario};
//! use proto_core::Machine;
//! use proto_core::time::Instant;
//!
//! /// Sends each packet back.
//! #[derive(Default)]
//! struct Echo {
//!     waiting: Option<Vec<u8>>,
//!     now: Option<Instant>,
//! }
//!
//! impl Machine for Echo {
//!     type Meta = ();
//!     type Transmit = usize;
//!     type Event = core::convert::Infallible;
//!     type Error = &'static str;
//!
//!     fn handle_packet(&mut self, now: Instant, _: &(), packet: &[u8]) -> Result<(), Self::Error> {
//!         if packet != b"ping" {
//!             return Err("not a ping");
//!         }
//!         (self.waiting, self.now) = (Some(packet.to_vec()), Some(now));
//!         Ok(())
//!     }
//!     fn handle_timeout(&mut self, _now: Instant) {}
//!     fn poll_transmit(&mut self, _now: Instant, buffer: &mut [u8]) -> Option<usize> {
//!         let len = self.waiting.as_ref()?.len();
//!         let target = buffer.get_mut(..len)?; // too small: the packet waits
//!         target.copy_from_slice(&self.waiting.take()?);
//!         Some(len)
//!     }
//!     fn poll_event(&mut self) -> Option<Self::Event> {
//!         None
//!     }
//!     fn poll_timeout(&self) -> Option<Instant> {
//!         self.waiting.as_ref().and(self.now)
//!     }
//! }
//!
//! /// Pings it once.
//! struct Once {
//!     pinged: bool,
//!     ponged: bool,
//! }
//!
//! impl Scenario for Once {
//!     type Machine = Echo;
//!     type Command = ();
//!
//!     fn machine(&self, _now: Instant) -> Echo {
//!         Echo::default()
//!     }
//!     fn command(&self, _: &mut Echo, _: Instant, _: &()) {}
//!     fn packet_len(&self, transmit: &usize) -> usize {
//!         *transmit
//!     }
//!     fn transmitted(&mut self, _: Instant, _: &usize, packet: &[u8]) {
//!         self.ponged = packet == b"ping";
//!     }
//!     fn poll_timeout(&self) -> Option<Instant> {
//!         (!self.pinged).then_some(conformance::START)
//!     }
//!     fn poll_input(&mut self, _: Instant) -> Option<Input<(), ()>> {
//!         let is_first = !core::mem::replace(&mut self.pinged, true);
//!         is_first.then(|| Input::Packet((), b"ping".to_vec()))
//!     }
//!     fn is_goal_reached(&self) -> bool {
//!         self.ponged
//!     }
//! }
//!
//! conformance::run(|| Once { pinged: false, ponged: false }).unwrap();
//! ```

mod driver;
mod junk;
mod pair;
mod script;

use std::fmt;

use proto_core::Machine;
use proto_core::time::{Duration, Instant};

use self::driver::{Driver, Variation};
use crate::rng::Rng;

pub use self::pair::{EventOf, MetaOf, Pair, Paired, TransmitOf};
pub use self::script::{Action, Script};

/// When every run starts.
pub const START: Instant = Instant::from_secs(1_000);

/// How long a machine is left alone at the end of each run.
const IDLE: Duration = Duration::from_secs(3_600);

/// A packet or a command for the machine under test.
#[derive(Clone, Debug)]
pub enum Input<M, C> {
    /// A packet that arrives.
    Packet(M, Vec<u8>),
    /// A command of the application.
    Command(C),
}

/// The packets and commands of a scenario's machine.
pub type InputOf<S> = Input<<<S as Scenario>::Machine as Machine>::Meta, <S as Scenario>::Command>;

/// A machine under test and the world around it.
///
/// The suite creates a scenario for each run. Scenarios of one suite must be equal: whatever is random in them
/// comes from a constant seed.
pub trait Scenario {
    /// The machine under test.
    type Machine: Machine<Meta: Clone, Transmit: fmt::Debug, Event: fmt::Debug, Error: fmt::Debug>;
    /// A command of the application. `()` for a machine without commands.
    type Command: Clone;

    /// Creates the machine, always in the same state.
    fn machine(&self, now: Instant) -> Self::Machine;

    /// Executes a command on the machine.
    fn command(&self, machine: &mut Self::Machine, now: Instant, command: &Self::Command);

    /// Returns the length of a packet in bytes.
    fn packet_len(&self, transmit: &<Self::Machine as Machine>::Transmit) -> usize;

    /// Receives a packet that the machine has sent.
    fn transmitted(
        &mut self,
        _now: Instant,
        _transmit: &<Self::Machine as Machine>::Transmit,
        _packet: &[u8],
    ) {
    }

    /// Receives an event of the machine.
    fn notified(&mut self, _now: Instant, _event: &<Self::Machine as Machine>::Event) {}

    /// Returns when the world next acts; `None` if only the machine can cause that.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Returns the next packet or command that is due; drained until `None`.
    fn poll_input(&mut self, now: Instant) -> Option<InputOf<Self>>;

    /// Returns whether the run has shown what it should: the transfer is complete, the neighbour is known.
    fn is_goal_reached(&self) -> bool;

    /// How long the world acts. An idle hour follows.
    fn duration(&self) -> Duration {
        Duration::from_secs(60)
    }

    /// Size of the largest packet in bytes.
    fn buffer_len(&self) -> usize {
        65_536
    }

    /// Most wake-ups without a packet or an event in the idle hour. Override with the reason: state that expires
    /// needs a wake-up for each expiry.
    fn max_idle_wakeups(&self) -> usize {
        32
    }

    /// Whether the machine has ended when the world has acted, and must then be silent.
    fn has_ended(&self) -> bool {
        false
    }

    /// Whether this packet may be injected as junk. Override to name, narrowly, what the machine answers for a
    /// reason: a challenge, a reset, the end of an authenticated stream.
    fn is_junk(&self, _meta: &<Self::Machine as Machine>::Meta, _packet: &[u8]) -> bool {
        true
    }

    /// Returns where junk of the form of a packet with this metadata comes from. Override where packets come over
    /// authenticated streams, on which malformed bytes end the stream: junk then comes from another address.
    fn junk_meta(
        &self,
        meta: &<Self::Machine as Machine>::Meta,
    ) -> <Self::Machine as Machine>::Meta {
        meta.clone()
    }

    /// Whether the machine may choose or cut a packet by the size of the buffer. If not, small buffers must
    /// change nothing.
    fn fits_packets_to_buffers(&self) -> bool {
        false
    }

    /// Whether the machine paces its packets in batches: polled for another reason, it may send a packet before
    /// `poll_timeout` has come. Then [`Rule::OutputDue`] is not checked, and early timeouts may move packets, but
    /// not prevent the goal.
    fn is_paced(&self) -> bool {
        false
    }
}

/// A rule of the contract.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// The scenario reaches its goal.
    Goal,
    /// Equal inputs lead to equal outputs.
    Determinism,
    /// Early timeouts change nothing.
    EarlyTimeout,
    /// Doubled timeouts change nothing.
    DoubledTimeout,
    /// Late timeouts break nothing.
    LateTimeout,
    /// After `None`, a second poll at the same instant returns `None`.
    Drained,
    /// `poll_timeout` is not later than now while a packet waits.
    OutputDue,
    /// Wake-ups without output are bounded.
    Idle,
    /// A machine that has ended is silent.
    Silence,
    /// Junk changes nothing but counters.
    Junk,
    /// Small buffers lose nothing.
    SmallBuffer,
}

/// A rule that the machine breaks.
#[derive(Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which one.
    pub rule: Rule,
    /// The time since the start, the expected result, and the actual one.
    pub detail: String,
}

impl Violation {
    fn new(rule: Rule, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Violation { rule, detail }
    }

    fn during(self, variation: &str) -> Self {
        let detail = format!("{} ({variation})", self.detail);
        Violation { detail, ..self }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.detail)
    }
}

/// The text of [`Display`](fmt::Display), which `unwrap` prints.
impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Violation {}

/// What the recorded run contained: for assertions that a scenario is not trivial.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Packets that the machine received.
    pub received: usize,
    /// Packets that it sent, with those of the idle hour.
    pub sent: usize,
    /// Its events, with those of the idle hour.
    pub events: usize,
    /// Wake-ups of the idle hour without a packet or an event.
    pub idle_wakeups: usize,
}

/// Runs a machine through the whole suite.
///
/// # Errors
///
/// The first rule that the machine breaks.
pub fn run<S: Scenario>(make: impl Fn() -> S) -> Result<Summary, Violation> {
    let mut live = make();
    let recorded = Driver::new(&live, Variation::default()).record(&mut live)?;
    if !live.is_goal_reached() {
        return Err(Violation::new(
            Rule::Goal,
            "the recorded run missed its goal",
        ));
    }
    let scenario = make();
    let is_compared = |rule: Rule| match rule {
        Rule::LateTimeout => false,
        Rule::EarlyTimeout => !scenario.is_paced(),
        _ => true,
    };
    let replay = |rule: Rule, name: &str, variation: Variation| {
        let driver = Driver::new(&scenario, variation).expecting(&recorded);
        let replayed = driver.replay(&scenario, &recorded.script);
        let replayed = replayed.map_err(|violation| violation.during(name))?;
        match recorded.difference(&replayed, rule) {
            Some(difference) if is_compared(rule) => {
                Err(Violation::new(rule, format!("{name}: {difference}")))
            }
            _ => Ok(()),
        }
    };
    replay(
        Rule::Determinism,
        "the same inputs again",
        Variation::default(),
    )?;
    replay(Rule::EarlyTimeout, "early timeouts", Variation::early())?;
    replay(
        Rule::DoubledTimeout,
        "doubled timeouts",
        Variation::doubled(),
    )?;
    for late in [1, 10, 1_000, 600_000] {
        let late = Duration::from_millis(late);
        let name = format!("timeouts {late} late");
        replay(Rule::LateTimeout, &name, Variation::late(late))?;
    }
    for seed in 0..8 {
        let name = format!("junk of seed {seed}");
        replay(Rule::Junk, &name, Variation::junk(Rng::new([seed; 32])))?;
    }
    if !scenario.fits_packets_to_buffers() {
        replay(
            Rule::SmallBuffer,
            "small buffers",
            Variation::small_buffers(),
        )?;
    }
    let live_variations = [
        (Rule::EarlyTimeout, "early timeouts", Variation::early()),
        (
            Rule::SmallBuffer,
            "small buffers",
            Variation::small_buffers(),
        ),
        (
            Rule::LateTimeout,
            "timeouts 1 ms late",
            Variation::late(Duration::from_millis(1)),
        ),
    ];
    for (rule, name, variation) in live_variations {
        let mut live = make();
        let driver = Driver::new(&live, variation);
        driver
            .record(&mut live)
            .map_err(|violation| violation.during(name))?;
        if !live.is_goal_reached() {
            return Err(Violation::new(rule, format!("{name}: the goal was missed")));
        }
    }
    Ok(recorded.summary())
}
