//! Small networks for tests: namespaces joined by wires. Runs as root; as an ordinary user a
//! test runs again in a child process that is root of its own user namespace.

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use linux_net::link::{self, Editor, Interface};
use linux_net::netns::{self, Namespace};
use linux_net::poll::{self, Watch};

const INSIDE: &str = "LINUX_NET_TEST_INSIDE";

/// Runs `body` where namespaces can be made; says so loudly where none can.
pub(crate) fn with_namespaces(test: &str, body: impl FnOnce()) {
    let refused = match Namespace::new() {
        Ok(_) => return body(),
        Err(error) => error,
    };
    if std::env::var_os(INSIDE).is_none() {
        let mut again = Command::new(std::env::current_exe().expect("own path"));
        again
            .args([test, "--exact", "--nocapture"])
            .env(INSIDE, "1");
        #[allow(
            unsafe_code,
            reason = "entering a user namespace needs a process with one thread"
        )]
        // SAFETY: the closure runs in the child between fork and exec; it makes system calls
        // and small allocations, which the C library's allocator allows after a fork.
        unsafe {
            again.pre_exec(|| netns::become_root().map_err(std::io::Error::other));
        }
        match again.status() {
            Ok(status) => assert!(status.success(), "{test} failed in its user namespace"),
            Err(error) => {
                netlab::skip(test, format_args!("no namespaces here: {refused}; {error}"));
            }
        }
        return;
    }
    netlab::skip(test, format_args!("no namespaces here: {refused}"));
}

/// One host of a network.
pub(crate) struct Host {
    pub(crate) namespace: Namespace,
}

impl Host {
    pub(crate) fn new() -> Self {
        Self {
            namespace: Namespace::new().expect("namespace"),
        }
    }

    /// Runs `f` on this host.
    pub(crate) fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        self.namespace.run(f).expect("enter namespace")
    }

    pub(crate) fn interface(&self, name: &str) -> Interface {
        self.run(|| link::find(name).expect("interface"))
    }

    pub(crate) fn index(&self, name: &str) -> u32 {
        self.interface(name).index
    }
}

/// Joins two hosts by a wire; both ends are up, with addresses of one /24.
pub(crate) fn wire(
    a: &Host,
    a_name: &str,
    a_address: [u8; 4],
    b: &Host,
    b_name: &str,
    b_address: [u8; 4],
) {
    a.run(|| {
        let mut editor = Editor::open().unwrap();
        editor
            .add_veth(a_name, b_name, Some(b.namespace.as_fd()))
            .expect("veth");
    });
    for (host, name, address) in [(a, a_name, a_address), (b, b_name, b_address)] {
        let index = host.index(name);
        host.run(|| {
            let mut editor = Editor::open().unwrap();
            editor
                .add_address(index, Ipv4Addr::from(address), 24)
                .expect("address");
            editor.set_up(index, true).expect("up");
        });
    }
    until_it_carries(a, b, b_address.into());
    until_it_carries(b, a, a_address.into());
}

/// Waits until datagrams pass: an interface that reports a carrier may still drop the first
/// packets, since its queue is attached a moment later.
pub(crate) fn until_it_carries(from: &Host, to: &Host, address: Ipv4Addr) {
    let listener = to.run(|| UdpSocket::bind((address, 7)).expect("bind"));
    listener
        .set_read_timeout(Some(Duration::from_millis(20)))
        .expect("timeout");
    let sender = from.run(|| UdpSocket::bind("0.0.0.0:0").expect("bind"));
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        sender.send_to(b"?", (address, 7)).expect("send");
        if listener.recv(&mut [0; 8]).is_ok() {
            return;
        }
        assert!(Instant::now() < deadline, "{address} cannot be reached");
    }
}

/// Waits until `fd` is readable, two seconds at most.
pub(crate) fn readable(fd: BorrowedFd<'_>) -> bool {
    readable_within(fd, Duration::from_secs(2))
}

pub(crate) fn readable_within(fd: BorrowedFd<'_>, patience: Duration) -> bool {
    let mut set = [Watch::readable(fd)];
    poll::wait(&mut set, Some(patience)).expect("poll") > 0
}

/// Calls `next` until it answers something, waiting on `fd` in between, ten seconds at most.
pub(crate) fn soon<F: AsFd, T>(
    door: &mut F,
    mut next: impl FnMut(&mut F) -> Option<T>,
) -> Option<T> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(found) = next(door) {
            return Some(found);
        }
        let left = deadline.checked_duration_since(Instant::now())?;
        readable_within(door.as_fd(), left);
    }
}

pub(crate) const REQUEST: u8 = 138;
pub(crate) const DMCAST: u8 = 139;

/// An LMS option, classic form.
pub(crate) fn classic(kind: u8, source: Ipv4Addr, group: Ipv4Addr) -> Vec<u8> {
    let mut option = vec![kind, 16, 0xff, 0xff, 0, 0, 0, 0];
    option.extend(source.octets());
    option.extend(group.octets());
    option
}

/// An LMS option, single form.
pub(crate) fn single(sub_option: u8, source: Ipv4Addr, group: Ipv4Addr) -> Vec<u8> {
    let mut option = vec![158, 20, 0x4c, 0x4d];
    let mut inner = classic(sub_option, source, group);
    inner[0] = sub_option;
    option.extend(inner);
    option
}

fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|w| u32::from(u16::from_be_bytes([w[0], *w.get(1).unwrap_or(&0)])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A whole IPv4 packet; options are padded.
pub(crate) fn ipv4(
    protocol: u8,
    source: Ipv4Addr,
    to: Ipv4Addr,
    options: &[u8],
    body: &[u8],
) -> Vec<u8> {
    let mut options = options.to_vec();
    options.resize(options.len().next_multiple_of(4), 0);
    let header = 20 + options.len();
    let mut packet = vec![0x40 | (header / 4) as u8, 0];
    packet.extend(((header + body.len()) as u16).to_be_bytes());
    packet.extend([0, 1, 0x40, 0, 16, protocol, 0, 0]);
    packet.extend(source.octets());
    packet.extend(to.octets());
    packet.extend(options);
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(body);
    packet
}

/// A UDP datagram without a checksum.
pub(crate) fn udp(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let mut datagram = Vec::new();
    datagram.extend(from.to_be_bytes());
    datagram.extend(to.to_be_bytes());
    datagram.extend(((8 + payload.len()) as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    datagram
}
