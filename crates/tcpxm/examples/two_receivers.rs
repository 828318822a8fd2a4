//! One stream to two receivers through a "network" in memory: multicast reaches the first alone, the second
//! is served by unicast, and one packet in fifty is lost on the way to either.
//!
//! `cargo run -p tcpxm --example two_receivers`
//!
//! The loop is what any driver does; a real one waits for sockets until `poll_timeout`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tcpxm::store::SliceStore;
use tcpxm::{Config, ConnId, Duration, Endpoint, Event, GroupConfig, Instant, Meta, Received};

const PORT: u16 = 7000;
const LEN_BYTES: usize = 2_000_000;

struct Receiver {
    endpoint: Endpoint<SliceStore<Vec<u8>>>,
    address: IpAddr,
    hears_multicast: bool,
    connection: Option<ConnId>,
    joined: Option<IpAddr>,
    received: usize,
    packets: u64,
}

impl Receiver {
    fn new(number: u8, hears_multicast: bool) -> Self {
        let mut endpoint = Endpoint::new(Config::default(), [number; 32], Instant::ZERO);
        endpoint
            .listen(Instant::ZERO, PORT)
            .expect("a port nobody has");
        Receiver {
            endpoint,
            address: Ipv4Addr::new(10, 0, 0, number).into(),
            hears_multicast,
            connection: None,
            joined: None,
            received: 0,
            packets: 0,
        }
    }

    /// What goes to the group, or to this one, arrives; every fiftieth is lost.
    fn take(&mut self, now: Instant, meta: &Meta, segment: &[u8]) {
        let is_ours = meta.destination == self.address
            || (self.hears_multicast && self.joined == Some(meta.destination));
        if !is_ours {
            return;
        }
        self.packets += 1;
        if !self.packets.is_multiple_of(50) {
            // What is wrong with a segment is counted in `stats`; the connection lives on.
            let _ = self.endpoint.handle_packet(now, meta, segment);
        }
    }

    fn look(&mut self, now: Instant, buffer: &mut [u8]) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Incoming { port } => self.connection = self.endpoint.accept(now, port),
                Event::Join { group, source, .. } => {
                    println!("{} joins {group} for {source}", self.address);
                    self.joined = Some(group);
                }
                _ => {}
            }
        }
        let Some(connection) = self.connection else {
            return;
        };
        while let Ok(Received::Data(len)) = self.endpoint.recv(now, connection, buffer) {
            self.received += len;
        }
    }
}

fn main() {
    let own: IpAddr = Ipv4Addr::new(10, 0, 0, 1).into();
    let mut receivers = [Receiver::new(2, true), Receiver::new(3, false)];
    let mut sender = Endpoint::new(Config::default(), [1; 32], Instant::ZERO);
    let content = SliceStore::new(vec![7; LEN_BYTES]);
    let addresses = receivers.iter().map(|receiver| receiver.address).collect();
    let group = GroupConfig::new(SocketAddr::new(own, 0), addresses, PORT);
    let group = sender
        .open_group(Instant::ZERO, &group, content)
        .expect("two receivers");
    sender
        .shutdown(Instant::ZERO, group)
        .expect("the group is open");

    let (mut now, mut buffer) = (Instant::ZERO, [0; 1500]);
    while receivers
        .iter()
        .any(|receiver| receiver.received < LEN_BYTES)
    {
        while let Some(transmit) = sender.poll_transmit(now, &mut buffer) {
            let port = u16::from_be_bytes([buffer[0], buffer[1]]);
            let meta = Meta {
                source: SocketAddr::new(own, port),
                destination: transmit.destination.ip(),
            };
            for receiver in &mut receivers {
                receiver.take(now, &meta, &buffer[..transmit.len]);
            }
        }
        for receiver in &mut receivers {
            receiver.look(now, &mut buffer);
            while let Some(transmit) = receiver.endpoint.poll_transmit(now, &mut buffer) {
                let meta = Meta {
                    source: SocketAddr::new(receiver.address, PORT),
                    destination: own,
                };
                let _ = sender.handle_packet(now, &meta, &buffer[..transmit.len]);
            }
        }
        while let Some(event) = sender.poll_event() {
            if let Event::ModeChanged { connection, mode } = event {
                let remote = sender.remote(connection).map(|remote| remote.ip());
                println!("{now} {remote:?} is served as {mode:?}");
            }
        }
        now += Duration::from_millis(1);
        sender.handle_timeout(now);
        for receiver in &mut receivers {
            receiver.endpoint.handle_timeout(now);
        }
    }
    let stats = sender.stats();
    println!(
        "{now} both have {LEN_BYTES} bytes: {} sent by multicast, {} by unicast, {} segments again",
        stats.multicast_bytes_sent, stats.unicast_bytes_sent, stats.retransmissions
    );
}
