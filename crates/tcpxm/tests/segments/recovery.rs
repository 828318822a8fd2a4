//! What a sender does about losses when little or nothing is in flight any more: its receivers are made
//! by hand, and time is virtual.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tcpxm::store::Ring;
use tcpxm::wire::{GroupOption, Options, Segment};
use tcpxm::{
    Config, CongestionControl, ConnId, ConnStats, Duration, Endpoint, GroupChoice, GroupConfig,
    GroupId, Instant, Meta, Seq, Stats,
};

use crate::hand::{ACK, Hand, PORT, flags, ip};

/// Bytes of a segment, and the round trip of the handshake, which is what the path is known by.
const SEGMENT: u32 = 1000;
const ROUND_TRIP_MS: u64 = 20;

const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 192, 0, 99));

#[derive(Clone, Copy, PartialEq, Eq)]
enum GroupAnswer {
    None,
    Offered,
}

/// A group in step whose receivers get everything by unicast, and acknowledge what a test says.
struct Sender {
    endpoint: Endpoint<Ring>,
    group: GroupId,
    now: Instant,
    iss: Seq,
}

impl Sender {
    fn new(config: Config, receivers: u8) -> Self {
        Self::with_group(config, receivers, GroupAnswer::None)
    }

    /// `answer`: what the receivers say to the group that is offered.
    fn with_group(config: Config, receivers: u8, answer_group: GroupAnswer) -> Self {
        let now = Instant::from_secs(1);
        let mut endpoint = Endpoint::new(config, [3; 32], now);
        let addresses = (1..=receivers).map(|n| IpAddr::from([10, 0, 0, n]));
        let local = "10.0.1.1:4444".parse().unwrap();
        let mut group = GroupConfig::new(local, addresses.collect(), PORT);
        group.group = GroupChoice::Given(GROUP);
        let group = endpoint
            .open_group(now, &group, Ring::new(1 << 20))
            .unwrap();
        let mut sender = Self {
            endpoint,
            group,
            now,
            iss: Seq(0),
        };
        let syns = sender.segments();
        assert_eq!(syns.len(), usize::from(receivers));
        sender.iss = Seq(syns[0].1);
        sender.wait(ROUND_TRIP_MS);
        for n in 1..=receivers {
            let mut answer = sender.segment(0, &[]);
            answer.flags = flags("SA");
            answer.seq = Seq(100);
            answer.ack = sender.iss.plus(1);
            answer.options.mss = Some(SEGMENT as u16);
            answer.options.sack_permitted = true;
            if answer_group == GroupAnswer::Offered {
                answer.options.group = Some(GroupOption::Named(GROUP));
            }
            sender.inject(n, &answer);
        }
        sender
    }

