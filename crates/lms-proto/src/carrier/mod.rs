//! The carriers of requests and directed multicasts.
//!
//! Table, rule and router know requests and dmcasts only through [`Carrier`]: what a packet is,
//! where its turning point is written, how a hop is counted, how a dmcast is opened. There are three:
//!
//! | carrier | for | request to the parent | request to a replier |
//! | --- | --- | --- | --- |
//! | [`Ipv4Option`] | IPv4 | as it is, in a multicast frame | as it is, in a frame to the replier |
//! | [`HopByHop`] | IPv6 | the same | the same |
//! | [`Udp`] | both | as it is, by unicast routing to the source | to a group of the link, in a frame to the replier |
//!
//! A tree may mix them: the entry, and what it expects and allows, is the same for all.

pub mod hop_by_hop;
pub mod ipv4_option;
pub mod udp;

use core::ops::Range;

pub use self::hop_by_hop::HopByHop;
pub use self::ipv4_option::Ipv4Option;
pub use self::udp::Udp;

use crate::wire::encap::OpenError;
use crate::wire::found::{HeaderError, OptionError, Turn, TurnAt};
use crate::wire::udp as udp_wire;
use crate::{Family, Iface, Key};

/// What a packet is to LMS, before any state is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class<A, O> {
    /// Nothing of LMS.
    Other,
    /// A request on its way.
    Request(Request<A>),
    /// An encapsulated packet; to be opened if it is addressed to this router.
    Encapsulated(Encapsulated<A, O>),
}

/// A request, as its carrier parsed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<A> {
    /// Original source and group, of the option.
    pub key: Key<A>,
    /// The sender's address.
    pub sender: A,
    /// The packet's destination.
    pub destination: A,
    /// Whether the turning point is set.
    pub turned: bool,
    /// Hops it may still make, this one included.
    pub hop_limit: u8,
    /// Where the carrier writes the turning point.
    pub turn_at: TurnAt,
    /// Length of the packet in bytes.
    pub len: usize,
}

/// An encapsulated packet, as its carrier parsed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Encapsulated<A, O> {
    /// The sender's address.
    pub from: A,
    /// Its destination.
    pub to: A,
    /// What the carrier needs to open it.
    pub outer: O,
}

/// A dmcast, opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dmcast<A, I> {
    /// Original source and group, of the option.
    pub key: Key<A>,
    /// Turning-point router, unspecified for none.
    pub router: A,
    /// Turning-point interface as its router numbers it on the wire, unset for none.
    pub iface: Iface,
    /// The cookie of the turning point; `None` in the classic form.
    pub cookie: Option<u64>,
    /// Source of the inner packet.
    pub source: A,
    /// Destination of the inner packet.
    pub destination: A,
    /// Hops the inner packet may still make, this one included.
    pub hop_limit: u8,
    /// What the inner packet carries, by its number.
    pub protocol: u8,
    /// Bytes behind the inner header.
    pub payload_len: usize,
    /// Whether the inner packet is a fragment.
    pub is_fragment: bool,
    /// Whether the inner header carries options beside the dmcast's own.
    pub has_options: bool,
    /// What the carrier needs to take the inner packet out.
    pub inner: I,
}

/// Why a packet that carries, or seems to carry, LMS's option is not one of LMS.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Malformed {
    /// The header.
    Header(HeaderError),
    /// Its options.
    Option(OptionError),
    /// The dmcast option on a multicast packet.
    NotEncapsulated,
    /// A fragment with a request.
    RequestFragment,
    /// A datagram of the UDP carrier.
    Datagram(udp_wire::ParseError),
    /// The inside of an encapsulated packet.
    Open(OpenError),
}

/// How a request leaves towards the source.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Upward {
    /// In a multicast frame on the parent's link.
    Link,
    /// By unicast routing.
    Routed,
}

/// How requests and dmcasts travel.
pub trait Carrier {
    /// The family of its addresses.
    type Address: Family;
    /// What is kept of an encapsulated packet until it is opened.
    type Outer: Copy;
    /// What is kept of an opened dmcast until the inner packet is taken out.
    type Inner;

    /// How a request leaves towards the source.
    const UPWARD: Upward;

    /// What the packet is. Total: any bytes are a class or an error.
    ///
    /// # Errors
    /// [`Malformed`] when the header or its options are malformed, or the packet may not carry the option
    /// that it carries.
    fn classify(packet: &[u8]) -> Result<Class<Self::Address, Self::Outer>, Malformed>;

    /// Whether a request is addressed as this carrier addresses it.
    fn is_addressed(request: &Request<Self::Address>) -> bool;

    /// Takes one hop off a packet's limit.
    fn hop(packet: &mut [u8]);

    /// Writes the turning point into a request's packet.
    fn turn(packet: &mut [u8], at: TurnAt, turn: &Turn<Self::Address>);

    /// [`Carrier::hop`] and [`Carrier::turn`].
    fn hop_and_turn(packet: &mut [u8], at: TurnAt, turn: &Turn<Self::Address>) {
        Self::hop(packet);
        Self::turn(packet, at, turn);
    }

    /// Addresses a request to a replier on a link.
    fn send_down(packet: &mut [u8]);

    /// Opens an encapsulated packet addressed to this router. `Ok(None)`: it is no dmcast.
    ///
    /// # Errors
    /// [`Malformed::Option`] when the outer header's options are malformed; [`Malformed::Open`] when the outer
    /// packet is a fragment or has a wrong checksum, or the inner packet is malformed.
    #[expect(clippy::type_complexity, reason = "the carrier's own types")]
    fn open(
        packet: &[u8],
        encapsulated: &Encapsulated<Self::Address, Self::Outer>,
    ) -> Result<Option<Dmcast<Self::Address, Self::Inner>>, Malformed>;

    /// Takes encapsulation and option off and one hop, in place; the answer is where the inner packet lies.
    fn unwrap(packet: &mut [u8], dmcast: &Dmcast<Self::Address, Self::Inner>) -> Range<usize>;
}
