//! Verdicts on packets.

use core::net::Ipv4Addr;
use core::ops::Range;

use super::DropReason;
use crate::wire::found::{Turn, TurnAt};
use crate::{Iface, NextHop};

/// The destination of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Output<A = Ipv4Addr> {
    /// The interface to send it on.
    pub iface: Iface,
    /// The next hop on that link.
    pub next_hop: NextHop<A>,
}

/// The verdict of [`Router::forward`](super::Router::forward).
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum Verdict<A = Ipv4Addr> {
    /// Not an LMS packet: it is untouched and is forwarded as without this router.
    Pass,
    /// Dropped and counted; not to be sent.
    Drop(DropReason),
    /// A request, edited in place: send `packet` as `output` says. One that goes by [`NextHop::Routed`] and whose
    /// `output.iface` is unset belongs to no tree here: it goes on as if there were no LMS.
    Forward {
        /// Its destination.
        output: Output<A>,
        /// The bytes to send (a frame may have carried padding behind them).
        packet: Range<usize>,
        /// Search Party only: once the first copy has been taken from the buffer,
        /// [`Router::second_copy`](super::Router::second_copy) turns the bytes into the second.
        second: Option<SecondCopy<A>>,
    },
    /// A dmcast, decapsulated in place: multicast `packet` on `iface` alone, in a multicast frame
    /// to the address of the packet's group.
    Multicast {
        /// The turning-point interface.
        iface: Iface,
        /// The bytes of the inner packet.
        packet: Range<usize>,
    },
}

/// The second copy of a request under Search Party; it differs from the first in its turning
/// point. [`Router::second_copy`](super::Router::second_copy) makes it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use]
pub struct SecondCopy<A = Ipv4Addr> {
    pub(super) output: Output<A>,
    pub(super) edit: Edit<A>,
    /// Whether it is a datagram of the UDP carrier.
    pub(super) is_datagram: bool,
}

/// What changes in a request beside its hop limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Edit<A> {
    /// Nothing: it goes towards the source.
    Up,
    /// It goes to a replier, and turned before.
    Down,
    /// It turns here.
    Turn(TurnAt, Turn<A>),
}
