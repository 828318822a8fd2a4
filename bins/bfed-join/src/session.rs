//! From the first question to the last refresh (§5.2.1, §7).
//!
//! | hears | does |
//! | --- | --- |
//! | TRANSLATION | takes the data from there; asks again after a third of its lifetime |
//! | TRANSLATION with other addresses | moves there |
//! | REDIRECT | asks there; [`MAX_REDIRECTS`] times at most, and nobody twice |
//! | the end of an HTTP stream that a gateway serves | asks again: the gateway may have moved the session |
//! | NO_ROUTE, local | takes the data natively, without the gateway |
//! | NO_ROUTE else | asks again every two seconds as long as `--wait` says; then gives up |
//! | nothing | repeats the question after 1, 2, 4, 8 s; gives up after `--wait` |
//! | nothing for a lifetime, but data | goes on so: data flows while the gateway's control node is away; gives up when none has come for `--wait` |
//!
//! On a group a question is held back for a random time, up to 100 ms at first and a second for a
//! refresh; when another client asks the same meanwhile, its answer serves (damping). A LEAVE of another
//! client is objected to within a second.

use std::os::fd::AsFd;

use bfed::wire::client::{Answer, AnswerRepr, Want};
use bfed::wire::no_route::Reason;
use bfed::{ChannelAddress, Duration, Instant};
use cli::events::Events;
use cli::federation::http::session_path;
use linux_net::poll::{self, Watch};

use crate::args::Args;
use crate::events::Event;
use crate::input::Place;
use crate::mediator::{Address, Heard, Line};

/// Most gateways that a client is sent on to.
const MAX_REDIRECTS: u8 = 5;
/// How long costs are waited for.
const COSTS: Duration = Duration::from_secs(4);
/// Time between questions about a session that there is no way to.
const AGAIN: Duration = Duration::from_secs(2);

/// Why the session is not had, or no more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// NO_ROUTE.
    Refused(Reason),
    /// Nobody answers.
    NoAnswer(String),
    /// Anything else.
    Other(String),
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum News {
    /// The data is there from now on.
    Place(Place),
    /// It is over.
    Failed(Failure),
}

/// One client's session.
pub(crate) struct Session<'a> {
    args: &'a Args,
    events: &'a Events,
    pub(crate) line: Line,
    nonce: u32,
    random: u64,
    /// Who was asked since the last answer that helped.
    visited: Vec<Address>,
    redirects: u8,
    /// When the question is to be sent; `None`: never again.
    ask_at: Option<Instant>,
    attempts: u32,
    /// When to give up; a TRANSLATION's lifetime once there is one.
    give_up_at: Instant,
    place: Option<Place>,
    why: String,
    pub(crate) requests: u64,
    pub(crate) damped: u64,
    pub(crate) moved: u64,
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

impl<'a> Session<'a> {
    /// Finds the mediator to ask: the only one, or the cheapest.
    pub(crate) fn open(
        args: &'a Args,
        events: &'a Events,
        seed: [u8; 32],
        clock: cli::clock::Clock,
    ) -> Result<Self, Failure> {
        let word = |at: usize| u64::from_le_bytes(core::array::from_fn(|n| seed[at + n]));
        let nonce = (word(0) as u32).max(1);
        let open =
            |address: Address| Line::open(address, args.interface.as_deref(), &args.session, nonce);
        let mut addresses = args.mediators();
        let line = match addresses.len() {
            1 => open(addresses.remove(0)).map_err(Failure::Other)?,
            _ => cheapest(addresses.into_iter().map(open), events, clock)?,
        };
        let mut session = Session {
            args,
            events,
            line,
            nonce,
            random: word(8) | 1,
            visited: Vec::new(),
            redirects: 0,
            ask_at: None,
            attempts: 0,
            give_up_at: clock.now(),
            place: None,
            why: String::new(),
            requests: 0,
            damped: 0,
            moved: 0,
        };
        session.begin(clock.now());
        Ok(session)
    }

    /// A random time below that.
    fn within(&mut self, most: u64) -> Duration {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        millis(self.random % most)
    }

