//! A native network that records what a gateway asks of it, and checks that channels are used in order.

use std::collections::{BTreeMap, VecDeque};

use bfed::native::{ChannelId, Direction, NativeError, Upcall};
use bfed::wire::client::AnswerRepr;
use bfed::{ClientId, Instant, NativeNet, SessionName};

/// Session, flow and direction of a channel, and the address that it listens to.
pub type Channel = (SessionName, String, Direction, Option<Vec<u8>>);

/// A native network with `pool` channels.
#[derive(Debug)]
pub struct FakeNative {
    /// Most channels.
    pub pool: u64,
    next: u64,
    /// Open channels.
    pub open: BTreeMap<ChannelId, Channel>,
    /// Frames sent, with their channels.
    pub sent: Vec<(ChannelId, Vec<u8>)>,
    /// Takes no frames.
    pub busy: bool,
    /// Knows no session.
    pub missing: bool,
    /// Refreshes of channels.
    pub refreshes: usize,
    /// Upcalls to make.
    pub upcalls: VecDeque<Upcall>,
    /// Answers to clients.
    pub answers: Vec<AnswerRepr>,
}

impl Default for FakeNative {
    fn default() -> Self {
        FakeNative {
            pool: 1000,
            next: 0,
            open: BTreeMap::new(),
            sent: Vec::new(),
            busy: false,
            missing: false,
            refreshes: 0,
            upcalls: VecDeque::new(),
            answers: Vec::new(),
        }
    }
}

impl NativeNet for FakeNative {
    fn allocate_channel(
        &mut self,
        _: Instant,
        session: &SessionName,
        flow: &str,
        direction: Direction,
    ) -> Result<(ChannelId, Vec<u8>), NativeError> {
        if self.missing && direction == Direction::Up {
            return Err(NativeError::NoSession);
        }
        if self.open.len() as u64 >= self.pool {
            return Err(NativeError::Full);
        }
        self.next += 1;
        let channel = ChannelId(self.next);
        self.open
            .insert(channel, (session.clone(), flow.into(), direction, None));
        Ok((channel, format!("239.0.0.{}", self.next).into_bytes()))
    }

    fn subscribe(
        &mut self,
        _: Instant,
        _: &SessionName,
        _: &str,
        _: Direction,
        channel: ChannelId,
        address: Option<&[u8]>,
    ) -> Result<(), NativeError> {
        let open = self.open.get_mut(&channel).expect("an open channel");
        open.3 = Some(address.unwrap_or(b"own").to_vec());
        Ok(())
    }

    fn refresh(&mut self, _: Instant, _: &SessionName, _: &str, _: Direction, c: ChannelId) {
        assert!(self.open.contains_key(&c), "an open channel");
        self.refreshes += 1;
    }

    fn unsubscribe(&mut self, _: Instant, _: &SessionName, _: &str, _: Direction, c: ChannelId) {
        assert!(self.open.contains_key(&c));
    }

    fn reclaim_channel(
        &mut self,
        _: Instant,
        _: &SessionName,
        _: &str,
        _: Direction,
        channel: ChannelId,
    ) {
        self.open.remove(&channel).expect("reclaimed once");
    }

    fn send_data(
        &mut self,
        _: Instant,
        channel: ChannelId,
        data: &[u8],
    ) -> Result<(), NativeError> {
        if self.busy {
            return Err(NativeError::Busy);
        }
        self.sent.push((channel, data.to_vec()));
        Ok(())
    }

    fn answer(&mut self, _: Instant, _: Option<ClientId>, answer: &AnswerRepr) {
        self.answers.push(answer.clone());
    }

    fn poll_upcall(&mut self, _: Instant, _: &mut [u8]) -> Option<Upcall> {
        self.upcalls.pop_front()
    }
}
