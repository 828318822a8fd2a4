//! Receiving a session.

use core::sync::atomic::{AtomicBool, Ordering};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use bfed::wire::client::Token;
use bfed::wire::no_route::Reason;
use bfed::{GatewayId, Instant, SessionName};
use linux_net::poll::{self, Watch};
use linux_net::wake::Waker;

use crate::assembly::{Assembly, Incomplete};
use crate::http::Timeouts;
use crate::input::{Input, Outcome, Place};
use crate::mediator::Address;
use crate::membership::Membership;
use crate::{Error, MEDIATOR_V4, is_numbered};

/// Reads of the data before the mediator gets its turn.
const READS: usize = 64;
/// Time until a stream that broke is asked for again.
const REPAIR: bfed::Duration = bfed::Duration::from_millis(500);
/// Longest wait without a look at the clock.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Which session to receive, and how.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JoinOptions {
    /// The session.
    pub session: SessionName,
    /// Mediators to ask; of several the cheapest is taken. At most one group. By default the well-known
    /// group of IPv4 multicast networks, [`MEDIATOR_V4`].
    pub mediators: Vec<Address>,
    /// Which of the session's flows, from 0.
    pub flow: usize,
    /// Interface of groups, by name or address; by default the routes decide.
    pub interface: Option<String>,
    /// How long to ask while no mediator answers or there is no route to the session; 15 s by default. Also the time without
    /// data after which a session whose mediator does not answer is given up.
    pub connect_timeout: Duration,
    /// The session is complete after this many bytes.
    pub max_bytes: Option<u64>,
    /// The token for mediators and servers, where they require one. It is sent to [`mediators`](Self::mediators), and to servers
    /// on the hosts of those that are HTTP servers.
    pub token: Option<Token>,
    /// Further hosts that get the token: names or addresses of the servers and mediators that a mediator may name.
    pub token_hosts: Vec<String>,
    /// The data is not received: the session is kept for another program, to which [`Event::Joined`] names the place.
    pub membership_only: bool,
    /// Time limits of connections to mediators and servers of HTTP networks.
    pub timeouts: Timeouts,
}

impl JoinOptions {
    /// Options with the defaults above.
    #[must_use]
    pub fn new(session: SessionName) -> Self {
        JoinOptions {
            session,
            mediators: vec![Address::Group(MEDIATOR_V4)],
            flow: 0,
            interface: None,
            connect_timeout: Duration::from_secs(15),
            max_bytes: None,
            token: None,
            token_hosts: Vec::new(),
            membership_only: false,
            timeouts: Timeouts::default(),
        }
    }
}

/// What happens to a session while it is received.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A mediator was asked for the cost of the session.
    Cost {
        /// The mediator.
        mediator: Address,
        /// What it says; `None` if it did not answer, or has no route.
        cost: Option<u32>,
    },
    /// A mediator is asked for the session.
    Asking {
        /// The mediator.
        mediator: Address,
    },
    /// The data is received from a place from now on.
    Joined {
        /// The mediator that named the place.
        mediator: Address,
        /// The place.
        place: Place,
        /// Seconds until the answer expires; it is refreshed before that. 0: it does not expire.
        lifetime_s: u16,
    },
    /// A mediator redirects to another.
    Redirected {
        /// The mediator that redirects.
        from: Address,
        /// Where to, as it says.
        to: String,
        /// The gateway of the target.
        gateway: GatewayId,
    },
    /// A mediator has no route to the session.
    Refused {
        /// Why.
        reason: Reason,
        /// When it is asked again; `None`: never.
        retry_after: Option<Duration>,
    },
    /// The stream broke; it is asked for again.
    Interrupted {
        /// Why.
        reason: String,
    },
    /// Frames of a numbered session are missing at this point of the data.
    Gap {
        /// How many.
        frames: u64,
    },
}

