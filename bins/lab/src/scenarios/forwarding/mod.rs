//! `lms-forwarding-cost`: Table 6.1 and Figure 6.16 again.

mod results;
mod saturate;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use linux_net::packet::group_link_address;
use lms_proto::Iface;
use lms_router::status::Show;

use self::results::{Kind, Results};
use self::saturate::{Cost, Stream, WORKER, saturate, steer};
use crate::mroute::{Wanted, own};
use crate::net::{LinkId, Network, NodeId, Plan, Shape};
use crate::packets;
use crate::report::Report;
use crate::scenario::{Context, Need, Opt, Scenario};
use crate::session::{Replies, Router};

/// The scenario.
pub(crate) struct ForwardingCost;

/// A request of LTP: an 8-byte header, and the three numbers of Figure 6.7.
const REQUEST_PAYLOAD: usize = 20;
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
                help: "time for each measurement (quick: 0.5)",
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
        let seconds: f64 = context.sized("seconds", 0.5)?;
        let time = Duration::from_secs_f64(seconds);
        let large: usize = context.option("payload")?;
        let mut results = Results::default();
        for receivers in [1, 2, 4, 8] {
            let bench = Bench::build(receivers)?;
            if receivers == 1 {
                context.note("a host that drops what it gets");
                results.add(Kind::Drop, 1, large, bench.drop_alone(large, time)?);
            }
            for payload in [REQUEST_PAYLOAD, large] {
                context.note(format!("kernel multicast to {receivers}, {payload} bytes"));
                results.add(
                    Kind::Kernel,
                    receivers,
                    payload,
                    bench.kernel(payload, time)?,
                );
            }
            if receivers > 1 {
                context.note(format!("requests and dmcasts, {receivers} interfaces"));
                let (requests, dmcasts) = bench.lms(large, time)?;
                results.add(Kind::Request, receivers, REQUEST_PAYLOAD, requests);
                results.add(Kind::Dmcast, receivers, large, dmcasts);
            }
        }
        Ok(results.report(self.name(), large))
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

    /// H2 requests, H1 repairs, `lms-router` forwards beside the kernel's routes.
    fn lms(&self, payload: usize, time: Duration) -> Result<(Cost, Cost)> {
        let plan = self.network.plan();
        let (source, h1) = (self.source, self.receivers[0]);
        let branch = plan
            .tree(source, &self.receivers)
            .pop()
            .context("no tree")?;
        let routes = [Wanted::of(
            plan,
            &branch,
            plan.address(source),
            *GROUP.ip(),
        )?];
        let owner = own(&self.network, &branch, &routes)?;
        let section = format!(
            "policy = \"static\"\n[[replier.static]]\nsource = \"{}\"\ngroup = \"{}\"\n\
             interface = \"eth1\"\nneighbour = \"{}\"\n",
            plan.address(source),
            GROUP.ip(),
            plan.address(h1)
        );
        let replies = Replies { section };
        let mut router = Router::start(&self.network, self.router, &replies, &[WORKER])?;
        router.wait(Duration::from_secs(5))?;
        let requests = self.requests(&router, time)?;
        let dmcasts = self.dmcasts(&router, payload, time)?;
        router.process().stop(Duration::from_secs(5))?;
        drop(owner);
        Ok((requests, dmcasts))
    }

    fn requests(&self, router: &Router, time: Duration) -> Result<Cost> {
        let (plan, h2) = (self.network.plan(), self.receivers[1]);
        let host = SocketAddrV4::new(plan.address(h2), GROUP.port());
        let payload = [0x4c; REQUEST_PAYLOAD];
        let packet = packets::request(host, plan.address(self.source), GROUP, &payload)?;
        let stream = Stream {
            from: (h2, "eth0"),
            to: group_link_address(*GROUP.ip()),
            packet: &packet,
            out: (self.router, self.index(self.router, self.downs[0])?),
            window: 384,
            arrivals: false,
        };
        let before = router.count("packets", "request_turned")?;
        let cost = saturate(&self.network, &stream, time)?;
        let turned = router.count("packets", "request_turned")? - before;
        ensure!(
            turned >= cost.packets,
            "of {} packets {turned} were requests",
            cost.packets
        );
        Ok(cost)
    }

    fn dmcasts(&self, router: &Router, payload: usize, time: Duration) -> Result<Cost> {
        let (plan, h1) = (self.network.plan(), self.receivers[0]);
        let interfaces = router.status(Show::Interfaces)?;
        let number = interfaces["interfaces"]
            .as_array()
            .and_then(|all| all.iter().find(|interface| interface["name"] == "eth2"))
            .and_then(|interface| u16::try_from(interface["number"].as_u64()?).ok())
            .context("the router does not number eth2")?;
        let toward = plan
            .address_on(self.router, self.downs[1])
            .context("no address")?;
        let packet = packets::dmcast(
            plan.address(h1),
            toward,
            Iface(number),
            &self.data(payload)?,
        )?;
        let near = self
            .network
            .within(self.router, || Ok(linux_net::link::find("eth1")?))?;
        let stream = Stream {
            from: (h1, "eth0"),
            to: near.link_address.context("no link address")?,
            packet: &packet,
            out: (self.router, self.index(self.router, self.downs[1])?),
            window: 384,
            arrivals: false,
        };
        saturate(&self.network, &stream, time)
    }
}
