//! Bytes to value and value to bytes, for each message of `docs/wire.md`.

use std::net::IpAddr;

use mcp_control::wire::held::{Held, Scanned};
use mcp_control::wire::hello::{Capabilities, Hello, Prepared, Welcome};
use mcp_control::wire::island::{Island, Listen, Multicast};
use mcp_control::wire::link::{Accept, BlockHeader, Keys, Preface, Want, is_proof};
use mcp_control::wire::offer::{CopyId, Offer, emit_entries, parse_entries, parse_entry};
use mcp_control::wire::plan::{Carrier, DataKey, Plan, emit_runs, parse_runs};
use mcp_control::wire::port::{Port, Suggest};
use mcp_control::wire::progress::{Done, FileDigest, FileVerdict, Progress};
use mcp_control::wire::relay::{Blocks, Fed, Feed, LinkId, LinkReport, LinkSecret, LinkState};
use mcp_control::wire::{self, Message, ParseError};
use mcp_control::{Entry, Failed, Kind, Reason, RelPath, Run, Timestamp};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// Both directions, and every truncation and one byte too many.
macro_rules! golden {
    ($type:ty, $bytes:expr, $value:expr) => {{
        let bytes: Vec<u8> = hex($bytes);
        let value = $value;
        assert_eq!(<$type>::parse(&bytes), Ok(value.clone()));
        let mut out = vec![0xaa; value.buffer_len()];
        value.emit(&mut out);
        assert_eq!(out, bytes);
        for len in 0..bytes.len() {
            assert!(<$type>::parse(&bytes[..len]).is_err(), "cut to {len}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(<$type>::parse(&longer), Err(ParseError::Length));
    }};
}

#[test]
fn hello_and_welcome() {
    let hello = Hello {
        lowest: 1,
        highest: 3,
        capabilities: Capabilities::AEAD.with(Capabilities::UDP),
        prepared: None,
    };
    golden!(Hello, "01010000 00000008 504d4350 0103 0003", hello);
    let prepared = Prepared {
        carrier: Carrier::Udp,
        source: 49152,
        destination: 50000,
        key: Some(DataKey([0x5a; 32])),
    };
    let hello = Hello {
        lowest: 1,
        highest: 1,
        prepared: Some(prepared),
        ..hello
    };
    golden!(
        Hello,
        "01010000 00000030 504d4350 0101 0003 11010000 c000c350
         5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a",
        hello
    );
    let plain = Prepared {
        carrier: Carrier::Ip,
        key: None,
        ..prepared
    };
    let hello = Hello {
        prepared: Some(plain),
        ..hello
    };
    golden!(
        Hello,
        "01010000 00000030 504d4350 0101 0003 06000000 c000c350
         0000000000000000000000000000000000000000000000000000000000000000",
        hello
    );
    let welcome = Welcome {
        version: 1,
        capabilities: Capabilities::IP,
        max_entries: 0x10_0000,
        max_bytes: 1 << 44,
    };
    golden!(
        Welcome,
        "01020000 00000014 504d4350 01000004 00100000 00001000 00000000",
        welcome
    );
}

#[test]
fn later_versions_may_append_fields() {
    let hello = hex("01010000 0000000c 504d4350 0102 0003 deadbeef");
    assert_eq!(Hello::parse(&hello).map(|hello| hello.highest), Ok(2));
    assert_eq!(Hello::parse(&hello).unwrap().version(), Some(1));
    let newer = hex("01010000 00000008 504d4350 0205 0003");
    assert_eq!(Hello::parse(&newer).unwrap().version(), None);
}

#[test]
fn offer() {
    let offer = Offer {
        copy: CopyId(*b"0123456789abcdef"),
        entries: 2,
        bytes: 0x0102_0304_0506,
    };
    golden!(
        Offer,
        "01030000 0000001c 30313233343536373839616263646566 00000002 0000010203040506",
        offer
    );
}

#[test]
fn entries() {
    let entries = [
        Entry {
            path: RelPath::new(b"d").unwrap(),
            kind: Kind::Folder,
            mode: 0o755,
            modified: Timestamp {
                seconds: -1,
                nanos: 999_999_999,
            },
        },
        Entry {
            path: RelPath::new(b"d/f").unwrap(),
            kind: Kind::File { len: 258 },
            mode: 0o600,
            modified: Timestamp {
                seconds: 1_700_000_000,
                nanos: 0,
            },
        },
        Entry {
            path: RelPath::new(b"d/l").unwrap(),
            kind: Kind::Link {
                target: (*b"f").into(),
            },
            mode: 0o777,
            modified: Timestamp::default(),
        },
    ];
    let bytes = hex("01040000 0000005c \
         01 00 01ed 0001 0000 3b9ac9ff ffffffffffffffff 0000000000000000 64 \
         02 00 0180 0003 0000 00000000 000000006553f100 0000000000000102 642f66 \
         03 00 01ff 0003 0001 00000000 0000000000000000 0000000000000000 642f6c 66");
    let mut out = vec![0; 1000];
    assert_eq!(emit_entries(&entries, &mut out), Some((bytes.len(), 3)));
    assert_eq!(out[..bytes.len()], bytes);
    let mut rest = parse_entries(&bytes).unwrap();
    for entry in &entries {
        let (read, left) = parse_entry(rest).unwrap();
        assert_eq!(&read, entry);
        for cut in 0..rest.len() - left.len() {
            assert!(parse_entry(&rest[..cut]).is_err());
        }
        rest = left;
    }
    assert!(rest.is_empty());
    // As many as fit.
    assert_eq!(emit_entries(&entries, &mut out[..60]), Some((37, 1)));
    assert_eq!(emit_entries(&entries, &mut out[..20]), None);
}

#[test]
fn held_and_scanned() {
    let held = Held {
        first: 5,
        digests: vec![[0x11; 32], [0x22; 32]],
    };
    let bytes = format!(
        "01050000 00000048 0000000000000005 {} {}",
        "11".repeat(32),
        "22".repeat(32)
    );
    golden!(Held, &bytes, held);
    golden!(
        Scanned,
        "01060000 00000008 0000000000000102",
        Scanned { blocks: 258 }
    );
}

#[test]
fn ports() {
    let suggest = Suggest {
        number: 1,
        carrier: Carrier::Udp,
        source: 49_152,
        destination: 50_000,
    };
    golden!(Suggest, "01070000 00000008 00011100 c000c350", suggest);
    let confirmed = Port {
        number: 1,
        confirmed: true,
        port: 50_000,
    };
    golden!(Port, "01080000 00000008 00010000 c3500000", confirmed);
    let other = Port {
        number: 2,
        confirmed: false,
        port: 50_001,
    };
    golden!(Port, "01080000 00000008 00020001 c3510000", other);
}

#[test]
fn plan() {
    let plan = Plan {
        carrier: Carrier::Udp,
        group: Some(IpAddr::from([239, 1, 2, 3])),
        source: 49_152,
        destination: 50_000,
        runs: 2,
        stream_len: 0x300000,
        key: Some(DataKey([0x5a; 32])),
        relay: false,
    };
    let bytes = format!(
        "01090000 00000044 11010000 00000000000000000000ffffef010203 c000c350 00000002 \
         0000000000300000 {}",
        "5a".repeat(32)
    );
    golden!(Plan, &bytes, plan);
    let nothing = Plan {
        carrier: Carrier::Ip,
        group: None,
        source: 0,
        destination: 0,
        runs: 0,
        stream_len: 0,
        key: None,
        relay: false,
    };
    let bytes = format!("01090000 00000044 06000000 {}", "00".repeat(64));
    golden!(Plan, &bytes, nothing);
    let links = Plan {
        runs: 1,
        stream_len: 5,
        relay: true,
        ..nothing
    };
    let bytes = format!(
        "01090000 00000044 06020000 {} 00000001 0000000000000005 {}",
        "00".repeat(20),
        "00".repeat(32)
    );
    golden!(Plan, &bytes, links);
    assert!(links.has_links_only() && !plan.has_links_only());
    // One port alone is no plan.
    let mut half = hex(&bytes);
    half[31] = 1;
    assert_eq!(Plan::parse(&half), Err(ParseError::Value));
    assert!(!format!("{plan:?}").contains("90"), "the key is not shown");
}

#[test]
fn runs() {
    let runs = [Run { first: 0, count: 2 }, Run { first: 7, count: 1 }];
    let bytes = hex(
        "010a0000 00000020 0000000000000000 0000000000000002 0000000000000007 0000000000000001",
    );
    let mut out = [0; 100];
    assert_eq!(emit_runs(&runs, &mut out), Some((40, 2)));
    assert_eq!(out[..40], bytes);
    assert_eq!(parse_runs(&bytes).unwrap(), runs);
    assert_eq!(emit_runs(&runs, &mut out[..39]), Some((24, 1)));
    for cut in 0..bytes.len() {
        assert!(parse_runs(&bytes[..cut]).is_err());
    }
}

#[test]
fn progress_digest_and_done() {
    let progress = Progress {
        received: 1,
        held: 2,
    };
    golden!(
        Progress,
        "010c0000 00000010 0000000000000001 0000000000000002",
        progress
    );
    let digest = FileDigest {
        entry: 3,
        verdict: FileVerdict::Digest([0x77; 32]),
    };
    let bytes = format!("010d0000 00000028 00000003 00000000 {}", "77".repeat(32));
    golden!(FileDigest, &bytes, digest);
    let changed = FileDigest {
        entry: 3,
        verdict: FileVerdict::Changed,
    };
    let bytes = format!("010d0000 00000028 00000003 01000000 {}", "00".repeat(32));
    golden!(FileDigest, &bytes, changed);
    let done = Done {
        received: 1,
        bytes: 2,
        whole: [0x88; 32],
    };
    let bytes = format!(
        "010e0000 00000030 0000000000000001 0000000000000002 {}",
        "88".repeat(32)
    );
    golden!(Done, &bytes, done);
}

#[test]
fn messages_without_fields() {
    golden!(wire::Ready, "010b0000 00000000", wire::Ready);
    golden!(wire::Verified, "010f0000 00000000", wire::Verified);
    golden!(wire::KeepAlive, "01110000 00000000", wire::KeepAlive);
    let verified = hex("010f0000 00000000");
    assert_eq!(wire::Ready::parse(&verified), Err(ParseError::Type));
}

#[test]
fn failed() {
    let failed = Failed::new(Reason::NoSpace, Some(9), "disk\nfull");
    golden!(
        Failed,
        "01100000 00000010 00070000 00000009 6469736b66756c6c",
        failed
    );
    let bare = Failed::new(Reason::Interrupted, None, "");
    golden!(Failed, "01100000 00000008 00010000 ffffffff", bare);
    assert_eq!(
        Failed::new(Reason::Data, None, &"ü".repeat(300)).text.len(),
        512
    );
    for (number, reason) in Reason::ALL.iter().enumerate() {
        assert_eq!(Reason::from_number(number as u16 + 1), Some(*reason));
    }
}

#[test]
fn blocks_and_links() {
    let blocks = Blocks {
        first: 3,
        digests: vec![[0x11; 32], [0x22; 32]],
    };
    let bytes = format!(
        "01120000 00000048 0000000000000003 {}{}",
        "11".repeat(32),
        "22".repeat(32)
    );
    let parsed = Blocks::parse(&hex(&bytes)).unwrap();
    assert_eq!(parsed, blocks);
    let mut out = vec![0xaa; blocks.buffer_len()];
    blocks.emit(&mut out);
    assert_eq!(out, hex(&bytes));
    assert_eq!(
        Blocks::parse(&hex("01120000 00000008 0000000000000003")),
        Err(ParseError::Truncated)
    );
    let (link, secret) = (LinkId([0x33; 16]), LinkSecret([0x44; 32]));
    let feed = Feed {
        link,
        secret,
        child: "192.0.2.7:4139".parse().unwrap(),
        sealed: true,
    };
    let named = format!("{}{}", "33".repeat(16), "44".repeat(32));
    let bytes = format!("01130000 00000044 {named} 00000000000000000000ffffc0000207 102b 0100");
    golden!(Feed, &bytes, feed);
    let mut nowhere = hex(&bytes);
    nowhere[8 + 48..8 + 64].fill(0);
    assert_eq!(Feed::parse(&nowhere), Err(ParseError::Value));
    let fed = Fed {
        link,
        secret,
        sealed: false,
        alone: false,
    };
    for (flags, sealed, alone) in [
        ("00", false, false),
        ("01", true, false),
        ("02", false, true),
        ("03", true, true),
    ] {
        let bytes = format!("01140000 00000034 {named} {flags}000000");
        let fed = Fed {
            sealed,
            alone,
            ..fed
        };
        golden!(Fed, &bytes, fed);
    }
    assert!(
        !format!("{feed:?}{fed:?}").contains("68"),
        "the secret is not shown"
    );
    for (rest, state) in [
        (
            "00000000 00000539 0000000000000000",
            LinkState::Open {
                round_trip_us: 1337,
            },
        ),
        ("01000000 00000000 0000000000000000", LinkState::Unreachable),
        ("02000000 00000000 0000000000000000", LinkState::Closed),
        (
            "03000000 00000000 0000000000000009",
            LinkState::Wrong { block: 9 },
        ),
        (
            "04000000 00000000 0000000000000009",
            LinkState::Gone { block: 9 },
        ),
        ("05000000 00000000 0000000000000000", LinkState::Refused),
        ("06000000 00000000 0000000000000000", LinkState::Expected),
    ] {
        let bytes = format!("01150000 00000020 {} {rest}", "33".repeat(16));
        golden!(LinkReport, &bytes, LinkReport { link, state });
    }
}

#[test]
fn islands() {
    let island = Island {
        link: LinkId([0x33; 16]),
        secret: LinkSecret([0x44; 32]),
        group: [239, 255, 1, 2].into(),
        source: 49_152,
        destination: 50_000,
        sealed: true,
    };
    let over_ipv6 = Island {
        group: "ff12::1:2".parse().unwrap(),
        sealed: false,
        ..island
    };
    assert_eq!(island.key(), Some([0x44; 32]));
    assert_eq!(over_ipv6.key(), None);
    let members = |members: [&str; 2]| members.map(|member| member.parse().unwrap()).to_vec();
    let multicast = Multicast {
        island,
        members: members(["192.0.2.7", "192.0.2.8"]),
    };
    golden!(
        Multicast,
        "01160000 00000068 33333333333333333333333333333333
         4444444444444444444444444444444444444444444444444444444444444444
         00000000000000000000ffffefff0102 c000 c350 01 02 0000
         00000000000000000000ffffc0000207 00000000000000000000ffffc0000208",
        multicast.clone()
    );
    let shown = format!("{multicast:?}");
    assert!(!shown.contains("68, 68"), "the secret is not shown");
    golden!(
        Multicast,
        "01160000 00000068 33333333333333333333333333333333
         4444444444444444444444444444444444444444444444444444444444444444
         ff120000000000000000000000010002 c000 c350 00 02 0000
         20010db8000000000000000000000007 20010db8000000000000000000000008",
        Multicast {
            island: over_ipv6,
            members: members(["2001:db8::7", "2001:db8::8"]),
        }
    );
    let most = Multicast {
        members: (1..=64).map(|host| [192, 0, 2, host].into()).collect(),
        ..multicast
    };
    let hosts = (1..=64).map(|host| format!("00000000000000000000ffffc00002{host:02x}"));
    let bytes = format!(
        "01160000 00000448 {} {} 00000000000000000000ffffefff0102 c000 c350 01 40 0000 {}",
        "33".repeat(16),
        "44".repeat(32),
        hosts.collect::<String>()
    );
    golden!(Multicast, &bytes, most);
    golden!(
        Listen,
        "01170000 00000058 33333333333333333333333333333333
         4444444444444444444444444444444444444444444444444444444444444444
         00000000000000000000ffffefff0102 c000 c350 01 00 0000
         00000000000000000000ffffc0000206",
        Listen {
            island,
            head: [192, 0, 2, 6].into(),
        }
    );
    golden!(
        Listen,
        "01170000 00000058 33333333333333333333333333333333
         4444444444444444444444444444444444444444444444444444444444444444
         ff120000000000000000000000010002 c000 c350 00 00 0000
         20010db8000000000000000000000006",
        Listen {
            island: over_ipv6,
            head: "2001:db8::6".parse().unwrap(),
        }
    );
}

#[test]
fn on_a_link() {
    let preface = Preface {
        sealed: true,
        link: LinkId([0x33; 16]),
        nonce: [0x55; 32],
    };
    let bytes = hex(&format!(
        "504d4352 01010000 {} {}",
        "33".repeat(16),
        "55".repeat(32)
    ));
    assert_eq!(preface.emit()[..], bytes);
    assert_eq!(Preface::parse(&bytes), Ok(preface));
    for len in 0..bytes.len() {
        assert!(Preface::parse(&bytes[..len]).is_err(), "cut to {len}");
    }
    let keys = Keys::derive(&LinkSecret([0x44; 32]), &[0x55; 32], &[0x66; 32]);
    let accept = Accept {
        nonce: [0x66; 32],
        proof: keys.child_proof,
    };
    let expected = "39a8dcab2dc04600";
    let shown: String = keys.child_proof[..8]
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    assert_eq!(shown, expected);
    assert_eq!(Accept::parse(&accept.emit()), accept);
    assert!(is_proof(&accept.proof, &keys.child_proof));
    assert!(!is_proof(&keys.feeder_proof, &keys.child_proof));
    // Another secret, and either nonce, change all of it.
    for other in [
        Keys::derive(&LinkSecret([0x45; 32]), &[0x55; 32], &[0x66; 32]),
        Keys::derive(&LinkSecret([0x44; 32]), &[0x56; 32], &[0x66; 32]),
        Keys::derive(&LinkSecret([0x44; 32]), &[0x55; 32], &[0x67; 32]),
    ] {
        assert_ne!(other.child_proof, keys.child_proof);
        assert_ne!(other.feeder_proof, keys.feeder_proof);
        assert_ne!(other.requests, keys.requests);
        assert_ne!(other.blocks, keys.blocks);
    }
    let want = Want { first: 7, count: 2 };
    let mut bytes = Vec::new();
    want.emit(&mut bytes);
    assert_eq!(bytes, hex("0000000000000007 00000002"));
    assert_eq!(Want::parse(&bytes[..].try_into().unwrap()), Ok(want));
    for wrong in [
        "0000000000000007 00000000",
        "0000000000000007 00000101",
        "ffffffffffffffff 00000001",
    ] {
        let bytes = hex(wrong);
        assert_eq!(
            Want::parse(&bytes[..].try_into().unwrap()),
            Err(ParseError::Value)
        );
    }
    let header = BlockHeader {
        block: 7,
        len: 1 << 20,
    };
    let bytes = hex("0000000000000007 00100000");
    assert_eq!(header.emit()[..], bytes);
    assert_eq!(BlockHeader::parse(&header.emit()), Ok(header));
    let long = hex("0000000000000007 00100001");
    assert_eq!(
        BlockHeader::parse(&long[..].try_into().unwrap()),
        Err(ParseError::Value)
    );
}
