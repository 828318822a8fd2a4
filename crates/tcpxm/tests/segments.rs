//! Single segments, made by hand: what RFC 9293, RFC 5961 and RFC 7323 ask for, and what forgers and
//! floods get.

use std::net::{IpAddr, SocketAddr};

use tcpxm::store::{Lengths, Ring, Whole};
use tcpxm::wire::{Feedback, Flags, GroupOption, Options, Segment};
use tcpxm::{
    Config, ConnId, Duration, Endpoint, Error, Event, Failure, GroupConfig, GroupId, Instant, Meta,
    Mode, Received, Seq, State,
};

const PORT: u16 = 7000;
const PEER_PORT: u16 = 5000;
const ISS: Seq = Seq(0xffff_ff00); // wraps soon
const GROUP: &str = "239.192.3.4";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// An endpoint, and a peer whose segments are made by hand.
struct Hand {
    endpoint: Endpoint<Ring>,
    now: Instant,
    /// The peer's next sequence number, and the endpoint's.
    seq: Seq,
    ack: Seq,
    id: Option<ConnId>,
}

struct Sent {
    seq: Seq,
    ack: Seq,
    flags: Flags,
    window: u16,
    options: Options,
    payload: Vec<u8>,
}

const ACK: Flags = Flags {
    syn: false,
    fin: false,
    rst: false,
    psh: false,
    ack: true,
    urg: false,
};

fn flags(text: &str) -> Flags {
    let has = |letter| text.contains(letter);
    Flags {
        syn: has('S'),
        fin: has('F'),
        rst: has('R'),
        psh: has('P'),
        ack: has('A'),
        urg: has('U'),
    }
}

impl Hand {
    fn new(config: Config) -> Self {
        let now = Instant::ZERO;
        let mut endpoint = Endpoint::new(config, [7; 32], now);
        endpoint.listen(now, PORT).unwrap();
        Self {
            endpoint,
            now,
            seq: ISS,
            ack: Seq(0),
            id: None,
        }
    }

    fn segment<'a>(&self, seq: Seq, ack: Seq, flags: Flags, payload: &'a [u8]) -> Segment<'a> {
        Segment {
            source_port: PEER_PORT,
            destination_port: PORT,
            seq,
            ack,
            flags,
            window: 60_000,
            options: Options::default(),
            payload,
        }
    }

    fn inject(&mut self, segment: &Segment<'_>, to: &str) -> Result<(), Error> {
        let mut bytes = vec![0; segment.buffer_len()];
        segment.emit(&mut bytes);
        let meta = Meta {
            source: SocketAddr::new(ip("10.0.0.9"), PEER_PORT),
            destination: ip(to),
        };
        self.endpoint.handle_packet(self.now, &meta, &bytes)
    }

    fn give(&mut self, seq: Seq, ack: Seq, flag_text: &str, payload: &[u8]) -> Result<(), Error> {
        let segment = self.segment(seq, ack, flags(flag_text), payload);
        self.inject(&segment, "10.0.0.1")
    }

    fn sent(&mut self) -> Vec<Sent> {
        let mut buffer = [0; 1500];
        let mut all = Vec::new();
        while let Some(transmit) = self.endpoint.poll_transmit(self.now, &mut buffer) {
            let segment = Segment::parse(&buffer[..transmit.len]).unwrap();
            all.push(Sent {
                seq: segment.seq,
                ack: segment.ack,
                flags: segment.flags,
                window: segment.window,
                options: segment.options,
                payload: segment.payload.to_vec(),
            });
        }
        all
    }

    fn wait(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.endpoint.handle_timeout(self.now);
    }

    /// Completes a handshake with these options in the SYN.
    fn establish(config: Config, options: Options) -> Self {
        let mut hand = Self::new(config);
        let mut syn = hand.segment(ISS, Seq(0), flags("S"), &[]);
        syn.options = options;
        hand.inject(&syn, "10.0.0.1").unwrap();
        let answer = hand.sent().pop().unwrap();
        assert!(answer.flags.syn && answer.flags.ack && answer.ack == ISS.plus(1));
        hand.seq = ISS.plus(1);
        hand.ack = answer.seq.plus(1);
        let mut ack = hand.segment(hand.seq, hand.ack, ACK, &[]);
        ack.options.timestamps = options.timestamps;
        hand.inject(&ack, "10.0.0.1").unwrap();
        hand.id = hand.endpoint.accept(hand.now, PORT);
        assert_eq!(hand.state(), State::Established);
        hand
    }

    fn plain() -> Self {
        Self::establish(
            Config::default(),
            Options {
                mss: Some(1000),
                ..Options::default()
            },
        )
    }

    fn grouped() -> Self {
        let group = Some(GroupOption(ip(GROUP)));
        Self::establish(
            Config::default(),
            Options {
                mss: Some(1000),
                group,
                ..Options::default()
            },
        )
    }

    fn state(&self) -> State {
        self.endpoint.conn_stats(self.id.unwrap()).unwrap().state
    }

    fn read(&mut self) -> Vec<u8> {
        let mut out = vec![0; 1 << 20];
        match self.endpoint.recv(self.now, self.id.unwrap(), &mut out) {
            Ok(Received::Data(len)) => out[..len].to_vec(),
            _ => Vec::new(),
        }
    }

    /// Nothing was sent but one empty acknowledgement of where things are.
    fn assert_challenge(&mut self) {
        let sent = self.sent();
        assert_eq!(sent.len(), 1);
        assert_eq!(
            (sent[0].flags, sent[0].seq, sent[0].ack),
            (ACK, self.ack, self.seq)
        );
        assert!(sent[0].payload.is_empty());
    }
}

