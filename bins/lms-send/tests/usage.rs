//! Wrong arguments teach; `--help` documents what scripts rely on.
#![allow(missing_docs)]

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lms-send"))
        .args(arguments)
        .output()
        .expect("it runs")
}

#[track_caller]
fn says(code: i32, arguments: &[&str], hint: &str) {
    let output = run(arguments);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.contains(hint), "\"{hint}\" is not in:\n{text}");
}

const GROUP: [&str; 4] = ["--group", "239.1.2.3:5000", "--interface", "lo"];

#[track_caller]
fn refused(arguments: &[&str], hint: &str) {
    says(2, &[&GROUP[..], arguments].concat(), hint);
}

#[test]
fn help_names_exit_codes_and_events() {
    let output = run(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8_lossy(&output.stdout);
    for word in [
        "Exit codes",
        "130",
        "receiver_failed",
        "--receivers",
        "--linger",
        "Examples",
    ] {
        assert!(text.contains(word), "{word} is missing");
    }
}

#[test]
fn wrong_arguments_teach() {
    says(2, &["x"], "--group <ADDR:PORT>");
    says(2, &["--group", "239.1.2.3", "x"], "the port is missing");
    refused(&["--rate", "100MB", "x"], "a rate counts bits");
    refused(&["--rate", "fast", "x"], "unlimited");
    refused(&["--receivers", "0", "x"], "1..");
    refused(&["--ttl", "0", "x"], "1..");
    refused(&["--mtu", "100", "x"], "576..");
    refused(&["--name", "a/b", "x"], "plain file name");
    refused(&["--no-digest", "-"], "a stream always starts at once");
    for relays in ["dyram://192.0.2.1", "dyram+multicast://192.0.2.1"] {
        let relayed = ["--assist", relays, "--min-rate", "5M", "x"];
        refused(&relayed, "no --min-rate through relays");
    }
    refused(&["--buffer", "5", "x"], "at least 1MiB");
    let ipv6 = |arguments: &[&str], hint| {
        let group = ["--group", "[ff15::1]:5000"];
        says(2, &[&group[..], arguments].concat(), hint);
    };
    ipv6(&["--mtu", "1279", "x"], "1280 or more");
    ipv6(&["--source", "192.0.2.1", "x"], "name an IPv6 address");
    says(2, &["--group", "ff15::1", "x"], "[ff3e::1234]:5000");
    refused(&["--log", "ltp=loud", "x"], "invalid log filter");
}

#[test]
fn an_error_before_the_transfer_is_an_event_too() {
    for arguments in [["--json", "/nonexistent/file"], ["--json", "/etc"]] {
        let output = run(&[&GROUP[..], &arguments].concat());
        assert_eq!(output.status.code(), Some(1));
        let events = String::from_utf8_lossy(&output.stdout);
        assert!(
            events.starts_with("{\"event\":\"end\",\"result\":\"failed\",\"exit_code\":1")
                && events.contains(arguments[1])
                && events.lines().count() == 1,
            "{events}"
        );
    }
}

#[test]
fn a_content_that_cannot_be_sent_is_an_error_with_its_reason() {
    let with = |file| [&GROUP[..], &[file]].concat();
    says(
        1,
        &with("/nonexistent/file"),
        "cannot open /nonexistent/file",
    );
    says(1, &with("/etc"), "is a folder: send it with `tar c /etc");
    let key = [&GROUP[..], &["--key-file", "/etc/hostname", "/etc/passwd"]].concat();
    says(1, &key, "openssl rand -hex 32");
    says(
        1,
        &[
            "--group",
            "239.1.2.3:5000",
            "--interface",
            "eth77",
            "/etc/passwd",
        ],
        "eth77",
    );
}
