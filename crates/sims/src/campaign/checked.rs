//! A node behind a network card and a kernel, which drop corrupted packets.

use netsim::{Instant, Io, Node, Port};
use smoltcp::wire::{IpProtocol, Ipv4Packet, UdpPacket};

/// Hands a node whole IPv4 packets with right checksums, and nothing else.
pub(super) struct Checked<N> {
    pub(super) node: N,
    /// It is an endpoint of datagrams, which verifies their checksum too. Routers verify the header.
    is_host: bool,
}

impl<N> Checked<N> {
    pub(super) fn host(node: N) -> Self {
        Self {
            node,
            is_host: true,
        }
    }

    pub(super) fn router(node: N) -> Self {
        Self {
            node,
            is_host: false,
        }
    }
}

/// Whether the checksums are right: of the IPv4 header, and at hosts of the datagram.
fn is_sound(packet: &[u8], is_host: bool) -> bool {
    let Ok(ip) = Ipv4Packet::new_checked(packet) else {
        return false;
    };
    if ip.version() != 4 || !ip.verify_checksum() || usize::from(ip.total_len()) != packet.len() {
        return false;
    }
    if !is_host || ip.next_header() != IpProtocol::Udp {
        return true;
    }
    let body = &packet[usize::from(ip.header_len())..];
    UdpPacket::new_checked(body).is_ok_and(|udp| {
        let (source, destination) = (ip.src_addr().into(), ip.dst_addr().into());
        udp.verify_checksum(&source, &destination)
    })
}

impl<N: Node> Node for Checked<N> {
    fn handle_packet(&mut self, now: Instant, port: Port, packet: &[u8], io: &mut Io<'_>) {
        if is_sound(packet, self.is_host) {
            self.node.handle_packet(now, port, packet, io);
        }
    }

    fn handle_timeout(&mut self, now: Instant, io: &mut Io<'_>) {
        self.node.handle_timeout(now, io);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.node.poll_timeout()
    }
}
