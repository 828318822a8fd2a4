//! What the control thread itself knows of the program's state.

use std::path::Path;

use daemon_kit::state::DaemonState;

use crate::config::Config;
use crate::control::Summary;
use crate::status::Overview;

/// Everything in the overview that the data thread does not know.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) of_daemon: DaemonState,
    source: &'static str,
    guard: bool,
    metrics: Option<String>,
    capabilities: Vec<String>,
}

impl Standing {
    pub(crate) fn new(
        file: &Path,
        config: &Config,
        metrics: Option<String>,
        capabilities: &[String],
    ) -> Standing {
        Standing {
            of_daemon: DaemonState::new(file),
            source: config.source.kind(),
            guard: config.capture.guard,
            metrics,
            capabilities: capabilities.to_vec(),
        }
    }

    pub(crate) fn overview(&self, summary: Summary) -> Overview {
        Overview {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.of_daemon.uptime_s(),
            source: self.source.to_owned(),
            policy: summary.policy.to_owned(),
            configuration: self.of_daemon.configuration(),
            groups: summary.groups,
            neighbours: summary.neighbours,
            interfaces: summary.interfaces,
            guard: self.guard,
            metrics: self.metrics.clone(),
            capabilities: self.capabilities.clone(),
        }
    }
}
