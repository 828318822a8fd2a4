//! Data nodes under load. Sources and receivers are threads of `lab`; between them are real data
//! nodes (`bfed-gateway data`), instructed by a control node made for this purpose, or haproxy in
//! their place. Each forwarder is limited to a share of a core, so that it is the bottleneck,
//! and not the load generator.
//!
//! ```text
//!   sources --- TCP channels ---> data node --- TCP channels ---> receivers
//!              (or haproxy)       [share]  \--- native group ---> receivers on another host
//!
//!   source --- TCP ---> data node --- QUIC or TCP ---> data node --- TCP ---> receiver
//! ```

mod chain;
mod content;
mod datagrams;
mod nodes;
mod quota;
mod sinks;
mod sources;
mod steer;

use self::content::{Checker, header};
use self::nodes::{DataNodes, haproxy, label};
use self::sinks::{Receiver, Sinks};
use self::sources::{Plan, Sources};
use crate::prelude::*;
use netlab::Plan as NetworkPlan;

pub(super) use datagrams::Datagrams;
pub(super) use nodes::{Content, Forwarders, has_haproxy, time_of_thread};
pub(super) use quota::Hierarchy;

/// Bytes that are compared with the sent ones, from the start of each stream, in all.
const CHECKED: u64 = 8 << 20;
/// A TCP channel's receive buffer where there are few, in bytes: room for data that arrives while a forwarder has
/// used its share up.
const BUFFER: usize = 32 << 20;
/// A TCP channel's send buffer grows up to here, in bytes.
const SEND_BUFFER: usize = 4 << 20;
/// After this long without a datagram the missing ones count as lost.
const SILENCE: Duration = Duration::from_secs(3);
/// The same for TCP channels, whose retransmission timeout doubles with each loss.
const STREAM_SILENCE: Duration = Duration::from_secs(30);

/// The forwarder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relay {
    /// Data nodes, each with its sessions, each session to `fanout` receivers over TCP.
    DataNodes,
    /// A data node, to a group of the native network with `fanout` receivers.
    Native,
    /// haproxy.
    Haproxy(Splice),
    /// Two data nodes, and a link between them.
    Chain(Link),
}

/// What the data nodes of two gateways speak to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// TCP in the clear.
    Plain,
    /// A stream of QUIC.
    Quic,
}

/// How haproxy passes bytes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Splice {
    /// By copies through its buffers.
    Off,
    /// Without copies, through pipes of the usual 64 KiB.
    On,
    /// Without copies, through pipes of 1 MiB.
    LongPipes,
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) relay: Relay,
    pub(super) nodes: usize,
    /// Sessions of each.
    pub(super) sessions: usize,
    pub(super) fanout: usize,
    pub(super) frame: usize,
    /// Bit/s of each session; unlimited if not set.
    pub(super) rate_bps: Option<u64>,
}

impl Load {
    /// One session of such frames to one receiver, without a limit.
    pub(super) fn one(relay: Relay, frame: usize) -> Load {
        Load {
            relay,
            nodes: 1,
            sessions: 1,
            fanout: 1,
            frame,
            rate_bps: None,
        }
    }
}

/// What flowed while it was measured.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Flow {
    pub(super) seconds: f64,
    /// Bytes that receivers got.
    pub(super) bytes: u64,
    /// Processor time of what forwards.
    pub(super) cpu_s: f64,
    /// The slowest and the fastest session's part, in bit/s.
    pub(super) slowest_bps: f64,
    pub(super) fastest_bps: f64,
}

impl Flow {
    /// Bits that arrived in a second, over all receivers.
    pub(super) fn bps(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.seconds
    }

    /// Bits that arrived for each second of processor time.
    pub(super) fn bits_per_cpu_s(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.cpu_s
    }
}

/// Facts that must hold on every machine.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Facts {
    /// Bytes that should have arrived.
    pub(super) due: u64,
    /// Bytes that did.
    pub(super) arrived: u64,
    /// Number of receivers whose bytes differ from those sent.
    pub(super) wrong: u64,
    /// Counters of the data nodes, when bytes are missing.
    pub(super) counters: Vec<serde_json::Value>,
}

impl Facts {
    pub(super) fn hold(&self) -> bool {
        self.due == self.arrived && self.wrong == 0 && self.due > 0
    }
}

/// The network that everything runs in: a gateway, and a host of its native network.
pub(super) struct Stage {
    network: Network,
    gateway: NodeId,
    host: NodeId,
    native: String,
    hierarchy: Option<Hierarchy>,
    /// Cores of each forwarder.
    pub(super) cores: f64,
    /// Bytes of a TCP channel's receive buffer.
    pub(super) buffer: usize,
}

