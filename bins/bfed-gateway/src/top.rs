//! The tables of `bfed-gateway top`.

use daemon_kit::status::Document;
use daemon_kit::view::{Column, Kind, Table, View};

/// Paths in the status documents.
pub(crate) const VIEW: View = View {
    program: crate::status::Show::PROGRAM,
    head: &[
        Column::new("up", "/overview/uptime_s", Kind::Seconds),
        Column::new("gateway", "/overview/gateway", Kind::State),
        Column::new("mode", "/overview/mode", Kind::State),
        Column::new("active", "/overview/active", Kind::State),
        Column::new("peers up", "/overview/established", Kind::Number),
        Column::new("of", "/overview/peers", Kind::Number),
        Column::new("viewers", "/overview/viewers", Kind::Number),
        Column::new("packets/s", "/counters/plane/packets", Kind::Rate),
        Column::new("copies/s", "/counters/plane/copies", Kind::Rate),
        Column::new("drops/s", "/counters/drops", Kind::Rate),
    ],
    tables: &[
        Table::list(
            "sessions",
            &[
                Column::new("session", "/session", Kind::Name),
                Column::new("from", "/upstream", Kind::State),
                Column::new("to", "/downstream", Kind::State),
                Column::new("clients", "/clients", Kind::Number),
                Column::new("viewers", "/viewers", Kind::Number),
                Column::new("node", "/node", Kind::Number),
                Column::new("bit/s", "/rate_bps", Kind::Bits),
                Column::new("copies/s", "/copies", Kind::Rate),
                Column::new("drops/s", "/dropped", Kind::Rate),
            ],
        ),
        Table::list(
            "peers",
            &[
                Column::new("gateway", "/gateway", Kind::Name),
                Column::new("address", "/address", Kind::Name),
                Column::new("state", "/state", Kind::State),
                Column::new("routes", "/routes", Kind::Number),
                Column::new("sessions", "/sessions", Kind::Number),
                Column::new("queued", "/queued", Kind::Number),
                Column::new("last end", "/last_end", Kind::State),
            ],
        ),
        Table::list(
            "routes",
            &[
                Column::new("table", "/table", Kind::Name),
                Column::new("destination", "/destination", Kind::Name),
                Column::new("peer", "/peer", Kind::Name),
                Column::new("best", "/best", Kind::State),
                Column::new("cost", "/cost", Kind::Number),
                Column::new("path", "/path", Kind::State),
            ],
        ),
        Table::list(
            "nodes",
            &[
                Column::new("node", "/node", Kind::Name),
                Column::new("connected", "/connected", Kind::State),
                Column::new("sessions", "/sessions", Kind::Number),
                Column::new("edges", "/edges", Kind::Number),
                Column::new("bit/s", "/rate_bps", Kind::Bits),
                Column::new("packets/s", "/packets", Kind::Rate),
                Column::new("copies/s", "/copies", Kind::Rate),
            ],
        ),
        Table::list(
            "links",
            &[
                Column::new("node", "/node", Kind::Name),
                Column::new("gateway", "/gateway", Kind::Name),
                Column::new("edges", "/edges", Kind::Number),
                Column::new("frames/s", "/frames", Kind::Rate),
                Column::new("age p50 ms", "/age_p50_ms", Kind::Number),
                Column::new("age p95 ms", "/age_p95_ms", Kind::Number),
                Column::new("lost/s", "/lost", Kind::Rate),
                Column::new("repaired/s", "/repaired", Kind::Rate),
                Column::new("late/s", "/late", Kind::Rate),
            ],
        ),
        Table::list(
            "viewers",
            &[
                Column::new("network", "/network", Kind::Name),
                Column::new("kind", "/kind", Kind::Name),
                Column::new("viewers", "/viewers", Kind::Number),
            ],
        ),
        Table::COUNTERS,
    ],
};
