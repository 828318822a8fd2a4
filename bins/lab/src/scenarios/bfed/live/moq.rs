//! A viewer of Media over QUIC without a screen, by WebTransport, as a browser is.

use media::group::Header;
use moq_net::{origin, track};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use web_transport_quinn::ClientBuilder;
use web_transport_quinn::proto::ConnectRequest;

use super::SESSION;
use super::film::PictureLog;
use super::viewers::{Seen, watch};
use crate::prelude::*;

/// What WebTransport carries.
const PROTOCOL: &str = "moq-lite-04";
/// How old a group may be before it is left out.
const MAX_AGE: Duration = Duration::from_secs(2);

/// A connection to a listener that shows this certificate.
pub(super) struct Client {
    reads: origin::Producer,
    _session: moq_net::Session,
}

impl Client {
    pub(super) async fn connect(url: &str, certificate: &Path) -> Result<Client> {
        let certificate = CertificateDer::from_pem_file(certificate)?;
        let digest = ring::digest::digest(&ring::digest::SHA256, &certificate);
        let client =
            ClientBuilder::new().with_server_certificate_hashes(vec![digest.as_ref().to_vec()])?;
        let request = ConnectRequest::new(url.parse::<url::Url>()?).with_protocol(PROTOCOL);
        let session = client.connect(request).await?;
        let (reads, driver) = origin::Producer::new(origin::Config::default());
        tokio::spawn(moq_net::time::run(driver));
        let client = moq_net::Client::new().with_subscriber(reads.clone());
        let (session, driver) = client.connect(Instant::now(), session).await?;
        tokio::spawn(moq_net::time::run(driver));
        Ok(Client {
            reads,
            _session: session,
        })
    }

    pub(super) async fn track(&self) -> Result<track::Subscriber> {
        let broadcast = SESSION.strip_prefix("bfed://").unwrap_or(SESSION);
        let broadcast = self.reads.consume().routed_broadcast(broadcast).await?;
        let subscription = track::Subscription::default().with_max_age(MAX_AGE);
        Ok(broadcast.track("0")?.subscribe(subscription).await?)
    }
}

/// Subscribes to the film, and takes each object as it comes.
pub(super) fn view(url: &str, certificate: &Path, seconds: Duration) -> Result<Seen> {
    let mut seen = Seen::default();
    watch(seconds, &mut seen, async |seen: &mut Seen| {
        let (started, mut log) = (Instant::now(), PictureLog::default());
        let client = Client::connect(url, certificate).await?;
        let mut groups = client.track().await?.ordered();
        while let Some(mut group) = groups.next_group().await? {
            let header = group.read_frame().await?.context("an empty group")?;
            let header = Header::parse(&header.payload)?;
            if seen.first.is_none() {
                log.push(header.init, |_| ());
            }
            while let Some(frame) = group.read_frame().await? {
                log.push(&frame.payload, |picture| seen.take(started, picture));
            }
        }
        Ok(())
    })?;
    Ok(seen)
}