    /// An acknowledgement of this number of segments, and of those in these ranges.
    fn segment(&self, segments: u32, ranges: &[(u32, u32)]) -> Segment<'static> {
        let at = |segment: u32| self.iss.plus(1 + segment * SEGMENT);
        let mut options = Options::default();
        for (from, to) in ranges {
            options.sack.push((at(*from), at(*to)));
        }
        Segment {
            source_port: PORT,
            destination_port: 4444,
            seq: Seq(101),
            ack: at(segments),
            flags: ACK,
            window: 60_000,
            options,
            payload: &[],
        }
    }

    fn inject(&mut self, from: u8, segment: &Segment<'_>) {
        let mut bytes = vec![0; segment.buffer_len()];
        segment.emit(&mut bytes);
        let source = SocketAddr::new(IpAddr::from([10, 0, 0, from]), PORT);
        let destination = ip("10.0.1.1");
        let meta = Meta {
            source,
            destination,
        };
        self.endpoint
            .handle_packet(self.now, &meta, &bytes)
            .unwrap();
    }

    fn acknowledge(&mut self, from: u8, segments: u32, ranges: &[(u32, u32)]) {
        self.inject(from, &self.segment(segments, ranges));
    }

    fn write(&mut self, segments: u32) {
        let bytes = vec![7; (segments * SEGMENT) as usize];
        let sent = self.endpoint.send(self.now, self.group, &bytes).unwrap();
        assert_eq!(sent, bytes.len());
    }

    /// Receiver, sequence number and length of what is sent now.
    fn segments(&mut self) -> Vec<(u8, u32, usize)> {
        let mut buffer = [0; 1500];
        let mut all = Vec::new();
        while let Some(transmit) = self.endpoint.poll_transmit(self.now, &mut buffer) {
            let segment = Segment::parse(&buffer[..transmit.len]).unwrap();
            let IpAddr::V4(to) = transmit.destination.ip() else {
                panic!("the test is IPv4");
            };
            all.push((to.octets()[3], segment.seq.0, segment.payload.len()));
        }
        all
    }

    /// The segments of data that are sent to a receiver now, by number.
    fn sent(&mut self, to: u8) -> Vec<u32> {
        let base = self.iss.plus(1).0;
        let all = self.segments().into_iter();
        all.filter(|(receiver, _, len)| *receiver == to && *len > 0)
            .map(|(_, seq, _)| seq.wrapping_sub(base) / SEGMENT)
            .collect()
    }

    fn wait(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.endpoint.handle_timeout(self.now);
    }

    /// Waits until something is sent to a receiver: what, and after how many milliseconds.
    fn wait_for(&mut self, to: u8, most_ms: u64) -> (Vec<u32>, u64) {
        for ms in 1..=most_ms {
            self.wait(1);
            let sent = self.sent(to);
            if !sent.is_empty() {
                return (sent, ms);
            }
        }
        panic!("nothing in {most_ms} ms");
    }

    fn member(&self, number: u8) -> ConnId {
        let mut members = self.endpoint.members(self.group).unwrap();
        members.nth(usize::from(number) - 1).unwrap()
    }

    fn state(&self, number: u8) -> ConnStats {
        self.endpoint.conn_stats(self.member(number)).unwrap()
    }

    fn stats(&self) -> &Stats {
        self.endpoint.stats()
    }
}

/// A round trip passes, and all is acknowledged but segment 8: one that was sent later has arrived, so
/// that the loss is certain only when the reordering window has passed.
fn lose_segment_8(sender: &mut Sender) {
    sender.write(10);
    assert_eq!(sender.sent(1), (0..10).collect::<Vec<_>>());
    sender.wait(ROUND_TRIP_MS);
    sender.acknowledge(1, 8, &[(9, 10)]);
    assert_eq!(sender.sent(1), []);
    let (repair, _) = sender.wait_for(1, ROUND_TRIP_MS);
    assert_eq!(repair, [8]);
}

/// A receiver acknowledges a flight whole but for one segment, while another one holds the group back:
/// nothing is in flight when the loss is found. What was acknowledged is what new data may follow for,
/// and its acknowledgements show at once that the repair is lost too.
#[test]
fn a_loss_found_with_nothing_in_flight_leaves_room_for_new_data() {
    let mut sender = Sender::new(Config::default(), 2);
    lose_segment_8(&mut sender);
    sender.write(20);
    assert_eq!(
        sender.sent(1),
        [],
        "the other receiver has acknowledged nothing"
    );
    sender.acknowledge(2, 10, &[]);
    let new = sender.sent(1);
    // Nine segments arrived, the window is 70 % of ten, and the repair is in flight.
    assert_eq!(new, (10..16).collect::<Vec<_>>());
    // The repair is lost, what was sent after it is not.
    sender.wait(ROUND_TRIP_MS);
    sender.acknowledge(1, 8, &[(9, 16)]);
    let mut again = sender.sent(1);
    if again.is_empty() {
        again = sender.wait_for(1, ROUND_TRIP_MS).0;
    }
    assert_eq!(again[0], 8);
    assert_eq!(sender.stats().timeouts, 0);
}

