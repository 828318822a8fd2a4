//! The link emulator: one process in the middle of every shaped link of a network that
//! applies delay, rate, queue, loss, reordering and duplication, for kernels without netem.
//!
//! Each shaped link ends in two interfaces in the emulator's namespace; a packet socket reads whole
//! frames from each (several a call) and writes them to the other (several a call). It reads its
//! configuration, one line of JSON, from standard input and answers `{"event":"ready"}`; then it answers
//! lines `report ID` with its counters and `shape {...}` with a change of shape, and ends with its input.

mod pipe;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{BufRead as _, IoSlice, IoSliceMut, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, MultiHeaders, SockFlag, SockProtocol, SockType, bind,
    recvmmsg, sendmmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeSpec;
use serde::{Deserialize, Serialize};

pub use pipe::{Counts, Disposition, Pipe};

use crate::Shape;

/// The emulator's configuration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Config {
    /// Decides which frames are lost.
    pub seed: u64,
    /// The links.
    pub links: Vec<LinkConfig>,
}

/// One emulated link.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LinkConfig {
    /// Its name in reports.
    pub name: String,
    /// The interfaces that it joins.
    pub ends: [String; 2],
    /// What it does to frames.
    pub shape: Shape,
}

/// A change of a link's shape.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Change {
    /// Identifier that the answer repeats.
    pub question: String,
    /// The link's name.
    pub name: String,
    /// What it does to frames.
    pub shape: Shape,
}

/// Counters of one link.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LinkReport {
    /// The link's name.
    pub name: String,
    /// From its first end to its second.
    pub forward: Counts,
    /// From its second end to its first.
    pub backward: Counts,
}

/// Frames in one read.
const BATCH: usize = 64;
/// Room for a frame: the Ethernet MTU and headers, with a VLAN tag.
const FRAME: usize = 1_600;
/// Reads of one port before the other ports are served.
const TURNS: usize = 4;

/// Whether a frame is one of ARP, or a neighbour solicitation or advertisement (RFC 4861 §4.3, §4.4).
fn asks_for_an_address(frame: &[u8]) -> bool {
    const ICMPV6: u8 = 58;
    match frame.get(12..14) {
        Some(&[0x08, 0x06]) => true,
        Some(&[0x86, 0xdd]) => {
            frame.get(20) == Some(&ICMPV6) && matches!(frame.get(54), Some(135 | 136))
        }
        _ => false,
    }
}

struct Port {
    socket: OwnedFd,
    /// What this port's arrivals go through.
    pipe: Pipe,
    /// Frames that leave by this port now.
    out: Vec<Vec<u8>>,
}

/// A frame on its way: when it is due, the order of arrival, the port it leaves by.
type Waiting = Reverse<(u64, u64, usize, Vec<u8>)>;

/// The helper process. Fails when the configuration makes no sense or an interface is missing.
pub(crate) fn main() -> Result<()> {
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .context("read the configuration")?;
    let config: Config = serde_json::from_str(&line).context("the configuration")?;
    // Sleeps end within microseconds of the time asked for.
    let _ = nix::sys::prctl::set_timerslack(1);
    let mut emulator = Emulator::open(&config)?;
    print_event(&serde_json::json!({"event": "ready"}))?;
    emulator.run()
}

pub(crate) fn print_event(value: &serde_json::Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}")?;
    out.flush().context("report")
}

struct Emulator {
    names: Vec<String>,
    /// Port 2n and 2n + 1 are the ends of link n.
    ports: Vec<Port>,
    waiting: BinaryHeap<Waiting>,
    order: u64,
    start: Instant,
    spare: Vec<Vec<u8>>,
    headers: MultiHeaders<()>,
    buffer: Vec<u8>,
}

