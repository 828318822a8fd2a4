//! The numbers and cookies of turning points, and the credit of the requests that they were written into.

use std::net::Ipv4Addr;

use lms_proto::fast_path::Action;
use lms_proto::router::{DropReason, NUMBER_ROTATION};
use lms_proto::wire::encap::DmcastRepr;
use lms_proto::{Duration, Form, Iface, Instant, Key, TurningPoint};

use crate::common::{
    DOWN, DOWN2, KEY, NOW, RECEIVER, REPLIER, SOURCE, UP, address, compose, inner, replier,
    request, router_with_replier,
};
use crate::dmcasts::{FORMS, ask, open, repr, turn};
use crate::driver::{Driver, arrival, compare, expect_drop, expect_sent};

/// A number, and what proves it, is good in its period and in the next one.
#[test]
fn numbers_of_the_last_period() {
    for form in FORMS {
        for periods in 0..4 {
            let mut router = router_with_replier();
            let point = ask(&mut router, NOW, form, DOWN);
            let now = NOW + NUMBER_ROTATION * periods;
            // A request of another link keeps repairs open.
            ask(&mut router, now, form, DOWN2);
            let packet = compose(&repr(point, form), &inner(KEY));
            match (periods, form) {
                (0 | 1, _) => {
                    expect_sent(
                        &mut router,
                        now,
                        arrival(REPLIER),
                        &packet,
                        Action::Dmcast,
                        DOWN,
                    );
                }
                (_, Form::Own) => {
                    expect_drop(
                        &mut router,
                        now,
                        arrival(REPLIER),
                        &packet,
                        DropReason::Cookie,
                    );
                }
                (_, Form::Classic) => {
                    let driver = Driver::of(&router, None);
                    compare(&mut router, &driver, now, arrival(REPLIER), &packet, None);
                }
            }
        }
    }
}

/// To the microsecond, as the machine: the bytes of a request that turns are compared.
#[test]
fn numbers_change_with_the_period() {
    let rotation = NUMBER_ROTATION.total_micros() as i64;
    for period in [1, 2, 1_000, 1 << 20] {
        for us in [-1, 0] {
            let now = Instant::from_micros(period * rotation + us);
            for form in FORMS {
                let packet = request(KEY, None, form);
                let mut router = router_with_replier();
                expect_sent(
                    &mut router,
                    now,
                    arrival(DOWN),
                    &packet,
                    Action::Turn,
                    REPLIER,
                );
            }
        }
    }
}

/// A number that stands for downstream interfaces in both periods: the newer one counts, unless the cookie proves the
/// older one.
#[test]
fn a_number_with_two_meanings() {
    let next = NOW + NUMBER_ROTATION;
    let mut router = router_with_replier();
    let is_found = (0..1_u32 << 20).any(|group| {
        let [_, a, b, c] = group.to_be_bytes();
        let key = Key::new(SOURCE, Ipv4Addr::new(239, a, b, c));
        router
            .install(NOW, key, UP, &[REPLIER, DOWN, DOWN2])
            .unwrap();
        router.set_replier(NOW, key, Some(replier())).unwrap();
        let mut turn =
            |now, iface, form| turn(&mut router, now, &mut request(key, None, form), iface);
        let old = turn(NOW, DOWN, Form::Own);
        let new = turn(next, DOWN2, Form::Own);
        if old.iface != new.iface {
            router.remove(NOW, key);
            return false;
        }
        turn(next, DOWN2, Form::Classic);
        for (point, form, to) in [
            (old, Form::Own, DOWN),
            (new, Form::Own, DOWN2),
            (old, Form::Classic, DOWN2),
        ] {
            let packet = compose(&repr(point, form), &inner(key));
            expect_sent(
                &mut router,
                next,
                arrival(REPLIER),
                &packet,
                Action::Dmcast,
                to,
            );
        }
        true
    });
    // One group of 65,536 on average, and the seed is fixed.
    assert!(is_found);
}

