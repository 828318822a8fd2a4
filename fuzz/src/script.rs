//! What a fuzzer's bytes say: a list of steps, read from the front until nothing is left.

use std::time::Duration as StdDuration;

use arbitrary::Unstructured;

/// The steps of one run. Reading past the end gives zeros, so every input means something.
pub struct Script<'a>(Unstructured<'a>);

impl<'a> Script<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Script(Unstructured::new(bytes))
    }

    /// Whether anything is left to do.
    pub fn more(&self) -> bool {
        !self.0.is_empty()
    }

    pub fn u8(&mut self) -> u8 {
        self.0.arbitrary().unwrap_or(0)
    }

    pub fn u16(&mut self) -> u16 {
        self.0.arbitrary().unwrap_or(0)
    }

    pub fn u32(&mut self) -> u32 {
        self.0.arbitrary().unwrap_or(0)
    }

    pub fn u64(&mut self) -> u64 {
        self.0.arbitrary().unwrap_or(0)
    }

    pub fn flag(&mut self) -> bool {
        self.u8() & 1 == 1
    }

    /// One of `count` things.
    pub fn pick(&mut self, count: usize) -> usize {
        usize::from(self.u8()) % count.max(1)
    }

    /// One of these.
    pub fn of<T: Copy>(&mut self, things: &[T]) -> T {
        things[self.pick(things.len())]
    }

    /// Bytes as they are: two bytes of length, then that number of bytes, or the rest.
    pub fn bytes(&mut self) -> &'a [u8] {
        let len = usize::from(self.u16()).min(self.0.len());
        self.0.bytes(len).unwrap_or(&[])
    }

    /// From 1 µs to 12 days, the short ones as likely as the long ones.
    pub fn time_us(&mut self) -> u64 {
        let byte = self.u8();
        let exponent = u64::from(byte >> 3) * 40 / 31;
        (1 << exponent) + ((u64::from(byte & 7) << exponent) >> 3)
    }

    /// As [`Script::time_us`], at most a minute.
    pub fn pause_us(&mut self) -> u64 {
        self.time_us()
            .min(StdDuration::from_secs(60).as_micros() as u64)
    }

    /// Damages a packet in one of seven ways.
    pub fn damage(&mut self, packet: &mut Vec<u8>) {
        let kind = self.pick(7);
        let at = usize::from(self.u16()) % packet.len().max(1);
        match kind {
            0 => packet.truncate(at),
            1 => {
                if let Some(byte) = packet.get_mut(at) {
                    *byte ^= 1 << (self.u8() % 8);
                }
            }
            2 => {
                if let Some(byte) = packet.get_mut(at) {
                    *byte = self.u8();
                }
            }
            3 => {
                for (byte, new) in packet[at..].iter_mut().zip(self.bytes()) {
                    *byte = *new;
                }
            }
            4 => packet.extend_from_slice(self.bytes()),
            5 => {
                let new = self
                    .of(&[0, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX])
                    .to_be_bytes();
                for (byte, new) in packet[at..].iter_mut().zip(new) {
                    *byte = new;
                }
            }
            _ => {
                let new = self.u32().to_be_bytes();
                for (byte, new) in packet[at..].iter_mut().zip(new) {
                    *byte = new;
                }
            }
        }
    }
}

/// Writes what [`Script`] reads: for seeds.
#[derive(Default)]
pub struct Lines(pub Vec<u8>);

impl Lines {
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0
            .extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        self.0.extend_from_slice(bytes);
        self
    }
}
