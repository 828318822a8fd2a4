//! The handshake: what both sides offer and agree on.

use core::net::IpAddr;

use proto_core::time::Instant;

use super::input::{Dropped, with_reset};
use super::{NewConnection, Note, Pcb, Plan, State, Timer};
use crate::config::{Config, GroupPolicy};
use crate::error::{Error, Failure};
use crate::group::Flow;
use crate::seq::Seq;
use crate::wire::{Flags, GroupOption, Options, Segment};

/// Smaller maximum segment sizes than this are not believed: they serve only to make us send
/// headers.
const MIN_MSS: u16 = 88;
/// Maximum segment size without the option (RFC 9293 §3.7.1).
const DEFAULT_MSS: u16 = 536;
const DEFAULT_MSS_IPV6: u16 = 1220;

/// The result of the handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    pub(crate) timestamps: bool,
    pub(crate) sack: bool,
    pub(crate) send_shift: u8,
    pub(crate) receive_shift: u8,
    /// The peer's maximum segment size.
    pub(crate) mss: u16,
}

/// The offer of our SYN or SYN-ACK.
#[derive(Clone, Copy, Debug)]
struct Offer {
    timestamps: bool,
    sack: bool,
    shift: Option<u8>,
    group: Option<IpAddr>,
}

/// Which side of the connection this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// This side began (active OPEN).
    Active,
    /// This side began, and the peer is a receiver of its group, which sends no data.
    GroupSender,
    /// The peer began (passive OPEN).
    Passive,
}

/// How far the handshake is. It stays where it is when the connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    /// Our SYN or SYN-ACK is to be sent, for the first time or again.
    SynDue,
    /// It was sent, and is not answered.
    Unanswered,
    /// Both sides are synchronised, which the session does not know yet.
    Complete,
    /// The session counts on the connection.
    Settled,
}

/// State of the handshake, and its result.
#[derive(Debug)]
pub(crate) struct Handshake {
    role: Role,
    progress: Progress,
    agreed: Agreed,
    offer: Offer,
    opened: Instant,
}

impl Handshake {
    pub(super) fn new(config: &Config, new: &NewConnection, now: Instant) -> Self {
        let shift = config.window_scaling.then(|| config.window_shift());
        Self {
            role: new.role,
            progress: Progress::SynDue,
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
                group: new.offered_group,
            },
            opened: now,
        }
    }

    /// Returns the result; before the handshake is complete, what was agreed so far.
    pub(crate) fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    /// Whether the peer began.
    pub(crate) fn is_passive(&self) -> bool {
        self.role == Role::Passive
    }

    /// Whether the peer is a receiver of our group, which sends no data.
    pub(super) fn is_group_sender(&self) -> bool {
        self.role == Role::GroupSender
    }

    /// Whether the peer began and has not completed it: the application does not know of the connection.
    pub(crate) fn is_pending(&self) -> bool {
        let open = matches!(self.progress, Progress::SynDue | Progress::Unanswered);
        self.is_passive() && open
    }

    pub(super) fn syn_is_due(&self) -> bool {
        self.progress == Progress::SynDue
    }

    /// Returns whether a SYN or SYN-ACK was due; it no longer is.
    pub(super) fn take_syn(&mut self) -> bool {
        let due = self.syn_is_due();
        if due {
            self.progress = Progress::Unanswered;
        }
        due
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.progress == Progress::Settled
    }

    /// Records that the session counts on the connection; returns false if it is not complete, or if that was
    /// recorded already.
    pub(crate) fn settle(&mut self) -> bool {
        let complete = self.progress == Progress::Complete;
        if complete {
            self.progress = Progress::Settled;
        }
        complete
    }
}

impl Pcb {
    /// A block for a SYN that reached a listener (RFC 9293 §3.10.7.2). Data with the SYN is left for
    /// its retransmission.
    pub(crate) fn accept(
        config: &Config,
        new: NewConnection,
        syn: &Segment<'_>,
        now: Instant,
    ) -> Self {
        let role = Role::Passive;
        let new = NewConnection { role, ..new };
        let mut pcb = Self::new(config, new, State::SynReceived, now);
        pcb.negotiate(syn, now);
        pcb.handshake.offer.timestamps = pcb.handshake.agreed.timestamps;
        pcb.handshake.offer.sack = pcb.handshake.agreed.sack;
        pcb.handshake.offer.shift = pcb
            .handshake
            .offer
            .shift
            .filter(|_| syn.options.window_scale.is_some());
        if let Some(GroupOption::Named(offered)) = syn.options.group
            && offered.is_ipv4() == pcb.key.remote.is_ipv4()
        {
            pcb.handshake.offer.group = match config.groups {
                GroupPolicy::Accept => Some(offered),
                GroupPolicy::Refuse => None,
                GroupPolicy::Propose(other) => {
                    (other.is_ipv4() == offered.is_ipv4()).then_some(other)
                }
            };
            pcb.multicast.group = pcb.handshake.offer.group;
            if pcb.multicast.group.is_some() {
                pcb.receive.join();
            }
        }
        pcb.timers.set(Timer::Rto, now + pcb.send.rtt.rto());
        pcb
    }

