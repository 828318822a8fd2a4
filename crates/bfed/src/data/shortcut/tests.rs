//! The counts of a shortcut.

use alloc::vec;

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
    let flow = plane.add_flow(Content::Bulk, false);
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
