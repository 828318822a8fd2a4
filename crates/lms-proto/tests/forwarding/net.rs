//! A small router of either family, and requests and repairs by every carrier, right or with one field changed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use lms_proto::hier::Capacity;
use lms_proto::router::{Config, Policy, Router, Storage, Verdict};
use lms_proto::table::{Neighbour, Replier};
use lms_proto::wire::udp::{Header, PORT, Ports};
use lms_proto::wire::{ipv4, ipv6};
use lms_proto::{Family, Form, Iface, InterfaceConfig, Key, Kind, LmsOption, TurningPoint};
use smoltcp::wire::UdpPacket;

use crate::common::{
    DOWN, DOWN2, GROUP, NOW, REPLIER, REPLIER_LINK, UP, edit, meta, option_bytes, packet,
};

pub(crate) const UDP: u8 = 17;
pub(crate) const PORTS: Ports = Ports {
    source: 4000,
    group: 5000,
};

/// A family with the addresses of the small network.
pub(crate) trait Net: Family {
    const GROUP: Self;
    const OTHER_GROUP: Self;
    const LOOPBACK: Self;
    /// Protocol number of a packet of this family in another.
    const ENCAPSULATED: u8;

    /// A host on the link of an interface; the router has number 1.
    fn host(link: Iface, number: u8) -> Self;

    /// The interface of a host or router on a link.
    fn interface(link: Iface, number: u8) -> InterfaceConfig<Self>;

    /// A packet whose header has the option.
    fn with_option(
        ends: (Self, Self),
        hops: u8,
        option: &LmsOption,
        form: Form,
        protocol: u8,
        payload: &[u8],
    ) -> Vec<u8>;

    /// Changes the header of a packet without options; what checksum it has is right afterwards.
    fn change(packet: Vec<u8>, change: impl FnOnce(&mut [u8])) -> Vec<u8>;

    /// Fragments of a packet without options.
    fn fragments(packet: &[u8]) -> Vec<Vec<u8>>;
}

impl Net for Ipv4Addr {
    const GROUP: Self = GROUP;
    const OTHER_GROUP: Self = Ipv4Addr::new(232, 1, 2, 4);
    const LOOPBACK: Self = Ipv4Addr::LOCALHOST;
    const ENCAPSULATED: u8 = 4;

    fn host(link: Iface, number: u8) -> Self {
        Ipv4Addr::new(10, 1, link.0 as u8, number)
    }

    fn interface(link: Iface, number: u8) -> InterfaceConfig {
        InterfaceConfig::ipv4(Self::host(link, number), 24)
    }

    fn with_option(
        (from, to): (Self, Self),
        hops: u8,
        option: &LmsOption,
        form: Form,
        protocol: u8,
        payload: &[u8],
    ) -> Vec<u8> {
        let options = option_bytes(option, form);
        let packet = packet(from, to, protocol, &options, payload);
        edit(packet, 0, |p| p[8] = hops)
    }

    fn change(packet: Vec<u8>, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut packet = packet;
        change(&mut packet);
        ipv4::fill_checksum(&mut packet[..ipv4::HEADER_LEN]);
        packet
    }

    fn fragments(packet: &[u8]) -> Vec<Vec<u8>> {
        let flags: [[u8; 2]; 3] = [[0x20, 0], [0, 1], [0x20, 1]];
        let fragment =
            |flags: [u8; 2]| Self::change(packet.to_vec(), |p| p[6..8].copy_from_slice(&flags));
        flags.map(fragment).to_vec()
    }
}

impl Net for Ipv6Addr {
    const GROUP: Self = Ipv6Addr::new(0xff3e, 0, 0, 0, 0, 0, 0x8001, 0x203);
    const OTHER_GROUP: Self = Ipv6Addr::new(0xff3e, 0, 0, 0, 0, 0, 0x8001, 0x204);
    const LOOPBACK: Self = Ipv6Addr::LOCALHOST;
    const ENCAPSULATED: u8 = ipv6::IPV6_IN_IPV6;

    fn host(link: Iface, number: u8) -> Self {
        Ipv6Addr::new(0x2001, 0xdb8, 0, link.0, 0, 0, 0, number.into())
    }

