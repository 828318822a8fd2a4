//! What the tests of every program need for standard output and standard error that cannot be written: a full disk
//! (`/dev/full`) and a closed pipe. Each program's `tests/unwritable.rs` takes this file in.
#![allow(dead_code, missing_docs)]

use std::fs::File;
use std::process::{Child, Command, Stdio};

/// The exit code of a result that could not be written.
pub(crate) const UNWRITTEN: i32 = 74;

pub(crate) fn full() -> Stdio {
    let file = File::options().write(true).open("/dev/full");
    file.expect("a full disk").into()
}

/// A pipe whose reader has gone.
pub(crate) fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

/// One program.
pub(crate) struct Program(pub(crate) &'static str);

impl Program {
    /// Runs it to its end; the exit code, and standard error where that is piped.
    pub(crate) fn run(
        &self,
        arguments: &[&str],
        out: Stdio,
        errors: Stdio,
    ) -> (Option<i32>, String) {
        let mut command = Command::new(self.0);
        let command = command.args(arguments).stdin(Stdio::null());
        let output = command.stdout(out).stderr(errors).spawn();
        let output = output.and_then(Child::wait_with_output);
        let output = output.expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), text)
    }

    /// What is printed with these arguments is the result: losing it is an exit code of its own, and a
    /// reader that has closed the pipe is not an error.
    #[track_caller]
    pub(crate) fn prints_a_result(&self, arguments: &[&str]) {
        let (code, errors) = self.run(arguments, full(), Stdio::piped());
        assert_eq!(code, Some(UNWRITTEN), "{arguments:?}: {errors}");
        assert!(errors.contains("cannot write the result"), "{errors}");
        assert_eq!(self.run(arguments, full(), full()).0, Some(UNWRITTEN));
        let (code, errors) = self.run(arguments, closed(), Stdio::piped());
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{arguments:?}");
    }

    /// The exit code does not depend on whether the message about it can be written.
    #[track_caller]
    pub(crate) fn fails(&self, arguments: &[&str], expected: i32) {
        for errors in [Stdio::null(), full(), closed()] {
            let (code, _) = self.run(arguments, Stdio::null(), errors);
            assert_eq!(code, Some(expected), "{arguments:?}");
        }
    }
}
