//! One stream of bytes to many receivers.

use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use tcpxm::{ConnStats, Failure, GroupConfig, GroupId, Mode};

use crate::shared::{Shared, State, refused};
use crate::store::{Archive, SendStore};
use crate::wait::{Interest, block_on, impl_write};

/// Bytes copied to the send buffer at once.
const MAX_COPY: usize = 64 << 10;

/// An event of one receiver, numbered as in [`GroupConfig::receivers`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupEvent {
    /// Its transmission mode changed.
    Mode(usize, Mode),
    /// It was too slow for the others and is served separately.
    Detached(usize),
    /// It has received everything, including the end.
    Delivered(usize),
    /// Its connection has ended; with the failure, if there was one.
    Closed(usize, Option<Failure>),
}

/// A group of receivers: all of them receive what is written.
///
/// Writing blocks while the slowest receiver holds the send buffer; a receiver that fails no longer counts.
/// Dropping the group closes it gracefully.
#[derive(Debug)]
pub struct XmGroup {
    shared: Arc<Shared>,
    id: GroupId,
}

/// Observes and stops a group while another thread writes to it.
#[derive(Clone, Debug)]
pub struct GroupHandle {
    shared: Arc<Shared>,
    id: GroupId,
}

impl XmGroup {
    pub(crate) fn open(
        shared: Arc<Shared>,
        mut config: GroupConfig,
        archive: Option<Box<dyn Archive>>,
    ) -> io::Result<XmGroup> {
        let mut state = shared.lock();
        state.alive()?;
        let carrier = state.machine.config().carrier;
        config.local = shared.local_for(carrier, &config.receivers)?;
        let store = SendStore::new(shared.send_buffer, archive);
        let id = state.machine.open_group(shared.now(), &config, store);
        let id = id.map_err(refused)?;
        for &receiver in &config.receivers {
            shared.fit_path(&mut state.machine, receiver);
        }
        let members = state.machine.members(id).map_err(refused)?.collect();
        state.insert_group(id, members);
        shared.kick(state);
        shared.hold();
        Ok(XmGroup { shared, id })
    }

    /// Returns the multicast address offered to the receivers; `None` without multicast.
    pub fn address(&self) -> Option<IpAddr> {
        self.shared.lock().machine.group_address(self.id).ok()?
    }

    /// Returns a handle for another thread.
    pub fn handle(&self) -> GroupHandle {
        GroupHandle {
            shared: Arc::clone(&self.shared),
            id: self.id,
        }
    }

    fn poll_send(&self, bytes: &[u8], context: &Context<'_>) -> Poll<io::Result<usize>> {
        let mut state = self.shared.lock();
        state.alive()?;
        self.open_still(&state)?;
        // The driver waits for the lock meanwhile.
        let piece = &bytes[..bytes.len().min(MAX_COPY)];
        let sent = state.machine.send(self.shared.now(), self.id, piece);
        let sent = sent.map_err(refused)?;
        if sent == 0 && !bytes.is_empty() {
            let interest = Interest::GroupWrite(self.id);
            self.shared.wait_for(state, interest, context);
            return Poll::Pending;
        }
        self.shared.kick_if_due(state);
        Poll::Ready(Ok(sent))
    }

    /// Fails when no receiver is left.
    fn open_still(&self, state: &State) -> io::Result<()> {
        let group = state.groups.get(&self.id);
        let failed = group.is_none_or(|group| group.over.len() == group.members.len());
        if failed {
            return Err(io::Error::new(
                io::ErrorKind::NotConnected,
                "no receiver is left",
            ));
        }
        Ok(())
    }

    /// Ends the stream: receivers read its end.
    ///
    /// # Errors
    /// Every receiver has failed.
    pub fn finish(&self) -> io::Result<()> {
        let mut state = self.shared.lock();
        let shut = state.machine.shutdown(self.shared.now(), self.id);
        self.shared.kick(state);
        shut.map_err(refused)
    }

    /// Waits, after [`XmGroup::finish`], until each receiver has everything or has failed. Returns how many
    /// have everything.
    ///
    /// # Errors
    /// The sockets failed.
    pub fn wait_delivered(&self) -> io::Result<usize> {
        block_on(None, |context| self.poll_over(context))?;
        let state = self.shared.lock();
        Ok(state
            .groups
            .get(&self.id)
            .map_or(0, |group| group.delivered))
    }

    /// Ready when each receiver has everything, or has failed.
    fn poll_over(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        let state = self.shared.lock();
        // A group is removed when all its receivers have failed.
        if self.is_over(&state) {
            return Poll::Ready(Ok(()));
        }
        state.alive()?;
        let interest = Interest::GroupWrite(self.id);
        self.shared.wait_for(state, interest, context);
        Poll::Pending
    }

    /// Ready when each receiver has everything or has failed.
    fn poll_close(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_over(&self.shared.lock()) {
            self.shared.lock().alive()?;
            self.finish()?;
        }
        self.poll_over(context)
    }

    fn is_over(&self, state: &State) -> bool {
        let group = state.groups.get(&self.id);
        group.is_none_or(|group| group.is_over())
    }
}

impl GroupHandle {
    /// Returns the next event, if there is one. Events are kept until they are taken: at most a few for each
    /// receiver.
    pub fn poll_event(&self) -> Option<GroupEvent> {
        let mut state = self.shared.lock();
        state.groups.get_mut(&self.id)?.events.pop_front()
    }

    /// Waits for the next event; `None` when the group is gone.
    pub async fn next_event(&self) -> Option<GroupEvent> {
        poll_fn(|context| {
            let mut state = self.shared.lock();
            let Some(group) = state.groups.get_mut(&self.id) else {
                return Poll::Ready(None);
            };
            if let Some(event) = group.events.pop_front() {
                return Poll::Ready(Some(event));
            }
            if state.alive().is_err() {
                return Poll::Ready(None);
            }
            let interest = Interest::GroupEvent(self.id);
            self.shared.wait_for(state, interest, context);
            Poll::Pending
        })
        .await
    }

    /// Returns the counters of a receiver; `None` when its connection is gone.
    pub fn stats(&self, receiver: usize) -> Option<ConnStats> {
        let state = self.shared.lock();
        let id = *state.groups.get(&self.id)?.members.get(receiver)?;
        state.machine.conn_stats(id).ok()
    }

    /// Serves a receiver separately, at its own pace, from now on; see [`tcpxm::Endpoint::detach`]. Returns whether
    /// it was in step with others until now.
    pub fn detach(&self, receiver: usize) -> bool {
        let mut state = self.shared.lock();
        let members = state.groups.get(&self.id).map(|group| &group.members);
        let Some(&id) = members.and_then(|members| members.get(receiver)) else {
            return false;
        };
        let detached = state.machine.detach(self.shared.now(), id);
        self.shared.kick(state);
        detached.unwrap_or(false)
    }

    /// Aborts the connection to one receiver.
    pub fn abort(&self, receiver: usize) {
        let mut state = self.shared.lock();
        let members = state.groups.get(&self.id).map(|group| &group.members);
        if let Some(&id) = members.and_then(|members| members.get(receiver)) {
            let _ = state.machine.abort(self.shared.now(), id);
        }
        self.shared.kick(state);
    }
}

impl_write!(
    XmGroup,
    /// Ready when each receiver has everything or has failed.
);

impl Drop for XmGroup {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let _ = state.machine.close(self.shared.now(), self.id);
        state.remove_group(self.id);
        self.shared.kick(state);
        self.shared.release();
    }
}
