//! The option of IPv6's hop-by-hop header.

use core::net::Ipv6Addr;
use core::ops::Range;

use super::{Carrier, Class, Dmcast, Malformed, Request, RequestAt, Upward};
use crate::wire::encap::OpenError;
use crate::wire::found::{Turn, TurnAt};
use crate::wire::ipv6::{self, Layout};
use crate::wire::option::{Body, HOP_BY_HOP_LMS};
use crate::{Form, Key, Kind};

/// The option 0x3e of IPv6's hop-by-hop header; a dmcast is IPv6 in IPv6 with the option in the outer packet
/// (RFC 2473). The inner packet carries no extension headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HopByHop;

impl Carrier for HopByHop {
    type Address = Ipv6Addr;
    type Outer = Layout;
    type Inner = Range<usize>;

    const UPWARD: Upward = Upward::Link;

    #[inline]
    fn classify(packet: &[u8]) -> Result<Class<Layout>, Malformed> {
        let layout = Layout::check(packet).map_err(Malformed::Header)?;
        if layout.header_len == ipv6::HEADER_LEN {
            return Ok(Class::Other);
        }
        let multicast = ipv6::destination(packet).is_multicast();
        if !multicast && layout.next_header != ipv6::IPV6_IN_IPV6 {
            return Ok(Class::Other);
        }
        // Only the addressee drops an encapsulated packet for what its options are.
        if !multicast {
            return Ok(Class::Encapsulated(layout));
        }
        let option = ipv6::find_lms(packet, layout).map_err(Malformed::Option)?;
        let Some(option) = option else {
            return Ok(Class::Other);
        };
        if option.kind == Kind::Dmcast {
            return Err(Malformed::NotEncapsulated);
        }
        if layout.is_fragment(packet).map_err(Malformed::Header)? {
            return Err(Malformed::RequestFragment);
        }
        Ok(Class::Request(RequestAt {
            turn_at: TurnAt::in_option::<Ipv6Addr>(option.option.at, Form::Own),
            len: layout.total_len,
        }))
    }

    /// The option is the first in its header, which follows the fixed one.
    #[inline]
    fn guess_key(packet: &[u8]) -> Option<Key<Ipv6Addr>> {
        let at = ipv6::HEADER_LEN + 2;
        if *packet.get(at)? != HOP_BY_HOP_LMS {
            return None;
        }
        let body_at = TurnAt::in_option::<Ipv6Addr>(at, Form::Own).body_at;
        Some(Body::read(packet.get(body_at..)?)?.key())
    }

    #[inline]
    fn is_addressed(request: &Request<Ipv6Addr>) -> bool {
        request.key.group == request.destination
    }

    #[inline]
    fn hop(packet: &mut [u8]) {
        ipv6::decrement_hop_limit(packet);
    }

    #[inline]
    fn turn(packet: &mut [u8], at: TurnAt, turn: &Turn<Ipv6Addr>) {
        ipv6::set_turning_point(packet, at, turn);
    }

    #[inline]
    fn send_down(_packet: &mut [u8]) {}

    #[inline]
    fn open(
        packet: &[u8],
        outer: Layout,
    ) -> Result<Option<Dmcast<Ipv6Addr, Range<usize>>>, Malformed> {
        let option = match ipv6::find_lms(packet, outer).map_err(Malformed::Option)? {
            Some(option) if option.kind == Kind::Dmcast => option,
            _ => return Ok(None),
        };
        let inner = outer.header_len..outer.total_len;
        let bytes = packet.get(inner.clone()).unwrap_or(&[]);
        let open = Malformed::Open;
        let layout = Layout::check(bytes).map_err(|error| open(OpenError::Inner(error)))?;
        if layout.total_len != bytes.len() {
            return Err(open(OpenError::InnerLength));
        }
        let is_fragment = layout.is_fragment(bytes);
        let is_fragment = is_fragment.map_err(|error| open(OpenError::Inner(error)))?;
        Ok(Some(Dmcast {
            key: Key::new(option.body.source, option.body.group),
            router: option.body.turning_router,
            iface: option.body.turning_iface,
            cookie: option.cookie,
            source: ipv6::source(bytes),
            destination: ipv6::destination(bytes),
            hop_limit: ipv6::hop_limit(bytes),
            protocol: layout.next_header,
            payload_len: bytes.len() - layout.header_len,
            is_fragment,
            has_options: layout.header_len != ipv6::HEADER_LEN,
            inner,
        }))
    }

    #[inline]
    fn unwrap(packet: &mut [u8], dmcast: &Dmcast<Ipv6Addr, Range<usize>>) -> Range<usize> {
        if let Some(inner) = packet.get_mut(dmcast.inner.clone()) {
            ipv6::decrement_hop_limit(inner);
        }
        dmcast.inner.clone()
    }
}
