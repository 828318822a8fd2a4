//! Finds hosts that receive nothing although their feeder has more.

use std::time::{Duration, Instant};

use super::super::{Copy, LOOK};
use super::Child;
use crate::relay::arrange::Feeder;

/// The shortest time without a block after which a host is fed by another one.
const STALLED: Duration = Duration::from_secs(6);
/// That time in blocks, at the rate at which the host has received so far.
const STALLED_BLOCKS: u32 = 8;

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
        self.look_at_pace(now);
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
    pub(super) fn move_to_end(&mut self, host: usize, reason: &'static str) {
        let relay = self.relay.as_mut();
        match relay.and_then(|relay| relay.arrangement.move_to_end(host)) {
            Some(feeder) => self.link(host, feeder, reason),
            None => self.refeed(host, reason),
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
