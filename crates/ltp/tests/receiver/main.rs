//! A receiver alone, driven step by step: what it makes of each packet, what it requests and reports, when and from
//! which peer.

mod audit;
mod completion;
mod confirmation;
mod congestion;
mod data;
mod digests;
mod end;
mod heartbeats;
mod parity;
mod relay;
mod replier;
mod reports;

use std::net::SocketAddr;

use lms_proto::{Iface, Kind as OptionKind, LmsOption, TurningPoint};
use ltp::digest::{Digest, Hashing};
use ltp::store::{HeapRing, Store};
use ltp::wire::digests::put_digest;
use ltp::wire::report::{Report, ReportAck, Verdict};
use ltp::wire::request::{self, Kind};
use ltp::wire::{Seq, data as wire_data, digests as wire_digests, sync};
use ltp::{
    Destination, Duration, Error, Failure, Geometry, Instant, Meta, Receiver, ReceiverConfig,
    ReceiverEvent, SessionId,
};

/// Blocks of four packets.
const BLOCK: usize = 1_024;
const PAYLOAD: usize = 256;
const SESSION: SessionId = SessionId(77);
/// Sequence of the first packet, shortly before it wraps.
const FIRST: u32 = u32::MAX - 5;

fn at(millis: i64) -> Instant {
    Instant::from_millis(millis)
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn group() -> SocketAddr {
    SocketAddr::from(([239, 1, 2, 3], 5_000))
}

fn source() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 4_000))
}

/// An address on another host.
fn host(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 1, number], 4_000))
}

fn seq(number: u32) -> u32 {
    FIRST.wrapping_add(number)
}

