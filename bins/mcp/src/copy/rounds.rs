//! The course of a copy: rounds, and the steps of each round, from the comparison to the open data connection.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use mcp_control::wire::plan::{Carrier, DataKey};
use mcp_control::{BlockSet, DataPath, Failed, Layout, Reason};

use super::relaying::{Relaying, is_fed};
use super::trial::Trial;
use super::{Copy, Source, Watch, start_reader};
use crate::data::{Options, Outgoing, Receivers, Reservation};
use crate::events::Event;
use crate::hold::Hold;
use crate::host::{Command, routing_hint};
use crate::member::{Member, Stage};
use crate::reader::{Order, Sending};
use crate::relay::stock::Stock;

/// Pause before the next round.
const PAUSE: Duration = Duration::from_secs(1);
/// A host that no connection could be made to within this long does not keep the others waiting, unless
/// --connect-timeout is given or there is no other round.
const POSTPONED: Duration = Duration::from_secs(3);

impl Copy {
    /// Runs the copy, with up to `retries` more rounds for hosts that failed during it. An error means that
    /// nothing was sent.
    pub(crate) async fn run(
        &mut self,
        options: &Options,
        min_receivers: usize,
        retries: u32,
    ) -> anyhow::Result<()> {
        self.rounds = retries.saturating_add(1);
        if let Err(error) = self.run_round(options, min_receivers).await {
            self.promise_nothing(&error);
            return Err(error);
        }
        while self.members.iter().any(Member::waits_for_next_round) && !self.interrupted {
            let ran = match self.start_again().await {
                // An attacker on the path can forge a segment of the group and break the data connection.
                Ok(()) if self.has_broken => self.run_round(&options.without_multicast(), 0).await,
                Ok(()) => self.run_round(options, 0).await,
                Err(error) => Err(error),
            };
            if let Err(error) = ran {
                // Data was sent in an earlier round: the copy itself has not failed.
                let failed = Failed::new(Reason::Storage, None, &format!("{error:#}"));
                self.give_up(&failed).await;
            }
        }
        Ok(())
    }

    /// Marks the hosts that were to be retried as failed.
    fn promise_nothing(&mut self, error: &anyhow::Error) {
        self.rounds = self.round;
        for (index, member) in self.members.iter_mut().enumerate() {
            let host = &member.target.text;
            if let Stage::Failed { message, again } = &mut member.stage
                && std::mem::take(again)
            {
                let message = format!("{message}; it is not tried again: {error}");
                self.show.failed(index, host, &message, false);
                self.events.emit(&Event::Failed {
                    host,
                    reason: Reason::Interrupted.name(),
                    message: &message,
                    will_retry: false,
                });
            }
        }
    }

    /// Waits until each host has reported what it has, or has failed. A host that cannot be reached is
    /// postponed to the next round when the others have waited long enough.
    async fn wait_for_answers(&mut self, min_receivers: usize) {
        let reached = |member: &Member| member.address.is_some();
        if !self.common.again && self.round < self.rounds {
            let end = Instant::now() + POSTPONED;
            self.wait_until(reached, Some(end)).await;
            let ready = |m: &&Member| reached(m) && !m.is_over();
            let enough = min_receivers.max(1);
            if self.members.iter().filter(ready).count() >= enough {
                self.postpone(&reached);
            }
        }
        self.wait(|member| member.stage != Stage::Answering).await;
    }

    fn postpone(&mut self, reached: &impl Fn(&Member) -> bool) {
        let seconds = POSTPONED.as_secs();
        let text = format!("has not answered within {seconds} s, and the others begin");
        let failed = Failed::new(Reason::Silent, None, &text);
        for member in self.members.iter_mut() {
            if !member.is_over() && !reached(member) {
                member.postponed = true;
                member.command(Command::Fail(failed.clone()));
            }
        }
    }

    /// Connects again to the hosts that failed during the copy.
    async fn start_again(&mut self) -> anyhow::Result<()> {
        self.round += 1;
        let stopped = self.stop.wait_for(|stop| *stop);
        // The cause of the failure may be gone by then.
        if tokio::time::timeout(PAUSE, stopped).await.is_ok() {
            self.interrupted = true;
            return Ok(());
        }
        let members = self.members.iter().enumerate();
        let again: Vec<usize> = members
            .filter(|(_, member)| member.waits_for_next_round())
            .map(|(index, _)| index)
            .collect();
        let text = |&index: &usize| self.members[index].target.text.as_str();
        self.events.emit(&Event::Round {
            round: self.round,
            hosts: again.iter().map(text).collect(),
        });
        (self.orders, self.read) = start_reader(&self.tree, self.members.len())?;
        self.data = None;
        self.watch = None;
        self.receivers.clear();
        let mut common = self.common.clone();
        common.again = true;
        common.deadline = Instant::now() + common.timeout;
        let common = Arc::new(common);
        for index in again {
            let target = self.members[index].target.clone();
            let commands = self.connect(index, &target, &common);
            self.members[index].restart(commands);
            self.show.again(index);
        }
        Ok(())
    }

