//! Reads a TOML document and collects every problem with its position and what to write instead. One
//! problem never hides another, and is reported once.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::environment::{Document, Variable};

/// One problem of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The key's whole path (`limits.groups`, `route[2].group`); empty for a syntax error.
    pub key: String,
    /// What is wrong.
    pub wrong: String,
    /// What to write instead.
    pub instead: String,
    /// The environment variable that set the value; then line and column are 0.
    pub variable: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.variable {
            Some(variable) => write!(f, "{variable}: ")?,
            None => write!(f, "{}:{}: ", self.line, self.column)?,
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.wrong)?;
        if !self.instead.is_empty() {
            write!(f, "; {}", self.instead)?;
        }
        Ok(())
    }
}

/// A configuration that was not accepted.
#[derive(Debug)]
pub enum ConfigError {
    /// The file cannot be read.
    Unreadable(PathBuf, std::io::Error),
    /// The configuration is wrong.
    Wrong(PathBuf, Vec<Problem>),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Unreadable(path, error) => write!(f, "{}: {error}", path.display()),
            ConfigError::Wrong(path, problems) => {
                for (i, problem) in problems.iter().enumerate() {
                    let end = if i + 1 < problems.len() { "\n" } else { "" };
                    match &problem.variable {
                        Some(_) => write!(f, "{problem}{end}")?,
                        None => write!(f, "{}:{problem}{end}", path.display())?,
                    }
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for ConfigError {}

/// Reads a configuration file of at most 1 MiB, and the environment variables that override it
/// ([`Document::with_environment`]).
///
/// # Errors
/// The file cannot be read, or `parse` found something wrong.
pub fn load<T>(
    path: &Path,
    parse: impl FnOnce(Document<'_>) -> Result<T, Vec<Problem>>,
) -> Result<T, ConfigError> {
    let unreadable = |error| ConfigError::Unreadable(path.to_owned(), error);
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take((1 << 20) + 1)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    if text.len() > 1 << 20 {
        return Err(unreadable(std::io::Error::other("longer than 1 MiB")));
    }
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        Some((name, value.to_string_lossy().into_owned()))
    });
    let document = Document::with_environment(&text, variables);
    parse(document).map_err(|problems| ConfigError::Wrong(path.to_owned(), problems))
}

/// Reads a document: `read` makes the value of its root. Keys that it did not read are problems too.
///
/// # Errors
/// Every problem, in the order of the file; if the document is not TOML, only its syntax errors.
pub fn parse<'t, T>(
    document: impl Into<Document<'t>>,
    read: impl FnOnce(&Section<'_, '_>) -> T,
) -> Result<T, Vec<Problem>> {
    let document = document.into();
    let (table, errors) = DeTable::parse_recoverable(document.text);
    let reader = Reader::new(&document);
    for error in &errors {
        let offset = error.span().map_or(0, |span| span.start);
        reader.complain(offset, "", error.message(), "");
    }
    let mut table = table.into_inner();
    for (number, variable) in document.variables.iter().enumerate() {
        variable.put_into(&mut table, document.offset_of(number), &reader);
    }
    if !reader.problems.borrow().is_empty() {
        return Err(reader.into_problems());
    }
    let root = Section::root(&reader, &table);
    let value = read(&root);
    root.finish();
    let problems = reader.into_problems();
    if problems.is_empty() {
        Ok(value)
    } else {
        Err(problems)
    }
}

/// The document being read, and the problems found so far.
pub(super) struct Reader<'t> {
    text: &'t str,
    variables: &'t [Variable],
    problems: RefCell<Vec<(usize, Problem)>>,
}

impl<'t> Reader<'t> {
    fn new(document: &'t Document<'_>) -> Self {
        Reader {
            text: document.text,
            variables: &document.variables,
            problems: RefCell::new(Vec::new()),
        }
    }

    pub(super) fn complain(
        &self,
        offset: usize,
        key: impl Into<String>,
        wrong: impl Into<String>,
        instead: impl Into<String>,
    ) {
        let variable = offset
            .checked_sub(self.text.len() + 1)
            .and_then(|number| self.variables.get(number));
        if let Some(variable) = variable {
            let problem = Problem {
                line: 0,
                column: 0,
                key: key.into(),
                wrong: wrong.into(),
                instead: instead.into(),
                variable: Some(variable.name.clone()),
            };
            self.problems.borrow_mut().push((offset, problem));
            return;
        }
        // Spans start at characters.
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        let problem = Problem {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            key: key.into(),
            wrong: wrong.into(),
            instead: instead.into(),
            variable: None,
        };
        self.problems.borrow_mut().push((offset, problem));
    }

