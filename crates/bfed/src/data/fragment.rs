//! Frames longer than a datagram: split where they leave a native network, reassembled where they enter one.
//!
//! Fragments of incomplete frames are kept for at most [`PlaneConfig::real_time_delay`], up to [`MAX_BYTES`] for
//! each peer: then its oldest frame is dropped. A peer that sends fragments without end loses its own frames, not
//! those of others.
//!
//! [`PlaneConfig::real_time_delay`]: super::PlaneConfig::real_time_delay

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use proto_core::time::{Duration, Instant};

use super::EdgeId;
use crate::wire::data::MAX_PAYLOAD_LEN;
use crate::wire::fragment::{self, Repr};

/// Most bytes of incomplete frames for each peer, with overhead.
pub(super) const MAX_BYTES: usize = 2 << 20;
/// Overhead of a frame, in bytes.
const COST: usize = 256;

type Number = (EdgeId, u32);

/// An incomplete frame.
#[derive(Debug)]
struct Partial {
    parts: Vec<Option<Box<[u8]>>>,
    missing: usize,
    /// Bytes received so far.
    len: usize,
}

impl Partial {
    fn new(count: usize) -> Self {
        Partial {
            parts: vec![None; count],
            missing: count,
            len: 0,
        }
    }

    fn cost(&self) -> usize {
        self.len + COST + self.parts.len() * 32
    }
}

/// Frames of one peer.
#[derive(Debug, Default)]
struct Frames {
    bytes: usize,
    map: BTreeMap<Number, Partial>,
    /// In the order of their first fragments; some are complete already.
    order: VecDeque<(Instant, Number)>,
}

impl Frames {
    fn remove(&mut self, number: &Number) -> Option<Partial> {
        let partial = self.map.remove(number)?;
        self.bytes -= partial.cost();
        Some(partial)
    }

    /// Drops frames that started too long ago, and the oldest at the limit. Returns their number.
    fn trim(&mut self, since: Instant) -> u64 {
        let mut dropped = 0;
        while let Some((began, number)) = self.order.front().copied() {
            let known = self.map.contains_key(&number);
            if known && began >= since && self.bytes <= MAX_BYTES {
                break;
            }
            self.order.pop_front();
            dropped += u64::from(self.remove(&number).is_some());
        }
        dropped
    }
}

/// Result of a fragment.
#[derive(Debug)]
pub(super) enum Joined {
    /// The frame is complete.
    Whole(Arc<[u8]>),
    /// Fragments are missing.
    Waits,
    /// It does not fit the other fragments of its frame.
    Malformed,
}

/// Incomplete frames by the index of their link.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    links: BTreeMap<u32, Frames>,
    /// Number of the last frame that was split here.
    last: u32,
}

impl Assembly {
    /// Numbers frames from `first` on.
    pub(super) fn new(first: u32) -> Self {
        Assembly {
            links: BTreeMap::new(),
            last: first,
        }
    }

    /// Takes a fragment that arrived on an edge of a link. Returns the result, and the number of frames dropped for
    /// it.
    pub(super) fn join(
        &mut self,
        (now, keep): (Instant, Duration),
        link: u32,
        id: EdgeId,
        payload: &[u8],
    ) -> (Joined, u64) {
        let Ok(repr) = Repr::parse(payload) else {
            return (Joined::Malformed, 0);
        };
        let bytes = &payload[fragment::LEN..];
        let frames = self.links.entry(link).or_default();
        let number = (id, repr.frame);
        let count = usize::from(repr.count);
        if !frames.map.contains_key(&number) {
            let partial = Partial::new(count);
            frames.bytes += partial.cost();
            frames.map.insert(number, partial);
            frames.order.push_back((now, number));
        }
        let Some(partial) = frames.map.get_mut(&number) else {
            return (Joined::Waits, 0);
        };
        if partial.parts.len() != count || partial.len + bytes.len() > MAX_PAYLOAD_LEN {
            frames.remove(&number);
            return (Joined::Malformed, 1);
        }
        let part = &mut partial.parts[usize::from(repr.index)];
        if part.is_none() {
            *part = Some(bytes.into());
            partial.missing -= 1;
            partial.len += bytes.len();
            frames.bytes += bytes.len();
        }
        if partial.missing > 0 {
            return (Joined::Waits, frames.trim(now - keep));
        }
        let parts = frames
            .remove(&number)
            .map_or_else(Vec::new, |whole| whole.parts);
        let frame: Vec<u8> = parts.into_iter().flatten().flatten().collect();
        (Joined::Whole(frame.into()), frames.trim(now - keep))
    }

    /// Drops the frames of an edge.
    pub(super) fn forget(&mut self, link: u32, id: EdgeId) {
        let Some(frames) = self.links.get_mut(&link) else {
            return;
        };
        let own = |number: &&Number| number.0 == id;
        let gone: Vec<_> = frames.map.keys().filter(own).copied().collect();
        for number in &gone {
            frames.remove(number);
        }
        frames.order.retain(|(_, number)| number.0 != id);
        if frames.map.is_empty() {
            self.links.remove(&link);
        }
    }

    /// Splits a frame into payloads of at most `most` bytes each; `None` if that makes too many.
    pub(super) fn cut(&mut self, frame: &[u8], most: usize) -> Option<Vec<Arc<[u8]>>> {
        let most = most.checked_sub(fragment::LEN).filter(|most| *most > 0)?;
        let count = frame.len().div_ceil(most);
        if count > fragment::MAX_COUNT {
            return None;
        }
        self.last = self.last.wrapping_add(1);
        let piece = |(index, bytes): (usize, &[u8])| {
            let mut payload = vec![0; fragment::LEN + bytes.len()];
            let (index, count) = (index as u8, count as u8);
            let frame = self.last;
            Repr {
                frame,
                index,
                count,
            }
            .emit(&mut payload);
            payload[fragment::LEN..].copy_from_slice(bytes);
            payload.into()
        };
        Some(frame.chunks(most).enumerate().map(piece).collect())
    }
}

#[cfg(test)]
mod tests;
