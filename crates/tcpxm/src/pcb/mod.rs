//! The protocol control block: one connection to one peer.
//!
//! State that connections share (the data, the position of new data, when it was first sent, the segment size,
//! the timestamp clock) is in the [`Flow`](crate::group::Flow) and the session.

mod ack;
mod fin;
mod handshake;
mod input;
mod liveness;
mod losses;
mod output;
mod path;
mod probes;
mod receive;
mod record;
mod send;
mod stamps;
mod state;
mod timeout;
mod timers;

use core::net::{IpAddr, SocketAddr};

use proto_core::time::{Duration, Instant};

pub use state::State;

pub(crate) use handshake::{Handshake, Role};
pub(crate) use output::Plan;
pub(crate) use receive::Receive;
pub(crate) use send::Send;

use fin::Fin;
use liveness::Liveness;
use record::Record;
pub(crate) use timers::Timer;
use timers::Timers;

use crate::config::{Config, GroupConfig};
use crate::error::Failure;
use crate::event::Report;
use crate::group::{Flow, Mode, Reception, Unreached};
use crate::seq::{Seq, SynNumber};
use crate::wire::{GroupOption, Options, Place, Run, Segment, Signer, Tag};

/// The four numbers that identify a connection, and the peer's UDP port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Key {
    pub(crate) local_port: u16,
    pub(crate) remote: IpAddr,
    pub(crate) remote_port: u16,
    /// UDP port that the peer's datagrams come from; the TCP port where there is no UDP.
    pub(crate) outer_port: u16,
}

/// The parts of the configuration that a block uses all its life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) delayed_ack: Duration,
    pub(crate) ack_every: u8,
    pub(crate) peer_ack_delay: Duration,
    pub(crate) user_timeout: Duration,
    /// Of a receiver that is sent to by multicast alone.
    pub(crate) multicast_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) keep_alive: Option<Duration>,
    pub(crate) time_wait: Duration,
    pub(crate) max_rto: Duration,
    pub(crate) challenges: u8,
    pub(crate) our_mss: u16,
    /// Headers of IP, carrier and TCP.
    pub(crate) overhead: u16,
}

impl Limits {
    fn new(config: &Config, remote: IpAddr) -> Self {
        Self {
            delayed_ack: config.delayed_ack.min(Duration::from_millis(500)),
            ack_every: config.ack_every.max(1),
            peer_ack_delay: config.peer_ack_delay.min(LONGEST),
            user_timeout: config.user_timeout.min(LONGEST),
            multicast_timeout: LONGEST,
            connect_timeout: config.connect_timeout.min(LONGEST),
            keep_alive: config.keep_alive.map(|idle| idle.min(LONGEST)),
            time_wait: config.time_wait.min(LONGEST),
            max_rto: config.max_rto.min(LONGEST),
            challenges: config.challenge_acks_per_second,
            our_mss: config.mss(remote),
            overhead: config.carrier_overhead(remote) + 20,
        }
    }
}

/// Events that the endpoint reports, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub(crate) enum Note {
    Connected = 1,
    Incoming = 2,
    Readable = 4,
    Finished = 8,
    Delivered = 16,
    Join = 32,
    Leave = 64,
    Mode = 128,
    Detached = 256,
    Writable = 512,
}

/// The place of a connection in its session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// Index of the session, of the flow in it, and of the member among the session's.
    pub(crate) session: u32,
    pub(crate) flow: u32,
    pub(crate) member: u32,
    /// Flow and session no longer count it.
    pub(crate) removed: bool,
    /// In its flow's list of connections with nothing outstanding.
    pub(crate) idle: bool,
}

/// Multicast as one receiver of a group gets it.
#[derive(Debug)]
pub(crate) struct Multicast {
    pub(crate) mode: Mode,
    pub(crate) reception: Reception,
    pub(crate) unreached: Unreached,
    /// The group that both sides agreed on.
    pub(crate) group: Option<IpAddr>,
    pub(crate) leaving: Leaving,
}

/// Whether the receiver at the other side is to leave its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leaving {
    No,
    /// The receiver is asked to leave at once.
    Due,
    /// Every segment says it, until the answers show that it has.
    Told,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Pcb {
    pub(crate) key: Key,
    pub(crate) local: IpAddr,
    pub(crate) generation: u32,
    pub(crate) slot: Slot,
    state: State,
    pub(crate) limits: Limits,
    pub(crate) handshake: Handshake,
    pub(crate) send: Send,
    pub(crate) receive: Receive,
    pub(crate) multicast: Multicast,
    pub(crate) timers: Timers,
    liveness: Liveness,
    failure: Option<Failure>,
    /// The connection has ended, and a reset that says so is to be sent.
    reset_due: bool,
    /// The active side signs its segments with it, the passive side accepts no others.
    signer: Option<Signer>,
    /// Bits of [`Note`].
    notes: u16,
    /// The event of the end; TIME-WAIT is an end too.
    pub(crate) closed: Report,
    pub(crate) counters: Counters,
}

