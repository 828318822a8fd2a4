//! Finds hosts that receive slowly, and finds out by another feeder whether they or their feeders are the slow ones.

use std::time::{Duration, Instant};

use super::super::Copy;
use super::MAX_ACCUSED;
use crate::relay::arrange::Feeder;

/// Bytes that a host is behind its feeder before it counts as slow, and the share of what its feeder receives in the meantime
/// that it then receives itself.
const SLOW_BYTES: u64 = 32 << 20;
const SLOW_SHARE: f64 = 0.75;
/// The time over which that is compared.
const SLOW: Duration = Duration::from_secs(3);
/// Seconds that a host whose feeder has everything still needs, if another feeder is to be tried.
const WORTH_PROBING: f64 = 10.0;
/// How long a host is fed otherwise then, and how much faster it is if its feeder was the slow one.
const PROBE: Duration = Duration::from_secs(2);
const FASTER: f64 = 1.5;
/// The share of what a feeder receives that its children receive together where only their number makes them slow.
const SHARED: f64 = 0.7;
/// The sender has fed the first host for this long, and the copy will take this long, before the next one is tried in its place.
const EXPLORE: Duration = Duration::from_secs(3);
const WORTH_EXPLORING: f64 = 20.0;

/// How well a host keeps up with its feeder.
#[derive(Debug, Default)]
pub(super) struct Pace {
    since: Option<Advance>,
    probe: Option<Probe>,
    /// It is slow itself, and is judged no more.
    is_slow: bool,
    /// Its child was fed by the sender for a while.
    was_explored: bool,
}

impl Pace {
    /// Begins to compare it with another feeder.
    pub(super) fn restart(&mut self) {
        self.since = None;
    }
}

/// What a host and its feeder had at a time.
#[derive(Clone, Copy, Debug)]
struct Advance {
    at: Instant,
    held: u64,
    feeder: u64,
}

/// A trial of another feeder.
#[derive(Debug)]
struct Probe {
    /// The feeder before.
    suspect: usize,
    /// Bytes per second that came from it.
    rate: f64,
    since: Instant,
    held: u64,
    /// The host is fed by `suspect` again if it is no faster without.
    returns: bool,
}

impl Copy {
    /// Judges the trials that have had their time, and begins others.
    pub(super) fn look_at_pace(&mut self, now: Instant) {
        self.judge_probes(now);
        if let Some((host, rate)) = self.slow(now) {
            self.probe_slow(host, rate, now);
        }
        if let Some((first, child)) = self.to_explore(now) {
            self.explore(first, child, now);
        }
    }

    /// Returns a host that is behind its feeder and receives less, and the rate at which it does.
    fn slow(&mut self, now: Instant) -> Option<(usize, f64)> {
        let relay = self.relay.as_mut()?;
        let mut found = Vec::new();
        for (&host, child) in &mut relay.children {
            let Some(Feeder::Host(at)) = relay.arrangement.feeder(host) else {
                continue;
            };
            let pace = &mut child.pace;
            if pace.probe.is_some() || pace.is_slow {
                continue;
            }
            let current = Advance {
                at: now,
                held: child.held,
                feeder: self.members[at].progress.held,
            };
            let since = *pace.since.get_or_insert(current);
            let time = now - since.at;
            if time < SLOW {
                continue;
            }
            pace.since = Some(current);
            let gained = current.held - since.held;
            let by_feeder = current.feeder.saturating_sub(since.feeder);
            let distance = current.feeder.saturating_sub(current.held);
            let rate = rate(gained, time);
            let lags = (gained as f64) < SLOW_SHARE * by_feeder as f64;
            // A feeder that has everything receives nothing.
            let takes_long = by_feeder == 0 && distance as f64 >= rate * WORTH_PROBING;
            if distance >= SLOW_BYTES && (lags || takes_long) {
                found.push((at, host, rate));
            }
        }
        // Hosts with one feeder share its link, and none of them is slow for that.
        let is_shared = |feeder: usize| {
            let siblings = relay.arrangement.children(feeder);
            let sum: u64 = siblings.iter().map(|&at| self.members[at].rate_bps).sum();
            siblings.len() > 1 && sum as f64 >= SHARED * self.members[feeder].rate_bps as f64
        };
        let mut found = found.into_iter();
        let first = found.find(|(feeder, ..)| !is_shared(*feeder));
        first.map(|(_, host, rate)| (host, rate))
    }

