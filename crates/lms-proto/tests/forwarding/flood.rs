//! A flood never makes the router send more than its configured rate.

use lms_proto::router::{Config, Policy, Rate, Verdict};
use lms_proto::wire::encap::Placement;
use lms_proto::{Duration, Form, Iface};

use crate::common::*;

const RATE: Rate = Rate {
    per_second: 250,
    burst: 20,
};

/// Floods for three seconds, one packet every 100 microseconds, and counts the packets sent.
fn flood(policy: Policy, from: Iface, packet: &[u8]) -> (u64, u64) {
    let mut router = router(Config {
        policy,
        request_rate: RATE,
        dmcast_rate: RATE,
        ..Config::default()
    });
    if policy == Policy::Static {
        router.set_replier(NOW, KEY, Some(replier())).unwrap();
        asked(&mut router, NOW, KEY, DOWN);
    }
    let (mut sent, mut worst) = (Vec::new(), 0);
    for tick in 0..30_000u64 {
        let now = NOW + Duration::from_secs(1) + Duration::from_micros(100 * tick);
        match router.forward(now, &meta(from), &mut packet.to_vec()) {
            Verdict::Forward { second, .. } => {
                sent.push(now);
                sent.extend(second.map(|_| now));
            }
            Verdict::Multicast { .. } => sent.push(now),
            Verdict::Drop(_) | Verdict::Pass => {}
        }
    }
    // No window of a tenth of a second has more than burst and rate allow.
    for (n, start) in sent.iter().enumerate() {
        let window = sent[n..]
            .iter()
            .take_while(|at| **at < *start + Duration::from_millis(100));
        worst = worst.max(window.count() as u64);
    }
    (sent.len() as u64, worst)
}

#[test]
fn requests_keep_to_the_rate() {
    let request = request(KEY, None, Form::Classic);
    for policy in [
        Policy::Static,
        Policy::Random {
            redraw: Duration::from_secs(1),
        },
        Policy::SearchParty { copies: 2, up: 128 },
    ] {
        let (sent, worst) = flood(policy, DOWN, &request);
        assert!((750..=770).contains(&sent), "{policy:?} sent {sent}");
        assert!(worst <= 45, "{policy:?} sent {worst} in 100 ms");
    }
}

#[test]
fn dmcasts_keep_to_the_rate() {
    for placement in [Placement::Outer, Placement::Inner] {
        let (sent, worst) = flood(Policy::Static, REPLIER, &dmcast(KEY, placement));
        assert!((750..=770).contains(&sent), "sent {sent}");
        assert!(worst <= 45, "{worst} in 100 ms");
    }
}

#[test]
fn rate_zero_sends_nothing() {
    let none = Rate {
        per_second: 0,
        burst: 1_000,
    };
    let mut router = router(Config {
        policy: Policy::Static,
        request_rate: none,
        dmcast_rate: none,
        ..Config::default()
    });
    for packet in [
        request(KEY, None, Form::Classic),
        dmcast(KEY, Placement::Outer),
    ] {
        let verdict = router.forward(NOW, &meta(REPLIER), &mut packet.clone());
        assert!(matches!(verdict, Verdict::Drop(_)));
    }
}

/// A flood for one group leaves the others their rate.
#[test]
fn groups_have_rates_of_their_own() {
    let mut router = router(Config {
        policy: Policy::Static,
        request_rate: RATE,
        ..Config::default()
    });
    let other = lms_proto::Key::new(SOURCE, [232, 7, 7, 7].into());
    router.install(NOW, other, UP, &[DOWN]).unwrap();
    let flooded = request(KEY, None, Form::Classic);
    for _ in 0..1_000 {
        let _ = router.forward(NOW, &meta(DOWN), &mut flooded.clone());
    }
    let verdict = router.forward(NOW, &meta(DOWN), &mut request(other, None, Form::Classic));
    assert!(matches!(verdict, Verdict::Forward { .. }));
}
