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
    /// Bytes of the header: of IPv6, with the options in front of what it carries.
    pub(crate) header: usize,
    /// What it carries: a protocol number, or that of another extension header.
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
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const AUTHENTICATION: u8 = 51;
    const DESTINATION_OPTIONS: u8 = 60;
    let fixed: [u8; 40] = *packet.first_chunk()?;
    let total = 40 + usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
    let packet = packet.get_mut(..total)?;
    let mut layout = Layout {
        header: 40,
        protocol: fixed[6],
        is_fragment: false,
    };
    let (mut at, mut next) = (layout.header, layout.protocol);
    // Each header takes at least 8 bytes, so that the length of the packet bounds the walk.
    loop {
        let is_options = next == DESTINATION_OPTIONS || (next == HOP_BY_HOP && at == 40);
        // A fragment header may follow each of these (RFC 8200 §4.1).
        if !is_options && ![ROUTING, FRAGMENT, AUTHENTICATION].contains(&next) {
            break;
        }
        let extension: &[u8; 8] = packet.get(at..)?.first_chunk()?;
        if next == FRAGMENT {
            // What follows in a later fragment is no header.
            layout.is_fragment = true;
            break;
        }
        let units = usize::from(extension[1]);
        let len = match next {
            // RFC 4302 §2.2: words of four bytes, less two.
            AUTHENTICATION => (units + 2) * 4,
            _ => (units + 1) * 8,
        };
        if packet.len() < at + len {
            return None;
        }
        // The layout ends before a header that changes what the checksum covers, or that covers the checksum.
        if is_options && layout.header == at {
            (layout.header, layout.protocol) = (at + len, extension[0]);
        }
        (at, next) = (at + len, extension[0]);
    }
    Some((layout, packet))
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

    /// Extension headers of 8 and 16 bytes before a payload, after a hop-by-hop header or none.
    fn chain(with_hop_by_hop: bool, kinds: &[u8], last: u8, payload: &[u8]) -> Vec<u8> {
        let first = with_hop_by_hop.then_some(0);
        let kinds: Vec<u8> = first.into_iter().chain(kinds.iter().copied()).collect();
        let mut packet = packet6()[..40].to_vec();
        packet[6] = *kinds.first().unwrap_or(&last);
        for (at, kind) in kinds.iter().enumerate() {
            let next = *kinds.get(at + 1).unwrap_or(&last);
            // An authentication header counts words of four bytes less two, the others words of eight less one.
            let (units, len) = match (kind, at % 2) {
                (51, 0) => (0, 8),
                (51, _) => (2, 16),
                (_, 0) => (0, 8),
                (_, _) => (1, 16),
            };
            let end = packet.len() + len;
            packet.extend([next, units]);
            packet.resize(end, 0);
        }
        packet.extend(payload);
        let len = packet.len() - 40;
        packet[4..6].copy_from_slice(&(len as u16).to_be_bytes());
        packet
    }

    /// Chains of up to three of the headers that RFC 8200 §4.1 lets stand before a fragment header, and of
    /// authentication headers.
    fn chains() -> Vec<Vec<u8>> {
        let mut all = vec![Vec::new()];
        for from in 0..1 + 3 + 9 {
            for kind in [60, 43, 51] {
                let longer = [&all[from][..], &[kind]].concat();
                all.push(longer);
            }
        }
        all
    }

    #[test]
    fn fragments_are_recognized_after_every_chain_of_headers() {
        for kinds in chains() {
            for with_hop_by_hop in [false, true] {
                // A first fragment, and a later one, of which no byte is a header.
                for (next, offset) in [(17, [0, 1]), (17, [0, 9]), (60, [0, 9]), (60, [0, 8])] {
                    let fragment = [&[next, 0][..], &offset, &[0, 0, 0, 7], &[0xff; 24]].concat();
                    let whole = chain(with_hop_by_hop, &kinds, 44, &fragment);
                    let mut packet = whole.clone();
                    let refused = complete_checksum(&mut packet);
                    assert_eq!(refused, Err(ChecksumError::Fragment), "{kinds:?} {next}");
                    assert_eq!(packet, whole);
                    for len in 40..whole.len() - 24 {
                        let mut cut = whole[..len].to_vec();
                        cut[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
                        let refused = complete_checksum(&mut cut);
                        assert_eq!(refused, Err(ChecksumError::Malformed), "{kinds:?} {len}");
                    }
                }
            }
        }
    }

    /// The checksum of a packet with a routing header may be of another destination (RFC 8200 §8.1), and one after an
    /// authentication header is covered by that.
    #[test]
    fn checksums_are_completed_after_options_alone() {
        for kinds in chains() {
            for with_hop_by_hop in [false, true] {
                let whole = chain(with_hop_by_hop, &kinds, 17, &packet6()[56..]);
                let mut packet = whole.clone();
                let completed = complete_checksum(&mut packet);
                if kinds.iter().all(|kind| *kind == 60) {
                    assert_eq!(completed, Ok(()), "{kinds:?}");
                    let (layout, _) = well_formed(&mut packet.clone()).map(|f| (f.0, ())).unwrap();
                    assert!(udp_holds(&packet, &layout));
                } else {
                    assert_eq!(completed, Err(ChecksumError::NoChecksum), "{kinds:?}");
                    assert_eq!(packet, whole);
                }
            }
        }
    }
}
