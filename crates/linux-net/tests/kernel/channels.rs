//! Captures and the interfaces that they receive from: those that come and go, and those of VLANs.

use std::os::fd::AsFd;
use std::time::Duration;

use crate::common::{
    Host, REQUEST, classic, ipv4, readable, readable_within, udp, wire, with_namespaces,
};
use crate::packet::{A, B, CAPTURES, GROUP, NOT_SOON, UDP, capture, small};
use linux_net::link::Editor;
use linux_net::packet::{Backend, Capture, Channels, RingConfig, Sender, group_link_address};

#[test]
fn too_many_ports_are_refused_by_each_capture() {
    with_namespaces(|| {
        let host = Host::new();
        let config = RingConfig {
            udp_ports: vec![1; 300],
            ..small()
        };
        for backend in [Backend::Ring, Backend::Pnet] {
            let opened = host.run(|| Capture::open(backend, &config, 1).map(drop));
            assert!(opened.is_err(), "{backend:?}");
        }
    });
}

/// Interfaces appear and disappear; sockets of those that are gone serve others.
#[test]
fn channels_follow_interfaces() {
    with_namespaces(|| {
        let b = Host::new();
        let mut channels = b.run(|| Channels::open(&small(), 2).unwrap());
        assert!(b.run(|| channels.add_interface(1000)).is_err());
        let request = ipv4(UDP, A, GROUP, &classic(REQUEST, A, GROUP), &udp(9, 9, b""));
        for round in 0..4 {
            let a = Host::new();
            wire(&a, "a0", A.octets(), &b, "b0", B.octets());
            let (from, at) = (a.index("a0"), b.index("b0"));
            for _ in 0..2 {
                b.run(|| channels.add_interface(at)).unwrap();
            }
            let sender = a.run(|| Sender::open().unwrap());
            for is_up in [true, false, true] {
                b.run(|| Editor::open().unwrap().set_up(at, is_up).unwrap());
                if !is_up {
                    assert!(channels.batch(64).is_empty());
                    continue;
                }
                let mut seen = 0;
                while seen == 0 {
                    sender.send(from, group_link_address(GROUP), &request);
                    readable_within(channels.as_fd(), Duration::from_millis(10));
                    let mut batch = channels.batch(64);
                    let frames = batch.frames().filter(|f| f.packet[8] != 1);
                    seen += frames.filter(|frame| frame.interface == at).count();
                }
            }
            assert!(channels.stats().unwrap().received > 0, "round {round}");
            drop(sender);
            b.run(|| Editor::open().unwrap().remove(at).unwrap());
            assert!(channels.batch(64).is_empty());
            assert!(!readable_within(channels.as_fd(), NOT_SOON), "no busy loop");
        }
    });
}

/// Packets and errors that wait at sockets whose interfaces are gone make nothing readable.
#[test]
fn channels_of_gone_interfaces_are_not_readable() {
    with_namespaces(|| {
        let b = Host::new();
        let mut channels = b.run(|| Channels::open(&small(), 3).unwrap());
        let peers = [("b0", 0), ("b1", 1), ("b2", 2)].map(|(name, link)| {
            let a = Host::new();
            wire(&a, "a0", [10, 9, link, 1], &b, name, [10, 9, link, 2]);
            a
        });
        let indexes = ["b0", "b1", "b2"].map(|name| b.index(name));
        for at in &indexes[..2] {
            b.run(|| channels.add_interface(*at).unwrap());
        }
        let request = ipv4(UDP, A, GROUP, &classic(REQUEST, A, GROUP), &udp(9, 9, b""));
        for (a, at) in peers.iter().zip(&indexes[..2]) {
            let from = a.index("a0");
            a.run(|| Sender::open().unwrap())
                .send(from, group_link_address(GROUP), &request);
            b.run(|| Editor::open().unwrap().remove(*at).unwrap());
        }
        b.run(|| channels.add_interface(indexes[2]).unwrap());
        while readable_within(channels.as_fd(), NOT_SOON) {
            assert!(!channels.batch(64).is_empty(), "a busy loop");
        }
    });
}

/// Packets of VLANs that this host has no interface for are not those of the interface, and are not counted as such.
#[test]
fn packets_of_other_vlans_are_not_shown() {
    with_namespaces(|| {
        CAPTURES.iter().for_each(|open| {
            let (a, b) = (Host::new(), Host::new());
            wire(&a, "a0", A.octets(), &b, "b0", B.octets());
            let mut capture = capture(&b, *open, &small(), &[b.index("b0")]);
            let request = |text| ipv4(UDP, A, GROUP, &classic(REQUEST, A, GROUP), &udp(9, 9, text));
            let frame = |tag: &[u8], text| {
                let (group, own) = (group_link_address(GROUP), [2, 0, 0, 0, 0, 1]);
                [&group[..], &own, tag, &[0x08, 0], &request(text)].concat()
            };
            a.run(|| {
                let all = pnet_datalink::interfaces();
                let a0 = all.iter().find(|found| found.name == "a0").unwrap();
                let opened = pnet_datalink::channel(a0, pnet_datalink::Config::default());
                let pnet_datalink::Channel::Ethernet(mut sender, _) = opened.unwrap() else {
                    panic!("no Ethernet");
                };
                for frame in [frame(&[0x81, 0, 0, 5], b"of VLAN 5"), frame(&[], b"marker")] {
                    sender.send_to(&frame, None).unwrap().unwrap();
                }
            });
            let (mut shown, mut all_shown) = (Vec::new(), 0);
            while shown.last() != Some(&request(b"marker")) {
                assert!(readable(capture.as_fd()));
                let mut batch = capture.batch(64);
                all_shown += batch.len() as u64;
                let of_group = batch
                    .frames()
                    .filter(|f| f.packet[16..20] == GROUP.octets());
                shown.extend(of_group.map(|frame| frame.packet.to_vec()));
            }
            assert_eq!(shown, [request(b"marker")]);
            let received = capture.stats().unwrap().received;
            // More may wait in a ring.
            let is_ring = matches!(capture, Capture::Ring(_));
            assert!(received == all_shown || is_ring && received > all_shown);
        });
    });
}
