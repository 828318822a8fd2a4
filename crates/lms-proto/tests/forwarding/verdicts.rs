//! The verdict table of the forwarding rule, row by row, with the edits of the packet;
//! and what becomes of good dmcasts.

use lms_proto::router::{Config, Event, Output, SOURCE_LIFETIME, Verdict};
use lms_proto::rule::{Action, Reason, Role, Tree, decide};
use lms_proto::table::Replier;
use lms_proto::wire::encap::{DmcastRepr, Placement};
use lms_proto::wire::ipv4;
use lms_proto::{Form, Iface, Key, LinkAddr, LmsOption, Meta, NextHop};
use std::net::Ipv4Addr;

use crate::common::*;

const TO_PARENT: Output = Output {
    iface: UP,
    next_hop: NextHop::Group,
};
const TO_REPLIER: Output = Output {
    iface: REPLIER,
    next_hop: NextHop::Neighbour {
        addr: REPLIER_HOST,
        link: Some(REPLIER_LINK),
    },
};

/// Forwards a request; the answer is where it goes and the packet as sent.
#[track_caller]
fn forwarded(router: &mut lms_proto::Router<'_>, from: Iface, request: &[u8]) -> (Output, Vec<u8>) {
    let mut bytes = request.to_vec();
    bytes.extend([0; 6]);
    let Verdict::Forward {
        output,
        packet,
        second: None,
    } = router.forward(NOW, &meta(from), &mut bytes)
    else {
        panic!("not forwarded");
    };
    assert_eq!(packet, 0..request.len());
    (output, bytes[packet].to_vec())
}

/// The request as one hop further, with this turning point.
fn one_hop_on(request: &[u8], turned: Option<lms_proto::TurningPoint>) -> Vec<u8> {
    let (form, option) = LmsOption::parse::<Ipv4Addr>(&request[20..]).unwrap();
    let option = LmsOption {
        turning_point: turned.or(option.turning_point),
        ..option
    };
    edit(request.to_vec(), 0, |p| {
        p[8] -= 1;
        option.emit(form, &mut p[20..]).unwrap();
    })
}

#[test]
fn from_the_repliers_interface_up_untouched() {
    for form in [Form::Classic, Form::Own] {
        let mut router = router_with_replier();
        let request = request(KEY, None, form);
        let (output, sent) = forwarded(&mut router, REPLIER, &request);
        assert_eq!(output, TO_PARENT);
        assert_eq!(sent, one_hop_on(&request, None));
        assert_eq!(router.stats().requests_to_parent, 1);
    }
}

#[test]
fn from_another_interface_turned_to_the_replier() {
    for form in [Form::Classic, Form::Own] {
        let mut router = router_with_replier();
        let request = request(KEY, None, form);
        let (output, sent) = forwarded(&mut router, DOWN, &request);
        assert_eq!(output, TO_REPLIER);
        let turned = point(DOWN, form);
        let classic = turning_point(address(REPLIER), number(DOWN));
        assert_eq!(
            (turned.router, turned.iface),
            (classic.router, classic.iface)
        );
        assert_eq!(turned.cookie == 0, form == Form::Classic);
        assert_eq!(sent, one_hop_on(&request, Some(turned)));
        assert_eq!(router.stats().requests_turned, 1);
    }
}

#[test]
fn from_below_with_no_replier_up_untouched() {
    let mut router = router(Config::default());
    let request = request(KEY, None, Form::Classic);
    let (output, sent) = forwarded(&mut router, DOWN, &request);
    assert_eq!(output, TO_PARENT);
    assert_eq!(sent, one_hop_on(&request, None));
}

#[test]
fn from_the_parent_turned_to_the_replier_untouched() {
    let mut router = router_with_replier();
    let turned = turning_point([192, 0, 2, 1].into(), Iface(9));
    let request = request(KEY, Some(turned), Form::Classic);
    let (output, sent) = forwarded(&mut router, UP, &request);
    assert_eq!(output, TO_REPLIER);
    assert_eq!(sent, one_hop_on(&request, None));
    assert_eq!(router.stats().requests_to_replier, 1);
}

