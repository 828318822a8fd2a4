//! Packets that move from one TCP channel to another without a copy.
//!
//! Where a session has one receiver, over TCP, the payloads of its packets are moved through pipes in the kernel, and
//! only the headers are read and written:
//!
//! ```text
//!   sender's stream ==> input --(header: read)
//!                         |                       heading (the receiver's header) --tee--+
//!                         +------ payload, splice ---------------------------------------+--> output ==> receiver's stream
//! ```
//!
//! The plane forwards each packet by its header ([`Plane::forward_header`](bfed::data::Plane::forward_header)), so that
//! counters, limits and labels are those of packets that are read. All other packets are read:
//!
//! | packet | why |
//! | --- | --- |
//! | of a session with several receivers, or to UDP or the native network | the plane refuses to forward it by its header |
//! | for a receiver that takes no more | as above: it is queued, and the sender is paused |
//! | incomplete | its rest is awaited first |
//! | shorter than [`LEAST`] | three system calls cost more than its copies |
//!
//! The pipes are shared by all streams of a data node, and empty between two readings. What a receiver's socket does not
//! take is copied to memory and waits there, as without splicing: at most one reading.

use std::io::{self, ErrorKind};

use bfed::data::{Destination, EdgeId, HEADER_LEN, Meta};
use bfed::wire::data::Packet;
use bfed::{ConnId, Instant};
use linux_net::pipe::Pipe;

use super::streams::{Filled, discard, read_all};
use super::{Node, Output, Worker};

/// The shortest packets that are spliced, in bytes.
pub(super) const LEAST: usize = 12 << 10;
/// Sizes of the pipes in bytes: for one reading, and for one with a piece more for each header.
const INPUT_BYTES: usize = 256 << 10;
const OUTPUT_BYTES: usize = 512 << 10;
const HEADING_BYTES: usize = 4096;

/// The pipes of a data node.
#[derive(Debug)]
pub(super) struct Splicer {
    input: Pipe,
    output: Pipe,
    heading: Pipe,
    /// The header in `heading`.
    header: Option<[u8; HEADER_LEN]>,
    /// The stream and edge that `output` is for.
    to: Option<(ConnId, EdgeId)>,
}

/// The result of one round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Round {
    /// The stream is to be read.
    Read,
    /// There may be more.
    More,
    /// Nothing more has arrived.
    Done,
}

impl Splicer {
    /// Opens the pipes; logs why this is not possible.
    pub(super) fn open() -> Option<Splicer> {
        let open = || -> io::Result<Splicer> {
            Ok(Splicer {
                input: Pipe::new(INPUT_BYTES)?,
                output: Pipe::new(OUTPUT_BYTES)?,
                heading: Pipe::new(HEADING_BYTES)?,
                header: None,
                to: None,
            })
        };
        open().inspect_err(|error| unavailable(error)).ok()
    }

    /// Appends a packet with this header and the next payload of the input to the output.
    fn append(
        &mut self,
        output: &mut Output,
        node: &mut Node,
        header: [u8; HEADER_LEN],
        payload_len: usize,
    ) -> io::Result<()> {
        if self.header != Some(header) {
            self.header = None;
            discard(&mut self.heading);
            self.heading.write(&header)?;
            self.header = Some(header);
        }
        while let Err(error) = self.heading.duplicate(&mut self.output, HEADER_LEN) {
            self.make_room(output, node, error)?;
        }
        let mut left = payload_len;
        while left > 0 {
            match self.input.transfer(&mut self.output, left) {
                Ok(moved) => left -= moved,
                Err(error) => self.make_room(output, node, error)?,
            }
        }
        Ok(())
    }

    /// Passes the output on if it is full.
    fn make_room(
        &mut self,
        output: &mut Output,
        node: &mut Node,
        error: io::Error,
    ) -> io::Result<()> {
        if error.kind() != ErrorKind::WouldBlock || self.output.is_empty() {
            return Err(error);
        }
        self.flush(output, node);
        Ok(())
    }

