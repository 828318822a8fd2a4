//! Packets into a router as fast as it forwards them, all of its work on one core.
//!
//! Core 0 generates: a packet socket puts packets on the link to the router and watches the counters of
//! the router's output. Core 1 does everything else: receive packet steering hands arrivals at the
//! router to core 1, where the kernel forwards them (or captures them for `lms-router`, which is bound
//! to the same core), and where the far end then drops them. No more than a window of packets is under
//! way, so nothing overflows, and the window is large enough that core 1 never waits. The time per
//! packet is then the time that core 1 took, all its work counted: the interrupts, the program, the
//! copies, and the far end's drop, which the report states separately.

use linux_net::packet::Sender;
use lms_proto::TurningPoint;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::carrier::Carrier;
use crate::prelude::*;
use netlab::{Capture, Editor, LinkCounters, pin};

const GENERATOR: usize = 0;
/// The core that is measured.
pub(super) const WORKER: usize = 1;
/// Packets in one system call of the generator.
const BATCH: u64 = 32;

/// What to send, where, and where it must come out.
pub(super) struct Stream {
    /// The node that sends, and the interface it sends by.
    pub(super) from: (NodeId, &'static str),
    /// Ethernet address to send to.
    pub(super) to: [u8; 6],
    /// The packet, whole; of dmcasts [`Requests::answer`] makes it.
    pub(super) packet: Vec<u8>,
    /// The node whose interfaces forward, and the index of one that every packet leaves by.
    pub(super) out: (NodeId, u32),
    /// Largest number of packets in flight.
    pub(super) window: u64,
    /// Whether arrivals at the far end count, not departures.
    pub(super) arrivals: bool,
    /// Of dmcasts: the requests that they answer.
    pub(super) requests: Option<Requests>,
}

/// Requests that a router turns, so that it takes dmcasts; they are 1 in 1,000 packets.
pub(super) struct Requests {
    /// The requesting node, and its interface.
    pub(super) from: (NodeId, &'static str),
    /// Ethernet address to send to.
    pub(super) to: [u8; 6],
    pub(super) carrier: Carrier,
    /// The request, whole.
    pub(super) packet: Vec<u8>,
    /// Makes the dmcast for a turning point.
    pub(super) answer: Answer,
}

type Answer = Box<dyn Fn(TurningPoint) -> Result<Vec<u8>> + Sync>;

/// Dmcasts between two requests: fewer than one request lets pass.
const DMCASTS_PER_REQUEST: u64 = 1_000;

/// Where requests leave, ready to ask.
struct Asker<'s> {
    sender: Sender,
    interface: u32,
    requests: &'s Requests,
}

impl Asker<'_> {
    fn ask(&self) {
        let Requests { to, packet, .. } = self.requests;
        self.sender.send(self.interface, *to, packet);
    }
}

impl Requests {
    fn open(&self, network: &Network) -> Result<Asker<'_>> {
        let (sender, interface) = network.within(self.from.0, || {
            let interface = linux_net::link::find(self.from.1)?.index;
            Ok((Sender::open()?, interface))
        })?;
        Ok(Asker {
            sender,
            interface,
            requests: self,
        })
    }
}

/// The stream's packet as it is to be sent now: a dmcast is for the turning point of a request that the router has
/// just turned.
fn current(network: &Network, stream: &Stream, asker: Option<&Asker<'_>>) -> Result<Vec<u8>> {
    let Some(asker) = asker else {
        return Ok(stream.packet.clone());
    };
    let (node, interface) = stream.from;
    let capture = Capture::start(network, node, interface)?;
    asker.ask();
    let Requests {
        carrier, answer, ..
    } = asker.requests;
    let heard = |packet: &[u8]| carrier.turning_point(packet);
    answer(capture.wait("turned request", TIMEOUT, heard)?)
}

/// One measurement.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub(super) struct Cost {
    /// The least of the rounds: whatever else runs on the machine can only add.
    pub(super) ns_per_packet: f64,
    pub(super) median_ns: f64,
    pub(super) packets: u64,
    pub(super) lost: u64,
    /// Share of the time that the measured core was idle: near 0 when it was the limit.
    pub(super) idle: f64,
}

/// A view of /sys that shows this namespace's interfaces; it ends with this thread.
pub(super) fn sysfs() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).context("private mounts")?;
    let none = None::<&str>;
    mount(Some("sys"), "/sys", Some("sysfs"), MsFlags::empty(), none).context("mount /sys")
}

