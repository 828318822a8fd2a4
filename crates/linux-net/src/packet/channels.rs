use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::time::Duration;

use libc::sock_filter;
use pnet_datalink::{Channel as Opened, Config, DataLinkReceiver};

use super::bpf;
use super::checksum::{complete_checksum, fold, pseudo_sum, udp_holds, well_formed};
use super::ring::{Frame, RingConfig, RingStats, RouterFilter};
use crate::error::{Capability, OpenError};
use crate::family::Family;
use crate::poll::Set;
use crate::sys;
use crate::sys::message::peek_link;

const ETHERNET: usize = 14;
/// What the kernel counts for a packet in a queue beside its bytes, at least.
const OVERHEAD: usize = 1024;
/// Packets of one batch.
const BATCH: usize = 64;
/// Frames that one batch reads at most, including those that the filter refuses.
const LOOKS: usize = 4 * BATCH;

/// Packets as they arrive, by `pnet_datalink`: what a [`Ring`](super::Ring) shows, where the kernel has packet sockets but no packet
/// rings. Each packet costs three system calls and a copy.
///
/// There is one socket for each interface. All are opened with the channels, so that interfaces may appear when the
/// process has no privileges any more. The kernel runs the filter of the ring where it can; this process runs it again.
pub struct Channels {
    channels: Vec<Channel>,
    /// Sockets that no interface uses, bound to nothing.
    spare: Vec<OwnedFd>,
    /// All sockets.
    set: Set,
    filter: RouterFilter,
    program: Vec<sock_filter>,
    ethertype: u16,
    in_kernel: bool,
    slots: Vec<Slot>,
    /// The channel that is read first, so that none starves another.
    turn: usize,
    max_packet_bytes: usize,
    passed: u64,
    truncated: u64,
}

struct Channel {
    interface: u32,
    /// The receiver has a duplicate of it.
    socket: OwnedFd,
    receiver: Box<dyn DataLinkReceiver>,
}

impl Channel {
    /// The next frame, and its packet type: `PACKET_HOST` or another; `None` when none is there.
    fn next(&mut self) -> Option<(u8, &[u8])> {
        // `pnet_datalink` passes on the frame alone. A packet of a VLAN arrives without its tag, so that only the
        // kernel's packet type tells whether it is for this interface. An error is fetched by this call.
        let link = peek_link(&self.socket).ok()?;
        let packet_type = link.map_or(libc::PACKET_OTHERHOST, |link| link.sll_pkttype);
        let error = match self.receiver.next() {
            Ok(frame) => return Some((packet_type, frame)),
            Err(error) => error,
        };
        let none_is_there = [io::ErrorKind::TimedOut, io::ErrorKind::WouldBlock];
        if !none_is_there.contains(&error.kind()) {
            // The interface is down: the socket is ready until its error has been fetched.
            let name = libc::SO_ERROR;
            let _ = sys::get_option::<libc::c_int>(&self.socket, libc::SOL_SOCKET, name);
        }
        None
    }
}

/// A packet of a batch.
struct Slot {
    interface: u32,
    link_source: [u8; 6],
    len: usize,
    bytes: Box<[u8]>,
}

impl std::fmt::Debug for Channels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let interfaces: Vec<u32> = self.channels.iter().map(|c| c.interface).collect();
        f.debug_struct("Channels")
            .field("interfaces", &interfaces)
            .field("spare", &self.spare.len())
            .finish_non_exhaustive()
    }
}

impl Channels {
    /// Opens channels for this many interfaces; [`Channels::add_interface`] says which. Needs CAP_NET_RAW.
    /// `config.interface` is ignored.
    ///
    /// # Errors
    /// [`OpenError`]: CAP_NET_RAW is missing, or the kernel has no more sockets.
    pub fn open(config: &RingConfig, interfaces: usize) -> Result<Self, OpenError> {
        Self::open_for::<Ipv4Addr>(config, interfaces)
    }

    /// Opens channels for packets of either version of IP, as [`Channels::open`] does.
    ///
    /// # Errors
    /// As [`Channels::open`].
    pub fn open_for<A: Family>(config: &RingConfig, interfaces: usize) -> Result<Self, OpenError> {
        Self::new::<A>(config, interfaces, true)
    }

    /// As [`Channels::open`], as if the kernel had no filters.
    ///
    /// # Errors
    /// As [`Channels::open`].
    #[doc(hidden)]
    pub fn open_without_kernel_filter(
        config: &RingConfig,
        interfaces: usize,
    ) -> Result<Self, OpenError> {
        Self::new::<Ipv4Addr>(config, interfaces, false)
    }

