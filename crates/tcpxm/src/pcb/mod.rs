//! The protocol control block: one connection to one peer.
//!
//! What a block shares with others (the data, where new data goes on, when it was sent first, the
//! segment size, the timestamp clock) lives in its [`Flow`](crate::group::Flow) and session.

mod ack;
mod input;
mod output;
mod path;
mod receive;
mod record;
mod state;
mod timeout;
mod timers;

use core::net::{IpAddr, SocketAddr};

use proto_core::TokenBucket;
use proto_core::time::{Duration, Instant};

pub use state::State;

pub(crate) use output::Plan;
pub(crate) use record::Record;
pub(crate) use timers::Timer;
use timers::Timers;

use crate::cc::{Controller, Saved};
use crate::config::Config;
use crate::error::Failure;
use crate::group::{Flow, Mode, Reception, Unreached};
use crate::reassembly::Reassembly;
use crate::recovery::{Carried, Disorder, Prr, Rtt, Scoreboard};
use crate::seq::{Seq, SynNumber, stamp_before};
use crate::wire::{GroupOption, Options, Place, Segment, SegmentKey, Tag};

/// The four numbers that name a connection, and the UDP port behind which the peer is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Key {
    pub(crate) local_port: u16,
    pub(crate) remote: IpAddr,
    pub(crate) remote_port: u16,
    /// UDP port that the peer's datagrams come from; the TCP port where there is no UDP.
    pub(crate) outer_port: u16,
}

/// Where our FIN is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fin {
    /// Not sent.
    No,
    /// To be sent again.
    Lost,
    /// Sent and not acknowledged.
    Sent,
    Acked,
}

/// Whether the receiver at the other side is to leave its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leaving {
    No,
    /// It is told at once.
    Due,
    /// Every segment says it, until the answers show that it has.
    Told,
}

/// Whether an acknowledgement is due.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Owed {
    Nothing,
    /// When the delayed acknowledgement's timer fires, if no other segment carries it before.
    Later,
    Now,
}

/// What both sides agreed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    pub(crate) timestamps: bool,
    pub(crate) sack: bool,
    pub(crate) send_shift: u8,
    pub(crate) receive_shift: u8,
    /// The peer's maximum segment size.
    pub(crate) mss: u16,
}

/// How the losses of the present window are repaired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Recovery {
    /// Found by duplicate or selective acknowledgements.
    Fast,
    /// Found by a timeout.
    Timeout,
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

/// What kept a receiver of a group from taking more, since its group looked last.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Trouble {
    /// Looks that found it in the way of the next segment.
    pub(crate) looks: u8,
    /// Longest smoothed round trip.
    pub(crate) round_trip: Duration,
    /// Losses cut its congestion window.
    pub(crate) cut: bool,
    pub(crate) timeout: bool,
    /// Its own window held the flow back.
    pub(crate) closed: bool,
}

/// The window before the present losses were found, and what tells that they were none.
struct Undo {
    saved: Saved,
    /// Timestamp of the first segment that was sent again for them, and its end.
    first: Option<(u32, u64)>,
    /// Bytes sent again for them that the receiver has not reported to be duplicates.
    again: u64,
    /// Reports that come after what is acknowledged here are about something else.
    until: u64,
}

/// Sending state.
pub(crate) struct Send {
    pub(crate) iss: Seq,
    pub(crate) board: Scoreboard,
    /// The peer's window reaches to this offset (never below what it acknowledged).
    pub(crate) edge: u64,
    /// Largest window the peer ever offered.
    pub(crate) max_window: u64,
    /// Sequence and acknowledgement of the segment that updated the window last (RFC 9293 §3.10.7.4).
    wl1: u64,
    wl2: u64,
    pub(crate) fin: Fin,
    pub(crate) rtt: Rtt,
    pub(crate) cc: Controller,
    /// Until this offset is acknowledged, the present losses are one congestion event.
    pub(crate) recovery: Option<(u64, Recovery)>,
    /// What may be in flight meanwhile, where SACK tells what arrives.
    prr: Prr,
    /// Losses are likely and not certain yet.
    disorder: Option<Disorder>,
    /// What reductions of the window begin with.
    carried: Carried,
    /// A probe for a lost repair was sent, and nothing has arrived since.
    repair_probed: bool,
    /// One retransmission goes out whatever the window says.
    force_one: bool,
    duplicate_acks: u8,
    /// What the present losses cost, in case that there are none.
    undo: Option<Undo>,
    /// A tail loss probe was sent: acknowledgement that ends the episode (RFC 8985 §7.4).
    probe: Option<u64>,
    probe_due: bool,
    window_probe_due: bool,
    /// The congestion window held the flow back when it had reached this offset.
    pub(crate) limited_at: u64,
    pub(crate) trouble: Trouble,
    /// Next widening of the reordering window not before this offset is acknowledged.
    widen_at: u64,
    /// Recoveries since the last duplicate.
    quiet_recoveries: u8,
    persist_backoff: u8,
    /// Last time the peer acknowledged something new, or nothing was outstanding.
    progress: Instant,
    pub(crate) retransmissions: u64,
    hole: path::Hole,
    /// Timestamp of the last retransmission.
    again_stamp: Option<u32>,
}

