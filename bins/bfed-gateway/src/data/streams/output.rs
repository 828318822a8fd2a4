//! Copies to streams: recorded, then written.

use std::io::{self, ErrorKind, IoSlice, Write};
use std::net::TcpStream;

use bfed::ConnId;
use bfed::data::{EdgeId, HEADER_LEN};

use super::Streams;

/// Pieces of one `writev`: the kernel's bound.
const PIECES: usize = 1024;

impl Streams {
    /// Records a copy for [`Streams::flush_one`]: its header is overwritten for the next copy, its payload stays in
    /// the buffer, whose packet begins at `start`.
    pub(crate) fn note(&mut self, conn: ConnId, edge: EdgeId, packet: &[u8], start: usize) {
        let Some(stream) = self.streams.get_mut(&conn) else {
            return;
        };
        let Some((header, payload)) = packet.split_first_chunk::<HEADER_LEN>() else {
            return;
        };
        if stream.noted.is_empty() {
            self.noted.push(conn);
            stream.noted = self.spare.pop().unwrap_or_default();
        }
        stream.edge = Some(edge);
        let at = start + HEADER_LEN;
        stream.noted.push((*header, at..at + payload.len()));
    }

    /// Writes the recorded copies of one stream. Returns `None` when no stream is left, and the edge if it is blocked
    /// now.
    pub(crate) fn flush_one(&mut self, buffer: &[u8]) -> Option<Option<EdgeId>> {
        let conn = self.noted.pop()?;
        let Some(stream) = self.streams.get_mut(&conn) else {
            return Some(None);
        };
        let mut noted = std::mem::take(&mut stream.noted);
        let mut rest = &noted[..];
        let mut blocked = !stream.waiting.is_empty();
        while !rest.is_empty() && !blocked {
            let some = &rest[..rest.len().min(PIECES / 2)];
            let mut slices = Vec::with_capacity(2 * some.len());
            slices.extend(some.iter().flat_map(|(header, payload)| {
                [IoSlice::new(header), IoSlice::new(&buffer[payload.clone()])]
            }));
            let whole: usize = slices.iter().map(|slice| slice.len()).sum();
            let Ok(written) = write(&mut stream.socket, &slices) else {
                self.broken.push(conn);
                return Some(None);
            };
            self.counts.sent_bytes += written as u64;
            blocked = written < whole;
            let mut left = &mut slices[..];
            IoSlice::advance_slices(&mut left, written);
            for slice in left {
                stream.waiting.extend(&slice[..]);
            }
            rest = &rest[some.len()..];
        }
        for (header, payload) in rest {
            stream.waiting.extend(header);
            stream.waiting.extend(&buffer[payload.clone()]);
        }
        noted.clear();
        self.spare.push(noted);
        if !blocked {
            stream.edge = None;
            return Some(None);
        }
        let edge = stream.edge;
        self.watch(conn);
        Some(edge)
    }

    /// Writes one packet; returns whether the edge is blocked now.
    pub(crate) fn write(&mut self, conn: ConnId, edge: EdgeId, packet: &[u8]) -> bool {
        let Some(stream) = self.streams.get_mut(&conn) else {
            return false;
        };
        let mut written = 0;
        if stream.waiting.is_empty() {
            match write(&mut stream.socket, &[IoSlice::new(packet)]) {
                Ok(bytes) => written = bytes,
                Err(_) => {
                    self.broken.push(conn);
                    return false;
                }
            }
        }
        self.counts.sent_bytes += written as u64;
        if written == packet.len() {
            return false;
        }
        stream.waiting.extend(&packet[written..]);
        stream.edge = Some(edge);
        self.watch(conn);
        true
    }
}

/// Writes as much as the kernel takes.
pub(super) fn write(socket: &mut TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    loop {
        match socket.write_vectored(slices) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
