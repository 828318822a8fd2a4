//! `lms-forwarding-cost`: Table 6.1 and Figure 6.16 again.
//!
//! All networks are built before the first measurement, and every round measures each line of the table
//! once, backwards in every other round: what the machine does meanwhile (its clock, its neighbours,
//! the state of its caches) affects all lines alike, and no line always comes first.

mod backend;
mod carrier;
mod results;
mod saturate;

use linux_net::packet::group_link_address;

use self::backend::{Backend, move_driver, prepare_host};
use self::carrier::{Carrier, GROUP, Hosts};
use self::results::{Kind, Results};
use self::saturate::{Cost, ROUNDS, Requests, Stream, WORKER, round, steer};
use crate::packets;
use crate::prelude::*;
use crate::session::{Replies, start_router};
use netlab::mroute;

/// What a packet costs a router: kernel multicast to 1, 2, 4, 8 receivers, LMS requests, dmcasts
#[derive(Debug, clap::Args)]
pub(crate) struct ForwardingCost {
    /// Time for each measurement (quick: 0.5)
    #[arg(long, default_value_t = 2.0, default_value_if("quick", "true", "0.5"))]
    seconds: f64,
    /// Bytes of UDP payload of data and dmcasts
    #[arg(long, default_value_t = 1024)]
    payload: usize,
    /// What forwards in lms-router
    #[arg(long, value_delimiter = ',', default_values = ["ring", "xdp"])]
    backend: Vec<Backend>,
}

/// A request of LTP: an 8-byte header, and the three numbers of Figure 6.7.
const REQUEST_PAYLOAD: usize = 20;

impl Scenario for ForwardingCost {
    const NAME: &'static str = "lms-forwarding-cost";
    const FIGURE: &'static str = "LMS Table 6.1 and Figure 6.16";
    const NEEDS: &'static [Need] = &[Need::Namespaces, Need::Root];

    fn run(&self, context: &Context) -> Result<Report> {
        let seconds: f64 = self.seconds;
        let time = Duration::from_secs_f64(seconds) / ROUNDS;
        let large: usize = self.payload;
        context.note("networks: kernel multicast to 1, 2, 4, 8; lms-router with 2, 4, 8, and each carrier with 2");
        let mut benches = vec![Bench::build(Kind::Drop, 1)?, Bench::build(Kind::Kernel, 1)?];
        for receivers in [2, 4, 8] {
            benches.push(Bench::build(Kind::Kernel, receivers)?);
            for &backend in &self.backend {
                let carriers = match (receivers, backend) {
                    (2, Backend::Ring) => &Carrier::ALL[..],
                    _ => &[Carrier::Option],
                };
                for &carrier in carriers {
                    benches.push(Bench::build(Kind::Request(carrier, backend), receivers)?);
                }
            }
        }
        let mut lines = Vec::new();
        for bench in &benches {
            lines.extend(bench.lines(large)?);
        }
        for number in 1..=ROUNDS {
            context.note(format!("round {number} of {ROUNDS}, {} lines", lines.len()));
            for line in &mut lines {
                line.rounds.push(round(line.network, &line.stream, time)?);
            }
            lines.reverse();
        }
        // An even number of rounds leaves the lines in their first order.
        let mut results = Results::default();
        for line in lines {
            line.verify()?;
            let cost = Cost::of_rounds(line.rounds);
            results.add(line.kind, line.interfaces, line.payload, cost);
        }
        Ok(results.report(Self::NAME, large))
    }
}

/// One line of the table, as it is measured.
struct Line<'b> {
    kind: Kind,
    interfaces: usize,
    payload: usize,
    network: &'b Network,
    router: Option<&'b Daemon>,
    stream: Stream,
    rounds: Vec<Cost>,
}

