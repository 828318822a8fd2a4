//! `sendmsg` and `recvmsg` with ancillary data, and their batched forms.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};

use super::{Plain, check_len, in_addr};

/// Ancillary data to send: a bounded buffer, aligned as `cmsghdr` wants.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Control<const N: usize> {
    align: [libc::cmsghdr; 0],
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Control<N> {
    pub(crate) const fn new() -> Self {
        Self {
            align: [],
            bytes: [0; N],
            len: 0,
        }
    }

    /// Bytes in use: what `msg_controllen` says.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Appends one message; fails when it does not fit.
    pub(crate) fn push(
        &mut self,
        level: libc::c_int,
        kind: libc::c_int,
        data: &[u8],
    ) -> Option<()> {
        const HEADER: usize = size_of::<libc::cmsghdr>();
        const ALIGN: usize = align_of::<libc::cmsghdr>();
        let space = HEADER + data.len().next_multiple_of(ALIGN);
        let room = self.bytes.get_mut(self.len..)?.get_mut(..space)?;
        // `struct cmsghdr` is a length (size_t), a level and a type (int), in this order.
        let (header, body) = room.split_at_mut(HEADER);
        header[..size_of::<usize>()].copy_from_slice(&(HEADER + data.len()).to_ne_bytes());
        header[HEADER - 8..HEADER - 4].copy_from_slice(&level.to_ne_bytes());
        header[HEADER - 4..].copy_from_slice(&kind.to_ne_bytes());
        body[..data.len()].copy_from_slice(data);
        self.len += space;
        Some(())
    }

    /// Appends the address to send from and the interface to send on; an unspecified address and an interface of 0
    /// leave the choice to the kernel. The address's version is the socket's.
    pub(crate) fn push_path(&mut self, source: IpAddr, interface: u32) -> Option<()> {
        match source {
            IpAddr::V4(source) => {
                let info = libc::in_pktinfo {
                    ipi_ifindex: interface.cast_signed(),
                    ipi_spec_dst: in_addr(source),
                    ipi_addr: in_addr(Ipv4Addr::UNSPECIFIED),
                };
                self.push(libc::IPPROTO_IP, libc::IP_PKTINFO, as_bytes(&info))
            }
            IpAddr::V6(source) => {
                let info = libc::in6_pktinfo {
                    ipi6_addr: super::in6_addr(source),
                    ipi6_ifindex: interface,
                };
                self.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, as_bytes(&info))
            }
        }
    }

    /// The ancillary messages: level, type, data. Stops at the first that is not well formed.
    pub(crate) fn messages(&self) -> impl Iterator<Item = (libc::c_int, libc::c_int, &[u8])> {
        const HEADER: usize = size_of::<libc::cmsghdr>();
        let mut rest = self.bytes.get(..self.len).unwrap_or_default();
        std::iter::from_fn(move || {
            let (header, _) = rest.split_at_checked(HEADER)?;
            let len = usize::from_ne_bytes(header[..size_of::<usize>()].try_into().ok()?);
            let level = i32::from_ne_bytes(header[HEADER - 8..HEADER - 4].try_into().ok()?);
            let kind = i32::from_ne_bytes(header[HEADER - 4..].try_into().ok()?);
            let data = rest.get(HEADER..len)?;
            let next = len
                .next_multiple_of(align_of::<libc::cmsghdr>())
                .min(rest.len());
            rest = &rest[next..];
            Some((level, kind, data))
        })
    }
}

/// The bytes of a plain value.
pub(crate) fn as_bytes<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: `Plain` types are initialised everywhere (integers, no padding); the slice borrows
    // the value.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// A plain value from the front of bytes, whatever their alignment.
pub(crate) fn from_bytes<T: Plain>(bytes: &[u8]) -> Option<T> {
    let bytes = bytes.get(..size_of::<T>())?;
    // SAFETY: the slice holds `size_of::<T>()` bytes, the read is unaligned, and any bytes are a
    // value of a `Plain` type.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// An IPv4 socket address as the kernel stores it.
fn sockaddr(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: in_addr(*address.ip()),
        sin_zero: [0; 8],
    }
}

fn empty_header() -> libc::msghdr {
    // SAFETY: null pointers and zero lengths are a valid, empty `msghdr` (private padding on
    // some C libraries rules out a literal).
    unsafe { std::mem::zeroed() }
}

