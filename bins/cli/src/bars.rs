//! Several progress bars, one per line, on a terminal only.

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The bars on the screen, which are hidden while log lines are written.
static SHOWN: Mutex<Option<MultiProgress>> = Mutex::new(None);

/// Returns the bars on the screen, if any.
pub(crate) fn shown() -> Option<MultiProgress> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Several bars with bytes done, rate and time left, redrawn at most ten times per second. Without a terminal on
/// standard error, or if they are not wanted, the methods have no effect.
///
/// The size of the terminal at the start determines the number and width of the bars. If there are more bars than rows,
/// the last row counts the bars that have ended and those that wait for a row; a bar that ends is printed above the
/// others as an ordinary line and makes room for the next.
#[derive(Debug)]
pub struct Bars {
    labels: Vec<String>,
    bars: Vec<ProgressBar>,
    layout: Layout,
    screen: Option<Drawn>,
}

/// The bars that are drawn.
#[derive(Debug)]
struct Drawn {
    all: MultiProgress,
    /// The last row, where there are more bars than rows.
    total: Option<ProgressBar>,
    /// Bars that wait for a row, and those that have ended.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<usize>,
    ended: Vec<bool>,
}

impl Bars {
    /// Returns one bar per label.
    pub fn new(wanted: bool, labels: impl Iterator<Item = String>) -> Self {
        if !wanted || !std::io::stderr().is_terminal() {
            return Bars {
                labels: Vec::new(),
                bars: Vec::new(),
                layout: Layout::new(80, 0),
                screen: None,
            };
        }
        let (rows, columns) = console::Term::stderr().size();
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(all.clone());
        Bars::on(all, rows.into(), columns.into(), labels.collect())
    }

    /// Returns bars on a screen of this size.
    fn on(all: MultiProgress, rows: usize, columns: usize, labels: Vec<String>) -> Bars {
        let longest = labels.iter().map(|label| label.chars().count()).max();
        let layout = Layout::new(columns, longest.unwrap_or(0));
        // Complete before they are drawn for the first time.
        let hidden = || ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let of = |label: &String| {
            hidden()
                .with_style(style("{prefix} {wide_msg}"))
                .with_prefix(layout.label(label))
        };
        let bars: Vec<ProgressBar> = labels.iter().map(of).collect();
        // The cursor takes one row.
        let room = rows.saturating_sub(1).max(2);
        let fits = bars.len() <= room;
        let first = if fits { bars.len() } else { room - 1 };
        for bar in &bars[..first] {
            all.add(bar.clone()).tick();
        }
        let total = (!fits).then(|| all.add(hidden().with_style(style("{wide_msg}"))));
        let state = State {
            waiting: (first..bars.len()).collect(),
            ended: vec![false; bars.len()],
        };
        let bars = Bars {
            labels,
            bars,
            layout,
            screen: Some(Drawn {
                all,
                total,
                state: Mutex::new(state),
            }),
        };
        bars.count();
        bars
    }

    /// Starts to count bytes in bar `index`: `done` of `total`.
    pub fn start(&self, index: usize, done: u64, total: u64) {
        if let Some(bar) = self.bars.get(index) {
            bar.set_length(total);
            bar.set_position(done);
            bar.reset_eta();
            bar.set_style(style(&self.layout.template));
        }
    }

    /// Sets the bytes done of bar `index`.
    pub fn set_position(&self, index: usize, done: u64) {
        if let Some(bar) = self.bars.get(index) {
            bar.set_position(done);
        }
    }

    /// Sets the text after bar `index`.
    pub fn set_message(&self, index: usize, message: impl FnOnce() -> String) {
        if let Some(bar) = self.bars.get(index) {
            bar.set_message(message());
        }
    }