    /// Runs one round from the first answers to the last verdict. An error means that nothing was sent.
    async fn run_round(&mut self, options: &Options, min_receivers: usize) -> anyhow::Result<()> {
        self.source = Some(Source::new(options)?);
        self.wait_for_answers(min_receivers).await;
        if !self.goes_on(min_receivers)? {
            return Ok(());
        }
        let layout = Arc::new(self.union());
        self.stream_len = layout.len();
        self.prepare_links(options, &layout);
        let streams = |member: &Member| member.streams() && !member.is_over();
        let reservation = if !self.members.iter().any(streams) {
            None
        } else {
            Some(self.agree(options).await?)
        };
        if !self.goes_on(min_receivers)? {
            return Ok(());
        }
        let group = options.group(reservation.as_ref().is_some_and(Reservation::is_ipv6))?;
        let key = self.source.as_ref().and_then(Source::key);
        // The answer to the suggestion comes in any case.
        self.wait(|m| !m.relayed || m.prepared.is_none() || m.port.is_some())
            .await;
        self.plan(&layout, reservation.as_ref(), group, key);
        // A host that listens already is connected to at once; it has the plan when the data arrives.
        self.wait(|member| member.stage != Stage::Compared || member.listens)
            .await;
        if !self.goes_on(min_receivers)? {
            return Ok(());
        }
        let outgoing = match reservation {
            Some(reservation) => self.open(&reservation, group, key, options, &layout)?,
            None => None,
        };
        self.begin(options, layout, outgoing);
        self.wait(Member::is_over).await;
        if std::mem::take(&mut self.sent_later) && !self.interrupted {
            self.sent();
        }
        let fed = self.relay.take().map(|relay| relay.stock().sent());
        self.fed_bytes += fed.unwrap_or(0);
        self.trial = None;
        self.watch = None;
        self.limiting = None;
        self.count();
        Ok(())
    }

    /// Adds the bytes that the most advanced host has received, and those of the most advanced one that has
    /// verified them.
    fn count(&mut self) {
        let members = || self.members.iter().filter(|m| m.takes_data);
        let is_verified = |member: &Member| member.stage == Stage::Verified;
        let furthest = members().map(|member| member.progress.received).max();
        let (arrived, verified) = match members().any(is_verified) {
            true => (self.stream_len, self.stream_len),
            false => (furthest.unwrap_or(0), 0),
        };
        self.arrived += arrived;
        self.verified_bytes += verified;
    }

    /// Whether enough hosts are left and the user has not stopped the copy.
    ///
    /// # Errors
    /// There are fewer than wanted.
    fn goes_on(&self, min_receivers: usize) -> anyhow::Result<bool> {
        match self.members.iter().filter(|m| !m.is_over()).count() {
            _ if self.interrupted => Ok(false),
            0 => Ok(false),
            some if some < min_receivers => {
                bail!("only {some} of --min-receivers {min_receivers} hosts take part")
            }
            _ => Ok(true),
        }
    }

    /// Returns the blocks that at least one host lacks.
    fn union(&mut self) -> Layout {
        let manifest = &self.tree.manifest;
        let mut missing = BlockSet::new(manifest.blocks());
        for member in self.members.iter_mut().filter(|m| !m.is_over()) {
            member.takes_data = !member.has.is_full();
            missing.insert_missing(&member.has);
        }
        // The runs of a set are always a valid plan.
        Layout::new(manifest, missing.plan()).unwrap_or_default()
    }

    fn plan(
        &mut self,
        layout: &Arc<Layout>,
        reservation: Option<&Reservation>,
        group: Option<IpAddr>,
        key: Option<[u8; 32]>,
    ) {
        for member in self.members.iter().filter(|m| !m.is_over()) {
            if member.relayed {
                let path = links_only();
                member.command(Command::Plan(Some((path, Arc::clone(layout)))));
                continue;
            }
            let path = reservation
                .filter(|_| member.takes_data)
                .map(|reservation| DataPath {
                    carrier: reservation.carrier(),
                    group,
                    source: reservation.port(),
                    destination: member.port.map_or(0, |(_, port)| port),
                    key: key.map(DataKey),
                    relay: member.is_planned_for_links,
                });
            member.command(Command::Plan(path.map(|path| (path, Arc::clone(layout)))));
        }
    }

