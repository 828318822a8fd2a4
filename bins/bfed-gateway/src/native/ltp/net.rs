//! The data side: channels are LTP sessions of groups.
//!
//! | channel | its address |
//! | --- | --- |
//! | of a session from elsewhere | a group of this data node's part of the pool, with this host as its source |
//! | of a session of this network | what its name says: `bfed://NETWORK/239.1.2.3/5004`, `bfed://NETWORK/10.0.0.1@239.1.2.3/5004` |
//! | of a session that comes through another gateway of this network | what that gateway's TRANSLATION says |

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use bfed::native::{ChannelId, Direction, NativeError, NativeFlow, Upcall};
use bfed::wire::data::HEADER_LEN;
use bfed::{Content, Duration, Instant, NativeNet, SessionName};
use bfed_client::{GroupAddress, Place, is_numbered};
use linux_net::poll::Set;
use ltp_linux::{Group, ReceiveConfig, SendConfig};

use super::LtpConfig;
use super::egress::{Context, Egress};
use super::ingress::{Ingress, Task};
use super::shared::Shared;
use crate::native::announce::parameter;
use crate::native::groups::own_group;
use crate::native::listing::MAX_LISTED;
use crate::native::pool::Pool;
use crate::native::{Access, Counter, Network, Owner, PresentedFlow, Role};

/// Key of the waker; channels have lower numbers.
const WAKER: u64 = u64::MAX;
/// Time between looks at contents without data, and at those that wait to begin.
const LOOK: Duration = Duration::from_secs(1);
/// Time that LTP sessions have to tell their peers that the gateway ends.
const LEAVE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(1);
/// Longest name of a content (LTP).
const MAX_NAME: usize = 255;

/// A channel into this network.
#[derive(Debug)]
struct Down {
    egress: Egress,
    group: IpAddr,
    session: SessionName,
    flow: usize,
    /// The data node has given it back; its LTP session ends.
    is_reclaimed: bool,
}

/// An LTP network, for a data node.
#[derive(Debug)]
pub(super) struct LtpNet {
    config: LtpConfig,
    key: Option<[u8; 32]>,
    /// This host's address in the network.
    address: IpAddr,
    access: Arc<Access>,
    shared: Arc<Shared>,
    set: Set,
    pool: Pool,
    down: BTreeMap<ChannelId, Down>,
    /// Channels from this network; those that receive have an [`Ingress`].
    up: BTreeMap<ChannelId, Option<Ingress>>,
    next: u64,
    writable: Vec<ChannelId>,
    now: Instant,
    /// When to look at contents without data.
    look_at: Option<Instant>,
    refused: u64,
    full: u64,
    /// Frames skipped by channels that are gone.
    skipped: u64,
}

impl LtpNet {
    pub(super) fn open(config: &LtpConfig, role: Role, owner: &Owner) -> Result<Self, String> {
        let data = &config.multicast.data;
        let (part, parts) = match role {
            Role::Channels { part, parts } => (part, parts),
            Role::Mediator => (0, 1),
        };
        let first = data.groups.first();
        let io = |error: std::io::Error| error.to_string();
        let (set, shared) = (Set::new().map_err(io)?, Shared::new().map_err(io)?);
        set.add(shared.waker.as_fd(), WAKER, true, false)
            .map_err(io)?;
        Ok(LtpNet {
            key: config.key()?,
            address: data.link.local(first)?.address,
            config: config.clone(),
            access: Arc::clone(&owner.access),
            shared,
            set,
            pool: Pool::new(data.groups, part, parts),
            down: BTreeMap::new(),
            up: BTreeMap::new(),
            next: 0,
            writable: Vec::new(),
            now: owner.now,
            look_at: None,
            refused: 0,
            full: 0,
            skipped: 0,
        })
    }

    fn id(&mut self) -> ChannelId {
        self.next += 1;
        ChannelId(self.next)
    }

    fn group(&self, address: SocketAddr) -> Group {
        let link = &self.config.multicast.data.link;
        let mut group = Group::new(address);
        group.interface.clone_from(&link.interface);
        group.local_address = Some(self.address);
        group.ttl = link.ttl;
        group.key = self.key;
        group
    }

    /// Returns what a sender for a session does.
    fn sending(&self, group: SocketAddr, session: &SessionName) -> Result<SendConfig, String> {
        let given = &self.config;
        let mut config = SendConfig::new(self.group(group));
        config.recovery = given.assist.recovery(group, given.lms_port)?;
        config.rate = given.rate;
        config.receivers = (given.receivers > 0).then_some(given.receivers);
        config.connect_timeout = given.connect_timeout;
        config.timeout = given.timeout;
        config.buffer_bytes = given.buffer;
        config.name = parameter(session, "title").map(shortened);
        Ok(config)
    }

    /// Returns what a receiver for a session does.
    fn receiving(&self, address: &GroupAddress) -> Result<ReceiveConfig, String> {
        let given = &self.config;
        let mut config = ReceiveConfig::new(self.group(address.group));
        config.source = address.source;
        config.recovery = given.assist.recovery(address.group, given.lms_port)?;
        config.timeout = given.timeout;
        config.buffer_bytes = given.buffer;
        Ok(config)
    }

