//! Where routes come from: the kernel's table under another owner, the IGMP proxy; and interfaces
//! that come and go.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::common::*;
use linux_net::mroute::{Route, Table};
use linux_net::udp::{Config, GroupSocket, Transmit};
use lms_router::status::Show;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

pub(crate) fn downstream(group: &Value) -> Vec<String> {
    let list = group["downstream"].as_array().expect("list");
    let mut names: Vec<String> = list
        .iter()
        .map(|name| name.as_str().expect("name").to_owned())
        .collect();
    names.sort();
    names
}

/// Owns the kernel's multicast routing at the router, with its interfaces `up`, `one` and `two`.
fn kernel_table(bed: &Testbed) -> (Table, [u32; 3]) {
    let mut table = bed.router.run(|| Table::open().expect("multicast routing"));
    let interfaces = ["up", "one", "two"].map(|name| bed.router.index(name));
    for interface in interfaces {
        table.add_interface(interface).expect("interface");
    }
    (table, interfaces)
}

#[test]
fn the_kernel_s_routes_are_followed_whoever_sets_them() {
    with_namespaces(|| {
        let bed = Testbed::new();
        let (mut table, [up, one, two]) = kernel_table(&bed);
        let route = |source, outputs: &[u32]| Route {
            source,
            group: GROUP,
            input: up,
            outputs: outputs.to_vec(),
        };
        // One that exists before the router starts, and two that come later.
        table.set_route(&route(SRC, &[one])).expect("route");
        let daemon = Daemon::start(&bed.router, "");
        let groups = daemon.groups(1);
        assert_eq!(
            groups[0],
            json!({"source": "10.0.1.2", "group": "239.1.2.3", "upstream": "up",
                   "downstream": ["one"], "replier": null})
        );
        table.set_route(&route(SRC, &[one, two])).expect("route");
        eventually("the route has another output", || {
            (downstream(&daemon.groups(1)[0]) == ["one", "two"]).then_some(())
        });
        table
            .set_route(&route(Ipv4Addr::UNSPECIFIED, &[one]))
            .expect("(*, G)");
        let groups = daemon.groups(2);
        let any = groups
            .as_array()
            .unwrap()
            .iter()
            .find(|group| group["source"] == "*");
        let any = any.expect("(*, G)");
        assert_eq!(
            (&any["upstream"], downstream(any)),
            (&json!("up"), vec!["one".to_owned()])
        );
        table.remove_route(SRC, GROUP).expect("remove");
        assert_eq!(daemon.groups(1)[0]["source"], "*");
        drop(table);
        daemon.groups(0);
    });
}

#[test]
fn requests_follow_a_route_that_another_daemon_set_and_the_kernel_sees_none() {
    with_namespaces(|| {
        on_each_backend(|| {
            let bed = Testbed::new();
            let (mut table, [up, one, two]) = kernel_table(&bed);
            let route = Route {
                source: SRC,
                group: GROUP,
                input: up,
                outputs: vec![one, two],
            };
            table.set_route(&route).expect("route");
            let daemon = Daemon::start(&bed.router, H1_REPLIES);
            daemon.groups(1);
            let (h1, h2) = (Endpoint::new(&bed.h1, None), Endpoint::new(&bed.h2, None));
            h2.ask(request(), b"nak");
            let heard = h1.heard(SOON).expect("request");
            let number = heard.option.turning_point.expect("turned").iface;
            let inner = data_packet(SRC, GROUP, 9, b"repair");
            let to = Ipv4Addr::new(10, 0, 2, 1);
            send_raw(&bed.h1, &dmcast(H1, to, number, &inner));
            assert_eq!(h2.data(SOON).expect("repair").1, b"repair");
            // The owner of the routes was not asked about a source H2, nor about a wrong interface.
            assert_eq!(table.next_upcall().expect("upcalls"), None);
            assert_eq!(
                table
                    .counters(SRC, GROUP)
                    .expect("counters")
                    .wrong_interface,
                0
            );
            // Data still takes the kernel's way.
            let source = sender(&bed.src);
            send(&source, b"data");
            assert_eq!(h1.data(SOON).expect("data").1, b"data");
            assert_eq!(h2.data(SOON).expect("data").1, b"data");
        });
    });
}

