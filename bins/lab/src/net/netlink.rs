//! The few netlink requests that a network out of namespaces takes, encoded by hand: links, addresses,
//! routes, one queueing discipline, and the offload switches of ethtool over generic netlink.
//!
//! A socket keeps talking to the namespace it was made in, whichever thread uses it.

use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use anyhow::{Context as _, Result, anyhow, bail};
use netlink_sys::{Socket, protocols};

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const REQUEST: u16 = 1;
const ACK: u16 = 4;
const CREATE_EXCL: u16 = 0x600;
const CREATE_REPLACE: u16 = 0x500;
const DUMP: u16 = 0x300;

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWNEIGH: u16 = 28;
const RTM_NEWQDISC: u16 = 36;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_STATS64: u16 = 23;
const IFLA_NET_NS_FD: u16 = 28;

/// Address family of an IP multicast routing dump.
const RTNL_FAMILY_IPMR: u8 = 128;
const IFF_UP: u32 = 1;
const IFF_MULTICAST: u32 = 0x1000;

/// One request under construction.
struct Message(Vec<u8>);

impl Message {
    fn new(kind: u16, flags: u16) -> Message {
        let mut bytes = vec![0; 16];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(REQUEST | flags).to_ne_bytes());
        Message(bytes)
    }

    /// `struct ifinfomsg` of this link.
    fn link(kind: u16, flags: u16, index: u32, set: u32, change: u32) -> Message {
        Message::new(kind, flags).ifinfo(index, set, change)
    }

    fn ifinfo(self, index: u32, set: u32, change: u32) -> Message {
        self.bytes(&[0; 4])
            .bytes(&index.to_ne_bytes())
            .bytes(&set.to_ne_bytes())
            .bytes(&change.to_ne_bytes())
    }

    fn bytes(mut self, bytes: &[u8]) -> Message {
        self.0.extend_from_slice(bytes);
        self
    }

    fn attr(mut self, kind: u16, value: &[u8]) -> Message {
        let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    fn attr_u32(self, kind: u16, value: u32) -> Message {
        self.attr(kind, &value.to_ne_bytes())
    }

    fn attr_str(self, kind: u16, value: &str) -> Message {
        self.attr(kind, &[value.as_bytes(), &[0]].concat())
    }

    fn nest(mut self, kind: u16, fill: impl FnOnce(Message) -> Message) -> Message {
        let start = self.0.len();
        self = fill(self.bytes(&[0; 4]));
        let length = u16::try_from(self.0.len() - start).unwrap_or(u16::MAX);
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.0[start + 2..start + 4].copy_from_slice(&(kind | 0x8000).to_ne_bytes());
        self
    }
}

/// The attributes in a reply: (type without flags, value).
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?) & 0x3fff;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// A netlink socket in one network namespace.
#[derive(Debug)]
pub struct Netlink {
    route: Socket,
    generic: Socket,
    sequence: u32,
}

/// Packet and byte counters of one interface, as the kernel keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct LinkCounters {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received, Ethernet header included.
    pub rx_bytes: u64,
    /// Bytes sent, Ethernet header included.
    pub tx_bytes: u64,
    /// Received packets dropped.
    pub rx_dropped: u64,
    /// Packets dropped instead of sent.
    pub tx_dropped: u64,
}

