//! What `lms-router status` shows, as documents: one JSON object for each question.
//!
//! The question is one line on the status socket, `{"show": "groups"}`; the answer is one JSON
//! object, then the end of the stream. An answer that ends early is no JSON: nobody takes half
//! of it for the whole.
//!
//! | `show` | answer |
//! | --- | --- |
//! | `overview` | [`Overview`] |
//! | `groups` | [`Groups`] |
//! | `interfaces` | [`Interfaces`] |
//! | `counters` | [`Counters`] |
//! | anything else | [`Refusal`] |
//!
//! Fields may be added; those that are here keep their names and meanings.

mod server;
mod text;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::PROGRAM;

pub use daemon_kit::client::QueryError;
pub use daemon_kit::server::Refusal;
pub use daemon_kit::state::Configuration;
pub(crate) use server::StatusHandle;
pub use text::render;

/// Which document is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Show {
    /// [`Overview`].
    Overview,
    /// [`Groups`].
    Groups,
    /// [`Interfaces`].
    Interfaces,
    /// [`Counters`].
    Counters,
}

/// The line that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// What to show.
    pub show: Show,
}

/// Asks the router at `socket`; waits a few seconds at most between pieces of the answer.
///
/// # Errors
/// [`QueryError`]: no router answers at `socket`, or its answer is a refusal or cannot be read.
pub fn query(socket: &Path, show: Show) -> Result<Value, QueryError> {
    daemon_kit::client::query(socket, PROGRAM, &Question { show })
}

/// The program at a glance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overview {
    /// Version of the program.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// `kernel`, `static` or `igmp-proxy`.
    pub source: String,
    /// `hierarchy`, `random`, `static` or `search-party`.
    pub policy: String,
    /// What runs, and what became of reloads.
    pub configuration: Configuration,
    /// Multicast routes known.
    pub groups: u64,
    /// (group, downstream neighbour) pairs with a cost.
    pub neighbours: u64,
    /// Interfaces in use.
    pub interfaces: u64,
    /// Whether the kernel is kept from seeing requests.
    pub guard: bool,
    /// Where metrics are served.
    pub metrics: Option<String>,
    /// Capabilities the process still has.
    pub capabilities: Vec<String>,
}

/// All multicast routes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Groups {
    /// In the order of the table.
    pub groups: Vec<Group>,
}

/// One multicast route and its replier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The source, `*` for any.
    pub source: String,
    /// The group.
    pub group: String,
    /// The interface that leads to the source.
    pub upstream: Option<String>,
    /// The interfaces that lead to members.
    pub downstream: Vec<String>,
    /// The replier.
    pub replier: Option<Replier>,
}

/// The replier of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replier {
    /// The interface it is on.
    pub interface: String,
    /// Its address; none for a whole link.
    pub neighbour: Option<String>,
    /// Its cost, where the policy knows costs.
    pub cost: Option<u16>,
}

/// All interfaces in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interfaces {
    /// In the order of their numbers.
    pub interfaces: Vec<Interface>,
}

/// One interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// The router's own number of it.
    pub number: u16,
    /// The kernel's number of it.
    pub index: u32,
    /// This router's address there.
    pub address: Option<String>,
    /// Bits of the subnet's prefix.
    pub prefix_len: u8,
    /// Longest packet, bytes.
    pub mtu: u32,
    /// What passed.
    #[serde(flatten)]
    pub counters: InterfaceCounters,
}

/// Packets of one interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceCounters {
    /// LMS packets that arrived (IGMP and LMS-HIER messages too).
    pub received: u64,
    /// Requests sent.
    pub requests_sent: u64,
    /// Dmcasts multicast.
    pub dmcasts_sent: u64,
    /// LMS-HIER and IGMP messages sent.
    pub control_sent: u64,
    /// Packets that arrived here and were dropped.
    pub dropped: u64,
    /// Packets not sent because they are longer than the MTU.
    pub too_long: u64,
}

/// Counters since the start. Each map goes from a name, as the metrics have it, to a count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Packets by verdict.
    pub packets: BTreeMap<String, u64>,
    /// Packets dropped, by reason.
    pub drops: BTreeMap<String, u64>,
    /// The replier hierarchy.
    pub hierarchy: BTreeMap<String, u64>,
    /// Multicast routes: changes seen and refused.
    pub routes: BTreeMap<String, u64>,
    /// Packet ring and sender.
    pub queues: BTreeMap<String, u64>,
    /// The IGMP proxy; empty with other sources.
    pub igmp: BTreeMap<String, u64>,
}