#[test]
fn a_reset_counts_only_at_the_very_next_number() {
    // RFC 5961 §3.2, for a spread of wrong guesses, on either side of the wrap.
    for offset in [1, 100, 60_000] {
        let mut hand = Hand::plain();
        let seq = hand.seq.plus(offset);
        assert_eq!(
            hand.give(seq, Seq(0), "R", &[]),
            Err(Error::ResetChallenged)
        );
        hand.assert_challenge();
        assert_eq!(hand.state(), State::Established);
    }
    for offset in [-1i32, -5000, i32::MIN + 1] {
        let mut hand = Hand::plain();
        let seq = hand.seq.plus(offset as u32);
        assert_eq!(hand.give(seq, Seq(0), "R", &[]), Err(Error::ResetWindow));
        assert!(hand.sent().is_empty());
        assert_eq!(hand.state(), State::Established);
    }
    let mut hand = Hand::plain();
    let seq = hand.seq;
    assert_eq!(hand.give(seq, Seq(0), "R", &[]), Ok(()));
    assert_eq!(hand.state(), State::Closed);
    assert!(hand.sent().is_empty(), "a reset is not answered");
    let closed = std::iter::from_fn(|| hand.endpoint.poll_event()).any(|event| {
        matches!(
            event,
            Event::Closed {
                failure: Some(Failure::Reset),
                ..
            }
        )
    });
    assert!(closed);
}

#[test]
fn a_syn_on_a_connection_is_challenged() {
    // RFC 5961 §4.2, whatever its number.
    for offset in [0u32, 1, 70_000, 0x8000_0000, u32::MAX] {
        for text in ["S", "SA"] {
            let mut hand = Hand::plain();
            let (seq, ack) = (hand.seq.plus(offset), hand.ack);
            assert_eq!(hand.give(seq, ack, text, &[]), Err(Error::SynChallenged));
            hand.assert_challenge();
            assert_eq!(hand.state(), State::Established);
        }
    }
}

#[test]
fn acknowledgements_of_the_unsent_and_of_long_ago_are_challenged() {
    // RFC 5961 §5.2; data that comes with them is not taken.
    for offset in [
        1u32,
        100_000,
        0x7fff_ffff,
        0u32.wrapping_sub(70_000),
        0x8000_0001,
    ] {
        let mut hand = Hand::plain();
        let (seq, ack) = (hand.seq, hand.ack.plus(offset));
        assert_eq!(
            hand.give(seq, ack, "A", b"forged"),
            Err(Error::AckChallenged),
            "{offset}"
        );
        hand.assert_challenge();
        assert!(hand.read().is_empty());
    }
}