    fn interface(link: Iface, number: u8) -> InterfaceConfig<Self> {
        let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, link.0, number.into());
        InterfaceConfig::ipv6(Self::host(link, number), 64, link_local)
    }

    fn with_option(
        (from, to): (Self, Self),
        hops: u8,
        option: &LmsOption,
        _form: Form,
        protocol: u8,
        payload: &[u8],
    ) -> Vec<u8> {
        let len = ipv6::OPTIONS_LEN + payload.len();
        let mut packet = vec![0; ipv6::HEADER_LEN + ipv6::OPTIONS_LEN];
        ipv6::emit_header(&mut packet, len, ipv6::HOP_BY_HOP, hops, from, to).unwrap();
        ipv6::emit_options(option, protocol, &mut packet[ipv6::HEADER_LEN..]).unwrap();
        packet.extend_from_slice(payload);
        packet
    }

    fn change(packet: Vec<u8>, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut packet = packet;
        change(&mut packet);
        packet
    }

    fn fragments(packet: &[u8]) -> Vec<Vec<u8>> {
        let first = Self::change(packet.to_vec(), |p| p[6] = ipv6::FRAGMENT);
        let after_options = Self::change(packet.to_vec(), |p| {
            p[6] = ipv6::DESTINATION_OPTIONS;
            p[40..42].copy_from_slice(&[ipv6::FRAGMENT, 0]);
        });
        vec![first, after_options]
    }
}

pub(crate) fn key<A: Net>() -> Key<A> {
    Key::new(A::host(Iface(0), 2), A::GROUP)
}

/// A source that has no entry.
pub(crate) fn other_source<A: Net>() -> Key<A> {
    Key::new(A::host(Iface(0), 3), A::GROUP)
}

pub(crate) fn replier<A: Net>() -> Replier<A> {
    Replier {
        iface: REPLIER,
        cost: 3,
        neighbour: Some(Neighbour {
            addr: A::host(REPLIER, 9),
            link: Some(REPLIER_LINK),
        }),
    }
}

/// Five interfaces, the entry (S, G) from `UP` to three links, no replier yet.
pub(crate) fn router<A: Net>(config: Config) -> Router<'static, A> {
    let hierarchy = Capacity {
        entries: 8,
        neighbours: 8,
        peers: 4,
        branches: 8,
        interfaces: 8,
    };
    let storage = Storage::with_capacity(8, 64).with_hierarchy(hierarchy);
    let mut router = Router::new(config, storage, [1; 32], NOW);
    for iface in (1..=5).map(Iface) {
        router
            .set_interface(NOW, iface, A::interface(iface, 1))
            .unwrap();
    }
    router
        .install(NOW, key(), UP, &[REPLIER, DOWN, DOWN2])
        .unwrap();
    router
}

/// The same with a replier set by hand.
pub(crate) fn router_with_replier<A: Net>() -> Router<'static, A> {
    let mut router = router(Config {
        policy: Policy::Static,
        ..Config::default()
    });
    router.set_replier(NOW, key(), Some(replier())).unwrap();
    router
}

/// How a request or a repair travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    /// By an option of the family, in a form that the family has.
    Option(Form),
    Datagram,
}

/// A request of the receiver on the link `DOWN`.
#[derive(Clone, Debug)]
pub(crate) struct Request<A> {
    pub(crate) key: Key<A>,
    pub(crate) turned: Option<TurningPoint>,
    pub(crate) to: A,
    pub(crate) hops: u8,
}

impl<A: Net> Request<A> {
    /// A request for data of `key`, addressed as the carrier does it.
    pub(crate) fn new(by: By, key: Key<A>, turned: Option<TurningPoint>) -> Self {
        let to = match (by, turned) {
            (By::Option(_), _) => key.group,
            (By::Datagram, None) => key.source,
            (By::Datagram, Some(_)) => A::LINK_GROUP,
        };
        Request {
            key,
            turned,
            to,
            hops: 64,
        }
    }

    pub(crate) fn packet(&self, by: By) -> Vec<u8> {
        let ends = (A::host(DOWN, 77), self.to);
        let option = option(Kind::Request, self.key, self.turned);
        match by {
            By::Option(form) => A::with_option(
                ends,
                self.hops,
                &option,
                form,
                UDP,
                &udp(ends, 9000, b"ask"),
            ),
            By::Datagram => datagram(ends, self.hops, &lms_header::<A>(&option, 0, b"ask")),
        }
    }
}

/// A repair that the replier sends to the router.
#[derive(Clone, Debug)]
pub(crate) struct Repair<A> {
    pub(crate) key: Key<A>,
    pub(crate) point: Option<TurningPoint>,
    pub(crate) from: A,
    pub(crate) to: A,
    /// Hops that the repair itself may make.
    pub(crate) hops: u8,
}

