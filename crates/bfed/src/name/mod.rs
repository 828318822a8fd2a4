//! Names of sessions (§3.2): `bfed://owner/native/flow.../?parameter=value&...`.
//!
//! Every gateway parses the owner, the flows and the parameters; only the owner's gateways interpret the native
//! name. The whole name with its parameters is the session's identity, so [`SessionName::parse`] normalises
//! different spellings of one session to one name.
//!
//! | part | normal form |
//! | --- | --- |
//! | scheme, DNS name of the owner | lower case; no dot at the end |
//! | number of the owner | decimal; a dotted quad is accepted too (§3.1: an IP address as network number) |
//! | native name, flows | escapes of unreserved characters decoded, other escapes in upper case |
//! | parameters | sorted by name, then value |
//! | slash before `?` | always present; without parameters there is none |
//!
//! | parameter | values | determines |
//! | --- | --- | --- |
//! | `metric` | `hops` (default), `latency`, `bandwidth` | the table that routes are looked up in |
//! | `content` | `bulk-data` (default), `real-time`; `rtp` in any case means `real-time` | table; UDP or TCP between gateways |
//! | `multi-source` | `false` (default), `true` | table; trees in both directions |
//! | `single-source` | the opposite of `multi-source` | |
//! | `deadline` | 1 to 60000: milliseconds; others are ignored | how long frames of real-time content are worth sending |
//! | any other | kept in the name | nothing |
//!
//! A known parameter that occurs twice, contradicts another, or has another value is an error.
//!
//! | limit | |
//! | --- | --- |
//! | whole name | [`MAX_NAME_LEN`] bytes |
//! | flows | [`MAX_FLOWS`]; without any, there is one flow without a name |
//! | a flow's name | [`MAX_FLOW_LEN`] bytes |
//! | parameters | [`MAX_PARAMETERS`] |

mod escape;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use proto_core::time::Duration;

use crate::types::{BnNum, Content, Metric, Table};
use escape::{Place, normalise};

/// Longest name, in normal form, in bytes.
pub const MAX_NAME_LEN: usize = 1024;
/// Most flows of a session.
pub const MAX_FLOWS: usize = 16;
/// Longest name of a flow, in normal form, in bytes.
pub const MAX_FLOW_LEN: usize = 128;
/// Most parameters of a name.
pub const MAX_PARAMETERS: usize = 16;
/// Longest DNS name of an owner (RFC 1035).
const MAX_OWNER_LEN: usize = 253;

pub(crate) const SCHEME: &str = "bfed://";

proto_core::errors! {
    /// Why text is not a session name.
    pub enum NameError {
        /// It does not begin with `bfed://`.
        Scheme = "a session's name begins with bfed://",
        /// The owner is neither a DNS name nor a network number other than 0.
        Owner = "the owner is neither a DNS name nor a network number",
        /// There is no native name.
        NoNativeName = "there is no native name",
        /// A flow's name is empty, too long or repeated, or there are too many.
        Flow = "a flow's name is empty, too long or stands twice, or there are too many",
        /// A character that must be escaped is not.
        Character = "a character must be escaped",
        /// `%` without two hexadecimal digits, or `%00`.
        Escape = "% must be followed by two hexadecimal digits, not 00",
        /// A parameter without `=`, too many parameters, or an unknown value of a known one.
        Parameter = "a parameter is unknown in its value, stands twice, or has none",
        /// Longer than [`MAX_NAME_LEN`].
        TooLong = "the name is too long",
    }
}

/// Owner of a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Owner<'a> {
    /// The network with that number.
    Number(BnNum),
    /// The network that this DNS name resolves to.
    Name(&'a str),
}

/// The name of a session in normal form: one string and a few offsets, at most [`MAX_NAME_LEN`] bytes and 64 more
/// on the heap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionName {
    text: String,
    /// End of the owner.
    owner_end: u16,
    /// End of the native name.
    native_end: u16,
    /// End of the flows: the slash before `?`, or the end of the text.
    flows_end: u16,
    table: Table,
}

