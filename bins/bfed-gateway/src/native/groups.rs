//! The data side of IP multicast networks, of any source and of one: channels are groups.
//!
//! | channel | its address |
//! | --- | --- |
//! | of a session from elsewhere | a group of this data node's part of the pool; with this host as its source where networks are source-specific |
//! | of a session of this network | what its name says: `bfed://NETWORK/239.1.2.3/5004`, `bfed://NETWORK/10.0.0.1@232.1.2.3/5004` |
//! | of a session that comes through another gateway of this network | what that gateway's TRANSLATION says |

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use bfed::native::{ChannelId, Direction, NativeError, NativeFlow, Upcall};
use bfed::{Instant, NativeNet, Prefix, SessionName};
use bfed_client::GroupAddress;

use super::announce::Presenter;
use super::clients::ClientLimits;
use super::datagrams::{Channels, Link};
use super::listing::MAX_LISTED;
use super::pool::{Groups, Pool};
use super::{Counter, Network, Owner, PresentedFlow, Role, SapConfig};

/// Configuration of the data side of a network of groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupsConfig {
    /// Socket options.
    pub link: Link,
    /// The pool of groups, shared by the data nodes of this process alone.
    pub groups: Groups,
    /// The UDP port of channels in groups of the pool.
    pub port: u16,
    /// Groups of this network that its sessions may be in; peers can have no others.
    pub export: Vec<Prefix>,
}

/// Configuration of a multicast network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MulticastConfig {
    /// The data side.
    pub data: GroupsConfig,
    /// The mediator: its group, or where it listens in a source-specific network.
    pub mediator: SocketAddr,
    /// Announcements by SAP.
    pub sap: SapConfig,
    /// Bounds of the mediator.
    pub limits: ClientLimits,
    /// Cost of this gateway for sessions of this network, from their root on; `None`: not told.
    pub cost: Option<u32>,
}

/// A network of groups, for a data node.
#[derive(Debug)]
pub(super) struct GroupNet {
    channels: Channels,
    pool: Pool,
    config: GroupsConfig,
    /// Announces sessions from elsewhere, where that is configured.
    presenter: Option<Presenter>,
    /// Flows of sessions from elsewhere, by their numbers.
    presented: BTreeMap<ChannelId, (SessionName, usize)>,
    /// Whether groups are source-specific.
    specific: bool,
    /// The mediator's group, which no session may use.
    reserved: Option<SocketAddr>,
    /// Sessions that peers asked for and whose groups are not exported or not available.
    refused: u64,
}

/// Returns the group that a session of this network is sent to; `None` if its name is no group's, or that
/// of a group that gateways use themselves or that is not exported.
pub(super) fn own_group(
    session: &SessionName,
    flow: &str,
    specific: bool,
    config: &GroupsConfig,
    reserved: Option<SocketAddr>,
) -> Option<GroupAddress> {
    let groups = &config.groups;
    let address = GroupAddress::of_session(&session.native_bytes(), flow).ok()?;
    let group = address.group;
    let taken = !specific && groups.contains(group.ip());
    let fits = address.source.is_some() == specific && group.is_ipv4() == groups.is_ipv4();
    let mediator = reserved.is_some_and(|reserved| reserved.ip() == group.ip());
    let exported = config
        .export
        .iter()
        .any(|prefix| prefix.contains(group.ip()));
    (fits && !taken && !mediator && exported).then_some(address)
}

impl GroupNet {
    pub(super) fn open(
        config: &MulticastConfig,
        role: Role,
        specific: bool,
        owner: &Owner,
    ) -> Result<Self, String> {
        // The mediator's group, where it has one.
        let reserved = (!specific).then_some(config.mediator);
        let (announces, config) = (config.sap.announce, &config.data);
        let (part, parts) = match role {
            Role::Channels { part, parts } => (part, parts),
            Role::Mediator => (0, 1),
        };
        let first = config.groups.first();
        let presenter = announces.then(|| {
            let start = (owner.seed, owner.now);
            Presenter::open(&config.link, first, role, specific, start)
        });
        Ok(GroupNet {
            channels: Channels::open(&config.link, first)?,
            presenter: presenter.transpose()?,
            presented: BTreeMap::new(),
            pool: Pool::new(config.groups, part, parts),
            config: config.clone(),
            specific,
            reserved,
            refused: 0,
        })
    }

