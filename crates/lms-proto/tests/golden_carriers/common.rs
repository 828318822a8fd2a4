//! Packets of both families and a small router, shared by the tests of the carriers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use lms_proto::router::{Config, Policy, Router, Storage, Verdict};
use lms_proto::table::{Neighbour, Replier};
use lms_proto::wire::ipv6;
use lms_proto::wire::udp::{Header, PORT, Ports};
use lms_proto::{
    Family, Iface, Instant, InterfaceConfig, Key, Kind, LmsOption, Meta, NextHop, TurningPoint,
};
use smoltcp::wire::UdpPacket;

pub(crate) const NOW: Instant = Instant::from_secs(100);
pub(crate) const UP: Iface = Iface(1);
pub(crate) const REPLIER: Iface = Iface(2);
pub(crate) const DOWN: Iface = Iface(3);

pub(crate) const PORTS: Ports = Ports {
    source: 4000,
    group: 5000,
};

/// A family with the addresses of a small network.
pub(crate) trait Net: Family {
    const SOURCE: Self;
    const GROUP: Self;
    /// The receiver below `DOWN`, the replier below `REPLIER`, and another receiver on the replier's link.
    const HOSTS: [Self; 3];

    fn interface(iface: Iface) -> InterfaceConfig<Self>;
    fn value(value: IpAddr) -> Self {
        Self::from_ip(value).expect("of this family")
    }
}

impl Net for Ipv4Addr {
    const SOURCE: Self = Ipv4Addr::new(10, 1, 0, 2);
    const GROUP: Self = Ipv4Addr::new(232, 1, 2, 3);
    const HOSTS: [Self; 3] = [
        Ipv4Addr::new(10, 1, 3, 77),
        Ipv4Addr::new(10, 1, 2, 9),
        Ipv4Addr::new(10, 1, 2, 8),
    ];

    fn interface(iface: Iface) -> InterfaceConfig {
        InterfaceConfig::ipv4(Ipv4Addr::new(10, 1, iface.0 as u8, 1), 24)
    }
}

pub(crate) const fn global(link: u16, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, link, 0, 0, 0, host)
}

impl Net for Ipv6Addr {
    const SOURCE: Self = global(1, 2);
    const GROUP: Self = Ipv6Addr::new(0xff3e, 0, 0, 0, 0, 0, 0, 0x1234);
    const HOSTS: [Self; 3] = [global(3, 77), global(2, 9), global(2, 8)];

    fn interface(iface: Iface) -> InterfaceConfig<Self> {
        let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, iface.0);
        InterfaceConfig::ipv6(global(iface.0, 1), 64, link_local)
    }
}

pub(crate) fn router<A: Net>() -> Router<'static, A> {
    router_of_seed(1)
}

pub(crate) fn router_of_seed<A: Net>(seed: u8) -> Router<'static, A> {
    let config = Config {
        policy: Policy::Static,
        ..Config::default()
    };
    let mut router = Router::<A>::new(config, Storage::with_capacity(8, 8), [seed; 32], NOW);
    for iface in [UP, REPLIER, DOWN] {
        router
            .set_interface(NOW, iface, A::interface(iface))
            .unwrap();
    }
    let key = Key::new(A::SOURCE, A::GROUP);
    router.install(NOW, key, UP, &[REPLIER, DOWN]).unwrap();
    let replier = Replier {
        iface: REPLIER,
        cost: 1,
        neighbour: Some(Neighbour {
            addr: A::HOSTS[1],
            link: None,
        }),
    };
    router.set_replier(NOW, key, Some(replier)).unwrap();
    router
}

pub(crate) fn meta(iface: Iface) -> Meta {
    Meta {
        iface,
        link_source: None,
    }
}

