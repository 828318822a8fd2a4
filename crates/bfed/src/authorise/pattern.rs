//! Patterns of session names.

use alloc::collections::BTreeMap;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use crate::name::{self, NameError, Owner, SessionName};
use crate::types::BnNum;

/// A pattern of session names: an owner, or `*` for any, and the beginning of the rest of the name.
///
/// | pattern | names |
/// | --- | --- |
/// | `bfed://7` | every session of network 7 |
/// | `bfed://7/239.1.2.3` | that native name, with any flows and parameters |
/// | `bfed://7/239.1.*` | native names that begin with `239.1.` |
/// | `bfed://*/news` | the native name `news` of every network |
/// | `bfed://*` | every session |
///
/// Components are compared whole, escapes decoded, except the last one before a `*` at the end. Parameters do not matter. The owner is
/// compared by the number of its network where that is known, so that another spelling of an owner matches too.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamePattern {
    /// The pattern in normal form.
    text: String,
    /// End of the owner in `text`.
    owner_end: usize,
    /// Whether the last component is only the beginning of one.
    open: bool,
}

/// The owner in a pattern that matches any.
const ANY: &str = "*";

impl NamePattern {
    /// Returns the owner; `None` for any.
    fn owner(&self) -> Option<Owner<'_>> {
        let owner = &self.text[name::SCHEME.len()..self.owner_end];
        (owner != ANY).then(|| name::owner_of(owner))
    }

    /// Returns the native name and the flows, as far as the pattern has them.
    fn path(&self) -> &str {
        let end = self.text.len() - usize::from(self.open);
        self.text[self.owner_end..end].trim_start_matches('/')
    }

    /// Returns whether a session matches. `network` is the number of its owner's network, if known; `names` are DNS
    /// names of networks.
    #[must_use]
    pub fn matches(
        &self,
        session: &SessionName,
        network: Option<BnNum>,
        names: &BTreeMap<String, BnNum>,
    ) -> bool {
        let number = |owner: Owner<'_>| match owner {
            Owner::Number(number) => Some(number),
            Owner::Name(name) => names.get(name).copied(),
        };
        let owned = self.owner().is_none_or(|owner| {
            let known = network.or_else(|| number(session.owner()));
            owner == session.owner() || (known.is_some() && known == number(owner))
        });
        owned && self.begins(session.path())
    }

    /// Returns whether a native name with its flows begins as the pattern does. Escapes are decoded: a native network
    /// sees no difference between `%40` and `@`.
    fn begins(&self, rest: &str) -> bool {
        let (mut own, mut theirs) = (self.path().split('/').peekable(), rest.split('/'));
        if self.path().is_empty() {
            return true;
        }
        while let Some(component) = own.next() {
            let Some(other) = theirs.next() else {
                return false;
            };
            let (mut other, component) = (name::decoded(other), name::decoded(component));
            let is_last = own.peek().is_none();
            if !component.into_iter().all(|byte| other.next() == Some(byte)) {
                return false;
            }
            if !(is_last && self.open) && other.next().is_some() {
                return false;
            }
        }
        true
    }
}

impl FromStr for NamePattern {
    type Err = NameError;

    fn from_str(raw: &str) -> Result<Self, NameError> {
        if raw.len() > name::MAX_NAME_LEN {
            return Err(NameError::TooLong);
        }
        let rest = raw.strip_prefix(name::SCHEME).ok_or(NameError::Scheme)?;
        let (owner, path) = match rest.split_once('/') {
            Some((owner, path)) => (owner, Some(path)),
            None => (rest, None),
        };
        let mut text = String::from(name::SCHEME);
        match owner {
            ANY => text.push_str(ANY),
            owner => name::normalise_owner(owner, &mut text)?,
        }
        let owner_end = text.len();
        let path = path.unwrap_or("");
        let open = path.ends_with('*');
        let path = path.strip_suffix('*').unwrap_or(path);
        if !open && path.is_empty() {
            return Ok(NamePattern {
                text,
                owner_end,
                open,
            });
        }
        let path = path.strip_suffix('/').filter(|_| !open).unwrap_or(path);
        let mut components = path.split('/').peekable();
        while let Some(component) = components.next() {
            // Only before the `*` may one be empty.
            if component.is_empty() && !(open && components.peek().is_none()) {
                return Err(NameError::Flow);
            }
            text.push('/');
            name::normalise_component(component, &mut text)?;
        }
        if open {
            text.push('*');
        }
        Ok(NamePattern {
            text,
            owner_end,
            open,
        })
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, session: &str) -> bool {
        let names = BTreeMap::from([("bn.example".into(), BnNum::new(7).unwrap())]);
        let pattern: NamePattern = pattern.parse().unwrap();
        pattern.matches(&SessionName::parse(session).unwrap(), None, &names)
    }

    #[test]
    fn components_are_whole_and_owners_are_compared_by_number() {
        for (pattern, session, expected) in [
            ("bfed://7", "bfed://7/m/1", true),
            ("bfed://7", "bfed://70/m/1", false),
            ("bfed://7/", "bfed://7/m/1", true),
            (
                "bfed://7/239.1.2.3",
                "bfed://7/239.1.2.3/5004/?metric=latency",
                true,
            ),
            ("bfed://7/239.1.2.3", "bfed://7/239.1.2.30", false),
            ("bfed://7/239.1.2.3/5004", "bfed://7/239.1.2.3/5005", false),
            ("bfed://7/239.1.*", "bfed://7/239.1.99.1", true),
            ("bfed://7/239.1.*", "bfed://7/239.10.1.1", false),
            ("bfed://7/%61*", "bfed://7/abc", true),
            (
                "bfed://7/10.0.0.1@232.1.*",
                "bfed://7/10.0.0.1%40232.1.2.3",
                true,
            ),
            ("bfed://7/a%2Fb", "bfed://7/a/b", false),
            ("bfed://7/a/b*", "bfed://7/a/bc/d", true),
            ("bfed://7/a/b", "bfed://7/a", false),
            ("bfed://*/news", "bfed://9/news", true),
            ("bfed://*", "bfed://9/news", true),
            ("bfed://*/*", "bfed://9/news", true),
            ("bfed://0.0.0.7", "bfed://7/m", true),
            ("bfed://7", "bfed://bn.example/m", true),
            ("bfed://BN.example", "bfed://7/m", true),
            ("bfed://bn.example", "bfed://bn2.example/m", false),
        ] {
            assert_eq!(matches(pattern, session), expected, "{pattern} {session}");
        }
    }

    #[test]
    fn a_name_that_resolved_later_matches_its_number() {
        let pattern: NamePattern = "bfed://7".parse().unwrap();
        let session = SessionName::parse("bfed://late.example/m").unwrap();
        assert!(!pattern.matches(&session, None, &BTreeMap::new()));
        assert!(pattern.matches(&session, BnNum::new(7), &BTreeMap::new()));
    }

    #[test]
    fn wrong_patterns_are_refused() {
        for (text, error) in [
            ("7/m", NameError::Scheme),
            ("bfed://-/m", NameError::Owner),
            ("bfed://7*", NameError::Owner),
            ("bfed://7/a b", NameError::Character),
            ("bfed://7/%zz", NameError::Escape),
            ("bfed://7//x", NameError::Flow),
        ] {
            assert_eq!(text.parse::<NamePattern>(), Err(error), "{text}");
        }
    }
}