fn sender(host: &Host) -> GroupSocket {
    let interface = host.index("eth");
    host.run(|| {
        let config = Config {
            interface,
            ttl: 9,
            ..Config::default()
        };
        GroupSocket::open(&config).expect("socket")
    })
}

fn send(socket: &GroupSocket, bytes: &[u8]) {
    let destination = std::net::SocketAddrV4::new(GROUP, PORT);
    socket
        .send_all(&Transmit {
            destination,
            bytes,
            segment_len: None,
        })
        .expect("send");
}

#[test]
fn an_interface_that_appears_later_is_used_and_one_that_vanishes_is_not() {
    with_namespaces(|| {
        on_each_backend(|| {
            let bed = Testbed::new();
            let config = STATIC_ROUTE.replace("\"two\"]", "\"two\", \"late\"]");
            let daemon = Daemon::start(&bed.router, &format!("{config}{H1_REPLIES}"));
            assert_eq!(downstream(&daemon.groups(1)[0]), ["one", "two"]);
            let h1 = Endpoint::new(&bed.h1, None);
            let before = ["up", "one", "two"].map(|name| daemon.number(name));
            let mut late_number = None;
            for _ in 0..2 {
                let h3 = Host::new();
                wire([
                    (&bed.router, "late", Ipv4Addr::new(10, 0, 4, 1)),
                    (&h3, "eth", Ipv4Addr::new(10, 0, 4, 2)),
                ]);
                let late = daemon.number("late");
                // A vanished interface that comes back gets its number again; the others keep theirs.
                assert_eq!(*late_number.get_or_insert(late), late);
                assert_eq!(["up", "one", "two"].map(|name| daemon.number(name)), before);
                eventually("the route has it", || {
                    (downstream(&daemon.groups(1)[0]) == ["late", "one", "two"]).then_some(())
                });
                let endpoint = Endpoint::new(&h3, None);
                // Addresses may be there a moment after the interface: its own, and what the router knows of them.
                let repair = eventually("a request from there is answered", || {
                    endpoint.ask(request(), b"nak");
                    let heard = h1.heard(Duration::from_millis(100))?;
                    let number = heard.option.turning_point.expect("turned").iface;
                    let inner = data_packet(SRC, GROUP, 9, b"repair");
                    let to = Ipv4Addr::new(10, 0, 2, 1);
                    send_raw(&bed.h1, &dmcast(H1, to, number, &inner));
                    endpoint.data(Duration::from_millis(500))
                });
                assert_eq!(repair.1, b"repair");
                let index = bed.router.index("late");
                bed.router
                    .edit(|editor| editor.remove(index).expect("remove"));
                eventually("the route has it no more", || {
                    (downstream(&daemon.groups(1)[0]) == ["one", "two"]).then_some(())
                });
                while h1.heard(NEVER).is_some() {}
            }
            let interfaces = daemon.status(Show::Interfaces);
            assert_eq!(interfaces["interfaces"].as_array().unwrap().len(), 3);
        });
    });
}

#[test]
fn a_static_route_follows_the_names_of_interfaces() {
    with_namespaces(|| {
        let bed = Testbed::new();
        let config = STATIC_ROUTE.replace("\"two\"]", "\"two\", \"other\"]");
        let daemon = Daemon::start(&bed.router, &config);
        let (two, number) = (bed.router.index("two"), daemon.number("two"));
        assert_eq!(downstream(&daemon.groups(1)[0]), ["one", "two"]);
        for (name, expected) in [("other", vec!["one", "other"]), ("stranger", vec!["one"])] {
            bed.router.edit(|editor| {
                if editor.set_name(two, name).is_err() {
                    editor.set_up(two, false).expect("down");
                    editor.set_name(two, name).expect("rename");
                    editor.set_up(two, true).expect("up");
                }
            });
            eventually("the route has the interfaces of its names", || {
                (downstream(&daemon.groups(1)[0]) == expected).then_some(())
            });
            assert_eq!(daemon.number(name), number, "to the router it is the same");
        }
    });
}

