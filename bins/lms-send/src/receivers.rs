//! Receivers in progress and result: which one the sender waits for, and the state of each.

use std::net::SocketAddr;

use cli::units::{BitRate, ByteSize};
use ltp_linux::{LimitingStatus, ReceiverFailure, ReceiverState, ReceiverStatus, Sender};
use serde::Serialize;

use crate::events::{reason, receiver};

/// Most receivers that the result names in text.
const MAX_LINES: usize = 64;

/// A receiver that the sender waits for.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Waiting {
    pub(crate) receiver: String,
    pub(crate) address: SocketAddr,
    /// Share that it lacks of what was sent, in percent of the content, or of the stream so far.
    pub(crate) behind_percent: u64,
}

impl Waiting {
    /// Describes the receiver that the sender waits for after `sent` bytes of a content of `length`.
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

/// The receiver whose rate the sender follows.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Limiting {
    pub(crate) receiver: String,
    pub(crate) address: SocketAddr,
    pub(crate) rate_bps: Option<u64>,
    pub(crate) loss_percent: f64,
    pub(crate) round_trip_ms: f64,
}

impl Limiting {
    pub(crate) fn new(status: &LimitingStatus) -> Limiting {
        let hundredths = |number: f64| (number * 100.0).round() / 100.0;
        Limiting {
            receiver: receiver(status.receiver),
            address: status.address,
            rate_bps: status.rate_bps,
            loss_percent: hundredths(status.loss * 100.0),
            round_trip_ms: hundredths(status.round_trip.as_secs_f64() * 1000.0),
        }
    }

    /// Says at which rate the sender follows which receiver; nothing before the first loss.
    pub(crate) fn words(&self) -> Option<String> {
        let (host, loss) = (self.address.ip(), self.loss_percent);
        let rate = BitRate(self.rate_bps?);
        Some(format!("{host} limits the rate to {rate}: {loss} % lost"))
    }
}

/// The state of a receiver.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Disposition {
    pub(crate) receiver: String,
    pub(crate) address: SocketAddr,
    pub(crate) state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<&'static str>,
    pub(crate) bytes: u64,
}

impl Disposition {
    /// Returns the state of each receiver that joined, by address.
    pub(crate) fn all(sender: &Sender) -> Vec<Disposition> {
        let mut all: Vec<Disposition> = sender
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
                Disposition {
                    receiver: receiver(status.receiver),
                    address: status.address,
                    state,
                    reason,
                    bytes: status.bytes,
                }
            })
            .collect();
        all.sort_by_key(|one| one.address);
        all
    }

    fn is_complete(&self) -> bool {
        self.state == "complete"
    }

    /// Whether it lacks something, and no later receiver of its host took its place.
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

/// Returns a line for each receiver, those that lack something first.
pub(crate) fn lines(all: &[Disposition]) -> Vec<String> {
    let lacking = all.iter().filter(|one| !one.is_complete());
    let complete = all.iter().filter(|one| one.is_complete());
    let mut lines: Vec<String> = lacking.chain(complete).map(Disposition::line).collect();
    let more = lines.len().saturating_sub(MAX_LINES);
    if more > 0 {
        lines.truncate(MAX_LINES);
        lines.push(format!("  and {more} more (--json names all)"));
    }
    lines
}

/// Returns `1 receiver`, `2 receivers`.
pub(crate) fn plural(receivers: u32) -> String {
    let plural = if receivers == 1 { "" } else { "s" };
    format!("{receivers} receiver{plural}")
}
