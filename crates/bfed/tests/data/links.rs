//! Links with a bound: how sessions share them, and how long frames wait.

use bfed::data::{DataError, Destination, Meta, Verdict};
use bfed::native::ChannelId;
use bfed::wire::data::{HEADER_LEN, Kind, Repr};
use bfed::wire::join::FlowChannel;
use bfed::wire::subscribe::Edge;
use bfed::*;

use crate::fake::{Sent, Station, introduce, payload};

/// The link to the peer carries 1 Mbit/s.
const BOUNDED: Edge = Edge::Peer {
    peer: PeerId(1),
    rate_bps: 1_000_000,
};

fn name(number: usize, content: &str) -> String {
    format!("bfed://1/m/{number}/?content={content}")
}

/// Bytes of payload that arrive in ten seconds, after three, of sessions that send these bit/s in
/// frames of 1,000 bytes.
fn real_time(rates: &[u64]) -> Vec<u64> {
    let (mut above, mut below) = (Station::new(1), Station::new(2));
    for number in 0..rates.len() {
        let name = name(number, "real-time");
        above.subscribe(true, &name, Edge::Native, &[]).unwrap();
        let theirs = below.allocate(&name, BOUNDED);
        let ours = above.subscribe(false, &name, BOUNDED, &theirs).unwrap();
        below.subscribe(true, &name, BOUNDED, &ours).unwrap();
        below.subscribe(false, &name, Edge::Native, &[]).unwrap();
    }
    introduce(&mut above, &mut below);
    let mut got = vec![0; rates.len()];
    let mut credit = vec![0; rates.len()];
    for millis in 0..13_000 {
        above.wait(1);
        below.wait(1);
        let mut sent = vec![];
        for (number, rate) in rates.iter().enumerate() {
            credit[number] += rate;
            while credit[number] >= 8_000_000 {
                credit[number] -= 8_000_000;
                let frame = vec![number as u8; 1000];
                sent.extend(above.native_data(number as u64 + 1, &frame).unwrap());
            }
        }
        sent.extend(above.drain());
        below.native().sent.clear();
        for (_, bytes) in sent {
            let _ = below.packet(Meta::Datagram(above.address), bytes);
        }
        for (_, frame) in below.native().sent.drain(..) {
            got[usize::from(frame[0])] += if millis > 3000 { frame.len() as u64 } else { 0 };
        }
        for (_, bytes) in below.drain() {
            let _ = above.packet(Meta::Datagram(below.address), bytes);
        }
        above.events();
        below.events();
    }
    got
}

#[test]
fn real_time_sessions_share_a_link() {
    // Five of 400 kbit/s: each gets a fifth of the link, 1.25 MB in ten seconds with headers.
    let got = real_time(&[400_000; 5]);
    let fair = 1_250_000 / 5;
    for one in &got {
        assert!((fair * 8 / 10..=fair * 11 / 10).contains(one), "{got:?}");
    }
    // A session that sends less than its share gets all of it through.
    let got = real_time(&[50_000, 900_000, 900_000, 900_000]);
    assert!(got[0] >= 62_500 * 9 / 10, "{got:?}");
    let most = got[1..].iter().max().unwrap();
    let least = got[1..].iter().min().unwrap();
    assert!(least * 10 >= most * 8, "{got:?}");
}

/// Bytes that unlimited bulk sessions, one for each length in `lens`, send over the link in each second; their frames
/// have these lengths.
fn bulk(lens: &[usize], seconds: usize) -> Vec<Vec<usize>> {
    let mut station = Station::new(1);
    let mut conns = vec![];
    for number in 0..lens.len() {
        let name = name(number, "bulk-data");
        station.subscribe(true, &name, Edge::Native, &[]).unwrap();
        let to = FlowChannel {
            label: None,
            address: ChannelAddress::Stream(([10, 0, 0, 2], 4000).into()),
        };
        let own = station.subscribe(false, &name, BOUNDED, &[to]).unwrap();
        let label = own[0].label.unwrap();
        let mut attach = vec![0; HEADER_LEN];
        Repr::new(Kind::Attach, label).emit(&mut attach);
        let conn = ConnId(number as u64 + 1);
        let _ = station.packet(Meta::Stream(conn, [10, 0, 0, 2].into()), attach);
        conns.push(Destination::Stream(conn));
    }
    let mut paused = vec![false; lens.len()];
    let mut got = vec![];
    for _ in 0..seconds {
        let mut second = vec![0; lens.len()];
        for _ in 0..100 {
            station.wait(10);
            let mut sent = station.drain();
            for (number, len) in lens.iter().enumerate() {
                // As fast as the node takes it.
                for _ in 0..10 {
                    if !paused[number] {
                        let channel = number as u64 + 1;
                        sent.extend(station.native_data(channel, &vec![0; *len]).unwrap());
                    }
                    for event in station.events() {
                        use bfed::data::DataEvent::{Pause, Resume};
                        let (from, stop) = match event {
                            Pause(Destination::Native(from)) => (from, true),
                            Resume(Destination::Native(from)) => (from, false),
                            _ => continue,
                        };
                        paused[from.0 as usize - 1] = stop;
                    }
                }
            }
            for (to, bytes) in sent {
                if let Some(number) = conns.iter().position(|conn| *conn == to) {
                    second[number] += bytes.len();
                }
            }
        }
        got.push(second);
    }
    got
}

