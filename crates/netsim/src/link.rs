//! Links: their configuration, state and counters.

use std::collections::VecDeque;

use proto_core::time::Duration;

use crate::rng::Rng;
use crate::script::Disposition;

/// Random loss of a link. A lost packet has used the link's time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Loss {
    /// No loss.
    #[default]
    None,
    /// Independent loss with this probability.
    Bernoulli(f64),
    /// Two states, good and bad, each with its own loss (Gilbert 1960, Elliott 1963). The state may change before
    /// each packet; a link starts in the good one. In the long run, a share of `good_to_bad / (good_to_bad +
    /// bad_to_good)` of the packets meets the bad state.
    GilbertElliott {
        /// Probability to turn bad before a packet.
        good_to_bad: f64,
        /// Probability to turn good before a packet.
        bad_to_good: f64,
        /// Loss probability in the good state.
        loss_good: f64,
        /// Loss probability in the bad state.
        loss_bad: f64,
    },
}

/// Most packets and bytes that wait for a link with a rate; more are dropped (tail drop). The packet being
/// transmitted does not count. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueLimit {
    /// Most packets that wait.
    pub packets: Option<u32>,
    /// Most bytes that wait, without [`LinkConfig::overhead_bytes`].
    pub bytes: Option<u64>,
}

/// Delay of some packets, so that later ones overtake them. All others keep their order, also at the same instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reorder {
    /// Probability that a packet is delayed.
    pub probability: f64,
    /// Longest delay; each is uniform over (0, `extra`].
    pub extra: Duration,
}

/// One direction of a link. The default is perfect: no delay, no limit, no loss.
///
/// A packet passes, in this order: the MTU; the queue and the rate; loss; the delay and its jitter; reordering,
/// corruption and duplication, each random on its own. The second copy of a duplicated packet is neither delayed
/// further nor corrupted. Probabilities outside 0 to 1 (or not a number), a rate of 0 and a delay of 2^32
/// microseconds or more cause a panic where the configuration is given to a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkConfig {
    /// Propagation delay, below 2^32 microseconds (71 minutes).
    pub delay: Duration,
    /// Jitter added to each packet's delay: uniform over [0, `jitter`], without overtaking. Before a full queue it
    /// keeps packets of different senders from arriving in a fixed order, in which only those of one sender would
    /// be dropped (Sally Floyd and Van Jacobson, "On traffic phase effects in packet-switched gateways", 1992: up
    /// to the transmission time of a packet on the bottleneck).
    pub jitter: Duration,
    /// Rate in bit/s, above 0; `None` is infinite.
    pub rate_bps: Option<u64>,
    /// Bytes added to each packet where the rate is applied: 38 for Ethernet.
    pub overhead_bytes: u32,
    /// Limit of the queue; without a rate nothing waits.
    pub queue: QueueLimit,
    /// Longer packets are dropped.
    pub mtu: Option<u32>,
    /// Loss.
    pub loss: Loss,
    /// Reordering.
    pub reorder: Option<Reorder>,
    /// Probability that a packet arrives twice.
    pub duplicate: f64,
    /// Probability that one bit of a packet flips.
    pub corrupt: f64,
}

