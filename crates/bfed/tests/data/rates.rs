//! Rates: queues, drops, paused sources, and TFRC on a narrow link.

use std::collections::VecDeque;

use bfed::data::tfrc::{Receiver, Sender};
use bfed::data::{DataError, DataEvent, Destination, Meta};
use bfed::native::ChannelId;
use bfed::wire::join::FlowChannel;
use bfed::wire::report::Repr as Report;
use bfed::wire::subscribe::Edge;
use bfed::*;

use crate::fake::{PEER, Station, payload};

const LIVE: &str = "bfed://1/m/?content=real-time";
const FILE: &str = "bfed://1/m";

fn receiver(content: Content) -> [FlowChannel; 1] {
    let socket = ([10, 0, 0, 2], 4000).into();
    let address = match content {
        Content::RealTime => ChannelAddress::Datagram(socket),
        Content::Bulk => ChannelAddress::Stream(socket),
    };
    [FlowChannel {
        label: None,
        address,
    }]
}

#[test]
fn real_time_drops_the_oldest() {
    let mut station = Station::with(1, |config| {
        config.plane.max_queue_bytes = 10_000;
        config.plane.real_time_delay = Duration::from_secs(60);
    });
    station.subscribe(true, LIVE, Edge::Native, &[]).unwrap();
    let own = station
        .subscribe(false, LIVE, PEER, &receiver(Content::RealTime))
        .unwrap();
    station.prove(([10, 0, 0, 2], 4000).into(), own[0].label.unwrap());
    // No report ever comes: after the initial window everything waits.
    let mut at_once = 0;
    for number in 0..100_u8 {
        at_once += station.native_data(1, &[number; 1000]).unwrap().len();
    }
    assert!((3..=6).contains(&at_once), "the initial window: {at_once}");
    let stats = *station.node.plane().stats();
    assert_eq!(
        stats.drops.get(DataError::QueueFull),
        100 - at_once as u64 - 10
    );
    station.wait(3000);
    let next = station.drain();
    assert_eq!(payload(&next[0])[0], 90, "the newest ten are left");
    assert!(station.node.poll_timeout().is_some());
}

/// A source, one bulk receiver by TCP, and one native.
fn bulk() -> Station {
    let mut station = Station::with(1, |config| config.plane.max_queue_bytes = 10_000);
    station.subscribe(true, FILE, Edge::Native, &[]).unwrap();
    let own = station
        .subscribe(false, FILE, PEER, &receiver(Content::Bulk))
        .unwrap();
    let label = own[0].label.unwrap();
    let mut attach = vec![0; 20];
    let kind = wire::data::Kind::Attach;
    let (sequence, timestamp_us, rtt_us, payload_len) = (0, 0, 0, 0);
    wire::data::Repr {
        kind,
        label,
        sequence,
        timestamp_us,
        rtt_us,
        payload_len,
        class: bfed::wire::class::Class::NONE,
        age_ms: 0,
        is_again: false,
    }
    .emit(&mut attach);
    let _ = station.packet(Meta::Stream(ConnId(7), [10, 0, 0, 2].into()), attach);
    station
}

fn edge_of(station: &mut Station) -> data::EdgeId {
    let mut frame = vec![0; 21];
    let meta = Meta::Native(ChannelId(1));
    let now = station.now;
    let plane = station.node.plane();
    let data::Verdict::Forward(mut cursor) = plane.forward(now, &meta, &mut frame) else {
        panic!();
    };
    plane
        .next_transmit(now, &mut cursor, &mut frame)
        .unwrap()
        .edge
}

#[test]
fn bulk_pauses_its_source_and_loses_nothing() {
    let mut station = bulk();
    let edge = edge_of(&mut station);
    station.node.plane().blocked(edge);
    let source = Destination::Native(ChannelId(1));
    assert_eq!(station.events(), [DataEvent::Pause(source)], "at once");
    // What was on its way.
    let count = 8_u8;
    for number in 0..count {
        station.native_data(1, &[number; 1000]).unwrap();
    }
    assert_eq!(station.events(), [], "once");
    assert!(station.drain().is_empty());
    station.wait(5000);
    let now = station.now;
    station.node.plane().writable(now, edge);
    let sent = station.drain();
    let numbers: Vec<_> = sent.iter().map(|frame| payload(frame)[0]).collect();
    assert_eq!(
        numbers,
        (0..count).collect::<Vec<_>>(),
        "in order, all of it"
    );
    // A driver that took the events before it sent must not sleep over the next.
    assert_eq!(station.node.poll_timeout(), Some(now));
    assert_eq!(station.events(), [DataEvent::Resume(source)]);
    assert_ne!(station.node.poll_timeout(), Some(now));
    assert_eq!(
        station.node.plane().stats().drops.get(DataError::QueueFull),
        0
    );
}