/// `sendmsg` of one buffer to an address of the socket's version of IP.
pub(crate) fn send<const N: usize>(
    fd: &impl AsFd,
    destination: SocketAddr,
    control: &Control<N>,
    bytes: &[u8],
) -> io::Result<usize> {
    let address = SocketAddress::from(destination);
    // An `IoSlice` is an `iovec`.
    let part = io::IoSlice::new(bytes);
    let mut header = empty_header();
    header.msg_name = std::ptr::from_ref(&address).cast_mut().cast();
    header.msg_namelen = size_of_val(&address) as libc::socklen_t;
    header.msg_iov = std::ptr::from_ref(&part).cast_mut().cast();
    header.msg_iovlen = 1;
    if control.len > 0 {
        header.msg_control = control.bytes.as_ptr().cast_mut().cast();
        header.msg_controllen = control.len as _;
    }
    loop {
        // SAFETY: every pointer in `header` comes with its true length and outlives the call (the
        // standard library guarantees the layout of `IoSlice`); sendmsg only reads through them (the
        // casts to mut only satisfy the C type).
        let sent = unsafe { libc::sendmsg(fd.as_fd().as_raw_fd(), &raw const header, 0) };
        match check_len(sent) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Most messages a batched call takes.
pub(crate) const BATCH: usize = 64;

/// One message of [`send_batch`]: `A` is the C address type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing<'a, A> {
    pub(crate) address: A,
    pub(crate) control: Option<&'a Control<40>>,
    pub(crate) bytes: &'a [u8],
}

/// The C address types a message can be sent to.
///
/// # Safety
/// Implement only for `repr(C)` socket addresses of the kernel's interface.
pub(crate) unsafe trait Address: Copy {}
// SAFETY: the kernel's own socket address type.
unsafe impl Address for libc::sockaddr_ll {}

/// `sendmmsg` of at most [`BATCH`] messages. Returns the number accepted; an error is that of
/// the first message.
pub(crate) fn send_batch<A: Address>(
    fd: &impl AsFd,
    messages: &[Outgoing<'_, A>],
) -> io::Result<usize> {
    let count = messages.len().min(BATCH);
    let mut parts = [libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    }; BATCH];
    let mut headers = [libc::mmsghdr {
        msg_hdr: empty_header(),
        msg_len: 0,
    }; BATCH];
    for ((message, part), header) in messages.iter().zip(&mut parts).zip(&mut headers) {
        part.iov_base = message.bytes.as_ptr().cast_mut().cast();
        part.iov_len = message.bytes.len();
        let header = &mut header.msg_hdr;
        header.msg_name = (&raw const message.address).cast_mut().cast();
        header.msg_namelen = size_of::<A>() as libc::socklen_t;
        header.msg_iov = part;
        header.msg_iovlen = 1;
        if let Some(control) = message.control {
            header.msg_control = control.bytes.as_ptr().cast_mut().cast();
            header.msg_controllen = control.len as _;
        }
    }
    loop {
        // SAFETY: the first `count` headers point at addresses, parts and control data with
        // their true lengths, all borrowed through the call; sendmmsg writes only `msg_len`.
        let sent = unsafe {
            libc::sendmmsg(
                fd.as_fd().as_raw_fd(),
                headers.as_mut_ptr(),
                count as libc::c_uint,
                0,
            )
        };
        match super::check(sent) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
            Ok(sent) => return Ok(sent.unsigned_abs() as usize),
        }
    }
}

/// The ancillary data of a received message, in a buffer of fixed size.
pub(crate) struct Incoming<const N: usize> {
    control: Control<N>,
    /// Source address, when the socket's family is `AF_INET` or `AF_INET6`.
    pub(crate) source: Option<SocketAddr>,
    /// Source address, when it is `AF_PACKET`.
    pub(crate) link: Option<libc::sockaddr_ll>,
    /// Source port, when it is `AF_NETLINK`.
    pub(crate) netlink_port: Option<u32>,
    /// Bytes in the caller's buffer.
    pub(crate) len: usize,
    /// The message was longer than the caller's buffer, or its ancillary data than ours.
    pub(crate) truncated: bool,
}

