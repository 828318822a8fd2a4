//! A receiver with a key, and an attacker that receives everything the sender sends.

use std::net::SocketAddr;

use crate::group::{HandGroup, accepts};
use crate::hand::{ACK, GROUP, Hand, ISS, PEER_PORT, PORT, flags, ip};
use tcpxm::wire::{GroupOption, Options, Place, Segment, SegmentKey, Tag};
use tcpxm::{Config, Error, Meta, Seq, State};

const KEY: SegmentKey = SegmentKey([9; 16]);
const HERE: &str = "10.0.0.1";

/// A receiver that listens with the key, and the first byte of whose stream has been sent.
struct Keyed {
    hand: Hand,
    stamp: u32,
}

impl Keyed {
    fn new() -> Self {
        let mut hand = Hand::new(Config::default());
        hand.endpoint.unlisten(hand.now, PORT).unwrap();
        hand.endpoint.listen_keyed(hand.now, PORT, KEY).unwrap();
        let mut syn = hand.segment(ISS, Seq(0), flags("S"), &[]);
        syn.options = Options {
            mss: Some(1000),
            timestamps: Some((1000, 0)),
            group: Some(GroupOption::Named(ip(GROUP))),
            ..Options::default()
        };
        hand.inject(&syn, HERE).unwrap();
        // Sent again: the answer may be lost, and nothing else proves anything.
        assert_eq!(hand.inject(&syn, HERE), Err(Error::Duplicate));
        let answer = hand.sent().pop().unwrap();
        (hand.seq, hand.ack) = (ISS.plus(1), answer.seq.plus(1));
        Self { hand, stamp: 1000 }
    }

    fn established() -> Self {
        let mut keyed = Self::new();
        assert_eq!(keyed.give("A", 0, &[], HERE, keyed.in_unicast(0)), Ok(()));
        keyed.hand.id = keyed.hand.endpoint.accept(keyed.hand.now, PORT);
        assert_eq!(keyed.hand.state(), State::Established);
        keyed
    }

    fn in_unicast(&self, offset: i64) -> Option<Place> {
        let receiver = Some(self.hand.ack.minus(1));
        Some(Place { receiver, offset })
    }

    fn in_group(offset: i64) -> Option<Place> {
        Some(Place {
            receiver: None,
            offset,
        })
    }

    /// A segment at this offset, signed for a place or not.
    fn bytes(&self, flag_text: &str, offset: u32, data: &[u8], place: Option<Place>) -> Vec<u8> {
        let seq = ISS.plus(1).plus(offset);
        let mut segment = self
            .hand
            .segment(seq, self.hand.ack, flags(flag_text), data);
        segment.options.timestamps = Some((self.stamp, 0));
        segment.options.tag = Some(Tag([1; 8]));
        let mut bytes = vec![0; segment.buffer_len()];
        segment.emit(&mut bytes);
        if let Some(place) = place {
            KEY.sign(place, &mut bytes);
        }
        bytes
    }

    fn hand_in(&mut self, bytes: &[u8], to: &str) -> Result<(), Error> {
        let meta = Meta {
            source: SocketAddr::new(ip("10.0.0.9"), PEER_PORT),
            destination: ip(to),
        };
        self.hand
            .endpoint
            .handle_packet(self.hand.now, &meta, bytes)
    }

    fn give(
        &mut self,
        flag_text: &str,
        offset: u32,
        data: &[u8],
        to: &str,
        place: Option<Place>,
    ) -> Result<(), Error> {
        let bytes = self.bytes(flag_text, offset, data, place);
        self.hand_in(&bytes, to)
    }
}

#[test]
fn what_is_signed_is_taken_by_both_ways() {
    let mut keyed = Keyed::established();
    assert_eq!(
        keyed.give("A", 0, b"uni", HERE, keyed.in_unicast(0)),
        Ok(())
    );
    assert_eq!(
        keyed.give("A", 3, b"multi", GROUP, Keyed::in_group(3)),
        Ok(())
    );
    assert_eq!(keyed.hand.read(), b"unimulti");
    assert_eq!(keyed.give("FA", 8, &[], HERE, keyed.in_unicast(8)), Ok(()));
    assert_eq!(keyed.hand.state(), State::CloseWait);
}

