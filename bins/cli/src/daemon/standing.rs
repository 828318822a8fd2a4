//! What the control thread itself knows of the program's state.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// The state of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// The file.
    pub file: String,
    /// Reloads that were accepted.
    pub reloads: u64,
    /// Reloads that were rejected.
    pub rejected: u64,
    /// Why the last reload was rejected; none after one that was accepted.
    pub last_error: Option<String>,
    /// Keys whose new value waits for a restart.
    pub needs_restart: Vec<String>,
}

/// How long the program has been running, with what.
#[derive(Debug)]
pub struct Standing {
    started: Instant,
    configuration: Mutex<Configuration>,
}

impl Standing {
    /// Starts now, with that configuration file.
    #[must_use]
    pub fn new(file: &Path) -> Standing {
        let file = file.display().to_string();
        Standing {
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

    /// Seconds since the start.
    pub fn uptime_s(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    /// The state of the configuration now.
    pub fn configuration(&self) -> Configuration {
        self.lock().clone()
    }

    /// The end of a reload: the keys that wait for a restart, or why it was rejected. Logged, and
    /// kept for [`Standing::configuration`].
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