/// On a link with several hosts the elected one answers the others: their requests do not go up.
#[test]
fn from_a_neighbour_of_the_replier_turned_to_the_replier() {
    let on_link = |host| {
        edit(request(KEY, None, Form::Classic), 0, |p| {
            p[12..16].copy_from_slice(&[10, 1, 2, host]);
        })
    };
    let other_link = LinkAddr([2, 0, 0, 0, 0, 77]);
    let far = request(KEY, None, Form::Classic);
    // Sender of the frame, the request, and whether the sender is the replier.
    let cases = [
        (Some(other_link), on_link(50), false),
        (None, on_link(50), false),
        // A router beside the replier, which forwards a request of a host further down.
        (Some(other_link), far.clone(), false),
        (Some(REPLIER_LINK), on_link(9), true),
        (None, on_link(9), true),
        // The replier is a router itself.
        (Some(REPLIER_LINK), far.clone(), true),
        // Nothing tells them apart.
        (None, far, true),
    ];
    for (link_source, request, is_replier) in cases {
        let mut router = router_with_replier();
        let mut bytes = request.clone();
        let from = Meta {
            iface: REPLIER,
            link_source,
        };
        let Verdict::Forward { output, packet, .. } = router.forward(NOW, &from, &mut bytes) else {
            panic!("not forwarded");
        };
        let turned = turning_point(address(REPLIER), number(DOWN));
        let (_, option) = LmsOption::parse::<Ipv4Addr>(&bytes[packet][20..]).unwrap();
        if is_replier {
            assert_eq!((output, option.turning_point), (TO_PARENT, None));
            continue;
        }
        assert_eq!(output, TO_REPLIER, "{link_source:?}");
        let point = option.turning_point.expect("turned");
        assert_eq!(point.router, turned.router);
        // The repair comes back to the same link.
        let repr = dmcast_repr(point.iface, Form::Classic, Placement::Outer);
        let mut repair = compose(&repr, &inner(KEY));
        let verdict = router.forward(NOW, &meta(REPLIER), &mut repair);
        assert!(matches!(verdict, Verdict::Multicast { iface: REPLIER, .. }));
    }
    // A replier that is the whole link has no neighbours there.
    let mut router = router_with_replier();
    let whole_link = Replier {
        neighbour: None,
        ..replier()
    };
    router.set_replier(NOW, KEY, Some(whole_link)).unwrap();
    let (output, _) = forwarded(&mut router, REPLIER, &on_link(50));
    assert_eq!(output, TO_PARENT);
}

/// The rule itself, all of it; the rows that drop are in `carriers` with the router around them.
#[test]
fn the_rule_is_the_table() {
    let table = [
        (Role::Replier, true, Action::Drop(Reason::TurnedFromBelow)),
        (
            Role::Downstream,
            true,
            Action::Drop(Reason::TurnedFromBelow),
        ),
        (Role::Replier, false, Action::ToParent),
        (Role::Downstream, false, Action::Turn),
        (Role::Parent, true, Action::ToReplier),
        (
            Role::Parent,
            false,
            Action::Drop(Reason::UnturnedFromParent),
        ),
        (Role::Outside, false, Action::Drop(Reason::NotInEntry)),
        (Role::Outside, true, Action::Drop(Reason::NotInEntry)),
    ];
    for (role, turned, action) in table {
        assert_eq!(decide(role, turned, true), action);
        let without_replier = match action {
            Action::Turn => Action::ToParent,
            Action::ToReplier => Action::Drop(Reason::NoReplier),
            same => same,
        };
        assert_eq!(decide(role, turned, false), without_replier);
    }
    let tree = Tree {
        parent: Iface::UNSET,
        replier: Iface::UNSET,
    };
    assert_eq!(tree.role(Iface::UNSET, false), Role::Outside);
}

#[test]
fn source_trees_come_before_shared_trees() {
    let mut router = router_with_replier();
    let shared = Key::any_source(GROUP);
    router.install(NOW, shared, ELSEWHERE, &[DOWN]).unwrap();
    let (output, _) = forwarded(&mut router, REPLIER, &request(KEY, None, Form::Classic));
    assert_eq!(output.iface, UP);
    let other = Key::new([10, 7, 7, 7].into(), GROUP);
    let (output, _) = forwarded(&mut router, DOWN, &request(other, None, Form::Classic));
    assert_eq!(output.iface, ELSEWHERE);
}

#[test]
fn a_replier_with_no_neighbour_gets_a_multicast_frame() {
    let mut router = router_with_replier();
    let replier = Replier {
        neighbour: None,
        ..replier()
    };
    router.set_replier(NOW, KEY, Some(replier)).unwrap();
    let (output, _) = forwarded(&mut router, DOWN, &request(KEY, None, Form::Classic));
    assert_eq!(output.next_hop, NextHop::Group);
}

/// The last hop that a request may make: the packet leaves with a time to live of 1.
#[test]
fn ttl_2_is_forwarded() {
    let mut router = router_with_replier();
    let request = edit(request(KEY, None, Form::Classic), 0, |p| p[8] = 2);
    let (_, sent) = forwarded(&mut router, DOWN, &request);
    assert_eq!(ipv4::ttl(&sent), 1);
}

