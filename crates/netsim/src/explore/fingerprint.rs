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
        self.text.clear();
        let mut fields = Fields {
            text: &mut self.text,
            skipped,
            depth: None,
        };
        write!(fields, "{part:?}").expect("neither the buffer nor `Debug` fails");
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

/// The text of a `Debug`, without the fields to skip.
///
/// The formatter of a struct writes a space, the name of a field, and `": "` in one piece.
struct Fields<'a> {
    text: &'a mut String,
    skipped: &'a [&'a str],
    /// Inside a field to skip: the brackets that are open.
    depth: Option<u32>,
}

impl Fields<'_> {
    /// Returns what stands behind the field that is skipped; empty while that goes on.
    fn skip<'t>(&mut self, depth: u32, text: &'t str) -> &'t str {
        let mut depth = depth;
        for (at, byte) in text.bytes().enumerate() {
            match byte {
                b'{' | b'[' | b'(' => depth += 1,
                b'}' | b']' | b')' | b',' if depth == 0 => {
                    self.depth = None;
                    return &text[at..];
                }
                b'}' | b']' | b')' => depth -= 1,
                _ => {}
            }
        }
        self.depth = Some(depth);
        ""
    }
}

impl fmt::Write for Fields<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if let Some(depth) = self.depth {
            // ", " and " }" end a field.
            let rest = self.skip(depth, text.trim_start());
            self.text.push_str(rest);
            return Ok(());
        }
        if text == ": " {
            let ends_with = |name: &&str| {
                let before = self.text.strip_suffix(name);
                before.is_some_and(|before| before.ends_with(' '))
            };
            self.depth = self.skipped.iter().any(ends_with).then_some(0);
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

    #[test]
    fn parts_do_not_run_together() {
        assert_ne!(of(&[&1, &23]), of(&[&12, &3]));
    }
}
