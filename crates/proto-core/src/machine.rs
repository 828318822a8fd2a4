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
/// /// Handles a packet, then sends what is due. Returns when to call again at the latest.
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
    type Meta;
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

/// Implements [`Machine`] for a type by its inherent methods of the same names, which have the same signatures.
///
/// ```
/// # use proto_core::time::Instant;
/// struct Counter<'a>(&'a mut u32);
///
/// impl Counter<'_> {
///     pub fn handle_packet(&mut self, _: Instant, _: &(), _: &[u8]) -> Result<(), ()> {
///         *self.0 += 1;
///         Ok(())
///     }
///     pub fn handle_timeout(&mut self, _: Instant) {}
///     pub fn poll_transmit(&mut self, _: Instant, _: &mut [u8]) -> Option<usize> {
///         None
///     }
///     pub fn poll_event(&mut self) -> Option<u8> {
///         None
///     }
///     pub fn poll_timeout(&self) -> Option<Instant> {
///         None
///     }
/// }
///
/// proto_core::impl_machine! {
///     impl['a] Counter<'a> { Meta = (); Transmit = usize; Event = u8; Error = (); }
/// }
/// ```
#[macro_export]
macro_rules! impl_machine {
    (impl[$($generics:tt)*] $machine:ty {
        Meta = $meta:ty; Transmit = $transmit:ty; Event = $event:ty; Error = $error:ty;
    }) => {
        impl<$($generics)*> $crate::Machine for $machine {
            type Meta = $meta;
            type Transmit = $transmit;
            type Event = $event;
            type Error = $error;

            #[inline]
            fn handle_packet(
                &mut self,
                now: $crate::time::Instant,
                meta: &$meta,
                packet: &[u8],
            ) -> ::core::result::Result<(), $error> {
                <$machine>::handle_packet(self, now, meta, packet)
            }

            #[inline]
            fn handle_timeout(&mut self, now: $crate::time::Instant) {
                <$machine>::handle_timeout(self, now);
            }

            #[inline]
            fn poll_transmit(
                &mut self,
                now: $crate::time::Instant,
                buffer: &mut [u8],
            ) -> ::core::option::Option<$transmit> {
                <$machine>::poll_transmit(self, now, buffer)
            }

            #[inline]
            fn poll_event(&mut self) -> ::core::option::Option<$event> {
                <$machine>::poll_event(self)
            }

            #[inline]
            fn poll_timeout(&self) -> ::core::option::Option<$crate::time::Instant> {
                <$machine>::poll_timeout(self)
            }
        }
    };
}
