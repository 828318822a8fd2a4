//! Which receivers get which data, and which do not.

use bfed::data::{DataError, DataEvent, Destination, Meta, Verdict};
use bfed::native::ChannelId;
use bfed::wire::allocate::Outcome;
use bfed::wire::data::{HEADER_LEN, Packet};
use bfed::wire::join::FlowChannel;
use bfed::wire::node::Heartbeat;
use bfed::wire::reclaim::ReclaimTarget;
use bfed::wire::subscribe::Edge;
use bfed::wire::{Message, subscribe};
use bfed::*;

use crate::fake::{OTHER, PEER, Station, introduce, payload};

const LIVE: &str = "bfed://1/m/?content=real-time";
const FILE: &str = "bfed://1/m";
const TALK: &str = "bfed://1/m/?content=real-time&multi-source=true";

fn datagram(last: u8) -> ChannelAddress {
    ChannelAddress::Datagram(([10, 0, 0, last], 4000).into())
}

fn to(label: Option<u32>, address: ChannelAddress) -> FlowChannel {
    FlowChannel {
        label: label.and_then(FlowLabel::new),
        address,
    }
}

#[track_caller]
fn dropped<T: std::fmt::Debug>(got: Result<T, Verdict>, reason: DataError) {
    match got {
        Err(Verdict::Drop(why)) => assert_eq!(why, reason),
        other => panic!("{other:?}"),
    }
}

/// The owner's node and the next one's, joined for a session; the channels of what goes down.
fn pair(name: &str) -> (Station, Station) {
    let (mut owner, mut next) = (Station::new(1), Station::new(2));
    let n1 = next.allocate(name, PEER);
    owner.subscribe(true, name, Edge::Native, &[]).unwrap();
    let n2 = owner.subscribe(false, name, PEER, &n1).unwrap();
    next.subscribe(true, name, PEER, &n2).unwrap();
    next.subscribe(false, name, Edge::Native, &[]).unwrap();
    introduce(&mut owner, &mut next);
    (owner, next)
}

/// What one station sent arrives at another.
fn pass(
    from: &Station,
    sent: &[(Destination, Vec<u8>)],
    at: &mut Station,
) -> Vec<(Destination, Vec<u8>)> {
    let mut out = vec![];
    for (to, bytes) in sent {
        if *to == Destination::Datagram(at.address)
            && let Ok(more) = at.packet(Meta::Datagram(from.address), bytes.clone())
        {
            out.extend(more);
        }
    }
    out
}

#[test]
fn a_packet_goes_from_the_source_to_the_clients() {
    let (mut owner, mut next) = pair(LIVE);
    let sent = owner.native_data(1, b"frame").unwrap();
    assert_eq!(sent.len(), 1);
    let packet = Packet::new_checked(&sent[0].1[..]).unwrap();
    assert_eq!((packet.payload(), packet.sequence()), (&b"frame"[..], 1));
    let out = pass(&owner, &sent, &mut next);
    assert_eq!(out.len(), 1);
    assert!(matches!(out[0].0, Destination::Native(ChannelId(1))));
    assert_eq!(
        next.native().sent,
        [(ChannelId(1), b"frame".to_vec())],
        "no header in the native network"
    );
    // The receiver reports at once, which gives the sender the round-trip time.
    next.now += Duration::from_millis(20);
    owner.now = next.now;
    next.wait(0);
    for (to, bytes) in next.drain() {
        assert_eq!(to, Destination::Datagram(owner.address));
        let taken = owner.packet(Meta::Datagram(next.address), bytes);
        assert!(matches!(taken, Err(Verdict::Taken)));
    }
    let sent = owner.native_data(1, b"next").unwrap();
    let rtt = Packet::new_checked(&sent[0].1[..]).unwrap().rtt_us();
    assert!((100..40_000).contains(&rtt), "{rtt}");
}

