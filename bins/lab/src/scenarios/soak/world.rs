//! The programs of a soak: daemons that run from start to end, and transfers that are repeated.
//!
//! ```text
//! source --- r1 --- r2 --- h3        5 ms and 1 % loss on the links of h2 and h4
//!            |  \    \
//!            h1  h2   h4
//! ```

use std::fs;

use crate::prelude::*;
use crate::session::{Replies, start_router};
use netlab::mroute;

/// The stream's group, and that of the files.
const STREAM: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(232, 1, 1, 1), 5_001);
const FILES: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(232, 1, 1, 2), 5_002);
/// The group that names the sessions through relays; nothing is sent to it.
const RELAYED: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 1, 1, 3), 5_003);
const LAYERS_PORT: u16 = 7_100;
/// A transfer that takes longer hangs.
const TIMEOUT: Duration = Duration::from_secs(180);
const COMES_UP: Duration = Duration::from_secs(20);

struct Nodes {
    source: NodeId,
    routers: [NodeId; 2],
    hosts: [NodeId; 4],
}

/// Everything that runs.
pub(super) struct World {
    network: Network,
    nodes: Nodes,
    file: PathBuf,
    _routes: Vec<Process>,
    routers: Vec<Daemon>,
    relays: Vec<Daemon>,
    /// From the start to the end: `mcpd`, the stream's programs, the layers' programs.
    steady: Vec<Process>,
    rounds: Vec<Round>,
    /// Lines of the stream written.
    lines: u64,
    pub(super) restarts: u64,
}

/// A transfer that is repeated.
struct Round {
    name: &'static str,
    start: fn(&World) -> Result<Vec<Process>>,
    running: Vec<Process>,
    begun: Instant,
    done: u64,
}