    fn new<A: Family>(
        config: &RingConfig,
        interfaces: usize,
        in_kernel: bool,
    ) -> Result<Self, OpenError> {
        let error = OpenError::from("packet sockets", Capability::NetRaw);
        let filter = RouterFilter::new::<A>(config).map_err(error)?;
        let set = Set::new().map_err(error)?;
        let max_packet_bytes = config.max_packet_bytes as usize;
        let queue = config.frames as usize * (max_packet_bytes + OVERHEAD);
        let spare = (0..interfaces)
            .map(|at| {
                // Protocol 0: nothing arrives before an interface uses it.
                let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
                let _ = sys::set_int(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1);
                sys::buffer_size(&socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, queue);
                set.add(socket.as_fd(), at as u64, true, false)?;
                Ok(socket)
            })
            .collect::<io::Result<Vec<OwnedFd>>>()
            .map_err(error)?;
        let slots = (0..BATCH).map(|_| Slot {
            interface: 0,
            link_source: [0; 6],
            len: 0,
            bytes: vec![0; max_packet_bytes].into(),
        });
        Ok(Self {
            channels: Vec::with_capacity(interfaces),
            spare,
            set,
            program: filter.program(&[]),
            filter,
            ethertype: A::ETHERTYPE,
            in_kernel,
            slots: slots.collect(),
            turn: 0,
            max_packet_bytes,
            passed: 0,
            truncated: 0,
        })
    }

    /// Receives what arrives on an interface, packets to every group among it, until the interface disappears. Nothing
    /// changes where it does already.
    ///
    /// # Errors
    /// There is no such interface, it has no Ethernet frames, or all channels are in use.
    pub fn add_interface(&mut self, interface: u32) -> io::Result<()> {
        if self.channels.iter().any(|c| c.interface == interface) {
            return Ok(());
        }
        let present = pnet_datalink::interfaces();
        let is_gone = |c: &mut Channel| !present.iter().any(|p| p.index == c.interface);
        for mut gone in self.channels.extract_if(.., is_gone) {
            // What still waits there, first an error and then packets, would keep the socket readable.
            for _ in 0..2 {
                while gone.next().is_some() {}
            }
            self.spare.push(gone.socket);
        }
        let found = present.iter().find(|p| p.index == interface);
        let found = found.ok_or(io::ErrorKind::NotFound)?;
        found.mac.ok_or(io::ErrorKind::Unsupported)?;
        let socket = self
            .spare
            .pop()
            .ok_or_else(|| io::Error::other("all packet sockets are in use"))?;
        match self.bind(&socket, found) {
            Ok(receiver) => {
                self.channels.push(Channel {
                    interface,
                    socket,
                    receiver,
                });
                Ok(())
            }
            Err(error) => {
                self.spare.push(socket);
                Err(error)
            }
        }
    }

    fn bind(
        &self,
        socket: &OwnedFd,
        interface: &pnet_datalink::NetworkInterface,
    ) -> io::Result<Box<dyn DataLinkReceiver>> {
        self.attach(socket);
        let config = Config {
            // One byte more tells longer packets.
            read_buffer_size: ETHERNET + self.max_packet_bytes + 1,
            read_timeout: Some(Duration::ZERO),
            promiscuous: false,
            socket_fd: Some(socket.try_clone()?.into_raw_fd()),
            ..Config::default()
        };
        let Opened::Ethernet(_, receiver) = pnet_datalink::channel(interface, config)? else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        // It binds to all protocols, by which packets of VLANs arrive without their tags.
        sys::bind_packet(socket, self.ethertype, interface.index)?;
        let all_groups = libc::packet_mreq {
            mr_ifindex: interface.index.cast_signed(),
            mr_type: libc::PACKET_MR_ALLMULTI as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        let membership = libc::PACKET_ADD_MEMBERSHIP;
        sys::set_option(socket, libc::SOL_PACKET, membership, &all_groups)?;
        Ok(receiver)
    }

    /// Gives the kernel the filter. Where it refuses, this process has it all the same.
    fn attach(&self, socket: &OwnedFd) {
        if self.in_kernel {
            let program = bpf::after_ethernet(&self.program, self.ethertype.into());
            let _ = sys::attach_filter(socket, &program);
        }
    }

    /// See [`Ring::watch_sources`](super::Ring::watch_sources).
    ///
    /// # Errors
    /// More than [`Ring::MAX_SOURCES`](super::Ring::MAX_SOURCES) are refused with [`io::ErrorKind::InvalidInput`].
    pub fn watch_sources<A: Copy + Into<IpAddr>>(&mut self, sources: &[(A, A)]) -> io::Result<()> {
        self.program = self.filter.of_sources(sources)?;
        for channel in &self.channels {
            self.attach(&channel.socket);
        }
        Ok(())
    }

    /// The packets that have arrived, `max` and 64 at most.
    pub fn batch(&mut self, max: usize) -> ChannelBatch<'_> {
        let max = max.min(self.slots.len());
        let count = self.channels.len();
        let (mut len, mut looks) = (0, LOOKS);
        for step in 0..count {
            let at = (self.turn + step) % count;
            while len < max && looks > 0 {
                looks -= 1;
                let Some(is_ours) = self.receive(at, len) else {
                    break;
                };
                len += usize::from(is_ours);
            }
        }
        self.turn = (self.turn + 1) % count.max(1);
        ChannelBatch {
            slots: &mut self.slots[..len],
        }
    }

