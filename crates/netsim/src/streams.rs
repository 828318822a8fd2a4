//! Streams of messages between endpoints, for machines that open and close connections: [`Sim`](crate::Sim)'s links carry
//! packets between fixed ports.
//!
//! A stream opens after its delay, at both ends at once. Messages arrive in the order in which they were sent. A close
//! reaches the other end after them. A stream that breaks loses the messages in flight, and each end is told after a
//! delay of its own. While a stream is *held*, or an endpoint is *frozen*, its messages wait, as with TCP while a link is
//! down.
//!
//! ```
//! use netsim::streams::{Event, Streams};
//! use netsim::{Duration, Instant};
//!
//! let mut streams = Streams::new();
//! let delay = Duration::from_millis(10);
//! let stream = streams.open(Instant::ZERO, "alice", "bob", delay);
//! let now = Instant::from_millis(10);
//! assert_eq!(streams.poll_event(now), Some(Event::Opened { stream, from: "alice", to: "bob" }));
//!
//! streams.send(now, stream, "bob", b"hello");
//! assert_eq!(streams.poll_event(now), None);
//! let now = streams.poll_timeout().unwrap();
//! let hello = Event::Message { stream, to: "alice", bytes: b"hello".to_vec() };
//! assert_eq!(streams.poll_event(now), Some(hello));
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use proto_core::time::{Duration, Instant};

/// Number of a stream: never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// What happens at an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event<E> {
    /// A stream is open, for both of its ends.
    Opened {
        /// The stream.
        stream: StreamId,
        /// The end that asked for it.
        from: E,
        /// The other end.
        to: E,
    },
    /// A stream could not be opened.
    Refused {
        /// The stream.
        stream: StreamId,
        /// The end that asked for it.
        from: E,
        /// The other end.
        to: E,
    },
    /// A message arrives.
    Message {
        /// The stream.
        stream: StreamId,
        /// The end that receives it.
        to: E,
        /// The message.
        bytes: Vec<u8>,
    },
    /// The stream has ended: the other end closed it, or it broke.
    Ended {
        /// The stream.
        stream: StreamId,
        /// The end that learns of it.
        at: E,
    },
}

impl<E: Copy> Event<E> {
    fn stream(&self) -> StreamId {
        match self {
            Event::Opened { stream, .. }
            | Event::Refused { stream, .. }
            | Event::Message { stream, .. }
            | Event::Ended { stream, .. } => *stream,
        }
    }

    fn ends(&self) -> [E; 2] {
        match self {
            Event::Opened { from, to, .. } => [*from, *to],
            Event::Refused { from, .. } => [*from, *from],
            Event::Message { to, .. } => [*to, *to],
            Event::Ended { at, .. } => [*at, *at],
        }
    }
}

#[derive(Debug)]
struct Stream<E> {
    ends: [E; 2],
    delay: Duration,
    is_open: bool,
    is_held: bool,
    /// The ends that have closed it, or know that it has ended.
    left: [bool; 2],
}

/// All streams of a simulation. `E` names endpoints.
#[derive(Debug)]
pub struct Streams<E> {
    streams: BTreeMap<StreamId, Stream<E>>,
    queue: BinaryHeap<Reverse<(Instant, u64, Event<E>)>>,
    /// What waits for a held stream or a frozen end, in order.
    waiting: Vec<Event<E>>,
    frozen: BTreeSet<E>,
    sequence: u64,
}

impl<E> Default for Streams<E> {
    fn default() -> Self {
        Self {
            streams: BTreeMap::new(),
            queue: BinaryHeap::new(),
            waiting: Vec::new(),
            frozen: BTreeSet::new(),
            sequence: 0,
        }
    }
}

