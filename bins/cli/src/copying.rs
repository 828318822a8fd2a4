//! What `mcp` and `mcpd` share around [`mcp_control`].

use mcp_control::{Failed, Instant, Machine, Manifest, Role, Side};

use crate::conversation::Speaker;

/// The TCP port of control connections, unless told otherwise.
pub const PORT: u16 = 4139;

impl<R: Role> Speaker for Machine<R> {
    type Event = R::Event;

    fn hear(&mut self, now: Instant, bytes: &mut &[u8]) -> bool {
        Machine::hear(self, now, bytes)
    }

    fn handle_close(&mut self, now: Instant) {
        Machine::handle_close(self, now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        Machine::handle_timeout(self, now);
    }

    fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize> {
        Machine::poll_transmit(self, now, buffer).map(|frame| frame.len)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Machine::poll_timeout(self)
    }

    fn poll_event(&mut self) -> Option<R::Event> {
        Machine::poll_event(self)
    }

    fn is_ended(&self) -> bool {
        Machine::is_ended(self)
    }
}

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
