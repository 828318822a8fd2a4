//! What `dyram-relay status` shows: the question is one line on the status socket, such as
//! `{"show": "sessions"}`, the answer one JSON object, then the end of the stream.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use daemon_kit::client::{self, QueryError};
use daemon_kit::server::{self, Failure, Out};
use daemon_kit::state::Configuration;
use daemon_kit::table::{cell, columns, row, table};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::UnixListener;

use crate::PROGRAM;
use crate::control::{Command, Controller, PAGE};
use crate::daemon::Standing;

/// Which document is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Show {
    /// The program at a glance
    Overview,
    /// Sessions: where data comes from, how far it got
    Sessions,
    /// Children of each session
    Children,
    /// Everything that is counted
    Counters,
}

/// The line that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// What to show.
    pub show: Show,
}

/// Asks the relay at `socket`; waits a few seconds at most between pieces of the answer.
///
/// # Errors
/// There is no answer.
pub fn query(socket: &Path, show: Show) -> Result<Value, QueryError> {
    client::query(socket, PROGRAM, &Question { show })
}

/// Serves until the task is dropped.
pub(crate) async fn serve(listener: UnixListener, controller: Controller, standing: Arc<Standing>) {
    server::serve(listener, move |line, mut out: Out| {
        let (controller, standing) = (controller.clone(), Arc::clone(&standing));
        async move {
            let Ok(question) = serde_json::from_slice::<Question>(&line) else {
                let error = "ask with one line such as {\"show\": \"overview\"}; known: overview, sessions, children, counters";
                return Ok(out.refuse(error).await?);
            };
            // Gathered before anything is written: half an answer would pass for a whole one.
            match answer(question.show, &controller, &standing).await {
                Ok(document) => Ok(out.document(&document).await?),
                Err(Failure::Unavailable(unavailable)) => Ok(out.refuse(unavailable).await?),
                Err(error) => Err(error),
            }
        }
    })
    .await;
}

async fn answer(
    show: Show,
    controller: &Controller,
    standing: &Standing,
) -> Result<Value, Failure> {
    Ok(match show {
        Show::Overview => {
            let snapshot = controller.ask(Command::Counters).await?;
            json!({
                "version": env!("CARGO_PKG_VERSION"),
                "pid": std::process::id(),
                "uptime_s": standing.of_daemon.uptime_s(),
                "id": standing.id,
                "listen": standing.listen,
                "carriage": standing.carriage,
                "sessions": snapshot.sessions,
                "children": snapshot.children,
                "draining": snapshot.draining,
                "metrics": standing.metrics,
                "configuration": standing.of_daemon.configuration(),
            })
        }
        Show::Counters => {
            let s = controller.ask(Command::Counters).await?;
            json!({"recovery": s.recovery, "members": s.members, "drops": s.drops, "sockets": s.sockets})
        }
        Show::Sessions => sessions(controller).await?,
        Show::Children => children(controller).await?,
    })
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

/// The text of an answer; `None` when it is not the document that `show` asks for.
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
    let reloads = format!("{} accepted, {} rejected", c.reloads, c.rejected);
    let state = format!("{} sessions, {} children", of("sessions"), of("children"));
    let mut rows = vec![
        row([PROGRAM, &running]),
        row(["configuration", &c.file]),
        row(["reloads", &reloads]),
    ];
    for (i, line) in c
        .last_error
        .iter()
        .flat_map(|error| error.lines())
        .enumerate()
    {
        let title = if i == 0 { "last reload rejected" } else { "" };
        rows.push(row([title, line]));
    }
    if !c.needs_restart.is_empty() {
        rows.push(row(["waits for a restart", &c.needs_restart.join(", ")]));
    }
    rows.push(row(["identifier", &of("id")]));
    rows.push(row(["listens on", &of("listen")]));
    rows.push(row(["carriage", &of("carriage")]));
    rows.push(row(["state", &state]));
    rows.push(row(["draining", &of("draining")]));
    rows.push(row(["metrics", &of("metrics")]));
    Some(table(&rows))
}