#[test]
fn routes_beyond_what_the_kernel_can_tell_at_once_are_all_followed() {
    with_namespaces(|| {
        const ROUTES: u32 = 20_000;
        let bed = Testbed::new();
        let (up, one) = (bed.router.index("up"), bed.router.index("one"));
        let mut table = bed.router.run(|| Table::open().expect("multicast routing"));
        for interface in [up, one] {
            table.add_interface(interface).expect("interface");
        }
        let daemon = Daemon::start(&bed.router, "[limits]\ngroups = 30000\n");
        let groups = |count: u32| {
            eventually("the router knows the routes", || {
                (daemon.status(Show::Overview)["groups"] == count).then_some(())
            });
        };
        let first = u32::from(Ipv4Addr::new(239, 7, 0, 0));
        // It does not listen while the routes come and go, and the kernel's queue runs over.
        daemon.signal(Signal::SIGSTOP);
        for n in 0..ROUTES {
            let route = Route {
                source: SRC,
                group: (first + n).into(),
                input: up,
                outputs: vec![one],
            };
            table.set_route(&route).expect("route");
        }
        daemon.signal(Signal::SIGCONT);
        groups(ROUTES);
        daemon.signal(Signal::SIGSTOP);
        for n in 0..ROUTES - 1 {
            table.remove_route(SRC, (first + n).into()).expect("remove");
        }
        daemon.signal(Signal::SIGCONT);
        groups(1);
        assert_eq!(daemon.counter("routes", "read_errors"), 0);
    });
}

pub(crate) const PROXY: &str = r#"
[source]
kind = "igmp-proxy"
upstream = "up"
downstream = ["one", "two"]
query-interval = "2s"
response-interval = "500ms"
last-member-interval = "100ms"
"#;

#[test]
fn the_igmp_proxy_serves_hosts_that_join_any_source_or_one() {
    with_namespaces(|| {
        on_each_backend(|| {
            let bed = Testbed::new();
            let daemon = Daemon::start(&bed.router, PROXY);
            daemon.number("two");
            let source = sender(&bed.src);
            let gets = |endpoint: &Endpoint| {
                eventually("data", || {
                    send(&source, b"data");
                    endpoint.data(Duration::from_millis(50))
                });
            };
            let any = Endpoint::new(&bed.h1, None);
            gets(&any);
            let group = daemon.groups(1)[0].clone();
            assert_eq!(
                (&group["source"], &group["upstream"]),
                (&json!("10.0.1.2"), &json!("up"))
            );
            assert_eq!(downstream(&group), ["one"]);
            // A member of another source only receives nothing.
            let other = Endpoint::new(&bed.h2, Some(Ipv4Addr::new(10, 0, 1, 77)));
            daemon.wait_for("igmp", "reports_received", 2);
            send(&source, b"data");
            assert_eq!(other.data(NEVER), None);
            drop(other);
            let specific = Endpoint::new(&bed.h2, Some(SRC));
            gets(&specific);
            assert_eq!(downstream(&daemon.groups(1)[0]), ["one", "two"]);
            // The host above is asked for both.
            daemon.wait_for("igmp", "reports_sent", 1);
            drop(any);
            eventually("one leaves the tree", || {
                (downstream(&daemon.groups(1)[0]) == ["two"]).then_some(())
            });
            gets(&specific);
            drop(specific);
            daemon.groups(0);
        });
    });
}

