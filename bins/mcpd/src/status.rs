//! The answers of `mcpd status`: one line such as `{"show": "copies"}` asks, one JSON object answers.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use daemon_kit::client::{self, QueryError};
use daemon_kit::daemon::StatusSource;
use daemon_kit::server::{Failure, Out};
use daemon_kit::state::{Configuration, DaemonState};
use daemon_kit::table::{cell, columns, row, table};
use prometheus_client::collector::Collector;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::PROGRAM;
use crate::listen::Shared;
use crate::metrics::Page;

/// A document to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Show {
    /// State, configuration and totals
    Overview,
    /// Running copies
    Copies,
}

/// The line that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The document.
    pub show: Show,
}

/// Asks the daemon at `socket`; waits a few seconds at most.
///
/// # Errors
/// There is no answer.
pub fn query(socket: &Path, show: Show) -> Result<Value, QueryError> {
    client::query(socket, PROGRAM, &Question { show })
}

/// Answers questions about the running program.
#[derive(Clone)]
pub(crate) struct StatusHandle {
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
    type Question = Question;
    const USAGE: &'static str =
        "ask with one line such as {\"show\": \"overview\"}; known: overview, copies";
    const PREFIX: &'static str = "mcpd";

    async fn answer(&self, question: Question, out: &mut Out) -> Result<(), Failure> {
        let document = match question.show {
            Show::Overview => self.overview(),
            Show::Copies => self.copies(),
        };
        Ok(out.document(&document).await?)
    }

    async fn metrics(&self) -> Option<Box<dyn Collector>> {
        Some(Box::new(Page(self.clone())))
    }
}

impl StatusHandle {
    fn overview(&self) -> Value {
        let (totals, running) = self.shared.activity.totals();
        let settings = self.shared.settings();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "uptime_s": self.daemon.uptime_s(),
            "listen": self.address,
            "dir": settings.folder.display().to_string(),
            "secure": settings.credentials.is_some(),
            "running": running,
            "copied": totals.copied,
            "failed": totals.failed,
            "refused": totals.refused,
            "received_bytes": totals.received,
            "metrics": self.daemon.metrics(),
            "configuration": self.daemon.configuration(),
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

/// Returns the text of an answer; `None` if it is not the document that `show` asks for.
#[must_use]
pub fn render(show: Show, answer: &Value) -> Option<String> {
    let Show::Overview = show else {
        let names = ["peer", "name", "bytes", "received", "held", "seconds"];
        return Some(columns(answer["copies"].as_array()?, &names));
    };
    let configuration: Configuration = Deserialize::deserialize(&answer["configuration"]).ok()?;
    let of = |name: &str| cell(&answer[name]);
    let running = format!(
        "{}, process {}, up {} s",
        of("version"),
        of("pid"),
        of("uptime_s")
    );
    let mut rows = vec![row([PROGRAM, &running])];
    rows.extend(configuration.rows());
    for (label, name) in [
        ("listens on", "listen"),
        ("folder", "dir"),
        ("key required", "secure"),
        ("running copies", "running"),
        ("copied", "copied"),
        ("failed", "failed"),
        ("refused connections", "refused"),
        ("bytes received", "received_bytes"),
        ("metrics", "metrics"),
    ] {
        rows.push(row([label, &of(name)]));
    }
    Some(table(&rows))
}
