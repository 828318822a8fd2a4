//! Copies of packets on their way out.

use std::collections::BTreeMap;
use std::ops::Range;

use bfed::Instant;
use bfed::data::{Destination, EdgeId, Meta, Transmit, Verdict};
use bfed::native::{ChannelId, NativeError};

use super::Node;
use super::streams::Streams;
use super::udp::Datagrams;

/// Everything that takes copies.
pub(crate) struct Output {
    pub(crate) datagrams: Datagrams,
    pub(crate) streams: Streams,
    /// The frame that each native channel had no room for. One a channel, because its edge is blocked then.
    pub(crate) held: BTreeMap<ChannelId, (EdgeId, Vec<u8>)>,
    pub(crate) native_failed: u64,
    /// The last packet went to one stream, and nothing waits for it.
    pub(crate) straight: bool,
}

impl Output {
    /// A packet at `at` of `buffer`, to wherever it goes. What goes to streams is only noted:
    /// [`Output::flush`] follows while the buffer's bytes still are where they were. True if the packet
    /// was for this node itself.
    pub(crate) fn forward(
        &mut self,
        now: Instant,
        node: &mut Node,
        meta: &Meta,
        buffer: &mut [u8],
        at: Range<usize>,
    ) -> bool {
        let start = at.start;
        let frame = &mut buffer[at];
        self.straight = false;
        match node.plane().forward(now, meta, frame) {
            Verdict::Only(copy) => {
                self.straight = matches!(copy.to, Destination::Stream(_));
                self.note(now, node, &copy, frame, start);
            }
            Verdict::Forward(mut cursor) => {
                while let Some(copy) = node.plane().next_transmit(now, &mut cursor, frame) {
                    self.note(now, node, &copy, frame, start);
                }
            }
            Verdict::Taken => return true,
            Verdict::Drop(_) => {}
        }
        false
    }

    /// Sends one copy, or records it for its stream; its packet begins at `start` of the buffer.
    fn note(&mut self, now: Instant, node: &mut Node, copy: &Transmit, frame: &[u8], start: usize) {
        let bytes = &frame[copy.range.clone()];
        match copy.to {
            Destination::Stream(conn) => self.streams.note(conn, copy.edge, bytes, start),
            _ => self.send(now, node, copy, bytes),
        }
    }

    /// Sends a packet from another buffer.
    pub(crate) fn forward_alone(
        &mut self,
        now: Instant,
        node: &mut Node,
        meta: &Meta,
        frame: &mut [u8],
    ) {
        match node.plane().forward(now, meta, frame) {
            Verdict::Only(copy) => self.send(now, node, &copy, &frame[copy.range.clone()]),
            Verdict::Forward(mut cursor) => {
                while let Some(copy) = node.plane().next_transmit(now, &mut cursor, frame) {
                    self.send(now, node, &copy, &frame[copy.range.clone()]);
                }
            }
            Verdict::Taken | Verdict::Drop(_) => {}
        }
    }

    /// Sends one copy.
    pub(crate) fn send(&mut self, now: Instant, node: &mut Node, copy: &Transmit, bytes: &[u8]) {
        match copy.to {
            Destination::Datagram(to) => self.datagrams.push(to, bytes),
            Destination::Stream(conn) => {
                if self.streams.write(conn, copy.edge, bytes) {
                    node.plane().blocked(copy.edge);
                }
            }
            Destination::Native(channel) => {
                match node.native_mut().send_data(now, channel, bytes) {
                    Ok(()) => {}
                    Err(NativeError::Busy) => {
                        self.held.insert(channel, (copy.edge, bytes.to_vec()));
                        node.plane().blocked(copy.edge);
                    }
                    Err(_) => self.native_failed += 1,
                }
            }
        }
    }

    /// Writes the recorded copies to their streams; the bytes are in `buffer`.
    pub(crate) fn flush(&mut self, node: &mut Node, buffer: &[u8]) {
        while let Some(edge) = self.streams.flush_one(buffer) {
            if let Some(edge) = edge {
                node.plane().blocked(edge);
            }
        }
        self.datagrams.flush();
    }

    /// Sends the pending frame of a native channel that has room again.
    pub(crate) fn native_writable(&mut self, now: Instant, node: &mut Node, channel: ChannelId) {
        let Some((edge, frame)) = self.held.remove(&channel) else {
            return;
        };
        match node.native_mut().send_data(now, channel, &frame) {
            Err(NativeError::Busy) => {
                self.held.insert(channel, (edge, frame));
                return;
            }
            Err(_) => self.native_failed += 1,
            Ok(()) => {}
        }
        node.plane().writable(now, edge);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.streams.poll_timeout()
    }

    pub(crate) fn counters(&self) -> [(&'static str, u64); 13] {
        let (datagrams, streams) = (&self.datagrams.counts, &self.streams.counts);
        [
            ("datagrams_received", datagrams.received),
            ("datagram_bytes_received", datagrams.received_bytes),
            ("datagrams_sent", datagrams.sent),
            ("datagrams_send_failed", datagrams.send_failed),
            ("datagrams_receive_failed", datagrams.receive_failed),
            ("streams_opened", streams.opened),
            ("streams_refused", streams.refused),
            ("streams_evicted", streams.evicted),
            ("streams_malformed", streams.malformed),
            ("stream_bytes_received", streams.received_bytes),
            ("stream_bytes_sent", streams.sent_bytes),
            ("stream_bytes_spliced", streams.spliced_bytes),
            ("native_send_failed", self.native_failed),
        ]
    }
}
