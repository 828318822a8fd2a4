//! Frames of real-time sessions that are longer than a datagram.

use bfed::data::{DataError, Destination, Meta, Verdict};
use bfed::wire::data::{HEADER_LEN, Kind, Packet, Repr};
use bfed::wire::fragment;
use bfed::wire::join::FlowChannel;
use bfed::wire::subscribe::Edge;
use bfed::*;

use crate::fake::{OTHER, PEER, Sent, Station, introduce};

const LIVE: &str = "bfed://1/m/?content=real-time";

/// IPv4 and UDP headers before a datagram.
const HEADERS: usize = 28;

/// Three data nodes in a line: the last has clients.
fn line() -> [Station; 3] {
    let [mut first, mut middle, mut last] = [1, 2, 3].map(Station::new);
    first.subscribe(true, LIVE, Edge::Native, &[]).unwrap();
    let theirs = middle.allocate(LIVE, PEER);
    let ours = first.subscribe(false, LIVE, PEER, &theirs).unwrap();
    middle.subscribe(true, LIVE, PEER, &ours).unwrap();
    let theirs = last.allocate(LIVE, PEER);
    let ours = middle.subscribe(false, LIVE, OTHER, &theirs).unwrap();
    last.subscribe(true, LIVE, PEER, &ours).unwrap();
    last.subscribe(false, LIVE, Edge::Native, &[]).unwrap();
    introduce(&mut first, &mut middle);
    introduce(&mut middle, &mut last);
    [first, middle, last]
}

/// Delivers the packets sent, on a path with an MTU of 1,500 bytes: longer ones are lost.
fn carry(from: &Station, sent: Vec<Sent>, at: &mut Station) -> Vec<Sent> {
    let mut out = vec![];
    for (to, bytes) in sent {
        let fits = bytes.len() + HEADERS <= 1500;
        if fits && to == Destination::Datagram(at.address) {
            out.extend(
                at.packet(Meta::Datagram(from.address), bytes)
                    .unwrap_or_default(),
            );
        }
    }
    out
}

/// Lets time pass at all of them, and delivers their packets.
fn run([first, middle, last]: &mut [Station; 3], millis: usize) {
    for _ in 0..millis {
        for station in [&mut *first, &mut *middle, &mut *last] {
            station.wait(1);
            station.events();
        }
        for _ in 0..2 {
            let sent = first.drain();
            let on = carry(first, sent, middle);
            carry(middle, on, last);
            let mut down = middle.drain();
            let up = down.clone();
            carry(middle, up, first);
            down.retain(|(to, _)| *to == Destination::Datagram(last.address));
            carry(middle, down, last);
            let up = last.drain();
            carry(last, up, middle);
        }
    }
}

fn frame(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 / 3) as u8).collect()
}

#[test]
fn long_frames_arrive_whole_through_a_path_of_1500_bytes() {
    let mut line = line();
    // Real-time data is sent at the rate that the path takes: it is known after some packets.
    for _ in 0..20 {
        let sent = line[0].native_data(1, b"first").unwrap();
        let [first, middle, last] = &mut line;
        let on = carry(first, sent, middle);
        carry(middle, on, last);
        run(&mut line, 50);
    }
    for len in [1452, 1453, 1472, 1473, 16_384, 65_000] {
        line[2].native().sent.clear();
        let sent = line[0].native_data(1, &frame(len)).unwrap();
        let [first, middle, last] = &mut line;
        let on = carry(first, sent, middle);
        carry(middle, on, last);
        run(&mut line, 300);
        let got: Vec<_> = line[2].native().sent.iter().map(|(_, data)| data).collect();
        assert_eq!(got.len(), 1, "{len}: one frame");
        assert!(*got[0] == frame(len), "{len}: the same bytes");
    }
}

/// A data node with a source and clients, and the label of the incoming packets.
fn receiver() -> (Station, FlowLabel) {
    let mut station = Station::new(1);
    let label = FlowLabel::new(7).unwrap();
    let theirs = [FlowChannel {
        label: Some(label),
        address: ChannelAddress::Datagram(([10, 0, 0, 2], 4000).into()),
    }];
    station.allocate(LIVE, PEER);
    station.subscribe(true, LIVE, PEER, &theirs).unwrap();
    station.subscribe(false, LIVE, Edge::Native, &[]).unwrap();
    (station, label)
}

fn piece(
    label: FlowLabel,
    sequence: u32,
    (frame, index, count): (u32, u8, u8),
    bytes: &[u8],
) -> Vec<u8> {
    let repr = Repr {
        sequence,
        payload_len: fragment::LEN + bytes.len(),
        ..Repr::new(Kind::Fragment, label)
    };
    let mut packet = vec![0; repr.buffer_len()];
    repr.emit(&mut packet);
    fragment::Repr {
        frame,
        index,
        count,
    }
    .emit(&mut packet[HEADER_LEN..]);
    packet[HEADER_LEN + fragment::LEN..].copy_from_slice(bytes);
    packet
}

const FROM: Meta = Meta::Datagram(std::net::SocketAddr::V4(std::net::SocketAddrV4::new(
    std::net::Ipv4Addr::new(10, 0, 0, 2),
    4000,
)));

