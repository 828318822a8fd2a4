//! The socket of a data node.

use std::os::fd::{AsFd, BorrowedFd};

use bfed::native::{ChannelId, NativeError, NativeFlow, Upcall};
use bfed::{Instant, NativeNet};
use bfed_external::{Channels, Greeting, Limits, Link, Part};

use super::ExternalConfig;
use super::port::{Ended, Port};
use crate::native::listing::MAX_LISTED;
use crate::native::{Counter, Network, PresentedFlow};

/// Most reads of the socket for one piece of data.
const READS: usize = 16;

/// The data side.
pub(super) struct ExternalNet {
    port: Port,
    channels: Channels,
    greeted: bool,
    now: Instant,
}

impl ExternalNet {
    pub(super) fn open(
        config: &ExternalConfig,
        greeting: Greeting,
        now: Instant,
    ) -> Result<Self, String> {
        let name = match greeting.part() {
            Part::Control => "control".to_owned(),
            Part::Data { part, .. } => format!("data-{part}"),
        };
        let limits = Limits {
            queue: config.queue,
        };
        Ok(ExternalNet {
            port: Port::open(config, &name)?,
            channels: Channels::new(greeting, limits),
            greeted: false,
            now,
        })
    }

    fn lose(&mut self, why: &Ended) {
        self.port.close(self.channels.link_mut(), why);
        self.channels.disconnected();
        self.greeted = false;
    }

    /// Writes what waits, and ends the connection if it cannot go on.
    fn write(&mut self) {
        self.channels.announce();
        if let Some(link) = self.channels.link_mut()
            && let Err(error) = self.port.write(link)
        {
            self.lose(&error.into());
        }
        self.channels.announce();
        if self.channels.is_ready() {
            self.port.wake();
        }
    }

    /// Returns the next data, reading as long as there is something to read, but at most [`READS`] times: frames without data
    /// must not keep the data node from its other work.
    fn next(&mut self, buffer: &mut [u8]) -> Result<Option<Upcall>, Ended> {
        for _ in 0..READS {
            let upcall = self.channels.poll_data(self.now, buffer)?;
            if upcall.is_some() {
                return Ok(upcall);
            }
            if let Some(client) = self.channels.link().and_then(Link::client)
                && !std::mem::replace(&mut self.greeted, true)
            {
                self.port.log_greeted(client);
            }
            if self.port.accept(self.now) {
                self.channels.connected(self.now);
            }
            let Some(link) = self.channels.link_mut() else {
                return Ok(None);
            };
            if !self.port.read(self.now, link)? {
                return Ok(None);
            }
        }
        self.port.wake();
        Ok(None)
    }
}

impl AsFd for ExternalNet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }
}

impl NativeNet for ExternalNet {
    fn allocate_channel(
        &mut self,
        now: Instant,
        flow: NativeFlow<'_>,
    ) -> Result<(ChannelId, Vec<u8>), NativeError> {
        self.channels.allocate_channel(now, flow)
    }

    fn subscribe(
        &mut self,
        now: Instant,
        flow: NativeFlow<'_>,
        channel: ChannelId,
        address: Option<&[u8]>,
    ) -> Result<(), NativeError> {
        self.channels.subscribe(now, flow, channel, address)
    }

    fn refresh(&mut self, now: Instant, flow: NativeFlow<'_>, channel: ChannelId) {
        self.channels.refresh(now, flow, channel);
    }

    fn unsubscribe(&mut self, now: Instant, flow: NativeFlow<'_>, channel: ChannelId) {
        self.channels.unsubscribe(now, flow, channel);
    }

    fn reclaim_channel(&mut self, now: Instant, flow: NativeFlow<'_>, channel: ChannelId) {
        self.channels.reclaim_channel(now, flow, channel);
    }

    fn send_data(
        &mut self,
        now: Instant,
        channel: ChannelId,
        data: &[u8],
    ) -> Result<(), NativeError> {
        match self.channels.send_data(now, channel, data) {
            Err(NativeError::Busy) => {
                // The socket may have room.
                self.write();
                self.channels.send_data(now, channel, data)
            }
            sent => sent,
        }
    }

    fn poll_upcall(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Upcall> {
        self.now = now;
        let upcall = self.next(buffer).unwrap_or_else(|why| {
            self.lose(&why);
            None
        });
        if upcall.is_none() {
            self.write();
        }
        upcall
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        self.port.handle_timeout(now);
        let link = self.channels.link_mut();
        if let Some(Err(closed)) = link.map(|link| link.handle_timeout(now)) {
            self.lose(&closed.into());
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let link = self.channels.link().and_then(Link::poll_timeout);
        link.into_iter().chain(self.port.poll_timeout()).min()
    }
}

impl Network for ExternalNet {
    fn set_paused(&mut self, channel: ChannelId, paused: bool) {
        self.channels.set_paused(self.now, channel, paused);
    }

    fn poll_writable(&mut self) -> Option<ChannelId> {
        self.channels.poll_writable()
    }

    fn flush(&mut self, _: Instant) {
        self.write();
    }

    fn counters(&self) -> Vec<Counter> {
        let mut counters = self.port.counters().to_vec();
        counters.extend(self.channels.counters());
        counters
    }

    fn gauges(&self) -> Vec<Counter> {
        self.channels.gauges().into()
    }

    fn presented(&self) -> Vec<PresentedFlow> {
        let all = self.channels.presented().take(MAX_LISTED + 1);
        all.map(|(session, flow, address)| PresentedFlow {
            session: session.clone(),
            flow: session.flows().position(|name| name == flow).unwrap_or(0),
            address: address.to_owned(),
            mime: None,
            readers: None,
            viewers: None,
        })
        .collect()
    }
}
