use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};

use super::{Address, Interface};
use crate::error::{Capability, OpenError, ReceiveError};
use crate::netlink::{Message, NLM_F_DUMP, Notified, Socket, attributes, ipv4_of, u32_of};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const RTNLGRP_LINK: u32 = 1;
const RTNLGRP_IPV4_IFADDR: u32 = 5;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

/// A change of an interface or of its addresses, with its state afterwards (for a removed one:
/// before).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// It appeared.
    Added(Interface),
    /// Its name, state, MTU or addresses changed.
    Changed(Interface),
    /// It vanished.
    Removed(Interface),
}

type Table = BTreeMap<u32, Interface>;

/// Follows interfaces and their IPv4 addresses.
///
/// Events come in order, and what they say matches [`interfaces`](Self::interfaces); when the
/// kernel had to drop notifications the watcher reads the tables again and reports the
/// difference. Needs no privileges.
#[derive(Debug)]
pub struct Watcher {
    notifications: Socket,
    requests: Socket,
    table: Table,
    /// At most what one datagram of notifications, or one difference of tables, makes.
    events: VecDeque<LinkEvent>,
}

pub(super) fn open(groups: &[u32]) -> Result<Socket, OpenError> {
    Socket::open(libc::NETLINK_ROUTE, groups).map_err(OpenError::from(
        "netlink socket for interfaces",
        Capability::NetAdmin,
    ))
}

/// Links and addresses.
pub(super) fn dump(socket: &mut Socket) -> Result<Table, OpenError> {
    let error = OpenError::from("listing interfaces", Capability::NetAdmin);
    let links = Message::new(RTM_GETLINK, NLM_F_DUMP).fixed(&[0; 16]);
    let mut table = socket
        .dump(&links, Table::new, |table, kind, payload| {
            apply(table, kind, payload);
        })
        .map_err(error)?;
    let mut ifaddrmsg = [0; 8];
    ifaddrmsg[0] = libc::AF_INET as u8;
    let addresses = Message::new(RTM_GETADDR, NLM_F_DUMP).fixed(&ifaddrmsg);
    let found = socket
        .dump(&addresses, Vec::new, |found, kind, payload| {
            found.push((kind, payload.to_vec()));
        })
        .map_err(error)?;
    for (kind, payload) in found {
        apply(&mut table, kind, &payload);
    }
    Ok(table)
}

/// Applies one message of a dump or a notification; answers what changed.
fn apply(table: &mut Table, kind: u16, payload: &[u8]) -> Option<LinkEvent> {
    match kind {
        RTM_NEWLINK => {
            let mut interface = parse_link(payload)?;
            match table.get_mut(&interface.index) {
                Some(known) => {
                    interface.addresses = std::mem::take(&mut known.addresses);
                    let changed = *known
                        != Interface {
                            addresses: Vec::new(),
                            ..interface.clone()
                        };
                    known.clone_from(&interface);
                    changed.then_some(LinkEvent::Changed(interface))
                }
                None => {
                    table.insert(interface.index, interface.clone());
                    Some(LinkEvent::Added(interface))
                }
            }
        }
        RTM_DELLINK => {
            let interface = parse_link(payload)?;
            table.remove(&interface.index).map(LinkEvent::Removed)
        }
        RTM_NEWADDR | RTM_DELADDR => {
            let (index, address) = parse_address(payload)?;
            let known = table.get_mut(&index)?;
            let at = known.addresses.iter().position(|a| *a == address);
            match (kind, at) {
                (RTM_NEWADDR, None) => known.addresses.push(address),
                (RTM_DELADDR, Some(at)) => {
                    known.addresses.remove(at);
                }
                _ => return None,
            }
            Some(LinkEvent::Changed(known.clone()))
        }
        _ => None,
    }
}

