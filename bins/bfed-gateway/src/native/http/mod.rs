//! An HTTP network (§5.3.1: "a CDN URL that can be interpreted by the CDN's servers"): a session is a body
//! without end, which any player or `curl` reads and writes over plain HTTP/1.1.
//!
//! Each data node is a server, each an *edge* for readers; the *origin* is the one that sources of this
//! network send to. The control node's is the mediator. An edge may speak TLS to browsers on a second port (`tls`).
//!
//! | request | at | does |
//! | --- | --- | --- |
//! | `GET /s/NAME`, `/s/NAME/FLOW` | an edge | the session's flow as it comes, from now on; NAME is the session's, percent-encoded, FLOW its number from 0. For a session of another network that this edge does not have, it asks the mediator and redirects (307) to the edge that has it |
//! | `GET /hls/NAME/index.m3u8`, `/play/NAME`, `/info/NAME` | an edge | HLS, a page with a player, JSON: see `view`; FLOW follows the name as above. Redirected in the same way |
//! | `GET /sessions` | an edge | JSON of all sessions here, for hosts in `list` |
//! | `PUT`, `POST` to `/s/...` | the origin | is the session's source, if the host is in `publish`, and a page in a browser in `origins`: one at a time unless it has many sources; 403 to other hosts |
//! | `GET /s/...` | the mediator | joins, and redirects to an edge |
//! | `POST /mediator` | the mediator | the body is a REQUEST, that of the answer an ANSWER |
//!
//! Where the configuration requires tokens, a request carries one in the header `Authorization: Bearer TOKEN` or in the
//! query, `?token=TOKEN`; redirections repeat the query's.
//!
//! Edges keep sessions alive: while a session has readers, its edge refreshes it at the mediator on their behalf (§5.2.1: "native broadcast components such as a CDN's edge servers
//! themselves can incorporate the functionality of the mediator").
//!
//! | bound | effect |
//! | --- | --- |
//! | `max-connections` of a server | further ones wait to be accepted |
//! | head of a request: 64 KiB, 64 fields, 10 s | 431, or the connection is closed |
//! | a REQUEST: 4 KiB, 10 s | 413, 408 |
//! | a source that is silent for 60 s | 408; another host may be the source |
//! | a reader without data for 120 s | the response ends |
//! | `queue` bytes for a reader of a real-time session | the oldest frame is dropped and counted |
//! | `queue` bytes for a reader of a bulk session | the source is paused; a reader that takes nothing for `idle-timeout` is cut off and counted |
//! | 1 MiB for the data node | the source is paused |
//! | half of `queue` bytes since the last key frame of a flow | late readers wait for the next key frame |
//! | `hls-memory` bytes of segments of a flow, `hls-sessions` flows | the oldest segment is removed; 503 |
//! | `hls-sessions-per-client` flows that clients of one address alone watch; those of an IPv6 network of 64 bits count together | 429 |
//! | a request for a part or playlist that comes next waits 20 s | 503 |
//! | an answer of known length is taken within three times `idle-timeout` | the connection is closed |
//! | a TLS handshake takes 10 s | the connection is closed |

mod edge;
mod front;
mod hub;
mod live;
mod moq;
mod origins;
mod presented;
mod server;
mod tls;
pub(crate) mod view;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use bfed::native::{ChannelId, Direction, NativeError, NativeFlow, Upcall};
use bfed::wire::address::MAX_NATIVE_ADDRESS_LEN;
use bfed::wire::data::HEADER_LEN;
use bfed::{Instant, NativeNet, Prefix};
use bfed_client::{Url, session_path};

use super::listing::MAX_LISTED;
use super::{Access, ClientLimits, Counter, Network, Owner, PresentedFlow, Role, upcall};
use hub::{Item, Key, Shared};
use moq::Moq;
pub use moq::{MoqConfig, RelayConfig};
use server::Server;
pub use tls::TlsConfig;

