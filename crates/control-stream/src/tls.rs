//! `--key-file`: control connections over TLS 1.3 with authentication of both sides.
//!
//! A key file holds one of two things:
//!
//! - a secret of 32 bytes, raw or as 64 hexadecimal digits. Both sides derive the same Ed25519 key
//!   from it and accept nobody but who proves exactly that key (raw public keys, RFC 7250): whoever
//!   has the file may connect, and may pose as any of the others;
//! - PEM: this host's certificate, what leads from it to the authority if anything does, the
//!   authority's certificate last, and the private key anywhere. Each side verifies the other's
//!   certificate against that authority, the client also that it is the host it asked for.

use std::fmt;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer,
    UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName,
    Error, RootCertStore, ServerConfig, SignatureScheme,
};

/// Label for deriving the Ed25519 key from a secret.
const CONTEXT: &str = "polycast cli 1 Ed25519 key of control connections";
/// An Ed25519 private key in PKCS #8 (RFC 8410 §7) up to its 32 bytes.
const PKCS8: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// Configurations of both ends of TLS 1.3, from one key file.
#[derive(Clone)]
pub struct Credentials {
    /// For the side that connects.
    pub client: Arc<ClientConfig>,
    /// For the side that listens.
    pub server: Arc<ServerConfig>,
    /// Host names are checked: set for certificates, not for a secret.
    has_names: bool,
    /// What this side shows: its certificate, or the public key of the secret.
    pub(crate) own: CertificateDer<'static>,
    /// The authority, where there are certificates.
    pub(crate) roots: Option<Arc<RootCertStore>>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_names = &self.has_names;
        f.debug_struct("Credentials")
            .field("has_names", has_names)
            .finish_non_exhaustive()
    }
}

impl Credentials {
    /// Reads a key file.
    ///
    /// # Errors
    /// It cannot be read, others may read it, or it is no key: a sentence that says what to do.
    pub fn read(path: &Path) -> Result<Credentials, String> {
        let shown = path.display();
        let error = |error: &dyn fmt::Display| format!("key file {shown}: {error}");
        let metadata = std::fs::metadata(path).map_err(|e| error(&e))?;
        if metadata.mode() & 0o007 != 0 {
            return Err(format!(
                "key file {shown} is open to every user of this host: `chmod o= {shown}`"
            ));
        }
        let bytes = std::fs::read(path).map_err(|e| error(&e))?;
        let text = String::from_utf8_lossy(&bytes);
        let made = if text.contains("-----BEGIN ") {
            Credentials::from_pem(&bytes)
        } else {
            match proto_core::key::parse(&bytes) {
                Some(secret) => Credentials::from_secret(&secret),
                None => {
                    return Err(format!(
                        "key file {shown} is neither 32 bytes nor 64 hexadecimal digits: \
                         make one with `openssl rand -hex 32 > {shown}`"
                    ));
                }
            }
        };
        made.map_err(|message| error(&message))
    }

