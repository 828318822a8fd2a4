//! Measures this machine: packets per second through the ring, with and without
//! sending them on, and Gbit/s of multicast in large pieces.
//!
//! ```text
//! cargo run --release -p linux-net --example throughput [SECONDS]
//! ```
//!
//! Builds its own network of namespaces; works as root or inside `unshare -Urn`. The time given
//! per packet is the processor time of the thread that captures, system calls included.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linux_net::link::{self, Editor};
use linux_net::netns::Namespace;
use linux_net::packet::{Ring, RingConfig, Sender, group_link_address};
use linux_net::poll::{self, Watch};
use linux_net::udp::{Batch, Config, GroupSocket, Membership, Transmit};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// source (a) - router (r0, r1) - sink (b)
struct Network {
    source: Namespace,
    router: Namespace,
    sink: Namespace,
}

fn index(namespace: &Namespace, name: &str) -> Result<u32, Failure> {
    Ok(namespace.run(|| link::find(name))??.index)
}

impl Network {
    fn build() -> Result<Self, Failure> {
        let network = Self {
            source: Namespace::new()?,
            router: Namespace::new()?,
            sink: Namespace::new()?,
        };
        for (peer, name, router_end, net) in [
            (&network.source, "a", "r0", 0),
            (&network.sink, "b", "r1", 1),
        ] {
            let mut editor = peer.run(Editor::open)??;
            editor.add_veth(name, router_end, Some(network.router.as_fd()))?;
            let at = index(peer, name)?;
            editor.add_address(at, Ipv4Addr::new(10, 9, net, 1), 24)?;
            editor.set_up(at, true)?;
            let mut editor = network.router.run(Editor::open)??;
            let at = index(&network.router, router_end)?;
            editor.add_address(at, Ipv4Addr::new(10, 9, net, 2), 24)?;
            editor.set_up(at, true)?;
        }
        std::thread::sleep(Duration::from_millis(300));
        Ok(network)
    }
}

/// A request of LMS: 60 bytes.
fn request() -> Vec<u8> {
    let mut packet = vec![0x49, 0, 0, 60, 0, 0, 0x40, 0, 8, 17, 0, 0];
    packet.extend([10, 9, 0, 1]);
    packet.extend(GROUP.octets());
    packet.extend([138, 16, 0xff, 0xff, 0, 0, 0, 0, 10, 9, 1, 1]);
    packet.extend(GROUP.octets());
    packet.extend([0, 9, 0x13, 0x8c, 0, 24, 0, 0]);
    packet.extend([0; 16]);
    packet
}

fn pin(core: usize) {
    let mut set = CpuSet::new();
    // Without enough cores the threads share one.
    let _ = set
        .set(core)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
}

/// Processor time of this thread so far.
fn thread_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = text
        .split_whitespace()
        .next()
        .and_then(|word| word.parse().ok());
    Duration::from_nanos(first.unwrap_or(0))
}

/// Fills the ring, then empties it, again and again: what one thread can do when it never waits.
fn drain(network: &Network, seconds: u64, forward: bool) -> Result<(), Failure> {
    let (a, r1) = (index(&network.source, "a")?, index(&network.router, "r1")?);
    let sender = network.source.run(Sender::open)??;
    let config = RingConfig {
        frames: 16_384,
        ..RingConfig::default()
    };
    let mut ring = network.router.run(|| Ring::open(&config))??;
    let out = network.router.run(Sender::open)??;
    let packet = request();
    let (mut handled, mut busy) = (0_u64, Duration::ZERO);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..256 {
            let mut queue = sender.batch();
            for _ in 0..64 {
                queue.queue(a, group_link_address(GROUP), &packet);
            }
            queue.flush();
        }
        let before = thread_time();
        loop {
            let mut batch = ring.batch(64);
            if batch.is_empty() {
                break;
            }
            let mut queue = out.batch();
            for frame in batch.frames() {
                frame.packet[22..28].copy_from_slice(&[0, 1, 10, 9, 0, 2]);
                if forward {
                    queue.queue(r1, [2, 0, 0, 0, 0, 9], frame.packet);
                }
                handled += 1;
            }
            queue.flush();
        }
        busy += thread_time().saturating_sub(before);
    }
    println!(
        "{:<28} {:>5.0} ns a packet on one core: {:>9.0} packets/s",
        if forward {
            "full ring, capture and send:"
        } else {
            "full ring, capture only:"
        },
        busy.as_nanos() as f64 / handled as f64,
        handled as f64 / busy.as_secs_f64(),
    );
    Ok(())
}

/// Lone requests, one a millisecond: how long each waits before the router has it.
fn lone(network: &Network) -> Result<(), Failure> {
    let a = index(&network.source, "a")?;
    let sender = network.source.run(Sender::open)??;
    let mut ring = network
        .router
        .run(|| Ring::open(&RingConfig::default()))??;
    let start = Instant::now();
    let mut waits = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut packet = request();
            for _ in 0..1000 {
                std::thread::sleep(Duration::from_millis(1));
                let now = (start.elapsed().as_nanos() as u64).to_be_bytes();
                packet[44..52].copy_from_slice(&now);
                sender.send(a, group_link_address(GROUP), &packet);
            }
        });
        let mut waits = Vec::new();
        while waits.len() < 1000 && start.elapsed() < Duration::from_secs(10) {
            let _ = poll::wait(
                &mut [Watch::readable(ring.as_fd())],
                Some(Duration::from_millis(100)),
            );
            for frame in ring.batch(64).frames() {
                let sent = frame
                    .packet
                    .get(44..)
                    .and_then(|rest| rest.first_chunk::<8>());
                let sent = sent.map_or(0, |bytes| u64::from_be_bytes(*bytes));
                waits.push((start.elapsed().as_nanos() as u64).saturating_sub(sent));
            }
        }
        waits
    });
    waits.sort_unstable();
    let at = |part: usize| waits.get(waits.len() * part / 100).copied().unwrap_or(0) as f64 / 1e3;
    println!(
        "{:<28} {:.0} us from the sender's call to the router's hand, median ({:.0} us at 90 %)",
        "lone requests:",
        at(50),
        at(90),
    );
    Ok(())
}

