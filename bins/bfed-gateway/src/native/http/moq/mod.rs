//! Media over QUIC: the sessions of an HTTP network for MoQ subscribers and publishers, over WebTransport and QUIC, and at
//! a relay. Versions moq-lite-03 to moq-lite-06, by `moq-net`.
//!
//! A session `bfed://7/film` is the broadcast `7/film`, its flow N the track `N`. The objects of a track are the pieces
//! of the stream in groups, each with a header ([`media::group`]).
//!
//! | module | content |
//! | --- | --- |
//! | `groups` | cuts streams into groups, and joins them again |
//! | `library` | broadcasts of sessions, shared by all subscribers; reads the hub |
//! | `ingest` | broadcasts of publishers and of the relay, written to the hub |
//! | `listener` | clients: limits, handshakes, authorisation |
//! | `relay` | the connection to a relay |
//! | `guard` | bounds of control streams |
//! | `gate` | keeps operations that wait from being tried again |

mod gate;
mod groups;
mod guard;
mod ingest;
mod library;
mod listener;
mod relay;

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bfed::native::ChannelId;
use moq_net::{Version, Versions, cache, origin};
use serde_json::{Value, json};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use web_transport_quinn as quic;
use web_transport_quinn::quinn;

use super::edge::Edge;
use super::tls::{self, Stamp, TlsConfig};
use crate::native::Counter;
use library::{Counts, Library};
use listener::Limits;
use relay::Relay;
pub use relay::RelayConfig;

/// Time after which a silent peer is gone.
const IDLE: Duration = Duration::from_secs(15);
/// Most streams of each direction that a client has open.
const MAX_STREAMS: u32 = 64;
/// Most bytes that a peer has not acknowledged, and most that it may send before they are read.
const WINDOW: u32 = 1 << 20;
/// Time between looks at the certificate's files.
const LOOK: Duration = Duration::from_secs(60);

/// Media over QUIC beside an HTTP network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MoqConfig {
    /// Listener of the first data node, and its certificate; the others use the ports that follow.
    pub listener: Option<TlsConfig>,
    /// Browsers check the certificate by its SHA-256, which `/info` gives them: it may be self-signed.
    pub is_pinned: bool,
    /// Most clients at a time.
    pub clients: usize,
    /// Most clients of one address.
    pub per_address: usize,
    /// Most bytes of groups for slow and late subscribers, of all sessions.
    pub memory: u64,
    /// How late a group may be.
    pub max_age: Duration,
    /// A relay.
    pub relay: Option<RelayConfig>,
}

impl Default for MoqConfig {
    fn default() -> Self {
        MoqConfig {
            listener: None,
            is_pinned: false,
            clients: 1024,
            per_address: 32,
            memory: 64 << 20,
            max_age: Duration::from_secs(2),
            relay: None,
        }
    }
}

/// Returns the versions that are offered, the preferred one first.
fn versions() -> Versions {
    let names = ["moq-lite-06", "moq-lite-05", "moq-lite-04", "moq-lite-03"];
    let all: Vec<Version> = names
        .iter()
        .filter_map(|name| Version::from_alpn(name))
        .collect();
    Versions::from(all)
}

fn origin(pool: &cache::Pool) -> origin::Config {
    let mut config = origin::Config::default();
    config.pool = pool.clone();
    config
}

/// A data node's listener and relay, opened and not running.
pub(super) struct Moq {
    config: MoqConfig,
    socket: UdpSocket,
    server: Option<quinn::ServerConfig>,
    client: Option<quinn::ClientConfig>,
    pub(super) handle: Arc<Handle>,
}

/// What the network knows of its MoQ while it runs.
#[derive(Default)]
pub(super) struct Handle {
    counts: Arc<Counts>,
    relay: OnceLock<Arc<Relay>>,
    has_relay: bool,
    listener: Option<(TlsConfig, u16)>,
    is_pinned: bool,
    /// Files of the certificate when they were read, and its SHA-256.
    certificate: Mutex<(Option<Stamp>, String)>,
}