/// An HTTP network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpConfig {
    /// Listening address of the first data node's server; the others use the ports that follow.
    pub listen: SocketAddr,
    /// Where the servers also speak TLS, for browsers.
    pub tls: Option<TlsConfig>,
    /// The servers' host name for readers; the address of `listen` if not set.
    pub host: Option<String>,
    /// Listening address of the mediator.
    pub mediator: SocketAddr,
    /// URL of the mediator for edges; `mediator` if not set.
    pub ask: Option<Url>,
    /// URL of the origin, which takes this network's sources; the first data node if not set.
    pub origin: Option<Url>,
    /// Hosts that may be the source of a session.
    pub publish: Vec<Prefix>,
    /// Origins of pages in browsers that may publish, beside the servers' own: `https://studio.example`.
    pub origins: Vec<String>,
    /// Hosts that may list the sessions.
    pub list: Vec<Prefix>,
    /// Most bytes of the segments of one session for HLS.
    pub hls_memory: usize,
    /// Most sessions with segments of HLS at a time, on each server.
    pub hls_sessions: usize,
    /// Most of them that clients of one address alone watch.
    pub hls_sessions_per_client: usize,
    /// Longest part of a segment.
    pub hls_part: Duration,
    /// Most connections of a server.
    pub max_connections: usize,
    /// Most bytes that wait for one reader.
    pub queue: usize,
    /// Time after which a reader of a bulk session that takes nothing is cut off.
    pub idle_timeout: Duration,
    /// Bounds of the mediator.
    pub limits: ClientLimits,
    /// Cost of this gateway for sessions of this network, from their root on; `None`: not told.
    pub cost: Option<u32>,
    /// Media over QUIC, of a network of `kind = "moq"`.
    pub moq: Option<MoqConfig>,
}

/// Returns an address to connect to for a listening address.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => [127, 0, 0, 1].into(),
        IpAddr::V6(_) => [0, 0, 0, 0, 0, 0, 0, 1u16].into(),
    };
    SocketAddr::new(ip, address.port())
}

impl HttpConfig {
    /// Creates a configuration with these listeners and default bounds.
    #[must_use]
    pub fn new(listen: SocketAddr, mediator: SocketAddr) -> Self {
        let loopback = [
            Prefix::new(Ipv4Addr::new(127, 0, 0, 0).into(), 8),
            Prefix::new(Ipv6Addr::LOCALHOST.into(), 128),
        ];
        let loopback: Vec<Prefix> = loopback.into_iter().flatten().collect();
        HttpConfig {
            listen,
            tls: None,
            host: None,
            mediator,
            ask: None,
            origin: None,
            publish: loopback.clone(),
            origins: Vec::new(),
            list: loopback,
            hls_memory: 16 << 20,
            hls_sessions: 16,
            hls_sessions_per_client: 4,
            hls_part: Duration::from_millis(300),
            max_connections: 4096,
            queue: 4 << 20,
            idle_timeout: Duration::from_secs(10),
            limits: ClientLimits::default(),
            cost: None,
            moq: None,
        }
    }

    fn authority(&self, part: usize) -> Result<String, String> {
        let port = usize::from(self.listen.port()) + part;
        let port = u16::try_from(port).map_err(|_| "listen: no port is left for each data node")?;
        Ok(match &self.host {
            Some(host) => format!("{host}:{port}"),
            None => SocketAddr::new(reachable(self.listen).ip(), port).to_string(),
        })
    }

    fn bounds(&self) -> hub::Bounds {
        let part_target = bfed::Duration::from_micros(self.hls_part.as_micros() as u64);
        hub::Bounds {
            queue: self.queue,
            idle_timeout: self.idle_timeout,
            hls: media::hls::Config {
                part_target,
                bytes: self.hls_memory,
                ..media::hls::Config::default()
            },
            hls_sessions: self.hls_sessions,
            hls_sessions_per_client: self.hls_sessions_per_client,
        }
    }

    /// Returns the pages that may publish at a data node's server.
    fn origins(&self, part: usize, moq: Option<&moq::Handle>) -> origins::Origins {
        let part = part as u16;
        let plain = self.listen.port().checked_add(part);
        let secure = self.tls.as_ref().map(|tls| tls.listen.port());
        let secure = secure.and_then(|port| port.checked_add(part));
        let ports = [plain, secure, moq.and_then(moq::Handle::port)];
        origins::Origins {
            listed: self.origins.clone(),
            host: self.host.clone(),
            ports: ports.into_iter().flatten().collect(),
        }
    }

    fn server_bounds(&self) -> server::Bounds {
        server::Bounds {
            max_connections: self.max_connections,
            take: self.idle_timeout * 3,
        }
    }

    /// Returns the listening address with TLS of a data node's server.
    fn tls(&self, part: usize) -> Result<Option<(SocketAddr, Arc<tls::Tls>)>, String> {
        let Some(config) = &self.tls else {
            return Ok(None);
        };
        let port = usize::from(config.listen.port()) + part;
        let port =
            u16::try_from(port).map_err(|_| "tls-listen: no port is left for each data node")?;
        let tls = tls::Tls::open(config, self.listen.port())?;
        Ok(Some((
            SocketAddr::new(config.listen.ip(), port),
            Arc::new(tls),
        )))
    }

