//! Dmcasts, branch by branch.

use std::net::Ipv4Addr;

use lms_proto::fast_path::{Action, Refusal, Verdict};
use lms_proto::router::{DropReason, Router};
use lms_proto::wire::encap::{DmcastRepr, Placement};
use lms_proto::{Form, Iface, Instant, InterfaceConfig, LmsOption, Meta, TurningPoint};

use crate::common::{
    DOWN, DOWN2, ELSEWHERE, GROUP, KEY, NOW, REPLIER, REPLIER_HOST, SOURCE, UP, address, compose,
    dmcast_repr, edit, inner, option_bytes, packet, request, request_option, router_with_replier,
};
use crate::driver::{
    self, CLASSIC, Driver, OWN, SENDER, arrival, compare, expect_drop, expect_pass, expect_sent,
};

pub(crate) const FORMS: [Form; 2] = [Form::Classic, Form::Own];

/// A receiver on a link asks, and the router turns the request: what it wrote.
#[track_caller]
pub(crate) fn ask(router: &mut Router<'_>, now: Instant, form: Form, from: Iface) -> TurningPoint {
    turn(router, now, &mut request(KEY, None, form), from)
}

#[track_caller]
pub(crate) fn turn(
    router: &mut Router<'_>,
    now: Instant,
    request: &mut [u8],
    from: Iface,
) -> TurningPoint {
    let meta = Meta {
        iface: from,
        link_source: Some(SENDER),
    };
    let _ = router.forward(now, &meta, request);
    let (_, option) = LmsOption::parse::<Ipv4Addr>(&request[20..]).unwrap();
    option.turning_point.expect("turned")
}

pub(crate) fn repr(point: TurningPoint, form: Form) -> DmcastRepr {
    DmcastRepr {
        cookie: point.cookie,
        ..dmcast_repr(point.iface, form, Placement::Outer)
    }
}

/// A router that has turned a request from `DOWN`, and a repair for it.
pub(crate) fn open(form: Form) -> (Router<'static>, Vec<u8>) {
    let mut router = router_with_replier();
    let point = ask(&mut router, NOW, form, DOWN);
    (router, compose(&repr(point, form), &inner(KEY)))
}

#[track_caller]
fn pass(form: Form, packet: &[u8]) {
    expect_pass(&mut open(form).0, NOW, arrival(REPLIER), packet);
}

#[test]
fn a_repair_goes_where_the_request_came_from() {
    for form in FORMS {
        for iface in [DOWN, DOWN2, REPLIER] {
            let mut router = router_with_replier();
            let point = ask(&mut router, NOW, form, iface);
            let mut packet = compose(&repr(point, form), &inner(KEY));
            packet.extend_from_slice(&[0x5a; 3]);
            expect_sent(
                &mut router,
                NOW,
                arrival(REPLIER),
                &packet,
                Action::Dmcast,
                iface,
            );
        }
    }
}

/// Repairs may come in by every interface of the tree, to its own address and from behind it.
#[test]
fn by_every_interface_of_the_tree() {
    let far = Ipv4Addr::new(192, 0, 2, 9);
    for form in FORMS {
        for iface in [UP, REPLIER, DOWN, DOWN2] {
            let (mut router, _) = open(form);
            let point = ask(&mut router, NOW, form, DOWN);
            let repr = DmcastRepr {
                replier: far,
                router: address(iface),
                ..repr(point, form)
            };
            let packet = compose(&repr, &inner(KEY));
            expect_sent(
                &mut router,
                NOW,
                arrival(iface),
                &packet,
                Action::Dmcast,
                DOWN,
            );
        }
        let (mut router, _) = open(form);
        let point = ask(&mut router, NOW, form, DOWN);
        let repr = DmcastRepr {
            replier: far,
            router: address(ELSEWHERE),
            ..repr(point, form)
        };
        let packet = compose(&repr, &inner(KEY));
        expect_drop(
            &mut router,
            NOW,
            arrival(ELSEWHERE),
            &packet,
            DropReason::NotOnTree,
        );
    }
}

