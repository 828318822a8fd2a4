//! Reports which hosts delay the others, and serves them separately with `--min-rate auto`.

use std::time::{Duration, Instant};

use cli::units::BitRate;
use mcp_control::{Failed, Reason};

use super::holders::{Holders, START, START_LOOK};
use super::limiting::Limiting;
use super::{Copy, Finding, LOOK, Limit, Reach};
use crate::args::MinRate;
use crate::data::{Counter, Handle};
use crate::events::{Event, LimitingHost};
use crate::host::Command;
use crate::member::Separate;

/// How long a host limits the rate until it is named.
const SUSTAINED: Duration = Duration::from_secs(2);

/// The open data connection, and the state of its receivers.
#[derive(Debug)]
pub(super) struct Watch {
    handle: Handle,
    counter: Counter,
    began: Instant,
    holders: Holders,
    limiting: Limiting,
    min_rate: MinRate,
    /// The receiver that limits the rate, since when, and whether it was named.
    limits: Option<(usize, Instant, bool)>,
}

impl Watch {
    pub(super) fn new(
        handle: Handle,
        counter: Counter,
        receivers: usize,
        min_rate: MinRate,
    ) -> Watch {
        Watch {
            handle,
            counter,
            began: Instant::now(),
            holders: Holders::new(receivers),
            limiting: Limiting::new(receivers),
            min_rate,
            limits: None,
        }
    }

    /// Returns the option that would free the others from a host that limits them.
    fn option(&self, limit: &Limit) -> String {
        if self.min_rate == MinRate::None && limit.is_worth_separating {
            return "--min-rate auto".to_owned();
        }
        format!("--min-rate {}", rate_above(limit.rate_bps))
    }

    /// Returns whether a receiver limits the rate for long enough to be named, and for the first time.
    fn is_to_be_named(&mut self, now: Instant, limit: &Limit) -> bool {
        match &mut self.limits {
            Some((receiver, since, named)) if *receiver == limit.receiver => {
                now - *since >= SUSTAINED && !std::mem::replace(named, true)
            }
            limits => {
                *limits = Some((limit.receiver, now, false));
                false
            }
        }
    }
}

impl Copy {
    /// Checks whether the others wait for a host.
    pub(super) fn look(&mut self) {
        let now = Instant::now();
        self.next_look = now + LOOK;
        self.look_at_links();
        let Some(mut watch) = self.watch.take() else {
            return;
        };
        let is_start = now - watch.began < START;
        self.next_look = now + if is_start { START_LOOK } else { LOOK };
        let sent = watch.counter.sent();
        let of = |(receiver, &index): (usize, &usize)| {
            let reach = watch.handle.reach(receiver);
            reach.filter(|_| !self.members[index].is_over())
        };
        let all: Vec<Option<Reach>> = self.receivers.iter().enumerate().map(of).collect();
        self.watch_trial(now, &all);
        for (receiver, finding) in watch.holders.look(now, &all) {
            self.silent(receiver, finding);
        }
        self.measure_separate(now, &all);
        match watch.limiting.look(now, &all, self.stream_len, sent) {
            Some(limit) => self.limits(now, &mut watch, &limit),
            None => self.limiting = None,
        }
        self.watch = Some(watch);
    }

    fn silent(&self, receiver: usize, finding: Finding) {
        let member = &self.members[self.receivers[receiver]];
        let host = &member.target.text;
        let silent = match finding {
            Finding::Silent(silent) => silent,
            Finding::Stuck(silent) => {
                let seconds = silent.as_secs();
                let text = format!("has not answered on the data connection for {seconds} s");
                member.command(Command::Fail(Failed::new(Reason::Data, None, &text)));
                return;
            }
        };
        self.show.silent(host, silent);
        self.events.emit(&Event::Waiting {
            host,
            reason: "silent",
            seconds: silent.as_secs_f64(),
            rate_bps: 0,
            others_bps: 0,
            option: None,
        });
    }

