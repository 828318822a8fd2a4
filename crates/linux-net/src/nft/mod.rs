//! Keeping LMS messages from the kernel: what the router handles, the kernel must not also
//! route as data, hand to the routing daemon as an unknown group, or answer with an ICMP error.
//!
//! # What gets past the guard
//!
//! The packet filter has no loops, its expression for IPv4 options (`exthdr`) knows four of them,
//! none of ours, and its programs (`xt_bpf`) end after 64 instructions, three steps of a walk. So
//! the guard looks where endpoints put their option, and [`hides`] says the same of a packet:
//!
//! | before the LMS option | |
//! | --- | --- |
//! | nothing, or up to four NOPs | hidden |
//! | a router alert (RFC 2113) | hidden |
//! | anything else | seen by the kernel too |
//!
//! What the kernel sees too does no more harm than any multicast packet of that host: routing
//! asks its daemon about a source that is none. The router handles the message all the same.
//!
//! # Receivers on the router's own host
//!
//! Requests are hidden from the whole host, from its sockets too. The kernel has no place for a
//! rule behind its question to the routing daemon and before the sockets. A
//! [`RequestTap`](crate::packet::RequestTap) still receives them, as a [`Ring`](crate::packet::Ring)
//! does: they receive packets before the guard.

mod expr;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use thiserror::Error;

use crate::error::Capability;
use crate::netlink::{Message, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, Socket, attributes};
use crate::privileges;
use expr::{Expressions, Verdict};

const NFNL_SUBSYS_NFTABLES: u16 = 10;
const NFNL_MSG_BATCH_BEGIN: u16 = 16;
const NFNL_MSG_BATCH_END: u16 = 17;
const NFPROTO_IPV4: u8 = 2;

const NFT_MSG_NEWTABLE: u16 = 0;
const NFT_MSG_NEWCHAIN: u16 = 3;
const NFT_MSG_NEWRULE: u16 = 6;
const NFT_MSG_NEWOBJ: u16 = 18;
const NFT_MSG_GETOBJ: u16 = 19;

const NFT_TABLE_F_OWNER: u32 = 2;
const NFT_OBJECT_COUNTER: u32 = 1;
const HOOK_PREROUTING: u32 = 0;
const HOOK_INPUT: u32 = 1;
/// `raw`: before connection tracking.
const PRIORITY_RAW: i32 = -300;

const TABLE: &str = "lms-router";

/// The guard was not put up, or not read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GuardError {
    /// The process lacks a capability.
    #[error("the packet filter needs CAP_NET_ADMIN: run as root, or inside `unshare -Urn`")]
    Privilege,
    /// Another router guards this network namespace.
    #[error(
        "an nftables table `ip lms-router` exists already: another lms-router runs in this network namespace; stop it first"
    )]
    Exists,
    /// No nftables, or too old (table owners came with Linux 5.12).
    #[error(
        "this kernel has no nftables with table owners (CONFIG_NF_TABLES_IPV4, Linux 5.12): {0}"
    )]
    Unsupported(io::Error),
    /// Anything else.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Packets and bytes of one kind that the guard dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// Packets.
    pub packets: u64,
    /// Bytes, IPv4 headers included.
    pub bytes: u64,
}

/// What the guard kept from the kernel since it was put up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuardCounters {
    /// LMS requests.
    pub requests: Counter,
    /// dmcasts to this host.
    pub dmcasts: Counter,
}

/// An nftables table `ip lms-router` that drops LMS requests before routing, and dmcasts to this
/// host before delivery, where [`hides`] says so. A [`Ring`](crate::packet::Ring) still sees them:
/// it taps packets earlier.
///
/// The table belongs to this socket: no other process can change it, and it vanishes with the value,
/// or with the process however it ends. `nft list ruleset` shows it.
#[derive(Debug)]
pub struct Guard {
    socket: Socket,
}

/// `struct nfgenmsg`.
fn nfgenmsg(family: u8, resource: u16) -> [u8; 4] {
    let [high, low] = resource.to_be_bytes();
    [family, 0, high, low]
}

fn message(kind: u16, flags: u16) -> Message {
    Message::new(NFNL_SUBSYS_NFTABLES << 8 | kind, flags).fixed(&nfgenmsg(NFPROTO_IPV4, 0))
}

fn batch_mark(kind: u16) -> Message {
    Message::new(kind, 0).fixed(&nfgenmsg(0, NFNL_SUBSYS_NFTABLES))
}

