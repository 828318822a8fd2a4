use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use thiserror::Error;

use crate::error::{Capability, OpenError};
use crate::family::Family;
use crate::netlink::{
    Message, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Socket, attributes, u32_of,
};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_NEWROUTE: u16 = 24;
const RTM_NEWNEIGH: u16 = 28;
const RTM_GETNEIGH: u16 = 30;
const RTM_NEWQDISC: u16 = 36;

mod attr {
    pub(super) const IFLA_ADDRESS: u16 = 1;
    pub(super) const IFLA_IFNAME: u16 = 3;
    pub(super) const IFLA_MTU: u16 = 4;
    pub(super) const IFLA_MASTER: u16 = 10;
    pub(super) const IFLA_LINKINFO: u16 = 18;
    pub(super) const IFLA_STATS64: u16 = 23;
    pub(super) const IFLA_NET_NS_FD: u16 = 28;
    pub(super) const IFLA_BR_FORWARD_DELAY: u16 = 1;
    pub(super) const IFLA_BR_MCAST_SNOOPING: u16 = 23;
    pub(super) const TCA_KIND: u16 = 1;
    pub(super) const TCA_OPTIONS: u16 = 2;
    pub(super) const TCA_TBF_PARMS: u16 = 1;
    pub(super) const TCA_TBF_BURST: u16 = 6;
    pub(super) const IFLA_INFO_KIND: u16 = 1;
    pub(super) const IFLA_INFO_DATA: u16 = 2;
    pub(super) const IFLA_INFO_SLAVE_KIND: u16 = 4;
    pub(super) const IFLA_INFO_SLAVE_DATA: u16 = 5;
    pub(super) const IFLA_BRPORT_MCAST_FLOOD: u16 = 27;
    pub(super) const VETH_INFO_PEER: u16 = 1;
    pub(super) const IFA_ADDRESS: u16 = 1;
    pub(super) const IFA_LOCAL: u16 = 2;
    pub(super) const IFA_BROADCAST: u16 = 4;
    pub(super) const RTA_DST: u16 = 1;
    pub(super) const RTA_OIF: u16 = 4;
    pub(super) const RTA_GATEWAY: u16 = 5;
    pub(super) const NDA_DST: u16 = 1;
    pub(super) const NDA_LLADDR: u16 = 2;
}

/// Interfaces, addresses, routes or neighbours were not changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EditError {
    /// The process lacks a capability.
    #[error("{what} needs CAP_NET_ADMIN: run as root, or inside `unshare -Urn`")]
    Privilege {
        /// What was being done.
        what: &'static str,
    },
    /// It is there already.
    #[error("{what}: it exists already")]
    Exists {
        /// What was being done.
        what: &'static str,
    },
    /// There is no such interface or address.
    #[error("{what}: no such interface, address or route")]
    NotFound {
        /// What was being done.
        what: &'static str,
    },
    /// Anything else.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

fn classify(what: &'static str) -> impl Fn(io::Error) -> EditError {
    move |source| match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => EditError::Privilege { what },
        Some(libc::EEXIST) => EditError::Exists { what },
        Some(libc::ENODEV | libc::ESRCH | libc::EADDRNOTAVAIL | libc::ENOENT) => {
            EditError::NotFound { what }
        }
        _ => EditError::Io { what, source },
    }
}

/// What the kernel knows of a neighbour's Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbour {
    /// Its address; it may have left since.
    Known([u8; 6]),
    /// Unknown; the kernel resolves it (ARP). Query it again later.
    Resolving,
}

/// One end of a wire between two interfaces (veth).
#[derive(Clone, Copy, Debug)]
pub struct WireEnd<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its Ethernet address; the kernel draws one when there is none.
    pub link_address: Option<[u8; 6]>,
    /// The network namespace it is put in; the editor's own when there is none.
    pub namespace: Option<BorrowedFd<'a>>,
}

impl<'a> WireEnd<'a> {
    /// An end in the editor's own namespace, with an address that the kernel draws.
    pub fn new(name: &'a str) -> Self {
        Self {
            name,
            link_address: None,
            namespace: None,
        }
    }

