use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd, BorrowedFd};

use super::{Address, Interface};
use crate::error::{Capability, OpenError, ReceiveError};
use crate::follow::{Event, Follower, Mirror};
use crate::netlink::{Message, NLM_F_DUMP, Socket, attributes, ipv4_of, u32_of};

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

/// A change of an interface or of its addresses: its name, state, MTU, link address or addresses.
pub type LinkEvent = Event<Interface>;

type Table = BTreeMap<u32, Interface>;

/// Follows interfaces and their IPv4 addresses.
///
/// Events come in order and match [`interfaces`](Self::interfaces); when the
/// kernel had to drop notifications the watcher reads the tables again and reports the
/// difference. Needs no privileges.
#[derive(Debug)]
pub struct Watcher(Follower<u32, Interface>);

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
            if let Some((link, _)) = applied(table, kind, payload) {
                table.insert(link.index, link);
            }
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
        if let Some((link, _)) = applied(&table, kind, &payload) {
            table.insert(link.index, link);
        }
    }
    Ok(table)
}

/// Index of the interface that has an IPv6 address; of a link-local one, the first.
pub(super) fn holder(socket: &mut Socket, address: Ipv6Addr) -> Result<Option<u32>, OpenError> {
    let mut ifaddrmsg = [0; 8];
    ifaddrmsg[0] = libc::AF_INET6 as u8;
    let request = Message::new(RTM_GETADDR, NLM_F_DUMP).fixed(&ifaddrmsg);
    let found = socket.dump(&request, Vec::new, |found, _, payload| {
        let Some((header, rest)) = payload.split_first_chunk::<8>() else {
            return;
        };
        let is_it = |(kind, data): (u16, &[u8])| {
            [IFA_ADDRESS, IFA_LOCAL].contains(&kind) && data == address.octets()
        };
        if i32::from(header[0]) == libc::AF_INET6 && attributes(rest).any(is_it) {
            found.push(u32::from_ne_bytes([
                header[4], header[5], header[6], header[7],
            ]));
        }
    });
    let error = OpenError::from("listing IPv6 addresses", Capability::NetAdmin);
    Ok(found.map_err(error)?.first().copied())
}

/// Applies one notification.
fn apply(mirror: &mut Mirror<u32, Interface>, kind: u16, payload: &[u8]) {
    match applied(mirror.table(), kind, payload) {
        Some((link, true)) => mirror.set(link.index, link),
        Some((link, false)) => mirror.remove(link.index),
        None => {}
    }
}

/// An interface as one message of a dump or a notification leaves it, and whether it exists then.
fn applied(table: &Table, kind: u16, payload: &[u8]) -> Option<(Interface, bool)> {
    match kind {
        RTM_NEWLINK => {
            let mut link = parse_link(payload)?;
            if let Some(known) = table.get(&link.index) {
                link.addresses.clone_from(&known.addresses);
            }
            Some((link, true))
        }
        RTM_DELLINK => Some((parse_link(payload)?, false)),
        RTM_NEWADDR | RTM_DELADDR => {
            let (index, address) = parse_address(payload)?;
            let mut link = table.get(&index)?.clone();
            let at = link.addresses.iter().position(|a| *a == address);
            match (kind, at) {
                (RTM_NEWADDR, None) => link.addresses.push(address),
                (RTM_DELADDR, Some(at)) => {
                    link.addresses.remove(at);
                }
                _ => return None,
            }
            Some((link, true))
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
    ///
    /// # Errors
    /// [`OpenError`] when the netlink socket cannot be opened.
    pub fn open() -> Result<Self, OpenError> {
        let notifications = open(&[RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR])?;
        let mut follower = Follower::new(notifications, open(&[])?);
        follower.read(read).map_err(|e| OpenError::Io {
            what: "listing interfaces",
            source: std::io::Error::other(e),
        })?;
        Ok(Self(follower))
    }

    /// Returns the next change; `None` when there is none at the moment. After an error the state may
    /// be stale; the next call reads the tables again.
    ///
    /// # Errors
    /// [`ReceiveError`] when notifications were lost or the tables cannot be read.
    pub fn next_event(&mut self) -> Result<Option<LinkEvent>, ReceiveError> {
        self.0.next(apply, read)
    }

    /// All interfaces as known now, by index.
    pub fn interfaces(&self) -> impl Iterator<Item = &Interface> {
        self.0.mirror.table().values()
    }

    /// One of them.
    pub fn interface(&self, index: u32) -> Option<&Interface> {
        self.0.mirror.table().get(&index)
    }
}

fn read(socket: &mut Socket) -> Result<Table, ReceiveError> {
    dump(socket).map_err(|e| ReceiveError::Io(std::io::Error::other(e)))
}

impl AsFd for Watcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