#[test]
fn a_source_that_sent_nothing_meanwhile_goes_on_too() {
    let mut station = bulk();
    let edge = edge_of(&mut station);
    station.node.plane().blocked(edge);
    station.events();
    let now = station.now;
    station.node.plane().writable(now, edge);
    let source = Destination::Native(ChannelId(1));
    assert_eq!(station.events(), [DataEvent::Resume(source)]);
    station.wait(20_000);
    assert_eq!(station.events(), [], "nobody stalls");
}

#[test]
fn a_receiver_that_takes_a_little_now_and_then_is_not_cut_off() {
    let mut station = bulk();
    let edge = edge_of(&mut station);
    station.node.plane().blocked(edge);
    station.events();
    for _ in 0..5 {
        station.wait(8_000);
        let now = station.now;
        station.node.plane().takes(now, edge);
    }
    assert_eq!(station.events(), []);
    station.wait(10_100);
    assert!(station.events().contains(&DataEvent::Close(ConnId(7))));
}

#[test]
fn a_new_stream_in_place_of_a_full_one_lets_the_source_go_on() {
    let mut station = bulk();
    let edge = edge_of(&mut station);
    station.node.plane().blocked(edge);
    station.events();
    assert!(station.node.dialled(edge, ConnId(8)));
    let source = Destination::Native(ChannelId(1));
    assert!(station.events().contains(&DataEvent::Resume(source)));
    station.wait(20_000);
    assert!(!station.events().contains(&DataEvent::Close(ConnId(8))));
}

#[test]
fn a_receiver_that_takes_nothing_is_cut_off_and_the_others_go_on() {
    let mut station = bulk();
    let edge = edge_of(&mut station);
    station.node.plane().blocked(edge);
    for _ in 0..7 {
        station.native_data(1, &[0; 1000]).unwrap();
    }
    let source = Destination::Native(ChannelId(1));
    assert_eq!(station.events(), [DataEvent::Pause(source)]);
    station.wait(9_900);
    assert_eq!(station.events(), []);
    station.wait(200);
    assert!(station.events().contains(&DataEvent::Close(ConnId(7))));
    assert_eq!(
        station.node.plane().stats().drops.get(DataError::Stalled),
        7
    );
    station.native_data(1, b"on").unwrap();
    let stats = *station.node.plane().stats();
    assert_eq!(
        (stats.pauses, stats.drops.get(DataError::NotAttached)),
        (1, 1)
    );
}

#[test]
fn a_cut_receiver_lets_the_source_go_on() {
    let mut station = bulk();
    let edge = edge_of(&mut station);
    station.node.plane().blocked(edge);
    for _ in 0..7 {
        station.native_data(1, &[0; 1000]).unwrap();
    }
    station.events();
    station.wait(10_000);
    assert!(
        station
            .events()
            .contains(&DataEvent::Resume(Destination::Native(ChannelId(1))))
    );
}

