//! The event queue: a calendar of short buckets, and an ordered map of later windows.
//!
//! Time is divided into buckets of 2^14 ns and windows of 2^12 buckets. Events of the present window are in its
//! buckets, unsorted; a bucket is sorted when its time comes. Events of later windows are in one list for each
//! window, and move to buckets when their window opens. Events of the same nanosecond come out in the order in
//! which they went in: lists keep order, the sort is stable, and events added to the open bucket are numbered.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::packet::PacketId;

/// What an event does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `packet` reaches node `target` by `port`, at the end of the direction with index `place`.
    Deliver,
    /// The same, with one bit flipped on the way.
    DeliverCorrupt,
    /// `packet` was in flight to node `target` when the link with index `place` failed.
    Lost,
    /// Node `target` may need its timeout.
    Timer,
    LinkDown,
    LinkUp,
    NodeDown,
    NodeUp,
}

/// An event of `target` at `time_ns`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) time_ns: u64,
    pub(crate) target: u32,
    pub(crate) packet: PacketId,
    /// Index of the link's direction in the tables of links.
    pub(crate) place: u32,
    pub(crate) port: u16,
    pub(crate) kind: Kind,
}

impl Event {
    /// An event without a packet.
    pub(crate) fn new(time_ns: u64, kind: Kind, target: u32) -> Self {
        Self {
            time_ns,
            target,
            packet: crate::packet::NONE,
            place: 0,
            port: 0,
            kind,
        }
    }
}

const BUCKET_BITS: u32 = 14;
const WINDOW_BITS: u32 = 12;
const BUCKETS: usize = 1 << WINDOW_BITS;
const CHUNK_EVENTS: usize = 10;
const NIL: u32 = u32::MAX;

/// A piece of a list.
struct Chunk {
    next: u32,
    len: u32,
    events: [Event; CHUNK_EVENTS],
}

/// A first-in, first-out list of events, in pieces from the pool.
#[derive(Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
}

const EMPTY: List = List {
    head: NIL,
    tail: NIL,
};

#[derive(Default)]
struct Pool {
    chunks: Vec<Chunk>,
    free: Vec<u32>,
}

impl Pool {
    fn push(&mut self, list: &mut List, event: Event) {
        if list.tail != NIL {
            let tail = &mut self.chunks[list.tail as usize];
            if (tail.len as usize) < CHUNK_EVENTS {
                tail.events[tail.len as usize] = event;
                tail.len += 1;
                return;
            }
        }
        let fresh = self.chunk(event);
        if list.tail == NIL {
            list.head = fresh;
        } else {
            self.chunks[list.tail as usize].next = fresh;
        }
        list.tail = fresh;
    }

    fn chunk(&mut self, event: Event) -> u32 {
        if let Some(id) = self.free.pop() {
            let chunk = &mut self.chunks[id as usize];
            chunk.next = NIL;
            chunk.len = 1;
            chunk.events[0] = event;
            return id;
        }
        let id = u32::try_from(self.chunks.len()).expect("fewer than 2^32 pieces of the queue");
        self.chunks.push(Chunk {
            next: NIL,
            len: 1,
            events: [event; CHUNK_EVENTS],
        });
        id
    }

    /// Appends the list to `out` and returns its pieces to the pool.
    fn drain(&mut self, list: List, out: &mut Vec<Event>) {
        let mut at = list.head;
        while at != NIL {
            let chunk = &self.chunks[at as usize];
            out.extend_from_slice(&chunk.events[..chunk.len as usize]);
            self.free.push(at);
            at = chunk.next;
        }
    }
}

/// An event added to the open bucket after it was sorted.
struct Late {
    time_ns: u64,
    number: u64,
    event: Event,
}

impl PartialEq for Late {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Late {}
impl PartialOrd for Late {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Late {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.time_ns, self.number).cmp(&(other.time_ns, other.number))
    }
}

/// Events in order of time, and of insertion where times are equal.
pub(crate) struct Queue {
    len: usize,
    /// The open bucket, sorted; `open[next..]` is still to be handled.
    open: Vec<Event>,
    next: usize,
    /// Events below this time go to `late`.
    open_end_ns: u64,
    late: BinaryHeap<Reverse<Late>>,
    late_number: u64,
    window: u64,
    buckets: Vec<List>,
    /// A bit for each bucket that is not empty.
    occupied: [u64; BUCKETS / 64],
    ahead: BTreeMap<u64, List>,
    pool: Pool,
    scratch: Vec<Event>,
}

impl Queue {
    pub(crate) fn new() -> Self {
        Self {
            len: 0,
            open: Vec::new(),
            next: 0,
            open_end_ns: 0,
            late: BinaryHeap::new(),
            late_number: 0,
            window: 0,
            buckets: vec![EMPTY; BUCKETS],
            occupied: [0; BUCKETS / 64],
            ahead: BTreeMap::new(),
            pool: Pool::default(),
            scratch: Vec::new(),
        }
    }

