//! Initialisations of flows: a data node that joins late has it before the first data, and lies about it have bounds.

use bfed::data::{DataError, Destination, Meta, Verdict};
use bfed::native::ChannelId;
use bfed::wire::data::{HEADER_LEN, Kind, Packet, Repr};
use bfed::wire::init::{self, ATTACH_INIT, MAX_INIT_LEN, Request};
use bfed::wire::join::FlowChannel;
use bfed::wire::reclaim::ReclaimTarget;
use bfed::wire::subscribe::Edge;
use bfed::*;

use crate::fake::{OTHER, PEER, Sent, Station};

const FILE: &str = "bfed://1/film";
const FILE_UP: &str = "bfed://2/film";
const LIVE: &str = "bfed://1/film/?content=real-time";
const LIVE_UP: &str = "bfed://2/film/?content=real-time";
const SOURCE: ChannelId = ChannelId(1);
const PARENT: ([u8; 4], u16) = ([10, 0, 0, 9], 4000);
const CHILD: ([u8; 4], u16) = ([10, 0, 0, 2], 4000);
const LABEL: u32 = 77;

fn label() -> FlowLabel {
    FlowLabel::new(LABEL).unwrap()
}

fn stream(at: ([u8; 4], u16), label: Option<FlowLabel>) -> FlowChannel {
    FlowChannel {
        label,
        address: ChannelAddress::Stream(at.into()),
    }
}

fn datagram(at: ([u8; 4], u16), label: Option<FlowLabel>) -> FlowChannel {
    FlowChannel {
        label,
        address: ChannelAddress::Datagram(at.into()),
    }
}

fn packet(kind: Kind, label: FlowLabel, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let repr = Repr {
        sequence,
        payload_len: payload.len(),
        ..Repr::new(kind, label)
    };
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut bytes);
    bytes[HEADER_LEN..].copy_from_slice(payload);
    bytes
}

fn piece(generation: u32, total: usize, offset: usize, bytes: &[u8]) -> Vec<u8> {
    let mut payload = vec![0; init::LEN];
    init::Repr {
        generation,
        total: total as u16,
        offset: offset as u16,
    }
    .emit(&mut payload);
    payload.extend_from_slice(bytes);
    payload
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 % 251) as u8).collect()
}

/// A source's station.
fn source(name: &str) -> Station {
    let mut station = Station::new(1);
    station.subscribe(true, name, Edge::Native, &[]).unwrap();
    station
}

fn set_init(station: &mut Station, init: &[u8]) -> Result<(), DataError> {
    let now = station.now;
    station.node.plane().set_init(now, SOURCE, init)
}

/// A receiver over TCP attaches with these features. Returns its label.
fn attach(station: &mut Station, name: &str, edge: Edge, conn: u64, features: u32) -> FlowLabel {
    let own = station.subscribe(false, name, edge, &[stream(CHILD, None)]);
    let label = own.unwrap()[0].label.unwrap();
    let from = Meta::Stream(ConnId(conn), CHILD.0.into());
    let taken = station.packet(from, packet(Kind::Attach, label, features, &[]));
    assert!(matches!(taken, Err(Verdict::Taken)));
    label
}

/// The parts of INITs among packets that were sent.
fn inits(sent: &[Sent]) -> Vec<(init::Repr, Vec<u8>)> {
    let parse = |(to, bytes): &Sent| {
        if matches!(to, Destination::Native(_) | Destination::NativeInit(_)) {
            return None;
        }
        let packet = Packet::new_checked(&bytes[..]).unwrap();
        let (repr, bytes) = init::Repr::parse(packet.payload()).ok()?;
        (packet.kind() == Kind::Init).then(|| (repr, bytes.to_vec()))
    };
    sent.iter().filter_map(parse).collect()
}

