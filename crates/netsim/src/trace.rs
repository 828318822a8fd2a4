//! Observation of packets: filters, taps, captures, and the digest of a run.

use std::io;

use crate::node::{LinkId, NodeId};
use crate::pcap::PcapWriter;

/// End of a link at which a packet is observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Sent on a link, whether or not it arrives.
    Sent,
    /// Arrived at the other end.
    Received,
}

/// One packet at one end of one link.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Nanoseconds since the start.
    pub time_ns: u64,
    /// Which end.
    pub which: Direction,
    /// The link.
    pub link: u32,
    /// The sending node.
    pub from: u32,
    /// Its port.
    pub from_port: u16,
    /// The receiving node.
    pub to: u32,
    /// Its port.
    pub to_port: u16,
    /// The packet.
    pub bytes: &'a [u8],
}

/// Packets to observe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Every packet once, where it is sent.
    Sent,
    /// Every packet once, where it arrives.
    Received,
    /// Packets that this node sends and receives, as `tcpdump` on it would show.
    Node(NodeId),
    /// Packets on this link, at both ends.
    Link(LinkId),
}

impl Filter {
    fn passes(self, record: &Record<'_>) -> bool {
        match self {
            Self::Sent => record.which == Direction::Sent,
            Self::Received => record.which == Direction::Received,
            Self::Node(node) => match record.which {
                Direction::Sent => record.from == node.0,
                Direction::Received => record.to == node.0,
            },
            Self::Link(link) => record.which == Direction::Sent && record.link == link.0,
        }
    }
}

type Tap = Box<dyn FnMut(&Record<'_>)>;

#[derive(Default)]
pub(crate) struct Traces {
    taps: Vec<(Filter, Tap)>,
    captures: Vec<(Filter, PcapWriter<Box<dyn io::Write>>)>,
    hash: Option<TraceHash>,
}

impl Traces {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.hash.is_none() && self.taps.is_empty() && self.captures.is_empty()
    }

    pub(crate) fn add_tap(&mut self, filter: Filter, tap: Tap) {
        self.taps.push((filter, tap));
    }

    pub(crate) fn add_capture(
        &mut self,
        filter: Filter,
        writer: Box<dyn io::Write>,
    ) -> io::Result<()> {
        self.captures.push((filter, PcapWriter::new(writer)?));
        Ok(())
    }

    pub(crate) fn finish_captures(&mut self) -> io::Result<()> {
        self.captures
            .drain(..)
            .try_for_each(|(_, writer)| writer.finish())
    }

    pub(crate) fn enable_hash(&mut self) {
        self.hash.get_or_insert_with(TraceHash::default);
    }

    pub(crate) fn hash(&self) -> Option<u64> {
        self.hash.as_ref().map(TraceHash::value)
    }

    #[cold]
    pub(crate) fn record(&mut self, record: &Record<'_>) {
        if let Some(hash) = &mut self.hash {
            hash.add(record);
        }
        for (filter, tap) in &mut self.taps {
            if filter.passes(record) {
                tap(record);
            }
        }
        for (filter, writer) in &mut self.captures {
            if filter.passes(record) {
                writer.write(record.time_ns, record.bytes);
            }
        }
    }
}

/// A running 64-bit digest of all packets, their times and links. Not secure against attackers.
#[derive(Default)]
struct TraceHash(u64);

impl TraceHash {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn add(&mut self, record: &Record<'_>) {
        self.mix(record.time_ns);
        let place = u64::from(record.link) << 33 | u64::from(record.from);
        self.mix(place << 1 | u64::from(record.which == Direction::Sent));
        self.mix(record.bytes.len() as u64);
        for chunk in record.bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn value(&self) -> u64 {
        let mut x = self.0;
        x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        x ^ (x >> 32)
    }
}
