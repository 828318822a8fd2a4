//! A sender alone, driven step by step: what it sends, when and to which address, and what it makes of requests, of
//! reports and of a relay.

mod congestion;
mod digests;
mod heartbeats;
mod output;
mod parity;
mod relay;
mod reports;
mod requests;

use std::net::SocketAddr;

use lms_proto::{Iface, Kind as OptionKind, LmsOption, TurningPoint};
use ltp::store::{HeapRing, Store};
use ltp::wire::report::{Loss, Report, ReportAck, Status};
use ltp::wire::request::{self, Kind, Range};
use ltp::wire::{data, digests as wire_digests, sync};
use ltp::{
    Destination, Error, Instant, Meta, Sender, SenderConfig, SenderEvent, SessionChoice, SessionId,
};

/// Blocks of four packets.
const BLOCK: usize = 1_024;
const PAYLOAD: usize = 256;
const SESSION: SessionId = SessionId(77);

fn at(millis: i64) -> Instant {
    Instant::from_millis(millis)
}

fn group() -> SocketAddr {
    SocketAddr::from(([239, 1, 2, 3], 5_000))
}

/// An address on that host.
fn host(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 1, number], 4_000))
}

fn content(len: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// A packet that the sender has sent.
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

    fn sync(&self) -> Option<sync::Repr<'_>> {
        self.is(3).then(|| sync::Repr::parse(&self.bytes).unwrap())
    }

    fn ack(&self) -> Option<ReportAck> {
        self.is(7).then(|| ReportAck::parse(&self.bytes).unwrap())
    }

    /// The sequence of DATA or a REPAIR.
    fn sequence(&self) -> Option<u32> {
        let packet = data::Packet::new_checked(&self.bytes[..]);
        (self.is(1) || self.is(2)).then(|| packet.unwrap().sequence().0)
    }

    /// The first block and the values of DIGESTS.
    fn digests(&self) -> Option<(wire_digests::Repr, Vec<[u8; 32]>)> {
        self.is(4).then(|| {
            let (repr, values) = wire_digests::Repr::parse(&self.bytes).unwrap();
            (repr, values.to_vec())
        })
    }
}

fn sequences(sent: &[Sent]) -> Vec<(Destination, u32)> {
    let sequence = |sent: &Sent| Some((sent.to, sent.sequence()?));
    sent.iter().filter_map(sequence).collect()
}

struct Solo<S: Store = HeapRing> {
    sender: Sender<'static, S>,
    now: Instant,
}

impl Solo {
    /// A content in memory.
    fn whole(bytes: &[u8], configure: impl FnOnce(&mut SenderConfig)) -> Self {
        let store = HeapRing::whole(bytes.to_vec());
        Solo::new(store, Some(bytes.len()), configure)
    }

    /// A stream through a ring of that many blocks.
    fn stream(blocks: usize, configure: impl FnOnce(&mut SenderConfig)) -> Self {
        Solo::new(HeapRing::new(blocks * BLOCK), None, configure)
    }
}

impl<S: Store> Solo<S> {
    fn new(store: S, length: Option<usize>, configure: impl FnOnce(&mut SenderConfig)) -> Self {
        let mut config = SenderConfig::new(group());
        config.session = SessionChoice::Fixed(SESSION);
        config.block_exponent = 10;
        config.max_packet_len = (PAYLOAD + data::DATA_HEADER_LEN) as u16;
        config.length = length.map(|length| length as u64);
        configure(&mut config);
        let sender = Sender::new(config, store, [9; 32], at(0)).expect("a configuration");
        Solo { sender, now: at(0) }
    }

    /// Takes all that is to be sent now.
    fn poll(&mut self) -> Vec<Sent> {
        let mut buffer = vec![0; 2_048];
        let mut sent = Vec::new();
        while let Some(transmit) = self.sender.poll_transmit(self.now, &mut buffer) {
            sent.extend(transmit.packets(&buffer).map(|packet| Sent {
                at: self.now,
                to: transmit.destination,
                bytes: packet.to_vec(),
            }));
            assert!(sent.len() < 100_000, "it sends without end");
        }
        sent
    }

