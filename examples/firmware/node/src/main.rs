//! A file goes from a source through an LMS router to two receivers, over links that lose packets, in
//! 64 KiB of memory with no heap: genuine machines on all four, in virtual time.
//!
//! ```text
//! source ---- router ---- h1    1 packet in 50 lost, each way; elected replier
//!                  `----- h2    1 packet in 8 lost, each way
//! ```
//!
//! Over IPv4 with the paper's option, or with the feature `ipv6` over IPv6.
//!
//! The receivers' applications hash the bytes that they read and discard them; the file is longer than the
//! memory. The digests go to the host by semihosting, which compares them (`examples/firmware/run`).
#![no_std]
#![no_main]
#![deny(unsafe_code)]

mod machine;
mod packets;

use core::mem::{size_of, size_of_val};

use lms_proto::router::{self, Router, Verdict};
use lms_proto::table::Replier;
use lms_proto::{Iface, InterfaceConfig, Key};
use ltp::storage::{StaticReceiverStorage, StaticSenderStorage};
use ltp::store::{ArrayRing, Store, StoreError};
use ltp::{
    Assist, Delivery, Duration, Instant, Receiver, ReceiverConfig, ReceiverEvent, Sender,
    SenderConfig, SenderEvent,
};

use machine::say;
use packets::{At, PACKET_LEN, PAYLOAD_LEN};

const PORT: u16 = 4139;
/// The network's addresses, of the version of IP that the feature `ipv6` chooses.
#[cfg(not(feature = "ipv6"))]
mod network {
    use super::InterfaceConfig;

    pub(crate) type Address = core::net::Ipv4Addr;
    pub(crate) const GROUP: Address = Address::new(232, 1, 1, 1);

    pub(crate) const fn address(link: u8, host: u8) -> Address {
        Address::new(10, 0, link, host)
    }

    pub(crate) fn interface(link: u8) -> InterfaceConfig<Address> {
        InterfaceConfig::ipv4(address(link, 1), 24)
    }
}
#[cfg(feature = "ipv6")]
mod network {
    use super::InterfaceConfig;

    pub(crate) type Address = core::net::Ipv6Addr;
    pub(crate) const GROUP: Address = Address::new(0xff3e, 0, 0, 0, 0, 0, 0x8000, 1);

    pub(crate) const fn address(link: u8, host: u8) -> Address {
        Address::new(0xfd00, 0, 0, link as u16, 0, 0, 0, host as u16)
    }

    pub(crate) fn interface(link: u8) -> InterfaceConfig<Address> {
        let link_local = Address::new(0xfe80, 0, 0, 0, 0, 0, 0, link as u16 + 1);
        InterfaceConfig::ipv6(address(link, 1), 64, link_local)
    }
}
use network::Address;

const fn at(address: Address) -> At<Address> {
    At {
        address,
        port: PORT,
    }
}

const SOURCE: At<Address> = at(network::address(0, 2));
const HOSTS: [At<Address>; 2] = [at(network::address(1, 2)), at(network::address(2, 2))];
const GROUP: At<Address> = at(network::GROUP);

/// One packet of this number is lost on the links of the source, h1 and h2.
const LOSS: [u64; 3] = [100, 50, 8];

const BLOCK_EXPONENT: u8 = 10;
const BLOCK_LEN: usize = 1 << BLOCK_EXPONENT;
/// Blocks in a receiver's ring.
const BLOCKS: usize = 4;
/// Nothing takes longer.
const PATIENCE: Instant = Instant::from_micros(600_000_000);

type Ring = ArrayRing<{ BLOCKS * BLOCK_LEN }>;

/// The file, made when it is read: one block of it at a time.
struct File {
    block: [u8; BLOCK_LEN],
}

impl Store for File {
    fn capacity(&self) -> Option<u64> {
        None
    }

    fn write(&mut self, _offset: u64, _bytes: &[u8]) -> Result<(), StoreError> {
        Err(StoreError::Failed)
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        content::fill(offset, out);
        Ok(())
    }

    fn block(&mut self, offset: u64, len: usize) -> Result<&[u8], StoreError> {
        let block = self.block.get_mut(..len).ok_or(StoreError::NotStored)?;
        content::fill(offset, block);
        Ok(block)
    }
}

/// The tables of a sender.
type SenderTables = StaticSenderStorage<16, 2, { BLOCKS + 1 }, 8, 16, 3>;
/// The tables of a receiver that is a replier too.
type ReceiverTables = StaticReceiverStorage<BLOCKS, BLOCKS, 4, 16, 3>;

lms_proto::router_storage! {
    /// The tables of a router with three interfaces and one group.
    struct RouterTables {
        family: Address,
        groups: 1,
        interfaces: 3,
        sources: 0,
        offers: 2,
        neighbours: 2,
        branches: 3,
    }
}

