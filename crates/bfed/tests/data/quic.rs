//! Edges over QUIC: packets belong to the data node that the control node named, and to no other.

use bfed::data::{DataError, DataEvent, Destination, MIN_PATH_PAYLOAD, Meta, PathId, Verdict};
use bfed::wire::allocate::Outcome;
use bfed::wire::data::{HEADER_LEN, Kind, Packet, Repr};
use bfed::wire::fragment;
use bfed::wire::join::FlowChannel;
use bfed::wire::reclaim::ReclaimTarget;
use bfed::wire::subscribe::Edge;
use bfed::wire::transport::Transport;
use bfed::*;

use crate::fake::{OTHER, PEER, Sent, Station};

const LIVE: &str = "bfed://1/m/?content=real-time";
const FILE: &str = "bfed://1/m/?content=bulk-data";
const LIVE_FROM_PEER: &str = "bfed://2/m/?content=real-time";
const FILE_FROM_PEER: &str = "bfed://2/m/?content=bulk-data";
const THEIRS: ([u8; 4], u16) = ([10, 0, 0, 2], 4000);
const KEY: KeyDigest = KeyDigest([2; 32]);
const OTHER_KEY: KeyDigest = KeyDigest([3; 32]);
const LABEL: u32 = 7;

fn station() -> Station {
    Station::with(1, |config| config.key = Some(KeyDigest([1; 32])))
}

fn channel(label: Option<u32>, key: KeyDigest) -> [FlowChannel; 1] {
    [FlowChannel {
        label: label.and_then(FlowLabel::new),
        address: ChannelAddress::Quic(THEIRS.into(), key),
    }]
}

fn packet(kind: Kind, label: FlowLabel, payload: &[u8]) -> Vec<u8> {
    let repr = Repr {
        payload_len: payload.len(),
        ..Repr::new(kind, label)
    };
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut bytes);
    bytes[HEADER_LEN..].copy_from_slice(payload);
    bytes
}

/// Data of the flow that the peer sends.
fn data(payload: &[u8]) -> Vec<u8> {
    packet(Kind::Data, FlowLabel::new(LABEL).unwrap(), payload)
}

fn path(station: &mut Station, key: KeyDigest) -> PathId {
    station.node.plane().path(THEIRS.into(), key).unwrap()
}

#[track_caller]
fn dropped(result: Result<Vec<Sent>, Verdict>, reason: DataError) {
    assert!(
        matches!(result, Err(Verdict::Drop(why)) if why == reason),
        "{result:?}"
    );
}

/// A station that receives a session of the peer for its own network.
fn receiver(name: &str) -> Station {
    let mut station = station();
    station.subscribe(false, name, Edge::Native, &[]).unwrap();
    let theirs = channel(Some(LABEL), KEY);
    station.subscribe(true, name, PEER, &theirs).unwrap();
    station
}

/// A station that sends its own session to the peer, whose address is proved.
fn sender() -> (Station, FlowLabel, PathId) {
    let mut station = station();
    station.subscribe(true, LIVE, Edge::Native, &[]).unwrap();
    let own = station.subscribe(false, LIVE, PEER, &channel(None, KEY));
    let label = own.unwrap()[0].label.unwrap();
    let to = path(&mut station, KEY);
    let mut cookie = 0;
    for _ in 0..2 {
        let repr = Repr {
            sequence: 1,
            ..Repr::new(Kind::Probe, label).with_cookie(cookie)
        };
        let mut probe = vec![0; repr.buffer_len()];
        repr.emit(&mut probe);
        let taken = station.packet(Meta::Path(to), probe);
        assert!(matches!(taken, Err(Verdict::Taken)));
        let echo = station.drain().pop().expect("an ECHO");
        assert_eq!(
            echo.0,
            Destination::Path(to),
            "the ECHO goes back on the path"
        );
        cookie = Packet::new_checked(&echo.1[..]).unwrap().cookie();
    }
    (station, label, to)
}

#[test]
fn a_packet_is_forwarded_if_the_data_node_that_was_named_sent_it() {
    let mut station = receiver(LIVE_FROM_PEER);
    let from = path(&mut station, KEY);
    let sent = station.packet(Meta::Path(from), data(b"frame")).unwrap();
    assert!(matches!(sent[..], [(Destination::Native(_), _)]));
    let unknown = DataError::UnknownFlow;
    // The same packet in the clear, with the right address and label; and on another path.
    dropped(
        station.packet(Meta::Datagram(THEIRS.into()), data(b"forged")),
        unknown,
    );
    dropped(
        station.packet(Meta::Path(PathId(from.0 + 1)), data(b"forged")),
        unknown,
    );
}

