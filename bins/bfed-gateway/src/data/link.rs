//! A data node's end of the stream to its control node.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use bfed::Instant;
use bfed::wire::notification::Repr as Notification;
use bfed::wire::{Frames, MAX_MESSAGE_LEN};
use linux_net::poll::Watch;

use super::Node;

/// Bytes that may wait to be written: more stay with the machine, whose queue is bounded.
const WAITING: usize = 4 * MAX_MESSAGE_LEN;
/// Reads in a row.
const ROUNDS: usize = 4;

/// A stream inside this process; the task at the other end carries it on.
#[derive(Debug)]
pub(crate) struct Link {
    stream: UnixStream,
    frames: Frames,
    waiting: Vec<u8>,
    /// The stream takes no more for now.
    full: bool,
    /// The control node has sent more than the reason why it ends the stream. A standby closes the stream without a word.
    pub(crate) answered: bool,
    /// Why the control node ends the stream, once it said so.
    pub(crate) end_reason: Option<String>,
}

impl Link {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Link> {
        stream.set_nonblocking(true)?;
        Ok(Link {
            stream,
            frames: Frames::new(),
            waiting: Vec::new(),
            answered: false,
            end_reason: None,
            full: false,
        })
    }

    pub(crate) fn watch(&self) -> Watch<'_> {
        if self.full {
            Watch::both(self.stream.as_fd())
        } else {
            Watch::readable(self.stream.as_fd())
        }
    }

    /// Writes the machine's messages; `buffer` has room for the longest.
    pub(crate) fn write(&mut self, node: &mut Node, buffer: &mut [u8]) -> io::Result<()> {
        loop {
            while self.waiting.len() < WAITING
                && let Some(len) = node.poll_transmit_control(buffer)
            {
                self.waiting.extend_from_slice(&buffer[..len]);
            }
            self.full = false;
            node.set_control_blocked(false);
            if self.waiting.is_empty() {
                return Ok(());
            }
            match self.stream.write(&self.waiting) {
                Ok(written) => drop(self.waiting.drain(..written)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.full = true;
                    node.set_control_blocked(true);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Hands messages to the machine.
    pub(crate) fn read(
        &mut self,
        now: Instant,
        node: &mut Node,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        for _ in 0..ROUNDS {
            let read = match self.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let mut input = &buffer[..read];
            loop {
                match self.frames.next(&mut input) {
                    // The machine counts messages without effect.
                    Ok(Some(message)) => {
                        match Notification::parse(message) {
                            Ok(why) => {
                                self.end_reason = Some(format!("{}: {}", why.reason, why.text));
                            }
                            Err(_) => self.answered = true,
                        }
                        let _ = node.handle_packet(now, &(), message);
                    }
                    Ok(None) => break,
                    Err(error) => return Err(io::Error::other(error.to_string())),
                }
            }
        }
        Ok(())
    }
}
