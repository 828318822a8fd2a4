//! Rates hold whatever is asked, memory is what the documentation says, and hot paths do not
//! allocate.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use common::network::rng;
use common::{
    FRAME_OVERHEAD, content, files, group, host, packets, receiver_config, seed, sender_config,
    source,
};
use ltp::store::{ArrayRing, HeapRing, NullStore};
use ltp::wire::request::Kind;
use ltp::{
    Destination, Duration, Instant, Meta, Receiver, ReceiverConfig, ReceiverLimits, Sender,
    SenderConfig, SessionId,
};
use netsim::Filter;

/// Counts what this thread allocates.
struct Counting;

thread_local! {
    static COUNT: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

// SAFETY: hands every call on to the system's allocator unchanged.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| {
            let (calls, bytes) = count.get();
            count.set((calls + 1, bytes + layout.size() as u64));
        });
        // SAFETY: the caller keeps the contract of the trait.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of the trait.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocated() -> (u64, u64) {
    COUNT.with(Cell::get)
}

fn request(session: SessionId, lo: u32, hi: u32) -> Vec<u8> {
    packets::request(session, Kind::Data, (lo, hi), 0)
}

fn asked(router: u8, iface: u16) -> Meta {
    packets::asked(Some(packets::point(router, iface)))
}

/// Bytes in any window of a second are at most the rate and the burst.
fn check_rate(wire: &[(Instant, usize)], rate_bps: u64, burst: usize) {
    let mut start = 0;
    let mut sum = 0;
    for (index, &(at, len)) in wire.iter().enumerate() {
        sum += len;
        while at - wire[start].0 >= Duration::from_secs(1) {
            sum -= wire[start].1;
            start += 1;
        }
        let time = at - wire[start].0;
        let most = rate_bps as u128 * u128::from(time.total_micros()) / 8_000_000;
        assert!(
            sum as u128 <= most + burst as u128,
            "{sum} bytes in {time} at packet {index}"
        );
    }
}

#[test]
fn a_flood_of_requests_makes_no_replier_exceed_its_rate() {
    let bytes = content(2_000_000, 1);
    let mut config = receiver_config();
    config.replier.rate_bps = 10_000_000;
    config.replier.turning_point_rate_bps = 2_000_000;
    let mut net = files(&bytes, 1, 1, sender_config(bytes.len()), &config);
    net.run_until(Duration::from_secs(20), |net| net.all_complete());
    net.check_content(&bytes);
    let session = net.sender().session();
    let mut receiver = net.take_receiver(0);
    let mut rng = rng(1);
    let mut buffer = [0; 2048];
    let mut wire = Vec::new();
    let mut by_point = vec![Vec::new(); 64];
    let mut now = net.now();
    for _ in 0..20_000 {
        now += Duration::from_micros(100);
        let packet = request(session, rng.below(1000) as u32, 1400);
        let router = rng.below(40) as u8;
        let _ = receiver.handle_packet(now, &asked(router, 1), &packet);
        receiver.handle_timeout(now);
        while let Some(transmit) = receiver.poll_transmit(now, &mut buffer) {
            let Destination::Dmcast(point) = transmit.destination else {
                panic!("{transmit:?}")
            };
            let std::net::IpAddr::V4(router) = point.router else {
                panic!("{point:?}")
            };
            wire.push((now, transmit.len + 42));
            by_point[usize::from(router.octets()[3])].push((now, transmit.len + 42));
        }
    }
    assert!(wire.len() > 1000, "{}", wire.len());
    check_rate(&wire, 10_000_000, 25_000);
    for point in by_point.iter().filter(|point| !point.is_empty()) {
        check_rate(point, 2_000_000, 5_000 + 2 * 1600);
    }
}

