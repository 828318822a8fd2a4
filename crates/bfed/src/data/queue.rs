//! Packets that wait for an edge, and which of them are dropped.
//!
//! Packets leave in the order in which they came. Some never leave:
//!
//! | packet | is dropped | counted as |
//! | --- | --- | --- |
//! | that would arrive after its deadline | when it would leave | `too_late` |
//! | that has waited for half of the time that it had, while a more important one waits behind it | when it would leave | `yielded` |
//! | the oldest one of the least important ones, with the other fragments of its frame | when the queue is full | `queue_full` |
//!
//! The order stays because frames of one flow can be pieces of one stream of bytes. Packets of bulk sessions have no
//! deadline, and all the same priority.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

use proto_core::time::{Duration, Instant};

use crate::wire::class::{Class, Priority};
use crate::wire::data::Kind;
use crate::wire::fragment::Repr as Fragment;

/// Class of a frame, and when the source's gateway took it in, by this node's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub(super) class: Class,
    pub(super) born: Instant,
}

impl Timing {
    /// A frame without a class that has come now.
    pub(super) fn now(now: Instant) -> Self {
        Timing {
            class: Class::NONE,
            born: now,
        }
    }

    /// Returns the deadline.
    pub(super) fn expires(&self) -> Option<Instant> {
        self.class.lifetime().map(|lifetime| self.born + lifetime)
    }

    /// Returns the age that a packet has on arrival if it leaves now, in milliseconds.
    pub(super) fn age_ms(&self, now: Instant, transit: Duration) -> u16 {
        let age = (now + transit) - self.born;
        let millis = (age.total_micros() + 500) / 1000;
        u16::try_from(millis).unwrap_or(u16::MAX)
    }
}

/// Upper bounds of the buckets of [`Ages`] in milliseconds, but for the last one.
pub const AGE_BOUNDS_MS: [u64; 9] = [10, 25, 50, 100, 200, 300, 500, 1000, 2500];

/// Ages of frames: how long after the source's gateway took them in they were given to a native network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ages {
    /// Frames in each bucket: up to each of [`AGE_BOUNDS_MS`], and above.
    pub buckets: [u64; AGE_BOUNDS_MS.len() + 1],
    /// The sum of all ages in microseconds.
    pub sum_us: u64,
}

impl Ages {
    /// Counts a frame that has a class.
    pub(super) fn delivered(&mut self, now: Instant, timing: &Timing) {
        if timing.class.is_some() {
            let age = now - timing.born;
            let bucket = AGE_BOUNDS_MS
                .iter()
                .position(|&bound| age <= Duration::from_millis(bound));
            self.buckets[bucket.unwrap_or(AGE_BOUNDS_MS.len())] += 1;
            self.sum_us += age.total_micros();
        }
    }
}

/// What a packet carries.
#[derive(Clone, Debug)]
pub(super) struct Payload {
    pub(super) kind: Kind,
    pub(super) bytes: Arc<[u8]>,
    /// Its number, if it has one already: it was sent before, or is parity of a block that begins with that number.
    pub(super) number: Option<u32>,
}

impl From<(Kind, Arc<[u8]>)> for Payload {
    fn from((kind, bytes): (Kind, Arc<[u8]>)) -> Self {
        Payload {
            kind,
            bytes,
            number: None,
        }
    }
}

/// A queued frame or fragment.
#[derive(Debug)]
pub(super) struct Waiting {
    /// Position in the queue: 0 before all others.
    order: u64,
    came: Instant,
    /// `None`: it waits as long as it takes.
    expires: Option<Instant>,
    pub(super) timing: Timing,
    pub(super) payload: Payload,
}

impl Waiting {
    /// Creates a packet for a queue.
    pub(super) fn new(
        came: Instant,
        timing: Timing,
        expires: Option<Instant>,
        payload: impl Into<Payload>,
    ) -> Self {
        Waiting {
            order: 0,
            came,
            expires,
            timing,
            payload: payload.into(),
        }
    }

    /// Returns the number of the frame that it is a fragment of.
    fn frame(&self) -> Option<u32> {
        let repr = Fragment::parse(&self.payload.bytes).ok();
        repr.filter(|_| self.payload.kind == Kind::Fragment)
            .map(|repr| repr.frame)
    }

    fn is_late(&self, arrival: Instant) -> bool {
        self.expires.is_some_and(|expires| expires < arrival)
    }

    /// Returns whether it has waited here for half of the time that it could wait. It is not late.
    fn is_half_gone(&self, now: Instant, transit: Duration) -> bool {
        let is_gone = |expires: Instant| {
            let latest = self.came + transit;
            expires < latest || (now - self.came) * 2 > expires - latest
        };
        self.expires.is_some_and(is_gone)
    }

    /// Returns what it takes of the queue's bytes: its own, but at least what its place in the queue takes, so that empty
    /// packets do not fill memory.
    fn cost(&self) -> usize {
        self.payload.bytes.len().max(size_of::<Waiting>())
    }

    fn class(&self) -> usize {
        self.timing.class.priority() as usize
    }
}

/// Packets that were dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Lost {
    pub(super) late: u64,
    pub(super) yielded: u64,
}

