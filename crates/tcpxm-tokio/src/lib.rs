//! TCP-XM over sockets: connections and groups as tokio streams and as blocking ones.
//!
//! An [`XmEndpoint`] is one socket and one [`tcpxm::Endpoint`]. A thread of its own drives it: it moves packets
//! in batches, runs timers and joins groups. It needs no runtime; the handles work from any thread and in any
//! runtime. A thread that blocks in [`std::io::Read`] drives the endpoint itself while it waits, if nothing
//! else waits for that endpoint: data is then used by the thread that received it. The socket is a UDP socket
//! (with GRO and GSO), or with [`Carrier::Ip`] a raw one that carries TCP segments in IP; the peer may then be
//! any TCP. The handles are:
//!
//! - [`XmListener`] and [`XmStream`]: connections that others open, and that are opened;
//! - [`XmGroup`]: one stream of bytes to many receivers, over multicast where it works (TCP-XM §3.2:
//!   many destinations instead of one, all else as before).
//!
//! [`XmStream`] and [`XmGroup`] implement [`tokio::io::AsyncRead`] and [`tokio::io::AsyncWrite`] (as a plug-in,
//! like the paper's driver for Globus XIO, §3.5), and the blocking [`std::io::Read`] and [`std::io::Write`].
//! Each connection, listener and group has wakers of its own: a change wakes only the tasks and threads that
//! wait for it.
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
//! group.write_all(b"one stream for many receivers")?;
//! group.finish()?;
//!
//! let mut text = String::new();
//! listener.wait(None)?.read_to_string(&mut text)?;
//! assert_eq!(text, "one stream for many receivers");
//! # Ok(())
//! # }
//! ```
//!
//! # Bounds
//!
//! An endpoint has one thread, 192 KiB for outgoing packets and up to 33 buffers of 64 KiB for incoming ones,
//! of which only used pages take memory, in addition to the memory that [`tcpxm`] documents for connections and
//! groups. Sent data that may be needed again is kept in a ring of at most the length of the send buffer, rounded
//! up to a power of two. At most 64 groups are joined at once, each with a socket of its own. Their
//! receive buffers get smaller with their number: [`Config::receive_buffer_bytes`] for the first, half of it
//! for the second, and so on, at least 1 MiB. Dropping a stream closes it gracefully in the background; after
//! all handles of an endpoint are dropped its thread ends when the connections are closed, within 3 s.
#![forbid(unsafe_code)]

mod batch;
mod driver;
mod group;
mod lease;
#[cfg(loom)]
mod models;
pub mod seal;
mod shared;
#[cfg_attr(loom, allow(dead_code, reason = "the sockets are those of the models"))]
mod socket;
#[cfg_attr(loom, path = "models/sockets.rs")]
mod sockets;
mod store;
mod stream;
mod sync;
mod wait;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub use group::{GroupEvent, GroupHandle, XmGroup};
pub use store::Archive;
pub use stream::{StreamHandle, XmListener, XmStream};
pub use tcpxm::wire::{SegmentKey, is_group};
pub use tcpxm::{
    Carrier, CongestionControl, ConnStats, Failure, GroupChoice, GroupConfig, GroupMode, Mode,
    Prefix, State,
};

use driver::Driver;
use shared::Shared;
use sockets::Sockets;

/// Configuration of an endpoint. Start from [`Config::new`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Local address and port; port 0 lets the kernel choose. Receivers of one group on one host need different
    /// addresses.
    pub bind: SocketAddr,
    /// Interface of outgoing multicast and of memberships, by index; 0 lets the routes decide.
    pub interface: u32,
    /// Hop limit of outgoing multicast: 1 stays on the link.
    pub ttl: u8,
    /// Receive buffer in the kernel, in bytes.
    pub receive_buffer_bytes: usize,
    /// Pass several packets to the kernel in one call where it can segment them (UDP_SEGMENT); switch it off
    /// for devices and networks that do this wrong.
    pub segmentation_offload: bool,
    /// Configuration of the machine.
    pub machine: tcpxm::Config,
}

