//! Data nodes under load, small: what must hold on any machine. How fast they are is not for a machine
//! that runs tests. Where namespaces are forbidden the tests say so and pass.

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

fn lab(args: &[&str]) -> std::process::Output {
    let program = env!("CARGO_BIN_EXE_lab");
    Command::new(program)
        .args(args)
        .output()
        .expect("start lab")
}

/// Scenarios take turns: side by side they would measure each other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The report of a scenario whose facts hold; none where namespaces are forbidden.
fn report(scenario: &str) -> Option<Value> {
    let _alone = alone();
    if !lab(&["__probe"]).status.success() {
        netlab::skip("lab", "no namespaces here");
        return None;
    }
    let output = lab(&["run", scenario, "--quick", "--quiet", "--untimed", "--json"]);
    let said = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}\n{err}", output.status);
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
}

fn rows(report: &Value, table: usize) -> usize {
    report["tables"][table]["rows"]
        .as_array()
        .map_or(0, Vec::len)
}

#[test]
fn what_goes_through_data_nodes_arrives_whole() {
    let Some(report) = report("bfed-throughput") else {
        return;
    };
    assert_eq!(rows(&report, 0), 4, "two data nodes, two lengths");
    assert!(rows(&report, 1) >= 3, "{report}");
}

#[test]
fn frames_of_every_length_arrive_whole() {
    let Some(report) = report("bfed-frame-size") else {
        return;
    };
    assert!(rows(&report, 0) >= 2, "{report}");
}

#[test]
fn all_of_many_sessions_arrive_and_cost_the_memory_that_is_documented() {
    let Some(report) = report("bfed-sessions") else {
        return;
    };
    assert_eq!(report["data"]["live"]["wrong"], 0);
    assert!(report["data"]["live"]["arrived"].as_u64() > Some(0));
}

#[test]
fn slow_sessions_arrive_whole() {
    let Some(report) = report("bfed-low-rate") else {
        return;
    };
    assert_eq!(rows(&report, 0), 3, "one, five and twenty sessions");
}

#[test]
fn subscribers_of_one_session_get_every_byte() {
    let name = "moq-fanout";
    if netlab::installed("openssl").is_none() {
        return netlab::skip(name, "openssl is not installed");
    }
    let Some(report) = report(name) else {
        return;
    };
    assert!(rows(&report, 0) >= 1, "{report}");
    let runs = report["data"]["runs"][0]["runs"].as_array().unwrap();
    assert_eq!(runs[0]["ready"], 20, "{report}");
}
