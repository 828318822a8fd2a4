//! The carriers of requests and directed multicasts.
//!
//! Table, rule and router handle requests and dmcasts only through [`Carrier`], which classifies a packet, writes its
//! turning point, decrements its hop limit and decapsulates a dmcast. There are three carriers:
//!
//! | carrier | family | request to the parent | request to a replier |
//! | --- | --- | --- | --- |
//! | [`Ipv4Option`] | IPv4 | to the group, in a multicast frame | to the group, in a frame to the replier |
//! | [`HopByHop`] | IPv6 | to the group, in a multicast frame | to the group, in a frame to the replier |
//! | [`Udp`] | both | to the source, by unicast routing | to a link-local group, in a frame to the replier |
//!
//! A tree may mix carriers: they share the entry, its limits and its credit.

pub mod hop_by_hop;
pub mod ipv4_option;
pub mod udp;

use core::ops::Range;

pub use self::hop_by_hop::HopByHop;
pub use self::ipv4_option::Ipv4Option;
pub use self::udp::Udp;

use crate::wire::encap::OpenError;
use crate::wire::found::{HeaderError, OptionError, Turn, TurnAt};
use crate::wire::option::Body;
use crate::wire::udp as udp_wire;
use crate::{Family, Iface, Key};

/// The class of a packet, from its bytes alone. It says where the fields are and carries none: moving addresses through
/// an enum takes longer than reading them again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class<O> {
    /// Not an LMS packet.
    Other,
    /// A request on its way.
    Request(RequestAt),
    /// An encapsulated packet; to be opened if it is addressed to this router.
    Encapsulated(O),
}

/// Where the fields of a checked request are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestAt {
    /// Where the turning point is written; source and group follow it.
    pub turn_at: TurnAt,
    /// Length of the packet in bytes.
    pub len: usize,
}

impl RequestAt {
    /// Reads the fields; `None` where the packet ends before them.
    #[inline]
    pub fn read<A: Family>(self, packet: &[u8]) -> Option<Request<A>> {
        let body = Body::<A>::read(packet.get(self.turn_at.body_at..)?)?;
        Some(Request {
            key: body.key(),
            sender: A::source(packet),
            destination: A::destination(packet),
            turned: body.turning_iface.is_set(),
            hop_limit: A::hop_limit(packet),
            turn_at: self.turn_at,
            len: self.len,
        })
    }
}

/// A request on its way.
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
    /// Where the turning point is written.
    pub turn_at: TurnAt,
    /// Length of the packet in bytes.
    pub len: usize,
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
    /// Protocol number of the inner packet's payload.
    pub protocol: u8,
    /// Bytes after the inner header.
    pub payload_len: usize,
    /// Whether the inner packet is a fragment.
    pub is_fragment: bool,
    /// Whether the inner header carries options beside the dmcast's own.
    pub has_options: bool,
    /// Carrier-specific data for [`Carrier::unwrap`].
    pub inner: I,
}

/// Why a packet that appears to carry LMS is malformed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Malformed {
    /// The IP header is malformed.
    Header(HeaderError),
    /// The options of the header are malformed.
    Option(OptionError),
    /// The dmcast option on a multicast packet.
    NotEncapsulated,
    /// A fragment with a request.
    RequestFragment,
    /// The header of a datagram of the UDP carrier is malformed.
    Datagram(udp_wire::ParseError),
    /// An encapsulated packet cannot be opened.
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
    /// What [`Carrier::classify`] hands to [`Carrier::open`].
    type Outer: Copy;
    /// What [`Carrier::open`] hands to [`Carrier::unwrap`].
    type Inner;

    /// How a request leaves towards the source.
    const UPWARD: Upward;

    /// Classifies a packet. Accepts any bytes.
    ///
    /// # Errors
    /// [`Malformed`] when the header or its options are malformed, or the packet may not carry the option
    /// that it carries.
    fn classify(packet: &[u8]) -> Result<Class<Self::Outer>, Malformed>;

    /// Reads source and group of a request or dmcast from where nearly all packets have them, and checks nothing: a guess
    /// for [`Router::look_ahead`](crate::Router::look_ahead). Accepts any bytes.
    fn guess_key(packet: &[u8]) -> Option<Key<Self::Address>>;

    /// Whether a request has the destination that this carrier gives it.
    fn is_addressed(request: &Request<Self::Address>) -> bool;

    /// Decrements the hop limit of a packet.
    fn hop(packet: &mut [u8]);

    /// Writes the turning point into a request's packet.
    fn turn(packet: &mut [u8], at: TurnAt, turn: &Turn<Self::Address>);

    /// Addresses a request to a replier on a link.
    fn send_down(packet: &mut [u8]);

    /// [`Carrier::hop`], [`Carrier::turn`] and [`Carrier::send_down`].
    #[inline]
    fn turn_down(packet: &mut [u8], at: TurnAt, turn: &Turn<Self::Address>) {
        Self::hop(packet);
        Self::turn(packet, at, turn);
        Self::send_down(packet);
    }

    /// Opens an encapsulated packet addressed to this router. `Ok(None)`: it is no dmcast.
    ///
    /// # Errors
    /// [`Malformed::Option`] when the outer header's options are malformed; [`Malformed::Open`] when the outer
    /// packet is a fragment or has a wrong checksum, or the inner packet is malformed.
    #[expect(clippy::type_complexity, reason = "the carrier's own types")]
    fn open(
        packet: &[u8],
        outer: Self::Outer,
    ) -> Result<Option<Dmcast<Self::Address, Self::Inner>>, Malformed>;

    /// Decapsulates a dmcast in place and decrements the hop limit of the inner packet; returns where that lies.
    fn unwrap(packet: &mut [u8], dmcast: &Dmcast<Self::Address, Self::Inner>) -> Range<usize>;
}