#[test]
fn a_link_carries_no_more_than_its_bound() {
    let mut station = Station::with(1, |config| config.plane.max_queue_bytes = 1 << 30);
    let edge = Edge::Peer {
        peer: PeerId(1),
        rate_bps: 800_000,
    };
    for name in ["bfed://1/a", "bfed://1/b"] {
        station.subscribe(true, name, Edge::Native, &[]).unwrap();
        let own = station
            .subscribe(false, name, edge, &receiver(Content::Bulk))
            .unwrap();
        let mut attach = vec![0; 20];
        let (label, kind) = (own[0].label.unwrap(), wire::data::Kind::Attach);
        let (sequence, timestamp_us, rtt_us, payload_len) = (0, 0, 0, 0);
        wire::data::Repr {
            kind,
            label,
            sequence,
            timestamp_us,
            rtt_us,
            payload_len,
            class: bfed::wire::class::Class::NONE,
            age_ms: 0,
            is_again: false,
        }
        .emit(&mut attach);
        let conn = ConnId(label.get().into());
        let _ = station.packet(Meta::Stream(conn, [10, 0, 0, 2].into()), attach);
    }
    // 100 kB/s over both sessions together; each offers 200.
    let mut bytes = 0;
    let mut frame = 0;
    for _ in 0..1000 {
        for channel in 1..=2 {
            let sent = station.native_data(channel, &[0; 200]).unwrap();
            bytes += sent.iter().map(|(_, packet)| packet.len()).sum::<usize>();
        }
        bytes += station
            .drain()
            .iter()
            .map(|(_, packet)| packet.len())
            .sum::<usize>();
        station.wait(1);
        frame += 1;
    }
    assert_eq!(frame, 1000);
    assert!(
        (95_000..=111_000).contains(&bytes),
        "{bytes} bytes in a second"
    );
}

/// A narrow link: bytes a second, a queue, a delay each way.
struct Narrow {
    rate: u64,
    queue: usize,
    free_at: Instant,
    waiting: VecDeque<Instant>,
}

impl Narrow {
    /// When a packet comes out, if it is not dropped.
    fn pass(&mut self, now: Instant, len: usize) -> Option<Instant> {
        while self.waiting.front().is_some_and(|at| *at <= now) {
            self.waiting.pop_front();
        }
        if self.waiting.len() >= self.queue {
            return None;
        }
        let time = Duration::from_micros(len as u64 * 1_000_000 / self.rate);
        self.free_at = self.free_at.max(now) + time;
        self.waiting.push_back(self.free_at);
        Some(self.free_at)
    }
}

/// Bytes that each of `flows` unlimited flows delivered in the second half of a minute.
fn share(flows: usize, rate: u64, queue: usize, lose_every: Option<u64>) -> (Vec<u64>, u64) {
    const LEN: usize = 1000;
    let mut now = Instant::from_secs(1);
    let (delay, end) = (Duration::from_millis(20), now + Duration::from_secs(60));
    let half = now + Duration::from_secs(30);
    let mut link = Narrow {
        rate,
        queue,
        free_at: now,
        waiting: VecDeque::new(),
    };
    let mut senders: Vec<_> = (0..flows).map(|_| (Sender::new(now, LEN), 0_u32)).collect();
    let mut receivers: Vec<_> = (0..flows).map(|_| Receiver::new(now)).collect();
    let mut data: std::collections::BTreeMap<(Instant, u64), (usize, u32, u32, u32)> =
        Default::default();
    let mut back: std::collections::BTreeMap<(Instant, u64), (usize, wire::report::Repr)> =
        Default::default();
    let (mut got, mut offered, mut lost, mut id) = (vec![0; flows], 0_u64, 0_u64, 0_u64);
    while now < end {
        now += Duration::from_micros(200);
        while let Some(entry) = data.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((at, _), (flow, sequence, time, rtt)) = entry.remove_entry();
            assert!(receivers[flow].receive(at, sequence, time, rtt, LEN));
            got[flow] += if at > half { LEN as u64 } else { 0 };
        }
        while let Some(entry) = back.first_entry().filter(|entry| entry.key().0 <= now) {
            let (flow, report) = entry.remove();
            senders[flow].0.report(now, &report);
        }
        for flow in 0..flows {
            if let Some(report) = receivers[flow].poll_report(now) {
                id += 1;
                back.insert((now + delay, id), (flow, report));
            }
            let (sender, sequence) = &mut senders[flow];
            while sender.send(now, LEN) {
                *sequence += 1;
                offered += 1;
                id += 1;
                let unlucky = lose_every.is_some_and(|every| offered % every == 0);
                match link.pass(now, LEN).filter(|_| !unlucky) {
                    Some(out) => {
                        let time = now.total_micros() as u32;
                        let packet = (flow, *sequence, time, sender.rtt_us());
                        data.insert((out + delay, id), packet);
                    }
                    None => lost += 1,
                }
            }
        }
    }
    (got, lost * 1000 / offered)
}