#[test]
fn other_packets_pass() {
    let mut router = router_with_replier();
    let turned = turning_point(address(REPLIER), DOWN);
    let option = option_bytes(&request_option(KEY, Some(turned)), Form::Classic);
    let others = [
        // Data, with and without options; unicast with the request option.
        inner(KEY),
        packet(RECEIVER, GROUP, 17, &[148, 4, 0, 0], &[1; 8]),
        packet(RECEIVER, SOURCE, 17, &option, &[1; 8]),
        // A dmcast to another router; tunnels to us.
        compose(
            &lms_proto::wire::encap::DmcastRepr {
                router: [10, 9, 9, 9].into(),
                ..dmcast_repr(DOWN, Form::Classic, Placement::Outer)
            },
            &inner(KEY),
        ),
        packet(RECEIVER, address(REPLIER), 4, &[], &inner(KEY)),
        packet(RECEIVER, address(REPLIER), 4, &option, &inner(KEY)),
        // To another router, and not ours to judge.
        packet(RECEIVER, [10, 9, 9, 9].into(), 4, &[139, 1, 0, 0], &[]),
    ];
    for (n, other) in others.iter().enumerate() {
        let before = state(&router);
        let mut bytes = other.clone();
        assert_eq!(
            router.forward(NOW, &meta(REPLIER), &mut bytes),
            Verdict::Pass,
            "{n}"
        );
        assert_eq!(&bytes, other);
        assert_eq!(state(&router), before);
    }
    assert_eq!(router.stats().passed, others.len() as u64);
    assert_eq!(router.stats().drops.total(), 0);
}

#[test]
fn a_dmcast_is_stripped_and_multicast_on_the_turning_point_interface() {
    for form in [Form::Classic, Form::Own] {
        for placement in [Placement::Outer, Placement::Inner] {
            // From the replier's link, from above, from the very link it goes to.
            let far = [198, 51, 100, 7].into();
            for (from, replier) in [(REPLIER, REPLIER_HOST), (UP, far), (DOWN, far)] {
                let mut router = router_with_replier();
                let repr = DmcastRepr {
                    replier,
                    cookie: point(DOWN, form).cookie,
                    ..dmcast_repr(asked(&mut router, NOW, KEY, DOWN), form, placement)
                };
                let mut bytes = compose(&repr, &inner(KEY));
                bytes.extend([0; 3]);
                let Verdict::Multicast { iface, packet } =
                    router.forward(NOW, &meta(from), &mut bytes)
                else {
                    panic!("{form:?} {placement:?} {from}");
                };
                assert_eq!(iface, DOWN);
                assert_eq!(bytes[packet], edit(inner(KEY), 0, |p| p[8] -= 1));
                assert_eq!(router.stats().dmcasts, 1);
            }
        }
    }
}

/// No replier is needed for a dmcast: it may have changed while the repair was on its way.
#[test]
fn a_dmcast_needs_no_replier() {
    let mut router = router_with_replier();
    asked(&mut router, NOW, KEY, DOWN);
    router.set_replier(NOW, KEY, None).unwrap();
    let mut bytes = dmcast(KEY, Placement::Outer);
    let verdict = router.forward(NOW, &meta(REPLIER), &mut bytes);
    assert!(matches!(verdict, Verdict::Multicast { .. }));
}

#[test]
fn a_dmcast_for_a_shared_tree() {
    let mut router = router_with_replier();
    let shared = Key::any_source([239, 5, 5, 5].into());
    let key = Key::new(SOURCE, shared.group);
    router.install(NOW, shared, UP, &[REPLIER, DOWN]).unwrap();
    router.set_replier(NOW, shared, Some(replier())).unwrap();
    let number = asked(&mut router, NOW, key, DOWN);
    let wanted = Event::SourceWanted { key, parent: UP };
    assert_eq!(router.poll_event(), Some(wanted));
    let packet = compose(
        &dmcast_repr(number, Form::Classic, Placement::Outer),
        &inner(key),
    );
    let passes = |router: &mut lms_proto::Router<'_>, now| {
        let verdict = router.forward(now, &meta(REPLIER), &mut packet.clone());
        matches!(verdict, Verdict::Multicast { iface: DOWN, .. })
    };
    assert!(!passes(&mut router, NOW), "the source was never seen");
    // Its datagrams arrive from above, and nowhere else; and it is a host.
    assert!(!router.source_seen(NOW, DOWN, key));
    assert!(!router.source_seen(NOW, Iface::UNSET, key));
    assert!(!router.source_seen(NOW, UP, Key::new(SOURCE, [239, 5, 5, 6].into())));
    let loopback = Key::new([127, 0, 0, 1].into(), key.group);
    assert!(!router.source_seen(NOW, UP, loopback));
    assert!(router.source_seen(NOW, UP, key));
    assert!(passes(&mut router, NOW));
    // It is looked for again before it is forgotten.
    let soon = NOW + SOURCE_LIFETIME / 2;
    asked(&mut router, soon, key, DOWN);
    assert_eq!(router.poll_event(), Some(wanted));
    assert!(passes(&mut router, soon));
    let late = NOW + SOURCE_LIFETIME;
    asked(&mut router, late, key, DOWN);
    assert!(!passes(&mut router, late));
}
