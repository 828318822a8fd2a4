use alloc::vec;

use super::*;

fn session(text: &str) -> SessionName {
    SessionName::parse(text).unwrap()
}

fn peer(network: u32, number: u32) -> Subject {
    Subject::Peer(GatewayId::new(network, number).unwrap())
}

fn client(address: &str) -> Subject {
    Subject::Client(Some(address.parse().unwrap()))
}

fn rule(name: &str, action: Action) -> Rule {
    Rule {
        name: name.into(),
        action,
        ..Rule::default()
    }
}

/// Returns the name of the rule that decides, and whether it allows.
fn decided(all: &mut Authoriser, right: Right, subject: Subject, name: &str) -> (String, bool) {
    let request = Request {
        right,
        subject,
        session: &session(name),
        network: None,
    };
    let result = all.decide(&request);
    let id = result.unwrap_or_else(|id| id);
    (all.name(id).into(), result.is_ok())
}

fn three_rules() -> Authoriser {
    let rules = vec![
        Rule {
            rights: vec![Right::Publish],
            groups: vec!["239.1.0.0/16".parse().unwrap()],
            ..rule("internal groups", Action::Deny)
        },
        Rule {
            peers: vec![PeerPattern {
                network: BnNum::new(2).unwrap(),
                number: Some(1),
            }],
            sessions: vec!["bfed://7".parse().unwrap()],
            ..rule("partner", Action::Allow)
        },
        Rule {
            clients: vec!["10.0.0.0/8".parse().unwrap()],
            ..rule("office", Action::Allow)
        },
    ];
    let otherwise = Action::Deny;
    Authoriser::new(Rules { rules, otherwise }, BTreeMap::new())
}

#[test]
fn the_first_rule_that_matches_decides() {
    let mut all = three_rules();
    let (publish, carry, join) = (Right::Publish, Right::Carry, Right::Join);
    let (partner, unknown) = (peer(2, 1), Subject::Client(None));
    let (internal, default) = ("internal groups", DEFAULT);
    for (right, subject, name, rule, allows) in [
        (publish, partner, "bfed://7/239.1.2.3", internal, false),
        (
            publish,
            partner,
            "bfed://7/10.0.0.1@239.1.2.3",
            internal,
            false,
        ),
        (publish, partner, "bfed://7/239%2E1.2.3", internal, false),
        (publish, partner, "bfed://7/239.2.2.3", "partner", true),
        (carry, partner, "bfed://7/239.1.2.3", "partner", true),
        (carry, peer(2, 2), "bfed://7/m", default, false),
        (carry, partner, "bfed://70/m", default, false),
        (join, client("10.1.2.3"), "bfed://9/m", "office", true),
        (
            join,
            client("::ffff:10.1.2.3"),
            "bfed://9/m",
            "office",
            true,
        ),
        (join, client("11.1.2.3"), "bfed://9/m", default, false),
        (join, unknown, "bfed://9/m", default, false),
    ] {
        let found = decided(&mut all, right, subject, name);
        assert_eq!(found, (rule.into(), allows), "{right:?} {subject:?} {name}");
    }
    let denied: Vec<_> = all
        .status()
        .map(|status| (status.name, status.denied))
        .collect();
    assert_eq!(
        denied,
        [
            ("internal groups", 3),
            ("partner", 0),
            ("office", 0),
            (DEFAULT, 4)
        ]
    );
}

#[test]
fn bounds_of_count_and_rate_deny_under_the_rule_that_has_them() {
    let few = Rule {
        max_sessions: Some(2),
        ..rule("few", Action::Allow)
    };
    let rules = Rules {
        rules: vec![few],
        otherwise: Action::Allow,
    };
    let mut all = Authoriser::new(rules, BTreeMap::new());
    let (name, now) = (session("bfed://7/m"), Instant::from_secs(1));
    let request = Request {
        right: Right::Join,
        subject: Subject::Client(None),
        session: &name,
        network: None,
    };
    let first = all.admit(now, &request).unwrap();
    assert!(all.admit(now, &request).is_ok());
    assert!(
        all.admit(now, &request).is_err(),
        "the default does not help"
    );
    all.release(first);
    assert!(all.admit(now, &request).is_ok());
    assert_eq!(
        all.status().next().map(|few| (few.sessions, few.denied)),
        Some((2, 1))
    );

    let slow = Rule {
        new_per_second: Some(5),
        ..rule("few", Action::Allow)
    };
    let rules = Rules {
        rules: vec![slow],
        otherwise: Action::Allow,
    };
    all.reconfigure(rules, BTreeMap::new());
    assert_eq!(
        all.status().next().map(|few| (few.sessions, few.denied)),
        Some((0, 1))
    );
    let admitted = (0..100)
        .filter(|_| all.admit(now, &request).is_ok())
        .count();
    assert_eq!(admitted, 10, "the burst");
    let later = now + crate::Duration::from_secs(1);
    let admitted = (0..100)
        .filter(|_| all.admit(later, &request).is_ok())
        .count();
    assert_eq!(admitted, 5);
}

#[test]
fn clients_keep_a_session_while_any_of_them_may_join() {
    let office = Rule {
        clients: vec!["10.0.0.0/8".parse().unwrap()],
        ..rule("office", Action::Allow)
    };
    let guests = Rule {
        clients: vec!["10.9.0.0/16".parse().unwrap()],
        ..rule("guests", Action::Deny)
    };
    let name = session("bfed://7/m");
    let request = Request {
        right: Right::Join,
        subject: Subject::Clients,
        session: &name,
        network: None,
    };
    for (rules, otherwise, kept) in [
        (vec![guests.clone(), office.clone()], Action::Deny, true),
        (vec![guests.clone()], Action::Deny, false),
        (vec![guests], Action::Allow, true),
        (
            vec![rule("all", Action::Deny), office],
            Action::Allow,
            false,
        ),
    ] {
        let mut all = Authoriser::new(Rules { rules, otherwise }, BTreeMap::new());
        assert_eq!(all.admit_again(&request).is_ok(), kept);
    }
}
