//! The contents of the tables, and the counters from which rates are computed.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::time::Instant;

use serde_json::{Value, json};

use super::{Answer, Column, Kind, Rows, Table, View};
use crate::table;

/// The effect of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Continue.
    Continue,
    /// End.
    End,
}

/// One value of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) text: String,
    /// What it is sorted by, where it is a number.
    number: Option<f64>,
}

/// A table as it is shown.
#[derive(Debug, Default)]
pub(super) struct Page {
    /// In the order of the daemon, or sorted by the user.
    pub(super) rows: Vec<Vec<Cell>>,
    /// Why there are none.
    pub(super) note: Option<String>,
    /// The column that rows are sorted by, and whether against its own order.
    pub(super) sort: Option<(usize, bool)>,
    /// The first row in sight.
    pub(super) first: usize,
    past: Past,
}

/// Counters by row and column as they were read last.
#[derive(Debug, Default)]
struct Past {
    counts: HashMap<(String, usize), u64>,
    read: Option<Instant>,
}

/// The state of a daemon, and the selection of the user.
#[derive(Debug)]
pub struct Top {
    pub(super) view: &'static View,
    pub(super) head: Vec<String>,
    pub(super) pages: Vec<Page>,
    /// Why the last question was not answered.
    pub(super) trouble: Option<String>,
    pub(super) answered: bool,
    /// Rows in sight when it was drawn last.
    pub(super) lines: usize,
    table: usize,
    past: Past,
}

impl Top {
    /// Before the first answer. There is at least one table in `view`.
    pub fn new(view: &'static View) -> Self {
        Top {
            view,
            head: Vec::new(),
            pages: view.tables.iter().map(|_| Page::default()).collect(),
            trouble: None,
            answered: false,
            lines: 1,
            table: 0,
            past: Past::default(),
        }
    }

    /// The table that is looked at, counted from 0.
    pub fn table(&self) -> usize {
        self.table
    }

    pub(super) fn page(&self) -> (&Table, &Page) {
        (&self.view.tables[self.table], &self.pages[self.table])
    }

    /// Applies the answer received at `now`. An error keeps the previous state.
    pub fn take(&mut self, now: Instant, answer: Answer) {
        let documents = match answer {
            Ok(documents) => documents,
            Err(error) => {
                self.trouble = Some(error.to_string());
                return;
            }
        };
        let joint =
            json!({"overview": documents.get("overview"), "counters": documents.get("counters")});
        let mut reading = self.past.reading(now);
        let head = reading.row(self.view.head, &joint);
        self.past = reading.done(now);
        self.head = head.into_iter().map(|cell| cell.text).collect();
        for (table, page) in self.view.tables.iter().zip(&mut self.pages) {
            if let Some(document) = documents.get(table.name) {
                page.take(now, table, document);
            }
        }
        self.trouble = None;
        self.answered = true;
        self.scroll(0);
    }

    /// Goes to another table.
    pub fn next_table(&mut self, by: isize) {
        let count = self.pages.len() as isize;
        self.table = (self.table as isize + by).rem_euclid(count) as usize;
    }

    /// Moves down, or up where `by` is negative.
    pub fn scroll(&mut self, by: isize) {
        let page = &mut self.pages[self.table];
        let last = page.rows.len().saturating_sub(self.lines);
        page.first = page.first.saturating_add_signed(by).min(last);
    }

    /// Scrolls by the visible lines.
    pub fn scroll_pages(&mut self, by: isize) {
        self.scroll(by.saturating_mul(self.lines.max(1) as isize));
    }

    /// Sorts by another column; beyond the last one, and before the first, is the daemon's own order.
    pub fn next_sort(&mut self, by: isize) {
        let columns = self.view.tables[self.table].columns;
        let page = &mut self.pages[self.table];
        let now = page.sort.map_or(0, |(column, _)| column as isize + 1);
        let next = (now + by).rem_euclid(columns.len() as isize + 1);
        page.sort = usize::try_from(next - 1).ok().map(|column| (column, false));
        page.order();
    }

    /// Sorts the other way round.
    pub fn reverse(&mut self) {
        let page = &mut self.pages[self.table];
        if let Some((_, reversed)) = &mut page.sort {
            *reversed = !*reversed;
            page.order();
        }
    }

    /// Everything as plain text.
    pub fn plain(&self) -> String {
        let mut text = self.view.program.to_owned();
        for (column, value) in self.view.head.iter().zip(&self.head) {
            text.push_str(&format!("  {} {value}", column.name));
        }
        text.push('\n');
        for (table, page) in self.view.tables.iter().zip(&self.pages) {
            text.push_str(&format!("\n{} ({})\n", table.name, page.rows.len()));
            if let Some(note) = &page.note {
                text.push_str(&format!("{note}\n"));
                continue;
            }
            let titles = table
                .columns
                .iter()
                .map(|column| column.name.to_uppercase());
            let mut lines: Vec<Vec<String>> = vec![titles.collect()];
            let texts = |row: &Vec<Cell>| row.iter().map(|cell| cell.text.clone()).collect();
            lines.extend(page.rows.iter().map(texts));
            for (at, column) in table.columns.iter().enumerate() {
                if column.kind.is_text() {
                    continue;
                }
                let widest = lines.iter().map(|line| line[at].len()).max().unwrap_or(0);
                for line in &mut lines {
                    line[at] = format!("{:>widest$}", line[at]);
                }
            }
            text.push_str(&table::table(&lines));
        }
        text
    }
}

