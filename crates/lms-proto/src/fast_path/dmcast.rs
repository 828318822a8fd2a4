//! Directed multicasts.

use core::net::Ipv4Addr;

use super::records::{IFACE_LIMIT, Port, Record, Settings, spent, taken};
use super::request::{mtu, only_option, total_len};
use super::{Action, Arrival, Clock, Refusal, Tables, Verdict, Whose, Word, group_link, take};
use crate::carrier::Dmcast;
use crate::router::check_dmcast;
use crate::rule::Role;
use crate::table::Credit;
use crate::wire::ipv4;
use crate::{Address as _, Iface, Key, Kind};

/// Decides a dmcast: `outer` is the whole outer header, 36 bytes with the option in the classic form or 48 with it in ours,
/// `inner` the first 20 bytes of the packet in it, and `packet_len` the length of the whole in its frame. Edits the inner
/// header where it is sent.
#[inline(always)]
pub fn dmcast<T: Tables, const LEN: usize>(
    tables: &T,
    clock: impl Fn(&Settings) -> Clock,
    arrival: Arrival,
    outer: &[u8; LEN],
    inner: &mut [u8; ipv4::HEADER_LEN],
    packet_len: usize,
) -> Verdict {
    decide(tables, clock, arrival, outer, inner, packet_len).unwrap_or(Verdict::PASS)
}

/// The dmcast, where both headers are of the usual shape and it is addressed to the interface that it arrived on.
#[inline(always)]
fn open<const LEN: usize>(
    outer: &[u8; LEN],
    inner: &[u8; ipv4::HEADER_LEN],
    port: &Port,
    packet_len: usize,
) -> Option<Dmcast<Ipv4Addr, u16>> {
    let found = only_option(outer)?;
    let len = total_len(outer, packet_len)?;
    let to = ipv4::destination(outer);
    let inner_len = u16::from_be_bytes([inner[2], inner[3]]);
    let is_usual = found.kind == Kind::Dmcast
        && ipv4::protocol(outer) == ipv4::PROTOCOL_IPIP
        && to == port.address
        && !to.is_unspecified()
        && !ipv4::is_fragment(outer)
        && ipv4::checksum_ok(outer)
        && inner[0] == 4 << 4 | (ipv4::HEADER_LEN / 4) as u8
        && usize::from(inner_len) + LEN == usize::from(len)
        && ipv4::checksum_ok(inner);
    let dmcast = Dmcast {
        key: Key::new(found.body.source, found.body.group),
        router: found.body.turning_router,
        iface: found.body.turning_iface,
        cookie: found.cookie,
        source: ipv4::source(inner),
        destination: ipv4::destination(inner),
        hop_limit: ipv4::ttl(inner),
        protocol: ipv4::protocol(inner),
        payload_len: usize::from(inner_len).saturating_sub(ipv4::HEADER_LEN),
        is_fragment: ipv4::is_fragment(inner),
        has_options: false,
        inner: inner_len,
    };
    (is_usual && check_dmcast(&dmcast, to).is_ok()).then_some(dmcast)
}

/// `None`: for the machine.
#[inline(always)]
fn decide<T: Tables, const LEN: usize>(
    tables: &T,
    clock: impl Fn(&Settings) -> Clock,
    arrival: Arrival,
    outer: &[u8; LEN],
    inner: &mut [u8; ipv4::HEADER_LEN],
    packet_len: usize,
) -> Option<Verdict> {
    if arrival.iface.0 >= IFACE_LIMIT {
        return None;
    }
    let here = tables.port(arrival.iface)?;
    let dmcast = open(outer, inner, here, packet_len)?;
    let record = tables.record(&dmcast.key)?;
    let settings = tables.settings()?;
    let clock = clock(settings);
    if record.role(arrival.iface) == Role::Outside {
        return Some(Verdict::drop(Refusal::NotOnTree));
    }
    if !comes_from_there(tables, arrival.iface, here, ipv4::source(outer)) {
        return None;
    }
    let (refusal, iface) =
        turning_interface(tables, settings, clock, arrival.iface, record, &dmcast);
    if refusal != Refusal::None {
        return Some(Verdict::drop(refusal));
    }
    let mtu = mtu(tables, iface)?;
    if dmcast.hop_limit <= 1 {
        return Some(Verdict::drop(Refusal::InnerTtlExpired));
    }
    let refusal = take_tokens(tables, settings, clock, record, dmcast.cookie.is_none());
    if refusal != Refusal::None {
        return Some(Verdict::limited(Action::Dmcast, refusal));
    }
    if u32::from(dmcast.inner) > mtu {
        return Some(Verdict::too_long(Action::Dmcast, iface));
    }
    ipv4::decrement_ttl(inner);
    Some(Verdict {
        action: Action::Dmcast,
        iface,
        link: group_link(dmcast.destination),
        strip: LEN as u16,
        len: dmcast.inner,
        ..Verdict::PASS
    })
}