#[test]
fn tfrc_fills_a_narrow_link_and_does_not_flood_it() {
    let (got, lost) = share(1, 125_000, 25, None);
    let all = 125_000 * 30;
    assert!((all * 8 / 10..=all).contains(&got[0]), "{got:?} of {all}");
    assert!(lost < 60, "{lost} per mille");
}

#[test]
fn tfrc_flows_share_a_link() {
    let (got, _) = share(4, 500_000, 50, None);
    let all: u64 = got.iter().sum();
    assert!(all >= 500_000 * 30 * 8 / 10, "{got:?}");
    for one in &got {
        assert!((all / 12..=all / 2).contains(one), "{got:?}");
    }
}

#[test]
fn tfrc_sends_what_tcp_would_at_that_loss() {
    // One packet in a hundred, far below the link's rate: 1000 bytes, 40 ms, p = 0.01 give about
    // 281 kB/s by the equation of RFC 5348 §3.1.
    let (got, _) = share(1, 10_000_000, 1000, Some(100));
    let rate = got[0] / 30;
    assert!((200_000..=360_000).contains(&rate), "{rate} bytes a second");
}

#[test]
fn without_reports_the_rate_falls_and_comes_back_with_them() {
    let now = Instant::from_secs(1);
    let mut sender = Sender::new(now, 1000);
    let report = |sent: Instant| wire::report::Repr {
        echo_us: sent.total_micros() as u32,
        delay_us: 0,
        received_rate: 1_000_000,
        loss: 0,
    };
    let mut at = now;
    for _ in 0..20 {
        let sent = at;
        at += Duration::from_millis(50);
        sender.report(at, &report(sent));
    }
    let high = sender.rate();
    assert!(high > 500_000, "{high}");
    for _ in 0..200 {
        at += Duration::from_secs(2);
        sender.handle_timeout(at);
    }
    assert!(
        sender.rate() <= 16,
        "a packet in 64 seconds: {}",
        sender.rate()
    );
    assert!(sender.next_send(at) <= at + Duration::from_secs(64));
    // An echo from the future, or from an hour ago, is no sample.
    let before = sender.clone();
    sender.report(at, &report(at + Duration::from_secs(1)));
    sender.report(at, &report(at - Duration::from_secs(3600)));
    assert_eq!(sender.rate(), before.rate());
}

#[test]
fn losses_become_loss_events_of_a_round_trip_each() {
    let mut now = Instant::from_secs(1);
    let mut receiver = Receiver::new(now);
    let mut sequence = u32::MAX - 500; // through the wrap
    for number in 0..2000_u32 {
        now += Duration::from_millis(1);
        // Every 200th packet and the next one are lost: one event, the round-trip is 10 ms.
        if number % 200 >= 2 || number < 200 {
            assert!(receiver.receive(now, sequence, 1, 10_000, 1000));
        }
        sequence = sequence.wrapping_add(1);
        receiver.poll_report(now);
    }
    let p = receiver.loss();
    assert!((0.004..0.006).contains(&p), "{p}");
    // Reordering by two is no loss; a packet is not accepted twice.
    let before = receiver.loss();
    for swap in [1, 0, 2, 3] {
        assert!(receiver.receive(now, sequence.wrapping_add(swap), 1, 10_000, 1000));
    }
    assert!(!receiver.receive(now, sequence, 1, 10_000, 1000));
    assert!(receiver.loss() <= before);
}

/// A report may claim any rate. A timer that did not advance would keep the driver busy.
#[test]
fn however_high_the_rate_the_next_packet_waits_for_the_clock() {
    let now = Instant::from_secs(100);
    let mut sender = Sender::new(now, 1000);
    sender.ready(now);
    let report = Report {
        echo_us: now.total_micros() as u32,
        delay_us: 0,
        received_rate: u32::MAX,
        loss: 0,
    };
    let mut now = now;
    for _ in 0..40 {
        now += Duration::from_millis(1);
        let echo_us = now.total_micros() as u32;
        sender.report(now, &Report { echo_us, ..report });
    }
    assert!(sender.rate() > 1_000_000_000, "{}", sender.rate());
    while sender.send(now, 1000) {}
    assert!(sender.next_send(now) > now);
}
