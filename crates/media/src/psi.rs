//! The tables of MPEG-TS: programs and their streams (ISO/IEC 13818-1 §2.4.4).

use alloc::vec::Vec;

use crate::nal::Codec;
use crate::ts::PACKET;

/// Longest section of a program map: 12 bits of length, of which the standard allows 1021, after 3 bytes.
const MAX_SECTION: usize = 1024;
/// Packets that a program map may take.
const MAX_PACKETS: usize = 8;

/// The CRC of sections (ISO/IEC 13818-1 annex A): of a whole section, 0.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| match crc & 1 << 31 {
        0 => crc << 1,
        _ => crc << 1 ^ 0x04c1_1db7,
    };
    let next = |crc: u32, &byte: &u8| (0..8).fold(crc ^ u32::from(byte) << 24, step);
    bytes.iter().fold(u32::MAX, next)
}

/// Gathers the sections of one stream of tables.
#[derive(Default, Debug)]
struct Sections {
    packets: Vec<[u8; PACKET]>,
    section: Vec<u8>,
}

impl Sections {
    fn clear(&mut self) {
        self.packets.clear();
        self.section.clear();
    }

    /// Adds a packet's payload. Returns whether a section is complete.
    fn push(&mut self, packet: &[u8; PACKET], payload: &[u8], starts: bool) -> bool {
        let payload = match starts {
            true => {
                self.clear();
                // A pointer to the section's first byte.
                let at = payload
                    .first()
                    .map_or(0, |&pointer| usize::from(pointer) + 1);
                payload.get(at..).unwrap_or_default()
            }
            false if self.packets.is_empty() => return false,
            false => payload,
        };
        if self.packets.len() == MAX_PACKETS {
            self.clear();
            return false;
        }
        self.packets.push(*packet);
        let room = MAX_SECTION - self.section.len();
        self.section
            .extend_from_slice(&payload[..payload.len().min(room)]);
        let [_, high, low, ..] = self.section[..] else {
            return false;
        };
        let len = 3 + usize::from(u16::from_be_bytes([high & 0x0f, low]));
        if self.section.len() < len {
            return false;
        }
        self.section.truncate(len);
        match len >= 12 && crc32(&self.section) == 0 {
            true => true,
            false => {
                self.clear();
                false
            }
        }
    }
}

/// What the tables say: the packets that carry them, and the main stream.
#[derive(Default, Debug)]
pub(crate) struct Tables {
    pat: Sections,
    pmt: Sections,
    map_pid: Option<u16>,
    /// The last sections that were complete.
    known: [Vec<u8>; 2],
    pat_packets: Vec<[u8; PACKET]>,
    main: Option<(u16, Codec)>,
}

impl Tables {
    /// Returns the identifier and the codec of the first video stream, else of the first audio stream.
    pub(crate) fn main(&self) -> Option<(u16, Codec)> {
        self.main
    }

    /// Returns whether packets with this identifier carry tables.
    pub(crate) fn takes(&self, pid: u16) -> bool {
        pid == 0 || Some(pid) == self.map_pid
    }

    /// Reads a packet of tables. Returns the packets of both tables when they have changed.
    pub(crate) fn push(
        &mut self,
        pid: u16,
        packet: &[u8; PACKET],
        payload: &[u8],
        starts: bool,
    ) -> Option<Vec<u8>> {
        match pid {
            0 => {
                if self.pat.push(packet, payload, starts) && self.pat.section[0] == 0 {
                    self.programs();
                }
                None
            }
            _ => {
                let complete = self.pmt.push(packet, payload, starts);
                if !complete || self.pmt.section[0] != 2 || self.pmt.section == self.known[1] {
                    return None;
                }
                self.known[1].clone_from(&self.pmt.section);
                self.main = streams(&self.pmt.section);
                let packets = self.pat_packets.iter().chain(&self.pmt.packets);
                Some(packets.flatten().copied().collect())
            }
        }
    }

    fn programs(&mut self) {
        if self.pat.section == self.known[0] {
            return;
        }
        self.known[0].clone_from(&self.pat.section);
        self.known[1].clear();
        self.pmt.clear();
        self.pat_packets.clone_from(&self.pat.packets);
        let list = self.pat.section.get(8..self.pat.section.len() - 4);
        let mut programs = list.unwrap_or_default().chunks_exact(4);
        let first = programs.find(|program| program[..2] != [0, 0]);
        self.map_pid = first.map(|program| u16::from_be_bytes([program[2] & 0x1f, program[3]]));
    }
}

/// Returns the main stream of a program map.
fn streams(section: &[u8]) -> Option<(u16, Codec)> {
    let body = section.get(..section.len() - 4)?;
    let skip = usize::from(u16::from_be_bytes([*body.get(10)? & 0x0f, *body.get(11)?]));
    let mut rest = body.get(12 + skip..)?;
    let mut audio = None;
    while let [kind, high, low, info_high, info_low, more @ ..] = rest {
        let pid = u16::from_be_bytes([high & 0x1f, *low]);
        match Codec::of_stream_type(*kind) {
            Some(codec) if codec.is_video() => return Some((pid, codec)),
            Some(codec) if audio.is_none() => audio = Some((pid, codec)),
            _ => {}
        }
        let info = usize::from(u16::from_be_bytes([info_high & 0x0f, *info_low]));
        rest = more.get(info..)?;
    }
    audio
}
