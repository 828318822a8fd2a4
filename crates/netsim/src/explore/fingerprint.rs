//! Hashes of whole states.

use std::fmt::{self, Write as _};
use std::hash::Hash;

use siphasher::sip128::{Hasher128, SipHasher13};

/// A hash of 128 bits over the state of a world. States with equal hashes count as one state.
///
/// The state of a machine enters as the text of its `Debug`, which derived implementations write field by field. Nothing
/// of the state may be missing in it, except for what changes no later packet and no later event: counters, secrets that
/// stay constant. The position of a random generator is missing too. Two states that differ in it alone have the same
/// futures except for the random choices, of which one seed shows only some in any case.
pub struct Fingerprint {
    hasher: SipHasher13,
    /// A buffer: pieces of text are short, and hashed together.
    text: String,
}

impl Fingerprint {
    pub(super) fn new() -> Self {
        Fingerprint {
            hasher: SipHasher13::new(),
            text: String::new(),
        }
    }

    /// Adds a part of the state by its `Debug`, without fields called `stats`: counters differ where states do not.
    pub fn debug(&mut self, part: &dyn fmt::Debug) {
        self.debug_without(part, &["stats"]);
    }

    /// Adds a part of the state by its `Debug`, without fields of these names at any depth.
    pub fn debug_without(&mut self, part: &dyn fmt::Debug, skipped: &[&str]) {
        self.debug_hiding(part, skipped, &[]);
    }

    /// Adds a part of the state by its `Debug`, without the fields called `skipped`. The values of fields called `random` are
    /// hidden wherever they stand: times that a machine draws at random, and its timers that are set to them.
    pub fn debug_hiding(&mut self, part: &dyn fmt::Debug, skipped: &[&str], random: &[&str]) {
        self.text.clear();
        let mut fields = Fields {
            text: &mut self.text,
            skipped,
            random,
            left_out: None,
            values: Vec::new(),
        };
        write!(fields, "{part:?}").expect("neither the buffer nor `Debug` fails");
        for value in fields.values {
            self.text = self.text.replace(value.trim_end(), "");
        }
        self.text.hash(&mut self.hasher);
    }

    /// Adds a part of the state by its `Hash`.
    pub fn hash(&mut self, part: &(impl Hash + ?Sized)) {
        part.hash(&mut self.hasher);
    }

    pub(super) fn finish(&self) -> u128 {
        self.hasher.finish128().as_u128()
    }
}

/// The text of a `Debug`, without the fields to leave out.
///
/// The formatter of a struct writes a space, the name of a field, and `": "` in one piece.
struct Fields<'a> {
    text: &'a mut String,
    skipped: &'a [&'a str],
    random: &'a [&'a str],
    /// Inside of a field to leave out.
    left_out: Option<LeftOut>,
    /// Values of random fields.
    values: Vec<String>,
}

struct LeftOut {
    /// The brackets that are open.
    depth: u32,
    is_random: bool,
}

impl Fields<'_> {
    /// Begins a field. Its name ends the text.
    fn begin(&mut self) {
        let name = self.text.rsplit(' ').next().unwrap_or_default();
        let is_random = self.random.contains(&name);
        if is_random {
            self.values.push(String::new());
        }
        if is_random || self.skipped.contains(&name) {
            let depth = 0;
            self.left_out = Some(LeftOut { depth, is_random });
        }
    }

    /// Leaves out a piece of text, up to the end of the field.
    fn leave_out(&mut self, mut left_out: LeftOut, text: &str) {
        let end = text.bytes().position(|byte| {
            match byte {
                b'{' | b'[' | b'(' => left_out.depth += 1,
                b'}' | b']' | b')' | b',' if left_out.depth == 0 => return true,
                b'}' | b']' | b')' => left_out.depth -= 1,
                _ => {}
            }
            false
        });
        let (value, rest) = text.split_at(end.unwrap_or(text.len()));
        if left_out.is_random
            && let Some(last) = self.values.last_mut()
        {
            last.push_str(value);
        }
        self.text.push_str(rest);
        self.left_out = end.is_none().then_some(left_out);
    }
}

impl fmt::Write for Fields<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if let Some(left_out) = self.left_out.take() {
            self.leave_out(left_out, text);
            return Ok(());
        }
        if text == ": " {
            self.begin();
        }
        self.text.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    #[expect(dead_code, reason = "read by Debug")]
    struct Counters {
        sent: u32,
        drops: [u32; 2],
        last: Option<(u32, &'static str)>,
    }

    #[derive(Debug)]
    #[expect(dead_code, reason = "read by Debug")]
    struct Machine {
        before: u32,
        stats: Counters,
        after: Vec<Inner>,
    }

    #[derive(Debug)]
    #[expect(dead_code, reason = "read by Debug")]
    struct Inner {
        state: u32,
        stats: u32,
    }

    fn machine(before: u32, count: u32, state: u32) -> Machine {
        let stats = Counters {
            sent: count,
            drops: [0, count],
            last: Some((count, "a name")),
        };
        let inner = Inner {
            state,
            stats: count,
        };
        Machine {
            before,
            stats,
            after: vec![inner],
        }
    }

    fn of(parts: &[&dyn fmt::Debug]) -> u128 {
        let mut fingerprint = Fingerprint::new();
        for part in parts {
            fingerprint.debug(part);
        }
        fingerprint.finish()
    }

    #[test]
    fn counters_do_not_count() {
        assert_eq!(of(&[&machine(1, 2, 3)]), of(&[&machine(1, 20, 3)]));
    }

    #[test]
    fn every_other_field_counts() {
        let this = of(&[&machine(1, 2, 3)]);
        assert_ne!(this, of(&[&machine(4, 2, 3)]));
        assert_ne!(this, of(&[&machine(1, 2, 4)]));
        let all = |count| {
            let mut fingerprint = Fingerprint::new();
            fingerprint.debug_without(&machine(1, count, 3), &[]);
            fingerprint.finish()
        };
        assert_ne!(all(2), all(3));
    }

    #[derive(Debug)]
    #[expect(dead_code, reason = "read by Debug")]
    struct Timers {
        random: Inner,
        due: Inner,
        last: u32,
    }

    #[test]
    fn random_values_do_not_count_wherever_they_stand() {
        let inner = |state| Inner { state, stats: 0 };
        let of = |random, due, last| {
            let timers = Timers {
                random: inner(random),
                due: inner(due),
                last,
            };
            let mut fingerprint = Fingerprint::new();
            fingerprint.debug_hiding(&timers, &[], &["random"]);
            fingerprint.finish()
        };
        assert_eq!(of(1, 1, 7), of(2, 2, 7));
        assert_eq!(of(1, 3, 7), of(2, 3, 7));
        assert_ne!(of(1, 1, 7), of(1, 3, 7));
        assert_ne!(of(1, 1, 7), of(1, 1, 8));
    }

    #[test]
    fn parts_do_not_run_together() {
        assert_ne!(of(&[&1, &23]), of(&[&12, &3]));
    }
}
