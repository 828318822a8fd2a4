//! The receivers in progress and result: which one the sender waits for, and the state of each.

use std::net::SocketAddr;

use cli::units::ByteSize;
use ltp::{ReceiverFailure, ReceiverState};
use ltp_linux::{ReceiverStatus, Sender};
use serde::Serialize;

use crate::events::{reason, receiver};

/// Lines of the result in text; more receivers are counted.
const MOST_LINES: usize = 64;

/// The receiver that the sender waits for.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Waiting {
    pub(crate) receiver: String,
    pub(crate) address: SocketAddr,
    /// How much of what was sent it lacks, in hundredths of the content, or of what was sent of a stream.
    pub(crate) behind_percent: u64,
}

impl Waiting {
    /// The sender waits for this receiver, having sent so many bytes of a content of that length.
    pub(crate) fn new(status: &ReceiverStatus, sent: u64, length: Option<u64>) -> Waiting {
        let behind = u128::from(sent.saturating_sub(status.bytes)) * 100;
        let percent = behind / u128::from(length.unwrap_or(sent).max(1));
        Waiting {
            receiver: receiver(status.receiver),
            address: status.address,
            behind_percent: percent as u64,
        }
    }

    pub(crate) fn words(&self) -> String {
        let (host, behind) = (self.address.ip(), self.behind_percent);
        format!("waiting for {host}: {behind} % behind")
    }
}

/// What became of a receiver.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Fate {
    pub(crate) receiver: String,
    pub(crate) address: SocketAddr,
    pub(crate) state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<&'static str>,
    pub(crate) bytes: u64,
}

impl Fate {
    /// Of each receiver that joined, by address.
    pub(crate) fn all(sender: &Sender) -> Vec<Fate> {
        let mut all: Vec<Fate> = sender
            .members()
            .map(|status| {
                let (state, reason) = match status.state {
                    ReceiverState::Receiving => ("receiving", None),
                    ReceiverState::Complete => ("complete", None),
                    ReceiverState::Failed(ReceiverFailure::Replaced) => {
                        ("replaced", Some(reason(ReceiverFailure::Replaced)))
                    }
                    ReceiverState::Failed(failure) => ("failed", Some(reason(failure))),
                };
                Fate {
                    receiver: receiver(status.receiver),
                    address: status.address,
                    state,
                    reason,
                    bytes: status.bytes,
                }
            })
            .collect();
        all.sort_by_key(|fate| fate.address);
        all
    }

    fn is_complete(&self) -> bool {
        self.state == "complete"
    }

    /// Lacks something, and no later receiver of its host took its place.
    pub(crate) fn is_lacking(&self) -> bool {
        matches!(self.state, "receiving" | "failed")
    }

    fn line(&self) -> String {
        let (address, bytes) = (self.address, ByteSize(self.bytes));
        match self.reason {
            Some(reason) => format!("  {address} {reason}, has {bytes}"),
            None if self.is_complete() => format!("  {address} has everything"),
            None => format!("  {address} did not confirm, has {bytes}"),
        }
    }
}

/// The result in text, a line for each receiver: those that lack something first.
pub(crate) fn lines(all: &[Fate]) -> Vec<String> {
    let lacking = all.iter().filter(|fate| !fate.is_complete());
    let complete = all.iter().filter(|fate| fate.is_complete());
    let mut lines: Vec<String> = lacking.chain(complete).map(Fate::line).collect();
    let more = lines.len().saturating_sub(MOST_LINES);
    if more > 0 {
        lines.truncate(MOST_LINES);
        lines.push(format!("  and {more} more (--json names all)"));
    }
    lines
}
