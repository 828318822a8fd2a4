//! Nodes and their interface to the simulator.

use std::any::Any;

use proto_core::time::Instant;

use crate::core::Core;
use crate::packet::PacketId;

/// Number of a node: 0, 1, 2 ... in the order in which nodes were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// Number of a link: 0, 1, 2 ... in the order in which links were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// One of a node's links, numbered 0, 1, 2 ... in the order in which they were attached to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port(pub u16);

/// A participant: a protocol machine and its driver.
///
/// The simulator calls [`Node::poll_timeout`] after every other call, and [`Node::handle_timeout`] when that time
/// has come. A node with work to do at once returns the present, or any earlier time; this also applies right after
/// it was added, so that it needs no other start.
pub trait Node: Any {
    /// Handles a packet that arrived on `port`.
    fn handle_packet(&mut self, now: Instant, port: Port, packet: &[u8], io: &mut Io<'_>);

    /// Handles the time returned by [`Node::poll_timeout`].
    fn handle_timeout(&mut self, now: Instant, io: &mut Io<'_>) {
        let _ = (now, io);
    }

    /// Returns when to call [`Node::handle_timeout`]; `None` for never.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Reads the memory that the next packet needs, and returns a value that depends on it.
    ///
    /// This only affects speed. In a network larger than the processor's caches, each packet waits for the memory
    /// of its node; the simulator calls this on several nodes before their packets, so that the waits overlap.
    fn touch(&self) -> u64 {
        0
    }
}

impl<N: Node + ?Sized> Node for Box<N> {
    fn handle_packet(&mut self, now: Instant, port: Port, packet: &[u8], io: &mut Io<'_>) {
        (**self).handle_packet(now, port, packet, io);
    }
    fn handle_timeout(&mut self, now: Instant, io: &mut Io<'_>) {
        (**self).handle_timeout(now, io);
    }
    fn poll_timeout(&self) -> Option<Instant> {
        (**self).poll_timeout()
    }
    fn touch(&self) -> u64 {
        (**self).touch()
    }
}

/// A node's interface to the simulator, for the duration of one call.
pub struct Io<'a> {
    pub(crate) core: &'a mut Core,
    pub(crate) node: u32,
    /// The packet being handled, and its bytes.
    pub(crate) current: Option<(PacketId, &'a [u8])>,
}

impl Io<'_> {
    /// Returns the node's number.
    #[must_use]
    pub fn node(&self) -> NodeId {
        NodeId(self.node)
    }

    /// Returns the present in nanoseconds since the start.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.core.now_ns
    }

    /// Returns the number of the node's ports.
    #[must_use]
    pub fn ports(&self) -> u16 {
        self.core.ports[self.node as usize].count
    }

    /// Sends a copy of `bytes`. A packet for a port that does not exist is dropped and counted in
    /// [`SimStats::no_such_port`](crate::SimStats::no_such_port).
    pub fn send(&mut self, port: Port, bytes: &[u8]) {
        let packet = self.core.store.insert(bytes);
        self.core.transmit(self.node, port, packet, bytes);
    }

    /// Sends the same bytes on several ports; they are stored once.
    pub fn send_each(&mut self, ports: impl IntoIterator<Item = Port>, bytes: &[u8]) {
        let packet = self.core.store.insert(bytes);
        for port in ports {
            self.core.store.retain(packet);
            self.core.transmit(self.node, port, packet, bytes);
        }
        self.core.store.release(packet);
    }

    /// Forwards the packet being handled, unchanged and without a copy.
    ///
    /// # Panics
    ///
    /// Outside [`Node::handle_packet`], where there is no packet.
    pub fn forward(&mut self, port: Port) {
        let (packet, bytes) = self.current.expect("forward is for handle_packet");
        self.core.store.retain(packet);
        self.core.transmit(self.node, port, packet, bytes);
    }

    /// Calls [`Io::forward`] for each of these ports.
    ///
    /// # Panics
    ///
    /// As [`Io::forward`].
    pub fn forward_each(&mut self, ports: impl IntoIterator<Item = Port>) {
        for port in ports {
            self.forward(port);
        }
    }

    /// Ends the present `run_*` after this call.
    pub fn stop(&mut self) {
        self.core.stop = true;
    }
}

/// A shared segment: packets that arrive on one port leave on all others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hub;

impl Node for Hub {
    fn handle_packet(&mut self, _now: Instant, port: Port, _packet: &[u8], io: &mut Io<'_>) {
        let ports = io.ports();
        io.forward_each((0..ports).map(Port).filter(|other| *other != port));
    }
}
