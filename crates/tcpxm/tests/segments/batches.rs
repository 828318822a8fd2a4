//! Packets that leave and arrive several at once are the same packets, and do the same.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tcpxm::store::Ring;
use tcpxm::wire::SegmentKey;
use tcpxm::{
    Carrier, Config, ConnId, Duration, Endpoint, GroupConfig, GroupId, GroupMode, Instant, Meta,
    Received,
};

const PORT: u16 = 7000;
const SENDER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 5000);
const RECEIVERS: usize = 2;
const BYTES: usize = 300_000;

/// Packets in the order in which they were sent.
type Packets = Vec<(SocketAddr, Vec<u8>)>;

struct World {
    /// Packets that leave together at most, and whether they arrive together.
    most: usize,
    now: Instant,
    sender: Endpoint<Ring>,
    group: GroupId,
    receivers: Vec<(Endpoint<Ring>, Option<ConnId>)>,
    content: Vec<u8>,
    written: usize,
    read: Vec<Vec<u8>>,
}

fn address(receiver: usize) -> IpAddr {
    [10, 0, 0, 2 + receiver as u8].into()
}

impl World {
    fn new(most: usize, carrier: Carrier, mode: GroupMode, key: Option<SegmentKey>) -> Self {
        let now = Instant::ZERO;
        let mut machine = Config::default();
        machine.carrier = carrier;
        machine.receive_buffer = 64 << 10;
        let mut sender = Endpoint::new(machine.clone(), [3; 32], now);
        let receivers = (0..RECEIVERS).map(|number| {
            let mut endpoint = Endpoint::new(machine.clone(), [4 + number as u8; 32], now);
            match key {
                Some(key) => endpoint.listen_keyed(now, PORT, key).unwrap(),
                None => endpoint.listen(now, PORT).unwrap(),
            }
            (endpoint, None)
        });
        let receivers = receivers.collect();
        let mut config = GroupConfig::new(SENDER, (0..RECEIVERS).map(address).collect(), PORT);
        (config.mode, config.key) = (mode, key);
        let store = Ring::new(64 << 10);
        let group = sender.open_group(now, &config, store).unwrap();
        Self {
            most,
            now,
            sender,
            group,
            receivers,
            content: (0..BYTES).map(|at| (at * 7 + at / 251) as u8).collect(),
            written: 0,
            read: vec![Vec::new(); RECEIVERS],
        }
    }

    /// Writes a piece, and takes all that leaves.
    fn leave(&mut self, len: usize) -> Packets {
        let piece = &self.content[self.written..(self.written + len).min(BYTES)];
        if self.written < BYTES {
            self.written += self.sender.send(self.now, self.group, piece).unwrap();
            if self.written == BYTES {
                self.sender.shutdown(self.now, self.group).unwrap();
            }
        }
        let mut packets = Packets::new();
        let mut buffer = vec![0; 40_000];
        loop {
            let polled = self
                .sender
                .poll_transmit_batch(self.now, &mut buffer, self.most);
            let Some(batch) = polled else { break };
            assert!(
                batch.segments <= self.most && batch.len <= batch.segments * batch.segment_size
            );
            let bytes = &buffer[..batch.len];
            let pieces = bytes.chunks(batch.segment_size);
            assert_eq!(pieces.len(), batch.segments);
            packets.extend(pieces.map(|bytes| (batch.destination, bytes.to_vec())));
        }
        packets
    }

    /// Packets arrive, but for those that `loses` names by their number.
    fn arrive(&mut self, packets: &Packets, loses: impl Fn(usize) -> bool) {
        for receiver in 0..RECEIVERS {
            let is_for = |to: &SocketAddr| to.ip().is_multicast() || to.ip() == address(receiver);
            let mine = packets.iter().enumerate();
            let mine = mine.filter(|(at, (to, _))| is_for(to) && !loses(at * RECEIVERS + receiver));
            let mine: Packets = mine.map(|(_, packet)| packet.clone()).collect();
            let (endpoint, _) = &mut self.receivers[receiver];
            let joins = |a: &(SocketAddr, Vec<u8>), b: &(SocketAddr, Vec<u8>)| {
                a.0 == b.0 && a.1.len() == b.1.len()
            };
            for together in mine.chunk_by(joins) {
                let meta = Meta {
                    source: SENDER,
                    destination: together[0].0.ip(),
                };
                let all: Vec<u8> = together.iter().flat_map(|(_, b)| b.clone()).collect();
                if self.most > 1 {
                    endpoint.handle_packets(self.now, &meta, &all, together[0].1.len());
                    continue;
                }
                for (_, bytes) in together {
                    let _ = endpoint.handle_packet(self.now, &meta, bytes);
                }
            }
        }
    }

    /// What the receivers read and answer.
    fn answer(&mut self) -> Packets {
        let mut answers = Packets::new();
        let mut buffer = vec![0; 40_000];
        for (number, (endpoint, connection)) in self.receivers.iter_mut().enumerate() {
            endpoint.handle_timeout(self.now);
            while endpoint.poll_event().is_some() {}
            *connection = connection.or_else(|| endpoint.accept(self.now, PORT));
            if let Some(id) = *connection
                && let Ok(Received::Data(len)) = endpoint.recv(self.now, id, &mut buffer)
            {
                self.read[number].extend_from_slice(&buffer[..len]);
            }
            let source = SocketAddr::new(address(number), PORT);
            while let Some(transmit) = endpoint.poll_transmit(self.now, &mut buffer) {
                let bytes = buffer[..transmit.len].to_vec();
                let destination = transmit.destination.ip();
                let meta = Meta {
                    source,
                    destination,
                };
                let _ = self.sender.handle_packet(self.now, &meta, &bytes);
                answers.push((source, bytes));
            }
        }
        while self.sender.poll_event().is_some() {}
        self.now += Duration::from_millis(1);
        self.sender.handle_timeout(self.now);
        answers
    }
}

/// Plays the same twice: packets by themselves, and `most` at once.
fn compare(most: usize, carrier: Carrier, mode: GroupMode, key: Option<SegmentKey>) {
    let mut one = World::new(1, carrier, mode, key);
    let mut many = World::new(most, carrier, mode, key);
    let mut together = 0;
    for round in 0..4000 {
        let len = 1 + round * 7919 % 30_000;
        let left = one.leave(len);
        assert_eq!(left, many.leave(len), "{most} in round {round}");
        together += usize::from(left.len() > 20);
        let loses = |at: usize| (at * 31 + round * 17).is_multiple_of(97);
        one.arrive(&left, loses);
        many.arrive(&left, loses);
        assert_eq!(one.answer(), many.answer(), "{most} in round {round}");
        if one.read.iter().all(|read| read.len() == BYTES) {
            break;
        }
    }
    assert!(one.read.iter().all(|read| *read == one.content));
    assert_eq!(one.read, many.read);
    assert!(together > 0, "nothing left together");
    let stats = |world: &World| {
        let receivers = world.receivers.iter();
        let receivers = receivers.map(|(receiver, _)| receiver.stats());
        let all = receivers.chain([world.sender.stats()]);
        all.map(|stats| format!("{stats:?}"))
            .collect::<Vec<String>>()
    };
    assert_eq!(stats(&one), stats(&many));
}

#[test]
fn many_at_once_are_the_same_as_one_by_one() {
    for carrier in [Carrier::Udp, Carrier::Ip] {
        for mode in [GroupMode::Auto, GroupMode::Unicast] {
            for key in [None, Some(SegmentKey([5; 16]))] {
                for most in [2, 7, 64] {
                    compare(most, carrier, mode, key);
                }
            }
        }
    }
}
