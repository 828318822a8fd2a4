//! How long refusals are remembered.

use alloc::format;

use super::*;

const START: Instant = Instant::from_secs(100);
const TIME: Duration = Duration::from_secs(5);

fn session(name: &str) -> SessionName {
    SessionName::parse(&format!("bfed://1/{name}")).expect("a name")
}

fn seconds(time: u64) -> Duration {
    Duration::from_secs(time)
}

/// How long a refusal at that time is answered from memory, in seconds.
fn refuse(refusals: &mut Refusals, now: Instant) -> u64 {
    refusals.put(now, session("a"), Reason::Limit, TIME, 10);
    let refused = |time| refusals.get(now + time, &session("a")) == Some(Reason::Limit);
    let lasts = (0..1000).take_while(|&time| refused(seconds(time))).count() as u64;
    assert!(refused(seconds(lasts) - Duration::from_micros(1)));
    lasts
}

#[test]
fn each_refusal_lasts_twice_as_long_as_the_one_before_up_to_16_times() {
    let mut refusals = Refusals::default();
    assert_eq!(refusals.get(START, &session("a")), None);
    let mut now = START;
    for lasts in [5, 10, 20, 40, 80, 80, 80] {
        assert_eq!(refuse(&mut refusals, now), lasts);
        now += seconds(lasts);
    }
}

#[test]
fn after_sixteen_refusal_times_without_another_it_starts_anew() {
    // A refusal of 5 s counts for 80 s more.
    for (pause, lasts) in [(84, 10), (85, 5), (1000, 5)] {
        let mut refusals = Refusals::default();
        refuse(&mut refusals, START);
        assert_eq!(
            refuse(&mut refusals, START + seconds(pause)),
            lasts,
            "{pause}"
        );
    }
    // A session that was available in the meantime, too.
    let mut refusals = Refusals::default();
    refuse(&mut refusals, START);
    refusals.clear(&session("a"));
    assert_eq!(refusals.get(START, &session("a")), None);
    assert_eq!(refuse(&mut refusals, START), 5);
}

#[test]
fn at_the_limit_the_refusal_that_ends_first_goes() {
    let mut refusals = Refusals::default();
    let put = |refusals: &mut Refusals, after, name| {
        let now = START + seconds(after);
        refusals.put(now, session(name), Reason::NoSession, TIME, 3);
    };
    for (after, name) in [(0, "d"), (1, "c"), (2, "b")] {
        put(&mut refusals, after, name);
    }
    // One that is known takes no further room.
    put(&mut refusals, 3, "d");
    let known = |refusals: &Refusals, name| refusals.get(START + seconds(3), &session(name));
    let reason = Some(Reason::NoSession);
    for name in ["b", "c", "d"] {
        assert_eq!(known(&refusals, name), reason);
    }
    put(&mut refusals, 3, "a");
    assert_eq!(known(&refusals, "c"), None);
    for name in ["a", "b", "d"] {
        assert_eq!(known(&refusals, name), reason);
    }
    assert_eq!(refusals.0.len(), 3);
}
