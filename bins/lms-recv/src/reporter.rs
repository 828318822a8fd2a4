//! What the user sees: a progress bar and a few words, or events as JSON.

use cli::events::Events;
use cli::progress::Progress;
use cli::transfer::{Assist, goodput_bps, relay_state, summary};
use cli::units::ByteSize;
use ltp_linux::{ReceiveEvent, Received, Receiver};

use crate::args::Args;
use crate::events::{Counters, Event};
use crate::outcome::Outcome;

/// Reports a transfer in the form that the user chose.
pub(crate) struct Reporter {
    events: Events,
    group: String,
    source: Option<String>,
    assist: Assist,
    bar: Progress,
    /// Words are wanted, beside errors.
    is_verbose: bool,
}

impl Reporter {
    pub(crate) fn new(args: &Args) -> anyhow::Result<Self> {
        let is_verbose = args.transfer.is_verbose();
        Ok(Reporter {
            events: Events::new(args.transfer.json, args.is_stream()),
            group: args.transfer.group.to_string(),
            source: args.source.map(|source| source.to_string()),
            assist: args.transfer.assist().map_err(anyhow::Error::msg)?,
            bar: Progress::new(is_verbose, "receiving", None),
            is_verbose,
        })
    }

    /// Reports an event.
    pub(crate) fn handle_event(&mut self, event: ReceiveEvent) {
        let event = match event {
            ReceiveEvent::LmsUnprivileged(error) => {
                return self.warn(&format!(
                    "--assist lms: {error}. Continuing by datagrams to the routers (as --assist lms+udp does)"
                ));
            }
            ReceiveEvent::OtherVersion(other) => return self.warn(&other.to_string()),
            ReceiveEvent::Waiting { interface } => {
                self.bar.set_message("waiting for a sender");
                self.events.emit(&Event::Waiting {
                    group: self.group.clone(),
                    source: self.source.clone(),
                    interface: &interface,
                });
                return;
            }
            ReceiveEvent::Opened {
                session,
                source,
                name,
                path,
                length,
                start,
            } => {
                self.bar.set_total(length);
                self.bar.set_message("");
                Event::Opened {
                    session: session.to_string(),
                    source: source.to_string(),
                    name,
                    path: path.map(|path| path.display().to_string()),
                    length,
                    start,
                }
            }
            ReceiveEvent::Relay(event) => {
                let (address, state) = relay_state(event);
                Event::Relay { address, state }
            }
            ReceiveEvent::Position { bytes, length } => {
                self.bar.set_total(length);
                self.bar.set_position(bytes);
                return;
            }
            ReceiveEvent::Progress {
                bytes,
                length,
                lost_packets,
            } => Event::Progress {
                bytes,
                length,
                lost_packets,
            },
            ReceiveEvent::BlockRejected { block } => Event::Rejected { block },
            ReceiveEvent::Resumed { session } => Event::Resumed {
                session: session.to_string(),
            },
            ReceiveEvent::Complete(received) => return self.complete(&received),
            ReceiveEvent::Serving { limit } => Event::Serving {
                seconds: limit.map(|limit| limit.as_secs_f64()),
            },
            _ => return,
        };
        self.events.emit(&event);
    }

    fn warn(&self, message: &str) {
        cli::print_message!("warning: {message}");
        self.events.emit(&Event::Warning { message });
    }

    fn complete(&self, received: &Received) {
        let length = received.length;
        let path = received.path.as_ref();
        let path = path.map(|path| path.display().to_string());
        self.events.emit(&Event::Complete {
            length,
            digest: received.digest.map(|digest| cli::events::hex(&digest)),
            path: path.as_deref(),
            seconds: received.elapsed.as_secs_f64(),
            goodput_bps: goodput_bps(length, received.elapsed),
            existing: received.existing,
        });
        self.bar.finish();
        if !self.is_verbose {
            return;
        }
        let what = path.as_deref().unwrap_or("stream");
        if received.existing {
            let size = ByteSize(length);
            cli::print_message!("{what}: already here ({size}), same digest");
        } else {
            let summary = summary(length, received.elapsed, &self.assist);
            cli::print_message!("{what}: {summary}");
        }
    }

    /// Reports the result. `receiver`: `None` when the transfer could not begin.
    pub(crate) fn end(&self, outcome: &Outcome, receiver: Option<&Receiver>) {
        self.bar.finish();
        self.events.emit(&Event::End {
            result: outcome.name(),
            exit_code: outcome.code(),
            message: outcome.message(),
            missing: outcome.missing(),
            counters: Counters::new(receiver),
        });
        if !matches!(outcome, Outcome::Complete | Outcome::Unwritten(None)) {
            cli::print_message!("error: {}", outcome.message());
        }
    }
}
