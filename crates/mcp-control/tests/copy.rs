//! What is copied: paths, links, manifests, blocks, the data stream.

use mcp_control::blocks::{BlockSet, Run};
use mcp_control::digest;
use mcp_control::layout::{Layout, LayoutError};
use mcp_control::limits::{BLOCK_LEN, MAX_DEPTH, MAX_NAME_LEN};
use mcp_control::path::{check_target, part_name};
use mcp_control::{Entry, Kind, Manifest, ManifestError, PathError, RelPath, Timestamp};
use proptest::prelude::*;

fn entry(path: &str, kind: Kind) -> Entry {
    Entry {
        path: RelPath::new(path.as_bytes()).unwrap(),
        kind,
        mode: 0o644,
        modified: Timestamp::default(),
    }
}

fn folder(path: &str) -> Entry {
    entry(path, Kind::Folder)
}

fn file(path: &str, len: u64) -> Entry {
    entry(path, Kind::File { len })
}

fn link(path: &str, target: &str) -> Entry {
    let target = target.as_bytes().into();
    entry(path, Kind::Link { target })
}

#[test]
fn paths_that_could_leave_the_folder_are_refused() {
    for (path, error) in [
        ("", PathError::Empty),
        ("/etc/passwd", PathError::Empty),
        ("a//b", PathError::Empty),
        ("a/", PathError::Empty),
        ("..", PathError::Dots),
        ("a/../../b", PathError::Dots),
        ("./a", PathError::Dots),
        ("a\0b", PathError::Zero),
        ("a/.b.mcp-part", PathError::Reserved),
    ] {
        assert_eq!(RelPath::new(path.as_bytes()), Err(error), "{path}");
    }
    let long = "x".repeat(MAX_NAME_LEN + 1);
    assert_eq!(RelPath::new(long.as_bytes()), Err(PathError::LongName));
    let deep = vec!["d"; MAX_DEPTH + 1].join("/");
    assert_eq!(RelPath::new(deep.as_bytes()), Err(PathError::Deep));
    let path = vec!["x".repeat(200); 21].join("/");
    assert_eq!(RelPath::new(path.as_bytes()), Err(PathError::Long));
}

#[test]
fn odd_names_are_names_and_do_not_steer_a_terminal() {
    let path = RelPath::new(b".git/a b/\xff\n\x1b[31m\xe2\x80\xae-\\").unwrap();
    assert_eq!(path.depth(), 3);
    assert_eq!(
        path.to_string(),
        ".git/a b/\\xff\\n\\u{1b}[31m\\u{202e}-\\\\"
    );
}

#[test]
fn a_folder_comes_right_before_what_is_in_it() {
    let mut paths: Vec<RelPath> = ["a b", "a/z", "a", "a/b/c", "a-b", "a/b"]
        .iter()
        .map(|path| RelPath::new(path.as_bytes()).unwrap())
        .collect();
    paths.sort();
    let sorted: Vec<String> = paths.iter().map(RelPath::to_string).collect();
    assert_eq!(sorted, ["a", "a/b", "a/b/c", "a/z", "a b", "a-b"]);
}

#[test]
fn unfinished_files_have_names_of_their_own() {
    assert_eq!(part_name(b"x.iso"), b".x.iso.mcp-part");
    let long = [b'y'; 250];
    let part = part_name(&long);
    assert!(part.len() <= MAX_NAME_LEN && mcp_control::path::is_part(&part));
    let mut other = long;
    other[249] = b'z';
    assert_ne!(part, part_name(&other));
}

#[test]
fn links_stay_in_the_tree() {
    for (target, depth, fine) in [
        ("f", 0, true),
        ("sub/f", 0, true),
        ("../f", 1, true),
        ("../../x/y", 2, true),
        ("./f", 0, true),
        ("..", 1, true),
        ("/etc/passwd", 3, false),
        ("../f", 0, false),
        ("../../f", 1, false),
        ("sub/../f", 0, false),
        ("a/../../f", 1, false),
    ] {
        assert_eq!(
            check_target(target.as_bytes(), depth).is_ok(),
            fine,
            "{target}"
        );
    }
}

#[test]
fn a_tree_in_order_is_a_manifest() {
    let entries = vec![
        folder("t"),
        folder("t/a"),
        file("t/a/1", BLOCK_LEN + 1),
        link("t/a/l", "../b"),
        file("t/b", 0),
        file("t/c", BLOCK_LEN),
    ];
    let manifest = Manifest::new(entries).unwrap();
    assert_eq!(
        (manifest.blocks(), manifest.bytes()),
        (3, 2 * BLOCK_LEN + 1)
    );
    assert_eq!(manifest.blocks_of(2), 0..2);
    assert_eq!(manifest.blocks_of(4), 2..2);
    assert_eq!(manifest.blocks_of(5), 2..3);
    assert_eq!(manifest.blocks_of(99), 0..0);
    let place = manifest.locate(1).unwrap();
    assert_eq!(
        (place.entry, place.index, place.offset, place.len),
        (2, 1, BLOCK_LEN, 1)
    );
    assert_eq!(manifest.locate(2).unwrap().entry, 5);
    assert_eq!(manifest.locate(3), None);
}

