//! `dyram-forwarding`: what a packet costs `dyram-relay`, beside the same loop with no protocol in it.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dyram::wire::{Body, Role};
use dyram::{Attachment, AttachmentConfig, Seq, SessionKey};
use linux_net::inet::{Config, UdpSocket};
use linux_net::poll::{self, Watch};
use linux_net::udp::Batch;

use super::stage::{GROUP, PORT, start_relay};
use crate::prelude::*;

/// What a packet to 4 receivers costs dyram-relay, beside the same loop with no protocol in it, with offloads and without
#[derive(Debug, clap::Args)]
pub(crate) struct Forwarding {
    /// Packets of each round (quick: 10000)
    #[arg(
        long,
        default_value_t = 300_000,
        default_value_if("quick", "true", "10000")
    )]
    #[arg(value_parser = within::<u64>(1_000..=u64::MAX))]
    packets: u64,
    /// Rounds of each; the median counts (quick: 2)
    #[arg(long, default_value_t = 5, default_value_if("quick", "true", "2"))]
    #[arg(value_parser = within::<usize>(1..=1_000))]
    rounds: usize,
}

/// Receivers below.
const SINKS: usize = 4;
/// Bytes of payload.
const PAYLOAD: usize = 1024;
/// Largest number of packets in flight.
const WINDOW: u64 = 256;
/// Packets handed to the kernel in one piece.
const BURST: u64 = 32;
/// The plain loop's port.
const PLAIN: u16 = PORT + 1;
const SESSION: u32 = 1;
const LOOPS: [&str; 2] = ["dyram-relay", "no protocol"];
/// The least packet rate of the relay over that of the loop with no protocol.
const TARGET: f64 = 0.97;
const TIMEOUT: Duration = Duration::from_secs(20);

impl Scenario for Forwarding {
    const NAME: &'static str = "dyram-forwarding";
    const FIGURE: &'static str = "DyRAM §5: relays of regular PCs";

    fn run(&self, _: &Context) -> Result<Report> {
        let mut report = Report::new(Self::NAME, "processor time for each packet forwarded");
        let &Self {
            packets, rounds, ..
        } = self;
        let mut plan = Plan::default();
        let (ends, relay) = (plan.host("ends"), plan.router("relay"));
        plan.link(relay, ends, Shape::default());
        let mut network = Network::build(plan, 0)?;
        let mut daemon = start_relay(&network, relay, &[], false, "")?;
        daemon.wait(TIMEOUT)?;
        let mut ends = Ends::open(&network, ends, relay)?;
        ends.attach()?;
        let plain = PlainLoop::start(&network, relay, ends.targets()?)?;
        let process = nix::unistd::Pid::from_raw(i32::try_from(daemon.process.id())?);
        let clock = nix::time::ClockId::pid_cpu_clock_id(process)?;
        let relay_time = || Ok::<Duration, anyhow::Error>(nix::time::clock_gettime(clock)?.into());
        let mut bars = Vec::new();
        for on in [true, false] {
            network.offloads(on)?;
            let mut costs = [Vec::new(), Vec::new()];
            for _ in 0..rounds {
                let before = relay_time()?;
                let sent = ends.drive(PORT, packets)?;
                costs[0].push((relay_time()? - before).as_nanos() as f64 / sent as f64);
                let before = plain.cpu_time()?;
                let sent = ends.drive(PLAIN, packets)?;
                costs[1].push((plain.cpu_time()? - before).as_nanos() as f64 / sent as f64);
            }
            bars.extend(compare(&mut report, on, costs));
        }
        plain.stop();
        report.note(
            "both receive and send in batches by the same calls, and the source hands 32 packets to the kernel in one \
             piece; the rate of a loop that fills a core is one over its processor time for a packet, the kernel's part \
             included; lost packets are not counted",
        );
        let plot = Plot::bars(
            "processor time for a packet",
            "ns",
            bars.iter().map(|(name, _)| name.clone()),
        );
        let heights = bars.iter().map(|(_, median)| *median);
        report.plots.push(plot.heights("median", heights));
        Ok(report)
    }
}