#[repr(C)]
union AnyAddress {
    family: libc::sa_family_t,
    ip: SocketAddress,
    link: libc::sockaddr_ll,
    netlink: libc::sockaddr_nl,
    storage: libc::sockaddr_storage,
}

/// `recvmsg` without waiting.
pub(crate) fn receive<const N: usize>(
    fd: &impl AsFd,
    buffer: &mut [u8],
) -> io::Result<Incoming<N>> {
    receive_with(fd, buffer, 0)
}

/// Returns where the next packet of a packet socket comes from, and leaves the packet there; `None` where the
/// kernel does not say.
pub(crate) fn peek_link(fd: &impl AsFd) -> io::Result<Option<libc::sockaddr_ll>> {
    receive_with::<0>(fd, &mut [], libc::MSG_PEEK).map(|incoming| incoming.link)
}

fn receive_with<const N: usize>(
    fd: &impl AsFd,
    buffer: &mut [u8],
    flags: libc::c_int,
) -> io::Result<Incoming<N>> {
    let mut incoming = Incoming {
        control: Control::new(),
        source: None,
        link: None,
        netlink_port: None,
        len: 0,
        truncated: false,
    };
    // SAFETY: all zeroes are a `sockaddr_storage` of family AF_UNSPEC.
    let storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut address = AnyAddress { storage };
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let mut header = empty_header();
    header.msg_name = (&raw mut address).cast();
    header.msg_namelen = size_of::<AnyAddress>() as libc::socklen_t;
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = incoming.control.bytes.as_mut_ptr().cast();
    header.msg_controllen = N as _;
    // SAFETY: every pointer in `header` comes with its true length, points at memory that we
    // hold exclusively, and outlives the call.
    let len = check_len(unsafe {
        libc::recvmsg(
            fd.as_fd().as_raw_fd(),
            &raw mut header,
            libc::MSG_DONTWAIT | flags,
        )
    })?;
    incoming.len = len.min(buffer.len());
    incoming.truncated = header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
    #[allow(
        clippy::unnecessary_cast,
        reason = "the length's type differs between C libraries"
    )]
    {
        incoming.control.len = (header.msg_controllen as usize).min(N);
    }
    // SAFETY: the union was zeroed whole and the kernel wrote an address into it, so every field
    // is initialised, and all are made of integers; the family says which one is meant.
    unsafe {
        match libc::c_int::from(address.family) {
            libc::AF_INET | libc::AF_INET6 => incoming.source = address.ip.read(),
            libc::AF_PACKET => incoming.link = Some(address.link),
            libc::AF_NETLINK => incoming.netlink_port = Some(address.netlink.nl_pid),
            _ => {}
        }
    }
    Ok(incoming)
}

impl<const N: usize> Incoming<N> {
    /// The ancillary messages: level, type, data.
    pub(crate) fn control(&self) -> impl Iterator<Item = (libc::c_int, libc::c_int, &[u8])> {
        self.control.messages()
    }
}

/// An IPv4 or IPv6 socket address as the kernel stores it.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union SocketAddress {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

// SAFETY: the kernel's own socket address types; it reads as much as the family takes.
unsafe impl Address for SocketAddress {}
// SAFETY: integers only, without padding; what one kind leaves of the other is zero.
unsafe impl Plain for SocketAddress {}

impl SocketAddress {
    const NONE: SocketAddress = SocketAddress {
        v6: libc::sockaddr_in6 {
            sin6_family: 0,
            sin6_port: 0,
            sin6_flowinfo: 0,
            sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
            sin6_scope_id: 0,
        },
    };

    fn read(&self) -> Option<SocketAddr> {
        // SAFETY: every value starts as `NONE`, so all bytes are initialised, and all fields are
        // made of integers; the family says which one is meant.
        unsafe {
            match libc::c_int::from(self.family) {
                libc::AF_INET => Some(SocketAddr::V4(SocketAddrV4::new(
                    super::from_in_addr(self.v4.sin_addr),
                    u16::from_be(self.v4.sin_port),
                ))),
                libc::AF_INET6 => Some(SocketAddr::V6(SocketAddrV6::new(
                    Ipv6Addr::from(self.v6.sin6_addr.s6_addr),
                    u16::from_be(self.v6.sin6_port),
                    0,
                    self.v6.sin6_scope_id,
                ))),
                _ => None,
            }
        }
    }
}

