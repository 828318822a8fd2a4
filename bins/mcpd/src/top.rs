//! The tables of `mcpd top`.

use daemon_kit::status::Document;
use daemon_kit::view::{Column, Kind, Table, View};

/// The tables, and their places in the status documents.
pub(crate) const VIEW: View = View {
    program: crate::status::Show::PROGRAM,
    head: &[
        Column::new("up", "/overview/uptime_s", Kind::Seconds),
        Column::new("listen", "/overview/listen", Kind::State),
        Column::new("running", "/overview/running", Kind::Number),
        Column::new("copied", "/overview/copied", Kind::Number),
        Column::new("failed", "/overview/failed", Kind::Number),
        Column::new("bytes/s", "/counters/data/received_bytes", Kind::Rate),
    ],
    tables: &[
        Table::list(
            "copies",
            &[
                Column::new("peer", "/peer", Kind::Name),
                Column::new("name", "/name", Kind::Name),
                Column::new("bytes", "/bytes", Kind::Number),
                Column::new("received", "/received", Kind::Number),
                Column::new("bytes/s", "/received", Kind::Rate),
                Column::new("held", "/held", Kind::Number),
                Column::new("for", "/seconds", Kind::Seconds),
            ],
        ),
        Table::COUNTERS,
    ],
};
