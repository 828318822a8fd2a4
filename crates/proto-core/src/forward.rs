//! The contract between a forwarding path and its driver.

use crate::time::Instant;

/// A forwarding path: a router, a relay, a gateway's data node.
///
/// The driver hands over each packet in its own receive buffer. The implementation edits the packet in place, so that
/// no packet is copied, and returns where to send it or why it was dropped. It owns no socket and no clock, and
/// no input makes it panic. The work of one call does not depend on the number of groups, sessions or receivers.
///
/// Packets that the implementation itself creates (answers, updates) come from
/// [`Machine::poll_transmit`](crate::Machine::poll_transmit), where the type is a machine too.
///
/// ```
/// use proto_core::Forward;
/// use proto_core::time::Instant;
///
/// enum Verdict {
///     /// Send the packet on this interface.
///     Send(u16),
///     /// Dropped and counted.
///     Drop,
/// }
///
/// /// Forwards between two interfaces and decrements the TTL in the first byte.
/// #[derive(Default)]
/// struct Pipe {
///     expired: u64,
/// }
///
/// impl Forward for Pipe {
///     /// The interface that the packet arrived on.
///     type Meta = u16;
///     type Verdict = Verdict;
///
///     fn forward(&mut self, _now: Instant, arrival: &u16, packet: &mut [u8]) -> Verdict {
///         match packet {
///             [ttl, ..] if *ttl > 1 => {
///                 *ttl -= 1;
///                 Verdict::Send(1 - *arrival)
///             }
///             _ => {
///                 self.expired += 1;
///                 Verdict::Drop
///             }
///         }
///     }
/// }
///
/// let mut packet = [64, 1, 2, 3];
/// let verdict = Pipe::default().forward(Instant::ZERO, &0, &mut packet);
/// assert!(matches!(verdict, Verdict::Send(1)));
/// assert_eq!(packet[0], 63);
/// ```
pub trait Forward {
    /// What the driver knows of a packet that arrived: addresses, interface.
    type Meta;
    /// Where to send the packet, or why it was dropped.
    type Verdict;

    /// Forwards one packet. Edits `packet` only where the verdict says to send it; a packet that is dropped is counted
    /// under one named reason.
    fn forward(&mut self, now: Instant, meta: &Self::Meta, packet: &mut [u8]) -> Self::Verdict;
}
