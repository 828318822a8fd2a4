//! The status documents. Fields may be added; existing ones keep their names and meanings.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use daemon_kit::daemon::StatusSource;
use daemon_kit::metric::Metric;
use daemon_kit::server::{Failure, Out};
use daemon_kit::status::{Document, Layout, Question};
pub use daemon_kit::status::{query, render};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::control::{Command, Controller};
use crate::daemon::RouterState;
use crate::metrics::{self, Snapshot};

/// The document to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Show {
    /// Program, configuration and totals
    Overview,
    /// Multicast routes and their repliers
    Groups,
    /// Interfaces with their numbers and packet counts
    Interfaces,
    /// All counters
    Counters,
}

impl Document for Show {
    const PROGRAM: &'static str = "lms-router";

    fn layout(self) -> Layout {
        match self {
            Show::Overview => Layout::Overview(&[
                ("route source", "source"),
                ("replier policy", "policy"),
                (
                    "state",
                    "{groups} groups, {neighbours} neighbours, {interfaces} interfaces",
                ),
                ("kernel guard", "guard"),
                ("groups in XDP", "xdp_groups"),
                ("capabilities", "capabilities"),
            ]),
            Show::Groups => Layout::List(&[
                "source",
                "group",
                "upstream",
                "downstream",
                "replier=replier/neighbour",
                "on=replier/interface",
                "cost=replier/cost",
            ]),
            Show::Interfaces => Layout::List(&[
                "name",
                "number",
                "index",
                "address={address}/{prefix_len}",
                "ipv6",
                "mtu",
                "xdp",
                "received",
                "requests_sent",
                "dmcasts_sent",
                "control_sent",
                "dropped",
                "too_long",
            ]),
            Show::Counters => Layout::Counters,
        }
    }
}

/// One multicast route and its replier.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Group {
    /// The source; `*` stands for any.
    pub(crate) source: String,
    /// The group.
    pub(crate) group: String,
    /// The interface that leads to the source.
    pub(crate) upstream: Option<String>,
    /// The interfaces that lead to members.
    pub(crate) downstream: Vec<String>,
    /// The replier.
    pub(crate) replier: Option<Replier>,
}

/// The replier of a group.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Replier {
    /// The interface that leads to it.
    pub(crate) interface: String,
    /// Its address; `None`: every host of the link.
    pub(crate) neighbour: Option<String>,
    /// Its cost, if the policy uses costs.
    pub(crate) cost: Option<u16>,
}

/// One interface.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Interface {
    /// Its name.
    pub(crate) name: String,
    /// The number that the router assigns to it.
    pub(crate) number: u16,
    /// The number that the kernel assigns to it.
    pub(crate) index: u32,
    /// This router's address there.
    pub(crate) address: Option<String>,
    /// Length of the subnet's prefix, bits.
    pub(crate) prefix_len: u8,
    /// Its IPv6 address there that reaches further than the link, with the prefix.
    pub(crate) ipv6: Option<String>,
    /// Its link-local IPv6 address there.
    pub(crate) link_local: Option<String>,
    /// Longest packet, in bytes.
    pub(crate) mtu: u32,
    /// With `capture.backend = "xdp"`: `native`, `generic`, or `ring` where the kernel refused the program.
    #[serde(rename = "xdp", skip_serializing_if = "Option::is_none")]
    pub(crate) fast_path: Option<&'static str>,
    /// Its packets.
    #[serde(flatten)]
    pub(crate) counters: InterfaceCounters,
}

/// Packets of one interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct InterfaceCounters {
    /// LMS packets that arrived (IGMP and LMS-HIER messages too).
    pub(crate) received: u64,
    /// Requests sent.
    pub(crate) requests_sent: u64,
    /// Dmcasts multicast.
    pub(crate) dmcasts_sent: u64,
    /// LMS-HIER and IGMP messages sent.
    pub(crate) control_sent: u64,
    /// Packets that arrived here and were dropped.
    pub(crate) dropped: u64,
    /// Packets not sent because they are longer than the MTU.
    pub(crate) too_long: u64,
}

/// Counters since the start. Names are the labels of the metrics.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Counters {
    /// Packets by verdict.
    pub(crate) packets: BTreeMap<String, u64>,
    /// Packets dropped, by reason.
    pub(crate) drops: BTreeMap<String, u64>,
    /// The replier hierarchy.
    pub(crate) hierarchy: BTreeMap<String, u64>,
    /// Multicast routes: changes applied and refused.
    pub(crate) routes: BTreeMap<String, u64>,
    /// The packet ring and the sender.
    pub(crate) queues: BTreeMap<String, u64>,
    /// The IGMP proxy; empty with other sources.
    pub(crate) igmp: BTreeMap<String, u64>,
}

/// The parts of the router that answer questions.
#[derive(Clone, Debug)]
pub(crate) struct StatusHandle {
    pub(crate) controller: Controller,
    pub(crate) state: Arc<RouterState>,
}

impl StatusSource for StatusHandle {
    type Question = Question<Show>;
    const USAGE: &'static str = "ask with one line such as {\"show\": \"overview\"}; known: overview, groups, interfaces, counters";
    const PREFIX: &'static str = "lms_router";
    type Snapshot = Snapshot;
    const METRICS: &'static [Metric<Snapshot>] = metrics::METRICS;

    async fn answer(&self, question: Question<Show>, out: &mut Out) -> Result<(), Failure> {
        match question.show {
            Show::Overview => {
                let summary = self.controller.ask(Command::Summary).await?;
                out.document(&self.state.overview(&summary)).await?;
            }
            Show::Interfaces => {
                let interfaces = self.controller.ask(Command::Interfaces).await?;
                out.document(&json!({"interfaces": interfaces})).await?;
            }
            Show::Counters => {
                let readings = self.controller.ask(Command::Counters).await?;
                out.document(&readings.counters).await?;
            }
            Show::Groups => self.groups(out).await?,
        }
        Ok(())
    }

    async fn snapshot(&self) -> Option<Snapshot> {
        let readings = self.controller.ask(Command::Counters).await.ok()?;
        let state = Arc::clone(&self.state);
        Some(Snapshot { readings, state })
    }
}

impl StatusHandle {
    /// Writes the groups a page at a time: a large table neither delays the data path nor fills memory.
    async fn groups(&self, out: &mut Out) -> Result<(), Failure> {
        let mut from = Some(0);
        let mut text = b"{\"groups\":[".to_vec();
        let mut first = true;
        while let Some(start) = from {
            let page = self
                .controller
                .ask(|reply| Command::Groups { from: start, reply })
                .await;
            let page = match page {
                Ok(page) => page,
                Err(unavailable) if first => return Err(unavailable.into()),
                // The answer is incomplete, which the client notices: it is not valid JSON.
                Err(_) => return Ok(()),
            };
            for group in &page.groups {
                if !first {
                    text.push(b',');
                }
                first = false;
                serde_json::to_writer(&mut text, group).map_err(io::Error::other)?;
            }
            out.write(&text).await?;
            text.clear();
            from = page.next;
        }
        out.write(b"]}\n").await?;
        Ok(())
    }
}
