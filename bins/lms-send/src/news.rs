//! What the user is told: a bar and a few words, or events as JSON.

use cli::events::{Events, hex};
use cli::progress::Progress;
use ltp_linux::{AttachmentEvent, SendEvent};

use crate::args::Args;
use crate::events::{Event, reason, receiver};
use crate::outcome::Outcome;
use crate::receivers::{self, Fate, Waiting};

/// One way to tell it, as the user chose.
pub(crate) struct News {
    events: Events,
    group: String,
    expected: Option<u32>,
    /// While the content is read for its digest, and once it is open.
    bar: Option<Progress>,
    is_reading: bool,
    /// Words are wanted, beside errors.
    speaks: bool,
}

impl News {
    pub(crate) fn new(args: &Args) -> Self {
        News {
            events: Events::new(args.json, false),
            group: args.group.group.to_string(),
            expected: args.receivers,
            bar: None,
            is_reading: false,
            speaks: !args.quiet && !args.json,
        }
    }

    /// Tells what happened.
    pub(crate) fn tell(&mut self, event: SendEvent) {
        match event {
            SendEvent::Reading { bytes, length } => {
                self.is_reading = true;
                let bar = || Progress::new(self.speaks, "reading", Some(length));
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
                // The bar of reading goes before its successor comes.
                self.bar = None;
                self.bar = Some(Progress::new(self.speaks, "sending", length));
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
            } => {
                let waiting = waiting_for.map(|status| Waiting::new(&status, bytes, length));
                self.progress(joined, complete, waiting.as_ref());
                self.events.emit(&Event::Progress {
                    bytes,
                    length,
                    joined,
                    complete,
                    rate_bps,
                    waiting_for: waiting.as_ref(),
                });
            }
            SendEvent::SegmentationOff => tracing::warn!(
                "segmentation batches are lost on the way to a receiver; sending single datagrams from now \
                 on, as --no-gso does"
            ),
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
            SendEvent::Started { joined } => {
                self.events.emit(&Event::Started { receivers: joined });
            }
            SendEvent::Rate { rate_bps } => self.events.emit(&Event::Rate { rate_bps }),
            other => self.tell_of_others(other),
        }
    }

    /// Tells what receivers and relays did.
    fn tell_of_others(&self, event: SendEvent) {
        let event = match event {
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
                tracing::warn!(%address, reason, "a receiver failed");
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
                let (state, address) = match event {
                    AttachmentEvent::Attached(relay) => ("attached", relay),
                    AttachmentEvent::Lost(relay) => ("lost", relay),
                    AttachmentEvent::Refused(relay) => ("refused", relay),
                };
                Event::Relay { address, state }
            }
            _ => return,
        };
        self.events.emit(&event);
    }

    /// A few words after the bar.
    fn say(&self, words: impl Into<String>) {
        if let Some(bar) = &self.bar {
            bar.set_message(words.into());
        }
    }

    /// Once a second.
    fn progress(&self, joined: u32, complete: u32, waiting: Option<&Waiting>) {
        let counts = self
            .expected
            .map(|expected| format!("{complete}/{expected} receivers have it, {joined} joined"));
        let words = [counts, waiting.map(Waiting::words)];
        let words: Vec<String> = words.into_iter().flatten().collect();
        if !words.is_empty() {
            self.say(words.join("; "));
        }
    }

    /// The last word; `words` follow a good outcome, then each receiver with its state.
    pub(crate) fn end(&mut self, outcome: &Outcome, event: &Event<'_>, words: &str, all: &[Fate]) {
        if self.is_reading {
            self.bar = None;
        }
        if let Some(bar) = &self.bar {
            bar.finish();
        }
        self.events.emit(event);
        match outcome {
            Outcome::Complete | Outcome::Sent if self.speaks => {
                cli::print_message!("{}: {words}", outcome.message());
            }
            Outcome::Complete | Outcome::Sent => {}
            other => cli::print_message!("error: {}", other.message()),
        }
        if self.speaks {
            for line in receivers::lines(all) {
                cli::print_message!("{line}");
            }
        }
    }
}
