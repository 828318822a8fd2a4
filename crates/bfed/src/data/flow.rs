//! Flows of the sessions at a data node, with their edges.

use alloc::boxed::Box;
use alloc::vec::Vec;

use proto_core::time::Instant;

use super::EdgeId;
use super::init::Init;
use crate::types::Content;
use crate::wire::class::Class;

/// Counters of one flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct FlowCounts {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) copies: u64,
    pub(crate) dropped: u64,
}

impl FlowCounts {
    pub(crate) fn add(&mut self, other: &FlowCounts) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.copies += other.copies;
        self.dropped += other.dropped;
    }
}

/// A flow. It fits in one cache line, with all data needed for each packet on the slow path.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Flow {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) copies: u64,
    /// The first edge that packets are sent on: most flows have no other.
    first: Option<EdgeId>,
    /// The edge towards the owner.
    pub(super) up: Option<EdgeId>,
    /// Number of edges that packets are sent on.
    outs: u32,
    pub(super) multi: bool,
    pub(super) paused: bool,
    /// Nothing is forwarded until upstream has said which initialisation the flow has, or `Rest::gate` has passed.
    pub(super) awaits_init: bool,
    pub(super) content: Content,
    pub(super) rest: Box<Rest>,
}

const _: () = assert!(size_of::<Option<Flow>>() == 64);

/// State for further edges and for changes.
#[derive(Debug)]
pub(super) struct Rest {
    /// The other edges that packets are sent on.
    out: Vec<EdgeId>,
    /// Number of full edges.
    pub(super) full: usize,
    pub(super) dropped: u64,
    /// The class of its frames whose source says nothing; none in bulk flows.
    pub(super) class: Class,
    /// An initialisation has been asked for: the next parent's answer is not waited for.
    pub(super) has_asked: bool,
    /// When data is forwarded although upstream has not said which initialisation the flow has.
    pub(super) gate: Instant,
    /// The initialisation of its container, if it has one.
    pub(super) init: Option<Init>,
}

impl Flow {
    pub(super) fn new(content: Content, multi: bool, class: Class) -> Self {
        Flow {
            packets: 0,
            bytes: 0,
            copies: 0,
            first: None,
            up: None,
            outs: 0,
            multi,
            paused: false,
            awaits_init: false,
            content,
            rest: Box::new(Rest {
                out: Vec::new(),
                full: 0,
                dropped: 0,
                class,
                has_asked: false,
                gate: Instant::ZERO,
                init: None,
            }),
        }
    }

    /// Adds the counts of its shortcut.
    pub(super) fn add_counts(&mut self, counts: &FlowCounts) {
        self.packets += counts.packets;
        self.bytes += counts.bytes;
        self.copies += counts.copies;
    }

    /// Returns the counts of the slow path and of closed shortcuts.
    pub(super) fn counts(&self) -> FlowCounts {
        FlowCounts {
            packets: self.packets,
            bytes: self.bytes,
            copies: self.copies,
            dropped: self.rest.dropped,
        }
    }

    /// Returns the number of edges that packets are sent on.
    #[inline]
    pub(super) fn outs(&self) -> u32 {
        self.outs
    }

    /// Returns an edge that packets are sent on by its index; the upstream one is included if the flow has many
    /// sources.
    #[inline]
    pub(super) fn out(&self, at: u32) -> Option<EdgeId> {
        match at {
            _ if at >= self.outs => None,
            0 => self.first,
            _ => self.rest.out.get(at as usize - 1).copied(),
        }
    }

    pub(super) fn add(&mut self, id: EdgeId, up: bool) {
        if up {
            self.up = Some(id);
        }
        if !up || self.multi {
            match self.first {
                None => self.first = Some(id),
                Some(_) => self.rest.out.push(id),
            }
            self.outs += 1;
        }
    }

    pub(super) fn remove(&mut self, id: EdgeId) {
        self.up = self.up.filter(|up| *up != id);
        if self.first == Some(id) {
            self.first = (!self.rest.out.is_empty()).then(|| self.rest.out.remove(0));
        } else {
            self.rest.out.retain(|other| *other != id);
        }
        self.outs = u32::from(self.first.is_some()) + self.rest.out.len() as u32;
    }
}

#[cfg(test)]
mod tests;
