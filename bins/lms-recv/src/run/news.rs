//! What the user is told: a bar and a few words, or events as JSON.

use cli::events::Events;
use cli::multicast::Local;
use cli::progress::Progress;
use cli::units::{BitRate, ByteSize};

use crate::args::Args;
use crate::events::{Counters, Event};
use crate::outcome::Outcome;

/// One way to tell it, as the user chose.
pub(super) struct News {
    events: Events,
    bar: Progress,
    /// Words are wanted, beside errors.
    speaks: bool,
}

/// A content that is here.
pub(super) struct Complete<'a> {
    pub(super) length: u64,
    pub(super) digest: Option<[u8; 32]>,
    /// Where it stands; `None`: a stream.
    pub(super) path: Option<&'a str>,
    /// Since the session was found.
    pub(super) seconds: f64,
    /// It was here before.
    pub(super) existing: bool,
}

impl News {
    pub(super) fn new(args: &Args) -> Self {
        let speaks = !args.quiet && !args.json;
        News {
            events: Events::new(args.json, args.is_stream()),
            bar: Progress::new(speaks, "receiving", None),
            speaks,
        }
    }

    pub(super) fn emit(&self, event: &Event<'_>) {
        self.events.emit(event);
    }

    pub(super) fn warn(&self, message: &str) {
        cli::print_message!("warning: {message}");
        self.emit(&Event::Warning { message });
    }

    pub(super) fn waiting(&self, args: &Args, local: &Local) {
        self.bar.set_message("waiting for a sender");
        self.emit(&Event::Waiting {
            group: args.group.group.to_string(),
            source: args.source.map(|source| source.to_string()),
            interface: &local.interface.name,
        });
    }

    pub(super) fn opened(&mut self, event: &Event<'_>, length: Option<u64>) {
        self.bar.set_total(length);
        self.bar.set_message("");
        self.emit(event);
    }

    /// Bytes that are verified, of how many.
    pub(super) fn position(&mut self, bytes: u64, length: Option<u64>) {
        self.bar.set_total(length);
        self.bar.set_position(bytes);
    }

    pub(super) fn complete(&self, complete: &Complete<'_>) {
        let &Complete {
            length, seconds, ..
        } = complete;
        let goodput_bps = if seconds > 0.0 {
            8.0 * length as f64 / seconds
        } else {
            0.0
        };
        self.emit(&Event::Complete {
            length,
            digest: complete.digest.map(|digest| cli::events::hex(&digest)),
            path: complete.path,
            seconds,
            goodput_bps,
            existing: complete.existing,
        });
        self.bar.finish();
        if !self.speaks {
            return;
        }
        let what = complete.path.unwrap_or("stream");
        let size = ByteSize(length);
        if complete.existing {
            cli::print_message!("{what}: already here ({size}), same digest");
        } else {
            let rate = BitRate(goodput_bps as u64);
            cli::print_message!("{what}: {size} in {seconds:.1} s, {rate}");
        }
    }

    pub(super) fn end(&self, outcome: &Outcome, counters: Counters) {
        self.bar.finish();
        self.emit(&Event::End {
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
