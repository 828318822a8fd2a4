//! Directed multicasts that no request called for, sent by a host behind the upstream router: it
//! has no membership, no LMS session, and the source address that is its own.

use std::net::Ipv4Addr;

use crate::common::*;
use linux_net::raw::Ipv4Socket;
use lms_proto::Iface;

/// A second host of the source's link.
const STRANGER: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 66);
const ROUTER: [Ipv4Addr; 3] = [
    Ipv4Addr::new(10, 0, 1, 1),
    Ipv4Addr::new(10, 0, 2, 1),
    Ipv4Addr::new(10, 0, 3, 1),
];

fn stranger_at(bed: &Testbed) -> Ipv4Socket {
    let index = bed.src.index("eth");
    bed.src.edit(|editor| {
        editor.add_address(index, STRANGER, 24).expect("address");
    });
    bed.src.run(|| Ipv4Socket::sender().expect("raw socket"))
}

/// Sends the dmcasts of a host that guesses: small numbers, and every address of the router.
fn guess(socket: &Ipv4Socket, from: Ipv4Addr, inner: &[u8]) {
    for router in ROUTER {
        for number in (0..20).map(Iface) {
            socket
                .send(0, &dmcast(from, router, number, inner))
                .expect("send");
        }
    }
}

#[test]
fn an_ssm_receiver_gets_nothing_from_a_host_that_was_not_asked() {
    with_namespaces(|| {
        let bed = Testbed::new();
        let daemon = start(&bed.router);
        let stranger = stranger_at(&bed);
        let (h1, h2) = (
            Endpoint::new(&bed.h1, Some(SRC)),
            Endpoint::new(&bed.h2, Some(SRC)),
        );
        let inner = data_packet(SRC, GROUP, 9, b"forged");
        guess(&stranger, STRANGER, &inner);
        assert_eq!((h1.data(NEVER), h2.data(NEVER)), (None, None));
        daemon.wait_for("drops", "no_credit", 60);
        // While the router waits for a repair that it asked for, the numbers are no guess.
        let number = bed.asked();
        guess(&stranger, STRANGER, &inner);
        daemon.wait_for("drops", "not_downstream", 20);
        assert_eq!((h1.data(NEVER), h2.data(NEVER)), (None, None));
        // A host that reads the number is stopped by its address where that cannot be there.
        for from in [
            Ipv4Addr::LOCALHOST,
            Ipv4Addr::BROADCAST,
            Ipv4Addr::new(224, 0, 0, 1),
            H2,
        ] {
            let packet = dmcast(from, ROUTER[1], number, &inner);
            stranger.send(0, &packet).expect("send");
        }
        daemon.wait_for("drops", "outer_source", 4);
        // And the one that was asked repairs.
        let inner = data_packet(SRC, GROUP, 9, b"repair");
        send_raw(&bed.h1, &dmcast(H1, ROUTER[1], number, &inner));
        assert_eq!(h2.data(SOON).expect("the repair").1, b"repair");
        assert_eq!(daemon.counter("packets", "dmcast"), 1);
    });
}

#[test]
fn only_whole_udp_datagrams_enter_the_tree() {
    with_namespaces(|| {
        let bed = Testbed::new();
        let daemon = start(&bed.router);
        let h2 = Endpoint::new(&bed.h2, None);
        let number = bed.asked();
        let udp = &data_packet(SRC, GROUP, 9, b"x")[20..];
        let mut fragment = ipv4(17, SRC, GROUP, 9, &[], udp);
        fragment[6] = 0x20;
        lms_proto::wire::ipv4::fill_checksum(&mut fragment[..20]);
        for (reason, inner) in [
            ("inner_protocol", ipv4(6, SRC, GROUP, 9, &[], &[0; 20])),
            ("inner_protocol", ipv4(2, SRC, GROUP, 9, &[], &[0; 8])),
            (
                "inner_option",
                ipv4(17, SRC, GROUP, 9, &[148, 4, 0, 0], udp),
            ),
            ("inner_fragment", fragment),
        ] {
            let before = daemon.counter("drops", reason);
            send_raw(&bed.h1, &dmcast(H1, ROUTER[1], number, &inner));
            daemon.wait_for("drops", reason, before + 1);
        }
        assert_eq!(h2.data(NEVER), None);
        assert_eq!(daemon.counter("packets", "dmcast"), 0);
    });
}

/// A shared tree takes the repairs of a source whose data the router has seen arrive.
#[test]
fn a_shared_tree_takes_repairs_of_sources_that_were_seen() {
    with_namespaces(|| {
        on_each_backend(|| {
            let bed = Testbed::new();
            let any = |text: &str| text.replace("source = \"10.0.1.2\"", "source = \"*\"");
            let config = format!("{}{}", any(STATIC_ROUTE), any(H1_REPLIES));
            let daemon = Daemon::start(&bed.router, &config);
            daemon.groups(1);
            let [src, h1, h2] = bed.endpoints(None);
            let repair = |source, number| {
                let inner = data_packet(source, GROUP, 9, b"repair");
                send_raw(&bed.h1, &dmcast(H1, ROUTER[1], number, &inner));
            };
            let ask = |source: Ipv4Addr| {
                let mut option = request();
                option.source = source.into();
                h2.ask(option, b"nak");
                let heard = h1.heard(SOON).expect("H1 hears the request");
                heard.option.turning_point.expect("turned").iface
            };
            let unseen = [Ipv4Addr::LOCALHOST, STRANGER, SRC];
            for (n, source) in unseen.into_iter().enumerate() {
                repair(source, ask(source));
                daemon.wait_for("drops", "source_not_seen", n as u64 + 1);
            }
            assert_eq!(h2.data(NEVER), None);
            // The source's own data arrives; then its repairs may follow, and no others.
            src.send_data(b"data");
            daemon.wait_for("queues", "sources_seen", 1);
            repair(SRC, ask(SRC));
            assert_eq!(h2.data(SOON).expect("the repair").1, b"repair");
            repair(STRANGER, ask(STRANGER));
            daemon.wait_for("drops", "source_not_seen", unseen.len() as u64 + 1);
            assert_eq!(h2.data(NEVER), None);
        });
    });
}

/// A restarted router has other numbers; receivers that ask it again are repaired.
#[test]
fn repairs_go_on_after_a_restart() {
    with_namespaces(|| {
        let bed = Testbed::new();
        let config = format!("{STATIC_ROUTE}{H1_REPLIES}");
        let daemon = Daemon::start(&bed.router, &config);
        daemon.groups(1);
        let h2 = Endpoint::new(&bed.h2, None);
        let inner = data_packet(SRC, GROUP, 9, b"repair");
        let old = dmcast(H1, ROUTER[1], bed.asked(), &inner);
        drop(daemon.kill());
        let daemon = Daemon::start(&bed.router, &config);
        daemon.groups(1);
        send_raw(&bed.h1, &old);
        daemon.wait_for("drops", "no_credit", 1);
        let new = dmcast(H1, ROUTER[1], bed.asked(), &inner);
        send_raw(&bed.h1, &old);
        daemon.wait_for("drops", "not_downstream", 1);
        assert_eq!(h2.data(NEVER), None);
        send_raw(&bed.h1, &new);
        assert_eq!(h2.data(SOON).expect("the repair").1, b"repair");
    });
}
