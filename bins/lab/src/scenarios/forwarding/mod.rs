//! `lms-forwarding-cost`: Table 6.1 and Figure 6.16 again.

mod saturate;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use anyhow::{Context as _, Result};
use linux_net::packet::group_link_address;

use self::saturate::{Cost, Stream, saturate, steer};
use crate::mroute::{Wanted, own};
use crate::net::{LinkId, Network, NodeId, Plan, Shape};
use crate::packets;
use crate::report::{Cell, Report, Table};
use crate::scenario::{Context, Need, Opt, Scenario};

/// The scenario.
pub(crate) struct ForwardingCost;

const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 6, 1, 6), 6_016);

impl Scenario for ForwardingCost {
    fn name(&self) -> &'static str {
        "lms-forwarding-cost"
    }

    fn about(&self) -> &'static str {
        "What a packet costs a router: kernel multicast to 1, 2, 4, 8 receivers, LMS requests, dmcasts"
    }

    fn figure(&self) -> &'static str {
        "LMS Table 6.1 and Figure 6.16"
    }

    fn needs(&self) -> &'static [Need] {
        &[Need::Namespaces, Need::Root]
    }

    fn options(&self) -> &'static [Opt] {
        &[
            Opt {
                name: "seconds",
                help: "time for each measurement (quick: 0.3)",
                default: "2",
            },
            Opt {
                name: "payload",
                help: "bytes of UDP payload of data and dmcasts",
                default: "1024",
            },
        ]
    }

    fn run(&self, context: &Context) -> Result<Report> {
        let seconds: f64 = context.sized("seconds", 0.3)?;
        let payload: usize = context.option("payload")?;
        let time = Duration::from_secs_f64(seconds);
        let mut report = Report::new(self.name(), "time per packet on one core");
        let mut table = Table::new(
            "",
            &["what", "receivers", "ns", "packets/s", "lost", "idle %"],
        );
        let mut row = |name: &str, receivers: usize, cost: Cost| {
            table.row([
                name.into(),
                receivers.into(),
                Cell::number(cost.ns_per_packet, 0),
                Cell::number(1e9 / cost.ns_per_packet, 0),
                cost.lost.into(),
                Cell::number(cost.idle * 100.0, 1),
            ]);
        };
        for receivers in [1, 2, 4, 8] {
            context.note(format!("kernel multicast to {receivers}"));
            let bench = Bench::build(receivers)?;
            if receivers == 1 {
                row("far end's drop alone", 1, bench.drop_alone(payload, time)?);
            }
            row("kernel multicast", receivers, bench.kernel(payload, time)?);
        }
        report.tables.push(table);
        Ok(report)
    }
}

/// A source, a router and receivers, each on a link of its own (LMS Figure 6.15, with more receivers).
struct Bench {
    network: Network,
    source: NodeId,
    router: NodeId,
    receivers: Vec<NodeId>,
    downs: Vec<LinkId>,
}

impl Bench {
    fn build(receivers: usize) -> Result<Bench> {
        let mut plan = Plan::default();
        let (source, router) = (plan.host("source"), plan.router("router"));
        let up = plan.link(source, router, Shape::default());
        let mut downs = Vec::new();
        let receivers: Vec<NodeId> = (1..=receivers)
            .map(|number| {
                let node = plan.host(&format!("h{number}"));
                downs.push(plan.link(router, node, Shape::default()));
                node
            })
            .collect();
        let network = Network::build(plan, 0)?;
        for link in downs.iter().chain([&up]) {
            let name = network
                .plan()
                .interface_on(router, *link)
                .context("interface")?;
            steer(&network, router, &name)?;
        }
        Ok(Bench {
            network,
            source,
            router,
            receivers,
            downs,
        })
    }

    fn index(&self, node: NodeId, link: LinkId) -> Result<u32> {
        let name = self
            .network
            .plan()
            .interface_on(node, link)
            .context("no such interface")?;
        self.network
            .within(node, || Ok(linux_net::link::find(&name)?.index))
    }

    fn data(&self, payload: usize) -> Result<Vec<u8>> {
        let source = SocketAddrV4::new(self.network.plan().address(self.source), 6_016);
        packets::data(source, GROUP, &vec![0x4c; payload])
    }

    /// The kernel forwards multicast data to all receivers.
    fn kernel(&self, payload: usize, time: Duration) -> Result<Cost> {
        let plan = self.network.plan();
        let source = plan.address(self.source);
        let tree = plan.tree(self.source, &self.receivers);
        let branch = tree.first().context("no tree")?;
        let owner = own(
            &self.network,
            branch,
            &[Wanted::of(plan, branch, source, *GROUP.ip())?],
        )?;
        let stream = Stream {
            from: (self.source, "eth0"),
            to: group_link_address(*GROUP.ip()),
            packet: &self.data(payload)?,
            out: (self.router, self.index(self.router, self.downs[0])?),
            window: 512 / (1 + self.receivers.len() as u64),
            arrivals: false,
        };
        let cost = saturate(&self.network, &stream, time)?;
        drop(owner);
        Ok(cost)
    }

    /// Packets that arrive at a host and are dropped there, as those are that the router forwards.
    fn drop_alone(&self, payload: usize, time: Duration) -> Result<Cost> {
        let host = self.receivers[0];
        steer(&self.network, host, "eth0")?;
        let mut packet = self.data(payload)?;
        // From the router's side, on the link to the receiver.
        packet[8] -= 1;
        let stream = Stream {
            from: (self.router, "eth1"),
            to: group_link_address(*GROUP.ip()),
            packet: &packet,
            out: (host, self.index(host, self.downs[0])?),
            window: 256,
            arrivals: true,
        };
        saturate(&self.network, &stream, time)
    }
}
