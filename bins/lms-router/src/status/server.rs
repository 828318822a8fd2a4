//! Answering on the status socket.

use std::io;
use std::sync::Arc;

use daemon_kit::server::{Failure, Out, serve};
use tokio::net::UnixListener;

use super::{Interfaces, Question, Show};
use crate::control::{Command, Controller};
use crate::daemon::Standing;

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
        serve(listener, move |line, out| {
            let server = Arc::clone(&server);
            async move { server.serve(&line, out).await }
        })
        .await;
    }

    async fn serve(&self, line: &[u8], mut out: Out) -> Result<(), Failure> {
        let Ok(question) = serde_json::from_slice::<Question>(line) else {
            let error = "ask with one line such as {\"show\": \"overview\"}; known: overview, groups, interfaces, counters";
            return Ok(out.refuse(error).await?);
        };
        match self.answer(question.show, &mut out).await {
            Err(Failure::Unavailable(unavailable)) => Ok(out.refuse(unavailable).await?),
            done => done,
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
