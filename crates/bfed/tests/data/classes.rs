//! Priorities and deadlines of real-time frames, from hop to hop.

use bfed::data::{DataError, Destination, Meta, PathId, Verdict};
use bfed::native::{ChannelId, FrameClass, Priority};
use bfed::wire::class::Class;
use bfed::wire::data::{HEADER_LEN, Kind, Packet, Repr};
use bfed::wire::init::{self, Request};
use bfed::wire::join::FlowChannel;
use bfed::wire::subscribe::Edge;
use bfed::*;

use crate::fake::{OTHER, PEER, Sent, Station};

const LIVE: &str = "bfed://1/film/?content=real-time";
const SHORT: &str = "bfed://1/film/?content=real-time&deadline=125";
const LIVE_UP: &str = "bfed://2/film/?content=real-time";
const PARENT: ([u8; 4], u16) = ([10, 0, 0, 9], 4000);
const CHILD: ([u8; 4], u16) = ([10, 0, 0, 2], 4000);
const KEY: KeyDigest = KeyDigest([2; 32]);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn request(label: FlowLabel) -> Vec<u8> {
    let repr = Repr {
        payload_len: init::LEN,
        ..Repr::new(Kind::InitRequest, label)
    };
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut bytes);
    Request::default().emit(&mut bytes[HEADER_LEN..]);
    bytes
}

/// A receiver over UDP, which understands classes if it `asks`.
fn receiver(station: &mut Station, name: &str, asks: bool) -> FlowLabel {
    let to = FlowChannel {
        label: None,
        address: ChannelAddress::Datagram(CHILD.into()),
    };
    let own = station.subscribe(false, name, OTHER, &[to]).unwrap();
    let label = own[0].label.unwrap();
    station.prove(CHILD.into(), label);
    if asks {
        let from = Meta::Datagram(CHILD.into());
        assert!(matches!(
            station.packet(from, request(label)),
            Err(Verdict::Taken)
        ));
    }
    station.drain();
    label
}

fn source(name: &str, asks: bool) -> Station {
    let mut station = Station::new(1);
    station.subscribe(true, name, Edge::Native, &[]).unwrap();
    receiver(&mut station, name, asks);
    station
}

/// A receiver over QUIC that understands classes.
fn path_receiver(station: &mut Station, name: &str, edge: Edge) -> PathId {
    let to = FlowChannel {
        label: None,
        address: ChannelAddress::Quic(CHILD.into(), KEY),
    };
    let own = station.subscribe(false, name, edge, &[to]).unwrap();
    let label = own[0].label.unwrap();
    let path: PathId = station.node.plane().path(CHILD.into(), KEY).unwrap();
    let mut cookie = 0;
    for _ in 0..2 {
        let repr = Repr {
            sequence: 1,
            ..Repr::new(Kind::Probe, label).with_cookie(cookie)
        };
        let mut probe = vec![0; repr.buffer_len()];
        repr.emit(&mut probe);
        let _ = station.packet(Meta::Path(path), probe);
        let echo = station.drain().pop().expect("an ECHO");
        cookie = Packet::new_checked(&echo.1[..]).unwrap().cookie();
    }
    let _ = station.packet(Meta::Path(path), request(label));
    station.drain();
    path
}

/// A source's frame, with what the source says of it.
fn frame(station: &mut Station, class: FrameClass, data: &[u8]) -> Vec<Sent> {
    let frame = [&[0; HEADER_LEN], data].concat();
    station
        .packet(Meta::Frame(ChannelId(1), class), frame)
        .unwrap()
}

pub(crate) fn header(sent: &Sent) -> Repr {
    Repr::parse(&Packet::new_checked(&sent.1[..]).unwrap())
}

/// A station between a source's and a receiver's.
fn between() -> (Station, FlowLabel) {
    let mut station = Station::new(1);
    let label = FlowLabel::new(77).unwrap();
    let from = FlowChannel {
        label: Some(label),
        address: ChannelAddress::Datagram(PARENT.into()),
    };
    station.subscribe(true, LIVE_UP, PEER, &[from]).unwrap();
    receiver(&mut station, LIVE_UP, true);
    (station, label)
}

fn data(label: FlowLabel, sequence: u32, class: Class, age_ms: u16) -> Vec<u8> {
    let repr = Repr {
        sequence,
        class,
        age_ms,
        payload_len: 4,
        ..Repr::new(Kind::Data, label)
    };
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut bytes);
    bytes[HEADER_LEN..].copy_from_slice(b"data");
    bytes
}

#[test]
fn the_source_the_name_and_the_configuration_say_the_lifetime_in_this_order() {
    let class = |station: &mut Station, class| header(&frame(station, class, b"data")[0]).class;
    let nothing = FrameClass::default();
    let key = FrameClass {
        priority: Priority::Key,
        lifetime: None,
    };
    let own = FrameClass {
        priority: Priority::High,
        lifetime: Some(millis(75)),
    };
    let mut station = source(LIVE, true);
    let expected = Class::new(Priority::Normal, millis(500));
    assert_eq!(class(&mut station, nothing), expected);
    let mut station = source(SHORT, true);
    assert_eq!(
        class(&mut station, key),
        Class::new(Priority::Key, millis(125))
    );
    let mut station = source(SHORT, true);
    assert_eq!(
        class(&mut station, own),
        Class::new(Priority::High, millis(75))
    );
}