    /// Returns the URL of a data node's server for browsers, without a slash at its end.
    pub(super) fn players(&self, part: usize) -> Option<String> {
        let plain = format!("http://{}/", self.authority(part).ok()?);
        let secure = self
            .tls
            .as_ref()
            .and_then(|tls| tls::secure((self.listen.port(), tls.listen.port()), &plain));
        let url = secure.unwrap_or(plain);
        Some(url.trim_end_matches('/').to_owned())
    }

    /// Returns the URL of a data node's listener for MoQ, for browsers.
    pub(super) fn moq_server(&self, part: usize) -> Option<String> {
        let listen = self.moq.as_ref()?.listener.as_ref()?.listen;
        let port = u16::try_from(usize::from(listen.port()) + part).ok()?;
        let authority = self.authority(part).ok()?;
        let (host, _) = authority.rsplit_once(':')?;
        Some(format!("https://{host}:{port}"))
    }

    pub(super) fn mediator_url(&self) -> Result<Url, String> {
        match &self.ask {
            Some(url) => Ok(url.clone()),
            None => {
                let server = server(&reachable(self.mediator).to_string())?;
                server.with_path("/mediator").map_err(|e| e.to_string())
            }
        }
    }
}

/// Returns the URL of a server.
fn server(authority: &str) -> Result<Url, String> {
    let url = format!("http://{authority}/").parse::<Url>();
    url.map_err(|error| error.to_string())
}

/// Opens the network.
pub(super) fn open(
    config: &HttpConfig,
    role: Role,
    owner: Owner,
) -> Result<Box<dyn Network>, String> {
    match role {
        Role::Mediator => front::open(config, owner),
        Role::Channels { part, .. } => Ok(Box::new(HttpNet::open(config, part, owner)?)),
    }
}

/// The data side: one server.
struct HttpNet {
    shared: Arc<Shared>,
    server: Server,
    base: Url,
    /// The origin, unless this server is it.
    origin: Option<Url>,
    /// Whether the origin is in this process.
    is_origin_own: bool,
    access: Arc<Access>,
    moq: Option<Arc<moq::Handle>>,
}

impl HttpNet {
    fn open(config: &HttpConfig, part: usize, owner: Owner) -> Result<Self, String> {
        let base = server(&config.authority(part)?)?;
        let listen = SocketAddr::new(config.listen.ip(), config.listen.port() + part as u16);
        let own = |origin: &Url| origin.authority() != base.authority();
        let first = server(&config.authority(0)?)?;
        let origin = Some(config.origin.clone().unwrap_or(first)).filter(own);
        let shared = Shared::new(config.bounds()).map_err(|error| error.to_string())?;
        let secure = config.tls(part)?;
        let moq = config.moq.as_ref().map(|moq| Moq::open(moq, part));
        let moq = moq.transpose()?;
        let handle = moq.as_ref().map(|moq| Arc::clone(&moq.handle));
        let edge = edge::Edge {
            shared: Arc::clone(&shared),
            network: owner.gateway.network,
            base: base.clone(),
            origin: origin.clone(),
            publish: config.publish.clone(),
            origins: config.origins(part, handle.as_deref()),
            list: config.list.clone(),
            tls: secure.as_ref().map(|(_, tls)| Arc::clone(tls)),
            mediator: config.mediator_url()?,
            is_mediator_own: config.ask.is_none(),
            access: Arc::clone(&owner.access),
            moq: handle.clone(),
            nonce: u32::from_le_bytes([owner.seed[0], owner.seed[1], owner.seed[2], 1])
                ^ part as u32,
        };
        // The driver polls, and that starts the server.
        shared.waker.wake();
        let same = moq.is_some().then(|| Arc::new(edge.clone()));
        let server = Server::open(listen, secure, config.server_bounds(), edge)?;
        if let (Some(moq), Some(edge)) = (moq, same) {
            server.spawn(moq.run(edge));
        }
        Ok(HttpNet {
            shared,
            server,
            base,
            origin,
            is_origin_own: config.origin.is_none(),
            access: owner.access,
            moq: handle,
        })
    }
}

fn key(flow: NativeFlow<'_>) -> Key {
    let at = flow.session.flows().position(|name| name == flow.name);
    (flow.session.as_str().to_owned(), at.unwrap_or(0))
}

impl AsFd for HttpNet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.waker.as_fd()
    }
}

