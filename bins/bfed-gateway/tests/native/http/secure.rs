//! An edge that speaks TLS to browsers.

use std::path::PathBuf;
use std::sync::Arc;

use bfed_gateway::native::http::TlsConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::*;

const SECURE: &str = "127.0.0.1:8443";
const KEYS: &str = "../../crates/control-stream/tests/keys/server.pem";

/// An edge whose sources send to `origin`, if it is not this one.
fn secure_edge(origin: Option<&str>) -> Box<dyn Network> {
    let mut config = config();
    config.tls = Some(TlsConfig {
        listen: SECURE.parse().unwrap(),
        certificate: PathBuf::from(KEYS),
        key: PathBuf::from(KEYS),
    });
    config.origin = origin.map(|origin| origin.parse().unwrap());
    channels(&NetworkConfig::Http(config))
}

/// Asks over TLS, and reads until the end or `len` bytes.
fn ask(path: &str, len: usize) -> String {
    let authority = CertificateDer::pem_file_iter(KEYS)
        .unwrap()
        .last()
        .unwrap()
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(authority).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("server.example").unwrap();
    let client = ClientConnection::new(Arc::new(config), name).unwrap();
    let stream = TcpStream::connect(SECURE).unwrap();
    stream
        .set_read_timeout(Some(StdDuration::from_secs(30)))
        .unwrap();
    let mut stream = StreamOwned::new(client, stream);
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let (mut answer, mut piece) = (vec![], [0; 4096]);
    while answer.len() < len {
        match stream.read(&mut piece) {
            Ok(read @ 1..) => answer.extend_from_slice(&piece[..read]),
            _ => break,
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_browser_gets_page_and_session_over_tls_and_stays_with_it() {
    alone(|| {
        let mut net = secure_edge(None);
        let session = name("bfed://7/talk");
        let channel = up(&mut *net, &session).unwrap();
        let mut source = Client::put(EDGE, &path("bfed://7/talk"));
        source.chunk(b"hello");
        assert_eq!(
            soon(&mut *net),
            (Upcall::Data { channel, len: 5 }, b"hello".to_vec())
        );
        let page = ask(
            &path("bfed://7/talk").replacen("/s/", "/play/", 1),
            usize::MAX,
        );
        assert!(
            page.starts_with("HTTP/1.1 200") && page.contains("<video"),
            "{page}"
        );
        drop((source, net));
        // A session of which another server is the origin.
        let _net = secure_edge(Some("http://other.example:8083"));
        let moved = ask(&path("bfed://7/talk"), usize::MAX);
        let expected = format!(
            "location: https://other.example:8445{}\r\n",
            path("bfed://7/talk")
        );
        assert!(
            moved.starts_with("HTTP/1.1 307") && moved.contains(&expected),
            "{moved}"
        );
        let mut plain = Client::get(EDGE, &path("bfed://7/talk"));
        assert_eq!(plain.head(), 307);
        assert!(
            plain
                .location
                .unwrap()
                .starts_with("http://other.example:8083/")
        );
    });
}

#[test]
fn plain_text_and_silence_on_the_port_of_tls_end_and_nothing_else_does() {
    alone(|| {
        let _net = secure_edge(None);
        let _silent: Vec<TcpStream> = (0..20)
            .map(|_| TcpStream::connect(SECURE).unwrap())
            .collect();
        let mut plain = TcpStream::connect(SECURE).unwrap();
        plain
            .set_read_timeout(Some(StdDuration::from_secs(30)))
            .unwrap();
        plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = vec![];
        let _ = plain.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
        assert!(ask("/", usize::MAX).starts_with("HTTP/1.1 404"));
    });
}