impl Page {
    fn take(&mut self, now: Instant, table: &Table, document: &Value) {
        let mut reading = self.past.reading(now);
        let counters;
        let rows = match table.rows {
            Rows::List => document[table.name].as_array(),
            Rows::Counters => {
                let mut found = Vec::new();
                collect("", document, &mut found);
                counters = found;
                Some(&counters)
            }
        };
        let rows = rows.into_iter().flatten();
        self.rows = rows.map(|row| reading.row(table.columns, row)).collect();
        self.past = reading.done(now);
        self.note = document["error"].as_str().map(str::to_owned);
        self.order();
    }

    /// Numbers from the greatest down, texts from A to Z; rows that are equal stay as they came.
    fn order(&mut self) {
        let Some((column, reversed)) = self.sort else {
            return;
        };
        self.rows.sort_by(|a, b| {
            let (a, b) = (&a[column], &b[column]);
            let order = match (a.number, b.number) {
                (Some(a), Some(b)) => b.total_cmp(&a),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => a.text.cmp(&b.text),
            };
            if reversed { order.reverse() } else { order }
        });
    }
}

impl Past {
    fn reading(&self, now: Instant) -> Reading<'_> {
        let seconds = self
            .read
            .map(|read| now.saturating_duration_since(read).as_secs_f64());
        Reading {
            before: &self.counts,
            counts: HashMap::new(),
            seconds: seconds.filter(|seconds| *seconds > 0.0),
        }
    }
}

/// One reading of a document.
struct Reading<'a> {
    before: &'a HashMap<(String, usize), u64>,
    counts: HashMap<(String, usize), u64>,
    seconds: Option<f64>,
}

impl Reading<'_> {
    fn done(self, now: Instant) -> Past {
        Past {
            counts: self.counts,
            read: Some(now),
        }
    }

    fn row(&mut self, columns: &[Column], row: &Value) -> Vec<Cell> {
        let names = columns.iter().filter(|column| column.kind == Kind::Name);
        let key: Vec<String> = names
            .map(|column| text(row.pointer(column.pointer)))
            .collect();
        let key = key.join(" ");
        let cell = |(number, column): (usize, &Column)| {
            let value = row.pointer(column.pointer);
            let known = value.and_then(Value::as_f64);
            let (text, number) = match column.kind {
                Kind::Name | Kind::State | Kind::Number => (text(value), known),
                Kind::Bits => (known.map_or_else(blank, shortened), known),
                Kind::Seconds => {
                    let seconds = value.and_then(Value::as_u64);
                    (seconds.map_or_else(blank, duration), known)
                }
                Kind::Rate => {
                    let rate = self.rate((key.clone(), number), value);
                    (rate.map_or_else(blank, shortened), rate)
                }
            };
            Cell { text, number }
        };
        columns.iter().enumerate().map(cell).collect()
    }

    fn rate(&mut self, place: (String, usize), value: Option<&Value>) -> Option<f64> {
        let count = match value? {
            Value::Object(counts) => counts.values().filter_map(Value::as_u64).sum(),
            value => value.as_u64()?,
        };
        let before = self.before.get(&place).copied();
        self.counts.insert(place, count);
        // A daemon that was started again counts from 0.
        Some(count.saturating_sub(before?) as f64 / self.seconds?)
    }
}

/// Every number of a document that is not 0, with its name.
fn collect(name: &str, value: &Value, counters: &mut Vec<Value>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let name = match name {
                    "" => key.clone(),
                    _ => format!("{name} {key}"),
                };
                collect(&name, value, counters);
            }
        }
        Value::Number(number) if number.as_u64().is_some_and(|count| count > 0) => {
            counters.push(json!({"name": name, "count": number}));
        }
        _ => {}
    }
}

fn blank() -> String {
    "-".to_owned()
}

fn text(value: Option<&Value>) -> String {
    value.map_or_else(blank, table::cell)
}

fn shortened(rate: f64) -> String {
    match rate {
        r if r >= 1e10 => format!("{:.0}G", r / 1e9),
        r if r >= 1e7 => format!("{:.0}M", r / 1e6),
        r if r >= 1e4 => format!("{:.0}k", r / 1e3),
        r if r >= 10.0 || r == 0.0 => format!("{r:.0}"),
        r => format!("{r:.1}"),
    }
}

fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m {}s", seconds % 60),
        3600..86_400 => format!("{hours}h {minutes}m"),
        _ => format!("{days}d {hours}h"),
    }
}
