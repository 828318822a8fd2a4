//! Control messages of `mcp` and `mcpd`.

use std::net::{IpAddr, Ipv6Addr};

use mcp_control::wire::held::{Held, Scanned};
use mcp_control::wire::hello::{Capabilities, Hello, Welcome};
use mcp_control::wire::island::{Island, Listen, Multicast};
use mcp_control::wire::offer::{Offer, parse_entries, parse_entry};
use mcp_control::wire::plan::{Plan, parse_runs};
use mcp_control::wire::port::{Port, Suggest};
use mcp_control::wire::progress::{Done, FileDigest, FileVerdict, Progress};
use mcp_control::wire::relay::{Blocks, Fed, Feed, LinkId, LinkReport, LinkSecret, LinkState};
use mcp_control::wire::{KeepAlive, Message, Ready, Type, Verified, split};
use mcp_control::{Failed, Kind};

use crate::Fields;
use crate::goldens::{Golden, hex};
use crate::packets::Carrier;

fn head(kind: Type, body_len: usize) -> Fields {
    let mut fields = Fields::of("mcp");
    fields
        .put("version", 1)
        .put("type", kind as u8)
        .put("body_length", body_len);
    fields
}

fn capabilities(fields: &mut Fields, capabilities: Capabilities) {
    fields
        .put("identifier", "PMCP")
        .put("capabilities", capabilities.0)
        .flag("aead", capabilities.has(Capabilities::AEAD))
        .flag("udp", capabilities.has(Capabilities::UDP))
        .flag("ip", capabilities.has(Capabilities::IP))
        .flag("prepares", capabilities.has(Capabilities::PREPARES))
        .flag("fed", capabilities.has(Capabilities::FED))
        .flag("feeds", capabilities.has(Capabilities::FEEDS))
        .flag("islands", capabilities.has(Capabilities::ISLANDS));
}

fn appended(fields: &mut Fields, body: &[u8], known: usize) {
    if body.len() > known {
        fields.bytes("appended", &body[known..]);
    }
}

fn first_words(fields: &mut Fields, kind: Type, bytes: &[u8], body: &[u8]) -> Option<()> {
    match kind {
        Type::Hello => {
            let hello = Hello::parse(bytes).ok()?;
            fields.put("lowest", hello.lowest);
            fields.put("highest", hello.highest);
            capabilities(fields, hello.capabilities);
            if let Some(prepared) = hello.prepared {
                fields
                    .put("carrier", prepared.carrier as u8)
                    .put("flags", u8::from(prepared.key.is_some()))
                    .flag("flag_aead", prepared.key.is_some())
                    .put("source_port", prepared.source)
                    .put("destination_port", prepared.destination)
                    .bytes("key", &prepared.key.map_or([0; 32], |key| key.0));
            }
            appended(fields, body, if hello.prepared.is_some() { 48 } else { 8 });
        }
        Type::Welcome => {
            let welcome = Welcome::parse(bytes).ok()?;
            fields.put("chosen", welcome.version);
            capabilities(fields, welcome.capabilities);
            fields.put("max_entries", welcome.max_entries);
            fields.put("max_bytes", welcome.max_bytes);
            appended(fields, body, 20);
        }
        Type::Offer => {
            let offer = Offer::parse(bytes).ok()?;
            fields.bytes("copy", &offer.copy.0);
            fields.put("entries", offer.entries);
            fields.put("bytes", offer.bytes);
        }
        _ => entries(fields, bytes)?,
    }
    Some(())
}

