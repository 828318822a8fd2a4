//! MPEG-TS (ISO/IEC 13818-1): a unit is a picture of the main stream, from the packet in which it begins to the packet in
//! which the next one begins, with all that lies between.
//!
//! ```text
//! packet: | 0x47 | flags, identifier: 2 | flags, counter | adaptation field: 1 + n, if any | payload |
//! ```

use proto_core::time::Duration;

use crate::nal::{Codec, Search};
use crate::psi::Tables;
use crate::unit::{MAX_UNIT, Output, Prefix, Unit, believed};

/// Length of a packet.
pub(crate) const PACKET: usize = 188;
/// First byte of a packet.
pub(crate) const SYNC: u8 = 0x47;
/// Ticks of presentation times in a second, and their bits.
const HZ: u64 = 90_000;
const TIME_BITS: u32 = 33;

/// The picture that is being read.
#[derive(Debug)]
struct Frame {
    offset: u64,
    /// Ticks, unwrapped.
    time: Option<u64>,
    random_access: bool,
    search: Search,
}

#[derive(Debug)]
pub(crate) struct Ts {
    packet: [u8; PACKET],
    filled: usize,
    /// Packets follow each other without a gap.
    in_sync: bool,
    /// Offset of the next byte.
    at: u64,
    tables: Tables,
    frame: Option<Frame>,
    /// The last time, unwrapped.
    clock: Option<u64>,
}

impl Ts {
    pub(crate) fn new() -> Self {
        Ts {
            packet: [0; PACKET],
            filled: 0,
            in_sync: false,
            at: 0,
            tables: Tables::default(),
            frame: None,
            clock: None,
        }
    }

    pub(crate) fn open_offset(&self) -> u64 {
        let next = self.at - self.filled as u64;
        self.frame.as_ref().map_or(next, |frame| frame.offset)
    }

    pub(crate) fn is_in_start(&self) -> bool {
        let frame = self.frame.as_ref();
        frame.is_some_and(|frame| frame.random_access || frame.search.is_key())
    }

    pub(crate) fn push(&mut self, at: u64, mut bytes: &[u8], out: &mut Output) {
        self.at = at;
        while let Some(&first) = bytes.first() {
            // The byte after a packet shows whether it was one.
            if self.filled == PACKET {
                self.filled = 0;
                if first == SYNC {
                    self.in_sync = true;
                    self.complete(out);
                }
            }
            if self.filled == 0 && first != SYNC {
                self.lose(bytes.iter().position(|&byte| byte == SYNC), &mut bytes);
                continue;
            }
            let (now, rest) = bytes.split_at(bytes.len().min(PACKET - self.filled));
            self.packet[self.filled..self.filled + now.len()].copy_from_slice(now);
            self.filled += now.len();
            self.at += now.len() as u64;
            bytes = rest;
            if self.filled == PACKET && self.in_sync {
                self.filled = 0;
                self.complete(out);
            }
        }
    }

    /// Skips bytes up to `next`, or all.
    fn lose(&mut self, next: Option<usize>, bytes: &mut &[u8]) {
        self.in_sync = false;
        self.frame = None;
        let skip = next.unwrap_or(bytes.len());
        self.at += skip as u64;
        *bytes = &bytes[skip..];
    }

    /// Handles the packet that ends at the current offset.
    fn complete(&mut self, out: &mut Output) {
        let packet = self.packet;
        let offset = self.at - PACKET as u64;
        let [_, high, low, flags, ..] = packet;
        let pid = u16::from_be_bytes([high & 0x1f, low]);
        let (is_damaged, is_scrambled) = (high & 0x80 != 0, flags & 0xc0 != 0);
        let starts = high & 0x40 != 0;
        let Some((payload, random_access)) = payload(&packet) else {
            return;
        };
        if is_damaged || is_scrambled {
            return;
        }
        if self.tables.takes(pid) {
            let before = self.tables.main();
            if let Some(init) = self.tables.push(pid, &packet, payload, starts) {
                if before != self.tables.main() {
                    self.frame = None;
                }
                out.set_init(init, alloc::vec::Vec::new());
            }
            return;
        }
        let Some((main, codec)) = self.tables.main().filter(|(main, _)| *main == pid) else {
            return;
        };
        debug_assert_eq!(main, pid);
        let payload = match starts {
            true => self.begin(offset, codec, payload, random_access, out),
            false => payload,
        };
        if let Some(frame) = &mut self.frame {
            frame.search.push(codec, payload);
            if offset - frame.offset > MAX_UNIT {
                self.frame = None;
            }
        }
    }

    /// Ends the picture before, and begins another. Returns the payload after the head.
    fn begin<'p>(
        &mut self,
        offset: u64,
        codec: Codec,
        payload: &'p [u8],
        random_access: bool,
        out: &mut Output,
    ) -> &'p [u8] {
        let (time, payload) = match head(payload) {
            Some((raw, payload)) => (raw.map(|raw| self.unwrap(raw)), payload),
            None => (None, payload),
        };
        let frame = Frame {
            offset,
            time,
            random_access: random_access || codec == Codec::Audio,
            search: Search::new(),
        };
        if let Some(last) = self.frame.replace(frame) {
            let passed = time
                .zip(last.time)
                .and_then(|(now, then)| now.checked_sub(then));
            out.unit(Unit {
                offset: last.offset,
                len: offset - last.offset,
                time: last.time.map(duration),
                duration: passed.map(duration).and_then(believed),
                is_start: last.random_access || last.search.is_key(),
                prefix: Prefix::default(),
            });
        }
        payload
    }

    /// Continues the time beyond its 33 bits.
    fn unwrap(&mut self, raw: u64) -> u64 {
        let wrap = 1 << TIME_BITS;
        let time = match self.clock {
            None => raw,
            Some(last) => {
                let forward = raw.wrapping_sub(last) % wrap;
                match forward < wrap / 2 {
                    true => last.saturating_add(forward),
                    false => last.checked_sub(wrap - forward).unwrap_or(raw),
                }
            }
        };
        self.clock = Some(time);
        time
    }
}

fn duration(ticks: u64) -> Duration {
    crate::unit::ticks(ticks, HZ as u32).unwrap_or_default()
}

/// Returns a packet's payload, and its random access indicator.
fn payload(packet: &[u8; PACKET]) -> Option<(&[u8], bool)> {
    let control = packet[3] >> 4 & 3;
    let (skip, random_access) = match control {
        1 => (4, false),
        3 => {
            let len = usize::from(packet[4]);
            (5 + len, len > 0 && packet[5] & 0x40 != 0)
        }
        _ => return None,
    };
    Some((packet.get(skip..)?, random_access))
}

/// Reads the head of a PES packet (§2.4.3.6): the decoding time if it is there, else the presentation time.
fn head(payload: &[u8]) -> Option<(Option<u64>, &[u8])> {
    let [0, 0, 1, _, _, _, mark, flags, len, fields @ ..] = payload else {
        return None;
    };
    if mark & 0xc0 != 0x80 {
        return None;
    }
    let at = match flags >> 6 {
        2 => Some(0),
        3 => Some(5),
        _ => None,
    };
    let time = at.and_then(|at| fields.get(at..at + 5)).map(|field| {
        let part = |at: usize, mask: u8, shift: u32| u64::from(field[at] & mask) << shift;
        part(0, 0x0e, 29)
            | part(1, 0xff, 22)
            | part(2, 0xfe, 14)
            | part(3, 0xff, 7)
            | part(4, 0xfe, 0) >> 1
    });
    Some((time, fields.get(usize::from(*len)..)?))
}
