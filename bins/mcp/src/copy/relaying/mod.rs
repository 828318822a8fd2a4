//! Hosts that relay to hosts: links are arranged, and replaced when they fail.

mod islands;
mod judging;
mod pace;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use mcp_control::wire::hello::Capabilities;
use mcp_control::wire::relay::{Fed, Feed, LinkId, LinkReport, LinkSecret, LinkState};
use mcp_control::{Digest, Failed, Layout, Manifest, Reason};
use mcp_relay::{Closer, Terms, feeder};
use tokio::sync::mpsc;

use super::Copy;
use crate::events::{Bypassed, Event};
use crate::host::Command;
use crate::member::Member;
use crate::relay::arrange::{Arrangement, Feeder, Known};
use crate::relay::stock::Stock;
use islands::Islands;
use pace::Pace;

/// Feeders that a host may have in one round, before it fails.
const MAX_FEEDERS: u32 = 12;
/// Feeders that a host may report for their blocks in one round. The sender feeds it after that: its blocks are right.
const MAX_ACCUSED: u32 = 2;
/// Attempts of the sender to open a link to a host.
const MAX_ATTEMPTS: u32 = 2;

/// The end of a link that the sender fed.
pub(super) type Ended = (LinkId, LinkState);

/// A host that is fed over links.
#[derive(Debug)]
struct Child {
    /// The current link.
    link: LinkId,
    secret: LinkSecret,
    /// The feeder of the current link was told to connect.
    has_begun: bool,
    /// Bytes that it has, those that have arrived, and when either grew last.
    held: u64,
    arrived: u64,
    moved: Instant,
    began: Instant,
    first_held: u64,
    feeders: u32,
    /// Feeders that it has reported for their blocks, or that it was faster without.
    accused: u32,
    /// The feeder whose link broke last.
    closed_by: Option<usize>,
    /// How often the sender could not reach it.
    unreachable: u32,
    /// The feeder that it had when it stalled: at fault if another one gets it to move.
    suspect: Option<usize>,
    pace: Pace,
}

/// The links of one round.
pub(super) struct Relaying {
    arrangement: Arrangement,
    stock: Arc<Stock>,
    sealed: bool,
    children: BTreeMap<usize, Child>,
    /// What closes the links that the sender feeds.
    closers: Arc<Mutex<BTreeMap<LinkId, Closer>>>,
    ended: mpsc::UnboundedSender<Ended>,
    /// Hosts may multicast to hosts.
    has_islands: bool,
    islands: Islands,
    next_look: Instant,
}

impl Relaying {
    pub(super) fn new(
        stock: Arc<Stock>,
        sealed: bool,
        has_islands: bool,
        ended: mpsc::UnboundedSender<Ended>,
    ) -> Relaying {
        Relaying {
            arrangement: Arrangement::default(),
            stock,
            sealed,
            children: BTreeMap::new(),
            closers: Arc::default(),
            ended,
            has_islands,
            islands: Islands::new(),
            next_look: Instant::now(),
        }
    }

    pub(super) fn stock(&self) -> Arc<Stock> {
        Arc::clone(&self.stock)
    }

    /// Feeds a child from here, in a thread of its own.
    fn feed(&self, terms: Terms, child: SocketAddr, manifest: Arc<Manifest>) {
        let stock = Arc::clone(&self.stock);
        stock.feed();
        let closers = Arc::clone(&self.closers);
        let ended = self.ended.clone();
        let run = move || {
            let state = match feeder::connect(&terms, child) {
                Err(_) => LinkState::Unreachable,
                Ok(link) => {
                    let closer = link.closer();
                    let lock = || closers.lock().unwrap_or_else(PoisonError::into_inner);
                    lock().insert(terms.link, closer);
                    let _ = link.serve(&manifest, &*stock);
                    lock().remove(&terms.link);
                    LinkState::Closed
                }
            };
            let _ = ended.send((terms.link, state));
        };
        let thread = std::thread::Builder::new().name("link".to_owned());
        if thread.spawn(run).is_err() {
            let _ = self.ended.send((terms.link, LinkState::Unreachable));
        }
    }

