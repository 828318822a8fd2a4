//! Thousands of sessions: which of them a data node releases, and what it does first.

use bfed::data::DataEvent;
use bfed::wire::Message;
use bfed::wire::join::FlowChannel;
use bfed::wire::node::Heartbeat;
use bfed::*;

use bfed::wire::subscribe::Edge;

use crate::fake::{PEER, Station};

fn name(number: usize) -> String {
    format!("bfed://2/m/{number}")
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

/// A data node with `count` bulk sessions from one data node of a peer.
fn station(count: usize) -> Station {
    let mut station = Station::new(1);
    let theirs = [FlowChannel {
        label: FlowLabel::new(7),
        address: ChannelAddress::Stream(([10, 0, 0, 2], 4000).into()),
    }];
    for number in 0..count {
        station.allocate(&name(number), PEER);
        station
            .subscribe(true, &name(number), PEER, &theirs)
            .unwrap();
    }
    station
}

fn is_dial(event: &DataEvent) -> bool {
    matches!(event, DataEvent::Dial { .. })
}

#[test]
fn sessions_that_control_has_forgotten_go_with_its_first_complete_heartbeat() {
    let mut station = station(2000);
    // The stream breaks, and with it the RECLAIMs of all but ten.
    station.node.disconnected();
    station.node.connected(station.now);
    for number in 0..10 {
        station.reclaim(&name(number), None);
    }
    for _ in 0..4 {
        beat(&mut station, false);
        station.wait(250);
    }
    assert_eq!(
        station.node.session_count(),
        2000,
        "control may not know all yet"
    );
    station
        .subscribe(false, &name(10), Edge::Native, &[])
        .unwrap();
    beat(&mut station, true);
    for _ in 0..10 {
        station.wait(1);
    }
    assert_eq!(station.node.session_count(), 11);
    assert_eq!(station.node.plane().edge_count(), 12);
    // A session that begins now is requested on this stream.
    let theirs = [FlowChannel {
        label: FlowLabel::new(7),
        address: ChannelAddress::Stream(([10, 0, 0, 2], 4000).into()),
    }];
    station.subscribe(true, &name(99), PEER, &theirs).unwrap();
    beat(&mut station, true);
    station.wait(1);
    assert_eq!(station.node.session_count(), 12);
}

#[test]
fn heartbeats_do_not_wait_for_thousands_of_calls() {
    let mut station = station(6000);
    let mut dialled = 0;
    for _ in 0..20 {
        station.sent();
        beat(&mut station, false);
        station.wait(250);
        let sent = station.sent();
        let beats = |message: &&Message| matches!(message, Message::Heartbeat(_));
        assert_eq!(sent.iter().filter(beats).count(), 1);
        let events = station.events();
        let dials: Vec<_> = events.into_iter().filter(is_dial).collect();
        assert!(dials.len() <= 64, "{} calls in a row", dials.len());
        dialled += dials.len();
        // The next ones are due at once.
        assert_eq!(station.node.poll_timeout(), Some(station.now));
        for event in dials {
            let DataEvent::Dial { edge, to } = event else {
                continue;
            };
            station.node.dial_failed(station.now, edge, to);
        }
    }
    assert_eq!(dialled, 20 * 64);
}

#[test]
fn a_channel_that_fails_is_asked_for_ever_more_rarely() {
    let mut station = station(1);
    let mut calls = vec![];
    for second in 0..120 {
        for _ in 0..4 {
            beat(&mut station, false);
            station.wait(250);
            station.reclaim(&name(0), None);
        }
        for event in station.events() {
            if let DataEvent::Dial { edge, to } = event {
                calls.push(second);
                station.node.dial_failed(station.now, edge, to);
            }
        }
    }
    assert!((8..=14).contains(&calls.len()), "{calls:?}");
    // One that is taken and closed at once is no success.
    let mut count = 0;
    for number in 1..=60_u64 {
        for _ in 0..4 {
            beat(&mut station, false);
            station.wait(250);
            station.reclaim(&name(0), None);
        }
        for event in station.events() {
            if let DataEvent::Dial { edge, .. } = event {
                count += 1;
                assert!(station.node.dialled(edge, ConnId(number)));
                station.node.stream_ended(station.now, ConnId(number));
            }
        }
    }
    assert!(count <= 5, "{count} in a minute");
}