/// A receiver and its application, which hashes the bytes that it reads.
struct Host<'a> {
    receiver: Receiver<'a, Ring>,
    hash: blake3::Hasher,
    read: u64,
    complete: bool,
}

impl Host<'_> {
    fn read(&mut self, now: Instant) {
        loop {
            let Ok(bytes) = self.receiver.peek() else {
                panic!("a ring does not fail");
            };
            if bytes.is_empty() {
                break;
            }
            self.hash.update(bytes);
            let len = bytes.len();
            self.read += len as u64;
            self.receiver.consume(now, len);
        }
        while let Some(event) = self.receiver.poll_event() {
            match event {
                ReceiverEvent::Complete { .. } => self.complete = true,
                ReceiverEvent::Failed { failure, .. } => panic!("{failure}"),
                _ => {}
            }
        }
    }
}

/// The network: three machines around a router.
struct World<'w, 'a> {
    now: Instant,
    sender: &'w mut Sender<'a, File>,
    router: &'w mut Router<'a, Address>,
    hosts: [&'w mut Host<'a>; 2],
    dice: u64,
    lost: u32,
    all_complete: bool,
}

impl World<'_, '_> {
    /// Is a packet lost on this interface's link?
    fn lose(&mut self, iface: usize) -> bool {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        let lost = (self.dice >> 16).is_multiple_of(LOSS[iface]);
        self.lost += u32::from(lost);
        lost
    }

    /// A packet arrives at a host, unless it is lost on its link.
    fn deliver(&mut self, iface: usize, packet: &[u8]) {
        if self.lose(iface) {
            return;
        }
        let Some((meta, payload)) = packets::incoming::<Address>(packet) else {
            return;
        };
        // What is dropped is counted by the machines.
        if iface == 0 {
            let _ = self.sender.handle_packet(self.now, &meta, payload);
        } else {
            let host = &mut self.hosts[iface - 1];
            let _ = host.receiver.handle_packet(self.now, &meta, payload);
            host.read(self.now);
        }
    }

    /// A packet leaves a host, reaches the router unless it is lost, and goes where it should.
    fn send(&mut self, iface: usize, packet: &mut [u8]) {
        if self.lose(iface) {
            return;
        }
        let Some((to, is_plain)) = packets::destination::<Address>(packet) else {
            return;
        };
        if is_plain && to == GROUP.address {
            if iface == 0 {
                self.deliver(1, packet);
                self.deliver(2, packet);
            }
            return;
        }
        if to == SOURCE.address {
            return self.deliver(0, packet);
        }
        if let Some(host) = HOSTS.iter().position(|host| host.address == to) {
            return self.deliver(host + 1, packet);
        }
        let meta = router::Meta {
            iface: Iface(iface as u16),
            link_source: None,
        };
        match self.router.forward(self.now, &meta, packet) {
            Verdict::Forward {
                output,
                packet: range,
                ..
            } => self.deliver(usize::from(output.iface.0), &packet[range]),
            Verdict::Multicast {
                iface,
                packet: range,
            } => self.deliver(usize::from(iface.0), &packet[range]),
            Verdict::Pass | Verdict::Drop(_) => {}
        }
    }

    /// Everything that a host has to send now; whether there was anything.
    fn drain(&mut self, iface: usize) -> bool {
        let mut payload = [0; PAYLOAD_LEN];
        let mut packet = [0; PACKET_LEN];
        let mut busy = false;
        loop {
            let (me, transmit) = if iface == 0 {
                (SOURCE, self.sender.poll_transmit(self.now, &mut payload))
            } else {
                let receiver = &mut self.hosts[iface - 1].receiver;
                let transmit = receiver.poll_transmit(self.now, &mut payload);
                (HOSTS[iface - 1], transmit)
            };
            let Some(transmit) = transmit else {
                return busy;
            };
            busy = true;
            let payload = &payload[..transmit.len];
            let len = packets::outgoing(me, SOURCE, GROUP, &transmit, payload, &mut packet);
            self.send(iface, &mut packet[..len]);
        }
    }

    /// Runs everything that is due now, and advances the time to the next timeout.
    fn step(&mut self) {
        while (0..3).fold(false, |busy, iface| self.drain(iface) || busy) {}
        while let Some(event) = self.sender.poll_event() {
            self.all_complete |= event == SenderEvent::Complete;
        }
        let hosts = self
            .hosts
            .iter()
            .filter_map(|host| host.receiver.poll_timeout());
        let router = self.router.poll_timeout();
        let next = hosts.chain(self.sender.poll_timeout()).chain(router).min();
        // Nothing is faster than a timer's tick.
        self.now = next.map_or(PATIENCE, |next| {
            next.max(self.now + Duration::from_micros(50))
        });
        let now = self.now;
        self.sender.handle_timeout(now);
        self.router.handle_timeout(now);
        for host in &mut self.hosts {
            host.receiver.handle_timeout(now);
            host.read(now);
        }
    }
}

