//! LTP's machines at the source and at the receivers as nodes, and the node of any sort.

use std::rc::Rc;

use lms_proto::endpoint::{self, Election, Endpoint};
use lms_proto::{Iface, InterfaceConfig, Meta};
use ltp::store::Store;
use ltp::{Receiver, ReceiverEvent, Sender, SenderEvent};
use netsim::{Instant, Io, Node, Port};

use super::packets::{incoming, outgoing};
use super::{Help, Plan, RouterNode, SUBNET_BITS, destination, is_link_local};

/// The source application: supplies a sender with data and receives its events.
pub(crate) trait Application<S: Store> {
    /// When [`Application::feed`] is due.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
    /// Supplies the data that is due.
    fn feed(&mut self, now: Instant, sender: &mut Sender<'static, S>) {
        let _ = (now, sender);
    }
    /// A packet reached the source.
    fn packet(&mut self, payload: &[u8]) {
        let _ = payload;
    }
    /// The sender has an event.
    fn event(&mut self, event: &SenderEvent) {
        let _ = event;
    }
}

/// Observes a receiver.
pub(crate) trait Watcher {
    /// A packet reached the receiver.
    fn packet(&mut self, now: Instant, payload: &[u8]) {
        let _ = (now, payload);
    }
    /// The receiver has an event.
    fn event(&mut self, now: Instant, event: &ReceiverEvent) {
        let _ = (now, event);
    }
}

/// The source and its application.
pub(crate) struct Source<S: Store, A> {
    pub(crate) sender: Sender<'static, S>,
    pub(crate) application: A,
    plan: Rc<Plan>,
}

impl<S: Store, A: Application<S>> Source<S, A> {
    pub(crate) fn new(plan: &Rc<Plan>, sender: Sender<'static, S>, application: A) -> Self {
        Self {
            sender,
            application,
            plan: Rc::clone(plan),
        }
    }

    fn handle_packet(&mut self, now: Instant, packet: &[u8], io: &mut Io<'_>) {
        let Some(incoming) = incoming(packet, false) else {
            return;
        };
        self.application.packet(incoming.payload);
        let (meta, payload) = (&incoming.meta, incoming.payload);
        let _ = self.sender.handle_packet(now, meta, payload); // counted there
        self.drain(now, io);
    }

    fn handle_timeout(&mut self, now: Instant, io: &mut Io<'_>) {
        self.application.feed(now, &mut self.sender);
        self.sender.handle_timeout(now);
        self.drain(now, io);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let feed = self.application.poll_timeout();
        feed.into_iter().chain(self.sender.poll_timeout()).min()
    }

    fn drain(&mut self, now: Instant, io: &mut Io<'_>) {
        let mut buffer = [0; 1500];
        while let Some(transmit) = self.sender.poll_transmit(now, &mut buffer) {
            outgoing(&self.plan, 0, &transmit, &buffer, |packet| {
                io.send(Port(0), packet);
            });
        }
        while let Some(event) = self.sender.poll_event() {
            self.application.event(&event);
        }
    }
}

/// A receiver and replier; under [`Help::Live`] it offers itself to its router. What a data packet
/// touches comes first, beside the parts of the receiver that it touches.
#[repr(C, align(64))]
pub(crate) struct Host<S: Store, W> {
    /// When the machines have something to do: asked once after each call.
    due: Option<Instant>,
    pub(crate) watch: W,
    pub(crate) receiver: Receiver<'static, S>,
    /// The timeout of LMS-HIER: read only after calls of it.
    endpoint_due: Option<Instant>,
    endpoint: Option<Box<Endpoint<'static>>>,
    plan: Rc<Plan>,
    node: u32,
}

impl<S: Store, W: Watcher> Host<S, W> {
    pub(crate) fn new(
        plan: &Rc<Plan>,
        node: u32,
        help: Help,
        receiver: Receiver<'static, S>,
        seed: [u8; 32],
        watch: W,
    ) -> Self {
        let endpoint = (help == Help::Live).then(|| Box::new(endpoint(plan, node, seed)));
        let mut host = Self {
            due: None,
            watch,
            receiver,
            endpoint_due: endpoint
                .as_ref()
                .and_then(|endpoint| endpoint.poll_timeout()),
            endpoint,
            plan: Rc::clone(plan),
            node,
        };
        host.set_due();
        host
    }

    /// Reads what a data packet will touch.
    fn touch(&self) -> u64 {
        let receiver = &self.receiver;
        let due = receiver.poll_timeout().map_or(0, |at| at.total_micros());
        let session = receiver.session().is_some();
        receiver.newest_block() ^ due as u64 ^ u64::from(session) ^ receiver.stats().data_packets
    }

