//! Datagrams to a port of their own, in either family.

use core::marker::PhantomData;
use core::ops::Range;

use super::{Carrier, Class, Dmcast, Malformed, Request, RequestAt, Upward};
use crate::family::Ip;
use crate::wire::checksum::Sum;
use crate::wire::found::{HeaderError, Turn, TurnAt};
use crate::wire::ipv4::PROTOCOL_UDP;
use crate::wire::option::Body;
use crate::wire::udp::{Header, ParseError};
use crate::{Family, Key, Kind};

const UDP_HEADER_LEN: usize = 8;
const CHECKSUM_AT: usize = 6;

/// Datagrams to a port of their own ([`wire::udp`](crate::wire::udp)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Udp<A>(PhantomData<A>);

/// Where a datagram lies in its packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Offset of its header.
    udp_at: usize,
    /// Length of the packet.
    len: usize,
}

impl<A: Family> Udp<A> {
    /// Whether a packet is a datagram to this port. Total.
    #[inline]
    pub fn is_to(packet: &[u8], port: u16) -> bool {
        let udp_at = A::udp_at(packet);
        let found = udp_at.and_then(|at| packet.get(at + 2..)?.first_chunk::<2>());
        found.is_some_and(|found| *found == port.to_be_bytes())
    }
}

impl<A: Family> Carrier for Udp<A> {
    type Address = A;
    type Outer = Place;
    type Inner = Place;

    const UPWARD: Upward = Upward::Routed;

    /// Expects a packet for which [`Udp::is_to`] holds.
    #[inline]
    fn classify(packet: &[u8]) -> Result<Class<Place>, Malformed> {
        let ip: Ip<A> = A::read_ip(packet).map_err(Malformed::Header)?;
        let truncated = Malformed::Datagram(ParseError::Truncated);
        if ip.protocol != PROTOCOL_UDP {
            return Ok(Class::Other);
        }
        let datagram = packet.get(ip.payload.clone()).ok_or(truncated)?;
        let (udp, payload) = datagram.split_at_checked(UDP_HEADER_LEN).ok_or(truncated)?;
        let header = match Header::<A>::parse(payload) {
            Err(ParseError::Identifier) => return Ok(Class::Other),
            header => header.map_err(Malformed::Datagram)?,
        };
        if ip.is_fragment {
            return Err(Malformed::RequestFragment);
        }
        if usize::from(u16::from_be_bytes([udp[4], udp[5]])) != datagram.len() {
            return Err(Malformed::Header(HeaderError::TotalLength));
        }
        if A::NEEDS_UDP_CHECKSUM && udp[CHECKSUM_AT..] == [0, 0] {
            return Err(Malformed::Header(HeaderError::Checksum));
        }
        let udp_at = ip.payload.start;
        let header_at = udp_at + UDP_HEADER_LEN;
        match header.kind {
            Kind::Dmcast if ip.destination.is_multicast() => Err(Malformed::NotEncapsulated),
            Kind::Dmcast => Ok(Class::Encapsulated(Place {
                udp_at,
                len: ip.payload.end,
            })),
            Kind::Request => Ok(Class::Request(RequestAt {
                turn_at: TurnAt {
                    body_at: header_at + Header::<A>::BODY_AT,
                    cookie_at: Some(header_at + Header::<A>::COOKIE_AT),
                },
                len: ip.payload.end,
            })),
        }
    }

    #[inline]
    fn guess_key(packet: &[u8]) -> Option<Key<A>> {
        let body_at = A::udp_at(packet)? + UDP_HEADER_LEN + Header::<A>::BODY_AT;
        Some(Body::<A>::read(packet.get(body_at..)?)?.key())
    }

    #[inline]
    fn is_addressed(request: &Request<A>) -> bool {
        request.destination
            == match request.turned {
                true => A::LINK_GROUP,
                false => request.key.source,
            }
    }

    #[inline]
    fn hop(packet: &mut [u8]) {
        A::take_hop(packet);
    }

    #[inline]
    fn turn(packet: &mut [u8], at: TurnAt, turn: &Turn<A>) {
        if let Some(datagram) = packet.get_mut(udp_at::<A>(at)..) {
            let delta = write_turning_point(datagram, turn);
            add_to_checksum(datagram, delta);
        }
    }

    /// Changes the destination from the source to the link-local group of LMS, which every host of LMS has joined,
    /// whichever sessions it receives.
    #[inline]
    fn send_down(packet: &mut [u8]) {
        let Some(udp_at) = A::udp_at(packet) else {
            return;
        };
        let delta = readdress::<A>(packet);
        if let Some(datagram) = packet.get_mut(udp_at..) {
            add_to_checksum(datagram, delta);
        }
    }

    #[inline]
    fn turn_down(packet: &mut [u8], at: TurnAt, turn: &Turn<A>) {
        A::take_hop(packet);
        let delta = readdress::<A>(packet);
        if let Some(datagram) = packet.get_mut(udp_at::<A>(at)..) {
            let delta = delta.plus(write_turning_point(datagram, turn));
            add_to_checksum(datagram, delta);
        }
    }