/// Receiving state.
pub(crate) struct Receive {
    irs: Seq,
    pub(crate) data: Reassembly,
    /// The window told to the peer reaches to this offset.
    edge: u64,
    /// Where the peer's FIN stands, once seen.
    fin_at: Option<u64>,
    pub(crate) fin_taken: bool,
    /// The last segment of a group's receiver had a FIN, which does not count yet.
    fin_claimed: bool,
    /// Timestamp to echo, and when it was taken (RFC 7323 §4.3).
    ts_recent: Option<(u32, Instant)>,
    last_ack_sent: u64,
    owed: Owed,
    unacked: u32,
    /// Segments that are acknowledged at once.
    quick: u32,
    /// Most recent out-of-order range first (RFC 2018 §4).
    recent_early: u64,
    /// Which of the other ranges comes next in an acknowledgement.
    sack_turn: usize,
    /// A duplicate to report (RFC 2883).
    duplicate: Option<(u64, u64)>,
    pub(crate) record: Option<Record>,
    /// The sender asked for the group to be left.
    pub(crate) left_group: bool,
    /// The application does not read any more.
    pub(crate) shut: bool,
}

/// Things for the endpoint to tell, one bit each.
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
    Closed = 512,
    Writable = 1024,
}

/// One connection.
pub(crate) struct Pcb {
    pub(crate) key: Key,
    pub(crate) local: IpAddr,
    pub(crate) generation: u32,
    /// Index of the session, of the flow in it, and of the member among the session's.
    pub(crate) session: u32,
    pub(crate) flow: u32,
    pub(crate) member: u32,
    pub(crate) state: State,
    /// The other side began.
    pub(crate) passive: bool,
    /// The other side is a receiver of our group: it sends no data.
    one_way: bool,
    pub(crate) limits: Limits,
    pub(crate) agreed: Agreed,
    pub(crate) offer: Offer,
    pub(crate) send: Send,
    pub(crate) receive: Receive,
    pub(crate) timers: Timers,
    opened: Instant,
    last_heard: Instant,
    keep_alive_probes: u8,
    challenge: TokenBucket,
    pub(crate) reset_due: bool,
    syn_due: bool,
    pub(crate) failure: Option<Failure>,
    /// Transmission mode, and what feeds its changes.
    pub(crate) mode: Mode,
    pub(crate) reception: Reception,
    pub(crate) unreached: Unreached,
    /// The group that both sides agreed on.
    pub(crate) group: Option<IpAddr>,
    /// The active side signs its segments with it, the passive side takes no others.
    pub(crate) segment_key: Option<SegmentKey>,
    pub(crate) leaving: Leaving,
    pub(crate) notes: u16,
    /// Half-open, and nobody has been told of it.
    pub(crate) unborn: bool,
    /// What the handshake agreed on has reached the session.
    pub(crate) settled: bool,
    pub(crate) close_told: bool,
    /// Counted among the half-open ones.
    pub(crate) half_open: bool,
    /// Its flow and session go on without it.
    pub(crate) left: bool,
    /// In its flow's list of blocks with nothing outstanding.
    pub(crate) idle: bool,
    pub(crate) counters: Counters,
}

/// What the endpoint adds to its statistics.
#[derive(Clone, Copy, Default)]
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

/// What our SYN or SYN-ACK offers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) timestamps: bool,
    pub(crate) sack: bool,
    pub(crate) shift: Option<u8>,
    pub(crate) group: Option<IpAddr>,
}

/// What a new block is made of.
pub(crate) struct Birth {
    pub(crate) key: Key,
    pub(crate) local: IpAddr,
    pub(crate) generation: u32,
    pub(crate) session: u32,
    pub(crate) flow: u32,
    pub(crate) member: u32,
    pub(crate) iss: Seq,
    pub(crate) mode: Mode,
    pub(crate) offered_group: Option<IpAddr>,
    pub(crate) segment_key: Option<SegmentKey>,
    pub(crate) one_way: bool,
}

