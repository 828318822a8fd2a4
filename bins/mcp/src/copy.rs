//! One copy, from the first connection to the last word of the last host.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::mpsc as orders;
use std::time::Instant;

use anyhow::{Context, bail};
use cli::copying::sentence;
use cli::events::Events;
use mcp_control::limits::MAX_SUGGESTIONS;
use mcp_control::wire::plan::{Carrier, DataKey};
use mcp_control::{BlockSet, ClientEvent, DataPath, Failed, Layout, Reason, Side};
use tokio::sync::{mpsc, watch};

use crate::data::{DataNews, Options, Outgoing, Reservation};
use crate::events::Event;
use crate::host::{Command, Common, Host, News};
use crate::hosts::Target;
use crate::member::{Member, Stage};
use crate::reader::{self, Order};
use crate::show::Show;
use crate::tree::Tree;

/// News of hosts that wait: a host is not read while nobody takes them.
const MAX_NEWS: usize = 256;
/// Ports that are suggested (RFC 6335 §6: dynamic ports).
const FIRST_PORT: u16 = 49_152;

/// Everything about one copy.
pub(crate) struct Copy {
    pub(crate) tree: Arc<Tree>,
    pub(crate) members: Vec<Member>,
    news: mpsc::Receiver<(usize, News)>,
    orders: orders::Sender<Order>,
    read: mpsc::UnboundedReceiver<reader::News>,
    data: Option<mpsc::UnboundedReceiver<DataNews>>,
    stop: watch::Receiver<bool>,
    pub(crate) events: Events,
    pub(crate) show: Show,
    pub(crate) began: Instant,
    /// Which members take part in the data connection, in its order.
    receivers: Vec<usize>,
    /// Bytes on the data connection.
    pub(crate) stream_len: u64,
    pub(crate) interrupted: bool,
}

