//! Verdicts on packets.

use core::net::Ipv4Addr;
use core::ops::Range;

use super::DropReason;
use crate::{Iface, NextHop};

/// The destination of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Output {
    /// The interface to send it on.
    pub iface: Iface,
    /// The next hop on that link.
    pub next_hop: NextHop,
}

/// The verdict of [`Router::forward`](super::Router::forward).
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum Verdict {
    /// Not an LMS packet: it is untouched and is forwarded as without this router.
    Pass,
    /// Dropped and counted; not to be sent.
    Drop(DropReason),
    /// A request, edited in place: send `packet` as `output` says.
    Forward {
        /// Its destination.
        output: Output,
        /// The bytes to send (a frame may have carried padding behind them).
        packet: Range<usize>,
        /// Search Party only: once the first copy has been taken from the buffer,
        /// [`Router::second_copy`](super::Router::second_copy) turns the bytes into the second.
        second: Option<SecondCopy>,
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
pub struct SecondCopy {
    pub(super) output: Output,
    /// Where the option is and what to write there; `None`: the copies are the same.
    pub(super) turn: Option<(usize, Turn)>,
}

/// A turning point to be written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Turn {
    pub(super) router: Ipv4Addr,
    /// The interface's number on the wire.
    pub(super) number: Iface,
}
