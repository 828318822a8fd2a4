//! Real packets through a real router: the three scenarios of LMS §6.5.3, and what must not
//! pass.

use std::net::Ipv4Addr;
use std::process::Command;

use crate::common::*;
use linux_net::raw::Ipv4Socket;
use lms_proto::{Form, Iface, LmsOption, TurningPoint};
use lms_router::status::Show;

#[test]
fn scenario_1_a_request_of_h2_turns_and_reaches_h1() {
    with_namespaces(|| {
        on_each_backend(|| {
            let bed = Testbed::new();
            let daemon = start(&bed.router);
            let [src, h1, h2] = bed.endpoints(None);
            for form in [Form::Classic, Form::Own] {
                h2.ask_as(request(), form, b"nak");
                let heard = h1.heard(SOON).expect("H1 hears the request");
                // Which interface that is, the router alone knows.
                let point = heard.option.turning_point.expect("turned");
                let mut option = turned(request(), Ipv4Addr::new(10, 0, 2, 1), point.iface);
                option.turning_point = option.turning_point.map(|at| TurningPoint {
                    cookie: point.cookie,
                    ..at
                });
                assert_eq!(point.cookie == 0, form == Form::Classic);
                assert_eq!(
                    heard,
                    Heard {
                        source: H2,
                        option,
                        payload: b"nak".to_vec()
                    }
                );
            }
            assert_eq!(src.heard(NEVER), None, "what has turned does not go up");
            daemon.wait_for("packets", "request_turned", 2);
            // The kernel, which routes nothing here, sees no request either.
            assert_eq!(daemon.counter("packets", "dropped"), 0);
        });
    });
}

#[test]
fn scenario_2_a_request_of_the_replier_reaches_the_source_untouched() {
    with_namespaces(|| {
        on_each_backend(|| {
            let bed = Testbed::new();
            let daemon = start(&bed.router);
            let [src, h1, h2] = bed.endpoints(None);
            h1.ask(request(), b"nak");
            let heard = src.heard(SOON).expect("SRC hears the request");
            assert_eq!(
                heard,
                Heard {
                    source: H1,
                    option: request(),
                    payload: b"nak".to_vec()
                }
            );
            assert_eq!(h2.heard(NEVER), None);
            assert_eq!(daemon.counter("packets", "request_to_parent"), 1);
        });
    });
}

#[test]
fn scenario_3_a_dmcast_of_h1_is_multicast_towards_h2() {
    with_namespaces(|| {
        on_each_backend(|| {
            let bed = Testbed::new();
            let daemon = start(&bed.router);
            let [src, h1, h2] = bed.endpoints(None);
            let inner = data_packet(SRC, GROUP, 9, b"repair");
            let to = Ipv4Addr::new(10, 0, 2, 1);
            send_raw(&bed.h1, &dmcast(H1, to, bed.asked(), &inner));
            let (source, payload) = h2.data(SOON).expect("H2 gets the repair");
            assert_eq!((*source.ip(), payload.as_slice()), (SRC, &b"repair"[..]));
            assert_eq!(h1.data(NEVER), None, "only the turning point's interface");
            assert_eq!(src.data(NEVER), None);
            assert_eq!(daemon.counter("packets", "dmcast"), 1);
            let interfaces = daemon.status(Show::Interfaces);
            let two = interfaces["interfaces"]
                .as_array()
                .unwrap()
                .iter()
                .find(|i| i["name"] == "two");
            assert_eq!(two.unwrap()["dmcasts_sent"], 1);
        });
    });
}

#[test]
fn a_whole_recovery_from_request_to_repair() {
    with_namespaces(|| {
        on_each_backend(|| {
            let bed = Testbed::new();
            let _daemon = start(&bed.router);
            let (h1, h2) = (Endpoint::new(&bed.h1, None), Endpoint::new(&bed.h2, None));
            h2.ask(request(), b"1..3");
            let heard = h1.heard(SOON).expect("request");
            let turning_point = heard.option.turning_point.expect("turned");
            let std::net::IpAddr::V4(router) = turning_point.router else {
                panic!("IPv6")
            };
            let inner = data_packet(SRC, GROUP, 9, b"one to three");
            send_raw(&bed.h1, &dmcast(H1, router, turning_point.iface, &inner));
            assert_eq!(h2.data(SOON).expect("repair").1, b"one to three");
        });
    });
}

