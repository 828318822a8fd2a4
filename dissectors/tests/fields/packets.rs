//! IPv4 packets around the payloads to be dissected.

/// How bytes travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carrier {
    /// As the payload of a datagram to that port.
    Udp(u16),
    /// As the whole payload of a TCP segment to that port, of a connection of its own.
    Tcp(u16),
    /// As a TCP segment in a datagram, to the port that TCP-XM's goldens have.
    Segment,
    /// As the options of an IPv4 header.
    IpOption,
    /// As an IGMP message.
    Igmp,
    /// As a whole IPv4 packet.
    Raw,
}

impl Carrier {
    /// The packet; `flow` keeps TCP connections apart.
    pub(crate) fn wrap(self, bytes: &[u8], flow: usize) -> Vec<u8> {
        match self {
            Carrier::Udp(port) => ip(17, &[], &udp(port, bytes)),
            Carrier::Tcp(port) => {
                // Port and address both count, so that thousands of connections stay apart.
                let mut packet = ip(6, &[], &tcp(port, bytes));
                packet[13..16].copy_from_slice(&(flow as u32 + 1).to_be_bytes()[1..]);
                packet
            }
            Carrier::Segment => ip(17, &[], &udp(0x5678, bytes)),
            Carrier::IpOption => ip(17, bytes, &udp(9, &[])),
            Carrier::Igmp => ip(2, &[], bytes),
            Carrier::Raw => bytes.to_vec(),
        }
    }
}

fn ip(protocol: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let header_len = 20 + options.len();
    let mut packet = vec![0x40 | (header_len / 4) as u8, 0];
    packet.extend(((header_len + payload.len()) as u16).to_be_bytes());
    packet.extend([0, 1, 0, 0, 64, protocol, 0, 0]);
    packet.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend(options);
    packet.extend(payload);
    packet
}

/// The source port of every packet here, and what TCP-XM's goldens have.
const SOURCE_PORT: u16 = 0x1234;

fn udp(port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    for half in [SOURCE_PORT, port, 8 + bytes.len() as u16, 0] {
        packet.extend(half.to_be_bytes());
    }
    packet.extend(bytes);
    packet
}

fn tcp(port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    for half in [SOURCE_PORT, port, 0, 1, 0, 1, 0x5018, 0xffff, 0, 0] {
        packet.extend(half.to_be_bytes());
    }
    packet.extend(bytes);
    packet
}

/// A capture file of raw IPv4 packets.
pub(crate) fn pcap(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65535, 101] {
        file.extend(word.to_le_bytes());
    }
    for (at, packet) in packets.iter().enumerate() {
        let len = packet.len() as u32;
        for word in [at as u32, 0, len, len] {
            file.extend(word.to_le_bytes());
        }
        file.extend(packet);
    }
    file
}
