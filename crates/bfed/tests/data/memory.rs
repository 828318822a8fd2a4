//! What a session costs.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bfed::wire::join::FlowChannel;
use bfed::wire::reclaim::ReclaimTarget;
use bfed::wire::subscribe::Edge;
use bfed::*;

use bfed::wire::{Message, join, node, open};

use crate::fake::{PEER, Station};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static ALONE: Mutex<()> = Mutex::new(());

thread_local! {
    static COUNTED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

#[allow(unsafe_code, reason = "only an allocator can count allocated bytes")]
// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTED.try_with(std::cell::Cell::get).unwrap_or(false) {
            LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if COUNTED.try_with(std::cell::Cell::get).unwrap_or(false) {
            LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        }
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Sessions with a source, a peer and the native network, on one data node.
#[test]
fn a_session_on_a_data_node_takes_at_most_6_kib() {
    let _alone = ALONE.lock().unwrap();
    COUNTED.set(true);
    let mut station = Station::new(1);
    station.native().pool = u64::MAX;
    let add = |station: &mut Station, number: u32| {
        let name = format!("bfed://1/session-{number}/?content=real-time");
        let address = ChannelAddress::Datagram(([10, 0, 1, 1], 4000).into());
        let label = FlowLabel::new(number + 1);
        station.allocate(&name, PEER);
        let theirs = [FlowChannel { label, address }];
        station.subscribe(true, &name, PEER, &theirs).unwrap();
        let below = Edge::Peer {
            peer: PeerId(9),
            rate_bps: 0,
        };
        let theirs = [FlowChannel {
            label: None,
            ..theirs[0].clone()
        }];
        station.subscribe(false, &name, below, &theirs).unwrap();
        station.subscribe(false, &name, Edge::Native, &[]).unwrap();
    };
    for number in 0..100 {
        add(&mut station, number);
    }
    let before = LIVE.load(Ordering::Relaxed);
    for number in 100..5100 {
        add(&mut station, number);
    }
    let each = (LIVE.load(Ordering::Relaxed) - before) / 5000;
    COUNTED.set(false);
    println!("{each} bytes a session");
    assert!(each <= 6 * 1024, "{each} bytes");
}

/// A control node of network 1 with a data node and `peers` established peers.
fn control(peers: u32) -> ControlNode {
    let now = Instant::from_secs(1);
    let config = Config::new(GatewayId::new(1, 1).unwrap());
    let mut control = ControlNode::new(config, [1; 32], now).unwrap();
    let receive = |control: &mut ControlNode, conn, message: Message| {
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        control.handle_packet(now, &conn, &bytes).unwrap();
    };
    control.node_connected(now, ConnId(100), NodeIdentity::default());
    let (node, max_sessions) = (NodeId(1), 1_000_000);
    let register = node::Register {
        node,
        boot: 1,
        max_sessions,
        epoch: 0,
    };
    receive(&mut control, ConnId(100), Message::Register(register));
    for peer in 0..peers {
        let gateway = GatewayId::new(peer + 2, 1).unwrap();
        let conn = ConnId(peer.into());
        control
            .add_peer(now, PeerId(peer), PeerConfig::new(gateway))
            .unwrap();
        control.connected(now, conn, PeerId(peer), false);
        let open = open::Repr {
            version_low: 1,
            version_high: 1,
            hold_time_s: 0,
            gateway,
            boot: 1,
            tables: Tables::ALL,
            graceful: None,
            transport: bfed::wire::transport::Transport::Plain,
            echo: false,
        };
        receive(&mut control, conn, Message::Open(open));
        receive(&mut control, conn, Message::KeepAlive);
    }
    control.handle_timeout(now);
    drain(&mut control, now);
    control
}

fn drain(control: &mut ControlNode, now: Instant) {
    let mut buffer = vec![0; wire::MAX_MESSAGE_LEN];
    while control.poll_event().is_some() || control.poll_transmit(now, &mut buffer).is_some() {}
}

/// Memory per session in its owner's control node, in bytes, when `peers` peers have joined.
fn tree_cost(peers: u32) -> usize {
    let now = Instant::from_secs(1);
    let mut control = control(peers);
    let add = |control: &mut ControlNode, number: u32| {
        for peer in 0..peers {
            let address = ChannelAddress::Stream(([10, 0, 0, 1], 4000).into());
            let session = SessionName::parse(&format!("bfed://1/session-{number}")).unwrap();
            let flows = vec![FlowChannel {
                label: None,
                address,
            }];
            let join = join::Repr {
                hop_limit: 9,
                sroutes: None,
                flows,
                session,
            };
            let mut bytes = vec![0; 256];
            let len = Message::Join(join).emit(&mut bytes);
            control
                .handle_packet(now, &ConnId(peer.into()), &bytes[..len])
                .unwrap();
        }
        drain(control, now);
    };
    for number in 0..100 {
        add(&mut control, number);
    }
    let before = LIVE.load(Ordering::Relaxed);
    for number in 100..2100 {
        add(&mut control, number);
    }
    assert_eq!(control.trees().count(), 2100);
    (LIVE.load(Ordering::Relaxed) - before) / 2000
}

#[test]
fn a_session_at_a_control_node_takes_at_most_2_kib_and_1_a_peer() {
    let _alone = ALONE.lock().unwrap();
    COUNTED.set(true);
    let costs = [tree_cost(1), tree_cost(5)];
    COUNTED.set(false);
    println!("{costs:?} bytes a session with 1 and 5 peers below");
    assert!(costs[0] <= 3 * 1024 && costs[1] <= 7 * 1024, "{costs:?}");
}

#[test]
fn sessions_that_come_and_go_leave_nothing_on_a_data_node() {
    let _alone = ALONE.lock().unwrap();
    COUNTED.set(true);
    let mut station = Station::new(1);
    let come_and_go = |station: &mut Station, number: u32| {
        let name = format!("bfed://1/session-{number}/a/b/c");
        station.subscribe(true, &name, Edge::Native, &[]).unwrap();
        station.subscribe(false, &name, Edge::Native, &[]).unwrap();
        station.reclaim(&name, Some(ReclaimTarget::All));
    };
    for number in 0..10 {
        come_and_go(&mut station, number);
    }
    let before = LIVE.load(Ordering::Relaxed);
    for number in 10..200 {
        come_and_go(&mut station, number);
    }
    let more = LIVE.load(Ordering::Relaxed).saturating_sub(before);
    COUNTED.set(false);
    assert!(more < 10_000, "{more} bytes of 190 sessions");
}