#[test]
fn who_hears_the_group_cannot_put_in_or_end_anything() {
    let mut keyed = Keyed::established();
    keyed.hand.sent();
    let before = keyed.hand.endpoint.stats().drops.get(Error::Forged);
    // Every host that receives the group knows sequence numbers; assume that it knows the acknowledgement, too.
    for to in [HERE, GROUP] {
        for text in ["A", "PA", "FA", "R", "RA", "SR", "SA", "F", ""] {
            for data in [&b"forged"[..], b""] {
                let forged = keyed.give(text, 0, data, to, None);
                assert_eq!(forged, Err(Error::Forged), "{text} to {to}");
            }
        }
    }
    // Without any tag.
    for to in [HERE, GROUP] {
        let bare = keyed
            .hand
            .segment(ISS.plus(1), keyed.hand.ack, ACK, b"forged");
        assert_eq!(keyed.hand.inject(&bare, to), Err(Error::Forged));
    }
    let drops = &keyed.hand.endpoint.stats().drops;
    assert_eq!(drops.get(Error::Forged) - before, 2 * 18 + 2);
    assert!(keyed.hand.sent().is_empty(), "nothing is answered");
    assert_eq!(keyed.hand.state(), State::Established);
    // The genuine byte at the same place is taken.
    assert_eq!(
        keyed.give("A", 0, b"true", GROUP, Keyed::in_group(0)),
        Ok(())
    );
    assert_eq!(keyed.hand.read(), b"true");
}

/// Segments that a kernel joined (`UDP_GRO`).
#[test]
fn each_of_several_segments_that_arrive_together_needs_a_signature() {
    let mut keyed = Keyed::established();
    let meta = Meta {
        source: SocketAddr::new(ip("10.0.0.9"), PEER_PORT),
        destination: ip(GROUP),
    };
    let mut hand_in = |signed: usize| {
        let of = |n: usize| {
            let place = (n < signed)
                .then(|| Keyed::in_group(4 * n as i64))
                .flatten();
            keyed.bytes("A", 4 * n as u32, b"data", place)
        };
        let bytes: Vec<Vec<u8>> = (0..3).map(of).collect();
        let hand = &mut keyed.hand;
        let (bytes, size) = (bytes.concat(), bytes[0].len());
        hand.endpoint.handle_packets(hand.now, &meta, &bytes, size);
        hand.read().len()
    };
    assert_eq!([0, 1, 3].map(&mut hand_in), [0, 4, 8]);
    let forged = keyed.hand.endpoint.stats().drops.get(Error::Forged);
    assert_eq!(forged, 3 + 2);
}

/// One forged segment among those that the kernel joined keeps none of the others out, and none of it is read.
#[test]
fn a_forged_segment_amid_others_is_dropped_alone() {
    for forged in 0..5 {
        let mut keyed = Keyed::established();
        let meta = Meta {
            source: SocketAddr::new(ip("10.0.0.9"), PEER_PORT),
            destination: ip(GROUP),
        };
        let segment = |keyed: &Keyed, n: usize, is_forged: bool| {
            let place = Keyed::in_group(4 * n as i64).filter(|_| !is_forged);
            keyed.bytes(
                "A",
                4 * n as u32,
                if is_forged { b"evil" } else { b"data" },
                place,
            )
        };
        let bytes: Vec<Vec<u8>> = (0..5).map(|n| segment(&keyed, n, n == forged)).collect();
        let size = bytes[0].len();
        let hand = &mut keyed.hand;
        hand.endpoint
            .handle_packets(hand.now, &meta, &bytes.concat(), size);
        assert_eq!(hand.read(), b"data".repeat(forged));
        let drops = &hand.endpoint.stats().drops;
        assert_eq!(drops.get(Error::Forged), 1);
        // The genuine segment fills the hole.
        let genuine = segment(&keyed, forged, false);
        assert_eq!(keyed.hand_in(&genuine, GROUP), Ok(()));
        assert_eq!(keyed.hand.read(), b"data".repeat(5 - forged));
    }
}

