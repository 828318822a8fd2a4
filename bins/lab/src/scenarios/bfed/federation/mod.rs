//! Islands and the gateways that join them: what the scenarios with real programs have in common.
//!
//! ```text
//! island k:   host k --+-- gateway k ---- gateways of other islands
//!                      +-- data k.1, k.2 ...        separate processes in scenarios
//!                      +-- control k.1, k.2 ...     that have them
//! ```

mod config;
mod hosts;
mod watch;

use crate::prelude::*;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;

pub(super) use hosts::Viewer;
pub(super) use watch::{Seen, Watch};

/// Time limit of operations that normally take less than a second.
pub(super) const SOON: Duration = Duration::from_secs(30);
/// Where data nodes and standby control nodes are connected: a link of their island that can be cut.
const PORT: Shape = Shape {
    delay: Duration::from_micros(200),
    rate_bps: 0,
    queue_bytes: 0,
    jitter: Duration::ZERO,
    loss: 0.0,
    loss_burst: 0.0,
    reorder: 0.0,
    duplicate: 0.0,
    inbound_only: false,
};

/// The native network of an island.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Ip,
    Ssm,
    Http,
}

impl Kind {
    pub(super) fn words(self) -> &'static str {
        match self {
            Kind::Ip => "IP multicast",
            Kind::Ssm => "source-specific multicast",
            Kind::Http => "HTTP",
        }
    }
}

/// The plan of an island.
#[derive(Clone, Debug)]
pub(super) struct Design {
    pub(super) kind: Kind,
    /// Number of data processes on separate hosts; 0: the gateway is one process.
    pub(super) data: usize,
    /// Number of control nodes on separate hosts, elected by etcd; 0: one, on the gateway's host.
    pub(super) controls: usize,
    /// Further lines of `[gateway]`.
    pub(super) keys: &'static str,
}

impl Design {
    /// A gateway of one process.
    pub(super) fn new(kind: Kind) -> Design {
        Design {
            kind,
            data: 0,
            controls: 0,
            keys: "",
        }
    }
}

/// A link between the gateways of two islands, by index, and its cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peering {
    pub(super) between: (usize, usize),
    pub(super) cost: u32,
}

impl Peering {
    pub(super) fn new(a: usize, b: usize) -> Peering {
        Peering {
            between: (a, b),
            cost: 1,
        }
    }

    /// The other end, if `at` is one.
    fn from(self, at: usize) -> Option<usize> {
        match self.between {
            (a, b) if a == at => Some(b),
            (a, b) if b == at => Some(a),
            _ => None,
        }
    }
}

/// One network: a gateway and a host on one link.
pub(super) struct Island {
    design: Design,
    gateway: NodeId,
    host: NodeId,
    lan: LinkId,
    data: Vec<NodeId>,
    controls: Vec<NodeId>,
}

/// One process of a gateway, by its island and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// Control node and data node.
    All(usize),
    Control(usize, usize),
    Data(usize, usize),
}

impl Part {
    fn island(self) -> usize {
        match self {
            Part::All(at) | Part::Control(at, _) | Part::Data(at, _) => at,
        }
    }

    fn verb(self) -> &'static str {
        match self {
            Part::All(_) => "run",
            Part::Control(..) => "control",
            Part::Data(..) => "data",
        }
    }

    /// Its name in files, logs and messages.
    pub(super) fn name(self) -> String {
        match self {
            Part::All(at) => format!("gateway{}", at + 1),
            Part::Control(at, number) => format!("control{}.{}", at + 1, number + 1),
            Part::Data(at, number) => format!("data{}.{}", at + 1, number + 1),
        }
    }
}

/// Islands, the first of which is network 1.
pub(super) struct Federation {
    pub(super) network: Network,
    islands: Vec<Island>,
    peerings: Vec<(Peering, LinkId)>,
    daemons: Vec<(Part, Daemon)>,
    /// Further sections of every configuration.
    more: &'static str,
    /// The `[etcd]` section of a control node, without its name.
    etcd: Option<String>,
    shape: Shape,
}

