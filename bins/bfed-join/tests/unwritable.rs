//! Standard output and standard error that cannot be written: a full disk (`/dev/full`), a closed pipe.
#![allow(missing_docs)]

#[path = "../../cli/tests/unwritable/mod.rs"]
mod unwritable;

use unwritable::Program;

const PROGRAM: Program = Program(env!("CARGO_BIN_EXE_bfed-join"));

#[test]
fn help_is_a_result() {
    PROGRAM.prints_a_result(&["--help"]);
}

#[test]
fn errors_that_cannot_be_written_keep_their_codes() {
    let session = "bfed://1/239.1.2.3/5004";
    PROGRAM.fails(&["--no-such-option"], 2);
    PROGRAM.fails(&["recv", session, "--output", "/nonexistent/file"], 1);
    let nobody = [
        "--mediator",
        "127.0.0.1:9",
        "--connect-timeout",
        "300ms",
        "--log",
        "trace",
    ];
    PROGRAM.fails(&[&["recv", session][..], &nobody].concat(), 4);
}