    /// Tries whether a slow host is faster with another feeder.
    fn probe_slow(&mut self, host: usize, rate: f64, now: Instant) {
        let Some(relay) = &mut self.relay else { return };
        let feeder = relay.arrangement.feeder(host);
        let Some(child) = relay.children.get_mut(&host) else {
            return;
        };
        match feeder {
            // A lying host can have two feeders set aside at most.
            Some(Feeder::Host(suspect)) if child.accused < MAX_ACCUSED => {
                child.pace.probe = Some(Probe {
                    suspect,
                    rate,
                    since: now,
                    held: child.held,
                    returns: false,
                });
                self.refeed(host, "slow");
            }
            _ => self.set_aside(host),
        }
    }

    /// Returns the host that the sender feeds, and a host that it feeds, where the copy takes so long that it is worth
    /// trying whether the second is faster without the first: what the first could receive, nothing else tells.
    fn to_explore(&self, now: Instant) -> Option<(usize, usize)> {
        let relay = self.relay.as_ref()?;
        let mut children = relay.children.iter();
        children.find_map(|(&host, child)| {
            let is_first = relay.arrangement.feeder(host) == Some(Feeder::Sender);
            let time = now - child.began;
            if !is_first || child.pace.was_explored || child.pace.is_slow || time < EXPLORE {
                return None;
            }
            let left = self.tree.manifest.bytes().saturating_sub(child.held);
            let rate = rate(child.held - child.first_held, time);
            let below = relay.arrangement.children(host);
            let below = below.into_iter().find(|at| {
                let child = relay.children.get(at);
                child.is_some_and(|child| child.pace.probe.is_none() && !child.pace.is_slow)
            });
            (left as f64 >= rate * WORTH_EXPLORING).then_some((host, below?))
        })
    }

    /// Feeds the second host of the chain beside the first for a while.
    fn explore(&mut self, first: usize, host: usize, now: Instant) {
        let Some(relay) = &mut self.relay else { return };
        let Some(before) = relay.children.get_mut(&first) else {
            return;
        };
        before.pace.was_explored = true;
        let rate = rate(before.held - before.first_held, now - before.began);
        let Some(child) = relay.children.get_mut(&host) else {
            return;
        };
        child.pace.was_explored = true;
        child.pace.probe = Some(Probe {
            suspect: first,
            rate,
            since: now,
            held: child.held,
            returns: true,
        });
        relay.arrangement.set(host, Feeder::Sender);
        self.link(host, Feeder::Sender, "tried");
    }

    /// Judges the hosts that are fed otherwise: are they faster?
    fn judge_probes(&mut self, now: Instant) {
        let Some(relay) = &mut self.relay else { return };
        let mut judged = Vec::new();
        for (&host, child) in &mut relay.children {
            let is_due = |probe: &mut Probe| now - probe.since >= PROBE;
            if let Some(probe) = child.pace.probe.take_if(is_due) {
                if self.members[host].has_all {
                    continue; // It may have had everything for most of that time.
                }
                let rate = rate(child.held - probe.held, now - probe.since);
                // A host that receives nothing is not faster than nothing.
                let is_faster = rate > probe.rate * FASTER;
                child.accused += u32::from(is_faster);
                judged.push((host, probe, is_faster));
            }
        }
        for (host, probe, is_faster) in judged {
            if is_faster {
                self.set_aside(probe.suspect);
            } else if !probe.returns {
                // Its children go to the feeder that was not to blame, not to the one that was tried.
                if let Some(relay) = &mut self.relay {
                    relay.arrangement.feed_again(host, probe.suspect);
                }
                self.set_aside(host);
            } else if let Some(relay) = &mut self.relay
                && relay.arrangement.feed_again(host, probe.suspect)
            {
                self.link(host, Feeder::Host(probe.suspect), "tried");
            }
        }
    }

    /// Moves a slow host to the end, and its children to its feeder: nothing waits for it then.
    fn set_aside(&mut self, host: usize) {
        if self.members[host].is_over() {
            return;
        }
        let Some(relay) = &mut self.relay else { return };
        let children = relay.arrangement.children(host);
        if let Some(child) = relay.children.get_mut(&host) {
            child.pace.is_slow = true;
        }
        if relay.arrangement.feeds(host) {
            self.name(host, "slow", None);
        }
        for child in children {
            self.refeed(child, "slow");
        }
        if !self.members[host].has_all {
            self.move_to_end(host, "slow");
        }
    }
}

/// Returns bytes per second.
fn rate(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64().max(0.001)
}
