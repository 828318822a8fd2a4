//! The programs of a soak that run from start to end, and the transfers that are repeated beside the disturbances.
//!
//! ```text
//! source --- r1 --- r2 --- h3        5 ms and 1 % loss on the links of h2 and h4
//!            |  \    \                h4: the host that is disturbed, with small disks
//!            h1  h2   h4             beside it, a federation: bfed::Steady
//! ```

use std::fs;

use super::disk::Disk;
use crate::prelude::*;
use crate::scenarios::bfed::Steady;
use crate::session::{Replies, start_router};
use netlab::mroute;

/// The stream's group, and those of the files.
const STREAM: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(232, 1, 1, 1), 5_001);
pub(super) const FILES: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(232, 1, 1, 2), 5_002);
pub(super) const TRIALS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(232, 1, 1, 4), 5_004);
/// The port of every `mcpd` that runs all the time.
pub(super) const MCPD_PORT: u16 = 4139;
const LAYERS_PORT: u16 = 7_100;
/// A transfer that takes longer hangs.
const TIMEOUT: Duration = Duration::from_secs(180);
pub(super) const COMES_UP: Duration = Duration::from_secs(20);

pub(super) struct Nodes {
    pub(super) source: NodeId,
    pub(super) routers: [NodeId; 2],
    pub(super) hosts: [NodeId; 4],
}

/// The host that is disturbed.
pub(super) const VICTIM: usize = 3;

/// Disks of the host that is disturbed.
pub(super) struct Disks {
    pub(super) lms: Disk,
    pub(super) copies: Disk,
    pub(super) layers: Disk,
    pub(super) bfed: Disk,
}

/// Everything that runs.
pub(super) struct World {
    pub(super) network: Network,
    pub(super) nodes: Nodes,
    pub(super) file: PathBuf,
    pub(super) disks: Disks,
    _routes: Vec<Process>,
    routers: Vec<Daemon>,
    relays: Vec<Daemon>,
    /// From the start to the end: `mcpd`, the stream's programs, the layers' programs.
    steady: Vec<Process>,
    pub(super) federation: Steady,
    rounds: Vec<Round>,
    /// Lines of the streams written.
    lines: u64,
}

/// A transfer that is repeated.
struct Round {
    name: &'static str,
    start: fn(&World) -> Result<Vec<Process>>,
    running: Vec<Process>,
    begun: Instant,
    done: u64,
}

