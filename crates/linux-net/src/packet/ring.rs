use std::io;
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::sock_filter;

use super::checksum::complete_checksum;
use crate::error::{Capability, OpenError};
use crate::family::Family;
use crate::{filter, sys};

/// How to open a [`Ring`].
#[derive(Clone, Debug)]
pub struct RingConfig {
    /// Only this interface, by index; 0 for all of them, those that appear later too.
    pub interface: u32,
    /// Frames the ring holds; a power of two. What arrives while it is full is dropped and
    /// counted. The kernel writes them in turn, so a packet costs more in a ring that does not
    /// fit the processor's cache (`docs/decisions/0003-ring-layout.md`).
    pub frames: u32,
    /// Longest IP packet it takes whole, bytes: the largest MTU of the interfaces. Longer
    /// ones are dropped and counted.
    pub max_packet_bytes: u32,
    /// UDP ports, at most [`Ring::MAX_PORTS`], whose packets it takes whatever their address: LMS messages over UDP.
    pub udp_ports: Vec<u16>,
}

impl Default for RingConfig {
    /// All interfaces, 1,024 frames of packets up to 1,500 bytes: 2 MiB.
    fn default() -> Self {
        Self {
            interface: 0,
            frames: 1024,
            max_packet_bytes: 1500,
            udp_ports: Vec::new(),
        }
    }
}

/// What happened to the packets the filter let through, since the last call of
/// [`Ring::stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingStats {
    /// Packets that passed the filter.
    pub received: u64,
    /// Of those, dropped because the ring was full.
    pub dropped_full: u64,
    /// Of those, dropped because they were longer than [`RingConfig::max_packet_bytes`] or
    /// not whole.
    pub dropped_truncated: u64,
}

/// What a capture passes of one version of IP, beside the sources that it watches.
#[derive(Debug)]
pub(super) struct RouterFilter {
    is_ipv4: bool,
    ports: Vec<u16>,
}

impl RouterFilter {
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`]: there are more than [`Ring::MAX_PORTS`] ports.
    pub(super) fn new<A: Family>(config: &RingConfig) -> io::Result<Self> {
        if config.udp_ports.len() > Ring::MAX_PORTS {
            let reason = "it takes the packets of 8 UDP ports at most";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        Ok(Self {
            is_ipv4: A::FAMILY == libc::AF_INET,
            ports: config.udp_ports.clone(),
        })
    }

    /// The program that also passes packets of these sources, each to its group.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`]: there are more than [`Ring::MAX_SOURCES`] sources.
    pub(super) fn of_sources<A: Copy + Into<IpAddr>>(
        &self,
        sources: &[(A, A)],
    ) -> io::Result<Vec<sock_filter>> {
        if sources.len() > Ring::MAX_SOURCES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let sources = sources.iter();
        let sources: Vec<_> = sources.map(|(s, g)| ((*s).into(), (*g).into())).collect();
        Ok(self.program(&sources))
    }

    /// The program for a number of sources that is within the bound.
    pub(super) fn program(&self, sources: &[(IpAddr, IpAddr)]) -> Vec<sock_filter> {
        filter::router(self.is_ipv4, sources, &self.ports)
    }
}

