//! Wrong arguments teach; `--help` documents what scripts rely on.
#![allow(missing_docs)]

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lms-recv"))
        .args(arguments)
        .output()
        .expect("it runs")
}

#[track_caller]
fn refused(arguments: &[&str], hint: &str) {
    let output = run(arguments);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains(hint), "\"{hint}\" is not in:\n{text}");
}

#[test]
fn help_names_exit_codes_and_events() {
    let output = run(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8_lossy(&output.stdout);
    for word in [
        "Exit codes",
        "130",
        "goodput_bps",
        "--replier-cost",
        "--linger",
        "Examples",
    ] {
        assert!(text.contains(word), "{word} is missing");
    }
}

#[test]
fn wrong_arguments_teach() {
    refused(&[], "--group <ADDR:PORT>");
    refused(
        &["--group", "239.1.2.3", "--output", "/"],
        "the port is missing",
    );
    refused(
        &["--group", "10.0.0.1:5000", "--output", "/"],
        "not a multicast address",
    );
    refused(
        &["--group", "224.0.0.5:5000", "--output", "/"],
        "reserved for routing",
    );
    refused(&["--group", "239.1.2.3:0", "--output", "/"], "port 0");
    refused(
        &["--group", "232.1.2.3:5000", "--output", "/"],
        "--source ADDR",
    );
    for (group, hint) in [
        ("ff15::1", "the port is missing"),
        ("[ff15::1:5000", "[ff3e::1234]:5000"),
        ("[2001:db8::1]:5000", "ff00::/8"),
        ("[ff02::1]:5000", "ff01::/16 and ff02::/16"),
        ("[ff15::1%none]:5000", "no interface is called"),
        ("[ff3e::1234]:5000", "--source ADDR"),
    ] {
        refused(&["--group", group, "--output", "/"], hint);
    }
    let ipv6 = |arguments: &[&str], hint| {
        let output = ["--group", "[ff15::1]:5000", "--output", "/"];
        refused(&[&output[..], arguments].concat(), hint);
    };
    ipv6(&["--source", "10.0.0.1"], "name an IPv6 address");
    ipv6(&["--address", "10.0.0.1"], "name an IPv6 address");
    ipv6(&["--source", "fe80::1%lo"], "--interface");
    ipv6(&["--source", "ff15::2"], "the address of one host");
    refused(
        &["--group", "239.1.2.3:5000", "--output", "/nonexistent"],
        "mkdir -p /nonexistent",
    );
    refused(
        &["--group", "239.1.2.3:5000", "--output", "/etc/passwd"],
        "is not a folder",
    );
    refused(
        &["--group", "239.1.2.3:5000", "--output", "-", "--name", "x"],
        "writes none",
    );
    let more = |arguments: &[&str], hint| {
        let output = ["--group", "239.1.2.3:5000", "--output", "/"];
        refused(&[&output[..], arguments].concat(), hint);
    };
    more(&["--name", "../x"], "plain file name");
    more(&["--timeout", "5 days"], "250ms");
    more(&["--buffer", "1K"], "at least 1MiB");
    more(&["--assist", "srm"], "lms");
    more(&["--replier-cost", "0"], "1..");
    more(&["--outptu", "x"], "--output");
}

#[test]
fn a_folder_that_takes_no_files_is_known_before_the_transfer() {
    // No user can create files there, not even root.
    refused(
        &["--group", "239.1.2.3:5000", "--output", "/proc/self"],
        "--output: ",
    );
}

#[test]
fn an_unknown_interface_names_those_there_are() {
    let output = run(&[
        "--json",
        "--group",
        "239.1.2.3:5000",
        "--output",
        "/tmp",
        "--interface",
        "eth77",
    ]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("eth77") && text.contains("lo"), "{text}");
    let events = String::from_utf8_lossy(&output.stdout);
    assert!(
        events.starts_with("{\"event\":\"end\",\"result\":\"failed\",\"exit_code\":1")
            && events.contains("eth77"),
        "{events}"
    );
}
