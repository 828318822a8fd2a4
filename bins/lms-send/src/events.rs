//! What `--json` prints; `--help` describes it.

use std::net::SocketAddr;

use ltp_linux::{ReceiverFailure, Sender, SenderStats};
use serde::Serialize;

use crate::outcome::Outcome;
use crate::receivers::{Disposition, Limiting, Waiting};

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event<'a> {
    Opened {
        session: String,
        name: &'a str,
        length: Option<u64>,
        group: String,
        source: String,
        interface: &'a str,
        rate_bps: Option<u64>,
    },
    Warning {
        message: &'a str,
    },
    Joined {
        receiver: String,
        address: SocketAddr,
    },
    Started {
        receivers: u32,
    },
    Relay {
        address: SocketAddr,
        state: &'static str,
    },
    ReceiverStalled {
        address: SocketAddr,
        relay: String,
    },
    RelayStalled {
        bytes: u64,
    },
    Progress {
        bytes: u64,
        length: Option<u64>,
        joined: u32,
        complete: u32,
        rate_bps: Option<u64>,
        waiting_for: Option<&'a Waiting>,
        limiting: Option<&'a Limiting>,
    },
    Rate {
        rate_bps: Option<u64>,
    },
    ReceiverComplete {
        receiver: String,
        address: SocketAddr,
    },
    ReceiverFailed {
        receiver: String,
        address: SocketAddr,
        bytes: u64,
        reason: &'a str,
    },
    Sent {
        length: u64,
        digest: Option<String>,
        seconds: f64,
    },
    End {
        result: &'a str,
        exit_code: u8,
        message: &'a str,
        joined: u32,
        complete: u32,
        receivers: &'a [Disposition],
        seconds: f64,
        data_packets: u64,
        repairs_group: u64,
        repairs_unicast: u64,
        parity_group: u64,
        parity_unicast: u64,
        parity_in_advance: u64,
        requests_group: u64,
        requests_unicast: u64,
        requested_packets: u64,
        frame_bytes: u64,
        dropped: u64,
    },
}

impl<'a> Event<'a> {
    /// Returns the last event. `sender`: `None` when the transfer could not begin.
    pub(crate) fn end(
        outcome: &'a Outcome,
        sender: Option<&Sender>,
        receivers: &'a [Disposition],
    ) -> Self {
        let none = SenderStats::default();
        let stats = sender.map_or(&none, Sender::stats);
        let (joined, complete) = sender.map_or((0, 0), Sender::receivers);
        Event::End {
            result: outcome.name(),
            exit_code: outcome.code(),
            message: outcome.message(),
            joined,
            complete,
            receivers,
            seconds: sender.map_or(0.0, |sender| sender.elapsed().as_secs_f64()),
            data_packets: stats.data_packets,
            repairs_group: stats.repairs_group,
            repairs_unicast: stats.repairs_unicast,
            parity_group: stats.parity_group,
            parity_unicast: stats.parity_unicast,
            parity_in_advance: stats.parity_in_advance,
            requests_group: stats.requests_group,
            requests_unicast: stats.requests_unicast,
            requested_packets: stats.requested_packets,
            frame_bytes: stats.frame_bytes,
            dropped: stats.drops.total(),
        }
    }
}

/// Formats the identifier of a receiver.
pub(crate) fn receiver(id: u64) -> String {
    format!("{id:016x}")
}

/// Describes what happened to a receiver.
pub(crate) fn reason(failure: ReceiverFailure) -> &'static str {
    match failure {
        ReceiverFailure::GaveUp => "gave up",
        ReceiverFailure::Left => "left before it had everything",
        ReceiverFailure::Silent => "went silent",
        ReceiverFailure::NoProgress => "made no progress",
        ReceiverFailure::Replaced => "was restarted",
        ReceiverFailure::NotWaitedFor => "failed too often; the sender no longer waits for it",
        ReceiverFailure::Mismatch => "holds content that differs from what was sent",
        ReceiverFailure::TooSlow => "held the rate below --min-rate",
    }
}
