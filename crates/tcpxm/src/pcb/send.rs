//! The sending side of a connection: window, losses, probes.

use proto_core::time::{Duration, Instant};

use super::fin::Fin;
use super::losses::Losses;
use super::probes::Probes;
use super::{LONGEST, path};
use crate::cc::Controller;
use crate::config::Config;
use crate::recovery::{Rtt, Scoreboard};
use crate::seq::Seq;

/// What limited a receiver of a group since the last check.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct WindowLimit {
    /// Number of checks that found it blocking the next segment.
    pub(crate) looks: u8,
    /// Longest smoothed round trip.
    pub(crate) round_trip: Duration,
    /// Losses cut its congestion window.
    pub(crate) cut: bool,
    /// Its retransmission timer fired.
    pub(crate) timeout: bool,
    /// Its own window held the flow back.
    pub(crate) closed: bool,
}

/// The peer's window (RFC 9293 §3.8.6).
#[derive(Default, Debug)]
pub(crate) struct SendWindow {
    /// The window reaches to this offset, never below what the peer has acknowledged.
    edge: u64,
    /// Largest window that the peer has offered.
    max_window: u64,
    /// Sequence and acknowledgement number of the segment that updated the window last (RFC 9293 §3.10.7.4).
    update_seq: u64,
    update_ack: u64,
    /// The congestion window limited the flow when it had reached this offset.
    limited_at: u64,
}

impl SendWindow {
    /// Returns the offset that the window reaches to.
    pub(crate) fn edge(&self) -> u64 {
        self.edge
    }

    /// Returns the largest window that the peer has offered.
    pub(crate) fn largest(&self) -> u64 {
        self.max_window
    }

    /// The congestion window limits the flow, which has reached this offset.
    pub(crate) fn limit_at(&mut self, nxt: u64) {
        self.limited_at = nxt;
    }

    /// Whether the congestion window has limited the flow since it was at this offset.
    pub(super) fn has_limited(&self, offset: u64) -> bool {
        offset < self.limited_at
    }

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

/// The sending side of a connection.
#[derive(Debug)]
pub(crate) struct Send {
    pub(crate) iss: Seq,
    pub(crate) board: Scoreboard,
    pub(crate) window: SendWindow,
    pub(super) fin: Fin,
    pub(crate) rtt: Rtt,
    pub(crate) cc: Controller,
    pub(crate) loss: Losses,
    pub(super) probes: Probes,
    pub(crate) window_limit: WindowLimit,
    /// Time when the peer last acknowledged something new, or nothing was outstanding.
    pub(super) progress: Instant,
    pub(crate) retransmissions: u64,
    pub(super) hole: path::Hole,
    /// Another receiver governs the rate of the group.
    pub(crate) follows: bool,
    /// Since when its long-run rate has been low enough to take over.
    pub(crate) slower_since: Option<Instant>,
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
            loss: Losses::new(now),
            probes: Probes::default(),
            window_limit: WindowLimit::default(),
            progress: now,
            retransmissions: 0,
            hole: path::Hole::default(),
            follows: false,
            slower_since: None,
        }
    }

    /// Returns the offset up to which windows of peer and network let the flow send.
    pub(super) fn limit(&self, sack: bool) -> u64 {
        let network = self.board.una() + self.board.gone() + self.flight_window(sack);
        self.window.edge.min(network)
    }

    /// Returns the number of bytes that may be in flight.
    pub(super) fn flight_window(&self, sack: bool) -> u64 {
        let proportional = sack && !self.cc.is_bbr();
        let repairs = self.loss.window().filter(|_| proportional);
        let window = repairs.unwrap_or_else(|| self.cc.window());
        if self.follows {
            window.max(self.cc.follower_window())
        } else {
            window
        }
    }

    /// Returns the long-run rate of the peer in bytes a second.
    pub(crate) fn long_run_rate(&self) -> Option<u64> {
        self.cc.long_run_rate(self.rtt.smoothed())
    }
}
