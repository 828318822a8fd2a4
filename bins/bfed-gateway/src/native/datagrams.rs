//! Channels that are multicast groups, of any source or source-specific.
//!
//! All of a data node's channels send from one socket; each one that receives has its own, bound to its
//! group. Datagrams of the sending socket that the network returns are recognized by their source address and port,
//! and dropped.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use bfed::native::{ChannelId, FrameClass, NativeError, Priority, Upcall};
use bfed::wire::data::{HEADER_LEN, MAX_PAYLOAD_LEN};
use bfed::{Content, SessionName};
use bfed_client::GroupAddress;
use linux_net::SendError;
use linux_net::inet::{self, Membership, Transmit, UdpSocket};
use linux_net::link;
use linux_net::poll::Set;
use linux_net::udp::Batch;

use media::rtp::{self, Format};

use super::{Counter, priority, upcall};

/// Key of the sending socket; channels have lower numbers.
const SENDER: u64 = u64::MAX;
/// Most bytes that are read ahead of the caller.
const SPOOL: usize = 1 << 20;
/// Most bytes gathered into one system call.
const GATHER: usize = 60_000;
/// Most bytes of one piece for the kernel: the longest UDP payload over IPv4.
const MAX_PIECE: usize = 65_507;

/// Socket options of channels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// Interface, by name or by one of its addresses; by the routes if not set.
    pub interface: Option<String>,
    /// TTL of datagrams.
    pub ttl: u8,
    /// Class of service, 0 to 63.
    pub dscp: u8,
    /// Most bytes of payload in a datagram; by the interface's MTU if not set.
    pub max_payload: Option<u16>,
    /// Receive buffer of a channel in bytes.
    pub receive_buffer: usize,
    /// Payload types of RTP whose packets tell their priority.
    pub rtp: Vec<(u8, Format)>,
}

impl Default for Link {
    fn default() -> Self {
        Link {
            interface: None,
            ttl: 16,
            dscp: 0,
            max_payload: None,
            receive_buffer: 4 << 20,
            rtp: Vec::new(),
        }
    }
}

/// The local interface and address for groups.
#[derive(Clone, Copy, Debug)]
pub(super) struct Local {
    pub(super) index: u32,
    pub(super) address: IpAddr,
    /// Most bytes of payload.
    payload: usize,
}

impl Link {
    /// Finds the interface of a group, and this host's address there.
    pub(super) fn local(&self, group: IpAddr) -> Result<Local, String> {
        let mut named = None;
        if let Some(name) = &self.interface {
            named = Some(link::find_named(name).map_err(|error| error.to_string())?);
        }
        let index = named.as_ref().map_or(0, |interface| interface.index);
        let first = named
            .as_ref()
            .and_then(|interface| interface.addresses.first());
        let route = inet::route(group, index);
        let address = match (group, first, &route) {
            (IpAddr::V4(_), Some(first), _) => first.address.into(),
            (_, _, Ok(route)) => route.source,
            (_, _, Err(error)) => {
                return Err(format!(
                    "no route to the group {group}: {error}; name the interface"
                ));
            }
        };
        let index = match named {
            Some(named) => named.index,
            None => {
                link::find_named(&address.to_string())
                    .map_err(|error| error.to_string())?
                    .index
            }
        };
        let headers = if group.is_ipv4() { 28 } else { 48 };
        let mtu = route.map_or(1500, |route| route.mtu);
        let payload = self
            .max_payload
            .unwrap_or(mtu.saturating_sub(headers))
            .min(65_000);
        Ok(Local {
            index,
            address,
            payload: payload.into(),
        })
    }

    /// Opens a socket that sends to groups from that address.
    pub(super) fn sender(&self, local: Local, port: u16) -> Result<UdpSocket, String> {
        let bind = SocketAddr::new(local.address, port);
        self.open(local, bind, false)
    }

    pub(super) fn open(
        &self,
        local: Local,
        bind: SocketAddr,
        listens: bool,
    ) -> Result<UdpSocket, String> {
        let socket = UdpSocket::open(&inet::Config {
            interface: local.index,
            ttl: self.ttl,
            loopback: true,
            receive_buffer_bytes: if listens {
                self.receive_buffer
            } else {
                64 << 10
            },
            ..inet::Config::new(bind)
        })
        .map_err(|error| error.to_string())?;
        if self.dscp != 0 {
            let failed = |error| format!("class of service {}: {error}", self.dscp);
            socket.set_dscp(self.dscp).map_err(failed)?;
        }
        Ok(socket)
    }
}

