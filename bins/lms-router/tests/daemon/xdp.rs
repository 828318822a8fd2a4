//! The fast path in the driver: what it forwards, what the router forwards all the same, and that no program remains attached when the router ends.

use std::net::Ipv4Addr;

use crate::common::*;
use linux_net::raw::Ipv4Socket;
use lms_proto::Form;
use lms_router::status::Show;
use lms_xdp::{FastPath, Limits, Mode};

const LIMITS: Limits = Limits {
    groups: 1,
    interfaces: 1,
};

/// Runs a test of the backend where BPF programs may be loaded.
fn with_xdp(test: impl FnOnce()) {
    match FastPath::load(LIMITS) {
        Ok(_) => on_backend(("xdp", None), test),
        Err(error) => netlab::lacks("xdp", error),
    }
}

fn start_with(router: &Host, more: &str) -> Daemon {
    let daemon = Daemon::start(router, &format!("{STATIC_ROUTE}{H1_REPLIES}{more}"));
    daemon.groups(1);
    daemon
}

/// Waits until the program forwards this number of groups.
fn published(daemon: &Daemon, count: u64) {
    eventually("groups in XDP", || {
        (daemon.status(Show::Overview)["xdp_groups"] == count).then_some(())
    });
}

fn modes(daemon: &Daemon) -> Vec<String> {
    let interfaces = daemon.status(Show::Interfaces);
    let all = interfaces["interfaces"].as_array().expect("interfaces");
    let mode =
        |interface: &serde_json::Value| interface["xdp"].as_str().expect("a mode").to_owned();
    all.iter().map(mode).collect()
}

/// Programs in a driver send on a veth whose peer has GRO; and what comes in must have its checksums.
fn prepare_for_native(bed: &Testbed) {
    for host in [&bed.src, &bed.h1, &bed.h2] {
        host.run(|| {
            let switch = [("rx-gro", true), ("tx-checksum-ip-generic", false)];
            linux_net::ethtool::switch_offloads("eth", &switch).expect("offloads");
        });
    }
}

#[test]
fn requests_and_repairs_are_forwarded_in_either_mode() {
    with_namespaces(|| {
        with_xdp(|| {
            for mode in ["generic", "native"] {
                on_backend(("xdp", Some(mode)), || {
                    let bed = Testbed::new();
                    prepare_for_native(&bed);
                    let daemon = start_with(&bed.router, "");
                    published(&daemon, 1);
                    assert_eq!(modes(&daemon), [mode; 3]);
                    let [src, h1, h2] = bed.endpoints(None);
                    for form in [Form::Classic, Form::Own] {
                        h2.ask_as(request(), form, b"nak");
                        let heard = h1.heard(SOON).expect("H1 hears the request");
                        assert_eq!(heard.payload, b"nak");
                        h1.ask_as(request(), form, b"nak");
                        assert_eq!(src.heard(SOON).expect("SRC hears it").payload, b"nak");
                    }
                    let inner = data_packet(SRC, GROUP, 9, b"repair");
                    let to = Ipv4Addr::new(10, 0, 2, 1);
                    send_raw(&bed.h1, &dmcast(H1, to, bed.asked(), &inner));
                    assert_eq!(h2.data(SOON).expect("H2 gets the repair").1, b"repair");
                    // All of them, and the request of `asked`.
                    daemon.wait_for("packets", "fast_path", 6);
                    let count = |name| daemon.counter("packets", name);
                    assert_eq!(count("request_turned"), 3);
                    assert_eq!(count("request_to_parent"), 2);
                    assert_eq!(count("dmcast"), 1);
                    // Only reports of membership came in by the ring.
                    assert_eq!(daemon.counter("queues", "ring_received"), count("control"));
                    assert_eq!(daemon.counter("packets", "dropped"), 0);
                });
            }
        });
    });
}