/// A forged packet, its sender, and the reason for which it is dropped.
type Forged = (&'static str, &'static str, Vec<u8>);

/// The router's address on the link to H1.
const ROUTER_ONE: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 1);
const OTHER_GROUP: Ipv4Addr = Ipv4Addr::new(239, 9, 9, 9);

/// Overwrites an address in a header of 36 bytes, whose checksum is valid afterwards.
fn with_address(mut packet: Vec<u8>, at: usize, address: Ipv4Addr) -> Vec<u8> {
    packet[at..at + 4].copy_from_slice(&address.octets());
    lms_proto::wire::ipv4::fill_checksum(&mut packet[..36]);
    packet
}

/// `two`: the router's number of the interface to H2.
fn forged_requests(two: Iface) -> Vec<Forged> {
    let bytes = |option: LmsOption| {
        let mut bytes = vec![0; 16];
        option.emit(Form::Classic, &mut bytes).unwrap();
        bytes
    };
    let good = bytes(request());
    let ask = |ttl, option: &[u8]| {
        let udp = &data_packet(H2, GROUP, ttl, b"x")[20..];
        ipv4(17, H2, GROUP, ttl, option, udp)
    };
    let has_turned = bytes(turned(request(), ROUTER_ONE, two));
    let to_other_group = bytes(LmsOption {
        group: OTHER_GROUP.into(),
        ..request()
    });
    let mut half = good.clone();
    half[2..4].copy_from_slice(&[0, 1]);
    let mut short = good.clone();
    short[1] = 12;
    let twice = [good.clone(), good.clone()].concat();
    vec![
        ("turned_from_below", "h2", ask(9, &has_turned)),
        ("group_mismatch", "h2", ask(9, &to_other_group)),
        ("half_turning_point", "h2", ask(9, &half)),
        ("lms_length", "h2", ask(9, &short)),
        ("duplicate_option", "h2", ask(9, &twice)),
        ("ttl_expired", "h2", ask(1, &good)),
        (
            "unturned_from_parent",
            "src",
            with_address(ask(9, &good), 12, SRC),
        ),
    ]
}

/// `two`: the router's number of the interface to H2.
fn forged_dmcasts(two: Iface) -> Vec<Forged> {
    let to_one = |iface, inner: &[u8]| dmcast(H1, ROUTER_ONE, iface, inner);
    let inner = data_packet(SRC, GROUP, 9, b"x");
    let good = to_one(two, &inner);
    let mut wrong_checksum = good.clone();
    wrong_checksum[36 + 10] ^= 1;
    let from_h2 = data_packet(H2, GROUP, 9, b"x");
    let expired = data_packet(SRC, GROUP, 1, b"x");
    let other_router = Ipv4Addr::new(10, 9, 9, 9);
    vec![
        ("not_downstream", "h1", to_one(Iface(9), &inner)),
        // The option names a turning point, a source and a group, from octet 24 of the packet.
        (
            "other_turning_point",
            "h1",
            with_address(good.clone(), 24, other_router),
        ),
        (
            "inner_source_mismatch",
            "h1",
            with_address(good.clone(), 28, H2),
        ),
        (
            "inner_group_mismatch",
            "h1",
            with_address(good, 32, OTHER_GROUP),
        ),
        ("inner_header_checksum", "h1", wrong_checksum),
        ("no_entry", "h1", to_one(two, &from_h2)),
        ("inner_ttl_expired", "h1", to_one(two, &expired)),
    ]
}

#[test]
fn forged_packets_are_dropped_and_counted_under_their_reasons() {
    with_namespaces(|| {
        on_each_backend(|| {
            let bed = Testbed::new();
            let daemon = start(&bed.router);
            let [src, h1, h2] = bed.endpoints(None);
            let number = bed.asked();
            assert!(h1.heard(SOON).is_some() && h2.heard(NEVER).is_none());
            let cases = [forged_requests(number), forged_dmcasts(number)].concat();
            for (reason, from, packet) in &cases {
                let host = match *from {
                    "src" => &bed.src,
                    "h1" => &bed.h1,
                    _ => &bed.h2,
                };
                send_raw(host, packet);
                daemon.wait_for("drops", reason, 1);
            }
            assert_eq!(daemon.counter("packets", "dropped"), cases.len() as u64);
            assert_eq!(
                daemon.counter("queues", "sent"),
                1,
                "nothing but the request was sent on"
            );
            for host in [&src, &h1, &h2] {
                assert_eq!((host.heard(NEVER), host.data(NEVER)), (None, None));
            }
        });
    });
}

