//! Islands and the gateways that join them: what the scenarios with real programs have in common.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::net::{Launch, LinkId, Network, NodeId, Plan, Process, Shape};
use crate::sandbox::SCRATCH;

/// How long anything may take that takes a moment.
pub(super) const SOON: Duration = Duration::from_secs(30);

/// What an island speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Ip,
    Ssm,
}

impl Kind {
    pub(super) fn words(self) -> &'static str {
        match self {
            Kind::Ip => "IP multicast",
            Kind::Ssm => "source-specific multicast",
        }
    }

    /// Its section of a gateway's configuration.
    fn section(self, interface: &str) -> String {
        match self {
            Kind::Ip => format!("kind = \"ip\"\ninterface = \"{interface}\"\n"),
            Kind::Ssm => {
                format!("kind = \"ssm\"\ninterface = \"{interface}\"\ngroups = \"232.98.0.0/16\"\n")
            }
        }
    }
}

/// One network: a gateway and a host on a wire of their own.
pub(super) struct Island {
    pub(super) kind: Kind,
    gateway: NodeId,
    pub(super) host: NodeId,
    lan: LinkId,
}

/// A link between the gateways of two islands, by their places.
pub(super) type Peering = (usize, usize);

/// Islands, the first of which is network 1.
pub(super) struct Federation {
    pub(super) network: Network,
    pub(super) islands: Vec<Island>,
    peerings: Vec<(Peering, LinkId)>,
    gateways: Vec<Option<Process>>,
}

impl Federation {
    /// Builds the islands with links of that shape between them, and starts the gateways.
    pub(super) fn build(kinds: &[Kind], peerings: &[Peering], shape: Shape) -> Result<Federation> {
        let mut plan = Plan::default();
        let islands: Vec<Island> = kinds
            .iter()
            .enumerate()
            .map(|(at, &kind)| {
                let gateway = plan.router(&format!("gateway{}", at + 1));
                let host = plan.host(&format!("host{}", at + 1));
                let lan = plan.link(host, gateway, Shape::default());
                Island {
                    kind,
                    gateway,
                    host,
                    lan,
                }
            })
            .collect();
        let peerings = peerings
            .iter()
            .map(|&(a, b)| {
                let link = plan.link(islands[a].gateway, islands[b].gateway, shape);
                ((a, b), link)
            })
            .collect();
        let mut federation = Federation {
            network: Network::build(plan, 11)?,
            gateways: islands.iter().map(|_| None).collect(),
            islands,
            peerings,
        };
        let mut key = OpenOptions::new();
        let key = key.create(true).truncate(true).write(true).mode(0o600);
        key.open(secret())?.write_all("5a".repeat(32).as_bytes())?;
        for at in 0..federation.islands.len() {
            federation.start(at)?;
        }
        Ok(federation)
    }

    /// Where a gateway is reached by clients of its own island.
    pub(super) fn mediator(&self, at: usize) -> Ipv4Addr {
        let island = &self.islands[at];
        let plan = self.network.plan();
        plan.address_on(island.gateway, island.lan)
            .unwrap_or(Ipv4Addr::UNSPECIFIED)
    }

    /// A gateway's address on a link, and that of the other end.
    fn ends(&self, at: usize, link: LinkId) -> Result<(Ipv4Addr, Ipv4Addr)> {
        let (pair, _) = self
            .peerings
            .iter()
            .find(|(_, other)| *other == link)
            .context("no such link")?;
        let other = if pair.0 == at { pair.1 } else { pair.0 };
        let address = |at: usize| {
            let plan = self.network.plan();
            plan.address_on(self.islands[at].gateway, link)
        };
        let ends = address(at).zip(address(other));
        ends.context("a gateway off its link")
    }

    fn configuration(&self, at: usize) -> Result<String> {
        let island = &self.islands[at];
        let plan = self.network.plan();
        let own = self.mediator(at);
        let lan = plan.interface_on(island.gateway, island.lan);
        let lan = lan.context("a gateway off its island")?;
        let multi_source = island.kind == Kind::Ip;
        let mut text = format!(
            "[gateway]\nnetwork = {}\nnumber = 1\nlisten = \"0.0.0.0:4140\"\nkey-file = \"{}\"\n\
             multi-source = {multi_source}\nhold-time = \"3s\"\nrestart-time = \"0s\"\n\n",
            at + 1,
            secret().display(),
        );
        for &((a, b), link) in self
            .peerings
            .iter()
            .filter(|((a, b), _)| *a == at || *b == at)
        {
            let other = if a == at { b } else { a };
            let (_, theirs) = self.ends(at, link)?;
            text += &format!(
                "[[peer]]\nnetwork = {}\nnumber = 1\naddress = \"{theirs}:4140\"\n\n",
                other + 1
            );
        }
        text += &format!("[network]\n{}\n", island.kind.section(&lan));
        text += &format!("[data]\nlisten = \"{own}:4141\"\nnodes = 1\n\n");
        text += &format!("[daemon]\nsocket = \"{}\"\n", socket(at).display());
        Ok(text)
    }