impl Moq {
    /// Opens the socket and reads all files, before privileges are dropped. `part` is the data node's number.
    pub(super) fn open(config: &MoqConfig, part: usize) -> Result<Self, String> {
        let any = SocketAddr::from(([0u16; 8], 0));
        let (mut address, mut server) = (any, None);
        let mut handle = Handle {
            has_relay: config.relay.is_some(),
            is_pinned: config.is_pinned,
            ..Handle::default()
        };
        if let Some(listener) = &config.listener {
            let port = usize::from(listener.listen.port()) + part;
            let port = u16::try_from(port)
                .map_err(|_| "moq-listen: no port is left for each data node")?;
            address = SocketAddr::new(listener.listen.ip(), port);
            handle.listener = Some((listener.clone(), port));
            server = Some(handle.read(listener)?);
        }
        let socket = UdpSocket::bind(address).or_else(|error| match address == any {
            // A host without IPv6.
            true => UdpSocket::bind("0.0.0.0:0"),
            false => Err(error),
        });
        let socket = socket.map_err(|error| format!("MoQ listener at {address}: {error}"))?;
        let client = match &config.relay {
            Some(relay) => {
                let tls = relay.tls()?;
                let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(tls);
                let crypto = crypto.map_err(|error| error.to_string())?;
                let mut client = quinn::ClientConfig::new(Arc::new(crypto));
                client.transport_config(transport());
                Some(client)
            }
            None => None,
        };
        Ok(Moq {
            config: config.clone(),
            socket,
            server,
            client,
            handle: Arc::new(handle),
        })
    }

    /// Runs on the server's thread.
    pub(super) async fn run(self, edge: Arc<Edge>) {
        let runtime = Arc::new(quinn::TokioRuntime);
        let endpoint = quinn::EndpointConfig::default();
        let endpoint = quinn::Endpoint::new(endpoint, self.server, self.socket, runtime);
        let endpoint = match endpoint {
            Ok(endpoint) => endpoint,
            Err(error) => {
                tracing::error!(event = "moq_failed", %error, "cannot open the MoQ endpoint");
                return;
            }
        };
        let pool = cache::Config::default()
            .with_capacity(self.config.memory)
            .with_expiry(cache::DEFAULT_EXPIRY);
        let pool = cache::Pool::new(pool);
        let counts = Arc::clone(&self.handle.counts);
        let library = Library::new(edge, pool, self.config.max_age, counts);
        if let (Some(relay), Some(client)) = (self.config.relay, self.client) {
            let relay = Relay::new(relay, endpoint.clone(), client, Arc::clone(&library));
            tokio::spawn(Arc::clone(&relay).run());
            let _ = self.handle.relay.set(relay);
        }
        let limits = Limits {
            clients: self.config.clients,
            per_address: self.config.per_address,
        };
        let accepted = listener::accept(endpoint.clone(), library, limits);
        tokio::select! {
            () = accepted => {}
            () = self.handle.watch(&endpoint) => {}
        }
    }
}

/// Returns the parameters of connections.
fn transport() -> Arc<quinn::TransportConfig> {
    let mut transport = quinn::TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(MAX_STREAMS.into())
        .max_concurrent_uni_streams(MAX_STREAMS.into())
        .stream_receive_window((WINDOW / 4).into())
        .receive_window(WINDOW.into())
        .send_window(WINDOW.into())
        .datagram_receive_buffer_size(Some(64 << 10))
        .datagram_send_buffer_size(64 << 10)
        .max_idle_timeout(quinn::IdleTimeout::try_from(IDLE).ok())
        .keep_alive_interval(Some(IDLE / 3));
    Arc::new(transport)
}

