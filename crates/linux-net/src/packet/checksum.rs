use thiserror::Error;

/// A checksum was not completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ChecksumError {
    /// Neither IPv4 nor IPv6, or its lengths do not add up: drop it.
    #[error("not a well-formed IP packet")]
    Malformed,
    /// A fragment: its checksum covers bytes that are elsewhere; forward it as it is.
    #[error("a fragment")]
    Fragment,
    /// Neither UDP nor TCP: it has no checksum that a host leaves to its network card.
    #[error("neither UDP nor TCP")]
    NoChecksum,
}

/// The one's complement sum of 16-bit words, not folded.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(2);
    let odd = words
        .remainder()
        .first()
        .map_or(0, |last| u64::from(*last) << 8);
    words.fold(odd, |sum, word| {
        sum + u64::from(u16::from_be_bytes([word[0], word[1]]))
    })
}

pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Where things stand in a whole IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Bytes of the header: of IPv6, with the extension headers in front of what it carries.
    pub(crate) header: usize,
    /// What it carries: a protocol number.
    pub(crate) protocol: u8,
    /// It is a part of a packet.
    pub(crate) is_fragment: bool,
}

/// The layout of a whole packet of either version of IP, and the packet cut to its length.
pub(crate) fn well_formed(packet: &mut [u8]) -> Option<(Layout, &mut [u8])> {
    match packet.first()? >> 4 {
        4 => ipv4(packet),
        6 => ipv6(packet),
        _ => None,
    }
}

fn ipv4(packet: &mut [u8]) -> Option<(Layout, &mut [u8])> {
    let header = usize::from(packet.first()? & 0x0f) * 4;
    let fixed: [u8; 20] = *packet.first_chunk()?;
    let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    if header < 20 || total < header {
        return None;
    }
    let layout = Layout {
        header,
        protocol: fixed[9],
        is_fragment: u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff != 0,
    };
    Some((layout, packet.get_mut(..total)?))
}

fn ipv6(packet: &mut [u8]) -> Option<(Layout, &mut [u8])> {
    const HOP_BY_HOP: u8 = 0;
    const FRAGMENT: u8 = 44;
    const DESTINATION_OPTIONS: u8 = 60;
    let fixed: [u8; 40] = *packet.first_chunk()?;
    let total = 40 + usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
    let packet = packet.get_mut(..total)?;
    let mut layout = Layout {
        header: 40,
        protocol: fixed[6],
        is_fragment: false,
    };
    // Each header takes at least 8 bytes, so that the length of the packet bounds the walk.
    loop {
        let len = match layout.protocol {
            HOP_BY_HOP if layout.header == 40 => None,
            DESTINATION_OPTIONS => None,
            FRAGMENT => Some(8),
            _ => return Some((layout, packet)),
        };
        let extension: &[u8; 8] = packet.get(layout.header..)?.first_chunk()?;
        layout.is_fragment |= layout.protocol == FRAGMENT;
        layout.protocol = extension[0];
        layout.header += len.unwrap_or((usize::from(extension[1]) + 1) * 8);
        if layout.header > packet.len() {
            return None;
        }
    }
}

/// The sum of the pseudo header (RFC 768, RFC 8200 §8.1) of a packet with this layout.
pub(crate) fn pseudo_sum(packet: &[u8], layout: &Layout) -> u64 {
    let addresses = match packet[0] >> 4 {
        4 => sum(&packet[12..20]),
        _ => sum(&packet[8..40]),
    };
    addresses + u64::from(layout.protocol) + (packet.len() - layout.header) as u64
}

