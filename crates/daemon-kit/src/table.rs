//! Documents for people.

use serde_json::Value;

/// Lines with their columns aligned; numbers to the right.
#[must_use]
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |row: &Vec<String>, i: usize| row.get(i).map_or(0, |cell| cell.chars().count());
    let widths: Vec<usize> = (0..columns)
        .map(|i| rows.iter().map(|row| cell(row, i)).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let number = cell.parse::<u64>().is_ok();
            let padded = if number {
                format!("{cell:>width$}")
            } else {
                format!("{cell:<width$}")
            };
            line.push_str(&padded);
            line.push_str("  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The cells of a line.
#[must_use]
pub fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// A table of objects: a title for each of `names`, and what each row has under them.
#[must_use]
pub fn columns(rows: &[Value], names: &[&str]) -> String {
    let mut lines = vec![names.iter().map(|name| name.to_uppercase()).collect()];
    for row in rows {
        lines.push(names.iter().map(|name| cell(&row[*name])).collect());
    }
    table(&lines)
}

/// A value as a cell shows it. Text that others chose is made harmless for a terminal.
#[must_use]
pub fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(value) => if *value { "yes" } else { "no" }.to_owned(),
        Value::String(text) => text.chars().map(harmless).collect(),
        Value::Array(values) if values.is_empty() => "-".to_owned(),
        Value::Array(values) => values.iter().map(cell).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

fn harmless(c: char) -> char {
    if c.is_control() {
        char::REPLACEMENT_CHARACTER
    } else {
        c
    }
}