impl Federation {
    /// Builds the islands with links of this shape between them; `more` is part of every configuration.
    /// Nothing is started yet.
    pub(super) fn build(
        designs: &[Design],
        peerings: &[Peering],
        shape: Shape,
        more: &'static str,
    ) -> Result<Federation> {
        let mut plan = Plan::default();
        let place = |(at, design): (usize, &Design)| island(&mut plan, at, design);
        let islands: Vec<Island> = designs.iter().enumerate().map(place).collect();
        let peerings = peerings.iter().map(|&peering| {
            let (a, b) = peering.between;
            let link = plan.link(islands[a].gateway, islands[b].gateway, shape);
            (peering, link)
        });
        let peerings = peerings.collect();
        let federation = Federation {
            network: Network::build(plan, 11)?,
            daemons: Vec::new(),
            islands,
            peerings,
            more,
            etcd: None,
            shape,
        };
        let mut key = OpenOptions::new();
        let key = key.create(true).truncate(true).write(true).mode(0o600);
        for (file, digits) in [(secret(), "5a"), (cluster_secret(), "c3")] {
            key.open(file)?.write_all(digits.repeat(32).as_bytes())?;
        }
        Ok(federation)
    }

    /// Drops this share at both ends of each link between gateways by nftables, and limits the rate of an island's host by HTB.
    pub(super) fn use_system(&self, at: usize, loss: f64, rate_bps: u64) -> Result<()> {
        for (peering, link) in &self.peerings {
            let (a, b) = peering.between;
            for end in [a, b] {
                let gateway = self.islands[end].gateway;
                self.network.lose_by_nftables(gateway, *link, loss)?;
            }
        }
        let island = &self.islands[at];
        self.network.shape_by_htb(island.host, island.lan, rate_bps)
    }

    /// Elects control nodes in this etcd.
    pub(super) fn use_etcd(&mut self, section: String) {
        self.etcd = Some(section);
    }

    /// All processes of an island's gateway.
    pub(super) fn parts(&self, at: usize) -> Vec<Part> {
        let island = &self.islands[at];
        if island.data.is_empty() {
            return vec![Part::All(at)];
        }
        let controls = (0..island.controls.len().max(1)).map(|number| Part::Control(at, number));
        let data = (0..island.data.len()).map(|number| Part::Data(at, number));
        controls.chain(data).collect()
    }

    pub(super) fn start_all(&mut self) -> Result<()> {
        let parts: Vec<Part> = (0..self.islands.len())
            .flat_map(|at| self.parts(at))
            .collect();
        parts.into_iter().try_for_each(|part| self.start(part))
    }

    /// Starts a process of a gateway.
    pub(super) fn start(&mut self, part: Part) -> Result<()> {
        let sections = self.configuration(part)?;
        let program = ("bfed-gateway", part.verb());
        let (node, name) = (self.node(part), part.name());
        let daemon = Daemon::start_as(&self.network, program, node, name, &sections, &[])?;
        self.daemons.retain(|(other, _)| *other != part);
        self.daemons.push((part, daemon));
        Ok(())
    }

    fn process(&mut self, part: Part) -> Result<&mut Process> {
        let found = self.daemons.iter_mut().find(|(other, _)| *other == part);
        let (_, daemon) = found.context("no such process")?;
        Ok(&mut daemon.process)
    }

    /// Sends a signal to a process of a gateway, and waits for its end after SIGKILL.
    pub(super) fn signal(&mut self, part: Part, signal: Signal) -> Result<()> {
        let process = self.process(part)?;
        process.signal(signal)?;
        if signal == Signal::SIGKILL {
            process.wait(SOON)?;
        }
        Ok(())
    }

    /// Stops a process by SIGTERM; returns whether it exited with success, and how long it took.
    pub(super) fn end(&mut self, part: Part) -> Result<(bool, Duration)> {
        let begun = Instant::now();
        let status = self.process(part)?.stop(SOON)?;
        Ok((status.success(), begun.elapsed()))
    }

    /// Cuts the link of a data node's or control node's host, or restores it: no packet passes in either direction,
    /// without notification.
    pub(super) fn cut(&mut self, part: Part, cut: bool) -> Result<()> {
        let (node, lan) = (self.node(part), self.islands[part.island()].lan);
        let shape = if cut { broken(PORT) } else { PORT };
        self.network.reshape(node, lan, shape)
    }

    /// Cuts the link between two islands' gateways, or restores it.
    pub(super) fn cut_between(&mut self, a: usize, b: usize, cut: bool) -> Result<()> {
        let shape = if cut { broken(self.shape) } else { self.shape };
        self.reshape_between(a, b, shape)
    }

    /// Gives the link between two islands' gateways another shape.
    pub(super) fn reshape_between(&mut self, a: usize, b: usize, shape: Shape) -> Result<()> {
        let link = self.link(a, b)?;
        self.network.reshape(self.islands[a].gateway, link, shape)
    }