/// Counters.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Counts {
    own: u64,
    too_big: u64,
    unsent: u64,
    unread: u64,
    received: u64,
    sent: u64,
}

#[derive(Debug)]
struct Channel {
    content: Content,
    /// Destination of its data.
    to: Option<SocketAddr>,
    listener: Option<UdpSocket>,
    paused: bool,
    /// Reads the priorities of its packets, if it receives.
    rtp: Option<Box<rtp::Reader>>,
}

/// Datagrams of one channel that leave together.
#[derive(Debug)]
struct Gathered {
    channel: ChannelId,
    to: SocketAddr,
    segment: usize,
    bytes: Vec<u8>,
}

/// The channels of one data node.
#[derive(Debug)]
pub(super) struct Channels {
    link: Link,
    local: Local,
    set: Set,
    sender: UdpSocket,
    own: SocketAddr,
    channels: BTreeMap<ChannelId, Channel>,
    next: u64,
    batch: Batch,
    spool: Vec<u8>,
    received: VecDeque<(ChannelId, Range<usize>, FrameClass)>,
    gathered: Option<Gathered>,
    /// Buffer for the next datagrams to gather.
    spare: Vec<u8>,
    /// The sending socket is full and watched.
    full: bool,
    busy: Vec<ChannelId>,
    writable: VecDeque<ChannelId>,
    counts: Counts,
}

impl Channels {
    pub(super) fn open(link: &Link, group: IpAddr) -> Result<Self, String> {
        let local = link.local(group)?;
        let sender = link.sender(local, 0)?;
        let io = |error: std::io::Error| error.to_string();
        let set = Set::new().map_err(io)?;
        set.add(sender.as_fd(), SENDER, false, false).map_err(io)?;
        Ok(Channels {
            link: link.clone(),
            local,
            set,
            own: sender.local_address().map_err(io)?,
            sender,
            channels: BTreeMap::new(),
            next: 0,
            batch: Batch::new(4),
            spool: Vec::new(),
            received: VecDeque::new(),
            gathered: None,
            spare: Vec::new(),
            full: false,
            busy: Vec::new(),
            writable: VecDeque::new(),
            counts: Counts::default(),
        })
    }

    /// Returns this host's address, the source of its data.
    pub(super) fn address(&self) -> IpAddr {
        self.local.address
    }

    /// Adds a channel that sends to that address.
    pub(super) fn add(&mut self, session: &SessionName, to: Option<SocketAddr>) -> ChannelId {
        let channel = ChannelId(self.next);
        self.next += 1;
        let content = session.content();
        let new = Channel {
            content,
            to,
            listener: None,
            paused: false,
            rtp: None,
        };
        self.channels.insert(channel, new);
        channel
    }

    /// Returns the destination of a channel.
    pub(super) fn destination(&self, channel: ChannelId) -> Option<SocketAddr> {
        self.channels.get(&channel)?.to
    }

    /// Receives a group, and sends the channel's data there, too.
    pub(super) fn listen(&mut self, id: ChannelId, to: &GroupAddress) -> Result<(), NativeError> {
        let channel = self.channels.get_mut(&id).ok_or(NativeError::Refused)?;
        if channel.listener.is_some() && channel.to == Some(to.group) {
            return Ok(());
        }
        if to.group.is_ipv4() != self.own.is_ipv4() {
            return Err(NativeError::NoSession);
        }
        // Closes the old socket: both would have the same key.
        channel.listener = None;
        let opened = self
            .link
            .open(self.local, to.group, true)
            .and_then(|socket| {
                let (group, source, interface) = (to.group.ip(), to.source, self.local.index);
                let joined = socket.join(&Membership {
                    group,
                    source,
                    interface,
                });
                joined.map_err(|error| error.to_string())?;
                let added = self.set.add(socket.as_fd(), id.0, !channel.paused, false);
                added.map_err(|error| error.to_string())?;
                Ok(socket)
            });
        match opened {
            Ok(socket) => {
                channel.listener = Some(socket);
                let formats = &self.link.rtp;
                channel.rtp = (!formats.is_empty()).then(|| Box::new(rtp::Reader::new(formats)));
                channel.to = Some(to.group);
                Ok(())
            }
            Err(error) => {
                tracing::warn!(event = "group_join_failed", group = %to, error, "cannot receive the group");
                Err(NativeError::Full)
            }
        }
    }

