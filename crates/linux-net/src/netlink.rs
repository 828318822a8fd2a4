//! Netlink: framing, attributes, requests, dumps, notifications.
//!
//! A reader of attributes takes those it knows and passes over the rest, so that no attribute of
//! a newer kernel, or of an exotic interface, hides a link or a route.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::poll::{self, Watch};
use crate::sys;

pub(crate) const NLM_F_REQUEST: u16 = 0x1;
pub(crate) const NLM_F_ACK: u16 = 0x4;
pub(crate) const NLM_F_DUMP: u16 = 0x300;
pub(crate) const NLM_F_REPLACE: u16 = 0x100;
pub(crate) const NLM_F_EXCL: u16 = 0x200;
pub(crate) const NLM_F_CREATE: u16 = 0x400;

const NLM_F_DUMP_INTR: u16 = 0x10;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSG_OVERRUN: u16 = 4;
const NLA_F_NESTED: u16 = 0x8000;
const NLA_TYPE_MASK: u16 = 0x3fff;
const HEADER: usize = 16;
/// More than the kernel puts in one message of a dump (32 KiB).
const BUFFER: usize = 1 << 16;
/// The kernel answers requests at once; past this something is wrong.
const PATIENCE: Duration = Duration::from_secs(5);

/// One message under construction.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// A request of a type, with flags beside `NLM_F_REQUEST`.
    pub(crate) fn new(kind: u16, flags: u16) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
        Self { bytes }
    }

    /// Appends the fixed part of a message.
    pub(crate) fn fixed(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self.pad();
        self
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// Appends an attribute.
    pub(crate) fn attr(mut self, kind: u16, data: &[u8]) -> Self {
        self.bytes
            .extend_from_slice(&((data.len() + 4) as u16).to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.fixed(data)
    }

    /// Appends an integer in host order, as routing netlink has them.
    pub(crate) fn attr_u32(self, kind: u16, value: u32) -> Self {
        self.attr(kind, &value.to_ne_bytes())
    }

    /// Appends an integer in network order, as the packet filter has them.
    pub(crate) fn attr_be32(self, kind: u16, value: u32) -> Self {
        self.attr(kind, &value.to_be_bytes())
    }

    /// Appends a name with its terminating zero.
    pub(crate) fn attr_name(self, kind: u16, name: &str) -> Self {
        let mut bytes = name.as_bytes().to_vec();
        bytes.push(0);
        self.attr(kind, &bytes)
    }

    /// Appends an attribute that holds attributes.
    pub(crate) fn nest(mut self, kind: u16, fill: impl FnOnce(Self) -> Self) -> Self {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 2]);
        self.bytes
            .extend_from_slice(&(kind | NLA_F_NESTED).to_ne_bytes());
        let mut filled = fill(self);
        let len = (filled.bytes.len() - start) as u16;
        filled.bytes[start..start + 2].copy_from_slice(&len.to_ne_bytes());
        filled
    }

    fn finish(&mut self, sequence: u32) {
        let len = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
    }

    fn wants_ack(&self) -> bool {
        u16::from_ne_bytes([self.bytes[6], self.bytes[7]]) & NLM_F_ACK != 0
    }
}

/// The attributes in `bytes`: type and data. Stops at the first that is not well formed.
pub(crate) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let header = rest.first_chunk::<4>()?;
        let len = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & NLA_TYPE_MASK;
        let data = rest.get(4..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, data))
    })
}

/// A host-order integer.
pub(crate) fn u32_of(data: &[u8]) -> Option<u32> {
    data.first_chunk().copied().map(u32::from_ne_bytes)
}

/// One message received: type, flags, sequence number, payload.
struct Received<'a> {
    kind: u16,
    flags: u16,
    sequence: u32,
    payload: &'a [u8],
}

fn messages(bytes: &[u8]) -> impl Iterator<Item = Received<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let header = rest.first_chunk::<HEADER>()?;
        let len = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let payload = rest.get(HEADER..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(Received {
            kind: u16::from_ne_bytes([header[4], header[5]]),
            flags: u16::from_ne_bytes([header[6], header[7]]),
            sequence: u32::from_ne_bytes([header[8], header[9], header[10], header[11]]),
            payload,
        })
    })
}

