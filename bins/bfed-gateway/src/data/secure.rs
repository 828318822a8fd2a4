//! The worker's part of QUIC: it forwards what arrives, and keeps the machine informed.

use std::io;
use std::net::SocketAddr;

use bfed::data::{EdgeId, Meta};
use bfed::{ConnId, Instant};

use super::emit::Output;
use super::quic::{self, Event};
use super::{ROUNDS, Worker};

impl Output {
    /// Closes a channel for the machine.
    pub(super) fn close(&mut self, conn: ConnId) {
        match &mut self.quic {
            Some(quic) if quic::is_stream(conn) => quic.close(conn),
            _ => self.streams.close(conn),
        }
    }

    /// Pauses or resumes reading of a channel.
    pub(super) fn set_paused(&mut self, conn: ConnId, paused: bool) {
        match &mut self.quic {
            Some(quic) if quic::is_stream(conn) => quic.set_paused(conn, paused),
            _ => self.streams.set_paused(conn, paused),
        }
    }

    /// Returns the number of TCP channels and streams of QUIC.
    pub(super) fn stream_count(&self) -> usize {
        let quic = self.quic.as_ref().map_or(0, quic::Quic::len);
        self.streams.len() + quic
    }
}

impl Worker {
    /// Opens the channel that an edge needs: over QUIC where the edge has a path.
    pub(super) fn dial(&mut self, now: Instant, edge: EdgeId, to: SocketAddr) -> io::Result<()> {
        let plane = self.node.plane();
        let path = plane.path_of(edge);
        let Some(end) = path.and_then(|path| plane.path_end(path)) else {
            return self.output.streams.dial(now, edge, to);
        };
        match &mut self.output.quic {
            Some(quic) => quic.dial(now, edge, end),
            None => self.node.dial_failed(now, edge, to),
        }
        Ok(())
    }

    /// Handles QUIC's timers and events, and sends its packets.
    pub(super) fn quic(&mut self, now: Instant) {
        let Some(quic) = &mut self.output.quic else {
            return;
        };
        quic.handle_timeout(now);
        for _ in 0..ROUNDS {
            if let Some(quic) = &mut self.output.quic {
                quic.drive(now, &mut self.node, &mut self.output.datagrams);
            }
            if !self.forward_quic(now) {
                break;
            }
            self.events(now);
            self.transmit(now);
        }
        self.output.datagrams.flush();
    }

    /// Forwards what has arrived. Returns whether there was anything.
    fn forward_quic(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some((path, packet)) = self.output.quic.as_mut().and_then(|q| q.poll_received()) {
            any = true;
            let Some(frame) = self.buffer.get_mut(..packet.len()) else {
                continue;
            };
            frame.copy_from_slice(&packet);
            self.output
                .forward_alone(now, &mut self.node, &Meta::Path(path), frame);
        }
        while let Some(event) = self.output.quic.as_mut().and_then(|q| q.poll_event()) {
            any = true;
            self.quic_event(now, event);
        }
        any
    }

    fn quic_event(&mut self, now: Instant, event: Event) {
        match event {
            Event::Dialled(edge, conn) => {
                if !self.node.dialled(edge, conn) {
                    self.output.close(conn);
                }
            }
            Event::DialFailed(edge, to) => self.node.dial_failed(now, edge, to),
            Event::Ended(conn) => {
                self.output.close(conn);
                self.node.stream_ended(now, conn);
            }
            Event::Readable(conn) => self.read_quic(now, conn),
            Event::Drained(edge) => self.node.plane().writable(now, edge),
            Event::Took(edge) => self.node.plane().takes(now, edge),
            Event::Rtt((address, key), rtt) => {
                let plane = self.node.plane();
                if let Some(path) = plane.path(address, key) {
                    plane.set_rtt(path, rtt);
                }
            }
            Event::MaxDatagram((address, key), len) => {
                let plane = self.node.plane();
                if let Some(path) = plane.path(address, key) {
                    plane.set_max_datagram(path, len);
                }
            }
        }
    }

    fn read_quic(&mut self, now: Instant, conn: ConnId) {
        for _ in 0..ROUNDS {
            let Some(quic) = &mut self.output.quic else {
                return;
            };
            let Some((path, read)) = quic.read(conn, &mut self.buffer) else {
                return;
            };
            let filled = read.filled;
            let packets = self.forward_packets(now, &Meta::PathStream(conn, path), filled);
            self.output.flush(&mut self.node, &self.buffer);
            if packets.malformed {
                self.output.streams.counts.malformed += 1;
                self.output.close(conn);
                self.node.stream_ended(now, conn);
                return;
            }
            if let Some(quic) = &mut self.output.quic {
                quic.keep(conn, &self.buffer[packets.end..filled]);
            }
            self.events(now);
            if !read.more {
                return;
            }
        }
        if let Some(quic) = &mut self.output.quic {
            quic.read_again(conn);
        }
    }
}