/// What the native network got: initialisations and data, in order.
fn native(sent: &[Sent]) -> Vec<(bool, Vec<u8>)> {
    let one = |(to, bytes): &Sent| match to {
        Destination::NativeInit(_) => Some((true, bytes.clone())),
        Destination::Native(_) => Some((false, bytes.clone())),
        _ => None,
    };
    sent.iter().filter_map(one).collect()
}

#[track_caller]
fn dropped(result: Result<Vec<Sent>, Verdict>, reason: DataError) {
    assert!(
        matches!(result, Err(Verdict::Drop(why)) if why == reason),
        "{result:?} is not {reason:?}"
    );
}

/// A station that gets a session of a peer over TCP, channel 5, for its native network.
fn receiver() -> (Station, Meta) {
    let mut station = Station::new(1);
    let own = [stream(PARENT, Some(label()))];
    station.subscribe(true, FILE_UP, PEER, &own).unwrap();
    station
        .subscribe(false, FILE_UP, Edge::Native, &[])
        .unwrap();
    let edge = station
        .events()
        .into_iter()
        .find_map(|event| match event {
            data::DataEvent::Dial { edge, .. } => Some(edge),
            _ => None,
        })
        .unwrap();
    assert!(station.node.dialled(edge, ConnId(5)));
    (station, Meta::Stream(ConnId(5), PARENT.0.into()))
}

/// A station that gets a real-time session of a peer for its native network, and a peer to which it passes it on.
fn datagram_receiver() -> Station {
    let mut station = Station::new(1);
    let theirs = [datagram(PARENT, Some(label()))];
    station.subscribe(true, LIVE_UP, PEER, &theirs).unwrap();
    station
        .subscribe(false, LIVE_UP, Edge::Native, &[])
        .unwrap();
    station
}

fn from_parent() -> Meta {
    Meta::Datagram(PARENT.into())
}

/// The parent answers the PROBE of the station: its address is proved.
fn answer_probe(station: &mut Station) {
    station.wait(1);
    let sent = station.drain();
    let nonce = sent.iter().find_map(|(_, bytes)| {
        let packet = Packet::new_checked(&bytes[..]).unwrap();
        (packet.kind() == Kind::Probe && packet.sequence() != 0).then(|| packet.sequence())
    });
    let nonce = nonce.expect("a PROBE");
    let echo = packet(Kind::Echo, label(), nonce, &[]);
    assert!(matches!(
        station.packet(from_parent(), echo),
        Err(Verdict::Taken)
    ));
}

/// The INIT_REQUESTs among packets.
fn requests(sent: &[Sent]) -> Vec<Request> {
    let parse = |(_, bytes): &Sent| {
        let packet = Packet::new_checked(&bytes[..]).unwrap();
        (packet.kind() == Kind::InitRequest).then(|| Request::parse(packet.payload()).unwrap())
    };
    sent.iter().filter_map(parse).collect()
}

#[test]
fn receivers_over_tcp_have_it_before_the_first_data_however_late_they_come() {
    let mut station = source(FILE);
    let init = bytes(3000);
    set_init(&mut station, &init).unwrap();
    station.native_data(1, b"before").unwrap();
    for (conn, edge) in [(7, PEER), (8, OTHER)] {
        attach(&mut station, FILE, edge, conn, ATTACH_INIT);
        // Data that comes before the INIT was sent waits for it.
        let at_once = station.native_data(1, b"next").unwrap();
        let at_once = at_once
            .iter()
            .filter(|sent| sent.0 == Destination::Stream(ConnId(conn)));
        assert_eq!(at_once.count(), 0);
        let sent = station.drain();
        let kinds: Vec<_> = sent
            .iter()
            .filter(|sent| sent.0 == Destination::Stream(ConnId(conn)))
            .map(|sent| Packet::new_checked(&sent.1[..]).unwrap().kind())
            .collect();
        assert_eq!(kinds, [Kind::Init, Kind::Data]);
        assert_eq!(inits(&sent)[0].1, init);
    }
    // Then data goes at once again.
    assert_eq!(station.native_data(1, b"more").unwrap().len(), 2);
}

