use super::*;
use crate::wire::attributes::MAX_TAGS;

fn sample() -> Route {
    Route {
        cost: Cost(10),
        path: [SECOND.1, FAR].into(),
        tags: [5, 6].into(),
    }
}

fn holds(when: Match) -> bool {
    let rule = Rule {
        when,
        then: Action::Accept(Changes::default()),
    };
    let policy = Policy {
        rules: vec![rule],
        otherwise: Action::Reject,
    };
    policy.decide(TABLE, FAR, &sample()) != Action::Reject
}

#[test]
fn each_condition_holds_for_what_it_names() {
    let any = Match::default;
    assert!(holds(any()));
    let tables = |table| Some(Tables::NONE.with(table));
    assert!(holds(Match {
        tables: tables(TABLE),
        ..any()
    }));
    assert!(!holds(Match {
        tables: tables(OTHER_TABLE),
        ..any()
    }));
    assert!(holds(Match {
        network: Some(network(9)),
        ..any()
    }));
    assert!(!holds(Match {
        network: Some(network(2)),
        ..any()
    }));
    assert!(holds(Match {
        destination: Some(FAR),
        ..any()
    }));
    assert!(!holds(Match {
        destination: Some(gateway(9, 2)),
        ..any()
    }));
    assert!(holds(Match {
        passes: Some(network(2)),
        ..any()
    }));
    assert!(!holds(Match {
        passes: Some(network(3)),
        ..any()
    }));
    assert!(holds(Match {
        tag: Some(5),
        ..any()
    }));
    assert!(!holds(Match {
        tag: Some(7),
        ..any()
    }));
    assert!(holds(Match {
        longer_than: Some(1),
        ..any()
    }));
    assert!(!holds(Match {
        longer_than: Some(2),
        ..any()
    }));
    // All that are set must hold.
    let both = |tag| Match {
        network: Some(network(9)),
        tag: Some(tag),
        ..any()
    };
    assert!(holds(both(6)));
    assert!(!holds(both(7)));
}

#[test]
fn changes_of_cost_and_tags() {
    let applied = |changes: Changes, tags: &[u32]| {
        let mut route = sample();
        route.tags = tags.into();
        changes.apply(TABLE, &mut route);
        (route.cost.0, route.tags.to_vec())
    };
    let none = Changes::default;
    assert_eq!(applied(none(), &[5, 6]), (10, vec![5, 6]));
    let add_cost = Changes {
        add_cost: Cost(3),
        ..none()
    };
    assert_eq!(applied(add_cost, &[5]), (13, vec![5]));
    let add = Changes {
        add_tag: Some(7),
        ..none()
    };
    assert_eq!(applied(add, &[5]).1, [5, 7]);
    assert_eq!(applied(add, &[7, 5]).1, [7, 5], "once");
    let remove = Changes {
        remove_tag: Some(5),
        ..none()
    };
    assert_eq!(applied(remove, &[5, 6, 5]).1, [6]);
    let full: Vec<u32> = (100..).take(MAX_TAGS).collect();
    assert_eq!(applied(add, &full).1, full, "no room");
    assert_eq!(applied(add, &full[1..]).1.len(), MAX_TAGS);
    let exchange = Changes {
        remove_tag: Some(100),
        add_tag: Some(7),
        ..none()
    };
    assert_eq!(applied(exchange, &full).1.last(), Some(&7));
}

#[test]
fn the_first_rule_that_matches_decides() {
    let rule = |tag, then| Rule {
        when: Match {
            tag: Some(tag),
            ..Match::default()
        },
        then,
    };
    let preferred = Action::Accept(Changes {
        preference: Some(200),
        ..Changes::default()
    });
    let policy = Policy {
        rules: vec![
            rule(7, Action::Reject),
            rule(6, preferred),
            rule(5, Action::Reject),
        ],
        otherwise: Action::Reject,
    };
    assert_eq!(policy.decide(TABLE, FAR, &sample()), preferred);
    let mut other = sample();
    other.tags = [].into();
    assert_eq!(policy.decide(TABLE, FAR, &other), Action::Reject);
    assert_eq!(
        Policy::reject_all().decide(TABLE, FAR, &other),
        Action::Reject
    );
    let own_only = Policy::only_to(network(9));
    assert_ne!(own_only.decide(TABLE, FAR, &other), Action::Reject);
    assert_eq!(own_only.decide(TABLE, OWN, &other), Action::Reject);
}