/// What woke the copy.
enum Wake {
    Host(usize, News),
    Read(reader::News),
    Data(DataNews),
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
        let common = Arc::new(common);
        let (to_here, news) = mpsc::channel(MAX_NEWS);
        let mut members = Vec::new();
        for (index, target) in targets.into_iter().enumerate() {
            let (commands, from_here) = mpsc::unbounded_channel();
            let host = Host {
                common: Arc::clone(&common),
                target: target.clone(),
                index,
                news: to_here.clone(),
                commands: from_here,
            };
            tokio::spawn(host.run());
            members.push(Member::new(target, commands));
        }
        let (orders, from_here) = orders::channel();
        let (to_here, read) = mpsc::unbounded_channel();
        reader::start(Arc::clone(&tree), members.len(), from_here, to_here)
            .context("no thread to read with")?;
        Ok(Copy {
            tree,
            members,
            news,
            orders,
            read,
            data: None,
            stop,
            events,
            show,
            began: Instant::now(),
            receivers: Vec::new(),
            stream_len: 0,
            interrupted: false,
        })
    }

    /// Runs it to its end. An error: nothing was sent.
    pub(crate) async fn run(
        &mut self,
        options: &Options,
        min_receivers: usize,
    ) -> anyhow::Result<()> {
        self.wait(|member| member.stage != Stage::Answering).await;
        if !self.goes_on(min_receivers)? {
            return Ok(());
        }
        let layout = Arc::new(self.union());
        self.stream_len = layout.len();
        let reservation = if layout.is_empty() {
            None
        } else {
            Some(self.agree(options).await?)
        };
        if !self.goes_on(min_receivers)? {
            return Ok(());
        }
        let group = options.group()?;
        let key = options.sealed.then(cli::clock::seed).transpose()?;
        self.plan(&layout, reservation.as_ref(), group, key);
        self.wait(|member| member.stage != Stage::Compared).await;
        if !self.goes_on(min_receivers)? {
            return Ok(());
        }
        let outgoing = match reservation {
            Some(reservation) => self.open(&reservation, group, key, options)?,
            None => None,
        };
        // The reader ends when it has sent; it cannot have ended before.
        let _ = self.orders.send(Order::Send(layout, outgoing));
        self.wait(Member::is_over).await;
        Ok(())
    }

    /// Is there a host left to go on with, and has the user not stopped it?
    ///
    /// # Errors
    /// There are fewer than wanted.
    fn goes_on(&self, min_receivers: usize) -> anyhow::Result<bool> {
        let is_failed = |member: &&Member| matches!(member.stage, Stage::Failed(..));
        let failed = self.members.iter().filter(is_failed).count();
        match self.members.len() - failed {
            _ if self.interrupted => Ok(false),
            0 => Ok(false),
            some if some < min_receivers => {
                bail!("only {some} of --min-receivers {min_receivers} hosts take part")
            }
            _ => Ok(true),
        }
    }

    /// Acts on what happens until `is_done` holds for every host, or the user stops the copy.
    async fn wait(&mut self, is_done: impl Fn(&Member) -> bool) {
        while !self.members.iter().all(|m| m.is_over() || is_done(m)) {
            match self.wake().await {
                Wake::Host(index, news) => self.host(index, news),
                Wake::Read(news) => self.read(news),
                Wake::Data(news) => self.data(news),
                Wake::Stop => {
                    self.interrupted = true;
                    self.give_up(&Failed::new(Reason::Interrupted, None, ""))
                        .await;
                    return;
                }
            }
        }
    }

    async fn wake(&mut self) -> Wake {
        let data = async {
            match &mut self.data {
                Some(data) => data.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = self.stop.wait_for(|stop| *stop) => Wake::Stop,
            Some((index, news)) = self.news.recv() => Wake::Host(index, news),
            Some(news) = data => Wake::Data(news),
            Some(news) = self.read.recv() => Wake::Read(news),
            else => Wake::Stop,
        }
    }

    /// Tells every host that is not over, and waits until they were told.
    pub(crate) async fn give_up(&mut self, failed: &Failed) {
        for member in self.members.iter().filter(|m| !m.is_over()) {
            member.command(Command::Fail(failed.clone()));
        }
        let told = async {
            while !self.members.iter().all(Member::is_over) {
                match self.news.recv().await {
                    Some((index, news)) => self.host(index, news),
                    None => return,
                }
            }
        };
        // The conversations give up sooner.
        let _ = tokio::time::timeout(std::time::Duration::from_secs(5), told).await;
    }

    fn host(&mut self, index: usize, news: News) {
        let member = &mut self.members[index];
        match news {
            News::Connected { address, local } => {
                member.address = Some(address);
                member.local = Some(local);
                self.show.comparing(index);
                self.events.emit(&Event::Host {
                    host: &member.target.text,
                    address: Some(address),
                    state: "connected",
                    held: 0,
                });
            }
            News::Event(event) => self.event(index, event),
        }
    }

    fn event(&mut self, index: usize, event: ClientEvent) {
        match event {
            ClientEvent::Welcome { .. } => {}
            ClientEvent::Held(held) => {
                // The reader outlives the comparison.
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
        self.show.progress(index, member);
        self.events.emit(&Event::Progress {
            host: &member.target.text,
            received: progress.received,
            to_receive,
            held: progress.held,
            bytes: self.tree.manifest.bytes(),
            rate_bps: member.rate_bps,
            mode: member.mode,
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
    }

    fn failed(&mut self, index: usize, failed: &Failed, side: Side) {
        let member = &mut self.members[index];
        if member.is_over() {
            return;
        }
        let message = sentence(failed, side, Some(&self.tree.manifest));
        self.show.failed(index, &member.target.text, &message);
        self.events.emit(&Event::Failed {
            host: &member.target.text,
            reason: failed.reason.name(),
            message: &message,
        });
        member.stage = Stage::Failed(message, failed.reason.name());
        // The data connection need not wait for it.
        if let Some(receiver) = self.receivers.iter().position(|&member| member == index) {
            self.show.drop_receiver(receiver);
        }
    }

    fn read(&mut self, news: reader::News) {
        match news {
            reader::News::Has(index, has) => {
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
            reader::News::Verdict(entry, verdict) => {
                self.command_all(&Command::Digest(entry, verdict));
            }
            reader::News::Whole(whole) => {
                if let Some(whole) = whole {
                    self.command_all(&Command::Expect(whole));
                }
            }
            reader::News::Sent => self.events.emit(&Event::Sent {
                bytes: self.stream_len,
                seconds: self.began.elapsed().as_secs_f64(),
            }),
            reader::News::Broken(error) => {
                let failed = Failed::new(Reason::Data, None, &error.to_string());
                self.command_all(&Command::Fail(failed));
            }
        }
    }

    fn command_all(&self, command: &Command) {
        for member in self.members.iter().filter(|m| !m.is_over()) {
            member.command(command.clone());
        }
    }

    /// What at least one host lacks.
    fn union(&mut self) -> Layout {
        let manifest = &self.tree.manifest;
        let mut missing = BlockSet::new(manifest.blocks());
        for member in self.members.iter_mut().filter(|m| !m.is_over()) {
            member.takes_data = !member.has.is_full();
            missing.insert_missing(&member.has);
        }
        // Runs of a set are a plan by construction.
        Layout::new(manifest, missing.plan()).unwrap_or_default()
    }

    /// Finds a port that is free on all hosts that take data (TCP-XM §3.4), and one to send from.
    async fn agree(&mut self, options: &Options) -> anyhow::Result<Reservation> {
        let takers = self.members.iter().filter(|m| m.takes_data);
        let locals: BTreeSet<Ipv4Addr> = takers.filter_map(|m| m.local).collect();
        let reservation = Reservation::new(options, &locals)?;
        let source = reservation.port();
        let seed = cli::clock::seed()?;
        let mut destination = u16::from_be_bytes([seed[0], seed[1]]) | FIRST_PORT;
        for _ in 0..MAX_SUGGESTIONS {
            for member in self
                .members
                .iter_mut()
                .filter(|m| m.takes_data && !m.is_over())
            {
                member.port = None;
                member.command(Command::Suggest {
                    source,
                    destination,
                });
            }
            self.wait(|member| !member.takes_data || member.port.is_some())
                .await;
            if self.interrupted {
                break;
            }
            let alive = self.members.iter().filter(|m| m.takes_data && !m.is_over());
            let mut others = alive.filter_map(|m| m.port.filter(|port| !port.0));
            match others.next() {
                None => break,
                Some((_, port)) => destination = port,
            }
        }
        let failed = Failed::new(Reason::NoPort, None, "");
        for member in self.members.iter().filter(|m| m.takes_data) {
            if member.port.is_some_and(|(confirmed, _)| !confirmed) {
                member.command(Command::Fail(failed.clone()));
            }
        }
        self.wait(|member| member.port.is_none_or(|(confirmed, _)| confirmed))
            .await;
        Ok(reservation)
    }

    fn plan(
        &mut self,
        layout: &Arc<Layout>,
        reservation: Option<&Reservation>,
        group: Option<Ipv4Addr>,
        key: Option<[u8; 32]>,
    ) {
        for member in self.members.iter().filter(|m| !m.is_over()) {
            let path = reservation
                .filter(|_| member.takes_data)
                .map(|reservation| DataPath {
                    carrier: Carrier::Udp,
                    group: group.map(IpAddr::V4),
                    source: reservation.port(),
                    destination: member.port.map_or(0, |(_, port)| port),
                    key: key.map(DataKey),
                });
            member.command(Command::Plan(path.map(|path| (path, Arc::clone(layout)))));
        }
    }

    /// Opens the data connection to all who take data.
    fn open(
        &mut self,
        reservation: &Reservation,
        group: Option<Ipv4Addr>,
        key: Option<[u8; 32]>,
        options: &Options,
    ) -> anyhow::Result<Option<Outgoing>> {
        let takes = |member: &Member| member.takes_data && !member.is_over();
        let members = self.members.iter().enumerate();
        self.receivers = members
            .filter(|(_, m)| takes(m))
            .map(|(at, _)| at)
            .collect();
        let address = |&at: &usize| self.members[at].address.map(|address| *address.ip());
        let addresses: Vec<Ipv4Addr> = self.receivers.iter().filter_map(address).collect();
        let port = self.receivers.first().and_then(|&at| self.members[at].port);
        let Some((_, port)) = port else {
            return Ok(None);
        };
        let source_port = reservation.port();
        let (outgoing, handle, data) =
            Outgoing::open(reservation, options, &addresses, port, group, key)
                .context("cannot open the data connection")?;
        self.data = Some(data);
        self.events.emit(&Event::Started {
            hosts: self.receivers.len(),
            to_send: self.stream_len,
            group: group.map(|group| group.to_string()),
            source_port,
            port,
            sealed: key.is_some(),
        });
        let labels = self.receivers.clone();
        self.show.started(&labels, self.stream_len, handle);
        Ok(Some(outgoing))
    }

    fn data(&mut self, news: DataNews) {
        let (receiver, event) = match news {
            DataNews::Mode(receiver, mode) => (receiver, Some(mode)),
            DataNews::Detached(receiver) => (receiver, None),
            DataNews::Failed(receiver, why) => {
                if let Some(&index) = self.receivers.get(receiver) {
                    let failed = Failed::new(Reason::Data, None, &why);
                    self.members[index].command(Command::Fail(failed));
                }
                return;
            }
        };
        let Some(&index) = self.receivers.get(receiver) else {
            return;
        };
        let member = &mut self.members[index];
        let host = &member.target.text;
        match event {
            Some(mode) => {
                member.mode = Some(mode);
                self.events.emit(&Event::Mode { host, mode });
            }
            None => self.events.emit(&Event::Detached { host }),
        }
        self.show.progress(index, member);
    }
}
