//! Known costs and pending requests.

use alloc::format;
use alloc::vec;

use super::*;
use crate::tree::Trees;
use crate::types::Cost;
use proto_core::time::Duration;

const START: Instant = Instant::from_secs(100);

fn session(name: &str) -> SessionName {
    SessionName::parse(&format!("bfed://1/{name}")).expect("a name")
}

fn store() -> Store {
    Store::new(&Limits {
        max_sroutes: 2,
        max_requests: 3,
        ..Limits::default()
    })
}

fn costs(cost: u32) -> Vec<GatewayCost> {
    let gateway = GatewayId::new(1, 1).expect("not 0");
    vec![GatewayCost {
        gateway,
        cost: Cost(cost),
    }]
}

fn after(seconds: u64) -> Instant {
    START + Duration::from_secs(seconds)
}

#[test]
fn costs_are_new_changed_or_the_same() {
    let mut store = store();
    assert_eq!(store.get(&session("a")), None);
    assert!(store.put(START, &session("a"), costs(1), after(10)));
    assert!(!store.put(START, &session("a"), costs(1), after(10)));
    assert!(store.put(START, &session("a"), costs(2), after(10)));
    assert_eq!(store.get(&session("a")), Some(&costs(2)[..]));
    // A null response is knowledge too.
    assert!(store.put(START, &session("b"), vec![], after(10)));
    assert_eq!(store.get(&session("b")), Some(&[][..]));
}

#[test]
fn at_the_limit_costs_that_expire_first_give_way_to_other_sessions() {
    let mut store = store();
    store.put(START, &session("a"), costs(1), after(20));
    assert!(store.has_room(&session("b")));
    store.put(START, &session("b"), costs(1), after(10));
    assert!(!store.has_room(&session("c")));
    assert!(store.has_room(&session("b")), "its own");
    store.put(START, &session("b"), costs(5), after(10));
    assert!(
        store.get(&session("a")).is_some(),
        "nothing had to give way"
    );
    store.put(START, &session("c"), costs(1), after(30));
    assert_eq!(store.get(&session("b")), None);
    assert!(store.get(&session("a")).is_some() && store.get(&session("c")).is_some());
}

#[test]
fn pending_requests_are_bounded_and_answered_by_those_that_were_asked() {
    let mut trees = Trees::default();
    let slot = trees.insert(crate::tree::Tree::new(session("a"), 1, START));
    let mut store = store();
    let (asked, other) = (PeerId(1), PeerId(2));
    let (from, number) = (PeerId(9), 77);
    let passed = |to| Open::Passed { from, number, to };
    assert!(store.add(1, &session("a"), passed(asked), after(2)));
    assert!(store.add(2, &session("a"), Open::Own { slot, to: asked }, after(1)));
    let native = Open::Native {
        from,
        number,
        wanted: vec![],
        internal: false,
    };
    assert!(store.add(3, &session("a"), native, after(3)));
    assert!(
        !store.add(4, &session("a"), passed(asked), after(4)),
        "too many"
    );
    assert_eq!(store.poll_timeout(), Some(after(1)));
    for number in [1, 2] {
        assert!(store.take_from(number, other, &session("a")).is_none());
        assert!(store.take_from(number, asked, &session("b")).is_none());
        assert!(store.take_from(number, asked, &session("a")).is_some());
        assert!(
            store.take_from(number, asked, &session("a")).is_none(),
            "once"
        );
    }
    assert_eq!(store.poll_timeout(), Some(after(3)));
    assert!(
        store.take_from(3, from, &session("a")).is_none(),
        "the native network's"
    );
    assert!(store.take(3).is_some());
    let gather = Open::Gather {
        from,
        number,
        costs: vec![],
        missing: vec![asked],
    };
    store.add(5, &session("a"), gather, after(4));
    assert!(store.take_from(5, other, &session("a")).is_none());
    assert!(store.take_from(5, asked, &session("a")).is_some());
    assert_eq!(store.poll_timeout(), None);
    store.put(START, &session("a"), costs(1), after(5));
    assert_eq!(store.poll_timeout(), Some(after(5)));
}
