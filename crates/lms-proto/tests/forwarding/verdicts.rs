//! The verdict table of the forwarding rule, row by row, with what is written into the packet;
//! and what becomes of good dmcasts.

use lms_proto::router::{Config, Output, Policy, Verdict};
use lms_proto::rule::{Action, Reason, Role, Tree, decide};
use lms_proto::table::Replier;
use lms_proto::wire::encap::Placement;
use lms_proto::wire::ipv4;
use lms_proto::{Form, Iface, Key, LmsOption, NextHop};

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
    } = router.forward(NOW, meta(from), &mut bytes)
    else {
        panic!("not forwarded");
    };
    assert_eq!(packet, 0..request.len());
    (output, bytes[packet].to_vec())
}

/// The request as one hop further, with this turning point.
fn one_hop_on(request: &[u8], turned: Option<lms_proto::TurningPoint>) -> Vec<u8> {
    let (form, option) = LmsOption::parse(&request[20..]).unwrap();
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
    for form in [Form::Classic, Form::Single] {
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
    for form in [Form::Classic, Form::Single] {
        let mut router = router_with_replier();
        let request = request(KEY, None, form);
        let (output, sent) = forwarded(&mut router, DOWN, &request);
        assert_eq!(output, TO_REPLIER);
        let turned = turning_point(address(REPLIER), DOWN);
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

/// The rule itself, all of it; the rows that drop are in `refusals` with the router around them.
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
            router.forward(NOW, meta(REPLIER), &mut bytes),
            Verdict::Pass,
            "{n}"
        );
        assert_eq!(&bytes, other);
        assert_eq!(state(&router), before);
    }
    assert_eq!(router.stats().passed, others.len() as u64);
    assert_eq!(router.stats().dropped_total(), 0);
}

#[test]
fn a_dmcast_is_stripped_and_multicast_on_the_turning_point_interface() {
    for form in [Form::Classic, Form::Single] {
        for placement in [Placement::Outer, Placement::Inner] {
            // From the replier's link, from above, from the very link it goes to.
            for from in [REPLIER, UP, DOWN] {
                let mut router = router_with_replier();
                let mut bytes = compose(&dmcast_repr(DOWN, form, placement), &inner(KEY));
                bytes.extend([0; 3]);
                let Verdict::Multicast { iface, packet } =
                    router.forward(NOW, meta(from), &mut bytes)
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
    let mut router = router(Config {
        policy: Policy::Static,
        ..Config::default()
    });
    let mut bytes = dmcast(KEY, Placement::Outer);
    let verdict = router.forward(NOW, meta(REPLIER), &mut bytes);
    assert!(matches!(verdict, Verdict::Multicast { .. }));
}

#[test]
fn a_dmcast_for_a_shared_tree() {
    let mut router = router_with_replier();
    let group = [239, 5, 5, 5].into();
    router
        .install(NOW, Key::any_source(group), UP, &[DOWN])
        .unwrap();
    let mut bytes = dmcast(Key::new(SOURCE, group), Placement::Outer);
    let verdict = router.forward(NOW, meta(UP), &mut bytes);
    assert!(matches!(verdict, Verdict::Multicast { iface: DOWN, .. }));
}