    /// Drives the sender up to that time, by its timer alone. Returns what it has sent.
    fn run_to(&mut self, end: Instant) -> Vec<Sent> {
        let mut sent = self.poll();
        let mut calls = 0;
        while let Some(next) = self.sender.poll_timeout().filter(|&next| next <= end) {
            self.now = self.now.max(next);
            self.sender.handle_timeout(self.now);
            sent.extend(self.poll());
            calls += 1;
            assert!(calls < 100_000, "a timer that does not stop");
        }
        self.now = end;
        self.sender.handle_timeout(end);
        sent.extend(self.poll());
        sent
    }

    fn handle(&mut self, meta: &Meta, packet: &[u8]) -> Result<(), Error> {
        self.sender.handle_packet(self.now, meta, packet)
    }

    /// Gives the sender a request.
    fn ask(&mut self, meta: &Meta, repr: &request::Repr) -> Result<(), Error> {
        let mut packet = vec![0; repr.buffer_len()];
        repr.emit(&mut packet);
        self.handle(meta, &packet)
    }

    /// Requests packets, as an address that has no token, or the group.
    fn ask_packets(&mut self, meta: &Meta, lo: u32, hi: u32) -> Result<(), Error> {
        self.ask(meta, &request(Kind::Data, lo, hi))
    }

    /// The token of an address.
    fn token(&mut self, address: SocketAddr) -> u64 {
        let packets = request::Repr {
            kind: Kind::Left,
            ..request(Kind::Left, 1, 1)
        };
        let refused = self.ask(&Meta::unicast(address), &packets);
        assert_eq!(refused, Err(Error::RequestUnverified));
        let sent = self.poll();
        let ack = sent
            .iter()
            .find(|sent| sent.to == Destination::Unicast(address));
        ack.and_then(Sent::ack).expect("a token").token
    }

    fn report(&mut self, from: SocketAddr, report: &Report) -> Result<(), Error> {
        let mut packet = [0; 40];
        report.emit(&mut packet);
        self.handle(&Meta::unicast(from), &packet)
    }

    /// A report of a receiver that has shown its address.
    fn tell(&mut self, from: SocketAddr, status: Status, blocks: u64) -> Result<(), Error> {
        let token = self.report_token(from);
        self.report(from, &report(status, blocks, token))
    }

    /// The token of an address, by way of a report.
    fn report_token(&mut self, from: SocketAddr) -> u64 {
        let refused = self.report(from, &report(Status::Joined, 0, 0));
        assert_eq!(refused, Err(Error::ReportUnverified));
        let sent = self.run_to(self.now);
        let to = Destination::Unicast(from);
        let ack = sent.iter().filter(|sent| sent.to == to).find_map(Sent::ack);
        ack.expect("a token").token
    }

    fn events(&mut self) -> Vec<SenderEvent> {
        std::iter::from_fn(|| self.sender.poll_event()).collect()
    }
}

fn request(kind: Kind, lo: u32, hi: u32) -> request::Repr {
    let mut ranges = request::Repr {
        kind,
        tag: 5,
        session: SESSION,
        number: 1,
        round_trip_us: 0,
        token: 0,
        nonce: 0,
        ranges: Default::default(),
    };
    let _ = ranges.ranges.push(Range { lo, hi });
    ranges
}

/// A report of the receiver with identifier 3.
fn report(status: Status, blocks: u64, token: u64) -> Report {
    Report {
        status,
        tag: 6,
        session: SESSION,
        receiver: 3,
        blocks,
        token,
        digest: 0,
        loss: Loss::default(),
    }
}

/// A request to the group, with the option of LMS.
fn asked(from: SocketAddr, group: SocketAddr, turning_point: Option<TurningPoint>) -> Meta {
    let mut meta = Meta::group(from);
    meta.option = Some(LmsOption {
        kind: OptionKind::Request,
        turning_point,
        source: SocketAddr::from(([10, 0, 0, 1], 4_000)).ip(),
        group: group.ip(),
    });
    meta
}

fn point() -> TurningPoint {
    TurningPoint {
        router: [10, 0, 9, 1].into(),
        iface: Iface(2),
        cookie: 0,
    }
}