    fn fill(&self, mut message: Message) -> Message {
        message = message.attr_name(attr::IFLA_IFNAME, self.name);
        if let Some(address) = &self.link_address {
            message = message.attr(attr::IFLA_ADDRESS, address);
        }
        if let Some(fd) = self.namespace {
            message = message.attr_u32(attr::IFLA_NET_NS_FD, fd.as_raw_fd().cast_unsigned());
        }
        message
    }
}

/// What an interface has carried, as the kernel counts (`struct rtnl_link_stats64`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets received; several segments received as one count as one.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received, Ethernet headers included.
    pub rx_bytes: u64,
    /// Bytes sent, Ethernet headers included.
    pub tx_bytes: u64,
    /// Received packets that were dropped.
    pub rx_dropped: u64,
    /// Packets dropped instead of sent.
    pub tx_dropped: u64,
}

impl LinkCounters {
    fn parse(stats: &[u8]) -> Self {
        let at = |field: usize| {
            let bytes = stats.get(field * 8..).and_then(|rest| rest.first_chunk());
            bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
        };
        Self {
            rx_packets: at(0),
            tx_packets: at(1),
            rx_bytes: at(2),
            tx_bytes: at(3),
            rx_dropped: at(6),
            tx_dropped: at(7),
        }
    }
}

/// Creates, changes and removes interfaces, addresses and routes of this network namespace, and
/// looks neighbours up. Needs CAP_NET_ADMIN.
#[derive(Debug)]
pub struct Editor {
    socket: Socket,
}

/// `struct ifinfomsg`.
/// The bytes of an address.
fn octets(address: impl Into<IpAddr>) -> Vec<u8> {
    match address.into() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn ifinfomsg(index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..].copy_from_slice(&change.to_ne_bytes());
    bytes
}

impl Editor {
    /// Opens a netlink socket.
    ///
    /// # Errors
    /// [`OpenError`] when the netlink socket cannot be opened.
    pub fn open() -> Result<Self, OpenError> {
        let socket = Socket::open(libc::NETLINK_ROUTE, &[]).map_err(OpenError::from(
            "netlink socket for interfaces",
            Capability::NetAdmin,
        ))?;
        Ok(Self { socket })
    }

    fn run(&mut self, what: &'static str, message: Message) -> Result<(), EditError> {
        self.socket.request(vec![message]).map_err(classify(what))
    }

    /// Creates two interfaces joined by a wire (veth); the second one in another network
    /// namespace, if given.
    ///
    /// # Errors
    /// [`EditError`]: a name is taken, CAP_NET_ADMIN is missing, or the kernel refuses.
    pub fn add_veth(
        &mut self,
        name: &str,
        peer: &str,
        peer_namespace: Option<BorrowedFd<'_>>,
    ) -> Result<(), EditError> {
        let far = WireEnd {
            namespace: peer_namespace,
            ..WireEnd::new(peer)
        };
        self.add_wire([WireEnd::new(name), far])
    }

    /// Creates two interfaces joined by a wire (veth), each with an address and in a namespace
    /// of choice.
    ///
    /// # Errors
    /// As [`Editor::add_veth`].
    pub fn add_wire(&mut self, [near, far]: [WireEnd<'_>; 2]) -> Result<(), EditError> {
        let flags = NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK;
        let message = Message::new(RTM_NEWLINK, flags).fixed(&ifinfomsg(0, 0, 0));
        let message = near.fill(message).nest(attr::IFLA_LINKINFO, |m| {
            m.attr(attr::IFLA_INFO_KIND, b"veth")
                .nest(attr::IFLA_INFO_DATA, |m| {
                    m.nest(attr::VETH_INFO_PEER, |m| {
                        far.fill(m.fixed(&ifinfomsg(0, 0, 0)))
                    })
                })
        });
        self.run("creating a veth pair", message)
    }

    /// Creates a bridge that sends multicast to all its ports, whether or not a host there has joined, and forwards from a
    /// new port at once: a plain shared link.
    ///
    /// # Errors
    /// [`EditError`]: the name is taken, CAP_NET_ADMIN is missing, or the kernel refuses.
    pub fn add_flooding_bridge(&mut self, name: &str) -> Result<(), EditError> {
        let message = Message::new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK)
            .fixed(&ifinfomsg(0, 0, 0))
            .attr_name(attr::IFLA_IFNAME, name)
            .nest(attr::IFLA_LINKINFO, |m| {
                m.attr(attr::IFLA_INFO_KIND, b"bridge")
                    .nest(attr::IFLA_INFO_DATA, |m| {
                        m.attr(attr::IFLA_BR_MCAST_SNOOPING, &[0])
                            .attr_u32(attr::IFLA_BR_FORWARD_DELAY, 0)
                    })
            });
        self.run("creating a bridge", message)
    }