#[test]
fn bulk_sessions_share_a_link_from_the_start() {
    // 125 kB/s: each gets 25.
    let got = bulk(&[1000; 5], 10);
    for second in &got[1..] {
        for one in second {
            assert!((20_000..=30_000).contains(one), "{got:?}");
        }
    }
}

#[test]
fn long_frames_get_no_more_than_short_ones() {
    let got = bulk(&[16_000, 500, 4_000], 20);
    let sum = |number: usize| got.iter().map(|second| second[number]).sum::<usize>();
    let sums = [sum(0), sum(1), sum(2)];
    let fair = 125_000 * 20 / 3;
    for one in sums {
        assert!((fair * 8 / 10..=fair * 12 / 10).contains(&one), "{sums:?}");
    }
}

#[test]
fn a_session_of_many_flows_gets_no_more_than_one_of_one_flow() {
    let mut station = Station::new(1);
    let names = ["bfed://1/one", "bfed://1/many/a/b/c/d"];
    let mut sums = [0; 2];
    let mut flows = vec![];
    for (at, name) in names.iter().enumerate() {
        station.subscribe(true, name, Edge::Native, &[]).unwrap();
        let count = SessionName::parse(name).unwrap().flow_count();
        let to = FlowChannel {
            label: None,
            address: ChannelAddress::Stream(([10, 0, 0, 2], 4000).into()),
        };
        let own = station
            .subscribe(false, name, BOUNDED, &vec![to; count])
            .unwrap();
        for own in own {
            let mut attach = vec![0; HEADER_LEN];
            Repr::new(Kind::Attach, own.label.unwrap()).emit(&mut attach);
            let conn = ConnId(flows.len() as u64 + 1);
            let _ = station.packet(Meta::Stream(conn, [10, 0, 0, 2].into()), attach);
            flows.push(at);
        }
    }
    assert!(flows.len() >= 4);
    // Enough for all of them to wait for ten seconds.
    for flow in 0..flows.len() as u64 {
        for _ in 0..400 {
            for (to, bytes) in station.native_data(flow + 1, &[0; 1000]).unwrap() {
                let Destination::Stream(conn) = to else {
                    panic!()
                };
                sums[flows[conn.0 as usize - 1]] += bytes.len();
            }
        }
    }
    sums = [0; 2];
    for _ in 0..400 {
        station.wait(10);
        for (to, bytes) in station.drain() {
            let Destination::Stream(conn) = to else {
                panic!()
            };
            sums[flows[conn.0 as usize - 1]] += bytes.len();
        }
    }
    assert!(sums[0] * 10 >= sums[1] * 8, "{sums:?}");
}

#[test]
fn real_time_frames_wait_for_half_a_second_at_most() {
    let mut station = Station::new(1);
    let name = name(0, "real-time");
    station.subscribe(true, &name, Edge::Native, &[]).unwrap();
    let to = FlowChannel {
        label: None,
        address: ChannelAddress::Datagram(([10, 0, 0, 2], 4000).into()),
    };
    let slow = Edge::Peer {
        peer: PeerId(1),
        rate_bps: 80_000,
    };
    let own = station.subscribe(false, &name, slow, &[to]).unwrap();
    station.prove(([10, 0, 0, 2], 4000).into(), own[0].label.unwrap());
    // 10 kB/s: a hundred frames would take ten seconds.
    for number in 0..100 {
        station.native_data(1, &[number; 1000]).unwrap();
    }
    station.wait(499);
    assert!(station.drain().len() <= 6);
    station.wait(2);
    for sent in station.drain() {
        assert_eq!(payload(&sent).len(), 0, "only packets of its own: too late");
    }
    let stats = *station.node.plane().stats();
    assert!(stats.drops.get(DataError::TooLate) >= 90);
    // Data that arrives now is forwarded.
    station.wait(2000);
    station.drain();
    let sent = station.native_data(1, &[7; 1000]).unwrap();
    assert_eq!(sent.len(), 1);
}