// Readers keep sessions alive, not gateways: refreshes do nothing.
impl NativeNet for HttpNet {
    fn allocate_channel(
        &mut self,
        _: Instant,
        flow: NativeFlow<'_>,
    ) -> Result<(ChannelId, Vec<u8>), NativeError> {
        let (text, at) = key(flow);
        let path = session_path(&text, at);
        let channel = self.shared.hub().add((text, at), flow)?;
        let short = format!("/c/{}", channel.0);
        let urls = [path, short].map(|path| self.base.with_path(&path));
        let mut urls = urls.into_iter().flatten().map(|url| url.to_string());
        match urls.find(|url| url.len() <= MAX_NATIVE_ADDRESS_LEN) {
            Some(url) => Ok((channel, url.into_bytes())),
            None => {
                self.shared.hub().remove(channel);
                Err(NativeError::Refused)
            }
        }
    }

    fn subscribe(
        &mut self,
        _: Instant,
        flow: NativeFlow<'_>,
        channel: ChannelId,
        address: Option<&[u8]>,
    ) -> Result<(), NativeError> {
        let own = self.access.own_token();
        let token = match address {
            Some(_) => own,
            None => own.or_else(|| self.is_origin_own.then(|| self.access.pass())),
        };
        let from = match (address, &self.origin) {
            (Some(address), _) => {
                let text = core::str::from_utf8(address).map_err(|_| NativeError::NoSession)?;
                Some(text.parse::<Url>())
            }
            (None, Some(origin)) if flow.direction == Direction::Up => {
                let (text, at) = key(flow);
                Some(origin.with_path(&session_path(&text, at)))
            }
            (None, _) => None,
        };
        let from = from.transpose().map_err(|_| NativeError::NoSession)?;
        self.shared.hub().listen(channel)?;
        // What the stream has had before is there at once.
        self.shared.waker.wake();
        let is_own = address.is_none() && flow.direction == Direction::Up;
        let relayed = self.moq.as_ref().filter(|_| is_own && from.is_none());
        if let Some(fetched) = relayed.and_then(|moq| moq.fetch(channel)) {
            self.server.spawn(fetched);
        }
        if let Some(from) = from {
            let fetched = edge::fetch(Arc::clone(&self.shared), channel, from, token);
            self.server.spawn(fetched);
        }
        Ok(())
    }

    fn unsubscribe(&mut self, _: Instant, _: NativeFlow<'_>, channel: ChannelId) {
        self.shared.hub().unsubscribe(channel);
        self.shared.room.notify_waiters();
    }

    fn reclaim_channel(&mut self, _: Instant, _: NativeFlow<'_>, channel: ChannelId) {
        self.shared.hub().remove(channel);
        self.shared.room.notify_waiters();
    }

    fn send_data(&mut self, _: Instant, id: ChannelId, data: &[u8]) -> Result<(), NativeError> {
        self.shared.hub().send(id, data)
    }

    fn send_init(&mut self, _: Instant, id: ChannelId, init: &[u8]) {
        self.shared.hub().set_init(id, init);
    }

    fn poll_upcall(&mut self, _: Instant, buffer: &mut [u8]) -> Option<Upcall> {
        self.server.start();
        let (channel, item) = self.shared.received()?;
        let (upcall, bytes) = match item {
            Item::Data(bytes, class) => (upcall(channel, bytes.len(), class), bytes),
            Item::Init(bytes) => {
                let len = bytes.len();
                (Upcall::Init { channel, len }, bytes)
            }
        };
        buffer[HEADER_LEN..HEADER_LEN + bytes.len()].copy_from_slice(&bytes);
        Some(upcall)
    }
}

impl Network for HttpNet {
    fn set_paused(&mut self, channel: ChannelId, paused: bool) {
        self.shared.hub().set_paused(channel, paused);
        self.shared.room.notify_waiters();
    }

    fn poll_writable(&mut self) -> Option<ChannelId> {
        self.shared.writable()
    }

    fn counters(&self) -> Vec<Counter> {
        let mut counters = self.shared.hub().counters();
        counters.extend(self.moq.iter().flat_map(|moq| moq.counters()));
        counters
    }

    fn gauges(&self) -> Vec<Counter> {
        let mut gauges = self.shared.hub().gauges();
        gauges.extend(self.moq.iter().flat_map(|moq| moq.gauges()));
        gauges
    }

    fn presented(&self) -> Vec<PresentedFlow> {
        let all = self.shared.hub().all_viewed(MAX_LISTED + 1);
        let all = all.iter();
        let subscribers = |session: &str, flow: usize| {
            let moq = self.moq.as_ref().filter(|_| flow == 0);
            moq.map_or(0, |moq| moq.viewers(session))
        };
        all.filter_map(|viewed| {
            let mut one = view::presented(viewed, &self.base)?;
            let (session, flow) = (one.session.as_str(), one.flow);
            one.viewers = Some(viewed.viewers + subscribers(session, flow));
            Some(one)
        })
        .collect()
    }
}