    fn set_due(&mut self) {
        self.due = match (self.receiver.poll_timeout(), self.endpoint_due) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }

    #[inline]
    fn handle_packet(&mut self, now: Instant, packet: &[u8], io: &mut Io<'_>) {
        let Some((destination, plain)) = destination(packet) else {
            return;
        };
        if let Some(endpoint) = &mut self.endpoint
            && is_link_local(destination)
        {
            let _ = endpoint.handle_packet(now, &UPLINK, packet); // counted there
            self.drain(now, io);
            return;
        }
        // Only requests carry options, and only of them this is asked.
        let elected = plain || self.is_elected();
        let Some(incoming) = incoming(packet, elected) else {
            return;
        };
        self.watch.packet(now, incoming.payload);
        let (meta, payload) = (&incoming.meta, incoming.payload);
        let _ = self.receiver.handle_packet(now, meta, payload); // counted there
        // Output that waits shows as a timeout that has come: most packets cause none.
        while let Some(event) = self.receiver.poll_event() {
            self.watch.event(now, &event);
        }
        self.set_due();
        if self.due.is_some_and(|at| at <= now) {
            self.drain(now, io);
        }
    }

    /// Whether it is this host's part to answer requests; alone on its link it is, without LMS-HIER.
    fn is_elected(&self) -> bool {
        let key = self.plan.key();
        let endpoint = self.endpoint.as_ref();
        endpoint.is_none_or(|endpoint| endpoint.election(key) == Election::Me)
    }

    fn handle_timeout(&mut self, now: Instant, io: &mut Io<'_>) {
        self.receiver.handle_timeout(now);
        if let Some(endpoint) = &mut self.endpoint {
            endpoint.handle_timeout(now);
        }
        self.drain(now, io);
    }

    fn drain(&mut self, now: Instant, io: &mut Io<'_>) {
        let mut buffer = [0; 1500];
        while let Some(transmit) = self.receiver.poll_transmit(now, &mut buffer) {
            outgoing(&self.plan, self.node, &transmit, &buffer, |packet| {
                io.send(Port(0), packet);
            });
        }
        while let Some(event) = self.receiver.poll_event() {
            self.watch.event(now, &event);
        }
        if let Some(endpoint) = &mut self.endpoint {
            while let Some(transmit) = endpoint.poll_transmit(now, &mut buffer) {
                io.send(Port(0), &buffer[..transmit.len]);
            }
            while endpoint.poll_event().is_some() {}
            self.endpoint_due = endpoint.poll_timeout();
        }
        self.set_due();
    }
}

/// How packets come to a host's LMS endpoint.
const UPLINK: Meta = Meta {
    iface: Iface(0),
    link_source: None,
};

/// The host's side of LMS-HIER, which offers to be a replier from the start.
fn endpoint(plan: &Plan, node: u32, seed: [u8; 32]) -> Endpoint<'static> {
    let interface = InterfaceConfig {
        address: plan.tree.address(node),
        prefix_len: SUBNET_BITS,
    };
    let config = endpoint::Config::new(UPLINK.iface, interface);
    let storage = endpoint::Storage::owned(1);
    let seed = netsim::derive_seed(&seed, 1, 0);
    let mut endpoint = Endpoint::new(config, storage, seed, Instant::ZERO);
    endpoint
        .join(Instant::ZERO, plan.key(), plan.link_cost(node))
        .expect("there is room for one session");
    endpoint
}

/// Any node of the network.
pub(crate) enum Peer<S: Store, A, W> {
    Source(Box<Source<S, A>>),
    Router(RouterNode),
    Host(Box<Host<S, W>>),
}

impl<S, A, W> Node for Peer<S, A, W>
where
    S: Store + 'static,
    A: Application<S> + 'static,
    W: Watcher + 'static,
{
    #[inline]
    fn handle_packet(&mut self, now: Instant, port: Port, packet: &[u8], io: &mut Io<'_>) {
        match self {
            Self::Host(host) => host.handle_packet(now, packet, io),
            Self::Router(router) => router.handle_packet(now, port, packet, io),
            Self::Source(source) => source.handle_packet(now, packet, io),
        }
    }

    fn handle_timeout(&mut self, now: Instant, io: &mut Io<'_>) {
        match self {
            Self::Host(host) => host.handle_timeout(now, io),
            Self::Router(router) => router.handle_timeout(now, io),
            Self::Source(source) => source.handle_timeout(now, io),
        }
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Host(host) => host.due,
            Self::Router(router) => router.poll_timeout(),
            Self::Source(source) => source.poll_timeout(),
        }
    }

    #[inline]
    fn touch(&self) -> u64 {
        match self {
            Self::Host(host) => host.touch(),
            Self::Router(router) => router.touch(),
            Self::Source(_) => 0,
        }
    }
}