impl<A: Net> Repair<A> {
    /// The repair for a request below `DOWN` that was turned at `NOW`.
    pub(crate) fn new(by: By) -> Self {
        Repair {
            key: key(),
            point: Some(asked::<A>(by).1),
            from: A::host(REPLIER, 9),
            to: A::host(REPLIER, 1),
            hops: 64,
        }
    }

    pub(crate) fn packet(&self, by: By) -> Vec<u8> {
        match by {
            By::Option(form) => {
                let inner = inner(self.key, self.hops, UDP, 30);
                self.around(&inner, form)
            }
            By::Datagram => {
                let option = option(Kind::Dmcast, self.key, self.point);
                let payload = lms_header::<A>(&option, self.hops, b"repair");
                datagram((self.from, self.to), 64, &payload)
            }
        }
    }

    /// The repair around any bytes.
    pub(crate) fn around(&self, inner: &[u8], form: Form) -> Vec<u8> {
        let option = option(Kind::Dmcast, self.key, self.point);
        let ends = (self.from, self.to);
        A::with_option(ends, 64, &option, form, A::ENCAPSULATED, inner)
    }
}

/// A packet from the source to its group.
pub(crate) fn inner<A: Net>(key: Key<A>, hops: u8, protocol: u8, payload_len: usize) -> Vec<u8> {
    let mut packet = vec![0xcd; A::IP_HEADER_LEN + payload_len];
    let (source, group) = (key.source, key.group);
    A::write_ip(&mut packet, payload_len, protocol, hops, source, group).unwrap();
    packet
}

/// A router that has turned a request from `DOWN`, and the turning point that it wrote: at `NOW` the same in every router
/// that is made here.
#[track_caller]
pub(crate) fn asked<A: Net>(by: By) -> (Router<'static, A>, TurningPoint) {
    let mut router = router_with_replier();
    let point = ask(&mut router, by, key());
    (router, point)
}

/// A receiver below `DOWN` asks, and the router turns the request.
#[track_caller]
pub(crate) fn ask<A: Net>(router: &mut Router<'_, A>, by: By, key: Key<A>) -> TurningPoint {
    let mut bytes = Request::new(by, key, None).packet(by);
    let verdict = router.forward(NOW, &meta(DOWN), &mut bytes);
    let Verdict::Forward { packet, .. } = verdict else {
        panic!("{verdict:?}");
    };
    read::<A>(by, &bytes[packet]).turning_point.expect("turned")
}

/// What a request says.
pub(crate) fn read<A: Net>(by: By, packet: &[u8]) -> LmsOption {
    let payload_at = A::read_ip(packet).unwrap().payload.start;
    match by {
        By::Option(_) => A::find_option(&packet[A::IP_HEADER_LEN..payload_at]).unwrap(),
        By::Datagram => Header::<A>::parse(&packet[payload_at + 8..])
            .unwrap()
            .option(),
    }
}

pub(crate) fn option<A: Net>(
    kind: Kind,
    key: Key<A>,
    turning_point: Option<TurningPoint>,
) -> LmsOption {
    LmsOption {
        kind,
        turning_point,
        source: key.source.into(),
        group: key.group.into(),
    }
}

/// The header of the carrier by datagram, and a payload.
fn lms_header<A: Net>(option: &LmsOption, hops: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; Header::<A>::LEN];
    let header = Header::<A>::of(option, hops, PORTS).unwrap();
    header.emit(&mut bytes).unwrap();
    bytes.extend_from_slice(payload);
    bytes
}

fn udp<A: Net>((from, to): (A, A), port: u16, payload: &[u8]) -> Vec<u8> {
    let len = 8 + payload.len();
    let mut datagram = vec![0; len];
    datagram[..2].copy_from_slice(&9_000u16.to_be_bytes());
    datagram[2..4].copy_from_slice(&port.to_be_bytes());
    datagram[4..6].copy_from_slice(&(len as u16).to_be_bytes());
    datagram[8..].copy_from_slice(payload);
    let (from, to): (IpAddr, IpAddr) = (from.into(), to.into());
    UdpPacket::new_unchecked(&mut datagram[..]).fill_checksum(&from.into(), &to.into());
    datagram
}

/// A whole packet to the port of the carrier by datagram.
pub(crate) fn datagram<A: Net>(ends: (A, A), hops: u8, payload: &[u8]) -> Vec<u8> {
    let udp = udp(ends, PORT, payload);
    let mut packet = vec![0; A::IP_HEADER_LEN];
    A::write_ip(&mut packet, udp.len(), UDP, hops, ends.0, ends.1).unwrap();
    packet.extend(udp);
    packet
}