/// How often each transfer was made, and the faults.
pub(super) struct Tally {
    pub(super) rounds: Vec<(&'static str, u64)>,
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
        let groups = [STREAM, FILES, TRIALS].map(|group| *group.ip());
        let routes = mroute::serve(&network, nodes.source, &nodes.hosts, &groups)?;
        let file = Path::new(SCRATCH).join("soak.bin");
        write_file(&file, file_bytes)?;
        let disks = Disks {
            lms: Disk::mount("lms")?,
            copies: Disk::mount("copies")?,
            layers: Disk::mount("layers")?,
            bfed: Disk::mount("bfed")?,
        };
        let mut world = World {
            network,
            nodes,
            file,
            disks,
            federation: Steady::start()?,
            _routes: routes,
            routers: Vec::new(),
            relays: Vec::new(),
            steady: Vec::new(),
            rounds: Vec::new(),
            lines: 0,
        };
        world.start_routers()?;
        for at in 0..2 {
            let relay = world.start_relay(at)?;
            world.relays.push(relay);
        }
        let folder = world.folder("mcpd1")?;
        let daemon = world.start_mcpd(0, MCPD_PORT, &folder, &[])?;
        world.steady.push(daemon);
        let folder = world.disks.copies.folder();
        let daemon = world.start_mcpd(VICTIM, MCPD_PORT, folder, &[])?;
        world.steady.push(daemon);
        world.start_stream()?;
        world.start_layers(seconds)?;
        type Start = fn(&World) -> Result<Vec<Process>>;
        let rounds: [(&'static str, Start); 4] = [
            ("lms-send to two, with LMS", World::start_file),
            ("lms-send to two, through relays", World::start_relayed),
            ("mcp to two", World::start_copy),
            ("bfed-join recv, twice", World::start_viewers),
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

    pub(super) fn address(&self, node: NodeId) -> Ipv4Addr {
        self.network.plan().address(node)
    }

    /// The address of the host that is disturbed.
    pub(super) fn victim(&self) -> Ipv4Addr {
        self.address(self.nodes.hosts[VICTIM])
    }

    /// An empty folder.
    pub(super) fn folder(&self, of: &str) -> Result<PathBuf> {
        let folder = Path::new(SCRATCH).join(of);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    fn start_routers(&mut self) -> Result<()> {
        for node in self.nodes.routers {
            let mut router = start_router(&self.network, node, &Replies::default(), "", &[])?;
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

    /// Number of copies begun.
    pub(super) fn copies(&self) -> u64 {
        self.rounds[2].done
    }

    /// Performs the next step: another line of the streams, the next transfers. Returns the faults.
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
                faults.push(format!("{} hangs\n{}", round.name, late.concat()));
                round.running.clear();
            }
        }
        faults.extend(self.federation.stalled());
        for process in self.observed_processes() {
            if let Some(status) = process.ended() {
                bail!("{} ended, {status}\n{}", process.name(), process.tail());
            }
        }
        Ok(faults)
    }

    /// Writes to the streams: about 150 kB a second at ten turns a second.
    fn feed(&mut self) -> Result<()> {
        let line = format!("{:01$}", self.lines, 15_000);
        self.lines += 1;
        self.federation.feed(&line)?;
        self.process("lms-send stream")?.write_line(&line)
    }

    /// A daemon by its process's name, and its network.
    fn daemon(&mut self, name: &str) -> Option<(&mut Daemon, &Network)> {
        let mut own = self.routers.iter_mut().chain(&mut self.relays);
        match own.find(|daemon| daemon.process.name() == name) {
            Some(daemon) => Some((daemon, &self.network)),
            None => self.federation.daemon(name),
        }
    }

    /// A program that runs all the time, by its name.
    pub(super) fn process(&mut self, name: &str) -> Result<&mut Process> {
        // Two searches: a borrow that is returned lasts for the whole function.
        if let Some(at) = self.steady.iter().position(|one| one.name() == name) {
            return Ok(&mut self.steady[at]);
        }
        let (daemon, _) = self
            .daemon(name)
            .with_context(|| format!("no {name} runs"))?;
        Ok(&mut daemon.process)
    }

    /// Starts a daemon that has ended again.
    pub(super) fn restart(&mut self, name: &str) -> Result<()> {
        let (daemon, network) = self.daemon(name).context("no such daemon")?;
        daemon.restart(network)
    }

    /// Waits until a daemon answers on its status socket; other programs have none.
    pub(super) fn answers(&mut self, name: &str, limit: Duration) -> Result<()> {
        match self.daemon(name) {
            Some((daemon, _)) => daemon.wait(limit),
            None => Ok(()),
        }
    }

    /// The programs that run from the start to the end.
    fn observed_processes(&mut self) -> impl Iterator<Item = &mut Process> {
        let daemons = [&mut self.routers[0], &mut self.relays[0]];
        let daemons = daemons.into_iter().map(|daemon| &mut daemon.process);
        let federation = self.federation.observed();
        daemons.chain(&mut self.steady).chain(federation)
    }

    /// Their names and process numbers.
    pub(super) fn observed(&mut self) -> Vec<(String, u32)> {
        let named = |process: &mut Process| (process.name().to_owned(), process.id());
        self.observed_processes().map(named).collect()
    }

    pub(super) fn finish(mut self, mut faults: Vec<String>) -> Tally {
        for process in &self.steady {
            let _ = process.signal(Signal::SIGTERM);
        }
        for daemon in self.routers.iter_mut().chain(&mut self.relays) {
            if !daemon
                .process
                .stop(COMES_UP)
                .is_ok_and(|code| code.success())
            {
                faults.push(format!("{} does not end well", daemon.process.name()));
            }
        }
        if !self.federation.stop() {
            faults.push("the gateways do not end well".to_owned());
        }
        // The last of each was cut off.
        let made = |round: &Round| (round.name, round.done.saturating_sub(1));
        Tally {
            rounds: self.rounds.iter().map(made).collect(),
            faults,
        }
    }
}

/// Arguments of both ends of an LTP session.
pub(super) fn endpoint(program: &str, group: SocketAddrV4) -> Launch {
    Launch::carried(program)
        .args(["--json", "--quiet", "--interface", "eth0", "--group"])
        .arg(group.to_string())
}
