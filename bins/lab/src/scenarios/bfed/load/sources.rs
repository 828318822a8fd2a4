//! Sources over TCP: each connection gets frames, as fast as it takes them or at a rate.

use std::collections::BTreeMap;
use std::io::{ErrorKind, IoSlice, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use bfed::FlowLabel;
use bfed::wire::data::{HEADER_LEN, Kind, Packet};
use linux_net::poll::{self, Set, Watch};
use socket2::SockRef;

use super::content::{self, NUMBER_LEN};
use crate::prelude::*;

/// The listener's key in the set.
const LISTENER: u64 = u64::MAX;
/// Bytes that are offered to the kernel at once.
const BURST: usize = 256 << 10;
/// Frames that are offered at once: two pieces each, and the kernel takes 1,024.
const FRAMES: usize = 512;
/// Bytes that may wait for a receiver's window: the kernel sends them in the process that opens the window, and a
/// forwarder would do the work of its sources.
const UNSENT: u32 = 4 << 10;
const TIMEOUT: Duration = Duration::from_secs(30);

/// What sources send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Bytes of a frame, its number included.
    pub(super) frame: usize,
    /// Callers name their session in an ATTACH packet; otherwise each gets the label 1.
    pub(super) attached: bool,
    /// Bit/s of frames for each session; as fast as it is taken if not set.
    pub(super) rate_bps: Option<u64>,
    /// How many sessions there are.
    pub(super) sessions: usize,
}

#[derive(Debug, Default)]
struct Shared {
    go: AtomicBool,
    /// They stop at the end of the frame that they are in.
    stop: AtomicBool,
    stopped: AtomicBool,
    over: AtomicBool,
    /// Connections whose session is known.
    callers: AtomicU64,
    /// Bytes sent, headers included.
    sent: AtomicU64,
}

/// All sources, on one thread.
#[derive(Debug)]
pub(super) struct Sources {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Sources {
    /// Listens, in the calling thread's namespace.
    pub(super) fn open(plan: Plan) -> Result<Sources> {
        ensure!(plan.frame > NUMBER_LEN, "frames of more than 8 bytes");
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let mut worker = Worker {
            plan,
            payload: content::payload(plan.frame),
            set: Set::new()?,
            listener,
            callers: BTreeMap::new(),
            next: 0,
            order: Vec::new(),
            busy: 0,
            shared: Arc::clone(&shared),
        };
        let thread = std::thread::spawn(move || worker.run());
        Ok(Sources {
            address,
            shared,
            thread: Some(thread),
        })
    }

