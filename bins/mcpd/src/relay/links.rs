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
        let closer = Closer::new(&stream)?;
        if !self.links.answer(self.terms.link, closer.clone()) {
            return Ok(LinkState::Closed);
        }
        let link = child::accept(
            stream,
            preface,
            &self.terms,
            Arc::clone(&self.manifest),
            Arc::clone(&self.links.arrived),
        );
        let link = link.inspect_err(|_| closer.close())?;
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
    /// The connection on which a feeder has yet to prove that it knows the secret.
    handshake: Option<Closer>,
    feeder: Option<Closer>,
    children: BTreeMap<LinkId, Option<Closer>>,
}

impl State {
    fn expects(&self, link: LinkId) -> bool {
        !self.closed && self.next == Some(link)
    }
}

/// Whether the sender may have this host connect to `child`: a sender on another host must not reach the services on the
/// loopback addresses of this one.
pub(super) fn may_feed(child: IpAddr, sender: IpAddr) -> bool {
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

    /// Returns the address that the control connection comes from.
    pub(super) fn sender(&self) -> IpAddr {
        self.sender
    }

    /// Counts bytes of blocks that have arrived otherwise.
    pub(super) fn add_arrived(&self, len: u64) {
        self.arrived.fetch_add(len, Ordering::Relaxed);
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

    /// Begins the handshake with a feeder, unless another one is expected by now or the copy is over. One handshake runs
    /// at a time: a sender that arranges links faster than their feeders answer would collect threads.
    fn answer(&self, link: LinkId, closer: Closer) -> bool {
        let mut state = self.lock();
        if !state.expects(link) {
            return false;
        }
        if let Some(before) = state.handshake.replace(closer) {
            before.close();
        }
        true
    }

    /// Keeps what closes the link to the feeder, unless another one is expected by now or the copy is over. The link
    /// before is closed.
    fn keep(&self, link: LinkId, closer: Closer) -> bool {
        let mut state = self.lock();
        if !state.expects(link) {
            return false;
        }
        state.handshake = None;
        if let Some(before) = state.feeder.replace(closer) {
            before.close();
        }
        true
    }

    /// Feeds another host, in a thread of its own.
    pub(crate) fn feed(self: &Arc<Self>, feed: Feed, manifest: Arc<Manifest>, shelf: Arc<Shelf>) {
        {
            let mut state = self.lock();
            let is_reachable = may_feed(feed.child.ip(), self.sender);
            // A link that is repeated would replace its entry, and so escape the count.
            let is_new = !state.children.contains_key(&feed.link);
            let has_room = state.children.len() < MAX_CHILDREN;
            if state.closed || !has_room || !is_new || !is_reachable {
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
        let (handshake, feeder) = (state.handshake.take(), state.feeder.take());
        for link in [handshake, feeder].into_iter().flatten() {
            link.close();
        }
        for child in state.children.values().flatten() {
            child.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::Duration;

    use mcp_control::wire::relay::LinkSecret;

    use super::*;

    /// Less than the timeout of a handshake: what is closed by then was closed for another reason.
    const SOON: Duration = Duration::from_secs(3);

    fn links() -> (Arc<Links>, Arc<Expected>, reports::Receiver<LinkReport>) {
        let expected = Arc::new(Expected::default());
        let (to_sender, reports) = reports::channel(MAX_LINK_REPORTS);
        let here = Ipv4Addr::LOCALHOST.into();
        let links = Links::new(Arc::clone(&expected), Arc::default(), here, to_sender);
        (Arc::new(links), expected, reports)
    }

    fn terms(link: u8) -> Terms {
        Terms {
            link: LinkId([link; 16]),
            secret: LinkSecret([9; 32]),
            sealed: false,
        }
    }

    /// A sender may announce link after link, and have feeders connect that never prove anything.
    #[test]
    fn one_handshake_with_a_feeder_runs_at_a_time_and_none_after_the_copy() {
        let (links, expected, _reports) = links();
        let (orders, _worker) = mpsc::channel();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let connect = |link: u8| {
            links.expect(terms(link), Arc::default(), orders.clone());
            let mut feeder = TcpStream::connect(address).expect("connected");
            let (stream, _) = listener.accept().expect("a feeder");
            let preface = Preface {
                sealed: false,
                link: LinkId([link; 16]),
                nonce: [1; 32],
            };
            assert!(expected.take(stream, preface).expect("a thread"));
            feeder.set_read_timeout(Some(SOON)).expect("a timeout");
            let mut accept = [0; mcp_control::wire::link::ACCEPT_LEN];
            feeder.read_exact(&mut accept).expect("an answer");
            feeder
        };
        let (mut first, mut second) = (connect(1), connect(2));
        assert_eq!(first.read(&mut [0]).expect("closed, and not in time"), 0);
        links.close();
        assert_eq!(second.read(&mut [0]).expect("closed with the copy"), 0);
    }

    /// Otherwise a sender would have any number of connections opened by repeating one FEED.
    #[test]
    fn a_link_that_is_announced_again_is_refused() {
        let (links, _expected, mut reports) = links();
        let folder = tempfile::tempdir().expect("a folder");
        let shelf = Shelf::new(folder.path(), Arc::default(), Arc::default());
        let shelf = Arc::new(shelf.expect("a shelf"));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let feed = Feed {
            link: LinkId([1; 16]),
            secret: LinkSecret([9; 32]),
            child: listener.local_addr().expect("an address"),
            sealed: false,
        };
        links.feed(feed, Arc::default(), Arc::clone(&shelf));
        let (mut child, _) = listener.accept().expect("the feeder");
        assert!(reports.try_recv().is_err(), "the first is not refused");
        links.feed(feed, Arc::default(), shelf);
        let refused = reports.try_recv().expect("a report");
        assert_eq!(
            (refused.link, refused.state),
            (feed.link, LinkState::Refused)
        );
        listener.set_nonblocking(true).expect("set");
        assert!(listener.accept().is_err(), "one connection");
        child.write_all(&[0; 64]).expect("sent");
        links.close();
    }

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