impl<E: Copy + Ord> Streams<E> {
    /// Creates a simulation without streams.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn schedule(&mut self, at: Instant, event: Event<E>) {
        self.sequence += 1;
        self.queue.push(Reverse((at, self.sequence, event)));
    }

    fn number(&mut self) -> StreamId {
        self.sequence += 1;
        StreamId(self.sequence)
    }

    /// Opens a stream, whose messages take `delay` one way.
    pub fn open(&mut self, now: Instant, from: E, to: E, delay: Duration) -> StreamId {
        let stream = self.number();
        let state = Stream {
            ends: [from, to],
            delay,
            is_open: false,
            is_held: false,
            left: [false; 2],
        };
        self.streams.insert(stream, state);
        self.schedule(now + delay, Event::Opened { stream, from, to });
        stream
    }

    /// Refuses to open a stream, after `delay`.
    pub fn refuse(&mut self, now: Instant, from: E, to: E, delay: Duration) -> StreamId {
        let stream = self.number();
        self.schedule(now + delay, Event::Refused { stream, from, to });
        stream
    }

    /// Sends a message from one end. It is lost if the stream has ended.
    pub fn send(&mut self, now: Instant, stream: StreamId, from: E, bytes: &[u8]) {
        if let Some(state) = self.streams.get(&stream) {
            let (to, delay) = (other(state.ends, from), state.delay);
            let bytes = bytes.to_vec();
            self.schedule(now + delay, Event::Message { stream, to, bytes });
        }
    }

    /// Closes a stream at one end. That end receives nothing more; the other end receives the messages in flight, then
    /// the close.
    pub fn close(&mut self, now: Instant, stream: StreamId, from: E) {
        let Some(state) = self.streams.get_mut(&stream) else {
            return;
        };
        let place = usize::from(state.ends[0] != from);
        state.left[place] = true;
        let (at, delay) = (state.ends[1 - place], state.delay);
        if !state.left[1 - place] {
            self.schedule(now + delay, Event::Ended { stream, at });
        }
    }

    /// Breaks a stream: messages in flight are lost, and each end is told after its time in `after`. A stream that is not
    /// open yet is refused.
    pub fn break_off(&mut self, now: Instant, stream: StreamId, after: [Duration; 2]) {
        if let Some(state) = self.remove(stream) {
            for (place, after) in after.into_iter().enumerate() {
                self.tell_end(now + after, stream, &state, place);
            }
        }
    }

    /// Removes a stream and its messages in flight.
    fn remove(&mut self, stream: StreamId) -> Option<Stream<E>> {
        let state = self.streams.remove(&stream)?;
        let of_it = |event: &Event<E>| event.stream() == stream;
        self.waiting.retain(|event| !of_it(event));
        self.queue.retain(|Reverse((_, _, event))| !of_it(event));
        Some(state)
    }

    /// Tells one end of a stream that it broke.
    fn tell_end(&mut self, at: Instant, stream: StreamId, state: &Stream<E>, place: usize) {
        let [from, to] = state.ends;
        if state.is_open && !state.left[place] {
            let end = state.ends[place];
            self.schedule(at, Event::Ended { stream, at: end });
        } else if !state.is_open && place == 0 {
            self.schedule(at, Event::Refused { stream, from, to });
        }
    }

    /// Breaks the streams of an endpoint that has died, which learns nothing. The other ends learn of it after the time
    /// that `after` returns.
    pub fn remove_end(&mut self, now: Instant, end: E, mut after: impl FnMut() -> Duration) {
        for (stream, ends) in self.of(end) {
            if let Some(state) = self.remove(stream) {
                let place = usize::from(ends[0] == end);
                self.tell_end(now + after(), stream, &state, place);
            }
        }
        // Nothing of its past reaches a successor.
        self.waiting.retain(|event| event.ends() != [end; 2]);
        self.queue
            .retain(|Reverse((_, _, event))| event.ends() != [end; 2]);
        self.frozen.remove(&end);
    }

    /// Returns the streams of an endpoint, with their ends.
    #[must_use]
    pub fn of(&self, end: E) -> Vec<(StreamId, [E; 2])> {
        let all = self.streams.iter();
        let own = all.filter(|(_, state)| state.ends.contains(&end));
        own.map(|(stream, state)| (*stream, state.ends)).collect()
    }

    /// Returns all streams, with their ends.
    pub fn iter(&self) -> impl Iterator<Item = (StreamId, [E; 2])> {
        let all = self.streams.iter();
        all.map(|(stream, state)| (*stream, state.ends))
    }

    /// Holds a stream, or lets it go on.
    pub fn hold(&mut self, now: Instant, stream: StreamId, is_held: bool) {
        if let Some(state) = self.streams.get_mut(&stream) {
            state.is_held = is_held;
        }
        self.release(now);
    }

    /// Returns whether a stream is held.
    #[must_use]
    pub fn is_held(&self, stream: StreamId) -> bool {
        self.streams.get(&stream).is_some_and(|state| state.is_held)
    }

    /// Freezes an endpoint, or lets it go on.
    pub fn freeze(&mut self, now: Instant, end: E, is_frozen: bool) {
        if is_frozen {
            self.frozen.insert(end);
        } else {
            self.frozen.remove(&end);
        }
        self.release(now);
    }

    fn waits(&self, event: &Event<E>) -> bool {
        let is_frozen = event.ends().iter().any(|end| self.frozen.contains(end));
        is_frozen || self.is_held(event.stream())
    }

    /// Schedules the events that no longer have to wait, before any that are sent later.
    fn release(&mut self, now: Instant) {
        let waiting = std::mem::take(&mut self.waiting);
        for event in waiting {
            if self.waits(&event) {
                self.waiting.push(event);
            } else {
                self.schedule(now, event);
            }
        }
    }

    /// Returns when the next event happens.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.queue.peek().map(|Reverse((at, ..))| *at)
    }

    /// Returns the next event that has happened.
    pub fn poll_event(&mut self, now: Instant) -> Option<Event<E>> {
        while self.poll_timeout().is_some_and(|at| at <= now) {
            let Reverse((_, _, event)) = self.queue.pop()?;
            // What was sent earlier on the stream waits already.
            if self.waits(&event) {
                self.waiting.push(event);
            } else if self.passes(&event) {
                return Some(event);
            }
        }
        None
    }

    /// Returns whether an event reaches its end, and forgets streams that both ends have left.
    fn passes(&mut self, event: &Event<E>) -> bool {
        let stream = event.stream();
        let (end, is_last) = match event {
            Event::Refused { .. } => return true,
            Event::Opened { .. } => {
                let state = self.streams.get_mut(&stream);
                return state.map(|state| state.is_open = true).is_some();
            }
            Event::Message { to, .. } => (*to, false),
            Event::Ended { at, .. } => (*at, true),
        };
        let Some(state) = self.streams.get_mut(&stream) else {
            // It broke; only its end is told.
            return is_last;
        };
        let place = usize::from(state.ends[0] != end);
        let had_left = state.left[place];
        state.left[place] |= is_last;
        if state.left == [true; 2] {
            self.streams.remove(&stream);
        }
        !had_left
    }
}

