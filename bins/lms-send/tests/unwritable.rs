//! Standard output and standard error that cannot be written: a full disk (`/dev/full`), a closed pipe.
#![allow(missing_docs)]

#[path = "../../cli/tests/unwritable/mod.rs"]
mod unwritable;

use unwritable::Program;

const PROGRAM: Program = Program(env!("CARGO_BIN_EXE_lms-send"));

#[test]
fn help_is_a_result() {
    PROGRAM.prints_a_result(&["--help"]);
    PROGRAM.prints_a_result(&["--version"]);
}

#[test]
fn errors_that_cannot_be_written_keep_their_codes() {
    PROGRAM.fails(&["--no-such-option"], 2);
    PROGRAM.fails(&["--group", "10.0.0.1:5000", "/etc/hostname"], 2);
    PROGRAM.fails(&["--group", "239.1.2.3:5000", "/nonexistent"], 1);
}
