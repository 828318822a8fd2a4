//! Copies of packets on their way out.

use std::collections::BTreeMap;
use std::ops::Range;

use bfed::Instant;
use bfed::data::{Destination, EdgeId, Meta, Transmit, Verdict};
use bfed::native::{ChannelId, NativeError};

use super::Node;
use super::quic::{self, Quic};
use super::streams::Streams;
use super::udp::Datagrams;

/// Everything that takes copies.
pub(crate) struct Output {
    pub(crate) datagrams: Datagrams,
    pub(crate) streams: Streams,
    /// Where the gateway has a key.
    pub(crate) quic: Option<Quic>,
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
                self.straight =
                    matches!(copy.to, Destination::Stream(conn) if !quic::is_stream(conn));
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
            Destination::Stream(conn) if !quic::is_stream(conn) => {
                self.streams.note(conn, copy.edge, bytes, start);
            }
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
            Destination::Path(path) => {
                let end = node.plane().path_end(path);
                if let Some((quic, end)) = self.quic.as_mut().zip(end)
                    && quic.send(now, copy.edge, end, bytes)
                {
                    node.plane().blocked(copy.edge);
                }
            }
            Destination::Stream(conn) if quic::is_stream(conn) => {
                if let Some(quic) = &mut self.quic
                    && quic.write(conn, copy.edge, bytes)
                {
                    node.plane().blocked(copy.edge);
                }
            }
            Destination::Stream(conn) => {
                if self.streams.write(conn, copy.edge, bytes) {
                    node.plane().blocked(copy.edge);
                }
            }
            Destination::NativeInit(channel) => node.native_mut().send_init(now, channel, bytes),
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

    pub(crate) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let quic = self.quic.as_ref().and_then(|quic| quic.poll_timeout(now));
        self.streams.poll_timeout().into_iter().chain(quic).min()
    }

    pub(crate) fn counters(&self) -> [(&'static str, u64); 24] {
        let quic = self.quic.as_ref();
        let quic = quic.map(|quic| quic.counts).unwrap_or_default();
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
            ("quic_unnamed", quic.unnamed),
            ("quic_retries", quic.retries),
            ("quic_refused", quic.refused),
            ("quic_connected", quic.connected),
            ("quic_lost", quic.lost),
            ("quic_datagrams_sent", quic.datagrams_sent),
            ("quic_datagrams_received", quic.datagrams_received),
            ("quic_datagrams_dropped", quic.datagrams_dropped),
            ("quic_streams_opened", quic.streams_opened),
            ("quic_stream_bytes_sent", quic.stream_bytes_sent),
            ("quic_stream_bytes_received", quic.stream_bytes_received),
        ]
    }
}
