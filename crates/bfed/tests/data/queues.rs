//! What waits for an edge: how much, how long, and what is sent when.

use bfed::data::{DataError, DataEvent, Destination, EdgeId, Meta, Verdict};
use bfed::native::ChannelId;
use bfed::wire::data::{HEADER_LEN, Kind, Packet, Repr};
use bfed::wire::join::FlowChannel;
use bfed::wire::reclaim::ReclaimTarget;
use bfed::wire::report::{LEN as REPORT_LEN, Repr as Report};
use bfed::wire::subscribe::Edge;
use bfed::*;

use crate::fake::{OTHER, PEER, Sent, Station, introduce, payload};

const FILE: &str = "bfed://1/m";
const LIVE: &str = "bfed://1/m/?content=real-time";
const SOURCE: Destination = Destination::Native(ChannelId(1));

fn peer(number: u32, rate_bps: u64) -> Edge {
    let peer = PeerId(number);
    Edge::Peer { peer, rate_bps }
}

/// A receiver over TCP, whose channel is `conn`.
fn receiver(station: &mut Station, edge: Edge, conn: u64) {
    let to = FlowChannel {
        label: None,
        address: ChannelAddress::Stream(([10, 0, 0, 2], 4000).into()),
    };
    let own = station.subscribe(false, FILE, edge, &[to]).unwrap();
    let mut attach = vec![0; HEADER_LEN];
    Repr::new(Kind::Attach, own[0].label.unwrap()).emit(&mut attach);
    let from = Meta::Stream(ConnId(conn), [10, 0, 0, 2].into());
    assert!(matches!(station.packet(from, attach), Err(Verdict::Taken)));
}

/// A source of bulk data, and receivers with these links; queues hold 10,000 bytes.
fn bulk(edges: &[Edge]) -> Station {
    let mut station = Station::with(1, |config| config.plane.max_queue_bytes = 10_000);
    station.subscribe(true, FILE, Edge::Native, &[]).unwrap();
    for (conn, edge) in (7..).zip(edges) {
        receiver(&mut station, *edge, conn);
    }
    station
}

/// The edges that a frame of the source is sent on.
fn edges(station: &mut Station) -> Vec<EdgeId> {
    let mut frame = vec![0; HEADER_LEN + 1];
    let now = station.now;
    let plane = station.node.plane();
    let meta = Meta::Native(ChannelId(1));
    match plane.forward(now, &meta, &mut frame) {
        Verdict::Forward(mut cursor) => {
            let next = || plane.next_transmit(now, &mut cursor, &mut frame);
            std::iter::from_fn(next).map(|copy| copy.edge).collect()
        }
        Verdict::Only(copy) => vec![copy.edge],
        other => panic!("{other:?}"),
    }
}

fn transmit(station: &mut Station, room: usize) -> Option<(EdgeId, usize)> {
    let mut buffer = vec![0; room];
    let now = station.now;
    let copy = station.node.plane().poll_transmit(now, &mut buffer)?;
    Some((copy.edge, copy.range.len()))
}

fn stats(station: &mut Station) -> data::PlaneStats {
    *station.node.plane().stats()
}

#[test]
fn a_packet_that_does_not_fit_waits_for_a_larger_buffer() {
    // With and without a limit of the link.
    for edge in [PEER, peer(1, 1_000_000_000)] {
        let mut station = bulk(&[edge]);
        let id = edges(&mut station)[0];
        station.node.plane().blocked(id);
        station.native_data(1, &[0; 100]).unwrap();
        station.native_data(1, &[0; REPORT_LEN]).unwrap();
        let now = station.now;
        station.node.plane().writable(now, id);
        let len = HEADER_LEN + 100;
        assert_eq!(transmit(&mut station, len - 1), None);
        assert_eq!(transmit(&mut station, HEADER_LEN + REPORT_LEN - 1), None);
        assert_eq!(transmit(&mut station, len), Some((id, len)));
        let short = HEADER_LEN + REPORT_LEN;
        assert_eq!(transmit(&mut station, short), Some((id, short)));
        assert_eq!(transmit(&mut station, len), None);
    }
}