/// How often each transfer was made, and what went difference.
pub(super) struct Tally {
    pub(super) rounds: Vec<(&'static str, u64)>,
    pub(super) restarts: u64,
    pub(super) faults: Vec<String>,
}

fn network() -> Result<(Network, Nodes)> {
    let mut plan = Plan::default();
    let source = plan.host("source");
    let routers = [plan.router("r1"), plan.router("r2")];
    let hosts = ["h1", "h2", "h3", "h4"].map(|name| plan.host(name));
    plan.link(source, routers[0], Shape::default());
    plan.link(routers[0], routers[1], Shape::default());
    let lossy = Shape::lossy(0.01).delayed(Duration::from_millis(5));
    for (at, host) in hosts.iter().enumerate() {
        let shape = if at % 2 == 0 { Shape::default() } else { lossy };
        plan.link(routers[at / 2], *host, shape);
    }
    let network = Network::build(plan, 23)?;
    Ok((
        network,
        Nodes {
            source,
            routers,
            hosts,
        },
    ))
}

impl World {
    /// Builds the network and starts what runs to the end.
    pub(super) fn start(seconds: u64, file_bytes: u64) -> Result<World> {
        let (network, nodes) = network()?;
        let groups = [STREAM, FILES].map(|group| *group.ip());
        let routes = mroute::serve(&network, nodes.source, &nodes.hosts, &groups)?;
        let file = Path::new(SCRATCH).join("soak.bin");
        write_file(&file, file_bytes)?;
        let mut world = World {
            network,
            nodes,
            file,
            _routes: routes,
            routers: Vec::new(),
            relays: Vec::new(),
            steady: Vec::new(),
            rounds: Vec::new(),
            lines: 0,
            restarts: 0,
        };
        world.start_routers()?;
        for at in 0..2 {
            let relay = world.start_relay(at)?;
            world.relays.push(relay);
        }
        let daemon = world.start_mcpd(0)?;
        world.steady.push(daemon);
        world.start_stream()?;
        world.start_layers(seconds)?;
        type Start = fn(&World) -> Result<Vec<Process>>;
        let rounds: [(&'static str, Start); 3] = [
            ("lms-send to two, with LMS", World::start_file),
            ("lms-send to two, through relays", World::start_relayed),
            ("mcp to two", World::start_copy),
        ];
        world.rounds = rounds
            .map(|(name, start)| Round {
                name,
                start,
                running: Vec::new(),
                begun: Instant::now(),
                done: 0,
            })
            .into();
        Ok(world)
    }

    fn address(&self, node: NodeId) -> Ipv4Addr {
        self.network.plan().address(node)
    }

    fn folder(&self, of: &str) -> Result<PathBuf> {
        let folder = Path::new(SCRATCH).join(of);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    fn start_routers(&mut self) -> Result<()> {
        for node in self.nodes.routers {
            let mut router = start_router(&self.network, node, &Replies::default(), &[])?;
            router.wait(COMES_UP)?;
            self.routers.push(router);
        }
        Ok(())
    }

    fn start_relay(&self, at: usize) -> Result<Daemon> {
        let address = self.address(self.nodes.routers[at]);
        let parents = match at {
            0 => String::new(),
            _ => format!("\"{}:4143\"", self.address(self.nodes.routers[0])),
        };
        let sections = format!(
            "[relay]\nid = \"{address}\"\nlisten = \"{address}:4143\"\nparents = [{parents}]\n"
        );
        Daemon::start(
            &self.network,
            "dyram-relay",
            self.nodes.routers[at],
            &sections,
        )
    }

    fn start_mcpd(&self, host: usize) -> Result<Process> {
        let folder = self.folder(&format!("mcpd{host}"))?;
        let address = self.address(self.nodes.hosts[host]);
        let mut launch = Launch::carried("mcpd")
            .named(format!("mcpd {}", host + 1))
            .args(["--json", "--quiet", "--insecure"])
            .arg(format!("--listen={address}:4139"))
            .arg("--dir")
            .arg(folder);
        if host != 0 {
            launch = launch.arg("--once");
        }
        let mut daemon = self.network.start(self.nodes.hosts[host], launch)?;
        daemon.wait_event("listening", COMES_UP)?;
        Ok(daemon)
    }

    /// An endless stream with LMS to two hosts.
    fn start_stream(&mut self) -> Result<()> {
        let source = self.address(self.nodes.source).to_string();
        for host in [0, 2] {
            let launch = endpoint("lms-recv", STREAM)
                .named(format!("lms-recv stream {}", host + 1))
                .args(["--assist", "lms", "--source", &source, "--output", "-"])
                // Full long before the warm-up ends: of the default's 64 MiB the filling would show as growth.
                .args(["--buffer", "4MiB"])
                .stdout_null();
            let mut process = self.network.start(self.nodes.hosts[host], launch)?;
            process.wait_event("waiting", COMES_UP)?;
            self.steady.push(process);
        }
        let launch = endpoint("lms-send", STREAM)
            .named("lms-send stream")
            .args([
                "--assist",
                "lms",
                "--receivers",
                "2",
                "--buffer",
                "4MiB",
                "-",
            ])
            .stdin_piped();
        let process = self.network.start(self.nodes.source, launch)?;
        self.steady.push(process);
        Ok(())
    }

    fn start_layers(&mut self, seconds: u64) -> Result<()> {
        let launch = Launch::carried("ldc-stream")
            .named("ldc-stream recv")
            .args(["recv", "--json", "--quiet", "--clock", "shared"])
            .arg(LAYERS_PORT.to_string());
        let mut receiver = self.network.start(self.nodes.hosts[3], launch)?;
        receiver.wait_event("waiting", COMES_UP)?;
        let length = seconds + 600; // it does not end before the soak does
        let launch = Launch::carried("ldc-stream")
            .named("ldc-stream send")
            .args(["send", "--json", "--quiet", "--duration"])
            .arg(format!("{length}s"))
            .arg(format!(
                "{}:{LAYERS_PORT}",
                self.address(self.nodes.hosts[3])
            ));
        let sender = self.network.start(self.nodes.source, launch)?;
        self.steady.extend([receiver, sender]);
        Ok(())
    }

    fn receivers(&self, of: &str, group: SocketAddrV4, assist: [&str; 2]) -> Result<Vec<Process>> {
        let source = self.address(self.nodes.source).to_string();
        let mut all = Vec::new();
        for (host, assist) in [1, 3].into_iter().zip(assist) {
            let launch = endpoint("lms-recv", group)
                .named(format!("lms-recv {of} {}", host + 1))
                .args(["--assist", assist, "--source", &source, "--output"])
                .arg(self.folder(&format!("{of}{host}"))?);
            let mut process = self.network.start(self.nodes.hosts[host], launch)?;
            process.wait_event("waiting", COMES_UP)?;
            all.push(process);
        }
        Ok(all)
    }

    fn sender(&self, of: &str, group: SocketAddrV4, assist: &str) -> Result<Process> {
        let launch = endpoint("lms-send", group)
            .named(format!("lms-send {of}"))
            .args(["--assist", assist, "--receivers", "2", "--rate", "20M"])
            .args(["--connect-timeout", "30s", "--timeout", "30s"])
            .arg(&self.file);
        self.network.start(self.nodes.source, launch)
    }

    fn start_file(&self) -> Result<Vec<Process>> {
        let mut all = self.receivers("file", FILES, ["lms"; 2])?;
        all.push(self.sender("file", FILES, "lms")?);
        Ok(all)
    }

    fn start_relayed(&self) -> Result<Vec<Process>> {
        let [first, second] = self.nodes.routers.map(|node| self.address(node));
        let near = format!("dyram://{first}");
        let far = format!("dyram://{second},{first}");
        let mut all = self.receivers("relayed", RELAYED, [&near, &far])?;
        all.push(self.sender("relayed", RELAYED, &near)?);
        Ok(all)
    }

    fn start_copy(&self) -> Result<Vec<Process>> {
        let daemon = self.start_mcpd(1)?;
        let hosts = [0, 1].map(|host| self.address(self.nodes.hosts[host]).to_string());
        let launch = Launch::carried("mcp")
            .args(["--json", "--quiet", "--insecure", "--to"])
            .arg(format!("copy-{}.bin", self.rounds[2].done % 4))
            .arg(&self.file)
            .args(hosts);
        Ok(vec![daemon, self.network.start(self.nodes.source, launch)?])
    }

    /// Performs the next step: another line of the stream, the next transfers. Returns the failures.
    pub(super) fn turn(&mut self) -> Result<Vec<String>> {
        let mut faults = Vec::new();
        self.feed()?;
        for at in 0..self.rounds.len() {
            let round = &mut self.rounds[at];
            if round
                .running
                .iter_mut()
                .all(|process| process.ended().is_some())
            {
                for mut process in std::mem::take(&mut round.running) {
                    if !process.ended().is_some_and(|status| status.success()) {
                        let tail = process.tail();
                        faults.push(format!("{}: {} failed\n{tail}", round.name, process.name()));
                    }
                }
                round.begun = Instant::now();
                let running = (self.rounds[at].start)(self)?;
                self.rounds[at].running = running;
                self.rounds[at].done += 1;
            } else if round.begun.elapsed() > TIMEOUT {
                let late: Vec<_> = round
                    .running
                    .iter_mut()
                    .filter_map(|process| process.ended().is_none().then(|| process.tail()))
                    .collect();
                bail!("{} hangs\n{}", round.name, late.concat());
            }
        }
        let relays = self.relays.iter_mut().map(|relay| &mut relay.process);
        for process in self.steady.iter_mut().chain(relays) {
            if let Some(status) = process.ended() {
                bail!("{} ended, {status}\n{}", process.name(), process.tail());
            }
        }
        Ok(faults)
    }

    /// Writes to the stream: about 150 kB a second at ten turns a second.
    fn feed(&mut self) -> Result<()> {
        let line = format!("{:01$}", self.lines, 15_000);
        self.lines += 1;
        let sender = self.steady.iter_mut();
        let sender = sender
            .into_iter()
            .find(|one| one.name() == "lms-send stream");
        sender.context("no stream")?.write_line(&line)
    }

    /// Restarts the second router's daemon and the second relay in turn.
    pub(super) fn restart(&mut self) -> Result<()> {
        self.restarts += 1;
        if self.restarts % 2 == 1 {
            return self.routers[1].restart(&self.network);
        }
        // Killed: peers are not notified and must detect it.
        let relay = &mut self.relays[1];
        relay.process.signal(Signal::SIGKILL)?;
        relay.process.wait(COMES_UP)?;
        relay.restart(&self.network)
    }

    /// The programs that run from the start to the end: name and process number.
    pub(super) fn observed(&mut self) -> Vec<(String, u32)> {
        let mut all = vec![
            ("lms-router 1".to_owned(), self.routers[0].process.id()),
            ("dyram-relay 1".to_owned(), self.relays[0].process.id()),
        ];
        let steady = self.steady.iter();
        all.extend(steady.map(|process| (process.name().to_owned(), process.id())));
        all
    }

    pub(super) fn finish(self, faults: Vec<String>) -> Tally {
        let relays = self.relays.iter().map(|relay| &relay.process);
        for process in self.steady.iter().chain(relays) {
            let _ = process.signal(nix::sys::signal::Signal::SIGTERM);
        }
        Tally {
            // The last of each was cut off.
            rounds: self
                .rounds
                .iter()
                .map(|round| (round.name, round.done.saturating_sub(1)))
                .collect(),
            restarts: self.restarts,
            faults,
        }
    }
}

/// Arguments of both ends of an LTP session.
fn endpoint(program: &str, group: SocketAddrV4) -> Launch {
    Launch::carried(program)
        .args(["--json", "--quiet", "--interface", "eth0", "--group"])
        .arg(group.to_string())
}
