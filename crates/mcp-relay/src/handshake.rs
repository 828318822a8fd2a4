//! Reads within the time of a handshake.

use std::io::{self, Read};
use std::net::TcpStream;
use std::time::Instant;

use crate::{HANDSHAKE, WRITE};

/// A connection on which the handshake of a link runs.
pub(crate) struct Handshake<'a> {
    stream: &'a mut TcpStream,
    deadline: Instant,
}

impl<'a> Handshake<'a> {
    /// Sets the options of the connection; the time for the handshake starts.
    pub(crate) fn begin(stream: &'a mut TcpStream) -> io::Result<Handshake<'a>> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(WRITE))?;
        let deadline = Instant::now() + HANDSHAKE;
        Ok(Handshake { stream, deadline })
    }

    /// Writes; what a handshake sends fits the buffer of the socket.
    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        io::Write::write_all(self.stream, bytes)
    }

    /// Fills `out` before the deadline, however the bytes are spread.
    ///
    /// # Errors
    /// `TimedOut`, or the connection ended or broke.
    pub(crate) fn read_exact(&mut self, out: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < out.len() {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            match self.stream.read(&mut out[filled..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Ends the handshake: reads wait without a limit from now on.
    pub(crate) fn end(self) -> io::Result<()> {
        self.stream.set_read_timeout(None)
    }
}
