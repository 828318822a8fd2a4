//! Receivers: over TCP, and of native multicast. The first bytes are compared with the sent ones;
//! after that the kernel discards the data without a copy, so that receiving costs little.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use bfed::FlowLabel;
use bfed::wire::data::{HEADER_LEN, Kind, Repr};
use linux_net::inet::{self, Membership, UdpSocket};
use linux_net::poll::{self, Set, Watch};
use linux_net::udp::Batch;
use nix::sys::socket::{MsgFlags, recv};

use super::content::Checker;
use crate::prelude::*;

/// Bytes that are discarded in one call.
const GULP: usize = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(60);

/// A receiver over TCP.
#[derive(Clone, Debug)]
pub(super) struct Receiver {
    /// The address that it connects to.
    pub(super) to: SocketAddr,
    /// The flow label of its session.
    pub(super) attach: Option<FlowLabel>,
    pub(super) checker: Checker,
}

#[derive(Debug)]
struct Shared {
    over: AtomicBool,
    /// Bytes that came, for each receiver.
    received: Vec<AtomicU64>,
    /// Number of receivers whose bytes differ from those sent.
    wrong: AtomicU64,
    /// Receivers whose channel has ended.
    ended: AtomicU64,
}

/// Receivers, on one thread.
#[derive(Debug)]
pub(super) struct Sinks {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Sinks {
    fn start(count: usize, work: impl FnOnce(&Shared) -> Result<()> + Send + 'static) -> Sinks {
        let shared = Arc::new(Shared {
            over: AtomicBool::new(false),
            received: (0..count).map(|_| AtomicU64::new(0)).collect(),
            wrong: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        });
        let own = Arc::clone(&shared);
        let thread = Some(std::thread::spawn(move || work(&own)));
        Sinks { shared, thread }
    }

    /// Receivers over TCP; all are connected when this is done. In the calling thread's namespace.
    pub(super) fn connect(receivers: Vec<Receiver>) -> Result<Sinks> {
        let set = Set::new()?;
        let mut open = Vec::with_capacity(receivers.len());
        for (key, receiver) in (0..).zip(receivers) {
            let mut stream =
                TcpStream::connect(receiver.to).with_context(|| format!("call {}", receiver.to))?;
            if let Some(label) = receiver.attach {
                stream.write_all(&attach(label))?;
            }
            stream.set_nonblocking(true)?;
            set.add(stream.as_fd(), key, true, false)?;
            open.push((stream, receiver.checker));
        }
        let count = open.len();
        Ok(Sinks::start(count, move |shared| {
            streams(&set, open, shared)
        }))
    }

    /// Receivers of a group, each with a socket of its own. In the calling thread's namespace.
    pub(super) fn listen(group: SocketAddr, count: usize, checker: &Checker) -> Result<Sinks> {
        let sockets = (0..count).map(|_| {
            let socket = UdpSocket::open(&inet::Config::new(group))?;
            let (group, source) = (group.ip(), None);
            // The routes decide on which interface.
            let interface = 0;
            socket.join(&Membership {
                group,
                source,
                interface,
            })?;
            Ok((socket, checker.clone()))
        });
        let sockets = sockets.collect::<Result<Vec<_>>>()?;
        let set = Set::new()?;
        for (key, (socket, _)) in (0..).zip(&sockets) {
            set.add(socket.as_fd(), key, true, false)?;
        }
        Ok(Sinks::start(count, move |shared| {
            groups(&set, sockets, shared)
        }))
    }

    /// Bytes that each has got.
    pub(super) fn received(&self) -> Vec<u64> {
        let received = self.shared.received.iter();
        received
            .map(|bytes| bytes.load(Ordering::Relaxed))
            .collect()
    }

    /// Bytes that all have got.
    pub(super) fn total(&self) -> u64 {
        self.received().iter().sum()
    }

    /// Number of receivers whose bytes differ from those sent.
    pub(super) fn wrong(&self) -> u64 {
        self.shared.wrong.load(Ordering::Relaxed)
    }

    /// Waits until this many bytes have arrived in all, or none for `TIMEOUT`, or a receiver was cut off; how
    /// many came.
    pub(super) fn drain(&self, bytes: u64, silence: Duration) -> u64 {
        let until = Instant::now() + TIMEOUT;
        let mut last = (self.total(), Instant::now());
        let waits = |since: Instant| since.elapsed() < silence && self.all_open().is_ok();
        while last.0 < bytes && Instant::now() < until && waits(last.1) {
            std::thread::sleep(Duration::from_millis(5));
            let total = self.total();
            if total > last.0 {
                last = (total, Instant::now());
            }
        }
        last.0
    }

    /// Fails if a receiver's channel has ended.
    pub(super) fn all_open(&self) -> Result<()> {
        let ended = self.shared.ended.load(Ordering::Relaxed);
        ensure!(ended == 0, "{ended} receivers were cut off");
        Ok(())
    }
}

impl Drop for Sinks {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What opens a TCP channel.
fn attach(label: FlowLabel) -> [u8; HEADER_LEN] {
    let mut packet = [0; HEADER_LEN];
    Repr::new(Kind::Attach, label).emit(&mut packet);
    packet
}

impl Shared {
    fn count(&self, at: usize, len: usize) {
        self.received[at].fetch_add(len as u64, Ordering::Relaxed);
    }

    /// Compares received bytes until the limit of the checker.
    fn look(&self, checker: &mut Checker, bytes: &[u8]) {
        if checker.looks() && !checker.fits(bytes) {
            self.wrong.fetch_add(1, Ordering::Relaxed);
            // Once for each receiver.
            checker.close();
        }
    }
}

fn streams(set: &Set, mut open: Vec<(TcpStream, Checker)>, shared: &Shared) -> Result<()> {
    let mut buffer = vec![0; GULP];
    while !shared.over.load(Ordering::Relaxed) {
        let timeout = Some(Duration::from_millis(10));
        poll::wait(&mut [Watch::readable(set.as_fd())], timeout)?;
        for ready in set.ready()? {
            let at = ready.key as usize;
            let (stream, checker) = &mut open[at];
            let read = match checker.looks() {
                true => stream.read(&mut buffer[..1 << 16]),
                // Nothing is copied: the result is the number of bytes discarded.
                false => recv(stream.as_raw_fd(), &mut buffer, MsgFlags::MSG_TRUNC)
                    .map_err(std::io::Error::from),
            };
            match read {
                Ok(0) => {
                    set.remove(stream.as_fd())?;
                    shared.ended.fetch_add(1, Ordering::Relaxed);
                }
                Ok(len) => {
                    shared.count(at, len);
                    shared.look(checker, &buffer[..len.min(1 << 16)]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => {
                    set.remove(stream.as_fd())?;
                    shared.ended.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
    Ok(())
}

fn groups(set: &Set, mut sockets: Vec<(UdpSocket, Checker)>, shared: &Shared) -> Result<()> {
    let mut batch = Batch::new(8);
    while !shared.over.load(Ordering::Relaxed) {
        let timeout = Some(Duration::from_millis(10));
        poll::wait(&mut [Watch::readable(set.as_fd())], timeout)?;
        for ready in set.ready()? {
            let at = ready.key as usize;
            let (socket, checker) = &mut sockets[at];
            if socket.receive(&mut batch).is_err() {
                continue;
            }
            for received in batch.received() {
                shared.count(at, received.payload.len());
                shared.look(checker, received.payload);
            }
        }
    }
    Ok(())
}
