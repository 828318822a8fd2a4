//! Refusals that do not depend on the carrier: each with every carrier of both families. The packet is dropped, counted
//! under its own reason, and nothing else changes.

use std::net::{Ipv4Addr, Ipv6Addr};

use lms_proto::carrier::{Carrier, Udp};
use lms_proto::router::{Config, DropReason, Policy, Rate, Router, Verdict};
use lms_proto::table::Replier;
use lms_proto::wire::encap::Placement;
use lms_proto::{Form, Iface, Key, Kind, TurningPoint};

use crate::common::{
    DOWN, ELSEWHERE, KEY, NOW, REPLIER, UP, compose, dmcast_repr, expect_drop, meta,
};
use crate::net::*;

/// Runs a check with both options of IPv4 and that of IPv6.
macro_rules! by_each_option {
    ($check:ident) => {
        for form in [Form::Classic, Form::Own] {
            println!("IPv4, {form:?}");
            $check::<Ipv4Addr>(form);
        }
        println!("IPv6");
        $check::<Ipv6Addr>(Form::Own);
    };
}

/// A router that has turned a request drops a packet.
#[track_caller]
fn drops<A: Net>(by: By, from: Iface, packet: &[u8], reason: DropReason) {
    expect_drop(&mut asked::<A>(by).0, from, packet, reason);
}

fn request<A: Net>(by: By) -> Vec<u8> {
    Request::<A>::new(by, key(), None).packet(by)
}

/// The turning point of a router above.
fn above<A: Net>() -> Option<TurningPoint> {
    Some(TurningPoint {
        router: A::host(ELSEWHERE, 99).into(),
        iface: Iface(9),
        cookie: 0,
    })
}

fn turned_request<A: Net>(by: By) -> Vec<u8> {
    Request::<A>::new(by, key(), above::<A>()).packet(by)
}

/// A repair with changed fields.
fn forged<A: Net>(by: By, change: impl FnOnce(&mut Repair<A>)) -> Vec<u8> {
    let mut repair = Repair::new(by);
    change(&mut repair);
    repair.packet(by)
}

/// What is refused below differs in one field from these.
#[test]
fn what_is_right_passes() {
    fn check<A: Net>(by: By) {
        let (mut router, _) = asked::<A>(by);
        let verdict = router.forward(NOW, &meta(UP), &mut turned_request::<A>(by));
        assert!(matches!(verdict, Verdict::Forward { output, .. } if output.iface == REPLIER));
        let mut repair = Repair::<A>::new(by).packet(by);
        let verdict = router.forward(NOW, &meta(REPLIER), &mut repair);
        assert!(matches!(verdict, Verdict::Multicast { iface: DOWN, .. }));
    }
    by_each_carrier!(check);
}

#[test]
fn guessed_keys_are_those_of_requests_and_repairs() {
    fn guess<A: Net>(by: By, packet: &[u8]) -> Option<Key<A>> {
        match by {
            By::Option(_) => A::Option::guess_key(packet),
            By::Datagram => Udp::<A>::guess_key(packet),
        }
    }
    fn check<A: Net>(by: By) {
        let packets = [request::<A>(by), turned_request::<A>(by)];
        for packet in packets.iter().chain([&Repair::<A>::new(by).packet(by)]) {
            assert_eq!(guess::<A>(by, packet), Some(key()));
            for len in 0..packet.len() {
                let guessed = guess::<A>(by, &packet[..len]);
                assert!(guessed.is_none() || guessed == Some(key()), "{len} bytes");
            }
        }
    }
    by_each_carrier!(check);
    for form in [Form::Classic, Form::Own] {
        let repr = dmcast_repr(DOWN, form, Placement::Inner);
        let inner_option = compose(&repr, &crate::common::inner(KEY));
        assert_eq!(
            guess::<Ipv4Addr>(By::Option(form), &inner_option),
            Some(KEY)
        );
    }
}

// Requests.

#[test]
fn group_mismatch() {
    fn check<A: Net>(by: By) {
        let to = |to, turned| {
            let request = Request::<A> {
                to,
                ..Request::new(by, key(), turned)
            };
            request.packet(by)
        };
        drops::<A>(
            by,
            DOWN,
            &to(A::OTHER_GROUP, None),
            DropReason::GroupMismatch,
        );
        let turned = to(A::OTHER_GROUP, above::<A>());
        drops::<A>(by, UP, &turned, DropReason::GroupMismatch);
        if by == By::Datagram {
            let turned = to(key::<A>().source, above::<A>());
            drops::<A>(by, UP, &turned, DropReason::GroupMismatch);
            let unturned = to(A::LINK_GROUP, None);
            drops::<A>(by, DOWN, &unturned, DropReason::GroupMismatch);
        }
    }
    by_each_carrier!(check);
}