/// Where there is no new data to send either, nothing can show that the repair is lost: it is sent once
/// more after two round trips. The retransmission timeout, which stops a whole group for 200 ms, is left
/// for a path that takes nothing.
#[test]
fn a_lost_repair_with_nothing_behind_it_is_sent_again_before_the_timeout() {
    let mut sender = Sender::new(Config::default(), 1);
    lose_segment_8(&mut sender);
    let (again, after_ms) = sender.wait_for(1, 150);
    assert_eq!(again, [8]);
    assert!((40..=60).contains(&after_ms), "{after_ms} ms");
    assert_eq!((sender.stats().timeouts, sender.stats().probes), (0, 1));
    // One probe; the next is the timeout's.
    for _ in 0..190 {
        sender.wait(1);
        assert_eq!(sender.sent(1), []);
    }
    let (again, _) = sender.wait_for(1, 30);
    assert_eq!((again, sender.stats().timeouts), (vec![8], 1));
    sender.acknowledge(1, 10, &[]);
    sender.write(1);
    assert_eq!(sender.sent(1), [10]);
}

/// The probe for a lone segment allows for the delay of its acknowledgement, and still comes before the
/// timeout (RFC 8985 §7.2).
#[test]
fn a_lone_segment_is_probed_before_the_timeout() {
    for (peer_ack_delay_ms, expected_ms) in [(40, 75..=90), (500, 195..=205)] {
        let mut config = Config::default();
        config.peer_ack_delay = Duration::from_millis(peer_ack_delay_ms);
        let mut sender = Sender::new(config, 1);
        sender.write(1);
        assert_eq!(sender.sent(1), [0]);
        let (again, after_ms) = sender.wait_for(1, 300);
        assert_eq!(again, [0]);
        assert!(expected_ms.contains(&after_ms), "{after_ms} ms");
        let stats = sender.stats();
        assert_eq!((stats.timeouts, stats.probes), (0, 1), "{after_ms} ms");
    }
}

/// While it is not known whether multicast works, each segment goes by unicast and by multicast. A hole among those that
/// came by multicast is no loss while its unicast copy may be on its way.
#[test]
fn of_two_copies_the_later_one_has_its_time() {
    for (answer, at_once) in [(GroupAnswer::None, true), (GroupAnswer::Offered, false)] {
        let mut sender = Sender::with_group(Config::default(), 1, answer);
        sender.write(10);
        assert_eq!(sender.sent(1).len(), 10);
        let before = sender.state(1).congestion_window;
        sender.wait(ROUND_TRIP_MS);
        sender.acknowledge(1, 0, &[(1, 10)]);
        assert_eq!(sender.sent(1) == [0], at_once);
        if at_once {
            continue;
        }
        assert_eq!(sender.state(1).congestion_window, before);
        let (again, after_ms) = sender.wait_for(1, 300);
        assert_eq!((again, after_ms), (vec![0], 50));
    }
}

/// RFC 5681 §3.1 and RFC 9438 §4.6 reduce what was in flight. That is not what is left of it when the
/// rest has arrived before the loss is found.
#[test]
fn the_window_is_reduced_from_what_was_in_flight_when_the_segment_was_lost() {
    for (congestion_control, segments) in [
        (CongestionControl::NewReno, 5),
        (CongestionControl::Cubic, 7),
    ] {
        let mut config = Config::default();
        config.congestion_control = congestion_control;
        let mut sender = Sender::new(config, 1);
        lose_segment_8(&mut sender);
        sender.wait(ROUND_TRIP_MS);
        sender.acknowledge(1, 10, &[]);
        let window = sender.state(1).congestion_window;
        assert_eq!(
            window / u64::from(SEGMENT),
            segments,
            "{congestion_control:?}"
        );
    }
}

/// A flight of a group leaves, and both receivers acknowledge it; how many segments it had.
fn round(sender: &mut Sender) -> u32 {
    let flight = sender.sent(1);
    let (Some(first), Some(last)) = (flight.first(), flight.last()) else {
        return 0;
    };
    let (first, last) = (*first, *last);
    sender.wait(ROUND_TRIP_MS);
    for receiver in [1, 2] {
        sender.acknowledge(receiver, last + 1, &[]);
    }
    last + 1 - first
}

