//! Data nodes as programs, and haproxy in their place.

use std::fs;

use bfed::wire::join::FlowChannel;
use bfed::{ChannelAddress, FlowLabel, PeerId, SessionName};

use super::Splice;
use super::chain::Ends;
use super::quota::{Hierarchy, Share};
use daemon_kit::client::query;

use super::steer::{Steering, Subscription};
use crate::prelude::*;

/// The peer that sends the sessions; the receiving peers have the numbers above.
pub(super) const UP: PeerId = PeerId(1);
const SOON: Duration = Duration::from_secs(10);

/// Programs that forward, each limited to a share of a core where the kernel permits it.
pub(crate) struct Forwarders {
    pub(crate) processes: Vec<Process>,
    shares: Vec<Share>,
}

impl Forwarders {
    pub(crate) fn new(processes: Vec<Process>) -> Forwarders {
        Forwarders {
            processes,
            shares: Vec::new(),
        }
    }

    /// Limits each to this share of a core from now on. Sessions were set up without a limit.
    pub(crate) fn hold(&mut self, hierarchy: &Hierarchy, cores: f64) -> Result<()> {
        for process in &self.processes {
            let share = hierarchy.share(cores)?;
            share.hold(process.id())?;
            self.shares.push(share);
        }
        Ok(())
    }

    /// Processor time of all of them, system time included.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.processes.iter().map(cpu_time).sum()
    }

    /// Memory of all of them that is not shared with others, bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.processes.iter().map(memory).sum()
    }
}

impl Drop for Forwarders {
    fn drop(&mut self) {
        // Groups can be removed when they are empty.
        self.processes.clear();
    }
}

/// Processor time of all live threads.
fn cpu_time(process: &Process) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.id()));
    let tasks = tasks.into_iter().flatten().flatten();
    tasks.filter_map(|task| time_of_thread(&task.path())).sum()
}

/// Processor time of a thread, by its folder in `/proc`.
pub(crate) fn time_of_thread(folder: &Path) -> Option<Duration> {
    let text = fs::read_to_string(folder.join("schedstat")).ok()?;
    let nanos = text.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

fn memory(process: &Process) -> u64 {
    let read = || -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", process.id())).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
    };
    read().unwrap_or(0)
}

/// The content type in a session's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Bulk,
    RealTime,
}

/// Data nodes, and their control node.
pub(super) struct DataNodes {
    pub(super) forwarders: Forwarders,
    pub(super) steering: Steering,
    content: Content,
}

impl DataNodes {
    /// Starts `count` data nodes, each a process, on a node of the network; its interface to the native network has
    /// that name. Those that speak to each other are at known ends.
    pub(super) fn start(
        network: &Network,
        place: NodeId,
        count: usize,
        content: Content,
        native: &str,
        ends: Option<&Ends>,
    ) -> Result<DataNodes> {
        let mut steering = network.within(place, Steering::open)?;
        let control = steering.address()?;
        let mut processes = Vec::new();
        for number in 1..=count {
            let file = Path::new(SCRATCH).join(format!("node{number}.toml"));
            fs::write(&file, configuration(control, number, native, ends))?;
            let launch = Launch::carried("bfed-gateway")
                .named(format!("data node {number}"))
                .cores(&core(number))
                .arg("data")
                .arg("--config")
                .arg(&file);
            processes.push(network.start(place, launch)?);
        }
        if let Err(error) = steering.gather(count) {
            let tails: String = processes.iter().map(Process::tail).collect();
            bail!("{error}\n{tails}");
        }
        Ok(DataNodes {
            forwarders: Forwarders::new(processes),
            steering,
            content,
        })
    }

    pub(super) fn session(&self, number: usize) -> Result<SessionName> {
        let content = match self.content {
            Content::Bulk => "bulk-data",
            Content::RealTime => "real-time",
        };
        let name = format!("bfed://1/s{number}/f/?content={content}");
        Ok(SessionName::parse(&name)?)
    }

    /// Session `number` and those after it, on a data node, each to `fanout` peers; where its receivers
    /// call, and with which labels: by session, then by receiver. A receiver of datagrams is at
    /// `receiver`.
    pub(super) fn send_down(
        &mut self,
        node: usize,
        sessions: std::ops::Range<usize>,
        fanout: usize,
        receiver: SocketAddr,
    ) -> Result<Vec<(SocketAddr, FlowLabel)>> {
        let mut subscriptions = Vec::new();
        for number in sessions {
            for one in 0..fanout {
                subscriptions.push(Subscription {
                    up: false,
                    peer: Some(PeerId(UP.0 + 1 + one as u32)),
                    flows: vec![FlowChannel {
                        label: None,
                        address: self.address(receiver),
                    }],
                    session: self.session(number)?,
                });
            }
        }
        let answers = self.steering.ask(node, subscriptions)?;
        let channel = |flows: Vec<FlowChannel>| match flows.first() {
            Some(FlowChannel {
                label: Some(label),
                address: ChannelAddress::Stream(at) | ChannelAddress::Datagram(at),
            }) => Ok((*at, *label)),
            _ => bail!("a channel without a label"),
        };
        answers.into_iter().map(channel).collect()
    }

    /// A session to the native network; its group.
    pub(super) fn send_native(&mut self, node: usize, number: usize) -> Result<SocketAddr> {
        let ask = Subscription {
            up: false,
            peer: None,
            flows: Vec::new(),
            session: self.session(number)?,
        };
        let answers = self.steering.ask(node, vec![ask])?;
        match answers.first().and_then(|flows| flows.first()) {
            Some(FlowChannel {
                address: ChannelAddress::Native(text),
                ..
            }) => Ok(std::str::from_utf8(text)?.parse()?),
            _ => bail!("no group"),
        }
    }