/// Computes the UDP or TCP checksum of a whole IPv4 or IPv6 packet and writes it.
///
/// A host whose interface computes checksums hands packets over with the checksum half done;
/// on virtual links (veth) such packets reach a ring or a tap as they are. Sent on as raw bytes
/// they would be dropped by their receiver. [`Ring`](super::Ring) completes the
/// packets the kernel marks so.
///
/// # Errors
/// [`ChecksumError`]: the packet is truncated or a fragment, or carries neither UDP nor TCP. It is unchanged.
pub fn complete_checksum(packet: &mut [u8]) -> Result<(), ChecksumError> {
    let (layout, packet) = well_formed(packet).ok_or(ChecksumError::Malformed)?;
    if layout.is_fragment {
        return Err(ChecksumError::Fragment);
    }
    let is_udp = i32::from(layout.protocol) == libc::IPPROTO_UDP;
    let at = match i32::from(layout.protocol) {
        libc::IPPROTO_UDP => layout.header + 6,
        libc::IPPROTO_TCP => layout.header + 16,
        _ => return Err(ChecksumError::NoChecksum),
    };
    packet
        .get_mut(at..at + 2)
        .ok_or(ChecksumError::Malformed)?
        .fill(0);
    let total = fold(pseudo_sum(packet, &layout) + sum(&packet[layout.header..]));
    let checksum = match !total {
        // RFC 768: zero would say "none".
        0 if is_udp => 0xffff,
        checksum => checksum,
    };
    packet[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// The checksum of the IP header holds; that of IPv6 has none.
pub(crate) fn header_holds(packet: &[u8], header: usize) -> bool {
    packet[0] >> 4 == 6 || fold(sum(&packet[..header])) == 0xffff
}

/// The UDP checksum holds, or the sender computed none, which only IPv4 lets it.
pub(crate) fn udp_holds(packet: &[u8], layout: &Layout) -> bool {
    match packet.get(layout.header + 6..layout.header + 8) {
        Some([0, 0]) => packet[0] >> 4 == 4,
        Some(_) => fold(pseudo_sum(packet, layout) + sum(&packet[layout.header..])) == 0xffff,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IPv4 and UDP, 3 bytes of payload.
    fn packet() -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 31, 0, 0, 0x40, 0, 1, 17, 0, 0];
        packet.extend([10, 0, 0, 1, 239, 1, 2, 3]);
        packet.extend([0x10, 0x00, 0x20, 0x00, 0, 11, 0xde, 0xad, b'a', b'b', b'c']);
        packet
    }

    /// IPv6, a hop-by-hop header of 16 bytes, and UDP, 3 bytes of payload.
    fn packet6() -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 27, 0, 1];
        packet.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        packet.extend([0xff, 0x3e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34]);
        packet.extend([17, 1, 0x1e, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        packet.extend([0x10, 0x00, 0x20, 0x00, 0, 11, 0xde, 0xad, b'a', b'b', b'c']);
        packet
    }

    #[test]
    fn a_completed_checksum_holds_and_any_flip_breaks_it() {
        for (mut packet, header) in [(packet(), 20), (packet6(), 56)] {
            complete_checksum(&mut packet).unwrap();
            let (layout, _) = well_formed(&mut packet.clone()).map(|f| (f.0, ())).unwrap();
            assert_eq!((layout.header, layout.protocol), (header, 17));
            assert!(udp_holds(&packet, &layout));
            for bit in 0..packet[header..].len() * 8 {
                let mut broken = packet.clone();
                broken[header + bit / 8] ^= 1 << (bit % 8);
                assert!(!udp_holds(&broken, &layout), "bit {bit}");
            }
        }
    }

    #[test]
    fn every_truncation_is_refused() {
        for whole in [packet(), packet6()] {
            for len in 0..whole.len() {
                let mut cut = whole[..len].to_vec();
                let completed = complete_checksum(&mut cut);
                assert_eq!(completed, Err(ChecksumError::Malformed), "{len}");
            }
        }
    }

    #[test]
    fn fragments_and_endless_chains_are_refused() {
        let mut fragment = packet();
        fragment[6] = 0x20;
        let refused = complete_checksum(&mut fragment);
        assert_eq!(refused, Err(ChecksumError::Fragment));
        let mut fragment = packet6();
        fragment[40] = 44;
        fragment.splice(56..56, [17, 0, 0, 1, 0, 0, 0, 7]);
        fragment[5] += 8;
        let refused = complete_checksum(&mut fragment);
        assert_eq!(refused, Err(ChecksumError::Fragment));
        // Hop-by-hop headers stand at the front alone; destination options may stand anywhere.
        let mut chain = packet6();
        chain[40] = 0;
        let refused = complete_checksum(&mut chain);
        assert_eq!(refused, Err(ChecksumError::NoChecksum));
        let mut chain = [60, 0, 0, 0, 0, 0, 0, 0].repeat(8000);
        let mut packet = packet6()[..40].to_vec();
        packet[4..7].copy_from_slice(&[0xfa, 0, 60]);
        packet.append(&mut chain);
        let refused = complete_checksum(&mut packet);
        assert_eq!(refused, Err(ChecksumError::Malformed));
    }
}
