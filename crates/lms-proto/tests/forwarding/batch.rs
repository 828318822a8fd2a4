//! A batch is forwarded as its packets would be one by one.

use lms_proto::router::{Config, Policy, Rate, Router, Verdict};
use lms_proto::wire::encap::Placement;
use lms_proto::{Duration, Form, Iface, Instant, Key, Meta};

use crate::common::*;

/// 90 packets, more than are looked up together: good ones, broken ones and others' in turn.
fn mixed() -> Vec<(Iface, Vec<u8>)> {
    let other = Key::new([10, 0, 0, 99].into(), [232, 9, 9, 9].into());
    let turned = turning_point(address(UP), UP);
    let packets = [
        (DOWN, request(KEY, None, Form::Classic)),
        (REPLIER, request(KEY, None, Form::Single)),
        (REPLIER, dmcast(KEY, Placement::Outer)),
        (UP, request(KEY, Some(turned), Form::Classic)),
        (DOWN, request(other, None, Form::Classic)),
        (REPLIER, dmcast(KEY, Placement::Inner)),
        (DOWN2, request(KEY, None, Form::Classic)[..30].to_vec()),
        (DOWN2, request(KEY, Some(turned), Form::Classic)),
        (UP, inner(KEY)),
    ];
    packets.iter().cycle().take(90).cloned().collect()
}

fn one_by_one(
    router: &mut Router<'_>,
    now: Instant,
    packets: &mut [(Iface, Vec<u8>)],
) -> Vec<(Meta, Verdict)> {
    let one = |(iface, packet): &mut (Iface, Vec<u8>)| {
        let verdict = router.forward(now, meta(*iface), packet);
        (meta(*iface), verdict)
    };
    packets.iter_mut().map(one).collect()
}

fn together(
    router: &mut Router<'_>,
    now: Instant,
    packets: &mut [(Iface, Vec<u8>)],
) -> Vec<(Meta, Verdict)> {
    let mut verdicts = Vec::new();
    let batch = packets.iter_mut();
    let batch = batch.map(|(iface, packet)| (meta(*iface), &mut packet[..]));
    router.forward_batch(now, batch, |_, meta, _, verdict| {
        verdicts.push((meta, verdict));
    });
    verdicts
}

#[test]
fn a_batch_is_its_packets_one_by_one() {
    let policies = [
        Policy::Hierarchy,
        Policy::Static,
        Policy::Random {
            redraw: Duration::from_secs(1),
        },
        Policy::SearchParty { copies: 2, up: 128 },
    ];
    for policy in policies {
        let config = Config {
            policy,
            request_rate: Rate {
                per_second: 10,
                burst: 25,
            },
            ..Config::default()
        };
        let (mut a, mut b) = (router(config), router(config));
        for router in [&mut a, &mut b] {
            router.set_replier(NOW, KEY, Some(replier())).unwrap();
            let shared = Key::any_source([232, 9, 9, 9].into());
            router.install(NOW, shared, UP, &[DOWN]).unwrap();
        }
        for round in 0..3 {
            let now = NOW + Duration::from_secs(round);
            let (mut left, mut right) = (mixed(), mixed());
            let expected = one_by_one(&mut a, now, &mut left);
            assert_eq!(together(&mut b, now, &mut right), expected, "{policy:?}");
            assert_eq!(left, right, "{policy:?}");
            assert_eq!(format!("{a:?}"), format!("{b:?}"), "{policy:?}");
            let sent = |(_, verdict): &&(Meta, Verdict)| {
                !matches!(verdict, Verdict::Drop(_) | Verdict::Pass)
            };
            assert!(expected.iter().filter(sent).count() > 10, "{policy:?}");
        }
    }
}
