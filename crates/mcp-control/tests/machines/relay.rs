//! Hosts that relay to hosts: what a client may ask of a server, and what a server may report.

use mcp_control::limits::BLOCK_LEN;
use mcp_control::wire::Message as _;
use mcp_control::wire::hello::Capabilities;
use mcp_control::wire::link::Want;
use mcp_control::wire::progress::{Done, FileVerdict};
use mcp_control::wire::relay::{Blocks, Fed, Feed, LinkId, LinkReport, LinkSecret, LinkState};
use mcp_control::{
    BlockSet, ClientEvent, Entry, Error, Kind, Manifest, RelPath, Requests, ServerEvent, Timestamp,
};

use crate::common::{Pair, client_config, layout, linked, links_only, manifest, udp, whole};

const LINK: LinkId = LinkId([1; 16]);
const SECRET: LinkSecret = LinkSecret([2; 32]);

fn entry(path: &str, kind: Kind) -> Entry {
    Entry {
        path: RelPath::new(path.as_bytes()).unwrap(),
        kind,
        mode: 0o644,
        modified: Timestamp::default(),
    }
}

fn file(len: u64) -> Manifest {
    Manifest::new(vec![entry("f", Kind::File { len })]).unwrap()
}

/// Files of one byte each.
fn small(files: usize) -> Manifest {
    let top = entry("t", Kind::Folder);
    let files = (0..files).map(|at| entry(&format!("t/{at:04}"), Kind::File { len: 1 }));
    Manifest::new(std::iter::once(top).chain(files).collect()).unwrap()
}

fn blocks(first: u64) -> Blocks {
    Blocks {
        first,
        digests: vec![[5; 32]],
    }
}

fn feed() -> Feed {
    Feed {
        link: LINK,
        secret: SECRET,
        child: ([192, 0, 2, 1], 4139).into(),
        sealed: true,
    }
}

fn fed() -> Fed {
    Fed {
        link: LINK,
        secret: SECRET,
        sealed: true,
        alone: false,
    }
}

#[test]
fn a_host_is_fed_and_feeds_over_links_alone() {
    let mut pair = linked(Capabilities::FED.with(Capabilities::FEEDS));
    assert_eq!(pair.client.fed(pair.now, &fed()).ok(), None);
    pair.client
        .plan(pair.now, Some((links_only(), layout())))
        .unwrap();
    pair.settle();
    let Some(ServerEvent::Planned { plan, .. }) = pair.at_server.last() else {
        panic!()
    };
    assert!(plan.has_links_only());
    pair.server.ready(pair.now).unwrap();
    pair.settle();
    let now = pair.now;
    pair.client.blocks(now, &blocks(1)).unwrap();
    assert!(
        pair.client
            .blocks(now, &blocks(manifest().blocks()))
            .is_err()
    );
    pair.client.fed(now, &fed()).unwrap();
    pair.client.feed(now, &feed()).unwrap();
    pair.settle();
    let events = &pair.at_server[pair.at_server.len() - 3..];
    let expected = [
        ServerEvent::Blocks(blocks(1)),
        ServerEvent::Fed(fed()),
        ServerEvent::Feed(feed()),
    ];
    assert_eq!(events, expected);
    let report = LinkReport {
        link: LINK,
        state: LinkState::Wrong { block: 2 },
    };
    pair.server.link(now, &report).unwrap();
    pair.settle();
    assert_eq!(*pair.last_client(), ClientEvent::Link(report));
    // What arrived over the stream is not compared: a host that links feed has received what it lacked.
    let files = manifest();
    let files = files.entries().iter().enumerate();
    for (entry, _) in files.filter(|(_, entry)| matches!(entry.kind, Kind::File { .. })) {
        let verdict = FileVerdict::Digest([1; 32]);
        pair.client.digest(now, entry as u32, verdict).unwrap();
    }
    pair.settle();
    let done = Done {
        received: 1,
        bytes: manifest().bytes(),
        whole: whole(),
    };
    pair.server.done(now, &done).unwrap();
    pair.settle();
    assert_eq!(*pair.last_client(), ClientEvent::Done);
    // It still feeds others.
    pair.client.feed(now, &feed()).unwrap();
    pair.client.expect(now, whole());
    pair.settle();
    assert_eq!(*pair.last_client(), ClientEvent::Verified);
    assert_eq!(*pair.last_server(), ServerEvent::Verified);
}