    fn address(&self, group: SocketAddr) -> GroupAddress {
        let source = self.specific.then(|| self.channels.address());
        GroupAddress { source, group }
    }
}

impl AsFd for GroupNet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channels.as_fd()
    }
}

impl NativeNet for GroupNet {
    fn allocate_channel(
        &mut self,
        now: Instant,
        flow: NativeFlow<'_>,
    ) -> Result<(ChannelId, Vec<u8>), NativeError> {
        if flow.direction == Direction::Up {
            // `subscribe` names the group.
            return Ok((self.channels.add(flow.session, None), Vec::new()));
        }
        if self.specific && flow.session.multi_source() {
            // Only this gateway could send there (§5.1).
            return Err(NativeError::Refused);
        }
        let group = self.pool.take().ok_or(NativeError::Full)?;
        let group = SocketAddr::new(group, self.config.port);
        let address = self.address(group).to_string().into_bytes();
        if let Some(presenter) = &mut self.presenter {
            presenter.add(now, flow, group);
        }
        let channel = self.channels.add(flow.session, Some(group));
        if let Some(at) = flow.session.flows().position(|name| name == flow.name) {
            self.presented.insert(channel, (flow.session.clone(), at));
        }
        Ok((channel, address))
    }

    fn subscribe(
        &mut self,
        _: Instant,
        flow: NativeFlow<'_>,
        channel: ChannelId,
        address: Option<&[u8]>,
    ) -> Result<(), NativeError> {
        let address = match (address, self.channels.destination(channel)) {
            (Some(text), _) => {
                let text = core::str::from_utf8(text).ok();
                let parsed = text.and_then(|text| text.parse::<GroupAddress>().ok());
                parsed.filter(|address| address.source.is_some() == self.specific)
            }
            (None, Some(own)) => Some(self.address(own)),
            (None, None) => {
                let (config, reserved) = (&self.config, self.reserved);
                own_group(flow.session, flow.name, self.specific, config, reserved)
            }
        };
        let Some(address) = address else {
            self.refused += 1;
            return Err(NativeError::NoSession);
        };
        self.channels.listen(channel, &address)
    }

    // The kernel refreshes memberships (§5.4).

    fn unsubscribe(&mut self, _: Instant, _: NativeFlow<'_>, channel: ChannelId) {
        self.channels.silence(channel);
    }

    fn reclaim_channel(&mut self, now: Instant, flow: NativeFlow<'_>, channel: ChannelId) {
        self.presented.remove(&channel);
        let group = self.channels.remove(channel);
        if let Some(group) = group.filter(|_| flow.direction == Direction::Down) {
            self.pool.give_back(group.ip());
            if let Some(presenter) = &mut self.presenter {
                presenter.remove(now, flow);
            }
        }
    }

    fn send_data(&mut self, _: Instant, id: ChannelId, data: &[u8]) -> Result<(), NativeError> {
        self.channels.send(id, data)
    }

    fn poll_upcall(&mut self, _: Instant, buffer: &mut [u8]) -> Option<Upcall> {
        self.channels.poll_data(buffer)
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Some(presenter) = &mut self.presenter {
            presenter.handle_timeout(now);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.presenter.as_ref().and_then(Presenter::poll_timeout)
    }
}

impl Network for GroupNet {
    fn set_paused(&mut self, channel: ChannelId, paused: bool) {
        self.channels.set_paused(channel, paused);
    }

    fn poll_writable(&mut self) -> Option<ChannelId> {
        self.channels.poll_writable()
    }

    fn flush(&mut self, _: Instant) {
        self.channels.flush();
    }

    fn counters(&self) -> Vec<Counter> {
        let mut counters = self.channels.counters();
        counters.push(("sessions_refused", self.refused));
        counters.extend(self.presenter.iter().flat_map(Presenter::counters));
        counters
    }

    fn gauges(&self) -> Vec<Counter> {
        vec![("channels", self.channels.len() as u64)]
    }

    fn presented(&self) -> Vec<PresentedFlow> {
        let all = self.presented.iter().take(MAX_LISTED + 1);
        all.filter_map(|(channel, (session, flow))| {
            let address = self.address(self.channels.destination(*channel)?);
            Some(PresentedFlow {
                session: session.clone(),
                flow: *flow,
                address: address.to_string(),
                mime: None,
                readers: None,
                viewers: None,
            })
        })
        .collect()
    }
}