#[test]
fn other_shapes_are_for_the_machine() {
    for form in FORMS {
        let (_, good) = open(form);
        let header_len = usize::from(good[0] & 0xf) * 4;
        for len in 0..good.len() {
            pass(form, &good[..len]);
        }
        for at in [10, 11, header_len + 10, header_len + 11] {
            let mut packet = good.clone();
            packet[at] ^= 0x10;
            pass(form, &packet);
        }
        for flags in [[0x20, 0], [0, 1], [0x1f, 0xff]] {
            let change = |p: &mut [u8]| p[6..8].copy_from_slice(&flags);
            pass(form, &edit(good.clone(), 0, change));
            pass(form, &edit(good.clone(), header_len, change));
        }
        for total_len in [0, header_len + 19, good.len() - 1, good.len() + 1, 0xffff] {
            let bytes = (total_len as u16).to_be_bytes();
            pass(
                form,
                &edit(good.clone(), 0, |p| p[2..4].copy_from_slice(&bytes)),
            );
        }
        let inner_len = good.len() - header_len;
        for total_len in [0, 19, 20, inner_len - 1, inner_len + 1, 0xffff] {
            let bytes = (total_len as u16).to_be_bytes();
            pass(
                form,
                &edit(good.clone(), header_len, |p| {
                    p[2..4].copy_from_slice(&bytes);
                }),
            );
        }
        for first in [0, 0x35, 0x44, 0x46, 0x4f, 0x55, 0x65] {
            let mut packet = good.clone();
            packet[header_len] = first;
            lms_proto::wire::ipv4::fill_checksum(&mut packet[header_len..header_len + 20]);
            pass(form, &packet);
        }
        for (at, value) in [(9, 17), (9, 0), (20, 0), (20, 1), (21, 15), (21, 29)] {
            pass(form, &edit(good.clone(), 0, |p| p[at] = value));
        }
    }
}

/// What the machine drops for its own reasons: the fast path has no opinion.
#[test]
fn what_does_not_agree_with_itself_is_for_the_machine() {
    let other = Ipv4Addr::new(10, 9, 9, 9);
    for form in FORMS {
        let (_, good) = open(form);
        let header_len = usize::from(good[0] & 0xf) * 4;
        let body = header_len - 14 - if form == Form::Own { 8 } else { 0 };
        // Turning router, source and group of the option.
        for at in [body + 2, body + 6, body + 10] {
            pass(
                form,
                &edit(good.clone(), 0, |p| {
                    p[at..at + 4].copy_from_slice(&other.octets());
                }),
            );
        }
        // Destination of the outer packet; source, group and protocol of the inner one.
        for (header, at) in [(0, 16), (header_len, 12), (header_len, 16)] {
            let change = |p: &mut [u8]| p[at..at + 4].copy_from_slice(&other.octets());
            pass(form, &edit(good.clone(), header, change));
        }
        pass(form, &edit(good.clone(), header_len, |p| p[9] = 6));
        // No turning point.
        let change = |p: &mut [u8]| {
            p[body..body + 2].fill(0xff);
            p[body + 2..body + 6].fill(0);
            if form == Form::Own {
                p[body + 14..body + 22].fill(0);
            }
        };
        pass(form, &edit(good, 0, change));
        // Shorter than a UDP header.
        let short = packet(SOURCE, GROUP, 17, &[], &[0; 7]);
        let mut router = router_with_replier();
        let point = ask(&mut router, NOW, form, DOWN);
        expect_pass(
            &mut router,
            NOW,
            arrival(REPLIER),
            &compose(&repr(point, form), &short),
        );
        let empty = packet(SOURCE, GROUP, 17, &[], &[0; 8]);
        let packet = compose(&repr(point, form), &empty);
        expect_sent(
            &mut router,
            NOW,
            arrival(REPLIER),
            &packet,
            Action::Dmcast,
            DOWN,
        );
    }
}

#[test]
fn the_length_of_the_outer_header_is_checked() {
    let (router, mut packet) = open(Form::Own);
    let driver = Driver::of(&router, None);
    assert_eq!(
        driver::dmcast::<CLASSIC>(&driver, NOW, arrival(REPLIER), &mut packet),
        Verdict::PASS
    );
    let (router, mut packet) = open(Form::Classic);
    let driver = Driver::of(&router, None);
    assert_eq!(
        driver::dmcast::<OWN>(&driver, NOW, arrival(REPLIER), &mut packet),
        Verdict::PASS
    );
}

