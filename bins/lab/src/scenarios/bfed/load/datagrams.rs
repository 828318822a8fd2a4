//! Real-time sessions over UDP: one source socket, one data node, one receiver that reports as a data
//! node would (RFC 5348).

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bfed::data::HEADER_LEN;
use bfed::data::tfrc::Receiver;
use bfed::wire::data::{Kind, Packet, Repr};
use bfed::wire::report;
use bfed::{FlowLabel, Instant as At};
use linux_net::SendError;
use linux_net::inet::{self, Transmit, UdpSocket};
use linux_net::poll::{self, Watch};
use linux_net::udp::Batch;

use super::content::{self, NUMBER_LEN};
use super::nodes::{Content, DataNodes, label};
use super::{SILENCE, Stage};
use crate::prelude::*;

/// Most bytes that are handed to the kernel at once.
const PIECE: usize = 60_000;
/// Requested size of the socket's buffer, for the moments in which no thread reads.
const BUFFER: usize = 32 << 20;

/// Real-time sessions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagrams {
    pub(crate) sessions: usize,
    pub(crate) frame: usize,
    /// Bit/s of frames for each session.
    pub(crate) rate_bps: u64,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Live {
    pub(crate) seconds: f64,
    /// Frames sent, and frames that arrived unchanged.
    pub(crate) sent: u64,
    pub(crate) arrived: u64,
    /// Frames that arrived changed, or twice.
    pub(crate) wrong: u64,
    /// Lateness of the source, in seconds, when it could not send frames in time.
    pub(crate) behind_s: f64,
    /// Processor time of the data node.
    pub(crate) cpu_s: f64,
    /// Memory of the data node before the first session and after the last frame, in bytes.
    pub(crate) memory: [u64; 2],
    /// Datagrams that the data node read, reports among them.
    pub(crate) read: u64,
    /// Copies that it sent.
    pub(crate) copies: u64,
    /// Frames that it dropped because a queue was full.
    pub(crate) dropped: u64,
}

impl Live {
    /// Memory for each session, in bytes.
    pub(crate) fn per_session(&self, sessions: usize) -> f64 {
        self.memory[1].saturating_sub(self.memory[0]) as f64 / sessions.max(1) as f64
    }
}

impl Stage {
    /// Lets sessions flow for this long. The data node's processor time is not limited.
    pub(crate) fn live(&self, load: Datagrams, seconds: f64) -> Result<Live> {
        ensure!(load.frame > NUMBER_LEN, "frames of more than 8 bytes");
        let (content, native) = (Content::RealTime, "");
        let mut nodes = DataNodes::start(&self.network, self.gateway, 1, content, native, None)?;
        let [source, sink] = [self.datagrams()?, self.datagrams()?];
        let before = nodes.forwarders.memory();
        let to = sink.local_address()?;
        let channels = nodes.send_down(0, 0..load.sessions, 1, to)?;
        nodes.receive(0, 0..load.sessions, source.local_address()?)?;
        let at = channels.first().context("no session")?.0;
        let labels = channels.iter().map(|(_, label)| *label).collect();
        let shared = Arc::new(Shared::default());
        let hears = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || receive(&sink, at, labels, load.frame, &shared))
        };
        let cpu = nodes.forwarders.cpu_time();
        let begun = Instant::now();
        let sent = send(&source, at, load, seconds);
        let took = begun.elapsed().as_secs_f64();
        let cpu = nodes.forwarders.cpu_time() - cpu;
        if let Ok(sent) = sent {
            shared.drain(sent);
        }
        shared.over.store(true, Ordering::Relaxed);
        hears
            .join()
            .map_err(|_| anyhow!("the receiver panicked"))??;
        let memory = [before, nodes.forwarders.memory()];
        let count = |name| nodes.counter(name);
        Ok(Live {
            seconds: took,
            sent: sent?,
            arrived: shared.arrived.load(Ordering::Relaxed),
            wrong: shared.wrong.load(Ordering::Relaxed),
            behind_s: (took - seconds).max(0.0),
            cpu_s: cpu.as_secs_f64(),
            memory,
            read: count("datagrams_received")?,
            copies: count("copies")?,
            dropped: count("queue_full")?,
        })
    }

    fn datagrams(&self) -> Result<UdpSocket> {
        let config = inet::Config {
            receive_buffer_bytes: BUFFER,
            ..inet::Config::new(([127, 0, 0, 1], 0).into())
        };
        self.network
            .within(self.gateway, || Ok(UdpSocket::open(&config)?))
    }
}

#[derive(Debug, Default)]
struct Shared {
    over: AtomicBool,
    arrived: AtomicU64,
    wrong: AtomicU64,
}

impl Shared {
    /// Waits for data in flight.
    fn drain(&self, sent: u64) {
        let mut last = (self.arrived.load(Ordering::Relaxed), Instant::now());
        while last.0 < sent && last.1.elapsed() < SILENCE {
            std::thread::sleep(Duration::from_millis(5));
            let arrived = self.arrived.load(Ordering::Relaxed);
            if arrived > last.0 {
                last = (arrived, Instant::now());
            }
        }
    }
}

