//! A relay: the active services of DyRAM at one node of the tree.
//!
//! | service | what the relay does | file |
//! | --- | --- | --- |
//! | DATA, CAST | updates the track list, detects gaps, forwards to all children | `data.rs` |
//! | NACK, ABSENT, ACK | collects losses, elects a replier, folds acknowledgements | `nack.rs` |
//! | STALLED | stops waiting for children that do not advance, and names them to the source | `stalled.rs` |
//! | REPAIR | forwards to the children that lost the packet | `repair.rs` |
//! | FEEDBACK | passes on that of the child with the lowest rank | `feedback.rs` |
//! | JOIN, JOINED, LEAVE, MOVE | maintains children and parent | `join.rs` |

mod answer;
mod data;
mod feedback;
mod join;
mod nack;
mod output;
mod repair;
mod stalled;
mod table;
mod targets;
mod timeouts;

use proto_core::Forward;
use proto_core::time::{Duration, Instant};

use crate::config::{Config, ConfigError};
use crate::event::Event;
use crate::secret::Secrets;
use crate::stats::{DropReason, Stats};
use crate::storage::Storage;
use crate::types::{Addr, RawKey};
use crate::wire::{Packet, Service, Stalled, Status};
use crate::{Meta, Seq, SessionKey, SocketAddr, Transmit};

pub(crate) use feedback::Feedbacks;
pub use nack::packets;
pub(crate) use table::SETS;
pub use table::{Child, NackState, Session};
use table::{Owner, Set, Tables, bits};
pub use targets::Targets;

/// Largest number of pending answers to JOINs; further JOINs are dropped.
const REPLIES: usize = 32;
/// Largest number of pending LEAVEs to former parents.
const LEAVES: usize = 8;
/// Largest number of pending STALLED messages.
const NOTICES: usize = 32;
/// Largest number of pending events.
const EVENTS: usize = 32;

/// What to do with a packet that was passed to [`Relay::forward`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Verdict {
    /// Send the edited packet to each of [`Relay::targets`] before the next call.
    Send(Fanout),
    /// Nothing: the packet ends here. Answers come from [`Relay::poll_transmit`].
    Done,
    /// Dropped, and counted.
    Drop(DropReason),
}

/// The addresses that a packet goes to; [`Relay::targets`] lists them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fanout {
    session: u16,
    /// The NACK state whose subcast list applies; all children if `None`.
    state: Option<u16>,
    /// Whether the packet also goes to the parent.
    up: bool,
}

/// The neighbour that sent a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Origin {
    Above,
    Child(u16),
}

/// A pending answer to a JOIN.
#[derive(Clone, Copy, Debug)]
struct Reply {
    to: Addr,
    key: SessionKey,
    status: Status,
    child: u16,
    stamp: u32,
}

/// A pending LEAVE to a former parent.
#[derive(Clone, Copy, Debug)]
struct Leave {
    to: Addr,
    key: SessionKey,
    child: u16,
    token: u64,
}

/// A pending STALLED message.
#[derive(Clone, Copy, Debug)]
struct Notice {
    session: u16,
    id: u32,
    ack: Seq,
    stalled: Stalled,
}

/// A relay. The crate's documentation shows how to drive it.
#[derive(Debug)]
pub struct Relay<'a> {
    config: Config,
    tables: Tables<'a>,
    secrets: Secrets,
    stats: Stats,
    replies: heapless::Deque<Reply, REPLIES>,
    leaves: heapless::Deque<Leave, LEAVES>,
    notices: heapless::Deque<Notice, NOTICES>,
    /// STALLED messages of children are forwarded from this time on.
    notice_after: Instant,
    events: heapless::Deque<Event, EVENTS>,
    draining: bool,
    /// The `now` of the last call.
    now: Instant,
}