    fn child_of(&self, link: LinkId) -> Option<usize> {
        let mut children = self.children.iter();
        children
            .find(|(_, child)| child.link == link)
            .map(|(host, _)| *host)
    }

    fn held(&self, copy: &Copy) -> BTreeMap<usize, u64> {
        let members = copy.members.iter().enumerate();
        members.map(|(at, member)| (at, member.held())).collect()
    }
}

impl Drop for Relaying {
    fn drop(&mut self) {
        self.stock.close();
        let closers = self.closers.lock();
        for closer in closers.unwrap_or_else(PoisonError::into_inner).values() {
            closer.close();
        }
    }
}

/// Whether a host can be fed over links.
pub(super) fn is_fed(member: &Member) -> bool {
    member.takes_data && !member.is_over() && member.capabilities.has(Capabilities::FED)
}

fn known(member: &Member) -> Option<Known> {
    let measured = member.loaded_round_trip.or(member.connected_in);
    Some(Known {
        address: member.address?.ip(),
        round_trip: measured.unwrap_or_default(),
        feeds: member.capabilities.has(Capabilities::FEEDS),
    })
}

impl Copy {
    /// Arranges these hosts, and lets those of `providers`, which have the data otherwise, feed them.
    pub(super) fn arrange(&mut self, hosts: &[usize], providers: &[usize], layout: &Layout) {
        let Some(mut relay) = self.relay.take() else {
            return;
        };
        let known = |at: &usize| known(&self.members[*at]).map(|known| (*at, known));
        for (host, known) in providers.iter().filter_map(known) {
            relay.arrangement.provide(host, known);
        }
        let hosts: Vec<(usize, Known)> = hosts.iter().filter_map(known).collect();
        let blocks = layout.len().div_ceil(mcp_control::limits::BLOCK_LEN);
        let arranged = relay.arrangement.arrange(&hosts, blocks);
        self.relay = Some(relay);
        for &(host, feeder) in &arranged {
            self.members[host].set_mode("relay");
            self.link(host, feeder, "arranged");
        }
        let hosts: Vec<usize> = arranged.into_iter().map(|(host, _)| host).collect();
        self.form_islands(&hosts);
    }

    /// Has a host be fed by this feeder: the host is told, and when it has confirmed, the feeder.
    fn link(&mut self, host: usize, feeder: Feeder, reason: &'static str) {
        let Some(relay) = &mut self.relay else { return };
        let Ok(random) = linux_net::process::random::<48>() else {
            let failed = Failed::new(Reason::Data, None, "no random numbers for a link");
            self.members[host].command(Command::Fail(failed));
            return;
        };
        let link = LinkId(std::array::from_fn(|at| random[at]));
        let secret = LinkSecret(std::array::from_fn(|at| random[16 + at]));
        let now = Instant::now();
        let member = &self.members[host];
        let held = member.held();
        let child = relay.children.entry(host).or_insert(Child {
            link,
            secret,
            has_begun: false,
            held,
            arrived: 0,
            moved: now,
            began: now,
            first_held: held,
            feeders: 0,
            accused: 0,
            closed_by: None,
            unreachable: 0,
            suspect: None,
            pace: Pace::default(),
        });
        (child.link, child.secret, child.has_begun) = (link, secret, false);
        child.moved = now;
        child.pace.restart();
        child.feeders += 1;
        if child.feeders > MAX_FEEDERS {
            let text = "no other host could feed it";
            member.command(Command::Fail(Failed::new(Reason::Data, None, text)));
            return;
        }
        // The slow or wrong bytes may have come from the island's stream.
        let is_suspicious = matches!(reason, "slow" | "stalled" | "wrong_bytes" | "tried");
        let alone = is_suspicious && member.capabilities.has(Capabilities::ISLANDS);
        member.command(Command::Fed(Fed {
            link,
            secret,
            sealed: relay.sealed,
            alone,
        }));
        let feeder = match feeder {
            Feeder::Sender => None,
            Feeder::Host(feeder) => Some(self.members[feeder].target.text.as_str()),
        };
        self.events.emit(&Event::Feeder {
            host: &member.target.text,
            feeder,
            reason,
        });
        if alone {
            self.leave_stream(host);
        }
    }

