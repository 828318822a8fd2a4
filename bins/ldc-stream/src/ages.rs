//! A sample of ages in bounded memory, for percentiles.

/// Ages in the sample: 512 KiB. One minute of the thesis's test has 6,000.
const CAPACITY: usize = 65_536;

/// A uniform sample of the ages added; all of them while they fit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ages {
    kept: Vec<i64>,
    seen: u64,
    random: u64,
}

impl Ages {
    pub(crate) fn add(&mut self, age_us: i64) {
        self.seen += 1;
        if self.kept.len() < CAPACITY {
            self.kept.push(age_us);
            return;
        }
        // Each of `seen` is among the kept ones with the same probability (Vitter's algorithm R).
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let at = (mixed ^ (mixed >> 31)) % self.seen;
        if let Some(kept) = usize::try_from(at)
            .ok()
            .and_then(|at| self.kept.get_mut(at))
        {
            *kept = age_us;
        }
    }

    /// Returns the age that a fraction `part` of all ages (0 to 1) does not exceed; `None` for an empty sample.
    pub(crate) fn percentile(&self, part: f64) -> Option<i64> {
        let mut sorted = self.kept.clone();
        sorted.sort_unstable();
        let rank = (part * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_ranks() {
        let mut ages = Ages::default();
        assert_eq!(ages.percentile(0.5), None);
        (1..=100).rev().for_each(|age| ages.add(age));
        let at = |part| ages.percentile(part).unwrap();
        assert_eq!((at(0.5), at(0.9), at(0.99), at(1.0)), (50, 90, 99, 100));
        assert_eq!(at(0.0), 1);
    }

    #[test]
    fn a_long_stream_keeps_a_fair_sample_in_bounded_memory() {
        let mut ages = Ages::default();
        (0..1_000_000).for_each(|age| ages.add(age));
        assert_eq!(ages.kept.len(), CAPACITY);
        let median = ages.percentile(0.5).unwrap();
        // Four standard deviations of a sample's median.
        assert!((median - 500_000).abs() < 8_000, "{median}");
    }
}