    /// Returns where a session is received.
    fn source_of(&self, flow: NativeFlow<'_>, address: Option<&[u8]>) -> Option<GroupAddress> {
        if let Some(text) = address {
            let place = core::str::from_utf8(text).ok()?.parse::<Place>();
            return match place {
                Ok(Place::Ltp(group)) => Some(group),
                _ => None,
            };
        }
        let (data, mediator) = (
            &self.config.multicast.data,
            Some(self.config.multicast.mediator),
        );
        let names_source = names_source(flow.session);
        own_group(flow.session, flow.name, names_source, data, mediator)
            // The pool is taken whether a source is named or not.
            .filter(|address| !data.groups.contains(address.group.ip()))
    }

    fn receive(
        &mut self,
        flow: NativeFlow<'_>,
        address: &GroupAddress,
        channel: ChannelId,
    ) -> Result<Ingress, NativeError> {
        let failed = |error: String| {
            let session = flow.session.as_str();
            tracing::warn!(event = "ltp_receive_failed", session, group = %address, error, "cannot receive a session of the LTP network");
            NativeError::Full
        };
        let config = self.receiving(address).map_err(failed)?;
        let Some(slot) = self.shared.slot(self.config.sessions) else {
            self.full += 1;
            return Err(NativeError::Full);
        };
        let task = Task {
            channel,
            session: flow.session.clone(),
            config,
            is_numbered: is_numbered(flow.session),
            access: Arc::clone(&self.access),
            shared: Arc::clone(&self.shared),
        };
        Ingress::start(task, slot).map_err(|error| failed(error.to_string()))
    }

    /// Acts on a channel into this network; notes it if it takes data again.
    fn with_egress(
        &mut self,
        channel: ChannelId,
        act: impl FnOnce(&mut Egress, &Context<'_>) -> bool,
    ) {
        let context = Context {
            now: self.now,
            set: &self.set,
            shared: &self.shared,
        };
        if let Some(down) = self.down.get_mut(&channel)
            && act(&mut down.egress, &context)
            && !down.is_reclaimed
        {
            self.writable.push(channel);
        }
        self.remove_ended(channel);
    }

    /// Lets channels into the network pass on what they have.
    fn drive(&mut self) {
        while let Some(channel) = self.shared.next_ended() {
            self.with_egress(channel, Egress::sender_ended);
        }
        let Ok(ready) = self.set.ready() else { return };
        for ready in ready.filter(|ready| ready.key != WAKER) {
            self.with_egress(ChannelId(ready.key), Egress::advance);
        }
    }

    /// Frees the group of a channel that was given back, once its LTP session has ended.
    fn remove_ended(&mut self, channel: ChannelId) {
        let is_over = |down: &&Down| down.is_reclaimed && down.egress.has_ended();
        if self.down.get(&channel).as_ref().is_some_and(is_over)
            && let Some(down) = self.down.remove(&channel)
        {
            self.skipped += down.egress.skipped_frames();
            self.pool.give_back(down.group);
        }
    }
}

/// Whether a session's name names its source: `10.0.0.1@239.1.2.3`.
pub(in crate::native) fn names_source(session: &SessionName) -> bool {
    session.native_bytes().contains(&b'@')
}

/// Returns the beginning of a name that LTP carries.
fn shortened(mut name: String) -> String {
    while name.len() > MAX_NAME {
        name.pop();
    }
    name
}

impl AsFd for LtpNet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

impl NativeNet for LtpNet {
    fn allocate_channel(
        &mut self,
        now: Instant,
        flow: NativeFlow<'_>,
    ) -> Result<(ChannelId, Vec<u8>), NativeError> {
        self.now = now;
        let session = flow.session;
        // LTP carries one source's bytes, all of them.
        if session.content() == Content::RealTime || session.multi_source() {
            self.refused += 1;
            return Err(NativeError::Refused);
        }
        if flow.direction == Direction::Up {
            // `subscribe` names the group.
            let channel = self.id();
            self.up.insert(channel, None);
            return Ok((channel, Vec::new()));
        }
        let Some(slot) = self.shared.slot(self.config.sessions) else {
            self.full += 1;
            return Err(NativeError::Full);
        };
        let group = self.pool.take().ok_or(NativeError::Full)?;
        let to = SocketAddr::new(group, self.config.multicast.data.port);
        let config = match self.sending(to, session) {
            Ok(config) => config,
            Err(error) => {
                let session = session.as_str();
                tracing::warn!(
                    event = "ltp_send_failed",
                    session,
                    error,
                    "cannot send a session into the LTP network"
                );
                self.pool.give_back(group);
                return Err(NativeError::Full);
            }
        };
        let channel = self.id();
        let numbered = is_numbered(session);
        let down = Down {
            egress: Egress::new(channel, session.as_str(), config, numbered, slot),
            group,
            session: session.clone(),
            flow: session
                .flows()
                .position(|name| name == flow.name)
                .unwrap_or(0),
            is_reclaimed: false,
        };
        self.down.insert(channel, down);
        self.look_at.get_or_insert(now + LOOK);
        let address = self.place(to).to_string();
        Ok((channel, address.into_bytes()))
    }