    /// Creates credentials from a secret.
    ///
    /// # Errors
    /// Only if the cryptographic provider lacks Ed25519.
    pub fn from_secret(secret: &[u8; 32]) -> Result<Credentials, String> {
        let seed = blake3::derive_key(CONTEXT, secret);
        let key = [&PKCS8[..], &seed].concat();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key));
        let provider = Arc::new(ring::default_provider());
        let wrong = |error: Error| error.to_string();
        let signing = provider.key_provider.load_private_key(key).map_err(wrong)?;
        let public = signing.public_key().ok_or("no public key")?.into_owned();
        let shown = CertificateDer::from(public.to_vec());
        let own = Arc::new(CertifiedKey::new(vec![shown.clone()], signing));
        let pinned = Arc::new(PinnedKey {
            public,
            provider: Arc::clone(&provider),
        });
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(wrong)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&pinned) as _)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
                Arc::clone(&own),
            )));
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(wrong)?
            .with_client_cert_verifier(pinned)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own)));
        Ok(Credentials::new(client, server, shown, None))
    }

    /// Creates credentials from certificates.
    ///
    /// # Errors
    /// What is missing or wrong.
    pub fn from_pem(pem: &[u8]) -> Result<Credentials, String> {
        let wrong = |error: &dyn fmt::Display| format!("not usable as PEM: {error}");
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let mut chain = certificates.map_err(|e| wrong(&e))?;
        if chain.len() < 2 {
            return Err(
                "two certificates are needed: this host's first, the authority's last".to_owned(),
            );
        }
        let key = PrivateKeyDer::from_pem_slice(pem)
            .map_err(|error| format!("no private key can be read from it: {error}"))?;
        let mut roots = RootCertStore::empty();
        if let Some(authority) = chain.pop() {
            roots.add(authority).map_err(|e| wrong(&e))?;
        }
        let roots = Arc::new(roots);
        let provider = Arc::new(ring::default_provider());
        let servers =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .build()
                .map_err(|e| wrong(&e))?;
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .build()
                .map_err(|e| wrong(&e))?;
        check_own(&chain, clients.as_ref(), UnixTime::now())?;
        let own = chain
            .first()
            .ok_or("this host's certificate is missing")?
            .clone();
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| wrong(&e))?
            .with_webpki_verifier(servers)
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(|e| wrong(&e))?;
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|e| wrong(&e))?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, key)
            .map_err(|e| wrong(&e))?;
        Ok(Credentials::new(client, server, own, Some(roots)))
    }

    fn new(
        mut client: ClientConfig,
        mut server: ServerConfig,
        own: CertificateDer<'static>,
        roots: Option<Arc<RootCertStore>>,
    ) -> Credentials {
        // Every connection authenticates both sides again; no session state is kept.
        client.resumption = rustls::client::Resumption::disabled();
        server.send_tls13_tickets = 0;
        Credentials {
            client: Arc::new(client),
            server: Arc::new(server),
            has_names: roots.is_some(),
            own,
            roots,
        }
    }

    /// Whether these are certificates, which have names. All holders of a secret are equal.
    #[must_use]
    pub const fn has_names(&self) -> bool {
        self.has_names
    }

    /// Returns the name that the server must prove; with a secret there are no names.
    ///
    /// # Errors
    /// `host` is neither a name nor an address.
    pub fn server_name(&self, host: &str) -> Result<ServerName<'static>, String> {
        let name = if self.has_names { host } else { "polycast" };
        ServerName::try_from(name.to_owned()).map_err(|_| format!("{host} is no host name"))
    }
}

/// Checks that other hosts would accept this host's certificate, so that its owner learns what is wrong with
/// it.
fn check_own(
    chain: &[CertificateDer<'_>],
    others: &dyn ClientCertVerifier,
    now: UnixTime,
) -> Result<(), String> {
    let Some((own, intermediates)) = chain.split_first() else {
        return Err("this host's certificate is missing".to_owned());
    };
    match others.verify_client_cert(own, intermediates, now) {
        Ok(_) => Ok(()),
        // A certificate for a server only: other hosts refuse it as a client's.
        Err(Error::InvalidCertificate(
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. },
        )) => Ok(()),
        Err(Error::InvalidCertificate(error)) => Err(format!(
            "this host's certificate (the first) {}; the authority's is the last",
            what_is_wrong(&error)
        )),
        Err(error) => Err(format!("this host's certificate (the first): {error}")),
    }
}

/// Writes a new secret to a file that only its owner may read, and that does not exist yet.
///
/// # Errors
/// Those of the file system; a sentence.
pub fn write_new_secret(path: &Path) -> Result<(), String> {
    let error = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut secret = [0; 32];
    ring::default_provider()
        .secure_random
        .fill(&mut secret)
        .map_err(|_| format!("{}: no random numbers to be had", path.display()))?;
    let mut text: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    text.push('\n');
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(error)?;
    file.write_all(text.as_bytes()).map_err(error)
}

