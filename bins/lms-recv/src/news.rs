//! What the user is told: a bar and a few words, or events as JSON.

use cli::events::Events;
use cli::progress::Progress;
use cli::units::{BitRate, ByteSize};
use ltp_linux::{AttachmentEvent, ReceiveEvent, Received};

use crate::args::Args;
use crate::events::{Counters, Event};
use crate::outcome::Outcome;

/// One way to tell it, as the user chose.
pub(crate) struct News {
    events: Events,
    group: String,
    source: Option<String>,
    bar: Progress,
    /// Words are wanted, beside errors.
    speaks: bool,
}

impl News {
    pub(crate) fn new(args: &Args) -> Self {
        let speaks = !args.quiet && !args.json;
        News {
            events: Events::new(args.json, args.is_stream()),
            group: args.group.group.to_string(),
            source: args.source.map(|source| source.to_string()),
            bar: Progress::new(speaks, "receiving", None),
            speaks,
        }
    }

    /// Tells what happened.
    pub(crate) fn tell(&mut self, event: ReceiveEvent) {
        let event = match event {
            ReceiveEvent::LmsUnavailable(error) => {
                let message = format!(
                    "--assist lms: {error}. Going on without: the sender is asked for repairs"
                );
                cli::print_message!("warning: {message}");
                self.events.emit(&Event::Warning { message: &message });
                return;
            }
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
                let (state, address) = match event {
                    AttachmentEvent::Attached(relay) => ("attached", relay),
                    AttachmentEvent::Lost(relay) => ("lost", relay),
                    AttachmentEvent::Refused(relay) => ("refused", relay),
                };
                let address = address.to_string();
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

    fn complete(&self, received: &Received) {
        let length = received.length;
        let seconds = received.elapsed.as_secs_f64();
        let goodput_bps = if seconds > 0.0 {
            8.0 * length as f64 / seconds
        } else {
            0.0
        };
        let path = received.path.as_ref();
        let path = path.map(|path| path.display().to_string());
        self.events.emit(&Event::Complete {
            length,
            digest: received.digest.map(|digest| cli::events::hex(&digest)),
            path: path.as_deref(),
            seconds,
            goodput_bps,
            existing: received.existing,
        });
        self.bar.finish();
        if !self.speaks {
            return;
        }
        let what = path.as_deref().unwrap_or("stream");
        let size = ByteSize(length);
        if received.existing {
            cli::print_message!("{what}: already here ({size}), same digest");
        } else {
            let rate = BitRate(goodput_bps as u64);
            cli::print_message!("{what}: {size} in {seconds:.1} s, {rate}");
        }
    }

    pub(crate) fn end(&self, outcome: &Outcome, counters: Counters) {
        self.bar.finish();
        self.events.emit(&Event::End {
            result: outcome.name(),
            exit_code: outcome.code(),
            message: outcome.message(),
            missing: outcome.missing(),
            counters,
        });
        if !matches!(outcome, Outcome::Complete | Outcome::Unwritten(None)) {
            cli::print_message!("error: {}", outcome.message());
        }
    }
}
