//! Tables as text.

use serde_json::Value;

/// Returns the rows as lines with aligned columns, numbers to the right.
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

/// Returns a row of these cells.
#[must_use]
pub fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// Returns the text of a value. Control characters are replaced: a peer may have chosen the text.
#[must_use]
pub fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(value) => if *value { "yes" } else { "no" }.to_owned(),
        Value::String(text) => text.chars().map(harmless).collect(),
        Value::Array(values) if values.is_empty() => "-".to_owned(),
        Value::Array(values) => values.iter().map(cell).collect::<Vec<_>>().join(","),
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