fn entries(fields: &mut Fields, bytes: &[u8]) -> Option<()> {
    let mut rest = parse_entries(bytes).ok()?;
    while !rest.is_empty() {
        let (entry, left) = parse_entry(rest).ok()?;
        let path = entry.path.as_bytes();
        let (kind, target) = match &entry.kind {
            Kind::Folder => (1, &[][..]),
            Kind::File { .. } => (2, &[][..]),
            Kind::Link { target } => (3, &target[..]),
        };
        fields
            .put("kind", kind)
            .put("mode", entry.mode)
            .put("path_length", path.len())
            .put("target_length", target.len())
            .put("nanoseconds", entry.modified.nanos)
            .put("seconds", entry.modified.seconds)
            .put("length", entry.len())
            .put("path", String::from_utf8_lossy(path));
        if !target.is_empty() {
            fields.put("target", String::from_utf8_lossy(target));
        }
        rest = left;
    }
    Some(())
}

fn held(fields: &mut Fields, bytes: &[u8]) -> Option<()> {
    let held = Held::parse(bytes).ok()?;
    fields.put("first", held.first);
    for digest in &held.digests {
        fields.bytes("digest", digest);
    }
    Some(())
}

fn ports(fields: &mut Fields, kind: Type, bytes: &[u8]) -> Option<()> {
    if kind == Type::Suggest {
        let suggest = Suggest::parse(bytes).ok()?;
        fields
            .put("number", suggest.number)
            .put("carrier", suggest.carrier as u8)
            .put("source_port", suggest.source)
            .put("destination_port", suggest.destination);
    } else {
        let port = Port::parse(bytes).ok()?;
        fields
            .put("number", port.number)
            .put("confirmed", u16::from(!port.confirmed))
            .put("port", port.port);
    }
    Some(())
}

/// An address as it is in a message.
fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

fn plan(fields: &mut Fields, bytes: &[u8]) -> Option<()> {
    let plan = Plan::parse(bytes).ok()?;
    let group = plan.group.map_or(Ipv6Addr::UNSPECIFIED, mapped);
    fields
        .put("carrier", plan.carrier as u8)
        .put(
            "flags",
            u8::from(plan.key.is_some()) | u8::from(plan.relay) << 1,
        )
        .flag("flag_aead", plan.key.is_some())
        .flag("flag_relay", plan.relay)
        .put("group", group)
        .put("source_port", plan.source)
        .put("destination_port", plan.destination)
        .put("runs", plan.runs)
        .put("stream_length", plan.stream_len)
        .bytes("key", &plan.key.map_or([0; 32], |key| key.0));
    Some(())
}

fn links(fields: &mut Fields, kind: Type, bytes: &[u8]) -> Option<()> {
    let ends = |fields: &mut Fields, link: LinkId, secret: LinkSecret| {
        fields.bytes("link", &link.0).bytes("secret", &secret.0);
    };
    match kind {
        Type::Blocks => {
            let blocks = Blocks::parse(bytes).ok()?;
            fields.put("first", blocks.first);
            for digest in &blocks.digests {
                fields.bytes("digest", digest);
            }
        }
        Type::Feed => {
            let feed = Feed::parse(bytes).ok()?;
            ends(fields, feed.link, feed.secret);
            fields
                .put("child", mapped(feed.child.ip()))
                .put("port", feed.child.port())
                .put("flags", u8::from(feed.sealed))
                .flag("flag_sealed", feed.sealed);
        }
        Type::Fed => {
            let fed = Fed::parse(bytes).ok()?;
            ends(fields, fed.link, fed.secret);
            fields
                .put("flags", u8::from(fed.sealed) | u8::from(fed.alone) << 1)
                .flag("flag_sealed", fed.sealed)
                .flag("flag_alone", fed.alone);
        }
        _ => {
            let report = LinkReport::parse(bytes).ok()?;
            let (state, round_trip, block) = match report.state {
                LinkState::Open { round_trip_us } => (0, round_trip_us, 0),
                LinkState::Unreachable => (1, 0, 0),
                LinkState::Closed => (2, 0, 0),
                LinkState::Wrong { block } => (3, 0, block),
                LinkState::Gone { block } => (4, 0, block),
                LinkState::Refused => (5, 0, 0),
                LinkState::Expected => (6, 0, 0),
            };
            fields
                .bytes("link", &report.link.0)
                .put("link_state", state)
                .put("round_trip", round_trip)
                .put("block", block);
        }
    }
    Some(())
}