impl Config {
    /// Returns the defaults: interface by the routes, TTL 16, a receive buffer of 16 MiB, segmentation offload,
    /// [`tcpxm::Config::default`].
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
    /// Limits segments of both sides to the MTU of the interface, through the announced maximum segment size
    /// (RFC 6691).
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
    /// Counters of the machine: segments, bytes, drops.
    pub machine: tcpxm::Stats,
    /// Temporary errors of receiving.
    pub receive_errors: u64,
    /// Groups that were not joined, because there were too many or because the kernel refused.
    pub groups_refused: u64,
}

/// A socket that speaks TCP-XM. Clones are handles to the same endpoint.
#[derive(Clone, Debug)]
pub struct XmEndpoint {
    hold: Arc<Hold>,
}

/// Keeps the thread running.
#[derive(Debug)]
struct Hold(Arc<Shared>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl XmEndpoint {
    /// Opens the socket and starts the thread. UDP needs no privileges, IP needs CAP_NET_RAW.
    ///
    /// # Errors
    /// The address is in use, or no socket or thread can be created;
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

    /// Returns the address of the socket.
    pub fn local_address(&self) -> SocketAddr {
        self.hold.0.local
    }

    /// Accepts connections on the socket's port.
    ///
    /// # Errors
    /// The endpoint listens already.
    pub fn listen(&self) -> io::Result<XmListener> {
        XmListener::new(Arc::clone(&self.hold.0), None, None)
    }

    /// As [`XmEndpoint::listen`], but only from senders that sign their segments with this key
    /// ([`GroupConfig::key`]); other segments are dropped.
    ///
    /// # Errors
    /// The endpoint listens already.
    pub fn listen_keyed(&self, key: SegmentKey) -> io::Result<XmListener> {
        XmListener::new(Arc::clone(&self.hold.0), None, Some(key))
    }

    /// As [`XmEndpoint::listen`], or with a key as [`XmEndpoint::listen_keyed`], for one peer only, identified
    /// by its address and TCP port (which address translators leave alone). All other peers are refused, and
    /// their groups are not joined.
    ///
    /// # Errors
    /// The endpoint listens already.
    pub fn listen_to(&self, peer: SocketAddr, key: Option<SegmentKey>) -> io::Result<XmListener> {
        XmListener::new(Arc::clone(&self.hold.0), Some(peer), key)
    }

    /// Returns the counters since the start.
    pub fn stats(&self) -> Stats {
        let state = self.hold.0.lock();
        Stats {
            machine: state.machine.stats().clone(),
            receive_errors: state.receive_errors,
            groups_refused: state.groups_refused,
        }
    }

    /// Opens a connection; the stream can be written to immediately.
    ///
    /// # Errors
    /// The address is invalid, no route leads there, or there are too many connections.
    pub fn connect(&self, remote: SocketAddr) -> io::Result<XmStream> {
        XmStream::connect(Arc::clone(&self.hold.0), remote)
    }

    /// Opens a group: a connection to each of its receivers (TCP-XM §2.1). The send buffer holds
    /// [`tcpxm::Config::send_buffer`] bytes. The port of [`GroupConfig::local`] is this socket's.
    ///
    /// # Errors
    /// No receivers, one of them twice, or an invalid address; with [`Carrier::Ip`] also when
    /// the endpoint has no address and the routes lead to receivers from several.
    pub fn open_group(&self, config: GroupConfig) -> io::Result<XmGroup> {
        XmGroup::open(Arc::clone(&self.hold.0), config, None)
    }

    /// As [`XmEndpoint::open_group`], for data that can be read again: a detached receiver does not delay the
    /// others, and does not fail when data has left the send buffer.
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

/// Time allowed for connections to close after the last handle was dropped.
const LINGER: Duration = Duration::from_secs(3);
