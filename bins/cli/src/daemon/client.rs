//! Asking a running daemon.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use thiserror::Error;

/// No answer.
#[derive(Debug, Error)]
pub enum QueryError {
    /// Nobody listens there.
    #[error("{0}: no {1} answers here; is it running, with this path as daemon.socket?")]
    NotRunning(PathBuf, &'static str),
    /// The file's permissions.
    #[error("{0}: permission denied; ask as a user whom daemon.socket-mode allows")]
    Denied(PathBuf),
    /// The answer is not what this program understands.
    #[error("{0}: the answer is not whole, or not from a running {1}")]
    Garbled(PathBuf, &'static str),
    /// The daemon refused the question.
    #[error("{0}: {1}")]
    Refused(PathBuf, String),
    /// Anything else.
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
}

/// Asks the daemon at `socket`, a `program`, one question; waits a few seconds at most between pieces
/// of the answer.
///
/// # Errors
/// There is no answer, for one of the reasons of [`QueryError`].
pub fn query(
    socket: &Path,
    program: &'static str,
    question: &impl Serialize,
) -> Result<Value, QueryError> {
    let path = || socket.to_owned();
    let answer = ask(socket, question).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            QueryError::NotRunning(path(), program)
        }
        io::ErrorKind::PermissionDenied => QueryError::Denied(path()),
        _ => QueryError::Io(path(), error),
    })?;
    let value: Value =
        serde_json::from_slice(&answer).map_err(|_| QueryError::Garbled(path(), program))?;
    match value.get("error").and_then(Value::as_str) {
        Some(error) => Err(QueryError::Refused(path(), error.to_owned())),
        None if value.is_object() => Ok(value),
        None => Err(QueryError::Garbled(path(), program)),
    }
}

fn ask(socket: &Path, question: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    let mut question = serde_json::to_vec(question)?;
    question.push(b'\n');
    stream.write_all(&question)?;
    let mut answer = Vec::new();
    // A million groups of some 300 bytes.
    stream.take(1 << 30).read_to_end(&mut answer)?;
    Ok(answer)
}
