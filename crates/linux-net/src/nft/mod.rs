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
//! An IPv6 option may have nothing before it, a router alert (RFC 2711), or padding of two or four bytes.
//!
//! Datagrams of the UDP carrier are recognised by port, identifier and kind, in IPv4 where the header has no options.
//! Requests are kept from being forwarded: the router does that. One that is addressed to this host, as its source or its
//! replier, reaches its sockets.
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
const NFPROTO_IPV6: u8 = 10;

const NFT_MSG_NEWTABLE: u16 = 0;
const NFT_MSG_NEWCHAIN: u16 = 3;
const NFT_MSG_NEWRULE: u16 = 6;
const NFT_MSG_NEWOBJ: u16 = 18;
const NFT_MSG_GETOBJ: u16 = 19;

const NFT_TABLE_F_OWNER: u32 = 2;
const NFT_OBJECT_COUNTER: u32 = 1;
const HOOK_PREROUTING: u32 = 0;
const HOOK_INPUT: u32 = 1;
const HOOK_FORWARD: u32 = 2;
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
        "an nftables table `lms-router` exists already: another lms-router runs in this network namespace; stop it first"
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
    /// Bytes, IP headers included.
    pub bytes: u64,
}

impl Counter {
    fn add(&mut self, other: Counter) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// What the guard kept from the kernel since it was put up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuardCounters {
    /// LMS requests.
    pub requests: Counter,
    /// dmcasts to this host.
    pub dmcasts: Counter,
}

/// The nftables tables `ip lms-router` and `ip6 lms-router`, which drop LMS requests before routing, and dmcasts to this
/// host before delivery, where [`hides`] says so. A [`Ring`](crate::packet::Ring) still sees them:
/// it taps packets earlier.
///
/// The tables belong to this socket: no other process can change them, and they vanish with the value,
/// or with the process however it ends. `nft list ruleset` shows it.
#[derive(Debug)]
pub struct Guard {
    socket: Socket,
    /// The families whose table is there.
    families: Vec<Family>,
}

/// What differs between the two tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Family {
    number: u8,
    /// Offset of the number of what follows the header.
    protocol_at: u32,
    /// Offset of the UDP header behind a header without options.
    udp_at: u32,
}

const IPV4: Family = Family {
    number: NFPROTO_IPV4,
    protocol_at: 9,
    udp_at: 20,
};

const IPV6: Family = Family {
    number: NFPROTO_IPV6,
    protocol_at: 6,
    udp_at: 40,
};

/// `struct nfgenmsg`.
fn nfgenmsg(family: u8, resource: u16) -> [u8; 4] {
    let [high, low] = resource.to_be_bytes();
    [family, 0, high, low]
}

fn batch_mark(kind: u16) -> Message {
    Message::new(kind, 0).fixed(&nfgenmsg(0, NFNL_SUBSYS_NFTABLES))
}

impl Family {
    fn message(self, kind: u16, flags: u16) -> Message {
        Message::new(NFNL_SUBSYS_NFTABLES << 8 | kind, flags).fixed(&nfgenmsg(self.number, 0))
    }

