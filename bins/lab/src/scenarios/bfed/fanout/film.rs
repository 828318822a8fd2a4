//! The film: MPEG-TS of 1 Mbit/s, 30 pictures a second, a key frame each second. Each picture follows from its number, so
//! that a receiver knows every byte that it must get.

use media::group::Header;

use crate::prelude::*;

/// Pictures per second, and of a group.
pub(super) const PICTURES: u64 = 30;
/// Packets of a picture: 992,640 bit/s.
const PACKETS: u64 = 22;
/// Length of a packet.
const PACKET: usize = 188;
/// Bytes of a picture.
pub(super) const LEN: usize = PACKETS as usize * PACKET;
/// Where the tables and the video are.
const MAP_PID: u16 = 0x100;
const VIDEO_PID: u16 = 0x101;
/// Video whose key frames are marked by the random access indicator alone (ISO/IEC 14496-2).
const STREAM_TYPE: u8 = 0x10;
/// Ticks of presentation times in a picture.
const TICKS: u64 = 90_000 / PICTURES;
/// Offset of the number in a key frame: heads of packet, adaptation field and PES packet are before it.
const NUMBER: usize = 4 + 2 + 14;

/// Returns a packet's head.
fn head(pid: u16, starts: bool, control: u8, counter: u64) -> Vec<u8> {
    let [high, low] = pid.to_be_bytes();
    let starts = u8::from(starts) << 6;
    vec![
        0x47,
        starts | high,
        low,
        control << 4 | (counter & 15) as u8,
    ]
}

/// Returns a table in a packet of its own.
fn table(pid: u16, id: u8, body: &[u8]) -> Vec<u8> {
    let len = (5 + body.len() + 4) as u8;
    let mut section = vec![id, 0xb0, len, 0, 1, 0xc1, 0, 0];
    section.extend_from_slice(body);
    let checksum = crc32(&section).to_be_bytes();
    let mut packet = head(pid, true, 1, 0);
    packet.push(0);
    packet.extend_from_slice(&section);
    packet.extend_from_slice(&checksum);
    packet.resize(PACKET, 0xff);
    packet
}

/// The checksum of tables (ISO/IEC 13818-1 annex A).
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| crc << 1 ^ if crc >> 31 == 1 { 0x04c1_1db7 } else { 0 };
    let next = |crc: u32, &byte: &u8| (0..8).fold(crc ^ u32::from(byte) << 24, step);
    bytes.iter().fold(u32::MAX, next)
}

/// Returns the first frame of a group: its tables.
pub(super) fn header() -> Vec<u8> {
    let [high, low] = MAP_PID.to_be_bytes();
    let programs = table(0, 0, &[0, 1, 0xe0 | high, low]);
    let [high, low] = VIDEO_PID.to_be_bytes();
    let (high, none) = (0xe0 | high, [0xf0, 0]);
    let streams = [&[high, low][..], &none, &[STREAM_TYPE, high, low], &none].concat();
    let map = table(MAP_PID, 2, &streams);
    Header {
        is_start: true,
        init: &[programs, map].concat(),
        prefix: &[],
    }
    .to_vec()
}

/// Returns a picture.
pub(super) fn picture(number: u64) -> Vec<u8> {
    let is_key = number.is_multiple_of(PICTURES);
    let mut bytes = Vec::with_capacity(LEN);
    for packet in 0..PACKETS {
        let counter = number * PACKETS + packet;
        let starts = packet == 0;
        let control = if starts && is_key { 3 } else { 1 };
        bytes.extend(head(VIDEO_PID, starts, control, counter));
        if starts && is_key {
            // An adaptation field with the random access indicator.
            bytes.extend([1, 0x40]);
        }
        if starts {
            let ticks = number * TICKS;
            let bits = |shift: u32| (ticks >> shift << 1 | 1) as u8;
            bytes.extend([0, 0, 1, 0xe0, 0, 0, 0x80, 0x80, 5]);
            bytes.push(0x20 | bits(30) & 0xf);
            bytes.extend([(ticks >> 22) as u8, bits(15), (ticks >> 7) as u8, bits(0)]);
            bytes.extend(number.to_be_bytes());
        }
        bytes.resize((packet as usize + 1) * PACKET, counter as u8);
    }
    bytes
}

/// Returns the bytes of a group by its number.
pub(super) fn group(number: u64) -> Vec<u8> {
    let first = number * PICTURES;
    (first..first + PICTURES).flat_map(picture).collect()
}

/// Removes tables from the start of a group: where a server cuts the stream of a source, its first group has them.
pub(super) fn without_tables(group: &mut Vec<u8>) {
    let [high, low] = VIDEO_PID.to_be_bytes();
    while group.len() >= PACKET && (group[1] & 0x1f, group[2]) != (high, low) {
        group.drain(..PACKET);
    }
}

/// Returns the number of the group that begins with these bytes, if they are enough.
pub(super) fn number_of(group: &[u8]) -> Option<u64> {
    let (_, picture) = group.get(..PACKET)?.split_at(NUMBER);
    let picture = picture.first_chunk()?;
    Some(u64::from_be_bytes(*picture) / PICTURES)
}

/// When each picture left the source.
#[derive(Debug, Default)]
pub(super) struct Sent(Vec<Instant>);

impl Sent {
    /// Adds the next picture.
    pub(super) fn push(&mut self, at: Instant) {
        self.0.push(at);
    }

    /// Returns the number of groups that have ended.
    pub(super) fn groups(&self) -> u64 {
        self.0.len() as u64 / PICTURES
    }

    /// Returns when a picture left.
    pub(super) fn at(&self, picture: u64) -> Option<Instant> {
        self.0.get(picture as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use media::{Event, Reader};

    use super::*;

    #[test]
    fn a_reader_finds_the_pictures_and_the_key_frames() {
        let mut reader = Reader::new();
        let header = header();
        reader.push(Header::parse(&header).unwrap().init);
        reader.push(&group(7));
        reader.push(&group(8));
        let mut units = Vec::new();
        while let Some(event) = reader.poll_event() {
            if let Event::Unit(unit) = event {
                units.push(unit);
            }
        }
        // The end of the last picture is not known yet.
        assert_eq!(units.len() as u64, 2 * PICTURES - 1);
        for (at, unit) in units.iter().enumerate() {
            assert_eq!(unit.len, LEN as u64);
            assert_eq!(unit.is_start, (at as u64).is_multiple_of(PICTURES));
            let time = (7 * PICTURES + at as u64) * 1_000_000 / PICTURES;
            assert_eq!(unit.time.map(|time| time.total_micros()), Some(time));
        }
        assert_eq!(number_of(&group(7)), Some(7));
        assert_eq!(number_of(&group(7)[..PACKET - 1]), None);
        let mut first = [Header::parse(&header).unwrap().init, &group(7)].concat();
        without_tables(&mut first);
        assert_eq!(first, group(7));
    }
}