    /// The number of the interface with a name, in the editor's own namespace whichever thread
    /// asks.
    ///
    /// # Errors
    /// [`EditError`]: there is no such interface.
    pub fn index(&mut self, name: &str) -> Result<u32, EditError> {
        let what = "finding an interface";
        let request = Message::new(RTM_GETLINK, NLM_F_ACK)
            .fixed(&ifinfomsg(0, 0, 0))
            .attr_name(attr::IFLA_IFNAME, name);
        let mut found = None;
        let answer = self.socket.query(&request, |_, payload| {
            found = payload.get(4..).and_then(u32_of);
        });
        answer.map_err(classify(what))?;
        found.ok_or(EditError::NotFound { what })
    }

    /// What an interface has carried so far.
    ///
    /// # Errors
    /// [`EditError`]: there is no such interface.
    pub fn counters(&mut self, index: u32) -> Result<LinkCounters, EditError> {
        let what = "reading the counters of an interface";
        let request = Message::new(RTM_GETLINK, NLM_F_ACK).fixed(&ifinfomsg(index, 0, 0));
        let mut counters = None;
        let answer = self.socket.query(&request, |_, payload| {
            let stats = attributes(payload.get(16..).unwrap_or_default())
                .find(|(kind, _)| *kind == attr::IFLA_STATS64);
            counters = stats.map(|(_, stats)| LinkCounters::parse(stats));
        });
        answer.map_err(classify(what))?;
        counters.ok_or(EditError::NotFound { what })
    }

    /// Limits what an interface sends by a token bucket (tbf): bits a second, Ethernet headers
    /// included, at most 34 Gbit/s; `burst_bytes` pass at once, `queue_bytes` wait, what is more
    /// is dropped.
    ///
    /// # Errors
    /// [`EditError`]: there is no such interface, CAP_NET_ADMIN is missing, or a number is out of range.
    pub fn set_token_bucket(
        &mut self,
        index: u32,
        bits_per_s: u64,
        burst_bytes: u32,
        queue_bytes: u32,
    ) -> Result<(), EditError> {
        let what = "limiting an interface's rate";
        let rate = u32::try_from(bits_per_s / 8).map_err(|_| EditError::Io {
            what,
            source: io::ErrorKind::InvalidInput.into(),
        })?;
        // `struct tcmsg`: family, interface, handle, parent (the root), info.
        let mut header = [0; 20];
        header[4..8].copy_from_slice(&index.to_ne_bytes());
        header[12..16].copy_from_slice(&u32::MAX.to_ne_bytes());
        // `struct tc_tbf_qopt`: rate (of an Ethernet link, so that the kernel wants no table of
        // rates), peak rate (none), limit.
        let mut parameters = [0; 36];
        parameters[1] = 1;
        parameters[8..12].copy_from_slice(&rate.to_ne_bytes());
        parameters[24..28].copy_from_slice(&queue_bytes.to_ne_bytes());
        let message = Message::new(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK)
            .fixed(&header)
            .attr_name(attr::TCA_KIND, "tbf")
            .nest(attr::TCA_OPTIONS, |m| {
                m.attr(attr::TCA_TBF_PARMS, &parameters)
                    .attr_u32(attr::TCA_TBF_BURST, burst_bytes)
            });
        self.run(what, message)
    }

    /// Removes an interface.
    ///
    /// # Errors
    /// [`EditError`]: there is no such interface, or CAP_NET_ADMIN is missing.
    pub fn remove(&mut self, index: u32) -> Result<(), EditError> {
        let message = Message::new(RTM_DELLINK, NLM_F_ACK).fixed(&ifinfomsg(index, 0, 0));
        self.run("removing an interface", message)
    }

    fn set(
        &mut self,
        what: &'static str,
        header: [u8; 16],
        fill: impl FnOnce(Message) -> Message,
    ) -> Result<(), EditError> {
        self.run(
            what,
            fill(Message::new(RTM_NEWLINK, NLM_F_ACK).fixed(&header)),
        )
    }

