//! Interfaces and neighbours.

use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::time::Duration;

use crate::common::{Host, soon, until_it_carries, wire, with_namespaces};
use linux_net::OpenError;
use linux_net::ethtool::{self, OffloadError};
use linux_net::link::{self, EditError, Editor, LinkEvent, Neighbour, Watcher, WireEnd};
use linux_net::xdp::Features;

const A: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);

#[test]
fn the_watcher_sees_interfaces_come_change_and_go() {
    with_namespaces(|| {
        let host = Host::new();
        let mut watcher = host.run(|| Watcher::open().unwrap());
        let mut editor = host.run(|| Editor::open().unwrap());
        let mut next = || soon(&mut watcher, |w| w.next_event().unwrap()).expect("an event");
        let LinkEvent::Added(lo) = next() else {
            panic!("the loopback is there first")
        };
        assert!(lo.is_loopback && lo.is_up);

        editor.add_veth("left", "right", None).unwrap();
        let mut names = vec![];
        while names.len() < 2 {
            if let LinkEvent::Added(interface) = next() {
                assert!(!interface.is_up && interface.link_address.is_some());
                names.push(interface.name);
            }
        }
        names.sort();
        assert_eq!(names, ["left", "right"]);
        let index = host.index("left");
        let mut until = |wanted: &dyn Fn(&LinkEvent) -> bool| while !wanted(&next()) {};
        editor.set_up(index, true).unwrap();
        until(&|e| matches!(e, LinkEvent::Changed(i) if i.index == index && i.is_up));
        editor.add_address(index, A, 24).unwrap();
        until(&|e| {
            matches!(e, LinkEvent::Changed(i) if i.addresses.iter().any(|a| {
                a.address == A && a.prefix_len == 24 && a.is_neighbour(B)
                    && !a.is_neighbour(Ipv4Addr::new(10, 9, 1, 1))
            }))
        });
        editor.set_mtu(index, 9000).unwrap();
        until(&|e| matches!(e, LinkEvent::Changed(i) if i.mtu == 9000));
        editor.remove_address(index, A, 24).unwrap();
        until(
            &|e| matches!(e, LinkEvent::Changed(i) if i.index == index && i.addresses.is_empty()),
        );
        editor.remove(index).unwrap();
        until(&|e| matches!(e, LinkEvent::Removed(i) if i.name == "left"));
        until(&|e| matches!(e, LinkEvent::Removed(i) if i.name == "right"));
        assert_eq!(watcher.interfaces().count(), 1);
    });
}

#[test]
fn a_flood_of_changes_ends_in_the_true_state() {
    with_namespaces(|| {
        let host = Host::new();
        let mut watcher = host.run(|| Watcher::open().unwrap());
        let mut editor = host.run(|| Editor::open().unwrap());
        editor.add_veth("left", "right", None).unwrap();
        let index = host.index("left");
        // More notifications than the socket holds: the watcher must read the tables again.
        for round in 0..8000_u32 {
            editor.set_mtu(index, 1300 + round % 200).unwrap();
        }
        editor.set_mtu(index, 1234).unwrap();
        while watcher.next_event().unwrap().is_some() {}
        assert_eq!(watcher.interface(index).unwrap().mtu, 1234);
        let listed = host.run(|| link::list().unwrap());
        assert_eq!(watcher.interfaces().cloned().collect::<Vec<_>>(), listed);
    });
}

#[test]
fn errors_say_what_is_wrong() {
    with_namespaces(|| {
        let host = Host::new();
        host.run(|| {
            let mut editor = Editor::open().unwrap();
            editor.add_veth("left", "right", None).unwrap();
            let twice = editor.add_veth("left", "other", None);
            assert!(matches!(twice, Err(EditError::Exists { .. })), "{twice:?}");
            let gone = editor.remove(4_000_000);
            assert!(matches!(gone, Err(EditError::NotFound { .. })), "{gone:?}");
            assert!(matches!(
                link::find("nothing"),
                Err(OpenError::NoInterface { .. })
            ));
            assert_eq!(link::find("127.0.0.1").unwrap().name, "lo");
            let off = ethtool::switch_offloads("left", &[("no-such-offload", false)]);
            assert!(matches!(off, Err(OffloadError::Unknown { .. })), "{off:?}");
            let none = ethtool::offloads("nothing");
            assert!(
                matches!(none, Err(OffloadError::NoInterface(_))),
                "{none:?}"
            );
        });
    });
}