    /// Ends bar `index` with a message, which stays visible.
    pub fn finish(&self, index: usize, message: impl FnOnce() -> String) {
        let (Some(bar), Some(screen)) = (self.bars.get(index), &self.screen) else {
            return;
        };
        let message = message();
        let line = format!("{} {message}", self.labels[index]);
        let leaves = screen.total.is_some() || line.chars().count() >= self.layout.columns;
        bar.set_style(style("{prefix} {wide_msg}"));
        if !leaves {
            bar.abandon_with_message(message);
            return;
        }
        {
            let mut state = screen.lock();
            state.ended[index] = true;
            state.waiting.retain(|&waiting| waiting != index);
            screen.all.remove(bar);
            if let (Some(next), Some(total)) = (state.waiting.pop_front(), &screen.total) {
                screen
                    .all
                    .insert_before(total, self.bars[next].clone())
                    .tick();
            }
        }
        crate::print_message!("{line}");
        self.count();
    }

    /// Restarts bar `index`, with a message instead of a bar.
    pub fn revive(&self, index: usize, message: impl FnOnce() -> String) {
        let (Some(bar), Some(screen)) = (self.bars.get(index), &self.screen) else {
            return;
        };
        let mut state = screen.lock();
        if std::mem::take(&mut state.ended[index]) {
            // With more bars than rows it may have to wait for one.
            match &screen.total {
                Some(_) if !state.waiting.is_empty() => state.waiting.push_back(index),
                Some(total) => drop(screen.all.insert_before(total, bar.clone())),
                None => drop(screen.all.add(bar.clone())),
            }
        }
        drop(state);
        bar.reset();
        bar.set_message(message());
        self.count();
    }

    /// Returns whether bars are on the screen.
    pub fn are_shown(&self) -> bool {
        self.screen.is_some()
    }

    /// Updates the last row, which counts bars that have ended or have no row.
    fn count(&self) {
        let Some(Drawn {
            total: Some(total), ..
        }) = &self.screen
        else {
            return;
        };
        let (ended, waiting) = match &self.screen {
            Some(screen) => {
                let state = screen.lock();
                let ended = state.ended.iter().filter(|&&ended| ended).count();
                (ended, state.waiting.len())
            }
            None => (0, 0),
        };
        let more = match waiting {
            0 => String::new(),
            more => format!(", {more} more have no row here"),
        };
        total.set_message(format!("{ended} of {} ended{more}", self.bars.len()));
        total.tick();
    }
}

impl Drawn {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        if let Some(screen) = &self.screen {
            if let Some(total) = &screen.total {
                total.finish_and_clear();
            }
            *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

/// The layout of a line, which does not wrap.
#[derive(Debug)]
struct Layout {
    columns: usize,
    label: usize,
    template: String,
}

/// Maximum width of percentage, bytes, rate, time left and message.
const DETAILS: usize = 66;
/// Maximum width without bytes and time left.
const FEW_DETAILS: usize = 30;

impl Layout {
    fn new(columns: usize, longest: usize) -> Layout {
        let label = longest.min((columns / 3).max(8));
        let left = columns.saturating_sub(label + 2);
        let bar = left.saturating_sub(DETAILS + 1).min(24);
        let all = "{percent:>3}% {bytes}/{total_bytes} {binary_bytes_per_sec}, {eta} left {msg}";
        let template = if bar >= 5 {
            format!("{{prefix}} {{bar:{bar}}} {all}")
        } else if left >= DETAILS {
            format!("{{prefix}} {all}")
        } else if left >= FEW_DETAILS {
            "{prefix} {percent:>3}% {binary_bytes_per_sec} {msg}".to_owned()
        } else {
            "{prefix} {percent:>3}%".to_owned()
        };
        Layout {
            columns,
            label,
            template,
        }
    }

