//! Islands: hosts of one subnet, fed over links, among which one multicasts what it receives.
//!
//! Links stay arranged and are the way in which hosts get what multicast does not bring, so nothing depends on an island:
//! whether multicast works among its hosts, only its head can find out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mcp_control::wire::hello::Capabilities;
use mcp_control::wire::island::{Island, Listen, MAX_MEMBERS, MIN_MEMBERS, Multicast};
use mcp_control::wire::relay::{LinkId, LinkReport, LinkSecret, LinkState};

use super::super::Copy;
use super::super::prepare::FIRST_PORT;
use crate::events::Event;
use crate::host::Command;
use crate::relay::arrange::subnet;

/// Time for the members to report that they listen; the head begins without those that do not.
const LISTENING: Duration = Duration::from_secs(2);

/// The island of one subnet.
#[derive(Debug)]
pub(super) struct Group {
    island: Island,
    head: usize,
    /// The members that listen, and those that have not answered yet.
    members: BTreeSet<usize>,
    pending: BTreeSet<usize>,
    /// Until when those are waited for; `None`: the head was told to begin.
    begins: Option<Instant>,
}

/// The islands of one round.
pub(super) type Islands = BTreeMap<LinkId, Group>;

/// Returns a stream with random ports and a random group: of 239.255.0.0/16 (RFC 2365 §6.1) or
/// ff14::/16 (RFC 7346); the hop limit keeps it on the link.
fn random_island(ipv6: bool, sealed: bool) -> std::io::Result<Island> {
    let random = linux_net::process::random::<72>()?;
    let take = |at: usize| random[48 + at];
    let group: IpAddr = if ipv6 {
        let mut octets: [u8; 16] = std::array::from_fn(take);
        (octets[0], octets[1]) = (0xff, 0x14);
        // RFC 3307 §4.3
        octets[12] |= 0x80;
        Ipv6Addr::from(octets).into()
    } else {
        Ipv4Addr::new(239, 255, take(0), take(1)).into()
    };
    let port = |at| u16::from_be_bytes([take(at), take(at + 1)]) | FIRST_PORT;
    Ok(Island {
        link: LinkId(std::array::from_fn(|at| random[at])),
        secret: LinkSecret(std::array::from_fn(|at| random[16 + at])),
        group,
        source: port(16),
        destination: port(18),
        sealed,
    })
}

impl Copy {
    /// Forms islands of these hosts, which links feed, in the order of the data.
    pub(super) fn form_islands(&mut self, hosts: &[usize]) {
        let may = self.relay.as_ref().is_some_and(|relay| relay.has_islands);
        if !may {
            return;
        }
        let mut subnets: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for &host in hosts {
            let member = &self.members[host];
            let is_able = member.capabilities.has(Capabilities::ISLANDS);
            if let Some(address) = member.address.filter(|_| is_able && !member.has_all) {
                subnets.entry(subnet(address.ip())).or_default().push(host);
            }
        }
        for hosts in subnets.values() {
            for hosts in hosts
                .chunks(1 + MAX_MEMBERS)
                .filter(|h| h.len() > MIN_MEMBERS)
            {
                let feeds = |&&host: &&usize| {
                    let capabilities = self.members[host].capabilities;
                    capabilities.has(Capabilities::FEEDS)
                };
                if let Some(&head) = hosts.iter().find(feeds) {
                    let members = hosts.iter().copied().filter(|&host| host != head);
                    self.form_island(head, members.collect());
                }
            }
        }
    }

    fn form_island(&mut self, head: usize, members: BTreeSet<usize>) {
        let Some(relay) = &mut self.relay else { return };
        let Some(address) = self.members[head].address else {
            return;
        };
        let Ok(island) = random_island(address.is_ipv6(), relay.sealed) else {
            return; // Links do without.
        };
        let head_address = address.ip();
        for &member in &members {
            self.members[member].command(Command::Listen(Listen {
                island,
                head: head_address,
            }));
        }
        let group = Group {
            island,
            head,
            members: BTreeSet::new(),
            pending: members,
            begins: Some(Instant::now() + LISTENING),
        };
        relay.islands.insert(island.link, group);
    }