    /// Handles what a host, or the thread that feeds it, reports of a link.
    pub(super) fn link_report(&mut self, report: LinkReport, from: Option<usize>) {
        let Some(relay) = &self.relay else { return };
        // Reports on links that were replaced come late.
        let Some(host) = relay.child_of(report.link) else {
            if let Some(from) = from {
                self.island_report(report, from);
            }
            return;
        };
        let feeder = relay.arrangement.feeder(host);
        let from_child = from == Some(host);
        let from_feeder = from.map_or(feeder == Some(Feeder::Sender), |from| {
            feeder == Some(Feeder::Host(from))
        });
        match report.state {
            LinkState::Expected if from_child => self.begin_feeding(host),
            LinkState::Wrong { block } if from_child => match feeder {
                Some(Feeder::Host(feeder)) => self.at_fault(host, feeder, "wrong_bytes", block),
                _ => {
                    let text = "reports wrong bytes in what this host sent to it";
                    let failed = Failed::new(Reason::Data, None, text);
                    self.members[host].command(Command::Fail(failed));
                }
            },
            LinkState::Gone { block } if from_child => match feeder {
                Some(Feeder::Host(feeder)) => self.at_fault(host, feeder, "gone", block),
                _ => {
                    let failed = Failed::new(Reason::Changed, None, "");
                    self.members[host].command(Command::Fail(failed));
                }
            },
            LinkState::Closed if from_child => self.closed(host),
            LinkState::Unreachable if from_feeder => self.unreachable(host, from.is_none()),
            LinkState::Refused if from_feeder => self.refeed(host, "refused"),
            // The child reports the same, or has everything.
            _ => {}
        }
    }

    /// Handles that a link broke: the same feeder is tried once more before another one.
    fn closed(&mut self, host: usize) {
        let Some(relay) = &mut self.relay else { return };
        let feeder = relay.arrangement.feeder(host);
        let Some(child) = relay.children.get_mut(&host) else {
            return;
        };
        match feeder {
            Some(Feeder::Host(at)) if child.closed_by != Some(at) => {
                child.closed_by = Some(at);
                self.link(host, Feeder::Host(at), "closed");
            }
            _ => self.refeed(host, "closed"),
        }
    }

    /// Handles that a host cannot be reached by its feeder, or by the sender.
    fn unreachable(&mut self, host: usize, by_sender: bool) {
        let child = self.relay.as_mut();
        let child = child.and_then(|relay| relay.children.get_mut(&host));
        let Some(child) = child else { return };
        child.unreachable += u32::from(by_sender);
        if child.unreachable < MAX_ATTEMPTS {
            self.refeed(host, "unreachable");
            return;
        }
        let text = "accepts no link on its control port: does a firewall limit connections?";
        let failed = Failed::new(Reason::Data, None, text);
        self.members[host].command(Command::Fail(failed));
    }

    /// Tells the feeder of a host that it may connect: once for each link, however often the host reports that it waits.
    fn begin_feeding(&mut self, host: usize) {
        let Some(relay) = &mut self.relay else { return };
        let child = relay.children.get_mut(&host);
        let (Some(child), Some(address)) = (child, self.members[host].address) else {
            return;
        };
        if std::mem::replace(&mut child.has_begun, true) {
            return;
        }
        let (link, secret, sealed) = (child.link, child.secret, relay.sealed);
        match relay.arrangement.feeder(host) {
            Some(Feeder::Host(feeder)) => self.members[feeder].command(Command::Feed(Feed {
                link,
                secret,
                child: address,
                sealed,
            })),
            Some(Feeder::Sender) => {
                let terms = Terms {
                    link,
                    secret,
                    sealed,
                };
                let manifest = Arc::clone(&self.tree.manifest);
                relay.feed(terms, address, manifest);
            }
            None => {}
        }
    }

