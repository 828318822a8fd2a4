//! Standard output and standard error that cannot be written: a full disk (`/dev/full`), a closed pipe.
#![allow(missing_docs)]

#[path = "../../cli/tests/unwritable/daemon.rs"]
mod daemon;
#[path = "../../cli/tests/unwritable/mod.rs"]
mod unwritable;

use unwritable::Program;

const PROGRAM: Program = Program(env!("CARGO_BIN_EXE_bfed-gateway"));

/// A configuration without problems.
const CONFIG: &str = "[gateway]\nnetwork = 1\nlisten = \"127.0.0.1:4140\"\n";

#[test]
fn help_is_a_result() {
    PROGRAM.prints_a_result(&["--help"]);
}

#[test]
fn errors_that_cannot_be_written_keep_their_codes() {
    PROGRAM.fails(&["--no-such-option"], 2);
    PROGRAM.fails(&["check", "--config", "/nonexistent"], 2);
    PROGRAM.fails(&["all", "--config", "/nonexistent"], 2);
    PROGRAM.fails(&["status", "--socket", "/nonexistent"], 1);
}

#[test]
fn what_check_says_is_a_result() {
    PROGRAM.check_prints_a_result(CONFIG);
}

#[test]
fn what_status_says_is_a_result() {
    PROGRAM.status_prints_a_result();
}
