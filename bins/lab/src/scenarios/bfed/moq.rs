//! Clients of Media over QUIC, by WebTransport, as browsers are.

use moq_net::{origin, track};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use web_transport_quinn::ClientBuilder;
use web_transport_quinn::proto::ConnectRequest;

use crate::prelude::*;

/// What WebTransport carries.
const PROTOCOL: &str = "moq-lite-04";
/// How old a group may be before it is left out.
const MAX_AGE: Duration = Duration::from_secs(2);

/// Connects to servers that show one certificate, all connections over one socket.
#[derive(Clone)]
pub(super) struct Connector(web_transport_quinn::Client);

impl Connector {
    /// Opens the socket. Call it in the client's namespace, within a runtime.
    pub(super) fn open(certificate: &Path) -> Result<Connector> {
        let certificate = CertificateDer::from_pem_file(certificate)?;
        let digest = ring::digest::digest(&ring::digest::SHA256, &certificate);
        let client =
            ClientBuilder::new().with_server_certificate_hashes(vec![digest.as_ref().to_vec()])?;
        Ok(Connector(client))
    }

    async fn connect(&self, url: &str) -> Result<web_transport_quinn::Session> {
        let request = ConnectRequest::new(url.parse::<url::Url>()?).with_protocol(PROTOCOL);
        Ok(self.0.connect(request).await?)
    }
}

/// Returns the broadcast of a session.
fn path_of(session: &str) -> &str {
    session.strip_prefix("bfed://").unwrap_or(session)
}

fn origin() -> origin::Producer {
    let (origin, driver) = origin::Producer::new(origin::Config::default());
    tokio::spawn(moq_net::time::run(driver));
    origin
}

/// A connection that reads broadcasts.
pub(super) struct Viewer {
    reads: origin::Producer,
    _session: moq_net::Session,
}

impl Viewer {
    pub(super) async fn connect(connector: &Connector, url: &str) -> Result<Viewer> {
        let (session, reads) = (connector.connect(url).await?, origin());
        let client = moq_net::Client::new().with_subscriber(reads.clone());
        let (session, driver) = client.connect(Instant::now(), session).await?;
        tokio::spawn(moq_net::time::run(driver));
        Ok(Viewer {
            reads,
            _session: session,
        })
    }

    /// Subscribes to the first flow of a session.
    pub(super) async fn track(&self, session: &str) -> Result<track::Subscriber> {
        let reads = self.reads.consume();
        let broadcast = reads.routed_broadcast(path_of(session)).await?;
        let subscription = track::Subscription::default().with_max_age(MAX_AGE);
        Ok(broadcast.track("0")?.subscribe(subscription).await?)
    }
}

/// A connection that publishes a session of one flow.
pub(super) struct Publisher {
    pub(super) track: track::Producer,
    _broadcast: moq_net::broadcast::Producer,
    _writes: origin::Producer,
    _session: moq_net::Session,
}

impl Publisher {
    pub(super) async fn connect(
        connector: &Connector,
        url: &str,
        session: &str,
    ) -> Result<Publisher> {
        let (connection, writes) = (connector.connect(url).await?, origin());
        let client = moq_net::Client::new().with_publisher(&writes);
        let (connection, driver) = client.connect(Instant::now(), connection).await?;
        tokio::spawn(moq_net::time::run(driver));
        let broadcast = writes.create_broadcast(path_of(session))?;
        let track = broadcast.create_track("0", None)?;
        broadcast.announce(origin::Route::default())?;
        Ok(Publisher {
            track,
            _broadcast: broadcast,
            _writes: writes,
            _session: connection,
        })
    }
}