/// Its first byte says how long a header is, and of which version.
#[test]
fn the_first_byte_is_checked() {
    for form in FORMS {
        let (router, good) = open(form);
        let driver = Driver::of(&router, None);
        let header_len = usize::from(good[0] & 0xf) * 4;
        for first in (0..=0xff).filter(|first| *first != good[0]) {
            let mut packet = good.clone();
            packet[0] = first;
            lms_proto::wire::ipv4::fill_checksum(&mut packet[..header_len]);
            let verdict = match form {
                Form::Classic => {
                    driver::dmcast::<CLASSIC>(&driver, NOW, arrival(REPLIER), &mut packet)
                }
                Form::Own => driver::dmcast::<OWN>(&driver, NOW, arrival(REPLIER), &mut packet),
            };
            assert_eq!(verdict, Verdict::PASS, "{first:#x}");
        }
    }
}

/// A request is no dmcast, though it is encapsulated.
#[test]
fn a_request_in_a_tunnel_is_for_the_machine() {
    for form in FORMS {
        let (mut router, good) = open(form);
        let point = ask(&mut router, NOW, form, DOWN);
        let option = option_bytes(&request_option(KEY, Some(point)), form);
        let end = 20 + option.len();
        pass(
            form,
            &edit(good, 0, |p| p[20..end].copy_from_slice(&option)),
        );
    }
}

#[test]
fn where_the_outer_source_may_be() {
    let from = |form, from: [u8; 4], is_decided: bool| {
        let mut router = router_with_replier();
        let point = ask(&mut router, NOW, form, DOWN);
        let repr = DmcastRepr {
            replier: from.into(),
            ..repr(point, form)
        };
        let packet = edit(compose(&repr, &inner(KEY)), 0, |p| {
            p[12..16].copy_from_slice(&from);
        });
        match is_decided {
            true => expect_sent(
                &mut router,
                NOW,
                arrival(REPLIER),
                &packet,
                Action::Dmcast,
                DOWN,
            ),
            false => expect_pass(&mut router, NOW, arrival(REPLIER), &packet),
        }
    };
    for form in FORMS {
        // Hosts of the link, and far away.
        from(form, [10, 1, 2, 9], true);
        from(form, [10, 1, 2, 254], true);
        from(form, [192, 0, 2, 1], true);
        // On another link, the router itself, no host of the link, and no host at all.
        for address in [
            [10, 1, 3, 77],
            [10, 1, 2, 1],
            [10, 1, 3, 1],
            [10, 1, 2, 0],
            [10, 1, 2, 255],
            [0, 0, 0, 0],
            [0, 0, 0, 9],
            [127, 0, 0, 1],
            [169, 254, 1, 1],
            [232, 1, 2, 3],
            [255, 255, 255, 255],
        ] {
            from(form, address, false);
        }
    }
}

/// Of links with overlapping subnets the longest prefix counts; the machine decides where that is not the arrival's.
#[test]
fn overlapping_subnets() {
    let with = |iface: Iface, address: [u8; 4], prefix_len| {
        let (mut router, packet) = open(Form::Own);
        let config = InterfaceConfig::ipv4(address.into(), prefix_len);
        router.set_interface(NOW, iface, config).unwrap();
        let driver = Driver::of(&router, None);
        compare(&mut router, &driver, NOW, arrival(REPLIER), &packet, None).action
    };
    assert_eq!(REPLIER_HOST, Ipv4Addr::new(10, 1, 2, 9));
    // A wider one of another link, a longer one, the same, and those that say nothing of other addresses.
    assert_eq!(with(DOWN2, [10, 2, 0, 1], 8), Action::Dmcast);
    assert_eq!(with(DOWN2, [10, 1, 2, 2], 28), Action::Pass);
    assert_eq!(with(DOWN2, [10, 1, 2, 2], 24), Action::Pass);
    assert_eq!(with(DOWN2, [10, 1, 2, 9], 32), Action::Pass);
    assert_eq!(with(DOWN2, [10, 1, 2, 8], 32), Action::Dmcast);
    assert_eq!(with(DOWN2, [10, 1, 2, 8], 0), Action::Dmcast);
    // A link of two addresses has no reserved ones.
    assert_eq!(with(REPLIER, [10, 1, 2, 1], 31), Action::Dmcast);
}

