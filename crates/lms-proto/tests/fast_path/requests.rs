//! Requests, branch by branch.

use std::net::Ipv4Addr;

use lms_proto::fast_path::{Action, Arrival, Refusal, Verdict};
use lms_proto::router::{Config, DropReason, Policy};
use lms_proto::table::{Neighbour, Replier};
use lms_proto::wire::encap::Placement;
use lms_proto::{Form, Iface, Key, LinkAddr};

use crate::common::{
    DOWN, DOWN2, ELSEWHERE, GROUP, KEY, NOW, REPLIER, REPLIER_LINK, SOURCE, UP, dmcast_repr, edit,
    inner, option_bytes, packet, replier, request, request_option, router, router_with_replier,
    turning_point,
};
use crate::common::{compose, number};
use crate::driver::{
    self, CLASSIC, Driver, OWN, arrival, compare, expect_drop, expect_pass, expect_sent,
};

const FORMS: [Form; 2] = [Form::Classic, Form::Own];

/// A turning point that another router wrote.
fn turned(form: Form) -> Vec<u8> {
    let point = turning_point(Ipv4Addr::new(192, 0, 2, 1), Iface(7));
    request(KEY, Some(point), form)
}

fn from_replier() -> Arrival {
    Arrival {
        iface: REPLIER,
        link_source: REPLIER_LINK,
    }
}

#[test]
fn each_role_and_turning_point() {
    for form in FORMS {
        let (plain, turned) = (request(KEY, None, form), turned(form));
        let sent = |from, packet: &[u8], action, iface| {
            let mut router = router_with_replier();
            expect_sent(&mut router, NOW, from, packet, action, iface);
        };
        sent(arrival(DOWN), &plain, Action::Turn, REPLIER);
        sent(arrival(DOWN2), &plain, Action::Turn, REPLIER);
        sent(arrival(REPLIER), &plain, Action::Turn, REPLIER);
        sent(from_replier(), &plain, Action::ToParent, UP);
        sent(arrival(UP), &turned, Action::ToReplier, REPLIER);
        let dropped = |from, packet: &[u8], reason| {
            expect_drop(&mut router_with_replier(), NOW, from, packet, reason);
        };
        dropped(arrival(UP), &plain, DropReason::UnturnedFromParent);
        dropped(arrival(DOWN), &turned, DropReason::TurnedFromBelow);
        dropped(from_replier(), &turned, DropReason::TurnedFromBelow);
        dropped(arrival(ELSEWHERE), &plain, DropReason::NotInEntry);
    }
}

#[test]
fn an_entry_without_replier_or_parent() {
    let fixed = || {
        router(Config {
            policy: Policy::Static,
            ..Config::default()
        })
    };
    for form in FORMS {
        let (plain, turned) = (request(KEY, None, form), turned(form));
        expect_sent(
            &mut fixed(),
            NOW,
            arrival(DOWN),
            &plain,
            Action::ToParent,
            UP,
        );
        expect_drop(
            &mut fixed(),
            NOW,
            arrival(UP),
            &turned,
            DropReason::NoReplier,
        );
        let mut router = router_with_replier();
        router.remove_interface(NOW, UP);
        expect_drop(
            &mut router,
            NOW,
            from_replier(),
            &plain,
            DropReason::NoParent,
        );
        expect_sent(
            &mut router,
            NOW,
            arrival(DOWN),
            &plain,
            Action::Turn,
            REPLIER,
        );
    }
}

#[test]
fn a_replier_that_is_a_whole_link() {
    let mut router = router_with_replier();
    let link = Replier {
        neighbour: None,
        ..replier()
    };
    router.set_replier(NOW, KEY, Some(link)).unwrap();
    for form in FORMS {
        let plain = request(KEY, None, form);
        expect_sent(
            &mut router,
            NOW,
            arrival(DOWN),
            &plain,
            Action::Turn,
            REPLIER,
        );
        // Whichever neighbour it is.
        expect_sent(
            &mut router,
            NOW,
            arrival(REPLIER),
            &plain,
            Action::ToParent,
            UP,
        );
        expect_sent(
            &mut router,
            NOW,
            arrival(UP),
            &turned(form),
            Action::ToReplier,
            REPLIER,
        );
    }
}