#[test]
fn packets_of_others_lead_nowhere() {
    let (mut owner, mut next) = pair(LIVE);
    let sent = owner.native_data(1, b"frame").unwrap();
    let bytes = sent[0].1.clone();
    let stranger = Meta::Datagram(([10, 0, 0, 66], 4000).into());
    dropped(next.packet(stranger, bytes.clone()), DataError::UnknownFlow);
    let other_port = Meta::Datagram(([10, 0, 0, 1], 4001).into());
    dropped(
        next.packet(other_port, bytes.clone()),
        DataError::UnknownFlow,
    );
    let mut label = bytes.clone();
    label[7] ^= 1;
    dropped(
        next.packet(Meta::Datagram(owner.address), label),
        DataError::UnknownFlow,
    );
    let cut = bytes[..HEADER_LEN - 1].to_vec();
    dropped(
        next.packet(Meta::Datagram(owner.address), cut),
        DataError::Malformed,
    );
    let mut version = bytes.clone();
    version[0] = 0x21;
    dropped(
        next.packet(Meta::Datagram(owner.address), version),
        DataError::Version,
    );
    assert!(
        next.packet(Meta::Datagram(owner.address), bytes.clone())
            .is_ok()
    );
    dropped(
        next.packet(Meta::Datagram(owner.address), bytes),
        DataError::Duplicate,
    );
    dropped(next.native_data(99, b"x"), DataError::UnknownChannel);
    // Down only: what clients send natively goes nowhere.
    dropped(next.native_data(1, b"x"), DataError::WrongDirection);
    let plane = *next.node.plane().stats();
    assert_eq!(
        (plane.drops.get(DataError::UnknownFlow), plane.copies),
        (3, 1)
    );
}

#[test]
fn reports_of_others_change_nothing() {
    let (mut owner, mut next) = pair(LIVE);
    let sent = owner.native_data(1, b"frame").unwrap();
    pass(&owner, &sent, &mut next);
    next.wait(0);
    let report = next.drain().remove(0).1;
    let stranger = Meta::Datagram(([10, 0, 0, 66], 4000).into());
    dropped(owner.packet(stranger, report.clone()), DataError::NotYours);
    let mut short = report.clone();
    short.truncate(HEADER_LEN + 8);
    short[3] = 8;
    dropped(
        owner.packet(Meta::Datagram(next.address), short),
        DataError::Malformed,
    );
    assert!(matches!(
        owner.packet(Meta::Datagram(next.address), report),
        Err(Verdict::Taken)
    ));
}

#[test]
fn sessions_of_many_sources_go_both_ways() {
    let (mut owner, mut next) = pair(TALK);
    let mut last = Station::new(3);
    let n1 = last.allocate(TALK, PEER);
    assert!(n1[0].label.is_some(), "a label for packets that go up");
    let n2 = next.subscribe(false, TALK, OTHER, &n1).unwrap();
    last.subscribe(true, TALK, PEER, &n2).unwrap();
    last.subscribe(false, TALK, Edge::Native, &[]).unwrap();
    introduce(&mut next, &mut last);
    // A client of the last network sends.
    let up = last.native_data(1, b"hello").unwrap();
    assert_eq!(up.len(), 1, "not back to where it came from");
    let on = pass(&last, &up, &mut next);
    let kinds: Vec<_> = on.iter().map(|(to, _)| *to).collect();
    assert_eq!(kinds.len(), 2);
    assert!(kinds.contains(&Destination::Datagram(owner.address)), "up");
    assert!(
        matches!(next.native().sent[..], [(_, ref data)] if data == b"hello"),
        "and to its clients"
    );
    let top = pass(&next, &on, &mut owner);
    assert_eq!(payload(&top[0]), b"hello");
    assert!(
        matches!(top[0].0, Destination::Native(_)),
        "into the owner's network"
    );
    // And the other way.
    let down = owner.native_data(1, b"welcome").unwrap();
    let down = pass(&owner, &down, &mut next);
    assert_eq!(down.len(), 2);
}

#[test]
fn packets_go_up_to_a_new_data_node_that_has_received_some_before_its_channels_are_known() {
    let (mut owner, mut next) = pair(TALK);
    let send = |next: &mut Station, owner: &mut Station, data: &[u8]| {
        let up = next.native_data(1, data).unwrap();
        pass(next, &up, owner)
    };
    // More than may come late.
    for _ in 0..70 {
        assert_eq!(send(&mut next, &mut owner, b"hello").len(), 1);
    }
    // The label of the JOIN stays the same, and the owner's new data node has the address of the former.
    let joined = next.allocate(TALK, PEER);
    let mut owner = Station::new(1);
    owner.subscribe(true, TALK, Edge::Native, &[]).unwrap();
    let translation = owner.subscribe(false, TALK, PEER, &joined).unwrap();
    assert_eq!(send(&mut next, &mut owner, b"early").len(), 1);
    next.subscribe(true, TALK, PEER, &translation).unwrap();
    introduce(&mut owner, &mut next);
    let top = send(&mut next, &mut owner, b"late");
    assert_eq!(payload(&top[0]), b"late");
    // The same again, and with another upstream in between.
    let n2 = [to(Some(7), datagram(3))];
    next.allocate(TALK, OTHER);
    next.subscribe(true, TALK, OTHER, &n2).unwrap();
    next.subscribe(true, TALK, PEER, &translation).unwrap();
    introduce(&mut owner, &mut next);
    let top = send(&mut next, &mut owner, b"again");
    assert_eq!(payload(&top[0]), b"again");
}

