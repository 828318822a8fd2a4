//! The LMS option, LMS-HIER, and replier costs in IGMP and MLD reports.

use std::net::{Ipv4Addr, Ipv6Addr};

use igmp::wire::Message;
use igmp::{Family, datagram};
use lms_proto::wire::hier::{Entry, Kind as HierKind, MAX_ENTRIES, Repr};
use lms_proto::wire::ipv4::{Layout, find_lms};
use lms_proto::wire::option::View;
use lms_proto::wire::{ipv6, udp};
use lms_proto::{Form, Kind};

use crate::Fields;
use crate::goldens::{Golden, hex};
use crate::packets::Carrier;

fn option(bytes: &[u8]) -> Option<Fields> {
    let view = View::<Ipv4Addr>::new_checked(bytes).ok()?;
    let mut fields = Fields::of("lms");
    let request = view.kind() == Kind::Request;
    match view.form() {
        Form::Classic => {
            fields.put("type", if request { 138 } else { 139 });
            fields.put("length", 16);
        }
        Form::Own => {
            fields
                .put("type", 158)
                .put("length", 28)
                .put("experiment", 0x4c4d)
                .put("sub_option", if request { 1 } else { 2 })
                .put("sub_length", 24);
        }
    }
    let body = view.body();
    fields
        .put("turning_interface", body.turning_iface.0)
        .put("turning_address", body.turning_router)
        .put("source", body.source)
        .put("group", body.group);
    if view.form() == Form::Own {
        fields.put("cookie", view.cookie());
    }
    Some(fields)
}

fn dmcast(bytes: &[u8]) -> Option<Fields> {
    let layout = Layout::check(bytes).ok()?;
    let header = &bytes[..layout.header_len];
    find_lms(header).ok()??;
    option(&header[20..])
}

fn hier(bytes: &[u8]) -> Option<Fields> {
    let mut room = [Entry::EMPTY; MAX_ENTRIES];
    let message = Repr::parse(bytes, &mut room).ok()?;
    let mut fields = Fields::of("hier");
    let elected = message.header.kind == HierKind::Elected;
    fields
        .put("version", 1)
        .put("type", if elected { 2 } else { 1 })
        .put("identifier", 0x4c4d)
        .put("boot", message.header.boot)
        .put("sequence", message.header.sequence)
        .put("hold_time", message.header.hold_time_ms)
        .put("entries", message.entries.len());
    for entry in message.entries {
        fields
            .put("source", entry.key.source)
            .put("group", entry.key.group)
            .put(
                "neighbour",
                entry.neighbour.unwrap_or(Ipv4Addr::UNSPECIFIED),
            )
            .put("cost", entry.cost.0);
    }
    Some(fields)
}

/// The same over IPv6, in a whole packet.
fn hier6(bytes: &[u8]) -> Option<Fields> {
    let mut room = [Entry::<Ipv6Addr>::EMPTY; MAX_ENTRIES];
    let message = Repr::parse(bytes.get(48..)?, &mut room).ok()?;
    let mut fields = Fields::of("hier");
    fields
        .put("version", 1)
        .put(
            "type",
            if message.header.kind == HierKind::Elected {
                2
            } else {
                1
            },
        )
        .put("identifier", 0x4c4d)
        .put("boot", message.header.boot)
        .put("sequence", message.header.sequence)
        .put("hold_time", message.header.hold_time_ms)
        .put("entries", message.entries.len());
    for entry in message.entries {
        let neighbour = entry.neighbour.unwrap_or(Ipv6Addr::UNSPECIFIED);
        fields
            .put("source6", entry.key.source)
            .put("group6", entry.key.group)
            .put("neighbour6", neighbour)
            .put("cost", entry.cost.0);
    }
    Some(fields)
}

/// An ELECTED message in its packet.
const HIER6: &str = "60000000 00801101 fe800000 00000000 00000000 00000001
    ff020000 00000000 00000000 00000114 102a102a 00800000
    01024c4d 00000007 00000009 015e0002
    20010db8 00000000 00000000 00000001 ff3e0000 00000000 00000000 80001234
    fe800000 00000000 00000000 00000007 00030000
    00000000 00000000 00000000 00000000 ff150000 00000000 00000000 00000005
    00000000 00000000 00000000 00000000 ffff0000";

fn igmp(bytes: &[u8]) -> Option<Fields> {
    costs(Message::parse(bytes).ok()?)
}

/// A whole packet.
fn mld(bytes: &[u8]) -> Option<Fields> {
    let ip = datagram::parse(bytes, Ipv6Addr::PROTOCOL)?;
    costs(Message::<Ipv6Addr>::of(&ip).ok()?)
}

/// Only its own fields: the costs.
fn costs<A: Family>(message: Message<'_, A>) -> Option<Fields> {
    let mut fields = Fields::of("lms");
    if let Message::V3Report(records) = message {
        for cost in records.iter().filter_map(|record| record.cost()) {
            fields.put("experiment", 0x4c4d).put("cost", cost.0);
        }
    }
    Some(fields).filter(|fields| !fields.shown.is_empty())
}

