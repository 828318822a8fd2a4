//! Answers on the status socket, and the metrics.

use std::io;
use std::sync::Arc;

use daemon_kit::daemon::StatusSource;
use daemon_kit::server::{Failure, Out};
use prometheus_client::collector::Collector;

use super::{Interfaces, Question, Show};
use crate::control::{Command, Controller};
use crate::daemon::RouterState;
use crate::metrics::Page;

/// The parts of the router that answer questions.
#[derive(Clone, Debug)]
pub(crate) struct StatusHandle {
    pub(crate) controller: Controller,
    pub(crate) state: Arc<RouterState>,
}

impl StatusSource for StatusHandle {
    type Question = Question;
    const USAGE: &'static str = "ask with one line such as {\"show\": \"overview\"}; known: overview, groups, interfaces, counters";
    const PREFIX: &'static str = "lms_router";

    async fn answer(&self, question: Question, out: &mut Out) -> Result<(), Failure> {
        match question.show {
            Show::Overview => {
                let summary = self.controller.ask(Command::Summary).await?;
                out.document(&self.state.overview(summary)).await?;
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

    async fn metrics(&self) -> Option<Box<dyn Collector>> {
        let snapshot = self.controller.ask(Command::Counters).await.ok()?;
        let state = Arc::clone(&self.state);
        Some(Box::new(Page { snapshot, state }))
    }
}

impl StatusHandle {
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
