//! LTP's machines at the source and at the receivers as nodes, and the node of any sort.

use std::marker::PhantomData;
use std::rc::Rc;

use lms_proto::endpoint::{self, Election, Endpoint};
use lms_proto::{Iface, InterfaceConfig, Meta};
use ltp::store::Store;
use ltp::{Receiver, ReceiverEvent, Sender, SenderEvent, relayed};
use netsim::{Instant, Io, Machine, Node, Port};

use super::packets::{Incoming, incoming, outgoing};
use super::{Help, Plan, RelayNode, RouterNode, SUBNET_BITS, destination, is_link_local};

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

/// LTP's machine at the source, on its own or attached to a relay.
pub(crate) trait Sending<S: Store>:
    Machine<Meta = ltp::Meta, Transmit = ltp::Transmit> + 'static
{
    /// The sender itself.
    fn sender(&self) -> &Sender<'static, S>;
    /// The sender itself.
    fn sender_mut(&mut self) -> &mut Sender<'static, S>;
    /// The sender's event; `None` for one of the attachment.
    fn event(event: Self::Event) -> Option<SenderEvent>;
}

impl<S: Store + 'static> Sending<S> for Sender<'static, S> {
    fn sender(&self) -> &Sender<'static, S> {
        self
    }
    fn sender_mut(&mut self) -> &mut Sender<'static, S> {
        self
    }
    fn event(event: SenderEvent) -> Option<SenderEvent> {
        Some(event)
    }
}

impl<S: Store + 'static> Sending<S> for relayed::Sender<'static, S> {
    fn sender(&self) -> &Sender<'static, S> {
        self.sender()
    }
    fn sender_mut(&mut self) -> &mut Sender<'static, S> {
        self.sender_mut()
    }
    fn event(event: relayed::SenderEvent) -> Option<SenderEvent> {
        match event {
            relayed::SenderEvent::Sender(event) => Some(event),
            _ => None,
        }
    }
}

/// LTP's machine at a receiver, on its own or attached to a relay.
pub(crate) trait Receiving<S: Store>:
    Machine<Meta = ltp::Meta, Transmit = ltp::Transmit> + 'static
{
    /// The receiver itself.
    fn receiver(&self) -> &Receiver<'static, S>;
    /// The receiver's event; `None` for one of the attachment.
    fn event(event: Self::Event) -> Option<ReceiverEvent>;
}

impl<S: Store + 'static> Receiving<S> for Receiver<'static, S> {
    #[inline]
    fn receiver(&self) -> &Receiver<'static, S> {
        self
    }
    fn event(event: ReceiverEvent) -> Option<ReceiverEvent> {
        Some(event)
    }
}

impl<S: Store + 'static> Receiving<S> for relayed::Receiver<'static, S> {
    fn receiver(&self) -> &Receiver<'static, S> {
        self.receiver()
    }
    fn event(event: relayed::ReceiverEvent) -> Option<ReceiverEvent> {
        match event {
            relayed::ReceiverEvent::Receiver(event) => Some(event),
            _ => None,
        }
    }
}

/// The source and its application.
pub(crate) struct Source<T, A> {
    pub(crate) sender: T,
    pub(crate) application: A,
    plan: Rc<Plan>,
}

impl<T, A> Source<T, A> {
    pub(crate) fn new(plan: &Rc<Plan>, sender: T, application: A) -> Self {
        Self {
            sender,
            application,
            plan: Rc::clone(plan),
        }
    }

