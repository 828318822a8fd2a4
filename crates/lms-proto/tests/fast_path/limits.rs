//! The words: limits, credit, and what others change at the same time.

use std::net::Ipv4Addr;

use lms_proto::fast_path::{
    Action, Changed, Port, Record, Refusal, Settings, Tables, Totals, Whose, Word,
};
use lms_proto::router::{Config, DropReason, Policy, Rate, Router};
use lms_proto::wire::encap::{DmcastRepr, Placement};
use lms_proto::{Duration, Form, Iface, Instant, Key, TurningPoint};
use proto_core::RateLimit;

use crate::common::{
    DOWN, DOWN2, KEY, NOW, REPLIER, UP, compose, dmcast_repr, inner, point, replier, request,
    router, turning_point,
};
use crate::driver::{self, Driver, OWN, UNLIMITED, arrival, compare, expect_drop, expect_sent};

/// Two requests and three dmcasts at once, one of each a second; four repairs a request, for a second.
fn limited() -> Router<'static> {
    let config = Config {
        policy: Policy::Static,
        request_rate: Rate {
            per_second: 1,
            burst: 2,
        },
        dmcast_rate: Rate {
            per_second: 1,
            burst: 3,
        },
        repairs_per_request: 4,
        repair_time: Duration::from_secs(1),
        ..Config::default()
    };
    let mut router = router(config);
    router.set_replier(NOW, KEY, Some(replier())).unwrap();
    router
}

fn repair(point: TurningPoint, form: Form) -> Vec<u8> {
    let repr = DmcastRepr {
        cookie: point.cookie,
        ..dmcast_repr(point.iface, form, Placement::Outer)
    };
    compose(&repr, &inner(KEY))
}

#[test]
fn requests_have_a_limit() {
    let mut router = limited();
    let packet = request(KEY, None, Form::Own);
    for _ in 0..2 {
        expect_sent(
            &mut router,
            NOW,
            arrival(DOWN),
            &packet,
            Action::Turn,
            REPLIER,
        );
    }
    for late_us in [0, 999_999] {
        let now = NOW + Duration::from_micros(late_us);
        expect_drop(
            &mut router,
            now,
            arrival(DOWN),
            &packet,
            DropReason::RequestRate,
        );
    }
    let now = NOW + Duration::from_secs(1);
    expect_sent(
        &mut router,
        now,
        arrival(DOWN),
        &packet,
        Action::Turn,
        REPLIER,
    );
    expect_drop(
        &mut router,
        now,
        arrival(DOWN),
        &packet,
        DropReason::RequestRate,
    );
}

#[test]
fn dmcasts_have_a_limit_and_credit() {
    let mut router = limited();
    let packet = repair(point(DOWN, Form::Own), Form::Own);
    let from = arrival(REPLIER);
    expect_drop(&mut router, NOW, from, &packet, DropReason::NoCredit);
    let request = request(KEY, None, Form::Own);
    expect_sent(
        &mut router,
        NOW,
        arrival(DOWN),
        &request,
        Action::Turn,
        REPLIER,
    );
    for _ in 0..3 {
        expect_sent(&mut router, NOW, from, &packet, Action::Dmcast, DOWN);
    }
    expect_drop(&mut router, NOW, from, &packet, DropReason::DmcastRate);
    let later = NOW + Duration::from_secs(1);
    expect_sent(&mut router, later, from, &packet, Action::Dmcast, DOWN);
    expect_drop(&mut router, later, from, &packet, DropReason::NoCredit);
}

/// To the microsecond, as the machine.
#[test]
fn credit_expires() {
    for form in [Form::Classic, Form::Own] {
        let (packet, request) = (repair(point(DOWN, form), form), request(KEY, None, form));
        for start_us in [0, 1, 249_999] {
            let start = NOW + Duration::from_micros(start_us);
            // A second, and the quarter that has begun.
            let tick_us = NOW.total_micros() / 250_000 * 250_000;
            let end = Instant::from_micros(tick_us + 1_250_000);
            let mut router = limited();
            expect_sent(
                &mut router,
                start,
                arrival(DOWN),
                &request,
                Action::Turn,
                REPLIER,
            );
            let last = end - Duration::from_micros(1);
            let from = arrival(REPLIER);
            expect_sent(&mut router, last, from, &packet, Action::Dmcast, DOWN);
            expect_drop(&mut router, end, from, &packet, DropReason::NoCredit);
        }
    }
}