    fn subscribe(
        &mut self,
        now: Instant,
        flow: NativeFlow<'_>,
        channel: ChannelId,
        address: Option<&[u8]>,
    ) -> Result<(), NativeError> {
        self.now = now;
        match self.up.get(&channel) {
            Some(None) => {}
            Some(Some(_)) => return Ok(()),
            None => return Err(NativeError::Refused),
        }
        let Some(address) = self.source_of(flow, address) else {
            self.refused += 1;
            return Err(NativeError::NoSession);
        };
        let ingress = self.receive(flow, &address, channel)?;
        self.up.insert(channel, Some(ingress));
        Ok(())
    }

    fn unsubscribe(&mut self, _: Instant, _: NativeFlow<'_>, channel: ChannelId) {
        if let Some(ingress) = self.up.get_mut(&channel) {
            *ingress = None;
        }
    }

    fn reclaim_channel(&mut self, now: Instant, _: NativeFlow<'_>, channel: ChannelId) {
        self.now = now;
        self.up.remove(&channel);
        self.writable.retain(|writable| *writable != channel);
        if let Some(down) = self.down.get_mut(&channel) {
            down.is_reclaimed = true;
        }
        self.with_egress(channel, Egress::finish);
    }

    fn send_data(
        &mut self,
        now: Instant,
        channel: ChannelId,
        data: &[u8],
    ) -> Result<(), NativeError> {
        self.now = now;
        let context = Context {
            now,
            set: &self.set,
            shared: &self.shared,
        };
        let down = self.down.get_mut(&channel);
        let down = down.filter(|down| !down.is_reclaimed);
        down.ok_or(NativeError::Refused)?
            .egress
            .send(&context, data)
    }

    fn poll_upcall(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Upcall> {
        self.now = now;
        if let Some((channel, frame)) = self.shared.pop() {
            let len = frame.len();
            buffer[HEADER_LEN..HEADER_LEN + len].copy_from_slice(&frame);
            return Some(Upcall::Data { channel, len });
        }
        self.drive();
        self.shared.reset();
        None
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        if self.look_at.is_none_or(|at| at > now) {
            return;
        }
        self.look_at = (!self.down.is_empty()).then_some(now + LOOK);
        let limit = Duration::from_micros(self.config.idle_timeout.as_micros() as u64);
        let channels: Vec<ChannelId> = self.down.keys().copied().collect();
        for channel in channels {
            self.with_egress(channel, |egress, context| {
                egress.handle_timeout(context, limit)
            });
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.look_at
    }
}

impl LtpNet {
    fn place(&self, group: SocketAddr) -> Place {
        let source = Some(self.address);
        Place::Ltp(GroupAddress { source, group })
    }
}

impl Network for LtpNet {
    fn set_paused(&mut self, channel: ChannelId, paused: bool) {
        self.shared.set_paused(channel, paused);
    }

    fn poll_writable(&mut self) -> Option<ChannelId> {
        if self.writable.is_empty() {
            // Data from the network must not keep the other direction waiting.
            self.drive();
        }
        self.writable.pop()
    }

    fn counters(&self) -> Vec<Counter> {
        let down = self.down.values();
        let skipped: u64 = down.map(|down| down.egress.skipped_frames()).sum();
        let mut counters = self.shared.counts.list();
        counters.push(("frames_skipped", self.skipped + skipped));
        counters.push(("sessions_refused", self.refused));
        counters.push(("sessions_no_room", self.full));
        counters
    }

    fn gauges(&self) -> Vec<Counter> {
        let members = self.down.values().map(|down| down.egress.members() as u64);
        vec![
            ("channels", (self.down.len() + self.up.len()) as u64),
            ("readers", members.sum()),
            ("streams", self.shared.slots() as u64),
        ]
    }

    fn presented(&self) -> Vec<PresentedFlow> {
        let all = self.down.values().filter(|down| !down.is_reclaimed);
        let port = self.config.multicast.data.port;
        all.take(MAX_LISTED + 1)
            .map(|down| PresentedFlow {
                session: down.session.clone(),
                flow: down.flow,
                address: self.place(SocketAddr::new(down.group, port)).to_string(),
                mime: None,
                readers: Some(down.egress.members()),
                viewers: Some(down.egress.members()),
            })
            .collect()
    }
}

impl Drop for LtpNet {
    /// Tells the peers of all LTP sessions that the gateway ends.
    fn drop(&mut self) {
        self.up.clear();
        for down in self.down.values_mut() {
            down.egress.cancel();
        }
        self.shared.wait_for_threads(LEAVE_TIMEOUT);
        while let Some((_, down)) = self.down.pop_first() {
            // A sender that runs still must not take the end of its socket for the end of the content.
            if self.shared.has_threads() {
                std::mem::forget(down);
            }
        }
    }
}