impl Line<'_> {
    /// What left the router were requests, turned here.
    fn verify(&self) -> Result<()> {
        let (Kind::Request(_, backend), Some(router)) = (self.kind, self.router) else {
            return Ok(());
        };
        let packets: u64 = self.rounds.iter().map(|round| round.packets).sum();
        let counters = router.counters()?;
        let counted = |name| count(&counters["packets"], name);
        let turned = counted("request_turned");
        ensure!(
            turned >= packets,
            "of {packets} packets {turned} were requests"
        );
        let by_xdp = counted("fast_path");
        ensure!(
            backend == Backend::Ring || by_xdp >= packets,
            "of {packets} packets XDP forwarded {by_xdp}"
        );
        Ok(())
    }
}

/// A source, a router and receivers, each on a link of its own (LMS Figure 6.15, with more receivers),
/// and what forwards there.
struct Bench {
    kind: Kind,
    network: Network,
    source: NodeId,
    at: NodeId,
    receivers: Vec<NodeId>,
    downs: Vec<LinkId>,
    router: Option<Daemon>,
    /// Kept alive: the routes exist while it runs.
    routes: Vec<Process>,
}

impl Bench {
    fn build(kind: Kind, receivers: usize) -> Result<Bench> {
        let mut plan = Plan::default();
        let source = plan.host("source");
        // Routers of all networks run at the same time, each under its own name.
        let name = match kind {
            Kind::Request(carrier, backend) => {
                let carrier = carrier.label().replace(' ', "-");
                format!("{carrier}-{}{receivers}", backend.name())
            }
            _ => format!("router{receivers}"),
        };
        let at = plan.router(&name);
        let up = plan.link(source, at, Shape::default());
        let mut downs = Vec::new();
        let receivers: Vec<NodeId> = (1..=receivers)
            .map(|number| {
                let node = plan.host(&format!("h{number}"));
                downs.push(plan.link(at, node, Shape::default()));
                node
            })
            .collect();
        if matches!(kind, Kind::Request(Carrier::HopByHop, _)) {
            plan = plan.with_ipv6();
        }
        let network = Network::build(plan, 0)?;
        for link in downs.iter().chain([&up]) {
            let name = network
                .plan()
                .interface_on(at, *link)
                .context("interface")?;
            steer(&network, at, &name)?;
        }
        let mut bench = Bench {
            kind,
            network,
            source,
            at,
            receivers,
            downs,
            router: None,
            routes: Vec::new(),
        };
        match kind {
            Kind::Drop => steer(&bench.network, bench.receivers[0], "eth0")?,
            Kind::Kernel => bench.route((*GROUP.ip()).into())?,
            Kind::Request(carrier, backend) | Kind::Dmcast(carrier, backend) => {
                bench.route(carrier.group())?;
                bench.router = Some(bench.start_router(carrier, backend)?);
            }
        }
        Ok(bench)
    }

    /// Data of the source goes to all receivers.
    fn route(&mut self, group: IpAddr) -> Result<()> {
        self.routes = mroute::serve(&self.network, self.source, &self.receivers, &[group])?;
        Ok(())
    }

    /// `lms-router` beside the kernel's routes; H1 is the replier.
    fn start_router(&self, carrier: Carrier, backend: Backend) -> Result<Daemon> {
        if backend.is_native() {
            for &host in self.receivers.iter().chain([&self.source]) {
                prepare_host(&self.network, host)?;
            }
        }
        let hosts = self.hosts();
        let source = carrier.address(hosts.source);
        let replies = Replies::set(source, carrier.group(), carrier.address(hosts.replier));
        let capture = backend.section();
        let mut router = start_router(&self.network, self.at, &replies, capture, &[WORKER])?;
        router.wait(Duration::from_secs(20))?;
        if backend.is_native() {
            let plan = self.network.plan();
            let links = self.downs.iter();
            let names = links.filter_map(|link| plan.interface_on(self.at, *link));
            let names: Vec<String> = names.map(|name| name.to_string()).collect();
            move_driver(&self.network, self.at, &names)?;
        }
        Ok(router)
    }