    /// Names the feeder of a host, which feeds none any more, and gives all its children others. A host that has reported
    /// [`MAX_ACCUSED`] feeders is fed by the sender, and no further report of it counts: it may be the one that lies.
    fn at_fault(&mut self, host: usize, feeder: usize, reason: &'static str, block: u64) {
        let Some(relay) = &mut self.relay else { return };
        let Some(child) = relay.children.get_mut(&host) else {
            return;
        };
        let is_believed = child.accused < MAX_ACCUSED;
        child.accused += 1;
        if child.accused >= MAX_ACCUSED {
            relay.arrangement.set(host, Feeder::Sender);
            self.link(host, Feeder::Sender, reason);
        }
        if !is_believed {
            return;
        }
        self.name(feeder, reason, Some(block));
        let children = self.relay.as_ref();
        let children = children.map(|relay| relay.arrangement.children(feeder));
        for child in children.unwrap_or_default() {
            self.refeed(child, reason);
        }
    }

    /// Gives a host another feeder.
    fn refeed(&mut self, host: usize, reason: &'static str) {
        if self.members[host].is_over() || self.members[host].has_all {
            return;
        }
        let Some(mut relay) = self.relay.take() else {
            return;
        };
        let held = relay.held(self);
        let feeder = relay
            .arrangement
            .replace(host, |host| held.get(&host).copied().unwrap_or(0));
        self.relay = Some(relay);
        self.link(host, feeder, reason);
    }

    /// Handles that a host is over: those that it fed get other feeders.
    pub(super) fn leave(&mut self, host: usize) {
        let Some(relay) = &mut self.relay else { return };
        let children = relay.arrangement.remove(host);
        let child = relay.children.remove(&host);
        let suspect = child.and_then(|child| child.suspect);
        // It has received everything since.
        if let Some(suspect) = suspect.filter(|_| self.members[host].has_all) {
            self.name(suspect, "stalled", None);
        }
        for child in children {
            self.refeed(child, "died");
        }
        if let Some(relay) = &mut self.relay {
            relay.arrangement.forget(host);
        }
        self.leave_islands(host);
        self.conclude();
    }

    /// Handles that a host has everything.
    pub(super) fn has_all(&mut self, host: usize) {
        self.members[host].has_all = true;
        self.conclude();
    }

    /// Tells the digest of the whole to the hosts that feed none that still needs them: they are over then.
    pub(super) fn conclude(&mut self) {
        let Some(whole) = self.whole else { return };
        for at in 0..self.members.len() {
            let member = &self.members[at];
            if member.expects || member.is_over() {
                continue;
            }
            let children = self
                .relay
                .as_ref()
                .map(|relay| relay.arrangement.children(at));
            let is_needed = |&child: &usize| {
                let child = &self.members[child];
                !child.is_over() && !child.has_all
            };
            if children.unwrap_or_default().iter().any(is_needed) {
                continue;
            }
            member.command(Command::Expect(whole));
            self.members[at].expects = true;
        }
    }

    /// Sets the digest of the whole, when every file was read.
    pub(super) fn whole(&mut self, whole: Digest) {
        self.whole = Some(whole);
        self.conclude();
    }

    /// Names a host, which feeds none any more.
    fn name(&mut self, host: usize, reason: &'static str, block: Option<u64>) {
        let Some(relay) = &mut self.relay else { return };
        relay.arrangement.bypass(host);
        let bypassed = Bypassed {
            host: self.members[host].target.text.clone(),
            reason,
            block,
        };
        self.show.bypassed(&bypassed.host, reason, block);
        self.events.emit(&Event::Bypassed(bypassed.clone()));
        self.bypassed.push(bypassed);
        self.end_island_of(host, reason);
    }
}
