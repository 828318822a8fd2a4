//! Connections as streams.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tcpxm::wire::SegmentKey;
use tcpxm::{CommandError, ConnId, Received};
use tokio::io::{AsyncRead, ReadBuf};

use crate::shared::{Shared, State, failed, refused};
use crate::sync::MutexGuard;
use crate::wait::{Interest, block_on, impl_write};

/// Accepts connections.
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

    fn poll_accept(&self, context: &Context<'_>) -> Poll<io::Result<XmStream>> {
        let mut state = self.shared.lock();
        state.alive()?;
        let port = self.shared.local.port();
        let Some(id) = state.machine.accept(self.shared.now(), port) else {
            self.shared.wait_for(state, Interest::Accept, context);
            return Poll::Pending;
        };
        state.connections.entry(id).or_default();
        self.shared.kick(state);
        Poll::Ready(Ok(XmStream::new(Arc::clone(&self.shared), id)))
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// The sockets failed.
    pub async fn accept(&self) -> io::Result<XmStream> {
        poll_fn(|context| self.poll_accept(context)).await
    }

    /// Blocks until the next connection, at most for `timeout`; `None` means no limit.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`], or the sockets failed.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<XmStream> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        block_on(deadline, |context| self.poll_accept(context))
    }
}

impl Drop for XmListener {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let _ = state
            .machine
            .unlisten(self.shared.now(), self.shared.local.port());
        state.wake(Interest::Accept);
        self.shared.kick(state);
        self.shared.release();
    }
}

/// A connection. Reads return the peer's data until the peer shuts its direction; dropping the stream closes it
/// gracefully.
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
        // The kernel's socket has one port, which the connection uses.
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

    /// Returns the address of the peer.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn peer_address(&self) -> io::Result<SocketAddr> {
        let state = self.shared.lock();
        let remote = state.machine.remote(self.id);
        remote.map_err(|error| state.error(self.id, error))
    }

    /// Returns the group that both sides agreed on and that was not left since: data may arrive by it.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn group(&self) -> io::Result<Option<IpAddr>> {
        let state = self.shared.lock();
        let group = state.machine.group_of(self.id);
        group.map_err(|error| state.error(self.id, error))
    }

    /// Resets the connection.
    pub fn abort(&self) {
        self.handle().abort();
    }

    /// Returns a handle for another thread.
    pub fn handle(&self) -> StreamHandle {
        StreamHandle {
            shared: Arc::clone(&self.shared),
            id: self.id,
        }
    }

    /// Reads; a thread that blocks (`may_drive`) drives the endpoint instead of waiting, where it can.
    fn poll_recv(
        &self,
        out: &mut [u8],
        context: &Context<'_>,
        may_drive: bool,
    ) -> Poll<io::Result<usize>> {
        if out.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let shared = &*self.shared;
        let mut state = shared.lock();
        let read = match state.machine.recv(shared.now(), self.id, out) {
            Ok(Received::Data(len)) => len,
            Ok(Received::End) => 0,
            Ok(Received::Nothing) => {
                state.alive()?;
                return self.wait_to_recv(state, out.len(), context, may_drive);
            }
            // The connection closed in good order and was removed before its end was read.
            Err(CommandError::Unknown) if state.has_ended(self.id) => 0,
            Err(error) => return Poll::Ready(Err(state.error(self.id, error))),
        };
        if may_drive {
            shared.lease_to_reader(state);
        } else {
            shared.kick_if_due(state);
        }
        Poll::Ready(Ok(read))
    }

    fn wait_to_recv(
        &self,
        state: MutexGuard<'_, State>,
        len: usize,
        context: &Context<'_>,
        may_drive: bool,
    ) -> Poll<io::Result<usize>> {
        let driven = if may_drive {
            self.shared.drive_for(state, len)
        } else {
            Err(state)
        };
        match driven {
            // Something may have arrived: try again.
            Ok(()) => context.waker().wake_by_ref(),
            Err(state) => self
                .shared
                .wait_for(state, Interest::Read(self.id), context),
        }
        Poll::Pending
    }

    fn poll_send(&self, bytes: &[u8], context: &Context<'_>) -> Poll<io::Result<usize>> {
        let mut state = self.shared.lock();
        state.alive()?;
        let sent = state.machine.send(self.shared.now(), self.id, bytes);
        let sent = sent.map_err(|error| state.error(self.id, error))?;
        if sent == 0 && !bytes.is_empty() {
            let interest = Interest::Write(self.id);
            self.shared.wait_for(state, interest, context);
            return Poll::Pending;
        }
        self.shared.kick_if_due(state);
        Poll::Ready(Ok(sent))
    }

    /// Shuts this side's direction: the peer reads the end of the stream.
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

/// Stops a connection while another thread reads or writes.
#[derive(Clone, Debug)]
pub struct StreamHandle {
    shared: Arc<Shared>,
    id: ConnId,
}

impl StreamHandle {
    /// Resets the connection, also for a thread that blocks on it.
    pub fn abort(&self) {
        let mut state = self.shared.lock();
        // The connection may be gone already.
        let _ = state.machine.abort(self.shared.now(), self.id);
        state.wake_connection(self.id);
        self.shared.kick(state);
    }
}

impl io::Read for XmStream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        block_on(None, |context| self.poll_recv(out, context, true))
    }
}

impl AsyncRead for XmStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = self.poll_recv(out.initialize_unfilled(), context, false);
        read.map_ok(|len| out.advance(len))
    }
}

impl_write!(
    XmStream,
    /// Ready when the peer has received everything.
);

impl XmStream {
    /// Ready when the peer has received everything.
    fn poll_close(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        // A connection whose peer closed first is removed when the end is acknowledged.
        let over = self.poll_delivered(context);
        if over.is_ready() {
            return over;
        }
        self.finish()?;
        self.poll_delivered(context)
    }

    fn poll_delivered(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        let state = self.shared.lock();
        match state.connections.get(&self.id) {
            Some(known) if known.delivered => return Poll::Ready(Ok(())),
            Some(known) if known.closed.is_some() => {
                let failure = known.closed.flatten();
                return Poll::Ready(failure.map_or(Ok(()), |failure| Err(failed(failure))));
            }
            _ => state.alive()?,
        }
        let interest = Interest::Write(self.id);
        self.shared.wait_for(state, interest, context);
        Poll::Pending
    }
}

impl Drop for XmStream {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let _ = state.machine.close(self.shared.now(), self.id);
        state.remove_connection(self.id);
        self.shared.kick(state);
        self.shared.release();
    }
}
