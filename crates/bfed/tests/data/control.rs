//! What a control node asks of a data node, and what it learns from it.

use bfed::data::{DataEvent, NodeTransmit};
use bfed::native::{ChannelId, Direction};
use bfed::wire::allocate::Outcome;
use bfed::wire::data::{HEADER_LEN, Kind, Packet, Repr};
use bfed::wire::join::FlowChannel;
use bfed::wire::node::Heartbeat;
use bfed::wire::reclaim::ReclaimTarget;
use bfed::wire::statistics::{MAX_ENTRIES, Repr as Statistics};
use bfed::wire::subscribe::Edge;
use bfed::wire::{Message, notification};
use bfed::*;

use crate::fake::{OTHER, PEER, Station};

const LIVE: &str = "bfed://1/m/?content=real-time";
const FILE: &str = "bfed://1/m";
const TALK: &str = "bfed://1/m/?content=real-time&multi-source=true";

fn datagram(label: u32, host: u8) -> FlowChannel {
    FlowChannel {
        label: FlowLabel::new(label),
        address: ChannelAddress::Datagram(([10, 0, 0, host], 4000).into()),
    }
}

fn stream(label: u32, host: u8) -> FlowChannel {
    FlowChannel {
        label: FlowLabel::new(label),
        address: ChannelAddress::Stream(([10, 0, 0, host], 4000).into()),
    }
}

fn beat(station: &mut Station, complete: bool) {
    let heartbeat = Heartbeat {
        epoch: 1,
        sequence: 1,
        draining: false,
        complete,
    };
    station.receive(&Message::Heartbeat(heartbeat)).unwrap();
}

/// Lets seconds pass in which the control node lives. Returns the statistics.
fn live(station: &mut Station, seconds: u64) -> Vec<Statistics> {
    let mut statistics = Vec::new();
    for _ in 0..seconds * 4 {
        beat(station, false);
        station.wait(250);
        let sent = station.sent().into_iter();
        statistics.extend(sent.filter_map(|message| match message {
            Message::Statistics(statistics) => Some(statistics),
            _ => None,
        }));
        station.drain();
        station.events();
    }
    statistics
}

#[test]
fn statistics_count_what_each_session_carried() {
    let mut station = Station::new(1);
    station.subscribe(true, FILE, Edge::Native, &[]).unwrap();
    station.subscribe(false, FILE, Edge::Native, &[]).unwrap();
    live(&mut station, 1);
    for _ in 0..4 {
        station.native_data(1, &[0; 250]).unwrap();
    }
    let statistics = live(&mut station, 2);
    let [busy, idle] = &statistics[..] else {
        panic!("{statistics:?}");
    };
    // 1,000 bytes in a second.
    assert_eq!((busy.rate_bps, busy.sessions), (8000, 1));
    assert_eq!((idle.rate_bps, idle.sessions), (0, 1));
    for one in &statistics {
        let entry = &one.entries[0];
        assert_eq!(entry.session, SessionName::parse(FILE).unwrap());
        assert_eq!(
            (entry.packets, entry.bytes, entry.copies, entry.dropped),
            (4, 1000, 4, 0)
        );
    }
}

#[test]
fn the_rate_after_a_time_without_a_control_node_is_that_of_all_the_time() {
    let mut station = Station::new(1);
    station.subscribe(true, FILE, Edge::Native, &[]).unwrap();
    station.subscribe(false, FILE, Edge::Native, &[]).unwrap();
    live(&mut station, 1);
    station.node.disconnected();
    for _ in 0..100 {
        station.native_data(1, &[0; 100]).unwrap();
        station.wait(1000);
    }
    let now = station.now;
    station.node.connected(now);
    let statistics = live(&mut station, 1);
    // The last report was up to a second before.
    let rate = statistics[0].rate_bps;
    assert!((790..=800).contains(&rate), "{rate}");
}

#[test]
fn flows_and_lost_copies_are_counted_together() {
    let name = "bfed://1/m/a/b";
    let flows = SessionName::parse(name).unwrap().flow_count();
    let mut station = Station::with(1, |config| config.plane.max_queue_bytes = 10);
    station.subscribe(true, name, Edge::Native, &[]).unwrap();
    let theirs = vec![stream(0, 2); flows];
    station.subscribe(false, name, PEER, &theirs).unwrap();
    for channel in 1..=flows as u64 {
        // The receiver has not attached yet: data waits for it, of which the second packet replaces the first.
        station.native_data(channel, &[0; 10]).unwrap();
        station.native_data(channel, &[0; 10]).unwrap();
    }
    let statistics = live(&mut station, 1);
    let entry = &statistics[0].entries[0];
    let count = flows as u64;
    assert_eq!(
        (entry.packets, entry.bytes, entry.copies, entry.dropped),
        (2 * count, 20 * count, 0, count)
    );
}

