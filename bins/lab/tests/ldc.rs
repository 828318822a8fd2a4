//! Scenarios of late data choice as a user starts them. Where namespaces are forbidden the test says so and
//! passes.

use std::process::Command;

use serde_json::Value;

fn lab(args: &[&str]) -> std::process::Output {
    let program = env!("CARGO_BIN_EXE_lab");
    Command::new(program)
        .args(args)
        .output()
        .expect("start lab")
}

/// The report of a scenario; whether it met its targets is not for a machine that runs tests.
fn report(args: &[&str]) -> Value {
    let args = [&["run"], args, &["--quick", "--quiet", "--json"]].concat();
    let output = lab(&args);
    let err = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code();
    assert!(matches!(code, Some(0 | 3)), "{code:?}\n{err}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn streams_over_slow_links_are_compared_and_drawn() {
    if !lab(&["__probe"]).status.success() {
        netlab::skip("lab", "no namespaces here");
        return;
    }
    let report = report(&["ldc-layers", "--runs", "1", "--seconds", "5"]);
    let tables = report["tables"].as_array().expect("tables");
    assert_eq!(tables[0]["rows"].as_array().map(Vec::len), Some(4));
    assert_eq!(report["plots"].as_array().map(Vec::len), Some(4));
    // Plain TCP delivers layer by layer; of what LDC delivers the base layer has the most.
    let late = &report["data"]["256 kbit/s, LDC"][0]["layers"];
    let bytes = |layer: usize| late[layer]["bytes"].as_u64().expect("bytes");
    assert!(bytes(0) > bytes(7), "{late}");
}

#[test]
fn what_was_changed_in_place_arrives_changed() {
    if !lab(&["__probe"]).status.success() {
        netlab::skip("lab", "no namespaces here");
        return;
    }
    let report = report(&["ldc-modify", "--seconds", "3"]);
    let late = &report["data"]["LDC, changed in place"];
    assert_eq!(late["wrong"], 0);
    assert!(late["modified"].as_u64() > Some(0) && late["received"].as_u64() > Some(0));
}
