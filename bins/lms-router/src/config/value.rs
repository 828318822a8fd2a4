//! How single values are written: numbers, durations, addresses, names.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use toml::de::DeValue;

use super::reader::{At, Section, nearest, shown};

pub(crate) fn text(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) if !text.is_empty() => Ok(text.to_string()),
        DeValue::String(_) => Err("is empty".to_owned()),
        other => Err(format!("{} is not a text in quotes", shown(other))),
    }
}

pub(crate) fn boolean(value: &DeValue<'_>) -> Result<bool, String> {
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
    /// A whole number within `range`, `default` when absent (or wrong, which is noted).
    pub(crate) fn number<T>(&self, key: &'static str, range: RangeInclusive<T>, default: T) -> T
    where
        T: Copy + TryFrom<u64> + Into<u64>,
    {
        let range = (*range.start()).into()..=(*range.end()).into();
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        self.get(key, &expected, |value| whole(value, &range))
            .and_then(|at| T::try_from(at.value).ok())
            .unwrap_or(default)
    }

    /// A duration within `range`, with where it stands (the section's place when absent).
    pub(crate) fn duration(
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

    /// One of a few words, `default` when absent; `None` when wrong, which is noted.
    pub(crate) fn choice<T: Copy>(
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

/// `10s`, `1500ms`, `2m`, `1h`.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
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

/// The way back from [`parse_duration`].
pub(crate) fn spelled(duration: Duration) -> String {
    match duration.as_millis() {
        ms if ms % 3_600_000 == 0 && ms > 0 => format!("{}h", ms / 3_600_000),
        ms if ms % 60_000 == 0 && ms > 0 => format!("{}m", ms / 60_000),
        ms if ms % 1000 == 0 => format!("{}s", ms / 1000),
        ms => format!("{ms}ms"),
    }
}

fn address(value: &DeValue<'_>) -> Result<Ipv4Addr, String> {
    let DeValue::String(text) = value else {
        return Err(format!("{} is not an IPv4 address in quotes", shown(value)));
    };
    text.parse()
        .map_err(|_| format!("{text:?} is not an IPv4 address"))
}

pub(crate) const UNICAST: &str = "a host's IPv4 address, such as \"192.0.2.1\"";
pub(crate) fn unicast(value: &DeValue<'_>) -> Result<Ipv4Addr, String> {
    let address = address(value)?;
    if address.is_multicast() {
        return Err(format!("{address} is a multicast address"));
    }
    if address.is_unspecified() || address.is_broadcast() || address.is_loopback() {
        return Err(format!(
            "{address} is not the address of a host on a network"
        ));
    }
    Ok(address)
}

pub(crate) const ROUTED_GROUP: &str =
    "a multicast address from 224.0.1.0 to 239.255.255.255, such as \"239.1.2.3\"";
pub(crate) fn routed_group(value: &DeValue<'_>) -> Result<Ipv4Addr, String> {
    let address = address(value)?;
    if !address.is_multicast() {
        return Err(format!("{address} is not a multicast address"));
    }
    if address.octets()[..3] == [224, 0, 0] {
        return Err(format!("{address} never leaves its link"));
    }
    Ok(address)
}

pub(crate) const SOURCE: &str = "the source's IPv4 address, or \"*\" for any source";
pub(crate) fn source(value: &DeValue<'_>) -> Result<Ipv4Addr, String> {
    match value {
        DeValue::String(text) if text == "*" => Ok(Ipv4Addr::UNSPECIFIED),
        other => unicast(other),
    }
}

pub(crate) const INTERFACE: &str = "the name of a network interface, such as \"eth0\"";
pub(crate) fn interface(value: &DeValue<'_>) -> Result<String, String> {
    let name = text(value)?;
    if name.len() > 15 {
        return Err(format!("{name:?} is longer than 15 characters"));
    }
    if name.contains(|c: char| c == '/' || c.is_whitespace() || c == '*') {
        return Err(format!("{name:?} is not the name of a network interface"));
    }
    Ok(name)
}

pub(crate) const LISTEN: &str = "an address and a port, such as \"127.0.0.1:9464\"";
pub(crate) fn listen(value: &DeValue<'_>) -> Result<SocketAddr, String> {
    let DeValue::String(text) = value else {
        return Err(format!(
            "{} is not an address and a port in quotes",
            shown(value)
        ));
    };
    text.parse()
        .map_err(|_| format!("{text:?} is not an address and a port"))
}

pub(crate) const MODE: &str = "permissions in octal and in quotes, such as \"0660\"";
pub(crate) fn mode(value: &DeValue<'_>) -> Result<u32, String> {
    let DeValue::String(text) = value else {
        return Err(format!("{} is not a text in quotes", shown(value)));
    };
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err(format!("{text:?} is not a set of permissions")),
    }
}

/// Interface names where a trailing `*` stands for any rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(pub String);

impl Pattern {
    /// Whether `name` fits.
    pub fn matches(&self, name: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => self.0 == name,
        }
    }
}

pub(crate) const PATTERN: &str =
    "the name of a network interface, such as \"eth0\", or a pattern such as \"eth*\"";
pub(crate) fn pattern(value: &DeValue<'_>) -> Result<Pattern, String> {
    let name = text(value)?;
    let stem = name.strip_suffix('*').unwrap_or(&name);
    if stem.len() > 15 {
        return Err(format!("{name:?} is longer than 15 characters"));
    }
    if stem.contains(|c: char| c == '/' || c.is_whitespace() || c == '*') {
        return Err(format!("{name:?} is not the name of a network interface"));
    }
    Ok(Pattern(name))
}
