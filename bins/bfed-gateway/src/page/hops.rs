//! What the status page remembers of each link: ages of frames and losses of the last ten minutes.
//!
//! | memory | bound |
//! | --- | --- |
//! | links | [`MAX_HOPS`], those of the lowest data nodes and peers |
//! | samples of a link | [`MAX_SAMPLES`] |

use std::collections::{BTreeMap, VecDeque};

use bfed::data::{AGE_BOUNDS_MS, Ages};
use serde::Serialize;
use serde_json::{Value, json};

use crate::data::LinkSnapshot;

/// Most links.
const MAX_HOPS: usize = 32;
/// Most samples of a link: ten minutes.
const MAX_SAMPLES: usize = 100;
/// Calls of [`Hops::remember`] for each sample.
const EVERY: u32 = 3;
/// Counters whose growth is sampled.
const SAMPLED: [&str; 3] = ["lost", "repaired", "late"];

/// A link: number of the data node, and number of the peer.
type Hop = (u32, u32);

/// One link in one interval.
#[derive(Clone, Debug, Serialize)]
struct Sample {
    frames: u64,
    age_p50_ms: Option<u64>,
    age_p95_ms: Option<u64>,
    #[serde(flatten)]
    counts: BTreeMap<&'static str, u64>,
}

#[derive(Debug)]
struct Past {
    before: LinkSnapshot,
    samples: VecDeque<Sample>,
}

/// The past of all links.
#[derive(Debug, Default)]
pub(super) struct Hops {
    all: BTreeMap<Hop, Past>,
    calls: u32,
}

/// Returns the age in milliseconds that a part of the frames does not exceed, `part` of 100, as exactly as the buckets tell;
/// `None` without frames. Frames beyond the last bound count as that bound.
pub(crate) fn quantile_ms(ages: &Ages, part: u64) -> Option<u64> {
    let count: u64 = ages.buckets.iter().sum();
    let rank = (count * part).div_ceil(100);
    let (mut below, mut from) = (0, 0);
    for (&frames, bound) in ages.buckets.iter().zip(AGE_BOUNDS_MS) {
        if frames > 0 && below + frames >= rank {
            return Some(from + (bound - from) * (rank - below) / frames);
        }
        below += frames;
        from = bound;
    }
    (count > 0).then_some(from)
}

/// Returns what was added to a histogram since `before`; all of it if the histogram began anew.
fn since(before: &Ages, now: &Ages) -> Ages {
    let pairs = now.buckets.iter().zip(before.buckets);
    let mut buckets = [0; AGE_BOUNDS_MS.len() + 1];
    for (at, (count, before)) in pairs.enumerate() {
        match count.checked_sub(before) {
            Some(more) => buckets[at] = more,
            None => return *now,
        }
    }
    Ages {
        buckets,
        sum_us: now.sum_us.saturating_sub(before.sum_us),
    }
}

impl Hops {
    /// Takes the links of data nodes. Called once for each interval of the page.
    pub(super) fn remember<'a>(&mut self, links: impl Iterator<Item = (u32, &'a LinkSnapshot)>) {
        self.calls += 1;
        if self.calls < EVERY {
            return;
        }
        self.calls = 0;
        let mut all = BTreeMap::new();
        for (node, link) in links.take(MAX_HOPS) {
            let past = self.all.remove(&(node, link.peer));
            let past = past.map_or_else(|| Past::new(link), |past| past.next(link));
            all.insert((node, link.peer), past);
        }
        // Links that are gone are forgotten.
        self.all = all;
    }

    /// Returns the samples of a link, oldest first.
    pub(super) fn samples(&self, node: u32, peer: u32) -> Value {
        match self.all.get(&(node, peer)) {
            Some(past) => json!(past.samples),
            None => json!([]),
        }
    }

    /// Returns the time between samples, in calls of [`Self::remember`].
    pub(super) fn every() -> u32 {
        EVERY
    }
}

