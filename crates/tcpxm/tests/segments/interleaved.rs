//! A driver that reads a little, sends a little, and is interrupted anywhere: whatever the order in
//! which packets leave and acknowledgements come, the store is never asked for what it has let go, and
//! what is late is not taken for lost.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use tcpxm::store::{NullStore, Ring, Store};
use tcpxm::{
    Config, ConnId, Duration, Endpoint, Event, GroupConfig, GroupId, GroupMode, Instant, Meta,
    Received,
};

const PORT: u16 = 7000;
const SENDER_PORT: u16 = 5000;
const RECEIVERS: usize = 8;
const BYTES: u64 = 400_000;

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Packets on their way: to a receiver by number, or from it.
type Wire = VecDeque<(usize, Meta, Vec<u8>)>;

/// One packet in this number is lost; some are reordered.
#[derive(Clone, Copy)]
struct Weather {
    loss: u64,
    reorders: bool,
}

struct Play {
    dice: Dice,
    weather: Weather,
    lost: u64,
    now: Instant,
    sender: Endpoint<Ring>,
    group: GroupId,
    receivers: Vec<Endpoint<Ring>>,
    connections: Vec<Option<ConnId>>,
    read: Vec<u64>,
    written: u64,
    to: Wire,
    from: Wire,
    delivered: usize,
}

fn address(receiver: usize) -> IpAddr {
    [10, 0, 0, 2 + receiver as u8].into()
}

const SENDER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

impl Play {
    fn new(seed: u64, mode: GroupMode, weather: Weather) -> Self {
        let now = Instant::ZERO;
        let mut bytes = [1; 32];
        bytes[..8].copy_from_slice(&seed.to_be_bytes());
        let mut sender = Endpoint::new(Config::default(), bytes, now);
        let receivers = (0..RECEIVERS).map(|number| {
            bytes[9] = number as u8;
            let mut config = Config::default();
            config.receive_buffer = 32 << 10;
            let mut endpoint = Endpoint::new(config, bytes, now);
            endpoint.listen(now, PORT).unwrap();
            endpoint
        });
        let receivers: Vec<_> = receivers.collect();
        let local = SocketAddr::new(SENDER, SENDER_PORT);
        let mut config = GroupConfig::new(local, (0..RECEIVERS).map(address).collect(), PORT);
        config.mode = mode;
        let group = sender
            .open_group(now, &config, Ring::new(32 << 10))
            .unwrap();
        Self {
            dice: Dice(seed),
            weather,
            lost: 0,
            now,
            sender,
            group,
            receivers,
            connections: vec![None; RECEIVERS],
            read: vec![0; RECEIVERS],
            written: 0,
            to: Wire::new(),
            from: Wire::new(),
            delivered: 0,
        }
    }

    fn write(&mut self) {
        let mut chunk = [0; 5000];
        let len = (1 + self.dice.below(5000)).min(BYTES - self.written) as usize;
        NullStore::new(BYTES)
            .read(self.written, &mut chunk[..len])
            .unwrap();
        if len > 0 {
            let sent = self.sender.send(self.now, self.group, &chunk[..len]);
            self.written += sent.unwrap() as u64;
            if self.written == BYTES {
                self.sender.shutdown(self.now, self.group).unwrap();
            }
        }
    }

    /// A few packets leave, and some of them get lost.
    fn transmit(&mut self) {
        let mut buffer = [0; 1500];
        for _ in 0..self.dice.below(12) {
            let Some(transmit) = self.sender.poll_transmit(self.now, &mut buffer) else {
                return;
            };
            let to = transmit.destination.ip();
            let meta = Meta {
                source: SocketAddr::new(SENDER, SENDER_PORT),
                destination: to,
            };
            for receiver in 0..RECEIVERS {
                let is_for = to.is_multicast() || to == address(receiver);
                if is_for && self.dice.below(self.weather.loss) > 0 {
                    let bytes = buffer[..transmit.len].to_vec();
                    self.to.push_back((receiver, meta, bytes));
                } else if is_for {
                    self.lost += 1;
                }
            }
        }
    }

