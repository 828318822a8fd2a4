//! The native networks of the federation on Linux sockets (Broadcast Federation §5.4).
//!
//! A gateway opens its network several times: once where the control node is, for clients
//! ([`Role::Mediator`]), and once for each data node, for data ([`Role::Channels`]); they may be
//! different threads, processes or machines, and share nothing.
//!
//! # How a network is driven
//!
//! ```text
//! loop {
//!     wait until the network's descriptor is readable, or until network.poll_timeout()
//!     network.handle_timeout(now)
//!     while let Some(upcall) = network.poll_upcall(now, buffer)      reads its sockets
//!     while let Some(channel) = network.poll_writable()              edges that were busy continue
//!     calls: allocate_channel, send_data, answer ...
//!     network.flush(now)
//! }
//! ```
//!
//! A driver polls data at most a few hundred times in a row, so that other sockets are served; more data keeps the
//! descriptor readable.
//!
//! # Kinds
//!
//! | kind | module |
//! | --- | --- |
//! | `none` | no sessions, no clients |
//! | `ip` | IP multicast of any source: [`ip`] |
//! | `ssm` | source-specific multicast: [`ssm`] |
//! | `http` | bodies without end over HTTP: [`http`] |
//! | `moq` | the same, and Media over QUIC |
//! | `ltp` | reliable multicast of bulk sessions: [`ltp`] |
//! | `external` | a process of the network's operator, over Unix sockets: [`external`] |

mod access;
mod announce;
mod clients;
mod config;
mod datagrams;
pub mod external;
mod groups;
pub mod http;
pub mod ip;
pub(crate) mod listing;
pub mod ltp;
mod mediator;
mod none;
mod pool;
pub mod ssm;

use std::error::Error;
use std::os::fd::AsFd;
use std::sync::Arc;

use bfed::native::{ChannelId, FrameClass, Priority, Upcall};
use bfed::{GatewayId, Instant, NativeNet};

pub use access::{Access, AccessConfig, NotAdmitted, TokensConfig};
pub use announce::{AnnouncedSession, SapConfig};
pub use clients::{ClientLimits, JoinLatency, LATENCY_BOUNDS_S};
pub use datagrams::Link;
pub use external::ExternalConfig;
pub use groups::{GroupsConfig, MulticastConfig};
pub use http::HttpConfig;
pub use listing::PresentedFlow;
pub use ltp::LtpConfig;
pub use none::NoNetwork;
pub use pool::{Groups, MAX_GROUPS};

/// The purpose that a network is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Clients: joins, leaves, answers, costs. No data.
    Mediator,
    /// Data of one data node, which has its own part of the pool of addresses: `part` of `parts`
    /// equal ones, from 0.
    Channels {
        /// Which part.
        part: usize,
        /// How many there are in this process.
        parts: usize,
    },
}

/// A native network with its sockets. No call blocks.
///
/// Its descriptor (an epoll instance, say) is readable while
/// [`poll_upcall`](NativeNet::poll_upcall) or [`poll_writable`](Network::poll_writable) return something.
#[expect(
    unused_variables,
    reason = "the parameters' names document the methods that do nothing by default"
)]
pub trait Network: NativeNet + AsFd + Send {
    /// Pauses a channel because its receivers cannot keep up, or resumes it. A paused channel is not read.
    fn set_paused(&mut self, channel: ChannelId, paused: bool) {}

    /// Returns a channel that takes data again after `send_data` returned `Busy`; drain until `None`.
    fn poll_writable(&mut self) -> Option<ChannelId> {
        None
    }

    /// Sends what `send_data` has gathered.
    fn flush(&mut self, now: Instant) {}

    /// Returns the counters, by names for metrics: lower case, underscores.
    fn counters(&self) -> Vec<Counter> {
        Vec::new()
    }

    /// Returns values that go up and down, named like counters.
    fn gauges(&self) -> Vec<Counter> {
        Vec::new()
    }

    /// Returns the sessions of this network that its hosts announce.
    fn announced(&self) -> Vec<AnnouncedSession> {
        Vec::new()
    }

    /// Returns the flows that members of the network receive here, 1001 at most: one more than a list has.
    fn presented(&self) -> Vec<PresentedFlow> {
        Vec::new()
    }

    /// Returns how long clients waited for the addresses of sessions, if the network has clients.
    fn join_latency(&self) -> Option<&JoinLatency> {
        None
    }
}