/// Packets as they arrive, in memory shared with the kernel (`AF_PACKET`, `PACKET_RX_RING`):
/// no system call and no copy a packet.
///
/// A ring has the packets of one version of IP. A filter in the kernel passes what an LMS router handles and nothing
/// else, of incoming packets only:
///
/// | | IPv4 ([`Ring::open`]) | IPv6 ([`Ring::open_for`]) |
/// | --- | --- | --- |
/// | requests | UDP with an LMS option to a group | UDP behind a hop-by-hop header to a group |
/// | dmcasts | IPIP with an LMS option in either header | IPv6 in IPv6, either behind a hop-by-hop header |
/// | membership | IGMP | MLD |
/// | elections | LMS-HIER messages | LMS-HIER messages |
/// | on request | packets of [`Ring::watch_sources`], UDP to [`RingConfig::udp_ports`] | likewise |
///
/// It sees packets before the kernel's packet filter and routing do, also those that an
/// [`nft::Guard`](crate::nft::Guard) then keeps from them.
///
/// The ring has version 2 of the layout (`TPACKET_V2`): each packet is readable the moment it
/// arrives. Version 3 fills blocks and holds a lone request back until a block's timer expires,
/// up to 1 ms or more at each router on its way (`docs/decisions/0003-ring-layout.md`).
#[derive(Debug)]
pub struct Ring {
    // Unmapped before the socket closes: fields drop in this order.
    map: Map,
    socket: OwnedFd,
    filter: RouterFilter,
    /// Next frame to look at, always less than `map.frames`.
    next: u32,
    truncated: u64,
}

/// The ring's memory.
#[derive(Debug)]
struct Map {
    base: NonNull<u8>,
    len: usize,
    frame_len: usize,
    frames: u32,
}

// SAFETY: the mapping belongs to this value alone (no other code in the process has the pointer),
// and memory maps may be used and unmapped from any thread.
unsafe impl Send for Map {}
// SAFETY: a shared reference to `Map` gives access to nothing but the status words, atomically.
unsafe impl Sync for Map {}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: `base` and `len` are those that mmap returned; no reference into it exists,
        // since frames borrow the ring.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Where things stand in a frame: `struct tpacket2_hdr`, then `struct sockaddr_ll`, aligned.
mod layout {
    pub(super) const STATUS: usize = 0;
    pub(super) const LEN: usize = 4;
    pub(super) const SNAPLEN: usize = 8;
    pub(super) const NET: usize = 14;
    const HEADER: usize = size_of::<libc::tpacket2_hdr>();
    pub(super) const LINK: usize = HEADER.next_multiple_of(16);
    /// First byte a packet can start at.
    pub(super) const DATA: usize = LINK + size_of::<libc::sockaddr_ll>();
    /// What the kernel keeps before a packet at most (`TPACKET_ALIGN`, and 16 for a link
    /// header).
    pub(super) const RESERVED: usize = (LINK + 20).next_multiple_of(16) + 16;
}

const STATUS_KERNEL: u32 = 0;
const STATUS_USER: u32 = 1;
const STATUS_CSUM_NOT_READY: u32 = 8;

impl Ring {
    /// The most sources that [`Ring::watch_sources`] takes.
    pub const MAX_SOURCES: usize = 16;
    /// The most [ports](RingConfig::udp_ports).
    pub const MAX_PORTS: usize = 8;

    /// Opens a ring of IPv4 packets with the router's filter. Needs CAP_NET_RAW.
    ///
    /// # Errors
    /// [`OpenError`]: CAP_NET_RAW is missing, or the kernel refuses the ring: most often its memory.
    pub fn open(config: &RingConfig) -> Result<Self, OpenError> {
        Self::open_for::<Ipv4Addr>(config)
    }

    /// Opens a ring of packets of either version of IP, as [`Ring::open`] does.
    ///
    /// # Errors
    /// As [`Ring::open`].
    pub fn open_for<A: Family>(config: &RingConfig) -> Result<Self, OpenError> {
        let what = "packet ring";
        let error = OpenError::from(what, Capability::NetRaw);
        // Protocol 0: nothing arrives before the filter and the ring are in place.
        let socket = sys::socket(libc::AF_PACKET, libc::SOCK_DGRAM, 0).map_err(error)?;
        let filter = RouterFilter::new::<A>(config).map_err(error)?;
        sys::attach_filter(&socket, &filter.program(&[])).map_err(error)?;
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        sys::set_int(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, version).map_err(error)?;
        // The filter refuses outgoing packets; this spares running it for them.
        let _ = sys::set_int(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1);
        let request = ring_request(config).ok_or(OpenError::Io {
            what,
            source: io::Error::other(
                "the number of frames must be a power of two, 1 to 2^20, and packets at most 65535 bytes",
            ),
        })?;
        sys::set_option(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)
            .map_err(error)?;
        let map = Map::new(&socket, &request).map_err(error)?;
        sys::bind_packet(&socket, A::ETHERTYPE, config.interface).map_err(error)?;
        Ok(Self {
            map,
            socket,
            filter,
            next: 0,
            truncated: 0,
        })
    }