    /// Subscribes a data node to sessions of this source; a session's label is its number plus one.
    pub(super) fn receive(
        &mut self,
        node: usize,
        sessions: std::ops::Range<usize>,
        from: SocketAddr,
    ) -> Result<()> {
        let subscriptions = sessions.map(|number| {
            Ok(Subscription {
                up: true,
                peer: Some(UP),
                flows: vec![FlowChannel {
                    label: Some(label(number)?),
                    address: self.address(from),
                }],
                session: self.session(number)?,
            })
        });
        let subscriptions = subscriptions.collect::<Result<Vec<_>>>()?;
        self.steering.ask(node, subscriptions).map(drop)
    }

    fn address(&self, at: SocketAddr) -> ChannelAddress {
        match self.content {
            Content::Bulk => ChannelAddress::Stream(at),
            Content::RealTime => ChannelAddress::Datagram(at),
        }
    }

    /// What data nodes counted: the sum of a counter over all of them.
    pub(super) fn counter(&self, name: &str) -> Result<u64> {
        let all = self.counters()?;
        Ok(all.iter().map(|shown| find(shown, name)).sum())
    }

    /// What each data node counted.
    pub(super) fn counters(&self) -> Result<Vec<Value>> {
        let question = json!({"show": "counters"});
        let show = |number| Ok(query(&socket(number), "bfed-gateway", &question)?);
        (1..=self.forwarders.processes.len()).map(show).collect()
    }
}

/// All numbers of that name, anywhere.
fn find(value: &Value, name: &str) -> u64 {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| match value.as_u64() {
                Some(count) if key == name => count,
                _ => find(value, name),
            })
            .sum(),
        Value::Array(items) => items.iter().map(|item| find(item, name)).sum(),
        _ => 0,
    }
}

/// The label of what a session's source sends.
pub(super) fn label(session: usize) -> Result<FlowLabel> {
    FlowLabel::new(u32::try_from(session + 1)?).context("a label")
}

fn socket(number: usize) -> PathBuf {
    Path::new(SCRATCH).join(format!("node{number}.sock"))
}

fn configuration(control: SocketAddr, number: usize, native: &str, ends: Option<&Ends>) -> String {
    let network = match native {
        "" => "kind = \"none\"\n".to_owned(),
        interface => {
            format!("kind = \"ip\"\ninterface = \"{interface}\"\nexport = [\"224.0.0.0/4\"]\n")
        }
    };
    let listen = ends.map_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), |ends| {
        ends.address(number)
    });
    let links = ends.map_or(String::new(), Ends::section);
    format!(
        "[gateway]\nnetwork = 2\n\n[cluster]\ncontrol = [\"{control}\"]\n\n\
         [data]\nlisten = \"{listen}\"\nnodes = 1\nfirst-node = {number}\n\n\
         {links}[network]\n{network}\n[daemon]\nsocket = \"{}\"\n",
        socket(number).display()
    )
}

/// The core of a forwarder: a share on a core that it has moved away from would be lost.
fn core(number: usize) -> [usize; 1] {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    [number % cores]
}

pub(crate) fn has_haproxy() -> bool {
    installed("haproxy").is_some()
}

/// haproxy in TCP mode, one thread, between its own port and the sources; returns its address.
pub(super) fn haproxy(
    network: &Network,
    place: NodeId,
    sources: SocketAddr,
    splice: Splice,
) -> Result<(Forwarders, SocketAddr)> {
    // The namespace belongs to this scenario: the port is free.
    let own = SocketAddr::from((Ipv4Addr::LOCALHOST, 4180));
    let file = Path::new(SCRATCH).join("haproxy.cfg");
    let pipes = match splice {
        Splice::LongPipes => "  tune.pipesize 1048576\n",
        Splice::Off | Splice::On => "",
    };
    let splicing = match splice {
        Splice::Off => "",
        Splice::On | Splice::LongPipes => "  option splice-request\n  option splice-response\n",
    };
    let text = format!(
        "global\n  maxconn 4000\n  nbthread 1\n{pipes}\ndefaults\n  mode tcp\n  timeout connect 5s\n  \
         timeout client 1h\n  timeout server 1h\n{splicing}\nlisten relay\n  bind {own}\n  \
         server source {sources}\n"
    );
    fs::write(&file, text)?;
    // It is installed in a folder that is not in an ordinary user's `PATH`.
    let program = installed("haproxy").context("haproxy is not installed")?;
    let launch = Launch::external(program, "haproxy")
        .cores(&core(0))
        .args(["-db", "-f"])
        .arg(&file);
    let mut process = network.start(place, launch)?;
    let until = Instant::now() + SOON;
    // A connection would be a session: the kernel's list of listeners is read instead.
    let listens = || -> Result<bool> {
        network.within(place, || {
            let listening = fs::read_to_string("/proc/thread-self/net/tcp")?;
            Ok(listening.contains(&format!("0100007F:{:04X} 00000000:0000 0A", own.port())))
        })
    };
    while !listens()? {
        ensure!(
            process.ended().is_none() && Instant::now() < until,
            "haproxy does not listen\n{}",
            process.tail()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok((Forwarders::new(vec![process]), own))
}