    /// Handles what a host reports of an island.
    pub(super) fn island_report(&mut self, report: LinkReport, from: usize) {
        let Some(relay) = &mut self.relay else { return };
        let Some(group) = relay.islands.get_mut(&report.link) else {
            return;
        };
        if from == group.head {
            // Its members report for themselves, and get what they lack over their links.
            return;
        }
        let head = group.head;
        let was_pending = group.pending.remove(&from);
        match report.state {
            LinkState::Expected if was_pending => {
                group.members.insert(from);
                self.begin_island(report.link);
            }
            LinkState::Refused if was_pending => self.begin_island(report.link),
            LinkState::Open { .. } if group.members.contains(&from) => self.in_mode(from, "island"),
            LinkState::Closed if group.members.remove(&from) => self.in_mode(from, "relay"),
            LinkState::Wrong { block } if group.members.remove(&from) => {
                self.in_mode(from, "relay");
                self.at_fault(from, head, "wrong_bytes", block);
            }
            _ => {}
        }
    }

    fn in_mode(&mut self, host: usize, mode: &'static str) {
        let member = &mut self.members[host];
        if member.is_over() || member.has_all || member.mode() == Some(mode) {
            return;
        }
        member.set_mode(mode);
        self.events.emit(&Event::Mode {
            host: &member.target.text,
            mode,
        });
    }

    /// Has the heads of islands begin whose members have had their time.
    pub(super) fn look_at_islands(&mut self, now: Instant) {
        let Some(relay) = &mut self.relay else { return };
        let is_late = |group: &&mut Group| group.begins.is_some_and(|begins| now >= begins);
        let late: Vec<LinkId> = relay
            .islands
            .values_mut()
            .filter(is_late)
            .map(|group| {
                group.pending.clear();
                group.island.link
            })
            .collect();
        for island in late {
            self.begin_island(island);
        }
    }

    /// Has the head of an island begin, once no member is waited for.
    fn begin_island(&mut self, link: LinkId) {
        let Some(relay) = &mut self.relay else { return };
        let Some(group) = relay.islands.get_mut(&link) else {
            return;
        };
        if !group.pending.is_empty() || group.begins.take().is_none() {
            return;
        }
        let hosts = group.members.iter().map(|&member| &self.members[member]);
        let members = hosts.filter(|m| !m.is_over() && !m.has_all);
        let members: Vec<IpAddr> = members
            .filter_map(|member| Some(member.address?.ip()))
            .collect();
        if members.len() < MIN_MEMBERS {
            relay.islands.remove(&link);
            return;
        }
        let (island, head) = (group.island, &self.members[group.head]);
        head.command(Command::Multicast(Arc::new(Multicast { island, members })));
        self.events.emit(&Event::Island {
            head: &head.target.text,
            members: group.members.len(),
            group: island.group,
        });
    }

    /// Handles that a host was told to listen to no island any more.
    pub(super) fn leave_stream(&mut self, host: usize) {
        let Some(relay) = &mut self.relay else { return };
        for group in relay.islands.values_mut() {
            if group.members.remove(&host) {
                self.in_mode(host, "relay");
                return;
            }
        }
    }

    /// Has the members of the island of a host that is bypassed stop listening to it.
    pub(super) fn end_island_of(&mut self, head: usize, reason: &'static str) {
        let Some(relay) = &mut self.relay else { return };
        let mut islands = relay.islands.iter();
        let Some(link) = islands.find_map(|(&link, group)| (group.head == head).then_some(link))
        else {
            return;
        };
        let members = relay.islands.remove(&link).map(|group| group.members);
        for member in members.into_iter().flatten() {
            let relay = self.relay.as_ref();
            let feeder = relay.and_then(|relay| relay.arrangement.feeder(member));
            let ended = self.members[member].is_over() || self.members[member].has_all;
            if let Some(feeder) = feeder.filter(|_| !ended) {
                self.in_mode(member, "relay");
                self.link(member, feeder, reason);
            }
        }
    }

    /// Handles that a host is over. The hosts of an island that has lost its head form another one.
    pub(super) fn leave_islands(&mut self, host: usize) {
        let Some(relay) = &mut self.relay else { return };
        let mut headless = Vec::new();
        let mut waiting = Vec::new();
        for (&link, group) in &mut relay.islands {
            if group.head == host {
                headless.push(link);
            } else if group.pending.remove(&host) {
                waiting.push(link);
            }
            group.members.remove(&host);
        }
        let has_all = self.members[host].has_all;
        for link in headless {
            let group = self
                .relay
                .as_mut()
                .and_then(|relay| relay.islands.remove(&link));
            let Some(group) = group.filter(|_| !has_all) else {
                continue;
            };
            let left: Vec<usize> = group.members.into_iter().chain(group.pending).collect();
            for &member in &left {
                self.in_mode(member, "relay");
            }
            self.form_islands(&left);
        }
        for link in waiting {
            self.begin_island(link);
        }
    }
}