/// The machine tells a replier whose link address it does not know from its neighbours by the address of the request.
#[test]
fn a_replier_whose_link_address_the_driver_knows() {
    let unknown = Neighbour {
        link: None,
        ..replier().neighbour.expect("a neighbour")
    };
    let resolved = Some(REPLIER_LINK);
    let senders = [
        (unknown.addr, Action::ToParent),
        (Ipv4Addr::new(10, 1, 2, 77), Action::Turn),
        // A router below: its request comes from another link.
        (Ipv4Addr::new(10, 1, 9, 9), Action::ToParent),
    ];
    for (form, (sender, expected)) in FORMS.iter().flat_map(|&form| senders.map(|by| (form, by))) {
        let mut router = router_with_replier();
        let named = Replier {
            neighbour: Some(unknown),
            ..replier()
        };
        router.set_replier(NOW, KEY, Some(named)).unwrap();
        let driver = Driver::of(&router, resolved);
        let packet = edit(request(KEY, None, form), 0, |header| {
            header[12..16].copy_from_slice(&sender.octets());
        });
        // Whoever sends the frame.
        for from in [arrival(REPLIER), from_replier()] {
            let verdict = compare(&mut router, &driver, NOW, from, &packet, resolved);
            assert_eq!(verdict.action, expected, "{sender}");
        }
    }
}

#[test]
fn the_last_hop() {
    for form in FORMS {
        for (ttl, is_sent) in [(0, false), (1, false), (2, true), (255, true)] {
            for (from, packet, action, to) in [
                (
                    arrival(DOWN),
                    request(KEY, None, form),
                    Action::Turn,
                    REPLIER,
                ),
                (
                    from_replier(),
                    request(KEY, None, form),
                    Action::ToParent,
                    UP,
                ),
                (arrival(UP), turned(form), Action::ToReplier, REPLIER),
            ] {
                let packet = edit(packet, 0, |p| p[8] = ttl);
                let mut router = router_with_replier();
                match is_sent {
                    true => expect_sent(&mut router, NOW, from, &packet, action, to),
                    false => expect_drop(&mut router, NOW, from, &packet, DropReason::TtlExpired),
                }
            }
        }
    }
}

#[test]
fn what_follows_the_packet_is_padding() {
    for form in FORMS {
        let mut packet = request(KEY, None, form);
        packet.extend_from_slice(&[0x5a; 18]);
        expect_sent(
            &mut router_with_replier(),
            NOW,
            arrival(DOWN),
            &packet,
            Action::Turn,
            REPLIER,
        );
    }
}

/// Every packet of another shape, and the machine drops it, passes it, or forwards it by itself.
#[test]
fn other_shapes_are_for_the_machine() {
    let pass = |packet: &[u8]| expect_pass(&mut router_with_replier(), NOW, arrival(DOWN), packet);
    for form in FORMS {
        let good = request(KEY, None, form);
        for len in 0..good.len() {
            pass(&good[..len]);
        }
        // Bits of the checksum.
        for at in 10..12 {
            let mut packet = good.clone();
            packet[at] ^= 0x10;
            pass(&packet);
        }
        for flags in [[0x20, 0], [0, 1], [0x1f, 0xff], [0x20, 1]] {
            pass(&edit(good.clone(), 0, |p| p[6..8].copy_from_slice(&flags)));
        }
        let header_len = usize::from(good[0] & 0xf) * 4;
        for total_len in [0, header_len - 1, good.len() + 1, 0xffff] {
            let bytes = (total_len as u16).to_be_bytes();
            pass(&edit(good.clone(), 0, |p| p[2..4].copy_from_slice(&bytes)));
        }
        for first in (0..=0xff).filter(|first| *first != good[0]) {
            let mut packet = good.clone();
            packet[0] = first;
            let header_len = usize::from(first & 0xf) * 4;
            if (20..=packet.len()).contains(&header_len) {
                lms_proto::wire::ipv4::fill_checksum(&mut packet[..header_len]);
            }
            pass(&packet);
        }
        for option_len in (0..=0xff).filter(|len| *len != good[21]) {
            pass(&edit(good.clone(), 0, |p| p[21] = option_len));
        }
        for kind in (0..=0xff).filter(|kind| *kind != good[20]) {
            pass(&edit(good.clone(), 0, |p| p[20] = kind));
        }
        let other = Ipv4Addr::new(232, 1, 2, 4).octets();
        pass(&edit(good, 0, |p| p[16..20].copy_from_slice(&other)));
    }
}

/// A header with other options, before the LMS option or after it, has no bytes that only one of both looks at.
#[test]
fn other_options_are_for_the_machine() {
    let lms = option_bytes(&request_option(KEY, None), Form::Classic);
    let pad = [1; 12];
    for options in [[&pad[..], &lms].concat(), [&lms, &pad[..]].concat()] {
        let bytes = packet(SOURCE, GROUP, 17, &options, &[0xab; 20]);
        assert_eq!(bytes[0], 0x4c);
        expect_pass(&mut router_with_replier(), NOW, arrival(DOWN), &bytes);
    }
}

