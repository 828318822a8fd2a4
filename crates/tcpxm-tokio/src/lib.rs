//! TCP-XM over sockets: connections and groups as tokio streams, and as blocking ones.
//!
//! An [`XmEndpoint`] is one socket and one [`tcpxm::Endpoint`], driven by a thread of its own:
//! packets in and out in batches, timers, memberships in groups. A thread that waits for data, with
//! [`std::io::Read`], does that itself meanwhile: what it takes from the socket it uses at once, and nobody
//! has to be woken. When it does not come back for 20 ms the endpoint's thread goes on. The socket is a UDP socket (with GRO
//! and GSO), or, with [`Carrier::Ip`], a raw one that carries TCP segments in IP: the other side may
//! then be any TCP, the kernel's included. What it hands out
//! works from any thread and in any runtime:
//!
//! - [`XmListener`] and [`XmStream`]: connections that others open, and that are opened;
//! - [`XmGroup`]: one stream of bytes to many receivers, over multicast where it works (TCP-XM §3.2:
//!   many destinations instead of one, all else as before).
//!
//! [`XmStream`] and [`XmGroup`] are [`tokio::io::AsyncRead`] and [`tokio::io::AsyncWrite`] (the
//! same plug-in idea as the paper's driver for Globus XIO, §3.5), and [`std::io::Read`] and
//! [`std::io::Write`], which wait.
//!
//! ```
//! use std::io::{Read, Write};
//! use tcpxm_tokio::{Config, GroupConfig, XmEndpoint};
//!
//! # fn main() -> std::io::Result<()> {
//! let receiver = XmEndpoint::open(&Config::new("127.0.0.1:0".parse().unwrap()))?;
//! let port = receiver.local_address().port();
//! let listener = receiver.listen()?;
//!
//! let sender = XmEndpoint::open(&Config::new("127.0.0.1:0".parse().unwrap()))?;
//! let receivers = vec!["127.0.0.1".parse().unwrap()];
//! let mut group = sender.open_group(GroupConfig::new(sender.local_address(), receivers, port))?;
//! group.write_all(b"to whom it may concern")?;
//! group.finish()?;
//!
//! let mut text = String::new();
//! listener.wait(None)?.read_to_string(&mut text)?;
//! assert_eq!(text, "to whom it may concern");
//! # Ok(())
//! # }
//! ```
//!
//! # Bounds
//!
//! One thread an endpoint, 320 KiB for packets on their way out, and up to 33 pieces of 64 KiB for those on
//! their way in, of which only what was used takes memory, besides what [`tcpxm`] documents for
//! connections and groups. What a group has sent and somebody may want again lies in blocks of 64 KiB, or
//! in those that [`XmGroup::write_block`] was given: as many bytes of the stream as the send buffer has
//! room for, a block more at each end, and up to 32 blocks of the store's own that wait for the next to be
//! written. At most 64 groups are heard at once, each by a socket of its own,
//! whose room for what arrives gets smaller with their number ([`Config::receive_buffer_bytes`] for the
//! first, half of it for the second, and so on, at least 1 MiB). Dropping a stream closes it in good order, in the background; dropping
//! all handles of an endpoint ends its thread when its connections are closed, at most 3 s later.
#![forbid(unsafe_code)]

mod batch;
mod driver;
mod group;
pub mod seal;
mod shared;
mod sockets;
mod store;
mod stream;
mod wait;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub use group::{GroupEvent, GroupHandle, XmGroup};
pub use store::Archive;
pub use stream::{StreamHandle, XmListener, XmStream};
pub use tcpxm::wire::SegmentKey;
pub use tcpxm::{
    Carrier, CongestionControl, Failure, GroupChoice, GroupConfig, GroupMode, IpCidr, Mode, State,
};

use driver::Driver;
use shared::Shared;
use sockets::Sockets;

/// How an endpoint is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Local address and port; port 0: the kernel's choice. Receivers of one group on one host
    /// need addresses of their own.
    pub bind: SocketAddr,
    /// Interface of outgoing multicast and of memberships, by index; 0 lets the routes decide.
    pub interface: u32,
    /// Time to live of outgoing multicast: 1 stays on the link.
    pub ttl: u8,
    /// Room in the kernel for what arrives, in bytes.
    pub receive_buffer_bytes: usize,
    /// Hand the kernel several packets at once where it can cut them up (UDP_SEGMENT); off for devices and
    /// networks that do it wrong.
    pub segmentation_offload: bool,
    /// What the machine is told.
    pub machine: tcpxm::Config,
}

impl Config {
    /// Defaults: interface by the routes, TTL 16, 16 MiB of receive buffer, segmentation offload, [`tcpxm::Config::default`].
    pub fn new(bind: SocketAddr) -> Self {
        Config {
            bind,
            interface: 0,
            ttl: 16,
            receive_buffer_bytes: 16 << 20,
            segmentation_offload: true,
            machine: tcpxm::Config::default(),
        }
    }
}