    /// Makes an interface pass packets to every group up from its hardware: needed where no
    /// routing daemon does. Lasts until the ring is closed.
    ///
    /// # Errors
    /// The kernel's error: most often there is no such interface.
    pub fn receive_all_multicast(&self, interface: u32) -> io::Result<()> {
        let request = libc::packet_mreq {
            mr_ifindex: interface.cast_signed(),
            mr_type: libc::PACKET_MR_ALLMULTI as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        sys::set_option(
            &self.socket,
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            &request,
        )
    }

    /// Makes the filter also pass the UDP packets of these sources, each to its group, from now on
    /// (and those of no source passed so far). Those of the other version of IP are passed over.
    ///
    /// # Errors
    ///
    /// More than [`Ring::MAX_SOURCES`] are refused with [`io::ErrorKind::InvalidInput`].
    pub fn watch_sources<A: Copy + Into<IpAddr>>(&self, sources: &[(A, A)]) -> io::Result<()> {
        sys::attach_filter(&self.socket, &self.filter.of_sources(sources)?)
    }

    /// The packets that have arrived, `max` at most, in order. They stay where they are, ours to
    /// read and to change, until the batch is dropped; then the frames return to the kernel.
    pub fn batch(&mut self, max: usize) -> RingBatch<'_> {
        let max = u32::try_from(max).unwrap_or(u32::MAX).min(self.map.frames);
        let mut ready = 0;
        while ready < max {
            let index = (self.next + ready) % self.map.frames;
            if self.map.status(index).load(Ordering::Acquire) & STATUS_USER == 0 {
                break;
            }
            ready += 1;
        }
        RingBatch {
            first: self.next,
            ready,
            ring: self,
        }
    }

    /// Counters since the last call.
    ///
    /// # Errors
    /// The kernel's error when the counters cannot be read.
    pub fn stats(&mut self) -> io::Result<RingStats> {
        // The kernel clears its counters at each reading.
        let kernel: libc::tpacket_stats =
            sys::get_option(&self.socket, libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
        Ok(RingStats {
            received: u64::from(kernel.tp_packets),
            dropped_full: u64::from(kernel.tp_drops),
            dropped_truncated: std::mem::take(&mut self.truncated),
        })
    }
}

/// Blocks of at least a page that hold whole frames.
fn ring_request(config: &RingConfig) -> Option<libc::tpacket_req> {
    /// A multiple of every page size in use; blocks are physically contiguous, and ones of this
    /// size are easy to find.
    const BLOCK: u32 = 1 << 16;
    if !config.frames.is_power_of_two() || config.frames > 1 << 20 {
        return None;
    }
    if config.max_packet_bytes > 65_535 {
        return None;
    }
    let frame = (config.max_packet_bytes + layout::RESERVED as u32)
        .next_power_of_two()
        .max(128);
    let block = frame.max(BLOCK);
    let per_block = block / frame;
    let frames = config.frames.max(per_block);
    Some(libc::tpacket_req {
        tp_block_size: block,
        tp_block_nr: frames / per_block,
        tp_frame_size: frame,
        tp_frame_nr: frames,
    })
}

impl Map {
    fn new(socket: &OwnedFd, request: &libc::tpacket_req) -> io::Result<Self> {
        let len = request.tp_block_size as usize * request.tp_block_nr as usize;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at zero"))?;
        let frame_len = request.tp_frame_size as usize;
        Ok(Self {
            base,
            len,
            frame_len,
            frames: request.tp_frame_nr,
        })
    }

