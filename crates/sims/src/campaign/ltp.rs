//! LTP alone, with LMS in the routers, or through a tree of DyRAM relays, one beside each router.

use std::rc::Rc;

use anyhow::Result;
use dyram::storage::{Limits, Storage};
use dyram::{Relay, RelayId};
use lms_proto::Form;
use ltp::store::HeapRing;
use ltp::{Assist, ReceiverEvent, Sender, SenderEvent, relayed};
use netsim::tree::Role;
use netsim::{Duration, Instant, Node, NodeId, Sim};

use super::checked::Checked;
use super::choices::{Choices, FinalEvent};
use super::daemon::Daemon;
use super::outcome::{End, Outcome, run as run_until};
use super::profile::NetworkProfile;
use super::transports::Watch;
use crate::simulated::{
    self, Application, GROUP, Help, Host, Plan, Receiving, RelayNode, RelayedPeer, RouterNode,
    Sending, Source, Watcher, relays_above,
};

/// Virtual time after which a session that has not ended hangs.
const LIMIT: Instant = Instant::from_micros(1_800_000_000);

/// How often a stream's application appends data.
const FEED: Duration = Duration::from_millis(5);

/// The application at the source.
struct Feeder {
    content: Rc<[u8]>,
    /// Bytes written, of a stream.
    written: Option<usize>,
    next: Instant,
    complete: bool,
}

impl Application<HeapRing> for Feeder {
    fn poll_timeout(&self) -> Option<Instant> {
        self.written.map(|_| self.next)
    }

    fn feed(&mut self, now: Instant, sender: &mut Sender<'static, HeapRing>) {
        let Some(written) = &mut self.written else {
            return;
        };
        *written += sender.send(now, &self.content[*written..]).unwrap_or(0);
        self.next = now + FEED;
        if *written == self.content.len() {
            sender.finish(now);
            self.written = None;
        }
    }

    fn event(&mut self, event: &SenderEvent) {
        self.complete |= *event == SenderEvent::Complete;
    }
}

#[derive(Default)]
struct Observer(FinalEvent);

impl Watcher for Observer {
    fn event(&mut self, _now: Instant, event: &ReceiverEvent) {
        self.0.handle_event(event);
    }
}

type Peer<T, R, N> = simulated::Peer<HeapRing, Feeder, Observer, T, R, N>;
type Place<T, R, N> = Daemon<Checked<Peer<T, R, N>>>;

/// A relay serves one session here.
const LIMITS: Limits = Limits {
    sessions: 2,
    children: 16,
    nack_states: 64,
    window: 1024,
};

fn feeder(choices: &Choices, now: Instant) -> Feeder {
    Feeder {
        content: Rc::clone(&choices.content),
        written: choices.stream.map(|_| 0),
        next: now,
        complete: false,
    }
}

/// Runs one seed of LTP alone or with LMS.
///
/// # Errors
/// When the trace cannot be written.
pub(super) fn run(seed: u64, lms: bool, watch: &Watch) -> Result<Outcome> {
    let mut profile = NetworkProfile::new(seed, lms);
    let mut choices = Choices::draw(&profile);
    let mut rng = profile.choices();
    let help = match lms {
        false => Help::None,
        true if rng.chance(0.3) => Help::Static,
        true => Help::Live,
    };
    let form = if rng.chance(0.5) {
        Form::Own
    } else {
        Form::Classic
    };
    profile.plan = Rc::new(Plan::new(profile.tree().clone()).with_form(form));
    choices.receiver.assist = if lms { Assist::Lms } else { Assist::None };
    let words = format!("{}, {help:?}, {form:?}", choices.describe());
    play(
        profile,
        choices,
        &words,
        watch,
        move |profile, choices, node, now, up| {
            let (plan, seed) = (&profile.plan, profile.node_seed(node, now));
            match plan.tree.role(node) {
                Role::Source => {
                    let sender = choices.sender(seed, now);
                    let source = Source::new(plan, sender, feeder(choices, now));
                    simulated::Peer::Source(Box::new(source))
                }
                Role::Router => {
                    let help = if up { help } else { Help::None };
                    simulated::Peer::Router(RouterNode::new(plan, node, help, seed))
                }
                Role::Receiver => {
                    let receiver = choices.receiver(choices.receiver.clone(), seed, now);
                    let host = Host::new(plan, node, help, receiver, seed, Observer::default());
                    simulated::Peer::Host(Box::new(host))
                }
            }
        },
    )
}

/// Runs one seed of LTP through relays.
///
/// # Errors
/// When the trace cannot be written.
pub(super) fn run_relayed(seed: u64, watch: &Watch) -> Result<Outcome> {
    let profile = NetworkProfile::new(seed, true);
    let mut choices = Choices::draw(&profile);
    choices.receiver.assist = Assist::Dyram;
    choices.receiver.source = Some((*profile.plan.source().ip()).into());
    let words = choices.describe();
    play(profile, choices, &words, watch, relayed_peer)
}

