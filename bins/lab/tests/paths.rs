//! Transports and other tools over many paths, and beside each other, as a user starts them. Where namespaces are
//! forbidden the tests say so and pass.

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

/// Scenarios take turns; `None` where namespaces are forbidden.
fn alone() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    if !lab(&["__probe"]).status.success() {
        netlab::skip("lab", "no namespaces here");
        return None;
    }
    Some(ALONE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The report of a scenario, which must not have been skipped.
fn report(args: &[&str]) -> Value {
    let args = [&["run"], args, &["--quick", "--quiet", "--json"]].concat();
    let output = lab(&args);
    let err = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code();
    assert!(matches!(code, Some(0 | 3)), "{code:?}\n{err}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The lines of `paths`, of which each has `runs` transfers of whole copies.
fn lines(report: &Value, runs: usize) -> &[Value] {
    let lines = report["data"]["lines"].as_array().expect("lines");
    for line in lines {
        assert!(line["failed"].is_null(), "{line}");
        let measured = line["runs"].as_array().expect("runs");
        assert_eq!(measured.len(), runs, "{line}");
        for one in measured {
            // The file passed the sender's interface.
            assert!(one["overhead"].as_f64() > Some(1.0), "{line}");
            assert!(one["goodput_bps"].as_f64() > Some(0.0), "{line}");
        }
    }
    lines
}

#[test]
fn every_transport_of_ours_carries_a_file_over_lossy_paths() {
    let Some(_alone) = alone() else { return };
    let tools = "mcp-cubic,ltp,ltp-parity,ltp-lms,ltp-dyram,tcp-cubic";
    let report = report(&[
        "paths",
        "--tools",
        tools,
        "--loss",
        "0.1,bursts",
        "--receivers",
        "2",
        "--mib",
        "1",
        "--time-limit",
        "120",
    ]);
    let lines = lines(&report, 1);
    assert_eq!(lines.len(), 12);
    let rows = report["tables"][0]["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 12);
    let plots = report["plots"].as_array().expect("plots");
    assert_eq!(plots.len(), 1, "one panel a round trip");
    assert_eq!(plots[0]["bars"].as_array().map(Vec::len), Some(6));
    // A stream for each receiver: the file leaves the sender twice.
    let tcp = lines.iter().find(|line| line["tool"] == "tcp-cubic");
    let overhead = &tcp.expect("TCP")["runs"][0]["overhead"];
    assert!(overhead.as_f64() > Some(2.0), "{overhead}");
}

#[test]
fn paths_that_the_kernel_shapes_are_a_set_of_their_own() {
    let Some(_alone) = alone() else { return };
    if let Some(missing) = netlab::system::missing() {
        netlab::skip("paths by HTB", missing);
        return;
    }
    let report = report(&[
        "paths",
        "--shaper",
        "htb",
        "--tools",
        "mcp-cubic,ltp-dyram",
        "--loss",
        "1,bursts",
        "--receivers",
        "2",
        "--runs",
        "2",
        "--mib",
        "1",
        "--time-limit",
        "120",
    ]);
    // There are no bursts there.
    assert_eq!(lines(&report, 2).len(), 2);
    let network = report["network"].to_string();
    assert!(
        network.contains("HTB") && network.contains("nftables"),
        "{network}"
    );
}

#[test]
fn a_transfer_beyond_its_time_is_shown_as_failed() {
    let Some(_alone) = alone() else { return };
    let report = report(&[
        "paths",
        "--tools",
        "tcp-cubic,ltp",
        "--loss",
        "0",
        "--receivers",
        "1",
        "--mib",
        "64",
        "--time-limit",
        "1",
    ]);
    let rows = report["tables"][0]["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!(row[4], "failed", "{row}");
        assert!(
            row[9].as_str().expect("a reason").contains("within"),
            "{row}"
        );
    }
    assert_eq!(report["verdict"], "missed", "LTP is ours");
}

#[test]
fn both_of_two_flows_on_a_bottleneck_are_counted() {
    let Some(_alone) = alone() else { return };
    let report = report(&[
        "beside",
        "--seconds",
        "3",
        "--ours",
        "mcp-cubic,ltp",
        "--other",
        "tcp-cubic,ltp",
    ]);
    let rows = report["tables"][0]["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 4);
    for pair in report["data"]["pairs"].as_array().expect("pairs") {
        assert!(pair["failed"].is_null(), "{pair}");
        let samples = pair["samples"].as_array().expect("samples");
        let last = &samples.last().expect("a sample")[1];
        assert!(
            last[0].as_u64() > Some(0) && last[1].as_u64() > Some(0),
            "{pair}"
        );
    }
    assert_eq!(report["plots"].as_array().map(Vec::len), Some(4));
}