/// The option in the hop-by-hop header of a whole packet.
fn hop_by_hop(bytes: &[u8]) -> Option<Fields> {
    let layout = ipv6::Layout::check(bytes).ok()?;
    let found = ipv6::find_lms(bytes, layout).ok()??;
    let mut fields = Fields::of("lms");
    let request = found.kind == Kind::Request;
    fields
        .put("experiment", 0x4c4d)
        .put("sub_option", if request { 1 } else { 2 })
        .put("sub_length", 60)
        .put("turning_interface", found.body.turning_iface.0)
        .put("turning_address6", found.body.turning_router)
        .put("source6", found.body.source)
        .put("group6", found.body.group)
        .put("cookie", found.cookie.unwrap_or(0));
    Some(fields)
}

/// LMS by datagram, without a payload.
fn datagram_ipv4(bytes: &[u8]) -> Option<Fields> {
    let names = ["turning_address", "source", "group"];
    datagram_fields::<Ipv4Addr>(bytes, names)
}

/// The same in IPv6, a whole packet.
fn datagram_ipv6(bytes: &[u8]) -> Option<Fields> {
    let names = ["turning_address6", "source6", "group6"];
    datagram_fields::<Ipv6Addr>(bytes.get(48..)?, names)
}

/// The fields of a datagram's header; the names are those of its addresses.
fn datagram_fields<A: lms_proto::Family>(bytes: &[u8], names: [&'static str; 3]) -> Option<Fields> {
    let header = udp::Header::<A>::parse(bytes).ok()?;
    let mut fields = Fields::of("lms");
    let request = header.kind == Kind::Request;
    fields
        .put("experiment", 0x4c4d)
        .put("sub_option", if request { 1 } else { 2 })
        .put("hop_limit", header.hop_limit)
        .put("turning_interface", header.body.turning_iface.0)
        .put(names[0], header.body.turning_router)
        .put(names[1], header.body.source)
        .put(names[2], header.body.group)
        .put("cookie", header.cookie)
        .put("source_port", header.ports.source)
        .put("group_port", header.ports.group);
    Some(fields)
}

/// IPv6 around the option, which is the first of the hop-by-hop header: the option, 6 bytes of padding, "no next header".
const HOP_BY_HOP_HEADERS: &str = "60000000 00480040 20010db8 00000001 00000000 00000009
    ff3e0000 00000000 00000000 00001234 3b08";
const HOP_BY_HOP: &str = "3e3e4c4d 023c0102 20010db8 00000000 00000000 00000007
    20010db8 00000001 00000000 00000002 ff3e0000 00000000 00000000 00001234 c0010203 04050607";
const HOP_BY_HOP_PADDING: &str = "01040000 0000";

const DATAGRAM: &str = "4c4d0210 0102c000 02070a01 0002e801 0203c001 02030405 06070fa0 1388";
/// IPv6 and UDP around the request.
const DATAGRAM6_HEADERS: &str = "60000000 004a1140 20010db8 00000001 00000000 00000009
    20010db8 00000001 00000000 00000002 23281030 004a0000";
const DATAGRAM6: &str =
    "4c4d0100 ffff0000 00000000 00000000 00000000 000020010db8 00000001 00000000 00000002
    ff3e0000 00000000 00000000 00001234 00000000 00000000 0fa01388";

const OPTIONS: &[(&str, &str)] = &[
    ("lms request", "8a10ffff 00000000 0a010002 e8010203"),
    ("lms dmcast", "8b100102 c0000207 0a010002 e8010203"),
    (
        "lms request, own form",
        "9e1c4c4d 01180102 c0000207 0a010002 e8010203 c0010203 04050607",
    ),
    (
        "lms dmcast, own form",
        "9e1c4c4d 02180102 c0000207 0a010002 e8010203 c0010203 04050607",
    ),
];

const HIER: &[(&str, &str)] = &[
    (
        "hier update",
        "01014c4d deadbeef 0000002a 88b80002
         0a000901 e8010101 00000000 00040000
         00000000 ef010203 00000000 ffff0000",
    ),
    (
        "hier elected",
        "01024c4d 00000007 ffffffff 015e0002
         0a000901 e8010101 0a000107 00030000
         0a000901 e8010102 00000000 ffff0000",
    ),
];

/// Around the UPDATE.
const HIER_HEADERS: &str = "45c0004c 00004000 01118ce1 0a000102 e00000fe 102a102a 00380000";

const DMCAST: &str = "4900003c 00070000 4004d38e 0a010209 0a010201
    8b100003 0a010201 0a010002 e8010203
    45000018 12340000 4011749a 0a010002 e8010203 deadbeef";

const REPORT: &str = "220094a6 00000001 01010001 e8010101 0a000901 4c4d0005";
/// The same without a cost, and what else stands in the goldens of IGMP: nothing of ours in it.
const FOREIGN: &[&str] = &[
    "46c00030 00004000 0102f8ea 0a000107 e0000016 94040000",
    "110acd6e ef010203 0a7d0002 0a000901 0a000902",
    "1164fd96 ef010203",
    "1100fdfa ef010203",
    "1200fcfa ef010203",
    "1600f8fa ef010203",
    "1700f7fa ef010203",
];

const MLD_REPORT: &str = "6c000000 00380001 fe800000 00000000 00000000 00000007 ff020000 00000000
    00000000 00000016 3a000502 00000100 8f007698 00000001 01010001 ff3e0000
    00000000 00000000 80010203 20010db8 00090000 00000000 00000001 4c4d0005";
/// Other MLD packets, with nothing of ours.
const MLD_FOREIGN: &[&str] = &[
    "6c000000 00440001 fe800000 00000000 00000000 00000001 ff3e0000 00000000
    00000000 80010203 3a000502 00000100 82001292 03e80000 ff3e0000 00000000
    00000000 80010203 0a7d0002 20010db8 00090000 00000000 00000001 20010db8
    00090000 00000000 00000002",
    "6c000000 00240001 fe800000 00000000 00000000 00000001 ff020000 00000000
    00000000 00000001 3a000502 00000100 82005696 27100000 00000000 00000000
    00000000 00000000 027d0000",
    "6c000000 00200001 fe800000 00000000 00000000 00000001 ff3e0000 00000000
    00000000 80010203 3a000502 00000100 82005594 27100000 ff3e0000 00000000
    00000000 80010203",
    "6c000000 00200001 fe800000 00000000 00000000 00000007 ff3e0000 00000000
    00000000 80010203 3a000502 00000100 83007b9e 00000000 ff3e0000 00000000
    00000000 80010203",
    "6c000000 00200001 fe800000 00000000 00000000 00000007 ff020000 00000000
    00000000 00000002 3a000502 00000100 8400fcdc 00000000 ff3e0000 00000000
    00000000 80010203",
];

fn nothing(_: &[u8]) -> Option<Fields> {
    Some(Fields::of("lms"))
}

pub(crate) fn goldens() -> Vec<Golden> {
    let mut goldens = Vec::new();
    for (name, text) in OPTIONS {
        let mut golden = Golden::new(name, hex(text), Carrier::IpOption, option);
        // Another option, or another experiment: not ours, and not malformed.
        golden.text.push(0..1);
        if golden.bytes.len() == 28 {
            golden.text.push(2..4);
        }
        goldens.push(golden);
    }
    for (name, text) in HIER {
        goldens.push(Golden::new(name, hex(text), Carrier::Udp(4138), hier));
    }
    let packet = [hex(HIER_HEADERS), hex(HIER[0].1)].concat();
    let mut packet = Golden::new("hier packet", packet, Carrier::Raw, |bytes| {
        hier(&bytes[28..])
    });
    // Headers of other protocols.
    packet.text.push(0..packet.bytes.len());
    goldens.push(packet);
    let whole = |name, text: &str, parse| {
        let mut golden = Golden::new(name, hex(text), Carrier::Raw, parse);
        // Headers of other protocols.
        golden.text.push(0..golden.bytes.len());
        golden
    };
    goldens.push(whole("hier over ipv6", HIER6, hier6));
    goldens.push(whole("lms encapsulated", DMCAST, dmcast));
    let parts = [HOP_BY_HOP_HEADERS, HOP_BY_HOP, HOP_BY_HOP_PADDING];
    goldens.push(whole("lms hop-by-hop", &parts.join(" "), hop_by_hop));
    let mut golden = Golden::new(
        "lms datagram",
        hex(DATAGRAM),
        Carrier::Udp(4144),
        datagram_ipv4,
    );
    // Another identifier: not ours.
    golden.text.push(0..2);
    goldens.push(golden);
    let parts = [DATAGRAM6_HEADERS, DATAGRAM6];
    goldens.push(whole(
        "lms datagram over ipv6",
        &parts.join(" "),
        datagram_ipv6,
    ));
    let mut report = Golden::new("lms cost", hex(REPORT), Carrier::Igmp, igmp);
    // A checksum covers it all.
    report.text.push(0..report.bytes.len());
    goldens.push(report);
    goldens.push(whole("mld cost", MLD_REPORT, mld));
    for text in MLD_FOREIGN {
        goldens.push(whole("mld", text, nothing));
    }
    for text in FOREIGN {
        let carrier = if text.starts_with("46") {
            Carrier::Raw
        } else {
            Carrier::Igmp
        };
        let mut golden = Golden::new("igmp", hex(text), carrier, nothing);
        golden.text.push(0..golden.bytes.len());
        goldens.push(golden);
    }
    goldens
}
