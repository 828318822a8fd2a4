//! A packet that is being forwarded.

use alloc::sync::Arc;

use super::HEADER_LEN;
use super::queue::Timing;
use super::table::Found;
use crate::wire::data::Kind;

/// Position in the edges on which a packet is sent.
#[derive(Debug)]
pub struct Cursor {
    /// Where it arrived.
    pub(super) from: Found,
    pub(super) next: u32,
    /// End of the payload in the frame.
    pub(super) end: usize,
    /// Whether it is sent as a frame or as a fragment.
    pub(super) kind: Kind,
    /// The class of the frame, and when it began.
    pub(super) timing: Timing,
    /// The payload, once an edge has queued or kept it.
    pub(super) shared: Option<Arc<[u8]>>,
}

impl Cursor {
    /// Returns the payload, which all edges that keep or queue it share.
    pub(super) fn share(&mut self, frame: &[u8]) -> Arc<[u8]> {
        let copy = || frame[HEADER_LEN..self.end].into();
        self.shared.get_or_insert_with(copy).clone()
    }
}