#[test]
fn challenges_have_a_rate() {
    let mut hand = Hand::plain();
    let mut answers = 0;
    for _ in 0..1000 {
        let seq = hand.seq.plus(5);
        hand.give(seq, Seq(0), "R", &[]).unwrap_err();
        answers += hand.sent().len();
    }
    assert_eq!(answers, 10);
    assert_eq!(hand.endpoint.stats().challenges_suppressed, 990);
    hand.wait(1000);
    let seq = hand.seq.plus(5);
    hand.give(seq, Seq(0), "R", &[]).unwrap_err();
    hand.assert_challenge();
}

#[test]
fn segments_without_ack_and_out_of_the_window_change_nothing() {
    let mut hand = Hand::plain();
    let (seq, ack) = (hand.seq, hand.ack);
    assert_eq!(hand.give(seq, ack, "P", b"x"), Err(Error::NoAck));
    assert!(hand.sent().is_empty());
    assert_eq!(
        hand.give(seq.plus(1 << 30), ack, "A", b"x"),
        Err(Error::Window)
    );
    hand.assert_challenge();
    assert_eq!(
        hand.give(seq.minus(2), ack, "A", b"xx"),
        Err(Error::Duplicate)
    );
    hand.assert_challenge();
    assert_eq!(
        hand.give(seq.minus(1), ack, "A", &[]),
        Err(Error::Window),
        "keep-alive probe"
    );
    hand.assert_challenge();
    assert!(hand.read().is_empty());
}

#[test]
fn data_is_put_in_order_across_the_wrap() {
    let mut hand = Hand::plain();
    let (seq, ack) = (hand.seq, hand.ack);
    let content: Vec<u8> = (0..2000u64).map(Lengths::byte).collect();
    assert!(seq.plus(2000).0 < seq.0, "the numbers wrap");
    for start in [1000, 1500, 500, 300] {
        hand.give(
            seq.plus(start),
            ack,
            "A",
            &content[start as usize..start as usize + 500],
        )
        .unwrap();
        let sent = hand.sent();
        assert_eq!(sent.len(), 1, "each hole is told at once");
        assert_eq!(sent[0].ack, seq);
    }
    hand.give(seq, ack, "A", &content[..600]).unwrap();
    assert_eq!(hand.sent()[0].ack, seq.plus(2000));
    assert_eq!(hand.read(), content);
}

#[test]
fn sack_blocks_show_the_newest_first_and_a_duplicate_once() {
    let options = Options {
        mss: Some(1000),
        sack_permitted: true,
        ..Options::default()
    };
    let mut hand = Hand::establish(Config::default(), options);
    let (seq, ack) = (hand.seq, hand.ack);
    let block = |from: u32, to: u32| (seq.plus(from), seq.plus(to));
    hand.give(seq.plus(100), ack, "A", &[0; 100]).unwrap();
    assert_eq!(hand.sent()[0].options.sack.as_slice(), [block(100, 200)]);
    hand.give(seq.plus(300), ack, "A", &[0; 100]).unwrap();
    let sent = hand.sent();
    assert_eq!(
        sent[0].options.sack.as_slice(),
        [block(300, 400), block(100, 200)]
    );
    // RFC 2883 §4.2.
    assert_eq!(
        hand.give(seq.plus(100), ack, "A", &[0; 100]),
        Err(Error::Duplicate)
    );
    let sent = hand.sent();
    assert_eq!(sent[0].options.sack.as_slice()[0], block(100, 200));
    assert_eq!(sent[0].options.sack.len(), 3);
    hand.give(seq, ack, "A", &[0; 100]).unwrap();
    let sent = hand.sent();
    assert_eq!(
        (sent[0].ack, sent[0].options.sack.as_slice()),
        (seq.plus(200), &[block(300, 400)][..])
    );
}

#[test]
fn old_timestamps_are_refused() {
    // RFC 7323 §5.
    let options = Options {
        mss: Some(1000),
        timestamps: Some((1000, 0)),
        ..Options::default()
    };
    let mut hand = Hand::establish(Config::default(), options);
    let (seq, ack) = (hand.seq, hand.ack);
    let give = |hand: &mut Hand, stamp: u32, at: u32| {
        let mut segment = hand.segment(seq.plus(at), ack, ACK, b"data");
        segment.options.timestamps = Some((stamp, 0));
        hand.inject(&segment, "10.0.0.1")
    };
    assert_eq!(give(&mut hand, 2000, 0), Ok(()));
    hand.wait(50);
    assert_eq!(hand.sent()[0].options.timestamps.unwrap().1, 2000, "echoed");
    assert_eq!(give(&mut hand, 1999, 4), Err(Error::Paws));
    assert_eq!(give(&mut hand, 2001, 4), Ok(()));
    assert_eq!(hand.read(), b"datadata");
}

