//! The carrier of the LMS option.
//!
//! Table, rule and router know requests and dmcasts only through [`Carrier`]: what a packet is,
//! where its turning point is written, how a hop is counted, how a dmcast is opened. There is one
//! carrier, the IPv4 option ([`Ipv4Option`]), and addresses ([`Key`]) are IPv4 addresses. Another
//! carrier, such as a UDP port for networks that drop IPv4 options, would implement the same trait.

use core::net::Ipv4Addr;
use core::ops::Range;

use crate::wire::encap::{self, Inner, OpenError};
use crate::wire::ipv4::{self, Found, HeaderError, Layout, OptionError};
use crate::{Iface, Key, Kind};

/// What a packet is to LMS, before any state is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Nothing of LMS.
    Other,
    /// A request on its way.
    Request(Request),
    /// An encapsulated packet; to be opened if it is addressed to this router.
    Encapsulated(Encapsulated),
}

/// A request, as its carrier parsed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Original source and group, of the option.
    pub key: Key,
    /// The sender's address.
    pub sender: Ipv4Addr,
    /// The packet's destination.
    pub destination: Ipv4Addr,
    /// Whether the turning point is set.
    pub turned: bool,
    /// Hops it may still make, this one included.
    pub hop_limit: u8,
    /// Where the carrier writes the turning point.
    pub option_at: usize,
    /// Length of the packet in bytes.
    pub len: usize,
}

/// An encapsulated packet, as its carrier parsed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Encapsulated {
    /// The sender's address.
    pub from: Ipv4Addr,
    /// Its destination.
    pub to: Ipv4Addr,
    /// Its lengths.
    pub layout: Layout,
    /// The option of its own header, or the error in it: only the addressee drops such a packet.
    pub option: Result<Option<Found>, OptionError>,
}

/// A dmcast, opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dmcast {
    /// Original source and group, of the option.
    pub key: Key,
    /// Turning-point router, `0.0.0.0` for none.
    pub router: Ipv4Addr,
    /// Turning-point interface as its router numbers it on the wire, unset for none.
    pub iface: Iface,
    /// Source of the inner packet.
    pub source: Ipv4Addr,
    /// Destination of the inner packet.
    pub destination: Ipv4Addr,
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
    /// The inner packet, and what to strip from it.
    pub inner: Inner,
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
    /// A fragment with the request option.
    RequestFragment,
    /// The inside of an encapsulated packet.
    Open(OpenError),
}

/// How requests and dmcasts travel.
pub trait Carrier {
    /// What the packet is. Total: any bytes are a class or an error.
    ///
    /// # Errors
    /// [`Malformed`] when the header or its options are malformed, or the packet may not carry the option
    /// that it carries.
    fn classify(packet: &[u8]) -> Result<Class, Malformed>;

    /// Writes the turning point into a request's packet; `iface` is the interface's number on the wire.
    fn turn(packet: &mut [u8], option_at: usize, router: Ipv4Addr, iface: Iface);

    /// [`Carrier::hop`] and [`Carrier::turn`].
    fn hop_and_turn(packet: &mut [u8], option_at: usize, router: Ipv4Addr, iface: Iface) {
        Self::hop(packet);
        Self::turn(packet, option_at, router, iface);
    }

    /// Takes one hop off a packet's limit.
    fn hop(packet: &mut [u8]);

    /// Opens an encapsulated packet addressed to this router. `Ok(None)`: it is no dmcast.
    ///
    /// # Errors
    /// [`Malformed::Option`] when the outer header's options are malformed; [`Malformed::Open`] when the outer
    /// packet is a fragment or has a wrong checksum, or the inner packet is malformed.
    fn open(packet: &[u8], encapsulated: &Encapsulated) -> Result<Option<Dmcast>, Malformed>;

    /// Takes encapsulation and option off, in place; the answer is where the inner packet lies.
    fn strip(packet: &mut [u8], inner: &Inner) -> Range<usize>;
}

/// The IPv4 options 138, 139 and 158.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv4Option;

impl Carrier for Ipv4Option {
    #[inline]
    fn classify(packet: &[u8]) -> Result<Class, Malformed> {
        let layout = Layout::check(packet).map_err(Malformed::Header)?;
        let destination = ipv4::destination(packet);
        let multicast = destination.is_multicast();
        if !multicast && ipv4::protocol(packet) != ipv4::PROTOCOL_IPIP {
            return Ok(Class::Other);
        }
        let header = &packet[..layout.header_len];
        let option = ipv4::find_lms(header);
        if !multicast {
            return Ok(Class::Encapsulated(Encapsulated {
                from: ipv4::source(packet),
                to: destination,
                layout,
                option,
            }));
        }
        let Some(option) = option.map_err(Malformed::Option)? else {
            return Ok(Class::Other);
        };
        if !ipv4::checksum_ok(header) {
            return Err(Malformed::Header(HeaderError::Checksum));
        }
        if option.kind == Kind::Dmcast {
            return Err(Malformed::NotEncapsulated);
        }
        // Every fragment has the option, and only the first one the request.
        if ipv4::is_fragment(packet) {
            return Err(Malformed::RequestFragment);
        }
        Ok(Class::Request(Request {
            key: Key::new(option.source, option.group),
            sender: ipv4::source(packet),
            destination,
            turned: option.turning_iface.is_set(),
            hop_limit: ipv4::ttl(packet),
            option_at: option.body_at,
            len: layout.total_len,
        }))
    }

    #[inline]
    fn turn(packet: &mut [u8], option_at: usize, router: Ipv4Addr, iface: Iface) {
        ipv4::set_turning_point(packet, option_at, router, iface);
    }

    #[inline]
    fn hop_and_turn(packet: &mut [u8], option_at: usize, router: Ipv4Addr, iface: Iface) {
        ipv4::hop_and_turn(packet, option_at, router, iface);
    }

    #[inline]
    fn hop(packet: &mut [u8]) {
        ipv4::decrement_ttl(packet);
    }

    #[inline]
    fn open(packet: &[u8], encapsulated: &Encapsulated) -> Result<Option<Dmcast>, Malformed> {
        let Encapsulated { layout, option, .. } = *encapsulated;
        let (option, inner) = match option.map_err(Malformed::Option)? {
            Some(option) if option.kind == Kind::Dmcast => (
                option,
                encap::open_outer(packet, layout).map_err(Malformed::Open)?,
            ),
            // A request in a tunnel's header belongs to the tunnel.
            Some(_) => return Ok(None),
            None => match encap::open_inner(packet, layout).map_err(Malformed::Open)? {
                Some(opened) => opened,
                None => return Ok(None),
            },
        };
        let bytes = packet.get(inner.packet.clone()).unwrap_or(&[]);
        let header_len = Layout::check(bytes).map_or(0, |layout| layout.header_len);
        let own_len = inner.strip.map_or(0, |option| option.len);
        Ok(Some(Dmcast {
            key: Key::new(option.source, option.group),
            router: option.turning_router,
            iface: option.turning_iface,
            source: ipv4::source(bytes),
            destination: ipv4::destination(bytes),
            hop_limit: ipv4::ttl(bytes),
            protocol: ipv4::protocol(bytes),
            payload_len: bytes.len() - header_len,
            is_fragment: ipv4::is_fragment(bytes),
            has_options: header_len != ipv4::HEADER_LEN + own_len,
            inner,
        }))
    }

    #[inline]
    fn strip(packet: &mut [u8], inner: &Inner) -> Range<usize> {
        encap::decapsulate(packet, inner)
    }
}