    /// Start of a frame. Frames fill blocks without gaps, blocks are mapped in a row.
    fn frame(&self, index: u32) -> NonNull<u8> {
        debug_assert!(index < self.frames);
        let offset = (index % self.frames) as usize * self.frame_len;
        // SAFETY: index < frames and frames * frame_len == len, so the offset is inside.
        unsafe { self.base.add(offset) }
    }

    /// The owner of a frame: the kernel or this process.
    fn status(&self, index: u32) -> &AtomicU32 {
        // SAFETY: the status word is the first of a frame, which starts at a multiple of 128
        // bytes of a page-aligned mapping, so it is aligned and inside; both sides access it
        // only as a whole word; the mapping lives as long as `self`.
        unsafe {
            &*self
                .frame(index)
                .as_ptr()
                .add(layout::STATUS)
                .cast::<AtomicU32>()
        }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Packets of one look at the ring. Iterate it once: `for frame in batch.frames()`.
#[derive(Debug)]
pub struct RingBatch<'r> {
    ring: &'r mut Ring,
    first: u32,
    ready: u32,
}

/// One packet, where the kernel put it.
#[derive(Debug)]
pub struct Frame<'b> {
    /// Interface it arrived on, by index.
    pub interface: u32,
    /// Link address of the sender, on links with addresses of six bytes.
    pub link_source: Option<[u8; 6]>,
    /// The whole IP packet; change it in place and send it on from here. Its UDP checksum is
    /// complete, also where the sender left that to the hardware.
    pub packet: &'b mut [u8],
}

impl RingBatch<'_> {
    /// How many frames were ready.
    pub fn len(&self) -> usize {
        self.ready as usize
    }

    /// Nothing has arrived.
    pub fn is_empty(&self) -> bool {
        self.ready == 0
    }

    /// The packets in order of arrival. Each may be held until the batch is dropped.
    pub fn frames(&mut self) -> Frames<'_> {
        Frames {
            map: &self.ring.map,
            truncated: &mut self.ring.truncated,
            next: self.first,
            left: self.ready,
            exclusive: PhantomData,
        }
    }
}

impl Drop for RingBatch<'_> {
    fn drop(&mut self) {
        for offset in 0..self.ready {
            let index = (self.first + offset) % self.ring.map.frames;
            // Release: all our reads and writes of the frame come before the kernel's.
            self.ring
                .map
                .status(index)
                .store(STATUS_KERNEL, Ordering::Release);
        }
        self.ring.next = (self.first + self.ready) % self.ring.map.frames;
    }
}

/// Iterator over the packets of a [`RingBatch`].
#[derive(Debug)]
pub struct Frames<'b> {
    map: &'b Map,
    truncated: &'b mut u64,
    next: u32,
    left: u32,
    /// Frames are handed out only here.
    exclusive: PhantomData<&'b mut [u8]>,
}

impl<'b> Iterator for Frames<'b> {
    type Item = Frame<'b>;

    fn next(&mut self) -> Option<Frame<'b>> {
        while self.left > 0 {
            let index = self.next;
            self.left -= 1;
            self.next = (self.next + 1) % self.map.frames;
            let status = self.map.status(index).load(Ordering::Acquire);
            let base = self.map.frame(index);
            // SAFETY: the status said (in `Ring::batch`) that the frame is ours until the
            // batch, which we borrow, is dropped. Each index is visited once by this iterator,
            // of which there is one at a time, so the slice is the only reference to these
            // bytes. It leaves out the status word, which others may read. The frame lies
            // inside the mapping, which outlives 'b.
            let bytes: &'b mut [u8] = unsafe {
                std::slice::from_raw_parts_mut(
                    base.as_ptr().add(layout::LEN),
                    self.map.frame_len - layout::LEN,
                )
            };
            match parse(bytes) {
                Some(frame) => {
                    if status & STATUS_CSUM_NOT_READY != 0 {
                        // A packet with no checksum to complete goes as it is.
                        let _ = complete_checksum(frame.packet);
                    }
                    return Some(frame);
                }
                None => *self.truncated += 1,
            }
        }
        None
    }
}