/// Requests in the own form do not prolong the time of repairs in the classic one.
#[test]
fn credit_of_the_classic_form_expires() {
    let mut router = limited();
    let classic = request(KEY, None, Form::Classic);
    expect_sent(
        &mut router,
        NOW,
        arrival(DOWN),
        &classic,
        Action::Turn,
        REPLIER,
    );
    let later = NOW + Duration::from_secs(1);
    let own = request(KEY, None, Form::Own);
    expect_sent(
        &mut router,
        later,
        arrival(DOWN),
        &own,
        Action::Turn,
        REPLIER,
    );
    let [classic, own] = [Form::Classic, Form::Own].map(|form| repair(point(DOWN, form), form));
    let from = arrival(REPLIER);
    expect_sent(&mut router, later, from, &classic, Action::Dmcast, DOWN);
    let end = NOW + Duration::from_millis(1_250);
    expect_drop(&mut router, end, from, &classic, DropReason::NoCredit);
    expect_sent(&mut router, end, from, &own, Action::Dmcast, DOWN);
}

/// Only a request that turns admits repairs.
#[test]
fn other_requests_add_no_credit() {
    let turned = turning_point([192, 0, 2, 1].into(), Iface(7));
    let mut router = limited();
    let packet = request(KEY, Some(turned), Form::Own);
    expect_sent(
        &mut router,
        NOW,
        arrival(UP),
        &packet,
        Action::ToReplier,
        REPLIER,
    );
    router.set_replier(NOW, KEY, None).unwrap();
    let packet = request(KEY, None, Form::Own);
    expect_sent(
        &mut router,
        NOW,
        arrival(DOWN),
        &packet,
        Action::ToParent,
        UP,
    );
    assert_eq!(Driver::of(&router, None).get(Word::Credit(0)), 0);
}

/// Dropped by the limit of all groups behind the machine's verdict: the entry's words are spent all the same.
#[test]
fn limits_of_all_groups() {
    let one = RateLimit::new(1, 1);
    let totals = Totals {
        requests: one,
        ..UNLIMITED
    };
    let mut router = limited();
    let packet = request(KEY, None, Form::Own);
    let mut driver = Driver::of(&router, None);
    driver.settings = Some(router.fast_path(totals, 0));
    for refusal in [Refusal::None, Refusal::AllRequests] {
        let verdict = compare(&mut router, &driver, NOW, arrival(DOWN), &packet, None);
        assert_eq!((verdict.action, verdict.refusal), (Action::Turn, refusal));
    }
    let totals = Totals {
        dmcasts: one,
        ..UNLIMITED
    };
    driver.settings = Some(router.fast_path(totals, 0));
    let packet = repair(point(DOWN, Form::Own), Form::Own);
    for refusal in [Refusal::None, Refusal::AllDmcasts] {
        let verdict = compare(&mut router, &driver, NOW, arrival(REPLIER), &packet, None);
        assert_eq!((verdict.action, verdict.refusal), (Action::Dmcast, refusal));
    }
    // A second later each has one more.
    let later = NOW + Duration::from_secs(1);
    let verdict = compare(&mut router, &driver, later, arrival(REPLIER), &packet, None);
    assert_eq!(
        (verdict.action, verdict.refusal),
        (Action::Dmcast, Refusal::None)
    );
}

/// A packet that a limit of its entry drops spends nothing of the limit of all groups.
#[test]
fn what_an_entry_drops_costs_the_others_nothing() {
    let mut router = limited();
    let packet = request(KEY, None, Form::Own);
    let driver = Driver::of(&router, None);
    for _ in 0..2 {
        compare(&mut router, &driver, NOW, arrival(DOWN), &packet, None);
    }
    let before = driver.get(Word::AllRequests);
    let verdict = compare(&mut router, &driver, NOW, arrival(DOWN), &packet, None);
    assert_eq!(verdict.refusal, Refusal::RequestRate);
    assert_eq!(driver.get(Word::AllRequests), before);
}

