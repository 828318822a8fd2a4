//! What the networks of this process were made of, for the report.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

static USED: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());

/// Notes that a network was made with this.
pub(crate) fn used(what: &'static str) {
    let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
    used.insert(what);
}

/// All that was noted, sorted.
pub(crate) fn all() -> Vec<String> {
    let used = USED.lock().unwrap_or_else(PoisonError::into_inner);
    used.iter().map(|&what| what.to_owned()).collect()
}
