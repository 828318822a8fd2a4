//! The IPv4 options 138, 139 and 158.

use core::net::Ipv4Addr;
use core::ops::Range;

use super::{Carrier, Class, Dmcast, Malformed, Request, RequestAt, Upward};
use crate::wire::encap::{self, Inner};
use crate::wire::found::{HeaderError, Turn, TurnAt};
use crate::wire::ipv4::{self, Layout};
use crate::wire::option::{Body, IPOPT_DMCAST, IPOPT_LMS, IPOPT_MREQ};
use crate::{Form, Key, Kind};

/// The IPv4 options 138, 139 and 158.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv4Option;

impl Carrier for Ipv4Option {
    type Address = Ipv4Addr;
    type Outer = Layout;
    type Inner = Inner;

    const UPWARD: Upward = Upward::Link;

    #[inline]
    fn classify(packet: &[u8]) -> Result<Class<Layout>, Malformed> {
        let layout = Layout::check(packet).map_err(Malformed::Header)?;
        let multicast = ipv4::destination(packet).is_multicast();
        if !multicast && ipv4::protocol(packet) != ipv4::PROTOCOL_IPIP {
            return Ok(Class::Other);
        }
        // Only the addressee drops an encapsulated packet for what its options are.
        if !multicast {
            return Ok(Class::Encapsulated(layout));
        }
        let header = &packet[..layout.header_len];
        let Some(option) = ipv4::find_lms(header).map_err(Malformed::Option)? else {
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
        Ok(Class::Request(RequestAt {
            turn_at: option.turn_at,
            len: layout.total_len,
        }))
    }

    /// The option is the first in the header, or in the inner header of a dmcast.
    #[inline]
    fn guess_key(packet: &[u8]) -> Option<Key> {
        let at = |at: usize| {
            let form = match *packet.get(at)? {
                IPOPT_MREQ | IPOPT_DMCAST => Form::Classic,
                IPOPT_LMS => Form::Own,
                _ => return None,
            };
            let body_at = TurnAt::in_option::<Ipv4Addr>(at, form).body_at;
            Some(Body::read(packet.get(body_at..)?)?.key())
        };
        at(ipv4::HEADER_LEN).or_else(|| at(2 * ipv4::HEADER_LEN))
    }

    #[inline]
    fn is_addressed(request: &Request<Ipv4Addr>) -> bool {
        request.key.group == request.destination
    }

    #[inline]
    fn hop(packet: &mut [u8]) {
        ipv4::decrement_ttl(packet);
    }

    #[inline]
    fn turn(packet: &mut [u8], at: TurnAt, turn: &Turn<Ipv4Addr>) {
        ipv4::set_turning_point(packet, at, turn);
    }

    #[inline]
    fn send_down(_packet: &mut [u8]) {}

    #[inline]
    fn turn_down(packet: &mut [u8], at: TurnAt, turn: &Turn<Ipv4Addr>) {
        ipv4::hop_and_turn(packet, at, turn);
    }

    #[inline]
    fn open(packet: &[u8], outer: Layout) -> Result<Option<Dmcast<Ipv4Addr, Inner>>, Malformed> {
        let header = packet.get(..outer.header_len).unwrap_or(&[]);
        let option = ipv4::find_lms(header).map_err(Malformed::Option)?;
        let (option, inner) = match option {
            Some(option) if option.kind == Kind::Dmcast => (
                option,
                encap::open_outer(packet, outer).map_err(Malformed::Open)?,
            ),
            // A request in a tunnel's header belongs to the tunnel.
            Some(_) => return Ok(None),
            None => match encap::open_inner(packet, outer).map_err(Malformed::Open)? {
                Some(opened) => opened,
                None => return Ok(None),
            },
        };
        let bytes = packet.get(inner.packet.clone()).unwrap_or(&[]);
        let header_len = Layout::check(bytes).map_or(0, |layout| layout.header_len);
        let own_len = inner.strip.map_or(0, |option| option.len);
        Ok(Some(Dmcast {
            key: Key::new(option.body.source, option.body.group),
            router: option.body.turning_router,
            iface: option.body.turning_iface,
            cookie: option.cookie,
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
    fn unwrap(packet: &mut [u8], dmcast: &Dmcast<Ipv4Addr, Inner>) -> Range<usize> {
        let inner = encap::decapsulate(packet, &dmcast.inner);
        if let Some(packet) = packet.get_mut(inner.clone()) {
            ipv4::decrement_ttl(packet);
        }
        inner
    }
}