impl Config {
    /// No segment, of either side, is longer than the interface takes: the maximum segment size that is
    /// announced comes from there (RFC 6691).
    fn fit_interface(&mut self) {
        let all = linux_net::link::list().unwrap_or_default();
        let found = all.iter().find(|found| found.index == self.interface);
        let mtu = found.map_or(u32::MAX, |found| found.mtu);
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        self.machine.mtu = self.machine.mtu.min(mtu);
    }
}

/// Counters of an endpoint.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Those of the machine: segments, bytes, drops.
    pub machine: tcpxm::Stats,
    /// Errors that the kernel had for who wanted to receive, and that ended nothing.
    pub receive_errors: u64,
    /// Groups of senders that were not joined: there were as many as may be, or the kernel refused.
    pub groups_refused: u64,
}

/// One socket that speaks TCP-XM. Clones are handles to the same.
#[derive(Clone, Debug)]
pub struct XmEndpoint {
    hold: Arc<Hold>,
}

/// Keeps the thread going.
#[derive(Debug)]
struct Hold(Arc<Shared>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl XmEndpoint {
    /// Opens the socket and starts the thread. Needs no privileges over UDP, and CAP_NET_RAW over IP.
    ///
    /// # Errors
    /// The address is in use, or there is no room for a socket or a thread;
    /// [`io::ErrorKind::PermissionDenied`] without the capability.
    pub fn open(config: &Config) -> io::Result<XmEndpoint> {
        let mut config = config.clone();
        config.fit_interface();
        let sockets = Sockets::open(&config)?;
        let local = sockets.local_address();
        let shared = Arc::new(Shared::new(&config, local)?);
        shared.hold();
        let hold = Arc::new(Hold(Arc::clone(&shared)));
        Driver::start(shared, sockets)?;
        Ok(XmEndpoint { hold })
    }

    /// The address of the socket.
    pub fn local_address(&self) -> SocketAddr {
        self.hold.0.local
    }

    /// Takes connections on the socket's port.
    ///
    /// # Errors
    /// It listens already.
    pub fn listen(&self) -> io::Result<XmListener> {
        XmListener::new(Arc::clone(&self.hold.0), None, None)
    }

    /// As [`XmEndpoint::listen`], for senders whose segments are signed with this key
    /// ([`GroupConfig::key`]): what others send is dropped.
    ///
    /// # Errors
    /// It listens already.
    pub fn listen_keyed(&self, key: SegmentKey) -> io::Result<XmListener> {
        XmListener::new(Arc::clone(&self.hold.0), None, Some(key))
    }

    /// As [`XmEndpoint::listen`], or with a key as [`XmEndpoint::listen_keyed`], for one peer alone, by its
    /// address and TCP port (which a translator of addresses on the way leaves alone): all others are
    /// refused, and none of their groups is joined.
    ///
    /// # Errors
    /// It listens already.
    pub fn listen_to(&self, peer: SocketAddr, key: Option<SegmentKey>) -> io::Result<XmListener> {
        XmListener::new(Arc::clone(&self.hold.0), Some(peer), key)
    }

    /// Counters since the start.
    pub fn stats(&self) -> Stats {
        let state = self.hold.0.lock();
        Stats {
            machine: state.machine.stats().clone(),
            receive_errors: state.receive_errors,
            groups_refused: state.groups_refused,
        }
    }

    /// Opens a connection; the stream can be written to at once.
    ///
    /// # Errors
    /// The address cannot be, or no route leads there, or there are too many connections.
    pub fn connect(&self, remote: SocketAddr) -> io::Result<XmStream> {
        XmStream::connect(Arc::clone(&self.hold.0), remote)
    }

    /// Opens a group: a connection to each of its receivers (TCP-XM §2.1). Its store of sent bytes
    /// is [`tcpxm::Config::send_buffer`] long. The port of [`GroupConfig::local`] is this socket's.
    ///
    /// # Errors
    /// No receivers, one of them twice, or an address that cannot be; with [`Carrier::Ip`] also when
    /// the endpoint has no address and the routes lead to receivers from several.
    pub fn open_group(&self, config: GroupConfig) -> io::Result<XmGroup> {
        XmGroup::open(Arc::clone(&self.hold.0), config, None)
    }

    /// As [`XmEndpoint::open_group`], for bytes that can be read again: a detached receiver holds
    /// nobody up, and never fails for what has left the store.
    ///
    /// # Errors
    /// As [`XmEndpoint::open_group`].
    pub fn open_archived_group(
        &self,
        config: GroupConfig,
        archive: Box<dyn Archive>,
    ) -> io::Result<XmGroup> {
        XmGroup::open(Arc::clone(&self.hold.0), config, Some(archive))
    }
}

/// How long connections may take to close when nobody holds the endpoint any more.
const LINGER: Duration = Duration::from_secs(3);