/// The header's length is not taken on trust from the caller.
#[test]
fn the_length_of_the_header_is_checked() {
    let driver = Driver::of(&router_with_replier(), None);
    let mut packet = request(KEY, None, Form::Own);
    assert_eq!(
        driver::request::<CLASSIC>(&driver, NOW, arrival(DOWN), &mut packet),
        Verdict::PASS
    );
    let mut packet = request(KEY, None, Form::Classic);
    assert_eq!(
        driver::request::<OWN>(&driver, NOW, arrival(DOWN), &mut packet),
        Verdict::PASS
    );
    // Longer than its option, and no option beside it.
    let lms = option_bytes(&request_option(KEY, None), Form::Classic);
    let mut packet = crate::common::packet(SOURCE, GROUP, 17, &[&lms[..], &[0; 12]].concat(), &[]);
    assert_eq!(
        driver::request::<OWN>(&driver, NOW, arrival(DOWN), &mut packet),
        Verdict::PASS
    );
}

/// Its first byte says how long a header is, and of which version.
#[test]
fn the_first_byte_is_checked() {
    let driver = Driver::of(&router_with_replier(), None);
    for form in FORMS {
        let good = request(KEY, None, form);
        let header_len = usize::from(good[0] & 0xf) * 4;
        for first in (0..=0xff).filter(|first| *first != good[0]) {
            let mut packet = good.clone();
            packet[0] = first;
            lms_proto::wire::ipv4::fill_checksum(&mut packet[..header_len]);
            let verdict = match form {
                Form::Classic => {
                    driver::request::<CLASSIC>(&driver, NOW, arrival(DOWN), &mut packet)
                }
                Form::Own => driver::request::<OWN>(&driver, NOW, arrival(DOWN), &mut packet),
            };
            assert_eq!(verdict, Verdict::PASS, "{first:#x}");
        }
    }
}

#[test]
fn a_dmcast_to_a_group_is_for_the_machine() {
    for form in FORMS {
        let repr = dmcast_repr(number(DOWN), form, Placement::Outer);
        let packet = compose(&repr, &inner(KEY));
        let packet = edit(packet, 0, |p| p[16..20].copy_from_slice(&GROUP.octets()));
        expect_pass(&mut router_with_replier(), NOW, arrival(REPLIER), &packet);
    }
}

/// A request to a unicast address is none, though source and group of its option have an entry.
#[test]
fn a_request_to_a_host_is_for_the_machine() {
    let driver = Driver::of(&router_with_replier(), None);
    let unicast = Key::new(SOURCE, Ipv4Addr::new(10, 1, 9, 9));
    for key in [KEY, unicast] {
        let option = option_bytes(&request_option(key, None), Form::Classic);
        let to = unicast.group;
        let mut packet = packet(SOURCE, to, 17, &option, &[0xab; 20]);
        assert_eq!(
            driver::request::<CLASSIC>(&driver, NOW, arrival(DOWN), &mut packet),
            Verdict::PASS
        );
    }
}

#[test]
fn the_port_of_the_other_carrier() {
    let port = lms_proto::wire::udp::PORT;
    for form in FORMS {
        for (protocol, port, is_carrier) in [
            (17, port, true),
            (17, port ^ 1, false),
            (6, port, false),
            (17, 0, false),
        ] {
            let mut packet = request(KEY, None, form);
            let header_len = usize::from(packet[0] & 0xf) * 4;
            packet[header_len + 2..header_len + 4].copy_from_slice(&port.to_be_bytes());
            let packet = edit(packet, 0, |p| p[9] = protocol);
            let mut router = router_with_replier();
            match is_carrier {
                true => expect_pass(&mut router, NOW, arrival(DOWN), &packet),
                false => expect_sent(
                    &mut router,
                    NOW,
                    arrival(DOWN),
                    &packet,
                    Action::Turn,
                    REPLIER,
                ),
            }
        }
    }
}