#[test]
fn a_link_of_two_addresses_has_no_reserved_one() {
    for (prefix_len, is_decided) in [(31, true), (30, false)] {
        let mut router = router_with_replier();
        let point = ask(&mut router, NOW, Form::Own, DOWN);
        let config = InterfaceConfig::ipv4(address(REPLIER), prefix_len);
        router.set_interface(NOW, REPLIER, config).unwrap();
        let repr = DmcastRepr {
            replier: Ipv4Addr::new(10, 1, 2, 0),
            ..repr(point, Form::Own)
        };
        let packet = compose(&repr, &inner(KEY));
        match is_decided {
            true => expect_sent(
                &mut router,
                NOW,
                arrival(REPLIER),
                &packet,
                Action::Dmcast,
                DOWN,
            ),
            false => expect_pass(&mut router, NOW, arrival(REPLIER), &packet),
        }
    }
}

#[test]
fn the_last_hop_of_the_inner_packet() {
    for form in FORMS {
        let (_, good) = open(form);
        let header_len = usize::from(good[0] & 0xf) * 4;
        for (ttl, is_sent) in [(0, false), (1, false), (2, true), (255, true)] {
            let (mut router, _) = open(form);
            let packet = edit(good.clone(), header_len, |p| p[8] = ttl);
            match is_sent {
                true => expect_sent(
                    &mut router,
                    NOW,
                    arrival(REPLIER),
                    &packet,
                    Action::Dmcast,
                    DOWN,
                ),
                false => {
                    let reason = DropReason::InnerTtlExpired;
                    expect_drop(&mut router, NOW, arrival(REPLIER), &packet, reason);
                }
            }
        }
    }
}

/// That of the outer one does not count: it has arrived.
#[test]
fn the_last_hop_of_the_outer_packet() {
    for form in FORMS {
        let (mut router, packet) = open(form);
        let packet = edit(packet, 0, |p| p[8] = 0);
        expect_sent(
            &mut router,
            NOW,
            arrival(REPLIER),
            &packet,
            Action::Dmcast,
            DOWN,
        );
    }
}

#[test]
fn without_settings_record_or_port() {
    let pass = |change: &dyn Fn(&mut Driver)| {
        let (mut router, packet) = open(Form::Own);
        let mut driver = Driver::of(&router, None);
        change(&mut driver);
        let verdict = compare(&mut router, &driver, NOW, arrival(REPLIER), &packet, None);
        assert_eq!(verdict, Verdict::PASS);
    };
    pass(&|driver| driver.settings = None);
    pass(&|driver| driver.records.clear());
    pass(&|driver| driver.ports.retain(|iface, _| *iface != DOWN));
    pass(&|driver| driver.ports.get_mut(&DOWN).unwrap().mtu = 0);
    pass(&|driver| driver.ports.retain(|iface, _| *iface != REPLIER));
    pass(&|driver| driver.ports.get_mut(&REPLIER).unwrap().address = Ipv4Addr::UNSPECIFIED);
}

/// An interface without address is not addressed by a packet to `0.0.0.0`.
#[test]
fn nothing_is_addressed_to_no_address() {
    let (router, packet) = open(Form::Own);
    let mut driver = Driver::of(&router, None);
    driver.ports.get_mut(&REPLIER).unwrap().address = Ipv4Addr::UNSPECIFIED;
    let mut packet = edit(packet, 0, |p| {
        p[16..20].fill(0);
        let body = 48 - 22;
        p[body + 2..body + 6].fill(0);
    });
    assert_eq!(
        driver::run(&driver, NOW, arrival(REPLIER), &mut packet),
        Verdict::PASS
    );
}

#[test]
fn packets_of_the_length_of_the_mtu() {
    for form in FORMS {
        for short in [0, 1] {
            let (mut router, packet) = open(form);
            let mut driver = Driver::of(&router, None);
            driver.ports.get_mut(&DOWN).unwrap().mtu = inner(KEY).len() as u32 - short;
            let verdict = compare(&mut router, &driver, NOW, arrival(REPLIER), &packet, None);
            let refusal = [Refusal::None, Refusal::TooLong][short as usize];
            assert_eq!(
                (verdict.action, verdict.refusal, verdict.iface),
                (Action::Dmcast, refusal, DOWN)
            );
        }
    }
}
