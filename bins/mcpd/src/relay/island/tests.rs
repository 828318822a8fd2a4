//! An island on addresses of loopback.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use mcp_control::wire::island::Island;
use mcp_control::wire::relay::{Blocks, LinkReport, LinkSecret};
use mcp_control::{Entry, Kind, Layout, RelPath, Run, Timestamp};
use tempfile::TempDir;
use tokio::sync::mpsc as reports;

use super::super::links::MAX_LINK_REPORTS;
use super::super::pull::Pull;
use super::*;
use crate::store::Store;

const BLOCKS: u64 = 80;
const BLOCK_LEN: usize = mcp_control::limits::BLOCK_LEN as usize;
/// Longest time that anything here may take.
const LIMIT: Duration = Duration::from_secs(20);

fn manifest() -> Arc<Manifest> {
    let entry = Entry {
        path: RelPath::new(b"f").expect("a path"),
        kind: Kind::File {
            len: BLOCKS * BLOCK_LEN as u64,
        },
        mode: 0o644,
        modified: Timestamp {
            seconds: 0,
            nanos: 0,
        },
    };
    Arc::new(Manifest::new(vec![entry]).expect("a manifest"))
}

fn bytes(block: u64) -> Vec<u8> {
    vec![block as u8 + 1; BLOCK_LEN]
}

fn digest(manifest: &Manifest, block: u64, bytes: &[u8]) -> mcp_control::Digest {
    let place = manifest.locate(block).expect("a block");
    mcp_control::digest::block(bytes, place.index, place.file_len)
}

/// A host of an island on an address of loopback.
struct Host {
    islands: Islands,
    address: SocketAddr,
    manifest: Arc<Manifest>,
    folder: TempDir,
    shelf: Arc<Shelf>,
    links: Arc<Links>,
    orders: (mpsc::Sender<Order>, mpsc::Receiver<Order>),
    reports: reports::Receiver<LinkReport>,
}

impl Host {
    fn new(number: u8) -> Host {
        let folder = tempfile::tempdir().expect("a folder");
        let (to_sender, reports) = reports::channel(MAX_LINK_REPORTS);
        let sender = Ipv4Addr::LOCALHOST.into();
        let links = Links::new(Arc::default(), Arc::default(), sender, to_sender);
        let links = Arc::new(links);
        let manifest = manifest();
        let shelf = Shelf::new(folder.path(), Arc::clone(&manifest), Arc::default());
        Host {
            islands: Islands::new(Arc::clone(&links)),
            address: (Ipv4Addr::new(127, 7, std::process::id() as u8, number), 0).into(),
            manifest,
            folder,
            shelf: Arc::new(shelf.expect("a shelf")),
            links,
            orders: mpsc::channel(),
            reports,
        }
    }

    /// Records blocks that have arrived here.
    fn has(&self, blocks: impl IntoIterator<Item = u64>, bytes: impl Fn(u64) -> Vec<u8>) {
        for block in blocks {
            self.shelf.add(block, Some(bytes(block)));
        }
    }

    fn next_report(&mut self) -> LinkState {
        let end = Instant::now() + LIMIT;
        loop {
            match self.reports.try_recv() {
                Ok(report) => return report.state,
                Err(_) if Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(_) => panic!("no report"),
            }
        }
    }

    fn next_order(&self) -> Order {
        self.orders.1.recv_timeout(LIMIT).expect("an order")
    }

    /// What takes blocks of this host's stream, and stores them.
    fn pull(&self, path: &Path) -> (Pull, Store) {
        let manifest = Arc::clone(&self.manifest);
        let run = Run {
            first: 0,
            count: BLOCKS,
        };
        let layout = Arc::new(Layout::new(&manifest, vec![run]).expect("a layout"));
        let mut store = Store::new(path, Arc::clone(&manifest), false).expect("a store");
        store.prepare(&layout).expect("space");
        let links = Arc::clone(&self.links);
        let pull = Pull::new(manifest, layout, Arc::clone(&self.shelf), links);
        (pull, store)
    }
}

/// A head and two members, with a stream between them.
fn island(first: u8, sealed: bool) -> (Host, [Host; 2]) {
    let head = Host::new(first);
    let mut members = [first + 1, first + 2].map(Host::new);
    let island = Island {
        link: LinkId([first; 16]),
        secret: LinkSecret([7; 32]),
        group: Ipv4Addr::new(239, 255, first, 1).into(),
        source: 50_001,
        destination: 50_002,
        sealed,
    };
    let listen = Listen {
        island,
        head: head.address.ip(),
    };
    for member in &mut members {
        let (manifest, orders) = (Arc::clone(&member.manifest), member.orders.0.clone());
        let local = member.address;
        member.islands.listen(&listen, local, manifest, orders);
        assert_eq!(member.next_report(), LinkState::Expected);
        assert!(matches!(member.next_order(), Order::Listening(_)));
    }
    let addresses = members.each_ref().map(|member| member.address.ip());
    let multicast = Multicast {
        island,
        members: addresses.into(),
    };
    let (manifest, shelf) = (Arc::clone(&head.manifest), Arc::clone(&head.shelf));
    head.islands
        .multicast(multicast, head.address, manifest, shelf);
    (head, members)
}

/// Has blocks arrive at the head until the first of them reaches a member: only that tells that the head has begun.
fn begin(head: &Host, member: &Host) -> Streamed {
    for block in 0..BLOCKS - 8 {
        head.has([block], bytes);
        match member.orders.1.recv_timeout(LIMIT / BLOCKS as u32) {
            Ok(Order::Streamed(streamed)) => return streamed,
            Ok(_) => panic!("the stream has ended"),
            Err(_) => {}
        }
    }
    panic!("the head does not begin");
}

