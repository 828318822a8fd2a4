//! Messages and progress bars.

use cli::bars::Bars;
use cli::units::{BitRate, ByteSize};

use std::time::Duration;

use crate::copy::Limit;
use crate::data::Handle;
use crate::events::LimitingHost;
use crate::member::Member;

/// The bars, and the data connection's handle, from which failed hosts are removed.
pub(crate) struct Show {
    bars: Bars,
    quiet: bool,
    handle: Option<Handle>,
}

impl Show {
    pub(crate) fn new(wanted: bool, labels: impl Iterator<Item = String>) -> Show {
        let labels: Vec<String> = labels.collect();
        let bars = Bars::new(wanted, labels.iter().cloned());
        for index in 0..labels.len() {
            bars.set_message(index, || "connecting".to_owned());
        }
        Show {
            quiet: !wanted,
            bars,
            handle: None,
        }
    }

    /// Prints a line above the bars.
    pub(crate) fn say(&self, line: std::fmt::Arguments<'_>) {
        if !self.quiet {
            cli::print_message!("{line}");
        }
    }

    pub(crate) fn comparing(&self, index: usize) {
        self.bars
            .set_message(index, || "looking what is there".to_owned());
    }

    /// Shows how far the host's comparison is.
    pub(crate) fn compared(&self, index: usize, blocks: u64, of: u64) {
        self.bars.set_message(index, || {
            let percent = blocks * 100 / of.max(1);
            format!("looking what is there: {percent} %")
        });
    }

    /// Shows that the host is retried.
    pub(crate) fn again(&self, index: usize) {
        self.bars.revive(index, || "trying again".to_owned());
    }

    pub(crate) fn started(&mut self, members: &[usize], stream_len: u64, handle: Option<Handle>) {
        for &index in members {
            self.bars.start(index, 0, stream_len);
            self.bars.set_message(index, String::new);
        }
        self.handle = handle;
    }

    /// Reports that the others wait for a host that acknowledges nothing.
    pub(crate) fn silent(&self, host: &str, silent: Duration) {
        let seconds = silent.as_secs();
        self.say(format_args!(
            "waiting for {host}: no answer for {seconds} s"
        ));
    }

    /// Reports that the others wait for a host that is slower.
    pub(crate) fn limiting(&self, host: &LimitingHost) {
        let (words, option) = (host.words(), &host.option);
        self.say(format_args!("{words} ({option} serves it separately)"));
    }

    /// Reports that a host is served separately from now on.
    pub(crate) fn separate(&self, host: &str, limit: Option<&Limit>) {
        match limit {
            Some(limit) => {
                let (rate, others) = (BitRate(limit.rate_bps), BitRate(limit.others_bps));
                self.say(format_args!(
                    "{host} is served separately: it takes {rate}, the others could take up to {others}"
                ));
            }
            None => self.say(format_args!("{host} is served separately")),
        }
    }

    /// Names a host that feeds no others any more.
    pub(crate) fn bypassed(&self, host: &str, reason: &str, block: Option<u64>) {
        let at = block.map_or_else(String::new, |block| format!(" in block {block}"));
        let what = match reason {
            "wrong_bytes" => "passed on wrong bytes",
            "stalled" => "passed on nothing",
            "slow" => "receives more slowly than the hosts after it",
            _ => "does not have what it was to pass on",
        };
        self.say(format_args!(
            "{host} {what}{at}: it feeds no other hosts any more"
        ));
    }

    pub(crate) fn drop_receiver(&self, receiver: usize) {
        if let Some(handle) = &self.handle {
            handle.drop_receiver(receiver);
        }
    }

    pub(crate) fn progress(&self, index: usize, member: &Member, limiting: Option<&LimitingHost>) {
        self.bars.set_position(index, member.progress.received);
        self.bars.set_message(index, || {
            let mode = match member.mode() {
                _ if member.separate.is_some() => "served separately",
                Some("multicast" | "multicast_only") => "multicast",
                Some("relay") => "relay",
                Some(_) => "unicast",
                None => "",
            };
            match limiting.filter(|limiting| limiting.host == member.target.text) {
                Some(LimitingHost { option, .. }) => {
                    format!("{mode}; limits the rate ({option})")
                }
                None => mode.to_owned(),
            }
        });
    }

    pub(crate) fn verified(&self, index: usize, bytes: u64, received: u64, seconds: f64) {
        self.bars.finish(index, || {
            let total = ByteSize(bytes);
            let new = ByteSize(received);
            let bits = (received as f64 * 8.0 / seconds.max(1e-3)) as u64;
            if received == bytes {
                format!("{total} verified, {}", BitRate(bits))
            } else if received == 0 {
                format!("{total} verified, it had them already")
            } else {
                format!("{total} verified, {new} of them sent, {}", BitRate(bits))
            }
        });
    }

    pub(crate) fn failed(&self, index: usize, host: &str, message: &str, again: bool) {
        let later = if again { " (will be tried again)" } else { "" };
        self.bars
            .finish(index, || format!("failed: {message}{later}"));
        if !self.bars.are_shown() {
            cli::print_message!("{host}: failed: {message}{later}");
        }
    }
}
