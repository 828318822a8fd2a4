//! The columns of `dyram-relay top`.

use daemon_kit::status::Document;
use daemon_kit::view::{Column, Kind, Table, View};

/// The columns, and their places in the status documents.
pub(crate) const VIEW: View = View {
    program: crate::status::Show::PROGRAM,
    head: &[
        Column::new("up", "/overview/uptime_s", Kind::Seconds),
        Column::new("id", "/overview/id", Kind::State),
        Column::new("sessions", "/overview/sessions", Kind::Number),
        Column::new("children", "/overview/children", Kind::Number),
        Column::new("draining", "/overview/draining", Kind::State),
        Column::new("data/s", "/counters/recovery/data", Kind::Rate),
        Column::new("gaps/s", "/counters/recovery/gaps", Kind::Rate),
        Column::new("drops/s", "/counters/drops", Kind::Rate),
    ],
    tables: &[
        Table::list(
            "sessions",
            &[
                Column::new("source", "/source", Kind::Name),
                Column::new("group", "/group", Kind::Name),
                Column::new("above", "/above", Kind::State),
                Column::new("children", "/children", Kind::Number),
                Column::new("receivers", "/receivers", Kind::Number),
                Column::new("packets/s", "/newest", Kind::Rate),
                Column::new("in order/s", "/ordered", Kind::Rate),
                Column::new("acked/s", "/acknowledged", Kind::Rate),
            ],
        ),
        Table::list(
            "children",
            &[
                Column::new("source", "/source", Kind::Name),
                Column::new("group", "/group", Kind::Name),
                Column::new("address", "/address", Kind::Name),
                Column::new("receivers", "/receivers", Kind::Number),
                Column::new("acked/s", "/acknowledged", Kind::Rate),
                Column::new("stalled", "/stalled", Kind::State),
            ],
        ),
        Table::COUNTERS,
    ],
};
