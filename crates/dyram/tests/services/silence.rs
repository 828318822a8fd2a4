//! A relay below a parent: neighbours that do not answer, or are heard no more.

use dyram::wire::{Body, Role, Status};
use dyram::{Duration, Event};

use super::hand::{Hand, ID, child, key};
use super::parents::{
    NUMBER, TOKEN, accept, answer, attached, below, data_from, info, joined, parent,
};

/// A NACK may be lost; only the second one in vain makes the relay ask whether its parent is alive.
#[test]
fn one_nack_in_vain_does_not_put_the_parent_in_doubt() {
    let mut hand = attached(1);
    data_from(&mut hand, parent(1), 1);
    data_from(&mut hand, parent(1), 3);
    let sent = hand.during(100);
    let is_nack = |body: &Body<'_>| matches!(body, Body::Nack(_));
    assert_eq!(sent.len(), 2, "the first one and its repetition");
    assert!(sent.iter().all(|(_, one)| is_nack(&one.body)), "{sent:?}");
    let verdict = hand.handle(parent(1), ID, 0xffff, 2, Body::Repair(b"data"));
    assert_eq!(hand.targets(verdict), [child(0), child(1)]);
    assert_eq!(hand.during(300), []);
}

#[test]
fn single_parent_that_is_silent_is_joined_again_and_not_left() {
    let mut hand = attached(1);
    let sent = hand.during(2_400);
    assert_eq!(hand.events(), [Event::ParentLost(key(), parent(1))]);
    assert_eq!(info(&hand).above, None);
    // Three times to refresh, then from the beginning.
    assert_eq!(sent.len(), 6, "{sent:?}");
    for (_, one) in sent {
        let Body::Join(join) = one.body else {
            panic!("{one:?}");
        };
        assert_eq!((one.to, join.token), (parent(1), TOKEN));
    }
}

#[test]
fn session_that_ends_as_its_last_child_is_silent_leaves_the_parent() {
    let mut hand = Hand::bare(4, |config| {
        below(1)(config);
        config.refresh = Duration::from_millis(500);
    });
    hand.join(child(0), Role::Receiver, 0);
    hand.events();
    accept(&mut hand, parent(1));
    let mut left = Vec::new();
    for _ in 0..30 {
        hand.now += Duration::from_millis(100);
        hand.relay.handle_timeout(hand.now);
        for one in hand.sent_whole() {
            match one.body {
                Body::Join(join) => {
                    answer(&mut hand, one.to, joined(Status::Joined, join.stamp));
                }
                Body::Leave(token) => left.push((one.to, one.child, token)),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(left, [(parent(1), NUMBER, TOKEN)]);
    let expected = [Event::ChildGone(key(), child(0)), Event::Closed(key())];
    assert_eq!(hand.events(), expected);
}