/// Explains an error of a TLS handshake: a sentence about the peer, and what to do.
pub fn explain(error: &std::io::Error) -> String {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref());
    match tls {
        Some(Error::InvalidCertificate(error)) => match error {
            CertificateError::ApplicationVerificationFailure => "has another key".to_owned(),
            error => format!("its certificate {}", what_is_wrong(error)),
        },
        Some(Error::AlertReceived(alert)) => match alert {
            AlertDescription::CertificateExpired => {
                "refuses this side's certificate: it has expired, or a clock is wrong".to_owned()
            }
            AlertDescription::UnknownCA => {
                "refuses this side's certificate: it does not know its authority".to_owned()
            }
            alert => format!(
                "refuses this side's key or certificate, or is set up for another kind ({alert:?})"
            ),
        },
        Some(Error::NoCertificatesPresented) => "shows no certificate".to_owned(),
        Some(Error::PeerIncompatible(_)) => "is set up for another kind of key".to_owned(),
        Some(Error::InvalidMessage(_)) => "does not speak TLS: no key is set there?".to_owned(),
        Some(error) => error.to_string(),
        None if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            "hung up in the middle of the TLS handshake".to_owned()
        }
        None => error.to_string(),
    }
}

/// The text that follows "the certificate".
fn what_is_wrong(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "has expired (or a clock is wrong)".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not valid yet (or a clock is wrong)".to_owned()
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "is not from the authority in the key file".to_owned()
        }
        CertificateError::NotValidForName => "is for another host".to_owned(),
        CertificateError::NotValidForNameContext { presented, .. } => {
            format!("is for another host: {}", presented.join(", "))
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "is not for this purpose: extendedKeyUsage lacks serverAuth or clientAuth".to_owned()
        }
        error => format!("cannot be used: {error}"),
    }
}

/// Accepts the holder of one key, and no other.
#[derive(Debug)]
struct PinnedKey {
    public: SubjectPublicKeyInfoDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl PinnedKey {
    fn check(&self, presented: &CertificateDer<'_>) -> Result<(), Error> {
        // A public key: the time of the comparison reveals nothing.
        if presented.as_ref() == self.public.as_ref() {
            return Ok(());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn check_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        let schemes = &self.provider.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &key, signed, schemes)
    }
}

const TLS12: Error =
    Error::PeerIncompatible(rustls::PeerIncompatible::ServerDoesNotSupportTls12Or13);

/// The methods that both verifier traits have: TLS 1.3 only, with the raw public key.
macro_rules! pinned_key_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _cert: &CertificateDer<'_>,
            _dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(TLS12)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.check_signature(message, cert, dss)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for PinnedKey {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity)
            .map(|()| ServerCertVerified::assertion())
    }

    pinned_key_signatures!();
}

impl ClientCertVerifier for PinnedKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity)
            .map(|()| ClientCertVerified::assertion())
    }

    pinned_key_signatures!();
}

/// What the peer has proved.
#[derive(Clone, Debug)]
pub enum Proof {
    /// It holds the secret.
    Secret,
    /// It holds a certificate of the authority.
    Certificate(CertificateDer<'static>),
}

impl Credentials {
    /// Returns what the peer has proved, after a handshake of this side's server.
    #[must_use]
    pub fn proof(&self, connection: &rustls::ServerConnection) -> Proof {
        let certificate = connection
            .peer_certificates()
            .and_then(|chain| chain.first());
        match certificate.filter(|_| self.has_names) {
            Some(certificate) => Proof::Certificate(certificate.clone().into_owned()),
            None => Proof::Secret,
        }
    }
}

impl Proof {
    /// Checks that the peer may use the name `host`.
    ///
    /// # Errors
    /// Its certificate is for others: a sentence.
    pub fn is_for(&self, host: &str) -> Result<(), String> {
        let Proof::Certificate(certificate) = self else {
            return Ok(());
        };
        let name = ServerName::try_from(host).map_err(|_| format!("{host} is no host name"))?;
        let parsed = rustls::server::ParsedCertificate::try_from(certificate);
        parsed
            .and_then(|parsed| rustls::client::verify_server_name(&parsed, &name))
            .map_err(|error| match error {
                Error::InvalidCertificate(error) => {
                    format!("its certificate {}", what_is_wrong(&error))
                }
                error => error.to_string(),
            })
    }
}