#[test]
fn sessions_are_reported_in_turn() {
    let mut station = Station::new(1);
    let count = 2 * MAX_ENTRIES + 5;
    for number in 0..count {
        let name = format!("bfed://1/m/{number:03}");
        station.allocate(&name, PEER);
    }
    let statistics = live(&mut station, 4);
    let lens: Vec<_> = statistics.iter().map(|one| one.entries.len()).collect();
    assert_eq!(lens, [MAX_ENTRIES, MAX_ENTRIES, 5, MAX_ENTRIES]);
    let names = statistics[..3].iter().flat_map(|one| &one.entries);
    let mut names: Vec<_> = names.map(|entry| entry.session.to_string()).collect();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(statistics.iter().all(|one| one.sessions as usize == count));
    // A new stream begins with the first.
    let now = station.now;
    station.node.connected(now);
    let again = live(&mut station, 1);
    assert_eq!(again[0].entries, statistics[0].entries);
}

#[test]
fn a_session_lives_for_105_seconds_without_a_refresh() {
    let mut station = Station::new(1);
    station.allocate(FILE, PEER);
    live(&mut station, 60);
    station.allocate("bfed://1/other", PEER);
    live(&mut station, 44);
    assert_eq!(station.node.session_count(), 2);
    station.reclaim("bfed://1/unknown", None);
    live(&mut station, 2);
    assert_eq!(station.node.session_count(), 1);
    station.reclaim("bfed://1/other", None);
    live(&mut station, 104);
    assert_eq!(station.node.session_count(), 1);
    live(&mut station, 2);
    assert_eq!(station.node.session_count(), 0);
    let next = station.node.poll_timeout();
    assert!(next > Some(station.now), "without sessions nothing is due");
    // Each request counts as a refresh.
    station.allocate(FILE, PEER);
    for _ in 0..3 {
        live(&mut station, 100);
        station.allocate(FILE, PEER);
    }
    assert_eq!(station.node.session_count(), 1);
}

#[test]
fn a_new_stream_gives_sessions_their_full_time() {
    let mut station = Station::new(1);
    station.allocate(FILE, PEER);
    live(&mut station, 100);
    let now = station.now;
    station.node.connected(now);
    live(&mut station, 104);
    assert_eq!(station.node.session_count(), 1);
    live(&mut station, 2);
    assert_eq!(station.node.session_count(), 0);
}

#[test]
fn what_the_control_node_does_not_know_is_released_once_for_each_stream() {
    let mut station = Station::new(1);
    station.allocate(FILE, PEER);
    let now = station.now;
    station.node.connected(now);
    station.allocate("bfed://1/other", PEER);
    beat(&mut station, true);
    // The stream breaks before anything is released: the next control node may want it.
    station.node.disconnected();
    assert_ne!(station.node.poll_timeout(), Some(now), "nothing is due");
    station.node.connected(now);
    station.wait(1);
    assert_eq!(station.node.session_count(), 2);
    station.reclaim(FILE, None);
    station.sent();
    assert_ne!(station.node.poll_timeout(), Some(station.now));
    beat(&mut station, true);
    assert_eq!(station.node.poll_timeout(), Some(station.now), "at once");
    station.wait(1);
    assert_eq!(station.node.session_count(), 1);
    station.sent();
    assert_ne!(
        station.node.poll_timeout(),
        Some(station.now),
        "that is all"
    );
    assert!(station.allocate(FILE, PEER).len() == 1);
}

#[test]
fn an_allocation_has_the_address_of_the_content_and_labels_for_many_sources() {
    let mut station = Station::new(7);
    assert_eq!(station.allocate(FILE, PEER), [stream(0, 7)]);
    assert_eq!(station.allocate(LIVE, PEER), [datagram(0, 7)]);
    let both = [PEER, OTHER].map(|peer| station.allocate(TALK, peer));
    let labels = both.iter().map(|flows| flows[0].label.unwrap());
    let labels: std::collections::BTreeSet<_> = labels.collect();
    assert_eq!(labels.len(), 2, "each peer has its own");
    // The rate of the link is no other peer.
    let fast = Edge::Peer {
        peer: PeerId(1),
        rate_bps: 5,
    };
    assert_eq!(station.allocate(TALK, fast), both[0]);
    // Once it is released there are new ones.
    station.reclaim(TALK, Some(ReclaimTarget::Source(OTHER)));
    assert_ne!(station.allocate(TALK, OTHER), both[1]);
    assert_eq!(station.allocate(TALK, PEER), both[0]);
    // The native network allocates its own.
    assert_eq!(station.allocate(FILE, Edge::Native), []);
}

