//! The events of `--json`, described in `--help`.

use std::net::SocketAddr;

use serde::Serialize;

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
    },
    Waiting {
        host: &'a str,
        reason: &'static str,
        seconds: f64,
        rate_bps: u64,
    },
    Progress {
        host: &'a str,
        received: u64,
        to_receive: u64,
        held: u64,
        bytes: u64,
        rate_bps: u64,
        mode: Option<&'a str>,
    },
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
    },
}