    /// Returns the label, padded or cut to the common width.
    fn label(&self, label: &str) -> String {
        let width = self.label;
        if label.chars().count() <= width {
            return format!("{label:width$}");
        }
        let kept: String = label.chars().take(width.saturating_sub(1)).collect();
        format!("{kept}…")
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::TermLike;
    use std::io;
    use std::sync::Arc;

    /// A terminal: cells, and a cursor that moves to the next row at the end of one.
    #[derive(Clone, Debug)]
    struct Screen {
        size: (u16, u16),
        cells: Arc<Mutex<Cells>>,
    }

    /// Rows of cells, and the cursor.
    #[derive(Debug, Default)]
    struct Cells {
        rows: Vec<Vec<char>>,
        row: usize,
        column: usize,
    }

    impl Screen {
        fn new(rows: u16, columns: u16) -> Screen {
            Screen {
                size: (rows, columns),
                cells: Arc::default(),
            }
        }

        fn edit(&self, edit: impl FnOnce(&mut Vec<Vec<char>>, &mut usize, &mut usize)) {
            let mut cells = self.cells.lock().unwrap();
            let Cells { rows, row, column } = &mut *cells;
            edit(rows, row, column);
        }

        fn put(&self, character: char) {
            let columns = usize::from(self.size.1);
            self.edit(|rows, at, column| match character {
                '\r' => *column = 0,
                '\n' => (*at, *column) = (*at + 1, 0),
                _ => {
                    if *column == columns {
                        (*at, *column) = (*at + 1, 0);
                    }
                    rows.resize(rows.len().max(*at + 1), Vec::new());
                    let row = &mut rows[*at];
                    row.resize(row.len().max(*column + 1), ' ');
                    row[*column] = character;
                    *column += 1;
                }
            });
        }

        /// Returns the text on the screen.
        fn contents(&self) -> String {
            let cells = self.cells.lock().unwrap();
            let rows = cells.rows.iter().map(|row| row.iter().collect::<String>());
            let lines: Vec<String> = rows.map(|row| row.trim_end().to_owned()).collect();
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            lines.join("\n").trim_end().to_owned()
        }
    }

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            self.size.1
        }
        fn height(&self) -> u16 {
            self.size.0
        }
        fn move_cursor_up(&self, n: usize) -> io::Result<()> {
            self.edit(|_, at, _| *at = at.saturating_sub(n));
            Ok(())
        }
        fn move_cursor_down(&self, n: usize) -> io::Result<()> {
            self.edit(|_, at, _| *at += n);
            Ok(())
        }
        fn move_cursor_right(&self, n: usize) -> io::Result<()> {
            self.edit(|_, _, column| *column += n);
            Ok(())
        }
        fn move_cursor_left(&self, n: usize) -> io::Result<()> {
            self.edit(|_, _, column| *column = column.saturating_sub(n));
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)?;
            self.put('\n');
            Ok(())
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            console::strip_ansi_codes(text)
                .chars()
                .for_each(|c| self.put(c));
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            self.edit(|rows, at, column| {
                *column = 0;
                if let Some(row) = rows.get_mut(*at) {
                    row.clear();
                }
            });
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn bars(rows: u16, columns: u16, labels: Vec<String>) -> (Bars, Screen) {
        let term = Screen::new(rows, columns);
        let target = ProgressDrawTarget::term_like(Box::new(term.clone()));
        let all = MultiProgress::with_draw_target(target);
        (Bars::on(all, rows.into(), columns.into(), labels), term)
    }

    fn names(count: usize) -> Vec<String> {
        let name = |number| format!("host-{number:02}.building-7.example");
        (1..=count).map(name).collect()
    }

    #[test]
    fn lines_do_not_wrap() {
        for columns in [40, 60, 80, 100, 132, 250] {
            let (bars, term) = bars(30, columns, names(20));
            for index in 0..20 {
                bars.start(index, 0, 123 << 30);
                bars.set_position(index, 77_777 << 20);
                bars.set_message(index, || "multicast".to_owned());
            }
            bars.set_position(0, 78_888 << 20);
            let text = term.contents();
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines.len(), 20, "{columns} columns:\n{text}");
            assert!(lines.iter().all(|line| line.starts_with("host-")), "{text}");
        }
    }

    #[test]
    fn more_bars_than_rows_take_turns() {
        let (bars, term) = bars(10, 100, names(40));
        for index in 0..40 {
            bars.start(index, 0, 1000);
        }
        assert!(
            term.contents()
                .contains("0 of 40 ended, 32 more have no row here")
        );
        for index in 0..35 {
            bars.finish(index, || "verified".to_owned());
        }
        let text = term.contents();
        assert!(text.contains("35 of 40 ended"), "{text}");
        for number in 36..=40 {
            assert!(text.contains(&format!("host-{number}")), "{text}");
        }
        bars.revive(0, || "trying again".to_owned());
        let text = term.contents();
        assert!(text.contains("34 of 40 ended"), "{text}");
        assert!(text.contains("trying again"), "{text}");
    }
}