#[test]
fn another_data_node_at_the_same_address_is_another_path() {
    let mut station = receiver(LIVE_FROM_PEER);
    let name = "bfed://3/m/?content=real-time";
    station
        .subscribe(true, name, OTHER, &channel(Some(LABEL), OTHER_KEY))
        .unwrap();
    let (one, other) = (path(&mut station, KEY), path(&mut station, OTHER_KEY));
    assert_ne!(one, other);
    // Both peers may give the same label to different sessions.
    assert!(station.packet(Meta::Path(one), data(b"a")).is_ok());
    assert!(
        station
            .packet(Meta::Path(other), data(b"b"))
            .is_ok_and(|sent| sent.is_empty())
    );
}

#[test]
fn signs_of_life_in_the_clear_prove_nothing_about_a_path() {
    let mut station = receiver(LIVE_FROM_PEER);
    let from = path(&mut station, KEY);
    let probes = station.drain();
    let (to, probe) = probes.first().expect("a PROBE");
    assert_eq!(*to, Destination::Path(from));
    let nonce = Packet::new_checked(&probe[..]).unwrap().sequence();
    let repr = Repr {
        sequence: nonce,
        ..Repr::new(Kind::Echo, FlowLabel::new(LABEL).unwrap()).with_cookie(9)
    };
    let mut echo = vec![0; repr.buffer_len()];
    repr.emit(&mut echo);
    let forged = station.packet(Meta::Datagram(THEIRS.into()), echo.clone());
    dropped(forged, DataError::NotYours);
    let taken = station.packet(Meta::Path(from), echo);
    assert!(matches!(taken, Err(Verdict::Taken)));

    let (mut station, label, _) = sender();
    let probe = packet(Kind::Probe, label, b"");
    dropped(
        station.packet(Meta::Datagram(THEIRS.into()), probe),
        DataError::NotYours,
    );
}

#[test]
fn a_stream_is_attached_on_its_own_path_only() {
    let mut station = station();
    station.subscribe(true, FILE, Edge::Native, &[]).unwrap();
    let own = station.subscribe(false, FILE, PEER, &channel(None, KEY));
    let label = own.unwrap()[0].label.unwrap();
    let to = path(&mut station, KEY);
    let attach = packet(Kind::Attach, label, b"");
    let address: std::net::SocketAddr = THEIRS.into();
    let clear = Meta::Stream(ConnId(1), address.ip());
    dropped(station.packet(clear, attach.clone()), DataError::NotYours);
    let stranger = Meta::PathStream(ConnId(2), PathId(to.0 + 1));
    dropped(
        station.packet(stranger, attach.clone()),
        DataError::NotYours,
    );
    let taken = station.packet(Meta::PathStream(ConnId(3), to), attach);
    assert!(matches!(taken, Err(Verdict::Taken)));
    let sent = station.native_data(1, b"block").unwrap();
    assert!(matches!(sent[..], [(Destination::Stream(ConnId(3)), _)]));
}

#[test]
fn an_attach_makes_no_stream_of_a_flow_of_datagrams() {
    let (mut station, label, to) = sender();
    let attach = packet(Kind::Attach, label, b"");
    let taken = station.packet(Meta::PathStream(ConnId(3), to), attach);
    dropped(taken, DataError::NotYours);
    let sent = station.native_data(1, b"frame").unwrap();
    assert!(matches!(sent[..], [(Destination::Path(_), _)]));
}

#[test]
fn the_receiver_of_a_file_opens_the_stream() {
    let mut station = receiver(FILE_FROM_PEER);
    let from = path(&mut station, KEY);
    let [DataEvent::Dial { edge, to }] = station.events()[..] else {
        panic!("no dial");
    };
    assert_eq!(to, THEIRS.into());
    assert_eq!(station.node.plane().path_of(edge), Some(from));
    assert!(station.node.dialled(edge, ConnId(5)));
    let attach = station.drain();
    let on_stream = |sent: &&Sent| sent.0 == Destination::Stream(ConnId(5));
    let attach = attach.iter().find(on_stream).expect("an ATTACH");
    assert_eq!(
        Packet::new_checked(&attach.1[..]).unwrap().kind(),
        Kind::Attach
    );
    let meta = Meta::PathStream(ConnId(5), from);
    assert_eq!(station.packet(meta, data(b"block")).unwrap().len(), 1);
}