impl<'a> Relay<'a> {
    /// Creates a relay without sessions. `seed` must be secret: tokens are derived from it.
    ///
    /// # Errors
    /// The configuration or the sizes of the tables are invalid.
    pub fn new(
        config: Config,
        storage: Storage<'a>,
        seed: [u8; 32],
        now: Instant,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        storage.check()?;
        Ok(Relay {
            config,
            tables: Tables::new(storage, now),
            secrets: Secrets::new(seed),
            stats: Stats::default(),
            replies: heapless::Deque::new(),
            leaves: heapless::Deque::new(),
            notices: heapless::Deque::new(),
            notice_after: now,
            events: heapless::Deque::new(),
            draining: false,
            now,
        })
    }

    /// Handles one packet of any service. Edits it only where the verdict says to send it. The same as
    /// [`Forward::forward`], without an import.
    pub fn forward(&mut self, now: Instant, meta: &Meta, packet: &mut [u8]) -> Verdict {
        self.now = self.now.max(now);
        self.serve(now, meta, packet).unwrap_or_else(|reason| {
            self.stats.drops.count(reason);
            Verdict::Drop(reason)
        })
    }

    /// Forwards packets that the kernel received as one: they lie one after the other, of `stride` bytes each but
    /// perhaps the last, and come from one neighbour. Handles the first packet, and after DATA also the DATA that
    /// follows it in sequence: all of them have one verdict. Returns the length of the handled packets and the verdict;
    /// call it again with the rest.
    ///
    /// The outcome is that of [`Relay::forward`] for each packet.
    pub fn forward_joined(
        &mut self,
        now: Instant,
        meta: &Meta,
        packets: &mut [u8],
        stride: usize,
    ) -> (usize, Verdict) {
        let len = packets.len().min(stride);
        let (first, rest) = packets.split_at_mut(len);
        let verdict = self.forward(now, meta, first);
        let more = match verdict {
            Verdict::Send(fanout) => self.data_in_sequence(&fanout, first, rest),
            Verdict::Done | Verdict::Drop(_) => 0,
        };
        (len + more, verdict)
    }

    fn serve(
        &mut self,
        now: Instant,
        meta: &Meta,
        bytes: &mut [u8],
    ) -> Result<Verdict, DropReason> {
        let mut packet = Packet::new_checked(bytes)?;
        let found = self.tables.find(&self.secrets, &packet.raw_key());
        let from = Addr::from(meta.source);
        let known = || found.ok_or(DropReason::NoSession);
        match packet.service() {
            Service::Data => self.data(now, known()?, from, meta, &packet),
            Service::Cast => self.cast(now, known()?, from, meta, &packet),
            Service::Repair => self.repair(now, known()?, from, &mut packet),
            _ => self
                .control(now, found, meta, &packet.as_view())
                .map(|()| Verdict::Done),
        }
    }

