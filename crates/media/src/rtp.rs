//! Priorities of RTP packets (RFC 3550), by the front of their payload: H.264 (RFC 6184) and VP8 (RFC 7741).
//!
//! ```text
//! | V=2 P X CC: 1 | M, payload type: 1 | sequence: 2 | time: 4 | SSRC: 4 | CSRC: 4 * CC | extension, if X | payload |
//! ```

use crate::unit::Priority;

/// How the payload of a payload type is coded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Format {
    /// H.264 (RFC 6184).
    H264,
    /// VP8 (RFC 7741).
    Vp8,
}

/// Largest payload type.
pub const MAX_PAYLOAD_TYPE: u8 = 127;

/// Reads the packets of one RTP session.
#[derive(Clone, Debug)]
pub struct Reader {
    formats: [Option<Format>; MAX_PAYLOAD_TYPE as usize + 1],
    /// Source, time and priority of the frame that began last: of VP8, only the first packet of a frame tells.
    frame: Option<(u32, u32, Priority)>,
}

impl Reader {
    /// Creates a reader that knows these payload types. Numbers above [`MAX_PAYLOAD_TYPE`] are ignored.
    #[must_use]
    pub fn new(formats: &[(u8, Format)]) -> Self {
        let mut known = [None; MAX_PAYLOAD_TYPE as usize + 1];
        for (number, format) in formats {
            if let Some(place) = known.get_mut(usize::from(*number)) {
                *place = Some(*format);
            }
        }
        Reader {
            formats: known,
            frame: None,
        }
    }

    /// Returns how much a packet matters; `None` if it is not RTP, or of another payload type.
    pub fn read(&mut self, packet: &[u8]) -> Option<Priority> {
        let (fixed, rest) = packet.split_first_chunk::<12>()?;
        let [first, second, _, _, a, b, c, d, e, f, g, h] = *fixed;
        if first >> 6 != 2 {
            return None;
        }
        let format = self.formats[usize::from(second & MAX_PAYLOAD_TYPE)]?;
        let mut payload = rest.get(usize::from(first & 15) * 4..)?;
        if first & 0x10 != 0 {
            let [_, _, high, low, ..] = *payload else {
                return None;
            };
            let words = usize::from(u16::from_be_bytes([high, low]));
            payload = payload.get(4 + words * 4..)?;
        }
        match format {
            Format::H264 => h264(payload),
            Format::Vp8 => {
                let (time, source) = ([a, b, c, d], [e, f, g, h]);
                let key = (u32::from_be_bytes(source), u32::from_be_bytes(time));
                self.vp8(key, payload)
            }
        }
    }

    /// Reads a payload descriptor, and the first byte of a frame (RFC 7741 §4.2, §4.3).
    fn vp8(&mut self, (source, time): (u32, u32), payload: &[u8]) -> Option<Priority> {
        let (&first, mut rest) = payload.split_first()?;
        let mut skip = |take: usize| {
            let byte = rest.first().copied();
            rest = rest.get(take..).unwrap_or_default();
            byte
        };
        if first & 0x80 != 0 {
            let flags = skip(1)?;
            if flags & 0x80 != 0 && skip(1)? & 0x80 != 0 {
                skip(1)?;
            }
            if flags & 0x40 != 0 {
                skip(1)?;
            }
            if flags & 0x30 != 0 {
                skip(1)?;
            }
        }
        let begins = first & 0x17 == 0x10;
        let priority = match (begins, self.frame) {
            (true, _) if rest.first()? & 1 == 0 => Priority::Key,
            (false, Some((of, at, priority))) if (of, at) == (source, time) => {
                return Some(priority);
            }
            _ if first & 0x20 != 0 => Priority::Discardable,
            _ => Priority::Other,
        };
        if begins {
            self.frame = Some((source, time, priority));
        }
        Some(priority)
    }
}

/// Reads a unit, the first units of an aggregation, or a part of a unit (RFC 6184 §5.4).
fn h264(payload: &[u8]) -> Option<Priority> {
    let (&first, rest) = payload.split_first()?;
    match first & 31 {
        1..=23 => Some(unit(first, first)),
        // STAP-A: lengths and units.
        24 => {
            let mut rest = rest;
            let mut greatest = Priority::Discardable;
            while let [high, low, first, ..] = *rest {
                greatest = greatest.max(unit(first, first));
                let len = usize::from(u16::from_be_bytes([high, low]));
                rest = rest.get(2 + len.max(1)..).unwrap_or_default();
            }
            Some(greatest)
        }
        // FU-A and FU-B: the type is in the second byte.
        28 | 29 => rest.first().map(|&second| unit(first, second)),
        _ => Some(Priority::Other),
    }
}

