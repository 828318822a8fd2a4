//! Failures as text for people.

use alloc::format;
use alloc::string::{String, ToString};

use crate::{Failed, Manifest, Side, path};

/// Returns why a copy failed: the reason, the path that it concerns, and the peer's explanation without control
/// characters.
#[must_use]
pub fn explain(failed: &Failed, side: Side, manifest: Option<&Manifest>) -> String {
    let mut text = failed.reason.to_string();
    let entry = failed.entry.and_then(|entry| usize::try_from(entry).ok());
    if let Some(entry) = entry.and_then(|entry| manifest?.entries().get(entry)) {
        text += &format!(": {}", entry.path);
    }
    if failed.text.is_empty() {
        return text;
    }
    let mut clean = String::new();
    // Writing to a String cannot fail.
    let _ = path::show(failed.text.as_bytes(), &mut clean);
    match side {
        Side::Here if failed.entry.is_none() => clean,
        _ => format!("{text} ({clean})"),
    }
}
