//! The state of a daemon itself: uptime, and the outcome of reloads.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::table::row;

/// The state of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// Its path.
    pub file: String,
    /// Reloads that were accepted.
    pub reloads: u64,
    /// Reloads that were rejected.
    pub rejected: u64,
    /// Why the last reload was rejected; `None` after an accepted one.
    pub last_error: Option<String>,
    /// Keys whose new value waits for a restart.
    pub needs_restart: Vec<String>,
}

impl Configuration {
    /// Returns its rows of the overview that `status` prints.
    #[must_use]
    pub fn rows(&self) -> Vec<Vec<String>> {
        let reloads = format!("{} accepted, {} rejected", self.reloads, self.rejected);
        let mut rows = vec![
            row(["configuration", &self.file]),
            row(["reloads", &reloads]),
        ];
        let error = self.last_error.iter().flat_map(|error| error.lines());
        for (i, line) in error.enumerate() {
            let title = if i == 0 { "last reload rejected" } else { "" };
            rows.push(row([title, line]));
        }
        if !self.needs_restart.is_empty() {
            let keys = self.needs_restart.join(", ");
            rows.push(row(["waits for a restart", &keys]));
        }
        rows
    }
}

/// The state that every daemon has.
#[derive(Debug)]
pub struct DaemonState {
    started: Instant,
    metrics: Option<SocketAddr>,
    capabilities: Vec<String>,
    configuration: Mutex<Configuration>,
}

impl DaemonState {
    /// Creates the state of a daemon that starts now: its configuration file, the address of its metrics, and the names
    /// of the capabilities that it keeps.
    #[must_use]
    pub fn new(file: &Path, metrics: Option<SocketAddr>, capabilities: Vec<String>) -> DaemonState {
        let file = file.display().to_string();
        DaemonState {
            started: Instant::now(),
            metrics,
            capabilities,
            configuration: Mutex::new(Configuration {
                file,
                ..Configuration::default()
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Configuration> {
        self.configuration
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the seconds since the start.
    pub fn uptime_s(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    /// Returns the address of the metrics, when they are served.
    #[must_use]
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Returns the names of the capabilities that the process keeps.
    #[must_use]
    pub fn capabilities(&self) -> &[String] {
        &self.capabilities
    }

    /// Returns the overview of the program, `more`, with what every daemon has.
    #[must_use]
    pub fn overview(&self, version: &str, mut more: Value) -> Value {
        more["version"] = json!(version);
        more["pid"] = json!(std::process::id());
        more["uptime_s"] = json!(self.uptime_s());
        more["metrics"] = json!(self.metrics());
        more["configuration"] = json!(self.configuration());
        more
    }

    /// Returns the state of the configuration.
    pub fn configuration(&self) -> Configuration {
        self.lock().clone()
    }

    /// Records the outcome of a reload: the keys whose new value waits for a restart, or why it was rejected. It is logged, and
    /// kept for [`DaemonState::configuration`].
    pub fn reloaded(&self, result: Result<Vec<&'static str>, String>) {
        let mut configuration = self.lock();
        match result {
            Ok(waiting) => {
                if waiting.is_empty() {
                    tracing::info!(event = "reloaded", "configuration reloaded");
                } else {
                    tracing::warn!(
                        event = "reloaded_partly",
                        keys = waiting.join(", "),
                        "configuration reloaded; these keys keep their value until a restart"
                    );
                }
                configuration.reloads += 1;
                configuration.last_error = None;
                configuration.needs_restart = waiting.into_iter().map(str::to_owned).collect();
            }
            Err(error) => {
                tracing::error!(event = "reload_rejected", %error, "configuration rejected, the old one stays");
                configuration.rejected += 1;
                configuration.last_error = Some(error);
            }
        }
    }
}