    /// Starts a gateway.
    pub(super) fn start(&mut self, at: usize) -> Result<()> {
        let file = Path::new(SCRATCH).join(format!("gateway{}.toml", at + 1));
        std::fs::write(&file, self.configuration(at)?)?;
        let launch = Launch::carried("bfed-gateway")
            .named(format!("bfed-gateway {}", at + 1))
            .arg("all")
            .arg("--config")
            .arg(&file);
        let process = self.network.start(self.islands[at].gateway, launch)?;
        self.gateways[at] = Some(process);
        Ok(())
    }

    /// Waits until every gateway has a route to every other network.
    pub(super) fn settle(&mut self) -> Result<Duration> {
        let begun = Instant::now();
        let others = self.islands.len() - 1;
        for at in 0..self.islands.len() {
            loop {
                let known = self
                    .status(at, "routes")
                    .ok()
                    .map(|routes| networks(&routes));
                if known == Some(others) {
                    break;
                }
                if begun.elapsed() > SOON {
                    let tail = self.gateways[at].as_ref().map(Process::tail);
                    bail!(
                        "gateway {} knows the way to {known:?} of {others} networks\n{}",
                        at + 1,
                        tail.unwrap_or_default()
                    );
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(begun.elapsed())
    }

    /// What a gateway shows of itself.
    pub(super) fn status(&self, at: usize, what: &str) -> Result<Value> {
        let launch = Launch::carried("bfed-gateway")
            .named(format!("bfed-gateway status {}", at + 1))
            .args(["status", what, "--json", "--socket"])
            .arg(socket(at));
        let mut process = self.network.start(self.islands[at].gateway, launch)?;
        process.succeed(SOON)?;
        let shown = process.events().pop().context("no status")?;
        Ok(shown.value)
    }

    /// A viewer on an island's host.
    pub(super) fn view(&self, at: usize, session: &str, options: &[&str]) -> Result<Viewer> {
        let island = &self.islands[at];
        let file = Path::new(SCRATCH).join(format!("seen{}.bin", at + 1));
        let mut launch = Launch::carried("bfed-join")
            .named(format!("bfed-join on host {}", at + 1))
            .args([session, "--json", "--interface", "eth0", "--output"])
            .arg(&file)
            .args(options);
        if island.kind == Kind::Ssm {
            launch = launch.args(["--mediator".to_owned(), self.mediator(at).to_string()]);
        }
        let process = self.network.start(island.host, launch)?;
        Ok(Viewer { process, file })
    }

    /// The source of a session, on an island's host.
    pub(super) fn send(
        &self,
        at: usize,
        session: &str,
        file: &Path,
        rate: &str,
    ) -> Result<Process> {
        let launch = Launch::carried("bfed-join")
            .named(format!("bfed-join --send on host {}", at + 1))
            .args([
                session,
                "--send",
                "--json",
                "--interface",
                "eth0",
                "--rate",
                rate,
                "--input",
            ])
            .arg(file);
        self.network.start(self.islands[at].host, launch)
    }

    /// Ends all gateways in an orderly way; whether they all did.
    pub(super) fn stop(mut self) -> bool {
        let mut gateways: Vec<Process> = self.gateways.drain(..).flatten().collect();
        let ends = gateways.iter_mut().map(|gateway| gateway.stop(SOON));
        ends.into_iter()
            .all(|end| end.is_ok_and(|code| code.success()))
    }
}

/// A program that views a session.
pub(super) struct Viewer {
    pub(super) process: Process,
    /// Where it writes.
    pub(super) file: PathBuf,
}

fn secret() -> PathBuf {
    Path::new(SCRATCH).join("federation.key")
}

fn socket(at: usize) -> PathBuf {
    Path::new(SCRATCH).join(format!("gateway{}.sock", at + 1))
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