    /// Waits until this many receivers have connected.
    pub(super) fn gather(&self, count: usize) -> Result<()> {
        let until = Instant::now() + TIMEOUT;
        while self.shared.callers.load(Ordering::Relaxed) < count as u64 {
            let here = self.shared.callers.load(Ordering::Relaxed);
            let running = self.thread.as_ref().is_some_and(|one| !one.is_finished());
            ensure!(
                running && Instant::now() < until,
                "{here} of {count} have come for their sessions"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    pub(super) fn start(&self) {
        self.shared.go.store(true, Ordering::Relaxed);
    }

    /// Ends after whole frames; all bytes that were sent, headers included.
    pub(super) fn stop(&mut self) -> Result<u64> {
        self.shared.stop.store(true, Ordering::Relaxed);
        let until = Instant::now() + TIMEOUT;
        while !self.shared.stopped.load(Ordering::Acquire) {
            ensure!(Instant::now() < until, "a frame is not taken to its end");
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(self.shared.sent.load(Ordering::Relaxed))
    }
}

impl Drop for Sources {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The receiver that waited for the bytes reports the error.
            let _ = thread.join();
        }
    }
}

struct Caller {
    stream: TcpStream,
    hello: Vec<u8>,
    header: Option<[u8; HEADER_LEN]>,
    /// Bytes sent.
    at: u64,
    /// Frames that may have been sent by now.
    allowed: u64,
    watched: bool,
}

struct Worker {
    plan: Plan,
    payload: Vec<u8>,
    set: Set,
    listener: TcpListener,
    callers: BTreeMap<u64, Caller>,
    next: u64,
    /// Callers in the order of their ATTACH packets.
    order: Vec<u64>,
    /// Callers that are in the middle of a frame.
    busy: usize,
    shared: Arc<Shared>,
}

impl Worker {
    fn run(&mut self) -> Result<()> {
        self.set.add(self.listener.as_fd(), LISTENER, true, false)?;
        let mut pace: Option<Pace> = None;
        while !self.shared.over.load(Ordering::Relaxed) {
            let go = self.shared.go.load(Ordering::Relaxed);
            if self.shared.stop.load(Ordering::Relaxed) && self.busy == 0 {
                self.shared.stopped.store(true, Ordering::Release);
            }
            let wait = match &pace {
                Some(pace) => pace.wait(),
                None => Duration::from_millis(5),
            };
            poll::wait(&mut [Watch::readable(self.set.as_fd())], Some(wait))?;
            for ready in self.set.ready()? {
                match ready.key {
                    LISTENER => self.accept()?,
                    key if self.greeted(key) => self.send(key)?,
                    key => self.greet(key)?,
                }
            }
            if !go {
                continue;
            }
            match self.plan.rate_bps {
                None => self.watch_all()?,
                Some(rate_bps) => {
                    let pace = pace.get_or_insert_with(|| Pace::new(self.plan, rate_bps));
                    while let Some(session) = pace.due() {
                        self.allow(session)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT)?;
            self.set.add(stream.as_fd(), self.next, true, false)?;
            let caller = Caller {
                stream,
                hello: Vec::new(),
                header: None,
                at: 0,
                allowed: if self.plan.rate_bps.is_some() {
                    0
                } else {
                    u64::MAX
                },
                watched: false,
            };
            self.callers.insert(self.next, caller);
            if !self.plan.attached {
                let label = FlowLabel::new(1).context("a label")?;
                self.come(self.next, label)?;
            }
            self.next += 1;
        }
    }

    fn greeted(&self, key: u64) -> bool {
        self.callers
            .get(&key)
            .is_some_and(|caller| caller.header.is_some())
    }

    /// Reads the ATTACH packet of a caller.
    fn greet(&mut self, key: u64) -> Result<()> {
        let Some(caller) = self.callers.get_mut(&key) else {
            return Ok(());
        };
        let mut buffer = [0; HEADER_LEN];
        let room = HEADER_LEN - caller.hello.len();
        match caller.stream.read(&mut buffer[..room]) {
            Ok(0) => return Err(anyhow!("a caller that says nothing")),
            Ok(len) => caller.hello.extend_from_slice(&buffer[..len]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        if caller.hello.len() < HEADER_LEN {
            return Ok(());
        }
        let hello = Packet::new_checked(&caller.hello[..])?;
        ensure!(hello.kind() == Kind::Attach, "no ATTACH");
        let label = hello.label();
        self.come(key, label)
    }

    fn come(&mut self, key: u64, label: FlowLabel) -> Result<()> {
        let caller = self.callers.get_mut(&key).context("a caller")?;
        caller.header = Some(content::header(label, self.plan.frame));
        self.set.change(caller.stream.as_fd(), key, false, false)?;
        self.order.push(key);
        self.shared.callers.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Every caller gets as much as it takes.
    fn watch_all(&mut self) -> Result<()> {
        for key in std::mem::take(&mut self.order) {
            let caller = self.callers.get_mut(&key).context("a caller")?;
            caller.watched = true;
            self.set.change(caller.stream.as_fd(), key, false, true)?;
        }
        Ok(())
    }

    /// One frame more for a session.
    fn allow(&mut self, session: usize) -> Result<()> {
        let Some(&key) = self.order.get(session) else {
            return Ok(());
        };
        if let Some(caller) = self.callers.get_mut(&key) {
            caller.allowed += 1;
        }
        self.send(key)
    }

    /// Sends what a caller takes now.
    fn send(&mut self, key: u64) -> Result<()> {
        let Some(caller) = self.callers.get_mut(&key) else {
            return Ok(());
        };
        let whole = HEADER_LEN + self.plan.frame;
        let stop = self.shared.stop.load(Ordering::Relaxed);
        let (first, offset) = (
            caller.at / whole as u64,
            (caller.at % whole as u64) as usize,
        );
        let was_busy = offset > 0;
        let most = if stop {
            u64::from(was_busy)
        } else {
            let fits = (BURST / whole).clamp(1, FRAMES) as u64;
            fits.min(caller.allowed - first)
        };
        if most > 0 {
            let written = write(caller, &self.payload, first, most, offset);
            match written {
                Ok(len) => {
                    caller.at += len as u64;
                    self.shared.sent.fetch_add(len as u64, Ordering::Relaxed);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) if self.shared.over.load(Ordering::Relaxed) => {}
                Err(error) => return Err(error).context("a caller"),
            }
        }
        let busy = caller.at % whole as u64 > 0;
        match (was_busy, busy) {
            (false, true) => self.busy += 1,
            (true, false) => self.busy -= 1,
            _ => {}
        }
        // Paced callers are watched only while unsent data waits.
        let waits =
            busy || (caller.allowed != u64::MAX && caller.at < caller.allowed * whole as u64);
        let watch = waits || (self.plan.rate_bps.is_none() && !stop);
        if watch != caller.watched {
            caller.watched = watch;
            self.set.change(caller.stream.as_fd(), key, false, watch)?;
        }
        Ok(())
    }
}

/// Writes frames from `first` on, without the first `offset` bytes.
fn write(
    caller: &mut Caller,
    payload: &[u8],
    first: u64,
    count: u64,
    offset: usize,
) -> std::io::Result<usize> {
    const HEAD: usize = HEADER_LEN + NUMBER_LEN;
    let header = caller.header.unwrap_or_default();
    let heads: Vec<[u8; HEAD]> = (first..first + count)
        .map(|number| {
            let mut head = [0; HEAD];
            head[..HEADER_LEN].copy_from_slice(&header);
            head[HEADER_LEN..].copy_from_slice(&number.to_be_bytes());
            head
        })
        .collect();
    let mut pieces: Vec<IoSlice<'_>> = heads
        .iter()
        .flat_map(|head| [IoSlice::new(head), IoSlice::new(payload)])
        .collect();
    let mut pieces = &mut pieces[..];
    IoSlice::advance_slices(&mut pieces, offset);
    (&caller.stream).write_vectored(pieces)
}

/// When which session may send a frame: all in turn, evenly over time.
struct Pace {
    begun: Instant,
    between: Duration,
    sessions: usize,
    next: u64,
}

impl Pace {
    fn new(plan: Plan, rate_bps: u64) -> Pace {
        let frame = Duration::from_secs_f64(plan.frame as f64 * 8.0 / rate_bps.max(1) as f64);
        Pace {
            begun: Instant::now(),
            between: frame / plan.sessions.max(1) as u32,
            sessions: plan.sessions.max(1),
            next: 0,
        }
    }

    fn at(&self) -> Instant {
        let nanos = self.between.as_nanos() * u128::from(self.next);
        self.begun + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn wait(&self) -> Duration {
        // The kernel's timers are no finer anyway.
        self.at()
            .saturating_duration_since(Instant::now())
            .clamp(Duration::from_micros(200), Duration::from_millis(5))
    }

    fn due(&mut self) -> Option<usize> {
        if self.at() > Instant::now() {
            return None;
        }
        self.next += 1;
        Some(((self.next - 1) % self.sessions as u64) as usize)
    }
}
