//! Packets for the data node itself, and packets that come on the wrong way.

use bfed::data::{DataError, Destination, Meta, Verdict};
use bfed::native::ChannelId;
use bfed::wire::data::{HEADER_LEN, Kind, MAX_PAYLOAD_LEN, Repr};
use bfed::wire::fragment;
use bfed::wire::join::FlowChannel;
use bfed::wire::report::{LEN as REPORT_LEN, Repr as Report};
use bfed::wire::subscribe::Edge;
use bfed::*;

use crate::fake::{PEER, Station};

const LIVE: &str = "bfed://1/m/?content=real-time";
const FILE: &str = "bfed://1/m";
const TALK: &str = "bfed://1/m/?multi-source=true";
const CONN: ConnId = ConnId(7);

fn label(number: u32) -> FlowLabel {
    FlowLabel::new(number).unwrap()
}

fn datagram() -> Meta {
    Meta::Datagram(([10, 0, 0, 2], 4000).into())
}

fn stream() -> Meta {
    Meta::Stream(CONN, [10, 0, 0, 2].into())
}

fn packet(kind: Kind, label: FlowLabel, payload: &[u8]) -> Vec<u8> {
    let repr = Repr {
        sequence: 1,
        payload_len: payload.len(),
        ..Repr::new(kind, label)
    };
    let mut packet = vec![0; HEADER_LEN];
    packet.extend(payload);
    repr.emit(&mut packet);
    packet
}

#[track_caller]
fn dropped(station: &mut Station, meta: Meta, packet: Vec<u8>, reason: DataError) {
    let before = station.node.plane().stats().drops.get(reason);
    match station.packet(meta, packet) {
        Err(Verdict::Drop(why)) => assert_eq!(why, reason),
        other => panic!("{other:?}"),
    }
    assert_eq!(station.node.plane().stats().drops.get(reason), before + 1);
}

/// A source of the native network and a receiver at 10.0.0.2; the label of what goes there.
fn sender(name: &str) -> (Station, FlowLabel) {
    let mut station = Station::new(1);
    let socket = ([10, 0, 0, 2], 4000).into();
    let address = match name {
        LIVE => ChannelAddress::Datagram(socket),
        _ => ChannelAddress::Stream(socket),
    };
    let to = FlowChannel {
        label: None,
        address,
    };
    station.subscribe(true, name, Edge::Native, &[]).unwrap();
    let own = station.subscribe(false, name, PEER, &[to]).unwrap();
    let label = own[0].label.unwrap();
    (station, label)
}

#[test]
fn an_attach_names_a_flow_of_its_own_address_on_a_stream() {
    let (mut station, own) = sender(FILE);
    let attach = packet(Kind::Attach, own, &[]);
    dropped(
        &mut station,
        datagram(),
        attach.clone(),
        DataError::NotYours,
    );
    let other = packet(Kind::Attach, label(own.get() ^ 1), &[]);
    dropped(&mut station, stream(), other, DataError::UnknownFlow);
    let stranger = Meta::Stream(CONN, [10, 0, 0, 3].into());
    dropped(&mut station, stranger, attach.clone(), DataError::NotYours);
    // The same address in its IPv6 form.
    let mapped = std::net::Ipv4Addr::new(10, 0, 0, 2).to_ipv6_mapped();
    let taken = station.packet(Meta::Stream(CONN, mapped.into()), attach.clone());
    assert!(matches!(taken, Err(Verdict::Taken)));
    let sent = station.native_data(1, b"data").unwrap();
    assert_eq!(sent[0].0, Destination::Stream(CONN));
    // A stream carries one flow.
    dropped(&mut station, stream(), attach.clone(), DataError::NotYours);
    // A second stream replaces the first.
    let second = Meta::Stream(ConnId(8), [10, 0, 0, 2].into());
    let taken = station.packet(second, attach);
    assert!(matches!(taken, Err(Verdict::Taken)));
    let closed = data::DataEvent::Close(CONN);
    assert_eq!(station.events(), [closed]);
    let sent = station.native_data(1, b"data").unwrap();
    assert_eq!(sent[0].0, Destination::Stream(ConnId(8)));
}

