use super::super::damping::{Flap, Flaps, Key};
use super::*;

const CONFIG: Damping = Damping {
    withdrawal: 1000,
    change: 500,
    suppress: 3000,
    reuse: 750,
    half_life: Duration::from_secs(100),
    max_suppress: Duration::from_secs(400),
};

fn key(peer: u32, number: u32) -> Key {
    (PeerId(peer), TABLE, gateway(9, number))
}

#[test]
fn penalties_add_up_and_halve_with_time() {
    let mut flaps = Flaps::new(CONFIG, 10);
    let key = key(1, 1);
    flaps.flap(START, key, Flap::Withdrawn);
    flaps.flap(START, key, Flap::Changed);
    // 1,500 have become 750 after a half-life; with 2,000 more it is below the limit.
    let later = START + CONFIG.half_life;
    flaps.flap(later, key, Flap::Withdrawn);
    flaps.flap(later, key, Flap::Withdrawn);
    assert!(!flaps.is_suppressed(&key));
    assert_eq!(flaps.poll_timeout(), None);
    flaps.flap(later, key, Flap::Changed);
    assert!(flaps.is_suppressed(&key));
    // 3,250 become 750 in 2.115 half-lives.
    let until = flaps.poll_timeout().expect("suppressed");
    let secs = (until - later).total_millis();
    assert_eq!(secs, 211_547);
    assert_eq!(flaps.released(until - Duration::from_micros(1)), None);
    assert_eq!(flaps.released(until), Some(key));
    assert!(!flaps.is_suppressed(&key));
    assert_eq!((flaps.released(until), flaps.poll_timeout()), (None, None));
}

#[test]
fn the_longest_suppression_bounds_the_penalty() {
    let mut flaps = Flaps::new(CONFIG, 10);
    for _ in 0..100 {
        flaps.flap(START, key(1, 1), Flap::Withdrawn);
    }
    let until = flaps.poll_timeout().expect("suppressed");
    assert_eq!(until, START + CONFIG.max_suppress);
    // Another flap moves the end, and leaves no second timer.
    let later = START + Duration::from_secs(100);
    flaps.flap(later, key(1, 1), Flap::Changed);
    let until = flaps.poll_timeout().expect("suppressed");
    assert!(until > START + CONFIG.max_suppress);
    assert_eq!(flaps.released(until), Some(key(1, 1)));
    assert_eq!(flaps.poll_timeout(), None);
}

#[test]
fn a_suppressed_route_stays_so_below_the_limit_at_which_it_was() {
    let mut flaps = Flaps::new(CONFIG, 10);
    for _ in 0..3 {
        flaps.flap(START, key(1, 1), Flap::Withdrawn);
    }
    // 3,000 have become 1,061: with a change far below 3,000.
    let later = START + Duration::from_secs(150);
    flaps.flap(later, key(1, 1), Flap::Changed);
    assert!(flaps.is_suppressed(&key(1, 1)));
    assert!(flaps.poll_timeout() > Some(later));
}

#[test]
fn as_many_routes_are_remembered_as_allowed() {
    let mut flaps = Flaps::new(CONFIG, 2);
    for number in 1..=3 {
        for _ in 0..3 {
            flaps.flap(START, key(1, number), Flap::Withdrawn);
        }
    }
    assert_eq!(flaps.len(), 2);
    assert!(flaps.is_suppressed(&key(1, 2)));
    assert!(!flaps.is_suppressed(&key(1, 3)), "not remembered");
    // Those that are remembered count on.
    flaps.reconfigure(CONFIG, 1);
    flaps.flap(START, key(1, 2), Flap::Withdrawn);
    assert_eq!(flaps.len(), 2);
}

#[test]
fn a_route_is_forgotten_when_its_penalty_is_small() {
    let mut flaps = Flaps::new(CONFIG, 10);
    flaps.flap(START, key(1, 1), Flap::Changed);
    for _ in 0..3 {
        flaps.flap(START, key(1, 2), Flap::Withdrawn);
    }
    // Each flap examines one record. 500 is more than half of 750; a quarter of it later it is not.
    for number in 3..9 {
        flaps.flap(START, key(1, number), Flap::Withdrawn);
    }
    assert_eq!(flaps.len(), 8);
    let later = START + Duration::from_secs(42);
    for _ in 0..10 {
        flaps.flap(later, key(1, 9), Flap::Changed);
    }
    assert_eq!(flaps.len(), 8, "1 is forgotten, 9 has come");
    // Nobody forgets what is suppressed.
    let much_later = START + Duration::from_secs(3_000);
    for _ in 0..20 {
        flaps.flap(much_later, key(1, 10), Flap::Changed);
    }
    assert!(flaps.is_suppressed(&key(1, 2)));
    assert_eq!(
        flaps.len(),
        2 + usize::from(flaps.is_suppressed(&key(1, 9)))
    );
}

#[test]
fn a_peer_that_goes_takes_its_routes_along() {
    let mut flaps = Flaps::new(CONFIG, 10);
    for peer in [1, 2] {
        for _ in 0..3 {
            flaps.flap(START, key(peer, 1), Flap::Withdrawn);
        }
    }
    flaps.forget_peer(PeerId(1));
    assert_eq!(flaps.len(), 1);
    assert!(!flaps.is_suppressed(&key(1, 1)));
    assert!(flaps.is_suppressed(&key(2, 1)));
    let until = flaps.poll_timeout().expect("the other's");
    assert_eq!(flaps.released(until), Some(key(2, 1)));
    assert_eq!(flaps.released(until), None);
}
