//! Streams to a client: all subscribers send the same bytes of a group, and none has a copy.
//!
//! | stream | bytes |
//! | --- | --- |
//! | unidirectional: groups | a piece of at least [`SHARED`] bytes is sent from the cache's memory; what does not fit into the window is kept, at most one piece, and moves on with the next call |
//! | bidirectional: answers and requests | copied into the connection |

use std::pin::pin;
use std::task::{Context, Poll, ready};

use hyper::body::Bytes;
use moq_net::bytes::Buf;
use moq_net::web_transport_trait::poll;
use web_transport_quinn as quic;

/// From this length on, a reference costs less than a copy.
const SHARED: usize = 512;

/// A stream to a client.
pub(super) struct Outgoing {
    stream: quic::SendStream,
    /// The shortest piece that is not copied.
    shared: usize,
    /// A piece that was taken, and has not been written.
    held: Bytes,
    /// The stream ends after `held`.
    ends: bool,
}

type Error = <quic::SendStream as poll::SendStream>::Error;

impl Outgoing {
    /// A stream of a group.
    pub(super) fn of_group(stream: quic::SendStream) -> Self {
        Outgoing {
            stream,
            shared: SHARED,
            held: Bytes::new(),
            ends: false,
        }
    }

    /// A stream of messages: each is written before it counts as taken.
    pub(super) fn of_messages(stream: quic::SendStream) -> Self {
        Outgoing {
            shared: usize::MAX,
            ..Outgoing::of_group(stream)
        }
    }

    /// Writes what is held.
    fn poll_held(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        while !self.held.is_empty() {
            let held = std::slice::from_mut(&mut self.held);
            // If it waits, nothing was written, and the connection has the waker.
            let mut write = pin!(self.stream.write_chunks(held));
            ready!(write.as_mut().poll(context))?;
        }
        Poll::Ready(Ok(()))
    }
}

impl poll::SendStream for Outgoing {
    type Error = Error;

    fn poll_write(&mut self, context: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize, Error>> {
        ready!(self.poll_held(context))?;
        poll::SendStream::poll_write(&mut self.stream, context, buf)
    }

    fn poll_write_buf<B: Buf>(
        &mut self,
        context: &mut Context<'_>,
        buf: &mut B,
    ) -> Poll<Result<usize, Error>> {
        ready!(self.poll_held(context))?;
        let len = buf.chunk().len();
        if len < self.shared {
            return poll::SendStream::poll_write_buf(&mut self.stream, context, buf);
        }
        // Another reference to the same bytes.
        self.held = buf.copy_to_bytes(len);
        match self.poll_held(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(len)),
        }
    }

    fn set_priority(&mut self, order: u8) {
        poll::SendStream::set_priority(&mut self.stream, order);
    }

    fn finish(&mut self) -> Result<(), Error> {
        if !self.held.is_empty() {
            self.ends = true;
            return Ok(());
        }
        poll::SendStream::finish(&mut self.stream)
    }

    fn reset(&mut self, code: u32) {
        self.held = Bytes::new();
        self.ends = false;
        poll::SendStream::reset(&mut self.stream, code);
    }

    fn poll_closed(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if let Poll::Ready(written) = self.poll_held(context) {
            written?;
            if std::mem::take(&mut self.ends) {
                poll::SendStream::finish(&mut self.stream)?;
            }
        }
        poll::SendStream::poll_closed(&mut self.stream, context)
    }
}
