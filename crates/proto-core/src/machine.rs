//! The contract between a protocol machine and its driver.

use crate::time::Instant;

/// A protocol as a state machine without I/O.
///
/// `netsim::conformance` checks every rule of this page.
///
/// A machine owns no socket, clock, thread or source of entropy. It never blocks, and no input makes it panic.
/// Its constructor takes a seed for its own generator, so that equal inputs lead to equal outputs. Commands
/// and counters are inherent methods of each machine.
///
/// # Driving a machine
///
/// After each call of [`handle_packet`](Machine::handle_packet), [`handle_timeout`](Machine::handle_timeout)
/// or a command, the driver drains [`poll_transmit`](Machine::poll_transmit) and
/// [`poll_event`](Machine::poll_event) until both return `None`. It then sleeps until
/// [`poll_timeout`](Machine::poll_timeout), or until the next packet or command. Time never runs backwards.
///
/// ```
/// use proto_core::Machine;
/// use proto_core::time::Instant;
///
/// /// Handles what arrived, then sends what is due. Returns when to call again at the latest.
/// fn drive<M: Machine>(
///     machine: &mut M,
///     now: Instant,
///     received: Option<(&M::Meta, &[u8])>,
///     mut send: impl FnMut(&M::Transmit, &[u8]),
///     mut notify: impl FnMut(M::Event),
/// ) -> Option<Instant> {
///     if let Some((meta, packet)) = received {
///         // The machine has counted a packet that it refuses; nothing else has changed.
///         let _ = machine.handle_packet(now, meta, packet);
///     }
///     if machine.poll_timeout().is_some_and(|at| at <= now) {
///         machine.handle_timeout(now);
///     }
///     let mut buffer = [0; 1500];
///     while let Some(transmit) = machine.poll_transmit(now, &mut buffer) {
///         send(&transmit, &buffer);
///     }
///     while let Some(event) = machine.poll_event() {
///         notify(event);
///     }
///     machine.poll_timeout()
/// }
/// ```
pub trait Machine {
    /// What the driver knows of a packet that arrived: addresses, interface.
    type Meta: ?Sized;
    /// Length and destination of a packet to send.
    type Transmit;
    /// What the application may want to know. [`core::convert::Infallible`] for a machine without events.
    type Event;
    /// Why a packet was refused.
    type Error;

    /// Handles a packet, or one whole message of a stream.
    ///
    /// # Errors
    ///
    /// The packet was malformed, forged or not expected. It is counted; nothing else has changed.
    fn handle_packet(
        &mut self,
        now: Instant,
        meta: &Self::Meta,
        packet: &[u8],
    ) -> Result<(), Self::Error>;

    /// Handles the passing of time. Harmless when called early or twice.
    fn handle_timeout(&mut self, now: Instant);

    /// Writes the next packet to send into `buffer`. After `None`, another call at the same `now` returns
    /// `None` too. A packet that does not fit is kept for a larger buffer.
    fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Self::Transmit>;

    /// Returns the next event.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// Returns when to call [`handle_timeout`](Machine::handle_timeout); `None` if only a packet or a command
    /// can change anything. Ask after draining: while a packet waits, this is not later than the last `now`.
    fn poll_timeout(&self) -> Option<Instant>;
}