    /// Handles that a receiver limits the rate: it is served separately, or named.
    fn limits(&mut self, now: Instant, watch: &mut Watch, limit: &Limit) {
        if watch.min_rate == MinRate::Auto
            && limit.is_worth_separating
            && watch.handle.detach(limit.receiver)
        {
            // The event of the data connection reports it.
            self.limiting = None;
            self.members[self.receivers[limit.receiver]].separate_at = Some(*limit);
            return;
        }
        let option = watch.option(limit);
        let is_to_be_named = watch.is_to_be_named(now, limit);
        let index = self.receivers[limit.receiver];
        let member = &mut self.members[index];
        let host = LimitingHost {
            host: member.target.text.clone(),
            address: member.address,
            rate_bps: limit.rate_bps,
            others_bps: limit.others_bps,
            option,
        };
        member.limited += LOOK;
        if is_to_be_named {
            self.show.limiting(&host);
            self.events.emit(&Event::Waiting {
                host: &host.host,
                reason: "slow",
                seconds: 0.0,
                rate_bps: host.rate_bps,
                others_bps: host.others_bps,
                option: Some(&host.option),
            });
        }
        member.limiting = Some(host.clone());
        self.limiting = Some(host);
    }

    /// Reports that a receiver is served separately from now on.
    pub(super) fn detached(&mut self, receiver: usize, index: usize) {
        let Some(watch) = &mut self.watch else {
            return;
        };
        let known = watch.limiting.current();
        watch.limiting.restart();
        watch.limits = None;
        let own = watch.handle.reach(receiver);
        let others = (0..self.receivers.len()).filter(|&other| other != receiver);
        let others = others.filter_map(|other| watch.handle.reach(other));
        let others = others.filter(|reach| reach.in_step);
        let others = others.map(|reach| reach.acknowledged).max().unwrap_or(0);
        let own = own.map_or(0, |reach| reach.acknowledged);
        let member = &mut self.members[index];
        let limit = member.separate_at.take();
        let limit = limit.or(known.filter(|limit| limit.receiver == receiver));
        member.separate = Some(Separate::new(Instant::now(), own, others));
        let host = &member.target.text;
        self.show.separate(host, limit.as_ref());
        self.events.emit(&Event::Detached {
            host,
            rate_bps: limit.map(|limit| limit.rate_bps),
            others_bps: limit.map(|limit| limit.others_bps),
        });
    }

    /// Measures how fast hosts that are served separately, and the others, advance.
    fn measure_separate(&mut self, now: Instant, all: &[Option<Reach>]) {
        let others = all.iter().flatten().filter(|reach| reach.in_step);
        let others = others.map(|reach| reach.acknowledged).max();
        for (reach, &index) in all.iter().zip(&self.receivers) {
            if let Some(separate) = &mut self.members[index].separate {
                separate.measure(now, reach.map(|reach| reach.acknowledged), others);
            }
        }
    }

    /// Returns the host that limited the rate longest, if it did so for long.
    pub(crate) fn limited_by(&self) -> Option<&LimitingHost> {
        let members = self.members.iter().filter(|m| m.limited >= SUSTAINED);
        let longest = members.max_by_key(|member| member.limited)?;
        longest
            .limiting
            .as_ref()
            .filter(|_| longest.separate.is_none())
    }
}

/// Returns a rate a quarter above this one, in two digits as an option takes it.
fn rate_above(bps: u64) -> String {
    let wanted = bps.saturating_add(bps / 4).max(10);
    let mut unit = 1;
    while wanted / unit >= 100 {
        unit *= 10;
    }
    let rounded = wanted.div_ceil(unit).saturating_mul(unit);
    BitRate(rounded)
        .to_string()
        .replace(" ", "")
        .replace("bit/s", "")
        .replace(".0", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_the_option_is_above_that_of_the_host() {
        for (bps, option) in [
            (5_000_000, "6.3M"),
            (20_000_000, "25M"),
            (1_500_000, "1.9M"),
            (640_000, "800k"),
            (900_000_000, "1.2G"),
            (3, "10"),
        ] {
            assert_eq!(rate_above(bps), option);
            let parsed: BitRate = option.parse().expect("a rate");
            assert!(parsed.0 > bps);
        }
    }
}
