//! The server of a status socket: one line asks, one JSON object answers, then the stream ends.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::Unavailable;

/// Connections at the same time; more wait.
const CONNECTIONS: usize = 16;
/// Longest question, bytes.
const QUESTION: u64 = 256;
/// The longest time that the client may take for one step.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The answer to a malformed question, or to one that cannot be answered now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The reason.
    pub error: String,
}

/// Serves until the future is dropped. `answer` gets each question, one line of at most 256 bytes, and the connection
/// for its answer.
pub async fn serve<A, F>(listener: UnixListener, answer: A)
where
    A: Fn(Vec<u8>, Out) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), Failure>> + Send,
{
    let answer = Arc::new(answer);
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, most likely: other connections must end first.
                tracing::warn!(event = "status_accept_failed", %error, "cannot accept a status connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let answer = Arc::clone(&answer);
        tokio::spawn(async move {
            let served = async {
                let (line, out) = question(stream).await?;
                answer(line, out).await
            };
            if let Err(Failure::Io(error)) = served.await {
                tracing::debug!(%error, "status connection");
            }
            drop(permit);
        });
    }
}

async fn question(stream: UnixStream) -> io::Result<(Vec<u8>, Out)> {
    let (read, write) = stream.into_split();
    let mut line = Vec::new();
    let mut read = BufReader::new(read.take(QUESTION));
    timeout(TIMEOUT, read.read_until(b'\n', &mut line)).await??;
    Ok((line, Out(write)))
}

/// The connection on which an answer is written.
#[derive(Debug)]
pub struct Out(tokio::net::unix::OwnedWriteHalf);

impl Out {
    /// Writes a piece of an answer.
    ///
    /// # Errors
    /// The client is gone, or accepts nothing for five seconds.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        timeout(TIMEOUT, self.0.write_all(bytes)).await?
    }

    /// Writes a whole answer.
    ///
    /// # Errors
    /// As [`Out::write`].
    pub async fn document(&mut self, document: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_vec(document)?;
        text.push(b'\n');
        self.write(&text).await
    }

    /// Answers with the reason why there is no answer.
    ///
    /// # Errors
    /// As [`Out::write`].
    pub async fn refuse(&mut self, error: impl ToString) -> io::Result<()> {
        let error = error.to_string();
        self.document(&Refusal { error }).await
    }
}

/// Why an answer was not written.
#[derive(Debug)]
pub enum Failure {
    /// The data thread does not reply.
    Unavailable(Unavailable),
    /// The connection failed.
    Io(io::Error),
}

impl From<Unavailable> for Failure {
    fn from(unavailable: Unavailable) -> Self {
        Failure::Unavailable(unavailable)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Io(error)
    }
}