/// Reports what both loops cost, with the wires' offloads on or off; the loops' names and medians.
fn compare(report: &mut Report, on: bool, costs: [Vec<f64>; 2]) -> Vec<(String, f64)> {
    let offloads = if on { "offloads on" } else { "offloads off" };
    let mut table = Table::new(
        format!("ns of processor time for a packet in and 4 out, {offloads}"),
        &["loop", "least", "median"],
    );
    let mut bars = Vec::new();
    for (name, mut values) in LOOPS.into_iter().zip(costs) {
        values.sort_by(f64::total_cmp);
        let middle = median(values.iter().copied());
        table.row([
            name.into(),
            Cell::number(values[0], 0),
            Cell::number(middle, 0),
        ]);
        bars.push((format!("{name}, {offloads}"), middle));
    }
    report.tables.push(table);
    let name =
        format!("packet rate of dyram-relay over that of the loop with no protocol, {offloads}");
    report.timed(name, bars[1].1 / bars[0].1, "", Bound::AtLeast(TARGET));
    bars
}

/// The source and the receivers, all on one host.
struct Ends {
    relay: SocketAddrV4,
    began: Instant,
    source: (UdpSocket, Attachment),
    sinks: Vec<(UdpSocket, Attachment)>,
    batch: Batch,
    next: u32,
}

impl Ends {
    fn open(network: &Network, ends: NodeId, relay: NodeId) -> Result<Ends> {
        let plan = network.plan();
        let (host, relay) = (plan.address(ends), plan.address(relay));
        let relay = SocketAddrV4::new(relay, PORT);
        let began = Instant::now();
        let key = SessionKey::new(host.into(), (*GROUP.ip()).into()).context("both are IPv4")?;
        let end = |role, seed| -> Result<(UdpSocket, Attachment)> {
            let config = AttachmentConfig {
                key,
                role,
                relays: [SocketAddr::V4(relay)].into_iter().collect(),
            };
            let settings = Config {
                receive_buffer_bytes: 1 << 20,
                ..Config::new((host, 0).into())
            };
            let attachment = Attachment::new(config, [seed; 32], dyram::Instant::ZERO);
            Ok((UdpSocket::open(&settings)?, attachment))
        };
        network.within(ends, || {
            let sinks: Result<Vec<_>> = (0..SINKS as u8)
                .map(|number| end(Role::Receiver, number + 2))
                .collect();
            Ok(Ends {
                relay,
                began,
                source: end(Role::Source, 1)?,
                sinks: sinks?,
                batch: Batch::new(Batch::MAX),
                next: 0,
            })
        })
    }

    fn targets(&self) -> Result<Vec<SocketAddr>> {
        let address = |(socket, _): &(UdpSocket, Attachment)| Ok(socket.local_address()?);
        self.sinks.iter().map(address).collect()
    }

    /// Handles received packets; returns how many the first receiver got.
    fn step(&mut self) -> Result<u64> {
        let now = dyram::Instant::from_micros(self.began.elapsed().as_micros() as i64);
        let mut arrived = 0;
        let mut buffer = [0; dyram::MAX_CONTROL_LEN];
        let all = std::iter::once(&mut self.source).chain(&mut self.sinks);
        for (index, (socket, attachment)) in all.enumerate() {
            while socket.receive(&mut self.batch)? > 0 {
                for received in self.batch.received() {
                    let meta = dyram::Meta::unicast(received.source);
                    // Most are of the stream: only the session protocol is looked at.
                    if received.payload.len() < PAYLOAD {
                        let _ = attachment.handle_packet(now, &meta, received.payload);
                    } else if index == 1 {
                        arrived += 1;
                    }
                }
            }
            attachment.handle_timeout(now);
            while let Some(out) = attachment.poll_transmit(now, &mut buffer) {
                let mut queue = socket.queue();
                queue.push(out.destination, &buffer[..out.len]);
                queue.flush();
            }
        }
        Ok(arrived)
    }

