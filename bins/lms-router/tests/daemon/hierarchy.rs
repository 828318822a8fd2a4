//! LMS-HIER with real packets: hosts offer, the router elects, tells its links and its parent.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::common::*;
use igmp::datagram::{IGMP_AT, UDP_AT, finish_membership};
use igmp::wire::{ALL_V3_ROUTERS, RecordType, ReportWriter};
use linux_net::packet::{Ring, RingConfig};
use linux_net::raw::Ipv4Socket;
use lms_proto::wire::hier::{Cost, Kind, View};
use lms_router::status::Show;
use serde_json::Value;

const HIERARCHY: &str = "[replier]\nrefresh = \"200ms\"\ncost = 2\n";

/// A host's offer, sent once.
fn offer(host: &Host, address: Ipv4Addr, cost: Cost) {
    let mut packet = vec![0; 1500];
    let mut writer = ReportWriter::new(&mut packet[IGMP_AT..]).expect("room");
    assert!(writer.push(
        RecordType::ModeIsInclude,
        GROUP,
        [SRC].into_iter(),
        Some(cost)
    ));
    let len = writer.finish();
    let len = finish_membership(&mut packet, address, ALL_V3_ROUTERS, len).expect("room");
    let interface = host.index("eth");
    host.run(|| {
        let socket = Ipv4Socket::sender().expect("raw socket");
        socket.send(interface, &packet[..len]).expect("send");
    });
}

fn replier(daemon: &Daemon) -> Value {
    daemon.groups(1)[0]["replier"].clone()
}

/// Cost and neighbour of the messages that a host hears, until one satisfies `enough`.
fn hears(ring: &mut Ring, kind: Kind, enough: impl Fn(u16, Option<Ipv4Addr>) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut all = Vec::new();
    loop {
        let mut batch = ring.batch(64);
        for frame in batch.frames() {
            let Some(message) = frame.packet.get(UDP_AT..) else {
                continue;
            };
            let Ok(view) = View::new_checked(message) else {
                continue;
            };
            for entry in view.entries().filter(|_| view.header().kind == kind) {
                if enough(entry.cost.0, entry.neighbour) {
                    return;
                }
                all.push((entry.cost, entry.neighbour));
            }
        }
        drop(batch);
        assert!(Instant::now() < deadline, "heard {all:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn ring(host: &Host) -> Ring {
    let index = host.index("eth");
    host.run(|| {
        let ring = Ring::open(&RingConfig {
            frames: 64,
            ..RingConfig::default()
        })
        .expect("ring");
        ring.receive_all_multicast(index).expect("all groups");
        ring
    })
}

#[test]
fn the_cheapest_replier_is_elected_and_replaced_when_it_falls_silent() {
    with_namespaces(|| {
        on_each_backend(|| {
            let bed = Testbed::new();
            let (mut above, mut below) = (ring(&bed.src), ring(&bed.h1));
            let daemon = Daemon::start(&bed.router, &format!("{STATIC_ROUTE}{HIERARCHY}"));
            daemon.groups(1);
            eventually("H1 is elected", || {
                offer(&bed.h1, H1, Cost(3));
                offer(&bed.h2, H2, Cost(5));
                (replier(&daemon)["neighbour"] == "10.0.2.2").then_some(())
            });
            assert_eq!(
                (&replier(&daemon)["cost"], &replier(&daemon)["interface"]),
                (&3.into(), &"one".into())
            );
            hears(&mut above, Kind::Update, |cost, _| cost == 5);
            hears(&mut below, Kind::Elected, |_, neighbour| {
                neighbour == Some(H1)
            });
            // A request goes to H1 in a frame of its own: its link address is known from its offer.
            let (h1, h2) = (Endpoint::new(&bed.h1, None), Endpoint::new(&bed.h2, None));
            h2.ask(request(), b"nak");
            assert!(h1.heard(SOON).is_some());
            assert_eq!(daemon.counter("queues", "unresolved_neighbour"), 0);
            eventually("H2 takes over", || {
                offer(&bed.h2, H2, Cost(5));
                (replier(&daemon)["neighbour"] == "10.0.3.2").then_some(())
            });
            assert_eq!(daemon.counter("hierarchy", "expired"), 1);
            hears(&mut above, Kind::Update, |cost, _| cost == 7);
            eventually("nobody is left", || {
                replier(&daemon).is_null().then_some(())
            });
            // No replier: requests go up.
            let src = Endpoint::new(&bed.src, None);
            h2.ask(request(), b"nak");
            assert_eq!(src.heard(SOON).expect("request").option, request());
        });
    });
}

#[test]
fn the_router_withdraws_when_it_is_told_to_end() {
    with_namespaces(|| {
        let bed = Testbed::new();
        let mut above = ring(&bed.src);
        // With this refresh interval only the end sends a message.
        let config = HIERARCHY.replace("200ms", "18s");
        let daemon = Daemon::start(&bed.router, &format!("{STATIC_ROUTE}{config}"));
        daemon.groups(1);
        eventually("H1 is elected", || {
            offer(&bed.h1, H1, Cost(3));
            (replier(&daemon)["neighbour"] == "10.0.2.2").then_some(())
        });
        hears(&mut above, Kind::Update, |cost, _| cost == 5);
        let (status, _) = daemon.stop();
        assert!(status.success());
        hears(&mut above, Kind::Update, |cost, _| cost == 0xffff);
    });
}

#[test]
fn forged_offers_are_refused_and_counted() {
    with_namespaces(|| {
        let bed = Testbed::new();
        let daemon = Daemon::start(&bed.router, &format!("{STATIC_ROUTE}{HIERARCHY}"));
        daemon.groups(1);
        // H2 claims to be H1, whose subnet is another; the source's own link offers.
        offer(&bed.h2, H1, Cost(1));
        daemon.wait_for("hierarchy", "refused_wrong_subnet", 1);
        offer(&bed.src, SRC, Cost(1));
        daemon.wait_for("hierarchy", "refused_wrong_interface", 1);
        assert!(replier(&daemon).is_null());
        assert_eq!(daemon.status(Show::Overview)["neighbours"], 0);
    });
}