#[test]
fn no_entry() {
    fn check<A: Net>(by: By) {
        let turned = Request::<A>::new(by, other_source(), above::<A>()).packet(by);
        drops::<A>(by, UP, &turned, DropReason::NoEntry);
        let mut request = Request::<A>::new(by, other_source(), None);
        if by != By::Datagram {
            drops::<A>(by, DOWN, &request.packet(by), DropReason::NoEntry);
            return;
        }
        // One by datagram is routed on.
        for hops in [0, 1] {
            request.hops = hops;
            drops::<A>(by, DOWN, &request.packet(by), DropReason::TtlExpired);
        }
    }
    by_each_carrier!(check);
}

#[test]
fn not_in_entry() {
    fn check<A: Net>(by: By) {
        let (request, turned) = (request::<A>(by), turned_request::<A>(by));
        for from in [ELSEWHERE, Iface::UNSET, Iface(60_000)] {
            drops::<A>(by, from, &request, DropReason::NotInEntry);
            drops::<A>(by, from, &turned, DropReason::NotInEntry);
        }
    }
    by_each_carrier!(check);
}

#[test]
fn turned_from_below() {
    fn check<A: Net>(by: By) {
        let turned = turned_request::<A>(by);
        drops::<A>(by, DOWN, &turned, DropReason::TurnedFromBelow);
        drops::<A>(by, REPLIER, &turned, DropReason::TurnedFromBelow);
    }
    by_each_carrier!(check);
}

#[test]
fn unturned_from_parent() {
    fn check<A: Net>(by: By) {
        drops::<A>(by, UP, &request::<A>(by), DropReason::UnturnedFromParent);
    }
    by_each_carrier!(check);
}

#[test]
fn no_replier() {
    fn check<A: Net>(by: By) {
        let mut router = router::<A>(Config::default());
        let turned = turned_request::<A>(by);
        expect_drop(&mut router, UP, &turned, DropReason::NoReplier);
    }
    by_each_carrier!(check);
}

#[test]
fn no_parent() {
    fn check<A: Net>(by: By) {
        let mut router = router_with_replier::<A>();
        router
            .install(NOW, key(), Iface::UNSET, &[REPLIER, DOWN])
            .unwrap();
        let request = request::<A>(by);
        expect_drop(&mut router, REPLIER, &request, DropReason::NoParent);
        let from_nowhere = turned_request::<A>(by);
        expect_drop(&mut router, UP, &from_nowhere, DropReason::NotInEntry);
    }
    by_each_carrier!(check);
}

#[test]
fn no_address() {
    // Entries may name interfaces that have no address yet.
    fn check<A: Net>(by: By) {
        let mut router = router_with_replier::<A>();
        let key = Key::new(key::<A>().source, A::OTHER_GROUP);
        let replier = Replier {
            iface: Iface(40),
            ..replier()
        };
        router
            .install(NOW, key, UP, &[Iface(40), Iface(41)])
            .unwrap();
        router.set_replier(NOW, key, Some(replier)).unwrap();
        let request = Request::new(by, key, None).packet(by);
        expect_drop(&mut router, Iface(41), &request, DropReason::NoAddress);
    }
    by_each_carrier!(check);
}

#[test]
fn ttl_expired() {
    fn check<A: Net>(by: By) {
        for hops in [0, 1] {
            let request = Request::<A> {
                hops,
                ..Request::new(by, key(), None)
            };
            let packet = request.packet(by);
            drops::<A>(by, DOWN, &packet, DropReason::TtlExpired);
            drops::<A>(by, REPLIER, &packet, DropReason::TtlExpired);
        }
    }
    by_each_carrier!(check);
}

/// A router whose entry has used its tokens up.
fn exhausted<A: Net>(by: By) -> Router<'static, A> {
    let one = Rate {
        per_second: 1,
        burst: 1,
    };
    let mut router = router(Config {
        policy: Policy::Static,
        request_rate: one,
        dmcast_rate: one,
        ..Config::default()
    });
    router.set_replier(NOW, key(), Some(replier())).unwrap();
    ask(&mut router, by, key());
    let mut repair = Repair::<A>::new(by).packet(by);
    let verdict = router.forward(NOW, &meta(REPLIER), &mut repair);
    assert!(matches!(verdict, Verdict::Multicast { .. }));
    router
}