#[test]
fn a_flood_of_requests_makes_no_source_exceed_its_rate_or_forget_new_data() {
    let bytes = content(4_000_000, 2);
    let mut config = sender_config(bytes.len());
    config.rate_bps = Some(50_000_000);
    let mut net = files(&bytes, 1, 2, config, &receiver_config());
    net.run_until(Duration::from_secs(20), |net| {
        net.sender().progress().0 > 500_000
    });
    let wire = Rc::new(RefCell::new(Vec::new()));
    let (frames, source) = (wire.clone(), net.source.0);
    net.sim.tap(Filter::Sent, move |record| {
        if record.from == source {
            let at = Instant::from_micros(record.time_ns as i64 / 1000);
            frames
                .borrow_mut()
                .push((at, record.bytes.len() + FRAME_OVERHEAD as usize));
        }
    });
    let session = net.sender().session();
    let mut rng = rng(2);
    let end = net.now() + Duration::from_millis(500);
    let before = net.sender().progress().0;
    while net.sim.step(end) {
        for _ in 0..20 {
            let lo = rng.below(300) as u32;
            let packet = request(session, lo, lo + 60);
            let meta = Meta::unicast(host(rng.below(1000) as usize));
            let _ = net.inject_to_sender(&meta, &packet);
        }
    }
    let wire = wire.borrow();
    check_rate(&wire, 50_000_000, 25_000 + 3 * 1500);
    let new = net.sender().progress().0 - before;
    let share = new as f64 * 8.0 / 0.5 / 50_000_000.0;
    assert!(share > 0.15, "new data got {share}");
    let sent: usize = wire.iter().map(|(_, len)| len).sum();
    assert!(
        sent as f64 * 8.0 / 0.5 > 0.95 * 50_000_000.0,
        "the rate is used: {sent}"
    );
}

#[test]
fn the_rate_is_precise() {
    for rate in [1_000_000, 100_000_000, 2_500_000_000] {
        let mut config = SenderConfig::new(group());
        config.length = Some(1 << 36);
        config.rate_bps = Some(rate);
        config.integrity = false;
        config.max_segments = 46;
        let mut sender = Sender::new(config, NullStore, seed(1), Instant::ZERO).unwrap();
        let mut buffer = vec![0; 65_536];
        let mut wire = Vec::new();
        let mut now = Instant::ZERO;
        while now < Instant::from_secs(2) {
            while let Some(transmit) = sender.poll_transmit(now, &mut buffer) {
                let packets = transmit.packets(&buffer).map(|packet| packet.len() + 42);
                wire.push((now, packets.sum::<usize>()));
            }
            now = sender.poll_timeout().unwrap().max(now);
            sender.handle_timeout(now);
        }
        let sent: usize = wire.iter().map(|(_, len)| len).sum();
        let wanted = rate as f64 * 2.0 / 8.0;
        let off = sent as f64 / wanted - 1.0;
        let depth = (rate as f64 / 8.0 * 0.004).max(4_000.0);
        assert!(
            off > -0.02 && off < 0.001 + depth / wanted,
            "{rate}: off by {off}"
        );
        check_rate(&wire, rate, depth as usize + 4_000);
    }
}

/// The repair that a replier has just got itself is on its way to the receivers below, too: one that requests
/// it meanwhile gets no second one, and one that requests it later does.
#[test]
fn a_replier_does_not_repeat_what_has_just_been_repaired() {
    let bytes = content(60_000, 1);
    let mut config = receiver_config();
    config.assist = ltp::Assist::Lms;
    let mut net = files(&bytes, 1, 1, sender_config(bytes.len()), &config);
    net.lose(|_, packet| packet[0] & 0xf == 1 && packet[8..12] == [0, 0, 0, 5]);
    net.run_until(Duration::from_secs(20), |net| {
        net.receiver(0).stats().repairs == 1
    });
    let mut receiver = net.take_receiver(0);
    let mut buffer = vec![0; 2048];
    let packet = request(net.sender().session(), 5, 5);
    let now = net.now() + Duration::from_millis(19);
    let answer = receiver.handle_packet(now, &asked(1, 7), &packet);
    assert_eq!(answer, Err(ltp::Error::RequestHeldDown));
    let now = net.now() + Duration::from_millis(21);
    assert_eq!(receiver.handle_packet(now, &asked(1, 7), &packet), Ok(()));
    let sent = std::iter::from_fn(|| receiver.poll_transmit(now, &mut buffer));
    let dmcasts = sent.filter(|sent| matches!(sent.destination, Destination::Dmcast(_)));
    assert_eq!(dmcasts.count(), 1);
    assert_eq!(receiver.stats().repairs_sent, 1);
}

/// The tables a simulation of 100,000 receivers would use for 1,000 packets in flight.
fn small_limits() -> ReceiverLimits {
    ReceiverLimits {
        window_blocks: 16,
        requests: 16,
        repairs: 16,
        hold_down: 32,
        targets: 4,
        parity: 0,
    }
}

#[test]
fn a_receiver_for_a_thousand_packets_fits_eight_kibibytes() {
    let mut config = ReceiverConfig::new(group());
    config.limits = small_limits();
    let (_, before) = allocated();
    let receiver = Receiver::new(config, NullStore, seed(1), Instant::ZERO);
    let heap = allocated().1 - before;
    let all = heap as usize + size_of_val(&receiver);
    eprintln!(
        "receiver: {} inline + {heap} on the heap = {all}",
        size_of_val(&receiver)
    );
    assert!(all <= 8192, "{all} bytes");
}