/// Returns the priority of a frame that is a unit of media, or a part of one.
fn priority(of: media::Priority) -> Priority {
    match of {
        media::Priority::Discardable => Priority::Discardable,
        media::Priority::Other => Priority::Normal,
        media::Priority::Key => Priority::Key,
    }
}

/// Returns the upcall for a frame.
fn upcall(channel: ChannelId, len: usize, class: FrameClass) -> Upcall {
    match class == FrameClass::default() {
        true => Upcall::Data { channel, len },
        false => Upcall::Frame {
            channel,
            len,
            class,
        },
    }
}

/// A name and a value.
pub type Counter = (&'static str, u64);

/// `[network]` of the configuration: the kind of native network, and its configuration.
#[expect(
    clippy::large_enum_variant,
    reason = "a process has one, read at its start"
)]
#[derive(Clone, Debug, PartialEq)]
pub enum NetworkConfig {
    /// `kind = "none"`: no native network, only other gateways.
    None,
    /// `kind = "ip"`: IP multicast of any source.
    Ip(MulticastConfig),
    /// `kind = "ssm"`: source-specific multicast.
    Ssm(MulticastConfig),
    /// `kind = "http"`: sessions over plain HTTP. `kind = "moq"`: also over Media over QUIC.
    Http(HttpConfig),
    /// `kind = "ltp"`: reliable multicast.
    Ltp(LtpConfig),
    /// `kind = "external"`: a process over Unix sockets.
    External(ExternalConfig),
}

/// The gateway that opens a network.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The gateway; its network's number is the native network's.
    pub gateway: GatewayId,
    /// Entropy for the network's own generator.
    pub seed: [u8; 32],
    /// The time.
    pub now: Instant,
    /// What clients must present.
    pub access: Arc<Access>,
}

impl NetworkConfig {
    /// Returns the name of the kind.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            NetworkConfig::None => "none",
            NetworkConfig::Ip(_) => "ip",
            NetworkConfig::Ssm(_) => "ssm",
            NetworkConfig::Http(config) if config.moq.is_some() => "moq",
            NetworkConfig::Http(_) => "http",
            NetworkConfig::Ltp(_) => "ltp",
            NetworkConfig::External(_) => "external",
        }
    }

    /// Returns where clients ask for sessions; `None` where there is no such place.
    #[must_use]
    pub fn mediator(&self) -> Option<String> {
        match self {
            NetworkConfig::None => None,
            NetworkConfig::Ip(config) | NetworkConfig::Ssm(config) => {
                Some(config.mediator.to_string())
            }
            NetworkConfig::Ltp(config) => Some(config.multicast.mediator.to_string()),
            NetworkConfig::Http(config) => config.mediator_url().ok().map(|url| url.to_string()),
            NetworkConfig::External(config) => {
                Some(config.directory.join("control.sock").display().to_string())
            }
        }
    }

    /// Returns the URL below which browsers find pages with players, without a slash at its end.
    #[must_use]
    pub fn players(&self) -> Option<String> {
        match self {
            NetworkConfig::Http(config) => config.players(0),
            _ => None,
        }
    }

    /// Returns the origins that a player of this process's sessions reads from, where the process has that many data nodes.
    #[must_use]
    pub(crate) fn player_origins(&self, parts: usize) -> Vec<String> {
        let NetworkConfig::Http(config) = self else {
            return Vec::new();
        };
        let of_part = |part| [config.players(part), config.moq_server(part)];
        (0..parts).flat_map(of_part).flatten().collect()
    }

    /// Opens the network, before privileges are dropped.
    ///
    /// # Errors
    /// A socket cannot be opened; the text says what to do.
    pub fn open(
        &self,
        role: Role,
        owner: Owner,
    ) -> Result<Box<dyn Network>, Box<dyn Error + Send + Sync>> {
        Ok(match self {
            NetworkConfig::None => Box::new(NoNetwork::new()?),
            NetworkConfig::Ip(config) => ip::open(config, role, owner)?,
            NetworkConfig::Ssm(config) => ssm::open(config, role, owner)?,
            NetworkConfig::Http(config) => http::open(config, role, owner)?,
            NetworkConfig::Ltp(config) => ltp::open(config, role, owner)?,
            NetworkConfig::External(config) => external::open(config, role, owner)?,
        })
    }
}
