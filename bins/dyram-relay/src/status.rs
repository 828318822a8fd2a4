//! The status socket. A query is one line such as `{"show": "sessions"}`; the answer is one JSON object, then the end
//! of the stream.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use daemon_kit::client::{self, QueryError};
use daemon_kit::daemon::StatusSource;
use daemon_kit::server::{Failure, Out};
use daemon_kit::state::Configuration;
use daemon_kit::table::{cell, columns, row, table};
use prometheus_client::collector::Collector;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::PROGRAM;
use crate::control::{Command, Controller, PAGE};
use crate::daemon::RelayState;
use crate::metrics::Page;

/// The document to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Show {
    /// Program, configuration and totals
    Overview,
    /// Sessions: source, parent and progress
    Sessions,
    /// Children of each session
    Children,
    /// All counters
    Counters,
}

/// A query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The document to show.
    pub show: Show,
}

/// Queries the relay at `socket`. Waits at most a few seconds for each part of the answer.
///
/// # Errors
/// The relay did not answer.
pub fn query(socket: &Path, show: Show) -> Result<Value, QueryError> {
    client::query(socket, PROGRAM, &Question { show })
}

/// The parts of the relay that answer queries.
#[derive(Clone, Debug)]
pub(crate) struct StatusHandle {
    pub(crate) controller: Controller,
    pub(crate) state: Arc<RelayState>,
}

impl StatusSource for StatusHandle {
    type Question = Question;
    const USAGE: &'static str = "ask with one line such as {\"show\": \"overview\"}; known: overview, sessions, children, counters";
    const PREFIX: &'static str = "dyram_relay";

    async fn answer(&self, question: Question, out: &mut Out) -> Result<(), Failure> {
        let state = &self.state;
        // Collected before the first byte is written: a partial answer could pass for a whole one.
        let document = match question.show {
            Show::Overview => {
                let snapshot = self.controller.ask(Command::Counters).await?;
                json!({
                    "version": env!("CARGO_PKG_VERSION"),
                    "pid": std::process::id(),
                    "uptime_s": state.daemon.uptime_s(),
                    "id": state.id,
                    "listen": state.listen,
                    "carriage": state.carriage,
                    "sessions": snapshot.sessions,
                    "children": snapshot.children,
                    "draining": snapshot.draining,
                    "metrics": state.daemon.metrics(),
                    "configuration": state.daemon.configuration(),
                })
            }
            Show::Counters => {
                let s = self.controller.ask(Command::Counters).await?;
                json!({"recovery": s.recovery, "members": s.members, "drops": s.drops, "sockets": s.sockets})
            }
            Show::Sessions => sessions(&self.controller).await?,
            Show::Children => children(&self.controller).await?,
        };
        Ok(out.document(&document).await?)
    }

    async fn metrics(&self) -> Option<Box<dyn Collector>> {
        let snapshot = self.controller.ask(Command::Counters).await.ok()?;
        let state = Arc::clone(&self.state);
        Some(Box::new(Page { snapshot, state }))
    }
}

async fn sessions(controller: &Controller) -> Result<Value, Failure> {
    let mut rows = Vec::new();
    loop {
        let from = rows.len();
        let page = controller
            .ask(|reply| Command::Sessions(from, reply))
            .await?;
        rows.extend(page.iter().map(|session| {
            json!({
                "source": session.key.source,
                "group": session.key.group,
                "id": session.id,
                "above": session.above,
                "attached": session.attached,
                "children": session.children,
                "receivers": session.receivers,
                "newest": session.newest.map(|seq| seq.0),
                "ordered": session.ordered.map(|seq| seq.0),
                "acknowledged": session.acknowledged.map(|seq| seq.0),
                "far_us": session.far.total_micros(),
            })
        }));
        if page.len() < PAGE {
            return Ok(json!({"sessions": rows}));
        }
    }
}

async fn children(controller: &Controller) -> Result<Value, Failure> {
    let mut rows = Vec::new();
    let (mut session, mut from) = (0, 0);
    while let Some(page) = controller
        .ask(|reply| Command::Children(session, from, reply))
        .await?
    {
        rows.extend(page.children.iter().map(|child| {
            json!({
                "source": page.key.source,
                "group": page.key.group,
                "address": child.address,
                "receivers": child.receivers,
                "acknowledged": child.acknowledged.map(|seq| seq.0),
                "far_us": child.far.total_micros(),
                "stalled": child.stalled,
            })
        }));
        (session, from) = match page.children.len() == PAGE {
            true => (session, from + PAGE),
            false => (session + 1, 0),
        };
    }
    Ok(json!({"children": rows}))
}

/// Renders an answer as text; `None` if it is not the document that `show` names.
#[must_use]
pub fn render(show: Show, answer: &Value) -> Option<String> {
    Some(match show {
        Show::Overview => return overview(answer),
        Show::Sessions => columns(
            answer["sessions"].as_array()?,
            &[
                "source",
                "group",
                "above",
                "attached",
                "children",
                "receivers",
                "newest",
                "ordered",
                "acknowledged",
                "far_us",
            ],
        ),
        Show::Children => columns(
            answer["children"].as_array()?,
            &[
                "source",
                "group",
                "address",
                "receivers",
                "acknowledged",
                "far_us",
                "stalled",
            ],
        ),
        Show::Counters => {
            let parts: BTreeMap<String, BTreeMap<String, u64>> =
                Deserialize::deserialize(answer).ok()?;
            let mut rows = Vec::new();
            for (part, counts) in &parts {
                for (name, count) in counts {
                    if part != "drops" || *count > 0 {
                        rows.push(row([part, name, &count.to_string()]));
                    }
                }
            }
            table(&rows)
        }
    })
}

fn overview(answer: &Value) -> Option<String> {
    let c: Configuration = Deserialize::deserialize(&answer["configuration"]).ok()?;
    let of = |name: &str| cell(&answer[name]);
    let running = format!(
        "{}, process {}, up {} s",
        of("version"),
        of("pid"),
        of("uptime_s")
    );
    let state = format!("{} sessions, {} children", of("sessions"), of("children"));
    let mut rows = vec![row([PROGRAM, &running])];
    rows.extend(c.rows());
    rows.push(row(["identifier", &of("id")]));
    rows.push(row(["listens on", &of("listen")]));
    rows.push(row(["carriage", &of("carriage")]));
    rows.push(row(["state", &state]));
    rows.push(row(["draining", &of("draining")]));
    rows.push(row(["metrics", &of("metrics")]));
    Some(table(&rows))
}
