//! What a receiver lost, when it knew, and when it had it: the same record for every protocol.

use std::time::Duration;

use netsim::{Instant, LinkId, Node, Sim};
use serde::Serialize;

use super::world::World;

const PENDING: Instant = Instant::from_micros(i64::MAX);

/// One packet that a receiver missed.
#[derive(Clone, Copy)]
struct Missed {
    sequence: u32,
    detected: Instant,
    repaired: Instant,
}

/// What happened to one receiver.
#[derive(Default)]
pub(super) struct Watch {
    /// All below this arrived or are in `missed`.
    next: u32,
    /// By sequence.
    missed: Vec<Missed>,
    /// Repairs of packets that this receiver never missed.
    exposed: u32,
    /// Repairs of packets that it had missed and already had.
    repeated: u32,
    /// Packets come in those of a relay.
    pub(super) relayed: bool,
}

/// What a packet was to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Next in order, or ahead of a gap.
    Ahead,
    /// It fills a gap.
    Fills,
    /// It is there already.
    Known,
}

impl Watch {
    /// A packet arrived, as data or as a repair of it.
    #[inline]
    pub(super) fn arrived(&mut self, now: Instant, sequence: u32, repair: bool) -> Arrival {
        if sequence >= self.next {
            self.announced(now, sequence);
            self.next = sequence + 1;
            return Arrival::Ahead;
        }
        self.arrived_late(now, sequence, repair)
    }

    fn arrived_late(&mut self, now: Instant, sequence: u32, repair: bool) -> Arrival {
        let at = self.find(sequence);
        match at.map(|at| &mut self.missed[at]) {
            Some(missed) if missed.repaired == PENDING => {
                missed.repaired = now;
                Arrival::Fills
            }
            Some(_) => {
                self.repeated += u32::from(repair);
                Arrival::Known
            }
            None => {
                self.exposed += u32::from(repair);
                Arrival::Known
            }
        }
    }

    /// Where in `missed` the packet is: they are in order.
    fn find(&self, sequence: u32) -> Option<usize> {
        self.missed
            .binary_search_by_key(&sequence, |missed| missed.sequence)
            .ok()
    }

    /// The first sequence that is neither known nor missing.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Has this packet.
    pub(super) fn is_there(&self, sequence: u32) -> bool {
        let missing = |at: usize| self.missed[at].repaired == PENDING;
        sequence < self.next && !self.find(sequence).is_some_and(missing)
    }

    /// All below `end` were sent: what did not arrive is missing from now on.
    #[inline]
    pub(super) fn announced(&mut self, now: Instant, end: u32) {
        for sequence in self.next..end {
            self.missed.push(Missed {
                sequence,
                detected: now,
                repaired: PENDING,
            });
        }
        self.next = self.next.max(end);
    }

    /// Has all of the first `packets`.
    pub(super) fn has_all(&self, packets: u32) -> bool {
        self.next >= packets && self.missed.iter().all(|missed| missed.repaired != PENDING)
    }
}

/// What LMS-HIER had elected when the first data packet left.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Hierarchy {
    pub(super) routers: u32,
    /// Routers that have an elected replier.
    pub(super) elected: u32,
    /// Those whose replier is behind the port that leads to the nearest receiver.
    pub(super) nearest: u32,
    /// UPDATE and ELECTED messages sent so far.
    pub(super) messages: u64,
}

/// Results of one protocol in one network: a field for each column of the data file.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Outcome {
    /// The protocol.
    pub(super) protocol: &'static str,
    pub(super) seed: u64,
    pub(super) receivers: u32,
    pub(super) packets: u32,
    /// Packets that at least one receiver missed.
    pub(super) packets_lost: u32,
    /// (receiver, packet) pairs that were lost; the same in every protocol.
    pub(super) losses: u64,
    /// Those that the receiver missed: the rest came as repairs for others before that.
    pub(super) noticed: u64,
    /// Noticed and never repaired.
    pub(super) unrepaired: u64,
    /// From knowing of the loss to having the packet, over the receiver's round trip to the source.
    pub(super) latency_mean: f64,
    pub(super) latency_median: f64,
    pub(super) latency_p95: f64,
    pub(super) latency_max: f64,
    /// Requests that reached the source, all and for each packet lost.
    pub(super) source_requests: u64,
    pub(super) source_requests_per_lost_packet: f64,
    /// Repairs received by hosts that had not lost the packet: for each packet lost, and as a share
    /// of the receivers that had not lost it.
    pub(super) exposed: u64,
    pub(super) exposed_per_lost_packet: f64,
    pub(super) exposure: f64,
    /// Repairs received again by hosts that had lost it.
    pub(super) repeated: u64,
    /// Repairs that the source sent, and repairs that receivers sent: all, by how many receivers, and by
    /// the one that sent most.
    pub(super) source_repairs: u64,
    pub(super) receiver_repairs: u64,
    pub(super) repliers: u32,
    pub(super) most_by_one: u64,
    /// Packets handed to links, of every kind, for each data packet and link: 1 with no loss.
    pub(super) link_packets: f64,
    /// Under LMS with elected repliers.
    pub(super) hierarchy: Option<Hierarchy>,
    /// Cost of the simulation.
    pub(super) events: u64,
    pub(super) simulated_s: f64,
    pub(super) processor_s: f64,
}