    /// Asks from the beginning: `--wait` begins.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.give_up_at = now + self.wait();
        self.visited.clear();
        self.redirects = 0;
        self.place = None;
        self.ask_soon(now);
    }

    /// Whether a gateway serves it: its server's end is not the session's.
    pub(crate) fn is_served(&self) -> bool {
        self.place.is_some() && self.ask_at.is_some()
    }

    fn ask_soon(&mut self, now: Instant) {
        self.attempts = 0;
        let delay = match self.line.is_shared() {
            true => self.within(100),
            false => Duration::ZERO,
        };
        self.ask_at = Some(now + delay);
        self.visited.push(self.line.address.clone());
        self.events.emit(&Event::Asking {
            mediator: self.line.address.to_string(),
        });
    }

    fn wait(&self) -> Duration {
        millis(self.args.wait.as_millis() as u64)
    }

    /// Time has passed; data came last at `data`, if it ever did.
    pub(crate) fn handle_timeout(&mut self, now: Instant, data: Option<Instant>) -> Option<News> {
        let at = self.ask_at?;
        if self.give_up_at <= now && self.place.is_some() {
            self.give_up_at = data.map_or(now, |data| now.max(data + self.wait()));
        }
        if self.give_up_at <= now {
            self.ask_at = None;
            let mut why = format!("{} does not answer", self.line.address);
            if !self.why.is_empty() {
                why = format!("{why}: {}", self.why);
            }
            return Some(News::Failed(Failure::NoAnswer(why)));
        }
        if at <= now {
            if self.line.ask(Want::Join, self.redirects) {
                self.requests += 1;
            }
            self.retry(now);
        }
        None
    }

    /// The question is repeated unless an answer comes.
    fn retry(&mut self, now: Instant) {
        self.attempts += 1;
        let pause = 1000u64 << self.attempts.saturating_sub(1).min(3);
        let spread = self.within(pause / 4);
        self.ask_at = Some(now + millis(pause) + spread);
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.ask_at.map(|at| at.min(self.give_up_at))
    }

    /// What has come on the line.
    pub(crate) fn receive(&mut self, now: Instant) -> Vec<News> {
        let mut news = Vec::new();
        for heard in self.line.receive() {
            match heard {
                Heard::Answer(answer) => news.extend(self.answered(now, answer)),
                Heard::OthersJoin if self.ask_at.is_some() => {
                    self.damped += 1;
                    self.retry(now);
                }
                Heard::OthersLeave if self.place.is_some() => {
                    let at = now + self.within(1000);
                    self.ask_at = self.ask_at.map(|ask| ask.min(at));
                }
                Heard::OthersJoin | Heard::OthersLeave => {}
                Heard::Failed(why) => {
                    tracing::info!(why, "the mediator cannot be asked");
                    self.why = why;
                }
            }
        }
        news
    }

    fn answered(&mut self, now: Instant, answer: AnswerRepr) -> Option<News> {
        self.ask_at?;
        match answer.answer {
            Answer::Translation(addresses) => self.translated(now, &addresses, answer.lifetime_s),
            Answer::Redirect { gateway, mediator } => {
                self.redirected(now, &gateway.to_string(), &mediator)
            }
            Answer::NoRoute(Reason::Local) => self.local(),
            Answer::NoRoute(reason) => self.refused(now, reason),
            Answer::Cost(_) => None,
        }
    }

    fn translated(
        &mut self,
        now: Instant,
        addresses: &[ChannelAddress],
        lifetime_s: u16,
    ) -> Option<News> {
        let (at, _) = self.args.flow();
        let text = match addresses.get(at) {
            Some(ChannelAddress::Native(bytes)) => core::str::from_utf8(bytes).ok(),
            _ => None,
        };
        let place = match text.map(str::parse::<Place>) {
            Some(Ok(place)) => place,
            _ => {
                let why = "the gateway's address of the session is none that is known here";
                return Some(News::Failed(Failure::Other(why.into())));
            }
        };
        let lifetime = u64::from(lifetime_s.max(3)) * 1000;
        let spread = if self.line.is_shared() {
            self.within(1000)
        } else {
            Duration::ZERO
        };
        self.ask_at = Some(now + millis(lifetime / 3) + spread);
        self.give_up_at = now + millis(lifetime);
        self.attempts = 0;
        self.visited.clear();
        self.redirects = 0;
        self.joined(place, lifetime_s)
    }

    fn joined(&mut self, place: Place, lifetime_s: u16) -> Option<News> {
        if self.place.as_ref() == Some(&place) {
            return None;
        }
        self.moved += u64::from(self.place.is_some());
        self.place = Some(place.clone());
        self.events.emit(&Event::Joined {
            mediator: self.line.address.to_string(),
            addresses: vec![place.to_string()],
            lifetime_s,
        });
        Some(News::Place(place))
    }

    /// The session is one of the network itself.
    fn local(&mut self) -> Option<News> {
        let (flow, _) = self.args.flow();
        let place = match (&self.line.address, self.args.group()) {
            (Address::Http(url), _) => {
                let path = session_path(self.args.session.as_str(), flow);
                Some(Place::Http(url.with_path(&path)))
            }
            (_, Some(group)) => Some(Place::Group(group)),
            _ => None,
        };
        self.ask_at = None;
        match place {
            Some(place) => self.joined(place, 0),
            None => Some(News::Failed(Failure::Refused(Reason::Local))),
        }
    }

    fn refused(&mut self, now: Instant, reason: Reason) -> Option<News> {
        let lasts = [Reason::UnknownOwner, Reason::Policy].contains(&reason);
        let again =
            (!lasts && now + AGAIN < self.give_up_at && self.place.is_none()).then_some(AGAIN);
        let again_s = again.map(|pause| pause.total_millis() as f64 / 1000.0);
        self.events.emit(&Event::Refused {
            reason: reason.name(),
            again_s,
        });
        match again {
            Some(pause) => {
                self.ask_at = Some(now + pause);
                None
            }
            None => {
                self.ask_at = None;
                Some(News::Failed(Failure::Refused(reason)))
            }
        }
    }

    fn redirected(&mut self, now: Instant, gateway: &str, to: &str) -> Option<News> {
        let from = self.line.address.to_string();
        self.events.emit(&Event::Redirected {
            from: from.clone(),
            to: to.to_owned(),
            gateway: gateway.to_owned(),
        });
        let failed = |why: String| Some(News::Failed(Failure::Other(why)));
        self.ask_at = None;
        let address: Address = match to.parse() {
            Ok(address) => address,
            Err(why) => return failed(format!("{from} redirects to gateway {gateway}: {why}")),
        };
        if self.visited.contains(&address) {
            let way: Vec<String> = self.visited.iter().map(Address::to_string).collect();
            return failed(format!(
                "a loop of redirections: {}, {address}",
                way.join(", ")
            ));
        }
        if self.redirects == MAX_REDIRECTS {
            return failed(format!(
                "more than {MAX_REDIRECTS} redirections, the last to {address}"
            ));
        }
        let interface = self.args.interface.as_deref();
        match Line::open(address, interface, &self.args.session, self.nonce) {
            Ok(line) => self.line = line,
            Err(why) => return failed(why),
        }
        self.redirects += 1;
        self.ask_soon(now);
        None
    }

    /// The session is wanted no more.
    pub(crate) fn leave(&mut self) {
        if self.is_served() {
            self.line.ask(Want::Leave, 0);
        }
    }
}

