//! What a receiver costs its sender, and that data to send is stored once.

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};

use tcpxm::store::{Ring, Store, StoreError};
use tcpxm::{Config, CongestionControl, ConnId, Endpoint, GroupConfig, GroupMode, Instant, Meta};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

#[allow(unsafe_code, reason = "only an allocator can count what is allocated")]
// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PORT: u16 = 7000;

/// Passes writes on, and counts them.
struct Once {
    ring: Ring,
    written: usize,
}

impl Store for Once {
    fn write(&mut self, bytes: &[u8]) -> usize {
        let written = self.ring.write(bytes);
        self.written += written;
        written
    }
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        self.ring.read(offset, out)
    }
    fn end(&self) -> u64 {
        self.ring.end()
    }
    fn room(&self) -> usize {
        self.ring.room()
    }
    fn release(&mut self, before: u64) {
        self.ring.release(before);
    }
}

fn host(number: usize) -> IpAddr {
    IpAddr::from([10, 0, (number >> 8) as u8, number as u8])
}

/// Paths that lose one packet in thirty.
struct Paths {
    dice: u64,
}

impl Paths {
    fn lose(&mut self) -> bool {
        self.dice = self
            .dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(99);
        (self.dice >> 33).is_multiple_of(30)
    }
}

fn live() -> isize {
    LIVE.load(Ordering::Relaxed) as isize
}

/// Calls a function and adds the memory that it keeps to `memory`.
fn counted<T>(memory: &mut isize, call: impl FnOnce() -> T) -> T {
    let before = live();
    let result = call();
    *memory += live() - before;
    result
}

/// A sender, its receivers, and the paths between them.
struct Network {
    sender: Endpoint<Once>,
    receivers: Vec<Endpoint>,
    accepted: Vec<Option<ConnId>>,
    paths: Paths,
    /// What the receivers have allocated since the sender was created.
    receiver_memory: isize,
    buffer: Vec<u8>,
    scratch: Vec<u8>,
}

impl Network {
    /// Carries the sender's packets to the receivers.
    fn carry_down(&mut self, now: Instant) {
        while let Some(transmit) = self.sender.poll_transmit(now, &mut self.buffer) {
            let meta = Meta {
                source: SocketAddr::new(host(0), 5000),
                destination: transmit.destination.ip(),
            };
            let bytes = &self.buffer[..transmit.len];
            counted(&mut self.receiver_memory, || {
                for (number, receiver) in (1..).zip(&mut self.receivers) {
                    if (transmit.is_multicast() || host(number) == meta.destination)
                        && !self.paths.lose()
                    {
                        let _ = receiver.handle_packet(now, &meta, bytes);
                    }
                }
            });
        }
    }

    /// Lets the receivers take the data, and carries their packets to the sender.
    fn carry_up(&mut self, now: Instant) {
        for (index, receiver) in self.receivers.iter_mut().enumerate() {
            let accepted = &mut self.accepted[index];
            counted(&mut self.receiver_memory, || {
                receiver.handle_timeout(now);
                while receiver.poll_event().is_some() {}
                *accepted = accepted.or_else(|| receiver.accept(now, PORT));
                if let Some(connection) = *accepted {
                    let _ = receiver.recv(now, connection, &mut self.scratch);
                }
            });
            while let Some(transmit) = counted(&mut self.receiver_memory, || {
                receiver.poll_transmit(now, &mut self.buffer)
            }) {
                let meta = Meta {
                    source: SocketAddr::new(host(index + 1), PORT),
                    destination: transmit.destination.ip(),
                };
                if !self.paths.lose() {
                    let bytes = &self.buffer[..transmit.len];
                    let _ = self.sender.handle_packet(now, &meta, bytes);
                }
            }
        }
    }
}

/// Memory of a sender with this number of receivers, after much data over paths that lose packets, with
/// a bounded store of 1 MiB.
fn sender_memory(count: usize, mode: GroupMode, control: CongestionControl) -> usize {
    let mut config = Config::default();
    config.congestion_control = control;
    config.receive_buffer = 1 << 20;
    let mut now = Instant::ZERO;
    let receivers: Vec<Endpoint> = (1..=count)
        .map(|number| {
            let mut receiver = Endpoint::new(config.clone(), [number as u8; 32], now);
            receiver.listen(now, PORT).unwrap();
            receiver
        })
        .collect();
    let before = live();
    let mut sender: Endpoint<Once> = Endpoint::new(config, [0; 32], now);
    let mut group = GroupConfig::new(
        SocketAddr::new(host(0), 5000),
        (1..=count).map(host).collect(),
        PORT,
    );
    group.mode = mode;
    let store = Once {
        ring: Ring::new(1 << 20),
        written: 0,
    };
    let id = sender.open_group(now, &group, store).unwrap();
    drop(group);
    let mut network = Network {
        sender,
        receivers,
        accepted: vec![None; count],
        paths: Paths { dice: 1 },
        receiver_memory: 0,
        buffer: vec![0; 1500],
        scratch: vec![0; 1 << 16],
    };
    let (mut sent, mut most) = (0usize, 0isize);
    let turns = if count > 100 { 60 } else { 1200 };
    for _ in 0..turns {
        sent += network.sender.send(now, id, &network.scratch).unwrap();
        network.carry_down(now);
        network.carry_up(now);
        while network.sender.poll_event().is_some() {}
        now += tcpxm::Duration::from_millis(5);
        network.sender.handle_timeout(now);
        most = most.max(live() - before - network.receiver_memory);
    }
    assert!(
        sent > 1 << 20 || count > 100,
        "{sent} bytes went to {count} receivers"
    );
    usize::try_from(most).unwrap()
}

/// Memory of a sender that has just opened a group.
fn opened_memory(count: usize, mode: GroupMode) -> usize {
    let receivers = (1..=count).map(host).collect();
    let mut group = GroupConfig::new(SocketAddr::new(host(0), 5000), receivers, PORT);
    group.mode = mode;
    let before = LIVE.load(Ordering::Relaxed);
    let mut sender: Endpoint<Ring> = Endpoint::new(Config::default(), [0; 32], Instant::ZERO);
    sender
        .open_group(Instant::ZERO, &group, Ring::new(1 << 20))
        .unwrap();
    LIVE.load(Ordering::Relaxed) - before
}

/// One test: the counter is for the whole process.
#[test]
fn a_receiver_costs_at_most_four_kib_and_data_is_stored_once() {
    for (mode, control) in [
        (GroupMode::Auto, CongestionControl::Cubic),
        (GroupMode::Auto, CongestionControl::Bbr),
        (GroupMode::Unicast, CongestionControl::Cubic),
    ] {
        let few = sender_memory(33, mode, control);
        let many = sender_memory(65, mode, control);
        let each = (many - few) / 32;
        println!(
            "{mode:?}, {control:?}: {few} bytes with 33 receivers, {each} for each further one"
        );
        assert!(each <= 4096, "{each} bytes for each further receiver");
        // A receiver's place among the others costs nothing.
        let more = (sender_memory(257, mode, control) - many) / 192;
        assert!(
            more <= 4096,
            "{more} bytes for each of more than 65 receivers"
        );
        // The store of 1 MiB is there once, whatever the number of receivers.
        assert!(many < (1 << 20) + 65 * 4096 + (128 << 10), "{many}");
        // However many there are.
        let each = opened_memory(4000, mode) / 4000;
        assert!(each <= 4096, "{each} bytes for each of 4000 receivers");
    }
}
