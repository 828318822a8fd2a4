//! The first moments of the data: which hosts multicast reaches. The others are moved to links.
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

    /// Whether the receivers have had their time.
    fn is_over(&mut self, now: Instant, unreached: &[Reach]) -> bool {
        let enough = ENOUGH.min(self.layout.len());
        if unreached.iter().any(|reach| reach.acknowledged > 0) {
            self.acknowledged.get_or_insert(now);
        }
        let routed = self.acknowledged.is_some_and(|since| now - since >= ROUTED);
        unreached.is_empty()
            || now - self.began >= LONGEST
            || routed && unreached.iter().all(|reach| reach.acknowledged >= enough)
    }
}

impl Copy {
    /// Moves the hosts that multicast does not reach to links, once that is known. `all` are the receivers.
    pub(super) fn watch_trial(&mut self, now: Instant, all: &[Option<Reach>]) {
        let Some(mut trial) = self.trial.take() else {
            return;
        };
        let (mut reached, mut unreached, mut reaches) = (Vec::new(), Vec::new(), Vec::new());
        let mut others = 0;
        for (reach, &host) in all.iter().zip(&self.receivers) {
            let Some(reach) = reach else { continue };
            let by_multicast = reach.is_multicast && !reach.is_unicast;
            match (self.members[host].is_planned_for_links, by_multicast) {
                (true, true) => reached.push(host),
                (true, false) => {
                    unreached.push(host);
                    reaches.push(*reach);
                }
                (false, _) => others += 1,
            }
        }
        if !trial.is_over(now, &reaches) {
            self.trial = Some(trial);
            return;
        }
        let feeds = |&host: &usize| self.members[host].capabilities.has(Capabilities::FEEDS);
        let stays = others + reached.len();
        reached.retain(feeds);
        if unreached.len() >= 2 || unreached.len() == 1 && !reached.is_empty() {
            if stays == 0 {
                trial.hold.abandon();
            }
            for &host in &unreached {
                self.members[host].relayed = true;
            }
            self.arrange(&unreached, &reached, &trial.layout);
            let receivers = self.receivers.iter().enumerate();
            for (receiver, _) in receivers.filter(|(_, host)| unreached.contains(host)) {
                self.show.drop_receiver(receiver);
            }
        }
        trial.hold.decide();
    }
}
