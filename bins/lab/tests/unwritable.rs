//! Standard output and standard error that cannot be written: a full disk (`/dev/full`), a closed pipe.
#![allow(missing_docs)]

#[path = "../../cli/tests/unwritable/mod.rs"]
mod unwritable;

use unwritable::Program;

const PROGRAM: Program = Program(env!("CARGO_BIN_EXE_lab"));

#[test]
fn lists_and_help_are_results() {
    PROGRAM.prints_a_result(&["list"]);
    PROGRAM.prints_a_result(&["list", "--json"]);
    PROGRAM.prints_a_result(&["--help"]);
    PROGRAM.prints_a_result(&["run", "--help"]);
}

#[test]
fn errors_that_cannot_be_written_keep_their_codes() {
    PROGRAM.fails(&["run", "no-such-scenario"], 2);
    PROGRAM.fails(&["report", "--out", "/dev/null/folder"], 1);
}