#[test]
fn a_channel_that_this_node_opens_is_not_taken_over() {
    let mut station = Station::new(1);
    let own = station.allocate(TALK, PEER)[0].label.unwrap();
    let theirs = FlowChannel {
        label: Some(label(5)),
        address: ChannelAddress::Stream(([10, 0, 0, 2], 4000).into()),
    };
    station.subscribe(true, TALK, PEER, &[theirs]).unwrap();
    let attach = packet(Kind::Attach, own, &[]);
    dropped(&mut station, stream(), attach, DataError::NotYours);
}

#[test]
fn reports_probes_and_echoes_are_datagrams_of_their_own_length() {
    let (mut station, own) = sender(LIVE);
    let mut report = [0; REPORT_LEN];
    Report {
        echo_us: 0,
        delay_us: 0,
        received_rate: 1,
        loss: 0,
    }
    .emit(&mut report);
    let good = packet(Kind::Report, own, &report);
    dropped(&mut station, stream(), good.clone(), DataError::NotYours);
    let other = packet(Kind::Report, label(own.get() ^ 1), &report);
    dropped(&mut station, datagram(), other, DataError::UnknownFlow);
    let short = packet(Kind::Report, own, &report[1..]);
    dropped(&mut station, datagram(), short, DataError::Malformed);
    assert!(matches!(
        station.packet(datagram(), good),
        Err(Verdict::Taken)
    ));
    for kind in [Kind::Probe, Kind::Echo] {
        let on_stream = packet(kind, own, &[]);
        dropped(&mut station, stream(), on_stream, DataError::NotYours);
        let long = packet(kind, own, b"x");
        dropped(&mut station, datagram(), long, DataError::Malformed);
    }
    // A receiver over TCP has no rate.
    let (mut station, own) = sender(FILE);
    let report = packet(Kind::Report, own, &report);
    dropped(&mut station, datagram(), report, DataError::NotYours);
}

#[test]
fn fragments_come_as_datagrams() {
    let mut station = Station::new(1);
    let theirs = FlowChannel {
        label: Some(label(5)),
        address: ChannelAddress::Stream(([10, 0, 0, 2], 4000).into()),
    };
    station.subscribe(true, FILE, PEER, &[theirs]).unwrap();
    let [data::DataEvent::Dial { edge, .. }] = station.events()[..] else {
        panic!();
    };
    assert!(station.node.dialled(edge, CONN));
    let mut payload = vec![0; fragment::LEN + 1];
    fragment::Repr {
        frame: 1,
        index: 0,
        count: 2,
    }
    .emit(&mut payload);
    let piece = packet(Kind::Fragment, label(5), &payload);
    dropped(&mut station, stream(), piece, DataError::Malformed);
    let whole = packet(Kind::Data, label(5), &payload);
    assert!(station.packet(stream(), whole).is_ok());
}

#[test]
fn native_frames_are_taken_up_to_the_longest_payload() {
    let mut station = Station::new(1);
    station.subscribe(true, FILE, Edge::Native, &[]).unwrap();
    station.subscribe(false, FILE, Edge::Native, &[]).unwrap();
    let native = Meta::Native(ChannelId(1));
    let frame = |len: usize| vec![0; len];
    dropped(
        &mut station,
        native,
        frame(HEADER_LEN - 1),
        DataError::Malformed,
    );
    let longest = HEADER_LEN + MAX_PAYLOAD_LEN;
    dropped(
        &mut station,
        native,
        frame(longest + 1),
        DataError::Malformed,
    );
    for len in [HEADER_LEN, longest] {
        let sent = station.packet(native, frame(len)).unwrap();
        assert_eq!(sent[0].1.len(), len - HEADER_LEN);
    }
    // The unused bytes and the data may look like anything.
    let mut odd = packet(Kind::Fragment, label(5), b"data");
    odd[HEADER_LEN] = 0xff;
    let sent = station.packet(native, odd).unwrap();
    assert_eq!(sent[0].1, b"\xffata");
}
