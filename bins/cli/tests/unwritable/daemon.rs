//! The tests of the verbs that every daemon has, made by [`daemon_tests`].
#![allow(missing_docs)]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;

use super::unwritable::Program;

impl Program {
    /// What `check` says of a configuration without problems is a result.
    #[track_caller]
    pub(crate) fn check_prints_a_result(&self, config: &str) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("config.toml");
        std::fs::write(&file, config).expect("written");
        self.prints_a_result(&["check", "--config", file.to_str().expect("text")]);
    }

    /// What `status` says is a result. The daemon that answers is played here: the answer is the same object for
    /// every question.
    #[track_caller]
    pub(crate) fn status_prints_a_result(&self) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).expect("bound");
        let answers = std::thread::spawn(move || {
            for _ in 0..3 {
                let (mut stream, _) = listener.accept().expect("a question");
                let mut question = String::new();
                let mut reader = BufReader::new(stream.try_clone().expect("cloned"));
                reader.read_line(&mut question).expect("a line");
                let _ = stream.write_all(b"{\"answer\":1}\n");
            }
        });
        self.prints_a_result(&["status", "--json", "--socket", path.to_str().expect("text")]);
        answers.join().expect("the answers");
    }
}

/// Makes the tests of a daemon: its program, the verb that runs it, and a configuration without problems.
macro_rules! daemon_tests {
    ($program:literal, $run:literal, $config:literal) => {
        const PROGRAM: unwritable::Program = unwritable::Program(env!($program));

        #[test]
        fn help_is_a_result() {
            PROGRAM.prints_a_result(&["--help"]);
        }

        #[test]
        fn errors_that_cannot_be_written_keep_their_codes() {
            PROGRAM.fails(&["--no-such-option"], 2);
            PROGRAM.fails(&["check", "--config", "/nonexistent"], 2);
            PROGRAM.fails(&[$run, "--config", "/nonexistent"], 2);
            PROGRAM.fails(&["status", "--socket", "/nonexistent"], 1);
        }

        #[test]
        fn what_check_says_is_a_result() {
            PROGRAM.check_prints_a_result($config);
        }

        #[test]
        fn what_status_says_is_a_result() {
            PROGRAM.status_prints_a_result();
        }
    };
}