    #[inline]
    fn open(packet: &[u8], place: Place) -> Result<Option<Dmcast<A, Place>>, Malformed> {
        let header_at = place.udp_at + UDP_HEADER_LEN;
        let payload_at = header_at + Header::<A>::LEN;
        // `classify` has checked these fields.
        let at = |offset: usize| packet.get(header_at + offset..).unwrap_or(&[]);
        let (Some(&hop_limit), Some(body), Some(cookie)) = (
            at(Header::<A>::HOP_LIMIT_AT).first(),
            Body::<A>::read(at(Header::<A>::BODY_AT)),
            at(Header::<A>::COOKIE_AT).first_chunk(),
        ) else {
            return Ok(None);
        };
        Ok(Some(Dmcast {
            key: Key::new(body.source, body.group),
            router: body.turning_router,
            iface: body.turning_iface,
            cookie: Some(u64::from_be_bytes(*cookie)),
            source: body.source,
            destination: body.group,
            hop_limit,
            protocol: PROTOCOL_UDP,
            payload_len: UDP_HEADER_LEN + place.len.saturating_sub(payload_at),
            is_fragment: false,
            has_options: false,
            inner: place,
        }))
    }

    /// Writes the headers of the repair in front of its payload, over those of the datagram. Its checksum follows from the
    /// datagram's, so that damage on the way to here is seen by the receivers.
    #[inline]
    fn unwrap(packet: &mut [u8], dmcast: &Dmcast<A, Place>) -> Range<usize> {
        let Place { udp_at, len } = dmcast.inner;
        let payload_at = udp_at + UDP_HEADER_LEN + Header::<A>::LEN;
        let start = payload_at - UDP_HEADER_LEN - A::IP_HEADER_LEN;
        let inner_len = UDP_HEADER_LEN + len - payload_at;
        let Some((sum, ports)) = repair_fields::<A>(packet, udp_at, inner_len) else {
            return 0..0;
        };
        let Some(out) = packet.get_mut(start..len) else {
            return 0..0;
        };
        let (ip, udp) = out.split_at_mut(A::IP_HEADER_LEN);
        let Key { source, group } = dmcast.key;
        let hops = dmcast.hop_limit.saturating_sub(1);
        A::write_ip(ip, inner_len, PROTOCOL_UDP, hops, source, group);
        udp[..4].copy_from_slice(&ports);
        udp[4..6].copy_from_slice(&(inner_len as u16).to_be_bytes());
        udp[CHECKSUM_AT..UDP_HEADER_LEN].copy_from_slice(&sum);
        start..len
    }
}

/// Returns checksum and ports of the repair of this length that a datagram carries.
#[inline]
fn repair_fields<A: Family>(
    packet: &[u8],
    udp_at: usize,
    inner_len: usize,
) -> Option<([u8; 2], [u8; 4])> {
    let (udp, header) = packet.get(udp_at..)?.split_at_checked(UDP_HEADER_LEN)?;
    let (message, ports) = header.split_at_checked(Header::<A>::PORTS_AT)?;
    let sum = *udp[CHECKSUM_AT..].first_chunk::<2>()?;
    // Source, group, their ports and the protocol number are covered by both checksums.
    let gone = Sum::of(A::source(packet).octets().as_ref())
        .plus(Sum::of(A::destination(packet).octets().as_ref()))
        .plus(Sum::of(&udp[..CHECKSUM_AT]))
        .plus(Sum::of(&udp[4..CHECKSUM_AT]))
        .plus(Sum::of(&message[..Header::<A>::BODY_AT + 2 + A::LEN]))
        .plus(Sum::of(&message[Header::<A>::COOKIE_AT..]));
    let length = Sum::word(inner_len as u16);
    let new = Sum::of_checksum(sum).minus(gone).plus(length).plus(length);
    let sum = if sum == [0, 0] {
        sum
    } else {
        new.udp_checksum()
    };
    Some((sum, *ports.first_chunk()?))
}

/// Offset of the UDP header of a request whose turning point is written here.
#[inline]
fn udp_at<A: Family>(at: TurnAt) -> usize {
    at.body_at - Header::<A>::BODY_AT - UDP_HEADER_LEN
}

/// Writes the turning point into a request, leaves the checksum: the answer is what to add to it.
#[inline]
fn write_turning_point<A: Family>(datagram: &mut [u8], turn: &Turn<A>) -> Sum {
    let fields = UDP_HEADER_LEN + Header::<A>::BODY_AT..UDP_HEADER_LEN + Header::<A>::COOKIE_AT + 8;
    let Some(fields) = datagram.get_mut(fields) else {
        return Sum::default();
    };
    let (body, cookie) = fields.split_at_mut(Body::<A>::LEN);
    let (number, addresses) = body.split_at_mut(2);
    replace(number, &turn.number.0.to_be_bytes())
        .plus(replace(
            &mut addresses[..A::LEN],
            turn.router.octets().as_ref(),
        ))
        .plus(replace(cookie, &turn.cookie.to_be_bytes()))
}

/// Addresses a request to the link-local group of LMS, leaves the checksum of its datagram: the answer is what to add to it.
#[inline]
fn readdress<A: Family>(packet: &mut [u8]) -> Sum {
    let old = A::destination(packet);
    A::set_destination(packet, A::LINK_GROUP);
    Sum::of(A::LINK_GROUP.octets().as_ref()).minus(Sum::of(old.octets().as_ref()))
}

/// Replaces bytes at an even offset of a datagram: the answer is what to add to its checksum.
#[inline]
fn replace(field: &mut [u8], new: &[u8]) -> Sum {
    let delta = Sum::of(new).minus(Sum::of(field));
    field.copy_from_slice(new);
    delta
}

/// Changes the checksum of a datagram, if it has one, as its bytes changed (RFC 1624).
#[inline]
fn add_to_checksum(datagram: &mut [u8], delta: Sum) {
    let field = datagram.get_mut(CHECKSUM_AT..);
    let Some(field) = field.and_then(<[u8]>::first_chunk_mut::<2>) else {
        return;
    };
    if *field != [0, 0] {
        *field = Sum::of_checksum(*field).plus(delta).udp_checksum();
    }
}