/// An error the kernel reports in a message; `Ok` is an acknowledgement.
fn verdict(payload: &[u8]) -> io::Result<()> {
    match payload.first_chunk().copied().map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(error.wrapping_neg())),
        None => Err(io::Error::other("netlink error message without a code")),
    }
}

/// A netlink socket.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

/// What [`Socket::notifications`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notified {
    /// Nothing more is waiting.
    Idle,
    /// Messages were handled; more may wait.
    Some,
    /// The kernel dropped notifications: the state may be stale.
    Overflow,
}

impl Socket {
    /// A socket of a family, subscribed to notification groups.
    pub(crate) fn open(protocol: libc::c_int, groups: &[u32]) -> io::Result<Self> {
        let fd = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, protocol)?;
        sys::bind_netlink(&fd)?;
        for group in groups {
            let group = group.cast_signed();
            sys::set_int(&fd, libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, group)?;
        }
        if !groups.is_empty() {
            // Room for bursts; a smaller one only means more resynchronisation.
            let _ = sys::set_int(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 4 << 20)
                .or_else(|_| sys::set_int(&fd, libc::SOL_SOCKET, libc::SO_RCVBUF, 4 << 20));
        }
        Ok(Self {
            fd,
            sequence: 0,
            buffer: vec![0; BUFFER],
        })
    }

    fn receive(&mut self) -> io::Result<usize> {
        loop {
            let incoming = sys::message::receive::<64>(&self.fd, &mut self.buffer)?;
            // Port 0 is the kernel; what others send is not for us.
            if incoming.netlink_port != Some(0) {
                continue;
            }
            if incoming.truncated {
                // Messages are lost, as in an overflow.
                return Err(io::Error::from_raw_os_error(libc::ENOBUFS));
            }
            return Ok(incoming.len);
        }
    }

    fn receive_patiently(&mut self) -> io::Result<usize> {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.receive() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    // A signal ends the wait early, the clock alone ends our patience.
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    poll::wait(&mut [Watch::readable(self.fd.as_fd())], Some(left))?;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Sends messages in one piece and waits for an acknowledgement of each that asks for one.
    /// The first error counts.
    pub(crate) fn request(&mut self, mut messages_out: Vec<Message>) -> io::Result<()> {
        let first = self.sequence.wrapping_add(1);
        let mut bytes = Vec::new();
        for message in &mut messages_out {
            self.sequence = self.sequence.wrapping_add(1);
            message.finish(self.sequence);
            bytes.extend_from_slice(&message.bytes);
        }
        let count = messages_out.len() as u32;
        let mut waiting = messages_out.iter().filter(|m| m.wants_ack()).count();
        sys::send(&self.fd, &bytes)?;
        let mut result = Ok(());
        while waiting > 0 {
            let len = self.receive_patiently()?;
            for message in messages(&self.buffer[..len]) {
                let ours = message.sequence.wrapping_sub(first) < count;
                if ours && message.kind == NLMSG_ERROR {
                    waiting = waiting.saturating_sub(1);
                    let verdict = verdict(message.payload);
                    let failed = verdict.is_err();
                    result = result.and(verdict);
                    if failed && count > 1 {
                        // A batch that failed may leave later messages without an answer.
                        return result;
                    }
                }
            }
        }
        result
    }

    /// Sends one request and hands the payload of its answer (one or several messages) to
    /// `take`, until the kernel acknowledges or ends the dump.
    pub(crate) fn query(
        &mut self,
        message: &Message,
        mut take: impl FnMut(u16, &[u8]),
    ) -> io::Result<()> {
        let mut message = message.clone();
        self.sequence = self.sequence.wrapping_add(1);
        message.finish(self.sequence);
        sys::send(&self.fd, &message.bytes)?;
        let mut interrupted = false;
        loop {
            let len = self.receive_patiently()?;
            for answer in messages(&self.buffer[..len]) {
                if answer.sequence != self.sequence {
                    continue;
                }
                interrupted |= answer.flags & NLM_F_DUMP_INTR != 0;
                match answer.kind {
                    NLMSG_DONE if interrupted => return Err(io::ErrorKind::Interrupted.into()),
                    // A dump that broke off says why in its last message.
                    NLMSG_DONE if answer.payload.is_empty() => return Ok(()),
                    NLMSG_DONE => return verdict(answer.payload),
                    NLMSG_ERROR => return verdict(answer.payload),
                    NLMSG_OVERRUN => return Err(io::Error::from_raw_os_error(libc::ENOBUFS)),
                    kind => take(kind, answer.payload),
                }
            }
        }
    }

    /// Dumps a table; asks again when it changed meanwhile. `start` empties what `take` fills.
    pub(crate) fn dump<T>(
        &mut self,
        message: &Message,
        start: impl Fn() -> T,
        mut take: impl FnMut(&mut T, u16, &[u8]),
    ) -> io::Result<T> {
        for _ in 0..8 {
            let mut table = start();
            match self.query(message, |kind, payload| take(&mut table, kind, payload)) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
                Ok(()) => return Ok(table),
            }
        }
        // It changes all the time: what we have is as good as any, and notifications follow.
        let mut table = start();
        match self.query(message, |kind, payload| take(&mut table, kind, payload)) {
            Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
            _ => Ok(table),
        }
    }

    /// Takes one datagram of notifications, without waiting.
    pub(crate) fn notifications(
        &mut self,
        mut take: impl FnMut(u16, &[u8]),
    ) -> io::Result<Notified> {
        match self.receive() {
            Ok(len) => {
                let mut found = Notified::Some;
                for message in messages(&self.buffer[..len]) {
                    if message.kind == NLMSG_OVERRUN {
                        found = Notified::Overflow;
                    }
                    take(message.kind, message.payload);
                }
                Ok(found)
            }
            Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => Ok(Notified::Overflow),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => {
                Ok(Notified::Idle)
            }
            Err(e) => Err(e),
        }
    }

    /// Throws away what waits: before a dump that is fresher than all of it. Else notifications
    /// from before a gap would be taken for the truth after it.
    pub(crate) fn discard(&mut self) {
        // The kernel adds nothing after an overflow until all was read; the bound is for the
        // other case.
        for _ in 0..1 << 16 {
            match self.notifications(|_, _| {}) {
                Ok(Notified::Some | Notified::Overflow) => {}
                Ok(Notified::Idle) | Err(_) => return,
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_the_buffer_is_an_error_not_a_shorter_list() {
        const RTM_GETLINK: u16 = 18;
        let mut socket = Socket::open(libc::NETLINK_ROUTE, &[]).unwrap();
        socket.buffer.truncate(64);
        let links = Message::new(RTM_GETLINK, NLM_F_DUMP).fixed(&[0; 16]);
        let error = socket.dump(&links, || (), |(), _, _| {}).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOBUFS));
    }

    #[test]
    fn attributes_survive_a_round_trip_and_any_truncation() {
        let message = Message::new(16, NLM_F_ACK)
            .fixed(&[1; 16])
            .attr_name(3, "eth0")
            .nest(18, |m| m.attr_u32(1, 7).attr_be32(2, 9));
        let body = &message.bytes[HEADER + 16..];
        let found: Vec<_> = attributes(body).collect();
        assert_eq!(found[0], (3, &b"eth0\0"[..]));
        assert_eq!(found[1].0, 18);
        let inner: Vec<_> = attributes(found[1].1).collect();
        assert_eq!(u32_of(inner[0].1), Some(7));
        assert_eq!(inner[1].1, 9_u32.to_be_bytes());
        for len in 0..body.len() {
            assert!(attributes(&body[..len]).count() <= 2);
        }
        for bit in 0..body.len() * 8 {
            let mut broken = body.to_vec();
            broken[bit / 8] ^= 1 << (bit % 8);
            assert!(attributes(&broken).count() <= body.len() / 4);
        }
    }
}
