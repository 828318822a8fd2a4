//! Readings of channels: split into packets, which are forwarded.

use bfed::data::Meta;
use bfed::{ConnId, Instant};

use super::splice::{self, Round};
use super::streams;
use super::{ROUNDS, Worker};

/// Packets of a stream that were forwarded together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Packets {
    /// Where the last one ends.
    pub(super) end: usize,
    /// Its length.
    pub(super) last: Option<usize>,
    /// One of them was an ATTACH.
    pub(super) attached: bool,
    /// What follows is not a packet.
    pub(super) malformed: bool,
}

impl Worker {
    pub(super) fn read_stream(&mut self, now: Instant, conn: ConnId) {
        for _ in 0..ROUNDS {
            match self.splice(now, conn) {
                Round::Read => {}
                Round::More => continue,
                Round::Done => return,
            }
            let read = self.output.streams.read(conn, &mut self.buffer);
            let Some(read) = read else {
                return;
            };
            let meta = Meta::Stream(conn, read.from);
            let filled = read.filled;
            let packets = self.forward_packets(now, &meta, filled);
            let (at, last) = (packets.end, packets.last);
            if packets.malformed {
                self.output.streams.malformed(conn);
            }
            if packets.attached {
                self.output.streams.attached(conn);
            }
            self.output.flush(&mut self.node, &self.buffer);
            let rest = &self.buffer[at..filled];
            self.output.streams.keep(conn, rest, filled, last);
            if let Some(len) = last.filter(|_| self.splicer.is_some()) {
                let spliced = self.output.straight && len >= splice::LEAST;
                self.output.streams.set_spliced(conn, spliced);
            }
            self.events(now);
            if !read.more || self.output.streams.is_broken(conn) {
                return;
            }
        }
    }

    /// Forwards the whole packets in the first `filled` bytes of the buffer.
    pub(super) fn forward_packets(&mut self, now: Instant, meta: &Meta, filled: usize) -> Packets {
        let mut packets = Packets::default();
        while let Some(end) = streams::packet(&self.buffer[packets.end..filled]) {
            let Ok(len) = end else {
                // Not a packet: the stream cannot be read any further.
                packets.malformed = true;
                break;
            };
            let place = packets.end..packets.end + len;
            let node = &mut self.node;
            let output = &mut self.output;
            packets.attached |= output.forward(now, node, meta, &mut self.buffer, place);
            packets.end += len;
            packets.last = Some(len);
        }
        packets
    }
}
