//! TLS of a data node's server: for browsers, beside the plain listener that gateways and clients of the federation use.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::version::TLS13;

/// Listening address and certificate of a server with TLS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsConfig {
    /// Listening address of the first data node's server; the others use the ports that follow.
    pub listen: SocketAddr,
    /// PEM file with the certificate, and those that lead from it to an authority.
    pub certificate: PathBuf,
    /// PEM file with the private key.
    pub key: PathBuf,
}

/// Their names in the configuration.
const KEYS: [&str; 2] = ["tls-certificate", "tls-key"];
const HTTP: &[&str] = &["http/1.1"];

/// When both files were changed last.
pub(super) type Stamp = [Option<SystemTime>; 2];

/// The certificate in use.
#[derive(Debug)]
pub(super) struct Tls {
    files: [PathBuf; 2],
    /// The first ports of the plain servers of this network, and of those with TLS.
    ports: (u16, u16),
    current: Mutex<(Stamp, Arc<ServerConfig>)>,
}

impl Tls {
    /// Reads the files. `plain` is the first port of the plain servers.
    pub(super) fn open(config: &TlsConfig, plain: u16) -> Result<Self, String> {
        let files = [config.certificate.clone(), config.key.clone()];
        let current = Mutex::new((stamp(&files), read(&files, KEYS, HTTP)?));
        let ports = (plain, config.listen.port());
        Ok(Tls {
            files,
            ports,
            current,
        })
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(Arc::clone(&current.1))
    }

    /// Reads the files again if one has changed. Files that cannot be used change nothing.
    pub(super) fn refresh(&self) {
        let stamp = stamp(&self.files);
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.0 == stamp {
            return;
        }
        // A wrong file is reported once.
        current.0 = stamp;
        match read(&self.files, KEYS, HTTP) {
            Ok(config) => {
                current.1 = config;
                tracing::info!(
                    event = "http_certificate_reloaded",
                    "certificate of the HTTP servers reloaded"
                );
            }
            Err(error) => {
                tracing::warn!(
                    event = "http_certificate_rejected",
                    error,
                    "certificate rejected, the old one stays"
                );
            }
        }
    }

    /// Returns the URL with TLS beside a plain one of this network.
    pub(super) fn secure(&self, location: &str) -> Option<String> {
        secure(self.ports, location)
    }
}

/// Returns the URL with TLS beside a plain one of a network whose gateways use the same ports: the first plain one, and the
/// first with TLS.
pub(super) fn secure((plain, tls): (u16, u16), location: &str) -> Option<String> {
    let (authority, path) = location.strip_prefix("http://")?.split_once('/')?;
    let (host, port) = authority.rsplit_once(':')?;
    let number = port.parse::<u16>().ok()?.checked_sub(plain)?;
    Some(format!(
        "https://{host}:{}/{path}",
        tls.checked_add(number)?
    ))
}

pub(super) fn stamp(files: &[PathBuf; 2]) -> Stamp {
    files.each_ref().map(|file| {
        std::fs::metadata(file)
            .and_then(|data| data.modified())
            .ok()
    })
}

/// Reads a certificate and its private key. `keys` are their names in the configuration.
pub(super) fn read(
    files: &[PathBuf; 2],
    keys: [&str; 2],
    protocols: &[&str],
) -> Result<Arc<ServerConfig>, String> {
    let [certificate, key] = files;
    let wrong = |file: &PathBuf, key: &str, why: &dyn std::fmt::Display| {
        format!("network.{key}: {} cannot be used: {why}", file.display())
    };
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let chain: Vec<_> = chain.map_err(|error| wrong(certificate, keys[0], &error))?;
    let private =
        PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, keys[1], &error))?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| error.to_string())?;
    let mut config = builder
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|error| wrong(certificate, keys[0], &error))?;
    config.alpn_protocols = protocols
        .iter()
        .map(|protocol| protocol.as_bytes().to_vec())
        .collect();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn keys() -> PathBuf {
        concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../crates/control-stream/tests/keys/server.pem"
        )
        .into()
    }

    fn open(certificate: PathBuf, key: PathBuf) -> Result<Tls, String> {
        let listen = "127.0.0.1:8443".parse().unwrap();
        Tls::open(
            &TlsConfig {
                listen,
                certificate,
                key,
            },
            8081,
        )
    }

    #[test]
    fn redirections_stay_with_tls() {
        let tls = open(keys(), keys()).unwrap();
        let secure = |location: &str| tls.secure(location);
        let name = "s/bfed%3A%2F%2F7%2Fx";
        assert_eq!(
            secure(&format!("http://b:8082/{name}")),
            Some(format!("https://b:8444/{name}"))
        );
        assert_eq!(
            secure("http://[::1]:8081/").as_deref(),
            Some("https://[::1]:8443/")
        );
        for other in [
            "http://b:80/x",
            "http://b/x",
            "https://b:8081/x",
            "/x",
            "http://b:99999/x",
            "http://b:65000/x",
        ] {
            assert!(
                secure(other).is_none_or(|to| to.starts_with("https://b:65362/")),
                "{other}"
            );
        }
    }

    #[test]
    fn files_are_read_again_and_wrong_ones_change_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("server.pem");
        assert!(
            open(file.clone(), keys())
                .unwrap_err()
                .contains("network.tls-certificate")
        );
        std::fs::copy(keys(), &file).unwrap();
        assert!(
            open(file.clone(), folder.path().join("none"))
                .unwrap_err()
                .contains("network.tls-key")
        );
        let tls = open(file.clone(), file.clone()).unwrap();
        let current = || Arc::as_ptr(&tls.current.lock().unwrap().1);
        let touch = |text: &[u8], seconds| {
            std::fs::write(&file, text).unwrap();
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            File::options()
                .write(true)
                .open(&file)
                .unwrap()
                .set_modified(time)
                .unwrap();
            tls.refresh();
        };
        let first = current();
        tls.refresh();
        assert_eq!(current(), first, "nothing has changed");
        touch(b"no certificate", 1000);
        assert_eq!(current(), first, "a wrong file");
        touch(&std::fs::read(keys()).unwrap(), 2000);
        assert_ne!(current(), first);
    }
}
