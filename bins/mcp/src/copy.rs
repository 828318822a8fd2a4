//! One copy, from the first connection to the last result: its events and its reports.

mod holders;
mod limiting;
mod prepare;
mod relaying;
mod rounds;
mod trial;
mod watching;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc as orders;
use std::time::{Duration, Instant};

use anyhow::Context;
use cli::events::Events;
use mcp_control::explain;
use mcp_control::wire::hello::Capabilities;
use mcp_control::wire::plan::Carrier;
use mcp_control::wire::relay::LinkReport;
use mcp_control::{ClientEvent, Digest, Failed, Reason, Side};
use tcpxm_tokio::Failure;
use tokio::sync::{mpsc, watch};

use crate::data::{self, DataEvent};
use crate::events::{Bypassed, Event, LimitingHost};
use crate::host::{Command, Common, Host, Report};
use crate::hosts::Target;
use crate::member::{Member, Stage};
use crate::reader::{self, Order};
use crate::show::Show;
use crate::tree::Tree;

pub(crate) use holders::Reach;
use holders::{Finding, LOOK};
pub(crate) use limiting::{Limit, MIN_ROUND_TRIP};
use prepare::Source;
use relaying::{Ended, Relaying};
use trial::Trial;
use watching::Watch;

/// Time allowed for a host that ends its data connection to report why on the control connection.
const VERDICT: Duration = Duration::from_secs(3);

/// Messages of hosts that may wait; hosts are not read meanwhile.
const MAX_REPORTS: usize = 256;

/// A copy: channels to its threads and connections, the state of its hosts, and totals. Each event may change any of them.
pub(crate) struct Copy {
    pub(crate) tree: Arc<Tree>,
    pub(crate) members: Vec<Member>,
    to_here: mpsc::Sender<(usize, Report)>,
    reports: mpsc::Receiver<(usize, Report)>,
    orders: orders::Sender<Order>,
    read: mpsc::UnboundedReceiver<reader::Report>,
    data: Option<mpsc::UnboundedReceiver<DataEvent>>,
    watch: Option<Watch>,
    /// The host that limits the rate of the data now.
    limiting: Option<LimitingHost>,
    next_look: Instant,
    carrier: Carrier,
    /// The sender's end of the next data connection.
    source: Option<Source>,
    stop: watch::Receiver<bool>,
    pub(crate) events: Events,
    pub(crate) show: Show,
    pub(crate) began: Instant,
    /// The members that take part in the data connection, in its order.
    receivers: Vec<usize>,
    /// Bytes for the data connection of this round.
    pub(crate) stream_len: u64,
    /// Bytes that at least one host has received over the data connections of all rounds.
    pub(crate) arrived: u64,
    /// As `arrived`, for hosts that verified them.
    pub(crate) verified_bytes: u64,
    /// The current round, counted from 1, and the number of rounds.
    round: u32,
    rounds: u32,
    common: Common,
    pub(crate) interrupted: bool,
    /// The links of this round, and the ends of those that the sender feeds.
    relay: Option<Relaying>,
    links_ended: mpsc::UnboundedReceiver<Ended>,
    to_links_ended: mpsc::UnboundedSender<Ended>,
    /// The hosts that links may feed when it is known that multicast does not reach them.
    trial: Option<Trial>,
    /// The digest of the whole copy, once every file was read.
    whole: Option<Digest>,
    pub(crate) bypassed: Vec<Bypassed>,
    /// All is read and sent, and links still pass it on.
    sent_later: bool,
    /// Bytes that this side has sent over links.
    pub(crate) fed_bytes: u64,
    /// A data connection has failed.
    has_broken: bool,
}

/// The reason why the copy was woken.
enum Wake {
    Host(usize, Report),
    Read(reader::Report),
    Data(DataEvent),
    Link(Ended),
    /// It is time to check the receivers.
    Look,
    /// The deadline of [`Copy::wait_until`] has passed.
    Late,
    Stop,
}