#[test]
fn copies_are_counted_when_they_are_sent() {
    let mut station = bulk(&[PEER, OTHER]);
    let id = edges(&mut station)[0];
    station.node.plane().blocked(id);
    assert_eq!(station.native_data(1, &[0; 100]).unwrap().len(), 1);
    let counts = |station: &mut Station| {
        let stats = stats(station);
        (
            stats.packets,
            stats.bytes,
            stats.copies,
            stats.copied_bytes,
            stats.queued,
        )
    };
    // The two ATTACHes are packets, too.
    assert_eq!(counts(&mut station), (4, 101, 3, 102, 1));
    let now = station.now;
    station.node.plane().writable(now, id);
    assert_eq!(station.drain().len(), 1);
    assert_eq!(counts(&mut station), (4, 101, 4, 202, 1));
}

#[test]
fn a_slow_link_pauses_the_source_at_half_a_queue_and_resumes_it_below() {
    // 1,000 bytes a second, after a burst of a hundred.
    let mut station = bulk(&[peer(1, 8000)]);
    let mut events = Vec::new();
    let mut queued = 0;
    while events.is_empty() {
        queued += 1;
        station.native_data(1, &[queued; 980]).unwrap();
        events = station.events();
    }
    assert_eq!(events, [DataEvent::Pause(SOURCE)]);
    // The first goes at once; five times 980 bytes are less than half of the queue.
    assert_eq!(queued, 7);
    let mut sent = Vec::new();
    for second in 0..30 {
        station.wait(1000);
        sent.extend(station.drain());
        let events = station.events();
        let expected: &[DataEvent] = if second == 0 {
            &[DataEvent::Resume(SOURCE)]
        } else {
            &[]
        };
        assert_eq!(events, expected, "second {second}");
    }
    let order: Vec<_> = sent.iter().map(|sent| payload(sent)[0]).collect();
    assert_eq!(order, [2, 3, 4, 5, 6, 7], "in order, all of it");
    assert_eq!(stats(&mut station).pauses, 1);
}

#[test]
fn a_receiver_that_takes_something_every_few_seconds_is_not_stalled() {
    // 100 bytes a second: a packet takes ten seconds, and a little less.
    let mut station = bulk(&[peer(1, 808)]);
    for number in 0..9 {
        station.native_data(1, &[number; 980]).unwrap();
    }
    assert_eq!(station.events(), [DataEvent::Pause(SOURCE)]);
    for _ in 0..250 {
        station.wait(100);
        station.drain();
    }
    assert_eq!(station.events(), [], "it makes progress");
    assert_eq!(stats(&mut station).drops.get(DataError::Stalled), 0);
}

#[test]
fn a_stalled_channel_that_this_node_opened_is_opened_again() {
    let name = "bfed://1/m/?multi-source=true";
    let mut station = Station::new(1);
    station.allocate(name, PEER);
    let above = ([10, 0, 0, 2], 4000).into();
    let theirs = FlowChannel {
        label: FlowLabel::new(5),
        address: ChannelAddress::Stream(above),
    };
    station.subscribe(true, name, PEER, &[theirs]).unwrap();
    station.subscribe(false, name, Edge::Native, &[]).unwrap();
    let [dial @ DataEvent::Dial { edge, to }] = station.events()[..] else {
        panic!();
    };
    assert_eq!(to, above);
    assert!(station.node.dialled(edge, ConnId(3)));
    station.drain();
    // A client sends upstream, and the peer takes nothing.
    let sent = station.native_data(1, b"up").unwrap();
    assert_eq!(sent[0].0, Destination::Stream(ConnId(3)));
    station.node.plane().blocked(edge);
    station.events();
    station.wait(10_000);
    let events = station.events();
    assert!(events.contains(&DataEvent::Close(ConnId(3))), "{events:?}");
    assert!(events.contains(&dial), "{events:?}");
    assert!(station.node.dialled(edge, ConnId(4)));
    assert_eq!(station.drain()[0].0, Destination::Stream(ConnId(4)));
    let sent = station.native_data(1, b"up").unwrap();
    assert_eq!(sent[0].0, Destination::Stream(ConnId(4)));
}

#[test]
fn the_source_resumes_once_no_receiver_is_full() {
    let mut station = bulk(&[PEER, OTHER]);
    let ids = edges(&mut station);
    for &id in &ids {
        station.node.plane().blocked(id);
        station.node.plane().blocked(id);
    }
    assert_eq!(station.events(), [DataEvent::Pause(SOURCE)]);
    let now = station.now;
    station.node.plane().writable(now, ids[0]);
    station.node.plane().writable(now, ids[0]);
    assert_eq!(station.events(), []);
    station.node.plane().writable(now, ids[1]);
    assert_eq!(station.events(), [DataEvent::Resume(SOURCE)]);
    assert_eq!(stats(&mut station).pauses, 1);
}