/// Lets one core do all the receiving of a node's interface.
pub(super) fn steer(network: &Network, node: NodeId, interface: &str) -> Result<()> {
    network.within(node, || {
        sysfs()?;
        let queues = format!("/sys/class/net/{interface}/queues");
        for entry in std::fs::read_dir(&queues).context("receive queues")? {
            let path = entry?.path();
            if path
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"rx-"))
            {
                std::fs::write(path.join("rps_cpus"), format!("{:x}", 1 << WORKER))
                    .context("steer packets to a core (this takes root)")?;
            }
        }
        Ok(())
    })
}

fn done(netlink: &mut Editor, stream: &Stream) -> Result<u64> {
    let LinkCounters {
        tx_packets,
        rx_packets,
        ..
    } = netlink.counters(stream.out.1)?;
    Ok(if stream.arrivals {
        rx_packets
    } else {
        tx_packets
    })
}

/// Rounds of one measurement; an even number.
pub(super) const ROUNDS: u32 = 10;

impl Cost {
    /// Combines the rounds of a line.
    pub(super) fn of_rounds(mut rounds: Vec<Cost>) -> Cost {
        rounds.sort_by(|a, b| a.ns_per_packet.total_cmp(&b.ns_per_packet));
        let (least, median) = (rounds.first(), rounds.get(rounds.len() / 2));
        Cost {
            median_ns: median.map_or(f64::NAN, |round| round.ns_per_packet),
            lost: rounds.iter().map(|round| round.lost).sum(),
            ..least.copied().unwrap_or_default()
        }
    }
}

/// Time limit for the first packet to leave.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Keeps the window full for a while and measures.
pub(super) fn round(network: &Network, stream: &Stream, time: Duration) -> Result<Cost> {
    let mut netlink = network.within(stream.out.0, || Ok(Editor::open()?))?;
    let requests = stream.requests.as_ref();
    let asker = requests.map(|all| all.open(network)).transpose()?;
    let packet = current(network, stream, asker.as_ref())?;
    network.within(stream.from.0, || {
        pin(&[GENERATOR])?;
        let interface = linux_net::link::find(stream.from.1)?.index;
        let sender = Sender::open()?;
        let first = done(&mut netlink, stream)?;
        let mut sent = 0u64;
        let mut next_request = 0;
        let mut lost = 0;
        // A warm-up first: neighbour entries, caches, the processor's clock.
        let mut measured: Option<(Instant, u64, Idle)> = None;
        let begin = Instant::now();
        let mut progress = (Instant::now(), 0);
        loop {
            let out = done(&mut netlink, stream)? - first;
            let now = Instant::now();
            if out > progress.1 {
                progress = (now, out);
            } else if now - progress.0 > Duration::from_millis(100) {
                // A kernel queue was full with traffic of other programs.
                ensure!(
                    out > 0 || now - begin < TIMEOUT,
                    "{sent} packets sent, none came out"
                );
                lost = sent.saturating_sub(out);
                progress.0 = now;
            }
            match &measured {
                None if now - begin > time / 5 => measured = Some((now, out, Idle::read()?)),
                Some((start, before, idle)) if now - *start > time => {
                    let (packets, took) = (out - before, (now - *start).as_secs_f64());
                    return Ok(Cost {
                        ns_per_packet: took * 1e9 / packets as f64,
                        median_ns: 0.0,
                        packets,
                        lost,
                        idle: Idle::read()?.since(idle),
                    });
                }
                _ => {}
            }
            if sent - lost < out + stream.window {
                let mut batch = sender.batch();
                for _ in 0..BATCH {
                    batch.queue(interface, stream.to, &packet);
                }
                sent += batch.flush().sent;
                if let Some(asker) = asker.as_ref().filter(|_| sent >= next_request) {
                    asker.ask();
                    next_request = sent + DMCASTS_PER_REQUEST;
                }
            }
        }
    })
}

/// Ticks of the measured core: idle and all.
struct Idle(u64, u64);

impl Idle {
    fn read() -> Result<Idle> {
        let stat = std::fs::read_to_string("/proc/stat").context("/proc/stat")?;
        let line = stat
            .lines()
            .find(|line| line.starts_with(&format!("cpu{WORKER} ")))
            .context("this measurement takes two cores")?;
        let ticks: Vec<u64> = line
            .split_whitespace()
            .skip(1)
            .filter_map(|field| field.parse().ok())
            .collect();
        let idle = ticks.get(3).unwrap_or(&0) + ticks.get(4).unwrap_or(&0);
        Ok(Idle(idle, ticks.iter().take(8).sum()))
    }

    fn since(&self, before: &Idle) -> f64 {
        (self.0 - before.0) as f64 / ((self.1 - before.1) as f64).max(1.0)
    }
}
