//! LTP alone, or with LMS in the routers.

use std::rc::Rc;

use anyhow::Result;
use ltp::store::HeapRing;
use ltp::{Assist, ReceiverEvent, Sender, SenderEvent};
use netsim::tree::Role;
use netsim::{Duration, Instant, NodeId, Sim};

use super::checked::Checked;
use super::choices::{Choices, LastWord};
use super::daemon::Daemon;
use super::outcome::{End, Outcome, run as run_until};
use super::profile::NetworkProfile;
use super::transports::Watch;
use crate::simulated::{self, Application, Help, RouterNode, Watcher};

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
struct Ear(LastWord);

impl Watcher for Ear {
    fn event(&mut self, _now: Instant, event: &ReceiverEvent) {
        self.0.handle_event(event);
    }
}

type Peer = simulated::Peer<HeapRing, Feeder, Ear>;
type Place = Daemon<Checked<Peer>>;

fn place(
    profile: &Rc<NetworkProfile>,
    choices: &Rc<Choices>,
    help: Help,
    node: u32,
    now: Instant,
) -> Place {
    let (for_make, choices) = (Rc::clone(profile), Rc::clone(choices));
    Daemon::new(profile, node, now, move |now, up| {
        let (profile, plan) = (&for_make, &for_make.plan);
        let seed = profile.node_seed(node, now);
        match plan.tree.role(node) {
            Role::Source => {
                let application = Feeder {
                    content: Rc::clone(&choices.content),
                    written: choices.stream.map(|_| 0),
                    next: now,
                    complete: false,
                };
                let sender = choices.sender(seed, now);
                let source = simulated::Source::new(plan, sender, application);
                Checked::host(Peer::Source(Box::new(source)))
            }
            Role::Router => {
                let help = if up { help } else { Help::None };
                Checked::router(Peer::Router(RouterNode::new(plan, node, help, seed)))
            }
            Role::Receiver => {
                let receiver = choices.receiver(choices.receiver.clone(), seed, now);
                let ear = Ear::default();
                let host = simulated::Host::new(plan, node, help, receiver, seed, ear);
                Checked::host(Peer::Host(Box::new(host)))
            }
        }
    })
}

fn is_done(sim: &Sim<Place>) -> bool {
    sim.nodes().all(|(_, place)| match &place.node.node {
        Peer::Host(host) => host.watch.0.get().is_some(),
        Peer::Source(source) => source.sender.is_ended(),
        Peer::Router(_) => true,
    })
}

/// Runs one seed.
///
/// # Errors
/// When the trace cannot be written.
pub(super) fn run(seed: u64, lms: bool, watch: &Watch) -> Result<Outcome> {
    let profile = Rc::new(NetworkProfile::new(seed, lms));
    let mut choices = Choices::draw(&profile);
    let mut rng = profile.choices();
    let help = match lms {
        false => Help::None,
        true if rng.chance(0.3) => Help::Static,
        true => Help::Live,
    };
    choices.receiver.assist = if lms { Assist::Lms } else { Assist::None };
    let choices = Rc::new(choices);
    let (for_make, in_make) = (Rc::clone(&profile), Rc::clone(&choices));
    let mut sim = profile.build(move |node, now| place(&for_make, &in_make, help, node, now));
    let words = format!("{}, {help:?}", choices.describe());
    watch.begin(&mut sim, &profile, &words)?;
    let done = run_until(&mut sim, &profile, LIMIT, is_done);
    watch.end(&mut sim)?;
    Ok(judge(&sim, &profile, &choices, done, watch))
}

fn judge(
    sim: &Sim<Place>,
    profile: &NetworkProfile,
    choices: &Choices,
    done: bool,
    watch: &Watch,
) -> Outcome {
    let mut outcome = Outcome::of(sim);
    if !done {
        outcome.fault(format!("not done at {}", sim.now()));
    }
    for number in profile.tree().receivers() {
        let node = sim.node(NodeId(number)).map(|place| &place.node.node);
        let end = match node {
            Some(Peer::Host(host)) => {
                watch.print(|| {
                    let (progress, stats) = (host.receiver.progress(), host.receiver.stats());
                    format!("receiver {number}: {progress:?} {stats:?}")
                });
                choices.end(&host.receiver, host.watch.0.get())
            }
            _ => End::Dead,
        };
        watch.print(|| format!("receiver {number}: {end:?}"));
        outcome.receiver(number, profile.is_cut_off(number), &end);
    }
    if let Some(Peer::Source(source)) = sim.node(NodeId(0)).map(|place| &place.node.node) {
        watch.print(|| {
            let (progress, stats) = (source.sender.progress(), source.sender.stats());
            format!("source: {progress:?} {stats:?}")
        });
        if !source.sender.is_ended() {
            outcome.fault("the source never ends");
        }
        let known = choices.sender.receivers.is_some();
        if known && profile.is_calm() && !source.application.complete {
            outcome.fault("all have everything, and the source does not know");
        }
    }
    outcome
}
