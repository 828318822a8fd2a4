//! Requests and repairs over IPv6 and by datagrams of either version of IP, and the MLD proxy.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd as _;

use crate::common::*;
use crate::sources::{PROXY, downstream};
use linux_net::Endpoint as _;
use linux_net::packet::{Ring, RingConfig};
use linux_net::raw;
use linux_net::udp::{
    Batch, Config, GroupSocket, Membership, OptionBuffer, OptionSocket, Options, Transmit,
};
use lms_proto::endpoint::{self, Storage};
use lms_proto::wire::udp::{Header, PORT as LMS_PORT, Ports};
use lms_proto::{Instant, InterfaceConfig, Key, TurningPoint};
use lms_router::status::Show;
use serde_json::json;

const GROUP6: Ipv6Addr = Ipv6Addr::new(0xff1e, 0, 0, 0, 0, 0, 0, 0x1234);
const STATIC_ROUTE6: &str = r#"
[source]
kind = "static"
[[route]]
source = "fd00:1::2"
group = "ff1e::1234"
upstream = "up"
downstream = ["one", "two"]
[replier]
policy = "static"
[[replier.static]]
source = "fd00:1::2"
group = "ff1e::1234"
interface = "one"
neighbour = "fd00:2::2"
"#;

/// Address `host` of a link: 1 is the source's, 2 that of H1, 3 that of H2; host 1 is the router.
fn address(link: u16, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, link, 0, 0, 0, 0, 0, host)
}

