//! Packets that the kernel received as one have the outcome that they have alone.

use dyram::wire::{Body, Repr};
use dyram::{Meta, Relay, Seq, SessionKey, Verdict};
use std::net::SocketAddr;

use super::hand::{Hand, ID, child, source};

fn bytes(key: SessionKey, session: u32, child: u16, seq: u32, body: Body<'_>) -> Vec<u8> {
    let repr = Repr {
        key,
        session,
        child,
        sequence: Seq(seq),
        body,
    };
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut bytes);
    bytes
}

fn data(seq: u32, len: usize) -> Vec<u8> {
    let key = super::hand::key();
    bytes(key, ID, 0xffff, seq, Body::Data(&vec![seq as u8; len]))
}

/// What a relay does with one packet: its copies, or the verdict.
type Outcome = (Vec<SocketAddr>, Vec<u8>, Option<Verdict>);

fn outcome(relay: &Relay<'_>, verdict: Verdict, packet: &[u8]) -> Outcome {
    match verdict {
        Verdict::Send(fanout) => (relay.targets(&fanout).collect(), packet.to_vec(), None),
        other => (Vec::new(), packet.to_vec(), Some(other)),
    }
}

/// Passes packets of one length, but perhaps the last, in one piece. Returns the outcome of each, and the number of calls.
fn together(hand: &mut Hand, meta: &Meta, packets: &[Vec<u8>]) -> (Vec<Outcome>, usize) {
    let stride = packets[0].len();
    let mut piece = packets.concat();
    let (mut rest, mut outcomes, mut calls) = (&mut piece[..], Vec::new(), 0);
    while !rest.is_empty() {
        let (len, verdict) = hand.relay.forward_joined(hand.now, meta, rest, stride);
        let (handled, left) = rest.split_at_mut(len);
        let each = handled.chunks(stride);
        outcomes.extend(each.map(|packet| outcome(&hand.relay, verdict, packet)));
        rest = left;
        calls += 1;
    }
    (outcomes, calls)
}

fn alone(hand: &mut Hand, meta: &Meta, packets: &[Vec<u8>]) -> Vec<Outcome> {
    let one = |packet: &Vec<u8>| {
        let mut packet = packet.clone();
        let verdict = hand.relay.forward(hand.now, meta, &mut packet);
        outcome(&hand.relay, verdict, &packet)
    };
    packets.iter().map(one).collect()
}

fn state(hand: &mut Hand) -> [String; 3] {
    let sessions: Vec<_> = hand.relay.sessions().collect();
    let stats = format!("{:?}", hand.relay.stats());
    [stats, format!("{sessions:?}"), format!("{:?}", hand.sent())]
}

/// Compares both ways; returns the number of calls.
fn same(packets: &[Vec<u8>], meta: &Meta) -> usize {
    let (mut one, mut other) = (Hand::new(3, |_| {}), Hand::new(3, |_| {}));
    let before = [data(1, 60)];
    alone(&mut one, &Meta::unicast(source()), &before);
    alone(&mut other, &Meta::unicast(source()), &before);
    let apart = alone(&mut one, meta, packets);
    let (joined, calls) = together(&mut other, meta, packets);
    assert_eq!(joined, apart);
    assert_eq!(state(&mut other), state(&mut one));
    calls
}

#[test]
fn a_train_in_sequence_has_one_verdict() {
    let meta = Meta::unicast(source());
    let mut train: Vec<_> = (2..40).map(|seq| data(seq, 60)).collect();
    assert_eq!(same(&train, &meta), 1);
    train.push(data(40, 17));
    assert_eq!(same(&train, &meta), 1, "the last may be shorter");
    assert_eq!(same(&train[..1], &meta), 1);
}

#[test]
fn gaps_repeats_and_other_services_end_a_train() {
    let meta = Meta::unicast(source());
    let of = |numbers: &[u32]| numbers.iter().map(|&n| data(n, 60)).collect::<Vec<_>>();
    for numbers in [
        &[2, 3, 5, 6, 7][..],
        &[2, 3, 3, 4],
        &[4, 2, 3, 4, 5],
        &[2, 900, 901, 902, 3],
        &[u32::MAX, 0, 1, 2],
        &[3, 4, 2, 5],
    ] {
        same(&of(numbers), &meta);
    }
    let key = super::hand::key();
    let alike = |seq, body: Body<'_>| {
        let packet = bytes(key, ID, 0xffff, seq, body);
        assert_eq!(packet.len(), data(2, 60).len());
        packet
    };
    let fill = [9; 60];
    let train = [
        data(2, 60),
        alike(3, Body::Cast(&fill)),
        data(3, 60),
        alike(4, Body::Repair(&fill)),
        data(4, 60),
        bytes(key, ID + 1, 0xffff, 5, Body::Data(&fill)),
        bytes(key, ID, 7, 5, Body::Data(&fill)),
        data(6, 60),
    ];
    same(&train, &meta);
    // Another session between those of this one.
    let group = [239, 9, 9, 9].into();
    let other = SessionKey::new(source().ip(), group).unwrap();
    let train = [
        data(2, 60),
        bytes(other, ID, 0xffff, 3, Body::Data(&fill)),
        data(3, 60),
    ];
    same(&train, &meta);
}

#[test]
fn malformed_packets_in_a_train_are_dropped_alone() {
    let meta = Meta::unicast(source());
    let train: Vec<_> = (2..8).map(|seq| data(seq, 60)).collect();
    let whole = train[0].len();
    for at in 0..whole - 60 {
        for bit in 0..8 {
            let mut train = train.clone();
            train[3][at] ^= 1 << bit;
            same(&train, &meta);
        }
    }
    // The last is cut off, down to nothing of its body and into its header.
    for len in 1..whole {
        let mut train = train.clone();
        train[5].truncate(len);
        same(&train, &meta);
    }
}

#[test]
fn strangers_and_children_get_no_train_through() {
    let train: Vec<_> = (2..8).map(|seq| data(seq, 60)).collect();
    assert_eq!(same(&train, &Meta::unicast(child(1))), train.len());
    assert_eq!(same(&train, &Meta::unicast(child(99))), train.len());
    let to_group = Meta {
        source: source(),
        group: true,
    };
    assert_eq!(same(&train, &to_group), train.len());
}