impl Copy {
    /// Starts to connect to all hosts.
    pub(crate) fn start(
        tree: Arc<Tree>,
        targets: Vec<Target>,
        common: Common,
        stop: watch::Receiver<bool>,
        events: Events,
        show: Show,
    ) -> anyhow::Result<Copy> {
        let (to_here, reports) = mpsc::channel(MAX_REPORTS);
        let (to_links_ended, links_ended) = mpsc::unbounded_channel();
        let (orders, read) = start_reader(&tree, targets.len())?;
        let mut copy = Copy {
            tree,
            members: Vec::new(),
            to_here,
            reports,
            orders,
            read,
            data: None,
            watch: None,
            limiting: None,
            next_look: Instant::now(),
            carrier: Carrier::Udp,
            source: None,
            stop,
            events,
            show,
            began: Instant::now(),
            receivers: Vec::new(),
            stream_len: 0,
            arrived: 0,
            verified_bytes: 0,
            round: 1,
            rounds: 1,
            common,
            interrupted: false,
            relay: None,
            links_ended,
            to_links_ended,
            trial: None,
            whole: None,
            bypassed: Vec::new(),
            sent_later: false,
            fed_bytes: 0,
            has_broken: false,
        };
        let common = Arc::new(copy.common.clone());
        for (index, target) in targets.into_iter().enumerate() {
            let commands = copy.connect(index, &target, &common);
            copy.members.push(Member::new(target, commands));
        }
        Ok(copy)
    }

    /// Starts to connect to a host.
    fn connect(
        &self,
        index: usize,
        target: &Target,
        common: &Arc<Common>,
    ) -> mpsc::UnboundedSender<Command> {
        let (commands, from_here) = mpsc::unbounded_channel();
        let host = Host {
            common: Arc::clone(common),
            target: target.clone(),
            index,
            reports: self.to_here.clone(),
            commands: from_here,
        };
        tokio::spawn(host.run());
        commands
    }

    /// Handles events until `is_done` holds for every host, or the user stops the copy.
    async fn wait(&mut self, is_done: impl Fn(&Member) -> bool) {
        self.wait_until(is_done, None).await;
    }

    /// As [`Copy::wait`], with a deadline.
    async fn wait_until(&mut self, is_done: impl Fn(&Member) -> bool, end: Option<Instant>) {
        while !self.members.iter().all(|m| m.is_over() || is_done(m)) {
            match self.wake(end).await {
                Wake::Host(index, report) => self.host(index, report),
                Wake::Read(report) => self.read(report),
                Wake::Data(report) => self.data(report),
                Wake::Link((link, state)) => self.link_report(LinkReport { link, state }, None),
                Wake::Look => self.look(),
                Wake::Late => return,
                Wake::Stop => {
                    self.interrupted = true;
                    self.give_up(&Failed::new(Reason::Interrupted, None, ""))
                        .await;
                    return;
                }
            }
        }
    }

