//! The client of a status socket.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use socket2::{Domain, SockAddr, Socket, Type};
use thiserror::Error;

/// Timeout of each step: connecting, sending, receiving the next piece. The texts of [`QueryError`] name it.
const TIMEOUT: Duration = Duration::from_secs(5);

/// No answer.
#[derive(Debug, Error)]
pub enum QueryError {
    /// No process listens there.
    #[error("{0}: no {1} answers here; is it running, with this path as daemon.socket?")]
    NotRunning(PathBuf, &'static str),
    /// The file's permissions.
    #[error("{0}: permission denied; run as a user that daemon.socket-mode allows")]
    Denied(PathBuf),
    /// The listen queue of the daemon stayed full.
    #[error("{0}: the {1} is busy: it accepted no connection within 5 s; ask again later")]
    Busy(PathBuf, &'static str),
    /// The daemon accepted the connection, or its listen queue did, and sent nothing more.
    #[error("{0}: the {1} did not answer within 5 s; ask again later, or look at its log")]
    NoAnswer(PathBuf, &'static str),
    /// The answer is malformed.
    #[error("{0}: the answer is incomplete, or not from a running {1}")]
    Garbled(PathBuf, &'static str),
    /// The daemon refused the question.
    #[error("{0}: {1}")]
    Refused(PathBuf, String),
    /// Anything else.
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
}

/// Returns the path of the status socket when none is given: `POLYCAST_DAEMON__SOCKET`, which daemons use as well, else
/// `default`. As for every variable, the value may be quoted as in the configuration file.
pub fn default_socket(default: &str) -> PathBuf {
    let Some(value) = std::env::var_os("POLYCAST_DAEMON__SOCKET") else {
        return default.into();
    };
    let quoted = value
        .to_str()
        .and_then(|value| toml::Table::from_str(&format!("v = {value}")).ok())
        .and_then(|table| table.get("v")?.as_str().map(PathBuf::from));
    quoted.unwrap_or_else(|| value.into())
}

/// Sends a question to the daemon at `socket`, a `program`, and returns the answer. Waits at most five seconds for the
/// connection and between pieces of the answer.
///
/// # Errors
/// There is no answer, for one of the reasons of [`QueryError`].
pub fn query(
    socket: &Path,
    program: &'static str,
    question: &impl Serialize,
) -> Result<Value, QueryError> {
    let path = || socket.to_owned();
    let stream = connect(socket).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            QueryError::NotRunning(path(), program)
        }
        io::ErrorKind::PermissionDenied => QueryError::Denied(path()),
        io::ErrorKind::WouldBlock => QueryError::Busy(path(), program),
        _ => QueryError::Io(path(), error),
    })?;
    let answer = ask(stream, question).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => QueryError::NoAnswer(path(), program),
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

/// Connects; waits for a place in the daemon's listen queue, [`TIMEOUT`] at most.
fn connect(socket: &Path) -> io::Result<UnixStream> {
    let address = SockAddr::unix(socket)?;
    let stream = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // Without it, connecting to a full queue has no end; at the end of it the error is EAGAIN.
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    while let Err(error) = stream.connect(&address) {
        // A signal that is handled, such as a new size of the terminal.
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(stream.into())
}

fn ask(mut stream: UnixStream, question: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut question = serde_json::to_vec(question)?;
    question.push(b'\n');
    stream.write_all(&question)?;
    let mut answer = Vec::new();
    // A million groups of some 300 bytes.
    stream.take(1 << 30).read_to_end(&mut answer)?;
    Ok(answer)
}
