//! The mechanisms that the networks of this process use, for the report.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

static USED: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());

/// Records that a network uses this.
pub fn used(what: &'static str) {
    let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
    used.insert(what);
}

/// All recorded mechanisms, sorted.
pub fn all() -> Vec<String> {
    let used = USED.lock().unwrap_or_else(PoisonError::into_inner);
    used.iter().map(|&what| what.to_owned()).collect()
}