#[test]
fn a_receiver_of_an_older_release_gets_none() {
    let mut station = source(FILE);
    set_init(&mut station, &bytes(3000)).unwrap();
    attach(&mut station, FILE, PEER, 7, 0);
    assert_eq!(station.drain(), []);
    set_init(&mut station, &bytes(2000)).unwrap();
    assert_eq!(station.drain(), []);
    assert_eq!(station.native_data(1, b"data").unwrap().len(), 1);
}

#[test]
fn a_changed_one_replaces_the_old_one_and_an_unchanged_one_is_not_sent() {
    let mut station = source(FILE);
    attach(&mut station, FILE, PEER, 7, ATTACH_INIT);
    set_init(&mut station, &bytes(3000)).unwrap();
    let first = inits(&station.drain());
    set_init(&mut station, &bytes(3000)).unwrap();
    assert_eq!(station.drain(), []);
    set_init(&mut station, &bytes(2999)).unwrap();
    let second = inits(&station.drain());
    assert_eq!((first.len(), second.len()), (1, 1));
    assert_ne!(first[0].0.generation, second[0].0.generation);
    // None any more: a late receiver is told so, too, because it may have an old one.
    set_init(&mut station, &[]).unwrap();
    assert_eq!(inits(&station.drain())[0].0.total, 0);
    attach(&mut station, FILE, OTHER, 8, ATTACH_INIT);
    assert_eq!(inits(&station.drain())[0].0.total, 0);
}

#[test]
fn the_native_network_and_the_next_gateway_get_what_came_from_upstream() {
    let (mut station, from) = receiver();
    let init = bytes(MAX_INIT_LEN);
    let payload = piece(9, init.len(), 0, &init);
    let taken = station.packet(from, packet(Kind::Init, label(), 0, &payload));
    assert!(matches!(taken, Err(Verdict::Taken)));
    let data = packet(Kind::Data, label(), 0, b"data");
    assert_eq!(
        station.packet(from, data).unwrap(),
        [],
        "waits for the INIT"
    );
    let sent = native(&station.drain());
    assert_eq!(sent, [(true, init.clone()), (false, b"data".to_vec())]);
    // A receiver that comes later gets the generation of the source.
    attach(&mut station, FILE_UP, OTHER, 7, ATTACH_INIT);
    let sent = inits(&station.drain());
    assert_eq!((sent[0].0.generation, &sent[0].1), (9, &init));
    // A network that is added later begins with it.
    station.reclaim(FILE_UP, Some(ReclaimTarget::Receiver(Edge::Native)));
    station
        .subscribe(false, FILE_UP, Edge::Native, &[])
        .unwrap();
    assert_eq!(native(&station.drain()), [(true, init)]);
}

#[test]
fn over_datagrams_it_is_requested_and_lost_pieces_are_requested_again() {
    let mut station = datagram_receiver();
    assert_eq!(
        requests(&station.drain()),
        [],
        "an address that is not proved is asked for nothing"
    );
    answer_probe(&mut station);
    assert_eq!(requests(&station.drain()), [Request::default()]);
    let init = bytes(2500);
    let mut sequence = 0;
    let mut send = |station: &mut Station, from: usize, to: usize| {
        sequence += 1;
        let payload = piece(5, init.len(), from, &init[from..to]);
        let taken = station.packet(
            from_parent(),
            packet(Kind::Init, label(), sequence, &payload),
        );
        assert!(matches!(taken, Err(Verdict::Taken)), "{taken:?}");
    };
    // The second piece is lost.
    send(&mut station, 0, 1000);
    send(&mut station, 2000, 2500);
    assert_eq!(native(&station.drain()), []);
    station.wait(300);
    let again = Request {
        generation: 5,
        offset: 1000,
    };
    assert_eq!(requests(&station.drain()), [again]);
    send(&mut station, 1000, 2000);
    send(&mut station, 2000, 2500);
    assert_eq!(native(&station.drain()), [(true, init.clone())]);
    // It keeps asking, rarely, so that a change whose pieces were all lost arrives.
    let mut count = 0;
    for _ in 0..600 {
        station.wait(100);
        let asked = requests(&station.drain());
        count += asked.len();
        let whole = Request {
            generation: 5,
            offset: 2500,
        };
        assert!(asked.iter().all(|one| *one == whole));
    }
    assert!((10..=18).contains(&count), "{count} in a minute");
}

