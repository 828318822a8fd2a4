//! The common state of both endpoints: queued messages, timeouts, counters.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use proto_core::time::{Duration, Instant};

use crate::error::Error;
use crate::layout::Layout;
use crate::manifest::Manifest;
use crate::wire::verdict::{Failed, Reason};
use crate::wire::{self, Message, Type, offer, plan};

/// Timeouts that both sides use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// Time without a sent message after which a KEEPALIVE is sent.
    pub keep_alive: Duration,
    /// Time without a received message after which the peer has failed.
    pub silence: Duration,
}

impl Default for Timeouts {
    /// 5 s and 20 s.
    fn default() -> Self {
        Timeouts {
            keep_alive: Duration::from_secs(5),
            silence: Duration::from_secs(20),
        }
    }
}

/// Counters of one machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Messages taken.
    pub received: u64,
    /// Messages handed out by `poll_transmit`.
    pub sent: u64,
    /// Messages that were no message ([`Error::Parse`]).
    pub malformed: u64,
    /// Messages at the wrong time ([`Error::Unexpected`]).
    pub unexpected: u64,
    /// Messages that contradict earlier ones ([`Error::Contradiction`]).
    pub contradicting: u64,
}

/// One frame is in the caller's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Its length in bytes.
    pub len: usize,
}

/// Which side gave up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Side {
    /// This one.
    Here,
    /// The peer.
    Peer,
}

/// Queued output: a frame, or the rest of a list that is written when there is space.
#[derive(Debug)]
enum Out {
    Frame(Vec<u8>),
    Entries(Arc<Manifest>, usize),
    Runs(Arc<Layout>, usize),
}

/// The state that client and server share; events are of type `E`.
#[derive(Debug)]
pub(crate) struct Link<E> {
    timeouts: Timeouts,
    out: VecDeque<Out>,
    events: VecDeque<E>,
    last_sent: Instant,
    last_received: Instant,
    /// When the setup must be over.
    pub(crate) deadline: Option<Instant>,
    /// The time of the last call: queued output is due then.
    now: Instant,
    ended: bool,
    pub(crate) stats: Stats,
}

/// Events that may wait before messages are refused with [`Error::Full`]; one message causes two at most.
const MAX_EVENTS: usize = 16;

impl<E> Link<E> {
    pub(crate) fn new(timeouts: Timeouts, now: Instant) -> Self {
        Link {
            timeouts,
            out: VecDeque::new(),
            events: VecDeque::new(),
            last_sent: now,
            last_received: now,
            deadline: None,
            now,
            ended: false,
            stats: Stats::default(),
        }
    }

    /// Queues a message.
    pub(crate) fn send(&mut self, now: Instant, message: &impl Message) {
        let mut frame = vec![0; message.buffer_len()];
        message.emit(&mut frame);
        self.now = now;
        self.out.push_back(Out::Frame(frame));
    }

    pub(crate) fn send_entries(&mut self, manifest: Arc<Manifest>) {
        self.out.push_back(Out::Entries(manifest, 0));
    }

    pub(crate) fn send_runs(&mut self, layout: Arc<Layout>) {
        if !layout.is_empty() {
            self.out.push_back(Out::Runs(layout, 0));
        }
    }

    pub(crate) fn event(&mut self, event: E) {
        self.events.push_back(event);
    }

    pub(crate) fn poll_event(&mut self) -> Option<E> {
        self.events.pop_front()
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.ended
    }

    /// Ends the connection: no more input or keep-alives; queued output is still sent.
    pub(crate) fn end(&mut self, now: Instant) {
        self.now = now;
        self.ended = true;
        self.deadline = None;
    }

    /// Fails: queued output is dropped and FAILED is sent.
    pub(crate) fn give_up(&mut self, now: Instant, failed: &Failed) {
        self.out.clear();
        self.send(now, failed);
        self.end(now);
    }

    /// Looks at a frame before the machine does; `None`: it was a KEEPALIVE.
    pub(crate) fn open<'f>(
        &mut self,
        now: Instant,
        frame: &'f [u8],
    ) -> Result<Option<(Type, &'f [u8])>, Error> {
        if self.ended {
            return Err(Error::Unexpected);
        }
        if self.events.len() >= MAX_EVENTS {
            return Err(Error::Full);
        }
        let (kind, _) = wire::split(frame)?;
        if kind == Type::KeepAlive {
            wire::KeepAlive::parse(frame)?;
            self.received(now);
            return Ok(None);
        }
        Ok(Some((kind, frame)))
    }

    /// Records that a message was accepted.
    pub(crate) fn received(&mut self, now: Instant) {
        self.last_received = now;
        self.stats.received += 1;
    }

    /// Counts why a message was refused.
    pub(crate) fn count(&mut self, error: Error) -> Error {
        match error {
            Error::Parse(_) => self.stats.malformed += 1,
            Error::Unexpected => self.stats.unexpected += 1,
            Error::Contradiction => self.stats.contradicting += 1,
            Error::Full => {}
        }
        error
    }

    /// Returns the reason of a timeout: a silent peer, or a setup that takes too long.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<Reason> {
        if self.ended {
            return None;
        }
        let late = self.deadline.is_some_and(|deadline| now >= deadline);
        if late || now >= self.last_received + self.timeouts.silence {
            return Some(Reason::Silent);
        }
        if self.out.is_empty() && now >= self.last_sent + self.timeouts.keep_alive {
            self.send(now, &wire::KeepAlive);
        }
        None
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        if !self.out.is_empty() || !self.events.is_empty() {
            return Some(self.now);
        }
        if self.ended {
            return None;
        }
        let keep_alive = self.last_sent + self.timeouts.keep_alive;
        let silent = self.last_received + self.timeouts.silence;
        let first = keep_alive.min(silent);
        Some(self.deadline.map_or(first, |deadline| deadline.min(first)))
    }

    pub(crate) fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let len = loop {
            let out = self.out.front_mut()?;
            let (written, over) = match out {
                Out::Frame(frame) => {
                    let room = buffer.get_mut(..frame.len())?;
                    room.copy_from_slice(frame);
                    (Some(frame.len()), true)
                }
                Out::Entries(manifest, from) if *from == manifest.len() => (None, true),
                Out::Entries(manifest, from) => {
                    let (len, count) = offer::emit_entries(&manifest.entries()[*from..], buffer)?;
                    *from += count;
                    (Some(len), *from == manifest.len())
                }
                Out::Runs(layout, from) if *from == layout.runs().len() => (None, true),
                Out::Runs(layout, from) => {
                    let (len, count) = plan::emit_runs(&layout.runs()[*from..], buffer)?;
                    *from += count;
                    (Some(len), *from == layout.runs().len())
                }
            };
            if over {
                self.out.pop_front();
            }
            if let Some(len) = written {
                break len;
            }
        };
        self.now = now;
        self.last_sent = now;
        self.stats.sent += 1;
        Some(Transmit { len })
    }

    /// Returns the number of queued frames.
    pub(crate) fn queued(&self) -> usize {
        self.out.len()
    }
}
