//! Properties of the formats: round trips, every bit flip, any bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mcp_control::limits::{MAX_BLOCKS, MAX_FRAME_LEN};
use mcp_control::wire::held::{Held, Scanned};
use mcp_control::wire::hello::{Capabilities, Hello, Prepared, Welcome};
use mcp_control::wire::island::{Island, Listen, MIN_MEMBERS, Multicast};
use mcp_control::wire::offer::{CopyId, Offer, emit_entry, parse_entries, parse_entry};
use mcp_control::wire::plan::{Carrier, DataKey, Plan, emit_runs, parse_runs};
use mcp_control::wire::port::{Port, Suggest};
use mcp_control::wire::progress::{Done, FileDigest, Progress};
use mcp_control::wire::relay::{Blocks, Fed, Feed, LinkId, LinkReport, LinkSecret};
use mcp_control::wire::{self, Frames, Header, Message, ParseError, Type};
use mcp_control::{Entry, Failed, Kind, Reason, RelPath, Run, Timestamp};
use proptest::prelude::*;

/// Parses a frame by its type; whatever is taken is written again and must be the same bytes.
fn check(frame: &[u8]) -> Result<(), ParseError> {
    macro_rules! again {
        ($type:ty) => {{
            let value = <$type>::parse(frame)?;
            let mut out = vec![0; value.buffer_len()];
            value.emit(&mut out);
            // What later versions append to the first two is not kept.
            assert_eq!(out[8..], frame[8..out.len()]);
        }};
    }
    match wire::split(frame)?.0 {
        Type::Hello => again!(Hello),
        Type::Welcome => again!(Welcome),
        Type::Offer => again!(Offer),
        Type::Held => again!(Held),
        Type::Blocks => again!(Blocks),
        Type::Feed => again!(Feed),
        Type::Fed => again!(Fed),
        Type::Link => again!(LinkReport),
        Type::Multicast => again!(Multicast),
        Type::Listen => again!(Listen),
        Type::Scanned => again!(Scanned),
        Type::Suggest => again!(Suggest),
        Type::Port => again!(Port),
        Type::Plan => again!(Plan),
        Type::Progress => again!(Progress),
        Type::Digest => again!(FileDigest),
        Type::Done => again!(Done),
        Type::Failed => again!(Failed),
        Type::Ready => again!(wire::Ready),
        Type::Verified => again!(wire::Verified),
        Type::KeepAlive => again!(wire::KeepAlive),
        Type::Runs => {
            let runs = parse_runs(frame)?;
            let mut out = vec![0; frame.len()];
            assert_eq!(emit_runs(&runs, &mut out), Some((frame.len(), runs.len())));
            assert_eq!(out, frame);
        }
        Type::Entries => {
            let mut rest = parse_entries(frame)?;
            while !rest.is_empty() {
                let Ok((entry, left)) = parse_entry(rest) else {
                    return Ok(());
                };
                let mut out = vec![0; rest.len()];
                let len = emit_entry(&entry, &mut out);
                assert_eq!(out[..len], rest[..len]);
                rest = left;
            }
        }
    }
    Ok(())
}

fn entry() -> impl Strategy<Value = Entry> {
    let name = "[^/\0]{1,40}".prop_filter("dots", |name| {
        name != "." && name != ".." && !mcp_control::path::is_part(name.as_bytes())
    });
    let kind = prop_oneof![
        Just(Kind::Folder),
        (0..=mcp_control::limits::MAX_FILE_LEN).prop_map(|len| Kind::File { len }),
        prop::collection::vec(1u8.., 1..50).prop_map(|target| Kind::Link {
            target: target.into()
        }),
    ];
    let fields = (0u16..0o1000, any::<i64>(), 0u32..1_000_000_000);
    (prop::collection::vec(name, 1..5), kind, fields).prop_map(
        |(names, kind, (mode, seconds, nanos))| Entry {
            path: RelPath::new(names.join("/").as_bytes()).unwrap(),
            kind,
            mode,
            modified: Timestamp { seconds, nanos },
        },
    )
}

/// What a HELLO says of the data connection.
fn prepared() -> impl Strategy<Value = Option<Prepared>> {
    let key = proptest::option::of(any::<[u8; 32]>());
    let fields = (any::<bool>(), 1u16.., 1u16.., key);
    proptest::option::of(fields.prop_map(|(udp, source, destination, key)| Prepared {
        carrier: if udp { Carrier::Udp } else { Carrier::Ip },
        source,
        destination,
        key: key.map(DataKey),
    }))
}

fn emitted(message: &impl Message) -> Vec<u8> {
    let mut frame = vec![0; message.buffer_len()];
    message.emit(&mut frame);
    frame
}

/// An island, over IPv4 or IPv6, and hosts that can be in it.
fn island() -> impl Strategy<Value = (Island, Vec<IpAddr>)> {
    let named = (any::<[u8; 16]>(), any::<[u8; 32]>(), any::<bool>());
    let hosts = prop::collection::vec(1..0xe000_0000u32, MIN_MEMBERS..12);
    let addresses = (any::<bool>(), any::<u16>(), hosts);
    (named, (1u16.., 1u16..), addresses).prop_map(|(named, ports, (is_ipv6, group, hosts))| {
        let address = |prefix: u128, low: u32| -> IpAddr {
            match is_ipv6 {
                true => Ipv6Addr::from(prefix << 96 | u128::from(low)).into(),
                false => Ipv4Addr::from(low).into(),
            }
        };
        let island = Island {
            link: LinkId(named.0),
            secret: LinkSecret(named.1),
            group: address(0xff12_0000, 0xefff_0000 | u32::from(group)),
            source: ports.0,
            destination: ports.1,
            sealed: named.2,
        };
        let hosts = hosts.iter().map(|&host| address(0x2001_0db8, host));
        (island, hosts.collect())
    })
}