/// Reads the kernel's description of a frame: `bytes` start after the status word. `None` when
/// the packet is not whole.
fn parse(bytes: &mut [u8]) -> Option<Frame<'_>> {
    let at = |offset: usize| offset - layout::LEN;
    let u32_at = |offset| {
        let bytes: &[u8] = bytes.get(at(offset)..at(offset) + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let len = u32_at(layout::LEN)?;
    let captured = u32_at(layout::SNAPLEN)?;
    let net = bytes.get(at(layout::NET)..at(layout::NET) + 2)?;
    let net = usize::from(u16::from_ne_bytes(net.try_into().ok()?));
    let link: libc::sockaddr_ll = sys::message::from_bytes(bytes.get(at(layout::LINK)..)?)?;
    if captured != len || net < layout::DATA {
        return None;
    }
    let packet = bytes.get_mut(at(net)..)?.get_mut(..len as usize)?;
    let link_source = (link.sll_halen == 6)
        .then(|| link.sll_addr.first_chunk::<6>().copied())
        .flatten();
    Some(Frame {
        interface: link.sll_ifindex.unsigned_abs(),
        link_source,
        packet,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame as the kernel lays it out, without its status word.
    fn frame(net: u16, len: u32, captured: u32) -> Vec<u8> {
        let mut bytes = vec![0; 256];
        bytes[layout::LEN..][..4].copy_from_slice(&len.to_ne_bytes());
        bytes[layout::SNAPLEN..][..4].copy_from_slice(&captured.to_ne_bytes());
        bytes[layout::NET..][..2].copy_from_slice(&net.to_ne_bytes());
        bytes.split_off(layout::LEN)
    }

    #[test]
    fn only_whole_packets_inside_the_slot_are_shown() {
        let first = layout::DATA as u16;
        assert_eq!(parse(&mut frame(80, 60, 60)).unwrap().packet.len(), 60);
        assert_eq!(parse(&mut frame(first, 0, 0)).unwrap().packet.len(), 0);
        assert!(parse(&mut frame(80, 61, 60)).is_none(), "cut");
        assert!(
            parse(&mut frame(first - 1, 60, 60)).is_none(),
            "over the description"
        );
        assert!(parse(&mut frame(80, 177, 177)).is_none(), "past the end");
        assert!(parse(&mut frame(u16::MAX, 1, 1)).is_none());
        assert!(parse(&mut frame(80, u32::MAX, u32::MAX)).is_none());
        for len in 0..80 {
            assert!(parse(&mut frame(80, 60, 60)[..len]).is_none());
        }
    }

    #[test]
    fn sizes_are_checked_before_the_kernel_sees_them() {
        let request = |frames, max_packet_bytes| {
            ring_request(&RingConfig {
                interface: 0,
                frames,
                max_packet_bytes,
                ..RingConfig::default()
            })
        };
        for (frames, packet) in [
            (1, 1500),
            (64, 200),
            (4096, 9000),
            (1 << 20, 1500),
            (16, 65_535),
        ] {
            let request = request(frames, packet).unwrap();
            assert_eq!(request.tp_block_size % 65_536, 0);
            assert_eq!(
                u64::from(request.tp_block_size) * u64::from(request.tp_block_nr),
                u64::from(request.tp_frame_size) * u64::from(request.tp_frame_nr),
            );
            assert!(request.tp_frame_size as usize >= packet as usize + layout::RESERVED);
        }
        assert!(request(0, 1500).is_none());
        assert!(request(100, 1500).is_none());
        assert!(request(1 << 21, 1500).is_none());
        assert!(request(64, 65_536).is_none());
    }
}
