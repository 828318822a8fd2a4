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
//! | unidirectional, the head of a group | [`MAX_GROUP_HEAD`] |
//! | unidirectional, the frames of a group | not bounded here: the cache bounds them |

use std::task::{Context, Poll, ready};

use hyper::body::Bytes;
use moq_net::bytes::BufMut;
use moq_net::web_transport_trait::{Stats, poll};
use web_transport_quinn as quic;

use super::gate::Gate;

/// Most bytes of a stream of requests, in its whole life.
pub(super) const MAX_REQUEST: usize = 16 << 10;
/// Most bytes of a stream of answers, in its whole life.
pub(super) const MAX_ANSWER: usize = 1 << 20;
/// The type of a unidirectional stream that carries a group (moq-lite, "Group stream").
const GROUP: u8 = 0;
/// Most bytes of the head of a group after its length: three integers.
const MAX_GROUP_HEAD: u64 = 64;
/// Bytes of the type of a stream and of the longest length (RFC 9000 §16).
const MAX_PREFIX: usize = 9;
/// The code that a stream is stopped with: that of a protocol violation.
const VIOLATION: u32 = 3;

/// A session with the bounds. Each copy waits for itself.
#[derive(Clone)]
pub(super) struct Guarded {
    session: quic::Session,
    accepts_uni: Gate,
    accepts_bi: Gate,
    datagrams: Gate,
    closed: Gate,
}

impl Guarded {
    pub(super) fn new(session: quic::Session) -> Self {
        Guarded {
            session,
            accepts_uni: Gate::default(),
            accepts_bi: Gate::default(),
            datagrams: Gate::default(),
            closed: Gate::default(),
        }
    }
}

/// A received stream with its bound.
pub(super) struct Received {
    stream: quic::RecvStream,
    reads: Gate,
    /// Bytes that may still come; `None`: any number.
    left: Option<usize>,
    /// The first bytes, while it is not known whether the stream is a group.
    prefix: Option<Vec<u8>>,
    /// Ends with the stream that exceeds its bound: without its announcements a session is of no use.
    session: Option<quic::Session>,
}

impl Received {
    fn bounded(stream: quic::RecvStream, left: usize) -> Self {
        Received {
            stream,
            reads: Gate::default(),
            left: Some(left),
            prefix: None,
            session: None,
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
                if let Some(session) = &mut self.session {
                    poll::Session::close(session, VIOLATION, "too many announcements");
                }
                *left = 0;
                false
            }
        }
    }

    /// Finds out whether the stream is a group with a head of the usual length, whose frames are not bounded here.
    fn decide(&mut self, bytes: &[u8]) {
        let Some(prefix) = &mut self.prefix else {
            return;
        };
        let lacks = MAX_PREFIX - prefix.len();
        prefix.extend_from_slice(&bytes[..bytes.len().min(lacks)]);
        match prefix.split_first() {
            None => return,
            Some((&GROUP, length)) => match integer(length) {
                None => return,
                Some(..=MAX_GROUP_HEAD) => self.left = None,
                Some(_) => self.left = Some(0),
            },
            Some(_) => {}
        }
        self.prefix = None;
    }
}

/// Returns the integer at the start of some bytes (RFC 9000 §16), as moq-lite-03 to 06 write them.
fn integer(bytes: &[u8]) -> Option<u64> {
    let first = *bytes.first()?;
    let rest = bytes.get(1..1 << (first >> 6))?;
    let start = u64::from(first & 0x3f);
    Some(
        rest.iter()
            .fold(start, |value, byte| value << 8 | u64::from(*byte)),
    )
}