    /// The link between two islands' gateways.
    fn link(&self, a: usize, b: usize) -> Result<LinkId> {
        let mut peerings = self.peerings.iter();
        let found = peerings.find(|(peering, _)| peering.from(a) == Some(b));
        found.map(|(_, link)| *link).context("no such link")
    }

    /// The host of a process.
    pub(super) fn node(&self, part: Part) -> NodeId {
        let island = &self.islands[part.island()];
        let hosts = match part {
            Part::All(_) => return island.gateway,
            Part::Control(..) => &island.controls,
            Part::Data(..) => &island.data,
        };
        let (Part::All(number) | Part::Control(_, number) | Part::Data(_, number)) = part;
        hosts.get(number).copied().unwrap_or(island.gateway)
    }

    /// The host of an island's gateway.
    pub(super) fn gateway(&self, at: usize) -> NodeId {
        self.islands[at].gateway
    }

    /// The host of an island.
    pub(super) fn host(&self, at: usize) -> NodeId {
        self.islands[at].host
    }

    /// A daemon by its process's name, and the network.
    pub(super) fn daemon(&mut self, name: &str) -> Option<(&mut Daemon, &Network)> {
        let mut daemons = self.daemons.iter_mut().map(|(_, daemon)| daemon);
        let daemon = daemons.find(|daemon| daemon.process.name() == name)?;
        Some((daemon, &self.network))
    }

    /// All processes of gateways that were started.
    pub(super) fn processes(&mut self) -> impl Iterator<Item = &mut Process> {
        self.daemons
            .iter_mut()
            .map(|(_, daemon)| &mut daemon.process)
    }