    /// Switches an interface on or off.
    ///
    /// # Errors
    /// [`EditError`]: there is no such interface, or CAP_NET_ADMIN is missing.
    pub fn set_up(&mut self, index: u32, up: bool) -> Result<(), EditError> {
        let mask = libc::IFF_UP.cast_unsigned();
        let header = ifinfomsg(index, if up { mask } else { 0 }, mask);
        self.set("switching an interface", header, |m| m)
    }

    /// Gives an interface another name. Kernels before 6.2 want it to be down.
    ///
    /// # Errors
    /// [`EditError`]: the name is taken, the interface is up, or CAP_NET_ADMIN is missing.
    pub fn set_name(&mut self, index: u32, name: &str) -> Result<(), EditError> {
        self.set("renaming an interface", ifinfomsg(index, 0, 0), |m| {
            m.attr_name(attr::IFLA_IFNAME, name)
        })
    }

    /// Sets the MTU, bytes.
    ///
    /// # Errors
    /// [`EditError`]: the interface does not support that MTU, or CAP_NET_ADMIN is missing.
    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> Result<(), EditError> {
        self.set("setting the MTU", ifinfomsg(index, 0, 0), |m| {
            m.attr_u32(attr::IFLA_MTU, mtu)
        })
    }

    /// Makes an interface a port of a bridge; 0: of none.
    ///
    /// # Errors
    /// [`EditError`]: there is no such interface or bridge, or CAP_NET_ADMIN is missing.
    pub fn set_bridge(&mut self, index: u32, bridge: u32) -> Result<(), EditError> {
        self.set("joining a bridge", ifinfomsg(index, 0, 0), |m| {
            m.attr_u32(attr::IFLA_MASTER, bridge)
        })
    }

    /// Sets whether multicast without known members is sent to a port of a bridge. On a
    /// bridge that looks at no memberships, that is all multicast.
    ///
    /// # Errors
    /// [`EditError`]: the interface is no port of a bridge, or CAP_NET_ADMIN is missing.
    pub fn set_multicast_flood(&mut self, index: u32, on: bool) -> Result<(), EditError> {
        self.set(
            "switching multicast on a port of a bridge",
            ifinfomsg(index, 0, 0),
            |m| {
                m.nest(attr::IFLA_LINKINFO, |m| {
                    m.attr(attr::IFLA_INFO_SLAVE_KIND, b"bridge")
                        .nest(attr::IFLA_INFO_SLAVE_DATA, |m| {
                            m.attr(attr::IFLA_BRPORT_MCAST_FLOOD, &[u8::from(on)])
                        })
                })
            },
        )
    }

    fn address(kind: u16, flags: u16, index: u32, address: IpAddr, prefix_len: u8) -> Message {
        const IFA_F_NODAD: u8 = 0x02;
        let (family, ifa_flags) = match address {
            IpAddr::V4(_) => (libc::AF_INET, 0),
            IpAddr::V6(_) => (libc::AF_INET6, IFA_F_NODAD),
        };
        let octets = octets(address);
        let mut header = [family as u8, prefix_len, ifa_flags, 0, 0, 0, 0, 0];
        header[4..].copy_from_slice(&index.to_ne_bytes());
        Message::new(kind, flags | NLM_F_ACK)
            .fixed(&header)
            .attr(attr::IFA_LOCAL, &octets)
            .attr(attr::IFA_ADDRESS, &octets)
    }

    /// Gives an interface an address; an IPv6 one is used at once, without
    /// duplicate address detection.
    ///
    /// # Errors
    /// [`EditError`]: the interface has the address already, or CAP_NET_ADMIN is missing.
    pub fn add_address(
        &mut self,
        index: u32,
        address: impl Into<IpAddr>,
        prefix_len: u8,
    ) -> Result<(), EditError> {
        let address = address.into();
        let mut message = Self::address(
            RTM_NEWADDR,
            NLM_F_CREATE | NLM_F_EXCL,
            index,
            address,
            prefix_len,
        );
        if let IpAddr::V4(address) = address
            && let Some(host_bits) = u32::MAX.checked_shr(u32::from(prefix_len))
            && prefix_len < 31
        {
            let broadcast = (u32::from(address) | host_bits).to_be_bytes();
            message = message.attr(attr::IFA_BROADCAST, &broadcast);
        }
        self.run("adding an address", message)
    }

