//! The events of `--json`, which `--help` describes.

use serde::Serialize;

use crate::ages::Ages;

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum SendEvent<'a> {
    Started {
        address: String,
        layers: usize,
        layer_rate_bps: u64,
        window_s: f64,
        policy: &'a str,
        ldc: bool,
        transport: &'a str,
        congestion: &'a str,
        slots: u32,
    },
    Progress {
        seconds: f64,
        offered_bytes: u64,
        pending: usize,
        dropped: u64,
        refused: u64,
    },
    End {
        result: &'a str,
        exit_code: u8,
        message: &'a str,
        seconds: f64,
        windows: u32,
        offered_bytes: u64,
        written_bytes: u64,
        offered: u64,
        written: u64,
        dropped: u64,
        expired: u64,
        refused: u64,
        reset: u64,
    },
}

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum RecvEvent<'a> {
    Waiting {
        address: String,
    },
    Refused {
        peer: String,
        reason: &'a str,
    },
    Started {
        peer: String,
        layers: u8,
        layer_rate_bps: u64,
        window_s: f64,
    },
    Progress {
        seconds: f64,
        bytes: u64,
        playable_s: f64,
        layers: Vec<u64>,
    },
    End(Box<RecvEnd<'a>>),
}

#[derive(Debug, Serialize)]
pub(crate) struct RecvEnd<'a> {
    pub(crate) result: &'a str,
    pub(crate) exit_code: u8,
    pub(crate) message: &'a str,
    pub(crate) seconds: f64,
    pub(crate) bytes: u64,
    pub(crate) rate_bps: u64,
    pub(crate) on_time_bytes: u64,
    pub(crate) windows: u64,
    pub(crate) playable_s: f64,
    pub(crate) usable_layers: f64,
    pub(crate) layers: Vec<LayerEnd>,
    pub(crate) age_ms: Option<Percentiles>,
    pub(crate) base_age_ms: Option<Percentiles>,
    pub(crate) corrupt: u64,
    pub(crate) out_of_order: u64,
    pub(crate) beyond_limit: u64,
}

/// A received layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct LayerEnd {
    pub(crate) bytes: u64,
    pub(crate) on_time_bytes: u64,
    pub(crate) messages: u64,
    pub(crate) windows_complete: u64,
    pub(crate) windows_on_time: u64,
}

/// Ages, milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Percentiles {
    /// Returns percentiles of ages, minus `offset_us`.
    pub(crate) fn of(ages: &Ages, offset_us: i64) -> Option<Percentiles> {
        let at = |part| {
            let us = ages.percentile(part)?.saturating_sub(offset_us).max(0);
            Some(us as f64 / 1e3)
        };
        Some(Percentiles {
            p50: at(0.5)?,
            p90: at(0.9)?,
            p99: at(0.99)?,
            max: at(1.0)?,
        })
    }
}
