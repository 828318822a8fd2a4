//! A gateway at a relay: the released `moq-relay`, and relays that are frozen, gone or hostile.
//!
//! `cargo install moq-relay --version 0.14.0 --locked`, then, with `moq-relay` in `PATH` or its path in `MOQ_RELAY`:
//! `cargo test -p bfed-gateway --test native -- --ignored relay`

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bfed_gateway::native::http::{MoqConfig, RelayConfig};
use moq_net::origin;
use tempfile::TempDir;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use web_transport_quinn as quic;

use super::moq::{Peer, bytes, counts, endpoint_for, run};
use super::*;

const RELAY: &str = "https://127.0.0.1:4444/";

/// A certificate of 127.0.0.1 that signs itself, and its key; `None` where there is no openssl.
fn keys(folder: &Path) -> Option<(PathBuf, PathBuf)> {
    let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
    let arguments = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 10 -subj /CN=gateway \
                     -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE";
    let mut command = Command::new("openssl");
    command.args(arguments.split_whitespace());
    command
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate);
    let done = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    done.is_ok_and(|status| status.success())
        .then_some((certificate, key))
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the relay.
fn start(certificate: &Path, key: &Path) -> Running {
    let program = std::env::var_os("MOQ_RELAY").unwrap_or_else(|| "moq-relay".into());
    let mut command = Command::new(program);
    command.args(["--server-bind", "127.0.0.1:4444", "--auth-public", ""]);
    command.arg("--tls-cert").arg(certificate);
    command.arg("--tls-key").arg(key);
    let started = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    Running(started.expect("moq-relay in PATH, or its path in MOQ_RELAY"))
}

/// A gateway's data node at the relay.
fn gateway_at(certificate: &Path, publish: &[&str]) -> Box<dyn Network> {
    channels(&NetworkConfig::Http(HttpConfig {
        moq: Some(MoqConfig {
            relay: Some(RelayConfig {
                url: RELAY.parse().unwrap(),
                authority: Some(certificate.to_owned()),
                token: None,
                publish: publish.iter().map(|session| name(session)).collect(),
            }),
            ..MoqConfig::default()
        }),
        ..config()
    }))
}

