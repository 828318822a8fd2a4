//! What `mcp` and `mcpd` share around [`mcp_control`].

use mcp_control::{Failed, Manifest, Side};

/// The TCP port of control connections, unless told otherwise.
pub const PORT: u16 = 4139;

/// Why a copy failed, for people: the reason, the path it is about, and what was said about it,
/// without anything that a terminal obeys.
pub fn sentence(failed: &Failed, side: Side, manifest: Option<&Manifest>) -> String {
    let mut text = failed.reason.to_string();
    let entry = failed.entry.and_then(|entry| usize::try_from(entry).ok());
    if let Some(entry) = entry.and_then(|entry| manifest?.entries().get(entry)) {
        text += &format!(": {}", entry.path);
    }
    if !failed.text.is_empty() {
        let mut clean = String::new();
        // A String takes everything.
        let _ = mcp_control::path::show(failed.text.as_bytes(), &mut clean);
        text = match side {
            Side::Here if failed.entry.is_none() => clean,
            _ => format!("{text} ({clean})"),
        };
    }
    text
}