#[test]
fn request_rate() {
    fn check<A: Net>(by: By) {
        let request = request::<A>(by);
        expect_drop(
            &mut exhausted::<A>(by),
            DOWN,
            &request,
            DropReason::RequestRate,
        );
    }
    by_each_carrier!(check);
}

// Dmcasts.

#[test]
fn dmcast_rate() {
    fn check<A: Net>(by: By) {
        let repair = Repair::<A>::new(by).packet(by);
        expect_drop(
            &mut exhausted::<A>(by),
            REPLIER,
            &repair,
            DropReason::DmcastRate,
        );
    }
    by_each_carrier!(check);
}

#[test]
fn no_turning_point() {
    fn check<A: Net>(by: By) {
        let repair = forged::<A>(by, |repair| repair.point = None);
        drops::<A>(by, REPLIER, &repair, DropReason::NoTurningPoint);
    }
    by_each_carrier!(check);
}

#[test]
fn other_turning_point() {
    // Another router's address, and another address of this one.
    fn check<A: Net>(by: By) {
        for other in [A::host(ELSEWHERE, 99), A::host(DOWN, 1)] {
            let repair = forged::<A>(by, |repair| {
                let point = repair.point.as_mut().unwrap();
                point.router = other.into();
            });
            drops::<A>(by, REPLIER, &repair, DropReason::OtherTurningPoint);
        }
    }
    by_each_carrier!(check);
}

#[test]
fn dmcast_without_entry() {
    fn check<A: Net>(by: By) {
        let other_group = Key::new(key::<A>().source, A::OTHER_GROUP);
        for key in [other_source(), other_group] {
            let repair = forged::<A>(by, |repair| repair.key = key);
            drops::<A>(by, REPLIER, &repair, DropReason::NoEntry);
        }
    }
    by_each_carrier!(check);
}

#[test]
fn a_number_of_no_interface_or_without_its_cookie() {
    fn check<A: Net>(by: By) {
        let reason = match by {
            By::Option(Form::Classic) => DropReason::NotDownstream,
            _ => DropReason::Cookie,
        };
        // Numbers of the interfaces themselves mean nothing on the wire.
        for iface in [DOWN, UP, ELSEWHERE, Iface(60_000), Iface(0xfffe)] {
            let packet = forged::<A>(by, |repair| repair.point.as_mut().unwrap().iface = iface);
            let (mut router, _) = asked::<A>(by);
            let mut bytes = packet.clone();
            let verdict = router.forward(NOW, &meta(REPLIER), &mut bytes);
            assert_eq!(verdict, Verdict::Drop(reason));
            assert_eq!(bytes, packet, "the packet was edited");
            assert_eq!(router.stats().drops.get(reason), 1);
        }
        if reason == DropReason::Cookie {
            for flip in [1, 1 << 63] {
                let repair =
                    forged::<A>(by, |repair| repair.point.as_mut().unwrap().cookie ^= flip);
                drops::<A>(by, REPLIER, &repair, reason);
            }
        }
    }
    by_each_carrier!(check);
}

#[test]
fn no_credit() {
    fn check<A: Net>(by: By) {
        let mut router = router_with_replier::<A>();
        let repair = Repair::<A>::new(by).packet(by);
        expect_drop(&mut router, REPLIER, &repair, DropReason::NoCredit);
    }
    by_each_carrier!(check);
}

#[test]
fn outer_source() {
    // No host, a group, this router, and a host of another of its links.
    fn check<A: Net>(by: By) {
        for from in [A::LOOPBACK, A::GROUP, A::host(UP, 1), A::host(DOWN, 77)] {
            let repair = forged::<A>(by, |repair| repair.from = from);
            drops::<A>(by, REPLIER, &repair, DropReason::OuterSource);
        }
    }
    by_each_carrier!(check);
}

#[test]
fn source_not_seen() {
    fn check<A: Net>(by: By) {
        let mut router = router_with_replier::<A>();
        router.remove(NOW, key());
        let shared = Key::any_source(A::GROUP);
        router.install(NOW, shared, UP, &[REPLIER, DOWN]).unwrap();
        router.set_replier(NOW, shared, Some(replier())).unwrap();
        let point = ask(&mut router, by, key());
        let repair = forged::<A>(by, |repair| repair.point = Some(point));
        expect_drop(&mut router, REPLIER, &repair, DropReason::SourceNotSeen);
    }
    by_each_carrier!(check);
}