impl Pcb {
    fn new(config: &Config, birth: Birth, state: State, now: Instant) -> Self {
        let our_mss = config.mss(birth.key.remote);
        let shift = config.window_scaling.then(|| config.window_shift());
        Self {
            key: birth.key,
            local: birth.local,
            generation: birth.generation,
            session: birth.session,
            flow: birth.flow,
            member: birth.member,
            state,
            passive: false,
            one_way: birth.one_way,
            limits: Limits {
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
                our_mss,
                overhead: config.carrier_overhead(birth.key.remote) + 20,
            },
            agreed: Agreed {
                timestamps: false,
                sack: false,
                send_shift: 0,
                receive_shift: 0,
                mss: DEFAULT_MSS,
            },
            offer: Offer {
                timestamps: config.timestamps,
                sack: config.sack,
                shift,
                group: birth.offered_group,
            },
            send: Send::new(config, birth.iss, u64::from(our_mss), now),
            receive: Receive::new(config),
            timers: Timers::default(),
            opened: now,
            last_heard: now,
            keep_alive_probes: 0,
            challenge: TokenBucket::FULL,
            reset_due: false,
            syn_due: true,
            failure: None,
            mode: birth.mode,
            reception: Reception::new(),
            unreached: Unreached::default(),
            group: None,
            segment_key: birth.segment_key,
            leaving: Leaving::No,
            notes: 0,
            unborn: false,
            settled: false,
            close_told: false,
            half_open: false,
            left: false,
            idle: false,
            counters: Counters::default(),
        }
    }

    /// A block that begins a handshake (RFC 9293 §3.10.1, active OPEN).
    pub(crate) fn connect(config: &Config, birth: Birth, now: Instant) -> Self {
        let mut pcb = Self::new(config, birth, State::SynSent, now);
        pcb.timers.set(Timer::Rto, now + pcb.send.rtt.rto());
        pcb
    }

