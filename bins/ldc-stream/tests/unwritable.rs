//! Standard output and standard error that cannot be written: a full disk (`/dev/full`), a closed pipe.
#![allow(missing_docs)]

#[path = "../../cli/tests/unwritable/mod.rs"]
mod unwritable;

use std::process::{Command, Stdio};

use unwritable::{Program, UNWRITTEN, closed, full};

const PROGRAM: Program = Program(env!("CARGO_BIN_EXE_ldc-stream"));

#[test]
fn help_is_a_result() {
    PROGRAM.prints_a_result(&["--help"]);
    PROGRAM.prints_a_result(&["recv", "--help"]);
}

#[test]
fn errors_that_cannot_be_written_keep_their_codes() {
    PROGRAM.fails(&["--no-such-option"], 2);
    PROGRAM.fails(&["recv", "--log", "trace", "192.0.2.1:1"], 1);
}

/// The account of a stream, as text and as events.
#[test]
fn a_stream_goes_on_where_its_account_cannot_be_written() {
    for (json, out, expected) in [
        (false, full(), UNWRITTEN),
        (true, full(), UNWRITTEN),
        (false, closed(), 0),
        (true, closed(), 0),
    ] {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = taken.local_addr().expect("bound").to_string();
        drop(taken);
        let mut receiver = Command::new(PROGRAM.0);
        receiver.arg("recv").arg(&address).stdout(out);
        receiver.args(json.then_some("--json"));
        let receiver = receiver.stderr(full()).spawn();
        let mut receiver = receiver.expect("it starts");
        let sender = ["send", "--window", "100ms", "--duration", "300ms", &address];
        // The receiver may not listen yet.
        let sent = (0..100).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            PROGRAM.run(&sender, Stdio::null(), full()).0 == Some(0)
        });
        let status = receiver.wait().expect("it ends");
        assert_eq!(
            (sent, status.code()),
            (true, Some(expected)),
            "json: {json}"
        );
    }
}
