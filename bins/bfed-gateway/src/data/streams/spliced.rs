//! The ends of streams whose packets are spliced: see [`splice`](crate::data::splice).

use std::io::ErrorKind;
use std::net::IpAddr;

use bfed::ConnId;
use bfed::data::{EdgeId, HEADER_LEN};
use bfed::wire::data::Packet;
use linux_net::pipe::Pipe;

use super::{READ_BYTES, State, Streams};

/// The result of moving what has arrived into a pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Filled {
    /// The stream is to be read: its packets are not spliced now.
    No,
    /// Nothing has arrived, or the stream has ended.
    Nothing,
    /// Bytes are in the pipe.
    Bytes {
        /// The other end of the stream.
        from: IpAddr,
        /// There may be more.
        more: bool,
    },
    /// The kernel cannot do this.
    Unsupported,
}

impl Streams {
    /// Sets whether the packets of a stream are spliced.
    pub(crate) fn set_spliced(&mut self, conn: ConnId, spliced: bool) {
        if let Some(stream) = self.streams.get_mut(&conn) {
            stream.spliced = spliced;
        }
    }

    /// Has all streams read.
    pub(crate) fn stop_splicing(&mut self) {
        for stream in self.streams.values_mut() {
            stream.spliced = false;
        }
    }

    /// Moves one reading into an empty pipe.
    pub(crate) fn fill(&mut self, conn: ConnId, pipe: &mut Pipe) -> Filled {
        let Some(stream) = self.streams.get_mut(&conn) else {
            return Filled::Nothing;
        };
        if !stream.spliced || !stream.rest.is_empty() || stream.state != State::Open {
            return Filled::No;
        }
        if stream.paused {
            return Filled::Nothing;
        }
        let most = READ_BYTES - READ_BYTES % stream.step;
        match pipe.fill(&stream.socket, most) {
            Ok(0) => {
                self.broken.push(conn);
                Filled::Nothing
            }
            Ok(filled) => {
                self.counts.received_bytes += filled as u64;
                Filled::Bytes {
                    from: stream.from,
                    more: filled == most,
                }
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => Filled::Nothing,
                ErrorKind::InvalidInput | ErrorKind::Unsupported => Filled::Unsupported,
                _ => {
                    self.broken.push(conn);
                    Filled::Nothing
                }
            },
        }
    }

    /// Passes everything in the pipe to a stream; what the kernel does not take is kept. Returns whether the edge is
    /// blocked now. The pipe is empty afterwards.
    pub(crate) fn drain(&mut self, conn: ConnId, edge: EdgeId, pipe: &mut Pipe) -> bool {
        let Some(stream) = self.streams.get_mut(&conn) else {
            discard(pipe);
            return false;
        };
        while !pipe.is_empty() && stream.waiting.is_empty() {
            let len = pipe.len();
            match pipe.drain(&stream.socket, len) {
                Ok(0) => break,
                Ok(sent) => {
                    self.counts.sent_bytes += sent as u64;
                    self.counts.spliced_bytes += sent as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.broken.push(conn);
                    discard(pipe);
                    return false;
                }
            }
        }
        if pipe.is_empty() {
            return false;
        }
        stream.waiting.extend(read_all(pipe));
        stream.edge = Some(edge);
        self.watch(conn);
        true
    }

    /// Returns how many bytes wait for all streams.
    #[cfg(test)]
    pub(crate) fn waiting_bytes(&self) -> usize {
        let streams = self.streams.values();
        streams.map(|stream| stream.waiting.len()).sum()
    }

    /// Returns whether a stream has ended, and is not removed yet.
    pub(crate) fn is_broken(&self, conn: ConnId) -> bool {
        self.broken.contains(&conn)
    }

    /// Closes a stream in which bytes are missing.
    pub(crate) fn torn(&mut self, conn: ConnId) {
        self.broken.push(conn);
    }
}

/// Returns how many bytes a reading of a spliced stream takes after the start of a packet: those that complete it, or
/// its header.
pub(super) fn missing(rest: &[u8]) -> usize {
    let len = Packet::<&[u8]>::check_header(rest).unwrap_or(HEADER_LEN);
    len.saturating_sub(rest.len()).max(1)
}

/// Copies everything out of a pipe.
pub(crate) fn read_all(pipe: &mut Pipe) -> Vec<u8> {
    let mut bytes = vec![0; pipe.len()];
    let len = pipe.read(&mut bytes).unwrap_or(0);
    bytes.truncate(len);
    bytes
}

/// Discards the bytes in a pipe.
pub(crate) fn discard(pipe: &mut Pipe) {
    read_all(pipe);
}
