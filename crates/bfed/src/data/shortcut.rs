//! Shortcuts: the destination of most packets, in the cache line of their lookup.
//!
//! Most flows have one source and one receiver, over TCP or the native network, and nothing blocks them. The first
//! packet of such a flow leaves a shortcut in the slot of its lookup, and the next packets touch neither the flow
//! nor its edges. A shortcut is open only while all of these conditions hold:
//!
//! | condition | a change closes the shortcut in |
//! | --- | --- |
//! | the flow has one source and one output edge | `add_edge`, `remove_edge` |
//! | both edges have their channels | `set_stream`, `unset_stream` |
//! | the output edge is not blocked, so that nothing waits for it either | `blocked` |
//! | no rate limits it: it is neither UDP nor QUIC, and its link has no limit | `set_bound` |
//! | its frames have no class, so that no deadline has to be compared | (a flow whose peer begins to send classes keeps it until another change) |
//!
//! After that, the next packet takes the slow path, and opens the shortcut again if the conditions hold. A shortcut
//! counts its packets; the counts move to the flow when it closes, and before they overflow.

use super::edge::Edge;
use super::flow::FlowCounts;
use super::table::{Entry, Table};
use super::{Destination, EdgeId, HEADER_LEN, Plane, Transmit};
use crate::native::ChannelId;
use crate::types::{ConnId, FlowLabel, PeerId};
use crate::wire::data::{Kind, MAX_PAYLOAD_LEN, Repr};

/// Byte count at which a shortcut closes, to move its counts to the flow.
const FULL: u32 = u32::MAX - (HEADER_LEN + MAX_PAYLOAD_LEN) as u32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Carrier {
    /// There is no shortcut.
    None,
    Stream,
    Native,
}

/// Destination of packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// Number of the TCP or native channel.
    channel: u64,
    out: EdgeId,
    /// Label of packets; `None` on native channels.
    label: Option<FlowLabel>,
    carrier: Carrier,
}

impl Way {
    pub(super) const NONE: Way = Way {
        channel: 0,
        out: EdgeId {
            index: 0,
            generation: 0,
        },
        label: None,
        carrier: Carrier::None,
    };

    /// Returns the destination of an edge without a rate.
    fn new(out: EdgeId, edge: &Edge) -> Option<Way> {
        if edge.rest.path.is_some() {
            return None;
        }
        let (carrier, channel) = match edge.to? {
            Destination::Stream(conn) => (Carrier::Stream, conn.0),
            Destination::Native(channel) => (Carrier::Native, channel.0),
            Destination::Datagram(_) | Destination::Path(_) | Destination::NativeInit(_) => {
                return None;
            }
        };
        Some(Way {
            channel,
            out,
            label: edge.label_out,
            carrier,
        })
    }

    #[inline]
    pub(super) fn is_some(&self) -> bool {
        self.carrier != Carrier::None
    }

    /// Returns the packet in `frame` for this destination, with its header written.
    #[inline(always)]
    pub(super) fn copy(&self, frame: &mut [u8]) -> Transmit {
        let end = frame.len();
        self.copy_header(frame, end)
    }

    /// As [`Way::copy`], of a packet of `end` bytes that begins with `frame`.
    #[inline(always)]
    pub(super) fn copy_header(&self, frame: &mut [u8], end: usize) -> Transmit {
        let mut start = HEADER_LEN;
        if let Some(label) = self.label {
            let payload_len = end - HEADER_LEN;
            let header = Repr::new(Kind::Data, label);
            Repr {
                payload_len,
                ..header
            }
            .emit(frame);
            start = 0;
        }
        let to = match self.carrier {
            Carrier::Native => Destination::Native(ChannelId(self.channel)),
            _ => Destination::Stream(ConnId(self.channel)),
        };
        Transmit {
            edge: self.out,
            to,
            range: start..end,
        }
    }
}

/// A destination, and the counts of its packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shortcut {
    way: Way,
    packets: u32,
    /// Includes [`HEADER_LEN`] for each packet, so that there are never more packets than bytes.
    bytes: u32,
}

const _: () = assert!(size_of::<Shortcut>() == 32);

impl Shortcut {
    pub(super) const CLOSED: Shortcut = Shortcut {
        way: Way::NONE,
        packets: 0,
        bytes: 0,
    };

    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.way.is_some()
    }

    /// Returns whether packets go to a TCP channel.
    #[inline]
    pub(super) fn is_to_stream(&self) -> bool {
        self.way.carrier == Carrier::Stream
    }

    /// Counts a packet of a length that includes its header, and returns its destination.
    #[inline(always)]
    pub(super) fn enter(&mut self, len: usize) -> Option<&Way> {
        if !self.way.is_some() || self.bytes > FULL {
            return None;
        }
        self.packets += 1;
        self.bytes += len as u32;
        Some(&self.way)
    }

    fn counts(&self) -> FlowCounts {
        let packets = u64::from(self.packets);
        FlowCounts {
            packets,
            bytes: u64::from(self.bytes) - packets * HEADER_LEN as u64,
            copies: packets,
            dropped: 0,
        }
    }
}

impl Plane {
    /// Opens a shortcut after a packet of this slot was sent on its only output edge, which has no rate.
    #[cold]
    pub(super) fn open_shortcut(&mut self, place: u32, from: Entry, out: EdgeId) {
        let way = self.edge(out).and_then(|edge| Way::new(out, edge));
        let Some((way, shortcut)) = way.zip(self.table.shortcut_at(place, from)) else {
            return;
        };
        let before = core::mem::replace(shortcut, Shortcut::CLOSED);
        shortcut.way = way;
        if let Some(flow) = self.flow_mut(from.flow) {
            flow.add_counts(&before.counts());
        }
    }

    /// Closes the shortcut of a flow.
    pub(super) fn close_shortcut(&mut self, flow: u32) {
        let up = self.flow_mut(flow).and_then(|flow| flow.up);
        let Some((up, edge)) = up.and_then(|up| Some((up, self.edge(up)?))) else {
            return;
        };
        let Some(key) = edge.key() else {
            return;
        };
        let from = Entry::new(up, edge);
        let Some(shortcut) = self.table.shortcut_mut(&key, from) else {
            return;
        };
        let before = core::mem::replace(shortcut, Shortcut::CLOSED);
        if let Some(flow) = self.flow_mut(flow) {
            flow.add_counts(&before.counts());
        }
    }

    /// Closes the shortcuts over the link to a peer that gets a rate limit; 0 is none.
    pub(super) fn close_shortcuts_over(&mut self, peer: PeerId, rate_bps: u64) {
        if rate_bps > 0 && self.links.is_unbounded(peer) {
            for flow in 0..self.flows.end() {
                self.close_shortcut(flow);
            }
        }
    }
}

/// Returns the counts of the open shortcut of an edge.
pub(super) fn counts(table: &Table, id: EdgeId, edge: &Edge) -> FlowCounts {
    let shortcut = edge
        .key()
        .and_then(|key| table.shortcut(&key, Entry::new(id, edge)));
    shortcut.map_or_else(FlowCounts::default, Shortcut::counts)
}

#[cfg(test)]
mod tests;
