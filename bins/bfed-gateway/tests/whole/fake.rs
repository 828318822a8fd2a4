//! The native network of a gateway under test: all ends of it that the gateway opens, in the hands of the test.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use bfed::native::{ChannelId, Direction, NativeError, NativeFlow, Upcall};
use bfed::wire::client::{Answer, AnswerRepr};
use bfed::{ClientId, Instant, NativeNet, SessionName};
use bfed_gateway::native::{Counter, Network, Role};
use linux_net::wake::Waker;

use crate::native::FakeNative;

/// One end of the network: the mediator, or the channels of a data node.
#[derive(Clone, Debug)]
struct End {
    role: Role,
    net: Arc<Mutex<FakeNative>>,
    waker: Waker,
}

impl End {
    fn net(&self) -> MutexGuard<'_, FakeNative> {
        self.net.lock().unwrap()
    }

    /// The channel of a session in a direction.
    fn channel(&self, session: &str, direction: Direction) -> Option<ChannelId> {
        let net = self.net();
        let mut open = net.open.iter();
        let found = open.find(|(_, one)| one.0.as_str() == session && one.2 == direction);
        found.map(|(channel, _)| *channel)
    }
}

/// The test's hand on a network.
#[derive(Clone, Debug, Default)]
pub(super) struct Hand(Arc<Mutex<Vec<End>>>);

impl Hand {
    fn ends(&self) -> Vec<End> {
        self.0.lock().unwrap().clone()
    }

    fn mediator(&self) -> End {
        let mut ends = self.ends().into_iter();
        ends.find(|end| end.role == Role::Mediator).unwrap()
    }

    /// The end that has a channel of the session, and the channel.
    fn carries(&self, session: &str, direction: Direction) -> Option<(End, ChannelId)> {
        let session = SessionName::parse(session).unwrap();
        let mut ends = self.ends().into_iter();
        ends.find_map(|end| {
            let channel = end.channel(session.as_str(), direction)?;
            Some((end, channel))
        })
    }

    /// Opens one end of the network.
    pub(super) fn open(&self, role: Role) -> Box<dyn Network> {
        let end = End {
            role,
            net: Arc::default(),
            waker: Waker::new().unwrap(),
        };
        self.0.lock().unwrap().push(end.clone());
        Box::new(end)
    }

    /// A client requests a session.
    pub(super) fn join(&self, client: u64, session: &str) {
        let mediator = self.mediator();
        mediator
            .net()
            .upcalls
            .push_back(Upcall::Join(bfed::ClientRequest::new(
                ClientId(client),
                SessionName::parse(session).unwrap(),
            )));
        mediator.waker.wake();
    }

    /// The answer to a client.
    pub(super) fn answer(&self, client: u64) -> Option<Answer> {
        let mediator = self.mediator();
        let net = mediator.net();
        let mut answers = net.answers.iter();
        let found = answers.find(|(to, _)| *to == Some(ClientId(client)));
        found.map(|(_, answer)| answer.answer.clone())
    }

    /// The source of a session sends frames; returns false if no data node is subscribed.
    pub(super) fn send(&self, session: &str, frames: impl IntoIterator<Item = Vec<u8>>) -> bool {
        let Some((end, channel)) = self.carries(session, Direction::Up) else {
            return false;
        };
        let mut net = end.net();
        let subscribed = net.open.get(&channel).is_some_and(|one| one.3.is_some());
        if subscribed {
            let frames = frames.into_iter().map(|frame| (channel, frame));
            net.incoming.extend(frames);
            end.waker.wake();
        }
        subscribed
    }

    /// What clients of a session got.
    pub(super) fn got(&self, session: &str) -> Vec<Vec<u8>> {
        let Some((end, channel)) = self.carries(session, Direction::Down) else {
            return Vec::new();
        };
        let net = end.net();
        let sent = net.sent.iter().filter(|(to, _)| *to == channel);
        sent.map(|(_, frame)| frame.clone()).collect()
    }

    /// Clients take data, or none.
    pub(super) fn set_busy(&self, busy: bool) {
        for end in self.ends() {
            end.net().busy = busy;
            end.waker.wake();
        }
    }
}

impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

impl NativeNet for End {
    fn allocate_channel(
        &mut self,
        now: Instant,
        flow: NativeFlow<'_>,
    ) -> Result<(ChannelId, Vec<u8>), NativeError> {
        self.net().allocate_channel(now, flow)
    }

    fn subscribe(
        &mut self,
        now: Instant,
        flow: NativeFlow<'_>,
        channel: ChannelId,
        address: Option<&[u8]>,
    ) -> Result<(), NativeError> {
        self.net().subscribe(now, flow, channel, address)
    }

    fn reclaim_channel(&mut self, now: Instant, flow: NativeFlow<'_>, channel: ChannelId) {
        self.net().reclaim_channel(now, flow, channel);
    }

    fn send_data(&mut self, now: Instant, id: ChannelId, data: &[u8]) -> Result<(), NativeError> {
        self.net().send_data(now, id, data)
    }

    fn answer(&mut self, now: Instant, client: Option<ClientId>, answer: &AnswerRepr) {
        self.net().answer(now, client, answer);
    }

    fn poll_upcall(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Upcall> {
        let mut net = self.net();
        let upcall = net.poll_upcall(now, buffer);
        if upcall.is_none() {
            self.waker.reset();
        }
        upcall
    }
}

impl Network for End {
    fn set_paused(&mut self, channel: ChannelId, paused: bool) {
        match paused {
            true => self.net().paused.insert(channel),
            false => self.net().paused.remove(&channel),
        };
        self.waker.wake();
    }

    fn poll_writable(&mut self) -> Option<ChannelId> {
        let mut net = self.net();
        if net.busy {
            None
        } else {
            net.refused.pop_first()
        }
    }

    fn counters(&self) -> Vec<Counter> {
        vec![("fakes", 1)]
    }
}