/// `struct ifinfomsg` and its attributes. Messages of other families (a bridge's ports) describe
/// no link.
fn parse_link(payload: &[u8]) -> Option<Interface> {
    let (header, rest) = payload.split_first_chunk::<16>()?;
    if i32::from(header[0]) != libc::AF_UNSPEC {
        return None;
    }
    let word = |at: usize| {
        u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let flags = word(8).cast_signed();
    let mut interface = Interface {
        index: word(4),
        is_up: flags & libc::IFF_UP != 0,
        is_running: flags & libc::IFF_RUNNING != 0 && flags & libc::IFF_UP != 0,
        is_multicast: flags & libc::IFF_MULTICAST != 0,
        is_loopback: flags & libc::IFF_LOOPBACK != 0,
        is_point_to_point: flags & libc::IFF_POINTOPOINT != 0,
        ..Interface::default()
    };
    for (kind, data) in attributes(rest) {
        match kind {
            IFLA_ADDRESS => interface.link_address = data.try_into().ok(),
            IFLA_IFNAME => {
                let name = data.split(|b| *b == 0).next().unwrap_or_default();
                interface.name = String::from_utf8_lossy(name).into_owned();
            }
            IFLA_MTU => interface.mtu = u32_of(data)?,
            _ => {}
        }
    }
    (interface.index != 0).then_some(interface)
}

/// `struct ifaddrmsg` and its attributes.
fn parse_address(payload: &[u8]) -> Option<(u32, Address)> {
    let (header, rest) = payload.split_first_chunk::<8>()?;
    if i32::from(header[0]) != libc::AF_INET {
        return None;
    }
    let index = u32::from_ne_bytes([header[4], header[5], header[6], header[7]]);
    let (mut local, mut address) = (None, None);
    for (kind, data) in attributes(rest) {
        match kind {
            IFA_LOCAL => local = ipv4_of(data),
            IFA_ADDRESS => address = ipv4_of(data),
            _ => {}
        }
    }
    // On point-to-point links IFA_ADDRESS is the other end's.
    Some((
        index,
        Address {
            address: local.or(address)?,
            prefix_len: header[1],
        },
    ))
}

impl Watcher {
    /// Starts to follow. Everything that exists comes first, as [`LinkEvent::Added`].
    pub fn open() -> Result<Self, OpenError> {
        // Subscribed before the dump, so that nothing falls between.
        let notifications = open(&[RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR])?;
        let mut requests = open(&[])?;
        let table = dump(&mut requests)?;
        let events = table.values().cloned().map(LinkEvent::Added).collect();
        Ok(Self {
            notifications,
            requests,
            table,
            events,
        })
    }

    /// The next change; `None` when there is none at the moment.
    pub fn next_event(&mut self) -> Result<Option<LinkEvent>, ReceiveError> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            let (table, events) = (&mut self.table, &mut self.events);
            let notified = self.notifications.notifications(|kind, payload| {
                events.extend(apply(table, kind, payload));
            });
            match notified.map_err(ReceiveError::Io)? {
                Notified::Idle => return Ok(None),
                Notified::Some => {}
                Notified::Overflow => self.resync()?,
            }
        }
    }

    /// Reads the tables again and queues the differences.
    fn resync(&mut self) -> Result<(), ReceiveError> {
        self.notifications.discard();
        let fresh =
            dump(&mut self.requests).map_err(|e| ReceiveError::Io(std::io::Error::other(e)))?;
        let known = std::mem::replace(&mut self.table, fresh);
        self.events.clear();
        for (index, interface) in &known {
            if !self.table.contains_key(index) {
                self.events.push_back(LinkEvent::Removed(interface.clone()));
            }
        }
        for (index, interface) in &self.table {
            match known.get(index) {
                None => self.events.push_back(LinkEvent::Added(interface.clone())),
                Some(old) if old != interface => {
                    self.events.push_back(LinkEvent::Changed(interface.clone()));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// All interfaces as known now, by index.
    pub fn interfaces(&self) -> impl Iterator<Item = &Interface> {
        self.table.values()
    }

    /// One of them.
    pub fn interface(&self, index: u32) -> Option<&Interface> {
        self.table.get(&index)
    }
}

impl AsFd for Watcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notifications.as_fd()
    }
}