fn sender<'a>(tables: &'a mut SenderTables, now: Instant) -> Sender<'a, File> {
    let mut config = SenderConfig::new(GROUP.socket());
    config.length = Some(content::LENGTH);
    config.block_exponent = BLOCK_EXPONENT;
    config.max_packet_len = PAYLOAD_LEN as u16;
    config.rate_bps = Some(4_000_000);
    config.receivers = Some(2);
    config.window_blocks = Some(BLOCKS as u32);
    let file = File {
        block: [0; BLOCK_LEN],
    };
    match Sender::with_storage(config, file, tables.lend(), [1; 32], now) {
        Ok(sender) => sender,
        Err(error) => panic!("{error}"),
    }
}

fn host<'a>(tables: &'a mut ReceiverTables, number: u8, now: Instant) -> Host<'a> {
    let mut config = ReceiverConfig::new(GROUP.socket());
    config.assist = Assist::Lms;
    config.delivery = Delivery::Read;
    Host {
        receiver: Receiver::with_storage(config, Ring::new(), tables.lend(), [number; 32], now),
        hash: blake3::Hasher::new(),
        read: 0,
        complete: false,
    }
}

fn router<'a>(tables: &'a mut RouterTables, now: Instant) -> Router<'a, Address> {
    let mut router = Router::new(router::Config::default(), tables.lend(), [9; 32], now);
    for number in 0..3u16 {
        let interface = network::interface(number as u8);
        if router.set_interface(now, Iface(number), interface).is_err() {
            panic!("there is room for three");
        }
    }
    let key = Key::new(SOURCE.address, GROUP.address);
    let replier = Replier {
        iface: Iface(1),
        cost: 1,
        neighbour: None,
    };
    let installed = router.install(now, key, Iface(0), &[Iface(1), Iface(2)]);
    if installed.is_err() || router.set_replier(now, key, Some(replier)).is_err() {
        panic!("there is room for one");
    }
    router
}

/// Called by the machine once memory is ready.
fn main() {
    let now = Instant::ZERO;
    let mut sender_tables = SenderTables::default();
    let mut host_tables = [ReceiverTables::default(), ReceiverTables::default()];
    let mut router_tables = RouterTables::default();
    let sizes = [
        ("sender, tables", size_of_val(&sender_tables)),
        ("sender, machine", size_of::<Sender<'_, File>>() - BLOCK_LEN),
        ("receiver, tables", size_of_val(&host_tables[0])),
        (
            "receiver, machine",
            size_of::<Receiver<'_, Ring>>() - size_of::<Ring>(),
        ),
        ("receiver, ring", size_of::<Ring>()),
        ("router, tables", size_of_val(&router_tables)),
        ("router, machine", size_of::<Router<'_, Address>>()),
        ("BLAKE3 of an application", size_of::<blake3::Hasher>()),
    ];
    let [one, two] = &mut host_tables;
    // Each where it stays: a machine that is moved is there twice for a moment.
    let mut sender = sender(&mut sender_tables, now);
    let mut router = router(&mut router_tables, now);
    let mut one = host(one, 2, now);
    let mut two = host(two, 3, now);
    let mut world = World {
        now,
        sender: &mut sender,
        router: &mut router,
        hosts: [&mut one, &mut two],
        dice: 0x9e37_79b9_7f4a_7c15,
        lost: 0,
        all_complete: false,
    };
    while !world.all_complete || world.hosts.iter().any(|host| !host.complete) {
        world.step();
        if world.now >= PATIENCE {
            panic!("not done after ten minutes of virtual time");
        }
    }
    tell(&world, &sizes);
}

fn tell(world: &World<'_, '_>, sizes: &[(&str, usize)]) {
    for (what, bytes) in sizes {
        say(format_args!("bytes: {what}: {bytes}"));
    }
    let router = world.router.stats();
    say(format_args!(
        "{} bytes in {} ms of virtual time, {} packets lost; {} requests turned to the replier, {} dmcasts",
        content::LENGTH,
        world.now.total_millis(),
        world.lost,
        router.requests_turned,
        router.dmcasts,
    ));
    for (host, number) in world.hosts.iter().zip(1..) {
        let stats = host.receiver.stats();
        say(format_args!(
            "h{number}: {} bytes, {} packets missed, {} repairs had, {} made",
            host.read, stats.lost_packets, stats.repairs, stats.repairs_sent
        ));
        say(format_args!("digest: {}", host.hash.finalize().to_hex()));
    }
    let (statics, stack) = machine::memory_used();
    say(format_args!(
        "memory: {statics} bytes of statics, {stack} of stack"
    ));
}