    /// Returns the problems in the order of the file.
    fn into_problems(self) -> Vec<Problem> {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|(offset, _)| *offset);
        let mut kept: Vec<(usize, Problem)> = Vec::new();
        for (offset, problem) in problems {
            if !is_consequence(&kept, offset, &problem) {
                kept.push((offset, problem));
            }
        }
        kept.into_iter().map(|(_, problem)| problem).collect()
    }
}

/// Returns whether a problem follows from an earlier one in the file: a second problem of the same value, or a second
/// syntax error of a line.
fn is_consequence(kept: &[(usize, Problem)], offset: usize, problem: &Problem) -> bool {
    let syntax = |problem: &Problem| problem.key.is_empty();
    let same_line = |(_, last): &(usize, Problem)| syntax(last) && last.line == problem.line;
    if syntax(problem) && kept.last().is_some_and(same_line) {
        return true;
    }
    let here = kept.iter().rev().take_while(|(at, _)| *at == offset);
    here.into_iter().any(|(_, first)| first.key == problem.key)
}

/// A value and its position.
#[derive(Clone, Debug)]
pub struct At<T> {
    /// What was read.
    pub value: T,
    /// Position in the text, in bytes.
    pub offset: usize,
}

/// One table of the document. Keys that were not read are unknown.
pub struct Section<'r, 't> {
    reader: &'r Reader<'t>,
    path: String,
    offset: usize,
    table: Option<&'r DeTable<'t>>,
    known: RefCell<Vec<&'static str>>,
    sound: Cell<bool>,
    /// The value is not a table, which was reported: no key in it is missing.
    malformed: bool,
}

impl<'r, 't> Section<'r, 't> {
    fn root(reader: &'r Reader<'t>, table: &'r DeTable<'t>) -> Self {
        Section::new(reader, String::new(), 0, Some(table))
    }

    fn new(
        reader: &'r Reader<'t>,
        path: String,
        offset: usize,
        table: Option<&'r DeTable<'t>>,
    ) -> Self {
        let (known, sound) = (RefCell::new(Vec::new()), Cell::new(true));
        Section {
            reader,
            path,
            offset,
            table,
            known,
            sound,
            malformed: false,
        }
    }

    /// Returns the position of the section.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns whether the section has `key`.
    pub fn has(&self, key: &str) -> bool {
        self.table.is_some_and(|table| table.contains_key(key))
    }

    /// Returns the position of the value of `key`, or of the section if it is absent.
    pub fn offset_of(&self, key: &str) -> usize {
        let found = self.table.and_then(|table| table.get(key));
        found.map_or(self.offset, |value| value.span().start)
    }

    pub(super) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// Reports that the value of `key` is wrong.
    pub fn complain(
        &self,
        offset: usize,
        key: &str,
        wrong: impl Into<String>,
        instead: impl Into<String>,
    ) {
        self.sound.set(false);
        self.reader
            .complain(offset, self.path_of(key), wrong, instead);
    }

    /// Reports that the section should not be there at all.
    pub fn complain_whole(&self, wrong: &str, instead: &str) {
        self.sound.set(false);
        self.reader
            .complain(self.offset, self.path.clone(), wrong, instead);
    }

    fn find(&self, key: &'static str) -> Option<&'r Spanned<DeValue<'t>>> {
        self.known.borrow_mut().push(key);
        self.table?.get(key)
    }

