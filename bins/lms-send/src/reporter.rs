//! What the user sees: a progress bar and a few words, or events as JSON.

use cli::events::{Events, hex};
use cli::progress::Progress;
use cli::transfer::{Assist, relay_state, summary};
use ltp_linux::{SendEvent, Sender};

use crate::args::Args;
use crate::events::{Event, reason, receiver};
use crate::outcome::Outcome;
use crate::receivers::{self, Disposition, Limiting, Waiting, plural};

/// Reports a transfer in the form that the user chose.
pub(crate) struct Reporter {
    events: Events,
    group: String,
    /// What messages call the content.
    shown: String,
    assist: Assist,
    expected: Option<u32>,
    /// Shown while the content is read for its digest, and while it is sent.
    bar: Option<Progress>,
    is_reading: bool,
    /// Words are wanted, beside errors.
    is_verbose: bool,
}

impl Reporter {
    pub(crate) fn new(args: &Args) -> anyhow::Result<Self> {
        Ok(Reporter {
            events: Events::new(args.transfer.json, false),
            group: args.transfer.group.to_string(),
            shown: args.shown(),
            assist: args.transfer.assist().map_err(anyhow::Error::msg)?,
            expected: args.receivers,
            bar: None,
            is_reading: false,
            is_verbose: args.transfer.is_verbose(),
        })
    }

    /// Reports an event.
    pub(crate) fn handle_event(&mut self, event: SendEvent) {
        match event {
            SendEvent::Reading { bytes, length } => {
                self.is_reading = true;
                let bar = || Progress::new(self.is_verbose, "reading", Some(length));
                self.bar.get_or_insert_with(bar).set_position(bytes);
            }
            SendEvent::Opened {
                session,
                name,
                length,
                source,
                interface,
                rate_bps,
            } => {
                // The old bar must be gone before the new one is drawn.
                self.bar = None;
                self.bar = Some(Progress::new(self.is_verbose, "sending", length));
                self.is_reading = false;
                self.events.emit(&Event::Opened {
                    session: session.to_string(),
                    name: &name,
                    length,
                    group: self.group.clone(),
                    source: source.to_string(),
                    interface: &interface,
                    rate_bps,
                });
            }
            SendEvent::Position { bytes, length } => {
                if let Some(bar) = &mut self.bar {
                    bar.set_total(length);
                    bar.set_position(bytes);
                }
            }
            SendEvent::Progress {
                bytes,
                length,
                joined,
                complete,
                rate_bps,
                waiting_for,
                limiting,
            } => {
                let waiting = waiting_for.map(|status| Waiting::new(&status, bytes, length));
                let limiting = limiting.map(|status| Limiting::new(&status));
                let why = match &waiting {
                    Some(waiting) => Some(waiting.words()),
                    None => limiting.as_ref().and_then(Limiting::words),
                };
                self.progress(joined, complete, why);
                self.events.emit(&Event::Progress {
                    bytes,
                    length,
                    joined,
                    complete,
                    rate_bps,
                    waiting_for: waiting.as_ref(),
                    limiting: limiting.as_ref(),
                });
            }
            SendEvent::Sent {
                length,
                digest,
                elapsed,
            } => {
                self.events.emit(&Event::Sent {
                    length,
                    digest: digest.map(|digest| hex(&digest)),
                    seconds: elapsed.as_secs_f64(),
                });
                self.say("sent; repairs go on");
            }
            other => self.peer_event(other),
        }
    }

    /// Reports what receivers and relays did, and what follows from it.
    fn peer_event(&self, event: SendEvent) {
        let event = match event {
            SendEvent::SegmentationOff => {
                tracing::warn!(
                    event = "segmentation_off",
                    "segmentation batches are lost on the way to a receiver; sending single datagrams from now on, as with --no-gso"
                );
                return;
            }
            SendEvent::OtherVersion(other) => {
                let message = other.to_string();
                cli::print_message!("warning: {message}");
                self.events.emit(&Event::Warning { message: &message });
                return;
            }
            SendEvent::Started { joined } => Event::Started { receivers: joined },
            SendEvent::Rate { rate_bps } => Event::Rate { rate_bps },
            SendEvent::Joined {
                receiver: id,
                address,
            } => Event::Joined {
                receiver: receiver(id),
                address,
            },
            SendEvent::ReceiverComplete {
                receiver: id,
                address,
            } => Event::ReceiverComplete {
                receiver: receiver(id),
                address,
            },
            SendEvent::ReceiverFailed {
                receiver: id,
                address,
                bytes,
                failure,
            } => {
                let reason = reason(failure);
                tracing::warn!(event = "receiver_failed", peer = %address, reason, "receiver failed");
                Event::ReceiverFailed {
                    receiver: receiver(id),
                    address,
                    bytes,
                    reason,
                }
            }
            SendEvent::ReceiverStalled { address, relay } => {
                Event::ReceiverStalled { address, relay }
            }
            SendEvent::RelayStalled { bytes } => Event::RelayStalled { bytes },
            SendEvent::Relay(event) => {
                let (address, state) = relay_state(event);
                Event::Relay { address, state }
            }
            _ => return,
        };
        self.events.emit(&event);
    }

    /// Shows a few words after the bar.
    fn say(&self, words: impl Into<String>) {
        if let Some(bar) = &self.bar {
            bar.set_message(words.into());
        }
    }

    /// Shows the state of the receivers after the bar, and what holds the sender back.
    fn progress(&self, joined: u32, complete: u32, why: Option<String>) {
        let counts = self
            .expected
            .map(|expected| format!("{complete}/{expected} receivers have it, {joined} joined"));
        let words: Vec<String> = counts.into_iter().chain(why).collect();
        if !words.is_empty() {
            self.say(words.join("; "));
        }
    }

    /// Reports the result: each receiver with its state, then a summary as the last line. `sender`: `None`
    /// when the transfer could not begin.
    pub(crate) fn end(&mut self, outcome: &Outcome, sender: Option<&Sender>) {
        if self.is_reading {
            self.bar = None;
        }
        if let Some(bar) = &self.bar {
            bar.finish();
        }
        let all = sender.map(Disposition::all).unwrap_or_default();
        self.events.emit(&Event::end(outcome, sender, &all));
        if self.is_verbose {
            for line in receivers::lines(&all) {
                cli::print_message!("{line}");
            }
        }
        match (outcome, sender) {
            (Outcome::Complete | Outcome::Sent, Some(sender)) if self.is_verbose => {
                let summary = summary(sender.progress().0, sender.elapsed(), &self.assist);
                let confirmed = plural(sender.receivers().1);
                let (shown, message) = (&self.shown, outcome.message());
                cli::print_message!("{shown}: {message}: {summary}, {confirmed} confirmed");
            }
            (Outcome::Complete | Outcome::Sent, _) => {}
            (other, _) => cli::print_message!("error: {}", other.message()),
        }
    }
}