    fn answer(&mut self, receiver: usize) {
        let mut buffer = [0; 1500];
        while let Some(transmit) = self.receivers[receiver].poll_transmit(self.now, &mut buffer) {
            if self.dice.below(self.weather.loss) > 0 {
                let meta = Meta {
                    source: SocketAddr::new(address(receiver), PORT),
                    destination: transmit.destination.ip(),
                };
                let bytes = buffer[..transmit.len].to_vec();
                self.from.push_back((receiver, meta, bytes));
            }
        }
    }

    /// Some packets arrive, not always in order.
    fn arrive(&mut self) {
        for _ in 0..self.dice.below(30) {
            let overtaken = self.weather.reorders && self.dice.below(7) == 0;
            let at = usize::from(overtaken);
            let Some((receiver, meta, bytes)) = self.to.remove(at).or_else(|| self.to.pop_front())
            else {
                break;
            };
            let _ = self.receivers[receiver].handle_packet(self.now, &meta, &bytes);
            self.answer(receiver);
        }
        for _ in 0..self.dice.below(30) {
            let Some((_, meta, bytes)) = self.from.pop_front() else {
                break;
            };
            let _ = self.sender.handle_packet(self.now, &meta, &bytes);
        }
    }

    fn consume(&mut self, receiver: usize) {
        while self.receivers[receiver].poll_event().is_some() {}
        let endpoint = &mut self.receivers[receiver];
        let known = &mut self.connections[receiver];
        *known = known.or_else(|| endpoint.accept(self.now, PORT));
        let mut buffer = [0; 4000];
        if let Some(id) = *known
            && let Ok(Received::Data(len)) = endpoint.recv(self.now, id, &mut buffer)
        {
            for (byte, at) in buffer[..len].iter().zip(self.read[receiver]..) {
                assert_eq!(*byte, NullStore::byte(at), "receiver {receiver} at {at}");
            }
            self.read[receiver] += len as u64;
            self.answer(receiver);
        }
    }

    fn look(&mut self, seed: u64) {
        while let Some(event) = self.sender.poll_event() {
            match event {
                Event::Delivered { .. } => self.delivered += 1,
                Event::Closed {
                    failure: Some(failure),
                    ..
                } => panic!("seed {seed}: {failure:?} after {:?}", self.read),
                _ => {}
            }
        }
    }

    fn run(&mut self, seed: u64) {
        let mut steps = 0;
        while self.delivered < RECEIVERS || self.read.iter().any(|&read| read < BYTES) {
            self.step(seed);
            steps += 1;
            assert!(steps < 2_000_000, "seed {seed}: {:?}", self.read);
        }
    }

    fn step(&mut self, seed: u64) {
        match self.dice.below(6) {
            0 => self.write(),
            1 | 2 => self.transmit(),
            3 => self.arrive(),
            4 => {
                let receiver = self.dice.below(RECEIVERS as u64) as usize;
                self.consume(receiver);
            }
            _ => {
                // When nothing moves, time does.
                let idle = self.to.is_empty() && self.from.is_empty();
                let us = if idle { 50_000 } else { 300 };
                self.now += Duration::from_micros(self.dice.below(us));
                self.sender.handle_timeout(self.now);
                for receiver in 0..RECEIVERS {
                    self.receivers[receiver].handle_timeout(self.now);
                    self.answer(receiver);
                }
            }
        }
        self.look(seed);
    }
}

#[test]
fn no_order_of_sending_and_acknowledging_asks_for_what_was_released() {
    let modes = [GroupMode::Auto, GroupMode::Multicast, GroupMode::Unicast];
    for seed in 0..60 {
        let weather = Weather {
            loss: 40,
            reorders: true,
        };
        Play::new(seed, modes[seed as usize % 3], weather).run(seed);
    }
}

/// A repair leaves between two segments of new data, and arrives between them.
#[test]
fn repairs_between_new_data_show_none_of_it_as_lost() {
    let (mut lost, mut repaired, mut fell_back) = (0, 0, 0);
    for seed in 0..60 {
        let weather = Weather {
            loss: 100,
            reorders: false,
        };
        let mut play = Play::new(seed, GroupMode::Auto, weather);
        play.run(seed);
        let stats = play.sender.stats();
        fell_back += stats.fall_backs;
        lost += play.lost;
        repaired += stats.retransmissions;
    }
    // Now and then an acknowledgement is lost at the end, and a timeout takes all for lost.
    assert!(
        fell_back < 8,
        "{lost} lost, {repaired} repaired, {fell_back} times fallen back"
    );
}