/// A word that others change all the time drops the packet: no limit is passed over.
#[test]
fn a_word_that_is_busy() {
    for (busy, is_request) in [
        (Word::Requests(0), true),
        (Word::Credit(0), true),
        (Word::AllRequests, true),
        (Word::Dmcasts(0), false),
        (Word::Credit(0), false),
        (Word::AllDmcasts, false),
    ] {
        let mut router = limited();
        let packet = request(KEY, None, Form::Own);
        expect_sent(
            &mut router,
            NOW,
            arrival(DOWN),
            &packet,
            Action::Turn,
            REPLIER,
        );
        let (packet, from) = match is_request {
            true => (packet, DOWN),
            false => (repair(point(DOWN, Form::Own), Form::Own), REPLIER),
        };
        let mut driver = Driver::of(&router, None);
        driver.busy = Some(busy);
        let mut bytes = packet.clone();
        let verdict = driver::run(&driver, NOW, arrival(from), &mut bytes);
        assert_eq!(
            (verdict.action, verdict.refusal),
            (Action::Drop, Refusal::Busy)
        );
        assert_eq!(verdict.refusal.reason(), None);
        assert_eq!(bytes, packet);
    }
}

/// Wrong numbers that cannot be counted are not answered with a reason that says so.
#[test]
fn wrong_numbers_that_are_busy() {
    let mut router = limited();
    let packet = request(KEY, None, Form::Classic);
    expect_sent(
        &mut router,
        NOW,
        arrival(DOWN),
        &packet,
        Action::Turn,
        REPLIER,
    );
    let mut driver = Driver::of(&router, None);
    driver.busy = Some(Word::WrongNumbers(REPLIER));
    let right = point(DOWN, Form::Classic);
    let wrong = TurningPoint {
        iface: Iface(right.iface.0 ^ 0x0100),
        ..right
    };
    for (point, action, refusal) in [
        (right, Action::Dmcast, Refusal::None),
        (wrong, Action::Drop, Refusal::Busy),
    ] {
        let mut packet = repair(point, Form::Classic);
        let verdict = driver::run(&driver, NOW, arrival(REPLIER), &mut packet);
        assert_eq!((verdict.action, verdict.refusal), (action, refusal));
    }
}

/// Tables in which another processor sets a word to 0 between a look at it and its change.
struct Spent<'a> {
    driver: &'a Driver,
    word: Word,
}

impl Tables for Spent<'_> {
    fn settings(&self) -> Option<&Settings> {
        self.driver.settings()
    }

    fn record(&self, key: &Key) -> Option<&Record> {
        self.driver.record(key)
    }

    fn port(&self, iface: Iface) -> Option<&Port> {
        self.driver.port(iface)
    }

    fn whose(&self, address: Ipv4Addr) -> Whose {
        self.driver.whose(address)
    }

    fn read(&self, word: Word) -> u64 {
        self.driver.read(word)
    }

    fn change(&self, word: Word, change: impl Fn(u64) -> Option<u64>) -> Changed {
        if word == self.word {
            self.driver.set(word, 0);
        }
        self.driver.change(word, change)
    }
}

/// The credit of the last repair is gone when the change comes: the repair is dropped.
#[test]
fn credit_that_another_processor_spends() {
    let mut router = limited();
    let packet = request(KEY, None, Form::Own);
    expect_sent(
        &mut router,
        NOW,
        arrival(DOWN),
        &packet,
        Action::Turn,
        REPLIER,
    );
    let driver = Driver::of(&router, None);
    let tables = Spent {
        driver: &driver,
        word: Word::Credit(0),
    };
    let mut packet = repair(point(DOWN, Form::Own), Form::Own);
    let verdict = driver::dmcast::<OWN>(&tables, NOW, arrival(REPLIER), &mut packet);
    assert_eq!(
        (verdict.action, verdict.refusal),
        (Action::Drop, Refusal::NoCredit)
    );
    assert_eq!(driver.get(Word::Credit(0)), 0);
}

/// Entries have words of their own.
#[test]
fn each_slot_has_its_words() {
    let mut router = limited();
    let key = Key::new(KEY.source, [232, 1, 2, 9].into());
    router
        .install(NOW, key, UP, &[REPLIER, DOWN, DOWN2])
        .unwrap();
    router.set_replier(NOW, key, Some(replier())).unwrap();
    for key in [KEY, key, KEY, key] {
        let packet = request(key, None, Form::Classic);
        expect_sent(
            &mut router,
            NOW,
            arrival(DOWN),
            &packet,
            Action::Turn,
            REPLIER,
        );
    }
    for key in [KEY, key] {
        let packet = request(key, None, Form::Classic);
        expect_drop(
            &mut router,
            NOW,
            arrival(DOWN),
            &packet,
            DropReason::RequestRate,
        );
    }
}