/// Returns the priority by the byte with `nal_ref_idc` and the byte with the type (ITU-T H.264 §7.4.1).
fn unit(reference: u8, kind: u8) -> Priority {
    match kind & 31 {
        // A slice of an IDR picture, or parameter sets.
        5 | 7 | 8 => Priority::Key,
        _ if reference & 0x60 == 0 => Priority::Discardable,
        _ => Priority::Other,
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn reader() -> Reader {
        Reader::new(&[(96, Format::H264), (97, Format::Vp8), (200, Format::Vp8)])
    }

    /// A packet with this payload type, time and payload.
    fn packet(number: u8, time: u8, payload: &[u8]) -> Vec<u8> {
        let head = [0x80, number, 0, 1, 0, 0, 0, time, 0, 0, 0, 9];
        [&head[..], payload].concat()
    }

    #[test]
    fn units_of_h264() {
        let read = |payload: &[u8]| reader().read(&packet(96, 0, payload));
        assert_eq!(read(&[0x65, 1]), Some(Priority::Key));
        assert_eq!(read(&[0x67]), Some(Priority::Key));
        assert_eq!(read(&[0x41, 1]), Some(Priority::Other));
        assert_eq!(read(&[0x01, 1]), Some(Priority::Discardable));
        // FU-A, the first part, one in the middle, and of a slice that no other needs.
        assert_eq!(read(&[0x7c, 0x85]), Some(Priority::Key));
        assert_eq!(read(&[0x7c, 0x05]), Some(Priority::Key));
        assert_eq!(read(&[0x5c, 0x01]), Some(Priority::Other));
        assert_eq!(read(&[0x1c, 0x01]), Some(Priority::Discardable));
        // STAP-A: a delimiter and a parameter set.
        assert_eq!(read(&[0x18, 0, 2, 9, 1, 0, 1, 0x67]), Some(Priority::Key));
        assert_eq!(read(&[0x18, 0xff, 0xff, 0x41]), Some(Priority::Other));
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[0x7c]), None);
    }

    #[test]
    fn frames_of_vp8() {
        let mut reader = reader();
        let mut read = |time, payload: &[u8]| reader.read(&packet(97, time, payload));
        assert_eq!(read(1, &[0x10, 0x00]), Some(Priority::Key));
        assert_eq!(
            read(1, &[0x00, 0x01]),
            Some(Priority::Key),
            "the same frame"
        );
        assert_eq!(
            read(2, &[0x00, 0x00]),
            Some(Priority::Other),
            "another frame"
        );
        assert_eq!(read(3, &[0x10, 0x01]), Some(Priority::Other));
        assert_eq!(read(4, &[0x30, 0x01]), Some(Priority::Discardable));
        assert_eq!(read(4, &[0x20, 0x01]), Some(Priority::Discardable));
        // With a picture number of two bytes, TL0PICIDX and KEYIDX.
        let long = [0x90, 0xf0, 0x80, 1, 2, 3, 0x00];
        assert_eq!(read(5, &long), Some(Priority::Key));
        for len in 0..long.len() {
            assert_eq!(read(6, &long[..len]), None);
        }
    }

    #[test]
    fn what_is_no_rtp_or_of_another_type_has_no_priority() {
        let mut reader = reader();
        let key = packet(96, 0, &[0x65]);
        assert_eq!(reader.read(&key), Some(Priority::Key));
        for len in 0..key.len() {
            assert_eq!(reader.read(&key[..len]), None);
        }
        assert_eq!(reader.read(&packet(98, 0, &[0x65])), None);
        // The marker does not belong to the type.
        assert_eq!(
            reader.read(&packet(0x80 | 96, 0, &[0x65])),
            Some(Priority::Key)
        );
        let mut other = key.clone();
        other[0] = 0x40;
        assert_eq!(reader.read(&other), None);
        // Two sources of contribution, and an extension of one word.
        let mut long = key.clone();
        long[0] = 0x92;
        long.splice(12..12, [0; 8].into_iter().chain([1, 2, 0, 1, 5, 5, 5, 5]));
        assert_eq!(reader.read(&long), Some(Priority::Key));
        long[22..24].copy_from_slice(&[0xff, 0xff]);
        assert_eq!(reader.read(&long), None);
    }
}