/// Whether a packet from this address may come in here beyond doubt.
#[inline(always)]
fn comes_from_there<T: Tables>(tables: &T, arrival: Iface, here: &Port, from: Ipv4Addr) -> bool {
    if !from.is_host() {
        return false;
    }
    let whose = match here.is_apart == 1 && here.is_on_link(from) {
        true if from == here.address => Whose::Unclear,
        true => Whose::OnLink(arrival),
        false => tables.whose(from),
    };
    match whose {
        Whose::OnLink(iface) => iface == arrival && !here.is_reserved(from),
        Whose::Elsewhere => !from.is_link_local(),
        Whose::Unclear => false,
    }
}

/// The interface that the number of a dmcast stands for, where a repair is due: as in the machine.
#[inline(always)]
fn turning_interface<T: Tables>(
    tables: &T,
    settings: &Settings,
    clock: Clock,
    arrival: Iface,
    record: &Record,
    dmcast: &Dmcast<Ipv4Addr, u16>,
) -> (Refusal, Iface) {
    let credit = Credit::from_bits(tables.read(Word::Credit(record.slot)));
    let is_classic = dmcast.cookie.is_none();
    if !credit.allows(clock.tick(), is_classic) {
        return (Refusal::NoCredit, Iface::UNSET);
    }
    let wrong_numbers = Word::WrongNumbers(arrival);
    let wrong_number = |bits| taken(bits, clock.now_ns(), &settings.wrong_numbers);
    if is_classic && wrong_number(tables.read(wrong_numbers)).is_none() {
        return (Refusal::WrongNumberRate, Iface::UNSET);
    }
    let hash = record.hash;
    let period = clock.period();
    let mut found = Iface::UNSET;
    for period_of_number in [period, period.wrapping_sub(1)] {
        if found.is_set() {
            break;
        }
        let numbers = &settings.numbers;
        let iface = numbers.interface(period_of_number, hash.prefix, dmcast.iface);
        let is_proved = |cookie| settings.cookies.is_valid(period, hash.hash, iface, cookie);
        if record.is_downstream(iface) && dmcast.cookie.is_none_or(is_proved) {
            found = iface;
        }
    }
    if found.is_set() {
        return (Refusal::None, found);
    }
    let refusal = match is_classic {
        true => take(tables, wrong_numbers, Refusal::NotDownstream, wrong_number),
        false => Refusal::Cookie,
    };
    match refusal {
        Refusal::None => (Refusal::NotDownstream, Iface::UNSET),
        refusal => (refusal, Iface::UNSET),
    }
}

/// Takes the tokens of a dmcast, and spends a credit.
#[inline(always)]
fn take_tokens<T: Tables>(
    tables: &T,
    settings: &Settings,
    clock: Clock,
    record: &Record,
    is_classic: bool,
) -> Refusal {
    let (slot, now_ns) = (record.slot, clock.now_ns());
    let one = take(tables, Word::Dmcasts(slot), Refusal::DmcastRate, |bits| {
        taken(bits, now_ns, &settings.dmcasts)
    });
    if one != Refusal::None {
        return one;
    }
    let credit = take(tables, Word::Credit(slot), Refusal::NoCredit, |bits| {
        spent(bits, clock.tick(), is_classic)
    });
    if credit != Refusal::None {
        return credit;
    }
    take(tables, Word::AllDmcasts, Refusal::AllDmcasts, |bits| {
        taken(bits, now_ns, &settings.all_dmcasts)
    })
}