#[test]
fn machines_and_tables_are_as_big_as_documented() {
    let (sender, congestion) = (
        size_of::<Sender<'static, NullStore>>(),
        size_of::<ltp::tfmcc::Sender>(),
    );
    assert!(sender <= 10 * 1024, "{sender}, of which {congestion}");
    let receiver = size_of::<Receiver<'static, NullStore>>();
    assert!(receiver <= 4 * 1024 + 512, "{receiver}");
    assert!(size_of::<ltp::storage::Slot>() <= 64);
    assert!(size_of::<ltp::storage::PendingRequest>() <= 48);
    assert!(size_of::<ltp::storage::Pending>() <= 32);
    assert!(size_of::<ltp::storage::HoldDown>() <= 24);
    assert!(size_of::<ltp::storage::TargetEntry>() <= 96);
    assert!(size_of::<ltp::storage::Member>() <= 72);
}

#[test]
fn nothing_is_allocated_after_the_start() {
    let bytes = content(3_000_000, 3);
    let mut config = sender_config(bytes.len());
    config.rate_bps = None;
    config.max_segments = 16;
    let mut sender = Sender::new(
        config,
        HeapRing::whole(bytes.clone()),
        seed(1),
        Instant::ZERO,
    )
    .unwrap();
    let mut config = receiver_config();
    config.assist = ltp::Assist::Lms;
    let store = HeapRing::new(bytes.len().next_multiple_of(1 << 16));
    let mut receiver = Receiver::new(config, store, seed(2), Instant::ZERO);
    let meta = Meta::group(source());
    let mut buffer = vec![0; 65_536];
    let mut answer = vec![0; 2048];
    let mut now = Instant::ZERO;
    let mut count = 0u64;
    let (before, _) = allocated();
    while !receiver.is_complete() {
        while let Some(transmit) = sender.poll_transmit(now, &mut buffer) {
            for packet in transmit.packets(&buffer) {
                count += 1;
                if count % 50 == 7 {
                    continue;
                }
                let _ = receiver.handle_packet(now, &meta, packet);
            }
        }
        while let Some(transmit) = receiver.poll_transmit(now, &mut answer) {
            let Destination::Request(option) = transmit.destination else {
                continue;
            };
            let mut meta = Meta::group(host(0));
            meta.option = Some(option);
            let _ = sender.handle_packet(now, &meta, &answer[..transmit.len]);
            // And as replier, for another's loss.
            let _ = receiver.handle_packet(now, &asked(1, 1), &answer[..transmit.len]);
        }
        now += Duration::from_millis(1);
        sender.handle_timeout(now);
        receiver.handle_timeout(now);
        assert!(now < Instant::from_secs(60));
    }
    assert_eq!(allocated().0 - before, 0, "allocations on the hot paths");
    assert!(receiver.stats().repairs > 10);
    assert!(receiver.store().as_bytes()[..bytes.len()] == bytes[..]);
}

#[test]
fn without_a_heap() {
    use ltp::storage::{StaticReceiverStorage, StaticSenderStorage};

    let bytes = content(5_000, 4);
    let mut config = SenderConfig::new(group());
    config.block_exponent = 10;
    config.max_packet_len = 300;
    let mut tables = StaticSenderStorage::<8, 4, 0, 8, 16, 4>::default();
    let ring = ArrayRing::<8192>::new();
    let mut sender =
        Sender::with_storage(config, ring, tables.lend(), seed(1), Instant::ZERO).unwrap();
    let mut tables = StaticReceiverStorage::<8, 8, 0, 0, 0>::default();
    let config = ReceiverConfig::new(group());
    let ring = ArrayRing::<8192>::new();
    let mut receiver = Receiver::with_storage(config, ring, tables.lend(), seed(2), Instant::ZERO);
    let (before, _) = allocated();
    let mut now = Instant::ZERO;
    let mut buffer = [0; 512];
    assert_eq!(sender.send(now, &bytes), Ok(bytes.len()));
    sender.finish(now);
    while !receiver.is_complete() {
        while let Some(transmit) = sender.poll_transmit(now, &mut buffer) {
            let meta = Meta::group(source());
            let _ = receiver.handle_packet(now, &meta, &buffer[..transmit.len]);
        }
        now += Duration::from_millis(1);
        sender.handle_timeout(now);
        assert!(now < Instant::from_secs(60));
    }
    assert_eq!(allocated().0 - before, 0);
}