#[test]
fn a_flood_of_requests_stays_within_the_configured_rate() {
    with_namespaces(|| {
        on_each_backend(|| {
            let bed = Testbed::new();
            let limits = "[limits]\ngroup-requests-per-second = 10\n";
            let daemon = Daemon::start(&bed.router, &format!("{STATIC_ROUTE}{H1_REPLIES}{limits}"));
            daemon.groups(1);
            let h2 = Endpoint::new(&bed.h2, None);
            let start = std::time::Instant::now();
            for _ in 0..500 {
                h2.ask(request(), b"flood");
            }
            daemon.wait_for("drops", "request_rate", 400);
            let passed = daemon.counter("packets", "request_turned");
            let most = 10 + 10 * (1 + start.elapsed().as_secs());
            assert!(
                (10..=most).contains(&passed),
                "{passed} of 500, {most} at most"
            );
        });
    });
}

#[test]
fn floods_of_both_kinds_stay_within_the_rate_of_all_groups_together() {
    with_namespaces(|| {
        on_each_backend(|| {
            let bed = Testbed::new();
            let limits = "[limits]\nrequests-per-second = 20\ndmcasts-per-second = 30\n\
                          group-requests-per-second = 1000000\ngroup-dmcasts-per-second = 1000000\n";
            let daemon = Daemon::start(&bed.router, &format!("{STATIC_ROUTE}{H1_REPLIES}{limits}"));
            let inner = data_packet(SRC, GROUP, 9, b"flood");
            let to = Ipv4Addr::new(10, 0, 2, 1);
            let dmcast = dmcast(H1, to, bed.asked(), &inner);
            let (h1, h2) = (Endpoint::new(&bed.h1, None), Endpoint::new(&bed.h2, None));
            let raw = bed.h1.run(|| Ipv4Socket::sender().expect("raw socket"));
            let start = std::time::Instant::now();
            // In portions, because the kernel's queues are short.
            eventually("a flood of both", || {
                for _ in 0..50 {
                    h2.ask(request(), b"flood");
                    raw.send(0, &dmcast).expect("send");
                }
                let seen = |name| daemon.counter("packets", name) >= 500;
                (seen("request_turned") && seen("dmcast")).then_some(())
            });
            let most = |rate: u64| 10 + rate * (1 + start.elapsed().as_secs());
            // What the hosts get, all of it.
            let requests = std::iter::from_fn(|| h1.heard(NEVER)).count() as u64;
            let dmcasts = std::iter::from_fn(|| h2.data(NEVER)).count() as u64;
            assert!((10..=most(20)).contains(&requests), "{requests} requests");
            assert!((10..=most(30)).contains(&dmcasts), "{dmcasts} dmcasts");
            // And the first request, by which the interface's number was read.
            assert_eq!(daemon.counter("queues", "sent"), requests + dmcasts + 1);
            // The machine passes them, the limit of all groups drops behind it.
            let of = |part, name| daemon.counter(part, name);
            assert_eq!(
                of("packets", "request_turned") - of("drops", "total_request_rate"),
                requests + 1
            );
            assert_eq!(
                of("packets", "dmcast") - of("drops", "total_dmcast_rate"),
                dmcasts
            );
        });
    });
}

#[test]
fn a_request_that_the_guard_cannot_hide_is_forwarded_and_counted() {
    with_namespaces(|| {
        on_each_backend(|| {
            let bed = Testbed::new();
            let daemon = start(&bed.router);
            let (h1, h2) = (Endpoint::new(&bed.h1, None), Endpoint::new(&bed.h2, None));
            h2.ask(request(), b"hidden");
            assert_eq!(h1.heard(SOON).expect("hidden").payload, b"hidden");
            assert_eq!(daemon.counter("queues", "unguarded"), 0);
            let mut options = vec![1; 5];
            options.resize(21, 0);
            request()
                .emit(Form::Classic, &mut options[5..])
                .expect("option");
            let udp = &data_packet(H2, GROUP, 9, b"seen")[20..];
            send_raw(&bed.h2, &ipv4(17, H2, GROUP, 9, &options, udp));
            daemon.wait_for("packets", "request_turned", 2);
            assert!(readable(h1.as_fd(), SOON), "it is forwarded all the same");
            assert_eq!(daemon.counter("queues", "unguarded"), 1);
        });
    });
}

