//! What `--json` prints; `--help` describes it.

use std::net::SocketAddr;

use ltp_linux::Receiver;
use serde::Serialize;

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event<'a> {
    Waiting {
        group: String,
        source: Option<String>,
        interface: &'a str,
    },
    Warning {
        message: &'a str,
    },
    Opened {
        session: String,
        source: String,
        name: String,
        path: Option<String>,
        length: Option<u64>,
        start: u64,
    },
    Relay {
        address: SocketAddr,
        state: &'a str,
    },
    Progress {
        bytes: u64,
        length: Option<u64>,
        lost_packets: u64,
    },
    Rejected {
        block: u64,
    },
    Resumed {
        session: String,
    },
    Complete {
        length: u64,
        digest: Option<String>,
        path: Option<&'a str>,
        seconds: f64,
        goodput_bps: f64,
        existing: bool,
    },
    Serving {
        seconds: Option<f64>,
    },
    End {
        result: &'a str,
        exit_code: u8,
        message: &'a str,
        missing: &'a [(u64, u64)],
        #[serde(flatten)]
        counters: Counters,
    },
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Counters {
    pub(crate) data_packets: u64,
    pub(crate) repairs: u64,
    pub(crate) duplicates: u64,
    pub(crate) unneeded_repairs: u64,
    pub(crate) parity: u64,
    pub(crate) unneeded_parity: u64,
    pub(crate) restored_packets: u64,
    pub(crate) restored_wrongly: u64,
    pub(crate) lost_packets: u64,
    pub(crate) requests_group: u64,
    pub(crate) requests_source: u64,
    pub(crate) requests_taken: u64,
    pub(crate) repairs_sent: u64,
    pub(crate) parity_sent: u64,
    pub(crate) blocks_rejected: u64,
    pub(crate) digests_rejected: u64,
    pub(crate) kernel_drops: u64,
    pub(crate) dropped: u64,
}

impl Counters {
    /// Reads the counters of a receiver; zeros when the transfer could not begin.
    pub(crate) fn new(receiver: Option<&Receiver>) -> Self {
        let Some(receiver) = receiver else {
            return Counters::default();
        };
        let stats = receiver.stats();
        Counters {
            data_packets: stats.data_packets,
            repairs: stats.repairs,
            duplicates: stats.duplicate_data + stats.duplicate_repairs,
            unneeded_repairs: stats.unneeded_repairs,
            parity: stats.parity,
            unneeded_parity: stats.unneeded_parity + stats.parity_lost,
            restored_packets: stats.restored_packets,
            restored_wrongly: stats.restored_wrongly,
            lost_packets: stats.lost_packets,
            requests_group: stats.requests_group,
            requests_source: stats.requests_source,
            requests_taken: stats.requests_taken,
            repairs_sent: stats.repairs_sent,
            parity_sent: stats.parity_sent,
            blocks_rejected: stats.blocks_rejected,
            digests_rejected: stats.digests_rejected,
            kernel_drops: receiver.kernel_drops(),
            dropped: stats.drops.total() + receiver.relay_dropped(),
        }
    }
}