#[test]
fn not_on_tree() {
    fn check<A: Net>(by: By) {
        let repair = Repair::<A>::new(by).packet(by);
        drops::<A>(by, ELSEWHERE, &repair, DropReason::NotOnTree);
        drops::<A>(by, Iface::UNSET, &repair, DropReason::NotOnTree);
        // An entry without parent does not make "no interface" one of its own.
        let mut router = router_with_replier::<A>();
        router
            .install(NOW, key(), Iface::UNSET, &[REPLIER, DOWN])
            .unwrap();
        expect_drop(&mut router, Iface::UNSET, &repair, DropReason::NotOnTree);
    }
    by_each_carrier!(check);
}

#[test]
fn inner_ttl_expired() {
    fn check<A: Net>(by: By) {
        for hops in [0, 1] {
            let repair = forged::<A>(by, |repair| repair.hops = hops);
            drops::<A>(by, REPLIER, &repair, DropReason::InnerTtlExpired);
        }
    }
    by_each_carrier!(check);
}

// The packet in a dmcast by option.

/// A router drops a dmcast around these bytes.
#[track_caller]
fn drops_around<A: Net>(form: Form, inner: &[u8], reason: DropReason) {
    let by = By::Option(form);
    let packet = Repair::<A>::new(by).around(inner, form);
    drops::<A>(by, REPLIER, &packet, reason);
}

fn good_inner<A: Net>() -> Vec<u8> {
    inner::<A>(key(), 64, UDP, 30)
}

#[test]
fn inner_header_truncated() {
    fn check<A: Net>(form: Form) {
        for len in 0..A::IP_HEADER_LEN {
            let inner = &good_inner::<A>()[..len];
            drops_around::<A>(form, inner, DropReason::InnerHeaderTruncated);
        }
    }
    by_each_option!(check);
}

#[test]
fn inner_version() {
    fn check<A: Net>(form: Form) {
        // That of the other family.
        let inner = A::change(good_inner::<A>(), |p| p[0] ^= 0x20);
        drops_around::<A>(form, &inner, DropReason::InnerVersion);
    }
    by_each_option!(check);
}

#[test]
fn inner_packet_length() {
    fn check<A: Net>(form: Form) {
        let reason = DropReason::InnerPacketLength;
        let good = good_inner::<A>();
        drops_around::<A>(form, &good[..good.len() - 1], reason);
        drops_around::<A>(form, &[&good[..], &[0]].concat(), reason);
        // Too short for UDP.
        for len in 0..8 {
            drops_around::<A>(form, &inner::<A>(key(), 64, UDP, len), reason);
        }
    }
    by_each_option!(check);
}

#[test]
fn inner_option() {
    fn check<A: Net>(form: Form) {
        // An option of LMS on the data, too.
        let Key { source, group } = key::<A>();
        let option = option(Kind::Request, key::<A>(), None);
        let inner = A::with_option((source, group), 64, &option, form, UDP, &[0xcd; 30]);
        drops_around::<A>(form, &inner, DropReason::InnerOption);
    }
    by_each_option!(check);
}

#[test]
fn inner_fragment() {
    fn check<A: Net>(form: Form) {
        for inner in A::fragments(&good_inner::<A>()) {
            drops_around::<A>(form, &inner, DropReason::InnerFragment);
        }
    }
    by_each_option!(check);
}

#[test]
fn inner_protocol() {
    fn check<A: Net>(form: Form) {
        for protocol in [2, 4, 6, 41, 58, 255] {
            let inner = inner::<A>(key(), 64, protocol, 30);
            drops_around::<A>(form, &inner, DropReason::InnerProtocol);
        }
    }
    by_each_option!(check);
}

#[test]
fn inner_source_mismatch() {
    fn check<A: Net>(form: Form) {
        let inner = inner::<A>(other_source(), 64, UDP, 30);
        drops_around::<A>(form, &inner, DropReason::InnerSourceMismatch);
    }
    by_each_option!(check);
}

#[test]
fn inner_group_mismatch() {
    fn check<A: Net>(form: Form) {
        let other_group = Key::new(key::<A>().source, A::OTHER_GROUP);
        let inner = inner(other_group, 64, UDP, 30);
        drops_around::<A>(form, &inner, DropReason::InnerGroupMismatch);
    }
    by_each_option!(check);
}
