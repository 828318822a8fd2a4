//! A group whose content cannot be read any more: each receiver's connection is reset, and all name the store.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tcpxm::store::{NullStore, Store, StoreError};
use tcpxm::{Config, ConnId, Duration, Endpoint, Failure, GroupConfig, Instant, Meta, Received};

const PORT: u16 = 7000;
const LENGTH: u64 = 1 << 20;

/// Zeros that can be read up to an offset.
struct Torn(u64);

impl Store for Torn {
    fn write(&mut self, _: &[u8]) -> usize {
        0
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        out.fill(0);
        match offset + out.len() as u64 <= self.0 {
            true => Ok(()),
            false => Err(StoreError::Failed),
        }
    }

    fn end(&self) -> u64 {
        LENGTH
    }

    fn room(&self) -> usize {
        0
    }

    fn release(&mut self, _: u64) {}

    fn is_rereadable(&self) -> bool {
        true
    }
}

fn address(host: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, host).into()
}

struct Receiver {
    endpoint: Endpoint<NullStore>,
    connection: Option<ConnId>,
    received: u64,
}

impl Receiver {
    fn new(host: u8, now: Instant) -> Receiver {
        let mut endpoint = Endpoint::new(Config::default(), [host; 32], now);
        endpoint.listen(now, PORT).expect("the port is free");
        Receiver {
            endpoint,
            connection: None,
            received: 0,
        }
    }

    fn read(&mut self, now: Instant) {
        self.connection = self.connection.or_else(|| self.endpoint.accept(now, PORT));
        let mut buffer = [0; 4096];
        while let Some(connection) = self.connection
            && let Ok(Received::Data(len)) = self.endpoint.recv(now, connection, &mut buffer)
        {
            self.received += len as u64;
        }
    }
}

#[test]
fn every_receiver_of_a_group_is_reset_where_the_store_fails() {
    let mut now = Instant::ZERO;
    let hosts = [2, 3];
    let mut receivers = hosts.map(|host| Receiver::new(host, now));
    let mut sender = Endpoint::new(Config::default(), [1; 32], now);
    let source = SocketAddr::new(address(1), 0);
    let config = GroupConfig::new(source, hosts.map(address).to_vec(), PORT);
    let readable = 300_000;
    let group = sender.open_group(now, &config, Torn(readable)).unwrap();
    sender.shutdown(now, group).unwrap();
    let mut buffer = [0; 1500];
    for _ in 0..5_000 {
        while let Some(transmit) = sender.poll_transmit(now, &mut buffer) {
            let to = transmit.destination;
            let port = u16::from_be_bytes([buffer[0], buffer[1]]);
            let meta = Meta {
                source: SocketAddr::new(address(1), port),
                destination: to.ip(),
            };
            for (host, receiver) in hosts.into_iter().zip(&mut receivers) {
                if to.ip() == address(host) || to.ip().is_multicast() {
                    let _ = receiver
                        .endpoint
                        .handle_packet(now, &meta, &buffer[..transmit.len]);
                }
            }
        }
        for (host, receiver) in hosts.into_iter().zip(&mut receivers) {
            receiver.read(now);
            while let Some(transmit) = receiver.endpoint.poll_transmit(now, &mut buffer) {
                let meta = Meta {
                    source: SocketAddr::new(address(host), PORT),
                    destination: transmit.destination.ip(),
                };
                let _ = sender.handle_packet(now, &meta, &buffer[..transmit.len]);
            }
        }
        now += Duration::from_millis(1);
        sender.handle_timeout(now);
        receivers
            .iter_mut()
            .for_each(|receiver| receiver.endpoint.handle_timeout(now));
    }
    let members: Vec<_> = sender.members(group).unwrap().collect();
    assert_eq!(members.len(), 2);
    for member in members {
        assert_eq!(sender.failure(member), Ok(Some(Failure::Store)));
    }
    for receiver in &receivers {
        let received = 1..=readable;
        assert!(
            received.contains(&receiver.received),
            "{}",
            receiver.received
        );
        let connection = receiver.connection.expect("a connection");
        assert_eq!(
            receiver.endpoint.failure(connection),
            Ok(Some(Failure::Reset))
        );
    }
}