/// Takes what a session brings.
pub trait Sink {
    /// Takes data, in order. Not called with data beyond [`JoinOptions::max_bytes`].
    ///
    /// # Errors
    /// The data cannot be taken: [`Session::step`] fails with it.
    fn data(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Takes an event.
    fn event(&mut self, event: Event) {
        let _ = event;
    }
}

/// Cancels sessions from any thread. Clones cancel together.
#[derive(Clone, Debug)]
pub struct Cancel {
    cancelled: Arc<AtomicBool>,
    waker: Waker,
}

impl Cancel {
    /// Creates a flag that is not raised.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Cancel {
            cancelled: Arc::default(),
            waker: Waker::new()?,
        })
    }

    /// Raises the flag: [`Session::join`] and [`Session::step`] return at once, now and later.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        self.waker.wake();
    }

    /// Whether the flag is raised.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }
}

impl AsFd for Cancel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

/// Counters of a session that is received.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// Bytes given to the sink.
    pub bytes: u64,
    /// Frames given to the sink; of sessions that are not numbered: datagrams, or pieces of a stream.
    pub frames: u64,
    /// Numbered frames that are missing.
    pub lost: u64,
    /// Numbered frames that came twice or too late.
    pub late: u64,
    /// Bytes of a numbered session that belong to no frame.
    pub skipped_bytes: u64,
    /// Datagrams, or pieces of a stream, that arrived.
    pub datagrams: u64,
    /// Requests sent to mediators.
    pub requests: u64,
    /// Requests left to other clients.
    pub damped: u64,
    /// Changes of the place of the data.
    pub moved: u64,
}

/// Whether more is to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// The session continues.
    Open,
    /// The end came, or as many bytes as wanted.
    Complete,
}

/// A session that is received. Dropping it without [`leave`](Self::leave) lets the gateway find out when the
/// lifetime of its answer has passed.
#[derive(Debug)]
pub struct Session {
    interface: Option<String>,
    membership_only: bool,
    timeouts: Timeouts,
    cancel: Cancel,
    membership: Membership,
    assembly: Assembly,
    input: Option<Input>,
    last_data: Option<Instant>,
    /// When to ask for the session again: its stream broke.
    repair_at: Option<Instant>,
    broken: String,
}

/// How long to wait from `now` until `due`, one second at most.
pub(crate) fn wait_until(now: Instant, due: Option<Instant>) -> Duration {
    due.map_or(MAX_WAIT, |due| {
        Duration::from(due.max(now) - now).min(MAX_WAIT)
    })
}

impl Session {
    /// Finds the mediator to ask and begins to ask it; with several mediators it blocks up to 4 s for their
    /// costs. The session arrives in [`step`](Self::step).
    ///
    /// # Errors
    /// A mediator cannot be reached at all, none of several answered, or the session was cancelled.
    pub fn join(options: JoinOptions, cancel: &Cancel, sink: &mut dyn Sink) -> Result<Self, Error> {
        let seed = linux_net::process::random()?;
        let assembly = Assembly::new(is_numbered(&options.session), options.max_bytes);
        let (interface, timeouts) = (options.interface.clone(), options.timeouts);
        let membership_only = options.membership_only;
        let membership = match Membership::open(options, seed, cancel, sink) {
            Err(_) if cancel.is_cancelled() => return Err(Error::Cancelled),
            membership => membership?,
        };
        Ok(Session {
            interface,
            membership_only,
            timeouts,
            cancel: cancel.clone(),
            membership,
            assembly,
            input: None,
            last_data: None,
            repair_at: None,
            broken: String::new(),
        })
    }