impl Stage {
    /// Builds the network; forwarders may use this share of a core. Where the kernel cannot limit them, the reason is the
    /// second.
    pub(super) fn build(cores: f64) -> Result<(Stage, Option<String>)> {
        let mut plan = NetworkPlan::default();
        let (gateway, host) = (plan.host("gateway"), plan.host("host"));
        let wire = plan.link(gateway, host, Shape::default());
        let mut network = Network::build(plan, 13)?;
        network.offloads(true)?;
        for node in [gateway, host] {
            let editor = network.editor(node);
            let index = editor.index("lo")?;
            editor.set_up(index, true)?;
        }
        // BBR, the default on some machines, would measure the pauses of processes with a share of a core.
        network.within(gateway, || {
            let control = "tcp_congestion_control";
            Ok(setting(control, "cubic").or_else(|_| setting(control, "reno"))?)
        })?;
        let native = network.plan().interface_on(gateway, wire);
        let (hierarchy, why) = match Hierarchy::find() {
            Ok(found) => (Some(found), None),
            Err(why) => (None, Some(format!("{why:#}"))),
        };
        let stage = Stage {
            native: native.context("a gateway off its network")?,
            network,
            gateway,
            host,
            hierarchy,
            cores,
            buffer: BUFFER,
        };
        Ok((stage, why))
    }

    /// Whether forwarders are held to shares.
    pub(super) fn has_shares(&self) -> bool {
        self.hierarchy.is_some()
    }

    /// Sets up the load, lets it flow, and measures for this long.
    pub(super) fn play(&self, load: Load, seconds: f64) -> Result<(Flow, Facts)> {
        let mut running = self.start(load)?;
        if let Some(hierarchy) = &self.hierarchy {
            running.forwarders().hold(hierarchy, self.cores)?;
        }
        running.sources.start();
        // Windows and buffers find their sizes.
        std::thread::sleep(Duration::from_secs_f64((seconds / 3.0).clamp(0.3, 1.5)));
        let flow = running.measure(seconds)?;
        let facts = running.finish(load)?;
        Ok((flow, facts))
    }

    fn start(&self, load: Load) -> Result<Running> {
        let all = load.nodes * load.sessions;
        self.network.within(self.gateway, || buffers(self.buffer))?;
        let plan = Plan {
            frame: load.frame,
            attached: !matches!(load.relay, Relay::Haproxy(_)),
            rate_bps: load.rate_bps,
            sessions: all,
        };
        let sources = self.network.within(self.gateway, || Sources::open(plan))?;
        match load.relay {
            Relay::Haproxy(splice) => self.start_haproxy(load, sources, splice),
            Relay::Native => self.start_native(load, sources),
            Relay::DataNodes => self.start_nodes(load, sources),
            Relay::Chain(link) => self.start_chain(load, sources, link),
        }
    }

    fn data_nodes(&self, load: Load) -> Result<DataNodes> {
        let native = if load.relay == Relay::Native {
            &self.native
        } else {
            ""
        };
        DataNodes::start(
            &self.network,
            self.gateway,
            load.nodes,
            Content::Bulk,
            native,
            None,
        )
    }

    fn start_nodes(&self, load: Load, sources: Sources) -> Result<Running> {
        let mut nodes = self.data_nodes(load)?;
        let mut receivers = Vec::new();
        let until = CHECKED / (load.nodes * load.sessions * load.fanout) as u64;
        let share = |node: usize| node * load.sessions..(node + 1) * load.sessions;
        for node in 0..load.nodes {
            let somewhere = sources.address;
            for (to, label) in nodes.send_down(node, share(node), load.fanout, somewhere)? {
                receivers.push(Receiver {
                    to,
                    attach: Some(label),
                    checker: Checker::new(&header(label, load.frame), load.frame, until),
                });
            }
        }
        let connect = || Sinks::connect(receivers);
        let sinks = self.network.within(self.gateway, connect)?;
        for node in 0..load.nodes {
            nodes.receive(node, share(node), sources.address)?;
        }
        sources.gather(load.nodes * load.sessions)?;
        // A session that starts before its receivers are connected cannot be measured.
        let edges = (load.nodes * load.sessions * (1 + load.fanout)) as u64;
        self.until_open(&nodes, edges)?;
        Ok(Running {
            sources,
            sinks,
            forwarder: Forwarder::Nodes(nodes),
        })
    }

