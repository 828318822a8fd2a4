//! The start of the data: finds the hosts that multicast does not reach, and moves them to links.
//!
//! All hosts start with the data connection, by unicast and in the group at once. A host that multicast reaches falls
//! forward within a few segments. While a host has not, the reader sends little, so that the copies for each host cost
//! little.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mcp_control::Layout;
use mcp_control::wire::hello::Capabilities;

use super::{Copy, Reach};
use crate::hold::Hold;

/// What a host acknowledges by unicast before multicast counts as not reaching it: twice what the feedback of the group
/// covers.
const ENOUGH: u64 = 384 << 10;
/// The time that multicast routing gets, from the first acknowledgement.
const ROUTED: Duration = Duration::from_millis(250);
/// The longest trial: a host that acknowledges nothing is fed over links then.
const LONGEST: Duration = Duration::from_secs(2);

/// A trial that is running.
#[derive(Debug)]
pub(super) struct Trial {
    hold: Arc<Hold>,
    layout: Arc<Layout>,
    began: Instant,
    acknowledged: Option<Instant>,
}

impl Trial {
    pub(super) fn new(hold: Arc<Hold>, layout: Arc<Layout>) -> Trial {
        Trial {
            hold,
            layout,
            began: Instant::now(),
            acknowledged: None,
        }
    }

    /// Whether it is known which of the receivers multicast does not reach.
    fn is_over(&mut self, now: Instant, unreached: &[(usize, Reach)]) -> bool {
        let enough = ENOUGH.min(self.layout.len());
        if unreached.iter().any(|(_, reach)| reach.acknowledged > 0) {
            self.acknowledged.get_or_insert(now);
        }
        let routed = self.acknowledged.is_some_and(|since| now - since >= ROUTED);
        let has_enough = |(_, reach): &(usize, Reach)| reach.acknowledged >= enough;
        unreached.is_empty() || routed && unreached.iter().all(has_enough)
    }
}

/// The receivers, by whether multicast reaches them.
#[derive(Debug, Default)]
struct Seen {
    reached: Vec<usize>,
    unreached: Vec<(usize, Reach)>,
    /// Hosts that know no links.
    others: usize,
}

impl Copy {
    /// Moves the hosts that multicast does not reach to links, once that is known. `all` are the receivers.
    pub(super) fn watch_trial(&mut self, now: Instant, all: &[Option<Reach>]) {
        let Some(mut trial) = self.trial.take() else {
            return;
        };
        let seen = self.see(all);
        let began = trial.began;
        let is_over = trial.is_over(now, &seen.unreached);
        if !is_over && now - began < LONGEST {
            self.trial = Some(trial);
            return;
        }
        for (host, reach) in &seen.unreached {
            self.members[*host].loaded_round_trip = reach.round_trip;
        }
        let feeds = |&host: &usize| self.members[host].capabilities.has(Capabilities::FEEDS);
        let unconnected = |(_, reach): &&(usize, Reach)| reach.round_trip.is_none();
        let silent: Vec<usize> = seen
            .unreached
            .iter()
            .filter(unconnected)
            .map(|(host, _)| *host)
            .collect();
        if !is_over && !silent.is_empty() && silent.len() < seen.unreached.len() {
            // All wait for hosts that do not answer the data connection; multicast may reach the others.
            let mut others: Vec<usize> = seen.reached;
            others.extend(seen.unreached.iter().map(|(host, _)| *host));
            others.retain(|host| !silent.contains(host));
            others.retain(feeds);
            if !others.is_empty() {
                self.move_to_links(&silent, &others, &trial.layout);
            }
            trial.began = now;
            self.trial = Some(trial);
            return;
        }
        let stays = seen.others + seen.reached.len();
        let mut providers = seen.reached;
        providers.retain(feeds);
        let unreached: Vec<usize> = seen.unreached.iter().map(|(host, _)| *host).collect();
        if unreached.len() >= 2 || unreached.len() == 1 && !providers.is_empty() {
            if stays == 0 {
                trial.hold.abandon();
            }
            self.move_to_links(&unreached, &providers, &trial.layout);
        }
        trial.hold.decide();
    }

    fn see(&self, all: &[Option<Reach>]) -> Seen {
        let mut seen = Seen::default();
        for (reach, &host) in all.iter().zip(&self.receivers) {
            let Some(reach) = reach else { continue };
            let by_multicast = reach.is_multicast && !reach.is_unicast;
            let member = &self.members[host];
            match (member.is_planned_for_links, by_multicast) {
                _ if member.relayed => {}
                (true, true) => seen.reached.push(host),
                (true, false) => seen.unreached.push((host, *reach)),
                (false, _) => seen.others += 1,
            }
        }
        seen
    }

    fn move_to_links(&mut self, hosts: &[usize], providers: &[usize], layout: &Layout) {
        for &host in hosts {
            self.members[host].relayed = true;
        }
        self.arrange(hosts, providers, layout);
        let receivers = self.receivers.iter().enumerate();
        for (receiver, _) in receivers.filter(|(_, host)| hosts.contains(host)) {
            self.show.drop_receiver(receiver);
        }
    }
}