impl LinkConfig {
    /// Creates a perfect link.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the propagation delay.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sets the jitter of the delay.
    #[must_use]
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }

    /// Sets the rate in bits a second.
    #[must_use]
    pub fn rate_bps(mut self, rate: u64) -> Self {
        self.rate_bps = Some(rate);
        self
    }

    /// Sets the bytes added to each packet where the rate is applied.
    #[must_use]
    pub fn overhead_bytes(mut self, overhead: u32) -> Self {
        self.overhead_bytes = overhead;
        self
    }

    /// Limits the packets that wait.
    #[must_use]
    pub fn queue_packets(mut self, packets: u32) -> Self {
        self.queue.packets = Some(packets);
        self
    }

    /// Limits the bytes that wait.
    #[must_use]
    pub fn queue_bytes(mut self, bytes: u64) -> Self {
        self.queue.bytes = Some(bytes);
        self
    }

    /// Drops packets longer than this.
    #[must_use]
    pub fn mtu(mut self, mtu: u32) -> Self {
        self.mtu = Some(mtu);
        self
    }

    /// Sets the loss.
    #[must_use]
    pub fn loss(mut self, loss: Loss) -> Self {
        self.loss = loss;
        self
    }

    /// Delays a share of the packets by up to `extra`.
    #[must_use]
    pub fn reorder(mut self, probability: f64, extra: Duration) -> Self {
        self.reorder = Some(Reorder { probability, extra });
        self
    }

    /// Duplicates a share of the packets.
    #[must_use]
    pub fn duplicate(mut self, probability: f64) -> Self {
        self.duplicate = probability;
        self
    }

    /// Flips one bit in a share of the packets.
    #[must_use]
    pub fn corrupt(mut self, probability: f64) -> Self {
        self.corrupt = probability;
        self
    }

    /// Whether there is only delay and independent loss: the path with the fewest instructions.
    fn is_plain(&self) -> bool {
        self.rate_bps.is_none()
            && self.jitter == Duration::ZERO
            && self.mtu.is_none()
            && self.reorder.is_none()
            && self.duplicate <= 0.0
            && self.corrupt <= 0.0
            && !matches!(self.loss, Loss::GilbertElliott { .. })
    }

    /// # Panics
    ///
    /// A value is out of bounds.
    fn check(&self) {
        let loss = match self.loss {
            Loss::None => [0.0; 4],
            Loss::Bernoulli(loss) => [loss, 0.0, 0.0, 0.0],
            Loss::GilbertElliott {
                good_to_bad,
                bad_to_good,
                loss_good,
                loss_bad,
            } => [good_to_bad, bad_to_good, loss_good, loss_bad],
        };
        let held_up = self.reorder.map_or(0.0, |reorder| reorder.probability);
        let others = [self.duplicate, self.corrupt, held_up];
        for probability in loss.into_iter().chain(others) {
            assert!(
                (0.0..=1.0).contains(&probability),
                "{probability} is no probability"
            );
        }
        assert!(self.rate_bps != Some(0), "a rate of 0 carries nothing");
    }

    fn bernoulli(&self) -> f64 {
        if let Loss::Bernoulli(probability) = self.loss {
            probability
        } else {
            0.0
        }
    }
}

/// Counters of one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets handed to the link.
    pub sent: u64,
    /// Bytes handed to the link.
    pub sent_bytes: u64,
    /// Packets that arrived at the other end (also at a failed node), or are in flight.
    pub delivered: u64,
    /// Packets lost at random.
    pub lost: u64,
    /// Packets dropped because the queue was full.
    pub queue_full: u64,
    /// Packets longer than the MTU.
    pub oversize: u64,
    /// Packets sent while the link was down, or in flight when it failed.
    pub link_down: u64,
    /// Packets of which a bit flipped.
    pub corrupted: u64,
    /// Packets duplicated.
    pub duplicated: u64,
    /// Packets delayed so that others could overtake.
    pub reordered: u64,
}

/// How a direction handles the next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Delay and independent loss.
    Plain,
    /// With other limits or effects.
    Limited,
    /// Failed.
    Down,
}

/// State that every packet uses, two directions in a cache line.
#[repr(align(32))]
#[derive(Clone, Copy)]
pub(crate) struct Hot {
    pub(crate) to: u32,
    pub(crate) port: u16,
    pub(crate) mode: Mode,
    delay_us: u32,
    /// Packets until the next independent loss: one random number for each loss, not for each packet. A longer
    /// count is continued with another one ([`Cold::no_loss_yet`]).
    until_loss: u32,
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
}

/// State that only some packets use.
pub(crate) struct Cold {
    plain: bool,
    pub(crate) rng: Rng,
    /// Probability of independent loss.
    loss: f64,
    /// [`Hot::until_loss`] is the first part of a longer count.
    no_loss_yet: bool,
    pub(crate) lost: u64,
    pub(crate) link_down: u64,
    /// For links that have, or once had, more than delay and independent loss.
    limits: Option<Box<Limits>>,
}