impl Emulator {
    fn open(config: &Config) -> Result<Emulator> {
        let mut ports = Vec::new();
        for (at, link) in config.links.iter().enumerate() {
            for (side, name) in link.ends.iter().enumerate() {
                let place = (at * 2 + side) as u64;
                let seed = config.seed ^ place.wrapping_add(1).wrapping_mul(0xd6e8_feb8_6659_fd93);
                let socket = open_port(name).with_context(|| format!("interface {name}"))?;
                let shape = if side == 0 {
                    link.shape.outbound()
                } else {
                    link.shape
                };
                ports.push(Port {
                    socket,
                    pipe: Pipe::new(shape, seed),
                    out: Vec::new(),
                });
            }
        }
        Ok(Emulator {
            names: config.links.iter().map(|link| link.name.clone()).collect(),
            ports,
            waiting: BinaryHeap::new(),
            order: 0,
            start: Instant::now(),
            spare: Vec::new(),
            headers: MultiHeaders::preallocate(BATCH, None),
            buffer: vec![0; BATCH * FRAME],
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn run(&mut self) -> Result<()> {
        let mut input = Input::default();
        loop {
            let (ready, asked) = self.wait()?;
            for port in ready {
                self.read(port)?;
            }
            let now = self.now();
            while let Some(Reverse((due, ..))) = self.waiting.peek()
                && *due <= now
                && let Some(Reverse((_, _, port, frame))) = self.waiting.pop()
            {
                self.ports[port].out.push(frame);
            }
            self.write()?;
            if asked {
                let Some(questions) = input.lines()? else {
                    return Ok(());
                };
                for question in questions {
                    self.answer(&question)?;
                }
            }
        }
    }

    /// Sleeps until a frame arrives, one is due, or a request arrives. Returns the ports that have frames,
    /// and whether standard input has something.
    fn wait(&self) -> Result<(Vec<usize>, bool)> {
        let stdin = std::io::stdin();
        let mut polled: Vec<PollFd<'_>> = self
            .ports
            .iter()
            .map(|port| PollFd::new(port.socket.as_fd(), PollFlags::POLLIN))
            .collect();
        polled.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        let limit = self.waiting.peek().map(|Reverse((due, ..))| {
            TimeSpec::from(Duration::from_nanos(due.saturating_sub(self.now())))
        });
        match ppoll(&mut polled, limit, None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("poll"),
        }
        let some = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
        let ready = (0..self.ports.len())
            .filter(|port| some(&polled[*port]))
            .collect();
        Ok((ready, polled.last().is_some_and(some)))
    }

    /// Takes what has arrived at a port through its pipe.
    fn read(&mut self, port: usize) -> Result<()> {
        for _ in 0..TURNS {
            let now = self.now();
            let fd = self.ports[port].socket.as_raw_fd();
            let mut slices: Vec<[IoSliceMut<'_>; 1]> = self
                .buffer
                .chunks_mut(FRAME)
                .map(|room| [IoSliceMut::new(room)])
                .collect();
            let flags = MsgFlags::MSG_DONTWAIT;
            let frames = match recvmmsg(fd, &mut self.headers, slices.iter_mut(), flags, None) {
                Ok(frames) => frames,
                Err(Errno::EAGAIN | Errno::EINTR | Errno::ENETDOWN) => return Ok(()),
                Err(error) => return Err(error).context("receive"),
            };
            let mut count = 0;
            for message in frames {
                count += 1;
                let Some(frame) = message.iovs().next() else {
                    continue;
                };
                let exempt = asks_for_an_address(frame);
                let disposition = self.ports[port].pipe.arrive(now, frame.len(), exempt);
                for due in [disposition.first, disposition.second]
                    .into_iter()
                    .flatten()
                {
                    let mut copy = self.spare.pop().unwrap_or_default();
                    copy.clear();
                    copy.extend_from_slice(frame);
                    if due <= now {
                        self.ports[port ^ 1].out.push(copy);
                    } else {
                        self.order += 1;
                        self.waiting
                            .push(Reverse((due, self.order, port ^ 1, copy)));
                    }
                }
            }
            if count < BATCH {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Sends the frames that are due.
    fn write(&mut self) -> Result<()> {
        for port in 0..self.ports.len() {
            let mut frames = std::mem::take(&mut self.ports[port].out);
            let mut rest = &frames[..];
            let mut refused = 0;
            while !rest.is_empty() {
                let batch = &rest[..rest.len().min(BATCH)];
                let slices: Vec<[IoSlice<'_>; 1]> =
                    batch.iter().map(|frame| [IoSlice::new(frame)]).collect();
                let addresses = [const { None::<()> }; BATCH];
                let fd = self.ports[port].socket.as_raw_fd();
                let (headers, flags) = (&mut self.headers, MsgFlags::MSG_DONTWAIT);
                let sent = match sendmmsg(fd, headers, slices.iter(), addresses, [], flags) {
                    Ok(sent) => sent.count(),
                    Err(Errno::EINTR) => 0,
                    // The other interface is down, or its buffer is full: the frame is lost, as on a wire.
                    Err(Errno::ENETDOWN | Errno::ENOBUFS | Errno::EAGAIN | Errno::EMSGSIZE) => {
                        refused += 1;
                        rest = &rest[1..];
                        continue;
                    }
                    Err(error) => return Err(error).context("send"),
                };
                rest = &rest[sent..];
            }
            let counts = &mut self.ports[port ^ 1].pipe.counts;
            counts.refused += refused;
            counts.delivered += frames.len() as u64 - refused;
            if self.spare.len() < 16_384 {
                self.spare.append(&mut frames);
            }
            frames.clear();
            self.ports[port].out = frames;
        }
        Ok(())
    }

    /// Answers one line of the input.
    fn answer(&mut self, line: &str) -> Result<()> {
        let Some(change) = line.strip_prefix("shape ") else {
            return self.report(line);
        };
        let change: Change = serde_json::from_str(change).context("a change of shape")?;
        let named = |name: &String| *name == change.name;
        let known = self.names.iter().position(named);
        if let Some(link) = known {
            let shapes = [change.shape.outbound(), change.shape];
            let ports = self.ports[2 * link..].iter_mut();
            for (port, shape) in ports.zip(shapes) {
                port.pipe.reshape(shape);
            }
        }
        let event = if known.is_some() { "shaped" } else { "unknown" };
        print_event(&serde_json::json!({"event": event, "question": change.question}))
    }

    fn report(&self, question: &str) -> Result<()> {
        let links: Vec<LinkReport> = self
            .names
            .iter()
            .zip(self.ports.chunks_exact(2))
            .map(|(name, ports)| LinkReport {
                name: name.clone(),
                forward: ports[0].pipe.counts,
                backward: ports[1].pipe.counts,
            })
            .collect();
        print_event(&serde_json::json!({"event": "report", "question": question, "links": links}))
    }
}

/// A packet socket that reads and writes the whole frames of one interface.
pub(crate) fn open_port(name: &str) -> Result<OwnedFd> {
    let address = link_address(name)?;
    let fd = socket(
        AddressFamily::Packet,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
        SockProtocol::EthAll,
    )
    .context("packet socket")?;
    bind(fd.as_raw_fd(), &address).context("bind")?;
    // Room for bursts. Forcing it takes rights on the machine that a user namespace does not give.
    if setsockopt(&fd, sockopt::RcvBufForce, &(8 << 20)).is_err() {
        let _ = setsockopt(&fd, sockopt::RcvBuf, &(8 << 20));
    }
    if setsockopt(&fd, sockopt::SndBufForce, &(8 << 20)).is_err() {
        let _ = setsockopt(&fd, sockopt::SndBuf, &(8 << 20));
    }
    // Between its creation and the binding the socket received from every interface.
    let mut scrap = [0; FRAME];
    while nix::sys::socket::recv(fd.as_raw_fd(), &mut scrap, MsgFlags::MSG_DONTWAIT).is_ok() {}
    Ok(fd)
}

fn link_address(name: &str) -> Result<LinkAddr> {
    nix::ifaddrs::getifaddrs()?
        .filter(|interface| interface.interface_name == name)
        .find_map(|interface| interface.address?.as_link_addr().copied())
        .context("no such interface")
}

/// Lines on standard input, read without waiting for whole ones.
#[derive(Default)]
struct Input(Vec<u8>);

impl Input {
    /// The lines that are complete; `None` at the end of input.
    fn lines(&mut self) -> Result<Option<Vec<String>>> {
        let mut bytes = [0; 256];
        let count = match nix::unistd::read(std::io::stdin(), &mut bytes) {
            Ok(0) => return Ok(None),
            Ok(count) => count,
            Err(Errno::EINTR | Errno::EAGAIN) => 0,
            Err(error) => return Err(error).context("read"),
        };
        self.0.extend_from_slice(&bytes[..count]);
        let mut lines = Vec::new();
        while let Some(end) = self.0.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.0.drain(..=end).collect();
            lines.push(String::from_utf8_lossy(&line).trim().to_owned());
        }
        Ok(Some(lines))
    }
}