#[test]
fn acknowledgements_are_delayed_and_every_second_segment_is_told() {
    let mut hand = Hand::plain();
    let (seq, ack) = (hand.seq, hand.ack);
    hand.give(seq, ack, "A", &[0; 100]).unwrap();
    assert!(hand.sent().is_empty());
    hand.wait(39);
    assert!(hand.sent().is_empty());
    hand.wait(1);
    assert_eq!(hand.sent()[0].ack, seq.plus(100));
    hand.give(seq.plus(100), ack, "A", &[0; 100]).unwrap();
    hand.give(seq.plus(200), ack, "A", &[0; 100]).unwrap();
    assert_eq!(hand.sent()[0].ack, seq.plus(300));
    hand.wait(100);
    assert!(hand.sent().is_empty());
}

#[test]
fn the_window_closes_stays_and_opens_without_shrinking() {
    let small = Config {
        receive_buffer: 4096,
        ..Config::default()
    };
    let mut hand = Hand::establish(
        small,
        Options {
            mss: Some(1000),
            ..Options::default()
        },
    );
    let (seq, ack) = (hand.seq, hand.ack);
    let mut edge = 0;
    for n in 0..4 {
        hand.give(seq.plus(n * 1024), ack, "A", &[n as u8; 1024])
            .unwrap();
        hand.wait(40);
        for sent in hand.sent() {
            let right = sent.ack.since(seq) + i32::from(sent.window);
            assert!(right >= edge, "the window shrank");
            edge = right;
        }
    }
    assert_eq!(edge, 4096);
    // A probe with data is refused and answered; one byte read opens nothing (silly window).
    assert_eq!(
        hand.give(seq.plus(4096), ack, "A", b"p"),
        Err(Error::Window)
    );
    let sent = hand.sent();
    assert_eq!((sent[0].ack, sent[0].window), (seq.plus(4096), 0));
    let mut one = [0];
    hand.endpoint
        .recv(hand.now, hand.id.unwrap(), &mut one)
        .unwrap();
    hand.wait(100);
    assert!(hand.sent().is_empty());
    assert_eq!(hand.read().len(), 4095);
    let sent = hand.sent();
    assert_eq!((sent[0].ack, sent[0].window), (seq.plus(4096), 4096));
}

#[test]
fn on_the_group_address_only_data_counts() {
    for text in ["S", "SA", "F", "FA", "R", "RA", "UA", "A"] {
        let mut hand = Hand::grouped();
        let (seq, ack) = (hand.seq, hand.ack);
        let payload: &[u8] = if text == "A" { &[] } else { b"data" };
        let segment = hand.segment(seq, ack, flags(text), payload);
        assert_eq!(
            hand.inject(&segment, GROUP),
            Err(Error::GroupControl),
            "{text}"
        );
        hand.wait(100);
        assert!(hand.sent().is_empty());
        assert_eq!(hand.state(), State::Established);
        assert!(hand.read().is_empty());
    }
    let mut hand = Hand::grouped();
    let (seq, ack) = (hand.seq, hand.ack);
    // Acknowledgement and window are nonsense there, and ignored.
    let mut data = hand.segment(seq, ack.plus(0x4000_0000), flags("PA"), b"data");
    data.window = 0;
    assert_eq!(hand.inject(&data, GROUP), Ok(()));
    assert_eq!(hand.read(), b"data");
    assert_eq!(
        hand.inject(&data, "239.192.3.5"),
        Err(Error::GroupUnknown),
        "another group"
    );
    let far = hand.segment(seq.plus(1 << 30), ack, flags("PA"), b"data");
    assert_eq!(hand.inject(&far, GROUP), Err(Error::Window));
    hand.wait(100);
    let sent = hand.sent();
    assert_eq!(sent.len(), 1, "nothing answers a forged group segment");
    assert_eq!(sent[0].options.feedback, Some(Feedback { percent: 100 }));
}