/// The proxy keeps its links and their members when the upstream interface gets another address.
#[test]
fn the_igmp_proxy_serves_hosts_when_its_upstream_address_changes() {
    with_namespaces(|| {
        let bed = Testbed::new();
        let other = Ipv4Addr::new(10, 0, 1, 9);
        let config = "[[interface]]\nname = \"up\"\naddress = \"10.0.1.9\"\n";
        // Queries come from a start alone.
        let config = format!("{}{config}", PROXY.replace("2s", "1000s"));
        let daemon = Daemon::start(&bed.router, &config);
        let up = daemon.number("up");
        daemon.number("two");
        let source = sender(&bed.src);
        let gets = |endpoint: &Endpoint| {
            eventually("data", || {
                send(&source, b"data");
                endpoint.data(Duration::from_millis(50))
            });
        };
        let before = Endpoint::new(&bed.h1, None);
        gets(&before);
        let queries = daemon.counter("igmp", "queries_sent");
        let index = bed.router.index("up");
        bed.router.edit(|editor| {
            editor.add_address(index, other, 24).expect("address");
        });
        eventually("the interface has the address", || {
            let interfaces = daemon.status(Show::Interfaces);
            let mut all = interfaces["interfaces"].as_array().expect("list").iter();
            let found = all.find(|interface| interface["number"] == up.0)?;
            (found["address"] == "10.0.1.9").then_some(())
        });
        let after = Endpoint::new(&bed.h2, None);
        gets(&after);
        gets(&before);
        assert_eq!(downstream(&daemon.groups(1)[0]), ["one", "two"]);
        assert_eq!(daemon.counter("igmp", "queries_sent"), queries);
    });
}

/// An interface that disappears and returns in between two looks at the interfaces has another index.
#[test]
fn the_igmp_proxy_serves_hosts_when_its_upstream_interface_is_replaced() {
    with_namespaces(|| {
        let bed = Testbed::new();
        let daemon = Daemon::start(&bed.router, PROXY);
        daemon.number("two");
        let index = bed.router.index("up");
        daemon.signal(Signal::SIGSTOP);
        bed.router
            .edit(|editor| editor.remove(index).expect("removed"));
        let source = Ipv4Addr::new(10, 0, 1, 2);
        wire([
            (&bed.router, "up", Ipv4Addr::new(10, 0, 1, 1)),
            (&bed.src, "eth", source),
        ]);
        daemon.signal(Signal::SIGCONT);
        eventually("the router uses the new interface", || {
            let interfaces = daemon.status(Show::Interfaces);
            let mut all = interfaces["interfaces"].as_array().expect("list").iter();
            let found = all.find(|interface| interface["name"] == "up")?;
            (found["index"] == bed.router.index("up")).then_some(())
        });
        let source = sender(&bed.src);
        let member = Endpoint::new(&bed.h1, None);
        eventually("data", || {
            send(&source, b"data");
            member.data(Duration::from_millis(50))
        });
    });
}

#[test]
fn lms_works_over_the_proxy_s_routes() {
    with_namespaces(|| {
        on_each_backend(|| {
            let bed = Testbed::new();
            let daemon = Daemon::start(&bed.router, &format!("{PROXY}{H1_REPLIES}"));
            daemon.number("two");
            let (h1, h2) = (Endpoint::new(&bed.h1, None), Endpoint::new(&bed.h2, None));
            let source = sender(&bed.src);
            eventually("both are on the tree", || {
                send(&source, b"data");
                let groups = daemon.status(Show::Groups);
                let group = groups["groups"].as_array()?.first()?.clone();
                (downstream(&group) == ["one", "two"]).then_some(())
            });
            h2.ask(request(), b"nak");
            let heard = h1.heard(SOON).expect("request");
            let number = heard.option.turning_point.expect("turned").iface;
            let inner = data_packet(SRC, GROUP, 9, b"repair");
            let to = Ipv4Addr::new(10, 0, 2, 1);
            send_raw(&bed.h1, &dmcast(H1, to, number, &inner));
            eventually("the repair", || {
                (h2.data(SOON).expect("data").1 == b"repair").then_some(())
            });
        });
    });
}

#[test]
fn the_proxy_refuses_to_start_where_somebody_else_owns_the_routing() {
    with_namespaces(|| {
        let bed = Testbed::new();
        let owner = bed.router.run(|| Table::open().expect("multicast routing"));
        let folder = tempfile::tempdir().expect("folder");
        let (code, said) = Daemon::refused(&bed.router, PROXY, folder);
        assert_eq!(code, 1);
        let expected = "another program (pimd, smcroute, mrouted, an IGMP proxy) owns the kernel's multicast routing";
        assert!(said.contains(expected), "{said}");
        drop(owner);
        // And the kernel source never takes it.
        let _follower = Daemon::start(&bed.router, "");
        bed.router.run(|| Table::open().expect("free"));
    });
}
