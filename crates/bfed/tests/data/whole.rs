//! Three gateways in a line, control nodes, data nodes and native networks: from a source in one
//! network to clients two networks on.

use std::collections::BTreeMap;

use bfed::data::{DataEvent, Destination, Meta};
use bfed::native::Direction;
use bfed::wire::MAX_MESSAGE_LEN;
use bfed::wire::client::{Answer, AnswerRepr};
use bfed::*;

use crate::fake::{Sent, Station};

/// Whose a stream is.
#[derive(Clone, Copy)]
enum Ends {
    Peers(usize, usize),
    Cluster(usize),
    Data(usize, usize),
}

struct Line {
    controls: Vec<ControlNode>,
    stations: Vec<Station>,
    streams: BTreeMap<ConnId, Ends>,
    now: Instant,
}

impl Line {
    fn new() -> Self {
        let stations: Vec<_> = (1..=3).map(Station::new).collect();
        let now = stations[0].now;
        let mut line = Line {
            controls: vec![],
            stations,
            streams: BTreeMap::new(),
            now,
        };
        for number in 0..3_u32 {
            let id = |number| GatewayId::new(number + 1, 1).unwrap();
            let config = Config::new(id(number));
            let mut control = ControlNode::new(config, [number as u8; 32], now).unwrap();
            for other in [number.wrapping_sub(1), number + 1]
                .into_iter()
                .filter(|o| *o < 3)
            {
                control
                    .add_peer(now, PeerId(other), PeerConfig::new(id(other)))
                    .unwrap();
            }
            let conn = ConnId(1000 + u64::from(number));
            control.node_connected(now, conn, NodeIdentity::default());
            line.streams.insert(conn, Ends::Cluster(number as usize));
            line.controls.push(control);
            line.stations[number as usize].node.connected(now);
        }
        line.run(5000);
        line
    }

    fn run(&mut self, millis: u64) {
        for _ in 0..millis / 5 {
            self.now += Duration::from_millis(5);
            for at in 0..3 {
                self.controls[at].handle_timeout(self.now);
                self.stations[at].now = self.now;
                self.stations[at].wait(0);
            }
            for _ in 0..4 {
                (0..3).for_each(|at| self.control(at));
                (0..3).for_each(|at| self.station(at));
            }
        }
    }

    fn control(&mut self, at: usize) {
        let now = self.now;
        while let Some(event) = self.controls[at].poll_event() {
            match event {
                Event::Dial(PeerId(other)) => {
                    let other = other as usize;
                    let conn = ConnId(self.streams.len() as u64 + 1);
                    self.streams.insert(conn, Ends::Peers(at, other));
                    self.controls[at].connected(now, conn, PeerId(other as u32), true);
                    self.controls[other].connected(now, conn, PeerId(at as u32), false);
                }
                Event::Answer {
                    client,
                    session,
                    answer,
                    lifetime_s,
                } => {
                    let answer = AnswerRepr {
                        nonce: 1,
                        lifetime_s,
                        answer,
                        session,
                    };
                    self.stations[at]
                        .native()
                        .answer(now, Some(client), &answer);
                }
                _ => {}
            }
        }
        let mut buffer = vec![0; MAX_MESSAGE_LEN];
        while let Some(out) = self.controls[at].poll_transmit(now, &mut buffer) {
            let bytes = &buffer[..out.len];
            match self.streams[&out.conn] {
                Ends::Peers(a, b) => {
                    let to = if a == at { b } else { a };
                    let _ = self.controls[to].handle_packet(now, &out.conn, bytes);
                }
                Ends::Cluster(at) => {
                    let node = &mut self.stations[at].node;
                    node.handle_packet(now, &(), bytes).unwrap();
                }
                Ends::Data(..) => unreachable!(),
            }
        }
    }

    fn station(&mut self, at: usize) {
        let now = self.now;
        let cluster = ConnId(1000 + at as u64);
        for message in self.stations[at].sent() {
            let mut bytes = vec![0; message.buffer_len()];
            message.emit(&mut bytes);
            self.controls[at]
                .handle_packet(now, &cluster, &bytes)
                .unwrap();
        }
        for event in self.stations[at].events() {
            if let DataEvent::Dial { edge, to } = event {
                let other = self
                    .stations
                    .iter()
                    .position(|other| other.address == to)
                    .unwrap();
                let conn = ConnId(self.streams.len() as u64 + 1);
                self.streams.insert(conn, Ends::Data(at, other));
                assert!(self.stations[at].node.dialled(edge, conn));
            }
        }
        let sent = self.stations[at].drain();
        self.carry(at, sent);
    }