#[test]
fn fragments_in_any_order_twice_and_of_several_frames() {
    let (mut station, label) = receiver();
    let pieces = [
        (2, 1, 2, "d"),
        (1, 2, 3, "c"),
        (1, 0, 3, "a"),
        (1, 0, 3, "x"),
        (2, 0, 2, "ab"),
        (1, 1, 3, "b"),
    ];
    for (sequence, (number, index, count, bytes)) in pieces.into_iter().enumerate() {
        let packet = piece(
            label,
            sequence as u32 + 1,
            (number, index, count),
            bytes.as_bytes(),
        );
        station.packet(FROM, packet).unwrap();
    }
    station.drain();
    let sent: Vec<_> = station
        .native()
        .sent
        .iter()
        .map(|(_, data)| &data[..])
        .collect();
    assert_eq!(sent, [&b"abd"[..], b"abc"]);
}

#[test]
fn fragments_that_lie_are_dropped_and_the_next_frame_arrives() {
    let (mut station, label) = receiver();
    let mut sequence = 0;
    let mut send = |station: &mut Station, number, bytes: &[u8]| {
        sequence += 1;
        let packet = piece(label, sequence, number, bytes);
        station.packet(FROM, packet).map(drop)
    };
    for wrong in [(1, 0, 0), (1, 0, 1), (1, 3, 3), (1, 0, 65), (1, 255, 255)] {
        let refused = send(&mut station, wrong, b"x");
        assert!(matches!(refused, Err(Verdict::Drop(DataError::Malformed))));
    }
    assert!(send(&mut station, (1, 0, 2), b"").is_err());
    // Another count for the same frame, and a frame that is too long.
    let _ = send(&mut station, (2, 0, 3), b"a");
    let _ = send(&mut station, (2, 1, 2), b"a");
    for index in 0..50 {
        let _ = send(&mut station, (3, index, 51), &[0; 1400]);
    }
    assert!(
        station
            .node
            .plane()
            .stats()
            .drops
            .get(DataError::Incomplete)
            >= 2
    );
    let _ = send(&mut station, (4, 0, 2), b"on");
    let _ = send(&mut station, (4, 1, 2), b"ward");
    station.drain();
    assert_eq!(station.native().sent.last().unwrap().1, b"onward");
}

#[test]
fn a_peer_that_sends_parts_of_frames_without_end_is_bounded() {
    let (mut station, label) = receiver();
    for number in 0..20_000_u32 {
        let packet = piece(label, number + 1, (number, 0, 64), &[0; 1000]);
        let _ = station.packet(FROM, packet);
    }
    let dropped = station
        .node
        .plane()
        .stats()
        .drops
        .get(DataError::Incomplete);
    // A frame counts with 3.3 kB, and there are 2 MiB for the peer.
    assert!(dropped >= 20_000 - (2 << 20) / 3000, "{dropped}");
    // After half a second all that waited is dropped with the next fragment.
    station.wait(600);
    let packet = piece(label, 20_001, (20_001, 0, 64), &[0; 1000]);
    let _ = station.packet(FROM, packet);
    let dropped = station
        .node
        .plane()
        .stats()
        .drops
        .get(DataError::Incomplete);
    assert_eq!(dropped, 20_000);
}

#[test]
fn a_full_queue_drops_whole_frames() {
    let mut station = Station::with(1, |config| {
        config.plane.max_queue_bytes = 40_000;
        config.plane.real_time_delay = Duration::from_secs(60);
    });
    station.subscribe(true, LIVE, Edge::Native, &[]).unwrap();
    let to = [FlowChannel {
        label: None,
        address: ChannelAddress::Datagram(([10, 0, 0, 2], 4000).into()),
    }];
    let own = station.subscribe(false, LIVE, PEER, &to).unwrap();
    for _ in 0..10 {
        station.native_data(1, &frame(16_384)).unwrap();
    }
    // Every second packet: the rest begins with the first fragment of a frame.
    station.prove(([10, 0, 0, 2], 4000).into(), own[0].label.unwrap());
    let sent = station.drain();
    let first = sent.iter().find_map(|(_, bytes)| {
        let packet = Packet::new_checked(&bytes[..]).unwrap();
        (packet.kind() == Kind::Fragment).then(|| fragment::Repr::parse(packet.payload()).unwrap())
    });
    assert_eq!(first.unwrap().index, 0);
}

#[test]
fn fragments_go_on_as_they_are_and_native_networks_get_the_frame() {
    let (mut station, label) = receiver();
    let socket = ([10, 0, 0, 3], 4000).into();
    let to = [FlowChannel {
        label: None,
        address: ChannelAddress::Datagram(socket),
    }];
    let own = station.subscribe(false, LIVE, OTHER, &to).unwrap();
    station.prove(socket, own[0].label.unwrap());
    let pieces = [&b"first"[..], b"last"];
    let mut sent = vec![];
    for (index, bytes) in (0..).zip(pieces) {
        let packet = piece(label, 1 + u32::from(index), (1, index, 2), bytes);
        sent.extend(station.packet(FROM, packet).unwrap());
    }
    let bytes = station.node.plane().stats().bytes;
    assert_eq!(bytes, 2 * fragment::LEN as u64 + 9, "the payload of both");
    sent.extend(station.drain());
    let mut payloads = vec![];
    for (_, bytes) in sent
        .iter()
        .filter(|(to, _)| *to == Destination::Datagram(socket))
    {
        let packet = Packet::new_checked(&bytes[..]).unwrap();
        assert_eq!(packet.kind(), Kind::Fragment);
        payloads.push(packet.payload()[fragment::LEN..].to_vec());
    }
    assert_eq!(payloads, pieces);
    assert_eq!(station.native().sent.len(), 1);
    assert_eq!(station.native().sent[0].1, b"firstlast");
}
