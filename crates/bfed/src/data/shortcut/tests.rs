//! The counts of a shortcut, and packets forwarded by their headers.

use alloc::vec;
use alloc::vec::Vec;

use proto_core::time::Instant;

use super::*;
use crate::data::edge::Carrier as EdgeCarrier;
use crate::data::{Meta, PlaneConfig, Verdict};
use crate::types::Content;

const NOW: Instant = Instant::from_secs(100);
/// The most bytes after which the longest packet is still counted in 32 bits.
const LAST: u32 = u32::MAX - 65_020;
const SOURCE: Meta = Meta::Native(ChannelId(1));

/// A plane that forwards from one native channel to another; the flow, and the edge of the source.
fn plane() -> (Plane, u32, EdgeId) {
    let mut plane = Plane::new(PlaneConfig::default(), [1; 32], NOW);
    let flow = plane.add_flow(Content::Bulk, false, None);
    let mut add = |up, channel| {
        let edge = Edge::new(flow, up, EdgeCarrier::Native(ChannelId(channel)));
        plane.add_edge(NOW, edge, None).expect("few edges")
    };
    let source = add(true, 1);
    add(false, 2);
    (plane, flow, source)
}

/// Forwards a frame. Returns whether it took the shortcut.
fn is_short(plane: &mut Plane, len: usize) -> bool {
    let mut frame = vec![0; HEADER_LEN + len];
    match plane.forward(NOW, &SOURCE, &mut frame) {
        Verdict::Only(_) => true,
        Verdict::Forward(mut cursor) => {
            assert!(plane.next_transmit(NOW, &mut cursor, &mut frame).is_some());
            assert!(plane.next_transmit(NOW, &mut cursor, &mut frame).is_none());
            false
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn counts_move_to_the_flow_before_they_overflow() {
    for (counted, is_last) in [(LAST - 1, false), (LAST, false), (LAST + 1, true)] {
        let (mut plane, flow, source) = plane();
        assert!(!is_short(&mut plane, 10), "the first opens it");
        assert!(is_short(&mut plane, 10));
        let edge = plane.edge(source).expect("it was added");
        let (key, entry) = (edge.key().expect("a channel"), Entry::new(source, edge));
        let shortcut = plane.table.shortcut_mut(&key, entry).expect("it is open");
        shortcut.bytes = counted;
        // One packet was counted.
        let before = u64::from(counted) - HEADER_LEN as u64 + 10;
        assert_eq!(plane.counts(flow).bytes, before);
        let longest = MAX_PAYLOAD_LEN;
        assert_eq!(is_short(&mut plane, longest), !is_last, "{counted}");
        let counts = plane.counts(flow);
        assert_eq!(counts.bytes, before + longest as u64);
        assert_eq!((counts.packets, counts.copies), (3, 3));
        // It begins anew.
        is_short(&mut plane, 10);
        assert!(is_short(&mut plane, 10));
        assert_eq!(plane.counts(flow).bytes, before + longest as u64 + 20);
    }
}

const fn label(number: u32) -> FlowLabel {
    FlowLabel::new(number).expect("a number other than 0")
}

const IN: ConnId = ConnId(7);
const OUT: ConnId = ConnId(8);
const LABEL_IN: FlowLabel = label(70);
const LABEL_OUT: FlowLabel = label(80);

/// A plane that forwards from one TCP channel to another; the flow, and the edge of the receiver.
fn stream_plane() -> (Plane, u32, EdgeId) {
    let mut plane = Plane::new(PlaneConfig::default(), [1; 32], NOW);
    let flow = plane.add_flow(Content::Bulk, false, None);
    let mut add = |up, conn, label_in, label_out| {
        let remote = ([192, 0, 2, conn as u8], 4004).into();
        let mut edge = Edge::new(flow, up, EdgeCarrier::Stream(remote));
        edge.rest.label_in = label_in;
        edge.label_out = label_out;
        let id = plane.add_edge(NOW, edge, None).expect("few edges");
        assert!(plane.set_stream(id, ConnId(conn)));
        id
    };
    add(true, IN.0, Some(LABEL_IN), None);
    let out = add(false, OUT.0, None, Some(LABEL_OUT));
    (plane, flow, out)
}

fn packet(label: FlowLabel, kind: Kind, payload_len: usize) -> Vec<u8> {
    let mut packet = vec![0; HEADER_LEN + payload_len];
    let repr = Repr {
        payload_len,
        ..Repr::new(kind, label)
    };
    repr.emit(&mut packet);
    packet
}

fn header(packet: &[u8]) -> [u8; HEADER_LEN] {
    *packet.first_chunk().expect("it has a header")
}

/// Forwards a whole packet to the only receiver.
fn forward_whole(plane: &mut Plane) {
    let mut whole = packet(LABEL_IN, Kind::Data, 100);
    let meta = Meta::Stream(IN, [192, 0, 2, 7].into());
    match plane.forward(NOW, &meta, &mut whole) {
        Verdict::Only(_) => {}
        Verdict::Forward(mut cursor) => {
            while plane.next_transmit(NOW, &mut cursor, &mut whole).is_some() {}
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_header_alone_is_forwarded_as_a_whole_packet_is() {
    let (mut plane, flow, out) = stream_plane();
    let mut first = header(&packet(LABEL_IN, Kind::Data, 16 << 10));
    let untouched = first;
    assert_eq!(
        plane.forward_header(NOW, IN, &mut first),
        None,
        "no shortcut yet"
    );
    assert_eq!(first, untouched);
    forward_whole(&mut plane);
    let copy = plane
        .forward_header(NOW, IN, &mut first)
        .expect("it is open");
    assert_eq!((copy.to, copy.edge), (Destination::Stream(OUT), out));
    assert_eq!(copy.range, 0..HEADER_LEN + (16 << 10));
    assert_eq!(first, header(&packet(LABEL_OUT, Kind::Data, 16 << 10)));
    let counts = plane.counts(flow);
    assert_eq!((counts.packets, counts.copies), (2, 2));
    assert_eq!(counts.bytes, 100 + (16 << 10));
}

#[test]
fn headers_that_need_the_whole_packet_change_nothing() {
    let (mut plane, flow, out) = stream_plane();
    forward_whole(&mut plane);
    let mut malformed = header(&packet(LABEL_IN, Kind::Data, 100));
    malformed[0] = !malformed[0];
    let others = [
        (IN, header(&packet(label(71), Kind::Data, 100))),
        (OUT, header(&packet(LABEL_IN, Kind::Data, 100))),
        (IN, header(&packet(LABEL_IN, Kind::Fragment, 100))),
        (IN, malformed),
    ];
    for (conn, other) in others {
        let mut after = other;
        assert_eq!(plane.forward_header(NOW, conn, &mut after), None);
        assert_eq!(after, other);
    }
    // A receiver that takes no more: packets wait in the queue.
    plane.blocked(out);
    let mut waiting = header(&packet(LABEL_IN, Kind::Data, 100));
    assert_eq!(plane.forward_header(NOW, IN, &mut waiting), None);
    assert_eq!(plane.counts(flow).packets, 1);
    plane.writable(NOW, out);
    assert_eq!(
        plane.forward_header(NOW, IN, &mut waiting),
        None,
        "the next opens it again"
    );
    forward_whole(&mut plane);
    assert!(plane.forward_header(NOW, IN, &mut waiting).is_some());
}
