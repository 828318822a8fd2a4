//! The configuration: valid ones, and the errors of others.

use bfed::routing::Action;
use bfed::{Content, Cost, Metric, Table};
use bfed_gateway::config::Config;
use daemon_kit::daemon::Configuration;

const EXAMPLE: &str = include_str!("../examples/gateway.toml");

fn problems(text: &str) -> Vec<String> {
    match Config::parse(text) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

/// The one thing that is wrong with `text` in a configuration that is fine otherwise.
#[track_caller]
fn problem(text: &str) -> String {
    let found = problems(text);
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

fn with(more: &str) -> String {
    format!("[gateway]\nnetwork = 1\n{more}")
}

#[test]
fn the_example_is_accepted_and_shows_the_defaults() {
    let example = Config::parse(EXAMPLE).unwrap();
    let least = Config::parse(&with("")).unwrap();
    let (mut a, b) = (example.machine.clone(), &least.machine);
    a.names.clear();
    a.authorisation.rules.clear();
    assert_eq!(a, *b);
    assert_eq!(example.data.machine, least.data.machine);
    assert_eq!(example.data.listen, least.data.listen);
    assert_eq!(example.data.max_streams, least.data.max_streams);
    assert_eq!(example.shutdown, least.shutdown);
    assert_eq!(example.daemon, least.daemon);
    assert_eq!(
        (least.listen, least.daemon.metrics, least.page),
        (None, None, None)
    );
}

/// What is commented out is right too, each line on its own.
#[test]
fn every_line_of_the_example_that_is_commented_out_can_be_used() {
    let candidates = EXAMPLE.lines().filter(|line| {
        let key = line
            .strip_prefix("# ")
            .and_then(|rest| rest.split_once(" = "));
        key.is_some_and(|(key, _)| !key.contains(' '))
    });
    let mut count = 0;
    for line in candidates {
        let text = EXAMPLE.replace(line, &line[2..]);
        assert_eq!(problems(&text), Vec::<String>::new(), "{line}");
        count += 1;
    }
    assert!(count >= 10, "only {count}");
}

#[test]
fn policies_mean_what_they_say() {
    let config = Config::parse(EXAMPLE).unwrap();
    let peer = config.peers.values().next().unwrap();
    assert_eq!(
        peer.machine
            .link
            .get(Table::new(Metric::Latency, Content::Bulk, true)),
        Cost(20_000)
    );
    assert_eq!(peer.machine.rate_bps, Some(100_000_000));
    let rule = &peer.machine.import.rules[0];
    let tables: Vec<_> = rule.when.tables.unwrap().iter().collect();
    assert_eq!(
        tables,
        [Table::new(Metric::Latency, Content::RealTime, false)]
    );
    assert_eq!(rule.when.destination.unwrap().to_string(), "7.1");
    let Action::Accept(changes) = rule.then else {
        panic!("rejected");
    };
    assert_eq!(
        (changes.preference, changes.add_cost),
        (Some(120), Cost(10))
    );
    assert_eq!(peer.machine.export.rules[0].then, Action::Reject);
}

#[test]
fn a_peer_keeps_its_number_whatever_comes_before_it() {
    let one = "[[peer]]\nnetwork = 2\naddress = \"127.0.0.1:1\"\n";
    let other = "[[peer]]\nnetwork = 3\naddress = \"127.0.0.1:2\"\n";
    let id = |text: &str| {
        let config = Config::parse(&with(text)).unwrap();
        let found = config
            .peers
            .iter()
            .find(|(_, peer)| peer.machine.gateway.network.get() == 2);
        *found.unwrap().0
    };
    assert_eq!(id(one), id(&format!("{other}{one}")));
}

/// Checks the only problem of each configuration.
#[track_caller]
fn problems_of(table: &[(&str, &str)]) {
    for (more, expected) in table {
        let found = problem(&with(more));
        assert!(found.contains(expected), "{more}: {found}");
    }
}

#[test]
fn what_is_wrong_is_said_with_its_place_and_what_to_write() {
    for (text, expected) in [
        (
            "",
            "1:1: gateway.network: is missing; write a network's number, from 1 on",
        ),
        (
            "[gateway]\nnetwork = 0",
            "2:11: gateway.network: is 0; write a number from 1 on",
        ),
    ] {
        assert_eq!(problem(text), expected);
    }
    problems_of(&[
        (
            "hold-time = \"2s\"",
            "3:13: gateway.hold-time: is too short; write 3s or more, or 0s for no limit",
        ),
        ("hold-time = \"3500ms\"", "is not whole seconds"),
        (
            "listen = \"192.0.2.1:4140\"",
            "is reachable from outside, and there is no key-file",
        ),
        ("tables = []", "names none"),
        ("tables = [\"beauty\"]", "\"beauty\" is no metric"),
        (
            "assignment = \"least-loded\"",
            "did you mean \"least-loaded\"?",
        ),
        ("holdtime = 3", "did you mean hold-time?"),
        ("[timers]\nlifetime = \"59s\"", "is below two times refresh"),
        ("[limits]\nreceiver-queue = 1000", "1000 is too small"),
        (
            "[data]\nlisten = \"0.0.0.0:4141\"",
            "is not an address that peers can send to",
        ),
        (
            "[data]\nlisten = \"127.0.0.1:65535\"\nnodes = 2",
            "leaves no ports for 2 nodes",
        ),
        (
            "[cluster]\nlisten = \"192.0.2.1:1\"",
            "there is no cluster.key-file",
        ),
        (
            "[cluster]\ncontrol = [\"192.0.2.1:1\"]",
            "there is no cluster.key-file",
        ),
        (
            "[cluster]\ncontrol = [\"control.example.org:1\"]",
            "there is no cluster.key-file",
        ),
        (
            "[network]\nkind = \"smoke-signals\"",
            "\"smoke-signals\" is unknown",
        ),
    ]);
}

#[test]
fn what_is_wrong_with_peers_and_names_is_said() {
    let peer = "[[peer]]\nnetwork = 2\n";
    problems_of(&[
        (
            &format!("{peer}address = \"192.0.2.1:4140\""),
            "is not on loopback",
        ),
        (
            &format!("{peer}address = \"gw.example.org:4140\""),
            "gw.example.org:4140 is not on loopback",
        ),
        (
            &format!("{peer}address = \"gw.example.org\""),
            "neither an address nor a name with a port",
        ),
        (
            &format!("{peer}address = \"0.0.0.0:4140\""),
            "is not where a gateway listens",
        ),
        (&format!("{peer}cost = 0"), "0 is too small"),
        (&format!("{peer}rate = \"fast\""), "is not a bit rate"),
        (&format!("{peer}max-hops = 0"), "0 is too small"),
        (
            &format!("{peer}mediator = {:?}", "m".repeat(129)),
            "is longer than 128 bytes",
        ),
        (&format!("{peer}{peer}"), "there are two peers 2.1"),
        ("[[peer]]\nnetwork = 1", "1.1 is this gateway itself"),
        (
            "[[peer]]\nnetwork = 2\nlatency-cost = 20000\nmeasure-latency = true",
            "is true, and yet latency-cost is configured; leave one of them out",
        ),
        (
            &format!("{peer}[[peer.import]]\naccept = false\nadd-cost = 1"),
            "the route is to be changed",
        ),
        (
            &format!("{peer}[[peer.import]]\naccept = true\ngateway = 1"),
            "is of no network",
        ),
        (
            &format!("{peer}[[peer.import]]\nnetwork = 3"),
            "accept: is missing",
        ),
        (
            "[[name]]\nhost = \"a\"\nnetwork = 2\n[[name]]\nhost = \"A\"\nnetwork = 3",
            "is there twice",
        ),
    ]);
}

#[test]
fn a_node_has_as_many_channels_as_its_sessions_need() {
    for (text, sessions) in [
        ("", 10_000),
        ("[limits]\nsessions-per-node = 30000\n", 30_000),
    ] {
        let config = Config::parse(&with(text));
        let data = config.unwrap().data;
        assert_eq!(data.machine.max_sessions, sessions);
        // One from above and one to below.
        assert_eq!(data.max_streams, 2 * sessions as usize);
    }
}

#[test]
fn one_problem_never_hides_another() {
    let found = problems(&with(
        "hold-time = \"1s\"\n[limits]\npeers = 0\nqeue = 1\n[data]\nnodes = 99",
    ));
    assert_eq!(found.len(), 4, "{found:?}");
}

#[cfg(not(feature = "etcd"))]
#[test]
fn without_etcd_its_section_is_refused() {
    let found = problem(&with(
        "[etcd]\nendpoints = [\"http://127.0.0.1:2379\"]\nname = \"a\"",
    ));
    assert!(found.contains("built without etcd"), "{found}");
}

#[test]
fn authorisation_rules_are_read_and_their_errors_say_what_to_do() {
    let rule = |more: &str| with(&format!("[[authorisation.rule]]\nname = \"a\"\n{more}"));
    let read = Config::parse(&rule(
        "action = \"deny\"\nrights = [\"carry\"]\nsessions = [\"bfed://7/x*\"]\npeers = [\"2\", \"3.1\"]",
    ));
    let rules = read.unwrap().machine.authorisation.rules;
    assert_eq!((rules.len(), rules[0].peers.len()), (1, 2));
    assert_eq!(rules[0].sessions[0].to_string(), "bfed://7/x*");
    let allow = "action = \"allow\"\n";
    for (text, expected) in [
        (rule(""), "action: is missing"),
        (rule("action = \"reject\""), "\"reject\" is no action"),
        (rule(&format!("{allow}rights = []")), "rights: names none"),
        (
            rule(&format!("{allow}rights = [\"send\"]")),
            "\"send\" is no right",
        ),
        (
            rule(&format!("{allow}sessions = [\"239.1\"]")),
            "is no pattern: a session's name begins with bfed://",
        ),
        (
            rule(&format!("{allow}groups = [\"x\"]")),
            "is not an address prefix",
        ),
        (
            rule(&format!("{allow}peers = [\"0\"]")),
            "is neither a network nor a gateway",
        ),
        (
            rule("action = \"deny\"\nmax-sessions = 1"),
            "bounds what a rule admits",
        ),
        (
            rule(&format!(
                "{allow}clients = [\"10.0.0.0/8\"]\npeers = [\"2\"]"
            )),
            "no request comes from both",
        ),
        (
            rule(&format!(
                "{allow}clients = [\"10.0.0.0/8\"]\n[network]\nkind = \"ip\""
            )),
            "unknown in an IP multicast network",
        ),
        (
            rule(&format!(
                "{allow}clients = [\"10.0.0.0/8\"]\n[network]\nkind = \"ltp\""
            )),
            "unknown in an LTP network",
        ),
        (
            rule(&format!(
                "{allow}[[authorisation.rule]]\nname = \"a\"\n{allow}"
            )),
            "there are two rules",
        ),
        (
            with("[[authorisation.rule]]\nname = \"default\"\naction = \"deny\""),
            "match no rule",
        ),
        (with("[tokens]\nrequired = [\"join\"]"), "there is no key"),
        (
            with("[tokens]\nrequired = [\"carry\"]"),
            "no right that a token grants",
        ),
        (
            with("[tokens]\nkeys = [\"k4.secret.AAAA\"]"),
            "is not a public key",
        ),
    ] {
        let found = problem(&text);
        assert!(found.contains(expected), "{found}");
    }
    // The addresses of sources in LTP networks are known.
    let sources = "rights = [\"publish\"]\nclients = [\"10.0.0.0/8\"]\n[network]\nkind = \"ltp\"";
    let found = problems(&rule(&format!("{allow}{sources}")));
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn networks_of_a_peer_are_single_or_ranges() {
    let peer = |networks: &str| with(&format!("[[peer]]\nnetwork = 2\nnetworks = {networks}"));
    let read = Config::parse(&peer("[7, \"10-19\", \"0x1f\"]"));
    assert!(read.is_err(), "numbers in quotes are decimal");
    let read = Config::parse(&peer("[7, \"10-19\"]")).unwrap();
    let machine = &read.peers.values().next().unwrap().machine;
    let may = |network| machine.may_announce(bfed::BnNum::new(network).unwrap());
    assert_eq!(
        [6, 7, 8, 9, 10, 19, 20].map(may),
        [false, true, false, false, true, true, false]
    );
    assert!(problem(&peer("[]")).contains("names none"));
    assert!(problem(&peer("[\"19-10\"]")).contains("ends before it begins"));
    assert!(problem(&peer("[0]")).contains("is no network"));
}
