//! The documents for people: aligned columns, one thing a line.

use daemon_kit::table::{row, table};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Counters, Groups, Interfaces, Overview, Show};

/// The text of an answer; `None` when the answer is not the document that `show` asks for.
pub fn render(show: Show, answer: &Value) -> Option<String> {
    Some(match show {
        Show::Overview => overview(&read(answer)?),
        Show::Groups => groups(&read(answer)?),
        Show::Interfaces => interfaces(&read(answer)?),
        Show::Counters => counters(&read(answer)?),
    })
}

fn read<T: DeserializeOwned>(answer: &Value) -> Option<T> {
    T::deserialize(answer).ok()
}

fn overview(o: &Overview) -> String {
    let c = &o.configuration;
    let or_none = |list: &[String]| {
        if list.is_empty() {
            "none".into()
        } else {
            list.join(", ")
        }
    };
    let mut rows = vec![
        row([
            "lms-router",
            &format!("{}, process {}, up {} s", o.version, o.pid, o.uptime_s),
        ]),
        row(["configuration", &c.file]),
        row([
            "reloads",
            &format!("{} accepted, {} rejected", c.reloads, c.rejected),
        ]),
    ];
    if let Some(error) = &c.last_error {
        for (i, line) in error.lines().enumerate() {
            rows.push(row([
                if i == 0 { "last reload rejected" } else { "" },
                line,
            ]));
        }
    }
    if !c.needs_restart.is_empty() {
        rows.push(row(["waits for a restart", &c.needs_restart.join(", ")]));
    }
    rows.push(row(["route source", &o.source]));
    rows.push(row(["replier policy", &o.policy]));
    rows.push(row([
        "state",
        &format!(
            "{} groups, {} neighbours, {} interfaces",
            o.groups, o.neighbours, o.interfaces
        ),
    ]));
    rows.push(row(["kernel guard", if o.guard { "on" } else { "off" }]));
    rows.push(row(["metrics", o.metrics.as_deref().unwrap_or("off")]));
    rows.push(row(["capabilities", &or_none(&o.capabilities)]));
    table(&rows)
}

fn groups(g: &Groups) -> String {
    let mut rows = vec![row([
        "SOURCE",
        "GROUP",
        "UPSTREAM",
        "DOWNSTREAM",
        "REPLIER",
        "ON",
        "COST",
    ])];
    for group in &g.groups {
        let downstream = match group.downstream.is_empty() {
            true => "-".to_owned(),
            false => group.downstream.join(","),
        };
        let (replier, on, cost) = match &group.replier {
            None => ("-".to_owned(), "-", "-".to_owned()),
            Some(replier) => (
                replier
                    .neighbour
                    .clone()
                    .unwrap_or_else(|| "everybody".to_owned()),
                replier.interface.as_str(),
                replier
                    .cost
                    .map_or_else(|| "-".to_owned(), |cost| cost.to_string()),
            ),
        };
        let upstream = group.upstream.as_deref().unwrap_or("-");
        rows.push(row([
            &group.source,
            &group.group,
            upstream,
            &downstream,
            &replier,
            on,
            &cost,
        ]));
    }
    table(&rows)
}

fn interfaces(i: &Interfaces) -> String {
    let mut rows = vec![row([
        "NAME", "NUMBER", "INDEX", "ADDRESS", "MTU", "RECEIVED", "REQUESTS", "DMCASTS", "CONTROL",
        "DROPPED", "TOO-LONG",
    ])];
    for interface in &i.interfaces {
        let address = interface.address.as_ref().map_or_else(
            || "-".to_owned(),
            |address| format!("{address}/{}", interface.prefix_len),
        );
        let c = &interface.counters;
        let numbers = [
            u64::from(interface.mtu),
            c.received,
            c.requests_sent,
            c.dmcasts_sent,
            c.control_sent,
            c.dropped,
            c.too_long,
        ];
        let mut cells = vec![
            interface.name.clone(),
            interface.number.to_string(),
            interface.index.to_string(),
            address,
        ];
        cells.extend(numbers.map(|n| n.to_string()));
        rows.push(cells);
    }
    table(&rows)
}

fn counters(c: &Counters) -> String {
    let mut rows = Vec::new();
    let parts = [
        ("packets", &c.packets),
        ("drops", &c.drops),
        ("hierarchy", &c.hierarchy),
        ("routes", &c.routes),
        ("queues", &c.queues),
        ("igmp", &c.igmp),
    ];
    for (part, counts) in parts {
        for (name, count) in counts
            .iter()
            .filter(|(_, count)| part != "drops" || **count > 0)
        {
            rows.push(row([part, name, &count.to_string()]));
        }
    }
    table(&rows)
}
