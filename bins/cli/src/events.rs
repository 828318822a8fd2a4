//! `--json`: one event per line.

use std::io::{self, Write};
use std::sync::Mutex;

use serde::Serialize;

/// The output of events.
pub enum Events {
    /// None: `--json` was not given.
    Off,
    /// One JSON object per line, flushed at once.
    Lines(Mutex<Box<dyn Write + Send>>),
}

impl Events {
    /// Returns events on standard output, or on standard error if standard output carries the data.
    pub fn new(json: bool, stdout_is_data: bool) -> Self {
        match (json, stdout_is_data) {
            (false, _) => Events::Off,
            (true, false) => Events::Lines(Mutex::new(Box::new(io::stdout()))),
            (true, true) => Events::Lines(Mutex::new(Box::new(io::stderr()))),
        }
    }

    /// Returns whether `--json` was given.
    pub fn is_on(&self) -> bool {
        !matches!(self, Events::Off)
    }

    /// Writes one event, an object whose field `event` names it. The program continues if it cannot be written: see
    /// [`crate::print`].
    pub fn emit(&self, event: &impl Serialize) {
        let Events::Lines(writer) = self else { return };
        let Ok(mut line) = serde_json::to_vec(event) else {
            return;
        };
        line.push(b'\n');
        if let Ok(mut writer) = writer.lock() {
            crate::print::write(&mut *writer, &line);
        }
    }
}

/// Returns bytes as hexadecimal digits, as events show digests.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