fn islands(fields: &mut Fields, kind: Type, bytes: &[u8]) -> Option<()> {
    let stream = |fields: &mut Fields, island: &Island| {
        fields
            .bytes("island", &island.link.0)
            .bytes("secret", &island.secret.0)
            .put("group", mapped(island.group))
            .put("source_port", island.source)
            .put("destination_port", island.destination)
            .put("flags", u8::from(island.sealed))
            .flag("flag_sealed", island.sealed);
    };
    if kind == Type::Multicast {
        let multicast = Multicast::parse(bytes).ok()?;
        stream(fields, &multicast.island);
        fields.put("members", multicast.members.len());
        for member in multicast.members {
            fields.put("member", mapped(member));
        }
    } else {
        let listen = Listen::parse(bytes).ok()?;
        stream(fields, &listen.island);
        fields.put("head", mapped(listen.head));
    }
    Some(())
}

fn runs(fields: &mut Fields, bytes: &[u8]) -> Option<()> {
    for run in parse_runs(bytes).ok()? {
        fields.put("first", run.first).put("count", run.count);
    }
    Some(())
}

fn digest(fields: &mut Fields, bytes: &[u8]) -> Option<()> {
    let digest = FileDigest::parse(bytes).ok()?;
    let (status, value) = match digest.verdict {
        FileVerdict::Digest(value) => (0, value),
        FileVerdict::Changed => (1, [0; 32]),
        FileVerdict::Unreadable => (2, [0; 32]),
    };
    fields
        .put("entry", digest.entry)
        .put("status", status)
        .bytes("digest", &value);
    Some(())
}

fn last_words(fields: &mut Fields, kind: Type, bytes: &[u8]) -> Option<()> {
    match kind {
        Type::Progress => {
            let progress = Progress::parse(bytes).ok()?;
            fields.put("received", progress.received);
            fields.put("held", progress.held);
        }
        Type::Digest => digest(fields, bytes)?,
        Type::Done => {
            let done = Done::parse(bytes).ok()?;
            fields.put("received", done.received);
            fields.put("bytes", done.bytes);
            fields.bytes("digest", &done.whole);
        }
        Type::Failed => {
            let failed = Failed::parse(bytes).ok()?;
            fields.put("reason", failed.reason as u16);
            fields.put("entry", failed.entry.unwrap_or(u32::MAX));
            if !failed.text.is_empty() {
                fields.put("text", &failed.text);
            }
        }
        Type::Ready => drop(Ready::parse(bytes).ok()?),
        Type::Verified => drop(Verified::parse(bytes).ok()?),
        _ => drop(KeepAlive::parse(bytes).ok()?),
    }
    Some(())
}

pub(crate) fn parse(bytes: &[u8]) -> Option<Fields> {
    let (kind, body) = split(bytes).ok()?;
    let mut fields = head(kind, body.len());
    match kind {
        Type::Hello | Type::Welcome | Type::Offer | Type::Entries => {
            first_words(&mut fields, kind, bytes, body)?;
        }
        Type::Held => held(&mut fields, bytes)?,
        Type::Scanned => {
            fields.put("blocks", Scanned::parse(bytes).ok()?.blocks);
        }
        Type::Suggest | Type::Port => ports(&mut fields, kind, bytes)?,
        Type::Plan => plan(&mut fields, bytes)?,
        Type::Runs => runs(&mut fields, bytes)?,
        Type::Blocks | Type::Feed | Type::Fed | Type::Link => links(&mut fields, kind, bytes)?,
        Type::Multicast | Type::Listen => islands(&mut fields, kind, bytes)?,
        _ => last_words(&mut fields, kind, bytes)?,
    }
    Some(fields)
}

const TWO_DIGESTS: &str = "1111111111111111111111111111111111111111111111111111111111111111
    2222222222222222222222222222222222222222222222222222222222222222";

