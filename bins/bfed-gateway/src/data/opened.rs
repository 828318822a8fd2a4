//! What a data node needs before it runs: its sockets, and the native network.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use bfed::{DataConfig, KeyDigest, NodeId};
use control_stream::links::LinkCredentials;
use daemon_kit::RunError;
use linux_net::inet::{self, UdpSocket};
use linux_net::wake::Waker;
use proto_core::clock::Clock;

use super::quic::Quic;
use super::streams;
use crate::config::Config;
use crate::native::{Access, Network, Owner, Role};

/// Ports tried if none is configured.
const PORTS: usize = 32;

/// Opens the native network.
pub type Opener<'a> = &'a dyn Fn(Role, Owner) -> Result<Box<dyn Network>, NotOpened>;
/// The error if it cannot be opened.
pub type NotOpened = Box<dyn std::error::Error + Send + Sync>;

pub(crate) fn not_opened(source: NotOpened) -> RunError {
    RunError::Open {
        what: "network",
        source,
    }
}

/// A data node's sockets.
pub(crate) struct Opened {
    pub(super) config: DataConfig,
    pub(super) network: Box<dyn Network>,
    pub(super) udp: UdpSocket,
    pub(super) listener: TcpListener,
    /// Where the gateway has a key.
    pub(super) quic: Option<Quic>,
    pub(super) waker: Waker,
    pub(super) clock: Clock,
    pub(super) max_streams: usize,
    pub(super) seed: [u8; 32],
    /// The core that the node stays on.
    pub(crate) cpu: Option<usize>,
}

/// A data node's sockets, both at one address: a peer's data node asks there whether this one lives.
fn sockets(mut address: SocketAddr) -> Result<(UdpSocket, TcpListener), NotOpened> {
    let wanted = address.port();
    for _ in 0..PORTS {
        let listener = streams::listen(address)?;
        address.set_port(listener.local_addr()?.port());
        let settings = inet::Config {
            exclusive: true,
            ..inet::Config::new(address)
        };
        match UdpSocket::open(&settings) {
            Ok(udp) => return Ok((udp, listener)),
            Err(error) if wanted != 0 => return Err(error.into()),
            // Another one of the kernel's choice.
            Err(_) => address.set_port(0),
        }
    }
    Err("no port that is free for UDP and TCP".into())
}

impl Opened {
    /// Opens the sockets of the process's data nodes.
    pub(crate) fn open(
        config: &Config,
        clock: Clock,
        access: &Arc<Access>,
        open: Opener<'_>,
        links: Option<&LinkCredentials>,
    ) -> Result<Vec<Opened>, RunError> {
        (0..config.data.nodes)
            .map(|part| Opened::one(config, clock, access, open, links, part))
            .collect()
    }

    fn one(
        config: &Config,
        clock: Clock,
        access: &Arc<Access>,
        open: Opener<'_>,
        links: Option<&LinkCredentials>,
        part: usize,
    ) -> Result<Opened, RunError> {
        let data = &config.data;
        let number = u32::try_from(part).unwrap_or(u32::MAX);
        let mut address = data.listen;
        if address.port() != 0 {
            address.set_port(address.port() + part as u16);
        }
        let what = "data.listen";
        let (udp, listener) = sockets(address).map_err(|source| RunError::Open { what, source })?;
        let datagram = udp.local_address().map_err(RunError::open("data.listen"))?;
        let stream = listener
            .local_addr()
            .map_err(RunError::open("data.listen"))?;
        let seed =
            || linux_net::process::random().map_err(|e| RunError::Io("reading /dev/urandom", e));
        let role = Role::Channels {
            part,
            parts: data.nodes,
        };
        let owner = Owner {
            gateway: config.machine.gateway,
            seed: seed()?,
            now: clock.now(),
            access: Arc::clone(access),
        };
        let network = open(role, owner).map_err(not_opened)?;
        let mut machine = data.machine;
        machine.node = NodeId(data.first_node + number);
        machine.datagram = Some(datagram);
        machine.stream = Some(stream);
        machine.plane.repairs = config.links_repair;
        machine.key = links.map(|links| KeyDigest(links.own));
        let quic = links.map(|links| {
            let made = Quic::new(
                links.clone(),
                machine.plane.mtu,
                config.links_congestion,
                data.max_streams,
                seed()?,
                clock.now(),
            );
            made.map_err(|why| RunError::Open {
                what: "links.key-file",
                source: why.into(),
            })
        });
        let quic = quic.transpose()?;
        Ok(Opened {
            config: machine,
            network,
            udp,
            listener,
            quic,
            waker: Waker::new().map_err(|e| RunError::Io("making a waker", e))?,
            clock,
            max_streams: data.max_streams,
            seed: seed()?,
            cpu: config.daemon.cpu.map(|first| first + part),
        })
    }

    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    pub(crate) fn node(&self) -> NodeId {
        self.config.node
    }

    /// Where peers send to.
    pub(crate) fn datagram(&self) -> Option<SocketAddr> {
        self.config.datagram
    }
}
