//! Packets between the wire and the machines of hosts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use lms_proto::wire::encap::{DmcastRepr, Placement};
use lms_proto::{LmsOption, TurningPoint};
use netsim::ip::Datagram;

use super::{GROUP, Plan, TTL, destination};

/// A packet for a host's machine.
pub(super) struct Incoming<'a> {
    pub(super) meta: ltp::Meta,
    pub(super) payload: &'a [u8],
}

/// Reads a packet that arrived at a host, the elected replier of its link or not. Links here corrupt
/// nothing, so checksums are not verified.
#[inline]
pub(super) fn incoming(packet: &[u8], elected: bool) -> Option<Incoming<'_>> {
    let (destination, plain) = destination(packet)?;
    let header_len = usize::from(packet[0] & 0xf) * 4;
    let udp = packet.get(header_len..)?;
    let source = u32::from_be_bytes(packet[12..16].try_into().ok()?);
    let port = u16::from_be_bytes(udp.get(..2)?.try_into().ok()?);
    let path = if destination.is_multicast() {
        ltp::Path::Group
    } else {
        ltp::Path::Unicast
    };
    let option = if plain {
        None
    } else {
        Some(
            LmsOption::parse::<Ipv4Addr>(&packet[20..header_len])
                .ok()?
                .1,
        )
    };
    let source = SocketAddrV4::new(source.into(), port).into();
    let meta = ltp::Meta {
        source,
        path,
        option,
        elected,
    };
    Some(Incoming {
        meta,
        payload: udp.get(8..)?,
    })
}

/// The packets of one transmission of a host's machine.
pub(super) fn outgoing(
    plan: &Plan,
    node: u32,
    transmit: &ltp::Transmit,
    buffer: &[u8],
    mut send: impl FnMut(&[u8]),
) {
    let me = plan.host(node);
    let group = |options: &[u8], payload: &[u8]| {
        Datagram {
            source: me,
            destination: GROUP,
            ttl: TTL,
            options,
            payload,
        }
        .emit()
    };
    for payload in transmit.packets(buffer) {
        match transmit.destination {
            ltp::Destination::Group => send(&group(&[], payload)),
            ltp::Destination::Request(option) => {
                let mut options = [0; 40];
                let len = option
                    .emit(plan.form, &mut options)
                    .expect("an IPv4 option fits");
                send(&group(&options[..len], payload));
            }
            ltp::Destination::Unicast(SocketAddr::V4(destination)) => {
                send(
                    &Datagram {
                        source: me,
                        destination,
                        ttl: TTL,
                        options: &[],
                        payload,
                    }
                    .emit(),
                );
            }
            // The simulation knows neither IPv6 nor relays.
            ltp::Destination::Unicast(SocketAddr::V6(_)) | ltp::Destination::Relay => {}
            ltp::Destination::Dmcast(turning_point) => {
                send(&dmcast(plan, me, turning_point, payload));
            }
        }
    }
}

/// A repair, wrapped for the turning-point router.
fn dmcast(plan: &Plan, me: SocketAddrV4, turning_point: TurningPoint, payload: &[u8]) -> Vec<u8> {
    let inner = Datagram {
        source: plan.source(),
        destination: GROUP,
        ttl: TTL,
        options: &[],
        payload,
    };
    let inner = inner.emit();
    let IpAddr::V4(router) = turning_point.router else {
        return inner;
    };
    let wrap = DmcastRepr {
        replier: *me.ip(),
        router,
        iface: turning_point.iface,
        cookie: turning_point.cookie,
        form: plan.form,
        placement: Placement::Outer,
        ttl: TTL,
        identification: 0,
    };
    let mut bytes = vec![0; wrap.buffer_len(inner.len())];
    let len = wrap
        .emit(&inner, &mut bytes)
        .expect("a dmcast of a short packet is short");
    bytes.truncate(len);
    bytes
}