#[test]
fn a_source_is_replaced_and_released_only_if_it_is_the_present_one() {
    let mut station = Station::new(1);
    station.allocate(FILE, PEER);
    station
        .subscribe(true, FILE, PEER, &[stream(5, 2)])
        .unwrap();
    let [DataEvent::Dial { edge, to }] = station.events()[..] else {
        panic!();
    };
    assert_eq!(to, ([10, 0, 0, 2], 4000).into());
    // The same again changes nothing, nor does another rate.
    let fast = Edge::Peer {
        peer: PeerId(1),
        rate_bps: 1_000_000,
    };
    station
        .subscribe(true, FILE, fast, &[stream(5, 2)])
        .unwrap();
    assert_eq!(station.events(), []);
    assert!(station.node.dialled(edge, ConnId(3)));
    station.reclaim(FILE, Some(ReclaimTarget::Source(OTHER)));
    station.reclaim(FILE, Some(ReclaimTarget::Receiver(PEER)));
    assert_eq!(station.events(), []);
    assert_eq!(station.node.plane().edge_count(), 1);
    station
        .subscribe(true, FILE, PEER, &[stream(6, 2)])
        .unwrap();
    let events = station.events();
    assert!(
        matches!(
            events[..],
            [DataEvent::Close(ConnId(3)), DataEvent::Dial { .. }]
        ),
        "{events:?}"
    );
    station
        .subscribe(true, FILE, OTHER, &[stream(6, 2)])
        .unwrap();
    assert_eq!(station.node.plane().edge_count(), 1);
    station.reclaim(FILE, Some(ReclaimTarget::Source(PEER)));
    assert_eq!(station.node.plane().edge_count(), 1);
    station.reclaim(FILE, Some(ReclaimTarget::Source(OTHER)));
    assert_eq!(station.node.plane().edge_count(), 0);
}

#[test]
fn a_source_that_cannot_be_is_refused_and_leaves_nothing() {
    let native = FlowChannel {
        label: None,
        address: ChannelAddress::Native(b"239.1.1.1".to_vec()),
    };
    let mut station = Station::new(1);
    for (edge, flows) in [
        (PEER, vec![stream(0, 2)]),
        (PEER, vec![native.clone()]),
        (Edge::Native, vec![stream(5, 2)]),
    ] {
        let refused = station.subscribe(true, FILE, edge, &flows);
        assert_eq!(refused, Err(Outcome::Refused), "{edge:?} {flows:?}");
        assert_eq!(station.node.plane().edge_count(), 0);
        assert!(station.native().open.is_empty());
    }
    // Another gateway's channel of this network is listened to where it said.
    assert_eq!(
        station.subscribe(true, FILE, Edge::Native, &[native]),
        Ok(vec![])
    );
    let open: Vec<_> = station.native().open.values().cloned().collect();
    let [(session, _, Direction::Up, Some(address))] = &open[..] else {
        panic!("{open:?}");
    };
    assert_eq!(
        (session.to_string(), &address[..]),
        (FILE.into(), &b"239.1.1.1"[..])
    );
}

#[test]
fn a_native_network_that_has_no_room_or_no_session_is_refused_so() {
    let mut station = Station::new(1);
    station.native().pool = 0;
    assert_eq!(
        station.subscribe(true, FILE, Edge::Native, &[]),
        Err(Outcome::Full)
    );
    station.native().missing = true;
    assert_eq!(
        station.subscribe(true, FILE, Edge::Native, &[]),
        Err(Outcome::NoSession)
    );
    assert_eq!(station.node.session_count(), 1, "it may be asked again");
}

#[test]
fn clients_send_upstream_only_where_many_may() {
    for (name, listens) in [(LIVE, false), (TALK, true)] {
        let mut station = Station::new(1);
        let own = station.subscribe(false, name, Edge::Native, &[]).unwrap();
        assert_eq!(
            own[0].address,
            ChannelAddress::Native(b"239.0.0.1".to_vec())
        );
        let (.., direction, address) = &station.native().open[&ChannelId(1)];
        assert_eq!((*direction, address.is_some()), (Direction::Down, listens));
    }
}

#[test]
fn refreshes_reach_the_native_network_for_each_flow() {
    let name = "bfed://1/m/a/b/c";
    let flows = SessionName::parse(name).unwrap().flow_count();
    let mut station = Station::new(1);
    station.subscribe(true, name, Edge::Native, &[]).unwrap();
    station.subscribe(false, name, Edge::Native, &[]).unwrap();
    station.reclaim(name, None);
    assert_eq!(station.native().refreshes, 2 * flows);
}

