//! A native network in memory: it records a gateway's requests, and checks that channels are used in order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bfed::native::{ChannelId, Direction, NativeError, NativeFlow, Upcall};
use bfed::wire::client::AnswerRepr;
use bfed::wire::data::HEADER_LEN;
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
    /// Channels whose frames were not taken.
    pub refused: BTreeSet<ChannelId>,
    /// Channels that are not read.
    pub paused: BTreeSet<ChannelId>,
    /// Knows no session.
    pub missing: bool,
    /// Refreshes of channels.
    pub refreshes: usize,
    /// Upcalls to make, except for data.
    pub upcalls: VecDeque<Upcall>,
    /// Data to hand over, after the upcalls.
    pub incoming: VecDeque<(ChannelId, Vec<u8>)>,
    /// Answers to clients; `None` for all clients.
    pub answers: Vec<(Option<ClientId>, AnswerRepr)>,
}

impl Default for FakeNative {
    fn default() -> Self {
        FakeNative {
            pool: 1000,
            next: 0,
            open: BTreeMap::new(),
            sent: Vec::new(),
            busy: false,
            refused: BTreeSet::new(),
            paused: BTreeSet::new(),
            missing: false,
            refreshes: 0,
            upcalls: VecDeque::new(),
            incoming: VecDeque::new(),
            answers: Vec::new(),
        }
    }
}

impl NativeNet for FakeNative {
    fn allocate_channel(
        &mut self,
        _: Instant,
        flow: NativeFlow<'_>,
    ) -> Result<(ChannelId, Vec<u8>), NativeError> {
        if self.missing && flow.direction == Direction::Up {
            return Err(NativeError::NoSession);
        }
        if self.open.len() as u64 >= self.pool {
            return Err(NativeError::Full);
        }
        self.next += 1;
        let channel = ChannelId(self.next);
        let opened = (flow.session.clone(), flow.name.into(), flow.direction, None);
        self.open.insert(channel, opened);
        Ok((channel, format!("239.0.0.{}", self.next).into_bytes()))
    }

    fn subscribe(
        &mut self,
        _: Instant,
        _: NativeFlow<'_>,
        channel: ChannelId,
        address: Option<&[u8]>,
    ) -> Result<(), NativeError> {
        let open = self.open.get_mut(&channel).expect("an open channel");
        open.3 = Some(address.unwrap_or(b"own").to_vec());
        Ok(())
    }

    fn refresh(&mut self, _: Instant, _: NativeFlow<'_>, channel: ChannelId) {
        assert!(self.open.contains_key(&channel), "an open channel");
        self.refreshes += 1;
    }

    fn unsubscribe(&mut self, _: Instant, _: NativeFlow<'_>, channel: ChannelId) {
        assert!(self.open.contains_key(&channel));
    }

    fn reclaim_channel(&mut self, _: Instant, _: NativeFlow<'_>, channel: ChannelId) {
        self.open.remove(&channel).expect("reclaimed once");
    }

    fn send_data(&mut self, _: Instant, id: ChannelId, data: &[u8]) -> Result<(), NativeError> {
        if self.busy {
            self.refused.insert(id);
            return Err(NativeError::Busy);
        }
        self.sent.push((id, data.to_vec()));
        Ok(())
    }

    fn answer(&mut self, _: Instant, client: Option<ClientId>, answer: &AnswerRepr) {
        self.answers.push((client, answer.clone()));
    }

    fn poll_upcall(&mut self, _: Instant, buffer: &mut [u8]) -> Option<Upcall> {
        if let Some(upcall) = self.upcalls.pop_front() {
            return Some(upcall);
        }
        let mut incoming = self.incoming.iter();
        let at = incoming.position(|(channel, _)| !self.paused.contains(channel))?;
        let (channel, data) = self.incoming.remove(at)?;
        let len = data.len();
        buffer[HEADER_LEN..HEADER_LEN + len].copy_from_slice(&data);
        Some(Upcall::Data { channel, len })
    }
}