fn chain(name: &str, hook: Option<u32>) -> Message {
    let m = message(NFT_MSG_NEWCHAIN, NLM_F_CREATE | NLM_F_ACK)
        .attr_name(1, TABLE)
        .attr_name(3, name);
    match hook {
        None => m,
        Some(hook) => m
            .nest(4, |m| {
                m.attr_be32(1, hook)
                    .attr_be32(2, PRIORITY_RAW.cast_unsigned())
            })
            .attr_name(7, "filter"),
    }
}

fn rule(chain: &str, expressions: Expressions) -> Message {
    const NLM_F_APPEND: u16 = 0x800;
    message(NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND | NLM_F_ACK)
        .attr_name(1, TABLE)
        .attr_name(2, chain)
        .nest(4, |m| expressions.append_to(m))
}

fn counter(name: &str) -> Message {
    message(NFT_MSG_NEWOBJ, NLM_F_CREATE | NLM_F_ACK)
        .attr_name(1, TABLE)
        .attr_name(2, name)
        .attr_be32(3, NFT_OBJECT_COUNTER)
        .nest(4, |m| m)
}

const UDP: u8 = libc::IPPROTO_UDP as u8;
const IPIP: u8 = libc::IPPROTO_IPIP as u8;

/// Numbers of one kind of LMS message: the option's, and as a sub-option.
type Kind = (u8, u8);
const REQUEST: Kind = (138, 1);
const DMCAST: Kind = (139, 2);

/// What may stand before the option: bytes to compare, and how many to pass over.
const PREFIXES: [(&[u8], u8); 6] = [
    (&[], 0),
    (&[1], 1),
    (&[1; 2], 2),
    (&[1; 3], 3),
    (&[1; 4], 4),
    (&[148, 4], 4),
];
/// The single option: number, any length, `LM`, sub-option.
const SINGLE: [u8; 4] = [158, 0, 0x4c, 0x4d];
const SINGLE_MASK: [u8; 5] = [0xff, 0, 0xff, 0xff, 0xff];

/// Whether a guard keeps this IPv4 packet from the kernel (a dmcast: where it is for this host):
/// to count the LMS messages that it does not.
#[inline]
pub fn hides(packet: &[u8]) -> bool {
    let nibble = |at: usize| packet.get(at).map_or(0, |byte| byte & 0x0f);
    let (at, kind) = match packet.get(9) {
        Some(&UDP) if packet.get(16).is_some_and(|byte| byte & 0xf0 == 0xe0) => match nibble(0) {
            6..=15 => (20, REQUEST),
            _ => return false,
        },
        Some(&IPIP) => match (nibble(0), nibble(20)) {
            (6..=15, _) => (20, DMCAST),
            (5, 6..=15) => (40, DMCAST),
            _ => return false,
        },
        _ => return false,
    };
    packet.get(at) == Some(&kind.0) || packet.get(at..).is_some_and(|rest| finds(rest, kind))
}

/// The rules of [`option_rules`], on the bytes from the options on.
fn finds(rest: &[u8], (classic, sub_option): Kind) -> bool {
    PREFIXES.iter().any(|(prefix, len)| {
        let behind = rest.get(usize::from(*len)..).unwrap_or_default();
        let single = match behind.first_chunk() {
            Some([a, _, b, c, d]) => [*a, 0, *b, *c] == SINGLE && *d == sub_option,
            None => false,
        };
        rest.starts_with(prefix) && (single || behind.first() == Some(&classic))
    })
}

/// Rules that drop and count packets with an LMS option; `at` is where the options start.
fn option_rules(chain: &str, counter: &str, at: u32, (classic, sub_option): Kind) -> Vec<Message> {
    let mut rules = Vec::new();
    for (prefix, len) in PREFIXES {
        let len = u32::from(len);
        let behind = |e: Expressions| {
            if prefix.is_empty() {
                e
            } else {
                e.load(at, prefix.len() as u32).equals(prefix)
            }
        };
        let classic = behind(Expressions::new())
            .load(at + len, 1)
            .equals(&[classic]);
        let single = behind(Expressions::new())
            .load(at + len, 5)
            .mask(&SINGLE_MASK)
            .equals(&[&SINGLE[..], &[sub_option]].concat());
        rules.extend([classic, single].map(|e| rule(chain, e.count(counter).then(Verdict::Drop))));
    }
    rules
}

