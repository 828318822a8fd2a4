//! Judges hosts by their progress: those that receive nothing, and those that fall behind while others wait for them.

use std::time::{Duration, Instant};

use super::super::{Copy, LOOK};
use super::{Child, MAX_ACCUSED};
use crate::relay::arrange::Feeder;

/// The shortest time without a block after which a host is fed by another one.
const STALLED: Duration = Duration::from_secs(6);
/// That time in blocks, at the rate at which the host has received so far.
const STALLED_BLOCKS: u32 = 8;
/// Bytes that a host is behind its feeder before it counts as slow.
const SLOW_BYTES: u64 = 32 << 20;
/// How long the distance has grown by then.
const SLOW: Duration = Duration::from_secs(2);
/// How long it is fed otherwise then, and how much faster it is if its feeder was the slow one.
const PROBE: Duration = Duration::from_secs(2);
const FASTER: f64 = 1.5;

/// The distance of a host to its feeder, which has grown since a time at which the host had `held`.
#[derive(Debug)]
pub(super) struct Behind {
    distance: u64,
    since: Instant,
    held: u64,
}

/// A trial with another feeder, of a host that was slow.
#[derive(Debug)]
pub(super) struct Probe {
    /// The feeder before.
    suspect: usize,
    /// Bytes per second that came from it.
    rate: f64,
    since: Instant,
    held: u64,
}

impl Copy {
    /// Checks whether hosts receive blocks.
    pub(in crate::copy) fn look_at_links(&mut self) {
        let now = Instant::now();
        let Some(relay) = &mut self.relay else { return };
        if now < relay.next_look {
            return;
        }
        relay.next_look = now + LOOK * 4;
        self.look_at_islands(now);
        let Some(relay) = &mut self.relay else { return };
        let mut proved = Vec::new();
        for (&host, child) in &mut relay.children {
            let progress = self.members[host].progress;
            if progress.held > child.held {
                proved.extend(child.suspect.take());
            }
            if progress.held > child.held || progress.received > child.arrived {
                child.moved = now;
            }
            (child.held, child.arrived) = (child.held.max(progress.held), progress.received);
        }
        for suspect in proved {
            self.name(suspect, "stalled", None);
        }
        if let Some(host) = self.stalled(now) {
            self.unstall(host);
        }
        self.judge_probes(now);
        if let Some((host, rate)) = self.slow(now) {
            self.probe(host, rate, now);
        }
    }

    /// Returns a host that receives nothing although its feeder has more.
    fn stalled(&self, now: Instant) -> Option<usize> {
        let relay = self.relay.as_ref()?;
        let is_stalled = |&(&host, child): &(&usize, &Child)| {
            let member = &self.members[host];
            if member.is_over() || member.has_all || now - child.moved < child.stall_timeout() {
                return false;
            }
            match relay.arrangement.feeder(host) {
                Some(Feeder::Host(feeder)) => {
                    let feeder = &self.members[feeder];
                    let has = feeder.held();
                    feeder.is_over() || has > child.held
                }
                _ => relay.stock.has_more(),
            }
        };
        // The hosts below the stalled one wait for it, and have less.
        let stalled = relay.children.iter().filter(is_stalled);
        let first = stalled.max_by_key(|(_, child)| child.held);
        first.map(|(host, _)| *host)
    }

    /// Gives a host that receives nothing another feeder, and its children too: either may be at fault.
    fn unstall(&mut self, host: usize) {
        let Some(relay) = &mut self.relay else { return };
        let feeder = relay.arrangement.feeder(host);
        let Some(child) = relay.children.get_mut(&host) else {
            return;
        };
        let was_suspect = child.suspect.is_some();
        if let Some(Feeder::Host(feeder)) = feeder {
            child.suspect = Some(feeder);
        }
        if was_suspect || feeder == Some(Feeder::Sender) {
            // Two feeders, or the sender, cannot get it to move.
            let children = relay.arrangement.children(host);
            self.name(host, "stalled", None);
            for child in children {
                self.refeed(child, "stalled");
            }
            self.move_to_end(host, "stalled");
        } else {
            self.refeed(host, "stalled");
        }
        let now = Instant::now();
        if let Some(relay) = &mut self.relay {
            // The others may have waited for this host: their time starts again.
            for child in relay.children.values_mut() {
                child.moved = now;
            }
        }
    }

