//! Packets that no host of the group has sent: requests, reports, and forgeries of the source's.

use std::net::SocketAddr;

use lms_proto::{Iface, Kind as OptionKind, LmsOption, TurningPoint};
use ltp::digest::Digest;
use ltp::wire::digests::put_digest;
use ltp::wire::report::{Loss, Report, ReportAck, Status};
use ltp::wire::request::{self, Kind, Range};
use ltp::wire::{Seq, data, digests, sync};
use ltp::{Duration, Error, Meta, SessionId};

use super::{Group, group, host, source};

/// A request of one range, with that token, that a router has turned or not.
pub fn request(session: SessionId, kind: Kind, (lo, hi): (u32, u32), token: u64) -> Vec<u8> {
    let mut repr = request::Repr {
        kind,
        tag: 9,
        session,
        number: 1,
        round_trip_us: 0,
        token,
        nonce: 77,
        ranges: Default::default(),
    };
    let _ = repr.ranges.push(Range { lo, hi });
    let mut packet = vec![0; repr.buffer_len()];
    repr.emit(&mut packet);
    packet
}

/// How a request reaches an elected replier when that turning point has turned it, if one has.
pub fn asked(turning_point: Option<TurningPoint>) -> Meta {
    let mut meta = Meta::group(host(9));
    meta.elected = true;
    meta.option = Some(LmsOption {
        kind: OptionKind::Request,
        turning_point,
        source: source().ip(),
        group: group().ip(),
    });
    meta
}

/// A turning point with that last byte of its address.
pub fn point(router: u8, iface: u16) -> TurningPoint {
    TurningPoint {
        router: [10, 0, 9, router].into(),
        iface: Iface(iface),
        cookie: 0,
    }
}

/// A report of the receiver with that identifier.
pub fn report(
    session: SessionId,
    receiver: u64,
    status: Status,
    blocks: u64,
    token: u64,
) -> Report {
    Report {
        status,
        tag: 7,
        session,
        receiver,
        blocks,
        token,
        digest: 0,
        loss: Loss::default(),
    }
}

/// Reports to the sender from that address.
pub fn tell(net: &mut Group, from: SocketAddr, report: &Report) -> Result<(), Error> {
    let mut packet = [0; 40];
    report.emit(&mut packet);
    net.inject_to_sender(&Meta::unicast(from), &packet)
}

/// The token that the sender gives to an address.
pub fn token_of(net: &mut Group, from: SocketAddr) -> u64 {
    let report = report(net.sender().session(), 1, Status::Joined, 0, 0);
    assert_eq!(tell(net, from, &report), Err(Error::ReportUnverified));
    let mut token = None;
    net.run_until(Duration::from_secs(1), |net| {
        let strays = net.take_strays();
        let answer = strays.iter().find(|(to, _)| *to == from);
        let ack = answer.map(|(_, packet)| ReportAck::parse(packet));
        token = ack.map(|ack| ack.expect("an acknowledgement").token);
        token.is_some()
    });
    token.expect("an answer to the report")
}

/// DATA, or a REPAIR with that tag, with an invented payload.
pub fn data_packet(net: &Group, number: u64, repair: Option<u16>) -> Vec<u8> {
    let geometry = net.sender().geometry();
    let mut packet = vec![0x66; geometry.packet_len()];
    data::Repr {
        repair,
        session: net.sender().session(),
        sequence: Seq::of(number, geometry.first()),
        number: None,
    }
    .emit(&mut packet);
    packet
}

/// DIGESTS from that block on, for the group or as the answer to a request with that nonce.
pub fn digests_packet(
    net: &Group,
    first_block: u32,
    values: &[Digest],
    answer: Option<u64>,
) -> Vec<u8> {
    let repr = digests::Repr {
        session: net.sender().session(),
        first_block,
        answer,
        left: false,
        count: values.len(),
    };
    let mut packet = vec![0; repr.buffer_len()];
    repr.emit(&mut packet);
    for (index, value) in values.iter().enumerate() {
        put_digest(&mut packet, index, value);
    }
    packet
}

/// A true heartbeat of a source that wants no reports.
pub fn heartbeat<'n>(net: &Group) -> sync::Repr<'n> {
    let (sent, length) = net.sender().progress();
    let geometry = net.sender().geometry();
    sync::Repr {
        session: net.sender().session(),
        silence_ms: 500,
        geometry,
        oldest: 0,
        next: geometry.first_packet(sent >> geometry.block_exponent()),
        length,
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

pub fn emit(repr: &sync::Repr<'_>) -> Vec<u8> {
    let mut packet = vec![0; repr.buffer_len()];
    repr.emit(&mut packet);
    packet
}
