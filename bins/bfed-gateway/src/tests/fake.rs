//! A native network inside the test: it hands data over by memory, and does what the test tells it.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use bfed::native::{ChannelId, Direction, NativeError, Upcall};
use bfed::wire::client::{Answer, AnswerRepr};
use bfed::wire::data::HEADER_LEN;
use bfed::wire::sroute::Outcome;
use bfed::{ClientId, GatewayId, Instant, NativeNet, Scope, SessionName, Sroutes};
use linux_net::wake::Waker;

use crate::native::{Counter, Network, Owner, Role};

/// A channel.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) session: SessionName,
    pub(super) direction: Direction,
    part: usize,
    subscribed: bool,
    pub(super) paused: bool,
    /// Takes no data.
    pub(super) busy: bool,
    /// What the network hands up.
    sends: VecDeque<Vec<u8>>,
    /// What was sent to it.
    pub(super) got: Vec<Vec<u8>>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    next: u64,
    pub(super) channels: BTreeMap<u64, Channel>,
    upcalls: VecDeque<Upcall>,
    pub(super) answers: Vec<(Option<ClientId>, AnswerRepr)>,
    wakers: BTreeMap<usize, Waker>,
    mediator: Option<Waker>,
    writable: Vec<(usize, ChannelId)>,
}

/// The test's hand on a network.
#[derive(Clone, Debug, Default)]
pub(super) struct Hand(Arc<Mutex<State>>);

impl Hand {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Opens one end of the network.
    pub(super) fn open(&self, role: Role, _: Owner) -> Box<dyn Network> {
        let waker = Waker::new().unwrap();
        let mut state = self.state();
        match role {
            Role::Mediator => state.mediator = Some(waker.clone()),
            Role::Channels { part, .. } => drop(state.wakers.insert(part, waker.clone())),
        }
        drop(state);
        Box::new(Fake {
            role,
            waker,
            hand: self.clone(),
        })
    }

    /// A client asks for a session.
    pub(super) fn join(&self, client: u64, session: &str) {
        let mut state = self.state();
        state.upcalls.push_back(Upcall::Join {
            client: ClientId(client),
            session: SessionName::parse(session).unwrap(),
            redirects: 0,
            scope: Scope::Chosen,
            cost_only: false,
        });
        state.mediator.as_ref().unwrap().wake();
    }

    /// The answer to a client.
    pub(super) fn answer(&self, client: u64) -> Option<Answer> {
        let state = self.state();
        let mut answers = state.answers.iter();
        let found = answers.find(|(to, _)| *to == Some(ClientId(client)));
        found.map(|(_, answer)| answer.answer.clone())
    }

    /// The source of a session sends frames; returns false if no data node is subscribed.
    pub(super) fn send(&self, session: &str, frames: impl IntoIterator<Item = Vec<u8>>) -> bool {
        let session = SessionName::parse(session).unwrap();
        let mut state = self.state();
        let up = state.channels.values_mut().find(|channel| {
            channel.session == session && channel.direction == Direction::Up && channel.subscribed
        });
        let Some(up) = up else {
            return false;
        };
        up.sends.extend(frames);
        let part = up.part;
        state.wakers[&part].wake();
        true
    }

    /// What clients of a session got.
    pub(super) fn got(&self, session: &str) -> Vec<Vec<u8>> {
        self.down(session, |channel| channel.got.clone())
            .unwrap_or_default()
    }

    /// Something about the channel to clients of a session.
    pub(super) fn down<T>(&self, session: &str, look: impl FnOnce(&mut Channel) -> T) -> Option<T> {
        let session = SessionName::parse(session).unwrap();
        let mut state = self.state();
        let down = |channel: &&mut Channel| {
            channel.session == session && channel.direction == Direction::Down
        };
        state.channels.values_mut().find(down).map(look)
    }

    /// Clients take data, or none.
    pub(super) fn set_busy(&self, session: &str, busy: bool) {
        let session = SessionName::parse(session).unwrap();
        let mut state = self.state();
        let mut free = Vec::new();
        for (&id, channel) in &mut state.channels {
            if channel.session == session && channel.direction == Direction::Down {
                channel.busy = busy;
                free.push((channel.part, ChannelId(id)));
            }
        }
        if !busy {
            state.writable.extend(free);
            state.wakers.values().for_each(Waker::wake);
        }
    }
}