/// Counters that the endpoint adds to its statistics.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counters {
    pub(crate) retransmissions: u32,
    pub(crate) timeouts: u32,
    pub(crate) probes: u32,
    pub(crate) suppressed: u32,
    pub(crate) undone: u32,
    pub(crate) fall_backs: u32,
    pub(crate) fall_forwards: u32,
    pub(crate) holes: u32,
}

/// Parameters of a new connection.
pub(crate) struct NewConnection {
    pub(crate) key: Key,
    pub(crate) local: IpAddr,
    pub(crate) generation: u32,
    pub(crate) session: u32,
    pub(crate) flow: u32,
    pub(crate) member: u32,
    pub(crate) iss: Seq,
    pub(crate) mode: Mode,
    pub(crate) offered_group: Option<IpAddr>,
    pub(crate) signer: Option<Signer>,
    pub(crate) role: Role,
}

impl Pcb {
    fn new(config: &Config, new: NewConnection, state: State, now: Instant) -> Self {
        let limits = Limits::new(config, new.key.remote);
        Self {
            key: new.key,
            local: new.local,
            generation: new.generation,
            slot: Slot {
                session: new.session,
                flow: new.flow,
                member: new.member,
                removed: false,
                idle: false,
            },
            state,
            handshake: Handshake::new(config, &new, now),
            send: Send::new(config, new.iss, u64::from(limits.our_mss), now),
            receive: Receive::new(config),
            limits,
            multicast: Multicast {
                mode: new.mode,
                reception: Reception::new(),
                unreached: Unreached::default(),
                group: None,
                leaving: Leaving::No,
            },
            timers: Timers::default(),
            liveness: Liveness::new(now),
            failure: None,
            reset_due: false,
            signer: new.signer,
            notes: 0,
            closed: Report::default(),
            counters: Counters::default(),
        }
    }

    /// Creates a connection that starts a handshake (RFC 9293 §3.10.1, active OPEN).
    pub(crate) fn connect(config: &Config, new: NewConnection, now: Instant) -> Self {
        let mut pcb = Self::new(config, new, State::SynSent, now);
        pcb.timers.set(Timer::Rto, now + pcb.send.rtt.rto());
        pcb
    }

    /// Applies the times of a group, before anything is sent.
    pub(crate) fn apply(&mut self, group: &GroupConfig, now: Instant) {
        self.limits.connect_timeout = group.connect_timeout.min(LONGEST);
        self.limits.user_timeout = group.receiver_timeout.min(LONGEST);
        self.limits.multicast_timeout = group.multicast_timeout.min(LONGEST);
        if let Some(initial) = group.initial_rto {
            self.send.rtt.set_initial(initial);
        }
        // The attempt may be shorter than the first timeout.
        let rto = self.send.rtt.rto().min(self.limits.connect_timeout);
        self.timers.set(Timer::Rto, now + rto);
    }

    /// The connection ends at once: nothing more is sent but a reset, where one is due.
    pub(crate) fn fail(&mut self, failure: Failure) {
        if self.state == State::Closed {
            return;
        }
        self.failure = Some(failure);
        self.become_closed();
    }

    pub(crate) fn become_closed(&mut self) {
        self.state = State::Closed;
        self.timers.stop_all();
        self.handshake.take_syn();
        if self.failure.is_some() {
            self.receive.data.discard();
        }
        self.closed.make_due();
        if self.receive.is_member() {
            self.note(Note::Leave);
        }
    }

    pub(crate) fn note(&mut self, note: Note) {
        self.notes |= note as u16;
    }

    pub(crate) fn take_note(&mut self, note: Note) -> bool {
        let set = self.notes & note as u16 != 0;
        self.notes &= !(note as u16);
        set
    }