#[test]
fn members_get_what_their_head_receives_from_then_on() {
    for (first, sealed) in [(10, false), (20, true)] {
        let (head, members) = island(first, sealed);
        let begun = begin(&head, &members[0]).block;
        head.has(begun + 1..begun + 4, bytes);
        head.shelf.close();
        for (at, member) in members.iter().enumerate() {
            for expected in begun + u64::from(at == 0)..begun + 4 {
                let Order::Streamed(streamed) = member.next_order() else {
                    panic!("block {expected} is missing");
                };
                assert_eq!(streamed.block, expected);
                assert!(streamed.bytes == bytes(expected));
            }
            assert!(matches!(member.next_order(), Order::IslandEnded(_)));
        }
    }
}

#[test]
fn a_member_that_gets_wrong_bytes_stores_none_and_ends_the_stream() {
    let (head, [mut member, _other]) = island(30, true);
    let store_folder = member.folder.path().to_owned();
    let (mut pull, mut store) = member.pull(&store_folder);
    let digests = (0..BLOCKS).map(|block| digest(&member.manifest, block, &bytes(block)));
    let blocks = Blocks {
        first: 0,
        digests: digests.collect(),
    };
    pull.listening(LinkId([30; 16]));
    let first = begin(&head, &member);
    let right = first.block;
    head.has([right + 1], |_| vec![0x5a; BLOCK_LEN]);
    let Order::Streamed(second) = member.next_order() else {
        panic!("no block");
    };
    // Both wait for their digests.
    pull.streamed(&mut store, first).expect("no trouble");
    assert_eq!(member.next_report(), LinkState::Open { round_trip_us: 0 });
    pull.streamed(&mut store, second).expect("no trouble");
    pull.named(&mut store, &blocks).expect("stored");
    let wrong = LinkState::Wrong { block: right + 1 };
    assert_eq!(member.next_report(), wrong);
    let stored = |block| store.digest(block);
    assert_eq!(stored(right), Some(blocks.digests[right as usize]));
    assert_eq!(stored(right + 1), None);
    assert!(matches!(member.next_order(), Order::IslandEnded(_)));
    assert_eq!(member.next_report(), LinkState::Closed);
}

/// A sender elsewhere must not reach services on loopback addresses.
#[test]
fn a_head_multicasts_to_no_address_that_it_may_not_feed() {
    let (to_sender, mut reports) = reports::channel(MAX_LINK_REPORTS);
    let sender: IpAddr = Ipv4Addr::new(192, 0, 2, 1).into();
    let links = Links::new(Arc::default(), Arc::default(), sender, to_sender);
    let host = Host::new(40);
    let islands = Islands::new(Arc::new(links));
    let multicast = Multicast {
        island: Island {
            link: LinkId([40; 16]),
            secret: LinkSecret([7; 32]),
            group: Ipv4Addr::new(239, 255, 40, 1).into(),
            source: 50_001,
            destination: 50_002,
            sealed: false,
        },
        members: vec![Ipv4Addr::new(192, 0, 2, 2).into(), host.address.ip()],
    };
    let (manifest, shelf) = (Arc::clone(&host.manifest), Arc::clone(&host.shelf));
    islands.multicast(multicast, host.address, manifest, shelf);
    let report = reports.try_recv().expect("a report");
    assert_eq!(report.state, LinkState::Refused);
}

#[test]
fn streams_end_with_the_copy_and_with_the_island_that_is_left() {
    let (head, [first, second]) = island(50, false);
    first.islands.leave();
    assert!(matches!(first.next_order(), Order::IslandEnded(_)));
    second.islands.close();
    assert!(matches!(second.next_order(), Order::IslandEnded(_)));
    let mut head = head;
    // Nobody is left.
    assert_eq!(head.next_report(), LinkState::Unreachable);
}

/// Each has a thread, a socket and a receive buffer until it has ended.
#[test]
fn a_sender_that_replaces_an_island_again_and_again_is_refused() {
    let mut host = Host::new(60);
    for number in 0..=MAX_STREAMS {
        let listen = Listen {
            island: Island {
                link: LinkId([60; 16]),
                secret: LinkSecret([7; 32]),
                group: Ipv4Addr::new(239, 255, 60, 1).into(),
                source: 50_001,
                destination: 50_100 + number as u16,
                sealed: false,
            },
            head: host.address.ip(),
        };
        let (manifest, orders) = (Arc::clone(&host.manifest), host.orders.0.clone());
        host.islands.listen(&listen, host.address, manifest, orders);
        let mut state = host.next_report();
        // The streams before end meanwhile.
        while state == LinkState::Closed {
            state = host.next_report();
        }
        let expected = match number {
            MAX_STREAMS => LinkState::Refused,
            _ => LinkState::Expected,
        };
        assert_eq!(state, expected, "{number}");
    }
}

/// More arrives at once than a stream may be behind: the head leaves out more than it has sent, and gives up.
#[test]
fn a_head_whose_stream_is_slower_than_what_it_receives_gives_up() {
    let (mut head, members) = island(70, false);
    let begun = begin(&head, &members[0]).block;
    head.has(begun + 1..BLOCKS, bytes);
    assert_eq!(head.next_report(), LinkState::Unreachable);
    for member in members {
        while !matches!(member.next_order(), Order::IslandEnded(_)) {}
    }
}
