//! The links of one copy, and the feeders that are expected to connect.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use mcp_control::Manifest;
use mcp_control::wire::link::Preface;
use mcp_control::wire::relay::{Feed, LinkId, LinkReport, LinkState};
use mcp_relay::child::{self, Answer};
use mcp_relay::{Closer, Terms, feeder};
use tokio::sync::mpsc as reports;

use super::shelf::Shelf;
use crate::activity::Activity;
use crate::worker::Order;

/// Children of one copy.
const MAX_CHILDREN: usize = 8;
/// Reports of links that may wait for the control connection; more are dropped, and the sender sees that nothing arrives.
pub(crate) const MAX_LINK_REPORTS: usize = 64;

/// Feeders that may connect, of all copies.
#[derive(Debug, Default)]
pub(crate) struct Expected(Mutex<BTreeMap<LinkId, Feeder>>);

/// A feeder that may connect.
#[derive(Debug)]
struct Feeder {
    terms: Terms,
    manifest: Arc<Manifest>,
    orders: mpsc::Sender<Order>,
    links: Arc<Links>,
}

impl Expected {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<LinkId, Feeder>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection whose preface was read. Returns false when no such feeder is expected.
    pub(crate) fn take(&self, stream: TcpStream, preface: Preface) -> io::Result<bool> {
        let Some(feeder) = self.lock().remove(&preface.link) else {
            return Ok(false);
        };
        std::thread::Builder::new()
            .name("feeder".to_owned())
            .spawn(move || feeder.run(stream, &preface))?;
        Ok(true)
    }
}

impl Feeder {
    fn run(self, stream: TcpStream, preface: &Preface) {
        let state = self.receive(stream, preface).unwrap_or(LinkState::Closed);
        // The worker may have everything, and have ended.
        let _ = self.orders.send(Order::Unlinked(self.terms.link, state));
    }

    /// Hands the answers of the feeder to the worker until the link ends.
    fn receive(&self, stream: TcpStream, preface: &Preface) -> io::Result<LinkState> {
        let link = child::accept(
            stream,
            preface,
            &self.terms,
            Arc::clone(&self.manifest),
            Arc::clone(&self.links.arrived),
        )?;
        if !self.links.keep(self.terms.link, link.asker.closer()) {
            return Ok(LinkState::Closed);
        }
        let round_trip_us = u32::try_from(link.round_trip.as_micros()).unwrap_or(u32::MAX);
        let (id, mut blocks) = (self.terms.link, link.blocks);
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        let linked = Order::Linked(id, Box::new(link.asker));
        self.orders.send(linked).map_err(gone)?;
        self.links.report(id, LinkState::Open { round_trip_us });
        loop {
            match blocks.read()? {
                Answer::Block(block, bytes) => {
                    let arrived = Order::Arrived(id, block, bytes);
                    self.orders.send(arrived).map_err(gone)?;
                }
                Answer::Gone(block) => return Ok(LinkState::Gone { block }),
            }
        }
    }
}

/// The links of one copy; all are closed with its control connection.
#[derive(Debug)]
pub(crate) struct Links {
    expected: Arc<Expected>,
    activity: Arc<Activity>,
    /// Where the control connection comes from.
    sender: IpAddr,
    reports: reports::Sender<LinkReport>,
    /// Bytes of blocks that feeders have sent.
    arrived: Arc<AtomicU64>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    /// The feeder that is expected.
    next: Option<LinkId>,
    feeder: Option<Closer>,
    children: BTreeMap<LinkId, Option<Closer>>,
}

/// Whether the sender may have this host connect to `child`: a sender elsewhere has no business with what listens on
/// the loopback addresses of this host.
fn may_feed(child: IpAddr, sender: IpAddr) -> bool {
    let (child, sender) = (child.to_canonical(), sender.to_canonical());
    let is_unicast = !child.is_multicast() && child != IpAddr::V4(Ipv4Addr::BROADCAST);
    // Connecting to the unspecified address reaches loopback.
    is_unicast && !child.is_unspecified() && (!child.is_loopback() || sender.is_loopback())
}

impl Links {
    pub(crate) fn new(
        expected: Arc<Expected>,
        activity: Arc<Activity>,
        sender: IpAddr,
        reports: reports::Sender<LinkReport>,
    ) -> Links {
        Links {
            expected,
            activity,
            sender,
            reports,
            arrived: Arc::default(),
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes of blocks that feeders have sent.
    pub(crate) fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed)
    }