    /// Handles a packet that ends here: NACK, ABSENT, ACK, STALLED, FEEDBACK and the session protocol. DATA, CAST and
    /// REPAIR, which go on to others, need [`Relay::forward`]; it takes all services.
    ///
    /// # Errors
    /// The packet was dropped and counted; nothing else has changed.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        meta: &Meta,
        packet: &[u8],
    ) -> Result<(), DropReason> {
        self.now = self.now.max(now);
        let result = match Packet::new_checked(packet) {
            Ok(packet) => {
                let found = self.tables.find(&self.secrets, &packet.raw_key());
                self.control(now, found, meta, &packet)
            }
            Err(error) => Err(error.into()),
        };
        result.inspect_err(|&reason| self.stats.drops.count(reason))
    }

    fn control(
        &mut self,
        now: Instant,
        found: Option<u16>,
        meta: &Meta,
        packet: &Packet<&[u8]>,
    ) -> Result<(), DropReason> {
        let from = Addr::from(meta.source);
        let service = packet.service();
        if service == Service::Join {
            return self.join(now, found, meta, packet);
        }
        let known = found.ok_or(DropReason::NoSession)?;
        match service {
            Service::Nack => self.nack(now, known, from, packet),
            Service::Absent => self.absent(known, from, packet),
            Service::Ack => self.ack(known, from, packet),
            Service::Joined => self.joined(now, known, from, packet),
            Service::Leave => self.leave(known, from, packet),
            Service::Move => self.moved(now, known, from, packet),
            Service::Stalled => self.stalled(now, known, from, packet),
            Service::Feedback => self.feedback(now, known, from, packet),
            Service::Data | Service::Cast | Service::Repair | Service::Join => {
                Err(DropReason::WrongWay)
            }
        }
    }

    /// Returns the addresses that a packet goes to.
    #[inline]
    pub fn targets(&self, fanout: &Fanout) -> Targets<'_> {
        let set = match fanout.state {
            None => self.tables.members(fanout.session),
            Some(state) => self.tables.subcast(state),
        };
        let session = self.tables.session(fanout.session);
        let above = if fanout.up { session.above } else { None };
        Targets::new(self.tables.child_entries(fanout.session), set, above)
    }

    /// Returns the address of the source if it is registered here, else of the parent that accepted this relay.
    fn above(&self, session: u16) -> Option<SocketAddr> {
        self.tables.session(session).above.map(SocketAddr::from)
    }

    fn refresh_above(&mut self, session: u16) {
        let parents = &self.config.parents;
        let session = self.tables.session_mut(session);
        if !session.has_source {
            let parent = session.parent.as_ref().filter(|parent| parent.is_joined());
            session.above = parent.and_then(|p| p.address(parents)).map(Addr::from);
        }
    }

    /// Returns which neighbour sent a packet. A packet that goes up names its child.
    fn origin(&self, session: u16, from: Addr, child: u16) -> Result<Origin, DropReason> {
        if self.is_above(session, from) {
            Ok(Origin::Above)
        } else if self.tables.child_at(session, child, from) {
            Ok(Origin::Child(child))
        } else {
            Err(DropReason::NotFromChild)
        }
    }

    /// Whether the packet came from above.
    #[inline]
    fn is_above(&self, session: u16, from: Addr) -> bool {
        self.tables
            .session(session)
            .above
            .is_some_and(|above| above.is(&from))
    }

    /// Whether the address is the source's, which names the session.
    fn is_source(&self, session: u16, from: Addr) -> bool {
        let name = self.tables.session(session).name();
        name.is_some_and(|key| SocketAddr::from(from).ip() == key.source)
    }

    /// Returns how long to wait for a repair from below: twice the round-trip time to the farthest receiver, or
    /// longer if repliers were measured to take longer.
    fn hold(&self, session: u16) -> Duration {
        let session = self.tables.session(session);
        let far = Duration::from_micros(u64::from(session.below.far_us));
        (far * 2)
            .max(session.answer.within())
            .max(self.config.hold_min)
    }

    /// Returns the delay to decide: the propagation time to the farthest receiver of the local group (DyRAM §4.3),
    /// which consists of this relay's children. A child that is a relay detects its own losses as soon as a receiver
    /// would, and asks for losses further down only after its own decision. A child that asks later still gets the
    /// repair.
    fn delay_to_decide(&self, session: u16) -> Duration {
        let [now, before] = self.tables.session(session).below.near_us;
        let near = Duration::from_micros(u64::from(now.max(before)));
        (near / 2).clamp(self.config.decide.0, self.config.decide.1)
    }

    fn notify(&mut self, event: Event) {
        if self.events.push_back(event).is_err() {
            self.stats.events_lost += 1;
        }
    }

    /// Returns the oldest event. At most 32 are pending; further ones are counted as lost.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Replaces the configuration. Sessions continue; if the parents changed, each session attaches again.
    ///
    /// # Errors
    /// The configuration is invalid; the old one stays.
    pub fn reconfigure(&mut self, now: Instant, config: Config) -> Result<(), ConfigError> {
        config.check()?;
        let parents_changed = config.parents != self.config.parents;
        let refreshes = [config.refresh, self.config.refresh];
        self.config = config;
        self.restart_clocks(now);
        for number in 0..self.tables.limits.sessions as u16 {
            if !self.tables.session(number).is_open() {
                continue;
            }
            let session = self.tables.session_mut(number);
            if refreshes[0] != refreshes[1] {
                // Children and the source join again when they were told to, which was the old interval.
                session.sweep_due = now + refreshes[0].max(refreshes[1]);
            }
            if parents_changed {
                session.parent = None;
            }
            self.update_parent(number, now);
        }
        Ok(())
    }

    /// Accepts no more children, and sends the existing ones to their next parents, then the source. Until they have
    /// left, they are served.
    pub fn drain(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.draining = true;
        for number in 0..self.tables.limits.sessions as u16 {
            if self.tables.session(number).is_open() {
                self.start_moving(number);
            }
        }
    }

    /// Tells the children to move or, if there is none, the source.
    fn start_moving(&mut self, number: u16) {
        self.tables.session_mut(number).moving = Some(0);
        let output = self.tables.entry(Owner::Output(number));
        self.tables.wheel.make_ready(output);
    }

    /// Whether the relay drains and no session has children or a registered source.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        let empty = |number| {
            let session = self.tables.session(number);
            session.children == 0 && !session.has_source
        };
        self.draining && self.tables.open_sessions().all(empty)
    }

    /// Returns the sessions, for status.
    pub fn sessions(&self) -> impl Iterator<Item = SessionInfo> + '_ {
        self.tables.open_sessions().filter_map(|number| {
            let session = self.tables.session(number);
            let parent = session.parent.as_ref();
            Some(SessionInfo {
                key: session.name()?,
                id: session.id,
                above: self.above(number),
                attached: session.has_source || parent.is_some_and(|p| p.attached),
                children: session.children,
                receivers: session.below.receivers,
                newest: session.track.newest(),
                ordered: session.track.ordered(),
                acknowledged: session.acks.folded,
                far: Duration::from_micros(u64::from(session.below.far_us)),
            })
        })
    }

    /// Returns the children of a session, for status.
    pub fn children(&self, key: &SessionKey) -> impl Iterator<Item = ChildInfo> + '_ {
        let number = self.tables.find(&self.secrets, &RawKey::from(*key));
        number.into_iter().flat_map(move |number| {
            let acked = self.tables.set(number, Set::Acked);
            let stalled = self.tables.set(number, Set::Stalled);
            bits(self.tables.members(number)).map(move |child| {
                let entry = self.tables.child(number, child);
                ChildInfo {
                    address: entry.address.into(),
                    receivers: u32::from(entry.receivers),
                    acknowledged: table::has_bit(acked, child).then_some(entry.ack),
                    far: Duration::from_micros(u64::from(entry.far) << FAR_SHIFT),
                    stalled: table::has_bit(stalled, child),
                }
            })
        })
    }
}