#[test]
fn a_receiver_of_an_older_release_gets_no_class() {
    let mut station = source(LIVE, false);
    let sent = frame(&mut station, FrameClass::default(), b"data");
    assert_eq!(header(&sent[0]).class, Class::NONE);
}

#[test]
fn the_age_grows_in_each_data_node_and_on_each_link() {
    let (mut station, label) = between();
    let from = Meta::Datagram(PARENT.into());
    let class = Class::new(Priority::Key, millis(500));
    let sent = station.packet(from, data(label, 1, class, 40)).unwrap();
    let first = header(&sent[0]);
    assert_eq!((first.class, first.age_ms), (class, 40));
    // More than TFRC lets go at first: the last ones wait.
    let class = Class::new(Priority::Key, millis(5000));
    for sequence in 2..500 {
        station
            .packet(from, data(label, sequence, class, 40))
            .unwrap();
    }
    station.drain();
    station.wait(200);
    let mut late = Vec::new();
    for _ in 0..20 {
        station.wait(100);
        late.extend(station.drain());
    }
    let ages = late.iter().map(header).filter(|one| one.kind == Kind::Data);
    let ages: Vec<_> = ages.map(|one| one.age_ms).collect();
    assert!(
        !ages.is_empty() && ages.iter().all(|&age| age >= 240),
        "{ages:?}"
    );
}

#[test]
fn a_frame_that_is_too_old_goes_no_further() {
    let (mut station, label) = between();
    let from = Meta::Datagram(PARENT.into());
    let class = Class::new(Priority::Key, millis(500));
    assert!(station.packet(from, data(label, 1, class, 500)).is_ok());
    let late = station.packet(from, data(label, 2, class, 501));
    assert!(matches!(late, Err(Verdict::Drop(DataError::TooLate))));
    // A frame without a class is new to this node.
    let none = data(label, 3, Class::NONE, 0);
    assert!(station.packet(from, none).is_ok());
}

#[test]
fn over_quic_what_would_arrive_too_late_is_not_sent() {
    let mut station = Station::with(1, |config| config.key = Some(KeyDigest([1; 32])));
    station.subscribe(true, SHORT, Edge::Native, &[]).unwrap();
    let path = path_receiver(&mut station, SHORT, PEER);
    // Half of a round trip on the way.
    station.node.plane().set_rtt(path, millis(100));
    let sent = frame(&mut station, FrameClass::default(), b"data");
    assert_eq!(sent[0].0, Destination::Path(path));
    assert_eq!(header(&sent[0]).age_ms, 50);
    station.node.plane().set_rtt(path, millis(250));
    assert_eq!(frame(&mut station, FrameClass::default(), b"data").len(), 1);
    station.node.plane().set_rtt(path, millis(252));
    assert_eq!(frame(&mut station, FrameClass::default(), b"data"), []);
    let drops = station.node.plane().stats().drops;
    assert_eq!(drops.get(DataError::TooLate), 1);
}

#[test]
fn key_frames_survive_a_slow_link_where_others_give_way() {
    let drops = key_frames(512 << 10);
    assert!(drops.get(DataError::Yielded) > 0);
    assert_eq!(drops.get(DataError::QueueFull), 0);
}

#[test]
fn key_frames_survive_a_short_queue() {
    let drops = key_frames(8000);
    assert!(drops.get(DataError::QueueFull) > 0);
}

/// Sends a film over a slow link, which all key frames survive. Returns what was dropped.
fn key_frames(max_queue_bytes: usize) -> data::Drops {
    // 64 kbit/s, after a burst; frames of 1,000 bytes each 20 ms are 400 kbit/s.
    let limited = Edge::Peer {
        peer: PeerId(2),
        rate_bps: 64_000,
    };
    let mut station = Station::with(1, |config| {
        config.key = Some(KeyDigest([1; 32]));
        config.plane.max_queue_bytes = max_queue_bytes;
    });
    station.subscribe(true, LIVE, Edge::Native, &[]).unwrap();
    path_receiver(&mut station, LIVE, limited);
    let (mut keys, mut got, mut order) = (0_u32, 0, vec![]);
    for number in 0..500_u32 {
        let is_key = number % 25 == 0;
        let class = FrameClass {
            priority: if is_key {
                Priority::Key
            } else {
                Priority::Normal
            },
            lifetime: None,
        };
        keys += u32::from(is_key);
        let mut bytes = vec![u8::from(is_key); 1000];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        let mut sent = frame(&mut station, class, &bytes);
        station.wait(20);
        sent.extend(station.drain());
        for (_, packet) in sent {
            let packet = Packet::new_checked(&packet[..]).unwrap();
            if packet.kind() == Kind::Data {
                let payload = packet.payload();
                got += u32::from(payload[4] == 1);
                order.push(u32::from_be_bytes(payload[..4].try_into().unwrap()));
            }
        }
    }
    assert!(order.is_sorted(), "in the order of the source");
    assert!(order.len() > 50, "{} frames", order.len());
    // TFRC sends one packet a second without reports, so that the first ones go by its rate.
    assert!(
        got + 2 >= keys.min(order.len() as u32),
        "{got} of {keys} key frames"
    );
    station.node.plane().stats().drops
}