const GOLDENS: &[(&str, &str)] = &[
    ("mcp hello", "01010000 00000008 504d4350 0103 0003"),
    (
        "mcp prepared hello",
        "01010000 00000030 504d4350 0101 0003 11010000 c000c350
         5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a",
    ),
    (
        "mcp plainly prepared hello",
        "01010000 00000030 504d4350 0101 0003 06000000 c000c350
         0000000000000000000000000000000000000000000000000000000000000000",
    ),
    (
        "mcp plainly prepared hello of a later version",
        "01010000 00000034 504d4350 0102 0004 06000000 c000c350
         0000000000000000000000000000000000000000000000000000000000000000 deadbeef",
    ),
    (
        "mcp preparing welcome",
        "01020000 00000014 504d4350 0100000a 00100000 00001000 00000000",
    ),
    (
        "mcp welcome",
        "01020000 00000014 504d4350 01000004 00100000 00001000 00000000",
    ),
    (
        "mcp later hello",
        "01010000 0000000c 504d4350 0102 0003 deadbeef",
    ),
    ("mcp newer hello", "01010000 00000008 504d4350 0205 0003"),
    (
        "mcp offer",
        "01030000 0000001c 30313233343536373839616263646566 00000002 0000010203040506",
    ),
    (
        "mcp entries",
        "01040000 0000005c
         01 00 01ed 0001 0000 3b9ac9ff ffffffffffffffff 0000000000000000 64
         02 00 0180 0003 0000 00000000 000000006553f100 0000000000000102 642f66
         03 00 01ff 0003 0001 00000000 0000000000000000 0000000000000000 642f6c 66",
    ),
    ("mcp scanned", "01060000 00000008 0000000000000102"),
    ("mcp suggest", "01070000 00000008 00011100 c000c350"),
    ("mcp port confirmed", "01080000 00000008 00010000 c3500000"),
    ("mcp port other", "01080000 00000008 00020001 c3510000"),
    (
        "mcp plan",
        "01090000 00000044 11010000 00000000000000000000ffffef010203 c000c350 00000002
         0000000000300000 5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a",
    ),
    (
        "mcp runs",
        "010a0000 00000020 0000000000000000 0000000000000002 0000000000000007 0000000000000001",
    ),
    (
        "mcp progress",
        "010c0000 00000010 0000000000000001 0000000000000002",
    ),
    (
        "mcp failed",
        "01100000 00000010 00070000 00000009 6469736b66756c6c",
    ),
    ("mcp failed bare", "01100000 00000008 00010000 ffffffff"),
    (
        "mcp multicast",
        "01160000 00000068 33333333333333333333333333333333
         4444444444444444444444444444444444444444444444444444444444444444
         00000000000000000000ffffefff0102 c000 c350 01 02 0000
         00000000000000000000ffffc0000207 00000000000000000000ffffc0000208",
    ),
    (
        "mcp multicast over ipv6",
        "01160000 00000068 33333333333333333333333333333333
         4444444444444444444444444444444444444444444444444444444444444444
         ff120000000000000000000000010002 c000 c350 00 02 0000
         20010db8000000000000000000000007 20010db8000000000000000000000008",
    ),
    (
        "mcp listen",
        "01170000 00000058 33333333333333333333333333333333
         4444444444444444444444444444444444444444444444444444444444444444
         00000000000000000000ffffefff0102 c000 c350 01 00 0000
         00000000000000000000ffffc0000206",
    ),
    (
        "mcp listen over ipv6",
        "01170000 00000058 33333333333333333333333333333333
         4444444444444444444444444444444444444444444444444444444444444444
         ff120000000000000000000000010002 c000 c350 00 00 0000
         20010db8000000000000000000000006",
    ),
    ("mcp ready", "010b0000 00000000"),
    ("mcp verified", "010f0000 00000000"),
    ("mcp keepalive", "01110000 00000000"),
];