    fn hosts(&self) -> Hosts {
        let plan = self.network.plan();
        let address = |at: usize| plan.address(self.receivers[at]);
        Hosts {
            source: plan.address(self.source),
            replier: address(0),
            requester: address(1.min(self.receivers.len() - 1)),
        }
    }

    /// The lines of the table that this network is for.
    fn lines(&self, large: usize) -> Result<Vec<Line<'_>>> {
        let line = |kind, payload, stream| Line {
            kind,
            interfaces: self.receivers.len(),
            payload,
            network: &self.network,
            router: self.router.as_ref(),
            stream,
            rounds: Vec::new(),
        };
        Ok(match self.kind {
            Kind::Drop => vec![line(Kind::Drop, large, self.drop_alone(large)?)],
            Kind::Kernel => vec![
                line(Kind::Kernel, REQUEST_PAYLOAD, self.kernel(REQUEST_PAYLOAD)?),
                line(Kind::Kernel, large, self.kernel(large)?),
            ],
            Kind::Request(carrier, backend) | Kind::Dmcast(carrier, backend) => {
                let (requests, dmcasts) = (
                    self.requests(carrier, backend)?,
                    self.dmcasts(carrier, backend, large)?,
                );
                vec![
                    line(Kind::Request(carrier, backend), REQUEST_PAYLOAD, requests),
                    line(Kind::Dmcast(carrier, backend), large, dmcasts),
                ]
            }
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
    fn kernel(&self, payload: usize) -> Result<Stream> {
        Ok(Stream {
            from: (self.source, "eth0"),
            to: group_link_address(*GROUP.ip()),
            packet: self.data(payload)?,
            out: (self.at, self.index(self.at, self.downs[0])?),
            window: 512 / (1 + self.receivers.len() as u64),
            arrivals: false,
            requests: None,
        })
    }

    /// Packets that arrive at a host and are dropped there, like the packets that the router forwards.
    fn drop_alone(&self, payload: usize) -> Result<Stream> {
        let host = self.receivers[0];
        let mut packet = self.data(payload)?;
        // From the router's side, on the link to the receiver.
        packet[8] -= 1;
        Ok(Stream {
            from: (self.at, "eth1"),
            to: group_link_address(*GROUP.ip()),
            packet,
            out: (host, self.index(host, self.downs[0])?),
            window: 256,
            arrivals: true,
            requests: None,
        })
    }

    /// The Ethernet address of the router on a link of its own.
    fn router_address(&self, interface: &str) -> Result<[u8; 6]> {
        let find = || Ok(linux_net::link::find(interface)?);
        let near = self.network.within(self.at, find)?;
        near.link_address.context("no link address")
    }

    /// H2 asks.
    fn requests(&self, carrier: Carrier, backend: Backend) -> Result<Stream> {
        Ok(Stream {
            from: (self.receivers[1], "eth0"),
            to: carrier.request_to(self.router_address("eth2")?),
            packet: carrier.request(&self.hosts(), &[0x4c; REQUEST_PAYLOAD])?,
            out: (self.at, self.index(self.at, self.downs[0])?),
            window: backend.window(),
            arrivals: false,
            requests: None,
        })
    }

    /// H1 repairs.
    fn dmcasts(&self, carrier: Carrier, backend: Backend, payload: usize) -> Result<Stream> {
        let request = self.requests(carrier, backend)?;
        let (hosts, payload) = (self.hosts(), vec![0x4c; payload]);
        Ok(Stream {
            from: (self.receivers[0], "eth0"),
            to: self.router_address("eth1")?,
            packet: Vec::new(),
            out: (self.at, self.index(self.at, self.downs[1])?),
            window: backend.window(),
            arrivals: false,
            requests: Some(Requests {
                from: request.from,
                to: request.to,
                carrier,
                packet: request.packet,
                answer: Box::new(move |point| carrier.dmcast(&hosts, point, &payload)),
            }),
        })
    }
}