    /// Waits for at most `limit`, and one second, and gives what has arrived to the sink.
    ///
    /// # Errors
    /// The session is refused, no mediator answers any more, the source's frames are of another version, the sink fails,
    /// or the session was cancelled.
    pub fn step(&mut self, limit: Duration, sink: &mut dyn Sink) -> Result<Status, Error> {
        self.wait(limit)?;
        if self.cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let now = Instant::now();
        if self.repair_at.is_some_and(|at| at <= now) {
            self.repair_at = None;
            self.membership.begin(now, sink);
        }
        let place = self.membership.receive(now, sink)?;
        if let Some(place) = place.filter(|_| !self.membership_only) {
            match Input::open(
                &place,
                self.interface.as_deref(),
                self.membership.credential(),
                self.timeouts,
            ) {
                Ok(input) => self.input = Some(input),
                Err(error @ Error::NeedsLtp(_)) => return Err(error),
                Err(error) => self.broke(now, error.to_string(), sink),
            }
        }
        match self.membership.handle_timeout(now, self.last_data) {
            Err(Error::NoAnswer(why)) if !self.broken.is_empty() => {
                return Err(Error::NoAnswer(format!("{}; {why}", self.broken)));
            }
            done => done?,
        }
        match self.read(now, sink)? {
            Outcome::Open => {}
            Outcome::Ended if self.membership.is_served() && !self.assembly.is_done() => {
                self.broke(now, "the gateway ended the stream".into(), sink);
            }
            Outcome::Ended => return Ok(Status::Complete),
            Outcome::Broken(why) => self.broke(now, why, sink),
        }
        if let Some(version) = self.assembly.other_version() {
            return Err(Error::OtherVersion(version));
        }
        Ok(match self.assembly.is_done() {
            true => Status::Complete,
            false => Status::Open,
        })
    }

    /// Receives until the session is complete, writes its data to `out`, and leaves the session.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn copy_to(mut self, out: &mut dyn Write) -> Result<(Stats, Option<Incomplete>), Error> {
        let done = loop {
            match self.step(MAX_WAIT, &mut Writer(&mut *out)) {
                Ok(Status::Open) => {}
                done => break done,
            }
        };
        let (stats, incomplete) = (self.stats(), self.incomplete());
        self.leave();
        done?;
        out.flush()?;
        Ok((stats, incomplete))
    }

    /// The stream ended or broke too early: asks again, the gateway may have moved the session.
    fn broke(&mut self, now: Instant, why: String, sink: &mut dyn Sink) {
        tracing::warn!(
            event = "stream_interrupted",
            error = why,
            "the stream broke; asking for the session again"
        );
        self.input = None;
        sink.event(Event::Interrupted {
            reason: why.clone(),
        });
        self.broken = why;
        self.repair_at = Some(now + REPAIR);
    }

    fn read(&mut self, now: Instant, sink: &mut dyn Sink) -> io::Result<Outcome> {
        let Some(input) = &mut self.input else {
            return Ok(Outcome::Open);
        };
        let (mut outcome, mut written) = (Outcome::Open, Ok(()));
        for _ in 0..READS {
            let (before, assembly) = (self.assembly.stats.datagrams, &mut self.assembly);
            outcome = input.read(|bytes| {
                if written.is_ok() {
                    written = assembly.take(bytes, sink);
                }
            });
            let more = self.assembly.stats.datagrams > before;
            if more {
                self.last_data = Some(now);
            }
            if !more || outcome != Outcome::Open || self.assembly.is_done() || written.is_err() {
                break;
            }
        }
        written.map(|()| outcome)
    }

    fn wait(&self, limit: Duration) -> io::Result<()> {
        let due = [self.membership.poll_timeout(), self.repair_at];
        let wait = wait_until(Instant::now(), due.into_iter().flatten().min());
        let mut watches = vec![
            Watch::readable(self.cancel.as_fd()),
            Watch::readable(self.membership.mediator.as_fd()),
        ];
        let input = self.input.as_ref();
        watches.extend(input.map(|input| Watch::readable(input.as_fd())));
        poll::wait(&mut watches, Some(wait.min(limit))).map(|_| ())
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            requests: self.membership.requests,
            damped: self.membership.damped,
            moved: self.membership.moved,
            skipped_bytes: self.assembly.skipped_bytes(),
            ..self.assembly.stats
        }
    }

    /// Returns the BLAKE3 digest of the data given to the sink.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        self.assembly.digest()
    }

    /// Returns the gaps of a numbered session that ends now.
    #[must_use]
    pub fn incomplete(&self) -> Option<Incomplete> {
        self.assembly.incomplete()
    }

    /// Tells the mediator that the session is no longer wanted. Over HTTP it blocks up to 15 s.
    pub fn leave(mut self) {
        self.membership.leave();
    }
}

/// A sink that writes the data and ignores events.
struct Writer<'a>(&'a mut dyn Write);

impl Sink for Writer<'_> {
    fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }
}
