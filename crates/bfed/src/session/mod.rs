//! A peering: one gateway's side of the session with one peer (§3.1, §5.1; compare RFC 4271 §8).
//!
//! The driver opens and accepts byte streams; this machine identifies both sides on them, keeps them alive, and
//! ends them with a reason that both sides learn.
//!
//! | state | event | next state |
//! | --- | --- | --- |
//! | [`State::Idle`] | the retry timer expires: dial | [`State::Connecting`] |
//! | `Idle`, `Connecting` | a stream opens: send OPEN | [`State::OpenSent`] |
//! | `Connecting` | the dial fails | `Idle`, for twice as long |
//! | `OpenSent` | matching OPEN: send KEEPALIVE | [`State::OpenConfirm`] |
//! | `OpenSent` | OPEN that does not match: send NOTIFICATION | `Idle` |
//! | `OpenConfirm` | KEEPALIVE: send the full table | [`State::Established`] |
//! | `OpenSent`, `OpenConfirm` | the open timer expires: send NOTIFICATION | `Idle` |
//! | `Established` | any message: restart the hold timer | `Established` |
//! | any with a stream | the hold timer expires, or a message is malformed or out of order: send NOTIFICATION | `Idle` |
//! | any with a stream | NOTIFICATION, or the stream ends | `Idle` |
//!
//! A second stream with the same peer (both sides may dial):
//!
//! | the first is | the second was opened by | kept |
//! | --- | --- | --- |
//! | not established | the same side | the second |
//! | not established | the other side | the one that the gateway with the lower number opened |
//! | established | the peer | the second: the peer has restarted, the first is half-open |
//! | established | this side | the first |

mod input;

use alloc::collections::VecDeque;
use alloc::string::String;

use proto_core::time::{Duration, Instant};

use crate::types::{ConnId, GatewayId, Tables};
use crate::wire::notification::Reason;
use crate::wire::open::{Graceful, Repr as Open};
use crate::wire::{self, Message, VERSION, notification};

pub(crate) use input::Effect;

/// Time allowed for an OPEN, and for the KEEPALIVE after it.
pub(crate) const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest delay before a lost peer is dialled again.
pub(crate) const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);

/// State of a peering.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// No stream; waits to dial or to be dialled.
    Idle,
    /// The driver was asked to dial.
    Connecting,
    /// OPEN was sent.
    OpenSent,
    /// The peer's OPEN was accepted.
    OpenConfirm,
    /// Routes and trees are exchanged.
    Established,
}

/// Why a peering ended.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum CloseReason {
    /// This side ended it with a NOTIFICATION.
    Local(notification::Repr),
    /// The peer ended it with a NOTIFICATION.
    Remote(notification::Repr),
    /// The stream broke.
    Lost,
}

impl CloseReason {
    /// Returns whether routes and trees are kept until the peer comes back (RFC 4724, RFC 8538).
    pub(crate) fn is_graceful(&self) -> bool {
        match self {
            CloseReason::Lost => true,
            CloseReason::Local(why) | CloseReason::Remote(why) => {
                matches!(why.reason, Reason::HoldTimer | Reason::Collision)
            }
        }
    }
}

/// What both sides agreed on in OPEN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Agreed {
    /// Tables that both sides have.
    pub(crate) tables: Tables,
    /// Tables that the peer has.
    pub(crate) offered: Tables,
    /// Hold time; zero for no limit.
    pub(crate) hold: Duration,
    /// The peer's graceful restart, if both sides support it.
    pub(crate) graceful: Option<Graceful>,
    /// Whether the peer answers ECHO_REQUEST.
    pub(crate) echo: bool,
}

/// The stream of a peering.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stream {
    pub(crate) conn: ConnId,
    /// Whether this side opened it.
    pub(crate) dialled: bool,
    /// Whether the driver cannot write to it for now.
    pub(crate) blocked: bool,
}

/// One side of a peering.
#[derive(Debug)]
pub(crate) struct Session {
    own: Open,
    peer: GatewayId,
    dial: bool,
    first_delay: Duration,
    pub(crate) state: State,
    pub(crate) stream: Option<Stream>,
    pub(crate) agreed: Option<Agreed>,
    /// Waiting messages except for updates of routes.
    pub(crate) queue: VecDeque<Message>,
    /// When to dial again, or when the OPEN is overdue.
    timer: Option<Instant>,
    hold_at: Option<Instant>,
    keepalive_at: Option<Instant>,
    delay: Duration,
}

/// Decision about a stream that the driver opened or accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    /// It is the stream of the peering.
    Taken,
    /// It is the stream of the peering, and the session on the former one has ended.
    Replaced,
    /// It must be closed.
    Refused,
}