/// Returns the whole table, in the order that the kernel requires.
fn ruleset() -> Vec<Message> {
    let protocol = |number: u8| Expressions::new().load(9, 1).equals(&[number]);
    let mut messages = vec![
        batch_mark(NFNL_MSG_BATCH_BEGIN),
        message(NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK)
            .attr_name(1, TABLE)
            .attr_be32(2, NFT_TABLE_F_OWNER),
        counter("requests"),
        counter("dmcasts"),
        chain("request", None),
        chain("dmcast", None),
        chain("inner-dmcast", None),
        chain("prerouting", Some(HOOK_PREROUTING)),
        chain("input", Some(HOOK_INPUT)),
    ];
    messages.extend(option_rules("request", "requests", 20, REQUEST));
    messages.extend(option_rules("dmcast", "dmcasts", 20, DMCAST));
    messages.extend(option_rules("inner-dmcast", "dmcasts", 40, DMCAST));
    messages.push(rule(
        "prerouting",
        protocol(UDP)
            .load(16, 1)
            .mask(&[0xf0])
            .equals(&[0xe0])
            .load(0, 1)
            .mask(&[0x0f])
            .greater(&[5])
            .then(Verdict::Jump("request")),
    ));
    let outer = |e: Expressions| e.load(0, 1).mask(&[0x0f]);
    messages.push(rule(
        "input",
        outer(protocol(IPIP))
            .greater(&[5])
            .then(Verdict::Jump("dmcast")),
    ));
    messages.push(rule(
        "input",
        outer(protocol(IPIP))
            .equals(&[5])
            .load(20, 1)
            .mask(&[0x0f])
            .greater(&[5])
            .then(Verdict::Jump("inner-dmcast")),
    ));
    messages.push(batch_mark(NFNL_MSG_BATCH_END));
    messages
}

impl Guard {
    /// Installs the guard. Requires CAP_NET_ADMIN, also later to read the counters.
    ///
    /// # Errors
    /// [`GuardError`]: CAP_NET_ADMIN is missing, or the kernel has no nftables.
    pub fn open() -> Result<Self, GuardError> {
        let mut socket =
            Socket::open(libc::NETLINK_NETFILTER, &[]).map_err(|e| match e.raw_os_error() {
                Some(libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT) => GuardError::Unsupported(e),
                _ => GuardError::Io {
                    what: "netlink socket for the packet filter",
                    source: e,
                },
            })?;
        socket
            .request(ruleset())
            .map_err(|e| match e.raw_os_error() {
                // A table that another socket owns answers EPERM.
                Some(libc::EPERM) if privileges::has(Capability::NetAdmin) => GuardError::Exists,
                Some(libc::EPERM) => GuardError::Privilege,
                Some(libc::EEXIST) => GuardError::Exists,
                Some(libc::EOPNOTSUPP | libc::ENOENT | libc::EINVAL) => GuardError::Unsupported(e),
                _ => GuardError::Io {
                    what: "putting up the packet filter",
                    source: e,
                },
            })?;
        Ok(Self { socket })
    }

    /// Returns the packets dropped so far.
    ///
    /// # Errors
    /// [`GuardError`]: CAP_NET_ADMIN is missing, or another program has removed the rules.
    pub fn counters(&mut self) -> Result<GuardCounters, GuardError> {
        Ok(GuardCounters {
            requests: self.read("requests")?,
            dmcasts: self.read("dmcasts")?,
        })
    }

    fn read(&mut self, name: &str) -> Result<Counter, GuardError> {
        let request = message(NFT_MSG_GETOBJ, NLM_F_ACK)
            .attr_name(1, TABLE)
            .attr_name(2, name)
            .attr_be32(3, NFT_OBJECT_COUNTER);
        let mut counter = Counter::default();
        self.socket
            .query(&request, |kind, payload| {
                if kind != (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWOBJ) {
                    return;
                }
                let object = attributes(payload.get(4..).unwrap_or_default());
                for (_, data) in object.filter(|(kind, _)| *kind == 4) {
                    for (kind, value) in attributes(data) {
                        let Some(value) = value.first_chunk().copied().map(u64::from_be_bytes)
                        else {
                            continue;
                        };
                        match kind {
                            1 => counter.bytes = value,
                            2 => counter.packets = value,
                            _ => {}
                        }
                    }
                }
            })
            .map_err(|e| match e.raw_os_error() {
                Some(libc::EPERM) => GuardError::Privilege,
                _ => GuardError::Io {
                    what: "reading the packet filter's counters",
                    source: e,
                },
            })?;
        Ok(counter)
    }
}

impl AsFd for Guard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