#[test]
fn heartbeats_come_before_packets_and_a_blocked_stream_gets_none() {
    let mut station = Station::new(1);
    station.allocate(LIVE, PEER);
    station
        .subscribe(true, LIVE, PEER, &[datagram(5, 2)])
        .unwrap();
    beat(&mut station, false);
    station.wait(0);
    let now = station.now;
    let mut buffer = vec![0; 70_000];
    let first = station.node.poll_transmit(now, &mut buffer);
    assert!(matches!(first, Some(NodeTransmit::Control { .. })));
    while let Some(NodeTransmit::Control { .. }) = station.node.poll_transmit(now, &mut buffer) {}
    station.wait(250);
    station.node.set_control_blocked(true);
    let packet = station.node.poll_transmit(station.now, &mut buffer);
    let Some(NodeTransmit::Data(packet)) = packet else {
        panic!("{packet:?}");
    };
    let packet = Packet::new_checked(&buffer[packet.range]).unwrap();
    assert_eq!(packet.kind(), Kind::Probe);
    assert!(station.node.is_connected());
    station.node.set_control_blocked(false);
    let next = station.node.poll_transmit(station.now, &mut buffer);
    assert!(matches!(next, Some(NodeTransmit::Control { .. })));
}

#[test]
fn the_stream_is_given_up_after_four_silent_intervals() {
    let mut station = Station::new(1);
    station.wait(999);
    assert!(station.node.is_connected());
    assert!(!station.all_events().contains(&DataEvent::ControlLost));
    station.wait(1);
    assert!(!station.node.is_connected());
    assert_eq!(station.all_events(), [DataEvent::ControlLost]);
    station.wait(1000);
    assert_eq!(station.all_events(), [], "once");
    assert_eq!(station.node.poll_timeout(), None);
}

#[test]
fn a_control_node_that_reads_nothing_loses_the_stream() {
    let mut station = Station::with(1, |config| config.max_queue = 3);
    for _ in 0..3 {
        beat(&mut station, false);
        station.wait(250);
    }
    assert!(station.all_events().contains(&DataEvent::ControlLost));
    assert!(!station.node.is_connected());
}

#[test]
fn a_drained_node_says_so_at_once() {
    let mut station = Station::new(1);
    beat(&mut station, false);
    station.wait(0);
    station.sent();
    let now = station.now;
    station.node.drain(now);
    assert_eq!(station.node.poll_timeout(), Some(now));
    station.wait(0);
    let sent = station.sent();
    assert!(matches!(sent[..], [Message::Heartbeat(beat)] if beat.draining));
}

#[test]
fn a_notification_of_the_control_node_changes_nothing() {
    let mut station = Station::new(1);
    let why = notification::Repr::new(notification::Reason::Shutdown, "");
    assert_eq!(station.receive(&Message::Notification(why)), Ok(()));
    assert_eq!(station.node.plane().stats().drops.total(), 0);
    let now = station.now;
    let wrong = station.node.handle_packet(now, &(), b"nonsense");
    assert_eq!(wrong, Err(data::DataError::BadControl));
    assert_eq!(
        station
            .node
            .plane()
            .stats()
            .drops
            .get(data::DataError::BadControl),
        1
    );
}

#[test]
fn neighbours_are_the_data_nodes_that_the_control_node_named() {
    let mut station = Station::new(1);
    let known = |station: &Station, host| station.node.is_neighbour([10, 0, 0, host].into());
    assert!(!known(&station, 2));
    station
        .subscribe(false, FILE, PEER, &[stream(0, 2)])
        .unwrap();
    assert!(known(&station, 2) && !known(&station, 3));
    station.reclaim(FILE, Some(ReclaimTarget::All));
    assert!(!known(&station, 2));
}

#[test]
fn only_channels_that_this_node_dials_are_dialled_again() {
    let mut station = Station::new(1);
    let own = station
        .subscribe(false, FILE, PEER, &[stream(0, 2)])
        .unwrap();
    let mut attach = vec![0; HEADER_LEN];
    Repr::new(Kind::Attach, own[0].label.unwrap()).emit(&mut attach);
    let _ = station.packet(data::Meta::Stream(ConnId(9), [10, 0, 0, 2].into()), attach);
    let now = station.now;
    station.node.stream_ended(now, ConnId(9));
    station.node.stream_ended(now, ConnId(8));
    live(&mut station, 1);
    assert_eq!(station.events(), [], "the receiver comes again by itself");
    station.subscribe(true, FILE, Edge::Native, &[]).unwrap();
    assert!(station.native_data(1, b"lost").unwrap().is_empty());
}

#[test]
fn a_log_of_a_data_node_shows_its_number_and_sessions() {
    let mut station = Station::new(7);
    station.allocate(FILE, PEER);
    let text = format!("{:?}", station.node);
    assert!(
        text.contains("NodeId(7)") && text.contains("SessionName"),
        "{text}"
    );
}
