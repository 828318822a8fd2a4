//! The loaded program, without a router daemon: maps that are full, sizes at their limits, and frames that it must leave.

use std::net::Ipv4Addr;

use lms_proto::router::{Config, Policy, Storage};
use lms_proto::table::Replier;
use lms_proto::wire::ipv4;
use lms_proto::{Form, Iface, Instant, InterfaceConfig, Key, Kind, LmsOption, Router};
use lms_xdp::{Action, FastPath, Limits, Mode, Port, Totals};
use netlab::host::{Host, with_namespaces};
use proto_core::RateLimit;

const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);
const ETHERNET: usize = 14;

/// Runs a test on a host with interfaces `a` and `b`, where BPF programs may be loaded.
fn with_program(limits: Limits, test: impl FnOnce(FastPath, [u32; 2]) + Send) {
    let host = Host::new();
    host.edit(|editor| editor.add_veth("a", "b", None).expect("a veth pair"));
    let indexes = ["a", "b"].map(|name| host.index(name));
    host.run(|| match FastPath::load(limits) {
        Ok(program) => test(program, indexes),
        Err(error) => netlab::lacks("xdp", error),
    });
}

fn group(number: u16) -> Ipv4Addr {
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(239, 1, high, low)
}

/// A router with interfaces 0 (the parent), 1 (the replier) and 2, and this number of groups.
fn router(groups: u16) -> Router<'static> {
    let config = Config {
        policy: Policy::Static,
        ..Config::default()
    };
    let storage = Storage::with_capacity(groups.into(), 8);
    let now = Instant::ZERO;
    let mut router = Router::new(config, storage, [7; 32], now);
    for number in 0..3 {
        let address = Ipv4Addr::new(10, 0, number as u8 + 1, 1);
        let config = InterfaceConfig::ipv4(address, 24);
        router
            .set_interface(now, Iface(number), config)
            .expect("an interface");
    }
    for number in 0..groups {
        let key = Key::new(SOURCE, group(number));
        let down = [Iface(1), Iface(2)];
        router.install(now, key, Iface(0), &down).expect("an entry");
        let replier = Replier {
            iface: Iface(1),
            cost: 1,
            neighbour: None,
        };
        router
            .set_replier(now, key, Some(replier))
            .expect("a replier");
    }
    router
}

/// Publishes the router; interface 2 is the one that frames arrive on.
fn publish(program: &mut FastPath, router: &mut Router<'static>, indexes: [u32; 2]) {
    let limit = RateLimit::new(1_000_000, 1_000_000);
    let totals = Totals {
        requests: limit,
        dmcasts: limit,
    };
    let start = std::time::Instant::now();
    let settings = router.fast_path(totals, FastPath::start_ns(start));
    program.set_settings(settings).expect("settings");
    for (number, index) in [(1, indexes[0]), (2, indexes[1])] {
        let port = Port {
            mtu: 1500,
            address: Ipv4Addr::new(10, 0, number as u8 + 1, 1),
            prefix_len: 24,
            link: [2, 0, 0, 0, 0, number as u8],
            ..Port::NONE
        };
        program
            .set_port(Iface(number), index, port)
            .expect("a port");
    }
    program.set_links(router.interfaces()).expect("links");
    program.publish(router, |_, _| None);
}

/// A request for a group in a frame, with bytes behind the packet.
fn request(number: u16, padding: usize) -> Vec<u8> {
    let mut options = [0; 28];
    let option = LmsOption {
        kind: Kind::Request,
        turning_point: None,
        source: SOURCE.into(),
        group: group(number).into(),
    };
    option.emit(Form::Own, &mut options).expect("an option");
    let mut packet = vec![0; 48 + 20];
    packet[0] = 0x4c;
    packet[3] = 68;
    packet[8..10].copy_from_slice(&[9, 17]);
    packet[12..16].copy_from_slice(&[10, 0, 3, 2]);
    packet[16..20].copy_from_slice(&group(number).octets());
    packet[20..48].copy_from_slice(&options);
    ipv4::fill_checksum(&mut packet[..48]);
    let mut frame = vec![0; ETHERNET];
    frame[..6].copy_from_slice(&[1, 0, 0x5e, 1, 0, 0]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 9, 9]);
    frame[12] = 8;
    frame.extend(packet);
    frame.resize(frame.len() + padding, 0xee);
    frame
}