    /// RFC 9293 §3.10.7.3.
    pub(super) fn in_syn_sent(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
    ) -> Result<(), Dropped> {
        let flags = segment.flags;
        let acked = flags.ack && segment.ack == self.send.iss.plus(1);
        if flags.ack && !acked {
            let error = Error::AckChallenged;
            return Err(Dropped {
                error,
                reset: !flags.rst,
            });
        }
        if flags.rst {
            if !acked {
                return Err(Error::ResetWindow.into());
            }
            self.fail(Failure::Refused);
            return Ok(());
        }
        if !flags.syn {
            return Err(Error::NoAck.into());
        }
        self.negotiate(segment, now);
        self.liveness.received(now);
        if !acked {
            // Simultaneous open: both have sent a SYN, each is answered with a SYN-ACK. There is no
            // group in it: the other side sends as well.
            self.state = State::SynReceived;
            self.handshake.progress = Progress::SynDue;
            self.handshake.offer.timestamps &= self.handshake.agreed.timestamps;
            self.handshake.offer.sack &= self.handshake.agreed.sack;
            self.handshake.offer.shift = self
                .handshake
                .offer
                .shift
                .filter(|_| segment.options.window_scale.is_some());
            return Ok(());
        }
        self.multicast.group = segment.options.group.and_then(GroupOption::address);
        self.owe_now();
        self.establish(now, segment);
        Ok(())
    }

    /// The handshake is complete.
    fn establish(&mut self, now: Instant, segment: &Segment<'_>) {
        self.state = State::Established;
        self.handshake.progress = Progress::Complete;
        self.timers.stop(Timer::Rto);
        self.send.progress = now;
        let echo = segment
            .options
            .timestamps
            .filter(|_| self.handshake.agreed.timestamps);
        if self.send.rtt.backoff() == 0 {
            self.send.rtt.sample(now - self.handshake.opened);
        } else if echo.is_none() {
            self.send.rtt.after_syn_timeout();
        } else {
            self.send.rtt.reset_back_off();
        }
        self.send.cc.set_segment(u64::from(self.max_payload()));
        self.note(if self.handshake.is_passive() {
            Note::Incoming
        } else {
            Note::Connected
        });
        if self.receive.is_member() {
            self.note(Note::Join);
        }
        self.arm_keep_alive(now);
    }

    /// Reads a SYN's options, and takes its sequence number and window.
    fn negotiate(&mut self, syn: &Segment<'_>, now: Instant) {
        let options = &syn.options;
        self.handshake.agreed.timestamps =
            self.handshake.offer.timestamps && options.timestamps.is_some();
        self.handshake.agreed.sack = self.handshake.offer.sack && options.sack_permitted;
        // RFC 7323 §2.2: scaling needs the option in both directions.
        if let (Some(ours), Some(theirs)) = (self.handshake.offer.shift, options.window_scale) {
            self.handshake.agreed.receive_shift = ours;
            self.handshake.agreed.send_shift = theirs;
        }
        let default = if self.key.remote.is_ipv4() {
            DEFAULT_MSS
        } else {
            DEFAULT_MSS_IPV6
        };
        self.handshake.agreed.mss = options.mss.unwrap_or(default).max(MIN_MSS);
        self.receive.synchronize(syn.seq);
        if self.handshake.agreed.timestamps {
            self.receive.stamps.take(now, syn);
        }
        self.send.window.open(syn.window);
    }

    pub(super) fn take_syn(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        start: i64,
        flow: &Flow,
    ) -> Result<(), Dropped> {
        if self.state == State::SynReceived && start == -1 {
            if segment.flags.ack && segment.ack == self.send.iss.plus(1) {
                // The answer to our SYN-ACK in a simultaneous open.
                self.establish(now, segment);
                self.owe_now();
                self.update_window(segment, start, flow);
                return Ok(());
            }
            // A SYN sent again: our answer was lost.
            self.handshake.progress = Progress::SynDue;
            return Err(Error::Duplicate.into());
        }
        // RFC 5961 §4.2.
        self.challenge(now);
        Err(Error::SynChallenged.into())
    }

    pub(super) fn complete_handshake(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
    ) -> Result<(), Dropped> {
        if segment.ack != self.send.iss.plus(1) {
            return Err(with_reset(Error::AckChallenged));
        }
        self.establish(now, segment);
        Ok(())
    }

    /// Whether a SYN that found this block in TIME-WAIT belongs to a later connection (RFC 6191).
    pub(crate) fn is_later_incarnation(&self, syn: &Segment<'_>) -> bool {
        let later = || self.receive.offset_of(syn.seq) > self.receive.next() as i64;
        self.receive.stamps.precede(syn).unwrap_or_else(later)
    }

    /// SYN, or SYN-ACK (RFC 9293 §3.10.1, §3.10.7.2).
    pub(super) fn syn(&mut self, flow: &Flow, now: Instant) -> Plan {
        let answer = self.state == State::SynReceived;
        let options = Options {
            mss: Some(self.limits.our_mss),
            window_scale: self.handshake.offer.shift,
            sack_permitted: self.handshake.offer.sack,
            timestamps: self
                .handshake
                .offer
                .timestamps
                .then(|| (flow.stamp_at(now), self.receive.stamps.echo())),
            group: self.handshake.offer.group.map(GroupOption::Named),
            ..Options::default()
        };
        let flags = Flags {
            syn: true,
            ack: answer,
            ..Flags::default()
        };
        Plan {
            seq: self.send.iss,
            ack: if answer {
                self.receive.ack_number()
            } else {
                Seq(0)
            },
            flags,
            window: self.syn_window(),
            options,
            data: None,
        }
    }

    /// RFC 9293 §3.8.3: a SYN is sent again for as long as the attempt may last.
    pub(super) fn syn_expired(&mut self, now: Instant) {
        let end = self.handshake.opened + self.limits.connect_timeout;
        if now >= end {
            self.fail(Failure::ConnectTimeout);
            return;
        }
        self.send.rtt.back_off();
        self.handshake.progress = Progress::SynDue;
        let at = now + self.send.rtt.rto();
        self.timers.set(Timer::Rto, at.min(end));
    }
}
