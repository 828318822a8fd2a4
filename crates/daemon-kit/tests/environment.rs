//! Variables of the environment beside a configuration.

use daemon_kit::environment::Document;
use daemon_kit::reader::{self, Problem};
use daemon_kit::value::{LISTEN, boolean, listen, text};

/// Reads `[metrics] listen`, `[relay] parents, fast, name` and `[daemon] socket-mode`.
fn read(file: &str, variables: &[(&str, &str)]) -> Result<String, Vec<Problem>> {
    let owned = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    reader::parse(Document::with_environment(file, owned), |root| {
        let metrics = root.section("metrics");
        let at = metrics.get("listen", LISTEN, listen).map(|at| at.value);
        metrics.finish();
        let relay = root.section("relay");
        let parents = relay.list("parents", "a list", text);
        let parents: Vec<String> = parents
            .into_iter()
            .flat_map(|list| list.value.into_iter().map(|at| at.value))
            .collect();
        let fast = relay
            .get("fast", "true or false", boolean)
            .map(|at| at.value);
        let name = relay.get("name", "a text", text).map(|at| at.value);
        let tries = relay.number("tries", 1..=9u8, 2);
        relay.finish();
        let daemon = root.section("daemon");
        let mode = daemon.get("socket-mode", "a mode", text).map(|at| at.value);
        daemon.finish();
        format!("{at:?} {parents:?} {fast:?} {name:?} {tries} {mode:?}")
    })
}

fn problem(file: &str, variable: &str, value: &str) -> String {
    let problems = read(file, &[(variable, value)]).unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems[0].to_string()
}

#[test]
fn variables_win_over_the_file() {
    let file = "[relay]\nname = \"file\"\ntries = 3\nfast = false\n";
    let read = read(
        file,
        &[
            ("POLYCAST_METRICS__LISTEN", "127.0.0.1:9464"),
            ("POLYCAST_RELAY__PARENTS", "[\"10.0.0.1:4143\", \"b\"]"),
            ("POLYCAST_RELAY__FAST", "true"),
            ("POLYCAST_RELAY__NAME", "with = \" and\\"),
            ("POLYCAST_DAEMON__SOCKET_MODE", "\"0600\""),
            ("POLYCAST_RUST_LOG", "not a key of a section"),
            ("RELAY__NAME", "not ours"),
        ],
    );
    assert_eq!(
        read.unwrap(),
        "Some(127.0.0.1:9464) [\"10.0.0.1:4143\", \"b\"] Some(true) Some(\"with = \\\" and\\\\\") 3 \
         Some(\"0600\")"
    );
}

#[test]
fn errors_name_the_variable_and_the_key() {
    let file = "[relay]\nname = \"file\"\n";
    assert_eq!(
        problem(file, "POLYCAST_RELAY__TRIES", "11"),
        "POLYCAST_RELAY__TRIES: relay.tries: 11 is too large; write a whole number from 1 to 9"
    );
    assert_eq!(
        problem(file, "POLYCAST_RELAY__TRIE", "1"),
        "POLYCAST_RELAY__TRIE: relay.trie: is unknown; did you mean tries?"
    );
    assert_eq!(
        problem(file, "POLYCAST_RELAY__NAME__X", "1"),
        "POLYCAST_RELAY__NAME__X: name: is not a section"
    );
    let nowhere = problem(file, "POLYCAST_RELAYS__NAME", "x");
    assert!(
        nowhere.starts_with("POLYCAST_RELAYS__NAME: relays: is unknown"),
        "{nowhere}"
    );
}

#[test]
fn problems_of_the_file_keep_their_place() {
    let problems = read(
        "[relay]\nname = 1\n",
        &[("POLYCAST_RELAY__FAST", "perhaps")],
    );
    let shown: Vec<String> = problems
        .unwrap_err()
        .iter()
        .map(Problem::to_string)
        .collect();
    assert_eq!(
        shown,
        [
            "2:8: relay.name: 1 is not a text in quotes; write a text",
            "POLYCAST_RELAY__FAST: relay.fast: \"perhaps\" is neither true nor false; write true or \
             false",
        ]
    );
}

/// A value cannot smuggle further keys in.
#[test]
fn a_value_is_one_value() {
    let read = read("", &[("POLYCAST_RELAY__NAME", "\"a\"\nw = 1")]).unwrap();
    assert!(read.contains("Some(\"\\\"a\\\"\\nw = 1\")"), "{read}");
}
