//! Parents of a relay, played by the test.

use std::net::SocketAddr;

use dyram::wire::{Body, Join, Joined, Path, Role, Status};
use dyram::{Config, Duration, Event, Parents, RelayId, Verdict};

use super::hand::{Hand, ID, Whole, child, key};

/// The number that parents give to the relay.
pub(crate) const NUMBER: u16 = 3;
pub(crate) const TOKEN: u64 = 77;

pub(crate) fn parent(n: u8) -> SocketAddr {
    SocketAddr::from(([10, 2, 0, n], 4143))
}

pub(crate) fn below(parents: u8) -> impl FnOnce(&mut Config) {
    let list: Vec<SocketAddr> = (1..=parents).map(parent).collect();
    move |config| config.parents = Parents::from_slice(&list).unwrap()
}

/// The JOIN that goes to a parent, if it is all that is sent.
pub(crate) fn join_in(sent: &[Whole], to: SocketAddr) -> Join {
    match sent {
        [
            Whole {
                to: other,
                session: 0,
                sequence: 0,
                body: Body::Join(join),
                ..
            },
        ] if *other == to => *join,
        other => panic!("{other:?}"),
    }
}

/// When, to whom, and which JOIN.
pub(crate) fn joins_in(sent: &[(u64, Whole)]) -> Vec<(u64, SocketAddr, Join)> {
    let joins = sent.iter().filter_map(|(at, one)| match one.body {
        Body::Join(join) => Some((*at, one.to, join)),
        _ => None,
    });
    joins.collect()
}

pub(crate) fn joined(status: Status, stamp: u32) -> Joined {
    Joined {
        status,
        live: false,
        attached: true,
        token: TOKEN,
        stamp,
        repair_us: 30_000,
        refresh_ms: 1_000,
        path: Path::from_slice(&[RelayId(1), RelayId(2)]).unwrap(),
    }
}

pub(crate) fn answer(hand: &mut Hand, from: SocketAddr, joined: Joined) -> Verdict {
    let session = if joined.live { ID } else { 0 };
    let number = if joined.status == Status::Joined {
        NUMBER
    } else {
        0xffff
    };
    hand.handle(from, session, number, 0, Body::Joined(joined))
}

/// Challenges the relay's JOIN, and accepts the next one after 20 ms.
pub(crate) fn accept(hand: &mut Hand, by: SocketAddr) {
    let first = join_in(&hand.tick(), by);
    assert_eq!((first.token, first.role), (0, Role::Relay));
    assert_eq!((first.relay, first.round_trip_us), (RelayId(9), 0));
    let challenge = joined(Status::Challenge, first.stamp);
    assert_eq!(answer(hand, by, challenge), Verdict::Done);
    assert_eq!(hand.events(), []);
    let second = join_in(&hand.tick(), by);
    assert_eq!(second.token, TOKEN);
    assert_ne!(second.stamp, first.stamp);
    hand.now += Duration::from_millis(20);
    let accepted = Joined {
        live: true,
        ..joined(Status::Joined, second.stamp)
    };
    assert_eq!(answer(hand, by, accepted), Verdict::Done);
    assert_eq!(hand.events(), [Event::Attached(key(), by)]);
    assert_eq!(hand.sent_whole(), []);
}

/// A relay with two children, attached to the first of its parents.
pub(crate) fn attached(parents: u8) -> Hand {
    let mut hand = Hand::bare(4, below(parents));
    for n in 0..2 {
        hand.join(child(n), Role::Receiver, 0);
    }
    hand.events();
    accept(&mut hand, parent(1));
    hand
}

pub(crate) fn data_from(hand: &mut Hand, from: SocketAddr, seq: u32) -> Verdict {
    hand.handle(from, ID, 0xffff, seq, Body::Data(b"data"))
}

pub(crate) fn info(hand: &Hand) -> dyram::SessionInfo {
    hand.relay.sessions().next().expect("a session")
}

/// The token of an address, by a JOIN that has none.
pub(crate) fn token_of(hand: &mut Hand, from: SocketAddr, role: Role) -> u64 {
    let join = Join {
        role,
        token: 0,
        stamp: 1,
        far_us: 0,
        round_trip_us: 0,
        receivers: 1,
        relay: RelayId(0),
    };
    hand.handle(from, 0, 0xffff, 0, Body::Join(join));
    let (to, joined, _) = hand.joined();
    assert_eq!(to, from);
    joined.token
}
