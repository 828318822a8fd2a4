//! Connections, as streams.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tcpxm::wire::SegmentKey;
use tcpxm::{CommandError, ConnId, Reader, Received};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::shared::{Shared, State, refused, until};

/// Takes connections that others open.
#[derive(Debug)]
pub struct XmListener {
    shared: Arc<Shared>,
}

impl XmListener {
    pub(crate) fn new(
        shared: Arc<Shared>,
        peer: Option<SocketAddr>,
        key: Option<SegmentKey>,
    ) -> io::Result<XmListener> {
        let mut state = shared.lock();
        state.alive()?;
        let now = shared.now();
        let port = shared.local.port();
        let machine = &mut state.machine;
        let listening = match (peer, key) {
            (Some(peer), key) => machine.listen_to(now, port, peer, key),
            (None, Some(key)) => machine.listen_keyed(now, port, key),
            (None, None) => machine.listen(now, port),
        };
        listening.map_err(refused)?;
        drop(state);
        shared.hold();
        Ok(XmListener { shared })
    }

    /// The next connection, if there is one. Otherwise the lock is handed back, so that a caller that waits
    /// for a change misses none between the attempt and the wait.
    fn try_accept(&self) -> io::Result<Result<XmStream, MutexGuard<'_, State>>> {
        let mut state = self.shared.lock();
        state.alive()?;
        let port = self.shared.local.port();
        let Some(id) = state.machine.accept(self.shared.now(), port) else {
            return Ok(Err(state));
        };
        state.connections.entry(id).or_default();
        self.shared.kick(state);
        Ok(Ok(XmStream::new(Arc::clone(&self.shared), id)))
    }

    /// The next connection.
    ///
    /// # Errors
    /// The sockets failed.
    pub async fn accept(&self) -> io::Result<XmStream> {
        poll_fn(|context| match self.try_accept()? {
            Ok(stream) => Poll::Ready(Ok(stream)),
            Err(state) => {
                self.shared.settle(state, false, Some(context));
                Poll::Pending
            }
        })
        .await
    }

    /// Waits for the next connection, at most so long; `None`: for ever.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`], or the sockets failed.
    pub fn wait(&self, most: Option<Duration>) -> io::Result<XmStream> {
        let end = most.map(|most| Instant::now() + most);
        loop {
            let state = match self.try_accept()? {
                Ok(stream) => return Ok(stream),
                Err(state) => state,
            };
            let left = end.map_or(Duration::MAX, |end| {
                end.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            drop(self.shared.wait(state, left));
        }
    }
}

impl Drop for XmListener {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let _ = state
            .machine
            .unlisten(self.shared.now(), self.shared.local.port());
        self.shared.kick(state);
        self.shared.release();
    }
}

/// A connection. Reading gives what the other side sends until it shuts its direction; dropping the
/// stream closes it in good order.
#[derive(Debug)]
pub struct XmStream {
    shared: Arc<Shared>,
    id: ConnId,
}

impl XmStream {
    fn new(shared: Arc<Shared>, id: ConnId) -> XmStream {
        shared.hold();
        XmStream { shared, id }
    }

    pub(crate) fn connect(shared: Arc<Shared>, remote: SocketAddr) -> io::Result<XmStream> {
        let mut state = shared.lock();
        state.alive()?;
        // The kernel's socket has one port: the connection's own.
        let carrier = state.machine.config().carrier;
        let local = shared.local_for(carrier, &[remote.ip()])?;
        let now = shared.now();
        let id = state.machine.connect(now, local, remote);
        let id = id.map_err(refused)?;
        shared.fit_path(&mut state.machine, remote.ip());
        state.connections.entry(id).or_default();
        shared.kick(state);
        Ok(XmStream::new(shared, id))
    }

