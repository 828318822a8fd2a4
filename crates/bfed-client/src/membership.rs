//! The requests for one session, from the first to the last refresh.
//!
//! | message | reaction |
//! | --- | --- |
//! | TRANSLATION | takes the data from there; asks again after a third of its lifetime |
//! | TRANSLATION with other addresses | moves there |
//! | REDIRECT | asks there; [`MAX_REDIRECTS`] times at most, and no mediator twice |
//! | the end of an HTTP stream that a gateway serves | asks again: the gateway may have moved the session |
//! | NO_ROUTE, local | takes the data natively, without the gateway |
//! | NO_ROUTE, other reasons | asks again every two seconds until the connection timeout |
//! | nothing | repeats the request after 1, 2, 4, 8 s; gives up at the connection timeout |
//! | nothing for a lifetime, but data | continues: data flows while the gateway's control node is unreachable; gives up after the connection timeout without data |
//!
//! On a group a request is delayed by a random time, up to 100 ms at first and a second for a refresh; when
//! another client sends the same request meanwhile, its answer serves both (damping). After a LEAVE of another client
//! the request is repeated within a second. A client with a token leaves no request to others, whose tokens may not
//! count.

use std::os::fd::AsFd;

use bfed::wire::client::{Answer, AnswerRepr, Want};
use bfed::wire::no_route::Reason;
use bfed::{ChannelAddress, Duration, GatewayId, Instant};
use linux_net::poll::{self, Watch};

use crate::credential::Credential;
use crate::input::Place;
use crate::mediator::{Address, Conversation, Message};
use crate::session::wait_until;
use crate::{Cancel, Error, Event, GroupAddress, JoinOptions, Sink, session_path};

/// Most gateways that a client is redirected to.
const MAX_REDIRECTS: u8 = 5;
/// Time allowed for answers about costs.
const COSTS: Duration = Duration::from_secs(4);
/// Time between requests for a session that there is no route to.
const RETRY: Duration = Duration::from_secs(2);

/// The requests of one client for one session.
#[derive(Debug)]
pub(crate) struct Membership {
    options: JoinOptions,
    credential: Credential,
    pub(crate) mediator: Conversation,
    nonce: u32,
    random: u64,
    /// Mediators asked since the last TRANSLATION.
    visited: Vec<Address>,
    redirects: u8,
    /// When to send the request; `None`: not again.
    ask_at: Option<Instant>,
    attempts: u32,
    /// When to give up; a TRANSLATION's lifetime once there is one.
    give_up_at: Instant,
    place: Option<Place>,
    /// Why the last request failed.
    why: String,
    pub(crate) requests: u64,
    pub(crate) damped: u64,
    pub(crate) moved: u64,
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

impl Membership {
    /// Finds the mediator to ask: the only one, or the cheapest. Blocks for at most 4 s for costs.
    pub(crate) fn open(
        options: JoinOptions,
        seed: [u8; 16],
        cancel: &Cancel,
        sink: &mut dyn Sink,
    ) -> Result<Self, Error> {
        let (nonce, random) = seed.split_at(8);
        let word = |half: &[u8]| {
            half.iter()
                .fold(0u64, |word, &byte| word << 8 | u64::from(byte))
        };
        let (nonce, random) = ((word(nonce) as u32).max(1), word(random) | 1);
        let credential = Credential::of(&options);
        let open = |address: Address| Conversation::open(address, &options, &credential, nonce);
        let mut addresses = options.mediators.clone();
        let mediator = match addresses.len() {
            1 => open(addresses.remove(0))?,
            _ => cheapest(addresses.into_iter().map(open), cancel, sink)?,
        };
        let now = Instant::now();
        let mut membership = Membership {
            options,
            credential,
            mediator,
            nonce,
            random,
            visited: Vec::new(),
            redirects: 0,
            ask_at: None,
            attempts: 0,
            give_up_at: now,
            place: None,
            why: String::new(),
            requests: 0,
            damped: 0,
            moved: 0,
        };
        membership.begin(now, sink);
        Ok(membership)
    }

    /// Returns a random time below `most` milliseconds.
    fn within(&mut self, most: u64) -> Duration {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        millis(self.random % most)
    }

    /// Starts again with the first request.
    pub(crate) fn begin(&mut self, now: Instant, sink: &mut dyn Sink) {
        self.give_up_at = now + self.wait();
        self.visited.clear();
        self.redirects = 0;
        self.place = None;
        self.ask_soon(now, sink);
    }

    /// Returns the token for the place of the data.
    pub(crate) fn credential(&self) -> Credential {
        self.credential.clone()
    }

    /// Returns whether a gateway serves the session: the end of its stream is not the end of the session then.
    pub(crate) fn is_served(&self) -> bool {
        self.place.is_some() && self.ask_at.is_some()
    }

    fn ask_soon(&mut self, now: Instant, sink: &mut dyn Sink) {
        self.attempts = 0;
        let delay = match self.mediator.is_shared() {
            true => self.within(100),
            false => Duration::ZERO,
        };
        self.ask_at = Some(now + delay);
        self.visited.push(self.mediator.address.clone());
        sink.event(Event::Asking {
            mediator: self.mediator.address.clone(),
        });
    }