#[test]
fn a_full_receiver_that_leaves_pauses_no_source() {
    let mut station = bulk(&[PEER, OTHER]);
    let ids = edges(&mut station);
    station.node.plane().blocked(ids[0]);
    station.events();
    station.reclaim(FILE, Some(ReclaimTarget::Receiver(OTHER)));
    assert!(!station.events().contains(&DataEvent::Resume(SOURCE)));
    station.reclaim(FILE, Some(ReclaimTarget::Receiver(PEER)));
    assert!(station.events().contains(&DataEvent::Resume(SOURCE)));
    // Its handle is of no use any more.
    let now = station.now;
    station.node.plane().blocked(ids[0]);
    station.node.plane().takes(now, ids[0]);
    station.node.plane().writable(now, ids[0]);
    receiver(&mut station, PEER, 9);
    assert_eq!(
        edges(&mut station).len(),
        1,
        "another has its index, and is not blocked"
    );
    assert_eq!(station.events(), []);
}

#[test]
fn real_time_receivers_never_pause_a_source() {
    let mut station = Station::with(1, |config| config.plane.max_queue_bytes = 10_000);
    station.subscribe(true, LIVE, Edge::Native, &[]).unwrap();
    station.subscribe(false, LIVE, Edge::Native, &[]).unwrap();
    station.native().busy = true;
    for _ in 0..30 {
        station.native_data(1, &[0; 980]).unwrap();
    }
    assert_eq!(station.events(), []);
    let dropped = stats(&mut station).drops.get(DataError::QueueFull);
    assert_eq!(dropped, 19, "the first was refused, ten wait");
    station.wait(501);
    station.native().busy = false;
    let (now, id) = (station.now, station.last_blocked.expect("a blocked edge"));
    station.node.plane().writable(now, id);
    assert!(station.drain().is_empty(), "too late");
    assert_eq!(stats(&mut station).drops.get(DataError::TooLate), 10);
}

#[test]
fn real_time_packets_wait_for_the_rate_that_reports_allow() {
    let (mut above, mut below) = (Station::new(1), Station::new(2));
    let theirs = below.allocate(LIVE, PEER);
    above.subscribe(true, LIVE, Edge::Native, &[]).unwrap();
    let ours = above.subscribe(false, LIVE, PEER, &theirs).unwrap();
    below.subscribe(true, LIVE, PEER, &ours).unwrap();
    introduce(&mut above, &mut below);
    for station in [&mut above, &mut below] {
        // Heartbeats and PROBEs that are due.
        station.wait(0);
        station.sent();
        station.drain();
    }
    let sent: Vec<Sent> = (0..8)
        .flat_map(|number| above.native_data(1, &[number; 1180]).unwrap())
        .collect();
    assert_eq!(sent.len(), 4, "the initial window");
    // The rest is dropped, or goes when the rate allows it.
    let due = above.node.poll_timeout().expect("packets wait");
    assert!(due > above.now);
    for (_, packet) in sent {
        let from = Meta::Datagram(above.address);
        below.packet(from, packet).unwrap();
    }
    let reports = |station: &mut Station| {
        let mut reports = station.drain();
        let is_report =
            |sent: &Sent| Packet::new_checked(&sent.1[..]).unwrap().kind() == Kind::Report;
        reports.retain(is_report);
        reports
    };
    assert_eq!(
        below.node.poll_timeout(),
        Some(below.now),
        "a report is due at once"
    );
    below.wait(0);
    let sent = reports(&mut below);
    let [(to, bytes)] = &sent[..] else {
        panic!("{sent:?}");
    };
    assert_eq!(*to, Destination::Datagram(above.address));
    let packet = Packet::new_checked(&bytes[..]).unwrap();
    assert_eq!(packet.label(), ours[0].label.unwrap());
    let report = Report::parse(packet.payload()).unwrap();
    assert_eq!((report.loss, report.delay_us), (0, 0));
    // 4,800 bytes, in the 100 ms that a round trip counts while it is unknown.
    assert_eq!(report.received_rate, 48_000);
    assert_eq!(stats(&mut below).reports, 1);
    above.now += Duration::from_millis(10);
    let report = bytes.clone();
    let taken = above.packet(Meta::Datagram(below.address), report);
    assert!(matches!(taken, Err(Verdict::Taken)));
    // The initial window in each round trip of 10 ms: what waits may go.
    above.wait(10);
    let now: Vec<_> = above.drain().iter().map(|sent| payload(sent)[0]).collect();
    assert_eq!(now, [4, 5, 6, 7]);
}