/// What the router sends keeps to the rate of a class (HTB) that its interface is given.
#[test]
fn repairs_stay_in_the_class_of_the_interface() {
    with_namespaces(|| {
        const BYTES_PER_S: u64 = 20_000;
        let bed = Testbed::new();
        for command in [
            "qdisc add dev two root handle 1: htb default 1",
            "class add dev two parent 1: classid 1:1 htb rate 160kbit burst 2k cburst 2k",
            "qdisc add dev two parent 1:1 handle 2: bfifo limit 8000",
        ] {
            let status = bed.router.run(|| {
                Command::new("tc")
                    .args(command.split_whitespace())
                    .status()
                    .expect("tc")
            });
            assert!(status.success(), "tc {command}");
        }
        let daemon = start(&bed.router);
        let h2 = Endpoint::new(&bed.h2, None);
        let inner = data_packet(SRC, GROUP, 9, &[7; 972]);
        let dmcast = dmcast(H1, Ipv4Addr::new(10, 0, 2, 1), bed.asked(), &inner);
        let raw = bed.h1.run(|| Ipv4Socket::sender().expect("raw socket"));
        let start = std::time::Instant::now();
        for _ in 0..1_000 {
            raw.send(0, &dmcast).expect("send");
        }
        let received = std::iter::from_fn(|| h2.data(NEVER)).count() as u64;
        let allowed = 2 * 2_048 + 8_000 + BYTES_PER_S * (1 + start.elapsed().as_secs());
        assert!(received > 0);
        assert!(
            received * 1_000 <= allowed,
            "{received} repairs of 1,000 bytes passed, {allowed} bytes are allowed"
        );
        // Packets beyond the class's queue are counted as not sent.
        assert!(daemon.counter("queues", "send_failed") > 0);
    });
}

/// Fragments of a request carry its option each; none of them is one.
#[test]
fn fragments_of_requests_are_dropped_and_counted() {
    with_namespaces(|| {
        on_each_backend(|| {
            let bed = Testbed::new();
            let daemon = start(&bed.router);
            let h1 = Endpoint::new(&bed.h1, None);
            let mut option = [0; 16];
            request().emit(Form::Classic, &mut option).expect("option");
            let udp = &data_packet(H2, GROUP, 9, b"tail")[20..];
            for (n, flags) in [[0, 3], [0x20, 0], [0x20, 3]].into_iter().enumerate() {
                let mut packet = ipv4(17, H2, GROUP, 9, &option, udp);
                packet[6..8].copy_from_slice(&flags);
                lms_proto::wire::ipv4::fill_checksum(&mut packet[..36]);
                send_raw(&bed.h2, &packet);
                daemon.wait_for("drops", "request_fragment", n as u64 + 1);
            }
            assert_eq!(daemon.counter("queues", "sent"), 0);
            assert_eq!(h1.heard(NEVER), None);
        });
    });
}

#[test]
fn a_request_longer_than_the_mtu_towards_the_replier_is_counted() {
    with_namespaces(|| {
        let bed = Testbed::new();
        for (host, name) in [(&bed.router, "one"), (&bed.h1, "eth")] {
            let index = host.index(name);
            host.edit(|editor| editor.set_mtu(index, 600).expect("MTU"));
        }
        let daemon = start(&bed.router);
        let (h1, h2) = (Endpoint::new(&bed.h1, None), Endpoint::new(&bed.h2, None));
        h2.ask(request(), &[7; 1000]);
        let too_long = || {
            let interfaces = daemon.status(Show::Interfaces);
            let mut all = interfaces["interfaces"].as_array().unwrap().iter();
            let one = all.find(|interface| interface["name"] == "one")?;
            (one["too_long"] == 1).then_some(())
        };
        eventually("too_long", too_long);
        assert_eq!(h1.heard(NEVER), None);
        h2.ask(request(), &[7; 400]);
        assert_eq!(
            h1.heard(SOON).expect("a short one passes").payload.len(),
            400
        );
    });
}
