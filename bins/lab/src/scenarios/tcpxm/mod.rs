//! The experiments of the TCP-XM paper (§4), by `mcp` and `mcpd`. All play on [`super::stage`].
//!
//! | scenario | paper |
//! | --- | --- |
//! | [`Lan`] | Figures 5 and 6 |
//! | [`Wan`] | Figures 7 and 8, Tables 1 and 2 |
//! | [`Peers`] | Figures 12 and 13 |
//! | [`JoinLatency`] | Table 3 |
//! | [`KernelInterop`] | §2: ordinary TCPs as receivers |

mod interop;
mod join_latency;
mod lan;
mod peers;
mod sites;
mod wan;

pub(super) use interop::KernelInterop;
pub(super) use join_latency::JoinLatency;
pub(super) use lan::Lan;
pub(super) use peers::Peers;
pub(super) use wan::Wan;

use super::stage::Wire;
use super::stage::copy::Copied;
use crate::report::Cell;
use crate::scenario::Usage;

/// Mbit/s.
fn mbps(bits_per_s: f64) -> Cell {
    Cell::number(bits_per_s / 1e6, 1)
}

/// MB, millions of bytes.
fn megabytes(bytes: u64) -> Cell {
    Cell::number(bytes as f64 / 1e6, 3)
}

/// Columns of [`cells`].
const COLUMNS: [&str; 5] = ["s", "Mbit/s", "wire / file", "unicast MB", "multicast MB"];

/// What a copy came to, for a table.
fn cells(copied: &Copied) -> [Cell; 5] {
    let Wire { multicast, .. } = copied.wire;
    [
        Cell::number(copied.seconds, 2),
        mbps(copied.goodput_bps),
        Cell::number(copied.overhead, 3),
        megabytes(copied.wire.unicast()),
        megabytes(multicast),
    ]
}

/// Numbers of receivers, as typed: `1,2,8`.
fn counts(option: &str, text: &str) -> anyhow::Result<Vec<usize>> {
    let parsed: Result<Vec<usize>, _> = text.split(',').map(|word| word.trim().parse()).collect();
    match parsed {
        Ok(counts) if counts.iter().all(|count| (1..=250).contains(count)) => Ok(counts),
        _ => Err(Usage(format!(
            "--{option} {text}: numbers from 1 to 250, with commas"
        ))
        .into()),
    }
}

/// The words that are asked for, of those that there are; `all` is all.
fn chosen(option: &str, text: &str, known: &[&'static str]) -> anyhow::Result<Vec<&'static str>> {
    if text == "all" {
        return Ok(known.to_vec());
    }
    let find = |word: &str| known.iter().copied().find(|name| *name == word.trim());
    let words = text.split(',').map(|word| {
        find(word).ok_or_else(|| {
            Usage(format!(
                "--{option} {word}: all, or of {}",
                known.join(", ")
            ))
            .into()
        })
    });
    words.collect()
}