    fn drain<S: Store>(&mut self, now: Instant, io: &mut Io<'_>)
    where
        T: Sending<S>,
        A: Application<S>,
    {
        let mut buffer = [0; 1500];
        while let Some(transmit) = self.sender.poll_transmit(now, &mut buffer) {
            outgoing(&self.plan, 0, &transmit, &buffer, |packet| {
                io.send(Port(0), packet);
            });
        }
        while let Some(event) = self.sender.poll_event() {
            if let Some(event) = T::event(event) {
                self.application.event(&event);
            }
        }
    }
}

/// A receiver and replier; under [`Help::Live`] it offers itself to its router. What a data packet
/// touches comes first, beside the parts of the receiver that it touches.
#[repr(C, align(64))]
pub(crate) struct Host<S: Store + 'static, W, R = Receiver<'static, S>> {
    /// When the machines have something to do: asked once after each call.
    due: Option<Instant>,
    pub(crate) watch: W,
    pub(crate) receiver: R,
    store: PhantomData<S>,
    /// The timeout of LMS-HIER: read only after calls of it.
    endpoint_due: Option<Instant>,
    endpoint: Option<Box<Endpoint<'static>>>,
    plan: Rc<Plan>,
    node: u32,
}

impl<S: Store, W: Watcher, R: Receiving<S>> Host<S, W, R> {
    pub(crate) fn new(
        plan: &Rc<Plan>,
        node: u32,
        help: Help,
        receiver: R,
        seed: [u8; 32],
        watch: W,
    ) -> Self {
        let endpoint = (help == Help::Live).then(|| Box::new(endpoint(plan, node, seed)));
        let mut host = Self {
            due: None,
            watch,
            receiver,
            store: PhantomData,
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
        let receiver = self.receiver.receiver();
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
        self.hand_over_events(now);
        self.set_due();
        if self.due.is_some_and(|at| at <= now) {
            self.drain(now, io);
        }
    }

    fn hand_over_events(&mut self, now: Instant) {
        while let Some(event) = self.receiver.poll_event() {
            if let Some(event) = R::event(event) {
                self.watch.event(now, &event);
            }
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
        self.hand_over_events(now);
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
    let interface = InterfaceConfig::ipv4(plan.tree.address(node), SUBNET_BITS);
    let config = endpoint::Config::new(UPLINK.iface, interface);
    let storage = endpoint::Storage::owned(1);
    let seed = netsim::derive_seed(&seed, 1, 0);
    let mut endpoint = Endpoint::new(config, storage, seed, Instant::ZERO);
    endpoint
        .join(Instant::ZERO, plan.key(), plan.link_cost(node))
        .expect("there is room for one session");
    endpoint
}

/// Any node of the network: `T` sends, `R` receives, `N` routes.
pub(crate) enum Peer<S, A, W, T = Sender<'static, S>, R = Receiver<'static, S>, N = RouterNode>
where
    S: Store + 'static,
{
    Source(Box<Source<T, A>>),
    Router(N),
    Host(Box<Host<S, W, R>>),
}

/// [`Peer`] where relays help.
pub(crate) type RelayedPeer<S, A, W> =
    Peer<S, A, W, relayed::Sender<'static, S>, relayed::Receiver<'static, S>, RelayNode>;

impl<S, A, W, T, R, N> Node for Peer<S, A, W, T, R, N>
where
    S: Store + 'static,
    A: Application<S> + 'static,
    W: Watcher + 'static,
    T: Sending<S>,
    R: Receiving<S>,
    N: Node,
{
    #[inline]
    fn handle_packet(&mut self, now: Instant, port: Port, packet: &[u8], io: &mut Io<'_>) {
        match self {
            Self::Host(host) => host.handle_packet(now, packet, io),
            Self::Router(router) => router.handle_packet(now, port, packet, io),
            Self::Source(source) => {
                let Some(Incoming { meta, payload }) = incoming(packet, false) else {
                    return;
                };
                source.application.packet(payload);
                let _ = source.sender.handle_packet(now, &meta, payload); // counted there
                source.drain(now, io);
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant, io: &mut Io<'_>) {
        match self {
            Self::Host(host) => host.handle_timeout(now, io),
            Self::Router(router) => router.handle_timeout(now, io),
            Self::Source(source) => {
                source.application.feed(now, source.sender.sender_mut());
                source.sender.handle_timeout(now);
                source.drain(now, io);
            }
        }
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Host(host) => host.due,
            Self::Router(router) => router.poll_timeout(),
            Self::Source(source) => {
                let feed = source.application.poll_timeout();
                feed.into_iter().chain(source.sender.poll_timeout()).min()
            }
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