/// Sends all queued packets.
fn push(socket: &UdpSocket, to: SocketAddr, mut bytes: &[u8], len: usize) -> Result<()> {
    while !bytes.is_empty() {
        let transmit = Transmit {
            source: None,
            destination: to,
            bytes,
            segment_len: Some(len),
        };
        match socket.send(&transmit) {
            Ok(taken) => bytes = &bytes[taken..],
            Err(SendError::WouldBlock) => {
                poll::wait(&mut [Watch::writable(socket.as_fd())], None)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// All sessions in turn, evenly over time; how many frames.
fn send(socket: &UdpSocket, to: SocketAddr, load: Datagrams, seconds: f64) -> Result<u64> {
    let payload = content::payload(load.frame);
    let whole = HEADER_LEN + load.frame;
    let each_s = load.rate_bps as f64 / 8.0 / load.frame as f64;
    let rate = each_s * load.sessions as f64;
    let frames = (rate * seconds) as u64;
    let begun = Instant::now();
    let mut bytes = Vec::with_capacity(PIECE + whole);
    let mut sent = 0;
    while sent < frames {
        let due = ((begun.elapsed().as_secs_f64() * rate) as u64).min(frames);
        while sent < due {
            bytes.clear();
            while sent < due && bytes.len() + whole <= PIECE {
                let (session, number) = (
                    (sent % load.sessions as u64) as usize,
                    sent / load.sessions as u64,
                );
                let start = bytes.len();
                bytes.resize(start + HEADER_LEN, 0);
                Repr {
                    sequence: number as u32,
                    timestamp_us: begun.elapsed().as_micros() as u32,
                    payload_len: load.frame,
                    ..Repr::new(Kind::Data, label(session)?)
                }
                .emit(&mut bytes[start..]);
                bytes.extend_from_slice(&number.to_be_bytes());
                bytes.extend_from_slice(&payload);
                sent += 1;
            }
            push(socket, to, &bytes, whole)?;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    Ok(sent)
}

/// A session, as its receiver sees it.
struct Session {
    receiver: Receiver,
    /// Received numbers: the lowest missing one, and the received ones above it.
    next: u64,
    above: Vec<u64>,
}

impl Session {
    /// Whether a number is new.
    fn take(&mut self, number: u64) -> bool {
        if number < self.next || self.above.contains(&number) {
            return false;
        }
        self.above.push(number);
        while let Some(at) = self.above.iter().position(|&other| other == self.next) {
            self.above.swap_remove(at);
            self.next += 1;
        }
        // A packet that is missing for long counts as lost, which bounds the list.
        if self.above.len() > 64 {
            self.next = self.above.iter().copied().min().unwrap_or(self.next);
        }
        true
    }
}

/// Receives packets, and sends reports.
fn receive(
    socket: &UdpSocket,
    to: SocketAddr,
    labels: Vec<FlowLabel>,
    frame: usize,
    shared: &Shared,
) -> Result<()> {
    let begun = Instant::now();
    let payload = content::payload(frame);
    let places: BTreeMap<FlowLabel, usize> = labels.iter().copied().zip(0..).collect();
    let fresh = || Session {
        receiver: Receiver::new(At::ZERO),
        next: 0,
        above: Vec::new(),
    };
    let mut sessions: Vec<Session> = labels.iter().map(|_| fresh()).collect();
    let mut batch = Batch::new(Batch::MAX);
    let mut reports = Vec::new();
    // The node sends nothing before this address has repeated a cookie.
    let (mut cookie, mut proved, mut asked) = (0, false, None::<Instant>);
    while !shared.over.load(Ordering::Relaxed) {
        let timeout = Some(Duration::from_millis(20));
        poll::wait(&mut [Watch::readable(socket.as_fd())], timeout)?;
        // Errors stem from reports that no socket received.
        let _ = socket.receive(&mut batch);
        let now = At::from_micros(begun.elapsed().as_micros() as i64);
        for received in batch.received() {
            let Ok(packet) = Packet::new_checked(received.payload) else {
                shared.wrong.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            if packet.kind() == Kind::Echo {
                (proved, asked) = (packet.cookie() == cookie, None);
                cookie = packet.cookie();
            }
            if packet.kind() != Kind::Data {
                continue;
            }
            let place = places.get(&packet.label()).copied();
            let number = packet.payload().first_chunk::<NUMBER_LEN>();
            let (Some(place), Some(number)) = (place, number) else {
                shared.wrong.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            let session = &mut sessions[place];
            let right = packet.payload()[NUMBER_LEN..] == payload[..];
            let counter = match right && session.take(u64::from_be_bytes(*number)) {
                true => &shared.arrived,
                false => &shared.wrong,
            };
            counter.fetch_add(1, Ordering::Relaxed);
            let len = received.payload.len();
            let (sequence, time) = (packet.sequence(), packet.timestamp_us());
            let receiver = &mut session.receiver;
            receiver.receive(now, sequence, time, packet.rtt_us(), len);
            if let Some(report) = receiver.poll_report(now) {
                append(&mut reports, packet.label(), &report);
            }
        }
        push(socket, to, &reports, HEADER_LEN + report::LEN)?;
        reports.clear();
        let due = asked.is_none_or(|at| at.elapsed() >= Duration::from_millis(100));
        if let Some(&label) = labels.first().filter(|_| !proved && due) {
            asked = Some(Instant::now());
            let mut probe = [0; HEADER_LEN];
            let sequence = 1;
            let repr = Repr::new(Kind::Probe, label).with_cookie(cookie);
            Repr { sequence, ..repr }.emit(&mut probe);
            push(socket, to, &probe, HEADER_LEN)?;
        }
    }
    Ok(())
}

fn append(reports: &mut Vec<u8>, label: FlowLabel, report: &report::Repr) {
    let start = reports.len();
    reports.resize(start + HEADER_LEN + report::LEN, 0);
    Repr {
        payload_len: report::LEN,
        ..Repr::new(Kind::Report, label)
    }
    .emit(&mut reports[start..]);
    report.emit(&mut reports[start + HEADER_LEN..]);
}
