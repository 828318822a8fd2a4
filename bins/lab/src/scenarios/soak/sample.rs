//! The memory and descriptors of a program over time, and their growth.

use crate::prelude::*;
use std::fs;

/// One sample of a process.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Sample {
    /// Since the start of the soak.
    pub(super) minutes: f64,
    /// Memory that is the process's own: anonymous and shared-memory pages that are resident. The
    /// program's text, which all programs of the lab share, is not in it.
    pub(super) kib: f64,
    pub(super) descriptors: f64,
}

/// Samples a process; `None` when it has ended.
pub(super) fn look(pid: u32, minutes: f64) -> Option<Sample> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| -> Option<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    Some(Sample {
        minutes,
        kib: field("RssAnon:")? + field("RssShmem:")?,
        descriptors: fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as f64,
    })
}

/// The slope of the straight line nearest to the points (least squares), in y for each x. None with
/// fewer than three points.
pub(super) fn slope(points: impl Iterator<Item = (f64, f64)> + Clone) -> Option<f64> {
    let count = points.clone().count() as f64;
    if count < 3.0 {
        return None;
    }
    let mean = |sum: f64| sum / count;
    let mean_x = mean(points.clone().map(|(x, _)| x).sum());
    let mean_y = mean(points.clone().map(|(_, y)| y).sum());
    let xy: f64 = points
        .clone()
        .map(|(x, y)| (x - mean_x) * (y - mean_y))
        .sum();
    let xx: f64 = points.map(|(x, _)| (x - mean_x).powi(2)).sum();
    (xx > 0.0).then(|| xy / xx)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_of_a_line_is_found_through_noise() {
        let points = (0..100).map(|x| {
            let noise = if x % 2 == 0 { 1.0 } else { -1.0 };
            (f64::from(x), 7.0 + 0.25 * f64::from(x) + noise)
        });
        let found = slope(points).expect("there are enough points");
        assert!((found - 0.25).abs() < 0.01, "{found}");
        assert_eq!(slope([(1.0, 2.0), (1.0, 3.0)].into_iter()), None);
    }

    #[test]
    fn a_process_sees_itself() {
        let mine = look(std::process::id(), 0.0).expect("it runs");
        assert!(mine.kib > 0.0 && mine.descriptors >= 3.0);
        assert!(look(u32::MAX, 0.0).is_none());
    }
}
