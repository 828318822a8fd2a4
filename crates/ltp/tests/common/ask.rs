//! Requests as they reach a replier or a source.
#![allow(unreachable_pub, missing_docs)]

use lms_proto::{Iface, Kind as OptionKind, LmsOption, TurningPoint};
use ltp::wire::request::{self, Kind, Range};
use ltp::{Meta, SessionId};

use crate::common::{group, host, source};

/// A request of one range, with that token, that a router has turned or not.
pub fn request(session: SessionId, kind: Kind, (lo, hi): (u32, u32), token: u64) -> Vec<u8> {
    let mut repr = request::Repr {
        kind,
        tag: 9,
        session,
        number: 1,
        round_trip_us: 0,
        token,
        nonce: 77,
        ranges: Default::default(),
    };
    let _ = repr.ranges.push(Range { lo, hi });
    let mut packet = vec![0; repr.buffer_len()];
    repr.emit(&mut packet);
    packet
}

/// How a request reaches an elected replier when that turning point has turned it, if one has.
pub fn asked(turning_point: Option<TurningPoint>) -> Meta {
    let mut meta = Meta::group(host(9));
    meta.elected = true;
    meta.option = Some(LmsOption {
        kind: OptionKind::Request,
        turning_point,
        source: source().ip(),
        group: group().ip(),
    });
    meta
}

/// A turning point with that last byte of its address.
pub fn point(router: u8, iface: u16) -> TurningPoint {
    TurningPoint {
        router: [10, 0, 9, router].into(),
        iface: Iface(iface),
    }
}
