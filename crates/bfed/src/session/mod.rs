//! A peering: one gateway's side of the session with one peer (§3.1, §5.1; compare RFC 4271 §8).
//!
//! The driver opens and accepts byte streams, this machine says over them who it is, hears who the
//! other is, keeps the stream alive, and ends it with a reason that both sides learn.
//!
//! | state | what happens | then |
//! | --- | --- | --- |
//! | [`State::Idle`] | the retry timer runs out, this side calls | [`State::Connecting`] |
//! | `Idle`, `Connecting` | a stream is there: send OPEN | [`State::OpenSent`] |
//! | `Connecting` | the call fails | `Idle`, for twice as long |
//! | `OpenSent` | OPEN that fits: send KEEPALIVE | [`State::OpenConfirm`] |
//! | `OpenSent` | OPEN that does not fit: send NOTIFICATION | `Idle` |
//! | `OpenConfirm` | KEEPALIVE: the full table goes out | [`State::Established`] |
//! | `OpenSent`, `OpenConfirm` | nothing within the open timer: NOTIFICATION | `Idle` |
//! | `Established` | anything: the hold timer starts anew | `Established` |
//! | any with a stream | hold timer, a message that is bad or out of order: NOTIFICATION | `Idle` |
//! | any with a stream | NOTIFICATION, or the stream ends | `Idle` |
//!
//! A second stream with the same peer (both may call):
//!
//! | the first is | the second was opened by | kept |
//! | --- | --- | --- |
//! | not established | the same side | the second |
//! | not established | the other side | the one that the lower gateway opened |
//! | established | the peer | the second: the peer has restarted, the first is half open |
//! | established | this side | the first |

mod input;

use alloc::collections::VecDeque;

use proto_core::time::{Duration, Instant};

use crate::types::{ConnId, GatewayId, Tables};
use crate::wire::notification::Reason;
use crate::wire::open::{Graceful, Repr as Open};
use crate::wire::{Message, VERSION, notification};

pub(crate) use input::Heard;

/// How long an OPEN, or the KEEPALIVE after it, may take.
pub(crate) const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a NOTIFICATION may take to leave.
pub(crate) const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest delay before a lost peer is called again.
pub(crate) const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);

/// Where a peering stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// No stream; waits to call, or to be called.
    Idle,
    /// The driver was asked to call.
    Connecting,
    /// OPEN is sent.
    OpenSent,
    /// The peer's OPEN was accepted.
    OpenConfirm,
    /// Routes and trees may flow.
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
    /// Whether routes and trees may wait for the peer to come back (RFC 4724, RFC 8538).
    pub(crate) fn is_graceful(&self) -> bool {
        match self {
            CloseReason::Lost => true,
            CloseReason::Local(why) | CloseReason::Remote(why) => {
                matches!(why.reason, Reason::HoldTimer | Reason::Collision)
            }
        }
    }
}

/// What both sides agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Agreed {
    /// Tables that both have.
    pub(crate) tables: Tables,
    /// Hold time; zero for none.
    pub(crate) hold: Duration,
    /// What the peer says of its restarts, if both sides have the capability.
    pub(crate) graceful: Option<Graceful>,
    /// The peer's boot.
    pub(crate) boot: u32,
}

/// The stream of a peering.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stream {
    pub(crate) conn: ConnId,
    /// This side opened it.
    pub(crate) dialled: bool,
    /// The driver cannot write to it for now.
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
    /// Messages that wait, updates of routes apart.
    pub(crate) queue: VecDeque<Message>,
    /// When to call again, or when the OPEN is overdue.
    timer: Option<Instant>,
    hold_at: Option<Instant>,
    keepalive_at: Option<Instant>,
    delay: Duration,
    /// Said by KEEPALIVE since: the peer has our OPEN.
    pub(crate) established_at: Option<Instant>,
}

/// What became of a stream that the driver brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    /// It is the peering's stream now.
    Taken,
    /// It is, and the former one is to be closed: the session on it is over.
    Replaced,
    /// It is to be closed.
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
            established_at: None,
        }
    }

    pub(crate) fn is_established(&self) -> bool {
        self.state == State::Established
    }

    /// Changes what the next OPEN says.
    pub(crate) fn set_own(&mut self, own: Open, dial: bool, first_delay: Duration, now: Instant) {
        self.own = own;
        self.first_delay = first_delay;
        if dial && !self.dial && self.stream.is_none() {
            self.timer = Some(now);
        }
        self.dial = dial;
    }

    /// Nothing speaks against a call any more.
    pub(crate) fn call_now(&mut self, now: Instant) {
        if self.dial && self.state == State::Idle {
            self.timer = Some(now);
        }
    }

    /// Which of two streams is kept, by the table above.
    pub(crate) fn admit(&self, dialled: bool) -> Admission {
        let Some(first) = self.stream else {
            return Admission::Taken;
        };
        let second = if self.is_established() {
            !dialled
        } else if first.dialled == dialled {
            true
        } else {
            // The lower gateway's stream is kept.
            dialled == (self.own.gateway < self.peer)
        };
        if second {
            Admission::Replaced
        } else {
            Admission::Refused
        }
    }

    /// A stream is there.
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

    /// The driver's call failed.
    pub(crate) fn dial_failed(&mut self, now: Instant, jitter: u32) {
        if self.state == State::Connecting {
            self.rest(now, jitter);
        }
    }

    /// Back to idle; the next call after a while: `jitter` of 2^32 parts earlier, up to a quarter.
    fn rest(&mut self, now: Instant, jitter: u32) {
        self.state = State::Idle;
        self.stream = None;
        self.agreed = None;
        self.queue.clear();
        (self.hold_at, self.keepalive_at, self.established_at) = (None, None, None);
        let quarter = (u64::from(jitter) * (self.delay.total_micros() / 4)) >> 32;
        let delay = self.delay - Duration::from_micros(quarter);
        self.timer = self.dial.then_some(now + delay);
        self.delay = (self.delay * 2).min(MAX_RETRY_DELAY);
    }

    /// The session is over; what is to be sent as the last message, if anything, has been taken out
    /// of the way before. `rest` is the least time before the next call.
    pub(crate) fn ended(&mut self, now: Instant, jitter: u32, rest: Duration) {
        if self.is_established() {
            self.delay = self.first_delay;
        }
        self.rest(now, jitter);
        if let Some(timer) = &mut self.timer {
            *timer = (*timer).max(now + rest);
        }
    }

    /// The driver was asked to call.
    pub(crate) fn calling(&mut self, now: Instant) {
        self.state = State::Connecting;
        self.timer = Some(now + MAX_RETRY_DELAY);
    }

    /// What the time has brought.
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
            State::Idle => Some(Due::Call),
            State::Connecting => Some(Due::CallOverdue),
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

/// What is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    /// Ask the driver to call.
    Call,
    /// The driver's call has taken too long.
    CallOverdue,
    /// End the session.
    End(Reason, &'static str),
}

/// The versions that an OPEN of ours names.
pub(crate) const VERSIONS: (u8, u8) = (VERSION, VERSION);
