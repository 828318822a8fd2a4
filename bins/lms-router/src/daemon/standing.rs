//! What the control thread itself knows of the program's state.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::config::Config;
use crate::control::Summary;
use crate::status::{Configuration, Overview};

/// Everything in the overview that the data thread does not know.
#[derive(Debug)]
pub(crate) struct Standing {
    started: Instant,
    source: &'static str,
    guard: bool,
    metrics: Option<String>,
    capabilities: Vec<String>,
    configuration: Mutex<Configuration>,
}

impl Standing {
    pub(crate) fn new(
        file: &Path,
        config: &Config,
        metrics: Option<String>,
        capabilities: &[String],
    ) -> Standing {
        let file = file.display().to_string();
        Standing {
            started: Instant::now(),
            source: config.source.kind(),
            guard: config.capture.guard,
            metrics,
            capabilities: capabilities.to_vec(),
            configuration: Mutex::new(Configuration {
                file,
                ..Configuration::default()
            }),
        }
    }

    fn configuration(&self) -> MutexGuard<'_, Configuration> {
        self.configuration
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn accepted(&self, waiting: Vec<&'static str>) {
        let mut configuration = self.configuration();
        configuration.reloads += 1;
        configuration.last_error = None;
        configuration.needs_restart = waiting.into_iter().map(str::to_owned).collect();
    }

    pub(crate) fn rejected(&self, error: String) {
        let mut configuration = self.configuration();
        configuration.rejected += 1;
        configuration.last_error = Some(error);
    }

    pub(crate) fn overview(&self, summary: Summary) -> Overview {
        Overview {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs(),
            source: self.source.to_owned(),
            policy: summary.policy.to_owned(),
            configuration: self.configuration().clone(),
            groups: summary.groups,
            neighbours: summary.neighbours,
            interfaces: summary.interfaces,
            guard: self.guard,
            metrics: self.metrics.clone(),
            capabilities: self.capabilities.clone(),
        }
    }
}
