//! `lab-links`: probes compare the lab's own links with their configuration.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::prelude::*;
use nix::sys::socket::{setsockopt, sockopt};

/// The lab's own links: delay, rate, loss, reordering measured by probes
#[derive(Debug, clap::Args)]
pub(crate) struct Links {}

const PORT: u16 = 7_000;
/// A probe's payload; with UDP, IP and Ethernet headers 1442 bytes.
const PAYLOAD: usize = 1_400;
const HEADERS: usize = 42;
/// Packets in flight in an unpaced flood: a socket of an ordinary user holds about 150.
const WINDOW: u64 = 64;

struct Case {
    name: &'static str,
    shape: Shape,
    from: NodeId,
    to: NodeId,
}

/// What the probes saw.
struct Seen {
    received: u64,
    duplicates: u64,
    overtaken: u64,
    rate_bps: f64,
    packets_per_s: f64,
}

impl Scenario for Links {
    const NAME: &'static str = "lab-links";

    fn run(&self, context: &Context) -> Result<Report> {
        let mut report = Report::new(Self::NAME, "emulated links, asked for and measured");
        let (mut network, cases) = build()?;
        let mut table = Table::with_header(
            "probes of 1442 bytes on the wire",
            "link | round trip ms | Mbit/s | packets/s | lost % | twice % | overtaken %",
        );
        let count = if context.quick { 4_000 } else { 40_000 };
        for case in &cases {
            context.note(format!("link: {}", case.name));
            let trip = round_trip(&network, case)?;
            let offered = if case.shape.rate_bps > 0 {
                case.shape.rate_bps * 6 / 5
            } else {
                0
            };
            let count = if offered > 0 { count / 4 } else { count };
            let seen = flood(&network, case, count, offered)?;
            let percent = |part: u64| Cell::number(part as f64 * 100.0 / count as f64, 2);
            table.row([
                case.name.into(),
                Cell::number(trip.as_secs_f64() * 1e3, 3),
                Cell::number(seen.rate_bps / 1e6, 1),
                Cell::number(seen.packets_per_s, 0),
                percent(count - seen.received),
                percent(seen.duplicates),
                percent(seen.overtaken),
            ]);
            let slack = if context.quick { 10.0 } else { 1.0 };
            judge(&mut report, case, trip, &seen, count, slack);
        }
        let links = network.emulated()?;
        report.datum("links", &links);
        report.tables.push(table);
        report.note("round trip: median of 20 echoes; rate: payload and headers at the receiver");
        report.note("the rate is offered at 1.2 times the link's; other floods are unpaced");
        Ok(report)
    }
}

fn build() -> Result<(Network, Vec<Case>)> {
    let mut plan = Plan::default();
    let ms = Duration::from_millis;
    let queue_bytes = 16 << 20;
    let plain = Shape {
        queue_bytes,
        ..Shape::default()
    };
    let shapes = [
        ("wire", Shape::default()),
        ("emulated, no effect", plain),
        ("delay 5 ms", plain.delayed(ms(5))),
        (
            "rate 50 Mbit/s",
            Shape {
                rate_bps: 50_000_000,
                queue_bytes: 100_000,
                ..plain
            },
        ),
        (
            "loss 2 %",
            Shape {
                loss: 0.02,
                ..plain
            },
        ),
        (
            "duplication 3 %",
            Shape {
                duplicate: 0.03,
                ..plain
            },
        ),
        (
            "reordering 3 %",
            Shape {
                reorder: 0.03,
                ..plain
            },
        ),
    ];
    let mut cases = Vec::new();
    for (at, (name, shape)) in shapes.into_iter().enumerate() {
        // Through a router, so that unicast routes are proved too.
        let from = plan.host(&format!("a{at}"));
        let router = plan.router(&format!("r{at}"));
        let to = plan.host(&format!("b{at}"));
        plan.link(from, router, Shape::default());
        plan.link(router, to, shape);
        cases.push(Case {
            name,
            shape,
            from,
            to,
        });
    }
    Ok((Network::build(plan, 1)?, cases))
}

fn judge(report: &mut Report, case: &Case, trip: Duration, seen: &Seen, count: u64, slack: f64) {
    let name = |what: &str| format!("{}: {what}", case.name);
    let asked = case.shape.delay.as_secs_f64() * 2e3;
    let added = trip.as_secs_f64() * 1e3 - asked;
    report.timed(
        name("round trip beyond the delay"),
        added,
        "ms",
        Bound::AtMost(2.0),
    );
    if case.shape.delay > Duration::ZERO {
        report.check(
            name("round trip"),
            trip.as_secs_f64() * 1e3,
            "ms",
            Bound::AtLeast(asked),
        );
    }
    if case.shape.rate_bps > 0 {
        let ratio = seen.rate_bps / case.shape.rate_bps as f64;
        report.timed(
            name("measured rate / rate"),
            ratio,
            "",
            Bound::AtLeast(1.0 - 0.03 * slack),
        );
        report.timed(
            name("measured rate / rate"),
            ratio,
            "",
            Bound::AtMost(1.0 + 0.03 * slack),
        );
        return;
    }
    let within = |report: &mut Report, what: &str, part: u64, probability: f64| {
        // Four standard deviations of a binomial count.
        let expected = probability * count as f64;
        let slack = 4.0 * (expected * (1.0 - probability)).sqrt();
        let off = (part as f64 - expected).abs();
        report.check(
            name(&format!("{what}, packets off the expected")),
            off,
            "",
            Bound::AtMost(slack),
        );
    };
    within(report, "lost", count - seen.received, case.shape.loss);
    within(report, "twice", seen.duplicates, case.shape.duplicate);
    if case.shape.reorder == 0.0 {
        report.check(
            name("overtaken"),
            seen.overtaken as f64,
            "",
            Bound::Exactly(0.0),
        );
    } else {
        report.check(
            name("overtaken"),
            seen.overtaken as f64,
            "",
            Bound::AtLeast(1.0),
        );
    }
}