    async fn wake(&mut self, end: Option<Instant>) -> Wake {
        let look = tokio::time::Instant::from(self.next_look);
        let late = tokio::time::Instant::from(end.unwrap_or_else(Instant::now));
        let data = async {
            match &mut self.data {
                Some(data) => data.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = self.stop.wait_for(|stop| *stop) => Wake::Stop,
            () = tokio::time::sleep_until(look), if self.watch.is_some() || self.relay.is_some() => Wake::Look,
            Some((index, report)) = self.reports.recv() => Wake::Host(index, report),
            Some(report) = data => Wake::Data(report),
            Some(ended) = self.links_ended.recv() => Wake::Link(ended),
            Some(report) = self.read.recv() => Wake::Read(report),
            () = tokio::time::sleep_until(late), if end.is_some() => Wake::Late,
            else => Wake::Stop,
        }
    }

    /// Reports a failure to every host that has not ended, and waits until it was sent.
    pub(crate) async fn give_up(&mut self, failed: &Failed) {
        for member in self.members.iter().filter(|m| !m.is_over()) {
            member.command(Command::Fail(failed.clone()));
        }
        let told = async {
            while !self.members.iter().all(Member::is_over) {
                match self.reports.recv().await {
                    Some((index, report)) => self.host(index, report),
                    None => return,
                }
            }
        };
        // The conversations have a shorter timeout.
        let _ = tokio::time::timeout(Duration::from_secs(5), told).await;
    }

    fn host(&mut self, index: usize, report: Report) {
        match report {
            Report::Connected(connected) => {
                if let Some(twin) = self.twin(index, connected.address) {
                    let failed = Failed::new(Reason::InTheWay, None, &twin);
                    self.members[index].command(Command::Fail(failed));
                    return;
                }
                let member = &mut self.members[index];
                member.address = Some(connected.address);
                member.local = Some(connected.local);
                member.connected_in = Some(connected.took);
                self.show.comparing(index);
                self.events.emit(&Event::Host {
                    host: &member.target.text,
                    address: Some(connected.address),
                    state: "connected",
                    held: 0,
                });
                let prepared = self.prepare(index, connected.local);
                self.members[index].command(Command::Offer(prepared));
            }
            Report::Event(event) => self.event(index, event),
        }
    }

    /// Returns the other host with the same address: two names of one host.
    fn twin(&self, index: usize, address: SocketAddr) -> Option<String> {
        let others = self.members.iter().enumerate();
        let mut twins = others
            .filter(|&(at, other)| at != index && other.address == Some(address))
            .filter(|(_, other)| !matches!(other.stage, Stage::Failed { .. }));
        twins
            .next()
            .map(|(_, twin)| format!("is the same host as {}", twin.target.text))
    }

    fn event(&mut self, index: usize, event: ClientEvent) {
        match event {
            ClientEvent::Welcome { capabilities } => {
                let member = &mut self.members[index];
                member.welcomed = true;
                let prepares = capabilities.has(Capabilities::PREPARES);
                member.prepared = member.prepared.filter(|_| prepares);
                member.capabilities = capabilities;
            }
            ClientEvent::Held(held) => {
                let end = held.first + held.digests.len() as u64;
                let blocks = self.tree.manifest.blocks();
                self.show.compared(index, end, blocks);
                // The reader thread runs until the comparison has ended.
                let _ = self.orders.send(Order::Compare(index, held));
            }
            ClientEvent::Scanned => {
                let _ = self.orders.send(Order::Compared(index));
            }
            ClientEvent::Port { confirmed, port } => {
                self.members[index].port = Some((confirmed, port));
            }
            ClientEvent::Ready => self.members[index].stage = Stage::Ready,
            ClientEvent::Progress(progress) => self.progress(index, progress),
            ClientEvent::Link(report) => self.link_report(report, Some(index)),
            ClientEvent::Done => self.has_all(index),
            ClientEvent::Verified => self.verified(index),
            ClientEvent::Failed { failed, side } => self.failed(index, &failed, side),
        }
    }

    fn progress(&mut self, index: usize, progress: mcp_control::wire::progress::Progress) {
        let member = &mut self.members[index];
        member.progressed(progress);
        let to_receive = if member.takes_data {
            self.stream_len
        } else {
            0
        };
        let limiting = self.limiting.as_ref();
        self.show.progress(index, member, limiting);
        self.events.emit(&Event::Progress {
            host: &member.target.text,
            received: progress.received,
            to_receive,
            held: progress.held,
            bytes: self.tree.manifest.bytes(),
            rate_bps: member.rate_bps,
            mode: member.mode(),
            limiting,
        });
    }

    fn verified(&mut self, index: usize) {
        let member = &mut self.members[index];
        member.stage = Stage::Verified;
        let seconds = self.began.elapsed().as_secs_f64();
        let bytes = self.tree.manifest.bytes();
        let received = if member.takes_data {
            self.stream_len
        } else {
            0
        };
        self.show.verified(index, bytes, received, seconds);
        self.events.emit(&Event::Verified {
            host: &member.target.text,
            bytes,
            received,
            seconds,
        });
        self.leave(index);
    }

    fn failed(&mut self, index: usize, failed: &Failed, side: Side) {
        let member = &mut self.members[index];
        if member.is_over() {
            return;
        }
        self.has_broken |= failed.reason == Reason::Data;
        let mut message = explain(failed, side, Some(&self.tree.manifest));
        if let (Some(before), false) = (&member.before, member.welcomed) {
            message = format!("{before}; then: {message}");
        }
        let again = (member.welcomed || member.postponed)
            && self.round < self.rounds
            && !self.interrupted
            && !member.is_hopeless
            && may_pass(failed.reason);
        self.show
            .failed(index, &member.target.text, &message, again);
        self.events.emit(&Event::Failed {
            host: &member.target.text,
            reason: failed.reason.name(),
            message: &message,
            will_retry: again,
        });
        member.stage = Stage::Failed { message, again };
        self.leave(index);
        // The data connection does not wait for it.
        if let Some(receiver) = self.receivers.iter().position(|&member| member == index) {
            self.show.drop_receiver(receiver);
        }
    }

    fn read(&mut self, report: reader::Report) {
        match report {
            reader::Report::Has(index, has) => {
                let manifest = &self.tree.manifest;
                let places = (0..manifest.blocks()).filter(|&block| has.contains(block));
                let held = places
                    .filter_map(|block| manifest.locate(block))
                    .map(|place| place.len);
                let member = &mut self.members[index];
                member.held_bytes = held.sum();
                member.has = has;
                if !member.is_over() {
                    member.stage = Stage::Compared;
                }
                self.events.emit(&Event::Host {
                    host: &member.target.text,
                    address: member.address,
                    state: "compared",
                    held: member.held_bytes,
                });
            }
            reader::Report::Verdict(entry, verdict, permit) => {
                self.command_all(&Command::Digest(entry, verdict, permit));
            }
            reader::Report::Blocks(blocks) => {
                for member in self.members.iter().filter(|m| m.is_planned_for_links) {
                    member.command(Command::Blocks(Arc::clone(&blocks)));
                }
            }
            reader::Report::Whole(whole) => {
                if let Some(whole) = whole {
                    self.whole(whole);
                }
            }
            reader::Report::Sent => {
                let receives = |m: &Member| m.relayed && !m.has_all && !m.is_over();
                self.sent_later = self.members.iter().any(receives);
                if !self.sent_later {
                    self.sent();
                }
            }
            reader::Report::Broken(error) => {
                let text = format!("the data connection failed: {error}");
                let failed = Failed::new(Reason::Data, None, &text);
                for member in self.members.iter().filter(|m| !m.is_over()) {
                    fail_later(member, failed.clone());
                }
            }
        }
    }

    /// Reports that every host has received all data, or has failed.
    fn sent(&self) {
        self.events.emit(&Event::Sent {
            bytes: self.stream_len,
            seconds: self.began.elapsed().as_secs_f64(),
        });
    }

    fn command_all(&self, command: &Command) {
        for member in self.members.iter().filter(|m| !m.is_over()) {
            member.command(command.clone());
        }
    }

    fn data(&mut self, report: DataEvent) {
        let (receiver, event) = match report {
            DataEvent::Mode(receiver, mode) => (receiver, Some(mode)),
            DataEvent::Detached(receiver) => (receiver, None),
            DataEvent::Failed(receiver, why) => {
                let index = self.receivers.get(receiver).copied();
                // The data connection of a host that links feed was ended here.
                if let Some(index) = index.filter(|&index| !self.members[index].relayed) {
                    self.data_failed(index, why);
                }
                return;
            }
        };
        let Some(&index) = self.receivers.get(receiver) else {
            return;
        };
        if self.members[index].relayed {
            return;
        }
        match event {
            Some(mode) => {
                let member = &mut self.members[index];
                member.set_mode(mode);
                let host = &member.target.text;
                self.events.emit(&Event::Mode { host, mode });
            }
            None => self.detached(receiver, index),
        }
        self.show
            .progress(index, &self.members[index], self.limiting.as_ref());
    }
}

impl Copy {
    /// Handles the failure of a data connection to one host.
    fn data_failed(&mut self, index: usize, why: Failure) {
        let member = &mut self.members[index];
        member.is_hopeless = why == Failure::NoMulticast;
        let failed = Failed::new(Reason::Data, None, &data::explain(why, self.carrier));
        match why {
            Failure::Reset => fail_later(member, failed),
            _ => member.command(Command::Fail(failed)),
        }
    }
}

/// Fails a host for an error of its data connection, unless the host reports its own reason within [`VERDICT`].
fn fail_later(member: &Member, failed: Failed) {
    let commands = member.commands.clone();
    tokio::spawn(async move {
        tokio::time::sleep(VERDICT).await;
        // The host's own reason arrived first.
        let _ = commands.send(Command::Fail(failed));
    });
}

type Reading = (
    orders::Sender<Order>,
    mpsc::UnboundedReceiver<reader::Report>,
);

/// Starts the reader thread.
fn start_reader(tree: &Arc<Tree>, hosts: usize) -> anyhow::Result<Reading> {
    let (orders, from_here) = orders::channel();
    let (to_here, read) = mpsc::unbounded_channel();
    let runtime = tokio::runtime::Handle::current();
    reader::start(runtime, Arc::clone(tree), hosts, from_here, to_here)
        .context("no thread to read with")?;
    Ok((orders, read))
}

/// Whether a retry can help: not if the user has to act first.
fn may_pass(reason: Reason) -> bool {
    match reason {
        Reason::Silent
        | Reason::Closed
        | Reason::Interrupted
        | Reason::Data
        | Reason::Mismatch
        | Reason::Busy
        | Reason::Locked
        | Reason::NoPort => true,
        Reason::Protocol
        | Reason::TooLarge
        | Reason::Name
        | Reason::NoSpace
        | Reason::Permission
        | Reason::InTheWay
        | Reason::Storage
        | Reason::Capability
        | Reason::Changed => false,
    }
}
