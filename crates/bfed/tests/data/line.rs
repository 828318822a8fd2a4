//! Data nodes in a line, with a link that loses packets.

use std::collections::BTreeMap;

use bfed::data::{Destination, Drops, Meta, PathId, Repairs};
use bfed::native::{ChannelId, FrameClass};
use bfed::wire::data::HEADER_LEN;
use bfed::wire::subscribe::Edge;
use bfed::wire::transport::Transport;
use bfed::*;

use crate::fake::{OTHER, PEER, Sent, Station};

pub(crate) const NAME: &str = "bfed://1/film/?content=real-time";
pub(crate) const QUICK: &str = "bfed://1/film/?content=real-time&deadline=75";
/// A film for links with long ways.
pub(crate) const FAR: &str = "bfed://1/film/?content=real-time&deadline=250";

pub(crate) fn key(number: u8) -> KeyDigest {
    KeyDigest([number; 32])
}

pub(crate) fn station(number: u8) -> Station {
    Station::with(number, |config| {
        config.key = Some(key(number));
        config.plane.init_wait = millis(750);
    })
}

fn without_repairs(number: u8) -> Station {
    Station::with(number, |config| {
        config.key = Some(key(number));
        config.plane.repairs = false;
    })
}

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What carries packets between two data nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carrier {
    Quic,
    Udp,
}

/// Data nodes in a line, each as far from the next, from the source's to a client's.
pub(crate) struct Line {
    pub(crate) stations: Vec<Station>,
    pub(crate) carrier: Carrier,
    /// Time from one data node to the next, ms.
    pub(crate) way: u64,
    /// Time from one frame of a film to the next, ms.
    pub(crate) interval: u64,
    /// Packets on their way, by the time when they arrive, in the order in which they were sent.
    pub(crate) on_way: BTreeMap<(u64, u64), (usize, usize, Vec<u8>)>,
    pub(crate) sent: u64,
    pub(crate) millis: u64,
    pub(crate) random: u64,
    /// Packets of a hundred that are lost on the first link, from its first data on.
    pub(crate) loss: u64,
    /// Packets that carry data, those sent again included, on the first link.
    pub(crate) data: u64,
    /// Data, in the order in which the last node's native network gets it.
    pub(crate) got: Vec<u32>,
}

impl Line {
    pub(crate) fn new(carrier: Carrier, nodes: u8, name: &str, loss: u64) -> Self {
        Self::over(20, carrier, nodes, name, loss)
    }

    /// Data nodes whose configuration switches repairs off.
    pub(crate) fn unrepaired(name: &str, loss: u64) -> Self {
        let stations = (1..=2).map(without_repairs).collect();
        Self::of(stations, 20, Carrier::Quic, name, loss)
    }

    pub(crate) fn over(way: u64, carrier: Carrier, nodes: u8, name: &str, loss: u64) -> Self {
        Self::of((1..=nodes).map(station).collect(), way, carrier, name, loss)
    }

    fn of(mut stations: Vec<Station>, way: u64, carrier: Carrier, name: &str, loss: u64) -> Self {
        let transport = match carrier {
            Carrier::Quic => Transport::Quic,
            Carrier::Udp => Transport::Plain,
        };
        stations[0]
            .subscribe(true, name, Edge::Native, &[])
            .unwrap();
        for at in 1..stations.len() {
            let theirs = stations[at].allocate_over(transport, name, PEER).flows;
            let ours = stations[at - 1]
                .subscribe(false, name, OTHER, &theirs)
                .unwrap();
            stations[at].subscribe(true, name, PEER, &ours).unwrap();
        }
        let last = stations.last_mut().unwrap();
        last.subscribe(false, name, Edge::Native, &[]).unwrap();
        let mut line = Line {
            stations,
            carrier,
            way,
            // TFRC lets fewer go where packets are lost.
            interval: if carrier == Carrier::Quic { 5 } else { way },
            on_way: BTreeMap::new(),
            sent: 0,
            millis: 0,
            random: 1,
            loss: 0,
            data: 0,
            got: vec![],
        };
        for at in 0..line.stations.len() {
            for other in 0..line.stations.len() {
                if let Some(path) = line.path(at, other) {
                    line.stations[at]
                        .node
                        .plane()
                        .set_rtt(path, millis(2 * way));
                }
            }
        }
        line.run(2000);
        line.loss = loss;
        line
    }

    pub(crate) fn path(&mut self, at: usize, other: usize) -> Option<PathId> {
        let (address, number) = (self.stations[other].address, other as u8 + 1);
        self.stations[at].node.plane().path(address, key(number))
    }

    /// Whether a packet on the first link is lost: a congruential generator, so that each run is the same.
    pub(crate) fn is_lost(&mut self) -> bool {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.random >> 33) % 100 < self.loss
    }

    pub(crate) fn carry(&mut self, from: usize, sent: Vec<Sent>) {
        for (to, bytes) in sent {
            let at = match to {
                Destination::Native(_) if from + 1 == self.stations.len() => {
                    self.got
                        .push(u32::from_be_bytes(bytes[..4].try_into().unwrap()));
                    continue;
                }
                Destination::Datagram(to) => self.stations.iter().position(|one| one.address == to),
                Destination::Path(path) => {
                    (0..self.stations.len()).find(|&other| self.path(from, other) == Some(path))
                }
                _ => None,
            };
            let Some(at) = at else { continue };
            if from.min(at) == 0 {
                self.data += u64::from(from == 0 && matches!(bytes[0] & 15, 1 | 6));
                if self.is_lost() {
                    continue;
                }
            }
            self.sent += 1;
            let place = (self.millis + self.way, self.sent);
            self.on_way.insert(place, (from, at, bytes));
        }
    }

    pub(crate) fn run(&mut self, millis: u64) {
        for _ in 0..millis {
            self.millis += 1;
            while let Some(first) = self.on_way.first_entry() {
                if first.key().0 > self.millis {
                    break;
                }
                let (from, at, bytes) = first.remove();
                let meta = match self.carrier {
                    Carrier::Udp => Meta::Datagram(self.stations[from].address),
                    Carrier::Quic => Meta::Path(self.path(at, from).expect("a path")),
                };
                let sent = self.stations[at].packet(meta, bytes).unwrap_or_default();
                self.carry(at, sent);
            }
            for at in 0..self.stations.len() {
                self.stations[at].wait(1);
                let sent = self.stations[at].drain();
                self.carry(at, sent);
            }
        }
    }

    /// The source sends a frame with this number.
    pub(crate) fn speak(&mut self, number: u32, len: usize) {
        let mut frame = vec![0; HEADER_LEN + len];
        frame[HEADER_LEN..HEADER_LEN + 4].copy_from_slice(&number.to_be_bytes());
        let meta = Meta::Frame(ChannelId(1), FrameClass::default());
        let sent = self.stations[0].packet(meta, frame).unwrap();
        self.carry(0, sent);
    }

    pub(crate) fn repairs(&mut self, at: usize) -> Repairs {
        let mut all = self.stations[at].node.plane().repairs();
        all.next().map(|(_, repairs)| repairs).unwrap_or_default()
    }

    pub(crate) fn drops(&mut self, at: usize) -> Drops {
        self.stations[at].node.plane().stats().drops
    }
}

/// Sends a film of 200 frames a second over QUIC, and waits until all have arrived.
pub(crate) fn film(line: &mut Line, frames: u32, len: usize) {
    for number in 0..frames {
        line.speak(number, len);
        line.run(line.interval);
    }
    line.run(1000);
}