#[test]
fn a_plain_connection_takes_nothing_from_groups() {
    let mut hand = Hand::plain();
    let segment = hand.segment(hand.seq, hand.ack, flags("PA"), b"data");
    assert_eq!(hand.inject(&segment, GROUP), Err(Error::GroupUnknown));
    assert!(hand.read().is_empty());
}

#[test]
fn the_two_rules_on_duplicates_and_the_owed_acknowledgement() {
    // TCP-XM §2.4.
    for (first, second, at_once) in [
        (GROUP, GROUP, false),
        ("10.0.0.1", GROUP, false),
        (GROUP, "10.0.0.1", false),
        ("10.0.0.1", "10.0.0.1", true),
    ] {
        let mut hand = Hand::grouped();
        let segment = hand.segment(hand.seq, hand.ack, flags("PA"), b"data");
        hand.inject(&segment, first).unwrap();
        hand.wait(40);
        assert_eq!(hand.sent().len(), 1, "the original is acknowledged");
        assert_eq!(hand.inject(&segment, second), Err(Error::Duplicate));
        assert_eq!(hand.sent().len(), usize::from(at_once), "{first} {second}");
        hand.wait(40);
        let owed = hand.sent();
        assert_eq!(owed.len(), usize::from(!at_once), "{first} {second}");
        assert_eq!(hand.read(), b"data");
    }
}

#[test]
fn a_receiver_joins_after_the_handshake_and_leaves_at_the_fin() {
    let group = Some(GroupOption(ip(GROUP)));
    let mut hand = Hand::new(Config::default());
    let mut syn = hand.segment(ISS, Seq(0), flags("S"), &[]);
    syn.options.group = group;
    hand.inject(&syn, "10.0.0.1").unwrap();
    assert_eq!(
        hand.endpoint.poll_event(),
        None,
        "nothing before the handshake is complete"
    );
    let answer = hand.sent().pop().unwrap();
    assert_eq!(answer.options.group, group);
    hand.give(ISS.plus(1), answer.seq.plus(1), "A", &[])
        .unwrap();
    let events: Vec<Event> = std::iter::from_fn(|| hand.endpoint.poll_event()).collect();
    let join = |event: &Event| {
        matches!(event, Event::Join { group, source, .. }
        if *group == ip(GROUP) && *source == ip("10.0.0.9"))
    };
    assert_eq!(events.iter().filter(|event| join(event)).count(), 1);
    hand.give(ISS.plus(1), answer.seq.plus(1), "FA", &[])
        .unwrap();
    let events: Vec<Event> = std::iter::from_fn(|| hand.endpoint.poll_event()).collect();
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::Leave { .. }))
    );
}

#[test]
fn a_flood_of_syns_is_bounded_and_a_real_peer_gets_in() {
    let config = Config {
        max_half_open: 64,
        ..Config::default()
    };
    let mut hand = Hand::new(config);
    for n in 0..10_000u32 {
        let mut syn = hand.segment(Seq(n), Seq(0), flags("S"), &[]);
        syn.source_port = (n % 60_000) as u16 + 1024;
        let mut bytes = vec![0; syn.buffer_len()];
        syn.emit(&mut bytes);
        let source = SocketAddr::new(IpAddr::from([10, 1, (n >> 8) as u8, n as u8]), 9);
        let meta = Meta {
            source,
            destination: ip("10.0.0.1"),
        };
        hand.endpoint
            .handle_packet(hand.now, &meta, &bytes)
            .unwrap();
        hand.sent();
        assert!(hand.endpoint.connections() <= 64);
    }
    assert_eq!(hand.endpoint.stats().half_open_evicted, 10_000 - 64);
    hand.inject(&hand.segment(ISS, Seq(0), flags("S"), &[]), "10.0.0.1")
        .unwrap();
    let answer = hand.sent().pop().unwrap();
    hand.give(ISS.plus(1), answer.seq.plus(1), "A", &[])
        .unwrap();
    assert!(hand.endpoint.accept(hand.now, PORT).is_some());
    // All others go by themselves.
    for _ in 0..100 {
        hand.wait(2000);
        hand.sent();
    }
    assert_eq!(hand.endpoint.connections(), 1);
}