/// Two receivers, the first of which has lost a segment and is the narrowest since; the window of the
/// second has grown to twice what the first lets go. Then the second one loses a segment.
#[test]
fn one_loss_at_a_receiver_that_is_not_the_narrowest_slows_the_group_down() {
    for congestion_control in [CongestionControl::NewReno, CongestionControl::Cubic] {
        let mut config = Config::default();
        config.congestion_control = congestion_control;
        let mut sender = Sender::new(config, 2);
        lose_segment_8(&mut sender);
        sender.acknowledge(2, 10, &[]);
        sender.acknowledge(1, 10, &[]);
        sender.write(500);
        for _ in 0..10 {
            round(&mut sender);
        }
        let before = round(&mut sender);
        let windows = [1, 2].map(|n| sender.state(n).congestion_window / u64::from(SEGMENT));
        assert!(windows[1] * 2 > windows[0] * 3, "{windows:?}");
        let flight = sender.sent(1);
        let (first, last) = (flight[0], flight[flight.len() - 1]);
        sender.wait(ROUND_TRIP_MS);
        sender.acknowledge(1, last + 1, &[]);
        sender.acknowledge(2, first, &[(first + 1, last + 1)]);
        // What may follow already, and the repair.
        let highest = sender.sent(1).last().map_or(last, |new| *new);
        sender.wait(ROUND_TRIP_MS);
        for receiver in [1, 2] {
            sender.acknowledge(receiver, highest + 1, &[]);
        }
        let after = round(&mut sender);
        // Half, or 70 %, and what the window has grown by in the round trips since.
        let most = match congestion_control {
            CongestionControl::NewReno => before / 2 + 2,
            CongestionControl::Cubic | CongestionControl::Bbr => before * 7 / 10 + 2,
        };
        assert!(after > 1 && after <= most, "{before}, then {after}");
    }
}

/// RFC 7661 §4.3: where another receiver's window is in the way, one grows as long as half of it is carried.
#[test]
fn the_wider_window_of_a_receiver_does_not_grow_beyond_twice_what_is_carried() {
    let mut config = Config::default();
    config.congestion_control = CongestionControl::NewReno;
    let mut sender = Sender::new(config, 2);
    lose_segment_8(&mut sender);
    sender.acknowledge(2, 10, &[]);
    sender.acknowledge(1, 10, &[]);
    sender.write(500);
    let windows =
        |sender: &Sender| [1, 2].map(|n| sender.state(n).congestion_window / u64::from(SEGMENT));
    assert_eq!(windows(&sender), [5, 10]);
    assert_eq!(round(&mut sender), 5);
    assert_eq!(windows(&sender), [6, 10], "twice five were there");
    assert_eq!(round(&mut sender), 6);
    assert!(windows(&sender)[1] > 10);
}

/// A receiver that has just seen a loss acknowledges the next segments one by one, as Linux does: the
/// sender may have room for one only, and its whole group waits for the acknowledgement.
#[test]
fn a_receiver_acknowledges_every_segment_after_a_loss() {
    let mut hand = Hand::grouped();
    let (seq, ack) = (hand.seq, hand.ack);
    let give = |hand: &mut Hand, segment: u32, to: &str| {
        let data = hand.segment(seq.plus(4 * segment), ack, flags("A"), b"data");
        hand.inject(&data, to).unwrap();
        hand.sent().len()
    };
    let group = crate::hand::GROUP;
    assert_eq!(give(&mut hand, 0, group), 0, "delayed");
    assert_eq!(give(&mut hand, 1, group), 1, "every second segment");
    assert_eq!(give(&mut hand, 3, group), 1, "a hole");
    assert_eq!(give(&mut hand, 2, "10.0.0.1"), 1, "it is filled");
    for segment in 4..20 {
        assert_eq!(give(&mut hand, segment, group), 1, "{segment}");
    }
    assert_eq!(give(&mut hand, 20, group), 0, "delayed again");
    assert_eq!(give(&mut hand, 21, group), 1);
    // By unicast comes what its sender knows, or suspects, to be lost.
    assert_eq!(give(&mut hand, 22, "10.0.0.1"), 1, "a lone repair");
}
