//! The events of `--json`, described in `--help`.

use std::net::SocketAddr;

use serde::Serialize;

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event<'a> {
    Listening {
        address: SocketAddr,
        folder: String,
        secure: bool,
    },
    Refused {
        peer: SocketAddr,
        reason: &'a str,
        suppressed: u64,
    },
    Offered {
        copy: String,
        peer: SocketAddr,
        name: String,
        entries: usize,
        bytes: u64,
    },
    Started {
        copy: String,
        held: u64,
        to_receive: u64,
        port: u16,
        group: Option<String>,
        sealed: bool,
    },
    Progress {
        copy: String,
        received: u64,
        held: u64,
        bytes: u64,
    },
    Copied {
        copy: String,
        peer: SocketAddr,
        name: String,
        bytes: u64,
        received: u64,
        digest: String,
        seconds: f64,
    },
    Failed {
        copy: Option<String>,
        peer: SocketAddr,
        name: Option<String>,
        reason: &'a str,
        message: String,
    },
    End {
        result: &'a str,
        exit_code: u8,
    },
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
