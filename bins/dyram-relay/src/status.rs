//! The status socket. A query is one line such as `{"show": "sessions"}`; the answer is one JSON object, then the end
//! of the stream.

use std::sync::Arc;

use daemon_kit::daemon::StatusSource;
use daemon_kit::metric::Metric;
use daemon_kit::server::{Failure, Out};
use daemon_kit::status::{Document, Layout, Question};
pub use daemon_kit::status::{query, render};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::control::{Command, Controller, PAGE};
use crate::daemon::RelayState;
use crate::metrics::{self, Snapshot};

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

impl Document for Show {
    const PROGRAM: &'static str = "dyram-relay";

    fn layout(self) -> Layout {
        match self {
            Show::Overview => Layout::Overview(&[
                ("identifier", "id"),
                ("listens on", "listen"),
                ("carriage", "carriage"),
                ("state", "{sessions} sessions, {children} children"),
                ("draining", "draining"),
            ]),
            Show::Sessions => Layout::List(&[
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
            ]),
            Show::Children => Layout::List(&[
                "source",
                "group",
                "address",
                "receivers",
                "acknowledged",
                "far_us",
                "stalled",
            ]),
            Show::Counters => Layout::Counters,
        }
    }
}

/// The parts of the relay that answer queries.
#[derive(Clone, Debug)]
pub(crate) struct StatusHandle {
    pub(crate) controller: Controller,
    pub(crate) state: Arc<RelayState>,
}

impl StatusSource for StatusHandle {
    type Question = Question<Show>;
    const USAGE: &'static str = "ask with one line such as {\"show\": \"overview\"}; known: overview, sessions, children, counters";
    const PREFIX: &'static str = "dyram_relay";
    type Snapshot = Snapshot;
    const METRICS: &'static [Metric<Snapshot>] = metrics::METRICS;

    async fn answer(&self, question: Question<Show>, out: &mut Out) -> Result<(), Failure> {
        let state = &self.state;
        // Collected before the first byte is written: a partial answer could pass for a whole one.
        let document = match question.show {
            Show::Overview => {
                let snapshot = self.controller.ask(Command::Counters).await?;
                let more = json!({
                    "id": state.id,
                    "listen": state.listen,
                    "carriage": state.carriage,
                    "sessions": snapshot.sessions,
                    "children": snapshot.children,
                    "draining": snapshot.draining,
                });
                state.daemon.overview(env!("CARGO_PKG_VERSION"), more)
            }
            Show::Counters => {
                let s = self.controller.ask(Command::Counters).await?;
                json!({"recovery": s.recovery, "feedback": s.feedback, "members": s.members, "drops": s.drops, "sockets": s.sockets})
            }
            Show::Sessions => sessions(&self.controller).await?,
            Show::Children => children(&self.controller).await?,
        };
        Ok(out.document(&document).await?)
    }

    async fn snapshot(&self) -> Option<Snapshot> {
        let counters = self.controller.ask(Command::Counters).await.ok()?;
        let state = Arc::clone(&self.state);
        Some(Snapshot { counters, state })
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
