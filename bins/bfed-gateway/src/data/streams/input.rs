//! Readings of streams.

use std::io::{ErrorKind, Read};

use bfed::ConnId;
use bfed::data::HEADER_LEN;

use super::{READ_BYTES, Reading, State, Streams, spliced};

impl Streams {
    /// Reads after the rest of the last packet. Returns `None` if nothing was read or the stream has ended.
    pub(crate) fn read(&mut self, conn: ConnId, buffer: &mut [u8]) -> Option<Reading> {
        let stream = self.streams.get_mut(&conn)?;
        if stream.paused || matches!(stream.state, State::Dialling { .. }) {
            return None;
        }
        let kept = stream.rest.len();
        // The rest is less than a packet, and the buffer has room for two of any length.
        let room = match stream.spliced {
            true => kept + spliced::missing(&stream.rest),
            false => READ_BYTES - READ_BYTES % stream.step,
        };
        let buffer = &mut buffer[..room];
        buffer[..kept].copy_from_slice(&stream.rest);
        match stream.socket.read(&mut buffer[kept..]) {
            Ok(0) => {
                self.broken.push(conn);
                None
            }
            Ok(read) => {
                stream.rest.clear();
                self.counts.received_bytes += read as u64;
                Some(Reading {
                    filled: kept + read,
                    from: stream.from,
                    more: kept + read == buffer.len(),
                })
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                None
            }
            Err(_) => {
                self.broken.push(conn);
                None
            }
        }
    }

    /// Keeps the start of a packet for the next reading; `step` is the length of the last whole packet. Closes an
    /// unproved connection that sent anything but an ATTACH.
    pub(crate) fn keep(&mut self, conn: ConnId, rest: &[u8], filled: usize, last: Option<usize>) {
        let Some(stream) = self.streams.get_mut(&conn) else {
            return;
        };
        let unproved = matches!(stream.state, State::Unproved { .. });
        if unproved && filled >= HEADER_LEN {
            self.malformed(conn);
        } else {
            stream.rest = rest.to_vec();
            stream.step = last.unwrap_or(stream.step);
        }
    }

    /// Counts malformed data.
    pub(crate) fn malformed(&mut self, conn: ConnId) {
        self.counts.malformed += 1;
        self.broken.push(conn);
    }
}