#[test]
fn counts_of_a_long_session_do_not_overflow() {
    const LEN: usize = 65_000;
    let mut station = bulk(&[PEER]);
    let mut frame = vec![0; HEADER_LEN + LEN];
    let (now, meta) = (station.now, Meta::Native(ChannelId(1)));
    let mut short = 0_u64;
    let packets = u64::from(u32::MAX) / LEN as u64 + 1000;
    for _ in 0..packets {
        let plane = station.node.plane();
        match plane.forward(now, &meta, &mut frame) {
            Verdict::Only(_) => short += 1,
            Verdict::Forward(mut cursor) => {
                assert!(plane.next_transmit(now, &mut cursor, &mut frame).is_some());
                assert!(plane.next_transmit(now, &mut cursor, &mut frame).is_none());
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(packets - short <= 3, "most take the short way");
    let stats = stats(&mut station);
    assert_eq!(
        (stats.copies, stats.copied_bytes),
        (packets, packets * LEN as u64)
    );
    station.sent();
    station.wait(0);
    let statistics = station
        .sent()
        .into_iter()
        .find_map(|message| match message {
            wire::Message::Statistics(statistics) => Some(statistics),
            _ => None,
        });
    let entry = &statistics.expect("due").entries[0];
    assert_eq!(
        (entry.packets, entry.bytes, entry.copies),
        (packets, packets * LEN as u64, packets)
    );
}

#[test]
fn packets_are_forwarded_alike_with_and_without_a_look_ahead() {
    let outcome = |ahead: bool| {
        let mut station = Station::new(1);
        let label = FlowLabel::new(77).unwrap();
        let theirs = FlowChannel {
            label: Some(label),
            address: ChannelAddress::Datagram(([10, 0, 0, 2], 4000).into()),
        };
        station.subscribe(true, LIVE, PEER, &[theirs]).unwrap();
        station.subscribe(false, LIVE, Edge::Native, &[]).unwrap();
        station.subscribe(true, FILE, Edge::Native, &[]).unwrap();
        station.subscribe(false, FILE, Edge::Native, &[]).unwrap();
        let mut packets = Vec::new();
        for number in 0..40_u32 {
            let repr = Repr {
                sequence: number,
                payload_len: 4,
                ..Repr::new(
                    Kind::Data,
                    if number % 5 == 3 {
                        FlowLabel::new(78).unwrap()
                    } else {
                        label
                    },
                )
            };
            let mut packet = vec![0; repr.buffer_len()];
            repr.emit(&mut packet);
            let from = if number % 7 == 6 {
                [10, 0, 0, 3]
            } else {
                [10, 0, 0, 2]
            };
            packets.push((Meta::Datagram((from, 4000).into()), packet));
            let channel = ChannelId(2 + u64::from(number % 3));
            packets.push((Meta::Native(channel), vec![number as u8; HEADER_LEN + 9]));
            packets.push((Meta::Stream(ConnId(9), [10, 0, 0, 2].into()), vec![0; 3]));
        }
        for batch in packets.chunks(33) {
            if ahead {
                let batch = batch.iter().map(|(meta, packet)| (meta, &packet[..]));
                station.node.plane().prefetch(batch);
            }
            for (meta, packet) in batch {
                let _ = station.packet(*meta, packet.clone());
            }
        }
        (stats(&mut station), station.native().sent.clone())
    };
    let (with, without) = (outcome(true), outcome(false));
    assert!(without.1.len() > 40 && without.0.drops.total() > 40);
    assert_eq!(with, without);
}

#[test]
fn what_may_be_sent_is_due_at_once() {
    let mut station = bulk(&[PEER]);
    let idle = |station: &mut Station| {
        station.wait(0);
        station.sent();
        station.drain();
        station.events();
        assert!(station.node.poll_timeout() > Some(station.now));
    };
    let edge = edges(&mut station)[0];
    station.node.plane().blocked(edge);
    station.native_data(1, b"waits").unwrap();
    idle(&mut station);
    let now = station.now;
    station.node.plane().writable(now, edge);
    assert_eq!(station.node.poll_timeout(), Some(now), "a frame");
    idle(&mut station);
    assert!(station.node.dialled(edge, ConnId(8)));
    station.sent();
    station.events();
    assert_eq!(station.node.poll_timeout(), Some(now), "an ATTACH");
}