#[test]
fn offloads_are_switched_and_neighbours_found() {
    with_namespaces(|| {
        let (a, b) = (Host::new(), Host::new());
        wire(&a, "a0", A.octets(), &b, "b0", B.octets());
        a.run(|| {
            assert!(ethtool::offloads("a0").unwrap()["tx-checksum-ip-generic"]);
            ethtool::switch_offloads_off("a0").unwrap();
            let now = ethtool::offloads("a0").unwrap();
            for name in ethtool::SEGMENTATION_AND_CHECKSUMS {
                assert_ne!(now.get(name), Some(&true), "{name}");
            }
            ethtool::switch_offloads("a0", &[("tx-checksum-ip-generic", true)]).unwrap();
        });
        let index = a.index("a0");
        let wanted = b.interface("b0").link_address.unwrap();
        let mut editor = a.run(|| Editor::open().unwrap());
        let mut found = Neighbour::Resolving;
        for _ in 0..100 {
            found = editor.neighbour(index, B).unwrap();
            if found != Neighbour::Resolving {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(found, Neighbour::Known(wanted));
    });
}

#[test]
fn bridges_and_routes_carry_packets() {
    with_namespaces(|| {
        let hub = Host::new();
        let mut editor = hub.run(|| Editor::open().unwrap());
        editor.add_flooding_bridge("br0").unwrap();
        let bridge = hub.index("br0");
        editor.set_up(bridge, true).unwrap();
        let (a, b) = (Host::new(), Host::new());
        wire(&a, "a0", A.octets(), &hub, "port0", [10, 9, 0, 8]);
        wire(&b, "b0", [10, 9, 1, 2], &hub, "port1", [10, 9, 1, 9]);
        for port in ["port0", "port1"] {
            editor.set_bridge(hub.index(port), bridge).unwrap();
        }
        let far = Ipv4Addr::new(10, 77, 0, 1);
        let (b0, lo) = (b.index("b0"), b.index("lo"));
        let mut addresses = b.run(|| Editor::open().unwrap());
        addresses.add_address(b0, B, 24).unwrap();
        addresses.add_address(lo, far, 32).unwrap();
        let mut routes = a.run(|| Editor::open().unwrap());
        routes.set_route(far, 32, Some(B), None).unwrap();
        until_it_carries(&a, &b, far);
    });
}

#[test]
fn a_shared_link_counts_and_limits_what_it_carries() {
    with_namespaces(|| {
        let (near, far) = (Host::new(), Host::new());
        let mut editor = near.run(|| Editor::open().unwrap());
        editor.add_flooding_bridge("bridge").unwrap();
        let address = Some([2, 0, 0, 0, 0, 9]);
        let namespace = Some(far.namespace.as_fd());
        let end = WireEnd {
            link_address: address,
            namespace,
            ..WireEnd::new("eth0")
        };
        editor.add_wire([WireEnd::new("port"), end]).unwrap();
        assert_eq!(
            far.run(|| link::find("eth0").unwrap().link_address),
            address
        );
        let (bridge, port) = (near.index("bridge"), near.index("port"));
        assert_eq!(editor.index("port").unwrap(), port);
        assert!(matches!(
            editor.index("nobody"),
            Err(EditError::NotFound { .. })
        ));
        assert!(editor.set_multicast_flood(port, false).is_err());
        editor.set_bridge(port, bridge).unwrap();
        for on in [false, true] {
            editor.set_multicast_flood(port, on).unwrap();
        }
        for index in [port, bridge] {
            editor.set_up(index, true).unwrap();
        }
        let mut other = far.run(|| Editor::open().unwrap());
        let eth0 = far.index("eth0");
        other.set_up(eth0, true).unwrap();
        other.add_address(eth0, A, 24).unwrap();
        // One packet and a little more pass at once; the rest waits longer than the test.
        other.set_token_bucket(eth0, 8_000, 2_000, 4_000).unwrap();
        let before = other.counters(eth0).unwrap();
        far.run(|| {
            let socket = std::net::UdpSocket::bind((A, 0)).unwrap();
            socket.set_broadcast(true).unwrap();
            for _ in 0..100 {
                let _ = socket.send_to(&[0; 1_000], (Ipv4Addr::new(10, 9, 0, 255), 9));
            }
        });
        let sent = other.counters(eth0).unwrap().tx_packets - before.tx_packets;
        assert!(sent <= 5, "{sent} packets passed the bucket");
        let arrived = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            editor.counters(port).unwrap().rx_bytes >= 1_042
        });
        assert!(arrived, "no packet came");
    });
}

#[test]
fn programs_can_send_on_a_veth_while_its_peer_has_gro() {
    with_namespaces(|| {
        let (a, b) = (Host::new(), Host::new());
        wire(&a, "a0", A.octets(), &b, "b0", B.octets());
        let index = a.index("a0");
        assert_eq!(a.run(|| ethtool::driver("a0").unwrap()), "veth");
        assert!(a.run(|| ethtool::driver("a1")).is_err());
        let Ok(mut features) = a.run(Features::open) else {
            return netlab::lacks("xdp features", "Linux 6.3 has them");
        };
        for gro in [true, false] {
            b.run(|| ethtool::switch_offloads("b0", &[("rx-gro", gro)]).unwrap());
            assert_eq!(features.can_send(index).unwrap(), gro);
        }
        assert!(features.can_send(99_999).is_err());
    });
}
