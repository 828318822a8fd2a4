//! The state of one host during the copy.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mcp_control::BlockSet;
use mcp_control::wire::hello::Capabilities;
use mcp_control::wire::progress::Progress;
use tokio::sync::mpsc;

use crate::copy::Limit;
use crate::events::LimitingHost;
use crate::host::Command;
use crate::hosts::Target;

/// Progress of a host.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stage {
    /// It is being connected to, or examines its files.
    Answering,
    /// It has reported its blocks.
    Compared,
    /// It is ready for the data, or for digests alone.
    Ready,
    /// Everything is in place.
    Verified,
    /// It failed: the message for the user, and whether it is retried when the others are done.
    Failed { message: String, again: bool },
}

/// Progress of a host that is served separately, and of the others, since then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Separate {
    since: Instant,
    own: Advance,
    others: Advance,
}

/// Bytes acknowledged at first, at last, and when that was.
#[derive(Debug, Clone, Copy)]
struct Advance {
    first: u64,
    last: u64,
    at: Instant,
}

impl Advance {
    fn record(&mut self, now: Instant, acknowledged: u64) {
        if acknowledged > self.last {
            (self.last, self.at) = (acknowledged, now);
        }
    }

    fn rate_bps(&self, since: Instant) -> u64 {
        let millis = (self.at - since).as_millis().max(1) as u64;
        (self.last - self.first).saturating_mul(8000) / millis
    }
}

impl Separate {
    pub(crate) fn new(now: Instant, own: u64, others: u64) -> Separate {
        let at = |first| Advance {
            first,
            last: first,
            at: now,
        };
        Separate {
            since: now,
            own: at(own),
            others: at(others),
        }
    }

    /// Records what it, and the most advanced of the others, has acknowledged.
    pub(crate) fn measure(&mut self, now: Instant, own: Option<u64>, others: Option<u64>) {
        if let Some(own) = own {
            self.own.record(now, own);
        }
        if let Some(others) = others {
            self.others.record(now, others);
        }
    }

    /// Returns the rates of the host and of the others since then, in bits per second.
    pub(crate) fn rates_bps(&self) -> (u64, u64) {
        (
            self.own.rate_bps(self.since),
            self.others.rate_bps(self.since),
        )
    }
}

/// One host.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) target: Target,
    pub(crate) commands: mpsc::UnboundedSender<Command>,
    pub(crate) stage: Stage,
    /// It has answered in this round.
    pub(crate) welcomed: bool,
    /// It had not answered when the others began, and has its turn in the next round.
    pub(crate) postponed: bool,
    /// A retry cannot help: only multicast may be used, and it does not reach the host.
    pub(crate) is_hopeless: bool,
    /// The failure of the previous round.
    pub(crate) before: Option<String>,
    /// What it can do, once it has answered.
    pub(crate) capabilities: Capabilities,
    pub(crate) address: Option<SocketAddr>,
    /// This host's address on its control connection.
    pub(crate) local: Option<SocketAddr>,
    /// How long its control connection took to open.
    pub(crate) connected_in: Option<Duration>,
    /// The round trip of its data connection, which grows with the queue before a slow link.
    pub(crate) loaded_round_trip: Option<Duration>,
    pub(crate) has: BlockSet,
    pub(crate) held_bytes: u64,
    /// It takes part in the data connection.
    pub(crate) takes_data: bool,
    /// The port that data was to come from when it was suggested with the offer: once it confirms the port, it
    /// listens. `None`: nothing was suggested, or it does not support that.
    pub(crate) prepared: Option<u16>,
    /// Its plan has links.
    pub(crate) is_planned_for_links: bool,
    /// Links feed it, and no data connection.
    pub(crate) relayed: bool,
    /// It has everything, and the digest of the whole was told to it.
    pub(crate) has_all: bool,
    pub(crate) expects: bool,
    /// It listens for the data already.
    pub(crate) listens: bool,
    /// The port that it has confirmed, or proposes.
    pub(crate) port: Option<(bool, u16)>,
    pub(crate) progress: Progress,
    mode: Option<&'static str>,
    /// Data was sent to it by multicast.
    pub(crate) used_multicast: bool,
    /// Time for which it has limited the rate, and the last figures.
    pub(crate) limited: Duration,
    pub(crate) limiting: Option<LimitingHost>,
    /// The figures for which it is being detached, and its progress since it was.
    pub(crate) separate_at: Option<Limit>,
    pub(crate) separate: Option<Separate>,
    /// Time of the last progress report, and the bytes received then.
    pub(crate) told: Option<(Instant, u64)>,
    pub(crate) rate_bps: u64,
}

impl Member {
    pub(crate) fn new(target: Target, commands: mpsc::UnboundedSender<Command>) -> Member {
        Member {
            target,
            commands,
            stage: Stage::Answering,
            welcomed: false,
            postponed: false,
            is_hopeless: false,
            before: None,
            capabilities: Capabilities::default(),
            address: None,
            local: None,
            connected_in: None,
            loaded_round_trip: None,
            has: BlockSet::default(),
            held_bytes: 0,
            takes_data: false,
            prepared: None,
            is_planned_for_links: false,
            relayed: false,
            has_all: false,
            expects: false,
            listens: false,
            port: None,
            progress: Progress::default(),
            mode: None,
            used_multicast: false,
            limited: Duration::ZERO,
            limiting: None,
            separate_at: None,
            separate: None,
            told: None,
            rate_bps: 0,
        }
    }

    /// Whether it takes part in the data connection.
    pub(crate) fn streams(&self) -> bool {
        self.takes_data && !self.relayed
    }

    /// Returns the bytes that it has.
    pub(crate) fn held(&self) -> u64 {
        self.progress.held.max(self.held_bytes)
    }

    /// Whether it is retried in the next round.
    pub(crate) fn waits_for_next_round(&self) -> bool {
        matches!(self.stage, Stage::Failed { again: true, .. })
    }

    /// Starts again with a new control connection.
    pub(crate) fn restart(&mut self, commands: mpsc::UnboundedSender<Command>) {
        let mut fresh = Member::new(self.target.clone(), commands);
        fresh.used_multicast = self.used_multicast;
        fresh.limited = self.limited;
        fresh.limiting = self.limiting.take();
        fresh.separate = self.separate.take();
        if let Stage::Failed { message, .. } = std::mem::replace(self, fresh).stage {
            self.before = Some(message);
        }
    }

    pub(crate) fn mode(&self) -> Option<&'static str> {
        self.mode
    }

    /// Records the transmission mode in which data is sent to it.
    pub(crate) fn set_mode(&mut self, mode: &'static str) {
        self.mode = Some(mode);
        self.used_multicast |= matches!(mode, "multicast" | "multicast_only");
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Verified | Stage::Failed { .. })
    }

    pub(crate) fn command(&self, command: Command) {
        // A host that has ended takes no commands.
        let _ = self.commands.send(command);
    }

    /// Records progress and computes the rate.
    pub(crate) fn progressed(&mut self, progress: Progress) {
        let now = Instant::now();
        if let Some((then, received)) = self.told {
            let millis = (now - then).as_millis().max(1) as u64;
            let bits = progress.received.saturating_sub(received) * 8;
            let fresh = bits.saturating_mul(1000) / millis;
            // Smoothed, so that it can be read.
            self.rate_bps = if self.rate_bps == 0 {
                fresh
            } else {
                (self.rate_bps + fresh) / 2
            };
        }
        self.told = Some((now, progress.received));
        self.progress = progress;
    }
}