    /// Returns the number of waiting events.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn push(&mut self, event: Event) {
        self.len += 1;
        if event.time_ns < self.open_end_ns {
            self.late_number += 1;
            let (time_ns, number) = (event.time_ns, self.late_number);
            self.late.push(Reverse(Late {
                time_ns,
                number,
                event,
            }));
        } else if event.time_ns >> (BUCKET_BITS + WINDOW_BITS) == self.window {
            self.push_bucket(event);
        } else {
            let window = event.time_ns >> (BUCKET_BITS + WINDOW_BITS);
            let list = self.ahead.entry(window).or_insert(EMPTY);
            self.pool.push(list, event);
        }
    }

    /// Updates indices after the tables of links were sorted: index `i` became `moved[i]`.
    pub(crate) fn move_places(&mut self, moved: &[u32]) {
        self.edit(|event| event.place = moved.get(event.place as usize).copied().unwrap_or(0));
    }

    /// Removes the packets in flight on a failed direction. Examines every waiting event, so that packets need no
    /// further state.
    pub(crate) fn lose(&mut self, place: u32) {
        self.edit(|event| {
            if event.place == place && matches!(event.kind, Kind::Deliver | Kind::DeliverCorrupt) {
                event.kind = Kind::Lost;
            }
        });
    }

    /// Changes waiting events, except for their times; free pieces of the pool too.
    fn edit(&mut self, mut change: impl FnMut(&mut Event)) {
        for chunk in &mut self.pool.chunks {
            chunk.events.iter_mut().for_each(&mut change);
        }
        self.open[self.next..].iter_mut().for_each(&mut change);
        let mut late = std::mem::take(&mut self.late).into_vec();
        late.iter_mut()
            .for_each(|Reverse(late)| change(&mut late.event));
        self.late = late.into();
    }

    fn push_bucket(&mut self, event: Event) {
        let bucket = (event.time_ns >> BUCKET_BITS) as usize & (BUCKETS - 1);
        self.occupied[bucket / 64] |= 1 << (bucket % 64);
        self.pool.push(&mut self.buckets[bucket], event);
    }

    /// Returns the next events as far as they are sorted, once every [`Queue::BATCH`] pops.
    #[inline]
    pub(crate) fn batch(&self) -> &[Event] {
        if !self.next.is_multiple_of(Self::BATCH) {
            return &[];
        }
        &self.open[self.next..self.open.len().min(self.next + Self::BATCH)]
    }

    const BATCH: usize = 16;

    /// Returns the next event unless it is later than `limit_ns`.
    #[inline]
    pub(crate) fn pop_until(&mut self, limit_ns: u64) -> Option<Event> {
        loop {
            let open = self.open.get(self.next);
            let late = self.late.peek().map(|Reverse(late)| late.time_ns);
            match (open, late) {
                // Equal times: the one in `open` went in first.
                (Some(event), late) if late.is_none_or(|late| event.time_ns <= late) => {
                    if event.time_ns > limit_ns {
                        return None;
                    }
                    let event = *event;
                    self.next += 1;
                    self.len -= 1;
                    return Some(event);
                }
                (_, Some(late)) => {
                    if late > limit_ns {
                        return None;
                    }
                    self.len -= 1;
                    return self.late.pop().map(|Reverse(late)| late.event);
                }
                _ => {
                    if !self.open_next() {
                        return None;
                    }
                }
            }
        }
    }

    /// Opens the next bucket that is not empty. Returns `false` if none is left.
    fn open_next(&mut self) -> bool {
        let Some(bucket) = self.next_bucket() else {
            return false;
        };
        self.occupied[bucket / 64] &= !(1 << (bucket % 64));
        self.open.clear();
        self.next = 0;
        let list = std::mem::replace(&mut self.buckets[bucket], EMPTY);
        self.pool.drain(list, &mut self.open);
        self.open.sort_by_key(|event| event.time_ns); // stable
        let end = (self.window << WINDOW_BITS) + bucket as u64 + 1;
        self.open_end_ns = end << BUCKET_BITS;
        true
    }

    fn next_bucket(&mut self) -> Option<usize> {
        loop {
            if let Some(word) = self.occupied.iter().position(|word| *word != 0) {
                return Some(word * 64 + self.occupied[word].trailing_zeros() as usize);
            }
            let (window, list) = self.ahead.pop_first()?;
            self.window = window;
            let mut events = std::mem::take(&mut self.scratch);
            self.pool.drain(list, &mut events);
            for event in events.drain(..) {
                self.push_bucket(event);
            }
            self.scratch = events;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn event(time_ns: u64, target: u32) -> Event {
        Event::new(time_ns, Kind::Timer, target)
    }

    #[test]
    fn an_event_is_24_bytes() {
        assert_eq!(size_of::<Event>(), 24);
    }

    /// Compares random pushes and pops with an ordered map keyed by (time, number of the push).
    #[test]
    fn order_is_that_of_time_then_of_insertion() {
        for seed in 0..50u8 {
            let mut rng = Rng::new([seed; 32]);
            let mut queue = Queue::new();
            let mut oracle = BTreeMap::new();
            let mut now = 0;
            for number in 0..20_000u32 {
                let span = 1u64 << rng.between(0, 40);
                let time = now + rng.below(span);
                queue.push(event(time, number));
                oracle.insert((time, number), ());
                if rng.chance(0.45) {
                    let limit = now + rng.below(1 << 30);
                    let got = queue.pop_until(limit).map(|e| (e.time_ns, e.target));
                    let want = oracle
                        .first_key_value()
                        .map(|(k, ())| *k)
                        .filter(|k| k.0 <= limit);
                    assert_eq!(got, want, "seed {seed}");
                    if let Some(key) = got {
                        oracle.remove(&key);
                        now = key.0;
                    }
                }
                assert_eq!(queue.len(), oracle.len());
            }
            for (time, number) in oracle.keys() {
                let got = queue.pop_until(u64::MAX).map(|e| (e.time_ns, e.target));
                assert_eq!(got, Some((*time, *number)), "seed {seed}");
            }
            assert!(queue.pop_until(u64::MAX).is_none());
        }
    }
}