impl Netlink {
    /// Opens sockets in the calling thread's namespace.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn open() -> Result<Netlink> {
        let mut route = Socket::new(protocols::NETLINK_ROUTE).context("netlink socket")?;
        let mut generic = Socket::new(protocols::NETLINK_GENERIC).context("netlink socket")?;
        for socket in [&mut route, &mut generic] {
            socket.bind_auto().context("bind netlink")?;
            let _ = socket.set_ext_ack(true);
        }
        Ok(Netlink {
            route,
            generic,
            sequence: 0,
        })
    }

    /// Sends a request and returns the payloads of the replies.
    fn ask(&mut self, generic: bool, mut message: Message) -> Result<Vec<Vec<u8>>> {
        self.sequence += 1;
        let length = u32::try_from(message.0.len()).context("request too long")?;
        message.0[0..4].copy_from_slice(&length.to_ne_bytes());
        message.0[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        let socket = if generic { &self.generic } else { &self.route };
        socket.send(&message.0, 0).context("netlink send")?;
        let mut replies = Vec::new();
        loop {
            let (datagram, _) = socket.recv_from_full().context("netlink receive")?;
            let mut rest = &datagram[..];
            while let Some(length) = u32_at(rest, 0) {
                let length = length as usize;
                let Some(one) = rest.get(..length).filter(|one| one.len() >= 16) else {
                    break;
                };
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
                if u32_at(one, 8) != Some(self.sequence) {
                    continue;
                }
                match u16::from_ne_bytes([one[4], one[5]]) {
                    NLMSG_DONE => return Ok(replies),
                    NLMSG_ERROR => {
                        let code = u32_at(one, 16).unwrap_or(0).cast_signed();
                        if code == 0 {
                            return Ok(replies);
                        }
                        let error = std::io::Error::from_raw_os_error(-code);
                        return Err(match explanation(one) {
                            Some(words) => anyhow!("{error}: {words}"),
                            None => anyhow!("{error}"),
                        });
                    }
                    _ => replies.push(one[16..].to_vec()),
                }
            }
        }
    }

    fn request(&mut self, message: Message) -> Result<()> {
        self.ask(false, message).map(|_| ())
    }

    /// Makes a veth pair; each end is put in the namespace of its descriptor.
    ///
    /// # Errors
    /// When the kernel refuses, for example because a name is taken.
    pub fn veth(&mut self, ends: [(&str, [u8; 6], BorrowedFd<'_>); 2]) -> Result<()> {
        let end = |message: Message, (name, mac, space): (&str, [u8; 6], BorrowedFd<'_>)| {
            message
                .attr_str(IFLA_IFNAME, name)
                .attr(IFLA_ADDRESS, &mac)
                .attr_u32(IFLA_NET_NS_FD, space.as_raw_fd().cast_unsigned())
        };
        let message = end(
            Message::link(RTM_NEWLINK, ACK | CREATE_EXCL, 0, 0, 0),
            ends[0],
        )
        .nest(IFLA_LINKINFO, |info| {
            info.attr(1, b"veth").nest(2, |data| {
                data.nest(1, |peer| end(peer.ifinfo(0, 0, 0), ends[1]))
            })
        });
        self.request(message)
            .with_context(|| format!("veth {} and {}", ends[0].0, ends[1].0))
    }

    /// Makes a bridge that floods multicast to all its ports.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn bridge(&mut self, name: &str) -> Result<()> {
        let message = Message::link(RTM_NEWLINK, ACK | CREATE_EXCL, 0, 0, 0)
            .attr_str(IFLA_IFNAME, name)
            .nest(IFLA_LINKINFO, |info| {
                info.attr(1, b"bridge")
                    .nest(2, |data| data.attr(23, &[0]).attr_u32(1, 0))
            });
        self.request(message)
            .with_context(|| format!("bridge {name}"))
    }

    /// Puts a link under a bridge.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn enslave(&mut self, index: u32, master: u32) -> Result<()> {
        let message = Message::link(RTM_NEWLINK, ACK, index, 0, 0).attr_u32(IFLA_MASTER, master);
        self.request(message).context("put under the bridge")
    }

    /// Switches a link on or off.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_up(&mut self, index: u32, up: bool) -> Result<()> {
        let set = if up { IFF_UP } else { 0 };
        self.request(Message::link(RTM_NEWLINK, ACK, index, set, IFF_UP))
            .context("link up")
    }

    /// Lets loopback carry multicast.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_multicast(&mut self, index: u32) -> Result<()> {
        let message = Message::link(RTM_NEWLINK, ACK, index, IFF_MULTICAST, IFF_MULTICAST);
        self.request(message).context("multicast on a link")
    }

    /// Removes a link (a veth's other end goes with it).
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn remove(&mut self, index: u32) -> Result<()> {
        self.request(Message::link(RTM_DELLINK, ACK, index, 0, 0))
            .context("remove link")
    }

    /// The index of a link.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn index(&mut self, name: &str) -> Result<u32> {
        let message = Message::link(RTM_GETLINK, ACK, 0, 0, 0).attr_str(IFLA_IFNAME, name);
        let replies = self
            .ask(false, message)
            .with_context(|| format!("find link {name}"))?;
        replies
            .first()
            .and_then(|reply| u32_at(reply, 4))
            .context("a link without an index")
    }

    /// The counters of a link.
    ///
    /// # Errors
    /// When there is no such link.
    pub fn counters(&mut self, index: u32) -> Result<LinkCounters> {
        let replies = self.ask(false, Message::link(RTM_GETLINK, ACK, index, 0, 0))?;
        let reply = replies.first().context("no such link")?;
        let stats = attributes(reply.get(16..).unwrap_or(&[]))
            .find(|(kind, _)| *kind == IFLA_STATS64)
            .context("a link without counters")?
            .1;
        let at = |field: usize| {
            let bytes = stats
                .get(field * 8..field * 8 + 8)
                .and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u64::from_ne_bytes)
        };
        Ok(LinkCounters {
            rx_packets: at(0),
            tx_packets: at(1),
            rx_bytes: at(2),
            tx_bytes: at(3),
            rx_dropped: at(6),
            tx_dropped: at(7),
        })
    }

    /// Gives a link an address.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn address(&mut self, index: u32, address: Ipv4Addr, prefix_len: u8) -> Result<()> {
        let hosts = u32::MAX.checked_shr(u32::from(prefix_len)).unwrap_or(0);
        let broadcast = Ipv4Addr::from(u32::from(address) | hosts);
        let message = Message::new(RTM_NEWADDR, ACK | CREATE_EXCL)
            .bytes(&[2, prefix_len, 0, 0])
            .bytes(&index.to_ne_bytes())
            .attr(2, &address.octets())
            .attr(1, &address.octets())
            .attr(4, &broadcast.octets());
        self.request(message)
            .with_context(|| format!("address {address}"))
    }

    /// A unicast (or, for a group range, on-link) route.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn route(
        &mut self,
        (to, prefix_len): (Ipv4Addr, u8),
        via: Option<Ipv4Addr>,
        index: u32,
    ) -> Result<()> {
        let scope = if via.is_some() { 0 } else { 253 };
        let mut message = Message::new(RTM_NEWROUTE, ACK | CREATE_REPLACE)
            .bytes(&[2, prefix_len, 0, 0, 254, 4, scope, 1, 0, 0, 0, 0])
            .attr(1, &to.octets())
            .attr_u32(4, index);
        if let Some(via) = via {
            message = message.attr(5, &via.octets());
        }
        self.request(message)
            .with_context(|| format!("route to {to}/{prefix_len}"))
    }

    /// A neighbour that needs no ARP.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn neighbour(&mut self, index: u32, address: Ipv4Addr, link: [u8; 6]) -> Result<()> {
        let message = Message::new(RTM_NEWNEIGH, ACK | CREATE_REPLACE)
            .bytes(&[2, 0, 0, 0])
            .bytes(&index.to_ne_bytes())
            .bytes(&[0x80, 0, 0, 0])
            .attr(1, &address.octets())
            .attr(2, &link);
        self.request(message)
            .with_context(|| format!("neighbour {address}"))
    }

    /// A token bucket on what a link sends.
    ///
    /// # Errors
    /// When the kernel lacks it or refuses.
    pub fn token_bucket(
        &mut self,
        index: u32,
        bits_per_s: u64,
        burst: u32,
        limit: u32,
    ) -> Result<()> {
        let rate = u32::try_from(bits_per_s / 8).context("rate too high")?;
        // struct tc_tbf_qopt: rate (Ethernet link layer, so no rate table is wanted), no peak rate.
        let mut parameters = vec![0; 36];
        parameters[1] = 1;
        parameters[8..12].copy_from_slice(&rate.to_ne_bytes());
        parameters[24..28].copy_from_slice(&limit.to_ne_bytes());
        let message = Message::new(RTM_NEWQDISC, ACK | CREATE_REPLACE)
            .bytes(&[0; 4])
            .bytes(&index.to_ne_bytes())
            .bytes(&[0; 4])
            .bytes(&u32::MAX.to_ne_bytes())
            .bytes(&[0; 4])
            .attr_str(1, "tbf")
            .nest(2, |options| options.attr(1, &parameters).attr_u32(6, burst));
        self.request(message).context("token bucket")
    }

    /// The kernel's IPv4 multicast routes: (source, group, incoming index, outgoing indexes), sorted.
    ///
    /// # Errors
    /// When the dump fails.
    pub fn multicast_routes(&mut self) -> Result<Vec<MulticastRoute>> {
        let mut header = [0; 12];
        header[0] = RTNL_FAMILY_IPMR;
        let message = Message::new(RTM_GETROUTE, DUMP).bytes(&header);
        let mut routes = Vec::new();
        for reply in self
            .ask(false, message)
            .context("dump of multicast routes")?
        {
            let mut route = MulticastRoute::default();
            for (kind, value) in attributes(reply.get(12..).unwrap_or(&[])) {
                let address = || <[u8; 4]>::try_from(value).map(Ipv4Addr::from).ok();
                match kind {
                    1 => route.group = address(),
                    2 => route.source = address(),
                    3 => route.incoming = u32_at(value, 0),
                    9 => route.outgoing = next_hops(value),
                    _ => {}
                }
            }
            routes.push(route);
        }
        routes.sort();
        Ok(routes)
    }

    /// Switches offload features of an interface on or off, by ethtool's names.
    ///
    /// # Errors
    /// When the kernel speaks no ethtool over netlink or refuses.
    pub fn features(&mut self, index: u32, names: &[&str], on: bool) -> Result<()> {
        let family = self.family("ethtool")?;
        const FEATURES_SET: u8 = 12;
        let message = Message::new(family, ACK)
            .bytes(&[FEATURES_SET, 1, 0, 0])
            // Flag 2: without a reply of what changed.
            .nest(1, |header| header.attr_u32(1, index).attr_u32(3, 2))
            .nest(3, |wanted| {
                wanted.nest(3, |bits| {
                    names.iter().fold(bits, |bits, name| {
                        bits.nest(1, |bit| {
                            let bit = bit.attr_str(2, name);
                            if on { bit.attr(3, &[]) } else { bit }
                        })
                    })
                })
            });
        self.ask(true, message)
            .map(|_| ())
            .context("offload switches")
    }

    fn family(&mut self, name: &str) -> Result<u16> {
        let message = Message::new(16, ACK).bytes(&[3, 1, 0, 0]).attr_str(2, name);
        let replies = self
            .ask(true, message)
            .with_context(|| format!("netlink family {name}"))?;
        let reply = replies.first().context("no reply")?;
        for (kind, value) in attributes(reply.get(4..).unwrap_or(&[])) {
            if let (1, Ok(id)) = (kind, <[u8; 2]>::try_from(value)) {
                return Ok(u16::from_ne_bytes(id));
            }
        }
        bail!("netlink family {name} has no number")
    }
}