impl SessionName {
    /// Parses and normalises a name.
    ///
    /// # Errors
    /// The name is malformed; see the tables of this module.
    pub fn parse(raw: &str) -> Result<Self, NameError> {
        // Decoding makes text at most three times shorter: longer text cannot fit.
        if raw.len() > 3 * MAX_NAME_LEN {
            return Err(NameError::TooLong);
        }
        let rest = match raw.get(..SCHEME.len()) {
            Some(scheme) if scheme.eq_ignore_ascii_case(SCHEME) => &raw[SCHEME.len()..],
            _ => return Err(NameError::Scheme),
        };
        let (path, query) = match rest.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (rest, None),
        };
        let mut parts = path.split('/');
        let mut text = String::from(SCHEME);
        normalise_owner(parts.next().unwrap_or(""), &mut text)?;
        let owner_end = text.len();
        text.push('/');
        normalise(parts.next().unwrap_or(""), Place::Path, &mut text)?;
        if text.len() == owner_end + 1 {
            return Err(NameError::NoNativeName);
        }
        let native_end = text.len();
        normalise_flows(parts, &mut text)?;
        let flows_end = text.len();
        let table = normalise_query(query.unwrap_or(""), &mut text)?;
        if text.len() > MAX_NAME_LEN {
            return Err(NameError::TooLong);
        }
        text.shrink_to_fit();
        Ok(SessionName {
            text,
            owner_end: owner_end as u16,
            native_end: native_end as u16,
            flows_end: flows_end as u16,
            table,
        })
    }

    /// Returns the whole name in normal form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the owner.
    #[must_use]
    pub fn owner(&self) -> Owner<'_> {
        owner_of(&self.text[SCHEME.len()..usize::from(self.owner_end)])
    }

    /// Returns the native name and the flows, escaped as in the URL.
    pub(crate) fn path(&self) -> &str {
        &self.text[usize::from(self.owner_end) + 1..usize::from(self.flows_end)]
    }

    /// Returns the native name, escaped as in the URL.
    #[must_use]
    pub fn native(&self) -> &str {
        &self.text[usize::from(self.owner_end) + 1..usize::from(self.native_end)]
    }

    /// Returns the bytes of the native name, decoded: the session's name in the owner's network.
    #[must_use]
    pub fn native_bytes(&self) -> Vec<u8> {
        unescape(self.native())
    }

    /// Returns the names of its flows, escaped as in the URL; one empty name if the URL has none.
    pub fn flows(&self) -> impl Iterator<Item = &str> {
        let flows = &self.text[usize::from(self.native_end)..usize::from(self.flows_end)];
        flows.strip_prefix('/').unwrap_or("").split('/')
    }

    /// Returns the number of flows, from 1 to [`MAX_FLOWS`].
    #[must_use]
    pub fn flow_count(&self) -> usize {
        self.flows().count()
    }

    /// Returns its parameters, names and values escaped as in the URL.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        let query = self.text[usize::from(self.flows_end)..]
            .strip_prefix("/?")
            .unwrap_or("");
        query
            .split('&')
            .filter_map(|parameter| parameter.split_once('='))
    }

    /// Returns how long a frame is worth sending, if the name says so.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let mut all = self.parameters();
        let (_, value) = all.find(|(name, _)| *name == "deadline")?;
        let millis = value.parse().ok()?;
        (1..=60_000)
            .contains(&millis)
            .then(|| Duration::from_millis(millis))
    }

    /// Returns its routing table.
    #[must_use]
    pub fn table(&self) -> Table {
        self.table
    }

    /// Returns the kind of its content.
    #[must_use]
    pub fn content(&self) -> Content {
        self.table.content()
    }

    /// Returns whether receivers may send too.
    #[must_use]
    pub fn multi_source(&self) -> bool {
        self.table.multi_source()
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl core::str::FromStr for SessionName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        SessionName::parse(text)
    }
}

/// Returns the owner that text in normal form stands for.
pub(crate) fn owner_of(text: &str) -> Owner<'_> {
    match text.parse().ok().and_then(BnNum::new) {
        Some(number) => Owner::Number(number),
        None => Owner::Name(text),
    }
}

/// Appends a native name or the name of a flow in normal form.
pub(crate) fn normalise_component(raw: &str, out: &mut String) -> Result<(), NameError> {
    normalise(raw, Place::Path, out)
}

/// Decodes the escapes of a component in normal form.
#[must_use]
pub fn unescape(component: &str) -> Vec<u8> {
    decoded(component).collect()
}

/// Returns the bytes of a component in normal form, escapes decoded.
pub(crate) fn decoded(component: &str) -> impl Iterator<Item = u8> {
    let mut bytes = component.as_bytes().iter();
    core::iter::from_fn(move || {
        let &byte = bytes.next()?;
        let digits = bytes.as_slice().get(..2).filter(|_| byte == b'%');
        match digits.and_then(|digits| core::str::from_utf8(digits).ok()) {
            Some(digits) => {
                let _ = bytes.nth(1);
                Some(u8::from_str_radix(digits, 16).unwrap_or(b'?'))
            }
            None => Some(byte),
        }
    })
}

