//! The documents of a status socket: the question is one line such as `{"show": "overview"}`, the answer one JSON
//! object, then the end of the stream. An incomplete answer is not valid JSON.
//!
//! Fields may be added to documents; existing ones keep their names and meanings.

use std::collections::BTreeMap;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::client::{self, QueryError};
use crate::state::Configuration;
use crate::table::{cell, row, table};

/// The documents that a program shows: an enumeration whose JSON form is the name of the document.
pub trait Document: Copy + Serialize + DeserializeOwned + Send {
    /// The program.
    const PROGRAM: &'static str;

    /// Returns how the document is shown as text.
    fn layout(self) -> Layout;
}

/// How a document is shown as text.
///
/// A field is a JSON pointer without the first slash (`replier/cost`), or a text with such pointers in braces
/// (`{address}/{prefix_len}`), shown as `-` where one of them is null.
#[derive(Clone, Copy, Debug)]
pub enum Layout {
    /// The state of the daemon, then a line for each title and field. A field that is absent is left out.
    Overview(&'static [(&'static str, &'static str)]),
    /// The list that the document has under its own name, with a column for each field. `title=field` names the
    /// column; by default the field is its title.
    List(&'static [&'static str]),
    /// Counters by part and name. Drop counters that are 0 are left out.
    Counters,
}

/// A question of a program that only shows documents.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question<D> {
    /// The document to show.
    pub show: D,
}

/// Asks the daemon at `socket` for a document. Each part of the answer may take a few seconds.
///
/// # Errors
/// There is no answer, or it cannot be read.
pub fn query<D: Document>(socket: &Path, show: D) -> Result<Value, QueryError> {
    client::query(socket, D::PROGRAM, &json!({ "show": show }))
}

/// Returns a document as text; `None` if the answer is not that document.
pub fn render<D: Document>(show: D, answer: &Value) -> Option<String> {
    let rows = match show.layout() {
        Layout::Overview(fields) => overview(D::PROGRAM, fields, answer)?,
        Layout::List(columns) => {
            let name = serde_json::to_value(show).ok()?;
            list(columns, answer[name.as_str()?].as_array()?)
        }
        Layout::Counters => counters(answer)?,
    };
    Some(table(&rows))
}

fn overview(program: &str, fields: &[(&str, &str)], answer: &Value) -> Option<Vec<Vec<String>>> {
    let configuration = Configuration::deserialize(answer.get("configuration")?).ok()?;
    let running = field(answer, "{version}, process {pid}, up {uptime_s} s")?;
    let mut rows = vec![row([program, &running])];
    rows.extend(configuration.rows());
    for (title, name) in fields.iter().chain(&[("metrics", "metrics")]) {
        if let Some(text) = field(answer, name) {
            rows.push(row([title, &text]));
        }
    }
    Some(rows)
}

fn list(columns: &[&str], rows: &[Value]) -> Vec<Vec<String>> {
    let columns = columns
        .iter()
        .map(|column| column.split_once('=').unwrap_or((column, column)));
    let mut lines = vec![
        columns
            .clone()
            .map(|(title, _)| title.to_uppercase())
            .collect(),
    ];
    let cells = |row| {
        let cell = |(_, name)| field(row, name).unwrap_or_else(|| "-".to_owned());
        columns.clone().map(cell).collect()
    };
    lines.extend(rows.iter().map(cells));
    lines
}

fn counters(answer: &Value) -> Option<Vec<Vec<String>>> {
    let parts: BTreeMap<String, BTreeMap<String, u64>> = Deserialize::deserialize(answer).ok()?;
    let mut rows = Vec::new();
    for (part, counts) in &parts {
        for (name, count) in counts {
            if *count > 0 || !part.ends_with("drops") {
                rows.push(row([part, name, &count.to_string()]));
            }
        }
    }
    Some(rows)
}

/// Returns the text of a field; `None` if a value of it is absent.
fn field(document: &Value, name: &str) -> Option<String> {
    let value = |name: &str| document.pointer(&format!("/{name}"));
    if !name.contains('{') {
        return value(name).map(cell);
    }
    let mut text = String::new();
    let mut rest = name;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}')?;
        let value = value(name)?;
        if value.is_null() {
            return Some("-".to_owned());
        }
        text.push_str(before);
        text.push_str(&cell(value));
        rest = after;
    }
    text.push_str(rest);
    Some(text)
}
