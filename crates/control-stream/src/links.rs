//! TLS of connections whose other end is known by its certificate instead of a name.
//!
//! The control nodes of two gateways authenticate each other by name, and tell each other which certificates their data
//! nodes show. A connection between data nodes then verifies two things: the certificate comes from the authority in the
//! key file, in the handshake, by the configurations of [`LinkCredentials`]; and it is the one that was named, by
//! [`digest`], which the caller compares after the handshake and before it uses the connection.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig, SignatureScheme,
};

use crate::tls::Credentials;

/// TLS configurations of both ends of a link, and the digest of what this end shows.
#[derive(Clone)]
pub struct LinkCredentials {
    /// For the end that connects. It accepts each certificate of the authority, whatever its name.
    pub client: ClientConfig,
    /// For the end that listens.
    pub server: ServerConfig,
    /// The digest of this end's certificate, or of the public key of the secret.
    pub own: [u8; 32],
}

impl fmt::Debug for LinkCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkCredentials")
            .field("own", &self.own)
            .finish_non_exhaustive()
    }
}

/// Returns the SHA-256 of a certificate or public key as it is shown in the handshake.
#[must_use]
pub fn digest(shown: &[u8]) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, shown);
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest.as_ref());
    bytes
}

impl LinkCredentials {
    /// Creates the configurations of links that speak `protocol` (ALPN, RFC 7301).
    #[must_use]
    pub fn new(credentials: &Credentials, protocol: &[u8]) -> Self {
        let mut client = (*credentials.client).clone();
        let mut server = (*credentials.server).clone();
        if let Some(roots) = &credentials.roots {
            let provider = Arc::clone(client.crypto_provider());
            let verifier = AnyName {
                roots: Arc::clone(roots),
                provider,
            };
            client
                .dangerous()
                .set_certificate_verifier(Arc::new(verifier));
        }
        client.alpn_protocols = vec![protocol.to_vec()];
        server.alpn_protocols = vec![protocol.to_vec()];
        LinkCredentials {
            client,
            server,
            own: digest(&credentials.own),
        }
    }
}

/// Accepts each certificate of an authority: the caller knows the one that it expects by its digest.
#[derive(Debug)]
struct AnyName {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            intermediates,
            now,
            algorithms,
        )?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let schemes = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, schemes)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let schemes = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, schemes)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let schemes = &self.provider.signature_verification_algorithms;
        schemes.supported_schemes()
    }
}