    /// Reports the state of a link to the sender.
    pub(crate) fn report(&self, link: LinkId, state: LinkState) {
        let _ = self.reports.try_send(LinkReport { link, state });
    }

    /// Expects a feeder, in place of the one before.
    pub(crate) fn expect(
        self: &Arc<Self>,
        terms: Terms,
        manifest: Arc<Manifest>,
        orders: mpsc::Sender<Order>,
    ) {
        let mut state = self.lock();
        let mut expected = self.expected.lock();
        if let Some(before) = state.next.replace(terms.link) {
            expected.remove(&before);
        }
        let feeder = Feeder {
            terms,
            manifest,
            orders,
            links: Arc::clone(self),
        };
        expected.insert(terms.link, feeder);
    }

    /// Keeps what closes the link to the feeder, unless another one is expected by now or the copy is over.
    fn keep(&self, link: LinkId, closer: Closer) -> bool {
        let mut state = self.lock();
        if state.closed || state.next != Some(link) {
            return false;
        }
        state.feeder = Some(closer);
        true
    }

    /// Feeds another host, in a thread of its own.
    pub(crate) fn feed(self: &Arc<Self>, feed: Feed, manifest: Arc<Manifest>, shelf: Arc<Shelf>) {
        {
            let mut state = self.lock();
            let is_reachable = may_feed(feed.child.ip(), self.sender);
            if state.closed || state.children.len() >= MAX_CHILDREN || !is_reachable {
                drop(state);
                self.report(feed.link, LinkState::Refused);
                return;
            }
            state.children.insert(feed.link, None);
        }
        self.activity.child_began();
        let links = Arc::clone(self);
        let serve = move || {
            links.serve(&feed, &manifest, &shelf);
            links.ended(feed.link);
        };
        let thread = std::thread::Builder::new().name("child".to_owned());
        if thread.spawn(serve).is_err() {
            self.ended(feed.link);
            self.report(feed.link, LinkState::Refused);
        }
    }

    fn serve(&self, feed: &Feed, manifest: &Arc<Manifest>, shelf: &Shelf) {
        let terms = Terms {
            link: feed.link,
            secret: feed.secret,
            sealed: feed.sealed,
        };
        let link = match feeder::connect(&terms, feed.child) {
            Ok(link) => link,
            Err(error) => {
                tracing::debug!(event = "link_failed", child = %feed.child, %error, "cannot feed");
                self.report(feed.link, LinkState::Unreachable);
                return;
            }
        };
        {
            let mut state = self.lock();
            if state.closed {
                return;
            }
            state.children.insert(feed.link, Some(link.closer()));
        }
        if let Err(error) = link.serve(manifest, shelf) {
            tracing::debug!(event = "link_broken", child = %feed.child, %error, "stopped feeding");
        }
    }

    fn ended(&self, link: LinkId) {
        self.lock().children.remove(&link);
        self.activity.child_ended();
    }

    /// Closes every link.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        if let Some(next) = state.next.take() {
            self.expected.lock().remove(&next);
        }
        if let Some(feeder) = state.feeder.take() {
            feeder.close();
        }
        for child in state.children.values().flatten() {
            child.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_elsewhere_cannot_have_loopback_addresses_connected_to() {
        let may_feed = |child: &str, sender: &str| {
            let parse = |text: &str| text.parse().expect("an address");
            may_feed(parse(child), parse(sender))
        };
        for loopback in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert!(!may_feed(loopback, "192.0.2.1"), "{loopback}");
            assert!(!may_feed(loopback, "2001:db8::1"), "{loopback}");
            assert!(may_feed(loopback, "127.0.0.1") && may_feed(loopback, "::1"));
        }
        for nobody in [
            "0.0.0.0",
            "::",
            "::ffff:0.0.0.0",
            "255.255.255.255",
            "224.0.0.1",
            "ff02::1",
        ] {
            assert!(
                !may_feed(nobody, "192.0.2.1") && !may_feed(nobody, "127.0.0.1"),
                "{nobody}"
            );
        }
        for other in ["192.0.2.7", "10.0.0.1", "2001:db8::7", "fe80::1"] {
            assert!(may_feed(other, "192.0.2.1"), "{other}");
        }
    }
}