/// The packets that wait for one edge, by priority. Most edges never have any: the rest is created with the first one.
#[derive(Debug, Default)]
pub(super) struct Queue {
    inner: Option<Box<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    classes: [VecDeque<Waiting>; Priority::COUNT],
    next: u64,
    /// What all packets cost.
    bytes: usize,
    /// The frame whose last fragment had no room: those that follow are of no use.
    refused: Option<u32>,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn bytes(&self) -> usize {
        self.inner.as_ref().map_or(0, |inner| inner.bytes)
    }

    /// Returns the number of packets.
    pub(super) fn len(&self) -> usize {
        let inner = self.inner.iter();
        inner
            .flat_map(|inner| &inner.classes)
            .map(VecDeque::len)
            .sum()
    }

    /// Returns whether an initialisation, or a piece of one, waits.
    pub(super) fn has_init(&self) -> bool {
        let mut all = self.inner.iter().flat_map(|inner| &inner.classes).flatten();
        all.any(|packet| packet.payload.kind == Kind::Init)
    }

    pub(super) fn front(&self) -> Option<&Waiting> {
        let inner = self.inner.as_ref()?;
        inner.classes[inner.first()?].front()
    }

    pub(super) fn pop(&mut self) -> Option<Waiting> {
        let inner = self.inner.as_mut()?;
        inner.pop_of(inner.first()?)
    }

    /// Queues a packet, for which others are dropped if the queue has more than `max` bytes with it: the least important
    /// ones, which may be the packet itself. A packet that is longer than that is queued alone. Returns the number of
    /// packets dropped.
    pub(super) fn push(&mut self, packet: Waiting, max: usize) -> u64 {
        self.inner.get_or_insert_default().push(packet, max)
    }

    /// Lets the newest packet of the initialisation leave first.
    pub(super) fn put_init_first(&mut self) {
        let inner = self.inner.iter_mut();
        for queue in inner.flat_map(|inner| &mut inner.classes) {
            let at = queue
                .iter()
                .rposition(|packet| packet.payload.kind == Kind::Init);
            if let Some(mut init) = at.and_then(|at| queue.remove(at)) {
                init.order = 0;
                queue.push_front(init);
            }
        }
    }

    /// Drops the packets at the front that would arrive too late if they left now, or that give way.
    pub(super) fn drop_late(&mut self, now: Instant, transit: Duration) -> Lost {
        let inner = self.inner.as_mut();
        inner.map_or_else(Lost::default, |inner| inner.drop_late(now, transit))
    }
}

impl Inner {
    /// Returns the class whose front is the oldest packet.
    fn first(&self) -> Option<usize> {
        let fronts = self.classes.iter().enumerate();
        let fronts = fronts.filter_map(|(class, queue)| Some((queue.front()?.order, class)));
        fronts.min().map(|(_, class)| class)
    }

    fn pop_of(&mut self, class: usize) -> Option<Waiting> {
        let packet = self.classes[class].pop_front()?;
        self.bytes -= packet.cost();
        Some(packet)
    }

    /// Drops the oldest frame of a class with all its fragments. Returns the number of packets.
    fn drop_frame(&mut self, class: usize) -> u64 {
        let Some(number) = self.pop_of(class).map(|first| first.frame()) else {
            return 0;
        };
        let mut dropped = 1;
        let is_next =
            |queue: &VecDeque<Waiting>| queue.front().is_some_and(|next| next.frame() == number);
        while number.is_some() && is_next(&self.classes[class]) {
            self.pop_of(class);
            dropped += 1;
        }
        dropped
    }

    /// Drops the fragments of the newest frame of a class. Returns how many.
    fn drop_newest(&mut self, class: usize, frame: u32) -> u64 {
        let mut dropped = 0;
        let is_last = |queue: &VecDeque<Waiting>| queue.back()?.frame();
        while is_last(&self.classes[class]) == Some(frame) {
            let packet = self.classes[class].pop_back();
            self.bytes -= packet.map_or(0, |packet| packet.cost());
            dropped += 1;
        }
        dropped
    }

    fn push(&mut self, mut packet: Waiting, max: usize) -> u64 {
        let mut dropped = 0;
        let (class, frame) = (packet.class(), packet.frame());
        if frame.is_some() && frame == self.refused {
            return 1;
        }
        while self.bytes + packet.cost() > max {
            let Some(least) = self.classes.iter().position(|queue| !queue.is_empty()) else {
                break;
            };
            let oldest = self.classes[least].front().and_then(Waiting::frame);
            let is_own = frame.is_some() && least == class && oldest == frame;
            if least > class || is_own {
                self.refused = frame;
                let own = frame.map_or(0, |frame| self.drop_newest(class, frame));
                return dropped + own + 1;
            }
            dropped += self.drop_frame(least);
        }
        self.next += 1;
        packet.order = self.next;
        self.bytes += packet.cost();
        self.classes[class].push_back(packet);
        dropped
    }

    fn drop_late(&mut self, now: Instant, transit: Duration) -> Lost {
        let mut lost = Lost::default();
        while let Some(class) = self.first() {
            let Some(front) = self.classes[class].front() else {
                break;
            };
            if front.is_late(now + transit) {
                self.pop_of(class);
                lost.late += 1;
                continue;
            }
            let more = &self.classes[class + 1..];
            if !front.is_half_gone(now, transit) || more.iter().all(VecDeque::is_empty) {
                break;
            }
            lost.yielded += self.drop_frame(class);
        }
        lost
    }
}

#[cfg(test)]
mod tests;