#[test]
fn segments_for_nobody_are_reset_within_a_rate() {
    let mut hand = Hand::new(Config {
        resets_per_second: 5,
        ..Config::default()
    });
    for n in 0..20u32 {
        let mut segment = hand.segment(Seq(n), Seq(77), ACK, b"xyz");
        segment.destination_port = 1;
        assert_eq!(hand.inject(&segment, "10.0.0.1"), Err(Error::NoConnection));
    }
    let sent = hand.sent();
    assert_eq!(sent.len(), 5);
    assert!(
        sent.iter()
            .all(|s| s.flags.rst && s.seq == Seq(77) && s.payload.is_empty())
    );
    let mut syn = hand.segment(Seq(9), Seq(0), flags("S"), &[]);
    syn.destination_port = 1;
    hand.wait(1000);
    hand.inject(&syn, "10.0.0.1").unwrap_err();
    let sent = hand.sent();
    assert_eq!((sent[0].flags, sent[0].ack), (flags("RA"), Seq(10)));
    let mut reset = hand.segment(Seq(9), Seq(0), flags("R"), &[]);
    reset.destination_port = 1;
    hand.inject(&reset, "10.0.0.1").unwrap_err();
    assert!(
        hand.sent().is_empty(),
        "a reset is never answered by a reset"
    );
}

#[test]
fn any_bytes_and_any_bit_are_survived() {
    let mut hand = Hand::grouped();
    let (seq, ack) = (hand.seq, hand.ack);
    let mut segment = hand.segment(seq, ack, flags("PA"), b"some data");
    segment.options.timestamps = Some((1, 2));
    segment.options.feedback = Some(Feedback { percent: 50 });
    segment.options.sack.push((ack.plus(5), ack.plus(9)));
    let mut bytes = vec![0; segment.buffer_len()];
    segment.emit(&mut bytes);
    for to in ["10.0.0.1", GROUP] {
        let meta = Meta {
            source: SocketAddr::new(ip("10.0.0.9"), PEER_PORT),
            destination: ip(to),
        };
        for len in 0..bytes.len() {
            let _ = hand.endpoint.handle_packet(hand.now, &meta, &bytes[..len]);
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let _ = hand.endpoint.handle_packet(hand.now, &meta, &flipped);
            hand.wait(1);
            hand.sent();
            while hand.endpoint.poll_event().is_some() {}
        }
    }
    assert!(hand.endpoint.stats().drops.total() > 0);
}

/// A sender whose receivers are made by hand.
struct HandGroup {
    endpoint: Endpoint<Whole<Vec<u8>>>,
    id: GroupId,
    now: Instant,
    iss: Vec<Seq>,
    port: u16,
}

impl HandGroup {
    fn new(count: u8, answer: impl Fn(u8) -> Options) -> Self {
        let now = Instant::ZERO;
        let mut endpoint = Endpoint::new(Config::default(), [3; 32], now);
        let receivers = (1..=count).map(|n| IpAddr::from([10, 0, 0, n])).collect();
        let mut config = GroupConfig::new("10.0.1.1:4444".parse().unwrap(), receivers, PORT);
        config.group = tcpxm::GroupChoice::Given(ip(GROUP));
        let id = endpoint
            .open_group(now, &config, Whole::new(vec![5; 100_000]))
            .unwrap();
        let mut group = Self {
            endpoint,
            id,
            now,
            iss: Vec::new(),
            port: 4444,
        };
        let syns = group.sent();
        assert_eq!(syns.len(), usize::from(count));
        for (n, (_, syn)) in (1..=count).zip(&syns) {
            assert_eq!(syn.options.group, Some(GroupOption(ip(GROUP))));
            assert_eq!(
                syn.seq, syns[0].1.seq,
                "one initial sequence number for all"
            );
            assert_eq!(
                syn.options.timestamps, syns[0].1.options.timestamps,
                "one clock for all"
            );
            group.iss.push(syn.seq);
            let segment = Segment {
                source_port: PORT,
                destination_port: 4444,
                seq: Seq(100),
                ack: syn.seq.plus(1),
                flags: flags("SA"),
                window: 60_000,
                options: answer(n),
                payload: &[],
            };
            group.inject(n, &segment).unwrap();
        }
        group
    }