#[test]
fn a_link_that_loses_its_bound_sends_what_waits() {
    let mut station = Station::new(1);
    let name = name(0, "bulk-data");
    station.subscribe(true, &name, Edge::Native, &[]).unwrap();
    let to = [FlowChannel {
        label: None,
        address: ChannelAddress::Stream(([10, 0, 0, 2], 4000).into()),
    }];
    let own = station.subscribe(false, &name, BOUNDED, &to).unwrap();
    let mut attach = vec![0; HEADER_LEN];
    Repr::new(Kind::Attach, own[0].label.unwrap()).emit(&mut attach);
    let _ = station.packet(Meta::Stream(ConnId(1), [10, 0, 0, 2].into()), attach);
    let mut sent = 0;
    for _ in 0..100 {
        sent += station.native_data(1, &[0; 1000]).unwrap().len();
    }
    sent += station.drain().len();
    assert!(sent < 20);
    let free = Edge::Peer {
        peer: PeerId(1),
        rate_bps: 0,
    };
    station.subscribe(false, &name, free, &to).unwrap();
    sent += station.drain().len();
    assert_eq!(sent, 100);
}

/// A bulk session of the native network with a receiver whose TCP channel is `conn`.
fn session(station: &mut Station, name: &str, edge: Edge, conn: u64) {
    station.subscribe(true, name, Edge::Native, &[]).unwrap();
    receiver(station, name, edge, conn);
}

/// Receivers of all flows of a session, over TCP channels with numbers from `conn` on.
fn receiver(station: &mut Station, name: &str, edge: Edge, conn: u64) {
    let count = SessionName::parse(name).unwrap().flow_count();
    let to = FlowChannel {
        label: None,
        address: ChannelAddress::Stream(([10, 0, 0, 2], 4000).into()),
    };
    let own = station.subscribe(false, name, edge, &vec![to; count]);
    for (conn, own) in (conn..).zip(own.unwrap()) {
        let mut attach = vec![0; HEADER_LEN];
        Repr::new(Kind::Attach, own.label.unwrap()).emit(&mut attach);
        let _ = station.packet(Meta::Stream(ConnId(conn), [10, 0, 0, 2].into()), attach);
    }
}

/// The edge that a frame of a channel of the native network is sent on.
fn edge_of(station: &mut Station, channel: u64) -> data::EdgeId {
    let mut frame = vec![0; HEADER_LEN + 1];
    let (now, plane) = (station.now, station.node.plane());
    let meta = Meta::Native(ChannelId(channel));
    match plane.forward(now, &meta, &mut frame) {
        Verdict::Only(copy) => copy.edge,
        Verdict::Forward(mut cursor) => {
            let copy = plane.next_transmit(now, &mut cursor, &mut frame);
            copy.expect("one receiver").edge
        }
        other => panic!("{other:?}"),
    }
}

/// The numbers of the TCP channels that packets went to.
fn conns(sent: &[Sent]) -> Vec<u64> {
    let conn = |(to, _): &Sent| match to {
        Destination::Stream(conn) => conn.0,
        other => panic!("{other:?}"),
    };
    sent.iter().map(conn).collect()
}

#[test]
fn a_blocked_receiver_holds_up_no_other_session_of_a_link_without_a_bound() {
    let free = Edge::Peer {
        peer: PeerId(1),
        rate_bps: 0,
    };
    let mut station = Station::new(1);
    session(&mut station, "bfed://1/one", free, 1);
    session(&mut station, "bfed://1/other", free, 2);
    // With clients, too, so that its packets look at the link.
    let clients = station.subscribe(false, "bfed://1/other", Edge::Native, &[]);
    assert!(clients.is_ok());
    let edge = edge_of(&mut station, 1);
    station.node.plane().blocked(edge);
    assert!(station.native_data(1, b"waits").unwrap().is_empty());
    assert_eq!(station.native_data(2, b"passes").unwrap().len(), 2);
    let now = station.now;
    station.node.plane().writable(now, edge);
    assert!(station.native_data(1, b"behind it").unwrap().is_empty());
    assert_eq!(station.native_data(2, b"passes").unwrap().len(), 2);
    assert_eq!(conns(&station.drain()), [1, 1]);
}

