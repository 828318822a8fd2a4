//! Nodes, and what they see of the simulator.

use std::any::Any;

use proto_core::time::Instant;

use crate::core::Core;
use crate::packet::PacketId;

/// A node's number: 0, 1, 2 ... in the order of their adding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A link's number: 0, 1, 2 ... in the order of their adding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// One of a node's links, numbered 0, 1, 2 ... in the order in which they were attached to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port(pub u16);

/// Something that takes part: a protocol machine and its driver.
///
/// The simulator calls [`Node::poll_timeout`] after every other call, and [`Node::handle_timeout`]
/// when that time has come. A node that has something to do at once answers with the present, or
/// any time before it; this also holds right after it was added, so that it needs no other start.
pub trait Node: Any {
    /// `packet` arrived on `port`.
    fn handle_packet(&mut self, now: Instant, port: Port, packet: &[u8], io: &mut Io<'_>);

    /// The time given by [`Node::poll_timeout`] has come.
    fn handle_timeout(&mut self, now: Instant, io: &mut Io<'_>) {
        let _ = (now, io);
    }

    /// When to call [`Node::handle_timeout`]; `None` for never.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Reads what the next packet will need of the node, and returns anything that depends on it.
    ///
    /// Only speed depends on this. In a network that is larger than the processor's caches, each
    /// packet waits for the memory of its node; the simulator calls this on several nodes whose
    /// turn is next, one right after the other, so that their waits overlap.
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

/// A node's hands: lent to it for the time of one call.
pub struct Io<'a> {
    pub(crate) core: &'a mut Core,
    pub(crate) node: u32,
    /// The packet being handled, and its bytes.
    pub(crate) current: Option<(PacketId, &'a [u8])>,
}

impl Io<'_> {
    /// The node's own number.
    #[must_use]
    pub fn node(&self) -> NodeId {
        NodeId(self.node)
    }

    /// The present, in nanoseconds since the start.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.core.now_ns
    }

    /// Number of the node's ports; they are 0 to this.
    #[must_use]
    pub fn ports(&self) -> u16 {
        self.core.ports[self.node as usize].count
    }

    /// Sends a copy of `bytes`. A port that does not exist swallows the packet, and it is counted in
    /// [`SimStats::no_such_port`](crate::SimStats::no_such_port).
    pub fn send(&mut self, port: Port, bytes: &[u8]) {
        let packet = self.core.store.insert(bytes);
        self.core.transmit(self.node, port, packet, bytes);
    }

    /// Sends the same bytes on several ports, stored once.
    pub fn send_each(&mut self, ports: impl IntoIterator<Item = Port>, bytes: &[u8]) {
        let packet = self.core.store.insert(bytes);
        for port in ports {
            self.core.store.retain(packet);
            self.core.transmit(self.node, port, packet, bytes);
        }
        self.core.store.release(packet);
    }

    /// Sends the packet being handled on, unchanged and without a copy.
    ///
    /// # Panics
    ///
    /// Outside [`Node::handle_packet`], where there is no such packet.
    pub fn forward(&mut self, port: Port) {
        let (packet, bytes) = self.current.expect("forward is for handle_packet");
        self.core.store.retain(packet);
        self.core.transmit(self.node, port, packet, bytes);
    }

    /// [`Io::forward`] on each of these ports.
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

/// A shared segment: what arrives on one port leaves on all others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hub;

impl Node for Hub {
    fn handle_packet(&mut self, _now: Instant, port: Port, _packet: &[u8], io: &mut Io<'_>) {
        let ports = io.ports();
        io.forward_each((0..ports).map(Port).filter(|other| *other != port));
    }
}
