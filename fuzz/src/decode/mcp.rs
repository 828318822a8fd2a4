//! mcp control messages.

use mcp_control::path::{check_target, part_name, show};
use mcp_control::wire::held::{Held, Scanned};
use mcp_control::wire::hello::{Hello, Welcome};
use mcp_control::wire::island::{Listen, Multicast};
use mcp_control::wire::link::{BlockHeader, PREFACE_LEN, Preface, REQUEST_LEN, Want};
use mcp_control::wire::offer::{Offer, emit_entry, entry_len, parse_entries, parse_entry};
use mcp_control::wire::plan::{Plan, emit_runs, parse_runs};
use mcp_control::wire::port::{Port, Suggest};
use mcp_control::wire::progress::{Done, FileDigest, Progress};
use mcp_control::wire::relay::{Blocks, Fed, Feed, LinkReport};
use mcp_control::wire::{self, Frames, Message};
use mcp_control::{Failed, RelPath};

macro_rules! both_ways {
    ($bytes:expr, $($type:ty),+) => {$(
        if let Ok(value) = <$type>::parse($bytes) {
            let mut out = vec![0; value.buffer_len()];
            value.emit(&mut out);
            assert_eq!(<$type>::parse(&out), Ok(value));
        }
    )+};
}

/// Each message, and the cutting of a stream into messages.
pub fn frame(bytes: &[u8]) {
    let mut frames = Frames::new();
    let mut input = bytes;
    while let Ok(Some(frame)) = frames.next(&mut input) {
        one(frame);
    }
    one(bytes);
}

fn one(frame: &[u8]) {
    let _ = wire::split(frame);
    both_ways!(
        frame, Hello, Welcome, Offer, Held, Scanned, Suggest, Port, Plan, Progress, FileDigest,
        Done, Failed, Blocks, Feed, Fed, LinkReport, Multicast, Listen
    );
    on_a_link(frame);
    if let Ok(runs) = parse_runs(frame) {
        let mut out = vec![0; 1 << 16];
        let (len, count) = emit_runs(&runs, &mut out).expect("what parses can be written");
        assert_eq!((count, &out[..len]), (runs.len(), frame));
    }
    if let Ok(mut rest) = parse_entries(frame) {
        while let Ok((entry, left)) = parse_entry(rest) {
            assert!(left.len() < rest.len());
            let mut out = vec![0; entry_len(&entry)];
            let len = emit_entry(&entry, &mut out);
            assert_eq!(&rest[..rest.len() - left.len()], &out[..len]);
            rest = left;
        }
    }
}

/// What travels on links between hosts.
fn on_a_link(bytes: &[u8]) {
    if let Some(preface) = bytes.get(..PREFACE_LEN)
        && let Ok(parsed) = Preface::parse(preface)
    {
        assert_eq!(parsed.emit()[..], *preface);
    }
    let Some(request) = bytes.first_chunk::<REQUEST_LEN>() else {
        return;
    };
    if let Ok(want) = Want::parse(request) {
        let mut out = Vec::new();
        want.emit(&mut out);
        assert_eq!(out, request);
    }
    if let Ok(header) = BlockHeader::parse(request) {
        assert_eq!(header.emit(), *request);
    }
}

/// Paths and targets of links that a peer names.
pub fn path(bytes: &[u8]) {
    let mut shown = String::new();
    show(bytes, &mut shown).expect("a string takes all");
    assert!(!shown.contains(|c: char| c.is_control()), "{shown:?}");
    let (depth, rest) = bytes
        .split_first()
        .map_or((0, bytes), |(depth, rest)| (depth & 127, rest));
    if check_target(rest, usize::from(depth)).is_ok() {
        // It never leads above the top.
        let mut height = i32::from(depth);
        for component in rest.split(|byte| *byte == b'/') {
            height += match component {
                b".." => -1,
                b"" | b"." => 0,
                _ => 1,
            };
            assert!(height >= 0, "{rest:?} at depth {depth}");
        }
    }
    let Ok(path) = RelPath::new(bytes) else {
        return;
    };
    assert_eq!(path.as_bytes(), bytes);
    assert!((1..=128).contains(&path.depth()));
    for name in path.components() {
        assert!(!name.is_empty() && name != b"." && name != b"..");
        assert!(!name.contains(&b'/') && !name.contains(&0));
    }
    let part = part_name(path.name());
    assert!(part.len() <= 255 && !part.contains(&b'/'));
}
