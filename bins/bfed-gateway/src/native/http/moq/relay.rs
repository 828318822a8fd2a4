//! A relay that this gateway publishes sessions at, and takes sessions of its own network from.
//!
//! The connection is opened again whenever it ends, after a pause that doubles up to [`MAX_PAUSE`] and is jittered by half. A
//! relay that is frozen is left after [`super::IDLE`].

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bfed::SessionName;
use bfed::native::ChannelId;
use moq_net::origin;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use url::Url;
use web_transport_quinn as quic;
use web_transport_quinn::quinn;

use super::super::presented::Presented;
use super::guard::Guarded;
use super::library::{Library, add, path_of, session_of};
use super::{ingest, versions};

/// Time to connect.
const CONNECT: Duration = Duration::from_secs(10);
/// The first pause, and the longest.
const PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// A connection that lasted this long was good, so the pauses start anew.
const GOOD: Duration = Duration::from_secs(60);
/// Most announcements of a relay that are kept.
const MAX_ANNOUNCED: usize = 4096;

/// A relay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RelayConfig {
    /// Where it is: `https://HOST:PORT/PATH`.
    pub url: Url,
    /// PEM file with the authorities that its certificate may come from; those of the system if not set.
    pub authority: Option<PathBuf>,
    /// File with a token, which is sent as `?jwt=`.
    pub token: Option<PathBuf>,
    /// Sessions that are published there.
    pub publish: Vec<SessionName>,
}

impl RelayConfig {
    /// Returns the configuration of TLS.
    pub(super) fn tls(&self) -> Result<ClientConfig, String> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| error.to_string())?;
        let builder = match &self.authority {
            Some(file) => {
                let shown = file.display();
                let wrong = |why: &dyn std::fmt::Display| {
                    format!("network.relay-authority: {shown} cannot be used: {why}")
                };
                let mut roots = RootCertStore::empty();
                let certificates =
                    CertificateDer::pem_file_iter(file).map_err(|error| wrong(&error))?;
                for certificate in certificates {
                    let certificate = certificate.map_err(|error| wrong(&error))?;
                    roots.add(certificate).map_err(|error| wrong(&error))?;
                }
                builder.with_root_certificates(roots)
            }
            None => {
                let found = rustls_native_certs::load_native_certs();
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(found.certs);
                builder.with_root_certificates(roots)
            }
        };
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![quic::ALPN.as_bytes().to_vec()];
        Ok(config)
    }

    /// Returns the URL with the token, which is read anew for each connection.
    fn with_token(&self) -> Result<Url, String> {
        let mut url = self.url.clone();
        if let Some(file) = &self.token {
            let token = std::fs::read_to_string(file);
            let token = token.map_err(|error| format!("{}: {error}", file.display()))?;
            url.query_pairs_mut().append_pair("jwt", token.trim_end());
        }
        Ok(url)
    }
}

/// The connection to a relay.
pub(super) struct Relay {
    config: RelayConfig,
    endpoint: quinn::Endpoint,
    client: quinn::ClientConfig,
    library: Arc<Library>,
    /// What is announced there.
    publish: origin::Producer,
    /// What it announces.
    subscribe: origin::Producer,
}

impl Relay {
    pub(super) fn new(
        config: RelayConfig,
        endpoint: quinn::Endpoint,
        client: quinn::ClientConfig,
        library: Arc<Library>,
    ) -> Arc<Self> {
        let (publish, driver) = origin::Producer::new(super::origin(&library.pool));
        tokio::spawn(moq_net::time::run(driver));
        let (subscribe, driver) = origin::Producer::new(super::origin(&library.pool));
        tokio::spawn(moq_net::time::run(driver));
        Arc::new(Relay {
            config,
            endpoint,
            client,
            library,
            publish,
            subscribe,
        })
    }

    /// Keeps a connection to the relay.
    pub(super) async fn run(self: Arc<Self>) {
        let mut pauses = Pauses(PAUSE);
        // A session is joined when the relay subscribes to it.
        let served = self.serve();
        let connected = async {
            loop {
                let began = Instant::now();
                let why = match self.connection().await {
                    Ok(why) | Err(why) => why,
                };
                add(&self.library.counts.relay_failures);
                let wait = jittered(pauses.next(began.elapsed()));
                let relay = self.config.url.host_str().unwrap_or_default();
                tracing::warn!(
                    event = "moq_relay_lost",
                    relay,
                    error = why,
                    retry_ms = wait.as_millis() as u64,
                    "no connection to the relay"
                );
                tokio::time::sleep(wait).await;
            }
        };
        tokio::join!(served, connected);
    }