    /// Waits until all TCP channels are known to their data nodes.
    fn until_open(&self, nodes: &DataNodes, channels: u64) -> Result<()> {
        let until = Instant::now() + Duration::from_secs(30);
        let opened = || -> Result<u64> {
            Ok(nodes.counter("streams_opened")? + nodes.counter("quic_streams_opened")?)
        };
        while opened()? < channels {
            anyhow::ensure!(Instant::now() < until, "channels do not open");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn start_native(&self, load: Load, sources: Sources) -> Result<Running> {
        let mut nodes = self.data_nodes(load)?;
        let group = nodes.send_native(0, 0)?;
        let checker = Checker::new(&[], load.frame, CHECKED / load.fanout as u64);
        let listen = || Sinks::listen(group, load.fanout, &checker);
        let sinks = self.network.within(self.host, listen)?;
        nodes.receive(0, 0..1, sources.address)?;
        sources.gather(1)?;
        Ok(Running {
            sources,
            sinks,
            forwarder: Forwarder::Nodes(nodes),
        })
    }

    fn start_haproxy(&self, load: Load, sources: Sources, splice: Splice) -> Result<Running> {
        let (forwarders, to) = haproxy(&self.network, self.gateway, sources.address, splice)?;
        let count = load.sessions * load.fanout;
        let header = header(label(0)?, load.frame);
        let checker = Checker::new(&header, load.frame, CHECKED / count as u64);
        let receiver = Receiver {
            to,
            attach: None,
            checker,
        };
        let receivers = vec![receiver; count];
        let connect = || Sinks::connect(receivers);
        let sinks = self.network.within(self.gateway, connect)?;
        sources.gather(count)?;
        Ok(Running {
            sources,
            sinks,
            forwarder: Forwarder::Haproxy(forwarders),
        })
    }
}

/// A setting of the calling thread's namespace.
fn setting(name: &str, value: &str) -> std::io::Result<()> {
    std::fs::write(format!("/proc/sys/net/ipv4/{name}"), value)
}

/// Buffers of TCP channels. Those that receive do not grow: loopback's long segments fill a buffer that must
/// grow beyond what its window promised, and each one that is dropped costs 200 ms.
fn buffers(receive: usize) -> Result<()> {
    setting("tcp_rmem", &format!("4096 {receive} {receive}"))?;
    Ok(setting("tcp_wmem", &format!("4096 16384 {SEND_BUFFER}"))?)
}

enum Forwarder {
    Nodes(DataNodes),
    Haproxy(Forwarders),
}

/// A setting while it runs.
struct Running {
    sources: Sources,
    sinks: Sinks,
    forwarder: Forwarder,
}

impl Running {
    fn forwarders(&mut self) -> &mut Forwarders {
        match &mut self.forwarder {
            Forwarder::Nodes(nodes) => &mut nodes.forwarders,
            Forwarder::Haproxy(forwarders) => forwarders,
        }
    }

    fn measure(&mut self, seconds: f64) -> Result<Flow> {
        let before = (
            self.sinks.received(),
            self.forwarders().cpu_time(),
            Instant::now(),
        );
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let after = (
            self.sinks.received(),
            self.forwarders().cpu_time(),
            Instant::now(),
        );
        self.sinks.all_open()?;
        let seconds = (after.2 - before.2).as_secs_f64();
        let each: Vec<u64> = after.0.iter().zip(&before.0).map(|(a, b)| a - b).collect();
        let bps = |bytes: Option<&u64>| bytes.map_or(0.0, |&bytes| bytes as f64 * 8.0 / seconds);
        Ok(Flow {
            seconds,
            bytes: each.iter().sum(),
            cpu_s: (after.1 - before.1).as_secs_f64(),
            slowest_bps: bps(each.iter().min()),
            fastest_bps: bps(each.iter().max()),
        })
    }

    /// Sources stop; everything that they sent must arrive.
    fn finish(mut self, load: Load) -> Result<Facts> {
        let sent = self.sources.stop()?;
        let copies = match self.forwarder {
            Forwarder::Haproxy(_) => 1,
            Forwarder::Nodes(_) => load.fanout as u64,
        };
        let whole = (load.frame + bfed::data::HEADER_LEN) as u64;
        let (due, silence) = match load.relay {
            // There is no header on native channels.
            Relay::Native => (sent / whole * load.frame as u64 * copies, SILENCE),
            Relay::DataNodes | Relay::Haproxy(_) | Relay::Chain(_) => {
                (sent * copies, STREAM_SILENCE)
            }
        };
        let arrived = self.sinks.drain(due, silence);
        let counters = match &self.forwarder {
            Forwarder::Nodes(nodes) if arrived != due => nodes.counters()?,
            _ => Vec::new(),
        };
        Ok(Facts {
            due,
            arrived,
            wrong: self.sinks.wrong(),
            counters,
        })
    }
}