#[test]
fn packets_that_the_program_leaves_share_the_limits_with_it() {
    with_namespaces(|| {
        with_xdp(|| {
            let bed = Testbed::new();
            let limits = "[limits]\ngroup-requests-per-second = 10\n";
            let daemon = start_with(&bed.router, limits);
            published(&daemon, 1);
            let h2 = Endpoint::new(&bed.h2, None);
            let raw = bed.h2.run(|| Ipv4Socket::sender().expect("raw socket"));
            let mut option = [0; 20];
            request()
                .emit(Form::Classic, &mut option[..16])
                .expect("an option");
            // An option that is not the only one: two bytes of a timestamp that has no room, and padding.
            option[16..].copy_from_slice(&[1, 1, 1, 0]);
            let [high, low] = PORT.to_be_bytes();
            let datagram = [0x13, 0x88, high, low, 0, 11, 0, 0, b'n', b'a', b'k'];
            let unusual = ipv4(17, H2, GROUP, 9, &option, &datagram);
            let start = std::time::Instant::now();
            for _ in 0..200 {
                h2.ask(request(), b"flood");
                raw.send(0, &unusual).expect("send");
            }
            daemon.wait_for("drops", "request_rate", 350);
            let passed = daemon.counter("packets", "request_turned");
            let in_driver = daemon.counter("packets", "fast_path");
            let most = 10 + 10 * (1 + start.elapsed().as_secs());
            assert!(
                (10..=most).contains(&passed),
                "{passed} of 400, {most} at most"
            );
            assert!(in_driver > 0 && daemon.counter("queues", "ring_received") >= 200);
            // A repair that a request through the router called for passes the driver.
            let daemon = {
                drop(daemon);
                start_with(&bed.router, "")
            };
            published(&daemon, 1);
            let [_, h1, h2] = bed.endpoints(None);
            raw.send(0, &unusual).expect("send");
            let point = h1.heard(SOON).expect("H1 hears it").option.turning_point;
            let number = point.expect("turned").iface;
            let inner = data_packet(SRC, GROUP, 9, b"repair");
            send_raw(
                &bed.h1,
                &dmcast(H1, Ipv4Addr::new(10, 0, 2, 1), number, &inner),
            );
            assert_eq!(h2.data(SOON).expect("H2 gets the repair").1, b"repair");
            assert_eq!(daemon.counter("packets", "fast_path"), 1);
        });
    });
}

#[test]
fn chance_and_shared_trees_stay_with_the_router() {
    with_namespaces(|| {
        with_xdp(|| {
            let bed = Testbed::new();
            for policy in ["random", "search-party"] {
                let config = format!("{STATIC_ROUTE}[replier]\npolicy = \"{policy}\"\n");
                let daemon = Daemon::start(&bed.router, &config);
                daemon.groups(1);
                let h2 = Endpoint::new(&bed.h2, None);
                h2.ask(request(), b"nak");
                daemon.wait_for("queues", "sent", 1);
                assert_eq!(daemon.status(Show::Overview)["xdp_groups"], 0);
                assert_eq!(daemon.counter("packets", "fast_path"), 0);
            }
        });
    });
}

#[test]
fn interfaces_and_routes_come_and_go() {
    with_namespaces(|| {
        with_xdp(|| {
            let bed = Testbed::new();
            let daemon = start_with(&bed.router, "");
            published(&daemon, 1);
            // The replier's interface vanishes: the source answers.
            let index = bed.router.index("one");
            bed.router
                .edit(|editor| editor.remove(index).expect("remove"));
            eventually("two interfaces", || {
                (modes(&daemon).len() == 2).then_some(())
            });
            let [src, _, h2] = [&bed.src, &bed.src, &bed.h2].map(|host| Endpoint::new(host, None));
            eventually("a request goes up", || {
                h2.ask(request(), b"nak");
                src.heard(NEVER)
            });
            // It comes back.
            let h1 = Host::new();
            wire([
                (&bed.router, "one", Ipv4Addr::new(10, 0, 2, 1)),
                (&h1, "eth", H1),
            ]);
            eventually("three interfaces", || {
                (modes(&daemon).len() == 3).then_some(())
            });
            let h1 = Endpoint::new(&h1, None);
            eventually("a request turns", || {
                h2.ask(request(), b"nak");
                h1.heard(NEVER)
            });
            let forwarded = || daemon.counter("packets", "fast_path");
            let before = forwarded();
            eventually("the program turns it", || {
                h2.ask(request(), b"nak");
                (forwarded() > before).then_some(())
            });
            // The route goes with a reload.
            daemon.reload("[source]\nkind = \"static\"\n");
            published(&daemon, 0);
            h2.ask(request(), b"nak");
            daemon.wait_for("drops", "no_entry", 1);
        });
    });
}

#[test]
fn nothing_stays_behind_and_another_program_is_left_alone() {
    with_namespaces(|| {
        with_xdp(|| {
            let bed = Testbed::new();
            let daemon = start_with(&bed.router, "");
            published(&daemon, 1);
            let index = bed.router.index("one");
            let attach = |program: &mut FastPath| {
                bed.router
                    .run(|| program.attach(index, Mode::Generic).map(|_| ()))
            };
            let mut other = bed
                .router
                .run(|| FastPath::load(LIMITS))
                .expect("a program");
            let error = attach(&mut other).expect_err("the daemon's is there");
            assert!(error.is_busy(), "{error}");
            daemon.kill();
            eventually("the program is gone", || attach(&mut other).ok());
            // The daemon leaves that interface to its owner, and forwards by the ring there.
            let daemon = start_with(&bed.router, "");
            let mut sorted = modes(&daemon);
            sorted.sort();
            assert_eq!(sorted, ["generic", "generic", "ring"]);
            assert!(daemon.log().contains("another XDP program is attached"));
            let [src, h1, _] = bed.endpoints(None);
            h1.ask(request(), b"nak");
            assert_eq!(src.heard(SOON).expect("SRC hears it").payload, b"nak");
            assert_eq!(daemon.counter("packets", "fast_path"), 0);
            assert!(attach(&mut other).is_ok(), "still the other's");
        });
    });
}