    fn wait(&self) -> Duration {
        millis(self.options.connect_timeout.as_millis() as u64)
    }

    /// Handles timers; the last data came at `data`.
    ///
    /// # Errors
    /// No mediator answered in time.
    pub(crate) fn handle_timeout(
        &mut self,
        now: Instant,
        data: Option<Instant>,
    ) -> Result<(), Error> {
        let Some(at) = self.ask_at else { return Ok(()) };
        if self.give_up_at <= now && self.place.is_some() {
            self.give_up_at = data.map_or(now, |data| now.max(data + self.wait()));
        }
        if self.give_up_at <= now {
            self.ask_at = None;
            let mut why = format!("{} does not answer", self.mediator.address);
            if !self.why.is_empty() {
                why = format!("{why}: {}", self.why);
            }
            return Err(Error::NoAnswer(why));
        }
        if at <= now {
            if self.mediator.ask(Want::Join, self.redirects) {
                self.requests += 1;
            }
            self.retry(now);
        }
        Ok(())
    }

    /// Schedules the next request, in case no answer comes.
    fn retry(&mut self, now: Instant) {
        self.attempts += 1;
        let pause = 1000u64 << self.attempts.saturating_sub(1).min(3);
        let spread = self.within(pause / 4);
        self.ask_at = Some(now + millis(pause) + spread);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.ask_at.map(|at| at.min(self.give_up_at))
    }

    /// Handles the messages that have arrived; returns the place of the data where that is new.
    ///
    /// # Errors
    /// The session was refused, or a mediator's answer is of no use.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        sink: &mut dyn Sink,
    ) -> Result<Option<Place>, Error> {
        let mut place = None;
        for message in self.mediator.receive() {
            match message {
                Message::Answer(answer) => {
                    place = self.handle_answer(now, answer, sink)?.or(place);
                }
                // The other client's token may not count.
                Message::OtherJoins if self.ask_at.is_some() && !self.credential.is_some() => {
                    self.damped += 1;
                    self.retry(now);
                }
                Message::OtherLeaves if self.place.is_some() => {
                    let at = now + self.within(1000);
                    self.ask_at = self.ask_at.map(|ask| ask.min(at));
                }
                Message::OtherJoins | Message::OtherLeaves => {}
                Message::OtherVersion(why) => {
                    if why != self.why {
                        tracing::warn!(
                            event = "mediator_version",
                            error = why,
                            "a gateway speaks another version"
                        );
                    }
                    self.why = why;
                }
                Message::Failed(why) => {
                    tracing::info!(
                        event = "mediator_unreachable",
                        error = why,
                        "the mediator does not answer"
                    );
                    self.why = why;
                }
            }
        }
        Ok(place)
    }

    fn handle_answer(
        &mut self,
        now: Instant,
        answer: AnswerRepr,
        sink: &mut dyn Sink,
    ) -> Result<Option<Place>, Error> {
        if self.ask_at.is_none() {
            return Ok(None);
        }
        match answer.answer {
            Answer::Translation(addresses) => {
                self.translated(now, &addresses, answer.lifetime_s, sink)
            }
            Answer::Redirect { gateway, mediator } => {
                self.redirected(now, gateway, &mediator, sink)?;
                Ok(None)
            }
            Answer::NoRoute(Reason::Local) => self.local(sink),
            Answer::NoRoute(reason) => self.refused(now, reason, sink).map(|()| None),
            Answer::Cost(_) => Ok(None),
        }
    }

    fn translated(
        &mut self,
        now: Instant,
        addresses: &[ChannelAddress],
        lifetime_s: u16,
        sink: &mut dyn Sink,
    ) -> Result<Option<Place>, Error> {
        let text = match addresses.get(self.options.flow) {
            Some(ChannelAddress::Native(bytes)) => core::str::from_utf8(bytes).ok(),
            _ => None,
        };
        let Some(Ok(place)) = text.map(str::parse::<Place>) else {
            return Err(Error::UnknownAddress);
        };
        let lifetime = u64::from(lifetime_s.max(3)) * 1000;
        let spread = if self.mediator.is_shared() {
            self.within(1000)
        } else {
            Duration::ZERO
        };
        self.ask_at = Some(now + millis(lifetime / 3) + spread);
        self.give_up_at = now + millis(lifetime);
        self.attempts = 0;
        self.visited.clear();
        self.redirects = 0;
        Ok(self.joined(place, lifetime_s, sink))
    }

    fn joined(&mut self, place: Place, lifetime_s: u16, sink: &mut dyn Sink) -> Option<Place> {
        if self.place.as_ref() == Some(&place) {
            return None;
        }
        self.moved += u64::from(self.place.is_some());
        self.place = Some(place.clone());
        sink.event(Event::Joined {
            mediator: self.mediator.address.clone(),
            place: place.clone(),
            lifetime_s,
        });
        Some(place)
    }