    /// Packets between data nodes, and what follows from them.
    fn carry(&mut self, from: usize, sent: Vec<Sent>) {
        let address = self.stations[from].address;
        for (to, bytes) in sent {
            let (at, meta) = match to {
                // These data nodes have no keys.
                Destination::Native(_) | Destination::NativeInit(_) | Destination::Path(_) => {
                    continue;
                }
                Destination::Datagram(to) => {
                    let at = self
                        .stations
                        .iter()
                        .position(|other| other.address == to)
                        .unwrap();
                    (at, Meta::Datagram(address))
                }
                Destination::Stream(conn) => {
                    let Ends::Data(a, b) = self.streams[&conn] else {
                        unreachable!()
                    };
                    (
                        if a == from { b } else { a },
                        Meta::Stream(conn, address.ip()),
                    )
                }
            };
            if let Ok(more) = self.stations[at].packet(meta, bytes) {
                self.carry(at, more);
            }
        }
    }

    fn join(&mut self, at: usize, name: &str) {
        let now = self.now;
        let session = SessionName::parse(name).unwrap();
        self.controls[at].join(now, ClientId(1), session, 0, Scope::Chosen);
        self.run(1000);
        let answers = &self.stations[at].native().answers;
        let last = answers.last().map(|(_, answer)| &answer.answer);
        assert!(matches!(last, Some(Answer::Translation(_))), "{last:?}");
    }

    /// Data of the native network at one gateway.
    fn speak(&mut self, at: usize, direction: Direction, data: &[u8]) {
        let mut open = self.stations[at].native().open.iter().rev();
        let (channel, _) = open.find(|(_, (_, _, way, _))| *way == direction).unwrap();
        let channel = channel.0;
        let sent = self.stations[at].native_data(channel, data).unwrap();
        self.carry(at, sent);
    }

    fn received(&self, at: usize) -> Vec<&[u8]> {
        self.stations[at]
            .node
            .native()
            .sent
            .iter()
            .map(|(_, data)| &data[..])
            .collect()
    }
}

#[test]
fn frames_reach_clients_two_networks_on() {
    for name in [
        "bfed://1/m",
        "bfed://1/m/?content=real-time",
        "bfed://1/m/?multi-source=true",
    ] {
        let mut line = Line::new();
        line.join(2, name);
        line.join(1, name);
        for frame in [&b"one"[..], b"two", b"three"] {
            line.speak(0, Direction::Up, frame);
            line.run(50);
        }
        for at in 1..3 {
            assert_eq!(
                line.received(at),
                [&b"one"[..], b"two", b"three"],
                "{name} at {at}"
            );
        }
        assert!(line.received(0).is_empty(), "nothing goes back");
    }
}

#[test]
fn anybody_speaks_where_many_may() {
    let mut line = Line::new();
    let name = "bfed://1/m/?multi-source=true&content=real-time";
    line.join(2, name);
    line.join(1, name);
    line.speak(2, Direction::Down, b"from the third");
    line.run(50);
    assert_eq!(line.received(0), [b"from the third"]);
    assert_eq!(line.received(1), [b"from the third"]);
    assert!(line.received(2).is_empty());
    line.speak(1, Direction::Down, b"from the second");
    line.run(50);
    assert_eq!(line.received(0).len(), 2);
    assert_eq!(line.received(2), [b"from the second"]);
}

#[test]
fn what_is_left_behind_is_nothing() {
    let mut line = Line::new();
    let name = "bfed://1/m/a/b/?content=real-time";
    line.join(2, name);
    let now = line.now;
    line.controls[2].leave(now, &SessionName::parse(name).unwrap());
    line.run(1000);
    for station in &mut line.stations {
        assert_eq!(
            (station.node.session_count(), station.native().open.len()),
            (0, 0)
        );
        assert_eq!(station.node.plane().edge_count(), 0);
    }
}

#[test]
fn long_sessions_live_by_refreshes_alone() {
    let mut line = Line::new();
    let name = "bfed://1/m/?content=real-time";
    line.join(2, name);
    for _ in 0..4 {
        line.run(60_000);
        line.join(2, name);
    }
    line.speak(0, Direction::Up, b"still here");
    line.run(50);
    assert_eq!(line.received(2), [b"still here"]);
}