fn content(len: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// A packet that the receiver has sent.
#[derive(Clone, Debug)]
struct Sent {
    at: Instant,
    to: Destination,
    bytes: Vec<u8>,
}

impl Sent {
    fn is(&self, kind: u8) -> bool {
        self.bytes[0] & 0xf == kind
    }

    fn request(&self) -> Option<request::Repr> {
        self.is(5)
            .then(|| request::Repr::parse(&self.bytes).unwrap())
    }

    fn report(&self) -> Option<Report> {
        self.is(6).then(|| Report::parse(&self.bytes).unwrap())
    }
}

fn requests(sent: &[Sent], kind: Kind) -> Vec<request::Repr> {
    let requests = sent.iter().filter_map(Sent::request);
    requests.filter(|request| request.kind == kind).collect()
}

fn reports(sent: &[Sent]) -> Vec<Report> {
    sent.iter().filter_map(Sent::report).collect()
}

/// The packets that requests are for, by number.
fn wanted(sent: &[Sent]) -> Vec<(Destination, Vec<(u32, u32)>)> {
    let ranges = |sent: &Sent| {
        let request = sent
            .request()
            .filter(|request| request.kind == Kind::Data)?;
        let number = |sequence: u32| sequence.wrapping_sub(FIRST);
        let ranges = request.ranges.iter();
        let ranges = ranges.map(|range| (number(range.lo), number(range.hi)));
        Some((sent.to, ranges.collect()))
    };
    sent.iter().filter_map(ranges).collect()
}

/// A receiver, and the packets that its source would send.
struct Lone<S: Store = HeapRing> {
    receiver: Receiver<'static, S>,
    now: Instant,
    content: Vec<u8>,
    hashing: Hashing,
}

impl Lone {
    /// A receiver of a content of that many bytes, before the first heartbeat.
    fn new(len: usize, configure: impl FnOnce(&mut ReceiverConfig)) -> Self {
        let capacity = len.next_multiple_of(BLOCK).max(2 * BLOCK);
        Lone::with_store(content(len), HeapRing::new(capacity), configure)
    }

    /// After a heartbeat that nothing was sent yet.
    fn open(len: usize, configure: impl FnOnce(&mut ReceiverConfig)) -> Self {
        let mut lone = Lone::new(len, configure);
        let heartbeat = lone.heartbeat(0);
        assert_eq!(lone.sync(&heartbeat), Ok(()));
        lone
    }

    fn geometry() -> Geometry {
        Geometry::new(10, PAYLOAD as u16, Seq(FIRST)).unwrap()
    }
}

impl<S: Store> Lone<S> {
    fn with_store(content: Vec<u8>, store: S, configure: impl FnOnce(&mut ReceiverConfig)) -> Self {
        let mut config = ReceiverConfig::new(group());
        config.limits.window_blocks = 16;
        configure(&mut config);
        let hashing = Hashing::new(config.key);
        Lone {
            receiver: Receiver::new(config, store, [4; 32], at(0)),
            now: at(0),
            content,
            hashing,
        }
    }

    /// The first bytes and the ends of what is missing.
    fn missing(&self) -> Vec<(u64, u64)> {
        let missing = self.receiver.missing();
        missing.map(|range| (range.start, range.end)).collect()
    }

    fn values(&self) -> Vec<Digest> {
        let hashing = &self.hashing;
        let block = |(index, block): (usize, &[u8])| hashing.block((index * BLOCK) as u64, block);
        self.content.chunks(BLOCK).enumerate().map(block).collect()
    }

    fn digest(&self) -> Digest {
        self.hashing.whole(&self.content)
    }

    /// A heartbeat after that many packets, of which no digests were sent.
    fn heartbeat(&self, next: u64) -> sync::Repr<'static> {
        sync::Repr {
            session: SESSION,
            silence_ms: 500,
            geometry: Lone::geometry(),
            oldest: 0,
            next,
            length: Some(self.content.len() as u64),
            digested: Some(0),
            digest: None,
            reports: false,
            closing: false,
            stalled: false,
            stream: false,
            parity: false,
            progress_blocks: 0,
            report_window_us: 0,
            answer: None,
            name: b"",
        }
    }

    /// The one after everything was sent.
    fn last_heartbeat(&self) -> sync::Repr<'static> {
        let packets = Lone::geometry().packets(self.content.len() as u64);
        sync::Repr {
            digested: Some(self.content.len().div_ceil(BLOCK) as u64),
            digest: Some(self.digest()),
            ..self.heartbeat(packets.unwrap())
        }
    }

    /// With a key control packets get their authenticator.
    fn handle(&mut self, meta: &Meta, packet: &[u8]) -> Result<(), Error> {
        let mut packet = packet.to_vec();
        if !matches!(packet[0] & 0xf, 1 | 2) {
            let len = packet.len();
            packet.resize(len + self.hashing.overhead(), 0);
            self.hashing.seal(&mut packet, len);
        }
        self.receiver.handle_packet(self.now, meta, &packet)
    }

    fn sync(&mut self, repr: &sync::Repr<'_>) -> Result<(), Error> {
        self.sync_from(&Meta::group(source()), repr)
    }

    fn sync_from(&mut self, meta: &Meta, repr: &sync::Repr<'_>) -> Result<(), Error> {
        let mut packet = vec![0; repr.buffer_len()];
        repr.emit(&mut packet);
        self.handle(meta, &packet)
    }

    /// DATA, or a REPAIR with that tag.
    fn packet(&self, number: u32, repair: Option<u16>) -> Vec<u8> {
        let mut packet = vec![0; PAYLOAD + wire_data::DATA_HEADER_LEN];
        wire_data::Repr {
            repair,
            session: SESSION,
            sequence: Seq(seq(number)),
            number: None,
        }
        .emit(&mut packet);
        let start = self.content.len().min(number as usize * PAYLOAD);
        let end = self.content.len().min(start + PAYLOAD);
        packet[wire_data::DATA_HEADER_LEN..][..end - start]
            .copy_from_slice(&self.content[start..end]);
        packet
    }

    fn data(&mut self, number: u32) -> Result<(), Error> {
        let packet = self.packet(number, None);
        self.handle(&Meta::group(source()), &packet)
    }

    fn all_data(&mut self, numbers: impl IntoIterator<Item = u32>) {
        for number in numbers {
            assert_eq!(self.data(number), Ok(()), "{number}");
        }
    }

    fn repair(&mut self, meta: &Meta, number: u32, tag: u16) -> Result<(), Error> {
        let packet = self.packet(number, Some(tag));
        self.handle(meta, &packet)
    }

    /// Digests to the group, or as an answer.
    fn digests(&mut self, first: usize, last: usize, answer: Option<u64>) -> Result<(), Error> {
        let values = self.values()[first..=last].to_vec();
        self.false_digests(first, &values, answer)
    }

    fn false_digests(
        &mut self,
        first: usize,
        values: &[Digest],
        answer: Option<u64>,
    ) -> Result<(), Error> {
        let repr = wire_digests::Repr {
            session: SESSION,
            first_block: first as u32,
            answer,
            left: false,
            count: values.len(),
        };
        let mut packet = vec![0; repr.buffer_len()];
        repr.emit(&mut packet);
        for (index, value) in values.iter().enumerate() {
            put_digest(&mut packet, index, value);
        }
        let meta = match answer {
            Some(_) => Meta::unicast(source()),
            None => Meta::group(source()),
        };
        self.handle(&meta, &packet)
    }

    /// The source's answer to a report.
    fn answer(&mut self, report: &Report, verdict: Verdict) -> Result<(), Error> {
        self.ack(&ReportAck {
            verdict,
            tag: report.tag,
            session: SESSION,
            receiver: report.receiver,
            token: 5,
        })
    }

    fn ack(&mut self, ack: &ReportAck) -> Result<(), Error> {
        let mut packet = [0; 24];
        ack.emit(&mut packet);
        self.handle(&Meta::unicast(source()), &packet)
    }

    fn poll(&mut self) -> Vec<Sent> {
        let mut buffer = vec![0; 10_000];
        let mut sent = Vec::new();
        while let Some(transmit) = self.receiver.poll_transmit(self.now, &mut buffer) {
            let packet = &buffer[..transmit.len];
            let is_control = !matches!(packet[0] & 0xf, 1 | 2);
            let opened = is_control.then(|| self.hashing.open(packet).expect("an authenticator"));
            sent.push(Sent {
                at: self.now,
                to: transmit.destination,
                bytes: opened.unwrap_or(packet).to_vec(),
            });
            assert!(sent.len() < 10_000, "it sends without end");
        }
        sent
    }

    /// Drives the receiver up to that time, by its timer alone. Returns what it has sent.
    fn run_to(&mut self, end: Instant) -> Vec<Sent> {
        let mut sent = self.poll();
        let mut calls = 0;
        while let Some(next) = self.receiver.poll_timeout().filter(|&next| next <= end) {
            self.now = self.now.max(next);
            self.receiver.handle_timeout(self.now);
            sent.extend(self.poll());
            calls += 1;
            assert!(calls < 100_000, "a timer that does not stop");
        }
        self.now = end;
        self.receiver.handle_timeout(end);
        sent.extend(self.poll());
        sent
    }

    fn run_for(&mut self, time: Duration) -> Vec<Sent> {
        self.run_to(self.now + time)
    }

    fn events(&mut self) -> Vec<ReceiverEvent> {
        std::iter::from_fn(|| self.receiver.poll_event()).collect()
    }

    fn failure(&mut self) -> Option<Failure> {
        self.events().into_iter().find_map(|event| match event {
            ReceiverEvent::Failed { failure, .. } => Some(failure),
            _ => None,
        })
    }

    /// All of the content comes, with digests; the application is told when there are no reports.
    fn finish(&mut self) {
        let packets = Lone::geometry().packets(self.content.len() as u64).unwrap();
        for number in 0..packets as u32 {
            let _ = self.data(number);
        }
        let blocks = self.content.len().div_ceil(BLOCK);
        for first in (0..blocks).step_by(60) {
            let last = (first + 59).min(blocks - 1);
            assert_eq!(self.digests(first, last, None), Ok(()));
        }
        let last = self.last_heartbeat();
        assert_eq!(self.sync(&last), Ok(()));
    }
}

fn point() -> TurningPoint {
    TurningPoint {
        router: [10, 0, 9, 1].into(),
        iface: Iface(2),
        cookie: 0,
    }
}

/// How a request that a router has turned reaches an elected replier.
fn turned() -> Meta {
    let mut meta = Meta::group(host(9));
    meta.elected = true;
    meta.option = Some(LmsOption {
        kind: OptionKind::Request,
        turning_point: Some(point()),
        source: source().ip(),
        group: group().ip(),
    });
    meta
}
