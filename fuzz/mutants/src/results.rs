//! What became of the mutants of a module, kept from run to run in target/mutants/MODULE.txt.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::list::{Module, Mutant};

/// What became of a mutant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Killed,
    /// Killed: a test did not end.
    TimedOut,
    Survived,
    /// Survived: no test reaches it.
    Unreached,
    /// It does not compile, or is not part of the programs.
    Unviable,
}

const WORDS: [(Outcome, &str); 5] = [
    (Outcome::Killed, "killed"),
    (Outcome::TimedOut, "timed-out"),
    (Outcome::Survived, "survived"),
    (Outcome::Unreached, "unreached"),
    (Outcome::Unviable, "unviable"),
];

impl Outcome {
    pub fn is_survivor(self) -> bool {
        matches!(self, Outcome::Survived | Outcome::Unreached)
    }

    fn word(self) -> &'static str {
        let (_, word) = WORDS
            .iter()
            .find(|(outcome, _)| *outcome == self)
            .expect("each has a word");
        word
    }

    fn parse(word: &str) -> Option<Self> {
        let (outcome, _) = WORDS.iter().find(|(_, other)| *other == word)?;
        Some(*outcome)
    }
}

/// The mutants of a module and what is known of them.
pub struct Results {
    path: PathBuf,
    mutants: Vec<Mutant>,
    /// Names that hold while lines are added and removed.
    keys: Vec<String>,
    outcomes: Vec<Option<Outcome>>,
}

/// Numbers of a row of the table.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Counts {
    pub mutants: usize,
    pub unknown: usize,
    pub viable: usize,
    pub killed: usize,
    pub equivalent: usize,
    pub survived: usize,
}

impl Results {
    /// Reads what earlier runs found of these mutants.
    pub fn load(work: &Path, module: &Module, mutants: Vec<Mutant>) -> Result<Self> {
        let path = work.join(format!("{}.txt", module.name));
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).context(path.display().to_string()),
        };
        let lines: Vec<(&str, &str)> = text.lines().filter_map(|l| l.split_once(' ')).collect();
        let known: HashMap<String, Option<Outcome>> = keys(lines.iter().map(|(_, name)| *name))
            .into_iter()
            .zip(lines.iter().map(|(word, _)| Outcome::parse(word)))
            .collect();
        let keys = keys(mutants.iter().map(|mutant| mutant.name.as_str()));
        let outcomes = keys.iter().map(|key| known.get(key).copied().flatten());
        Ok(Self {
            path,
            outcomes: outcomes.collect(),
            mutants,
            keys,
        })
    }

    pub fn mutants(&self) -> &[Mutant] {
        &self.mutants
    }

    /// Whether it survived, or is not known to have been killed.
    pub fn is_open(&self, index: usize) -> bool {
        self.outcomes[index].is_none_or(Outcome::is_survivor)
    }

    pub fn set(&mut self, index: usize, outcome: Outcome) {
        self.outcomes[index] = Some(outcome);
    }

    pub fn save(&self) -> Result<()> {
        let lines = self.mutants.iter().zip(&self.outcomes);
        let lines = lines.map(|(mutant, outcome)| {
            let word = outcome.map_or("unknown", Outcome::word);
            format!("{word} {}\n", mutant.name)
        });
        fs::write(&self.path, lines.collect::<String>())
            .with_context(|| self.path.display().to_string())
    }

    /// Survivors that are not equivalent, with what their line in `equivalent.txt` would be.
    pub fn survivors<'a>(
        &'a self,
        equivalents: &'a Equivalents,
    ) -> impl Iterator<Item = (&'a Mutant, Outcome, &'a str)> {
        let all = self.mutants.iter().zip(&self.outcomes).zip(&self.keys);
        all.filter_map(|((mutant, outcome), key)| Some((mutant, (*outcome)?, key.as_str())))
            .filter(|(_, outcome, _)| outcome.is_survivor())
            .filter(|(_, _, key)| !equivalents.0.contains_key(*key))
    }

    pub fn counts(&self, equivalents: &Equivalents) -> Counts {
        let mut counts = Counts {
            mutants: self.mutants.len(),
            ..Counts::default()
        };
        for (outcome, key) in self.outcomes.iter().zip(&self.keys) {
            match outcome {
                None => counts.unknown += 1,
                Some(Outcome::Unviable) => {}
                Some(Outcome::Killed | Outcome::TimedOut) => counts.killed += 1,
                Some(_) if equivalents.0.contains_key(key) => counts.equivalent += 1,
                Some(_) => counts.survived += 1,
            }
        }
        counts.viable = counts.killed + counts.equivalent + counts.survived;
        counts
    }
}

/// Names without line and column, which move when the file is edited; a number tells those apart that are then the same.
fn keys<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut seen: HashMap<String, u32> = HashMap::new();
    let key = |name: &str| {
        let mut parts = name.splitn(4, ':');
        let file = parts.next().unwrap_or_default();
        let name = format!("{file}:{}", parts.nth(2).unwrap_or(name));
        let count = seen.entry(name.clone()).or_default();
        *count += 1;
        match *count {
            1 => name,
            count => format!("{name} #{count}"),
        }
    };
    names.map(key).collect()
}

/// Mutants that change nothing that a test can see, with the reason.
pub struct Equivalents(BTreeMap<String, String>);

impl Equivalents {
    pub fn load() -> Result<Self> {
        let path = "fuzz/mutants/equivalent.txt";
        Self::parse(&fs::read_to_string(path).context(path)?).context(path)
    }

    fn parse(text: &str) -> Result<Self> {
        let lines = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let pairs = lines.map(|line| {
            let (key, reason) = line
                .rsplit_once(" | ")
                .with_context(|| format!("{line}: no reason"))?;
            Ok((key.to_owned(), reason.to_owned()))
        });
        Ok(Self(pairs.collect::<Result<_>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_hold_when_lines_move_and_tell_equal_changes_apart() {
        let before = keys(
            [
                "a.rs:3:5: replace + with - in f",
                "a.rs:4:9: replace + with - in f",
            ]
            .into_iter(),
        );
        let after = keys(
            [
                "a.rs:30:5: replace + with - in f",
                "a.rs:40:9: replace + with - in f",
            ]
            .into_iter(),
        );
        assert_eq!(before, after);
        assert_eq!(before[0], "a.rs: replace + with - in f");
        assert_eq!(before[1], "a.rs: replace + with - in f #2");
    }

    #[test]
    fn an_equivalent_mutant_needs_a_reason() {
        assert!(Equivalents::parse("# heading\n\na.rs: | in f | it is the same\n").is_ok());
        assert!(Equivalents::parse("a.rs: x in f\n").is_err());
    }
}