    /// Waits until every gateway has a route to every other network, or until that time has passed.
    pub(super) fn settle_for(&mut self, limit: Duration) {
        let (end, others) = (Instant::now() + limit, self.islands.len() - 1);
        let settled = |federation: &Federation, at: usize| {
            let part = federation.active(at)?;
            let routes = federation.status(part, "routes").ok()?;
            (networks(&routes) == others).then_some(())
        };
        while !(0..self.islands.len()).all(|at| settled(self, at).is_some()) && Instant::now() < end
        {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The address of a node on its island's link.
    fn on_lan(&self, at: usize, node: NodeId) -> Ipv4Addr {
        let address = self.network.plan().address_on(node, self.islands[at].lan);
        address.unwrap_or(Ipv4Addr::UNSPECIFIED)
    }

    /// The address of a gateway on its own island.
    pub(super) fn address(&self, at: usize) -> Ipv4Addr {
        self.on_lan(at, self.islands[at].gateway)
    }

    /// The control node that represents a gateway: the first.
    fn head(&self, at: usize) -> Part {
        self.parts(at)[0]
    }

    /// Waits until every gateway has a route to every other network.
    pub(super) fn settle(&mut self) -> Result<Duration> {
        let others = self.islands.len() - 1;
        self.settle_to(&vec![others; self.islands.len()])
    }

    /// Waits until each gateway has routes to this many networks.
    pub(super) fn settle_to(&mut self, expected: &[usize]) -> Result<Duration> {
        let begun = Instant::now();
        for (at, &others) in expected.iter().enumerate() {
            loop {
                let known = self
                    .active(at)
                    .and_then(|part| self.status(part, "routes").ok())
                    .map(|routes| networks(&routes));
                if known == Some(others) {
                    break;
                }
                if begun.elapsed() > SOON {
                    bail!(
                        "gateway {} knows the way to {known:?} of {others} networks\n{}",
                        at + 1,
                        self.tail(self.head(at))
                    );
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(begun.elapsed())
    }

    /// The active control node of a gateway, if there is one.
    pub(super) fn active(&self, at: usize) -> Option<Part> {
        let parts = self.parts(at);
        let mut controls = parts
            .into_iter()
            .filter(|part| !matches!(part, Part::Data(..)));
        controls.find(|&part| {
            let overview = self.status(part, "overview");
            overview.is_ok_and(|overview| overview["active"] == true)
        })
    }

    /// Queries a process's status: `overview`, or another document of `bfed-gateway status`.
    pub(super) fn status(&self, part: Part, what: &str) -> Result<Value> {
        let found = self.daemons.iter().find(|(other, _)| *other == part);
        found.context("no such process")?.1.status(what)
    }

    /// Queries the status of the active control node of an island's gateway.
    pub(super) fn show(&self, at: usize, what: &str) -> Result<Value> {
        let part = self.active(at).context("no active control node")?;
        self.status(part, what)
    }

    /// Waits until a process's status is as expected; returns how long it took.
    pub(super) fn until(
        &self,
        part: Part,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Duration> {
        let begun = Instant::now();
        let mut shown = Value::Null;
        while begun.elapsed() < SOON {
            if let Ok(status) = self.status(part, what) {
                if wanted(&status) {
                    return Ok(begun.elapsed());
                }
                shown = status;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!(
            "{} shows {what} as {shown}\n{}",
            part.name(),
            self.tail(part)
        )
    }

    /// State of the gateways, to diagnose data that did not arrive: their counters, but
    /// for those that are 0.
    pub(super) fn account(&self) -> String {
        let gateways = 0..self.islands.len();
        let lines = gateways.map(|at| match self.show(at, "counters") {
            Ok(counters) => format!("gateway {}: {}", at + 1, nonzero(counters)),
            Err(error) => format!("gateway {}: {error:#}", at + 1),
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// The last lines of each process's log.
    pub(super) fn tails(&self) -> String {
        let named = self.daemons.iter().map(|(_, Daemon { process, .. })| {
            let (name, tail) = (process.name(), process.tail());
            format!("{name}:\n{tail}")
        });
        named.collect::<Vec<_>>().join("\n")
    }

    /// The last lines of a process's log.
    pub(super) fn tail(&self, part: Part) -> String {
        let daemon = self.daemons.iter().find(|(found, _)| *found == part);
        daemon.map_or(String::new(), |(_, daemon)| daemon.process.tail())
    }

    /// Stops all gateways by SIGTERM; returns whether all exited with success.
    pub(super) fn stop(mut self) -> bool {
        // Control nodes end first, so that no data node takes over sessions of another.
        self.daemons.sort_by_key(|(part, _)| *part);
        let mut all = true;
        for (_, Daemon { process, .. }) in &mut self.daemons {
            if process.ended().is_none() {
                all &= process.stop(SOON).is_ok_and(|code| code.success());
            }
        }
        all
    }
}

/// Puts an island on the plan.
fn island(plan: &mut Plan, at: usize, design: &Design) -> Island {
    let number = at + 1;
    let gateway = plan.router(&format!("gateway{number}"));
    let host = plan.host(&format!("host{number}"));
    let mut others = |what: &str, count: usize| -> Vec<NodeId> {
        let name = |other| format!("{what}{number}.{}", other + 1);
        (0..count).map(|other| plan.host(&name(other))).collect()
    };
    let (data, controls) = (
        others("data", design.data),
        others("control", design.controls),
    );
    let lan = if data.is_empty() {
        plan.link(host, gateway, Shape::default())
    } else {
        let wires = [host, gateway].map(|node| (node, Shape::default()));
        let ports = data.iter().chain(&controls).map(|&node| (node, PORT));
        plan.shared(&wires.into_iter().chain(ports).collect::<Vec<_>>())
    };
    Island {
        design: design.clone(),
        gateway,
        host,
        lan,
        data,
        controls,
    }
}

/// The same link, losing every packet.
fn broken(shape: Shape) -> Shape {
    Shape { loss: 1.0, ..shape }
}

fn secret() -> PathBuf {
    Path::new(SCRATCH).join("federation.key")
}

/// The key of a gateway's control and data nodes, unknown to peers.
fn cluster_secret() -> PathBuf {
    Path::new(SCRATCH).join("cluster.key")
}

/// How many networks the best routes of the first table lead to.
fn networks(routes: &Value) -> usize {
    let rows = routes["routes"].as_array().into_iter().flatten();
    let best = rows.filter(|row| row["best"] == true);
    let mut to: Vec<&str> = best
        .filter(|row| row["table"] == "hops/bulk-data/single-source")
        .filter_map(|row| row["destination"].as_str()?.split('.').next())
        .collect();
    to.sort_unstable();
    to.dedup();
    to.len()
}

/// Removes numbers that are 0, and values that are empty without them.
fn nonzero(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields
                .into_iter()
                .map(|(name, value)| (name, nonzero(value)));
            let is_something =
                |(_, value): &(String, Value)| *value != json!(0) && *value != json!({});
            Value::Object(fields.filter(is_something).collect())
        }
        other => other,
    }
}
