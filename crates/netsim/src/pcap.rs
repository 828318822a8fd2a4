//! Captures: the classic pcap format with nanoseconds and raw IP packets.

use std::io::{self, Write};

/// Magic number of a file with nanosecond timestamps.
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
/// `LINKTYPE_RAW`: packets begin with their IPv4 or IPv6 header.
const LINKTYPE_RAW: u32 = 101;
const SNAP_LEN: u32 = 262_144;

/// Writes packets; the first error is kept and reported at the end.
pub(crate) struct PcapWriter<W: Write> {
    writer: W,
    error: Option<io::Error>,
}

impl<W: Write> PcapWriter<W> {
    pub(crate) fn new(mut writer: W) -> io::Result<Self> {
        let mut header = [0; 24];
        header[0..4].copy_from_slice(&MAGIC_NANOSECONDS.to_be_bytes());
        header[4..6].copy_from_slice(&2u16.to_be_bytes()); // version 2.4
        header[6..8].copy_from_slice(&4u16.to_be_bytes());
        header[16..20].copy_from_slice(&SNAP_LEN.to_be_bytes());
        header[20..24].copy_from_slice(&LINKTYPE_RAW.to_be_bytes());
        writer.write_all(&header)?;
        Ok(Self {
            writer,
            error: None,
        })
    }

    pub(crate) fn write(&mut self, time_ns: u64, packet: &[u8]) {
        if self.error.is_none() {
            self.error = self.try_write(time_ns, packet).err();
        }
    }

    fn try_write(&mut self, time_ns: u64, packet: &[u8]) -> io::Result<()> {
        let kept = packet.len().min(SNAP_LEN as usize);
        let mut header = [0; 16];
        header[0..4].copy_from_slice(&((time_ns / 1_000_000_000) as u32).to_be_bytes());
        header[4..8].copy_from_slice(&((time_ns % 1_000_000_000) as u32).to_be_bytes());
        header[8..12].copy_from_slice(&(kept as u32).to_be_bytes());
        header[12..16].copy_from_slice(&(packet.len() as u32).to_be_bytes());
        self.writer.write_all(&header)?;
        self.writer.write_all(&packet[..kept])
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        match self.error {
            Some(error) => Err(error),
            None => self.writer.flush(),
        }
    }
}
