//! The data stream: the bytes that it carries, and their order. It carries only content; both sides derive this
//! from the manifest and the plan's runs.

use alloc::vec::Vec;
use core::fmt;

use crate::blocks::Run;
use crate::limits::MAX_RUNS;
use crate::manifest::{BlockPlace, Manifest};

/// Why runs are no plan for a manifest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LayoutError {
    /// An empty run, or one of blocks that do not exist.
    Range,
    /// Runs are out of order, touch or overlap.
    Order,
    /// More than [`MAX_RUNS`].
    TooMany,
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LayoutError::Range => "a run of blocks that do not exist",
            LayoutError::Order => "runs are out of order",
            LayoutError::TooMany => "too many runs",
        })
    }
}

impl core::error::Error for LayoutError {}

/// The stream of one copy: the blocks of its runs, one after another, each with its own length.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Layout {
    runs: Vec<Run>,
    len: u64,
}

impl Layout {
    /// Checks runs against a manifest.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn new(manifest: &Manifest, runs: Vec<Run>) -> Result<Self, LayoutError> {
        if runs.len() > MAX_RUNS as usize {
            return Err(LayoutError::TooMany);
        }
        let mut free = 0;
        let mut len = 0;
        for run in &runs {
            let end = run.first.checked_add(run.count).ok_or(LayoutError::Range)?;
            if run.count == 0 || end > manifest.blocks() {
                return Err(LayoutError::Range);
            }
            // Runs that touch would be one.
            if free > 0 && run.first <= free || run.first < free {
                return Err(LayoutError::Order);
            }
            free = end;
            len += bytes_before(manifest, end) - bytes_before(manifest, run.first);
        }
        Ok(Layout { runs, len })
    }

    /// Returns the runs, in order.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Bytes of the stream.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the stream is empty: every host has everything.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the block is part of the stream.
    pub fn contains(&self, block: u64) -> bool {
        let after = self.runs.partition_point(|run| run.first <= block);
        after > 0 && block < self.runs[after - 1].end()
    }

    /// Returns the blocks in the order of the stream, by number, each with its place.
    pub fn blocks<'a>(
        &'a self,
        manifest: &'a Manifest,
    ) -> impl Iterator<Item = (u64, BlockPlace)> + 'a {
        self.runs
            .iter()
            .flat_map(|run| run.first..run.end())
            .filter_map(|block| manifest.locate(block).map(|place| (block, place)))
    }
}

/// Bytes of all blocks before `block`.
fn bytes_before(manifest: &Manifest, block: u64) -> u64 {
    match manifest.locate(block) {
        None => manifest.bytes(),
        Some(place) => manifest.bytes_before(place.entry) + place.offset,
    }
}
