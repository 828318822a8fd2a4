//! The same for the verbs that every daemon has.
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