fn golden(name: &'static str, bytes: Vec<u8>) -> Golden {
    let mut golden = Golden::new(name, bytes, Carrier::Tcp(4139), parse);
    golden.framing = Some((4, 4, 8));
    // By its first byte the reader sees whether it should wait for the rest.
    golden.text.push(0..1);
    match name {
        // Paths have rules, and what is too long for one entry may be two.
        "mcp entries" => golden.text.push(8..golden.bytes.len()),
        "mcp failed" => golden.text.push(16..golden.bytes.len()),
        _ => {}
    }
    golden
}

pub(crate) fn goldens() -> Vec<Golden> {
    let mut goldens: Vec<Golden> = GOLDENS
        .iter()
        .map(|&(name, text)| golden(name, hex(text)))
        .collect();
    let digests = |head: &str, byte: u8| {
        let mut bytes = hex(head);
        bytes.extend([byte; 32]);
        bytes
    };
    let mut held = hex("01050000 00000048 0000000000000005");
    held.extend(hex(TWO_DIGESTS));
    goldens.push(golden("mcp held", held));
    let mut nothing = hex("01090000 00000044 06000000");
    nothing.resize(76, 0);
    goldens.push(golden("mcp plan of nothing", nothing));
    let mut links = hex("01090000 00000044 06020000");
    links.resize(32, 0);
    links.extend(hex("00000001 0000000000000005"));
    links.resize(76, 0);
    goldens.push(golden("mcp plan of links", links));
    let mut blocks = hex("01120000 00000048 0000000000000003");
    blocks.extend(hex(TWO_DIGESTS));
    goldens.push(golden("mcp blocks", blocks));
    let mut feed = hex("01130000 00000044");
    feed.extend([0x33; 16]);
    feed.extend([0x44; 32]);
    feed.extend(hex("00000000000000000000ffffc0000207 102b 0100"));
    goldens.push(golden("mcp feed", feed));
    for (name, flags) in [("mcp fed", 0), ("mcp fed alone", 3)] {
        let mut fed = hex("01140000 00000034");
        fed.extend([0x33; 16]);
        fed.extend([0x44; 32]);
        fed.extend([flags, 0, 0, 0]);
        goldens.push(golden(name, fed));
    }
    for (name, rest) in [
        ("mcp link open", "00000000 00000539 0000000000000000"),
        ("mcp link unreachable", "01000000 00000000 0000000000000000"),
        ("mcp link closed", "02000000 00000000 0000000000000000"),
        ("mcp link wrong", "03000000 00000000 0000000000000009"),
        ("mcp link gone", "04000000 00000000 0000000000000009"),
        ("mcp link refused", "05000000 00000000 0000000000000000"),
        ("mcp link expected", "06000000 00000000 0000000000000000"),
    ] {
        let mut bytes = hex("01150000 00000020");
        bytes.extend([0x33; 16]);
        bytes.extend(hex(rest));
        goldens.push(golden(name, bytes));
    }
    let mut most = hex("01160000 00000448");
    most.extend([0x33; 16]);
    most.extend([0x44; 32]);
    most.extend(hex("00000000000000000000ffffefff0102 c000 c350 01 40 0000"));
    for host in 1..=64 {
        most.extend(hex("00000000000000000000ffffc00002"));
        most.push(host);
    }
    let mut most = golden("mcp multicast to 64 members", most);
    // Flips of addresses are compared in the shorter goldens.
    most.text.push(80..most.bytes.len());
    goldens.push(most);
    let digest = "010d0000 00000028 00000003 00000000";
    goldens.push(golden("mcp digest", digests(digest, 0x77)));
    let changed = "010d0000 00000028 00000003 01000000";
    goldens.push(golden("mcp digest changed", digests(changed, 0)));
    let done = "010e0000 00000030 0000000000000001 0000000000000002";
    goldens.push(golden("mcp done", digests(done, 0x88)));
    goldens
}
