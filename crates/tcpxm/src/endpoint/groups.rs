//! Groups: opening, handshakes, modes.

use alloc::vec::Vec;
use core::net::IpAddr;

use proto_core::time::{Duration, Instant};

use super::Endpoint;
use super::secrets::{random_group, random_port};
use crate::config::{Carrier, GroupChoice, GroupConfig, GroupMode};
use crate::error::{CommandError, Failure};
use crate::event::{ConnId, GroupId, Report};
use crate::group::{Buffer, Flow, GroupState, Mode, RATE_SAMPLE, Session, Watch};
use crate::pcb::{Key, NewConnection, Note, Pcb, Role, State};
use crate::seq::Seq;
use crate::store::Store;
use crate::wire::{Tag, is_group};

impl<S: Store> Endpoint<S> {
    /// Opens a connection to each receiver of a group, and sends all of them the contents of the store and
    /// whatever is written to it later with [`Endpoint::send`] (TCP-XM §2.1, steps 1 to 5).
    ///
    /// Receivers send acknowledgements and their end of the stream, and no data: that is dropped, and
    /// counted as [`Error::GroupData`](crate::Error::GroupData).
    ///
    /// # Errors
    ///
    /// [`CommandError::Address`] for receivers or a group that cannot be, [`CommandError::Limit`]
    /// for no receivers or too many, [`CommandError::PortInUse`].
    pub fn open_group(
        &mut self,
        now: Instant,
        group: &GroupConfig,
        store: S,
    ) -> Result<GroupId, CommandError> {
        let now = self.advance(now);
        let ipv4 = self.check_group(group)?;
        let local_port = self.group_port(group)?;
        let offered = match (group.mode, group.group) {
            (GroupMode::Unicast, _) => None,
            (_, GroupChoice::Given(address)) => Some(address),
            (_, choice) => {
                let source_specific = choice == GroupChoice::RandomSourceSpecific;
                Some(random_group(&mut self.rng, ipv4, source_specific))
            }
        };
        let generation = self.next_generation();
        let start = Mode::start(group.mode);
        let receivers = group.receivers.len();
        let iss = Seq(rand_core::Rng::next_u32(&mut self.rng));
        let key = Self::remote_key(local_port, group.receivers[0], group.port);
        let rate = group.max_rate_bps.or(self.config.max_rate_bps);
        let mut new = Session::new(generation, Buffer::Given(store), rate);
        new.group = Some(GroupState {
            start,
            sender: (key, group.local.ip(), iss),
            offered,
            signer: group.key.map(|key| key.signer()),
            max_alternatives: group.max_alternatives,
            alternative_ranges: group.alternative_ranges.clone(),
            min_receivers: group.min_receivers.max(1),
            waiting: receivers,
            open: receivers,
            ready: false,
            min_rate_bps: group.min_rate_bps,
            watch: None,
            ready_due: false,
            writable_due: false,
            closed: Report::default(),
        });
        let session = self.sessions.insert(new);
        self.open_flows(session, group);
        self.open_members(now, session, group);
        Ok(GroupId {
            index: session,
            generation,
        })
    }