async fn at_relay(certificate: &Path) -> Peer {
    let url: url::Url = RELAY.parse().unwrap();
    loop {
        let endpoint = endpoint_for(certificate, &[quic::ALPN]);
        let connected = endpoint.connect("127.0.0.1:4444".parse().unwrap(), "127.0.0.1");
        if let Ok(connection) = connected.unwrap().await {
            let request = quic::proto::ConnectRequest::new(url).with_protocol("moq-lite-03");
            let session = quic::Session::connect(connection, request).await.unwrap();
            return Peer::over(session).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[test]
#[ignore = "needs moq-relay: see this file"]
fn sessions_pass_a_relay_in_both_directions_and_survive_its_restart() {
    alone(|| {
        let folder = TempDir::new().unwrap();
        let (certificate, key) = keys(folder.path()).expect("openssl");
        for _ in 0..2 {
            let relay = start(&certificate, &key);
            let mut net = gateway_at(&certificate, &["bfed://5/talk"]);
            let session = name("bfed://5/talk");
            let (talk, _) = down(&mut *net, &session).unwrap();
            net.send_data(now(), talk, b"live").unwrap();
            let cam = up(&mut *net, &name("bfed://7/cam")).unwrap();
            counts(&*net, "moq_relay_connections", 1);
            run(async {
                let peer = at_relay(&certificate).await;
                let track = peer.track("5/talk").await.unwrap();
                let read = tokio::spawn(bytes(track, 20_000));
                while !read.is_finished() {
                    net.send_data(now(), talk, &[9; 1000]).unwrap();
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                assert_eq!(read.await.unwrap(), vec![9; 20_000]);
                let broadcast = peer.writes.create_broadcast("7/cam").unwrap();
                let track = broadcast.create_track("0", None).unwrap();
                broadcast.announce(origin::Route::default()).unwrap();
                track.used().await.unwrap();
                let mut group = track.append_group().unwrap();
                let header = media::group::Header {
                    is_start: true,
                    ..Default::default()
                };
                let time = moq_net::Timestamp::from_millis(1).unwrap();
                group.write_frame(time, header.to_vec()).unwrap();
                group.write_frame(time, b"picture".to_vec()).unwrap();
                group.finish().unwrap();
                let mut buffer = vec![0; 70_000];
                let upcall = loop {
                    match net.poll_upcall(now(), &mut buffer) {
                        Some(upcall) => break upcall,
                        None => tokio::time::sleep(Duration::from_millis(10)).await,
                    }
                };
                assert_eq!(
                    upcall,
                    Upcall::Data {
                        channel: cam,
                        len: 7
                    }
                );
            });
            drop(relay);
            counts(&*net, "moq_relay_failures", 1);
            // The next relay is another process at the same address.
            let _relay = start(&certificate, &key);
            counts(&*net, "moq_relay_connections", 2);
        }
    });
}

#[test]
fn a_relay_that_never_answers_is_tried_again_and_the_rest_works() {
    alone(|| {
        let folder = TempDir::new().unwrap();
        let Some((certificate, _)) = keys(folder.path()) else {
            netlab::lacks_program(env!("CARGO_PKG_NAME"), "openssl");
            return;
        };
        // It takes packets and says nothing.
        let _frozen = stranger("127.0.0.1:4444");
        let mut net = gateway_at(&certificate, &[]);
        let channel = up(&mut *net, &name("bfed://7/talk")).unwrap();
        let mut source = Client::put(EDGE, &path("bfed://7/talk"));
        source.chunk(b"hello");
        assert_eq!(
            soon(&mut *net),
            (Upcall::Data { channel, len: 5 }, b"hello".to_vec())
        );
        for _ in 0..4 {
            std::thread::sleep(Duration::from_secs(3));
            if count(&*net, "moq_relay_failures") > 0 {
                break;
            }
        }
        assert!(count(&*net, "moq_relay_failures") > 0);
        assert_eq!(count(&*net, "moq_relay_connections"), 0);
    });
}

/// Accepts the gateway, as a relay does.
async fn accepted(certificate: &Path, key: &Path) -> quic::Session {
    let chain = CertificateDer::pem_file_iter(certificate).unwrap();
    let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_file(key).unwrap();
    let server = quic::ServerBuilder::new().with_addr("127.0.0.1:4444".parse().unwrap());
    let mut server = server.with_certificate(chain, key).unwrap();
    let request = server.accept().await.unwrap();
    let accepted = quic::proto::ConnectResponse::OK.with_protocol("moq-lite-06");
    request.respond(accepted).await.unwrap()
}

#[test]
fn a_relay_that_falls_silent_is_left_and_tried_again() {
    alone(|| {
        let folder = TempDir::new().unwrap();
        let Some((certificate, key)) = keys(folder.path()) else {
            netlab::lacks_program(env!("CARGO_PKG_NAME"), "openssl");
            return;
        };
        let net = gateway_at(&certificate, &[]);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let _session = runtime.block_on(async {
            let session = accepted(&certificate, &key).await;
            let relay = moq_net::Server::new();
            let now = std::time::Instant::now();
            let (session, driver) = relay.accept(now, session).await.unwrap();
            tokio::spawn(moq_net::time::run(driver));
            while count(&*net, "moq_relay_connections") == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            session
        });
        // Nothing runs on this runtime any more: the relay is frozen, and keeps its sockets.
        assert_eq!(count(&*net, "moq_relay_failures"), 0);
        counts(&*net, "moq_relay_failures", 1);
        counts(&*net, "moq_relay_failures", 2);
        assert_eq!(count(&*net, "moq_relay_connections"), 1);
    });
}

#[test]
fn a_relay_that_announces_without_end_is_left() {
    alone(|| {
        let folder = TempDir::new().unwrap();
        let Some((certificate, key)) = keys(folder.path()) else {
            netlab::lacks_program(env!("CARGO_PKG_NAME"), "openssl");
            return;
        };
        let net = gateway_at(&certificate, &[]);
        run(async {
            let session = accepted(&certificate, &key).await;
            let (announces, driver) = origin::Producer::new(origin::Config::default());
            tokio::spawn(moq_net::time::run(driver));
            let relay = moq_net::Server::new().with_publisher(&announces);
            let now = std::time::Instant::now();
            let (session, driver) = relay.accept(now, session).await.unwrap();
            tokio::spawn(moq_net::time::run(driver));
            let all: Vec<_> = (0..5000)
                .map(|at| announces.publish(format!("7/{at}"), origin::Route::default()))
                .collect();
            session.closed().await;
            assert!(all.iter().all(Result::is_ok));
        });
        counts(&*net, "moq_relay_failures", 1);
    });
}