    /// Reads the next frame of a channel into a slot; whether the packet is for the router. `None` when none is there.
    fn receive(&mut self, at: usize, slot: usize) -> Option<bool> {
        let channel = &mut self.channels[at];
        let interface = channel.interface;
        let (packet_type, frame) = channel.next()?;
        let Some((header, packet)) = frame.split_first_chunk::<ETHERNET>() else {
            return Some(false);
        };
        let is_ip = header[12..] == self.ethertype.to_be_bytes();
        if !is_ip || !bpf::passes(&self.program, packet, packet_type) {
            return Some(false);
        }
        self.passed += 1;
        let length_at = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
        // The filter has read the fields behind these.
        let total = match self.ethertype == libc::ETH_P_IP as u16 {
            true => length_at(2),
            false => 40 + length_at(4),
        };
        let slot = &mut self.slots[slot];
        let room = slot.bytes.get_mut(..packet.len());
        let Some(room) = room.filter(|_| packet.len() >= total) else {
            self.truncated += 1;
            return Some(false);
        };
        room.copy_from_slice(packet);
        if is_partial(room) {
            let _ = complete_checksum(room);
        }
        slot.len = packet.len();
        slot.interface = interface;
        slot.link_source.copy_from_slice(&header[6..12]);
        Some(true)
    }

    /// Counters since the last call.
    ///
    /// # Errors
    /// The kernel's error when the counters cannot be read.
    pub fn stats(&mut self) -> io::Result<RingStats> {
        let mut dropped_full = 0;
        for channel in &self.channels {
            // The kernel clears its counters at each reading.
            let kernel: libc::tpacket_stats =
                sys::get_option(&channel.socket, libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
            dropped_full += u64::from(kernel.tp_drops);
        }
        Ok(RingStats {
            received: std::mem::take(&mut self.passed) + dropped_full,
            dropped_full,
            dropped_truncated: std::mem::take(&mut self.truncated),
        })
    }
}

impl AsFd for Channels {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

/// Whether a UDP checksum is half done, as on virtual links: it is wrong, and the sum of the pseudo header stands where
/// it belongs. `pnet_datalink` does not pass on what the kernel says of it.
fn is_partial(packet: &mut [u8]) -> bool {
    let Some((layout, packet)) = well_formed(packet) else {
        return false;
    };
    let is_udp = i32::from(layout.protocol) == libc::IPPROTO_UDP && !layout.is_fragment;
    let at = layout.header + 6;
    let Some(field) = packet.get(at..at + 2).filter(|_| is_udp) else {
        return false;
    };
    let field = u16::from_be_bytes([field[0], field[1]]);
    field == fold(pseudo_sum(packet, &layout)) && !udp_holds(packet, &layout)
}

/// The packets of one [`Channels::batch`].
pub struct ChannelBatch<'c> {
    slots: &'c mut [Slot],
}

impl std::fmt::Debug for ChannelBatch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChannelBatch")
            .field("len", &self.len())
            .finish()
    }
}

impl ChannelBatch<'_> {
    /// How many packets there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Nothing has arrived.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The packets, those of one interface in order of arrival.
    pub fn frames(&mut self) -> impl Iterator<Item = Frame<'_>> {
        self.slots.iter_mut().map(|slot| Frame {
            interface: slot.interface,
            link_source: Some(slot.link_source),
            packet: &mut slot.bytes[..slot.len],
        })
    }
}
