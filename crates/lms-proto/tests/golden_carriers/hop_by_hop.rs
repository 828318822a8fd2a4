//! The option of the hop-by-hop header: chains of options, and dmcasts of IPv6 in IPv6.

use std::net::Ipv6Addr;

use lms_proto::router::{DropReason, Verdict};
use lms_proto::wire::found::OptionError;
use lms_proto::wire::ipv6;
use lms_proto::{Family, Kind, LmsOption};

use crate::common::*;

#[test]
fn chains_of_hop_by_hop_options() {
    let pieces: [&[u8]; 6] = [
        &[],
        &[0],                      // Pad1
        &[1, 0],                   // PadN without bytes
        &[1, 3, 0, 0, 0],          // PadN
        &[5, 2, 0, 0],             // router alert
        &[0x1e, 4, 0x11, 2, 3, 4], // unknown, to be skipped
    ];
    for before in pieces {
        for between in pieces {
            for after in pieces {
                let before = [before, between].concat();
                let mut bytes = chain(&before, after);
                let mut router = router::<Ipv6Addr>();
                let verdict = router.forward(NOW, &meta(DOWN), &mut bytes);
                let Verdict::Forward { output, .. } = verdict else {
                    panic!("{before:?} {after:?}: {verdict:?}");
                };
                assert_eq!(output.iface, REPLIER);
                let layout = ipv6::Layout::check(&bytes).unwrap();
                let found = ipv6::find_lms(&bytes, layout).unwrap().unwrap();
                assert_eq!(found.option.at, 42 + before.len());
                assert!(found.body.turning_iface.is_set() && found.cookie > Some(0));
            }
        }
    }
}

#[test]
fn chains_that_no_router_forwards() {
    let drop = |before: &[u8], after: &[u8]| {
        let mut bytes = chain(before, after);
        router::<Ipv6Addr>().forward(NOW, &meta(DOWN), &mut bytes)
    };
    for action in 1..4u8 {
        let unknown = [action << 6 | 0x1e, 0];
        let verdict = drop(&unknown, &[]);
        assert_eq!(verdict, Verdict::Drop(DropReason::ForbiddingOption));
        assert_eq!(drop(&[], &unknown), verdict);
    }
    let mut twice = [0; 64];
    twice.copy_from_slice(&chain(&[], &[])[42..106]);
    let verdict = drop(&twice, &[]);
    assert_eq!(verdict, Verdict::Drop(DropReason::DuplicateOption));
    // An option whose length leads past the header.
    let verdict = drop(&[], &[0x1e, 200]);
    assert_eq!(verdict, Verdict::Drop(DropReason::OptionTruncated));
    let bytes = chain(&[], &[0x1e]);
    let layout = ipv6::Layout::check(&bytes).unwrap();
    // Pad1 completes it: a type without its length byte is the last byte of a header.
    let mut cut = bytes.clone();
    let last = layout.header_len - 1;
    cut[last] = 0x1e;
    cut[106..last].fill(0);
    let found = ipv6::find_lms(&cut, layout);
    assert_eq!(found, Err(OptionError::Truncated));
}

#[test]
fn a_header_that_is_longer_than_the_packet() {
    let mut bytes = chain(&[], &[]);
    bytes[41] = 255;
    let verdict = router::<Ipv6Addr>().forward(NOW, &meta(DOWN), &mut bytes);
    assert_eq!(verdict, Verdict::Drop(DropReason::TotalLength));
}

/// The bytes of a packet, cut to a length that its header agrees with.
fn cut(whole: &[u8], len: usize) -> Vec<u8> {
    let mut packet = whole[..len].to_vec();
    packet[4..6].copy_from_slice(&((len - ipv6::HEADER_LEN) as u16).to_be_bytes());
    packet
}

/// A request with extension headers of 8 and 16 bytes of these kinds after the hop-by-hop header. Returns it with the offset
/// of its payload, which the header `last` begins.
fn extended(kinds: &[u8], last: u8, payload: &[u8]) -> (Vec<u8>, usize) {
    let mut packet = chain(&[], &[]);
    packet.truncate(ipv6::HEADER_LEN + ipv6::OPTIONS_LEN);
    packet[ipv6::HEADER_LEN] = *kinds.first().unwrap_or(&last);
    for (at, kind) in kinds.iter().enumerate() {
        let next = *kinds.get(at + 1).unwrap_or(&last);
        // An authentication header counts words of four bytes less two, the others words of eight less one.
        let (units, len) = match (*kind, at % 2) {
            (ipv6::AUTHENTICATION, 0) => (0, 8),
            (ipv6::AUTHENTICATION, _) => (2, 16),
            (_, 0) => (0, 8),
            (_, _) => (1, 16),
        };
        let end = packet.len() + len;
        packet.extend([next, units]);
        packet.resize(end, 0);
    }
    let at = packet.len();
    packet.extend(payload);
    (cut(&packet, packet.len()), at)
}

