//! Requests.

use super::records::{IFACE_LIMIT, Record, Settings, taken};
use super::{Action, Arrival, Clock, Refusal, Tables, Verdict, Word, group_link, take};
use crate::rule::{self, Role};
use crate::table::Credit;
use crate::wire::found::{Found, OptionAt, Turn};
use crate::wire::ipv4;
use crate::{Address as _, Iface, Key, Kind, LinkAddr};
use core::net::Ipv4Addr;

/// Decides a request: `header` is the whole IPv4 header of a packet to a group, 36 bytes with the option in the classic
/// form or 48 with it in ours, `to_port` what follows as the destination port of a UDP header, and `packet_len` the length
/// of the packet in its frame. Edits the header where it is sent.
#[inline(always)]
pub fn request<T: Tables, const LEN: usize>(
    tables: &T,
    clock: impl Fn(&Settings) -> Clock,
    arrival: Arrival,
    header: &mut [u8; LEN],
    (to_port, packet_len): (u16, usize),
) -> Verdict {
    decide(tables, clock, arrival, header, (to_port, packet_len)).unwrap_or(Verdict::PASS)
}

/// The option of a whole header in which it is the only one.
#[inline(always)]
pub(super) fn only_option<const LEN: usize>(header: &[u8; LEN]) -> Option<Found<Ipv4Addr>> {
    let option = OptionAt {
        at: ipv4::HEADER_LEN,
        len: LEN - ipv4::HEADER_LEN,
    };
    if header[0] != 4 << 4 | (LEN / 4) as u8 || usize::from(header[option.at + 1]) != option.len {
        return None;
    }
    Found::read(header, option).ok().flatten()
}

/// Length of a packet, where its frame has it whole.
#[inline(always)]
pub(super) fn total_len<const LEN: usize>(header: &[u8; LEN], packet_len: usize) -> Option<u16> {
    let total_len = u16::from_be_bytes([header[2], header[3]]);
    let fits = usize::from(total_len) >= LEN && usize::from(total_len) <= packet_len;
    fits.then_some(total_len)
}

/// `None`: for the machine.
#[inline(always)]
fn decide<T: Tables, const LEN: usize>(
    tables: &T,
    clock: impl Fn(&Settings) -> Clock,
    arrival: Arrival,
    header: &mut [u8; LEN],
    (to_port, packet_len): (u16, usize),
) -> Option<Verdict> {
    let found = only_option(header)?;
    let len = total_len(header, packet_len)?;
    let key = Key::new(found.body.source, found.body.group);
    let is_usual = found.kind == Kind::Request
        && key.group.is_multicast()
        && key.group == ipv4::destination(header)
        && arrival.iface.0 < IFACE_LIMIT
        && !ipv4::is_fragment(header)
        && ipv4::checksum_ok(header);
    if !is_usual {
        return None;
    }
    let record = tables.record(&key)?;
    let settings = tables.settings()?;
    // The machine takes it for a datagram of the UDP carrier.
    if ipv4::protocol(header) == ipv4::PROTOCOL_UDP && settings.is_udp_port(to_port) {
        return None;
    }
    let tree = record.tree();
    let role = role(tables, record, arrival, ipv4::source(header));
    let action = match rule::decide(
        role,
        found.body.turning_iface.is_set(),
        tree.replier.is_set(),
    ) {
        rule::Action::Drop(reason) => return Some(Verdict::drop(reason.into())),
        rule::Action::ToParent if !tree.parent.is_set() => {
            return Some(Verdict::drop(Refusal::NoParent));
        }
        rule::Action::ToParent => Action::ToParent,
        rule::Action::Turn if record.turning_router.is_unspecified() => return None,
        rule::Action::Turn => Action::Turn,
        rule::Action::ToReplier => Action::ToReplier,
    };
    let to_parent = action == Action::ToParent;
    let iface = if to_parent { tree.parent } else { tree.replier };
    let mtu = mtu(tables, iface)?;
    if ipv4::ttl(header) <= 1 {
        return Some(Verdict::drop(Refusal::TtlExpired));
    }
    let clock = clock(settings);
    let has_cookie = found.cookie.is_some();
    let refusal = take_tokens(tables, settings, clock, record, action, has_cookie);
    if refusal != Refusal::None {
        return Some(Verdict::limited(action, refusal));
    }
    if u32::from(len) > mtu {
        return Some(Verdict::too_long(action, iface));
    }
    if action == Action::Turn {
        let turn = turn(settings, clock, arrival.iface, record, has_cookie);
        ipv4::hop_and_turn(header, found.turn_at, &turn);
    } else {
        ipv4::decrement_ttl(header);
    }
    let link = match to_parent || record.is_for_link() {
        true => group_link(key.group),
        false => LinkAddr(record.replier_link),
    };
    Some(Verdict {
        action,
        iface,
        link,
        len,
        ..Verdict::PASS
    })
}

/// The MTU of an interface that can be sent on.
#[inline(always)]
pub(super) fn mtu<T: Tables>(tables: &T, iface: Iface) -> Option<u32> {
    let mtu = tables.port(iface)?.mtu;
    (mtu > 0).then_some(mtu)
}

/// The role of the packet's interface; another neighbour than the replier on its link counts as downstream.
#[inline(always)]
fn role<T: Tables>(tables: &T, record: &Record, arrival: Arrival, sender: Ipv4Addr) -> Role {
    match record.role(arrival.iface) {
        Role::Replier if is_beside(tables, record, arrival, sender) => Role::Downstream,
        role => role,
    }
}

/// Whether a request from the replier's link is not the replier's: by the address of its frame, or by its own where the
/// machine tells neighbours apart by that.
#[inline(always)]
fn is_beside<T: Tables>(tables: &T, record: &Record, arrival: Arrival, sender: Ipv4Addr) -> bool {
    if record.is_for_link() {
        return false;
    }
    if record.replier_address.is_unspecified() {
        return record.replier_link != arrival.link_source.0;
    }
    let here = tables.port(arrival.iface);
    here.is_some_and(|here| here.is_on_link(sender)) && sender != record.replier_address
}

/// Takes the tokens of a request, and adds the credit of one that turns.
#[inline(always)]
fn take_tokens<T: Tables>(
    tables: &T,
    settings: &Settings,
    clock: Clock,
    record: &Record,
    action: Action,
    has_cookie: bool,
) -> Refusal {
    let (slot, now_ns) = (record.slot, clock.now_ns());
    let one = take(tables, Word::Requests(slot), Refusal::RequestRate, |bits| {
        taken(bits, now_ns, &settings.requests)
    });
    if one != Refusal::None {
        return one;
    }
    if action == Action::Turn {
        let tick = clock.tick();
        let credit = take(tables, Word::Credit(slot), Refusal::Busy, |bits| {
            let credit = Credit::from_bits(bits).with_request(tick, &settings.credit, !has_cookie);
            Some(credit.to_bits())
        });
        if credit != Refusal::None {
            return credit;
        }
    }
    take(tables, Word::AllRequests, Refusal::AllRequests, |bits| {
        taken(bits, now_ns, &settings.all_requests)
    })
}

/// The turning point of a request.
#[inline(always)]
fn turn(
    settings: &Settings,
    clock: Clock,
    arrival: Iface,
    record: &Record,
    has_cookie: bool,
) -> Turn<Ipv4Addr> {
    let hash = record.hash;
    let period = clock.period();
    Turn {
        router: record.turning_router,
        number: settings.numbers.number(period, hash.prefix, arrival),
        cookie: match has_cookie {
            true => settings.cookies.cookie(period, hash.hash, arrival),
            false => 0,
        },
    }
}