impl From<SocketAddr> for SocketAddress {
    fn from(address: SocketAddr) -> Self {
        let mut storage = Self::NONE;
        match address {
            SocketAddr::V4(address) => storage.v4 = sockaddr(address),
            SocketAddr::V6(address) => {
                storage.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: super::in6_addr(*address.ip()),
                    sin6_scope_id: address.scope_id(),
                };
            }
        }
        storage
    }
}

impl std::fmt::Debug for SocketAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.read())
    }
}

/// Packets received with one call, each with its source and its ancillary data.
#[derive(Debug)]
pub(crate) struct IncomingBatch {
    bytes: Vec<u8>,
    /// Room for each packet.
    room: usize,
    packets: Vec<Packet>,
    filled: usize,
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    address: SocketAddress,
    control: Control<40>,
    len: usize,
}

impl IncomingBatch {
    /// Creates a buffer for this number of packets, at most [`BATCH`], of this length each.
    pub(crate) fn new(packets: usize, room: usize) -> Self {
        let packets = packets.min(BATCH);
        let none = Packet {
            address: SocketAddress::NONE,
            control: Control::new(),
            len: 0,
        };
        Self {
            bytes: vec![0; packets * room],
            room,
            packets: vec![none; packets],
            filled: 0,
        }
    }

    /// `recvmmsg` without waiting; packets longer than the buffer are left out.
    pub(crate) fn receive(&mut self, fd: &impl AsFd) -> io::Result<()> {
        self.filled = 0;
        let mut parts = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; BATCH];
        let mut headers = [libc::mmsghdr {
            msg_hdr: empty_header(),
            msg_len: 0,
        }; BATCH];
        let buffers = self.bytes.chunks_exact_mut(self.room);
        let slots = self.packets.iter_mut().zip(buffers);
        for ((packet, buffer), (part, header)) in slots.zip(parts.iter_mut().zip(&mut headers)) {
            packet.address = SocketAddress::NONE;
            packet.control = Control::new();
            part.iov_base = buffer.as_mut_ptr().cast();
            part.iov_len = buffer.len();
            let header = &mut header.msg_hdr;
            header.msg_name = (&raw mut packet.address).cast();
            header.msg_namelen = size_of::<SocketAddress>() as libc::socklen_t;
            header.msg_iov = part;
            header.msg_iovlen = 1;
            header.msg_control = packet.control.bytes.as_mut_ptr().cast();
            header.msg_controllen = packet.control.bytes.len() as _;
        }
        // SAFETY: the first `packets.len()` headers (at most `BATCH`) point at parts, buffers,
        // addresses and control data with their true lengths, each held exclusively by this call
        // and outliving it.
        let count = super::check(unsafe {
            libc::recvmmsg(
                fd.as_fd().as_raw_fd(),
                headers.as_mut_ptr(),
                self.packets.len() as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        })?;
        self.filled = (count.unsigned_abs() as usize).min(self.packets.len());
        for (packet, header) in self.packets[..self.filled].iter_mut().zip(&headers) {
            let cut = header.msg_hdr.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
            packet.len = if cut { 0 } else { header.msg_len as usize };
            #[allow(
                clippy::unnecessary_cast,
                reason = "the length's type differs between C libraries"
            )]
            {
                packet.control.len = (header.msg_hdr.msg_controllen as usize).min(40);
            }
        }
        Ok(())
    }

    /// Each packet of the last call: number, source, ancillary data, bytes.
    pub(crate) fn each(
        &mut self,
        mut take: impl FnMut(usize, SocketAddr, &Control<40>, &mut [u8]),
    ) {
        let buffers = self.bytes.chunks_exact_mut(self.room);
        let filled = self.packets[..self.filled].iter().zip(buffers);
        for (number, (packet, buffer)) in filled.enumerate() {
            let len = packet.len.min(buffer.len());
            if let Some(source) = packet.address.read() {
                take(number, source, &packet.control, &mut buffer[..len]);
            }
        }
    }

    /// The buffer of a packet.
    pub(crate) fn buffer(&self, number: usize) -> &[u8] {
        let start = number * self.room;
        self.bytes.get(start..start + self.room).unwrap_or_default()
    }
}
