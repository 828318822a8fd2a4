//! The possible ends of a run, and the result of one.

use std::collections::BTreeMap;

use netsim::{Instant, Node, Sim};

use super::profile::NetworkProfile;

/// How it ended for one receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Every byte, the right ones.
    Whole,
    /// It reports that it is complete, but its content is difference.
    Wrong,
    /// It gave up with a named error.
    Named(String),
    /// It is dead.
    Dead,
    /// Nothing.
    Open,
}

/// The result of one seed.
#[derive(Default)]
pub(super) struct Outcome {
    /// Faults; empty when the run is correct.
    pub(super) faults: Vec<String>,
    pub(super) whole: u64,
    /// Named errors of receivers that lacked something permanently.
    pub(super) named: BTreeMap<String, u64>,
    pub(super) packets: u64,
    pub(super) virtual_ms: u64,
}

impl Outcome {
    /// What the simulator counted; it is a fault when the session is not `done`.
    pub(super) fn of<N: Node>(sim: &Sim<N>, done: bool) -> Self {
        let mut outcome = Self {
            packets: sim.stats().packets,
            virtual_ms: sim.now().total_millis() as u64,
            ..Self::default()
        };
        if !done {
            outcome.fault(format!("not done at {}", sim.now()));
        }
        outcome
    }

    pub(super) fn fault(&mut self, words: impl Into<String>) {
        self.faults.push(words.into());
    }

    /// Takes note of how it ended for a receiver. `may_fail`: something failed that it cannot do
    /// without.
    pub(super) fn receiver(&mut self, receiver: u32, may_fail: bool, end: &End) {
        match end {
            End::Whole => self.whole += 1,
            End::Dead => {}
            End::Named(name) if may_fail => {
                *self.named.entry(name.clone()).or_default() += 1;
            }
            End::Named(name) => self.fault(format!(
                "receiver {receiver} gave up ({name}), and nothing it needs stayed dead"
            )),
            End::Wrong => self.fault(format!("receiver {receiver} holds the wrong bytes")),
            End::Open => self.fault(format!(
                "receiver {receiver} has neither ended nor given up"
            )),
        }
    }
}

/// More packets than this in one run, which needs some thousands, are a storm.
const STORM: u64 = 20_000_000;

/// Runs until `done`, at most to `limit`. True when it was done.
pub(super) fn run<N: Node>(
    sim: &mut Sim<N>,
    profile: &NetworkProfile,
    limit: Instant,
    done: impl Fn(&Sim<N>) -> bool,
) -> bool {
    // A run is not over while a failure or a recovery is still scheduled.
    let last = profile.outages.iter();
    let last = last.filter_map(|outage| outage.until.or(Some(outage.at)));
    let settled = last.max().unwrap_or(Instant::ZERO);
    let mut slice_ms = 20;
    while sim.now() <= settled || !done(sim) {
        if sim.now() >= limit || sim.stats().packets > STORM {
            return false;
        }
        let next = sim.now() + netsim::Duration::from_millis(slice_ms);
        sim.run_until(next);
        slice_ms = (slice_ms + slice_ms / 4).min(2_000);
    }
    true
}
