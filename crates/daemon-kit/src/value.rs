//! Parsers of single values: numbers, durations, addresses, names. The error is the problem; the constant beside a function
//! is what to write instead.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use toml::de::DeValue;

use crate::reader::{At, Section, nearest, shown};

/// A text that is not empty.
///
/// # Errors
/// What is wrong, when the value is not a string or the string is empty.
pub fn text(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) if !text.is_empty() => Ok(text.to_string()),
        DeValue::String(_) => Err("is empty".to_owned()),
        other => Err(format!("{} is not a text in quotes", shown(other))),
    }
}

/// `true` or `false`.
///
/// # Errors
/// What is wrong, when the value is not a boolean.
pub fn boolean(value: &DeValue<'_>) -> Result<bool, String> {
    match value {
        DeValue::Boolean(value) => Ok(*value),
        other => Err(format!("{} is neither true nor false", shown(other))),
    }
}

fn whole(value: &DeValue<'_>, range: &RangeInclusive<u64>) -> Result<u64, String> {
    let DeValue::Integer(number) = value else {
        return Err(format!("{} is not a whole number", shown(value)));
    };
    let parsed = i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(i128::MAX);
    match u64::try_from(parsed) {
        Ok(n) if range.contains(&n) => Ok(n),
        _ if parsed < i128::from(*range.start()) => Err(format!("{number} is too small")),
        _ => Err(format!("{number} is too large")),
    }
}

impl Section<'_, '_> {
    /// Reads a whole number within `range`; `default` when absent or wrong.
    pub fn number<T>(&self, key: &'static str, range: RangeInclusive<T>, default: T) -> T
    where
        T: Copy + TryFrom<u64> + Into<u64>,
    {
        let range = (*range.start()).into()..=(*range.end()).into();
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        self.get(key, &expected, |value| whole(value, &range))
            .and_then(|at| T::try_from(at.value).ok())
            .unwrap_or(default)
    }

    /// Reads `true` or `false`; `default` when absent or wrong.
    pub fn flag(&self, key: &'static str, default: bool) -> bool {
        self.get(key, "true or false", boolean)
            .map_or(default, |at| at.value)
    }

    /// Reads a power of two within `range`; `default` when absent or wrong.
    pub fn power_of_two(&self, key: &'static str, range: RangeInclusive<u32>, default: u32) -> u32 {
        let value = self.number(key, range, default);
        if !value.is_power_of_two() {
            let above = value.next_power_of_two();
            let wrong = format!("{value} is not a power of two");
            let instead = format!("write {} or {above}", above / 2);
            self.complain(self.offset_of(key), key, wrong, instead);
        }
        value
    }

    /// Reads a duration within `range`, with its position (the section's when absent).
    pub fn duration(
        &self,
        key: &'static str,
        range: RangeInclusive<Duration>,
        default: Duration,
    ) -> At<Duration> {
        let expected = format!(
            "a duration from {} to {}, such as \"500ms\", \"10s\" or \"2m\"",
            spelled(*range.start()),
            spelled(*range.end())
        );
        self.get(key, &expected, |value| {
            let DeValue::String(text) = value else {
                return Err(format!("{} is not a duration in quotes", shown(value)));
            };
            match parse_duration(text) {
                None => Err(format!("{text:?} is not a duration")),
                Some(duration) if duration < *range.start() => {
                    Err(format!("{text:?} is too short"))
                }
                Some(duration) if duration > *range.end() => Err(format!("{text:?} is too long")),
                Some(duration) => Ok(duration),
            }
        })
        .unwrap_or(At {
            value: default,
            offset: self.offset(),
        })
    }

    /// Reads one of a few words; `default` when absent, `None` when wrong.
    pub fn choice<T: Copy>(
        &self,
        key: &'static str,
        choices: &[(&'static str, T)],
        default: T,
    ) -> Option<T> {
        if !self.has(key) {
            self.get(key, "", |_| Ok(()));
            return Some(default);
        }
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
        let expected = format!("one of {}", quoted.join(", "));
        self.get(key, &expected, |value| {
            let DeValue::String(text) = value else {
                return Err(format!("{} is not a text in quotes", shown(value)));
            };
            let found = choices.iter().find(|(word, _)| word == text);
            found
                .map(|(_, choice)| *choice)
                .ok_or_else(|| match nearest(text, &words) {
                    Some(near) => format!("{text:?} is unknown (did you mean {near:?}?)"),
                    None => format!("{text:?} is unknown"),
                })
        })
        .map(|at| at.value)
    }
}

/// Parses `10s`, `1500ms`, `2m` or `1h`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let split = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..split].parse().ok()?;
    let milliseconds = match text[split..].trim_start() {
        "ms" => 1,
        "s" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    number.checked_mul(milliseconds).map(Duration::from_millis)
}

/// Formats a duration for [`parse_duration`].
pub fn spelled(duration: Duration) -> String {
    match duration.as_millis() {
        ms if ms % 3_600_000 == 0 && ms > 0 => format!("{}h", ms / 3_600_000),
        ms if ms % 60_000 == 0 && ms > 0 => format!("{}m", ms / 60_000),
        ms if ms % 1000 == 0 => format!("{}s", ms / 1000),
        ms => format!("{ms}ms"),
    }
}

/// The values that [`interface`] reads.
pub const INTERFACE: &str = "the name of a network interface, such as \"eth0\"";
/// The name of a network interface.
///
/// # Errors
/// What is wrong, when the value is not a string, or the string is empty, longer than 15 bytes, or
/// contains `/`, `*` or white space.
pub fn interface(value: &DeValue<'_>) -> Result<String, String> {
    let name = text(value)?;
    if name.len() > 15 {
        return Err(format!("{name:?} is longer than 15 characters"));
    }
    if name.contains(|c: char| c == '/' || c.is_whitespace() || c == '*') {
        return Err(format!("{name:?} is not the name of a network interface"));
    }
    Ok(name)
}

/// The values that [`listen`] reads.
pub const LISTEN: &str = "an address and a port, such as \"127.0.0.1:9464\"";
/// An address and a port.
///
/// # Errors
/// What is wrong, when the value is not a string with an IP address and a port.
pub fn listen(value: &DeValue<'_>) -> Result<SocketAddr, String> {
    let DeValue::String(text) = value else {
        return Err(format!(
            "{} is not an address and a port in quotes",
            shown(value)
        ));
    };
    text.parse()
        .map_err(|_| format!("{text:?} is not an address and a port"))
}

/// The values that [`mode`] reads.
pub const MODE: &str = "permissions in octal and in quotes, such as \"0660\"";
/// Permissions of a file.
///
/// # Errors
/// What is wrong, when the value is not a string with an octal number of at most 0777.
pub fn mode(value: &DeValue<'_>) -> Result<u32, String> {
    let DeValue::String(text) = value else {
        return Err(format!("{} is not a text in quotes", shown(value)));
    };
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err(format!("{text:?} is not a set of permissions")),
    }
}

/// The path of a status socket.
///
/// # Errors
/// What is wrong, when the value is not a string with an absolute path of at most 107 bytes.
pub fn socket_path(value: &DeValue<'_>) -> Result<PathBuf, String> {
    let path = PathBuf::from(text(value)?);
    // An address of a Unix socket holds 108 bytes with the closing zero.
    match path.as_os_str().len() {
        _ if !path.is_absolute() => Err(format!("{path:?} is not an absolute path")),
        0..=107 => Ok(path),
        _ => Err(format!("{path:?} is longer than 107 bytes")),
    }
}