/// A whole UDP packet, its checksum right.
pub(crate) fn packet<A: Net>(from: A, to: A, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let udp_len = 8 + payload.len();
    let mut packet = vec![0; A::IP_HEADER_LEN + udp_len];
    A::write_ip(&mut packet, udp_len, 17, 64, from, to).unwrap();
    let udp = &mut packet[A::IP_HEADER_LEN..];
    udp[..2].copy_from_slice(&ports.0.to_be_bytes());
    udp[2..4].copy_from_slice(&ports.1.to_be_bytes());
    udp[4..6].copy_from_slice(&(udp_len as u16).to_be_bytes());
    udp[8..].copy_from_slice(payload);
    let (from, to): (IpAddr, IpAddr) = (from.into(), to.into());
    UdpPacket::new_unchecked(udp).fill_checksum(&from.into(), &to.into());
    packet
}

/// Whether a packet's UDP checksum holds, by another implementation.
pub(crate) fn holds<A: Net>(packet: &[u8]) -> bool {
    let (from, to): (IpAddr, IpAddr) = (A::source(packet).into(), A::destination(packet).into());
    let udp = UdpPacket::new_checked(&packet[A::IP_HEADER_LEN..]).unwrap();
    udp.verify_checksum(&from.into(), &to.into())
}

pub(crate) fn header<A: Net>(kind: Kind, turning_point: Option<TurningPoint>) -> Vec<u8> {
    let option = LmsOption {
        kind,
        turning_point,
        source: A::SOURCE.into(),
        group: A::GROUP.into(),
    };
    let mut bytes = vec![0; Header::<A>::LEN];
    let header = Header::<A>::of(&option, 16, PORTS).unwrap();
    header.emit(&mut bytes).unwrap();
    bytes
}

pub(crate) fn request<A: Net>() -> Vec<u8> {
    request_from(A::HOSTS[0])
}

pub(crate) fn request_from<A: Net>(host: A) -> Vec<u8> {
    let payload = [&header::<A>(Kind::Request, None)[..], b"what is asked"].concat();
    packet(host, A::SOURCE, (9_000, PORT), &payload)
}

pub(crate) fn dmcast<A: Net>(point: TurningPoint) -> Vec<u8> {
    let payload = [&header::<A>(Kind::Dmcast, Some(point))[..], b"repair, odd"].concat();
    packet(A::HOSTS[1], A::value(point.router), (PORT, PORT), &payload)
}

/// A request below `DOWN` is turned. Returns the packet to the replier.
pub(crate) fn turned<A: Net>(router: &mut Router<'_, A>) -> Vec<u8> {
    let mut bytes = request::<A>();
    let verdict = router.forward(NOW, &meta(DOWN), &mut bytes);
    let Verdict::Forward { output, packet, .. } = verdict else {
        panic!("{verdict:?}");
    };
    assert_eq!(output.iface, REPLIER);
    assert!(matches!(output.next_hop, NextHop::Neighbour { addr, .. } if addr == A::HOSTS[1]));
    bytes[packet].to_vec()
}

pub(crate) fn point<A: Net>(packet: &[u8]) -> TurningPoint {
    let header = Header::<A>::parse(&packet[A::IP_HEADER_LEN + 8..]).unwrap();
    header.option().turning_point.expect("turned")
}

/// A request of IPv6 with these options before and after LMS's.
pub(crate) fn chain(before: &[u8], after: &[u8]) -> Vec<u8> {
    let option = LmsOption {
        kind: Kind::Request,
        turning_point: None,
        source: Ipv6Addr::SOURCE.into(),
        group: Ipv6Addr::GROUP.into(),
    };
    let mut lms = [0; 64];
    option.emit(lms_proto::Form::Own, &mut lms).unwrap();
    let mut options = [before, &lms, after].concat();
    while (options.len() + 2) % 8 != 0 {
        options.push(0);
    }
    let words = (options.len() + 2) / 8 - 1;
    let mut payload = vec![17, words as u8];
    payload.extend(options);
    payload.extend([0xab; 20]);
    let mut packet = vec![0; 40];
    let (from, to) = (Ipv6Addr::HOSTS[0], Ipv6Addr::GROUP);
    ipv6::emit_header(&mut packet, payload.len(), ipv6::HOP_BY_HOP, 64, from, to).unwrap();
    packet.extend(payload);
    packet
}