    /// Whether events wait to be reported.
    pub(crate) fn has_events(&self) -> bool {
        self.notes != 0 || self.closed == Report::Due
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    pub(crate) fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// Bytes of payload that fit one segment to this peer (RFC 6691: options come off the MSS).
    pub(crate) fn max_payload(&self) -> u16 {
        self.payload_of(self.handshake.agreed().mss.min(self.limits.our_mss))
    }

    /// Returns the payload for a maximum segment size, less options.
    fn payload_of(&self, mss: u16) -> u16 {
        mss.saturating_sub(self.options_len()).max(8)
    }

    /// Bytes of an IP packet of data to this peer that come before the data.
    pub(crate) fn headers(&self) -> u16 {
        self.limits.overhead + self.options_len()
    }

    /// Bytes of the options that each segment of data has.
    fn options_len(&self) -> u16 {
        let mut options = Options::default();
        if self.handshake.agreed().timestamps {
            options.timestamps = Some((0, 0));
        }
        if self.receive.record().is_some() {
            options.feedback = Some(crate::wire::Feedback { percent: 0 });
        }
        if self.multicast.leaving != Leaving::No {
            options.group = Some(GroupOption::Leave);
        }
        options.tag = self.empty_tag();
        options.buffer_len() as u16
    }

    /// Returns what this side signs its segments with.
    pub(crate) fn signer(&self) -> Option<&Signer> {
        self.signer
            .as_ref()
            .filter(|_| !self.handshake.is_passive())
    }

    /// Returns what this side verifies the peer's segments with.
    fn verifier(&self) -> Option<&Signer> {
        self.signer.as_ref().filter(|_| self.handshake.is_passive())
    }

    /// Room for the tag, where there is to be one.
    pub(super) fn empty_tag(&self) -> Option<Tag> {
        self.signer().map(|_| Tag::default())
    }

    /// Returns the position of a segment, which is signed with its bytes.
    pub(crate) fn place_of(&self, seq: Seq, flow: &Flow) -> Place {
        Place {
            receiver: Some(self.receive.irs()),
            offset: self.send.iss.offset_of(seq, flow.nxt),
        }
    }

    /// Whether a segment of the peer may be examined: without a key any, with one only signed segments, and
    /// SYNs, which change nothing (RFC 5961 §4).
    pub(crate) fn is_authentic(&self, segment: &Segment<'_>, bytes: &[u8], group: bool) -> bool {
        let Some(verifier) = self.verifier() else {
            return true;
        };
        let flags = segment.flags;
        if flags.syn && !flags.ack && !flags.rst && !group {
            return true;
        }
        let place = Place {
            receiver: (!group).then_some(self.send.iss),
            offset: self.receive.offset_of(segment.seq),
        };
        verifier.verify(place, bytes)
    }

    /// Whether each segment of a run to the group may be examined, the first of which begins at this offset.
    fn is_run_authentic(&self, start: i64, run: &Run<'_>) -> bool {
        let Some(verifier) = self.verifier() else {
            return true;
        };
        let mut offset = start;
        run.segments().all(|(bytes, payload)| {
            let receiver = None;
            let place = Place { receiver, offset };
            offset += payload.len() as i64;
            verifier.verify(place, bytes)
        })
    }

    /// Returns the offset up to which this peer lets the flow send.
    pub(crate) fn send_limit(&self) -> u64 {
        if !self.state.sends() {
            return 0;
        }
        self.send.limit(self.handshake.agreed().sack)
    }

    /// Whether data or a FIN is unacknowledged.
    pub(crate) fn has_outstanding(&self, flow: &Flow) -> bool {
        self.send.board.una() < flow.nxt || matches!(self.send.fin, Fin::Sent | Fin::Lost)
    }

    /// Whether nothing can be sent because the peer's window is closed and no outstanding data will reveal when
    /// it opens.
    pub(crate) fn waits_for_window(&self, flow: &Flow) -> bool {
        self.waits_to_send(flow) && self.send.window.edge() <= flow.nxt
    }

    /// Whether there is something to send and nothing is outstanding.
    fn waits_to_send(&self, flow: &Flow) -> bool {
        let data = flow.unsent > 0 && self.state.sends();
        (data || self.fin_waits(flow)) && self.send.board.una() >= flow.nxt
    }

    pub(crate) fn remote(&self) -> SocketAddr {
        SocketAddr::new(self.key.remote, self.key.outer_port)
    }

    /// Whether the connection can be removed: its end was reported, and nothing is left to read.
    pub(crate) fn is_gone(&self) -> bool {
        let read = self.receive.data.readable() == 0 || self.failure.is_some();
        let done = self.handshake.is_pending() || (self.closed.is_taken() && read);
        self.state == State::Closed && !self.reset_due && done
    }

    /// Limits the segments to the MTU of the path. Longer outstanding segments are lost for that reason, not
    /// because of congestion (RFC 1191 §6.5): all of them are sent again.
    pub(crate) fn set_mtu(&mut self, now: Instant, mss: u16, flow: &mut Flow) {
        let before = self.max_payload();
        self.limits.our_mss = self.limits.our_mss.min(mss.max(8));
        let payload = self.max_payload();
        if !self.handshake.is_settled() || payload == before {
            return; // The handshake will tell the flow.
        }
        self.send.cc.set_segment(u64::from(payload));
        flow.payload = flow.payload.min(payload);
        if self.send.board.una() < flow.nxt {
            self.send.board.lose_all(flow.nxt, 0);
            self.send_all_again(flow.nxt);
            self.arm_rto(now);
        }
    }
}

/// Longer times than this, a century, are this long: sums of times must not overflow.
pub(crate) const LONGEST: Duration = Duration::from_secs(100 * 366 * 24 * 3600);
