//! Mutated packets: truncated, or with a flipped bit.

use lms_proto::router::Verdict;
use lms_proto::wire::encap::{DmcastRepr, Placement};
use lms_proto::{Form, Iface};

use crate::common::*;
use crate::refusals::*;

/// The good packets, and where they come from.
fn goldens() -> Vec<(Iface, Vec<u8>)> {
    let mut goldens = vec![(UP, turned_request())];
    for form in [Form::Classic, Form::Own] {
        goldens.push((DOWN, request(KEY, None, form)));
        for placement in [Placement::Outer, Placement::Inner] {
            let repr = DmcastRepr {
                cookie: point(DOWN, form).cookie,
                ..dmcast_repr(number(DOWN), form, placement)
            };
            goldens.push((REPLIER, compose(&repr, &inner(KEY))));
        }
    }
    goldens
}

#[test]
fn every_truncation_is_dropped() {
    for (from, packet) in goldens() {
        for len in 0..packet.len() {
            let mut router = asked_router();
            let before = state(&router);
            let mut bytes = packet[..len].to_vec();
            let verdict = router.forward(NOW, &meta(from), &mut bytes);
            assert!(matches!(verdict, Verdict::Drop(_)), "{len}: {verdict:?}");
            assert_eq!(bytes, packet[..len]);
            assert_eq!(state(&router), before);
        }
    }
}

/// A flipped bit in a header is found by the checksum if by nothing else: the packet is dropped or
/// is none of ours. In the payload it is not the router's to see.
#[test]
fn every_bit_flip_of_a_header_is_refused() {
    for (from, packet) in goldens() {
        let payload = packet.len() - if from == REPLIER { 30 } else { 20 };
        for bit in 0..packet.len() * 8 {
            let mut flipped = packet.clone();
            flipped[bit / 8] ^= 0x80 >> (bit % 8);
            let mut router = asked_router();
            let before = state(&router);
            let mut bytes = flipped.clone();
            let verdict = router.forward(NOW, &meta(from), &mut bytes);
            let refused = matches!(verdict, Verdict::Drop(_) | Verdict::Pass);
            assert_eq!(refused, bit / 8 < payload, "bit {bit}: {verdict:?}");
            if refused {
                assert_eq!(bytes, flipped);
                assert_eq!(state(&router), before);
            }
        }
    }
}

/// The same with the checksums mended, as a forger would: whatever leaves is valid, and to nowhere
/// but the entry's interfaces.
#[test]
fn every_mended_bit_flip_is_refused_or_harmless() {
    for (from, packet) in goldens() {
        let inner_at = usize::from(packet[0] & 0x0f) * 4;
        let is_dmcast = from == REPLIER;
        for bit in 0..packet.len() * 8 {
            let mut bytes = packet.clone();
            bytes[bit / 8] ^= 0x80 >> (bit % 8);
            for header in [0, inner_at] {
                let words = usize::from(bytes[header] & 0x0f);
                let end = header + words * 4;
                if words >= 5 && end <= bytes.len() && (header == 0 || is_dmcast) {
                    lms_proto::wire::ipv4::fill_checksum(&mut bytes[header..end]);
                }
            }
            let mut router = asked_router();
            match router.forward(NOW, &meta(from), &mut bytes) {
                Verdict::Drop(_) | Verdict::Pass => {}
                Verdict::Forward { output, packet, .. } => {
                    assert!([UP, REPLIER].contains(&output.iface), "bit {bit}");
                    assert_valid(&bytes[packet]);
                }
                Verdict::Multicast { iface, packet } => {
                    assert!([REPLIER, DOWN, DOWN2].contains(&iface), "bit {bit}");
                    assert_valid(&bytes[packet]);
                }
            }
        }
    }
}

fn assert_valid(packet: &[u8]) {
    let layout = lms_proto::wire::ipv4::Layout::check(packet).unwrap();
    assert!(lms_proto::wire::ipv4::checksum_ok(
        &packet[..layout.header_len]
    ));
    assert_eq!(layout.total_len, packet.len());
}