#[test]
fn entries_that_the_map_has_no_room_for_stay_with_the_router() {
    with_namespaces(|| {
        let limits = Limits {
            groups: 3,
            interfaces: 8,
        };
        with_program(limits, |mut program, indexes| {
            let mut router = router(5);
            publish(&mut program, &mut router, indexes);
            assert_eq!(program.published().len(), 3);
            let mut action = |number| {
                let run = program.test_run(indexes[1], &request(number, 0), 1);
                run.expect("a run").action
            };
            assert_eq!(
                (0..5)
                    .map(&mut action)
                    .filter(|a| *a == Action::Redirect)
                    .count(),
                3
            );
            // One goes, and makes room for no other: slots are those of the router's table.
            router.remove(Instant::ZERO, Key::new(SOURCE, group(0)));
            program.publish(&mut router, |_, _| None);
            assert_eq!(program.published().len(), 2);
            let run = program
                .test_run(indexes[1], &request(0, 0), 1)
                .expect("a run");
            assert_eq!(run.action, Action::Pass);
        });
    });
}

#[test]
fn padding_of_a_frame_is_cut_off_and_every_truncation_is_left_alone() {
    with_namespaces(|| {
        let limits = Limits {
            groups: 1,
            interfaces: 8,
        };
        with_program(limits, |mut program, indexes| {
            let mut router = router(1);
            publish(&mut program, &mut router, indexes);
            let whole = program
                .test_run(indexes[1], &request(0, 0), 1)
                .expect("a run");
            assert_eq!(
                (whole.action, whole.frame.len()),
                (Action::Redirect, ETHERNET + 68)
            );
            let padded = program
                .test_run(indexes[1], &request(0, 30), 1)
                .expect("a run");
            assert_eq!(
                padded,
                lms_xdp::TestRun {
                    nanoseconds: padded.nanoseconds,
                    ..whole
                }
            );
            let frame = request(0, 0);
            for len in ETHERNET..frame.len() {
                let run = program
                    .test_run(indexes[1], &frame[..len], 1)
                    .expect("a run");
                assert_eq!(
                    (run.action, &run.frame[..]),
                    (Action::Pass, &frame[..len]),
                    "{len} bytes"
                );
            }
        });
    });
}

#[test]
fn an_interface_that_cannot_be_sent_on_and_one_that_is_gone_are_the_router_s() {
    with_namespaces(|| {
        let limits = Limits {
            groups: 1,
            interfaces: 8,
        };
        with_program(limits, |mut program, indexes| {
            let mut router = router(1);
            publish(&mut program, &mut router, indexes);
            let action = |program: &mut FastPath| {
                let run = program.test_run(indexes[1], &request(0, 0), 1);
                run.expect("a run").action
            };
            assert_eq!(action(&mut program), Action::Redirect);
            program
                .set_port(Iface(1), indexes[0], Port::NONE)
                .expect("a port");
            assert_eq!(action(&mut program), Action::Pass);
            program.remove_port(Iface(2), indexes[1]);
            assert_eq!(action(&mut program), Action::Pass);
            assert!(program.attach(99_999, Mode::Auto).is_err(), "there is none");
            // Numbers beyond the limits are the router's.
            program
                .set_port(Iface(8), indexes[0], Port::NONE)
                .expect("ignored");
            assert_eq!(program.port_counters(Iface(8)).expect("none").received, 0);
        });
    });
}

#[test]
fn a_flood_keeps_to_the_rate_of_the_entry() {
    with_namespaces(|| {
        let limits = Limits {
            groups: 1,
            interfaces: 8,
        };
        with_program(limits, |mut program, indexes| {
            let mut router = router(1);
            router.set_config(
                Instant::ZERO,
                Config {
                    policy: Policy::Static,
                    request_rate: lms_proto::router::Rate {
                        per_second: 1,
                        burst: 10,
                    },
                    ..Config::default()
                },
            );
            publish(&mut program, &mut router, indexes);
            let start = std::time::Instant::now();
            for _ in 0..1_000 {
                let run = program.test_run(indexes[1], &request(0, 0), 1);
                run.expect("a run");
            }
            let (counters, drops) = program.counters().expect("counters");
            let most = 10 + 1 + start.elapsed().as_secs();
            assert!(
                (10..=most).contains(&counters.sent()),
                "{} sent",
                counters.sent()
            );
            let dropped: u64 = drops.iter().map(|(_, count)| count).sum();
            assert_eq!(counters.sent() + dropped, 1_000);
        });
    });
}
