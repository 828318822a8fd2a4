//! What the user is told: a bar and a few words, or events as JSON.

use cli::events::Events;
use cli::progress::Progress;

use crate::args::Args;
use crate::events::Event;
use crate::outcome::Outcome;

/// One way to tell it, as the user chose.
pub(super) struct News {
    events: Events,
    /// Once the content is open.
    bar: Option<Progress>,
    /// Words are wanted, beside errors.
    pub(super) speaks: bool,
}

impl News {
    pub(super) fn new(args: &Args) -> Self {
        News {
            events: Events::new(args.json, false),
            bar: None,
            speaks: !args.quiet && !args.json,
        }
    }

    pub(super) fn emit(&self, event: &Event<'_>) {
        self.events.emit(event);
    }

    pub(super) fn opened(&mut self, length: Option<u64>, event: &Event<'_>) {
        self.bar = Some(Progress::new(self.speaks, "sending", length));
        self.emit(event);
    }

    /// The length of a stream, at its end.
    pub(super) fn length(&mut self, length: Option<u64>) {
        if let Some(bar) = &mut self.bar {
            bar.set_total(length);
        }
    }

    /// Bytes sent once.
    pub(super) fn position(&self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(bytes);
        }
    }

    /// A few words behind the bar.
    pub(super) fn say(&self, words: impl Into<String>) {
        if let Some(bar) = &self.bar {
            bar.set_message(words.into());
        }
    }

    /// Once a second.
    pub(super) fn progress(&self, expected: Option<u32>, event: &Event<'_>) {
        if let (
            Some(expected),
            &Event::Progress {
                joined, complete, ..
            },
        ) = (expected, event)
        {
            self.say(format!(
                "{complete}/{expected} receivers have it, {joined} joined"
            ));
        }
        self.emit(event);
    }

    /// The last word; `words` follow a good outcome.
    pub(super) fn end(&self, outcome: &Outcome, event: &Event<'_>, words: &str) {
        if let Some(bar) = &self.bar {
            bar.finish();
        }
        self.emit(event);
        match outcome {
            Outcome::Complete | Outcome::Sent if self.speaks => {
                eprintln!("{}: {words}", outcome.message());
            }
            Outcome::Complete | Outcome::Sent => {}
            other => eprintln!("error: {}", other.message()),
        }
    }
}