    fn chain(self, name: &str, hook: Option<u32>) -> Message {
        let m = self
            .message(NFT_MSG_NEWCHAIN, NLM_F_CREATE | NLM_F_ACK)
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

    fn rule(self, chain: &str, expressions: Expressions) -> Message {
        const NLM_F_APPEND: u16 = 0x800;
        self.message(NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND | NLM_F_ACK)
            .attr_name(1, TABLE)
            .attr_name(2, chain)
            .nest(4, |m| expressions.append_to(m))
    }

    fn counter(self, name: &str) -> Message {
        self.message(NFT_MSG_NEWOBJ, NLM_F_CREATE | NLM_F_ACK)
            .attr_name(1, TABLE)
            .attr_name(2, name)
            .attr_be32(3, NFT_OBJECT_COUNTER)
            .nest(4, |m| m)
    }
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

/// The own form in IPv6: number, any length, `LM`, kind.
const HOP_BY_HOP: [u8; 4] = [0x3e, 0, 0x4c, 0x4d];
/// What may stand before the option in IPv6.
const PREFIXES6: [(&[u8], u8); 4] = [(&[], 0), (&[5, 2], 4), (&[1, 0], 2), (&[1, 2], 4)];
/// The number of the hop-by-hop header, and of IPv6 in IPv6.
const HOP_BY_HOP_HEADER: u8 = 0;
const IPV6_IN_IPV6: u8 = 41;
/// Where the options of a hop-by-hop header start.
const OPTIONS6_AT: usize = 42;

/// Whether a guard keeps this packet from the kernel (a request by datagram: from being forwarded; a dmcast: where it is
/// for this host), to count the LMS messages that it does not. `udp_port` is the port of the UDP carrier.
#[inline]
pub fn hides(packet: &[u8], udp_port: Option<u16>) -> bool {
    match packet.first().map(|first| first >> 4) {
        Some(4) => hides_ipv4(packet, udp_port),
        Some(6) => hides_ipv6(packet, udp_port),
        _ => false,
    }
}

fn hides_ipv4(packet: &[u8], udp_port: Option<u16>) -> bool {
    let nibble = |at: usize| packet.get(at).map_or(0, |byte| byte & 0x0f);
    let is_group = packet.get(16).is_some_and(|byte| byte & 0xf0 == 0xe0);
    let (at, kind) = match packet.get(9) {
        Some(&UDP) if nibble(0) == 5 => return is_datagram(packet, 20, udp_port),
        Some(&UDP) if is_group => match nibble(0) {
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

fn hides_ipv6(packet: &[u8], udp_port: Option<u16>) -> bool {
    let kind = match (packet.get(6), packet.get(24), packet.get(40)) {
        (Some(&UDP), ..) => return is_datagram(packet, 40, udp_port),
        (Some(&HOP_BY_HOP_HEADER), Some(0xff), _) => REQUEST.1,
        (Some(&HOP_BY_HOP_HEADER), _, Some(&IPV6_IN_IPV6)) => DMCAST.1,
        _ => return false,
    };
    let Some(rest) = packet.get(OPTIONS6_AT..) else {
        return false;
    };
    PREFIXES6.iter().any(|(prefix, len)| {
        let behind = rest.get(usize::from(*len)..).unwrap_or_default();
        rest.starts_with(prefix) && is_own_form(behind, HOP_BY_HOP, kind)
    })
}

/// Whether a packet, whose UDP header would be at `at`, is one of the UDP carrier.
fn is_datagram(packet: &[u8], at: usize, udp_port: Option<u16>) -> bool {
    let Some(port) = udp_port else { return false };
    packet.get(at + 2..at + 4) == Some(&port.to_be_bytes())
        && packet.get(at + 8..at + 10) == Some(&SINGLE[2..])
        && matches!(packet.get(at + 10), Some(1 | 2))
}

/// Whether an option in its own form stands at the start of `bytes`: [`SINGLE`] or [`HOP_BY_HOP`].
fn is_own_form(bytes: &[u8], form: [u8; 4], kind: u8) -> bool {
    match bytes.first_chunk() {
        Some([a, _, b, c, d]) => [*a, 0, *b, *c] == form && *d == kind,
        None => false,
    }
}

/// The rules of [`option_rules`], on the bytes from the options on.
fn finds(rest: &[u8], (classic, sub_option): Kind) -> bool {
    PREFIXES.iter().any(|(prefix, len)| {
        let behind = rest.get(usize::from(*len)..).unwrap_or_default();
        let own = is_own_form(behind, SINGLE, sub_option);
        rest.starts_with(prefix) && (own || behind.first() == Some(&classic))
    })
}

/// Rules that drop and count packets with an LMS option; `at` is where the options start.
fn option_rules(chain: &str, counter: &str, at: u32, (classic, sub_option): Kind) -> Vec<Message> {
    let mut rules = Vec::new();
    for (prefix, len) in PREFIXES {
        let behind = Expressions::new().starts_with(at, prefix);
        let at = at + u32::from(len);
        let own = own_form(behind.clone(), at, SINGLE, sub_option);
        let classic = behind.load(at, 1).equals(&[classic]);
        let drop = |e: Expressions| IPV4.rule(chain, e.count(counter).then(Verdict::Drop));
        rules.extend([classic, own].map(drop));
    }
    rules
}

/// Goes on where an option in its own form stands at `at`.
fn own_form(e: Expressions, at: u32, form: [u8; 4], kind: u8) -> Expressions {
    e.load(at, 5)
        .mask(&SINGLE_MASK)
        .equals(&[&form[..], &[kind]].concat())
}

/// Returns the whole table of a family, in the order that the kernel requires.
fn ruleset(family: Family, udp_port: Option<u16>) -> Vec<Message> {
    let mut messages = vec![
        batch_mark(NFNL_MSG_BATCH_BEGIN),
        family
            .message(NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK)
            .attr_name(1, TABLE)
            .attr_be32(2, NFT_TABLE_F_OWNER),
        family.counter("requests"),
        family.counter("dmcasts"),
        family.chain("request", None),
        family.chain("dmcast", None),
        family.chain("inner-dmcast", None),
        family.chain("prerouting", Some(HOOK_PREROUTING)),
        family.chain("input", Some(HOOK_INPUT)),
        family.chain("forward", Some(HOOK_FORWARD)),
    ];
    messages.extend(match family {
        IPV4 => ipv4_rules(),
        _ => ipv6_rules(),
    });
    if let Some(port) = udp_port {
        messages.extend(datagram_rules(family, port));
    }
    messages.push(batch_mark(NFNL_MSG_BATCH_END));
    messages
}

fn ipv4_rules() -> Vec<Message> {
    let protocol = |number: u8| Expressions::new().load(9, 1).equals(&[number]);
    let mut messages = option_rules("request", "requests", 20, REQUEST);
    messages.extend(option_rules("dmcast", "dmcasts", 20, DMCAST));
    messages.extend(option_rules("inner-dmcast", "dmcasts", 40, DMCAST));
    messages.push(
        IPV4.rule(
            "prerouting",
            protocol(UDP)
                .load(16, 1)
                .mask(&[0xf0])
                .equals(&[0xe0])
                .load(0, 1)
                .mask(&[0x0f])
                .greater(&[5])
                .then(Verdict::Jump("request")),
        ),
    );
    let outer = |e: Expressions| e.load(0, 1).mask(&[0x0f]);
    messages.push(
        IPV4.rule(
            "input",
            outer(protocol(IPIP))
                .greater(&[5])
                .then(Verdict::Jump("dmcast")),
        ),
    );
    messages.push(
        IPV4.rule(
            "input",
            outer(protocol(IPIP))
                .equals(&[5])
                .load(20, 1)
                .mask(&[0x0f])
                .greater(&[5])
                .then(Verdict::Jump("inner-dmcast")),
        ),
    );
    messages
}

fn ipv6_rules() -> Vec<Message> {
    let mut messages = Vec::new();
    for (chain, counter, kind) in [
        ("request", "requests", REQUEST.1),
        ("dmcast", "dmcasts", DMCAST.1),
    ] {
        for (prefix, len) in PREFIXES6 {
            let at = OPTIONS6_AT as u32;
            let behind = Expressions::new().starts_with(at, prefix);
            let own = own_form(behind, at + u32::from(len), HOP_BY_HOP, kind);
            messages.push(IPV6.rule(chain, own.count(counter).then(Verdict::Drop)));
        }
    }
    let has_options = || Expressions::new().load(6, 1).equals(&[HOP_BY_HOP_HEADER]);
    messages.push(
        IPV6.rule(
            "prerouting",
            has_options()
                .load(24, 1)
                .equals(&[0xff])
                .then(Verdict::Jump("request")),
        ),
    );
    messages.push(
        IPV6.rule(
            "input",
            has_options()
                .load(40, 1)
                .equals(&[IPV6_IN_IPV6])
                .then(Verdict::Jump("dmcast")),
        ),
    );
    messages
}

/// Requests of the UDP carrier that would be forwarded, and its dmcasts to this host.
fn datagram_rules(family: Family, port: u16) -> [Message; 2] {
    let datagram = |kind: u8| {
        let e = Expressions::new()
            .load(family.protocol_at, 1)
            .equals(&[UDP]);
        let e = match family {
            IPV4 => e.load(0, 1).mask(&[0x0f]).equals(&[5]),
            _ => e,
        };
        e.load(family.udp_at + 2, 2)
            .equals(&port.to_be_bytes())
            .load(family.udp_at + 8, 3)
            .equals(&[SINGLE[2], SINGLE[3], kind])
    };
    let drop = |chain, counter, kind| {
        let matching = datagram(kind).count(counter);
        family.rule(chain, matching.then(Verdict::Drop))
    };
    [
        drop("forward", "requests", REQUEST.1),
        drop("input", "dmcasts", DMCAST.1),
    ]
}

impl Guard {
    /// Installs the guard, with the UDP carrier's port where there is one. Requires CAP_NET_ADMIN, also later to read
    /// the counters. A kernel without IPv6 gets the table of IPv4 alone.
    ///
    /// # Errors
    /// [`GuardError`]: CAP_NET_ADMIN is missing, or the kernel has no nftables.
    pub fn open(udp_port: Option<u16>) -> Result<Self, GuardError> {
        let mut socket =
            Socket::open(libc::NETLINK_NETFILTER, &[]).map_err(|e| match e.raw_os_error() {
                Some(libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT) => GuardError::Unsupported(e),
                _ => GuardError::Io {
                    what: "netlink socket for the packet filter",
                    source: e,
                },
            })?;
        let mut families = Vec::new();
        for family in [IPV4, IPV6] {
            match socket.request(ruleset(family, udp_port)) {
                Ok(()) => families.push(family),
                Err(e)
                    if family == IPV6
                        && matches!(
                            e.raw_os_error(),
                            Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP)
                        ) => {}
                Err(e) => return Err(not_put_up(e)),
            }
        }
        Ok(Self { socket, families })
    }

    /// Returns the packets dropped so far.
    ///
    /// # Errors
    /// [`GuardError`]: CAP_NET_ADMIN is missing, or another program has removed the rules.
    pub fn counters(&mut self) -> Result<GuardCounters, GuardError> {
        let mut counters = GuardCounters::default();
        for family in self.families.clone() {
            counters.requests.add(self.read(family, "requests")?);
            counters.dmcasts.add(self.read(family, "dmcasts")?);
        }
        Ok(counters)
    }

    fn read(&mut self, family: Family, name: &str) -> Result<Counter, GuardError> {
        let request = family
            .message(NFT_MSG_GETOBJ, NLM_F_ACK)
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

fn not_put_up(e: io::Error) -> GuardError {
    match e.raw_os_error() {
        // A table that another socket owns answers EPERM.
        Some(libc::EPERM) if privileges::has(Capability::NetAdmin) => GuardError::Exists,
        Some(libc::EPERM) => GuardError::Privilege,
        Some(libc::EEXIST) => GuardError::Exists,
        Some(libc::EOPNOTSUPP | libc::ENOENT | libc::EINVAL) => GuardError::Unsupported(e),
        _ => GuardError::Io {
            what: "putting up the packet filter",
            source: e,
        },
    }
}

impl AsFd for Guard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