    /// Stops receiving.
    pub(super) fn silence(&mut self, id: ChannelId) {
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.listener = None;
        }
    }

    /// Removes a channel; returns its destination.
    pub(super) fn remove(&mut self, id: ChannelId) -> Option<SocketAddr> {
        if self
            .gathered
            .as_ref()
            .is_some_and(|gathered| gathered.channel == id)
        {
            self.flush();
            self.gathered = self
                .gathered
                .take()
                .filter(|gathered| gathered.channel != id);
        }
        self.busy.retain(|busy| *busy != id);
        self.writable.retain(|writable| *writable != id);
        self.channels.remove(&id)?.to
    }

    /// Pauses or resumes reading; the socket's buffer holds what arrives meanwhile.
    pub(super) fn set_paused(&mut self, id: ChannelId, paused: bool) {
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.paused = paused;
            if let Some(listener) = &channel.listener {
                // The socket is in the set, so this cannot fail.
                let _ = self.set.change(listener.as_fd(), id.0, !paused, false);
            }
        }
    }

    /// Sends a frame unchanged, or cut into datagrams if it is a part of a byte stream and too long for one.
    pub(super) fn send(&mut self, id: ChannelId, data: &[u8]) -> Result<(), NativeError> {
        let channel = self.channels.get(&id).ok_or(NativeError::Refused)?;
        let (to, most) = (channel.to.ok_or(NativeError::Refused)?, self.local.payload);
        if data.is_empty() {
            return Ok(());
        }
        if data.len() > most && channel.content == Content::RealTime {
            self.counts.too_big += 1;
            return Err(NativeError::Refused);
        }
        if data.len() > most {
            return self.send_stream(id, to, data);
        }
        let segment = data.len();
        let fits = self.gathered.as_ref().is_none_or(|gathered| {
            gathered.channel == id
                && gathered.segment >= segment
                && gathered.bytes.len() % gathered.segment == 0
                && gathered.bytes.len() + data.len() <= GATHER
                && gathered.bytes.len() / gathered.segment < self.sender.max_segments()
        });
        if !fits {
            self.flush();
        }
        if self.full {
            if !self.busy.contains(&id) {
                self.busy.push(id);
            }
            return Err(NativeError::Busy);
        }
        self.counts.sent += 1;
        self.gather(id, to, segment).bytes.extend_from_slice(data);
        Ok(())
    }

    /// Sends a part of a byte stream: it continues the last datagram, so that the kernel gets pieces as long as it
    /// takes.
    fn send_stream(
        &mut self,
        id: ChannelId,
        to: SocketAddr,
        data: &[u8],
    ) -> Result<(), NativeError> {
        let segment = self.local.payload;
        let follows = |gathered: &Gathered| gathered.channel == id && gathered.segment == segment;
        if !self.gathered.as_ref().is_none_or(follows) {
            self.flush();
        }
        if self.full {
            if !self.busy.contains(&id) {
                self.busy.push(id);
            }
            return Err(NativeError::Busy);
        }
        self.counts.sent += 1;
        let count = self.sender.max_segments().min(MAX_PIECE / segment).max(1);
        let piece = count * segment;
        let mut rest = data;
        while !rest.is_empty() && !self.full {
            let gathered = self.gather(id, to, segment);
            let room = piece.saturating_sub(gathered.bytes.len());
            let (now, later) = rest.split_at(room.min(rest.len()));
            gathered.bytes.extend_from_slice(now);
            rest = later;
            if gathered.bytes.len() >= piece {
                self.flush();
            }
        }
        if !rest.is_empty() {
            // The kernel takes no more: the frame waits with what it has left.
            self.gather(id, to, segment).bytes.extend_from_slice(rest);
        }
        Ok(())
    }

    /// Returns the gathered datagrams, or begins to gather.
    fn gather(&mut self, channel: ChannelId, to: SocketAddr, segment: usize) -> &mut Gathered {
        let bytes = &mut self.spare;
        self.gathered.get_or_insert_with(|| Gathered {
            channel,
            to,
            segment,
            bytes: std::mem::take(bytes),
        })
    }

    /// Passes datagrams to the kernel; returns the number of bytes taken: all, unless its buffer is full.
    fn hand_over(&mut self, to: SocketAddr, bytes: &[u8], segment: usize) -> usize {
        if self.link.dscp != 0 {
            let mut queue = self.sender.queue();
            queue.push_segments(to, bytes, segment);
            self.counts.unsent += queue.flush().failed;
            return bytes.len();
        }
        match self.sender.send(&Transmit {
            source: None,
            destination: to,
            bytes,
            segment_len: Some(segment),
        }) {
            Ok(taken) => taken,
            Err(SendError::WouldBlock) => 0,
            Err(error) => {
                tracing::debug!(group = %to, %error, "datagrams not sent");
                self.counts.unsent += bytes.len().div_ceil(segment) as u64;
                bytes.len()
            }
        }
    }

    /// Sends the gathered datagrams.
    pub(super) fn flush(&mut self) {
        let Some(mut gathered) = self.gathered.take() else {
            return;
        };
        let taken = self.hand_over(gathered.to, &gathered.bytes, gathered.segment);
        gathered.bytes.drain(..taken);
        let full = !gathered.bytes.is_empty();
        match full {
            true => self.gathered = Some(gathered),
            false => self.spare = gathered.bytes,
        }
        self.set_full(full);
    }

    /// Sets whether the sending socket is full.
    fn set_full(&mut self, full: bool) {
        if full != self.full {
            self.full = full;
            // The socket is in the set, so this cannot fail.
            let _ = self.set.change(self.sender.as_fd(), SENDER, false, full);
        }
        if !full {
            self.writable.extend(self.busy.drain(..));
        }
    }

    /// Returns a channel that takes data again.
    pub(super) fn poll_writable(&mut self) -> Option<ChannelId> {
        if self.full && self.writable.is_empty() {
            self.flush();
        }
        self.writable.pop_front()
    }

    /// Returns the next data, written after the space for a header.
    ///
    /// # Panics
    /// `buffer` does not hold a whole frame, as [`NativeNet::poll_upcall`](bfed::NativeNet) demands.
    pub(super) fn poll_data(&mut self, buffer: &mut [u8]) -> Option<Upcall> {
        if self.received.is_empty() {
            self.read();
        }
        let (channel, range, class) = self.received.pop_front()?;
        let len = range.len();
        buffer[HEADER_LEN..HEADER_LEN + len].copy_from_slice(&self.spool[range]);
        Some(upcall(channel, len, class))
    }

    /// Reads one batch of each readable socket, up to the limit.
    fn read(&mut self) {
        self.spool.clear();
        let Ok(ready) = self.set.ready() else {
            return;
        };
        for ready in ready {
            let id = ChannelId(ready.key);
            let Some(channel) = self.channels.get_mut(&id).filter(|_| ready.readable) else {
                continue;
            };
            let Some(socket) = &channel.listener else {
                continue;
            };
            if self.spool.len() >= SPOOL {
                break;
            }
            if socket.receive(&mut self.batch).is_err() {
                self.counts.unread += 1;
                continue;
            }
            for datagram in self.batch.received() {
                if datagram.source == self.own {
                    self.counts.own += 1;
                    continue;
                }
                if datagram.payload.len() > MAX_PAYLOAD_LEN {
                    self.counts.too_big += 1;
                    continue;
                }
                let start = self.spool.len();
                self.spool.extend_from_slice(datagram.payload);
                let reader = channel.rtp.as_mut();
                let known = reader.and_then(|reader| reader.read(datagram.payload));
                let class = FrameClass {
                    priority: known.map_or(Priority::Normal, priority),
                    lifetime: None,
                };
                self.received
                    .push_back((id, start..self.spool.len(), class));
                self.counts.received += 1;
            }
        }
    }

    /// Returns the number of channels.
    pub(super) fn len(&self) -> usize {
        self.channels.len()
    }

    pub(super) fn counters(&self) -> Vec<Counter> {
        let counts = &self.counts;
        vec![
            ("datagrams_received", counts.received),
            ("frames_sent", counts.sent),
            ("own_datagrams", counts.own),
            ("frames_too_big", counts.too_big),
            ("datagrams_unsent", counts.unsent),
            ("reads_failed", counts.unread),
        ]
    }
}

impl AsFd for Channels {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}