/// Parses a network number, decimal or as a dotted quad (§3.1).
fn parse_network(text: &str) -> Option<BnNum> {
    if let Ok(quad) = text.parse::<core::net::Ipv4Addr>() {
        return BnNum::new(quad.to_bits());
    }
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits {
        text.parse().ok().and_then(BnNum::new)
    } else {
        None
    }
}

/// Returns whether text is a valid DNS name of an owner: lower case, letters, digits and hyphens in labels, and not
/// a number.
fn is_dns_name(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    let last = text.rsplit('.').next().unwrap_or("");
    text.len() <= MAX_OWNER_LEN
        && text.split('.').all(label)
        && !last.bytes().all(|byte| byte.is_ascii_digit())
}

pub(crate) fn normalise_owner(raw: &str, out: &mut String) -> Result<(), NameError> {
    if let Some(number) = parse_network(raw) {
        let _ = fmt::Write::write_fmt(out, format_args!("{number}"));
        return Ok(());
    }
    let lower = raw.strip_suffix('.').unwrap_or(raw).to_ascii_lowercase();
    if !is_dns_name(&lower) {
        return Err(NameError::Owner);
    }
    out.push_str(&lower);
    Ok(())
}

fn normalise_flows<'a>(
    parts: impl Iterator<Item = &'a str>,
    text: &mut String,
) -> Result<(), NameError> {
    let start = text.len();
    let mut parts = parts.peekable();
    let mut count = 0;
    while let Some(part) = parts.next() {
        if part.is_empty() && parts.peek().is_none() {
            break; // the slash before `?`, or at the end
        }
        let here = text.len();
        text.push('/');
        normalise(part, Place::Path, text)?;
        let (before, flow) = (&text[start..here], &text[here + 1..]);
        count += 1;
        if flow.is_empty()
            || flow.len() > MAX_FLOW_LEN
            || count > MAX_FLOWS
            || before.split('/').skip(1).any(|other| other == flow)
        {
            return Err(NameError::Flow);
        }
    }
    Ok(())
}

fn normalise_query(raw: &str, text: &mut String) -> Result<Table, NameError> {
    let mut parameters = Vec::new();
    for parameter in raw.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').ok_or(NameError::Parameter)?;
        if name.is_empty() || parameters.len() == MAX_PARAMETERS {
            return Err(NameError::Parameter);
        }
        let (mut normal_name, mut normal_value) = (String::new(), String::new());
        normalise(name, Place::Query, &mut normal_name)?;
        normalise(value, Place::Query, &mut normal_value)?;
        parameters.push((normal_name, normal_value));
    }
    parameters.sort();
    for (index, (name, value)) in parameters.iter().enumerate() {
        text.push_str(if index == 0 { "/?" } else { "&" });
        text.push_str(name);
        text.push('=');
        text.push_str(value);
    }
    table_of(&parameters)
}

/// Sets a value once; a second time is an error.
fn once<T>(slot: &mut Option<T>, value: Option<T>) -> Result<(), NameError> {
    match (&slot, value) {
        (None, Some(value)) => {
            *slot = Some(value);
            Ok(())
        }
        _ => Err(NameError::Parameter),
    }
}

fn table_of(parameters: &[(String, String)]) -> Result<Table, NameError> {
    let boolean = |value: &str| match value {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    };
    let (mut metric, mut content, mut multi, mut single) = (None, None, None, None);
    for (name, value) in parameters {
        match name.as_str() {
            "metric" => once(
                &mut metric,
                match value.as_str() {
                    "hops" => Some(Metric::Hops),
                    "latency" => Some(Metric::Latency),
                    "bandwidth" => Some(Metric::Bandwidth),
                    _ => None,
                },
            )?,
            "content" => once(
                &mut content,
                match value.as_str() {
                    "bulk-data" => Some(Content::Bulk),
                    "real-time" => Some(Content::RealTime),
                    rtp if rtp.eq_ignore_ascii_case("rtp") => Some(Content::RealTime),
                    _ => None,
                },
            )?,
            "multi-source" => once(&mut multi, boolean(value))?,
            "single-source" => once(&mut single, boolean(value))?,
            _ => {}
        }
    }
    if multi.is_some() && multi == single {
        return Err(NameError::Parameter);
    }
    let multi = multi.or(single.map(|single| !single)).unwrap_or(false);
    Ok(Table::new(
        metric.unwrap_or_default(),
        content.unwrap_or_default(),
        multi,
    ))
}
