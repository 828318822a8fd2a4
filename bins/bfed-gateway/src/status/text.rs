//! Status documents as text.

use std::collections::BTreeMap;

use daemon_kit::state::Configuration;
use daemon_kit::table::{cell, columns, row, table};
use serde::Deserialize;
use serde_json::Value;

use super::Show;
use crate::PROGRAM;

/// Returns the text of an answer; `None` if it is not the document that `show` asks for.
#[must_use]
pub fn render(show: Show, answer: &Value) -> Option<String> {
    let rows = |key: &str| answer[key].as_array();
    Some(match show {
        Show::Overview => return overview(answer),
        Show::Routes => columns(
            rows("routes")?,
            &[
                "table",
                "destination",
                "best",
                "cost",
                "peer",
                "path",
                "tags",
            ],
        ),
        Show::Peers => columns(
            rows("peers")?,
            &[
                "gateway", "address", "state", "stale", "routes", "sessions", "queued", "last_end",
            ],
        ),
        Show::Sessions => columns(
            rows("sessions")?,
            &[
                "session",
                "attached",
                "upstream",
                "downstream",
                "clients",
                "node",
                "rate_bps",
                "packets",
                "copies",
                "dropped",
                "path",
            ],
        ),
        Show::Nodes => columns(
            rows("nodes")?,
            &[
                "node",
                "sessions",
                "rate_bps",
                "connected",
                "edges",
                "streams",
                "packets",
                "copies",
            ],
        ),
        Show::Counters => {
            let parts: BTreeMap<String, BTreeMap<String, u64>> =
                Deserialize::deserialize(answer).ok()?;
            let mut lines = Vec::new();
            for (part, counts) in &parts {
                for (name, count) in counts {
                    if !part.ends_with("drops") || *count > 0 {
                        lines.push(row([part, name, &count.to_string()]));
                    }
                }
            }
            table(&lines)
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
    let mut rows = vec![
        row([PROGRAM, &running]),
        row(["gateway", &of("gateway")]),
        row(["mode", &of("mode")]),
    ];
    rows.extend(c.rows());
    if answer["peers"].is_number() {
        let peers = format!("{} of {} established", of("established"), of("peers"));
        rows.push(row(["active", &of("active")]));
        if answer["store_answers"].is_boolean() {
            rows.push(row(["etcd answers", &of("store_answers")]));
        }
        rows.push(row(["peers", &peers]));
        rows.push(row(["sessions", &of("sessions")]));
        rows.push(row(["data nodes", &of("nodes")]));
    }
    rows.push(row(["native network", &of("network")]));
    for (title, name) in [
        ("peer connections", "listen"),
        ("data node connections", "cluster"),
        ("data", "data"),
        ("metrics", "metrics"),
        ("status page", "page"),
    ] {
        rows.push(row([title, &of(name)]));
    }
    Some(table(&rows))
}