    /// Reads the value of `key` with `read`. `expected` completes "write ..." in the error.
    pub fn get<T>(
        &self,
        key: &'static str,
        expected: &str,
        read: impl FnOnce(&DeValue<'_>) -> Result<T, String>,
    ) -> Option<At<T>> {
        let found = self.find(key)?;
        let offset = found.span().start;
        match read(found.get_ref()) {
            Ok(value) => Some(At { value, offset }),
            Err(wrong) => {
                self.complain(offset, key, wrong, format!("write {expected}"));
                None
            }
        }
    }

    /// As [`Section::get`], for a key that must be there.
    pub fn require<T>(
        &self,
        key: &'static str,
        expected: &str,
        read: impl FnOnce(&DeValue<'_>) -> Result<T, String>,
    ) -> Option<At<T>> {
        if self.malformed {
            return None;
        }
        if !self.has(key) {
            self.known.borrow_mut().push(key);
            self.complain(self.offset, key, "is missing", format!("write {expected}"));
            return None;
        }
        self.get(key, expected, read)
    }

    /// Reads each element of the list under `key`.
    pub fn list<T>(
        &self,
        key: &'static str,
        expected: &str,
        read: impl Fn(&DeValue<'_>) -> Result<T, String>,
    ) -> Option<At<Vec<At<T>>>> {
        let found = self.find(key)?;
        let offset = found.span().start;
        let DeValue::Array(array) = found.get_ref() else {
            let wrong = format!("{} is not a list", shown(found.get_ref()));
            self.complain(offset, key, wrong, format!("write {expected}"));
            return None;
        };
        let mut value = Vec::new();
        for element in array.iter() {
            let offset = element.span().start;
            match read(element.get_ref()) {
                Ok(item) => value.push(At {
                    value: item,
                    offset,
                }),
                Err(wrong) => self.complain(offset, key, wrong, format!("write {expected}")),
            }
        }
        Some(At { value, offset })
    }

    /// Returns the table under `key`; an absent one is empty.
    pub fn section(&self, key: &'static str) -> Section<'r, 't> {
        let path = self.path_of(key);
        let Some(found) = self.find(key) else {
            return Section::new(self.reader, path, self.offset, None);
        };
        let offset = found.span().start;
        match found.get_ref() {
            DeValue::Table(table) => Section::new(self.reader, path, offset, Some(table)),
            other => {
                let wrong = format!("{} is not a section", shown(other));
                self.complain(
                    offset,
                    key,
                    wrong,
                    format!("write [{path}] on a line of its own"),
                );
                Section {
                    malformed: true,
                    ..Section::new(self.reader, path, offset, None)
                }
            }
        }
    }

    /// Returns the tables under `[[key]]`.
    pub fn sections(&self, key: &'static str) -> Vec<Section<'r, 't>> {
        let path = self.path_of(key);
        let Some(found) = self.find(key) else {
            return Vec::new();
        };
        let instead = format!("write [[{path}]] on a line of its own, once for each");
        let DeValue::Array(array) = found.get_ref() else {
            let wrong = "is not a list of sections".to_owned();
            self.complain(found.span().start, key, wrong, instead);
            return Vec::new();
        };
        let mut sections = Vec::new();
        for (i, element) in array.iter().enumerate() {
            let (offset, path) = (element.span().start, format!("{path}[{}]", i + 1));
            match element.get_ref() {
                DeValue::Table(table) => {
                    sections.push(Section::new(self.reader, path, offset, Some(table)));
                }
                other => {
                    let wrong = format!("{} is not a section", shown(other));
                    self.complain(offset, key, wrong, instead.clone());
                }
            }
        }
        sections
    }

    /// Reports every key that was not read; returns whether the section has no problems.
    pub fn finish(self) -> bool {
        let known = self.known.borrow();
        for (key, _) in self.table.into_iter().flatten() {
            let name: &str = key.get_ref();
            if known.contains(&name) {
                continue;
            }
            let place = if self.path.is_empty() {
                "here".to_owned()
            } else {
                format!("in [{}]", self.path)
            };
            let instead = match nearest(name, &known) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("known {place}: {}", known.join(", ")),
            };
            self.complain(key.span().start, name, "is unknown", instead);
        }
        self.sound.get()
    }
}

/// Returns a value as error messages show it.
pub fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(value) => value.to_string(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a section".to_owned(),
    }
}

/// Returns the known word closest to `word`, if a typing error explains the difference.
pub(super) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let limit = (word.len() / 3).clamp(1, 3);
    let spelled = word.replace('_', "-");
    known
        .iter()
        .map(|candidate| (distance(&spelled, candidate), *candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Returns the number of edits (insert, delete, replace) between two words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (diagonal + usize::from(x != *y))
                .min(above + 1)
                .min(row[j] + 1);
            diagonal = above;
        }
    }
    row[b.len()]
}