impl Handle {
    /// Reads the certificate.
    fn read(&self, config: &TlsConfig) -> Result<quinn::ServerConfig, String> {
        let files = [config.certificate.clone(), config.key.clone()];
        let stamp = tls::stamp(&files);
        let mut alpns = versions().alpns();
        alpns.push(quic::ALPN);
        let config = tls::read(&files, ["moq-certificate", "moq-key"], &alpns)?;
        let leaf = CertificateDer::pem_file_iter(&files[0]).ok();
        let leaf = leaf.and_then(|mut chain| chain.next()?.ok());
        let provider = Arc::new(ring::default_provider());
        let hash = leaf.map(|leaf| quic::crypto::sha256(&provider, &leaf));
        let hash = hash.map(|hash| hash.as_ref().iter().map(|b| format!("{b:02x}")).collect());
        let mut current = self
            .certificate
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *current = (Some(stamp), hash.unwrap_or_default());
        let crypto =
            quinn::crypto::rustls::QuicServerConfig::try_from(ServerConfig::clone(&config));
        let crypto = crypto.map_err(|error| error.to_string())?;
        let mut server = quinn::ServerConfig::with_crypto(Arc::new(crypto));
        server
            .transport_config(transport())
            .max_incoming(256)
            .incoming_buffer_size(64 << 10)
            .incoming_buffer_size_total(4 << 20);
        Ok(server)
    }

    /// Reads the certificate again when its files have changed.
    async fn watch(&self, endpoint: &quinn::Endpoint) {
        loop {
            tokio::time::sleep(LOOK).await;
            let Some((config, _)) = &self.listener else {
                continue;
            };
            let stamp = tls::stamp(&[config.certificate.clone(), config.key.clone()]);
            {
                let mut current = self
                    .certificate
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                if current.0.as_ref() == Some(&stamp) {
                    continue;
                }
                // A wrong file is reported once.
                current.0 = Some(stamp);
            }
            match self.read(config) {
                Ok(server) => {
                    endpoint.set_server_config(Some(server));
                    tracing::info!(
                        event = "moq_certificate_reloaded",
                        "certificate of the MoQ listener reloaded"
                    );
                }
                Err(error) => tracing::warn!(
                    event = "moq_certificate_rejected",
                    error,
                    "certificate of the MoQ listener rejected, the old one stays"
                ),
            }
        }
    }

    /// Returns the listener's port.
    pub(super) fn port(&self) -> Option<u16> {
        self.listener.as_ref().map(|(_, port)| *port)
    }

    /// Returns what a player needs to subscribe to a flow here.
    pub(super) fn offer(&self, session: &str, flow: usize) -> Option<Value> {
        let port = self.port()?;
        let current = self
            .certificate
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Some(json!({
            "port": port,
            "broadcast": session.strip_prefix("bfed://").unwrap_or(session),
            "track": flow.to_string(),
            "certificate": self.is_pinned.then(|| current.1.clone()),
        }))
    }

    /// Returns the reader of a session of this network at the relay.
    pub(super) fn fetch(
        self: &Arc<Self>,
        channel: ChannelId,
    ) -> Option<impl Future<Output = ()> + Send + 'static> {
        let handle = Arc::clone(self);
        self.has_relay.then_some(async move {
            // The relay is there once the server's thread runs.
            loop {
                if let Some(relay) = handle.relay.get() {
                    return Arc::clone(relay).fetch(channel).await;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
    }

    /// Returns the number of subscribers of a session.
    pub(super) fn viewers(&self, session: &str) -> usize {
        self.counts.audience.of(session)
    }

    /// Returns the counters.
    pub(super) fn counters(&self) -> Vec<Counter> {
        let counts = &self.counts;
        let all = [
            ("moq_clients_accepted", &counts.accepted),
            ("moq_clients_refused", &counts.refused),
            ("moq_requests_denied", &counts.denied),
            ("moq_groups", &counts.groups),
            ("moq_groups_malformed", &counts.malformed),
            ("moq_relay_connections", &counts.relay_connects),
            ("moq_relay_failures", &counts.relay_failures),
        ];
        let read = all.map(|(name, count)| (name, count.load(Ordering::Relaxed)));
        read.to_vec()
    }

    /// Returns the gauges.
    pub(super) fn gauges(&self) -> Vec<Counter> {
        vec![
            ("moq_clients", self.counts.clients.load(Ordering::Relaxed)),
            ("moq_viewers", self.counts.audience.count() as u64),
        ]
    }
}
