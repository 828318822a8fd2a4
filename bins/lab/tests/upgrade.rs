//! `lab run upgrade`: today's programs beside themselves, and beside a release that does not do what it must. Where
//! namespaces are forbidden the tests say so and pass.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn lab(args: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_lab");
    Command::new(program)
        .args(args)
        .output()
        .expect("start lab")
}

fn permitted() -> bool {
    let permitted = lab(&["__probe"]).status.success();
    if !permitted {
        netlab::skip("lab", "no namespaces here");
    }
    permitted
}

/// The exit code and the rows of the table: protocol, both sides, outcome, what is said.
fn run(args: &[&str]) -> (Option<i32>, Vec<[String; 5]>) {
    let args = [&["run", "upgrade"], args, &["--quick", "--quiet", "--json"]].concat();
    let output = lab(&args);
    let err = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{err}"));
    let rows = report["tables"][0]["rows"].as_array().expect("rows").iter();
    let cell = |row: &Value, at: usize| row[at].as_str().expect("text").to_owned();
    let rows = rows.map(|row| [0, 1, 2, 3, 4].map(|at| cell(row, at)));
    (output.status.code(), rows.collect())
}

#[test]
fn todays_programs_serve_each_other() {
    if !permitted() {
        return;
    }
    let (code, rows) = run(&[]);
    assert_eq!(rows.len(), 11);
    assert!(rows.iter().all(|row| row[3] == "served"), "{rows:#?}");
    assert_eq!(code, Some(0));
}

/// Writes a release in which each program is this script.
fn release(folder: &Path, script: &str) {
    for name in [
        "bfed-gateway",
        "bfed-join",
        "dyram-relay",
        "ldc-stream",
        "lms-recv",
        "lms-router",
        "lms-send",
        "mcp",
        "mcpd",
    ] {
        let file = folder.join(name);
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("script");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("permissions");
    }
}

#[test]
fn a_release_that_lies_fails_or_dies_without_a_word_is_found() {
    if !permitted() {
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let old = folder.path().to_str().expect("UTF-8");
    let cases = [
        (
            "exit 0",
            "FAILED",
            "mcp reports success for what did not arrive",
        ),
        ("exit 1", "FAILED", "no program says why"),
        ("kill -SEGV $$", "FAILED", "crashed"),
        (
            "echo this is version 7 >&2; exit 1",
            "refused",
            "this is version 7",
        ),
    ];
    for (script, outcome, said) in cases {
        release(folder.path(), script);
        let (code, rows) = run(&["--old", old, "--only", "mcp"]);
        assert_eq!(rows.len(), 2, "both directions");
        assert_eq!(rows[0][1], "other mcp");
        assert_eq!(rows[0][3], outcome, "{rows:#?}");
        assert!(rows[0][4].contains(said), "{rows:#?}");
        // The receiver does not even start: no result can be good.
        assert_eq!((&rows[1][3][..], code), ("FAILED", Some(3)));
    }
}

#[test]
fn a_folder_without_programs_is_wrong_usage() {
    let folder = tempfile::tempdir().expect("folder");
    let old = folder.path().to_str().expect("UTF-8");
    let output = lab(&["run", "upgrade", "--old", old]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(err.contains("has neither lab nor bfed-gateway"), "{err}");
    assert_eq!(output.status.code(), Some(2));
}
