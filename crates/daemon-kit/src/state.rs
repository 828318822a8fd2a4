//! The state of a daemon itself: uptime, and the outcome of reloads.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};

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

/// The state that every daemon has.
#[derive(Debug)]
pub struct DaemonState {
    started: Instant,
    configuration: Mutex<Configuration>,
}

impl DaemonState {
    /// Creates the state of a daemon that starts now with that configuration file.
    #[must_use]
    pub fn new(file: &Path) -> DaemonState {
        let file = file.display().to_string();
        DaemonState {
            started: Instant::now(),
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
                    tracing::info!("configuration reloaded");
                } else {
                    tracing::warn!(
                        keys = waiting.join(", "),
                        "configuration reloaded; these keys keep their value until a restart"
                    );
                }
                configuration.reloads += 1;
                configuration.last_error = None;
                configuration.needs_restart = waiting.into_iter().map(str::to_owned).collect();
            }
            Err(error) => {
                tracing::error!(%error, "configuration rejected, the old one stays");
                configuration.rejected += 1;
                configuration.last_error = Some(error);
            }
        }
    }
}
