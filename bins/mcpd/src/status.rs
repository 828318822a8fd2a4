//! The answers of `mcpd status`: one line such as `{"show": "copies"}` asks, one JSON object answers.

use std::net::SocketAddr;
use std::sync::Arc;

use daemon_kit::daemon::StatusSource;
use daemon_kit::metric::Metric;
use daemon_kit::server::{Failure, Out};
use daemon_kit::state::DaemonState;
use daemon_kit::status::{Document, Layout, Question};
pub use daemon_kit::status::{query, render};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::listen::Shared;
use crate::metrics::METRICS;

/// A document to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Show {
    /// State, configuration and totals
    Overview,
    /// Running copies
    Copies,
    /// All counters
    Counters,
}

impl Document for Show {
    const PROGRAM: &'static str = "mcpd";

    fn layout(self) -> Layout {
        match self {
            Show::Overview => Layout::Overview(&[
                ("listens on", "listen"),
                ("folder", "dir"),
                ("key required", "secure"),
                ("running copies", "running"),
                ("copied", "copied"),
                ("failed", "failed"),
                ("refused connections", "refused"),
                ("bytes received", "received_bytes"),
                ("bytes relayed", "relayed_bytes"),
                ("children", "children"),
            ]),
            Show::Copies => Layout::List(&["peer", "name", "bytes", "received", "held", "seconds"]),
            Show::Counters => Layout::Counters,
        }
    }
}

/// Answers questions about the running program.
#[derive(Clone)]
pub struct StatusHandle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) daemon: Arc<DaemonState>,
    pub(crate) address: SocketAddr,
}

impl std::fmt::Debug for StatusHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StatusHandle").finish_non_exhaustive()
    }
}

impl StatusSource for StatusHandle {
    type Question = Question<Show>;
    const USAGE: &'static str =
        "ask with one line such as {\"show\": \"overview\"}; known: overview, copies, counters";
    const PREFIX: &'static str = "mcpd";
    type Snapshot = StatusHandle;
    const METRICS: &'static [Metric<StatusHandle>] = METRICS;

    async fn answer(&self, question: Question<Show>, out: &mut Out) -> Result<(), Failure> {
        let document = match question.show {
            Show::Overview => self.overview(),
            Show::Copies => self.copies(),
            Show::Counters => self.counters(),
        };
        Ok(out.document(&document).await?)
    }

    async fn snapshot(&self) -> Option<StatusHandle> {
        Some(self.clone())
    }
}

impl StatusHandle {
    fn overview(&self) -> Value {
        let (totals, running) = self.shared.activity.totals();
        let settings = self.shared.settings();
        let more = json!({
            "listen": self.address,
            "dir": settings.folder.display().to_string(),
            "secure": settings.credentials.is_some(),
            "running": running,
            "copied": totals.copied,
            "failed": totals.failed,
            "refused": totals.refused,
            "received_bytes": totals.received,
            "relayed_bytes": totals.relayed,
            "children": totals.children,
        });
        self.daemon.overview(env!("CARGO_PKG_VERSION"), more)
    }

    fn counters(&self) -> Value {
        let (totals, _) = self.shared.activity.totals();
        json!({
            "copies": {"copied": totals.copied, "failed": totals.failed},
            "data": {"received_bytes": totals.received},
            "relay": {"blocks": totals.relayed_blocks, "bytes": totals.relayed},
            "connections": {"refused": totals.refused},
        })
    }

    fn copies(&self) -> Value {
        let rows = self.shared.activity.running().into_iter().map(|copy| {
            json!({
                "peer": copy.peer,
                "name": copy.name,
                "bytes": copy.bytes,
                "received": copy.received,
                "held": copy.held,
                "seconds": copy.since.elapsed().as_secs(),
            })
        });
        json!({"copies": rows.collect::<Vec<_>>()})
    }
}