impl Outcome {
    /// Sums up all receivers; `watches` yields (node, record).
    pub(super) fn gather<'a>(
        protocol: &'static str,
        world: &World,
        watches: impl Iterator<Item = (u32, &'a Watch)>,
    ) -> Self {
        let packets = world.plan.packets;
        let mut out = Self {
            protocol,
            seed: world.plan.seed,
            packets,
            ..Self::default()
        };
        let mut latencies = Vec::new();
        for (node, watch) in watches {
            out.receivers += 1;
            out.exposed += u64::from(watch.exposed);
            out.repeated += u64::from(watch.repeated);
            let round_trip_us = world.round_trip(node).total_micros() as f64;
            for missed in watch
                .missed
                .iter()
                .filter(|missed| missed.sequence < packets)
            {
                out.noticed += 1;
                if missed.repaired == PENDING {
                    out.unrepaired += 1;
                } else {
                    let waited = missed.repaired - missed.detected;
                    latencies.push(waited.total_micros() as f64 / round_trip_us);
                }
            }
        }
        (out.packets_lost, out.losses) = (world.packets_lost, world.lost_pairs);
        out.set_latencies(latencies);
        out.exposed_per_lost_packet = out.exposed as f64 / f64::from(out.packets_lost.max(1));
        let spared = u64::from(out.packets_lost) * u64::from(out.receivers) - out.losses;
        out.exposure = out.exposed as f64 / spared.max(1) as f64;
        out
    }

    fn set_latencies(&mut self, mut latencies: Vec<f64>) {
        latencies.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let index = (share * latencies.len() as f64) as usize;
            latencies
                .get(index.min(latencies.len().saturating_sub(1)))
                .copied()
                .unwrap_or(f64::NAN)
        };
        self.latency_mean = latencies.iter().sum::<f64>() / latencies.len() as f64;
        (self.latency_median, self.latency_p95, self.latency_max) = (at(0.5), at(0.95), at(1.0));
    }

    /// Sets how many repairs the source and each receiver sent.
    pub(super) fn loads(mut self, source: u64, receivers: impl Iterator<Item = u64>) -> Self {
        self.source_repairs = source;
        for sent in receivers {
            self.receiver_repairs += sent;
            self.repliers += u32::from(sent > 0);
            self.most_by_one = self.most_by_one.max(sent);
        }
        self
    }

    /// Sets the requests that reached the source.
    pub(super) fn source_requests(mut self, requests: u64) -> Self {
        self.source_requests = requests;
        self.source_requests_per_lost_packet =
            requests as f64 / f64::from(self.packets_lost.max(1));
        self
    }
}

impl Outcome {
    /// Sets what the simulation cost.
    pub(super) fn costs<N: Node>(mut self, sim: &Sim<N>, world: &World, since: Duration) -> Self {
        let links = world.tree.len() - 1;
        let sent = (0..links).flat_map(|link| sim.link_stats(LinkId(link)).map(|way| way.sent));
        let once = u64::from(links) * u64::from(self.packets);
        self.link_packets = sent.sum::<u64>() as f64 / once as f64;
        self.events = sim.stats().events;
        self.simulated_s = sim.now().total_micros() as f64 / 1e6;
        self.processor_s = (processor_time() - since).as_secs_f64();
        self
    }
}

/// What this thread has used of a core so far.
pub(super) fn processor_time() -> Duration {
    let clock = nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID;
    nix::time::clock_gettime(clock).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_repairs_and_exposure_are_told_apart() {
        let at = Instant::from_millis;
        let mut watch = Watch::default();
        assert_eq!(watch.arrived(at(0), 0, false), Arrival::Ahead);
        assert_eq!(watch.arrived(at(1), 3, false), Arrival::Ahead); // 1 and 2 are missing
        assert_eq!(watch.arrived(at(2), 3, true), Arrival::Known);
        assert_eq!(watch.arrived(at(5), 1, true), Arrival::Fills);
        assert_eq!(watch.arrived(at(6), 1, true), Arrival::Known);
        assert!(!watch.has_all(4));
        watch.announced(at(7), 5);
        assert_eq!(watch.arrived(at(8), 4, false), Arrival::Fills);
        assert_eq!(watch.arrived(at(9), 2, false), Arrival::Fills);
        assert!(watch.has_all(5));
        assert_eq!((watch.exposed, watch.repeated), (1, 1));
        let waited = watch
            .missed
            .iter()
            .map(|m| (m.repaired - m.detected).total_millis());
        assert_eq!(waited.collect::<Vec<_>>(), [4, 8, 1]);
    }
}