#[test]
fn wrong_numbers_and_cookies() {
    for form in FORMS {
        let mut router = router_with_replier();
        let point = ask(&mut router, NOW, form, DOWN);
        let wrong = match form {
            Form::Classic => TurningPoint {
                iface: Iface(point.iface.0 ^ 0x0100),
                ..point
            },
            Form::Own => TurningPoint {
                cookie: point.cookie ^ 1,
                ..point
            },
        };
        let packet = compose(&repr(wrong, form), &inner(KEY));
        let reason = match form {
            Form::Classic => DropReason::NotDownstream,
            Form::Own => DropReason::Cookie,
        };
        for _ in 0..64 {
            expect_drop(&mut router, NOW, arrival(REPLIER), &packet, reason);
        }
        // Those with a cookie are not counted.
        let good = compose(&repr(point, form), &inner(KEY));
        match form {
            Form::Classic => {
                let reason = DropReason::WrongNumberRate;
                expect_drop(&mut router, NOW, arrival(REPLIER), &packet, reason);
                expect_drop(&mut router, NOW, arrival(REPLIER), &good, reason);
                let later = NOW + Duration::from_millis(100);
                expect_sent(
                    &mut router,
                    later,
                    arrival(REPLIER),
                    &good,
                    Action::Dmcast,
                    DOWN,
                );
            }
            Form::Own => expect_sent(
                &mut router,
                NOW,
                arrival(REPLIER),
                &good,
                Action::Dmcast,
                DOWN,
            ),
        }
        // Another interface has its own limit.
        let later = NOW + Duration::from_millis(200);
        let repr = DmcastRepr {
            replier: RECEIVER,
            router: address(DOWN),
            ..repr(point, form)
        };
        let packet = compose(&repr, &inner(KEY));
        expect_sent(
            &mut router,
            later,
            arrival(DOWN),
            &packet,
            Action::Dmcast,
            DOWN,
        );
    }
}

/// A cookie proves its number, however many wrong ones have arrived.
#[test]
fn a_cookie_passes_the_limit_on_wrong_numbers() {
    let mut router = router_with_replier();
    let classic = ask(&mut router, NOW, Form::Classic, DOWN);
    let own = ask(&mut router, NOW, Form::Own, DOWN);
    let wrong = TurningPoint {
        iface: Iface(classic.iface.0 ^ 0x0100),
        ..classic
    };
    let packet = compose(&repr(wrong, Form::Classic), &inner(KEY));
    for _ in 0..64 {
        expect_drop(
            &mut router,
            NOW,
            arrival(REPLIER),
            &packet,
            DropReason::NotDownstream,
        );
    }
    let from = arrival(REPLIER);
    expect_drop(&mut router, NOW, from, &packet, DropReason::WrongNumberRate);
    let packet = compose(&repr(own, Form::Own), &inner(KEY));
    expect_sent(&mut router, NOW, from, &packet, Action::Dmcast, DOWN);
}

/// Numbers of interfaces that are no longer downstream.
#[test]
fn a_number_of_an_interface_that_left() {
    for form in FORMS {
        let (mut router, packet) = open(form);
        router.install(NOW, KEY, UP, &[REPLIER, DOWN2]).unwrap();
        let reason = match form {
            Form::Classic => DropReason::NotDownstream,
            Form::Own => DropReason::Cookie,
        };
        expect_drop(&mut router, NOW, arrival(REPLIER), &packet, reason);
    }
}

#[test]
fn repairs_without_a_request() {
    for form in FORMS {
        let (_, packet) = open(form);
        let mut router = router_with_replier();
        expect_drop(
            &mut router,
            NOW,
            arrival(REPLIER),
            &packet,
            DropReason::NoCredit,
        );
    }
    // A request in the own form admits none in the classic form.
    let (mut router, _) = open(Form::Own);
    let (_, classic) = open(Form::Classic);
    expect_drop(
        &mut router,
        NOW,
        arrival(REPLIER),
        &classic,
        DropReason::NoCredit,
    );
    // The other way round it does.
    let (mut router, _) = open(Form::Classic);
    let (_, own) = open(Form::Own);
    expect_sent(
        &mut router,
        NOW,
        arrival(REPLIER),
        &own,
        Action::Dmcast,
        DOWN,
    );
}