    fn attach(&mut self) -> Result<()> {
        let end = Instant::now() + TIMEOUT;
        loop {
            self.step()?;
            let mut all = std::iter::once(&self.source).chain(&self.sinks);
            if all.all(|(_, attachment)| attachment.relay().is_some()) {
                return Ok(());
            }
            ensure!(Instant::now() < end, "the relay takes nobody in");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends this many packets to a port of the relay's host, at most a window ahead of what the first
    /// receiver has; how many it got.
    fn drive(&mut self, port: u16, packets: u64) -> Result<u64> {
        let to = SocketAddr::V4(SocketAddrV4::new(*self.relay.ip(), port));
        let (mut sent, mut arrived, mut lost) = (0, 0, 0);
        let mut heard = Instant::now();
        let mut buffer = Vec::new();
        while arrived + lost < packets {
            let came = self.step()?;
            if came > 0 {
                heard = Instant::now();
            } else if heard.elapsed() > Duration::from_millis(100) {
                // Packets in flight are lost.
                lost = sent - arrived;
                heard = Instant::now();
            }
            arrived += came;
            if sent + BURST > arrived + lost + WINDOW || sent >= packets {
                continue;
            }
            buffer.clear();
            let mut packet = [0; PAYLOAD + 256];
            for _ in 0..BURST {
                let seq = Seq(self.next);
                self.next = self.next.wrapping_add(1);
                let attachment = &self.source.1;
                let out = attachment.send(SESSION, seq, Body::Data(&[7; PAYLOAD]), &mut packet);
                let len = out.context("the relay let the source go")?.len;
                buffer.extend_from_slice(&packet[..len]);
            }
            let mut queue = self.source.0.queue();
            queue.push_segments(to, &buffer, buffer.len() / BURST as usize);
            queue.flush();
            sent += BURST;
        }
        ensure!(
            arrived > packets / 2,
            "{arrived} of {packets} packets arrived"
        );
        Ok(arrived)
    }
}

/// A loop that passes every packet to all receivers.
struct PlainLoop {
    stop: Arc<AtomicBool>,
    clock: nix::time::ClockId,
}

impl PlainLoop {
    fn start(network: &Network, node: NodeId, targets: Vec<SocketAddr>) -> Result<PlainLoop> {
        let address = (network.plan().address(node), PLAIN).into();
        let socket = network.within(node, || Ok(UdpSocket::open(&Config::new(address))?))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let work = move || {
            let mut batch = Batch::new(Batch::MAX);
            while !stopped.load(Ordering::Relaxed) {
                let mut watch = [Watch::readable(socket.as_fd())];
                if poll::wait(&mut watch, Some(Duration::from_millis(100))).is_err() {
                    return;
                }
                while socket.receive(&mut batch).is_ok_and(|count| count > 0) {
                    let mut queue = socket.queue();
                    for joined in batch.joined() {
                        for target in &targets {
                            queue.push_segments(*target, joined.payloads, joined.stride);
                        }
                    }
                    queue.flush();
                }
            }
        };
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // The clock of this thread's processor time, for other threads.
            let _ = tell.send(thread_clock());
            work();
        });
        let clock = told.recv().context("the loop does not start")??;
        Ok(PlainLoop { stop, clock })
    }

    fn cpu_time(&self) -> Result<Duration> {
        Ok(nix::time::clock_gettime(self.clock)?.into())
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The processor clock of the calling thread, for other threads: Linux makes it of the thread's number.
fn thread_clock() -> Result<nix::time::ClockId> {
    let thread = nix::unistd::gettid().as_raw();
    // CPUCLOCK_SCHED, of a thread.
    Ok(nix::time::ClockId::from_raw((!thread << 3) | 6))
}
