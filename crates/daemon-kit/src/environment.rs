//! Environment variables that override a configuration file, for containers and for one-off starts.
//!
//! `POLYCAST_SECTION__KEY=value` means `key = value` in `[section]`, and overrides the file. Two underscores
//! separate sections and key, one stands for a hyphen: `POLYCAST_DAEMON__SOCKET_MODE=0600` is
//! `daemon.socket-mode`. The value is written as in the file (`true`, `3`, `["10.0.0.1:4143"]`); a value
//! that is not TOML is a text, so that quotes may be left out. Lists of sections (`[[route]]`) cannot be set this way. A variable that
//! names no key is an error, as in the file.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::reader::Reader;

/// Prefix of the variables.
pub const PREFIX: &str = "POLYCAST_";

/// The text of a configuration, and the variables that override it.
#[derive(Debug)]
pub struct Document<'t> {
    pub(super) text: &'t str,
    pub(super) variables: Vec<Variable>,
}

impl<'t> From<&'t str> for Document<'t> {
    fn from(text: &'t str) -> Self {
        Document {
            text,
            variables: Vec::new(),
        }
    }
}

impl<'t> From<&'t String> for Document<'t> {
    fn from(text: &'t String) -> Self {
        Document::from(text.as_str())
    }
}

impl<'t> Document<'t> {
    /// Creates a document of the text and those of `variables` that name a section, in the order of their names.
    pub fn with_environment(
        text: &'t str,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Self {
        let mut variables: Vec<Variable> = variables
            .filter_map(|(name, value)| Variable::read(name, &value))
            .collect();
        variables.sort_by(|a, b| a.name.cmp(&b.name));
        Document { text, variables }
    }

    /// Returns the position of a variable: after the text.
    pub(super) fn offset_of(&self, number: usize) -> usize {
        self.text.len() + 1 + number
    }
}

/// One variable of the environment.
#[derive(Debug)]
pub(super) struct Variable {
    pub(super) name: String,
    path: Vec<String>,
    /// `v = VALUE`, which is TOML.
    toml: String,
}

impl Variable {
    /// Parses a variable; `None` if it names no section (`POLYCAST_REQUIRE_PROGRAMS`).
    fn read(name: String, value: &str) -> Option<Self> {
        let path: Vec<String> = name
            .strip_prefix(PREFIX)?
            .split("__")
            .map(|part| part.to_ascii_lowercase().replace('_', "-"))
            .collect();
        if path.len() < 2 {
            return None;
        }
        let as_written = format!("v = {value}");
        let toml = match DeTable::parse(&as_written) {
            Ok(table) if table.get_ref().len() == 1 => as_written,
            _ => format!("v = {}", toml::Value::from(value)),
        };
        Some(Variable { name, path, toml })
    }

    /// Inserts the value at its path; reports a part of the path that is no section.
    pub(super) fn put_into<'t>(
        &'t self,
        table: &mut DeTable<'t>,
        offset: usize,
        reader: &Reader<'_>,
    ) {
        let spanned = |value| Spanned::new(offset..offset, value);
        let Some((key, sections)) = self.path.split_last() else {
            return;
        };
        let mut place = table;
        for section in sections {
            let entry = place
                .entry(Spanned::new(offset..offset, section.as_str().into()))
                .or_insert_with(|| spanned(DeValue::Table(DeTable::default())));
            match entry.get_mut() {
                DeValue::Table(below) => place = below,
                _ => {
                    reader.complain(offset, section, "is not a section", "");
                    return;
                }
            }
        }
        let parsed = DeTable::parse(&self.toml).ok();
        let value = parsed.and_then(|table| table.into_inner().remove("v"));
        if let Some(value) = value {
            place.insert(
                Spanned::new(offset..offset, key.as_str().into()),
                spanned(value.into_inner()),
            );
        }
    }
}