/// The testbed, with addresses and routes of IPv6 too.
fn testbed() -> Testbed {
    let bed = Testbed::new();
    for (host, name, link) in [
        (&bed.src, "up", 1),
        (&bed.h1, "one", 2),
        (&bed.h2, "two", 3),
    ] {
        let at_router = bed.router.index(name);
        bed.router.edit(|editor| {
            editor
                .add_address(at_router, address(link, 1), 64)
                .expect("address");
        });
        let index = host.index("eth");
        host.edit(|editor| {
            editor
                .add_address(index, address(link, 2), 64)
                .expect("address");
            editor
                .set_route(
                    Ipv6Addr::UNSPECIFIED,
                    0,
                    Some(address(link, 1)),
                    Some(index),
                )
                .expect("route");
        });
    }
    bed.router
        .run(|| std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1"))
        .expect("forward");
    bed
}

/// A family of the tests.
trait Family: lms_proto::Family + linux_net::Family {
    const ROUTE_GROUP: Self;
    /// What an endpoint must know of its host.
    fn config(own: Self) -> InterfaceConfig<Self>;
}

impl Family for std::net::Ipv4Addr {
    const ROUTE_GROUP: Self = GROUP;
    fn config(own: Self) -> InterfaceConfig<Self> {
        InterfaceConfig::ipv4(own, 24)
    }
}

impl Family for Ipv6Addr {
    const ROUTE_GROUP: Self = GROUP6;
    fn config(own: Self) -> InterfaceConfig<Self> {
        InterfaceConfig::ipv6(own, 64, own)
    }
}

/// A host's protocol and sockets: requests and repairs by options and by datagrams, and data in.
struct Speaker<A: Family> {
    machine: endpoint::Endpoint<'static, A>,
    key: Key<A>,
    options: OptionSocket<A>,
    datagrams: GroupSocket,
    data: GroupSocket,
    raw: raw::Socket<A>,
}

/// How a message travels.
#[derive(Clone, Copy)]
enum By {
    Option,
    Datagram,
}

impl<A: Family> Speaker<A> {
    fn new(host: &Host, source: A, own: A) -> Speaker<A> {
        let interface = host.index("eth");
        let group = A::ROUTE_GROUP;
        let config = |group: A, port| Config {
            interface,
            ttl: 32,
            options: Options::Refuse,
            ..Config::new(A::Socket::with_port(group, port, interface))
        };
        let member = |group| Membership {
            group,
            source: None,
            interface,
        };
        host.run(|| {
            let options = OptionSocket::open(&config(group, PORT)).expect("option socket");
            let data = GroupSocket::open(&config(group, PORT)).expect("data socket");
            let datagrams = GroupSocket::open(&config(A::LINK_GROUP, LMS_PORT)).expect("socket");
            options.join(&member(group)).expect("join");
            data.join(&member(group)).expect("join");
            datagrams.join(&member(A::LINK_GROUP)).expect("join");
            let config = endpoint::Config::new(lms_proto::Iface(1), A::config(own));
            Speaker {
                machine: endpoint::Endpoint::new(config, Storage::owned(1), [7; 32], Instant::ZERO),
                key: Key::new(source, group),
                options,
                datagrams,
                data,
                raw: raw::Socket::sender().expect("raw socket"),
            }
        })
    }

    fn ports() -> Ports {
        Ports {
            source: PORT,
            group: PORT,
        }
    }

    fn request(&self, by: By) {
        let mut buffer = [0; 200];
        match by {
            By::Option => {
                let len = self.machine.request_option(self.key, &mut buffer);
                let to = A::Socket::with_port(self.key.group, PORT, 0);
                let sent = self
                    .options
                    .send(to, &buffer[..len.expect("option")], b"nak");
                sent.expect("request");
            }
            By::Datagram => {
                let written =
                    self.machine
                        .request_datagram(self.key, Self::ports(), b"nak", &mut buffer);
                self.datagram(self.key.source.into(), &buffer[..written.expect("request")]);
            }
        }
    }

    fn datagram(&self, to: IpAddr, bytes: &[u8]) {
        let sent = self.datagrams.send_all(&Transmit {
            destination: SocketAddr::new(to, LMS_PORT),
            bytes,
            segment_len: None,
        });
        sent.expect("datagram");
    }

    /// The turning point of the next request that arrives, which must be the one that was sent.
    fn turning_point(&self, by: By) -> TurningPoint {
        let option = match by {
            By::Option => {
                let mut buffer = OptionBuffer::new(200);
                assert!(readable(self.options.as_fd(), SOON), "no request");
                let request = self.options.receive(&mut buffer).expect("receive");
                let request = request.expect("request");
                assert_eq!(request.payload, b"nak");
                <A as lms_proto::Family>::find_option(request.options).expect("option")
            }
            By::Datagram => {
                let request = next(&self.datagrams, SOON).expect("request");
                let (header, payload) = request.split_at(Header::<A>::LEN);
                assert_eq!(payload, b"nak");
                Header::<A>::parse(header).expect("header").option()
            }
        };
        assert_eq!(option.source, self.key.source.into());
        option.turning_point.expect("turned")
    }

    fn repair(&self, by: By, to: TurningPoint, payload: &[u8]) {
        let mut buffer = [0; 300];
        let ports = Self::ports();
        match by {
            By::Option => {
                let len = self
                    .machine
                    .dmcast(self.key, to, ports, payload, &mut buffer);
                let packet = &buffer[..len.expect("dmcast")];
                self.raw.send(0, packet).expect("send");
            }
            By::Datagram => {
                let written =
                    self.machine
                        .dmcast_datagram(self.key, to, ports, payload, &mut buffer);
                self.datagram(to.router, &buffer[..written.expect("dmcast")]);
            }
        }
    }

    fn send_data(&self, bytes: &[u8]) {
        let sent = self.data.send_all(&Transmit {
            destination: SocketAddr::new(self.key.group.into(), PORT),
            bytes,
            segment_len: None,
        });
        sent.expect("data");
    }
}

/// The next datagram of a socket.
fn next(socket: &GroupSocket, timeout: std::time::Duration) -> Option<Vec<u8>> {
    let mut batch = Batch::new(1);
    if !readable(socket.as_fd(), timeout) {
        return None;
    }
    socket.receive(&mut batch).expect("receive");
    let datagram = batch.received().next()?;
    Some(datagram.payload.to_vec())
}

/// H2 asks, H1 answers: first with a forged cookie, then with the one that it read.
fn request_and_repair<A: Family>(bed: &Testbed, config: &str, by: By, [source, h1, h2]: [A; 3]) {
    let daemon = Daemon::start(&bed.router, config);
    daemon.groups(1);
    let (h1, h2) = (
        Speaker::new(&bed.h1, source, h1),
        Speaker::new(&bed.h2, source, h2),
    );
    h2.request(by);
    let genuine = h1.turning_point(by);
    assert_eq!(daemon.counter("packets", "request_turned"), 1);
    let forged = TurningPoint {
        cookie: genuine.cookie ^ 1,
        ..genuine
    };
    h1.repair(by, forged, b"forged");
    daemon.wait_for("drops", "cookie", 1);
    assert_eq!(next(&h2.data, NEVER), None);
    h1.repair(by, genuine, b"repair");
    assert_eq!(next(&h2.data, SOON).expect("the repair"), b"repair");
    assert_eq!(next(&h1.data, NEVER), None, "only the subtree gets it");
    assert_eq!(daemon.counter("packets", "dmcast"), 1);
    assert_eq!(daemon.counter("packets", "dropped"), 1);
}

#[test]
fn a_request_over_ipv6_is_turned_and_repaired() {
    with_namespaces(|| {
        on_each_backend(|| {
            let hosts = [1, 2, 3].map(|link| address(link, 2));
            request_and_repair(&testbed(), STATIC_ROUTE6, By::Option, hosts);
        });
    });
}

#[test]
fn a_request_by_datagram_is_turned_and_repaired() {
    with_namespaces(|| {
        on_each_backend(|| {
            let config = format!("{STATIC_ROUTE}{H1_REPLIES}");
            request_and_repair(&testbed(), &config, By::Datagram, [SRC, H1, H2]);
            let hosts = [1, 2, 3].map(|link| address(link, 2));
            request_and_repair(&testbed(), STATIC_ROUTE6, By::Datagram, hosts);
        });
    });
}

#[test]
fn an_interface_without_an_address_turns_requests_at_that_of_another() {
    with_namespaces(|| {
        let bed = Testbed::new();
        for (host, link) in [(&bed.h1, 2), (&bed.h2, 3)] {
            let index = host.index("eth");
            host.edit(|editor| {
                editor
                    .add_address(index, address(link, 2), 64)
                    .expect("address");
            });
        }
        let up = bed.router.index("up");
        let config = STATIC_ROUTE6.replace("neighbour = \"fd00:2::2\"", "");
        let daemon = Daemon::start(&bed.router, &config);
        daemon.groups(1);
        daemon.number("two");
        let source = address(1, 2);
        let h1 = Speaker::new(&bed.h1, source, address(2, 2));
        let h2 = Speaker::new(&bed.h2, source, address(3, 2));
        // An address that appears later, one in its place, and none.
        for own in [1, 3] {
            bed.router.edit(|editor| {
                editor
                    .add_address(up, address(1, own), 64)
                    .expect("address");
            });
            eventually("the turning point has the address", || {
                h2.request(By::Option);
                let router = h1.turning_point(By::Option).router;
                (router == IpAddr::from(address(1, own))).then_some(())
            });
            bed.router.edit(|editor| {
                editor
                    .remove_address(up, address(1, own), 64)
                    .expect("address");
            });
        }
        eventually("the turning point is of the link", || {
            h2.request(By::Option);
            match h1.turning_point(By::Option).router {
                IpAddr::V6(router) => router.is_unicast_link_local().then_some(()),
                IpAddr::V4(_) => None,
            }
        });
    });
}

/// Whether a packet is an MLDv2 report (RFC 9777) that names the group.
fn is_report(packet: &[u8]) -> bool {
    const REPORT: u8 = 143;
    // Behind the header and the hop-by-hop header with the router alert.
    packet.get(48) == Some(&REPORT) && packet.windows(16).any(|at| at == GROUP6.octets())
}

#[test]
fn the_mld_proxy_reports_upstream_and_routes_to_the_member() {
    with_namespaces(|| {
        on_each_backend(|| {
            let bed = testbed();
            let mut ring = bed
                .src
                .run(|| Ring::open_for::<Ipv6Addr>(&RingConfig::default()).expect("ring"));
            let daemon = Daemon::start(&bed.router, PROXY);
            daemon.number("two");
            let source = address(1, 2);
            let member = Speaker::new(&bed.h1, source, address(2, 2));
            eventually("an upstream report", || {
                readable(ring.as_fd(), NEVER);
                let mut batch = ring.batch(64);
                let mut frames = batch.frames();
                frames.any(|frame| is_report(frame.packet)).then_some(())
            });
            assert!(daemon.counter("igmp", "reports_received") > 0);
            assert!(daemon.counter("igmp", "reports_sent") > 0);
            let sender = Speaker::new(&bed.src, source, source);
            eventually("data", || {
                sender.send_data(b"data");
                next(&member.data, NEVER)
            });
            let group = daemon.groups(1)[0].clone();
            assert_eq!(
                (&group["source"], &group["group"], &group["upstream"]),
                (&json!("fd00:1::2"), &json!("ff1e::1234"), &json!("up"))
            );
            assert_eq!(downstream(&group), ["one"]);
            drop(member);
            daemon.groups(0);
        });
    });
}

/// An interface without an IPv6 address of its own turns requests at that of another; its querier does not depend on it.
#[test]
fn the_mld_proxy_keeps_its_members_when_a_shared_address_changes() {
    with_namespaces(|| {
        let bed = Testbed::new();
        let index = bed.h1.index("eth");
        bed.h1.edit(|editor| {
            editor
                .add_address(index, address(2, 2), 64)
                .expect("address");
        });
        // Queries come from a start alone.
        let daemon = Daemon::start(&bed.router, &PROXY.replace("2s", "1000s"));
        daemon.number("two");
        let _member = Speaker::new(&bed.h1, address(1, 2), address(2, 2));
        // A querier of each version of IP on two links.
        daemon.wait_for("igmp", "queries_sent", 4);
        daemon.wait_for("igmp", "reports_sent", 1);
        let counts = || ["queries_sent", "reports_sent"].map(|name| daemon.counter("igmp", name));
        let before = eventually("all reports are sent", || {
            let before = counts();
            std::thread::sleep(NEVER);
            (counts() == before).then_some(before)
        });
        let up = bed.router.index("up");
        for own in [1, 3] {
            bed.router.edit(|editor| {
                editor
                    .add_address(up, address(1, own), 64)
                    .expect("address");
            });
            eventually("the interface has the address", || {
                let interfaces = daemon.status(Show::Interfaces);
                let mut all = interfaces["interfaces"].as_array().expect("list").iter();
                let found = all.find(|interface| interface["name"] == "up")?;
                (found["ipv6"] == format!("{}/64", address(1, own))).then_some(())
            });
            bed.router.edit(|editor| {
                editor
                    .remove_address(up, address(1, own), 64)
                    .expect("address");
            });
        }
        eventually("the interface has no address", || {
            let interfaces = daemon.status(Show::Interfaces);
            let mut all = interfaces["interfaces"].as_array().expect("list").iter();
            let found = all.find(|interface| interface["name"] == "up")?;
            found["ipv6"].is_null().then_some(())
        });
        assert_eq!(counts(), before);
    });
}