    /// Has a host be fed where no other waits for it.
    fn move_to_end(&mut self, host: usize, reason: &'static str) {
        let relay = self.relay.as_mut();
        match relay.and_then(|relay| relay.arrangement.move_to_end(host)) {
            Some(feeder) => self.link(host, feeder, reason),
            None => self.refeed(host, reason),
        }
    }

    /// Returns a host that is ever further behind its feeder while others wait for it, and the rate at which it has
    /// received since then.
    fn slow(&mut self, now: Instant) -> Option<(usize, f64)> {
        let relay = self.relay.as_mut()?;
        let mut found = None;
        for (&host, child) in &mut relay.children {
            let Some(Feeder::Host(feeder)) = relay.arrangement.feeder(host) else {
                continue;
            };
            if child.probe.is_some() || relay.arrangement.children(host).is_empty() {
                continue;
            }
            let feeder = &self.members[feeder].progress;
            let behind = feeder.held.saturating_sub(child.held);
            match &mut child.behind {
                Some(before) if behind >= before.distance => {
                    before.distance = behind;
                    if behind >= SLOW_BYTES && now - before.since >= SLOW {
                        found = Some((host, rate(child.held - before.held, now - before.since)));
                    }
                }
                behind_before => {
                    *behind_before = Some(Behind {
                        distance: behind,
                        since: now,
                        held: child.held,
                    });
                }
            }
        }
        found
    }

    /// Feeds a host that is slow otherwise for a while: its feeder may be the slow one.
    fn probe(&mut self, host: usize, rate: f64, now: Instant) {
        let Some(relay) = &mut self.relay else { return };
        let feeder = relay.arrangement.feeder(host);
        let Some(child) = relay.children.get_mut(&host) else {
            return;
        };
        match feeder {
            // The sender believes a host that complains of its feeders only so often.
            Some(Feeder::Host(suspect)) if child.accused < MAX_ACCUSED => {
                child.probe = Some(Probe {
                    suspect,
                    rate,
                    since: now,
                    held: child.held,
                });
                self.refeed(host, "slow");
            }
            _ => self.bypass_slow(host),
        }
    }

    /// Judges the hosts that are fed otherwise: does that make them faster?
    fn judge_probes(&mut self, now: Instant) {
        let Some(relay) = &mut self.relay else { return };
        let mut judged = Vec::new();
        for (&host, child) in &mut relay.children {
            let is_due = |probe: &mut Probe| now - probe.since >= PROBE;
            if let Some(probe) = child.probe.take_if(is_due) {
                let is_faster =
                    rate(child.held - probe.held, now - probe.since) >= probe.rate * FASTER;
                child.accused += u32::from(is_faster);
                judged.push(if is_faster { probe.suspect } else { host });
            }
        }
        for slow in judged {
            self.bypass_slow(slow);
        }
    }

    /// Names a slow host and moves it to the end, and its children to its feeder: nothing waits for it then.
    fn bypass_slow(&mut self, host: usize) {
        if self.members[host].is_over() {
            return;
        }
        let Some(relay) = &mut self.relay else { return };
        let children = relay.arrangement.children(host);
        if let Some(child) = relay.children.get_mut(&host) {
            child.behind = None;
        }
        self.name(host, "slow", None);
        for child in children {
            self.refeed(child, "slow");
        }
        if !self.members[host].has_all {
            self.move_to_end(host, "slow");
        }
    }
}

impl Child {
    /// Returns how long it may receive nothing, by the rate at which it has received so far.
    fn stall_timeout(&self) -> Duration {
        let received = self.held.saturating_sub(self.first_held);
        let took = self.moved.saturating_duration_since(self.began);
        let blocks = received / mcp_control::limits::BLOCK_LEN;
        let block = took.checked_div(u32::try_from(blocks).unwrap_or(u32::MAX));
        block
            .unwrap_or_default()
            .saturating_mul(STALLED_BLOCKS)
            .clamp(STALLED, STALLED * 10)
    }
}

/// Returns bytes per second.
fn rate(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64().max(0.001)
}