fn socket(network: &Network, node: NodeId) -> Result<UdpSocket> {
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
    let socket = network.within(node, || Ok(UdpSocket::bind(address)?))?;
    socket.set_read_timeout(Some(Duration::from_millis(300)))?;
    // In a user namespace the machine's limit applies; windows then pace the flood.
    if setsockopt(&socket, sockopt::RcvBufForce, &(64 << 20)).is_err() {
        let _ = setsockopt(&socket, sockopt::RcvBuf, &(64 << 20));
    }
    Ok(socket)
}

/// The median of 20 echoes.
fn round_trip(network: &Network, case: &Case) -> Result<Duration> {
    let (near, far) = (socket(network, case.from)?, socket(network, case.to)?);
    let target = SocketAddr::from((network.plan().address(case.to), PORT));
    let done = AtomicBool::new(false);
    let mut trips = std::thread::scope(|scope| -> Result<Vec<Duration>> {
        scope.spawn(|| {
            let mut bytes = [0; 2_000];
            while !done.load(Ordering::Relaxed) {
                if let Ok((count, from)) = far.recv_from(&mut bytes) {
                    let _ = far.send_to(&bytes[..count], from);
                }
            }
        });
        let mut trips = Vec::new();
        let mut bytes = [0; 2_000];
        for number in 0..60u8 {
            let sent = Instant::now();
            near.send_to(&[number; 64], target)?;
            while let Ok((_, _)) = near.recv_from(&mut bytes) {
                if bytes[0] == number {
                    trips.push(sent.elapsed());
                    break;
                }
            }
            if trips.len() == 21 {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
        Ok(trips)
    })?;
    // The first echo waited for ARP.
    let mut trips = trips.split_off(1.min(trips.len()));
    trips.sort();
    trips
        .get(trips.len() / 2)
        .copied()
        .with_context(|| format!("{}: no echo", case.name))
}

/// Sends `count` numbered packets, at `offered` bits a second or as fast as a window allows, and
/// counts what arrives.
fn flood(network: &Network, case: &Case, count: u64, offered: u64) -> Result<Seen> {
    let (near, far) = (socket(network, case.from)?, socket(network, case.to)?);
    let target = SocketAddr::from((network.plan().address(case.to), PORT));
    let received = std::sync::atomic::AtomicU64::new(0);
    let all_sent = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let counter = scope.spawn(|| count_arrivals(&far, &received, &all_sent));
        // The counter ends also after an error.
        let _ended = Ends(&all_sent);
        let mut packet = [0; PAYLOAD];
        let start = Instant::now();
        let gap = (PAYLOAD + HEADERS) as f64 * 8.0 / offered.max(1) as f64;
        for number in 0..count {
            packet[..8].copy_from_slice(&number.to_be_bytes());
            near.send_to(&packet, target)?;
            if offered > 0 {
                while start.elapsed().as_secs_f64() < gap * number as f64 {
                    std::thread::sleep(Duration::from_micros(50));
                }
            } else if number % 8 == 7 {
                let since = Instant::now();
                // Beside other programs the emulator may have to wait for its turn.
                let late = case.shape.delay * 2 + Duration::from_millis(100);
                while number - received.load(Ordering::Relaxed).min(number) > WINDOW
                    && since.elapsed() < late
                {
                    std::thread::yield_now();
                }
            }
        }
        all_sent.store(true, Ordering::Relaxed);
        counter
            .join()
            .map_err(|_| anyhow::anyhow!("the counting thread panicked"))
    })
}

/// Sets its flag when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Counts until no packet has arrived within the socket's timeout after all were sent.
fn count_arrivals(
    socket: &UdpSocket,
    received: &std::sync::atomic::AtomicU64,
    all_sent: &AtomicBool,
) -> Seen {
    let mut bytes = [0; 2_000];
    let mut numbers = std::collections::HashSet::new();
    let (mut duplicates, mut overtaken, mut highest) = (0, 0, None);
    let (mut first, mut last) = (None, Instant::now());
    loop {
        let ends = all_sent.load(Ordering::Relaxed);
        let length = match socket.recv(&mut bytes) {
            Ok(length) => length,
            Err(_) if ends => break,
            Err(_) => continue,
        };
        if length != PAYLOAD {
            continue;
        }
        last = Instant::now();
        first.get_or_insert(last);
        let number = bytes[..8].try_into().map_or(0, u64::from_be_bytes);
        if !numbers.insert(number) {
            duplicates += 1;
        } else if highest > Some(number) {
            overtaken += 1;
        }
        highest = highest.max(Some(number));
        received.store(highest.unwrap_or(0), Ordering::Relaxed);
    }
    let took = first
        .map_or(f64::NAN, |first| (last - first).as_secs_f64())
        .max(1e-9);
    let arrived = (numbers.len() as u64 + duplicates).saturating_sub(1) as f64;
    Seen {
        received: numbers.len() as u64,
        duplicates,
        overtaken,
        rate_bps: arrived * ((PAYLOAD + HEADERS) * 8) as f64 / took,
        packets_per_s: arrived / took,
    }
}