/// Configuration and state of a link with more than delay and independent loss.
#[derive(Default)]
struct Limits {
    config: LinkConfig,
    stats: LinkStats,
    /// Gilbert-Elliott: in the bad state.
    bad: bool,
    /// When the transmitter becomes free, and the part of a nanosecond (in 1/rate) beyond it.
    free_ns: u64,
    remainder: u64,
    /// Start of transmission and length of each packet that may still be waiting.
    waiting: VecDeque<(u64, u32)>,
    waiting_bytes: u64,
    /// With jitter: arrival of the last packet that was not delayed for reordering.
    latest_ns: u64,
}

/// Arrival of a packet that a link with limits accepted.
pub(crate) struct Arrival {
    pub(crate) time_ns: u64,
    pub(crate) corrupt: bool,
    /// Arrival of a second copy.
    pub(crate) again_ns: Option<u64>,
}

const NS_PER_S: u128 = 1_000_000_000;

fn to_ns(duration: Duration) -> u64 {
    duration.total_micros().saturating_mul(1000)
}

impl Hot {
    pub(crate) fn new(to: u32, port: u16) -> Self {
        Self {
            to,
            port,
            mode: Mode::Plain,
            delay_us: 0,
            until_loss: u32::MAX,
            sent: 0,
            sent_bytes: 0,
        }
    }

    pub(crate) fn configure(&mut self, cold: &mut Cold, config: LinkConfig) {
        config.check();
        if !config.is_plain() || cold.limits.is_some() {
            cold.limits.get_or_insert_default().config = config;
        }
        (cold.plain, cold.loss) = (config.is_plain(), config.bernoulli());
        if self.mode != Mode::Down {
            self.mode = cold.mode();
        }
        self.delay_us = u32::try_from(config.delay.total_micros())
            .expect("a link's delay is at most 2^32 - 1 microseconds");
        self.until_loss = cold.draw_until_loss();
    }

    /// Returns when a packet arrives that is sent now.
    #[inline]
    pub(crate) fn arrival_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add(u64::from(self.delay_us) * 1000)
    }

    /// Returns whether the packet is lost, by the script or by independent loss.
    #[inline]
    pub(crate) fn loses(&mut self, cold: &mut [Cold], place: usize, fate: Disposition) -> bool {
        match fate {
            Disposition::Pass => false,
            Disposition::Chance if self.until_loss > 0 => {
                self.until_loss -= 1;
                false
            }
            Disposition::Chance => cold[place].lose(self),
            Disposition::Lose => {
                cold[place].lost += 1;
                true
            }
        }
    }
}

impl Cold {
    pub(crate) fn new(rng: Rng) -> Self {
        Self {
            plain: true,
            rng,
            loss: 0.0,
            no_loss_yet: true,
            lost: 0,
            link_down: 0,
            limits: None,
        }
    }

    pub(crate) fn mode(&self) -> Mode {
        if self.plain {
            Mode::Plain
        } else {
            Mode::Limited
        }
    }

    fn draw_until_loss(&mut self) -> u32 {
        let count = u32::try_from(self.rng.failures_before_success(self.loss));
        self.no_loss_yet = count.is_err();
        count.unwrap_or(u32::MAX)
    }

    /// Handles the end of the count to the next independent loss.
    fn lose(&mut self, hot: &mut Hot) -> bool {
        // Counts are independent of each other: a count may continue with a new random number.
        let lost = !self.no_loss_yet;
        hot.until_loss = self.draw_until_loss();
        self.lost += u64::from(lost);
        lost
    }