#[test]
fn fragments_fit_each_path_and_frames_the_longest_datagram_of_theirs() {
    let (mut station, _, to) = sender();
    let frame = [7; MIN_PATH_PAYLOAD + 1];
    assert!(station.native_data(1, &frame).unwrap().is_empty());
    let pieces = station.drain();
    assert_eq!(pieces.len(), 2);
    for (at, bytes) in &pieces {
        assert_eq!(*at, Destination::Path(to));
        assert!(bytes.len() <= HEADER_LEN + MIN_PATH_PAYLOAD);
    }
    station
        .node
        .plane()
        .set_max_datagram(to, HEADER_LEN + frame.len());
    assert_eq!(station.native_data(1, &frame).unwrap().len(), 1);
}

#[test]
fn fragments_from_a_longer_link_are_cut_again() {
    let mut station = station();
    let clear = [FlowChannel {
        label: FlowLabel::new(LABEL),
        address: ChannelAddress::Datagram(([10, 0, 0, 9], 4000).into()),
    }];
    station
        .subscribe(true, LIVE_FROM_PEER, OTHER, &clear)
        .unwrap();
    let own = station.subscribe(false, LIVE_FROM_PEER, PEER, &channel(None, KEY));
    let to = path(&mut station, KEY);
    unlock(&mut station, own.unwrap()[0].label.unwrap(), to);
    let frame: Vec<u8> = (0..2800_u32).map(|at| at as u8).collect();
    let mut sent = vec![];
    for (index, bytes) in frame.chunks(1400).enumerate() {
        let mut payload = vec![0; fragment::LEN];
        let repr = fragment::Repr {
            frame: 1,
            index: index as u8,
            count: 2,
        };
        repr.emit(&mut payload);
        payload.extend(bytes);
        let piece = Repr {
            sequence: index as u32,
            payload_len: payload.len(),
            ..Repr::new(Kind::Fragment, FlowLabel::new(LABEL).unwrap())
        };
        let mut packet = vec![0; piece.buffer_len()];
        piece.emit(&mut packet);
        packet[HEADER_LEN..].copy_from_slice(&payload);
        let from = Meta::Datagram(([10, 0, 0, 9], 4000).into());
        sent.extend(station.packet(from, packet).unwrap());
    }
    sent.extend(station.drain());
    sent.retain(|(at, _)| *at == Destination::Path(to));
    let kind = |bytes: &[u8]| Packet::new_checked(bytes).unwrap().kind();
    sent.retain(|(_, bytes)| kind(bytes) == Kind::Fragment);
    let whole: Vec<u8> = sent
        .iter()
        .flat_map(|(_, bytes)| bytes[HEADER_LEN + fragment::LEN..].to_vec())
        .collect();
    assert!(whole == frame, "not the same bytes");
    let fits = |(_, bytes): &Sent| bytes.len() <= HEADER_LEN + MIN_PATH_PAYLOAD;
    assert!(sent.iter().all(fits));
}

/// The peer proves that it receives on the path.
fn unlock(station: &mut Station, label: FlowLabel, path: PathId) {
    let mut cookie = 0;
    for _ in 0..2 {
        let repr = Repr {
            sequence: 1,
            ..Repr::new(Kind::Probe, label).with_cookie(cookie)
        };
        let mut probe = vec![0; repr.buffer_len()];
        repr.emit(&mut probe);
        let _ = station.packet(Meta::Path(path), probe);
        let sent = station.drain();
        let packets = sent
            .iter()
            .map(|(_, bytes)| Packet::new_checked(&bytes[..]).unwrap());
        let echo = packets.into_iter().find(|one| one.kind() == Kind::Echo);
        cookie = echo.expect("an ECHO").cookie();
    }
}

#[test]
fn nothing_is_sent_on_a_path_before_the_receiver_is_ready() {
    let mut station = station();
    station.subscribe(true, LIVE, Edge::Native, &[]).unwrap();
    station
        .subscribe(false, LIVE, PEER, &channel(None, KEY))
        .unwrap();
    assert!(station.native_data(1, b"early").unwrap().is_empty());
    assert!(station.drain().is_empty());
}