proto_core::impl_machine! {
    impl['a] Relay<'a> { Meta = Meta; Transmit = Transmit; Event = Event; Error = DropReason; }
}

impl Forward for Relay<'_> {
    type Meta = Meta;
    type Verdict = Verdict;

    #[inline]
    fn forward(&mut self, now: Instant, meta: &Meta, packet: &mut [u8]) -> Verdict {
        Relay::forward(self, now, meta, packet)
    }
}

/// A child's distance is stored in units of 64 µs.
const FAR_SHIFT: u32 = 6;

/// Status of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionInfo {
    /// Its name.
    pub key: SessionKey,
    /// The running session identifier.
    pub id: Option<u32>,
    /// The source or the parent that sends the data.
    pub above: Option<SocketAddr>,
    /// Whether there is a path to the source.
    pub attached: bool,
    /// Children of this relay.
    pub children: u16,
    /// Receivers below, counted at the last refresh.
    pub receivers: u32,
    /// The newest packet.
    pub newest: Option<crate::Seq>,
    /// Every packet up to this one was received or given up.
    pub ordered: Option<crate::Seq>,
    /// Every child that the session waits for has everything before this packet.
    pub acknowledged: Option<crate::Seq>,
    /// Round-trip time to the farthest receiver below.
    pub far: Duration,
}

/// Status of a child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChildInfo {
    /// Its address.
    pub address: SocketAddr,
    /// Receivers below it, including itself.
    pub receivers: u32,
    /// The child, and every receiver below it, has everything before this packet.
    pub acknowledged: Option<crate::Seq>,
    /// Round-trip time to the farthest receiver below it.
    pub far: Duration,
    /// Whether the session no longer waits for it.
    pub stalled: bool,
}
