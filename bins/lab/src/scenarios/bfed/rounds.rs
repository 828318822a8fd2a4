//! What the scenarios of loaded data nodes have in common.

use anyhow::Result;

use super::load::Stage;
use crate::report::Report;
use crate::scenario::{Context, Usage};

/// The middle value.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len() / 2, sorted.len() % 2) {
        (_, 0) if sorted.is_empty() => f64::NAN,
        (half, 0) => f64::midpoint(sorted[half - 1], sorted[half]),
        (half, _) => sorted[half],
    }
}

/// An option that counts something, of which there must be one.
pub(super) fn number(context: &Context, name: &str, quick: usize) -> Result<usize> {
    match context.sized(name, quick)? {
        0 => Err(Usage(format!("--{name} 0: at least 1")).into()),
        number => Ok(number),
    }
}

/// An option that counts something, several times, with commas.
pub(super) fn numbers(context: &Context, name: &str, quick: &str) -> Result<Vec<usize>> {
    let text: String = context.sized(name, quick.to_owned())?;
    let each = text.split(',').map(|word| word.trim().parse());
    match each.collect::<Result<Vec<usize>, _>>() {
        Ok(numbers) if !numbers.contains(&0) => Ok(numbers),
        _ => Err(Usage(format!("--{name} {text}: numbers from 1 on, with commas")).into()),
    }
}

/// The option `parts`: some of those that there are, with commas.
pub(super) fn parts<'k>(context: &Context, known: &[&'k str]) -> Result<Vec<&'k str>> {
    let asked: String = context.option("parts")?;
    let find = |part: &str| known.iter().find(|known| **known == part.trim()).copied();
    let parts: Option<Vec<&str>> = asked.split(',').map(find).collect();
    parts.ok_or_else(|| Usage(format!("--parts {asked}: of {}", known.join(", "))).into())
}

/// The stage of a scenario with the option `share`, in percent of a core.
pub(super) fn prepare(context: &Context, report: &mut Report) -> Result<Stage> {
    let share: f64 = context.option("share")?;
    if !(1.0..=100.0).contains(&share) {
        return Err(Usage(format!("--share {share}: from 1 to 100")).into());
    }
    let (stage, why) = Stage::build(share / 100.0)?;
    match why {
        None => report.note(format!(
            "each forwarder is held to {share} % of a core by a control group"
        )),
        Some(why) => report.note(format!(
            "forwarders are held to nothing: {why}; throughput is then the machine's, not theirs, and \
             work for each byte is compared"
        )),
    }
    Ok(stage)
}