#[test]
fn a_flow_that_is_blocked_costs_its_session_no_turn() {
    let mut station = Station::new(1);
    let two = "bfed://1/two/a/b";
    assert_eq!(SessionName::parse(two).unwrap().flow_count(), 2);
    session(&mut station, two, BOUNDED, 1);
    session(&mut station, "bfed://1/other", BOUNDED, 3);
    let edge = edge_of(&mut station, 1);
    // A tenth of a second's worth, and a little more.
    while station.native_data(3, &[0; 1480]).unwrap().len() == 1 {}
    for channel in [1, 2] {
        assert!(station.native_data(channel, &[0; 1480]).unwrap().is_empty());
    }
    station.wait(12);
    assert_eq!(conns(&station.drain()), [3]);
    station.native_data(3, &[0; 1480]).unwrap();
    station.node.plane().blocked(edge);
    station.wait(12);
    assert_eq!(conns(&station.drain()), [2], "the other flow's turn");
    station.wait(12);
    assert_eq!(conns(&station.drain()), [3]);
}

#[test]
fn short_frames_count_with_their_headers() {
    let mut station = Station::new(1);
    session(&mut station, "bfed://1/short", BOUNDED, 1);
    session(&mut station, "bfed://1/long", BOUNDED, 2);
    for _ in 0..8000 {
        station.native_data(1, &[0; 10]).unwrap();
    }
    for _ in 0..100 {
        station.native_data(2, &[0; 1480]).unwrap();
    }
    let mut bytes = [0; 2];
    for _ in 0..100 {
        station.wait(10);
        for (to, packet) in station.drain() {
            bytes[usize::from(to == Destination::Stream(ConnId(2)))] += packet.len();
        }
    }
    // 62,500 each.
    assert!(
        bytes.iter().all(|sum| (55_000..70_000).contains(sum)),
        "{bytes:?}"
    );
}

#[test]
fn a_link_on_which_nothing_waits_any_more_takes_the_next_frame_at_once() {
    let mut station = Station::new(1);
    session(&mut station, "bfed://1/one", BOUNDED, 1);
    session(&mut station, "bfed://1/other", BOUNDED, 2);
    while station.native_data(1, &[0; 1480]).unwrap().len() == 1 {}
    station.wait(12);
    assert_eq!(conns(&station.drain()), [1], "the last that waits");
    station.wait(1000);
    assert_eq!(station.native_data(2, &[0; 1480]).unwrap().len(), 1);
}

#[test]
fn what_waits_for_a_link_is_due_when_another_session_takes_its_bound_away() {
    let mut station = Station::new(1);
    session(&mut station, "bfed://1/one", BOUNDED, 1);
    while station.native_data(1, &[0; 1480]).unwrap().len() == 1 {}
    station.wait(0);
    station.sent();
    station.drain();
    station.events();
    assert!(station.node.poll_timeout() > Some(station.now));
    let free = Edge::Peer {
        peer: PeerId(1),
        rate_bps: 0,
    };
    session(&mut station, "bfed://1/other", free, 2);
    station.sent();
    station.events();
    assert_eq!(station.node.poll_timeout(), Some(station.now));
    assert_eq!(conns(&station.drain()), [1]);
}

/// The driver looks when it is asked to, and packets go at the rate of TFRC: here that of no reports.
#[test]
fn real_time_packets_leave_when_their_time_has_come() {
    for rate_bps in [0, 1_000_000_000] {
        let mut station = Station::with(1, |config| {
            config.plane.real_time_delay = Duration::from_secs(60);
        });
        let name = name(0, "real-time");
        station.subscribe(true, &name, Edge::Native, &[]).unwrap();
        let socket = ([10, 0, 0, 2], 4000).into();
        let to = FlowChannel {
            label: None,
            address: ChannelAddress::Datagram(socket),
        };
        let edge = Edge::Peer {
            peer: PeerId(1),
            rate_bps,
        };
        let own = station.subscribe(false, &name, edge, &[to]).unwrap();
        station.prove(socket, own[0].label.unwrap());
        let start = station.now;
        for number in 0..10 {
            station.native_data(1, &[number; 1180]).unwrap();
        }
        let mut times = vec![];
        while times.len() < 2 {
            station.sent();
            station.events();
            let next = station.node.poll_timeout().expect("packets wait");
            station.now = next;
            station.wait(0);
            let data = station
                .drain()
                .into_iter()
                .filter(|sent| sent.1.len() > HEADER_LEN);
            times.extend(data.map(|_| (station.now - start).total_millis()));
        }
        // The window was overdrawn by a little; then a segment a second.
        let [first, second] = times[..] else {
            panic!("{times:?}");
        };
        assert!(
            first < 500 && (1000..1100).contains(&(second - first)),
            "{times:?}"
        );
    }
}