impl Past {
    fn new(link: &LinkSnapshot) -> Self {
        Past {
            before: link.clone(),
            samples: VecDeque::new(),
        }
    }

    fn next(mut self, link: &LinkSnapshot) -> Self {
        let ages = since(&self.before.ages, &link.ages);
        let grown = |name: &'static str| {
            let (now, before) = (link.counts.get(name)?, self.before.counts.get(name)?);
            Some((name, now.checked_sub(*before).unwrap_or(*now)))
        };
        let sample = Sample {
            frames: ages.buckets.iter().sum(),
            age_p50_ms: quantile_ms(&ages, 50),
            age_p95_ms: quantile_ms(&ages, 95),
            counts: SAMPLED.into_iter().filter_map(grown).collect(),
        };
        self.samples.push_back(sample);
        if self.samples.len() > MAX_SAMPLES {
            self.samples.pop_front();
        }
        self.before = link.clone();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(peer: u32, buckets: &[(usize, u64)], lost: u64) -> LinkSnapshot {
        let mut ages = Ages::default();
        for &(at, count) in buckets {
            ages.buckets[at] = count;
        }
        let counts = [("lost".to_owned(), lost)].into();
        LinkSnapshot { peer, ages, counts }
    }

    /// Takes one sample.
    fn sample(hops: &mut Hops, links: &[LinkSnapshot]) {
        for _ in 0..EVERY {
            hops.remember(links.iter().map(|link| (1, link)));
        }
    }

    #[test]
    fn quantiles_lie_in_the_bucket_of_their_frame() {
        let of = |buckets: &[(usize, u64)]| {
            let link = link(1, buckets, 0);
            [50, 95].map(|part| quantile_ms(&link.ages, part))
        };
        assert_eq!(of(&[]), [None, None]);
        // 25 to 50 ms.
        assert_eq!(of(&[(2, 1)]), [Some(50), Some(50)]);
        assert_eq!(of(&[(2, 100)]), [Some(37), Some(48)]);
        // 90 up to 10 ms, ten between 100 and 200.
        let [half, most] = of(&[(0, 90), (4, 10)]);
        assert!(half.is_some_and(|half| half <= 10));
        assert_eq!(most, Some(150));
        // Older than the last bound.
        assert_eq!(of(&[(9, 7)]), [Some(2500), Some(2500)]);
    }

    #[test]
    fn samples_tell_of_their_interval_alone() {
        let mut hops = Hops::default();
        sample(&mut hops, &[link(7, &[(0, 1000)], 5)]);
        sample(&mut hops, &[link(7, &[(0, 1000), (4, 10)], 8)]);
        let samples = hops.samples(1, 7);
        assert_eq!(samples.as_array().map(Vec::len), Some(1));
        assert_eq!(
            (&samples[0]["frames"], &samples[0]["lost"]),
            (&json!(10), &json!(3))
        );
        assert!(samples[0]["age_p50_ms"].as_u64() > Some(100));
        assert_eq!(
            samples[0].get("repaired"),
            None,
            "the link does not count it"
        );
        // The link began anew.
        sample(&mut hops, &[link(7, &[(1, 4)], 1)]);
        let samples = hops.samples(1, 7);
        assert_eq!(
            (&samples[1]["frames"], &samples[1]["lost"]),
            (&json!(4), &json!(1))
        );
    }

    #[test]
    fn links_and_samples_are_bounded_and_links_that_are_gone_are_forgotten() {
        let mut hops = Hops::default();
        let links: Vec<_> = (0..1000).map(|peer| link(peer, &[], 0)).collect();
        for _ in 0..MAX_SAMPLES + 20 {
            sample(&mut hops, &links);
        }
        assert_eq!(hops.all.len(), MAX_HOPS);
        let longest = hops.all.values().map(|past| past.samples.len()).max();
        assert_eq!(longest, Some(MAX_SAMPLES));
        sample(&mut hops, &[]);
        assert!(hops.all.is_empty());
    }
}
