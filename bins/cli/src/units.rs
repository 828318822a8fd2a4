//! Rates, sizes and times in human-readable form.

use core::fmt;
use core::str::FromStr;
use std::time::Duration;

/// Why a text is not a valid quantity. The message says what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// The number is missing.
    #[error("no number in \"{0}\": {1}")]
    Number(String, &'static str),
    /// The unit is unknown.
    #[error("unknown unit \"{0}\": {1}")]
    Unit(String, &'static str),
    /// Zero, negative, or too large.
    #[error("{0} is out of range: {1}")]
    Range(String, &'static str),
}

const RATE_HELP: &str =
    "write bits per second as 100M, 2.5G or 800k (powers of 1000), or \"unlimited\"";
const BYTES_AS_RATE: &str = "a rate counts bits, not bytes: 1 MB/s is written 8M";
const SIZE_HELP: &str =
    "write bytes as 65536, 64KiB or 64K (powers of 1024), or 64KB (powers of 1000)";
const TIME_HELP: &str = "write a time as 5, 5s, 250ms, 2m or 1h";

/// Splits `text` into a number, kept exact in millionths, and its unit.
fn split<'a>(text: &'a str, help: &'static str) -> Result<(u128, &'a str), UnitError> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let bad = || UnitError::Number(text.to_owned(), help);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(bad());
    }
    let out = || UnitError::Range(text.to_owned(), help);
    if whole.len() > 20 || fraction.len() > 6 {
        return Err(out());
    }
    let whole: u128 = if whole.is_empty() {
        0
    } else {
        whole.parse().map_err(|_| bad())?
    };
    let fraction: u128 = format!("{fraction:0<6}").parse().map_err(|_| bad())?;
    Ok((whole * 1_000_000 + fraction, unit.trim()))
}

fn scale(text: &str, millionths: u128, by: u128, help: &'static str) -> Result<u64, UnitError> {
    u64::try_from(millionths * by / 1_000_000)
        .map_err(|_| UnitError::Range(text.trim().to_owned(), help))
}

/// A rate in bits per second, at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(pub u64);

/// An optional limit on a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rate {
    /// As fast as the machine and the receivers allow.
    Unlimited,
    /// At most this.
    Limit(BitRate),
}

impl Rate {
    /// Returns bits per second, or `None` if unlimited.
    pub fn bits(self) -> Option<u64> {
        match self {
            Rate::Unlimited => None,
            Rate::Limit(BitRate(bits)) => Some(bits),
        }
    }
}

impl FromStr for BitRate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (number, unit) = split(text, RATE_HELP)?;
        if unit.ends_with('B') || unit.contains("B/") || unit.contains("yte") {
            return Err(UnitError::Unit(unit.to_owned(), BYTES_AS_RATE));
        }
        let prefix = ["bit/s", "bits/s", "bps", "bit", "b/s", "b"]
            .iter()
            .find_map(|end| unit.strip_suffix(end))
            .unwrap_or(unit);
        let by = match prefix.trim() {
            "" => 1,
            "k" | "K" => 1_000,
            "m" | "M" => 1_000_000,
            "g" | "G" => 1_000_000_000,
            "t" | "T" => 1_000_000_000_000,
            _ => return Err(UnitError::Unit(unit.to_owned(), RATE_HELP)),
        };
        match scale(text, number, by, RATE_HELP)? {
            0 => Err(UnitError::Range(text.trim().to_owned(), RATE_HELP)),
            bits => Ok(BitRate(bits)),
        }
    }
}

impl FromStr for Rate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        match text.trim() {
            "unlimited" | "max" => Ok(Rate::Unlimited),
            other => other.parse().map(Rate::Limit),
        }
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        decimal(f, self.0, "bit/s")
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rate::Unlimited => f.write_str("unlimited"),
            Rate::Limit(rate) => rate.fmt(f),
        }
    }
}

fn decimal(f: &mut fmt::Formatter<'_>, value: u64, unit: &str) -> fmt::Result {
    for (by, prefix) in [(1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")] {
        if value >= by {
            return write!(f, "{:.1} {prefix}{unit}", value as f64 / by as f64);
        }
    }
    write!(f, "{value} {unit}")
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (number, unit) = split(text, SIZE_HELP)?;
        let prefixes = "KMGT";
        let by = match unit {
            "" | "B" | "b" => 1,
            _ => {
                let mut chars = unit.chars();
                let power = chars
                    .next()
                    .and_then(|c| prefixes.find(c.to_ascii_uppercase()))
                    .ok_or_else(|| UnitError::Unit(unit.to_owned(), SIZE_HELP))?;
                let base: u128 = match chars.as_str() {
                    "" | "iB" | "i" => 1024,
                    "B" => 1000,
                    _ => return Err(UnitError::Unit(unit.to_owned(), SIZE_HELP)),
                };
                base.pow(power as u32 + 1)
            }
        };
        scale(text, number, by, SIZE_HELP).map(ByteSize)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if self.0 >= 1 << shift {
                return write!(f, "{:.1} {unit}", self.0 as f64 / (1u64 << shift) as f64);
            }
        }
        write!(f, "{} B", self.0)
    }
}

/// Returns a number with its noun, in the plural unless the number is 1: "1 message", "3 messages".
pub fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Parses a time: seconds without a unit, else `ms`, `s`, `m`, `h`. For clap's `value_parser`.
///
/// # Errors
/// Not a number, an unknown unit, or more than about 500 years.
pub fn duration(text: &str) -> Result<Duration, UnitError> {
    let (number, unit) = split(text, TIME_HELP)?;
    let micros_each = match unit {
        "us" | "µs" => 1,
        "ms" => 1_000,
        "" | "s" => 1_000_000,
        "m" | "min" => 60_000_000,
        "h" => 3_600_000_000,
        _ => return Err(UnitError::Unit(unit.to_owned(), TIME_HELP)),
    };
    scale(text, number, micros_each, TIME_HELP).map(Duration::from_micros)
}
