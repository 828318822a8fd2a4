//! Answering on the status socket.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::{Interfaces, Question, Refusal, Show};
use crate::control::{Command, Controller, Unavailable};
use crate::daemon::Standing;

/// Who asks at the same time; others wait.
const CONNECTIONS: usize = 16;
/// Longest question, bytes.
const QUESTION: u64 = 256;
/// How long the other side may take for one step.
const PATIENCE: Duration = Duration::from_secs(5);

/// The status socket's side of the control thread.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) controller: Controller,
    pub(crate) standing: Arc<Standing>,
}

impl Server {
    /// Serves until the task is dropped.
    pub(crate) async fn run(self, listener: UnixListener) {
        let server = Arc::new(self);
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors, most likely: others must end first.
                    tracing::warn!(%error, "status socket");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let server = Arc::clone(&server);
            tokio::spawn(async move {
                if let Err(error) = server.serve(stream).await {
                    tracing::debug!(%error, "status connection");
                }
                drop(place);
            });
        }
    }

    async fn serve(&self, stream: UnixStream) -> io::Result<()> {
        let (read, write) = stream.into_split();
        let mut line = Vec::new();
        let mut read = BufReader::new(read.take(QUESTION));
        timeout(PATIENCE, read.read_until(b'\n', &mut line)).await??;
        let mut out = Out(write);
        let Ok(question) = serde_json::from_slice::<Question>(&line) else {
            let error = "ask with one line such as {\"show\": \"overview\"}; known: overview, groups, interfaces, counters";
            return out
                .document(&Refusal {
                    error: error.to_owned(),
                })
                .await;
        };
        match self.answer(question.show, &mut out).await {
            Err(Failure::Unavailable(unavailable)) => {
                out.document(&Refusal {
                    error: unavailable.to_string(),
                })
                .await
            }
            Err(Failure::Io(error)) => Err(error),
            Ok(()) => Ok(()),
        }
    }

    async fn answer(&self, show: Show, out: &mut Out) -> Result<(), Failure> {
        match show {
            Show::Overview => {
                let summary = self.controller.ask(Command::Summary).await?;
                out.document(&self.standing.overview(summary)).await?;
            }
            Show::Interfaces => {
                let interfaces = self.controller.ask(Command::Interfaces).await?;
                out.document(&Interfaces { interfaces }).await?;
            }
            Show::Counters => {
                let snapshot = self.controller.ask(Command::Counters).await?;
                out.document(&snapshot.counters).await?;
            }
            Show::Groups => self.groups(out).await?,
        }
        Ok(())
    }

    /// A page at a time, so that a large table neither stops the data path nor fills memory.
    async fn groups(&self, out: &mut Out) -> Result<(), Failure> {
        let mut from = Some(0);
        let mut text = b"{\"groups\":[".to_vec();
        let mut first = true;
        while let Some(start) = from {
            let page = self
                .controller
                .ask(|reply| Command::Groups { from: start, reply })
                .await;
            let page = match page {
                Ok(page) => page,
                Err(unavailable) if first => return Err(unavailable.into()),
                // Half an answer is under way: end it where it is, which is no JSON.
                Err(_) => return Ok(()),
            };
            for group in &page.groups {
                if !first {
                    text.push(b',');
                }
                first = false;
                serde_json::to_writer(&mut text, group).map_err(io::Error::other)?;
            }
            out.write(&text).await?;
            text.clear();
            from = page.next;
        }
        out.write(b"]}\n").await?;
        Ok(())
    }
}

struct Out(tokio::net::unix::OwnedWriteHalf);

impl Out {
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        timeout(PATIENCE, self.0.write_all(bytes)).await?
    }

    async fn document(&mut self, document: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_vec(document)?;
        text.push(b'\n');
        self.write(&text).await
    }
}

enum Failure {
    Unavailable(Unavailable),
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