#[test]
fn over_datagrams_no_data_comes_before_it() {
    let wait = |millis| {
        let mut station = Station::with(1, |config| {
            config.plane.init_wait = Duration::from_millis(millis);
        });
        let theirs = [datagram(PARENT, Some(label()))];
        station.subscribe(true, LIVE_UP, PEER, &theirs).unwrap();
        station
            .subscribe(false, LIVE_UP, Edge::Native, &[])
            .unwrap();
        answer_probe(&mut station);
        let first = station.drain();
        let kind = Packet::new_checked(&first[0].1[..]).unwrap().kind();
        assert_eq!(
            kind,
            Kind::InitRequest,
            "before the PROBE that lets data go"
        );
        station
    };
    let data = |sequence| packet(Kind::Data, label(), sequence, b"data");
    let none = packet(Kind::Init, label(), 0, &piece(0, 0, 0, &[]));
    // The answer is an initialisation, or that there is none, or nothing.
    let mut station = wait(750);
    dropped(
        station.packet(from_parent(), data(1)),
        DataError::BeforeInit,
    );
    let init = packet(Kind::Init, label(), 2, &piece(9, 4, 0, b"init"));
    assert!(station.packet(from_parent(), init).is_err());
    station.packet(from_parent(), data(3)).unwrap();
    let expected = [(true, b"init".to_vec()), (false, b"data".to_vec())];
    assert_eq!(native(&station.drain()), expected);
    let mut station = wait(750);
    assert!(station.packet(from_parent(), none).is_err());
    let sent = station.packet(from_parent(), data(1)).unwrap();
    assert_eq!(native(&sent), [(false, b"data".to_vec())]);
    let mut station = wait(750);
    station.wait(740);
    dropped(
        station.packet(from_parent(), data(1)),
        DataError::BeforeInit,
    );
    station.wait(10);
    let sent = station.packet(from_parent(), data(2)).unwrap();
    assert_eq!(native(&sent), [(false, b"data".to_vec())]);
    // The session moves to another parent: nothing is lost.
    let next = ([10, 0, 0, 7], 4000);
    let theirs = [datagram(next, Some(label()))];
    station.subscribe(true, LIVE_UP, OTHER, &theirs).unwrap();
    let sent = station.packet(Meta::Datagram(next.into()), data(1));
    assert_eq!(native(&sent.unwrap()), [(false, b"data".to_vec())]);
}

#[test]
fn a_receiver_that_asks_where_there_is_none_is_told_so() {
    let mut station = source(LIVE);
    let own = station.subscribe(false, LIVE, PEER, &[datagram(CHILD, None)]);
    let label = own.unwrap()[0].label.unwrap();
    let mut payload = [0; init::LEN];
    Request::default().emit(&mut payload);
    let asked = packet(Kind::InitRequest, label, 0, &payload);
    let from = Meta::Datagram(CHILD.into());
    assert!(matches!(
        station.packet(from, asked.clone()),
        Err(Verdict::Taken)
    ));
    assert_eq!(inits(&station.drain()), [], "the address is not proved");
    station.prove(CHILD.into(), label);
    let sent = station.drain();
    let answer = (
        init::Repr {
            generation: 0,
            total: 0,
            offset: 0,
        },
        vec![],
    );
    assert_eq!(inits(&sent), [answer]);
    // It is no part of the flow's sequence.
    let data = station.native_data(1, b"data").unwrap();
    assert_eq!(Packet::new_checked(&data[0].1[..]).unwrap().sequence(), 1);
}