    /// Returns when a packet of `len_bytes` that is sent at `now_ns` arrives, if at all.
    pub(crate) fn accept(
        &mut self,
        hot: &mut Hot,
        now_ns: u64,
        len_bytes: u32,
        fate: Disposition,
    ) -> Option<Arrival> {
        let limits = self.limits.get_or_insert_default();
        let departure_ns = limits.transmit(now_ns, len_bytes)?;
        let in_burst = fate == Disposition::Chance && limits.is_lost_in_burst(&mut self.rng);
        let fate = if in_burst { Disposition::Lose } else { fate };
        if hot.loses(std::slice::from_mut(self), 0, fate) {
            return None;
        }
        let limits = self.limits.get_or_insert_default();
        let (config, rng) = (&limits.config, &mut self.rng);
        let mut on_time_ns = hot.arrival_ns(departure_ns);
        if config.jitter > Duration::ZERO {
            let late_ns = rng.below(to_ns(config.jitter).saturating_add(1));
            on_time_ns = on_time_ns.saturating_add(late_ns).max(limits.latest_ns);
            limits.latest_ns = on_time_ns;
        }
        let mut time_ns = on_time_ns;
        if let Some(Reorder { probability, extra }) = config.reorder
            && rng.chance(probability)
        {
            limits.stats.reordered += 1;
            time_ns = time_ns.saturating_add(1 + rng.below(to_ns(extra).max(1)));
        }
        let corrupt = config.corrupt > 0.0 && rng.chance(config.corrupt);
        let twice = config.duplicate > 0.0 && rng.chance(config.duplicate);
        limits.stats.corrupted += u64::from(corrupt);
        limits.stats.duplicated += u64::from(twice);
        Some(Arrival {
            time_ns,
            corrupt,
            again_ns: twice.then_some(on_time_ns),
        })
    }

    /// Handles the failure of the link: waiting packets are lost.
    pub(crate) fn clear(&mut self, now_ns: u64) {
        if let Some(limits) = &mut self.limits {
            limits.waiting.clear();
            limits.waiting_bytes = 0;
            (limits.free_ns, limits.remainder) = (now_ns, 0);
        }
    }

    pub(crate) fn stats(&self, hot: &Hot) -> LinkStats {
        let mut stats = self
            .limits
            .as_ref()
            .map(|limits| limits.stats)
            .unwrap_or_default();
        (stats.sent, stats.sent_bytes) = (hot.sent, hot.sent_bytes);
        (stats.lost, stats.link_down) = (self.lost, self.link_down);
        let gone = stats.lost + stats.link_down + stats.queue_full + stats.oversize;
        stats.delivered = hot.sent + stats.duplicated - gone;
        stats
    }
}

impl Limits {
    /// Returns when the last bit is sent, `None` if the packet is too long or the queue full.
    fn transmit(&mut self, now_ns: u64, len_bytes: u32) -> Option<u64> {
        if self.config.mtu.is_some_and(|mtu| len_bytes > mtu) {
            self.stats.oversize += 1;
            return None;
        }
        let Some(rate_bps) = self.config.rate_bps else {
            return Some(now_ns);
        };
        while let Some((start_ns, len)) = self.waiting.front().copied() {
            if start_ns > now_ns {
                break;
            }
            self.waiting_bytes -= u64::from(len);
            self.waiting.pop_front();
        }
        let idle = self.free_ns <= now_ns;
        if !idle && self.is_full(len_bytes) {
            self.stats.queue_full += 1;
            return None;
        }
        if idle {
            (self.free_ns, self.remainder) = (now_ns, 0);
        } else {
            self.waiting.push_back((self.free_ns, len_bytes));
            self.waiting_bytes += u64::from(len_bytes);
        }
        let rate = u128::from(rate_bps);
        let bits = (u128::from(len_bytes) + u128::from(self.config.overhead_bytes)) * 8;
        let work = bits * NS_PER_S + u128::from(self.remainder);
        self.free_ns = self
            .free_ns
            .saturating_add(u64::try_from(work / rate).unwrap_or(u64::MAX));
        self.remainder = (work % rate) as u64;
        Some(self.free_ns)
    }

    fn is_full(&self, len_bytes: u32) -> bool {
        let QueueLimit { packets, bytes } = self.config.queue;
        packets.is_some_and(|limit| self.waiting.len() >= limit as usize)
            || bytes.is_some_and(|limit| self.waiting_bytes + u64::from(len_bytes) > limit)
    }

    fn is_lost_in_burst(&mut self, rng: &mut Rng) -> bool {
        let Loss::GilbertElliott {
            good_to_bad,
            bad_to_good,
            loss_good,
            loss_bad,
        } = self.config.loss
        else {
            return false;
        };
        self.bad ^= rng.chance(if self.bad { bad_to_good } else { good_to_bad });
        rng.chance(if self.bad { loss_bad } else { loss_good })
    }
}
