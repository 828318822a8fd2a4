//! A TCP of its own on a TUN device: the device is standard input and output, one IPv4 packet a read
//! and a write. It talks to the kernel's TCP on the other side of the device.
//!
//! ```text
//! on_tun LOCAL_ADDRESS listen PORT       SEND_BYTES [LOSS_PERCENT [REORDER_PERCENT]]
//! on_tun LOCAL_ADDRESS connect ADDR:PORT SEND_BYTES [LOSS_PERCENT [REORDER_PERCENT]]
//! on_tun LOCAL_ADDRESS group ADDR:PORT   SEND_BYTES ...
//! ```
//!
//! Sends the given number of bytes, reads until the peer has closed, and prints the bytes read.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::time::Instant as Clock;

use smoltcp::wire::{IpProtocol, Ipv4Packet};
use tcpxm::store::{NullStore, Store};
use tcpxm::{
    Carrier, Config, ConnId, Endpoint, Event, GroupConfig, Instant, Meta, Received, Target,
};

type Error = Box<dyn std::error::Error>;
type Machine = Endpoint<Box<dyn Store>>;

struct Args {
    local: Ipv4Addr,
    role: String,
    peer: String,
    send: u64,
    loss: u64,
    reorder: u64,
}

fn arguments() -> Result<Args, Error> {
    let args: Vec<String> = std::env::args().collect();
    let get = |at: usize| args.get(at).map(String::as_str);
    let number = |at: usize| get(at).map_or(Ok(0), str::parse);
    Ok(Args {
        local: get(1).ok_or("no local address")?.parse()?,
        role: get(2).ok_or("no role")?.to_owned(),
        peer: get(3).ok_or("no port or peer")?.to_owned(),
        send: number(4)?,
        loss: number(5)?,
        reorder: number(6)?,
    })
}

fn main() -> Result<(), Error> {
    let args = arguments()?;
    let mut output = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    let packets = reader()?;
    let start = Clock::now();
    let now = || Instant::from_micros(start.elapsed().as_micros() as i64);
    let mut config = Config::default();
    config.carrier = Carrier::Ip;
    let seed = std::array::from_fn(|at| (std::process::id() >> (at % 4 * 8)) as u8 ^ at as u8);
    let mut machine: Machine = Endpoint::new(config, seed, now());
    let mut app = App::start(&args, &mut machine, now())?;
    let mut chaos_out = Chaos::new(args.loss, args.reorder);
    let mut chaos_in = Chaos::new(args.loss, args.reorder);
    let mut buffer = vec![0; machine.max_segment_bytes()];
    while !app.done {
        while let Some(event) = machine.poll_event() {
            app.on_event(event, &mut machine, now());
        }
        app.act(&mut machine, now());
        while let Some(transmit) = machine.poll_transmit(now(), &mut buffer) {
            let IpAddr::V4(to) = transmit.destination.ip() else {
                continue;
            };
            let packet = ip_packet(args.local, to, &buffer[..transmit.len]);
            for packet in chaos_out.pass(packet) {
                output.write_all(&packet)?;
            }
        }
        let wait = machine.poll_timeout().map_or(1_000_000, |at| {
            (at.total_micros() - now().total_micros()).clamp(0, 1_000_000)
        });
        let wait = std::time::Duration::from_micros(wait as u64);
        if let Ok(packet) = packets.recv_timeout(wait) {
            for packet in chaos_in.pass(packet) {
                take(&mut machine, &packet, now());
            }
            while let Ok(packet) = packets.try_recv() {
                for packet in chaos_in.pass(packet) {
                    take(&mut machine, &packet, now());
                }
            }
        }
        machine.handle_timeout(now());
    }
    let drops = machine.stats().drops.iter();
    let drops: Vec<_> = drops.filter(|(_, count)| *count > 0).collect();
    eprintln!(
        "read {} {:?}\n{:?}\n{drops:?}",
        app.read,
        app.failure,
        machine.stats()
    );
    Ok(())
}