#[test]
fn bulk_channels_are_opened_from_below_and_bound_by_their_label() {
    let (mut owner, mut next) = pair(FILE);
    let [DataEvent::Dial { edge, to }] = next.events()[..] else {
        panic!()
    };
    assert_eq!(to, owner.address);
    // It waits for the channel.
    assert!(owner.native_data(1, b"early").unwrap().is_empty());
    assert!(owner.drain().is_empty());
    assert_eq!(owner.node.plane().stats().drops.total(), 0);
    next.node.dial_failed(next.now, edge, to);
    next.wait(999);
    assert_eq!(next.events(), []);
    next.wait(1);
    assert_eq!(next.events(), [DataEvent::Dial { edge, to }]);
    assert!(next.node.dialled(edge, ConnId(5)));
    let attach = next.drain().remove(0);
    assert_eq!(attach.0, Destination::Stream(ConnId(5)));
    // From another address, or with a label that does not exist.
    let thief = Meta::Stream(ConnId(8), [10, 0, 0, 66].into());
    dropped(owner.packet(thief, attach.1.clone()), DataError::NotYours);
    let mut guess = attach.1.clone();
    guess[5] ^= 1;
    let ours = Meta::Stream(ConnId(7), [10, 0, 0, 2].into());
    dropped(owner.packet(ours, guess), DataError::UnknownFlow);
    assert!(matches!(
        owner.packet(ours, attach.1.clone()),
        Err(Verdict::Taken)
    ));
    dropped(owner.packet(ours, attach.1), DataError::NotYours);
    let early = owner.drain();
    assert_eq!(early[0].0, Destination::Stream(ConnId(7)));
    assert_eq!(payload(&early[0]), b"early");
    let sent = owner.native_data(1, b"block").unwrap();
    assert_eq!(sent[0].0, Destination::Stream(ConnId(7)));
    let from = Meta::Stream(ConnId(5), [10, 0, 0, 1].into());
    assert_eq!(next.packet(from, sent[0].1.clone()).unwrap().len(), 1);
    // Data on another stream is not that flow.
    let other = Meta::Stream(ConnId(6), [10, 0, 0, 1].into());
    dropped(
        next.packet(other, sent[0].1.clone()),
        DataError::UnknownFlow,
    );
    // The stream ends: it is dialled again.
    next.node.stream_ended(next.now, ConnId(5));
    next.wait(1000);
    assert_eq!(next.events(), [DataEvent::Dial { edge, to }]);
    owner.node.stream_ended(owner.now, ConnId(7));
    assert!(owner.native_data(1, b"nobody").unwrap().is_empty());
    // Reclaimed: the stream is closed, the edge is of no use.
    assert!(next.node.dialled(edge, ConnId(9)));
    next.reclaim(FILE, Some(ReclaimTarget::Source(PEER)));
    assert_eq!(next.events(), [DataEvent::Close(ConnId(9))]);
    assert!(!next.node.dialled(edge, ConnId(10)));
}

#[test]
fn what_control_asks_twice_is_done_once() {
    let mut station = Station::new(1);
    let n1 = [to(None, datagram(2))];
    let first = station.subscribe(false, LIVE, PEER, &n1).unwrap();
    assert_eq!(station.subscribe(false, LIVE, PEER, &n1).unwrap(), first);
    assert_eq!(station.allocate(LIVE, OTHER), station.allocate(LIVE, OTHER));
    assert_eq!(station.node.plane().edge_count(), 1);
    // Another address: another label, the old one leads nowhere.
    let second = station
        .subscribe(false, LIVE, PEER, &[to(None, datagram(3))])
        .unwrap();
    assert_ne!(second[0].label, first[0].label);
    assert_eq!(station.node.plane().edge_count(), 1);
    station.subscribe(false, LIVE, Edge::Native, &[]).unwrap();
    assert_eq!(station.native().open.len(), 1);
    station.reclaim(LIVE, None);
    assert_eq!(station.native().refreshes, 1);
    station.reclaim(LIVE, Some(ReclaimTarget::Receiver(Edge::Native)));
    assert!(station.native().open.is_empty());
    station.reclaim(LIVE, Some(ReclaimTarget::All));
    assert_eq!(
        (
            station.node.plane().edge_count(),
            station.node.session_count()
        ),
        (0, 0)
    );
}