/// All chains of up to three headers that may stand before a fragment header.
fn extension_headers() -> Vec<Vec<u8>> {
    let kinds = [
        ipv6::HOP_BY_HOP,
        ipv6::ROUTING,
        ipv6::AUTHENTICATION,
        ipv6::DESTINATION_OPTIONS,
    ];
    let mut all = vec![Vec::new()];
    for from in 0..1 + 4 + 16 {
        for kind in kinds {
            all.push([&all[from][..], &[kind]].concat());
        }
    }
    all
}

#[test]
fn fragments_are_no_requests_after_every_chain_of_headers() {
    let mut router = router::<Ipv6Addr>();
    let mut forward = |mut bytes: Vec<u8>| {
        let before = bytes.clone();
        let verdict = router.forward(NOW, &meta(DOWN), &mut bytes);
        assert_eq!(bytes, before);
        verdict
    };
    for kinds in extension_headers() {
        // A first fragment, and later ones, of which no byte is a header.
        for (next, offset) in [(17, [0, 1]), (17, [0, 9]), (60, [0, 9]), (60, [0, 8])] {
            let fragment = [&[next, 0][..], &offset, &[0, 0, 0, 7], &[0xff; 24]].concat();
            let (whole, at) = extended(&kinds, ipv6::FRAGMENT, &fragment);
            assert!(Ipv6Addr::read_ip(&whole).unwrap().is_fragment, "{kinds:?}");
            let refused = Verdict::Drop(DropReason::RequestFragment);
            assert_eq!(forward(whole.clone()), refused, "{kinds:?}");
            for len in ipv6::HEADER_LEN + ipv6::OPTIONS_LEN..at {
                let refused = Verdict::Drop(DropReason::TotalLength);
                assert_eq!(forward(cut(&whole, len)), refused, "{kinds:?} {len}");
            }
        }
    }
}

#[test]
fn requests_without_a_fragment_header_pass_after_every_chain_of_headers() {
    for kinds in extension_headers() {
        // Neither the bytes of UDP nor those after another protocol's number are a header.
        for last in [17, 59] {
            let (mut bytes, _) = extended(&kinds, last, &[ipv6::FRAGMENT; 20]);
            assert!(!Ipv6Addr::read_ip(&bytes).unwrap().is_fragment, "{kinds:?}");
            let verdict = router::<Ipv6Addr>().forward(NOW, &meta(DOWN), &mut bytes);
            assert!(matches!(verdict, Verdict::Forward { .. }), "{kinds:?}");
        }
    }
}

#[test]
fn a_dmcast_of_ipv6_in_ipv6() {
    let mut router = router::<Ipv6Addr>();
    let mut bytes = chain(&[], &[]);
    let _ = router.forward(NOW, &meta(DOWN), &mut bytes);
    let turned = <Ipv6Addr as Family>::find_option(&bytes[40..112]).unwrap();
    let point = turned.turning_point.unwrap();
    let inner = packet(Ipv6Addr::SOURCE, Ipv6Addr::GROUP, (4000, 5000), b"repair");
    let option = LmsOption {
        kind: Kind::Dmcast,
        ..turned
    };
    let outer_len = <Ipv6Addr as Family>::outer_len(lms_proto::Form::Own);
    assert_eq!(outer_len, 112);
    let mut bytes = vec![0; outer_len];
    let ends = (Ipv6Addr::HOSTS[1], Ipv6Addr::value(point.router));
    <Ipv6Addr as Family>::emit_outer(
        &mut bytes,
        inner.len(),
        64,
        ends,
        &option,
        lms_proto::Form::Own,
    )
    .unwrap();
    bytes.extend(&inner);
    for len in 0..bytes.len() {
        let verdict = router.forward(NOW, &meta(REPLIER), &mut bytes[..len].to_vec());
        assert!(matches!(verdict, Verdict::Drop(_)), "{len}: {verdict:?}");
    }
    let verdict = router.forward(NOW, &meta(REPLIER), &mut bytes);
    let Verdict::Multicast { iface, packet } = verdict else {
        panic!("{verdict:?}");
    };
    let mut expected = inner;
    expected[7] -= 1;
    assert_eq!((iface, &bytes[packet]), (DOWN, &expected[..]));
}