    /// Passes the output on.
    fn flush(&mut self, output: &mut Output, node: &mut Node) {
        if let Some((conn, edge)) = self.to
            && output.streams.drain(conn, edge, &mut self.output)
        {
            node.plane().blocked(edge);
        }
    }

    fn clear(&mut self) {
        for pipe in [&mut self.input, &mut self.output] {
            discard(pipe);
        }
        self.to = None;
    }
}

/// Logs that packets are copied.
fn unavailable(error: &dyn std::fmt::Display) {
    tracing::warn!(
        event = "splice_unavailable",
        %error,
        "cannot splice TCP channels; packets are copied"
    );
}

impl Worker {
    /// Forwards one reading of a stream through the pipes.
    pub(super) fn splice(&mut self, now: Instant, conn: ConnId) -> Round {
        let Some(mut splicer) = self.splicer.take() else {
            return Round::Read;
        };
        let round = match self.output.streams.fill(conn, &mut splicer.input) {
            Filled::No => Round::Read,
            Filled::Nothing => Round::Done,
            Filled::Bytes { from, more } => {
                let meta = Meta::Stream(conn, from);
                if let Err(error) = self.forward_input(now, conn, &meta, &mut splicer) {
                    tracing::debug!(%error, "a pipe failed");
                    let receiver = splicer.to.map(|(to, _)| to);
                    for torn in [Some(conn), receiver].into_iter().flatten() {
                        self.output.streams.torn(torn);
                    }
                    splicer.clear();
                }
                self.events(now);
                match more && !self.output.streams.is_broken(conn) {
                    true => Round::More,
                    false => Round::Done,
                }
            }
            Filled::Unsupported => {
                unavailable(&"the kernel does not splice from TCP");
                self.output.streams.stop_splicing();
                return Round::Read;
            }
        };
        self.splicer = Some(splicer);
        round
    }

    /// Forwards the packets in the input.
    fn forward_input(
        &mut self,
        now: Instant,
        conn: ConnId,
        meta: &Meta,
        splicer: &mut Splicer,
    ) -> io::Result<()> {
        let filled = splicer.input.len();
        let (mut rest, mut last) = (Vec::new(), None);
        while splicer.input.len() >= HEADER_LEN {
            let mut header = [0; HEADER_LEN];
            splicer.input.read(&mut header)?;
            let Ok(len) = Packet::<&[u8]>::check_header(&header) else {
                self.output.streams.malformed(conn);
                discard(&mut splicer.input);
                break;
            };
            if splicer.input.len() < len - HEADER_LEN {
                rest.extend(header);
                break;
            }
            last = Some(len);
            let copy = self.node.plane().forward_header(now, conn, &mut header);
            let copy = copy.map(|copy| (copy.to, copy.edge));
            let Some((Destination::Stream(to), edge)) = copy else {
                self.forward_read(now, conn, meta, (header, len), splicer)?;
                continue;
            };
            if splicer.to != Some((to, edge)) {
                splicer.flush(&mut self.output, &mut self.node);
                splicer.to = Some((to, edge));
            }
            splicer.append(&mut self.output, &mut self.node, header, len - HEADER_LEN)?;
        }
        splicer.flush(&mut self.output, &mut self.node);
        splicer.to = None;
        rest.extend(read_all(&mut splicer.input));
        self.output.streams.keep(conn, &rest, filled, last);
        Ok(())
    }

    /// Reads the payload of a packet that cannot be forwarded by its header, and forwards it after those before it.
    fn forward_read(
        &mut self,
        now: Instant,
        conn: ConnId,
        meta: &Meta,
        (header, len): ([u8; HEADER_LEN], usize),
        splicer: &mut Splicer,
    ) -> io::Result<()> {
        splicer.flush(&mut self.output, &mut self.node);
        let (node, buffer) = (&mut self.node, &mut self.buffer);
        buffer[..HEADER_LEN].copy_from_slice(&header);
        splicer.input.read(&mut buffer[HEADER_LEN..len])?;
        if self.output.forward(now, node, meta, buffer, 0..len) {
            self.output.streams.attached(conn);
        }
        self.output.flush(node, buffer);
        let spliced = self.output.straight;
        self.output.streams.set_spliced(conn, spliced);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