    /// Announces the sessions, and serves them on request.
    async fn serve(&self) {
        let mut all = tokio::task::JoinSet::new();
        for session in &self.config.publish {
            let route = origin::Route::default();
            let Ok(dynamic) = self.publish.dynamic(path_of(session), route) else {
                return;
            };
            let library = Arc::clone(&self.library);
            all.spawn(async move {
                while let Ok(request) = dynamic.requested_broadcast().await {
                    let Some(session) = session_of(request.path().as_str()) else {
                        request.reject(moq_net::Error::NotFound);
                        continue;
                    };
                    match library.find(&session, &Presented::default()).await {
                        Ok(broadcast) => request.accept(broadcast),
                        Err(error) => request.reject(error),
                    }
                }
            });
        }
        while all.join_next().await.is_some() {}
        std::future::pending::<()>().await;
    }

    /// Connects, and returns why the connection ended.
    async fn connection(&self) -> Result<String, String> {
        let url = self.config.with_token()?;
        let client = quic::Client::new(self.endpoint.clone(), self.client.clone());
        let protocols = versions().alpns().into_iter().map(str::to_owned);
        let request = quic::proto::ConnectRequest::new(url).with_protocols(protocols);
        let connect = tokio::time::timeout(CONNECT, client.connect(request)).await;
        let connected = connect.map_err(|_| "the relay does not answer")?;
        let session = connected.map_err(|error| error.to_string())?;
        let client = moq_net::Client::new()
            .with_versions(versions())
            .with_publisher(&self.publish)
            .with_subscriber(self.subscribe.clone());
        let started = client
            .connect_lite(Instant::now(), Guarded::new(session))
            .await;
        let (session, driver) = started.map_err(|error| error.to_string())?;
        add(&self.library.counts.relay_connects);
        let relay = self.config.url.host_str().unwrap_or_default();
        tracing::info!(
            event = "moq_relay_connected",
            relay,
            version = %session.version(),
            "connected to the relay"
        );
        let flooded = async {
            let mut announced = self.subscribe.consume().announced();
            let mut count = 0usize;
            while let Some(update) = announced.next().await {
                count = match update.kind.is_active() {
                    true => count + 1,
                    false => count.saturating_sub(1),
                };
                if count > MAX_ANNOUNCED {
                    return;
                }
            }
        };
        Ok(tokio::select! {
            error = moq_net::time::run(driver) => error.to_string(),
            () = flooded => format!("the relay announced more than {MAX_ANNOUNCED} broadcasts"),
        })
    }

    /// Reads a flow of a session into the hub while the data node is subscribed.
    pub(super) async fn fetch(self: Arc<Self>, channel: ChannelId) {
        let shared = &self.library.shared;
        let Some(key) = shared.hub().key_of(channel) else {
            return;
        };
        let Ok(session) = SessionName::parse(&key.0) else {
            return;
        };
        while shared.hub().listens(channel) {
            let read = async {
                let consumer = self.subscribe.consume();
                let broadcast = consumer.routed_broadcast(path_of(&session)).await?;
                ingest::flow(&self.library, &key, &session, &broadcast).await
            };
            tokio::select! {
                done = read => tracing::debug!(%session, ?done, "the session at the relay"),
                () = super::super::edge::unwanted(shared, channel) => return,
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// The next pause.
struct Pauses(Duration);

impl Pauses {
    /// Returns the pause after a connection, or an attempt, that lasted that long.
    fn next(&mut self, lasted: Duration) -> Duration {
        if lasted >= GOOD {
            self.0 = PAUSE;
        }
        let pause = self.0;
        self.0 = (pause * 2).min(MAX_PAUSE);
        pause
    }
}

/// Returns half of a time, and a random part of the other half.
fn jittered(pause: Duration) -> Duration {
    let random = linux_net::process::random::<2>().unwrap_or([128, 0]);
    let part = u32::from(u16::from_le_bytes(random));
    pause / 2 + pause / 2 * part / u32::from(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_a_connection_was_good() {
        let mut pauses = Pauses(PAUSE);
        // A relay that takes connections and then says nothing is not good.
        let failures = [CONNECT, super::super::IDLE];
        let seconds: Vec<u64> = (0..8)
            .map(|at| pauses.next(failures[at % 2]).as_secs())
            .collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(pauses.next(GOOD), PAUSE);
        assert_eq!(pauses.next(Duration::ZERO), PAUSE * 2);
    }

    #[test]
    fn pauses_are_jittered_by_half() {
        for _ in 0..1000 {
            let pause = jittered(MAX_PAUSE);
            assert!((MAX_PAUSE / 2..=MAX_PAUSE).contains(&pause), "{pause:?}");
        }
    }
}