#[test]
fn frames_that_wait_too_long_for_a_blocked_path_are_dropped_before_they_are_sent() {
    let (mut station, _, _) = sender();
    assert_eq!(station.native_data(1, b"first").unwrap().len(), 1);
    let edge = blocked_edge(&mut station);
    for _ in 0..10 {
        assert!(station.native_data(1, b"late").unwrap().is_empty());
    }
    station.wait(600);
    assert!(station.native_data(1, b"fresh").unwrap().is_empty());
    let now = station.now;
    station.node.plane().writable(now, edge);
    let sent = station.drain();
    let fresh = sent.iter().filter(|(_, bytes)| bytes.ends_with(b"fresh"));
    assert_eq!(fresh.count(), 1);
    assert!(!sent.iter().any(|(_, bytes)| bytes.ends_with(b"late")));
    let drops = station.node.plane().stats().drops;
    assert_eq!(drops.get(DataError::TooLate), 10);
}

/// Blocks the edge to the peer, as a driver does whose connection takes no more.
fn blocked_edge(station: &mut Station) -> data::EdgeId {
    let mut frame = [&[0; HEADER_LEN][..], b"second"].concat();
    let now = station.now;
    let plane = station.node.plane();
    let meta = Meta::Native(native::ChannelId(1));
    let Verdict::Forward(mut cursor) = plane.forward(now, &meta, &mut frame) else {
        panic!("not forwarded");
    };
    let sent = plane.next_transmit(now, &mut cursor, &mut frame).unwrap();
    plane.blocked(sent.edge);
    sent.edge
}

#[test]
fn a_data_node_without_a_key_refuses_quic() {
    let mut station = Station::new(1);
    let response = station.allocate_over(Transport::Quic, LIVE_FROM_PEER, PEER);
    assert_eq!(response.outcome, Outcome::Refused);
    station.subscribe(true, LIVE, Edge::Native, &[]).unwrap();
    let refused = station.subscribe(false, LIVE, PEER, &channel(None, KEY));
    assert_eq!(refused, Err(Outcome::Refused));
    assert!(!station.node.plane().has_path_to(THEIRS.into()));
}

#[test]
fn the_own_channels_are_of_the_transport_that_was_agreed() {
    let mut station = station();
    let own = |station: &mut Station, transport| {
        let flows = station.allocate_over(transport, LIVE_FROM_PEER, PEER).flows;
        flows[0].address.clone()
    };
    let (address, key) = (station.address, KeyDigest([1; 32]));
    let quic = own(&mut station, Transport::Quic);
    assert_eq!(quic, ChannelAddress::Quic(address, key));
    // The administrator changed it, and the session is still there.
    let plain = own(&mut station, Transport::Plain);
    assert_eq!(plain, ChannelAddress::Datagram(address));
}

#[test]
fn a_path_exists_while_an_edge_has_it() {
    let mut station = station();
    for round in 0..10 {
        for key in 0..20 {
            let name = format!("bfed://2/m/{key}/?content=real-time");
            let theirs = channel(Some(LABEL), KeyDigest([key; 32]));
            station.subscribe(true, &name, PEER, &theirs).unwrap();
        }
        let known = (0..20).filter(|&key| {
            let plane = station.node.plane();
            plane.path(THEIRS.into(), KeyDigest([key; 32])).is_some()
        });
        assert_eq!(known.count(), 20, "round {round}");
        for key in 0..20 {
            let name = format!("bfed://2/m/{key}/?content=real-time");
            station.reclaim(&name, Some(ReclaimTarget::All));
        }
        (0..4).for_each(|_| station.wait(10));
        assert_eq!(station.node.session_count(), 0);
        assert!(!station.node.plane().has_path_to(THEIRS.into()));
    }
}

#[test]
fn edges_that_are_refused_at_the_limit_leave_no_path() {
    let mut station = Station::with(1, |config| {
        config.key = Some(KeyDigest([1; 32]));
        config.plane.max_edges = 1;
    });
    station.subscribe(true, LIVE, Edge::Native, &[]).unwrap();
    let refused = station.subscribe(false, LIVE, PEER, &channel(None, KEY));
    assert_eq!(refused, Err(Outcome::Full));
    assert!(!station.node.plane().has_path_to(THEIRS.into()));
}