    /// Takes an address from an interface.
    ///
    /// # Errors
    /// [`EditError`]: the interface does not have the address, or CAP_NET_ADMIN is missing.
    pub fn remove_address(
        &mut self,
        index: u32,
        address: impl Into<IpAddr>,
        prefix_len: u8,
    ) -> Result<(), EditError> {
        self.run(
            "removing an address",
            Self::address(RTM_DELADDR, 0, index, address.into(), prefix_len),
        )
    }

    /// Adds or replaces a unicast route: through a gateway, or directly on an interface.
    ///
    /// # Errors
    /// [`EditError`]: the gateway cannot be reached, there is no such interface, or CAP_NET_ADMIN is missing.
    pub fn set_route<A: Family>(
        &mut self,
        destination: A,
        prefix_len: u8,
        gateway: Option<A>,
        interface: Option<u32>,
    ) -> Result<(), EditError> {
        const RT_TABLE_MAIN: u8 = 254;
        const RTPROT_STATIC: u8 = 4;
        const RT_SCOPE_LINK: u8 = 253;
        const RTN_UNICAST: u8 = 1;
        let scope = if gateway.is_some() { 0 } else { RT_SCOPE_LINK };
        let header = [
            A::FAMILY as u8,
            prefix_len,
            0,
            0,
            RT_TABLE_MAIN,
            RTPROT_STATIC,
            scope,
            RTN_UNICAST,
            0,
            0,
            0,
            0,
        ];
        let mut message = Message::new(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK)
            .fixed(&header)
            .attr(attr::RTA_DST, &octets(destination));
        if let Some(gateway) = gateway {
            message = message.attr(attr::RTA_GATEWAY, &octets(gateway));
        }
        if let Some(interface) = interface {
            message = message.attr_u32(attr::RTA_OIF, interface);
        }
        self.run("adding a route", message)
    }

    /// Returns the Ethernet address of a neighbour; has the kernel resolve it when unknown.
    ///
    /// # Errors
    /// [`EditError`]: there is no such interface, or CAP_NET_ADMIN is missing.
    pub fn neighbour<A: Family>(
        &mut self,
        interface: u32,
        address: A,
    ) -> Result<Neighbour, EditError> {
        let what = "looking a neighbour up";
        const NUD_NONE: u16 = 0;
        const NTF_USE: u8 = 1;
        const NUD_INCOMPLETE_OR_FAILED: u16 = 0x01 | 0x20;
        let header = |flags: u8| {
            let mut header = [0; 12];
            header[0] = A::FAMILY as u8;
            header[4..8].copy_from_slice(&interface.to_ne_bytes());
            header[8..10].copy_from_slice(&NUD_NONE.to_ne_bytes());
            header[10] = flags;
            header
        };
        // A single answer comes without an end mark; the acknowledgement ends the query.
        let request = Message::new(RTM_GETNEIGH, NLM_F_ACK)
            .fixed(&header(0))
            .attr(attr::NDA_DST, &octets(address));
        let mut found = None;
        let answer = self.socket.query(&request, |kind, payload| {
            let Some((header, rest)) = payload.split_first_chunk::<12>() else {
                return;
            };
            let state = u16::from_ne_bytes([header[8], header[9]]);
            if kind == RTM_NEWNEIGH && state & NUD_INCOMPLETE_OR_FAILED == 0 {
                found = attributes(rest)
                    .find(|(kind, _)| *kind == attr::NDA_LLADDR)
                    .and_then(|(_, data)| data.try_into().ok());
            }
        });
        match (answer, found) {
            (Ok(()), Some(link_address)) => return Ok(Neighbour::Known(link_address)),
            (Err(e), _) if !matches!(e.raw_os_error(), Some(libc::ENOENT)) => {
                return Err(classify(what)(e));
            }
            _ => {}
        }
        let ask = Message::new(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK)
            .fixed(&header(NTF_USE))
            .attr(attr::NDA_DST, &octets(address));
        self.run(what, ask)?;
        Ok(Neighbour::Resolving)
    }
}