/// One kernel multicast route.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct MulticastRoute {
    /// Source; `None` for (*, G).
    pub source: Option<Ipv4Addr>,
    /// Group.
    pub group: Option<Ipv4Addr>,
    /// Index of the interface that leads to the source.
    pub incoming: Option<u32>,
    /// Indexes of the interfaces that packets leave by.
    pub outgoing: Vec<u32>,
}

/// The interfaces in an `RTA_MULTIPATH` attribute, sorted.
fn next_hops(mut bytes: &[u8]) -> Vec<u32> {
    let mut found = Vec::new();
    while bytes.len() >= 8 {
        let length = usize::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
        found.extend(u32_at(bytes, 4));
        bytes = bytes
            .get(length.max(8).next_multiple_of(4)..)
            .unwrap_or(&[]);
    }
    found.sort_unstable();
    found
}

/// The kernel's own words in an extended acknowledgement.
fn explanation(error: &[u8]) -> Option<String> {
    let flags = u16::from_ne_bytes([error[6], error[7]]);
    let echoed = if flags & 0x100 != 0 {
        16
    } else {
        u32_at(error, 20)? as usize
    };
    let (_, words) = attributes(error.get(20 + echoed..)?).find(|(kind, _)| *kind == 1)?;
    Some(
        String::from_utf8_lossy(words)
            .trim_end_matches('\0')
            .to_owned(),
    )
}