/// Asks all what the session costs, and takes the cheapest that answers in time (§7).
fn cheapest(
    lines: impl Iterator<Item = Result<Line, String>>,
    events: &Events,
    clock: cli::clock::Clock,
) -> Result<Line, Failure> {
    let mut asked: Vec<(Line, Option<u32>)> = Vec::new();
    for line in lines {
        asked.push((line.map_err(Failure::Other)?, None));
    }
    let (started, mut repeat) = (clock.now(), clock.now());
    let mut settled: Option<Instant> = None;
    loop {
        let now = clock.now();
        if repeat <= now {
            for (line, _) in asked.iter_mut().filter(|(_, cost)| cost.is_none()) {
                line.ask(Want::Cost, 0);
            }
            repeat = now + Duration::from_secs(1);
        }
        let mut until = (started + COSTS).min(repeat);
        if asked.iter().all(|(_, cost)| cost.is_some()) {
            // On a group several gateways may answer.
            let end = *settled.get_or_insert(now + millis(200));
            let shared = asked.iter().any(|(line, _)| line.is_shared());
            if end <= now || !shared {
                break;
            }
            until = until.min(end);
        }
        if started + COSTS <= now || cli::interrupt::raised() {
            break;
        }
        let wait = cli::clock::Clock::until(now, Some(until), std::time::Duration::from_secs(1));
        let mut watches: Vec<Watch<'_>> = asked
            .iter()
            .map(|(line, _)| Watch::readable(line.as_fd()))
            .collect();
        poll::wait(&mut watches, Some(wait)).map_err(|error| Failure::Other(error.to_string()))?;
        for (line, cost) in &mut asked {
            for heard in line.receive() {
                let told = match heard {
                    Heard::Answer(answer) => match answer.answer {
                        Answer::Cost(told) => Some(told.0),
                        // Nothing is cheaper than the network's own session.
                        Answer::NoRoute(Reason::Local) => Some(0),
                        Answer::NoRoute(_) => Some(u32::MAX),
                        _ => None,
                    },
                    _ => None,
                };
                if let Some(told) = told {
                    *cost = Some(cost.map_or(told, |before| before.min(told)));
                }
            }
        }
    }
    for (line, cost) in &asked {
        let (mediator, cost) = (
            line.address.to_string(),
            cost.filter(|&cost| cost < u32::MAX),
        );
        events.emit(&Event::Cost { mediator, cost });
    }
    let answered = asked.into_iter().filter(|(_, cost)| cost.is_some());
    // The first of the cheapest: in the order of the command line.
    let best = answered.min_by_key(|(_, cost)| *cost);
    best.map(|(line, _)| line)
        .ok_or_else(|| Failure::NoAnswer("no mediator says what the session costs".into()))
}