#[test]
fn what_cannot_be_done_is_refused_and_leaves_nothing() {
    let mut station = Station::with(1, |config| {
        config.max_sessions = 2;
        config.stream = None;
        config.plane.max_edges = 3;
    });
    assert_eq!(
        station.subscribe(false, FILE, PEER, &[to(None, datagram(2))]),
        Err(Outcome::Refused)
    );
    station.native().missing = true;
    assert_eq!(
        station.subscribe(true, LIVE, Edge::Native, &[]),
        Err(Outcome::NoSession)
    );
    let third = station.subscribe(true, "bfed://1/third", Edge::Native, &[]);
    assert_eq!(third, Err(Outcome::Full));
    let native_peer = [to(None, ChannelAddress::Native(b"x".to_vec()))];
    assert_eq!(
        station.subscribe(false, LIVE, PEER, &native_peer),
        Err(Outcome::Refused)
    );
    assert_eq!(station.node.plane().edge_count(), 0);
    station.reclaim(FILE, Some(ReclaimTarget::All));
    station.native().pool = 1;
    let two = "bfed://1/two/a/b";
    assert_eq!(
        station.subscribe(false, two, Edge::Native, &[]),
        Err(Outcome::Full)
    );
    assert!(
        station.native().open.is_empty(),
        "the first flow's channel was given back"
    );
    for peer in 0..3 {
        let edge = Edge::Peer {
            peer: PeerId(peer),
            rate_bps: 0,
        };
        station
            .subscribe(false, LIVE, edge, &[to(None, datagram(2))])
            .unwrap();
    }
    assert_eq!(
        station.subscribe(false, LIVE, Edge::Native, &[]),
        Err(Outcome::Full)
    );
}

#[test]
fn an_older_control_node_is_not_obeyed() {
    let mut station = Station::new(1);
    let beat = |epoch| {
        Message::Heartbeat(Heartbeat {
            epoch,
            sequence: 1,
            draining: false,
            complete: false,
        })
    };
    station.receive(&beat(7)).unwrap();
    assert_eq!(station.receive(&beat(6)), Err(DataError::Fenced));
    let session = SessionName::parse(LIVE).unwrap();
    let edge = Edge::Native;
    let old = subscribe::Repr {
        up: false,
        request: 1,
        epoch: 6,
        edge,
        flows: vec![],
        session,
    };
    assert_eq!(
        station.receive(&Message::Subscribe(old)),
        Err(DataError::Fenced)
    );
    assert_eq!(
        station.receive(&Message::KeepAlive),
        Err(DataError::BadControl)
    );
    assert_eq!(station.node.session_count(), 0);
}

#[test]
fn forwarding_goes_on_while_control_is_away() {
    let (mut owner, _next) = pair(LIVE);
    for _ in 0..4 {
        owner.wait(250);
    }
    assert!(owner.all_events().contains(&DataEvent::ControlLost));
    for _ in 0..60 {
        owner.wait(10_000);
    }
    assert_eq!(owner.node.session_count(), 1, "ten minutes without control");
    owner.native_data(1, b"still").unwrap();
    assert_eq!(owner.node.plane().stats().bytes, 5);
    // A successor is there, and does not know the session.
    owner.node.connected(owner.now);
    let sent = owner.sent();
    assert!(matches!(sent[0], Message::Register(register) if register.epoch == 1));
    for _ in 0..21 {
        let beat = Heartbeat {
            epoch: 2,
            sequence: 1,
            draining: false,
            complete: false,
        };
        for _ in 0..20 {
            owner.receive(&Message::Heartbeat(beat)).unwrap();
            owner.wait(250);
        }
    }
    let sent = owner.sent();
    let reported = sent.iter().any(|message| {
        matches!(message, Message::Statistics(s) if s.entries.iter().any(|e| e.packets > 0))
    });
    assert!(reported, "control hears what the node has");
    assert_eq!(owner.node.session_count(), 0, "nobody refreshed it");
    assert!(owner.native().open.is_empty());
}