/// A captured segment with other data, or with the tag of another one.
#[test]
fn a_tag_signs_its_own_segment_alone_among_those_that_arrive_together() {
    let mut keyed = Keyed::established();
    let meta = Meta {
        source: SocketAddr::new(ip("10.0.0.9"), PEER_PORT),
        destination: ip(GROUP),
    };
    let mut bytes: Vec<Vec<u8>> = (0..3)
        .map(|n| keyed.bytes("A", 4 * n, b"data", Keyed::in_group(4 * i64::from(n))))
        .collect();
    let tag = bytes[2][36..44].to_vec();
    bytes[1][36..44].copy_from_slice(&tag);
    let size = bytes[0].len();
    let hand = &mut keyed.hand;
    hand.endpoint
        .handle_packets(hand.now, &meta, &bytes.concat(), size);
    assert_eq!(hand.read(), b"data");
    assert_eq!(hand.endpoint.stats().drops.get(Error::Forged), 1);
}

#[test]
fn a_signed_segment_means_something_at_its_place_alone() {
    let mut keyed = Keyed::established();
    let multicast = keyed.bytes("A", 0, b"data", Keyed::in_group(0));
    let unicast = keyed.bytes("R", 0, b"", keyed.in_unicast(0));
    assert_eq!(keyed.hand_in(&multicast, HERE), Err(Error::Forged));
    assert_eq!(keyed.hand_in(&unicast, GROUP), Err(Error::Forged));
    // Another receiver's reset.
    let other = Some(Place {
        receiver: Some(keyed.hand.ack),
        offset: 0,
    });
    assert_eq!(keyed.give("R", 0, b"", HERE, other), Err(Error::Forged));
    // The same sequence number, 4 GiB before.
    let before = Keyed::in_group(-(1 << 32));
    assert_eq!(
        keyed.give("A", 0, b"old", GROUP, before),
        Err(Error::Forged)
    );
    assert_eq!(keyed.hand_in(&multicast, GROUP), Ok(()));
    assert_eq!(keyed.hand_in(&unicast, HERE), Err(Error::ResetWindow));
}

#[test]
fn a_handshake_is_completed_by_the_key_alone() {
    let mut keyed = Keyed::new();
    for text in ["A", "SA", "RA"] {
        assert_eq!(keyed.give(text, 0, &[], HERE, None), Err(Error::Forged));
    }
    assert!(keyed.hand.endpoint.accept(keyed.hand.now, PORT).is_none());
    assert_eq!(keyed.give("A", 0, &[], HERE, keyed.in_unicast(0)), Ok(()));
    assert!(keyed.hand.endpoint.accept(keyed.hand.now, PORT).is_some());
}

#[test]
fn syns_are_challenged_as_ever() {
    let mut keyed = Keyed::established();
    keyed.hand.sent();
    let syn = keyed.hand.segment(ISS, Seq(0), flags("S"), &[]);
    assert_eq!(keyed.hand.inject(&syn, HERE), Err(Error::SynChallenged));
    assert_eq!(keyed.hand.sent().len(), 1);
    assert_eq!(keyed.hand.state(), State::Established);
    let parsed = keyed.bytes("A", 0, b"x", None);
    assert!(Segment::parse(&parsed).unwrap().options.tag.is_some());
}

/// A receiver with the key believes no other reset.
#[test]
fn the_sender_of_a_group_signs_its_resets() {
    let mut group = HandGroup::with(|config| config.key = Some(KEY), 1, accepts);
    group.sent();
    group.endpoint.abort(group.now, group.id).unwrap();
    let mut buffer = [0; 1500];
    let reset = group
        .endpoint
        .poll_transmit(group.now, &mut buffer)
        .unwrap();
    let bytes = &buffer[..reset.len];
    let segment = Segment::parse(bytes).unwrap();
    assert_eq!(segment.flags, flags("RA"));
    let place = Place {
        receiver: Some(Seq(100)),
        offset: i64::from(segment.seq.since(group.iss[0].plus(1))),
    };
    assert!(KEY.verify(place, bytes));
}