/// Floods the router with requests; answers packets captured and forwarded, the time, and the
/// capturing thread's processor time.
fn ring(network: &Network, seconds: u64, forward: bool) -> Result<(), Failure> {
    let (a, r1) = (index(&network.source, "a")?, index(&network.router, "r1")?);
    let stop = AtomicBool::new(false);
    let sender = network.source.run(Sender::open)??;
    let config = RingConfig {
        frames: 16_384,
        ..RingConfig::default()
    };
    let mut ring = network.router.run(|| Ring::open(&config))??;
    let out = network.router.run(Sender::open)??;
    let (captured, sent, time, busy) = std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(0);
            let (packet, link) = (request(), group_link_address(GROUP));
            while !stop.load(Ordering::Relaxed) {
                let mut batch = sender.batch();
                for _ in 0..64 {
                    batch.queue(a, link, &packet);
                }
                batch.flush();
            }
        });
        let capture = scope.spawn(|| {
            pin(1);
            let link = [2, 0, 0, 0, 0, 9];
            let (mut captured, mut sent) = (0_u64, 0_u64);
            let (start, busy) = (Instant::now(), thread_time());
            while start.elapsed() < Duration::from_secs(seconds) {
                let mut batch = ring.batch(64);
                if batch.is_empty() {
                    drop(batch);
                    let _ = poll::wait(
                        &mut [Watch::readable(ring.as_fd())],
                        Some(Duration::from_millis(10)),
                    );
                    continue;
                }
                let mut queue = out.batch();
                for frame in batch.frames() {
                    captured += 1;
                    // An edit in place, where a router writes the turning point.
                    frame.packet[22..28].copy_from_slice(&[0, 1, 10, 9, 0, 2]);
                    if forward {
                        queue.queue(r1, link, frame.packet);
                    }
                }
                sent += queue.flush().sent;
            }
            let busy = thread_time().saturating_sub(busy);
            stop.store(true, Ordering::Relaxed);
            (captured, sent, start.elapsed(), busy)
        });
        capture
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let stats = ring.stats()?;
    println!(
        "{:<28} {:>9.0} packets/s  {:>5.0} ns of processor a packet  {} sent on, {} dropped by a full ring",
        if forward {
            "flood, capture and send:"
        } else {
            "flood, capture only:"
        },
        captured as f64 / time.as_secs_f64(),
        busy.as_nanos() as f64 / captured as f64,
        sent,
        stats.dropped_full,
    );
    Ok(())
}

/// Multicast in large pieces from source to router.
fn bulk(network: &Network, seconds: u64) -> Result<(), Failure> {
    let (a, r0) = (index(&network.source, "a")?, index(&network.router, "r0")?);
    let destination = SocketAddrV4::new(GROUP, 5004);
    let config = Config {
        interface: a,
        ..Config::default()
    };
    let sender = network.source.run(|| GroupSocket::open(&config))??;
    let receiver = network.router.run(|| {
        GroupSocket::open(&Config {
            bind: destination,
            ..Config::default()
        })
    })??;
    let membership = Membership {
        group: GROUP,
        source: None,
        interface: r0,
    };
    network.router.run(|| receiver.join(&membership))??;
    let stop = AtomicBool::new(false);
    let (received, pieces, time) = std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(0);
            let bytes = vec![0x55; 44 * 1436];
            while !stop.load(Ordering::Relaxed) {
                let transmit = Transmit {
                    destination,
                    bytes: &bytes,
                    segment_len: Some(1436),
                };
                if sender.send_all(&transmit).is_err() {
                    return;
                }
            }
        });
        let receive = scope.spawn(|| {
            pin(1);
            let mut batch = Batch::new(Batch::MAX);
            let (mut received, mut pieces, start) = (0_u64, 0_u64, Instant::now());
            while start.elapsed() < Duration::from_secs(seconds) {
                let filled = receiver.receive(&mut batch).unwrap_or(0);
                pieces += filled as u64;
                received += batch.iter().map(|d| d.payload.len() as u64).sum::<u64>();
                if filled == 0 {
                    let _ = poll::wait(
                        &mut [Watch::readable(receiver.as_fd())],
                        Some(Duration::from_millis(10)),
                    );
                }
            }
            stop.store(true, Ordering::Relaxed);
            (received, pieces, start.elapsed())
        });
        receive
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    println!(
        "{:<28} {:>9.2} Gbit/s received in {} pieces, {} dropped",
        "bulk multicast:",
        received as f64 * 8e-9 / time.as_secs_f64(),
        pieces,
        receiver.dropped()?,
    );
    Ok(())
}

fn main() -> Result<(), Failure> {
    let seconds = std::env::args().nth(1).map_or(Ok(3), |s| s.parse())?;
    let network = Network::build()?;
    drain(&network, seconds, false)?;
    drain(&network, seconds, true)?;
    lone(&network)?;
    ring(&network, seconds, false)?;
    ring(&network, seconds, true)?;
    bulk(&network, seconds)
}