#[test]
fn a_receiver_over_datagrams_gets_what_it_lacks_within_a_rate() {
    let mut station = source(LIVE);
    let own = station.subscribe(false, LIVE, PEER, &[datagram(CHILD, None)]);
    let label = own.unwrap()[0].label.unwrap();
    let init = bytes(5000);
    set_init(&mut station, &init).unwrap();
    station.prove(CHILD.into(), label);
    station.drain();
    let request = |generation, offset| {
        let mut payload = [0; init::LEN];
        Request { generation, offset }.emit(&mut payload);
        packet(Kind::InitRequest, label, 0, &payload)
    };
    let from = Meta::Datagram(CHILD.into());
    let gather = |station: &mut Station| {
        let mut sent = Vec::new();
        for _ in 0..1000 {
            sent.extend(station.drain());
            station.wait(1);
        }
        inits(&sent)
    };
    assert!(matches!(
        station.packet(from, request(0, 0)),
        Err(Verdict::Taken)
    ));
    dropped(station.packet(from, request(0, 0)), DataError::InitRate);
    let sent = gather(&mut station);
    // TFRC sends a packet a second while no report has come.
    let generation = sent[0].0.generation;
    assert!(!sent.is_empty());
    assert_eq!(sent[0].1, init[..sent[0].1.len()]);
    // What still waits is not queued again.
    station.wait(250);
    let waits = station.packet(from, request(0, 0));
    let again = station.packet(from, request(0, 0));
    assert!(
        matches!(waits, Err(Verdict::Taken)),
        "the rest waits for its rate"
    );
    dropped(again, DataError::InitRate);
    // With the part that it has, the rest is sent; with all, nothing.
    for _ in 0..20 {
        station.wait(1000);
        station.drain();
    }
    assert!(matches!(
        station.packet(from, request(generation, 4990)),
        Err(Verdict::Taken)
    ));
    let sent = gather(&mut station);
    assert_eq!(sent.last().unwrap().1, init[4990..]);
    assert!(matches!(
        station.packet(from, request(generation, 5000)),
        Err(Verdict::Taken)
    ));
    assert_eq!(gather(&mut station), []);
    // Another address, with the right label.
    let forged = Meta::Datagram(([10, 0, 0, 3], 4000).into());
    dropped(station.packet(forged, request(0, 0)), DataError::NotYours);
}

#[test]
fn a_child_cannot_set_it_and_neither_can_a_stranger() {
    let (mut station, from) = receiver();
    let down = attach(&mut station, FILE_UP, OTHER, 7, ATTACH_INIT);
    let init = piece(9, 4, 0, b"fake");
    let child = Meta::Stream(ConnId(7), CHILD.0.into());
    for of in [down, label()] {
        dropped(
            station.packet(child, packet(Kind::Init, of, 0, &init)),
            DataError::UnknownFlow,
        );
    }
    let stranger = Meta::Datagram(PARENT.into());
    dropped(
        station.packet(stranger, packet(Kind::Init, label(), 1, &init)),
        DataError::UnknownFlow,
    );
    // In a session of many sources there is none, not even from upstream.
    let talk = "bfed://2/talk/?content=real-time&multi-source=true";
    let mut many = Station::new(1);
    many.allocate(talk, PEER);
    let theirs = [datagram(PARENT, Some(label()))];
    many.subscribe(true, talk, PEER, &theirs).unwrap();
    dropped(
        many.packet(from_parent(), packet(Kind::Init, label(), 1, &init)),
        DataError::WrongDirection,
    );
    assert_eq!(native(&station.drain()), []);
    let _ = from;
}