    fn check_group(&self, group: &GroupConfig) -> Result<bool, CommandError> {
        let first = group.receivers.first().ok_or(CommandError::Limit)?;
        let ipv4 = first.is_ipv4();
        let unusable = |address: &IpAddr| {
            address.is_ipv4() != ipv4 || address.is_unspecified() || address.is_multicast()
        };
        if group.receivers.iter().any(unusable) {
            return Err(CommandError::Address);
        }
        let mut sorted = group.receivers.clone();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(CommandError::Address);
        }
        if let GroupChoice::Given(address) = group.group
            && (!is_group(address) || address.is_ipv4() != ipv4)
        {
            return Err(CommandError::Address);
        }
        let needs_local = self.config.carrier == Carrier::Ip && group.local.ip().is_unspecified();
        if needs_local || group.local.ip().is_multicast() {
            return Err(CommandError::Address);
        }
        if self.pcbs.len() + group.receivers.len() > self.config.max_connections {
            return Err(CommandError::Limit);
        }
        Ok(ipv4)
    }

    /// The sender's port, shared by all members.
    fn group_port(&mut self, group: &GroupConfig) -> Result<u16, CommandError> {
        let free = |this: &Self, port: u16| {
            let used = |remote: &IpAddr| {
                this.keys
                    .contains_key(&Self::remote_key(port, *remote, group.port))
            };
            !this.listeners.contains_key(&port) && !group.receivers.iter().any(used)
        };
        if group.local.port() != 0 {
            let port = group.local.port();
            return free(self, port)
                .then_some(port)
                .ok_or(CommandError::PortInUse);
        }
        for _ in 0..64 {
            let port = random_port(&mut self.rng);
            if free(self, port) {
                return Ok(port);
            }
        }
        Err(CommandError::PortInUse)
    }

    pub(super) const fn remote_key(local_port: u16, remote: IpAddr, remote_port: u16) -> Key {
        Key {
            local_port,
            remote,
            remote_port,
            outer_port: remote_port,
        }
    }

    /// One flow for receivers in step, or one for each (`UnicastOnly`).
    fn open_flows(&mut self, session: u32, group: &GroupConfig) {
        let stamp_base = rand_core::Rng::next_u32(&mut self.rng);
        let count = match group.mode {
            GroupMode::Unicast => group.receivers.len(),
            GroupMode::Auto | GroupMode::Multicast => 1,
        };
        let payload = self.config.mss(group.receivers[0]);
        let nagle = self.config.nagle;
        let Some(session) = self.sessions.get_mut(session) else {
            return;
        };
        for first in 0..count {
            let mut flow = Flow::new(payload, stamp_base, nagle);
            flow.first = first as u32;
            session.flows.push(flow);
        }
        session.refresh_unsent();
    }

    /// TCP-XM §2.1, steps 3 to 5: one control block and one handshake for each receiver. Ports and initial
    /// sequence number are the same for all, so that one multicast segment fits all.
    fn open_members(&mut self, now: Instant, session: u32, group: &GroupConfig) {
        self.pcbs.reserve(group.receivers.len());
        for (member, &remote) in group.receivers.iter().enumerate() {
            let generation = self.next_generation();
            let Some(session_ref) = self.sessions.get_mut(session) else {
                return;
            };
            let flow = if session_ref.flows.len() > 1 {
                member
            } else {
                0
            };
            let Some(state) = &session_ref.group else {
                return;
            };
            let (shared, local, iss) = state.sender;
            let new = NewConnection {
                key: Key { remote, ..shared },
                local,
                generation,
                session,
                flow: flow as u32,
                member: member as u32,
                iss,
                mode: state.start,
                offered_group: state.offered,
                signer: state.signer.clone(),
                role: Role::GroupSender,
            };
            let mut pcb = Pcb::connect(&self.config, new, now);
            pcb.apply(group, now);
            session_ref.flows[flow].members += 1;
            let key = pcb.key;
            let index = self.pcbs.insert(pcb);
            session_ref.add_member(index);
            self.keys.insert(key, index);
            self.stats.opened += 1;
            self.sync(index);
        }
    }

    /// Once a block is synchronised, its flow counts on it; and its group's answer decides its mode.
    pub(super) fn settle_handshake(&mut self, index: u32) {
        let Some((pcb, flow, _)) = self.parts(index) else {
            return;
        };
        if !pcb.state().is_synchronized() || !pcb.handshake.settle() {
            return;
        }
        let session = pcb.slot.session;
        flow.payload = flow.payload.min(pcb.max_payload());
        flow.headers = flow.headers.max(pcb.headers());
        let in_group = self
            .sessions
            .get(session)
            .is_some_and(|session| session.group.is_some());
        if in_group {
            self.settle_member(index);
            return;
        }
        if let Some((pcb, flow, _)) = self.parts(index) {
            flow.unicast.push(index);
            if pcb.handshake.is_passive() {
                let id = ConnId {
                    index,
                    generation: pcb.generation,
                };
                let port = pcb.key.local_port;
                self.half_open_count -= 1;
                if let Some(listener) = self.listeners.get_mut(&port) {
                    listener.complete.push_back(id);
                }
            }
        }
    }

    fn settle_member(&mut self, index: u32) {
        let our_mss = self.pcbs.get(index).map(|pcb| pcb.limits.our_mss);
        let Some(pcb) = self.pcbs.get_mut(index) else {
            return;
        };
        let session_index = pcb.slot.session;
        let Some(session) = self.sessions.get_mut(session_index) else {
            return;
        };
        let (flows, Some(group)) = (&mut session.flows, &mut session.group) else {
            return;
        };
        let flow = &mut flows[pcb.slot.flow as usize];
        group.waiting -= 1;
        let served = pcb.multicast.group.is_some_and(|answer| {
            answer.is_ipv4() == pcb.key.remote.is_ipv4() && group.may_serve(answer, &flow.groups)
        });
        self.stats.alternatives_refused += u64::from(pcb.multicast.group.is_some() && !served);
        match pcb
            .multicast
            .mode
            .after_syn_ack(pcb.multicast.group, served)
        {
            Ok(mode) => {
                let changed = mode != pcb.multicast.mode;
                pcb.multicast.mode = mode;
                if changed {
                    pcb.note(Note::Mode);
                }
                if !mode.multicasts() {
                    pcb.multicast.group = None;
                }
                if let Some(address) = pcb.multicast.group {
                    flow.add_listener(address);
                    // Group segments always carry timestamps, and with a key a tag.
                    let tag = group.signer.as_ref().map_or(0, |_| Tag::LEN as u16);
                    let most = our_mss.unwrap_or(u16::MAX).saturating_sub(12 + tag);
                    flow.payload = flow.payload.min(most);
                }
                if mode.unicasts() {
                    flow.unicast.push(index);
                }
            }
            Err(failure) => pcb.abort(failure),
        }
        self.check_ready(session_index);
    }

    /// Checks whether all receivers have answered or have failed.
    pub(super) fn check_ready(&mut self, session: u32) {
        let Some(session_ref) = self.sessions.get_mut(session) else {
            return;
        };
        let Some(group) = &mut session_ref.group else {
            return;
        };
        if group.ready || group.waiting > 0 {
            return;
        }
        group.ready = true;
        if group.open < group.min_receivers {
            let members: Vec<u32> = session_ref.members.iter().flatten().copied().collect();
            for index in members {
                if let Some(pcb) = self.pcbs.get_mut(index)
                    && pcb.state() != State::Closed
                {
                    pcb.abort(Failure::TooFew);
                    self.sync(index);
                }
            }
            return;
        }
        group.ready_due = true;
        self.groups_with_events.push_back(session);
        if group.min_rate_bps.is_some() {
            let now = self.now;
            group.watch = Some(Watch::begin(now, 0));
            self.set_session_timer(session, now + RATE_SAMPLE);
        }
    }

    /// Puts a receiver into another mode and the flow's lists in line with it.
    pub(super) fn set_mode(&mut self, index: u32, mode: Mode) {
        let Some((pcb, flow, _)) = self.parts(index) else {
            return;
        };
        let old = core::mem::replace(&mut pcb.multicast.mode, mode);
        pcb.note(Note::Mode);
        if old.unicasts() && !mode.unicasts() {
            flow.remove_unicast(index);
        } else if !old.unicasts() && mode.unicasts() {
            flow.unicast.push(index);
        }
        if let Some(group) = pcb.multicast.group
            && old.multicasts()
            && !mode.multicasts()
        {
            flow.remove_listener(group);
            pcb.multicast.group = None;
        }
    }

    /// Returns the pace at which new data is spread over a round trip: faster than the window allows, so that
    /// pacing is never the limit.
    pub(super) fn spread_rate(pcb: &Pcb) -> u64 {
        let smoothed = pcb.send.rtt.smoothed().unwrap_or(Duration::ZERO);
        let us = smoothed.total_micros();
        if us == 0 {
            return 0;
        }
        let percent = if pcb.send.cc.in_slow_start() {
            200
        } else {
            125
        };
        pcb.send
            .cc
            .window()
            .saturating_mul(8_000_000 / 100 * percent)
            / us
    }

    /// Returns the store of a group, for operations of its own type. [`Endpoint::store_grew`] must follow when
    /// bytes were added. Data that the machine has not released must not be removed.
    ///
    /// # Errors
    ///
    /// [`CommandError::Unknown`].
    pub fn store_mut(&mut self, group: GroupId) -> Result<&mut S, CommandError> {
        let index = self.session_of(group.into())?;
        let session = self.sessions.get_mut(index);
        match session.map(|session| &mut session.store) {
            Some(Buffer::Given(store)) => Ok(store),
            _ => Err(CommandError::Unknown),
        }
    }

    /// Reports that a group's store has grown by other means than [`Endpoint::send`], such as a file that grew.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::send`].
    pub fn store_grew(&mut self, now: Instant, group: GroupId) -> Result<(), CommandError> {
        self.send(now, group, &[]).map(|_| ())
    }
}