impl Session {
    pub(crate) fn new(
        own: Open,
        peer: GatewayId,
        dial: bool,
        first_delay: Duration,
        now: Instant,
    ) -> Self {
        Session {
            own,
            peer,
            dial,
            first_delay,
            state: State::Idle,
            stream: None,
            agreed: None,
            queue: VecDeque::new(),
            timer: dial.then_some(now),
            hold_at: None,
            keepalive_at: None,
            delay: first_delay,
        }
    }

    /// Explains to people that the peer speaks none of this side's versions.
    pub(crate) fn describe_mismatch(&self, versions: (u8, u8)) -> String {
        wire::describe_mismatch(self.own.gateway, self.peer, versions)
    }

    pub(crate) fn is_established(&self) -> bool {
        self.state == State::Established
    }

    /// Changes the next OPEN.
    pub(crate) fn set_own(&mut self, own: Open, dial: bool, first_delay: Duration, now: Instant) {
        self.own = own;
        self.first_delay = first_delay;
        if dial && !self.dial && self.stream.is_none() {
            self.timer = Some(now);
        }
        self.dial = dial;
    }

    /// Dials at once.
    pub(crate) fn dial_now(&mut self, now: Instant) {
        if self.dial && self.state == State::Idle {
            self.timer = Some(now);
        }
    }

    /// Decides which of two streams is kept, by the table above.
    pub(crate) fn admit(&self, dialled: bool) -> Admission {
        let Some(first) = self.stream else {
            return Admission::Taken;
        };
        let second = if self.is_established() {
            !dialled
        } else if first.dialled == dialled {
            true
        } else {
            // The stream opened by the lower gateway is kept.
            dialled == (self.own.gateway < self.peer)
        };
        if second {
            Admission::Replaced
        } else {
            Admission::Refused
        }
    }

    /// Starts a session on a stream.
    pub(crate) fn connected(&mut self, now: Instant, conn: ConnId, dialled: bool) {
        self.stream = Some(Stream {
            conn,
            dialled,
            blocked: false,
        });
        self.state = State::OpenSent;
        self.queue.clear();
        self.queue.push_back(Message::Open(self.own));
        self.timer = Some(now + OPEN_TIMEOUT);
    }

    /// Handles a failed dial.
    pub(crate) fn dial_failed(&mut self, now: Instant, jitter: u32) {
        if self.state == State::Connecting {
            self.rest(now, jitter);
        }
    }

    /// Returns to idle. The next dial is after a delay, up to a quarter of it earlier by `jitter` parts of 2^32.
    fn rest(&mut self, now: Instant, jitter: u32) {
        self.state = State::Idle;
        self.stream = None;
        self.agreed = None;
        self.queue.clear();
        (self.hold_at, self.keepalive_at) = (None, None);
        let quarter = (u64::from(jitter) * (self.delay.total_micros() / 4)) >> 32;
        let delay = self.delay - Duration::from_micros(quarter);
        self.timer = self.dial.then_some(now + delay);
        self.delay = (self.delay * 2).min(MAX_RETRY_DELAY);
    }

    /// Ends the session; a last message must have been taken out before. `rest` is the minimum time before the next
    /// dial.
    pub(crate) fn ended(&mut self, now: Instant, jitter: u32, rest: Duration) {
        if self.is_established() {
            self.delay = self.first_delay;
        }
        self.rest(now, jitter);
        if let Some(timer) = &mut self.timer {
            *timer = (*timer).max(now + rest);
        }
    }

    /// Notes that the driver was asked to dial.
    pub(crate) fn calling(&mut self, now: Instant) {
        self.state = State::Connecting;
        self.timer = Some(now + MAX_RETRY_DELAY);
    }

    /// Handles the passing of time.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<Due> {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.keepalive_at) {
            self.queue.push_back(Message::KeepAlive);
            self.keepalive_at = self.keepalive_interval().map(|interval| now + interval);
        }
        if due(self.hold_at) {
            return Some(Due::End(
                Reason::HoldTimer,
                "nothing heard for the hold time",
            ));
        }
        if !due(self.timer) {
            return None;
        }
        match self.state {
            State::Idle => Some(Due::Dial),
            State::Connecting => Some(Due::DialOverdue),
            State::OpenSent | State::OpenConfirm => {
                Some(Due::End(Reason::OpenTimer, "no answer to OPEN"))
            }
            State::Established => None,
        }
    }

    fn keepalive_interval(&self) -> Option<Duration> {
        let hold = self.agreed.map(|agreed| agreed.hold)?;
        (hold != Duration::ZERO).then(|| hold / 3)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        [self.timer, self.hold_at, self.keepalive_at]
            .into_iter()
            .flatten()
            .min()
    }
}

/// Action that is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    /// Ask the driver to dial.
    Dial,
    /// The driver's dial has taken too long.
    DialOverdue,
    /// End the session.
    End(Reason, &'static str),
}

/// Versions of the protocol in OPEN.
pub(crate) const VERSIONS: (u8, u8) = (VERSION, VERSION);