#[test]
fn a_host_that_knows_no_links_gets_none() {
    let mut pair = linked(Capabilities::default());
    let plan = pair.client.plan(pair.now, Some((links_only(), layout())));
    assert!(plan.is_err());
    let mut pair = linked(Capabilities::FED);
    pair.client
        .plan(pair.now, Some((links_only(), layout())))
        .unwrap();
    pair.settle();
    // It is fed, and feeds no others.
    assert!(pair.client.feed(pair.now, &feed()).is_err());
    pair.client.fed(pair.now, &fed()).unwrap();
}

#[test]
fn without_links_in_the_plan_there_are_none() {
    let mut pair = Pair::new(client_config(), udp());
    pair.planned();
    assert!(pair.client.fed(pair.now, &fed()).is_err());
    let report = LinkReport {
        link: LINK,
        state: LinkState::Closed,
    };
    assert!(pair.server.link(pair.now, &report).is_err());
}

/// The application keeps the digests, or has them wait for a slow disk: repeating them must not fill its memory.
#[test]
fn each_block_is_named_once_and_in_ascending_order() {
    let mut pair = linked(Capabilities::FED);
    pair.client
        .plan(pair.now, Some((links_only(), layout())))
        .unwrap();
    pair.settle();
    pair.client.blocks(pair.now, &blocks(1)).unwrap();
    pair.settle();
    for named in [0, 1] {
        assert!(pair.client.blocks(pair.now, &blocks(named)).is_err());
        let mut frame = vec![0; blocks(named).buffer_len()];
        blocks(named).emit(&mut frame);
        let taken = pair.server.handle_packet(pair.now, &(), &frame);
        assert_eq!(taken, Err(Error::Contradiction), "{named}");
    }
    pair.client.blocks(pair.now, &blocks(2)).unwrap();
    pair.settle();
    assert_eq!(*pair.last_server(), ServerEvent::Blocks(blocks(2)));
}

#[test]
fn a_child_asks_for_its_share_and_no_more() {
    let manifest = file(40 * BLOCK_LEN);
    let mut wanted = BlockSet::new(manifest.blocks());
    wanted.insert_missing(&BlockSet::new(manifest.blocks()));
    wanted.remove(5);
    let (mut child, mut feeder) = (Requests::default(), Requests::default());
    let mut order = Vec::new();
    let mut from = 0;
    for _ in 0..100 {
        while let Some(want) = child.want(&manifest, &wanted, from..u64::MAX) {
            from = want.first + u64::from(want.count);
            assert!(feeder.take(&manifest, want), "{want:?}");
        }
        assert_eq!(child.front(), feeder.front());
        let Some(block) = feeder.front() else { break };
        order.push(block);
        child.answered(&manifest);
        feeder.answered(&manifest);
    }
    let expected: Vec<u64> = (0..40).filter(|&block| block != 5).collect();
    assert_eq!(order, expected);
    // One that does not look at the bounds is refused.
    let mut feeder = Requests::default();
    let mut taken = 0;
    while feeder.take(
        &manifest,
        Want {
            first: taken,
            count: 1,
        },
    ) {
        taken += 1;
    }
    assert_eq!(taken, 16);
    // Nor are two requests that only together exceed them.
    let mut feeder = Requests::default();
    for (first, count, is_taken) in [(0, 15, true), (15, 2, false), (15, 1, true)] {
        let want = Want { first, count };
        assert_eq!(feeder.take(&manifest, want), is_taken, "{want:?}");
    }
    assert!(!Requests::default().take(
        &manifest,
        Want {
            first: 39,
            count: 2
        }
    ));
    let manifest = small(600);
    let mut feeder = Requests::default();
    assert!(feeder.take(
        &manifest,
        Want {
            first: 0,
            count: 256
        }
    ));
    assert!(!feeder.take(
        &manifest,
        Want {
            first: 256,
            count: 1
        }
    ));
}

/// Compares each request with its definition: the first wanted block of the range and the wanted ones that follow it
/// without a gap.
#[test]
fn a_child_asks_within_the_range_alone() {
    let manifest = file(14 * BLOCK_LEN);
    let mut wanted = BlockSet::new(manifest.blocks());
    wanted.insert_missing(&BlockSet::new(manifest.blocks()));
    for had in [0, 4, 5, 9] {
        wanted.remove(had);
    }
    for start in 0..=15 {
        for end in 0..=15 {
            let mut range = start..end;
            let first = range.find(|&block| wanted.contains(block));
            let more = range.take_while(|&block| wanted.contains(block)).count();
            let expected = first.map(|first| Want {
                first,
                count: 1 + more as u32,
            });
            let mut child = Requests::default();
            let want = child.want(&manifest, &wanted, start..end);
            assert_eq!(want, expected, "{start}..{end}");
            assert_eq!(child.front(), first, "{start}..{end}");
        }
    }
}
