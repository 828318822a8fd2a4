//! Progress of several receivers: bars on a terminal, a line a second elsewhere.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::scenario::{Context, print_progress};

/// One bar for each receiver.
#[derive(Debug)]
pub struct Bars {
    bars: Vec<ProgressBar>,
    /// Standard error is a terminal, so the bars draw themselves.
    drawn: bool,
    quiet: bool,
    printed: Instant,
}

impl Bars {
    /// Bars with these names, each complete at `total` (bytes or another unit).
    pub fn new<'a>(
        context: &Context,
        names: impl IntoIterator<Item = &'a str>,
        total: u64,
    ) -> Bars {
        let names: Vec<&str> = names.into_iter().collect();
        let width = names.iter().map(|name| name.len()).max().unwrap_or(0);
        let drawn = !context.quiet && std::io::stderr().is_terminal();
        let target = match drawn {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let all = MultiProgress::with_draw_target(target);
        let style = format!("  {{prefix:{width}}} {{bar:24}} {{percent:>3}} %  {{msg}}");
        let style = ProgressStyle::with_template(&style);
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = |name: &str| {
            let bar = all.add(ProgressBar::new(total).with_style(style.clone()));
            bar.with_prefix(name.to_owned())
        };
        Bars {
            bars: names.into_iter().map(bar).collect(),
            drawn,
            quiet: context.quiet,
            printed: Instant::now(),
        }
    }

    /// Returns whether the bars are drawn on a terminal.
    pub fn are_drawn(&self) -> bool {
        self.drawn
    }

    /// Shows the position of each receiver and a remark, in the order of the names.
    pub fn show(&mut self, states: impl IntoIterator<Item = (u64, String)>) {
        for (bar, (position, remark)) in self.bars.iter().zip(states) {
            bar.set_position(position);
            bar.set_message(remark);
        }
        if self.drawn || self.quiet || self.printed.elapsed() < Duration::from_secs(1) {
            return;
        }
        self.printed = Instant::now();
        let percent = |bar: &ProgressBar| bar.position() * 100 / bar.length().unwrap_or(1).max(1);
        let all = self
            .bars
            .iter()
            .map(|bar| format!("{} {} %", bar.prefix(), percent(bar)));
        print_progress(format!("  {}", all.collect::<Vec<_>>().join("   ")));
    }

    /// Leaves the bars as they are.
    pub fn done(&self) {
        self.bars.iter().for_each(ProgressBar::abandon);
    }
}