    /// The attempt may be shorter than the first timeout.
    pub(crate) fn bound_first_timeout(&mut self, now: Instant) {
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
        self.syn_due = false;
        self.receive.owed = Owed::Nothing;
        self.send.probe_due = false;
        self.send.window_probe_due = false;
        if self.failure.is_some() {
            self.receive.data.discard();
        }
        self.note(Note::Closed);
        if self.receive.record.is_some() && !self.receive.left_group {
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

    /// Bytes of payload that fit one segment to this peer (RFC 6691: options come off the MSS).
    pub(crate) fn max_payload(&self) -> u16 {
        self.payload_of(self.agreed.mss.min(self.limits.our_mss))
    }

    /// What options leave of a maximum segment size.
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
        if self.agreed.timestamps {
            options.timestamps = Some((0, 0));
        }
        if self.receive.record.is_some() {
            options.feedback = Some(crate::wire::Feedback { percent: 0 });
        }
        if self.leaving != Leaving::No {
            options.group = Some(GroupOption::Leave);
        }
        options.tag = self.empty_tag();
        options.buffer_len() as u16
    }

    /// What this side signs its segments with.
    pub(crate) fn signing_key(&self) -> Option<SegmentKey> {
        self.segment_key.filter(|_| !self.passive)
    }

    /// Whether each segment of the other side has to be looked at for its tag.
    pub(crate) fn is_keyed(&self) -> bool {
        self.segment_key.is_some() && self.passive
    }

    /// Room for the tag, where there is to be one.
    pub(super) fn empty_tag(&self) -> Option<Tag> {
        self.signing_key().map(|_| Tag::default())
    }

    /// What a segment of ours is signed with besides its bytes.
    pub(crate) fn place_of(&self, seq: Seq, flow: &Flow) -> Place {
        Place {
            receiver: Some(self.receive.irs),
            offset: self.send.iss.offset_of(seq, flow.nxt),
        }
    }

    /// Whether a segment from the other side may be looked at: without a key all may, with one those
    /// that were signed, and SYNs, which change nothing (RFC 5961 §4).
    pub(crate) fn is_authentic(&self, segment: &Segment<'_>, bytes: &[u8], group: bool) -> bool {
        let Some(key) = self.segment_key.filter(|_| self.passive) else {
            return true;
        };
        let flags = segment.flags;
        if flags.syn && !flags.ack && !flags.rst && !group {
            return true;
        }
        let place = Place {
            receiver: (!group).then_some(self.send.iss),
            offset: self.receive.irs.offset_of(segment.seq, self.receive.next()),
        };
        key.verify(place, bytes)
    }

    /// Up to which offset this peer lets the flow go on: its window, and ours for the network.
    pub(crate) fn send_limit(&self) -> u64 {
        if !self.state.sends() {
            return 0;
        }
        let board = &self.send.board;
        let network = board.una() + board.gone() + self.flight_window();
        self.send.edge.min(network)
    }

    /// Bytes that may be in flight.
    fn flight_window(&self) -> u64 {
        match self.send.recovery {
            Some((_, Recovery::Fast)) if self.agreed.sack => self.send.prr.window(),
            _ => self.send.cc.window(),
        }
    }

    /// Whether data or a FIN is unacknowledged.
    pub(crate) fn has_outstanding(&self, flow: &Flow) -> bool {
        self.send.board.una() < flow.nxt || matches!(self.send.fin, Fin::Sent | Fin::Lost)
    }

    /// Whether a SYN that found this block in TIME-WAIT belongs to a later connection (RFC 6191).
    pub(crate) fn is_later_incarnation(&self, syn: &Segment<'_>) -> bool {
        if let (Some((value, _)), Some((recent, _))) =
            (syn.options.timestamps, self.receive.ts_recent)
            && value != recent
        {
            return stamp_before(recent, value);
        }
        self.receive.irs.offset_of(syn.seq, self.receive.next()) > self.receive.next() as i64
    }

    /// Nothing can be sent because the peer's window is closed, and nothing that is outstanding will
    /// bring news of it.
    pub(crate) fn waits_for_window(&self, flow: &Flow) -> bool {
        let fin = self.fin_waits(flow);
        let data = flow.unsent > 0 && self.state.sends();
        let closed = self.send.edge <= flow.nxt;
        (fin || data) && closed && self.send.board.una() >= flow.nxt
    }

    pub(crate) fn remote(&self) -> SocketAddr {
        SocketAddr::new(self.key.remote, self.key.outer_port)
    }

    /// Whether the connection can be forgotten: told, and nothing left to read.
    pub(crate) fn is_gone(&self) -> bool {
        let read = self.receive.data.readable() == 0 || self.failure.is_some();
        let done = self.unborn || (self.close_told && read);
        self.state == State::Closed && !self.reset_due && done
    }

    /// Larger segments than this do not fit the path. What is outstanding was too long for it, which
    /// says nothing of congestion (RFC 1191 §6.5): it goes again, all of it.
    pub(crate) fn set_mtu(&mut self, now: Instant, mss: u16, flow: &mut Flow) {
        let before = self.max_payload();
        self.limits.our_mss = self.limits.our_mss.min(mss.max(8));
        let payload = self.max_payload();
        if !self.settled || payload == before {
            return; // The handshake will tell the flow.
        }
        self.send.cc.set_segment(u64::from(payload));
        flow.payload = flow.payload.min(payload);
        if self.send.board.una() < flow.nxt {
            self.send.board.lose_all(flow.nxt, 0);
            self.send.recovery = Some((flow.nxt, Recovery::Timeout));
            self.send.force_one = true;
            self.send.probe = None;
            self.timers.stop(Timer::Tail);
            self.timers.stop(Timer::Rack);
            self.arm_rto(now);
        }
    }

    pub(crate) fn group_option(&self) -> Option<GroupOption> {
        self.offer.group.map(GroupOption::Named)
    }
}

/// Longer times than this, a century, are this long: sums of times must not overflow.
pub(crate) const LONGEST: Duration = Duration::from_secs(100 * 366 * 24 * 3600);
/// Without the option (RFC 9293 §3.7.1, IPv4); IPv6 would allow 1220.
const DEFAULT_MSS: u16 = 536;

impl Send {
    fn new(config: &Config, iss: Seq, segment: u64, now: Instant) -> Self {
        Self {
            iss,
            board: Scoreboard::new(),
            edge: 0,
            max_window: 0,
            wl1: 0,
            wl2: 0,
            fin: Fin::No,
            rtt: Rtt::new(config.min_rto, config.max_rto.min(LONGEST)),
            cc: Controller::new(config.congestion_control, segment),
            recovery: None,
            prr: Prr::default(),
            disorder: None,
            carried: Carried::new(now),
            repair_probed: false,
            force_one: false,
            duplicate_acks: 0,
            undo: None,
            probe: None,
            probe_due: false,
            window_probe_due: false,
            limited_at: 0,
            trouble: Trouble::default(),
            widen_at: 0,
            quiet_recoveries: 0,
            persist_backoff: 0,
            progress: now,
            retransmissions: 0,
            hole: path::Hole::default(),
            again_stamp: None,
        }
    }
}

impl Receive {
    fn new(config: &Config) -> Self {
        Self {
            irs: Seq(0),
            data: Reassembly::new(config.capacity()),
            edge: 0,
            fin_at: None,
            fin_taken: false,
            fin_claimed: false,
            ts_recent: None,
            last_ack_sent: 0,
            owed: Owed::Nothing,
            unacked: 0,
            quick: 0,
            recent_early: 0,
            sack_turn: 0,
            duplicate: None,
            record: None,
            left_group: false,
            shut: false,
        }
    }

    /// The next offset expected: behind the FIN once that was received.
    pub(crate) fn next(&self) -> u64 {
        self.data.next() + u64::from(self.fin_taken)
    }
}
