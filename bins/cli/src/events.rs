//! `--json`: one event a line.

use std::io::{self, Write};
use std::sync::Mutex;

use serde::Serialize;

/// Where events go.
pub enum Events {
    /// Nowhere: `--json` was not given.
    Off,
    /// One JSON object a line, flushed at once.
    Lines(Mutex<Box<dyn Write + Send>>),
}

impl Events {
    /// Events on standard output, or on standard error where standard output carries the data.
    pub fn new(json: bool, stdout_is_data: bool) -> Self {
        match (json, stdout_is_data) {
            (false, _) => Events::Off,
            (true, false) => Events::Lines(Mutex::new(Box::new(io::stdout()))),
            (true, true) => Events::Lines(Mutex::new(Box::new(io::stderr()))),
        }
    }

    /// Are events wanted?
    pub fn is_on(&self) -> bool {
        !matches!(self, Events::Off)
    }

    /// Writes one event; the value is an object whose field `event` names it. One that cannot be written
    /// stops neither the work nor the program: see [`crate::print`].
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

/// Bytes as digits, two for each: how digests stand in events.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