fn other<E: Copy + PartialEq>(ends: [E; 2], end: E) -> E {
    if ends[0] == end { ends[1] } else { ends[0] }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn opened() -> (Streams<u8>, StreamId, Instant) {
        let mut streams = Streams::new();
        let stream = streams.open(Instant::ZERO, 1, 2, MS * 10);
        let now = Instant::from_millis(10);
        assert!(matches!(
            streams.poll_event(now),
            Some(Event::Opened { .. })
        ));
        (streams, stream, now)
    }

    fn all(streams: &mut Streams<u8>, now: Instant) -> Vec<Event<u8>> {
        std::iter::from_fn(|| streams.poll_event(now)).collect()
    }

    fn message(stream: StreamId, to: u8, bytes: &[u8]) -> Event<u8> {
        let bytes = bytes.to_vec();
        Event::Message { stream, to, bytes }
    }

    #[test]
    fn an_end_comes_after_what_was_sent() {
        let (mut streams, stream, now) = opened();
        streams.send(now, stream, 1, b"a");
        streams.send(now, stream, 2, b"too late");
        streams.close(now, stream, 1);
        let expected = [message(stream, 2, b"a"), Event::Ended { stream, at: 2 }];
        assert_eq!(all(&mut streams, now + MS * 10), expected);
        streams.send(now + MS * 10, stream, 2, b"nobody reads it");
        assert_eq!(all(&mut streams, now + MS * 30), []);
    }

    #[test]
    fn ends_that_close_at_the_same_time_learn_nothing() {
        let (mut streams, stream, now) = opened();
        streams.close(now, stream, 1);
        streams.close(now, stream, 2);
        assert_eq!(all(&mut streams, now + MS * 30), []);
        assert_eq!(streams.iter().count(), 0);
    }

    #[test]
    fn what_is_held_arrives_in_order_later() {
        let (mut streams, stream, now) = opened();
        streams.send(now, stream, 1, b"a");
        streams.hold(now, stream, true);
        streams.send(now + MS, stream, 1, b"b");
        assert_eq!(all(&mut streams, now + MS * 50), []);
        streams.hold(now + MS * 50, stream, false);
        streams.send(now + MS * 50, stream, 1, b"c");
        let expected = [b"a", b"b", b"c"].map(|bytes| message(stream, 2, bytes));
        assert_eq!(all(&mut streams, now + MS * 60), expected);
    }

    #[test]
    fn a_broken_stream_loses_what_is_under_way() {
        let (mut streams, stream, now) = opened();
        streams.send(now, stream, 1, b"a");
        streams.freeze(now, 2, true);
        assert_eq!(all(&mut streams, now + MS * 20), []);
        streams.break_off(now + MS * 20, stream, [MS, MS * 5]);
        assert_eq!(
            all(&mut streams, now + MS * 40),
            [Event::Ended { stream, at: 1 }]
        );
        streams.freeze(now + MS * 40, 2, false);
        assert_eq!(
            all(&mut streams, now + MS * 40),
            [Event::Ended { stream, at: 2 }]
        );
    }

    #[test]
    fn a_stream_that_never_opened_is_refused() {
        let mut streams = Streams::new();
        let stream = streams.open(Instant::ZERO, 1, 2, MS * 10);
        streams.remove_end(Instant::ZERO, 2, || MS);
        let (from, to) = (1, 2);
        let refused = Event::Refused { stream, from, to };
        assert_eq!(all(&mut streams, Instant::from_millis(20)), [refused]);
    }

    #[test]
    fn the_dead_learn_nothing() {
        let (mut streams, stream, now) = opened();
        streams.send(now, stream, 1, b"a");
        streams.send(now, stream, 2, b"b");
        streams.remove_end(now, 1, || MS);
        assert_eq!(
            all(&mut streams, now + MS * 20),
            [Event::Ended { stream, at: 2 }]
        );
    }
}