    fn inject(&mut self, from: u8, segment: &Segment<'_>) -> Result<(), Error> {
        let mut bytes = vec![0; segment.buffer_len()];
        segment.emit(&mut bytes);
        let source = SocketAddr::new(IpAddr::from([10, 0, 0, from]), PORT);
        let meta = Meta {
            source,
            destination: ip("10.0.1.1"),
        };
        self.endpoint.handle_packet(self.now, &meta, &bytes)
    }

    fn sent(&mut self) -> Vec<(IpAddr, Sent)> {
        let mut buffer = [0; 1500];
        let mut all = Vec::new();
        while let Some(transmit) = self.endpoint.poll_transmit(self.now, &mut buffer) {
            let segment = Segment::parse(&buffer[..transmit.len]).unwrap();
            assert_eq!(
                (segment.source_port, segment.destination_port),
                (self.port, PORT)
            );
            let sent = Sent {
                seq: segment.seq,
                ack: segment.ack,
                flags: segment.flags,
                window: segment.window,
                options: segment.options,
                payload: segment.payload.to_vec(),
            };
            all.push((transmit.destination.ip(), sent));
        }
        all
    }
}

#[test]
fn the_smallest_segment_and_the_smallest_window_rule() {
    let answer = |n: u8| Options {
        mss: Some(if n == 2 { 700 } else { 1400 }),
        group: (n != 3).then_some(GroupOption(ip(GROUP))),
        ..Options::default()
    };
    let mut group = HandGroup::new(3, answer);
    let sent = group.sent();
    let data: Vec<_> = sent.iter().filter(|(_, s)| !s.payload.is_empty()).collect();
    let to = |address: &str| data.iter().filter(|(to, _)| *to == ip(address)).count();
    // One multicast copy, and one for each receiver that may need it, of the same bytes.
    assert!(to(GROUP) > 0);
    for address in ["10.0.0.1", "10.0.0.2", "10.0.0.3"] {
        assert_eq!(to(address), to(GROUP), "{address}");
    }
    assert!(data.iter().all(|(_, s)| s.payload.len() == 700));
    for (to, s) in &data {
        if to.is_multicast() {
            assert_eq!((s.ack, s.window, s.flags), (Seq(0), 0, flags("PA")));
        }
    }
    // Ten segments of 700: the least initial window of all.
    assert_eq!(to(GROUP), 10);
    let members: Vec<ConnId> = group.endpoint.members(group.id).unwrap().collect();
    let modes: Vec<Mode> = members
        .iter()
        .map(|id| group.endpoint.conn_stats(*id).unwrap().mode)
        .collect();
    assert_eq!(
        modes,
        [
            Mode::UnicastGroup,
            Mode::UnicastGroup,
            Mode::UnicastGroupOnly
        ]
    );
}

#[test]
fn forward_at_fifty_per_cent_and_not_before_sixteen_segments() {
    let answer = |_| Options {
        mss: Some(1000),
        group: Some(GroupOption(ip(GROUP))),
        ..Options::default()
    };
    for (percent, segments, expected) in [
        (50, 16, Mode::Multicast),
        (49, 16, Mode::UnicastGroup),
        (100, 15, Mode::UnicastGroup),
    ] {
        let mut group = HandGroup::new(1, answer);
        let iss = group.iss[0];
        let mut acked = 0;
        while acked < segments {
            group.sent();
            acked = (acked + 8).min(segments);
            let last = acked == segments;
            let segment = Segment {
                source_port: PORT,
                destination_port: 4444,
                seq: Seq(101),
                ack: iss.plus(1 + acked * 1000),
                flags: ACK,
                window: 60_000,
                options: Options {
                    feedback: last.then_some(Feedback { percent }),
                    ..Options::default()
                },
                payload: &[],
            };
            group.inject(1, &segment).unwrap();
        }
        let member = group.endpoint.members(group.id).unwrap().next().unwrap();
        assert_eq!(
            group.endpoint.conn_stats(member).unwrap().mode,
            expected,
            "{percent} {segments}"
        );
    }
}