    /// Opens the data connection to all hosts that receive data.
    fn open(
        &mut self,
        reservation: &Reservation,
        group: Option<IpAddr>,
        key: Option<[u8; 32]>,
        options: &Options,
        layout: &Arc<Layout>,
    ) -> anyhow::Result<Option<Outgoing>> {
        let takes = |member: &Member| member.streams() && !member.is_over();
        let members = self.members.iter().enumerate();
        self.receivers = members
            .filter(|(_, m)| takes(m))
            .map(|(at, _)| at)
            .collect();
        let address = |&at: &usize| self.members[at].address.map(|address| address.ip());
        let addresses: Vec<IpAddr> = self.receivers.iter().filter_map(address).collect();
        let port = self.receivers.first().and_then(|&at| self.members[at].port);
        let Some((_, port)) = port else {
            return Ok(None);
        };
        let source_port = reservation.port();
        let what = (Arc::clone(&self.tree), Arc::clone(layout));
        let connects = self.receivers.iter();
        let receivers = Receivers {
            addresses,
            port,
            longest_connect: connects
                .filter_map(|&at| self.members[at].connected_in)
                .max(),
        };
        let (outgoing, handle, data) =
            Outgoing::open(reservation, options, receivers, group, key, what).map_err(|error| {
                anyhow!("cannot open the data connection: {}", routing_hint(&error))
            })?;
        self.data = Some(data);
        for &at in &self.receivers {
            self.members[at].set_mode(options.first_mode());
        }
        self.events.emit(&Event::Started {
            hosts: self.receivers.len(),
            to_send: self.stream_len,
            group: group.map(|group| group.to_string()),
            source_port,
            port,
            sealed: key.is_some(),
            carrier: match reservation.carrier() {
                Carrier::Udp => "udp",
                Carrier::Ip => "ip",
            },
        });
        let watch = Watch::new(
            handle.clone(),
            reservation.counter(),
            self.receivers.len(),
            options.min_rate,
        );
        self.watch = Some(watch);
        self.carrier = reservation.carrier();
        let labels = self.receivers.clone();
        self.show.started(&labels, self.stream_len, Some(handle));
        Ok(Some(outgoing))
    }
}

/// A copy that is shorter is not worth the links.
const SHORTEST_RELAY: u64 = 4 << 20;

/// The plan of a host that only links feed.
fn links_only() -> DataPath {
    DataPath {
        carrier: Carrier::Udp,
        group: None,
        source: 0,
        destination: 0,
        key: None,
        relay: true,
    }
}

impl Copy {
    /// Finds the hosts that links may feed. Without multicast they feed all of them from the start.
    fn prepare_links(&mut self, options: &Options, layout: &Layout) {
        self.whole = None;
        let (only, never) = options.multicast();
        let hosts = self.members.iter().filter(|m| is_fed(m)).count();
        if !options.relay || only || hosts < 2 || layout.len() < SHORTEST_RELAY {
            return;
        }
        for member in self.members.iter_mut().filter(|m| is_fed(m)) {
            member.is_planned_for_links = true;
            member.relayed = never;
        }
        let stock = Stock::new(Arc::clone(&self.tree), options.rate_bps());
        let ended = self.to_links_ended.clone();
        self.relay = Some(Relaying::new(
            Arc::new(stock),
            options.sealed,
            !never,
            ended,
        ));
    }

    /// Starts to send, and arranges the hosts that only links feed.
    fn begin(&mut self, options: &Options, layout: Arc<Layout>, outgoing: Option<Outgoing>) {
        let hold = Arc::new(Hold::default());
        let stock = self.relay.as_ref().map(Relaying::stock);
        let members = self.members.iter().enumerate();
        let relayed: Vec<usize> = members
            .filter(|(_, m)| m.relayed && !m.is_over())
            .map(|(at, _)| at)
            .collect();
        if !relayed.is_empty() {
            if outgoing.is_none() {
                self.show.started(&relayed, self.stream_len, None);
                self.events.emit(&Event::Started {
                    hosts: relayed.len(),
                    to_send: self.stream_len,
                    group: None,
                    source_port: 0,
                    port: 0,
                    sealed: options.sealed,
                    carrier: "tcp",
                });
            }
            self.arrange(&relayed, &[], &layout);
        }
        let tries = stock.is_some() && relayed.is_empty() && outgoing.is_some();
        if tries {
            self.trial = Some(Trial::new(Arc::clone(&hold), Arc::clone(&layout)));
        } else {
            hold.decide();
        }
        let sending = Sending::new(layout, outgoing, stock, hold);
        // The reader thread ends only after sending.
        let _ = self.orders.send(Order::Send(sending));
    }
}
