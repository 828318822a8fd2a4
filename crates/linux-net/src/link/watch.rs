use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};

use super::{Address, Interface, Ipv6Address};
use crate::error::{Capability, OpenError, ReceiveError};
use crate::family::Family;
use crate::follow::{Event, Follower, Mirror};
use crate::netlink::{Message, NLM_F_DUMP, Socket, attributes, u32_of};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const RTNLGRP_LINK: u32 = 1;
const RTNLGRP_IPV4_IFADDR: u32 = 5;
const RTNLGRP_IPV6_IFADDR: u32 = 9;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
const IFA_F_OPTIMISTIC: u32 = 0x04;
const IFA_F_DADFAILED: u32 = 0x08;
const IFA_F_TENTATIVE: u32 = 0x40;

/// A change of an interface or of its addresses: its name, state, MTU, link address or addresses.
pub type LinkEvent = Event<Interface>;

type Table = BTreeMap<u32, Interface>;

/// Follows interfaces and their addresses.
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
    // Of both versions of IP.
    let addresses = Message::new(RTM_GETADDR, NLM_F_DUMP).fixed(&[0; 8]);
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
                link.ipv6.clone_from(&known.ipv6);
            }
            Some((link, true))
        }
        RTM_DELLINK => Some((parse_link(payload)?, false)),
        RTM_NEWADDR | RTM_DELADDR => {
            let exists = kind == RTM_NEWADDR;
            let (index, address) = parse_address(payload)?;
            let mut link = table.get(&index)?.clone();
            let changed = match address {
                Found::V4(address) => change(&mut link.addresses, address, exists, |a, b| a == b),
                Found::V6(address) => change(&mut link.ipv6, address, exists, |a, b| {
                    a.address == b.address
                }),
            };
            changed.then_some((link, true))
        }
        _ => None,
    }
}

/// Adds or removes an address; one that is known, as `is_it` says, takes its new state. Returns whether anything changed.
fn change<T: PartialEq>(
    all: &mut Vec<T>,
    address: T,
    exists: bool,
    is_it: impl Fn(&T, &T) -> bool,
) -> bool {
    match (exists, all.iter().position(|known| is_it(known, &address))) {
        (true, None) => all.push(address),
        (true, Some(at)) if all[at] != address => all[at] = address,
        (false, Some(at)) => {
            all.remove(at);
        }
        _ => return false,
    }
    true
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

/// An address in a message.
enum Found {
    V4(Address),
    V6(Ipv6Address),
}

/// `struct ifaddrmsg` and its attributes.
fn parse_address(payload: &[u8]) -> Option<(u32, Found)> {
    let (header, rest) = payload.split_first_chunk::<8>()?;
    let index = u32::from_ne_bytes([header[4], header[5], header[6], header[7]]);
    let prefix_len = header[1];
    let found = match i32::from(header[0]) {
        libc::AF_INET => Found::V4(Address {
            address: own_address::<Ipv4Addr>(rest)?,
            prefix_len,
        }),
        libc::AF_INET6 => {
            let flags = attributes(rest).find(|(kind, _)| *kind == IFA_FLAGS);
            let flags = flags.and_then(|(_, data)| u32_of(data));
            let flags = flags.unwrap_or_else(|| u32::from(header[2]));
            let tentative = IFA_F_TENTATIVE | IFA_F_OPTIMISTIC;
            Found::V6(Ipv6Address {
                address: Address {
                    address: own_address::<Ipv6Addr>(rest)?,
                    prefix_len,
                },
                is_tentative: flags & tentative == IFA_F_TENTATIVE,
                is_duplicate: flags & IFA_F_DADFAILED != 0,
            })
        }
        _ => return None,
    };
    Some((index, found))
}

/// This end's address: on point-to-point links `IFA_ADDRESS` is the other end's.
fn own_address<A: Family>(bytes: &[u8]) -> Option<A> {
    let find = |wanted| attributes(bytes).find(|(kind, _)| *kind == wanted);
    let (_, data) = find(IFA_LOCAL).or_else(|| find(IFA_ADDRESS))?;
    A::from_octets(data)
}

impl Watcher {
    /// Starts to follow. Everything that exists comes first, as [`LinkEvent::Added`].
    ///
    /// # Errors
    /// [`OpenError`] when the netlink socket cannot be opened.
    pub fn open() -> Result<Self, OpenError> {
        let notifications = open(&[RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR])?;
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