/// Packets from the device, by a thread that waits for them.
fn reader() -> Result<mpsc::Receiver<Vec<u8>>, Error> {
    let mut input = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let (sender, receiver) = mpsc::sync_channel(1024);
    std::thread::spawn(move || {
        let mut buffer = [0; 65536];
        while let Ok(len) = input.read(&mut buffer) {
            if len == 0 || sender.send(buffer[..len].to_vec()).is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}

fn take(machine: &mut Machine, bytes: &[u8], now: Instant) {
    let Ok(packet) = Ipv4Packet::new_checked(bytes) else {
        return;
    };
    if packet.version() != 4 || packet.next_header() != IpProtocol::Tcp {
        return;
    }
    let meta = Meta {
        source: SocketAddr::new(packet.src_addr().into(), 0),
        destination: packet.dst_addr().into(),
    };
    // What is dropped is counted.
    let _ = machine.handle_packet(now, &meta, packet.payload());
}

fn ip_packet(from: Ipv4Addr, to: Ipv4Addr, segment: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 20 + segment.len()];
    bytes[20..].copy_from_slice(segment);
    let mut packet = Ipv4Packet::new_unchecked(&mut bytes[..]);
    packet.set_version(4);
    packet.set_header_len(20);
    packet.set_total_len((20 + segment.len()) as u16);
    packet.set_dont_frag(true);
    packet.set_hop_limit(64);
    packet.set_next_header(IpProtocol::Tcp);
    packet.set_src_addr(from);
    packet.set_dst_addr(to);
    packet.fill_checksum();
    bytes
}

/// Loses and reorders packets.
struct Chaos {
    loss: u64,
    reorder: u64,
    state: u64,
    held: Option<Vec<u8>>,
}

impl Chaos {
    fn new(loss: u64, reorder: u64) -> Self {
        Self {
            loss,
            reorder,
            state: 88_172_645_463_325_252,
            held: None,
        }
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % 100 < percent
    }

    fn pass(&mut self, packet: Vec<u8>) -> Vec<Vec<u8>> {
        if self.chance(self.loss) {
            return Vec::new();
        }
        if self.held.is_none() && self.chance(self.reorder) {
            self.held = Some(packet);
            return Vec::new();
        }
        std::iter::once(packet).chain(self.held.take()).collect()
    }
}

struct App {
    connection: Option<ConnId>,
    target: Option<Target>,
    send: u64,
    written: u64,
    read: u64,
    failure: Option<tcpxm::Failure>,
    done: bool,
}

impl App {
    fn start(args: &Args, machine: &mut Machine, now: Instant) -> Result<Self, Error> {
        let mut app = Self {
            connection: None,
            target: None,
            send: args.send,
            written: 0,
            read: 0,
            failure: None,
            done: false,
        };
        let local = SocketAddr::new(args.local.into(), 0);
        match args.role.as_str() {
            "listen" => machine.listen(now, args.peer.parse()?)?,
            "connect" => {
                let id = machine.connect(now, local, args.peer.parse()?)?;
                app.connection = Some(id);
                app.target = Some(id.into());
            }
            "group" => {
                let peer: SocketAddr = args.peer.parse()?;
                let group = GroupConfig::new(local, vec![peer.ip()], peer.port());
                let store: Box<dyn Store> = Box::new(NullStore::new(args.send));
                let id = machine.open_group(now, &group, store)?;
                app.connection = machine.members(id)?.next();
                machine.shutdown(now, id)?;
            }
            other => return Err(format!("unknown role {other}").into()),
        }
        Ok(app)
    }

    fn on_event(&mut self, event: Event, machine: &mut Machine, now: Instant) {
        eprintln!("{now} {event:?}");
        match event {
            Event::Incoming { port } => {
                self.connection = machine.accept(now, port);
                self.target = self.connection.map(Target::from);
            }
            Event::Closed { failure, .. } => {
                self.failure = failure;
                self.done = true;
            }
            _ => {}
        }
    }

    fn act(&mut self, machine: &mut Machine, now: Instant) {
        let mut chunk = [0; 16384];
        if let Some(target) = self.target {
            while self.written < self.send {
                let len = (self.send - self.written).min(chunk.len() as u64) as usize;
                for (byte, at) in chunk.iter_mut().zip(self.written..) {
                    *byte = NullStore::byte(at);
                }
                match machine.send(now, target, &chunk[..len]) {
                    Ok(0) | Err(_) => break,
                    Ok(written) => self.written += written as u64,
                }
            }
            if self.written == self.send && machine.shutdown(now, target).is_ok() {
                self.target = None;
            }
        }
        let Some(connection) = self.connection else {
            return;
        };
        while let Ok(Received::Data(len)) = machine.recv(now, connection, &mut chunk) {
            for (byte, at) in chunk[..len].iter().zip(self.read..) {
                assert_eq!(*byte, NullStore::byte(at), "at {at}");
            }
            self.read += len as u64;
        }
    }
}
