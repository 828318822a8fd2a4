//! A transport that bounds what a peer may send outside of groups.
//!
//! moq-net reads a control message as a whole, up to 64 MiB of it. Control streams carry requests of some hundred bytes,
//! so this transport ends them early:
//!
//! | stream | bytes that are read |
//! | --- | --- |
//! | bidirectional, opened by the peer: subscriptions, requests for announcements | [`MAX_REQUEST`] |
//! | bidirectional, opened here: the peer's announcements and answers | [`MAX_ANSWER`] |
//! | unidirectional, SETUP | [`MAX_REQUEST`] |
//! | unidirectional, a group | not bounded here: the cache bounds it |

use std::task::{Context, Poll, ready};

use hyper::body::Bytes;
use moq_net::bytes::BufMut;
use moq_net::web_transport_trait::{Stats, poll};
use web_transport_quinn as quic;

/// Most bytes of a stream of requests, in its whole life.
pub(super) const MAX_REQUEST: usize = 16 << 10;
/// Most bytes of a stream of answers, in its whole life.
pub(super) const MAX_ANSWER: usize = 1 << 20;
/// The type of a unidirectional stream that carries a group (moq-lite, "Group stream").
const GROUP: u8 = 0;
/// The code that a stream is stopped with: that of a protocol violation.
const VIOLATION: u32 = 3;

/// A session with the bounds.
#[derive(Clone)]
pub(super) struct Guarded(pub(super) quic::Session);

/// A received stream with its bound.
pub(super) struct Received {
    stream: quic::RecvStream,
    /// Bytes that may still come; `None`: any number.
    left: Option<usize>,
    /// The first byte decides about the bound.
    is_undecided: bool,
}

impl Received {
    fn bounded(stream: quic::RecvStream, left: usize) -> Self {
        Received {
            stream,
            left: Some(left),
            is_undecided: false,
        }
    }

    /// Counts bytes; returns whether they may be passed on.
    fn admit(&mut self, len: usize) -> bool {
        let Some(left) = &mut self.left else {
            return true;
        };
        match left.checked_sub(len) {
            Some(rest) => {
                *left = rest;
                true
            }
            None => {
                poll::RecvStream::stop(&mut self.stream, VIOLATION);
                *left = 0;
                false
            }
        }
    }

    fn decide(&mut self, bytes: &[u8]) {
        if let (true, Some(first)) = (self.is_undecided, bytes.first()) {
            self.is_undecided = false;
            if *first == GROUP {
                self.left = None;
            }
        }
    }
}

impl poll::RecvStream for Received {
    type Error = <quic::RecvStream as poll::RecvStream>::Error;

    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<Result<Option<usize>, Self::Error>> {
        let read = ready!(poll::RecvStream::poll_read(
            &mut self.stream,
            context,
            into
        ))?;
        if let Some(len) = read {
            self.decide(&into[..len]);
            if !self.admit(len) {
                return Poll::Ready(Ok(None));
            }
        }
        Poll::Ready(Ok(read))
    }

    fn poll_read_buf<B: BufMut>(
        &mut self,
        context: &mut Context<'_>,
        into: &mut B,
    ) -> Poll<Result<Option<usize>, Self::Error>> {
        if !self.is_undecided && self.left.is_none() {
            return poll::RecvStream::poll_read_buf(&mut self.stream, context, into);
        }
        let room = into.chunk_mut().len();
        let chunk = ready!(self.poll_read_chunk(context, room))?;
        Poll::Ready(Ok(chunk.map(|chunk| {
            into.put_slice(&chunk);
            chunk.len()
        })))
    }

    fn poll_read_chunk(
        &mut self,
        context: &mut Context<'_>,
        max: usize,
    ) -> Poll<Result<Option<Bytes>, Self::Error>> {
        let chunk = ready!(poll::RecvStream::poll_read_chunk(
            &mut self.stream,
            context,
            max
        ))?;
        if let Some(chunk) = &chunk {
            self.decide(chunk);
            if !self.admit(chunk.len()) {
                return Poll::Ready(Ok(None));
            }
        }
        Poll::Ready(Ok(chunk))
    }

    fn stop(&mut self, code: u32) {
        poll::RecvStream::stop(&mut self.stream, code);
    }

    fn poll_closed(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        poll::RecvStream::poll_closed(&mut self.stream, context)
    }
}

impl poll::Session for Guarded {
    type SendStream = quic::SendStream;
    type RecvStream = Received;
    type Error = <quic::Session as poll::Session>::Error;

    fn poll_accept_uni(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Received, Self::Error>> {
        let stream = ready!(poll::Session::poll_accept_uni(&mut self.0, context))?;
        Poll::Ready(Ok(Received {
            is_undecided: true,
            ..Received::bounded(stream, MAX_REQUEST)
        }))
    }

    fn poll_accept_bi(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<(quic::SendStream, Received), Self::Error>> {
        let (send, stream) = ready!(poll::Session::poll_accept_bi(&mut self.0, context))?;
        Poll::Ready(Ok((send, Received::bounded(stream, MAX_REQUEST))))
    }

    fn poll_open_uni(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<quic::SendStream, Self::Error>> {
        poll::Session::poll_open_uni(&mut self.0, context)
    }

    fn poll_open_bi(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<(quic::SendStream, Received), Self::Error>> {
        let (send, stream) = ready!(poll::Session::poll_open_bi(&mut self.0, context))?;
        Poll::Ready(Ok((send, Received::bounded(stream, MAX_ANSWER))))
    }

    fn poll_send_datagram(
        &mut self,
        context: &mut Context<'_>,
        payload: &[u8],
    ) -> Poll<Result<(), Self::Error>> {
        poll::Session::poll_send_datagram(&mut self.0, context, payload)
    }

    fn poll_recv_datagram(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Bytes, Self::Error>> {
        poll::Session::poll_recv_datagram(&mut self.0, context)
    }

    fn max_datagram_size(&self) -> usize {
        poll::Session::max_datagram_size(&self.0)
    }

    fn protocol(&self) -> Option<&str> {
        poll::Session::protocol(&self.0)
    }

    fn close(&mut self, code: u32, reason: &str) {
        poll::Session::close(&mut self.0, code, reason);
    }

    fn poll_closed(&mut self, context: &mut Context<'_>) -> Poll<Self::Error> {
        poll::Session::poll_closed(&mut self.0, context)
    }

    fn stats(&self) -> impl Stats {
        poll::Session::stats(&self.0)
    }
}
