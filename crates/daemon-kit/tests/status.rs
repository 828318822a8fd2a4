//! Asking a daemon that is busy.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use daemon_kit::client::{QueryError, query};
use serde_json::{Value, json};
use socket2::{Domain, SockAddr, Socket, Type};
use tempfile::TempDir;

/// A status socket whose listen queue holds one connection.
fn listener(folder: &TempDir) -> (PathBuf, UnixListener) {
    let path = folder.path().join("sock");
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    socket.bind(&SockAddr::unix(&path).unwrap()).unwrap();
    socket.listen(0).unwrap();
    (path, socket.into())
}

/// Asks in a thread, because a program that waits without end must not stop the test.
fn asked(path: &Path) -> Result<Value, QueryError> {
    let (path, (told, result)) = (path.to_owned(), mpsc::channel());
    std::thread::spawn(move || told.send(query(&path, "some-daemon", &json!("overview"))));
    result
        .recv_timeout(Duration::from_secs(30))
        .expect("the query has no end")
}

#[test]
fn a_full_listen_queue_is_waited_for_and_then_named() {
    let folder = tempfile::tempdir().unwrap();
    let (path, listener) = listener(&folder);
    let _first = UnixStream::connect(&path).unwrap();
    let error = asked(&path).unwrap_err();
    assert!(
        matches!(error, QueryError::Busy(_, "some-daemon")),
        "{error}"
    );
    let text = error.to_string();
    assert!(text.contains("busy") && text.contains("5 s"), "{text}");
    assert!(!text.contains("os error"), "{text}");
    // A daemon that accepts late is asked all the same.
    let late = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        let _first = listener.accept().unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let mut line = String::new();
        BufReader::new(stream.try_clone().unwrap())
            .read_line(&mut line)
            .unwrap();
        stream.write_all(b"{\"active\":true}\n").unwrap();
        line
    });
    assert_eq!(asked(&path).unwrap(), json!({"active": true}));
    assert_eq!(late.join().unwrap(), "\"overview\"\n");
}

#[test]
fn a_daemon_that_does_not_answer_is_named_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _listener) = listener(&folder);
    let text = asked(&path).unwrap_err().to_string();
    assert!(text.contains("did not answer within 5 s"), "{text}");
    assert!(!text.contains("os error"), "{text}");
}