struct Fake {
    role: Role,
    waker: Waker,
    hand: Hand,
}

impl Fake {
    fn part(&self) -> usize {
        match self.role {
            Role::Mediator => usize::MAX,
            Role::Channels { part, .. } => part,
        }
    }
}

impl AsFd for Fake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

impl NativeNet for Fake {
    fn allocate_channel(
        &mut self,
        _: Instant,
        session: &SessionName,
        _: &str,
        direction: Direction,
    ) -> Result<(ChannelId, Vec<u8>), NativeError> {
        let part = self.part();
        let mut state = self.hand.state();
        state.next += 1;
        let id = state.next;
        let channel = Channel {
            session: session.clone(),
            direction,
            part,
            subscribed: false,
            paused: false,
            busy: false,
            sends: VecDeque::new(),
            got: Vec::new(),
        };
        state.channels.insert(id, channel);
        Ok((ChannelId(id), format!("channel {id}").into_bytes()))
    }

    fn subscribe(
        &mut self,
        _: Instant,
        _: &SessionName,
        _: &str,
        _: Direction,
        channel: ChannelId,
        _: Option<&[u8]>,
    ) -> Result<(), NativeError> {
        let mut state = self.hand.state();
        let channel = state
            .channels
            .get_mut(&channel.0)
            .ok_or(NativeError::Refused)?;
        channel.subscribed = true;
        Ok(())
    }

    fn refresh(&mut self, _: Instant, _: &SessionName, _: &str, _: Direction, _: ChannelId) {}

    fn unsubscribe(&mut self, _: Instant, _: &SessionName, _: &str, _: Direction, _: ChannelId) {}

    fn reclaim_channel(
        &mut self,
        _: Instant,
        _: &SessionName,
        _: &str,
        _: Direction,
        channel: ChannelId,
    ) {
        self.hand.state().channels.remove(&channel.0);
    }

    fn send_data(
        &mut self,
        _: Instant,
        channel: ChannelId,
        data: &[u8],
    ) -> Result<(), NativeError> {
        let mut state = self.hand.state();
        let channel = state
            .channels
            .get_mut(&channel.0)
            .ok_or(NativeError::Refused)?;
        if channel.busy {
            return Err(NativeError::Busy);
        }
        channel.got.push(data.to_vec());
        Ok(())
    }

    fn get_sroutes(
        &mut self,
        _: Instant,
        _: u32,
        _: &SessionName,
        _: &[GatewayId],
    ) -> Option<Sroutes> {
        Some(Sroutes {
            outcome: Outcome::Null,
            costs: Vec::new(),
            got_all: true,
        })
    }

    fn answer(&mut self, _: Instant, client: Option<ClientId>, answer: &AnswerRepr) {
        self.hand.state().answers.push((client, answer.clone()));
    }

    fn poll_upcall(&mut self, _: Instant, buffer: &mut [u8]) -> Option<Upcall> {
        let (part, mut state) = (self.part(), self.hand.state());
        if self.role == Role::Mediator {
            let upcall = state.upcalls.pop_front();
            if upcall.is_none() {
                self.waker.reset();
            }
            return upcall;
        }
        let mut channels = state.channels.iter_mut();
        let found = channels.find_map(|(&id, channel)| {
            let own = channel.part == part && !channel.paused;
            let frame = own.then(|| channel.sends.pop_front()).flatten()?;
            Some((id, frame))
        });
        let Some((id, frame)) = found else {
            self.waker.reset();
            return None;
        };
        buffer[HEADER_LEN..HEADER_LEN + frame.len()].copy_from_slice(&frame);
        Some(Upcall::Data {
            channel: ChannelId(id),
            len: frame.len(),
        })
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

impl Network for Fake {
    fn set_paused(&mut self, channel: ChannelId, paused: bool) {
        if let Some(channel) = self.hand.state().channels.get_mut(&channel.0) {
            channel.paused = paused;
        }
        self.waker.wake();
    }

    fn poll_writable(&mut self) -> Option<ChannelId> {
        let (part, mut state) = (self.part(), self.hand.state());
        let at = state.writable.iter().position(|(of, _)| *of == part)?;
        Some(state.writable.remove(at).1)
    }

    fn counters(&self) -> Vec<Counter> {
        vec![("fakes", 1)]
    }
}
