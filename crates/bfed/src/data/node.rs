//! A data node: executes the messages of its control node (§5.3.1, §5.3.2) and owns the forwarding plane.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, SocketAddr};

use proto_core::Forward;
use proto_core::time::{Duration, Instant};

use super::control_link::ControlLink;
use super::dialer::Dialer;
use super::session::Context;
use super::sessions::SessionTable;
use super::{DataError, Destination, EdgeId, Meta, Plane, PlaneConfig, Transmit, Verdict};
use crate::name::SessionName;
use crate::native::NativeNet;
use crate::types::{ConnId, KeyDigest, NodeId};
use crate::wire::Message;
use crate::wire::allocate::{Outcome, Response};
use crate::wire::join::FlowChannel;
use crate::wire::subscribe::Repr as Subscribe;

/// Configuration of a data node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DataConfig {
    /// Number of the node in its gateway.
    pub node: NodeId,
    /// Where peers reach its UDP socket; `None` if it carries no real-time sessions between gateways.
    pub datagram: Option<SocketAddr>,
    /// SHA-256 of the certificate that it shows over QUIC, at the address of the UDP socket; `None` if it does not speak
    /// QUIC.
    pub key: Option<KeyDigest>,
    /// Where peers reach its TCP listener; `None` if it carries no bulk sessions between gateways.
    pub stream: Option<SocketAddr>,
    /// Most sessions. A request for one more is answered with "full".
    pub max_sessions: u32,
    /// How long a session lives without a refresh while the control node is connected.
    pub soft_state_lifetime: Duration,
    /// Time between heartbeats.
    pub heartbeat_interval: Duration,
    /// Time between statistics.
    pub statistics_interval: Duration,
    /// Most messages that wait for the control node. One more ends the stream.
    pub max_queue: usize,
    /// Limits of the plane.
    pub plane: PlaneConfig,
}

impl DataConfig {
    /// Returns the default configuration.
    #[must_use]
    pub fn new(node: NodeId) -> Self {
        DataConfig {
            node,
            datagram: None,
            key: None,
            stream: None,
            max_sessions: 10_000,
            soft_state_lifetime: Duration::from_secs(105),
            heartbeat_interval: Duration::from_millis(250),
            statistics_interval: Duration::from_secs(1),
            max_queue: 32_768,
            plane: PlaneConfig::default(),
        }
    }
}

/// What a data node's driver has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataEvent {
    /// Open a TCP channel to the address, then call `dialled` or `dial_failed`.
    Dial {
        /// The edge that needs it.
        edge: EdgeId,
        /// The address.
        to: SocketAddr,
    },
    /// Close the TCP channel.
    Close(ConnId),
    /// Stop reading from the source: a receiver cannot keep up.
    Pause(Destination),
    /// Resume reading from the source.
    Resume(Destination),
    /// The control node is silent: close the stream, and open another to it or to its successor. Forwarding continues.
    ControlLost,
}

/// What a data node sends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeTransmit {
    /// A message to the control node.
    Control {
        /// Its length in bytes.
        len: usize,
    },
    /// A packet of the plane.
    Data(Transmit),
}

/// A data node.
///
/// It owns its native network, which the driver reaches by [`native_mut`](DataNode::native_mut) to send and receive.
pub struct DataNode<N: NativeNet + ?Sized = dyn NativeNet> {
    config: DataConfig,
    plane: Plane,
    control: ControlLink,
    sessions: SessionTable,
    dialer: Dialer,
    native: Box<N>,
}

impl<N: NativeNet + ?Sized> fmt::Debug for DataNode<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataNode")
            .field("config", &self.config)
            .field("control", &self.control)
            .field("sessions", &self.sessions)
            .finish_non_exhaustive()
    }
}

impl<N: NativeNet + ?Sized> DataNode<N> {
    /// Creates a data node without a stream to its control node.
    #[must_use]
    pub fn new(config: DataConfig, native: Box<N>, seed: [u8; 32], now: Instant) -> Self {
        let mut plane = Plane::new(config.plane, seed, now);
        DataNode {
            control: ControlLink::new(plane.new_label().get(), now),
            sessions: SessionTable::new(now, &config),
            dialer: Dialer::new(),
            plane,
            config,
            native,
        }
    }

    /// Returns the plane, which forwards.
    #[inline]
    pub fn plane(&mut self) -> &mut Plane {
        &mut self.plane
    }

    /// Returns the native network.
    #[must_use]
    pub fn native(&self) -> &N {
        &self.native
    }

