//! The tables of `lms-router top`.

use daemon_kit::status::Document;
use daemon_kit::view::{Column, Kind, Table, View};

/// The tables, and their places in the status documents.
pub(crate) const VIEW: View = View {
    program: crate::status::Show::PROGRAM,
    head: &[
        Column::new("up", "/overview/uptime_s", Kind::Seconds),
        Column::new("source", "/overview/source", Kind::State),
        Column::new("policy", "/overview/policy", Kind::State),
        Column::new("groups", "/overview/groups", Kind::Number),
        Column::new("packets/s", "/counters/packets", Kind::Rate),
        Column::new("drops/s", "/counters/drops", Kind::Rate),
    ],
    tables: &[
        Table::list(
            "groups",
            &[
                Column::new("source", "/source", Kind::Name),
                Column::new("group", "/group", Kind::Name),
                Column::new("up", "/upstream", Kind::State),
                Column::new("down", "/downstream", Kind::State),
                Column::new("replier on", "/replier/interface", Kind::State),
                Column::new("replier", "/replier/neighbour", Kind::State),
                Column::new("cost", "/replier/cost", Kind::Number),
            ],
        ),
        Table::list(
            "interfaces",
            &[
                Column::new("name", "/name", Kind::Name),
                Column::new("address", "/address", Kind::State),
                Column::new("in/s", "/received", Kind::Rate),
                Column::new("requests/s", "/requests_sent", Kind::Rate),
                Column::new("dmcasts/s", "/dmcasts_sent", Kind::Rate),
                Column::new("drops/s", "/dropped", Kind::Rate),
                Column::new("drops", "/dropped", Kind::Number),
            ],
        ),
        Table::COUNTERS,
    ],
};
