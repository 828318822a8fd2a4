//! Sockets whose packets a model puts in. What they send is lost.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use linux_net::SendError;
use linux_net::inet::Route;
use loom::sync::{Arc, Mutex};

use crate::Config;
use crate::models::sync::Token;
pub(crate) use crate::socket::Taken;
use crate::sync::Waker;

/// A packet and its source.
pub(crate) type Packet = (SocketAddr, Vec<u8>);

/// The network.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    arrived: Arc<Mutex<Arrived>>,
    /// Set when something is sent.
    pub(crate) sent: Token,
}

#[derive(Debug, Default)]
struct Arrived {
    packets: Vec<Packet>,
    /// The sockets have failed.
    failed: bool,
    /// Set while a thread waits for packets.
    waiter: Option<Token>,
}

impl Wire {
    /// A packet arrives.
    pub(crate) fn put(&self, packet: Packet) {
        self.change(|arrived| arrived.packets.push(packet));
    }

    /// The sockets fail.
    pub(crate) fn fail(&self) {
        self.change(|arrived| arrived.failed = true);
    }

    fn change(&self, change: impl FnOnce(&mut Arrived)) {
        let mut arrived = self.arrived.lock().expect("no panic");
        change(&mut arrived);
        if let Some(waiter) = arrived.waiter.take() {
            waiter.set();
        }
    }
}

pub(crate) struct Sockets {
    local: SocketAddr,
    wire: Wire,
}

impl Sockets {
    pub(crate) fn open(config: &Config) -> io::Result<Sockets> {
        Ok(Sockets {
            local: config.bind,
            wire: Wire {
                arrived: Arc::default(),
                sent: Token::new(),
            },
        })
    }

    pub(crate) fn wire(&self) -> Wire {
        self.wire.clone()
    }

    pub(crate) fn local_address(&self) -> SocketAddr {
        self.local
    }

    pub(crate) fn join(&mut self, _group: IpAddr, _source: IpAddr) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn leave(&mut self, _group: IpAddr, _source: IpAddr) {}

    pub(crate) fn receive(
        &mut self,
        _enough: usize,
        mut take: impl FnMut(SocketAddr, IpAddr, &[u8], usize),
    ) -> io::Result<Taken> {
        let mut arrived = self.wire.arrived.lock().expect("no panic");
        if arrived.failed {
            return Err(io::Error::other("for the model"));
        }
        let packets = std::mem::take(&mut arrived.packets);
        drop(arrived);
        for (source, packet) in &packets {
            take(*source, self.local.ip(), packet, packet.len());
        }
        Ok(Taken {
            packets: packets.len(),
            ..Taken::default()
        })
    }

    /// Time stands still: there is no `limit`.
    pub(crate) fn wait(
        &mut self,
        _writable: bool,
        other: &Waker,
        _limit: Option<Duration>,
    ) -> io::Result<bool> {
        let mut arrived = self.wire.arrived.lock().expect("no panic");
        if !arrived.packets.is_empty() || arrived.failed {
            return Ok(false);
        }
        arrived.waiter = Some(other.token().clone());
        drop(arrived);
        other.token().wait();
        self.wire.arrived.lock().expect("no panic").waiter = None;
        Ok(true)
    }

    pub(crate) fn send(
        &self,
        _source: IpAddr,
        _destination: SocketAddr,
        bytes: &[u8],
        _segment_len: usize,
    ) -> Result<usize, SendError> {
        self.wire.sent.set();
        Ok(bytes.len())
    }

    pub(crate) fn route(&self, _destination: IpAddr) -> io::Result<Route> {
        Err(io::ErrorKind::NetworkUnreachable.into())
    }
}