    /// Returns the native network, for the driver to send and receive with.
    #[inline]
    pub fn native_mut(&mut self) -> &mut N {
        &mut self.native
    }

    /// Returns whether the control node named data nodes at that address: sessions come from there or go there.
    #[must_use]
    pub fn is_neighbour(&self, address: IpAddr) -> bool {
        self.plane.liveness.is_neighbour(address)
    }

    /// Returns the number of its sessions.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Starts a stream to the control node. Sessions get their full lifetime.
    pub fn connected(&mut self, now: Instant) {
        self.control.connected(now, &self.config);
        self.sessions.connected(now, &self.config);
        self.plane.liveness.report_all();
    }

    /// Returns whether the machine considers the stream to the control node alive.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.control.is_up()
    }

    /// Ends the stream to the control node. Forwarding continues.
    pub fn disconnected(&mut self) {
        self.control.disconnected();
        self.sessions.disconnected();
    }

    /// Says whether the stream to the control node takes no more bytes for now.
    pub fn set_control_blocked(&mut self, blocked: bool) {
        self.control.set_blocked(blocked);
    }

    /// Asks the control node to move the sessions of this node to others.
    pub fn drain(&mut self, now: Instant) {
        self.control.drain(now);
    }

    /// Hands over a TCP channel that [`DataEvent::Dial`] asked for. Returns `false` if it is no longer needed.
    pub fn dialled(&mut self, edge: EdgeId, conn: ConnId) -> bool {
        if !self.plane.set_stream(edge, conn) {
            return false;
        }
        let now = self.plane.now;
        if let Some(edge) = self.plane.edge_mut(edge) {
            edge.rest.dialled_at = Some(now);
        }
        self.plane.attach.push_back(edge);
        true
    }

    /// Reports that a TCP channel cannot be opened, or has ended. Another is requested after one second, and after
    /// further failures in a row after up to 16 seconds, while the edge needs it.
    pub fn dial_failed(&mut self, now: Instant, id: EdgeId, to: SocketAddr) {
        if let Some(edge) = self.plane.edge_mut(id) {
            self.dialer.failed(now, id, edge, to);
        }
    }

    /// Reports that a TCP channel has ended.
    pub fn stream_ended(&mut self, now: Instant, conn: ConnId) {
        let edge = self.plane.stream_ended(conn);
        if let Some((id, edge)) = edge.and_then(|id| Some((id, self.plane.edge(id)?)))
            && edge.up
            && let Some(to) = edge.rest.remote
        {
            self.dial_failed(now, id, to);
        }
    }

    /// Handles one whole message of the control node. There is no metadata.
    ///
    /// # Errors
    /// The message was refused and counted.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        _meta: &(),
        message: &[u8],
    ) -> Result<(), DataError> {
        let result = self.handle_message(now, message);
        if let Err(reason) = result {
            self.plane.stats.drop(reason, 1);
        }
        result
    }

    fn handle_message(&mut self, now: Instant, message: &[u8]) -> Result<(), DataError> {
        self.plane.now = now;
        let message = Message::parse(message).map_err(|_| DataError::BadControl)?;
        let epoch = match &message {
            Message::Heartbeat(heartbeat) => heartbeat.epoch,
            Message::Allocate(request) => request.epoch,
            Message::Subscribe(request) => request.epoch,
            Message::Reclaim(reclaim) => reclaim.epoch,
            Message::Notification(_) => return Ok(()),
            _ => return Err(DataError::BadControl),
        };
        self.control.received(now, epoch)?;
        let (sessions, mut cx) = self.split(now);
        match message {
            Message::Heartbeat(heartbeat) if heartbeat.complete => sessions.complete(),
            Message::Allocate(request) => {
                let result = sessions.update(&mut cx, &request.session, |session, cx| {
                    session.allocate(cx, request.edge, request.transport)
                });
                self.respond(request.request, request.session, result);
            }
            Message::Subscribe(request) => self.subscribe(now, request),
            Message::Reclaim(reclaim) => sessions.reclaim(&mut cx, reclaim),
            _ => {}
        }
        Ok(())
    }

    /// Returns the sessions, and the state needed to change them.
    fn split(&mut self, now: Instant) -> (&mut SessionTable, Context<'_, N>) {
        let cx = Context {
            now,
            config: &self.config,
            plane: &mut self.plane,
            native: &mut *self.native,
        };
        (&mut self.sessions, cx)
    }

    fn subscribe(&mut self, now: Instant, request: Subscribe) {
        let (sessions, mut cx) = self.split(now);
        let result = sessions.update(&mut cx, &request.session, |session, cx| match request.up {
            true => session
                .set_source(cx, request.edge, request.flows)
                .map(|()| Vec::new()),
            false => session.add_receiver(cx, request.edge, request.flows),
        });
        self.respond(request.request, request.session, result);
    }

    fn respond(
        &mut self,
        request: u32,
        session: SessionName,
        result: Result<Vec<FlowChannel>, Outcome>,
    ) {
        let (outcome, flows) = match result {
            Ok(flows) => (Outcome::Done, flows),
            Err(outcome) => (outcome, Vec::new()),
        };
        self.send(Message::AllocateResponse(Response {
            request,
            outcome,
            flows,
            session,
        }));
    }

    fn send(&mut self, message: Message) {
        if self.control.send(message, self.config.max_queue) {
            self.plane.events.push_back(DataEvent::ControlLost);
        }
    }

    /// Handles the passing of time, for the native network too.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.plane.handle_timeout(now);
        self.plane
            .probe_neighbours(now, self.config.heartbeat_interval);
        self.control_timeout(now);
        self.dialer.handle_timeout(now, &mut self.plane);
        self.native.handle_timeout(now);
    }

    /// Queues what the control node must receive in time, before anything that takes long.
    fn control_timeout(&mut self, now: Instant) {
        if !self.control.is_up() {
            return;
        }
        let interval = self.config.heartbeat_interval;
        if self.control.is_lost(now, interval) {
            self.disconnected();
            self.plane.events.push_back(DataEvent::ControlLost);
            return;
        }
        for change in self.plane.liveness.poll_changes() {
            self.send(Message::Liveness(change));
        }
        if let Some(heartbeat) = self.control.poll_heartbeat(now, interval) {
            self.send(heartbeat);
        }
        let statistics = self
            .sessions
            .poll_statistics(now, &self.config, &self.plane);
        if let Some(statistics) = statistics {
            self.send(Message::Statistics(statistics));
        }
        let (sessions, mut cx) = self.split(now);
        sessions.handle_timeout(&mut cx);
    }

    /// Writes the next message to the control node or packet of the plane into `buffer`; drain until `None`. What does
    /// not fit is kept for a larger buffer.
    ///
    /// A driver with separate buffers calls [`poll_transmit_control`](DataNode::poll_transmit_control) and
    /// [`Plane::poll_transmit`].
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<NodeTransmit> {
        if self.control.is_ready() {
            let len = self.control.poll_transmit(buffer)?;
            return Some(NodeTransmit::Control { len });
        }
        self.plane
            .poll_transmit(now, buffer)
            .map(NodeTransmit::Data)
    }

    /// Writes the next message to the control node into `buffer`, which should have room for
    /// [`MAX_MESSAGE_LEN`](crate::wire::MAX_MESSAGE_LEN) bytes, and returns its length. Drain until `None`.
    pub fn poll_transmit_control(&mut self, buffer: &mut [u8]) -> Option<usize> {
        self.control.poll_transmit(buffer)
    }

    /// Returns what the driver has to do; drain until `None`.
    pub fn poll_event(&mut self) -> Option<DataEvent> {
        self.plane.events.pop_front().or_else(|| {
            let (edge, to) = self.dialer.poll(&mut self.plane)?;
            Some(DataEvent::Dial { edge, to })
        })
    }

    /// Returns when to call [`handle_timeout`](Self::handle_timeout); at once while there are events, because the
    /// last ones may have caused more.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let interval = self.config.heartbeat_interval;
        let is_busy = !self.plane.dials.is_empty() || self.sessions.is_releasing();
        if is_busy || self.control.is_ready() {
            return Some(self.plane.now);
        }
        let control = self
            .control
            .poll_timeout(interval)
            .min(self.sessions.poll_timeout());
        [
            self.plane.poll_timeout(),
            self.control.is_up().then_some(control),
            self.dialer.poll_timeout(),
            self.plane.liveness.poll_timeout(),
            self.native.poll_timeout(),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

// A packet is a message of the control node. Packets of data go to `Forward`.
proto_core::impl_machine! {
    impl[N: NativeNet + ?Sized] DataNode<N> {
        Meta = (); Transmit = NodeTransmit; Event = DataEvent; Error = DataError;
    }
}

impl<N: NativeNet + ?Sized> Forward for DataNode<N> {
    type Meta = Meta;
    type Verdict = Verdict;

    fn forward(&mut self, now: Instant, meta: &Meta, packet: &mut [u8]) -> Verdict {
        self.plane.forward(now, meta, packet)
    }
}
