use thiserror::Error;

/// A checksum was not completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ChecksumError {
    /// Not IPv4, or its lengths do not add up: drop it.
    #[error("not a well-formed IPv4 packet")]
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

/// Header length of a whole IPv4 packet, and the packet cut to its total length.
pub(crate) fn well_formed(packet: &mut [u8]) -> Option<(usize, &mut [u8])> {
    let header = usize::from(packet.first()? & 0x0f) * 4;
    let total = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
    let version = packet[0] >> 4;
    if version != 4 || header < 20 || total < header {
        return None;
    }
    Some((header, packet.get_mut(..total)?))
}

/// The sum of the pseudo header (RFC 768) of a packet whose header is `header` bytes long.
pub(crate) fn pseudo_sum(packet: &[u8], header: usize) -> u64 {
    sum(&packet[12..20]) + u64::from(packet[9]) + (packet.len() - header) as u64
}

/// Computes the UDP or TCP checksum of a whole IPv4 packet and writes it.
///
/// A host whose interface computes checksums hands packets over with the checksum half done;
/// on virtual links (veth) such packets reach a ring or a tap as they are. Sent on as raw bytes
/// they would be dropped by their receiver. [`Ring`](super::Ring) completes the
/// packets the kernel marks so.
///
/// # Errors
/// [`ChecksumError`]: the packet is truncated or a fragment, or carries neither UDP nor TCP. It is unchanged.
pub fn complete_checksum(packet: &mut [u8]) -> Result<(), ChecksumError> {
    let (header, packet) = well_formed(packet).ok_or(ChecksumError::Malformed)?;
    if u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff != 0 {
        return Err(ChecksumError::Fragment);
    }
    let is_udp = i32::from(packet[9]) == libc::IPPROTO_UDP;
    let at = match i32::from(packet[9]) {
        libc::IPPROTO_UDP => header + 6,
        libc::IPPROTO_TCP => header + 16,
        _ => return Err(ChecksumError::NoChecksum),
    };
    packet
        .get_mut(at..at + 2)
        .ok_or(ChecksumError::Malformed)?
        .fill(0);
    let total = fold(pseudo_sum(packet, header) + sum(&packet[header..]));
    let checksum = match !total {
        // RFC 768: zero would say "none".
        0 if is_udp => 0xffff,
        checksum => checksum,
    };
    packet[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// The checksum of the IPv4 header holds.
pub(crate) fn header_holds(packet: &[u8], header: usize) -> bool {
    fold(sum(&packet[..header])) == 0xffff
}

/// The UDP checksum holds, or the sender computed none.
pub(crate) fn udp_holds(packet: &[u8], header: usize) -> bool {
    match packet.get(header + 6..header + 8) {
        Some([0, 0]) => true,
        Some(_) => fold(pseudo_sum(packet, header) + sum(&packet[header..])) == 0xffff,
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

    #[test]
    fn a_completed_checksum_holds_and_any_flip_breaks_it() {
        let mut packet = packet();
        complete_checksum(&mut packet).unwrap();
        assert!(udp_holds(&packet, 20));
        for bit in 0..packet[20..].len() * 8 {
            let mut broken = packet.clone();
            broken[20 + bit / 8] ^= 1 << (bit % 8);
            assert!(!udp_holds(&broken, 20), "bit {bit}");
        }
    }

    #[test]
    fn every_truncation_is_refused() {
        let whole = packet();
        for len in 0..whole.len() {
            let mut cut = whole[..len].to_vec();
            assert_eq!(
                complete_checksum(&mut cut),
                Err(ChecksumError::Malformed),
                "{len}"
            );
        }
        let mut fragment = packet();
        fragment[6] = 0x20;
        assert_eq!(
            complete_checksum(&mut fragment),
            Err(ChecksumError::Fragment)
        );
    }
}
