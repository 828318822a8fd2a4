//! Means, and how far to trust them.

/// The mean; not a number without values.
pub fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, count) = values
        .into_iter()
        .fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}

/// The middle value; not a number without values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len() / 2, sorted.len() % 2) {
        (_, 0) if sorted.is_empty() => f64::NAN,
        (half, 0) => f64::midpoint(sorted[half - 1], sorted[half]),
        (half, _) => sorted[half],
    }
}

/// The largest value, 0 without values.
pub fn most(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(0.0, f64::max)
}

/// Half the width of the 95 % confidence interval of the mean (Student's t).
pub fn confidence(values: &[f64]) -> f64 {
    const T: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    let (count, mean) = (values.len(), mean(values.iter().copied()));
    if count < 2 {
        return f64::NAN;
    }
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let deviation = (squares / (count - 1) as f64).sqrt();
    T.get(count - 2).copied().unwrap_or(1.96) * deviation / (count as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_sample() {
        let values = [1.0, 2.0, 3.0, 4.0, 5.0];
        assert_eq!(
            (mean(values), median(values), most(values)),
            (3.0, 3.0, 5.0)
        );
        // 2.776 * 1.5811 / 2.2361
        assert!((confidence(&values) - 1.963).abs() < 1e-3);
        assert_eq!(median([4.0, 1.0]), 2.5);
        assert!(mean([]).is_nan() && median([]).is_nan());
    }
}