#[test]
fn malformed_and_oversized_ones_change_nothing() {
    let (mut station, from) = receiver();
    let mut long = piece(9, MAX_INIT_LEN + 1, 0, b"x");
    for payload in [
        &piece(9, 4, 0, b"")[..],
        &piece(9, 4, 2, b"abc"),
        &piece(9, 0, 0, b"a"),
        &long[..],
        &long[..7],
        &[],
    ] {
        dropped(
            station.packet(from, packet(Kind::Init, label(), 0, payload)),
            DataError::Malformed,
        );
    }
    long.clear();
    assert_eq!(native(&station.drain()), []);
    let mut station = source(FILE);
    attach(&mut station, FILE, PEER, 7, ATTACH_INIT);
    let refused = set_init(&mut station, &bytes(MAX_INIT_LEN + 1));
    assert_eq!(refused, Err(DataError::InitRefused));
    assert_eq!(
        inits(&station.drain())[0].0.total,
        0,
        "none is better than half of one"
    );
    let now = station.now;
    let unknown = station.node.plane().set_init(now, ChannelId(99), b"x");
    assert_eq!(unknown, Err(DataError::UnknownChannel));
}

#[test]
fn a_peer_that_floods_with_them_is_bounded_and_hurts_no_other_peer() {
    let mut station = Station::new(1);
    let mut refused = 0;
    let join = |station: &mut Station, number: u32, peer: Edge, at: ([u8; 4], u16)| {
        let name = format!("bfed://2/film-{number}/?content=real-time");
        let theirs = [datagram(at, FlowLabel::new(number))];
        station.subscribe(true, &name, peer, &theirs).unwrap();
    };
    let init = bytes(1000);
    let claim = |station: &mut Station, number: u32, at: ([u8; 4], u16), sequence| {
        // It claims much, and sends the first piece.
        let payload = piece(number, MAX_INIT_LEN, 0, &init);
        let label = FlowLabel::new(number).unwrap();
        station.packet(
            Meta::Datagram(at.into()),
            packet(Kind::Init, label, sequence, &payload),
        )
    };
    for number in 1..=100 {
        join(&mut station, number, PEER, PARENT);
        match claim(&mut station, number, PARENT, 1) {
            Err(Verdict::Taken) => {}
            other => {
                dropped(other, DataError::InitRefused);
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 100 - (4 << 20) / MAX_INIT_LEN);
    // What follows the refused piece is not requested, which would bring all of it again.
    station.drain();
    let label = FlowLabel::new(100).unwrap();
    for (sequence, offset) in (2..60).zip((1000..).step_by(1000)) {
        let payload = piece(100, MAX_INIT_LEN, offset, &init);
        let piece = packet(Kind::Init, label, sequence, &payload);
        let result = station.packet(Meta::Datagram(PARENT.into()), piece);
        dropped(result, DataError::InitRefused);
    }
    let requests = station.drain();
    let requests = requests.iter().map(crate::classes::header);
    let requests = requests.filter(|one| (one.kind, one.label) == (Kind::InitRequest, label));
    assert_eq!(requests.count(), 0);
    // A new generation takes the place of the old one and not more.
    for sequence in 2..1000 {
        let taken = claim(&mut station, 1, PARENT, sequence);
        assert!(matches!(taken, Err(Verdict::Taken)), "{taken:?}");
    }
    let honest = ([10, 0, 0, 8], 4000);
    join(&mut station, 200, OTHER, honest);
    let taken = claim(&mut station, 200, honest, 1);
    assert!(matches!(taken, Err(Verdict::Taken)), "{taken:?}");
    // What sessions took is free when they end.
    station.reclaim(
        "bfed://2/film-1/?content=real-time",
        Some(ReclaimTarget::All),
    );
    join(&mut station, 1000, PEER, PARENT);
    let taken = claim(&mut station, 1000, PARENT, 1);
    assert!(matches!(taken, Err(Verdict::Taken)), "{taken:?}");
}