    /// Handles that the session belongs to this network.
    fn local(&mut self, sink: &mut dyn Sink) -> Result<Option<Place>, Error> {
        let (session, flow) = (&self.options.session, self.options.flow);
        let place = match &self.mediator.address {
            Address::Http(url) => {
                let path = session_path(session.as_str(), flow);
                url.with_path(&path).ok().map(Place::Http)
            }
            _ => GroupAddress::of_flow(session, flow).ok().map(Place::Group),
        };
        self.ask_at = None;
        match place {
            Some(place) => Ok(self.joined(place, 0, sink)),
            None => Err(Error::Refused(Reason::Local)),
        }
    }

    fn refused(&mut self, now: Instant, reason: Reason, sink: &mut dyn Sink) -> Result<(), Error> {
        let lasts = [Reason::UnknownOwner, Reason::Policy].contains(&reason);
        let retry = !lasts && now + RETRY < self.give_up_at && self.place.is_none();
        let retry_after = retry.then_some(RETRY);
        sink.event(Event::Refused {
            reason,
            retry_after: retry_after.map(|pause| pause.into()),
        });
        self.ask_at = retry_after.map(|pause| now + pause);
        match retry {
            true => Ok(()),
            false => Err(Error::Refused(reason)),
        }
    }

    fn redirected(
        &mut self,
        now: Instant,
        gateway: GatewayId,
        to: &str,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let from = self.mediator.address.clone();
        sink.event(Event::Redirected {
            from: from.clone(),
            to: to.to_owned(),
            gateway,
        });
        self.ask_at = None;
        let address: Address =
            to.parse()
                .map_err(|why| Error::BadRedirect { from, gateway, why })?;
        if self.visited.contains(&address) {
            let visited = core::mem::take(&mut self.visited);
            return Err(Error::RedirectLoop {
                visited,
                to: address,
            });
        }
        if self.redirects == MAX_REDIRECTS {
            return Err(Error::TooManyRedirects {
                limit: MAX_REDIRECTS,
                to: address,
            });
        }
        self.mediator = Conversation::open(address, &self.options, &self.credential, self.nonce)?;
        self.redirects += 1;
        self.ask_soon(now, sink);
        Ok(())
    }

    /// Sends a LEAVE.
    pub(crate) fn leave(&mut self) {
        if self.is_served() {
            self.mediator.ask(Want::Leave, 0);
        }
    }
}

/// Asks all mediators what the session costs; returns the cheapest that answers in time.
fn cheapest(
    mediators: impl Iterator<Item = Result<Conversation, Error>>,
    cancel: &Cancel,
    sink: &mut dyn Sink,
) -> Result<Conversation, Error> {
    let mut queried: Vec<(Conversation, Option<u32>)> = Vec::new();
    for mediator in mediators {
        queried.push((mediator?, None));
    }
    let started = Instant::now();
    let mut repeat = started;
    let mut settled: Option<Instant> = None;
    let mut why = String::new();
    loop {
        let now = Instant::now();
        if repeat <= now {
            for (mediator, _) in queried.iter_mut().filter(|(_, cost)| cost.is_none()) {
                mediator.ask(Want::Cost, 0);
            }
            repeat = now + Duration::from_secs(1);
        }
        let mut until = (started + COSTS).min(repeat);
        if queried.iter().all(|(_, cost)| cost.is_some()) {
            // On a group several gateways may answer.
            let end = *settled.get_or_insert(now + millis(200));
            let shared = queried.iter().any(|(mediator, _)| mediator.is_shared());
            if end <= now || !shared {
                break;
            }
            until = until.min(end);
        }
        if started + COSTS <= now || cancel.is_cancelled() {
            break;
        }
        let wait = wait_until(now, Some(until));
        let mut watches = vec![Watch::readable(cancel.as_fd())];
        let fds = queried.iter().map(|(mediator, _)| mediator.as_fd());
        watches.extend(fds.map(Watch::readable));
        let waited = poll::wait(&mut watches, Some(wait));
        waited.map_err(|error| Error::Network(error.to_string()))?;
        for (mediator, cost) in &mut queried {
            for message in mediator.receive() {
                if let Message::OtherVersion(said) | Message::Failed(said) = &message {
                    why = format!(": {}: {said}", mediator.address);
                }
                let answered = match message {
                    Message::Answer(answer) => match answer.answer {
                        Answer::Cost(answered) => Some(answered.0),
                        // Nothing is cheaper than the network's own session.
                        Answer::NoRoute(Reason::Local) => Some(0),
                        Answer::NoRoute(_) => Some(u32::MAX),
                        _ => None,
                    },
                    _ => None,
                };
                if let Some(answered) = answered {
                    *cost = Some(cost.map_or(answered, |before| before.min(answered)));
                }
            }
        }
    }
    for (mediator, cost) in &queried {
        sink.event(Event::Cost {
            mediator: mediator.address.clone(),
            cost: cost.filter(|&cost| cost < u32::MAX),
        });
    }
    let answered = queried.into_iter().filter(|(_, cost)| cost.is_some());
    // The first of the cheapest, in the order of the options.
    let best = answered.min_by_key(|(_, cost)| *cost);
    best.map(|(mediator, _)| mediator)
        .ok_or_else(|| Error::NoAnswer(format!("no mediator answered what the session costs{why}")))
}