/// A router without the carrier by datagram has no port: 0 is none.
#[test]
fn no_port_of_the_other_carrier() {
    let mut router = router_with_replier();
    router.set_config(
        NOW,
        Config {
            policy: Policy::Static,
            udp_port: None,
            ..Config::default()
        },
    );
    for port in [0, lms_proto::wire::udp::PORT] {
        let mut packet = request(KEY, None, Form::Own);
        packet[OWN + 2..OWN + 4].copy_from_slice(&port.to_be_bytes());
        expect_sent(
            &mut router,
            NOW,
            arrival(DOWN),
            &packet,
            Action::Turn,
            REPLIER,
        );
    }
    // A header alone.
    let option = option_bytes(&request_option(KEY, None), Form::Own);
    let packet = packet(SOURCE, GROUP, 17, &option, &[]);
    expect_sent(
        &mut router,
        NOW,
        arrival(DOWN),
        &packet,
        Action::Turn,
        REPLIER,
    );
}

#[test]
fn without_settings_record_or_port() {
    let packet = request(KEY, None, Form::Classic);
    let mut router = router_with_replier();
    let mut pass = |change: &dyn Fn(&mut Driver)| {
        let mut driver = Driver::of(&router, None);
        change(&mut driver);
        let verdict = compare(&mut router, &driver, NOW, arrival(DOWN), &packet, None);
        assert_eq!(verdict, Verdict::PASS);
    };
    pass(&|driver| driver.settings = None);
    pass(&|driver| driver.records.clear());
    pass(&|driver| driver.ports.retain(|iface, _| *iface != REPLIER));
    pass(&|driver| driver.ports.get_mut(&REPLIER).unwrap().mtu = 0);
}

#[test]
fn packets_of_the_length_of_the_mtu() {
    for form in FORMS {
        for (from, packet, action, to) in [
            (
                arrival(DOWN),
                request(KEY, None, form),
                Action::Turn,
                REPLIER,
            ),
            (
                from_replier(),
                request(KEY, None, form),
                Action::ToParent,
                UP,
            ),
            (arrival(UP), turned(form), Action::ToReplier, REPLIER),
        ] {
            for short in [0, 1] {
                let mut router = router_with_replier();
                let mut driver = Driver::of(&router, None);
                let mtu = packet.len() as u32 - short;
                driver.ports.get_mut(&to).unwrap().mtu = mtu;
                let mut padded = packet.clone();
                padded.extend_from_slice(&[0; 9]);
                let verdict = compare(&mut router, &driver, NOW, from, &padded, None);
                let refusal = [Refusal::None, Refusal::TooLong][short as usize];
                assert_eq!(
                    (verdict.action, verdict.refusal, verdict.iface),
                    (action, refusal, to)
                );
            }
        }
    }
}

/// Without an address on the replier's side the machine decides what a turning point names; what needs none goes on.
#[test]
fn a_replier_s_interface_without_address() {
    let mut router = router_with_replier();
    let entry = [REPLIER, DOWN, DOWN2];
    router.remove_interface(NOW, REPLIER);
    router.install(NOW, KEY, UP, &entry).unwrap();
    router.set_replier(NOW, KEY, Some(replier())).unwrap();
    for form in FORMS {
        let plain = request(KEY, None, form);
        expect_pass(&mut router, NOW, arrival(DOWN), &plain);
        expect_sent(
            &mut router,
            NOW,
            from_replier(),
            &plain,
            Action::ToParent,
            UP,
        );
        expect_sent(
            &mut router,
            NOW,
            arrival(UP),
            &turned(form),
            Action::ToReplier,
            REPLIER,
        );
    }
}

/// The number and the cookie are those of the interface that the request arrived on.
#[test]
fn turning_points_differ_by_interface() {
    for form in FORMS {
        let mut points = Vec::new();
        for iface in [DOWN, DOWN2, REPLIER] {
            let driver = Driver::of(&router_with_replier(), None);
            let mut packet = request(KEY, None, form);
            let verdict = driver::run(&driver, NOW, arrival(iface), &mut packet);
            assert_eq!(verdict.action, Action::Turn);
            points.push(packet[20..].to_vec());
        }
        points.sort();
        points.dedup();
        assert_eq!(points.len(), 3);
    }
}

/// The Ethernet address of a group has its lower 23 bits.
#[test]
fn groups_with_the_upper_bit() {
    let key = Key::new(SOURCE, Ipv4Addr::new(239, 0xff, 0x81, 2));
    let mut router = router_with_replier();
    router.install(NOW, key, UP, &[DOWN]).unwrap();
    let driver = Driver::of(&router, None);
    let packet = request(key, None, Form::Own);
    let verdict = compare(&mut router, &driver, NOW, arrival(DOWN), &packet, None);
    assert_eq!(verdict.action, Action::ToParent);
    assert_eq!(verdict.link, LinkAddr([1, 0, 0x5e, 0x7f, 0x81, 2]));
}
