//! System calls behind safe functions.

pub(crate) mod capability;
pub(crate) mod message;
pub(crate) mod multicast;
pub(crate) mod pipe;

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// A type whose every byte pattern is a value and that has no padding the kernel could read
/// uninitialised: what may cross the system-call border as plain bytes.
///
/// # Safety
/// Implement only for `repr(C)` types made of integers (and arrays and unions of them).
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($t:ty),* $(,)?) => {
        // SAFETY: `repr(C)` structs of integers of the kernel's own interface.
        $(unsafe impl Plain for $t {})*
    };
}
plain!(
    libc::c_int,
    u16,
    libc::ip_mreqn,
    libc::sockaddr_ll,
    libc::in_pktinfo,
    libc::in6_pktinfo,
    libc::packet_mreq,
    libc::tpacket_req,
    libc::tpacket_stats,
    libc::tpacket_auxdata,
    libc::in_addr,
    [u32; 8],
    [u32; 9],
);

pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

pub(crate) fn check_len(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// How many threads this process has. A thread that was joined may be counted for a moment yet:
/// waits for it to go.
pub(crate) fn count_threads() -> io::Result<usize> {
    let mut threads = 0;
    for _ in 0..50 {
        threads = std::fs::read_dir("/proc/self/task")?.count();
        if threads == 1 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Ok(threads)
}

/// A socket, close-on-exec and non-blocking.
pub(crate) fn socket(
    domain: libc::c_int,
    kind: libc::c_int,
    protocol: libc::c_int,
) -> io::Result<OwnedFd> {
    // SAFETY: takes integers only; a non-negative result is a new descriptor that no other value
    // owns.
    unsafe {
        let fd = check(libc::socket(
            domain,
            kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
            protocol,
        ))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// `setsockopt` with a plain value.
pub(crate) fn set_option<T: Plain>(
    fd: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: pointer and length describe `value`, which the kernel only reads, during the call.
    check(unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    })?;
    Ok(())
}

/// `setsockopt` with an integer.
pub(crate) fn set_int(
    fd: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    set_option(fd, level, name, &value)
}

/// Sets a buffer size, above the system's limit where privileges allow; the granted size can be read.
pub(crate) fn buffer_size(fd: &impl AsFd, force: libc::c_int, ask: libc::c_int, bytes: usize) {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    if set_int(fd, libc::SOL_SOCKET, force, bytes).is_err() {
        // A smaller buffer than requested is accepted.
        let _ = set_int(fd, libc::SOL_SOCKET, ask, bytes);
    }
}

/// `getsockopt` of a plain value; fails where the kernel gives another size.
pub(crate) fn get_option<T: Plain>(
    fd: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length describe `value`, which lives through the call; the kernel
    // writes at most `len` bytes of it.
    check(unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast(),
            &raw mut len,
        )
    })?;
    if len as usize != size_of::<T>() {
        return Err(io::Error::other("the kernel answered with another size"));
    }
    // SAFETY: zeroed at first, so initialised whatever the kernel wrote; `Plain` says that any
    // bytes are a value.
    Ok(unsafe { value.assume_init() })
}

/// Attaches a classic BPF program: the kernel drops packets for which it returns 0.
pub(crate) fn attach_filter(fd: &impl AsFd, program: &[libc::sock_filter]) -> io::Result<()> {
    let fprog = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(io::Error::other)?,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: `fprog` points at `program` with its true length; the kernel copies and checks it
    // during the call and keeps no pointer.
    check(unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const fprog).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    })?;
    Ok(())
}

/// `bind` to a link-layer address: protocol in network order, interface index or 0 for all.
pub(crate) fn bind_packet(fd: &impl AsFd, protocol: u16, ifindex: u32) -> io::Result<()> {
    let address = link_address(protocol, ifindex, [0; 6]);
    // SAFETY: pointer and length describe `address`, which the kernel only reads.
    check(unsafe {
        libc::bind(
            fd.as_fd().as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    })?;
    Ok(())
}

/// `bind` of a netlink socket to a port of the kernel's choice.
pub(crate) fn bind_netlink(fd: &impl AsFd) -> io::Result<()> {
    // SAFETY: all zeroes are a `sockaddr_nl` with port 0 and no groups.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    // SAFETY: pointer and length describe `address`, which the kernel only reads.
    check(unsafe {
        libc::bind(
            fd.as_fd().as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_nl>() as libc::socklen_t,
        )
    })?;
    Ok(())
}

/// `send` to where the socket is connected (a netlink socket: to the kernel).
pub(crate) fn send(fd: &impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    loop {
        // SAFETY: pointer and length describe `bytes`, which the kernel only reads.
        let sent = unsafe {
            libc::send(
                fd.as_fd().as_raw_fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                0,
            )
        };
        match check_len(sent) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// A `sockaddr_ll` with an Ethernet address.
pub(crate) fn link_address(protocol: u16, ifindex: u32, address: [u8; 6]) -> libc::sockaddr_ll {
    let mut sll_addr = [0; 8];
    sll_addr[..6].copy_from_slice(&address);
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: ifindex.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr,
    }
}

/// An address as the kernel stores it.
pub(crate) fn in_addr(address: Ipv4Addr) -> libc::in_addr {
    libc::in_addr {
        s_addr: u32::from_ne_bytes(address.octets()),
    }
}

/// An address from the kernel's form.
pub(crate) fn from_in_addr(address: libc::in_addr) -> Ipv4Addr {
    Ipv4Addr::from(address.s_addr.to_ne_bytes())
}

/// An IPv6 address as the kernel stores it.
pub(crate) fn in6_addr(address: Ipv6Addr) -> libc::in6_addr {
    libc::in6_addr {
        s6_addr: address.octets(),
    }
}

/// The socket family of an address.
pub(crate) fn family(address: IpAddr) -> libc::c_int {
    match address {
        IpAddr::V4(_) => libc::AF_INET,
        IpAddr::V6(_) => libc::AF_INET6,
    }
}