#[test]
fn what_is_no_tree_is_refused() {
    let refused = |entries: Vec<Entry>| Manifest::new(entries).unwrap_err();
    assert_eq!(refused(vec![]), ManifestError::Empty);
    assert_eq!(
        refused(vec![file("a", 1), file("b", 1)]),
        ManifestError::Orphan
    );
    assert_eq!(
        refused(vec![file("a", 1), file("a/b", 1)]),
        ManifestError::Orphan
    );
    assert_eq!(
        refused(vec![folder("a"), file("a", 1)]),
        ManifestError::Order
    );
    assert_eq!(
        refused(vec![folder("a"), file("a/c", 1), file("a/b", 1)]),
        ManifestError::Order
    );
    assert_eq!(
        refused(vec![folder("a"), file("a/b/c", 1)]),
        ManifestError::Orphan
    );
    assert_eq!(
        refused(vec![folder("a"), link("a/l", "d"), file("a/l/c", 1)]),
        ManifestError::Orphan
    );
    assert_eq!(
        refused(vec![folder("a"), link("a/l", "../x")]),
        ManifestError::Path(PathError::Escapes)
    );
    let huge = refused(vec![folder("a"), file("a/b", u64::MAX / 2)]);
    assert_eq!(huge, ManifestError::TooLarge);
    let mut setuid = file("a", 1);
    setuid.mode = 0o4755;
    assert_eq!(refused(vec![setuid]), ManifestError::Value);
}

#[test]
fn the_digest_of_a_file_is_what_b3sum_prints() {
    let block = BLOCK_LEN as usize;
    for len in [0, 1, block - 1, block, block + 1, 3 * block, 5 * block + 77] {
        let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + at / 1000) as u8).collect();
        let digests: Vec<_> = bytes
            .chunks(block)
            .enumerate()
            .map(|(index, bytes)| digest::block(bytes, index as u64, len as u64))
            .collect();
        assert_eq!(digest::fold(&digests), *blake3::hash(&bytes).as_bytes());
    }
}

#[test]
fn the_digest_of_the_whole_covers_names_and_contents() {
    let manifest = |name| Manifest::new(vec![folder("d"), file(name, 1)]).unwrap();
    let one = manifest("d/a").digest(&[[0; 32], [1; 32]]);
    assert_ne!(one, manifest("d/b").digest(&[[0; 32], [1; 32]]));
    assert_ne!(one, manifest("d/a").digest(&[[0; 32], [2; 32]]));
    // A folder has no digest: its value does not matter.
    assert_eq!(one, manifest("d/a").digest(&[[9; 32], [1; 32]]));
}

fn tree() -> Manifest {
    Manifest::new(vec![
        folder("t"),
        file("t/a", 2 * BLOCK_LEN + 5),
        file("t/b", 0),
        file("t/c", 7),
        file("t/d", 3 * BLOCK_LEN),
    ])
    .unwrap()
}

#[test]
fn the_stream_is_the_blocks_of_the_runs() {
    let manifest = tree();
    let runs = vec![Run { first: 2, count: 2 }, Run { first: 5, count: 1 }];
    let layout = Layout::new(&manifest, runs).unwrap();
    assert_eq!(layout.len(), 5 + 7 + BLOCK_LEN);
    let order: Vec<_> = layout
        .blocks(&manifest)
        .map(|(block, place)| (block, place.entry, place.offset, place.len))
        .collect();
    assert_eq!(
        order,
        [
            (2, 1, 2 * BLOCK_LEN, 5),
            (3, 3, 0, 7),
            (5, 4, BLOCK_LEN, BLOCK_LEN)
        ]
    );
    assert!(layout.contains(3) && !layout.contains(4) && !layout.contains(0));
}

#[test]
fn runs_that_are_no_plan_are_refused() {
    let manifest = tree();
    let run = |first, count| Run { first, count };
    let refused = |runs: &[Run]| Layout::new(&manifest, runs.to_vec()).unwrap_err();
    assert_eq!(refused(&[run(0, 0)]), LayoutError::Range);
    assert_eq!(refused(&[run(6, 2)]), LayoutError::Range);
    assert_eq!(refused(&[run(u64::MAX, 2)]), LayoutError::Range);
    assert_eq!(refused(&[run(0, 2), run(2, 1)]), LayoutError::Order);
    assert_eq!(refused(&[run(3, 1), run(1, 1)]), LayoutError::Order);
    assert_eq!(refused(&vec![run(0, 1); 70_000]), LayoutError::TooMany);
}

proptest! {
    /// Against an ordered set of numbers.
    #[test]
    fn a_block_set_is_a_set(
        total in 1u64..300,
        blocks in prop::collection::vec(0u64..320, 0..200),
        other in prop::collection::vec(0u64..300, 0..200),
        most in 1usize..8,
    ) {
        let mut set = BlockSet::new(total);
        let mut oracle = std::collections::BTreeSet::new();
        for &block in &blocks {
            prop_assert_eq!(set.insert(block), block < total && oracle.insert(block));
        }
        prop_assert_eq!(set.len(), oracle.len() as u64);
        let mut held = BlockSet::new(total);
        for &block in &other {
            held.insert(block);
        }
        set.insert_missing(&held);
        oracle.extend((0..total).filter(|block| !other.contains(block)));
        let of_runs = |runs: &[Run]| -> Vec<u64> {
            runs.iter().flat_map(|run| run.first..run.end()).collect()
        };
        let exact: Vec<u64> = oracle.iter().copied().collect();
        prop_assert_eq!(set.len(), exact.len() as u64);
        prop_assert_eq!(of_runs(&set.runs(usize::MAX)), exact);
        let few = set.runs(most);
        prop_assert!(few.len() <= most);
        let sent = of_runs(&few);
        prop_assert!(oracle.iter().all(|block| sent.contains(block)));
        prop_assert!(sent.iter().all(|&block| block < total));
    }
}