    /// The other side's address.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn peer_address(&self) -> io::Result<SocketAddr> {
        let state = self.shared.lock();
        let remote = state.machine.remote(self.id);
        remote.map_err(|error| state.error(self.id, error))
    }

    /// The group that its data may come by: both sides agreed on it, and nobody has left it.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn group(&self) -> io::Result<Option<IpAddr>> {
        let state = self.shared.lock();
        let group = state.machine.group_of(self.id);
        group.map_err(|error| state.error(self.id, error))
    }

    /// Ends the connection at once, with a reset.
    pub fn abort(&self) {
        self.handle().abort();
    }

    /// A handle for another thread.
    pub fn handle(&self) -> StreamHandle {
        StreamHandle {
            shared: Arc::clone(&self.shared),
            id: self.id,
        }
    }

    fn try_read(&self, out: &mut [u8], context: Option<&Context<'_>>) -> io::Result<Option<usize>> {
        if out.is_empty() {
            return Ok(Some(0));
        }
        let mut state = self.shared.lock();
        let now = self.shared.now();
        let received = state.machine.recv(now, self.id, out);
        let read = match received {
            Ok(Received::Data(len)) => Some(len),
            Ok(Received::End) => Some(0),
            Ok(Received::Nothing) => {
                state.alive()?;
                None
            }
            // Closed in good order, and forgotten before its end was read: all the rest was.
            Err(CommandError::Unknown) if state.has_ended(self.id) => return Ok(Some(0)),
            Err(error) => return Err(state.error(self.id, error)),
        };
        let mut reader = Reader::new(self.id, out);
        let succeeded = read.is_some();
        self.shared
            .settle_read(state, succeeded, context, &mut reader);
        Ok(read.or(Some(reader.filled()).filter(|&filled| filled > 0)))
    }

    fn try_write(&self, bytes: &[u8], context: Option<&Context<'_>>) -> io::Result<Option<usize>> {
        let mut state = self.shared.lock();
        state.alive()?;
        let sent = state.machine.send(self.shared.now(), self.id, bytes);
        let sent = sent.map_err(|error| state.error(self.id, error))?;
        let sent = (sent > 0 || bytes.is_empty()).then_some(sent);
        self.shared.settle(state, sent.is_some(), context);
        Ok(sent)
    }

    /// Ends this side's direction: the other reads its end.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn finish(&self) -> io::Result<()> {
        let mut state = self.shared.lock();
        let shut = state.machine.shutdown(self.shared.now(), self.id);
        let shut = shut.map_err(|error| state.error(self.id, error));
        self.shared.kick(state);
        shut
    }
}

/// Stops a connection from elsewhere while one thread reads or writes.
#[derive(Clone, Debug)]
pub struct StreamHandle {
    shared: Arc<Shared>,
    id: ConnId,
}

impl StreamHandle {
    /// Ends the connection at once, with a reset, also for the thread that waits on it.
    pub fn abort(&self) {
        let mut state = self.shared.lock();
        // It is gone already, perhaps.
        let _ = state.machine.abort(self.shared.now(), self.id);
        self.shared.notify(&mut state);
        self.shared.kick(state);
    }
}

impl io::Read for XmStream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        until(|| self.try_read(out, None))
    }
}

impl io::Write for XmStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        until(|| self.try_write(bytes, None))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for XmStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.try_read(out.initialize_unfilled(), Some(context))? {
            Some(len) => {
                out.advance(len);
                Poll::Ready(Ok(()))
            }
            None => Poll::Pending,
        }
    }
}

impl AsyncWrite for XmStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = self.try_write(bytes, Some(context))?;
        written.map_or(Poll::Pending, |len| Poll::Ready(Ok(len)))
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ready when the other side has everything.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A connection whose other side closed first is gone as soon as the end is acknowledged.
        let over = self.poll_delivered(context);
        if over.is_ready() {
            return over;
        }
        self.finish()?;
        self.poll_delivered(context)
    }
}

impl XmStream {
    fn poll_delivered(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.shared.lock();
        state.register(context);
        let known = state.connections.get(&self.id).copied().unwrap_or_default();
        match known.closed {
            _ if known.delivered => Poll::Ready(Ok(())),
            Some(Some(failure)) => Poll::Ready(Err(crate::shared::failed(failure))),
            Some(None) => Poll::Ready(Ok(())),
            None => {
                state.alive()?;
                Poll::Pending
            }
        }
    }
}

impl Drop for XmStream {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let _ = state.machine.close(self.shared.now(), self.id);
        state.connections.remove(&self.id);
        self.shared.kick(state);
        self.shared.release();
    }
}