fn relayed_peer(
    profile: &NetworkProfile,
    choices: &Choices,
    node: u32,
    now: Instant,
    up: bool,
) -> RelayedPeer<HeapRing, Feeder, Observer> {
    let (plan, seed) = (&profile.plan, profile.node_seed(node, now));
    let group = (*GROUP.ip()).into();
    match plan.tree.role(node) {
        Role::Source => {
            let first = [plan.host(1).into()].into_iter().collect();
            let (sender, socket) = (choices.sender(seed, now), plan.source().into());
            let sender = relayed::Sender::new(sender, socket, group, first, seed, now);
            let sender = sender.expect("all is IPv4");
            let source = Source::new(plan, sender, feeder(choices, now));
            RelayedPeer::Source(Box::new(source))
        }
        Role::Router => {
            let relay = up.then(|| {
                let mut config = dyram::Config::new(RelayId(node));
                config.parents = relays_above(plan, node);
                let storage = Storage::owned(LIMITS).expect("the limits are sound");
                Relay::new(config, storage, seed, now).expect("the configuration is sound")
            });
            RelayedPeer::Router(RelayNode::new(plan, node, relay))
        }
        Role::Receiver => {
            let receiver = choices.receiver(choices.receiver.clone(), seed, now);
            let (source, relays) = ((*plan.source().ip()).into(), relays_above(plan, node));
            let receiver = relayed::Receiver::new(receiver, source, group, relays, seed, now);
            let receiver = receiver.expect("all is IPv4");
            let host = Host::new(plan, node, Help::None, receiver, seed, Observer::default());
            RelayedPeer::Host(Box::new(host))
        }
    }
}

/// Runs a session until it has ended everywhere, and judges it. `make` makes a node, the last argument says whether its
/// daemon runs.
fn play<T: Sending<HeapRing>, R: Receiving<HeapRing>, N: Node>(
    profile: NetworkProfile,
    choices: Choices,
    words: &str,
    watch: &Watch,
    make: impl Fn(&NetworkProfile, &Choices, u32, Instant, bool) -> Peer<T, R, N> + 'static,
) -> Result<Outcome> {
    let shared = Rc::new((profile, choices, make));
    let in_make = Rc::clone(&shared);
    let (profile, choices, _) = &*shared;
    let mut sim = profile.build(move |node, now| {
        let shared = Rc::clone(&in_make);
        Daemon::new(&in_make.0, node, now, move |now, up| {
            let (profile, choices, make) = &*shared;
            let peer = make(profile, choices, node, now, up);
            match profile.tree().role(node) {
                Role::Router => Checked::router(peer),
                Role::Source | Role::Receiver => Checked::host(peer),
            }
        })
    });
    watch.begin(&mut sim, profile, words)?;
    // A source waits for its relay without a limit.
    let waits = choices.receiver.assist == Assist::Dyram && profile.first_hop_is_lost();
    let is_done = |sim: &Sim<Place<T, R, N>>| {
        sim.nodes().all(|(_, place)| match &place.node.node {
            simulated::Peer::Host(host) => host.watch.0.get().is_some(),
            simulated::Peer::Source(source) => waits || source.sender.sender().is_ended(),
            simulated::Peer::Router(_) => true,
        })
    };
    let done = run_until(&mut sim, profile, LIMIT, is_done);
    watch.end(&mut sim)?;
    Ok(judge(&sim, profile, choices, waits, done, watch))
}

fn judge<T: Sending<HeapRing>, R: Receiving<HeapRing>, N: Node>(
    sim: &Sim<Place<T, R, N>>,
    profile: &NetworkProfile,
    choices: &Choices,
    waits: bool,
    done: bool,
    watch: &Watch,
) -> Outcome {
    let mut outcome = Outcome::of(sim, done);
    let node = |number: u32| sim.node(NodeId(number)).map(|place| &place.node.node);
    for number in profile.tree().receivers() {
        let end = match node(number) {
            Some(simulated::Peer::Host(host)) => {
                let receiver = host.receiver.receiver();
                watch.print(|| {
                    let (progress, stats) = (receiver.progress(), receiver.stats());
                    format!("receiver {number}: {progress:?} {stats:?}")
                });
                choices.end(receiver, host.watch.0.get())
            }
            _ => End::Dead,
        };
        watch.print(|| format!("receiver {number}: {end:?}"));
        outcome.receiver(number, profile.is_cut_off(number) || waits, &end);
    }
    if let Some(simulated::Peer::Source(source)) = node(0) {
        let sender = source.sender.sender();
        watch.print(|| format!("source: {:?} {:?}", sender.progress(), sender.stats()));
        if !waits && !sender.is_ended() {
            outcome.fault("the source never ends");
        }
        let known = choices.sender.receivers.is_some();
        if known && profile.is_calm() && !source.application.complete {
            outcome.fault("all have everything, and the source does not know");
        }
    }
    outcome
}
