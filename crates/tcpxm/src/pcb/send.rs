//! The sending side of a connection: window, losses, probes.

use proto_core::time::{Duration, Instant};

use super::{LONGEST, path};
use crate::cc::{Controller, Saved};
use crate::config::Config;
use crate::recovery::{Carried, Disorder, Prr, Rtt, Scoreboard};
use crate::seq::Seq;

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

/// How the losses of the present window are repaired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Recovery {
    /// Found by duplicate or selective acknowledgements.
    Fast,
    /// Found by a timeout.
    Timeout,
}

/// What limited a receiver of a group since the last check.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct WindowLimit {
    /// Number of checks that found it blocking the next segment.
    pub(crate) looks: u8,
    /// Longest smoothed round trip.
    pub(crate) round_trip: Duration,
    /// Losses cut its congestion window.
    pub(crate) cut: bool,
    pub(crate) timeout: bool,
    /// Its own window held the flow back.
    pub(crate) closed: bool,
}

/// The window before the current losses were detected, and how to find out that there were none.
pub(super) struct Undo {
    pub(super) saved: Saved,
    /// Timestamp of the first segment that was sent again for them, and its end.
    pub(super) first: Option<(u32, u64)>,
    /// Bytes sent again for them that the receiver has not reported to be duplicates.
    pub(super) again: u64,
    /// Later reports than the acknowledgement of this offset are about something else.
    pub(super) until: u64,
}

/// The peer's window (RFC 9293 §3.8.6).
#[derive(Default)]
pub(crate) struct SendWindow {
    /// The window reaches to this offset, never below what the peer has acknowledged.
    pub(crate) edge: u64,
    /// Largest window that the peer has offered.
    pub(crate) max_window: u64,
    /// Sequence and acknowledgement number of the segment that updated the window last (RFC 9293 §3.10.7.4).
    update_seq: u64,
    update_ack: u64,
    /// The congestion window limited the flow when it had reached this offset.
    pub(crate) limited_at: u64,
}

impl SendWindow {
    /// Takes the window of a SYN, which is never scaled.
    pub(super) fn open(&mut self, window: u16) {
        self.edge = u64::from(window);
        self.max_window = self.edge;
    }

    /// Takes the window of a segment from offset `start` that acknowledges up to `ack`, unless a later segment has set
    /// it (RFC 9293 §3.10.7.4). Returns whether it was taken.
    pub(super) fn update(&mut self, (start, ack): (u64, u64), window: u64, nxt: u64) -> bool {
        if (self.update_seq, self.update_ack) > (start, ack) {
            return false;
        }
        (self.update_seq, self.update_ack) = (start, ack);
        self.edge = ack.min(nxt) + window;
        self.max_window = self.max_window.max(window);
        true
    }
}

/// Probes for lost tails (RFC 8985 §7), lost repairs and closed windows.
#[derive(Default)]
pub(crate) struct Probes {
    /// A tail loss probe was sent: the acknowledgement that ends the episode (RFC 8985 §7.4).
    pub(super) ends_at: Option<u64>,
    pub(super) tail_due: bool,
    pub(super) window_due: bool,
    /// A probe for a lost repair was sent, and nothing has arrived since.
    pub(super) repair_sent: bool,
    pub(super) persist_backoff: u8,
}

/// The losses of the current window, and their repair.
pub(crate) struct Losses {
    /// Until this offset is acknowledged, the current losses are one congestion event.
    pub(crate) phase: Option<(u64, Recovery)>,
    /// Limits the bytes in flight during recovery, where SACK reports which arrive.
    pub(super) prr: Prr,
    /// Losses are likely, but not certain yet.
    pub(super) disorder: Option<Disorder>,
    /// What reductions of the window start from.
    pub(super) carried: Carried,
    /// One retransmission is sent whatever the window says.
    pub(super) force_one: bool,
    pub(super) duplicate_acks: u8,
    /// The cost of the current losses, in case that there were none.
    pub(super) undo: Option<Undo>,
    /// The reordering window is widened next when this offset is acknowledged.
    pub(super) widen_at: u64,
    /// Recoveries since the last duplicate.
    pub(super) quiet_recoveries: u8,
    /// Timestamp of the last retransmission.
    pub(super) last_stamp: Option<u32>,
}

/// The sending side of a connection.
pub(crate) struct Send {
    pub(crate) iss: Seq,
    pub(crate) board: Scoreboard,
    pub(crate) window: SendWindow,
    pub(crate) fin: Fin,
    pub(crate) rtt: Rtt,
    pub(crate) cc: Controller,
    pub(crate) loss: Losses,
    pub(super) probes: Probes,
    pub(crate) window_limit: WindowLimit,
    /// Time when the peer last acknowledged something new, or nothing was outstanding.
    pub(super) progress: Instant,
    pub(crate) retransmissions: u64,
    pub(super) hole: path::Hole,
}

impl Send {
    pub(super) fn new(config: &Config, iss: Seq, segment: u64, now: Instant) -> Self {
        Self {
            iss,
            board: Scoreboard::new(),
            window: SendWindow::default(),
            fin: Fin::No,
            rtt: Rtt::new(config.min_rto, config.max_rto.min(LONGEST)),
            cc: Controller::new(config.congestion_control, segment),
            loss: Losses {
                phase: None,
                prr: Prr::default(),
                disorder: None,
                carried: Carried::new(now),
                force_one: false,
                duplicate_acks: 0,
                undo: None,
                widen_at: 0,
                quiet_recoveries: 0,
                last_stamp: None,
            },
            probes: Probes::default(),
            window_limit: WindowLimit::default(),
            progress: now,
            retransmissions: 0,
            hole: path::Hole::default(),
        }
    }

    /// Returns the offset up to which windows of peer and network let the flow send.
    pub(super) fn limit(&self, sack: bool) -> u64 {
        let network = self.board.una() + self.board.gone() + self.flight_window(sack);
        self.window.edge.min(network)
    }

    /// Returns the number of bytes that may be in flight.
    pub(super) fn flight_window(&self, sack: bool) -> u64 {
        match self.loss.phase {
            Some((_, Recovery::Fast)) if sack => self.loss.prr.window(),
            _ => self.cc.window(),
        }
    }
}