impl poll::RecvStream for Received {
    type Error = <quic::RecvStream as poll::RecvStream>::Error;

    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<Result<Option<usize>, Self::Error>> {
        let stream = &mut self.stream;
        let attempt = |inner: &mut Context<'_>| poll::RecvStream::poll_read(stream, inner, into);
        let read = ready!(self.reads.poll(context, attempt))?;
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
        if self.left.is_none() {
            let stream = &mut self.stream;
            let attempt =
                |inner: &mut Context<'_>| poll::RecvStream::poll_read_buf(stream, inner, into);
            return self.reads.poll(context, attempt);
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
        let stream = &mut self.stream;
        let attempt =
            |inner: &mut Context<'_>| poll::RecvStream::poll_read_chunk(stream, inner, max);
        let chunk = ready!(self.reads.poll(context, attempt))?;
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
        self.reads.open();
    }

    fn poll_closed(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // quinn wakes one waiter of a stream: the next attempt to read registers itself again.
        self.reads.open();
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
        let session = &mut self.session;
        let attempt = |inner: &mut Context<'_>| poll::Session::poll_accept_uni(session, inner);
        let stream = ready!(self.accepts_uni.poll(context, attempt))?;
        Poll::Ready(Ok(Received {
            prefix: Some(Vec::new()),
            ..Received::bounded(stream, MAX_REQUEST)
        }))
    }

    fn poll_accept_bi(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<(quic::SendStream, Received), Self::Error>> {
        let session = &mut self.session;
        let attempt = |inner: &mut Context<'_>| poll::Session::poll_accept_bi(session, inner);
        let (send, stream) = ready!(self.accepts_bi.poll(context, attempt))?;
        Poll::Ready(Ok((send, Received::bounded(stream, MAX_REQUEST))))
    }

    fn poll_open_uni(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<quic::SendStream, Self::Error>> {
        poll::Session::poll_open_uni(&mut self.session, context)
    }

    fn poll_open_bi(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<(quic::SendStream, Received), Self::Error>> {
        let (send, stream) = ready!(poll::Session::poll_open_bi(&mut self.session, context))?;
        let received = Received {
            session: Some(self.session.clone()),
            ..Received::bounded(stream, MAX_ANSWER)
        };
        Poll::Ready(Ok((send, received)))
    }

    fn poll_send_datagram(
        &mut self,
        context: &mut Context<'_>,
        payload: &[u8],
    ) -> Poll<Result<(), Self::Error>> {
        poll::Session::poll_send_datagram(&mut self.session, context, payload)
    }

    fn poll_recv_datagram(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Bytes, Self::Error>> {
        let session = &mut self.session;
        let attempt = |inner: &mut Context<'_>| poll::Session::poll_recv_datagram(session, inner);
        self.datagrams.poll(context, attempt)
    }

    fn max_datagram_size(&self) -> usize {
        poll::Session::max_datagram_size(&self.session)
    }

    fn protocol(&self) -> Option<&str> {
        poll::Session::protocol(&self.session)
    }

    fn close(&mut self, code: u32, reason: &str) {
        poll::Session::close(&mut self.session, code, reason);
    }

    fn poll_closed(&mut self, context: &mut Context<'_>) -> Poll<Self::Error> {
        let session = &mut self.session;
        let attempt = |inner: &mut Context<'_>| poll::Session::poll_closed(session, inner);
        self.closed.poll(context, attempt)
    }

    fn stats(&self) -> impl Stats {
        poll::Session::stats(&self.session)
    }
}

#[cfg(test)]
mod tests {
    use super::integer;

    #[test]
    fn integers_are_those_of_rfc_9000() {
        // RFC 9000 §A.1.
        assert_eq!(integer(&[0x25]), Some(37));
        assert_eq!(integer(&[0x7b, 0xbd, 0xff]), Some(15_293));
        assert_eq!(integer(&[0x9d, 0x7f, 0x3e, 0x7d]), Some(494_878_333));
        let long = [0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c];
        assert_eq!(integer(&long), Some(151_288_809_941_952_652));
        assert_eq!(integer(&long[..7]), None);
        assert_eq!(integer(&[]), None);
    }
}
