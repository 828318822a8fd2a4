//! What the user is told: a bar and a few words, or events as JSON.

use cli::events::Events;
use cli::progress::Progress;
use ltp::{Duration, Instant};

use crate::args::Args;
use crate::events::Event;
use crate::outcome::Outcome;
use crate::receivers::{self, Fate, Waiting};

/// Events of a changed rate come no more often than this.
const RATE_PAUSE: Duration = Duration::from_secs(1);

/// When a `rate` event is due: the rate may change twenty times a second.
pub(super) struct RateNews {
    told: Option<u64>,
    next: Instant,
}

impl RateNews {
    /// `rate_bps` is what the `opened` event says.
    pub(super) fn new(now: Instant, rate_bps: Option<u64>) -> Self {
        RateNews {
            told: rate_bps,
            next: now,
        }
    }

    /// Whether this rate is to be told now.
    pub(super) fn is_due(&mut self, now: Instant, rate_bps: Option<u64>) -> bool {
        let is_due = rate_bps != self.told && now >= self.next;
        if is_due {
            self.told = rate_bps;
            self.next = now + RATE_PAUSE;
        }
        is_due
    }
}

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
        if let &Event::Progress {
            joined,
            complete,
            waiting_for,
            ..
        } = event
        {
            let counts = expected.map(|expected| {
                format!("{complete}/{expected} receivers have it, {joined} joined")
            });
            let words = [counts, waiting_for.map(Waiting::words)];
            let words: Vec<String> = words.into_iter().flatten().collect();
            if !words.is_empty() {
                self.say(words.join("; "));
            }
        }
        self.emit(event);
    }

    /// The last word; `words` follow a good outcome, then each receiver with its state.
    pub(super) fn end(&self, outcome: &Outcome, event: &Event<'_>, words: &str, all: &[Fate]) {
        if let Some(bar) = &self.bar {
            bar.finish();
        }
        self.emit(event);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_that_changes_all_the_time_is_told_once_a_second() {
        let start = Instant::from_secs(1);
        let mut news = RateNews::new(start, Some(500));
        let told = (0..300).filter(|&step| {
            let now = start + Duration::from_millis(50 * step);
            news.is_due(now, Some(500 + step / 2))
        });
        let times: Vec<u64> = told.collect();
        assert_eq!(times.len(), 15);
        assert_eq!(times[0], 2, "the first change at once");
        let end = start + Duration::from_secs(60);
        assert!(
            news.is_due(end, Some(500 + 149)),
            "what it stays at is told"
        );
        assert!(!news.is_due(end + Duration::from_secs(60), Some(500 + 149)));
    }
}
