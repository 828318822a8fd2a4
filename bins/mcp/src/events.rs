//! The events of `--json`, described in `--help`.

use std::net::{IpAddr, SocketAddr};

use cli::units::BitRate;
use serde::Serialize;

/// The host that limits the rate of the data.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct LimitingHost {
    pub(crate) host: String,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) rate_bps: u64,
    /// Upper estimate of what the others could take.
    pub(crate) others_bps: u64,
    /// The option that frees the others.
    pub(crate) option: String,
}

impl LimitingHost {
    /// Returns what limits the others, in words.
    pub(crate) fn words(&self) -> String {
        let (host, rate, others) = (&self.host, BitRate(self.rate_bps), BitRate(self.others_bps));
        format!("{host} limits the rate to {rate}: the others could take up to {others}")
    }
}

/// A host that was served separately, and the rates from then on.
#[derive(Debug, Serialize)]
pub(crate) struct SeparateHost<'a> {
    pub(crate) host: &'a str,
    pub(crate) rate_bps: u64,
    pub(crate) others_bps: u64,
}

/// A host that feeds no others any more, and why.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Bypassed {
    pub(crate) host: String,
    pub(crate) reason: &'static str,
    /// The block with wrong bytes.
    pub(crate) block: Option<u64>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event<'a> {
    Opened {
        copy: String,
        name: String,
        entries: usize,
        bytes: u64,
        hosts: usize,
        secure: bool,
    },
    Skipped {
        path: String,
        reason: &'a str,
    },
    Host {
        host: &'a str,
        address: Option<SocketAddr>,
        state: &'a str,
        held: u64,
    },
    Started {
        hosts: usize,
        to_send: u64,
        group: Option<String>,
        source_port: u16,
        port: u16,
        sealed: bool,
        carrier: &'static str,
    },
    Mode {
        host: &'a str,
        mode: &'a str,
    },
    Detached {
        host: &'a str,
        rate_bps: Option<u64>,
        others_bps: Option<u64>,
    },
    Waiting {
        host: &'a str,
        reason: &'static str,
        seconds: f64,
        rate_bps: u64,
        others_bps: u64,
        option: Option<&'a str>,
    },
    Progress {
        host: &'a str,
        received: u64,
        to_receive: u64,
        held: u64,
        bytes: u64,
        rate_bps: u64,
        mode: Option<&'a str>,
        limiting: Option<&'a LimitingHost>,
    },
    Feeder {
        host: &'a str,
        /// `None`: the sender itself.
        feeder: Option<&'a str>,
        reason: &'static str,
    },
    /// A host multicasts to these hosts what it receives.
    Island {
        head: &'a str,
        members: usize,
        group: IpAddr,
    },
    Bypassed(Bypassed),
    Verified {
        host: &'a str,
        bytes: u64,
        received: u64,
        seconds: f64,
    },
    Failed {
        host: &'a str,
        reason: &'a str,
        message: &'a str,
        will_retry: bool,
    },
    Round {
        round: u32,
        hosts: Vec<&'a str>,
    },
    Sent {
        bytes: u64,
        seconds: f64,
    },
    End {
        result: &'a str,
        exit_code: u8,
        verified: usize,
        failed: Vec<&'a str>,
        bytes: u64,
        seconds: f64,
        goodput_bps: u64,
        limiting: Option<&'a LimitingHost>,
        separate: Vec<SeparateHost<'a>>,
        relayed: usize,
        fed_bytes: u64,
        bypassed: &'a [Bypassed],
    },
}