/// A well-formed frame of any type but ENTRIES, whose test is below.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let digest = any::<[u8; 32]>();
    prop_oneof![
        (1u8..9, 0u8..9, any::<u16>(), prepared()).prop_map(|(lowest, more, bits, prepared)| {
            let capabilities = Capabilities(bits);
            let hello = Hello {
                lowest,
                highest: lowest + more,
                capabilities,
                prepared,
            };
            emitted(&hello)
        }),
        (any::<[u8; 16]>(), 1u32.., any::<u64>()).prop_map(|(id, entries, bytes)| {
            let offer = Offer {
                copy: CopyId(id),
                entries,
                bytes,
            };
            emitted(&offer)
        }),
        (0..MAX_BLOCKS / 2, prop::collection::vec(digest, 1..9)).prop_map(|(first, digests)| {
            let held = Held { first, digests };
            emitted(&held)
        }),
        (1u16..=16, any::<bool>(), 1u16.., 1u16..).prop_map(|(number, ip, source, destination)| {
            let suggest = Suggest {
                number,
                carrier: if ip { Carrier::Ip } else { Carrier::Udp },
                source,
                destination,
            };
            emitted(&suggest)
        }),
        (1u16..=16, any::<bool>(), 1u16..).prop_map(|(number, confirmed, port)| {
            let port = Port {
                number,
                confirmed,
                port,
            };
            emitted(&port)
        }),
        prop::collection::vec((0..1u64 << 20, 1..99u64), 1..9).prop_map(|runs| {
            let runs: Vec<Run> = runs
                .iter()
                .map(|&(first, count)| Run { first, count })
                .collect();
            let mut frame = vec![0; MAX_FRAME_LEN];
            let (len, _) = emit_runs(&runs, &mut frame).unwrap();
            frame.truncate(len);
            frame
        }),
        (any::<u64>(), any::<u64>(), digest).prop_map(|(received, bytes, whole)| {
            let done = Done {
                received,
                bytes,
                whole,
            };
            emitted(&done)
        }),
        island().prop_map(|(island, members)| emitted(&Multicast { island, members })),
        island().prop_map(|(island, hosts)| {
            let head = hosts[0];
            emitted(&Listen { island, head })
        }),
        (0usize..17, any::<Option<u32>>(), ".{0,200}").prop_map(|(at, entry, text)| {
            let failed = Failed::new(Reason::ALL[at], entry, &text);
            emitted(&failed)
        }),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(frame in frame()) {
        prop_assert_eq!(check(&frame), Ok(()));
    }

    #[test]
    fn every_truncation_is_refused(frame in frame()) {
        for len in 0..frame.len() {
            prop_assert!(check(&frame[..len]).is_err());
        }
    }

    #[test]
    fn every_bit_flip_is_refused_or_read_as_it_stands(frame in frame()) {
        for bit in 0..frame.len() * 8 {
            let mut flipped = frame.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let _ = check(&flipped);
        }
    }

    #[test]
    fn any_bytes(kind in 0u8..26, mut body in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut frame = vec![1, kind, 0, 0];
        frame.extend_from_slice(&(body.len() as u32).to_be_bytes());
        frame.append(&mut body);
        let _ = check(&frame);
    }

    #[test]
    fn an_entry_survives_the_wire(entry in entry()) {
        let mut bytes = vec![0; mcp_control::wire::offer::entry_len(&entry)];
        prop_assert_eq!(emit_entry(&entry, &mut bytes), bytes.len());
        prop_assert_eq!(parse_entry(&bytes), Ok((entry, &[][..])));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok((read, rest)) = parse_entry(&flipped) {
                let mut out = vec![0; flipped.len()];
                let len = emit_entry(&read, &mut out);
                prop_assert_eq!(&out[..len], &flipped[..flipped.len() - rest.len()]);
            }
        }
    }

    #[test]
    fn frames_are_the_same_however_the_stream_is_cut(
        frames in prop::collection::vec(frame(), 1..6),
        cuts in prop::collection::vec(1usize..40, 1..50),
    ) {
        let stream = frames.concat();
        let mut cutter = Frames::new();
        let mut read = Vec::new();
        let mut rest = &stream[..];
        let mut cuts = cuts.iter().cycle();
        while !rest.is_empty() {
            let (mut piece, later) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
            while let Some(frame) = cutter.next(&mut piece).unwrap() {
                read.push(frame.to_vec());
                if piece.is_empty() { break }
            }
            prop_assert!(piece.is_empty());
            rest = later;
        }
        prop_assert_eq!(read, frames);
    }
}

#[test]
fn a_frame_too_long_for_its_type_is_refused_at_its_header() {
    let kinds: Vec<Type> = (1..).map_while(Type::from_number).collect();
    assert_eq!(kinds.last(), Some(&Type::Listen));
    for kind in kinds {
        let mut header = [0; 8];
        let body_len = kind.max_body_len() + 1;
        Header { kind, body_len }.emit(&mut header);
        let mut cutter = Frames::new();
        assert_eq!(cutter.next(&mut &header[..]), Err(ParseError::Length));
        assert!(kind.max_body_len() + 8 <= MAX_FRAME_LEN);
    }
}
