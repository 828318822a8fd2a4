//! Media over QUIC: subscribers, publishers, and hostile clients.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bfed_gateway::native::http::{MoqConfig, TlsConfig};
use moq_net::{Session, origin, track};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use web_transport_quinn as quic;
use web_transport_quinn::quinn;

use super::*;

const MOQ: &str = "127.0.0.1:4443";
const KEYS: &str = "../../crates/control-stream/tests/keys/server.pem";
const TS: &[u8] = include_bytes!("../../../../../crates/media/tests/samples/h264.ts");

pub(super) fn moq_config() -> MoqConfig {
    MoqConfig {
        listener: Some(TlsConfig {
            listen: MOQ.parse().unwrap(),
            certificate: PathBuf::from(KEYS),
            key: PathBuf::from(KEYS),
        }),
        ..MoqConfig::default()
    }
}

pub(super) fn moq_edge(moq: MoqConfig) -> Box<dyn Network> {
    channels(&NetworkConfig::Http(HttpConfig {
        moq: Some(moq),
        ..config()
    }))
}

/// Runs a client within 30 seconds.
pub(super) fn run<T>(body: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let within = async { tokio::time::timeout(Duration::from_secs(30), body).await };
    runtime.block_on(within).expect("within 30 seconds")
}

/// An endpoint that accepts the test's certificate alone.
fn endpoint(protocols: &[&str]) -> quinn::Endpoint {
    endpoint_for(KEYS.as_ref(), protocols)
}

/// What accepts certificates of the last authority in a file.
fn client_for(file: &std::path::Path, protocols: &[&str]) -> quinn::ClientConfig {
    let authority = CertificateDer::pem_file_iter(file).unwrap().last();
    let mut roots = tokio_rustls::rustls::RootCertStore::empty();
    roots.add(authority.unwrap().unwrap()).unwrap();
    let mut tls = tokio_rustls::rustls::ClientConfig::builder_with_provider(Arc::new(
        ring::default_provider(),
    ))
    .with_protocol_versions(&[&tokio_rustls::rustls::version::TLS13])
    .unwrap()
    .with_root_certificates(roots)
    .with_no_client_auth();
    tls.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
    quinn::ClientConfig::new(Arc::new(crypto))
}

/// An endpoint that accepts certificates of the last authority in a file.
pub(super) fn endpoint_for(file: &std::path::Path, protocols: &[&str]) -> quinn::Endpoint {
    let mut endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    endpoint.set_default_client_config(client_for(file, protocols));
    endpoint
}

async fn raw(protocol: &str) -> Result<quinn::Connection, quinn::ConnectionError> {
    let connecting = endpoint(&[protocol]).connect(MOQ.parse().unwrap(), "server.example");
    connecting.unwrap().await
}

/// A connection whose peer may send that many bytes which are not read.
pub(super) async fn raw_with_window(protocol: &str, bytes: u32) -> quinn::Connection {
    let mut transport = quinn::TransportConfig::default();
    transport.receive_window(bytes.into());
    let mut client = client_for(KEYS.as_ref(), &[protocol]);
    client.transport_config(Arc::new(transport));
    let connecting = endpoint(&[]).connect_with(client, MOQ.parse().unwrap(), "server.example");
    connecting.unwrap().await.unwrap()
}

/// A MoQ client: the broadcasts it reads, and those it publishes.
pub(super) struct Peer {
    _session: Session,
    pub(super) reads: origin::Producer,
    pub(super) writes: origin::Producer,
}

fn spawned() -> origin::Producer {
    let (origin, driver) = origin::Producer::new(origin::Config::default());
    tokio::spawn(moq_net::time::run(driver));
    origin
}

impl Peer {
    pub(super) async fn over(session: quic::Session) -> Peer {
        let (reads, writes) = (spawned(), spawned());
        let client = moq_net::Client::new()
            .with_publisher(&writes)
            .with_subscriber(reads.clone());
        let started = client.connect(Instant::now(), session).await.unwrap();
        let (session, driver) = started;
        tokio::spawn(moq_net::time::run(driver));
        Peer {
            _session: session,
            reads,
            writes,
        }
    }

    /// Over QUIC alone.
    pub(super) async fn raw(version: &str) -> Peer {
        Peer::over(quic::Session::raw(raw(version).await.unwrap())).await
    }

    /// Over WebTransport, with a path.
    pub(super) async fn web(path: &str) -> Peer {
        Peer::page(path, None).await
    }

    /// Over WebTransport, as a page of that origin.
    async fn page(path: &str, origin: Option<&'static str>) -> Peer {
        let endpoint = endpoint(&[quic::ALPN]);
        let connection = endpoint.connect(MOQ.parse().unwrap(), "server.example");
        let connection = connection.unwrap().await.unwrap();
        let url: url::Url = format!("https://server.example:4443{path}")
            .parse()
            .unwrap();
        let mut request = quic::proto::ConnectRequest::new(url).with_protocol("moq-lite-04");
        if let Some(origin) = origin {
            let origin = hyper::header::HeaderValue::from_static(origin);
            request.headers.insert("origin", origin);
        }
        let session = quic::Session::connect(connection, request).await.unwrap();
        Peer::over(session).await
    }

    pub(super) async fn track(&self, path: &str) -> Result<track::Subscriber, moq_net::Error> {
        let consumer = self.reads.consume();
        let broadcast = consumer.routed_broadcast(path).await?;
        let late = track::Subscription::default().with_max_age(Duration::from_secs(30));
        broadcast.track("0")?.subscribe(late).await
    }
}

/// The stream of a track: without headers of groups, all of which arrive.
pub(super) async fn bytes(track: track::Subscriber, len: usize) -> Vec<u8> {
    let (mut groups, mut bytes) = (track.ordered(), Vec::new());
    while bytes.len() < len {
        let Some(mut group) = groups.next_group().await.unwrap() else {
            break;
        };
        let header = group.read_frame().await.unwrap().unwrap();
        assert_eq!(header.payload[0], 0, "the version of the header");
        while bytes.len() < len {
            let Some(frame) = group.read_frame().await.unwrap() else {
                break;
            };
            bytes.extend_from_slice(&frame.payload);
        }
    }
    bytes
}

/// Waits for a counter.
pub(super) fn counts(net: &dyn Network, what: &str, at_least: u64) {
    for _ in 0..600 {
        if count(net, what) >= at_least {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{what} stays at {}", count(net, what));
}

#[test]
fn a_session_of_an_http_source_is_read_over_quic_and_over_web_transport() {
    alone(|| {
        let _net = moq_edge(moq_config());
        let mut source = Client::put(EDGE, &path("bfed://7/film"));
        source.chunk(&TS[..100 * 188]);
        let whole = run(async {
            let tracks = [
                Peer::raw("moq-lite-06").await,
                Peer::raw("moq-lite-03").await,
                Peer::web("/").await,
            ];
            let mut read = Vec::new();
            for peer in &tracks {
                let track = peer.track("7/film").await.unwrap();
                read.push(tokio::spawn(bytes(track, 30_000)));
            }
            source.chunk(&TS[100 * 188..]);
            let mut whole = Vec::new();
            for read in read {
                whole.push(read.await.unwrap());
            }
            whole
        });
        for bytes in &whole {
            assert!(bytes.len() >= 30_000);
            // The first bytes are tables; then the source's bytes from a key frame on.
            let rest = &bytes[2 * 188..][..10_000];
            assert!(TS.windows(rest.len()).any(|part| part == rest));
        }
    });
}

#[test]
fn a_session_of_another_network_is_read_and_ends() {
    alone(|| {
        let mut net = moq_edge(moq_config());
        let session = name("bfed://5/talk");
        let (channel, _) = down(&mut *net, &session).unwrap();
        net.send_data(now(), channel, b"live").unwrap();
        run(async {
            let peer = Peer::raw("moq-lite-05").await;
            let track = peer.track("5/talk").await.unwrap();
            let sent = tokio::spawn(async move {
                for _ in 0..40 {
                    net.send_data(now(), channel, &[9; 1000]).unwrap();
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                net
            });
            assert_eq!(bytes(track, 20_000).await, vec![9; 20_000]);
            drop(sent.await.unwrap());
        });
    });
}

#[test]
fn a_session_without_subscribers_is_left_although_its_source_goes_on() {
    alone(|| {
        let mut net = moq_edge(moq_config());
        let session = name("bfed://5/talk");
        let (channel, _) = down(&mut *net, &session).unwrap();
        net.send_data(now(), channel, b"live").unwrap();
        run(async {
            let peer = Peer::raw("moq-lite-06").await;
            let track = peer.track("5/talk").await.unwrap();
            let read = tokio::spawn(bytes(track, 2_000));
            while !read.is_finished() {
                net.send_data(now(), channel, &[9; 1000]).unwrap();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(count(&*net, "readers"), 1);
            drop(peer);
            while count(&*net, "readers") > 0 {
                net.send_data(now(), channel, &[9; 1000]).unwrap();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
    });
}

#[test]
fn a_publisher_is_the_source_of_a_session() {
    alone(|| {
        let mut net = moq_edge(moq_config());
        let session = name("bfed://7/cam");
        let channel = up(&mut *net, &session).unwrap();
        let (stop, stopped) = std::sync::mpsc::channel();
        let publisher = std::thread::spawn(move || {
            run(async {
                let peer = Peer::raw("moq-lite-06").await;
                let broadcast = peer.writes.create_broadcast("7/cam").unwrap();
                let track = broadcast.create_track("0", None).unwrap();
                broadcast.announce(origin::Route::default()).unwrap();
                track.used().await.unwrap();
                for (at, text) in ["one", "two"].iter().enumerate() {
                    let mut group = track.append_group().unwrap();
                    let time = moq_net::Timestamp::from_millis(at as u64).unwrap();
                    let header = media::group::Header {
                        is_start: true,
                        init: b"[init]",
                        prefix: b"",
                    };
                    group.write_frame(time, header.to_vec()).unwrap();
                    group.write_frame(time, text.as_bytes().to_vec()).unwrap();
                    group.finish().unwrap();
                }
                // A group without a header is not passed on.
                let mut group = track.append_group().unwrap();
                let time = moq_net::Timestamp::from_millis(9).unwrap();
                group.write_frame(time, b"\x07no header".to_vec()).unwrap();
                group.finish().unwrap();
                while stopped.try_recv().is_err() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
        });
        let mut received = Vec::new();
        while received.len() < 12 {
            let (upcall, data) = soon(&mut *net);
            assert!(matches!(upcall, Upcall::Data { channel: of, .. } if of == channel));
            received.extend_from_slice(&data);
        }
        assert_eq!(received, b"[init]onetwo");
        counts(&*net, "moq_groups_malformed", 1);
        stop.send(()).unwrap();
        publisher.join().unwrap();
    });
}

#[test]
fn a_client_without_the_right_to_publish_is_disconnected() {
    alone(|| {
        let net = channels(&NetworkConfig::Http(HttpConfig {
            moq: Some(moq_config()),
            publish: vec![],
            ..config()
        }));
        run(async {
            let peer = Peer::raw("moq-lite-06").await;
            let broadcast = peer.writes.create_broadcast("7/cam").unwrap();
            broadcast.announce(origin::Route::default()).unwrap();
            peer._session.closed().await;
        });
        assert_eq!(count(&*net, "moq_requests_denied"), 1);
        assert_eq!(count(&*net, "chunks_received"), 0);
    });
}

#[test]
fn a_page_of_another_origin_does_not_publish_over_web_transport() {
    alone(|| {
        let net = channels(&NetworkConfig::Http(HttpConfig {
            moq: Some(moq_config()),
            host: Some("server.example".to_owned()),
            ..config()
        }));
        let mut source = Client::put(EDGE, &path("bfed://7/film"));
        source.chunk(&TS[..100 * 188]);
        run(async {
            let peer = Peer::page("/", Some("https://evil.example")).await;
            // It reads what any page may read.
            peer.track("7/film").await.unwrap();
            let broadcast = peer.writes.create_broadcast("7/cam").unwrap();
            broadcast.announce(origin::Route::default()).unwrap();
            peer._session.closed().await;
            assert_eq!(count(&*net, "moq_requests_denied"), 1);
            // A page of this server.
            let peer = Peer::page("/", Some("http://server.example:8081")).await;
            let broadcast = peer.writes.create_broadcast("7/cam").unwrap();
            broadcast.announce(origin::Route::default()).unwrap();
            let closed = tokio::time::timeout(Duration::from_secs(1), peer._session.closed());
            assert!(closed.await.is_err());
        });
        assert_eq!(count(&*net, "moq_requests_denied"), 1);
    });
}

#[test]
fn the_player_may_connect_to_the_host_that_the_client_asks_alone() {
    use std::io::Read;
    alone(|| {
        let _net = moq_edge(moq_config());
        let play = path("bfed://7/film").replacen("/s/", "/play/", 1);
        for (host, sources) in [
            ("gw.example:8081", "'self' https://gw.example:4443;"),
            ("127.0.0.1:8081", "'self' https://127.0.0.1:4443;"),
            ("[::1]:8081", "'self' https://*:4443;"),
            ("x; script-src *", "'self';"),
        ] {
            let head = format!("GET {play} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
            let mut page = Client::ask(EDGE, &head, b"");
            let mut all = String::new();
            page.stream.read_to_string(&mut all).unwrap();
            let policy = all
                .lines()
                .find(|line| line.starts_with("content-security-policy"));
            let policy = policy.unwrap();
            assert!(
                policy.contains(&format!("connect-src {sources}")),
                "{policy}"
            );
        }
    });
}

#[test]
fn tokens_are_required_in_the_query() {
    use bfed::authorise::{Right, Rules};
    alone(|| {
        let key = bfed_token::SigningKey::generate().unwrap();
        let tokens = bfed_gateway::native::TokensConfig {
            keys: vec![key.verifying_key().unwrap()],
            required: vec![Right::Join],
            token_file: None,
        };
        let access = access(&tokens, &Rules::default());
        let config = NetworkConfig::Http(HttpConfig {
            moq: Some(moq_config()),
            ..config()
        });
        let role = Role::Channels { part: 0, parts: 1 };
        let net = started(config.open(role, guarded(&access)).unwrap());
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now_s = since.unwrap().as_secs();
        let sessions = "bfed://7/film".parse().unwrap();
        let claims = bfed_token::Claims::new(sessions, vec![Right::Join], now_s, now_s + 600);
        let token = key.issue(gateway().network, &claims).unwrap();
        let good = format!("/?token={}", token.as_str());
        let mut source = Client::put(EDGE, &path("bfed://7/film"));
        source.chunk(TS);
        run(async {
            for (query, is_good) in [
                ("/", false),
                ("/?token=v4.public.AAAA", false),
                (&good, true),
            ] {
                let peer = Peer::web(query).await;
                let read = async {
                    let track = peer.track("7/film").await.ok()?;
                    let mut groups = track.ordered();
                    let mut group = groups.next_group().await.ok()??;
                    group.read_frame().await.ok()?
                };
                let read = tokio::time::timeout(Duration::from_secs(3), read);
                let is_read = matches!(read.await, Ok(Some(_)));
                assert_eq!(is_read, is_good, "{query}");
            }
        });
        assert!(count(&*net, "moq_requests_denied") >= 2);
    });
}

#[test]
fn clients_of_one_address_are_limited() {
    alone(|| {
        let net = moq_edge(MoqConfig {
            per_address: 2,
            ..moq_config()
        });
        run(async {
            let first = raw("moq-lite-06").await.unwrap();
            let _second = raw("moq-lite-06").await.unwrap();
            assert!(raw("moq-lite-06").await.is_err());
            // A client that leaves makes room.
            first.close(0u32.into(), b"");
            while raw("moq-lite-06").await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        assert!(count(&*net, "moq_clients_refused") >= 1);
    });
}

#[test]
fn unknown_protocols_and_versions_are_refused() {
    alone(|| {
        let _net = moq_edge(moq_config());
        run(async {
            assert!(raw("moqt-16").await.is_err());
            assert!(raw("echo").await.is_err());
            let connection = raw(quic::ALPN).await.unwrap();
            let url: url::Url = "https://server.example:4443/".parse().unwrap();
            let request = quic::proto::ConnectRequest::new(url).with_protocol("moqt-16");
            assert!(quic::Session::connect(connection, request).await.is_err());
        });
    });
}

#[test]
fn half_open_and_silent_clients_are_dropped() {
    alone(|| {
        let net = moq_edge(moq_config());
        // Noise, and the start of handshakes that never continue.
        let socket = stranger("127.0.0.1:0");
        for len in [0, 1, 20, 1200, 1472] {
            for first in [0x00, 0x40, 0xc0, 0xff] {
                socket.send_to(&vec![first; len], MOQ).unwrap();
            }
        }
        run(async {
            // A handshake of QUIC and nothing after it.
            let silent = raw("moq-lite-06").await.unwrap();
            let began = Instant::now();
            let why = silent.closed().await;
            assert!(began.elapsed() >= Duration::from_secs(5));
            // The listener has ended it, not the idle timeout.
            assert!(
                matches!(why, quinn::ConnectionError::ApplicationClosed(_)),
                "{why}"
            );
            let _peer = Peer::raw("moq-lite-06").await;
            while count(&*net, "moq_clients_accepted") == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    });
}

#[test]
fn an_address_that_is_not_proved_gets_a_retry_and_nothing_is_kept() {
    alone(|| {
        let net = moq_edge(moq_config());
        let (own, stranger) = (stranger("127.0.0.1:0"), stranger("127.0.0.1:0"));
        let mut packet = [0; 2048];
        run(async {
            // The first packet of a real client, from an address that never answers.
            let endpoint = endpoint(&["moq-lite-06"]);
            let to = own.local_addr().unwrap();
            let _connecting = endpoint.connect(to, "server.example").unwrap();
            let first = tokio::task::spawn_blocking(move || {
                let len = own.recv(&mut packet).unwrap();
                packet[..len].to_vec()
            });
            stranger.send_to(&first.await.unwrap(), MOQ).unwrap();
        });
        let len = stranger.recv(&mut packet).unwrap();
        // A long header of type Retry (RFC 9000 §17.2.5), shorter than what it answers.
        assert_eq!(packet[0] & 0xf0, 0xf0);
        assert!(len < 1200, "{len} bytes");
        assert_eq!(count(&*net, "moq_clients"), 0);
    });
}

#[test]
fn long_and_malformed_requests_end_their_session_and_no_other() {
    alone(|| {
        let _net = moq_edge(moq_config());
        let mut source = Client::put(EDGE, &path("bfed://7/film"));
        source.chunk(&TS[..100 * 188]);
        run(async {
            let peer = Peer::raw("moq-lite-04").await;
            // SUBSCRIBE with a length of 32 MiB; a type that does not exist; a truncated message; random bytes.
            let long: &[u8] = &[2, 0x82, 0, 0, 0];
            for start in [long, &[0x3f], &[2, 10, 1], &[7; 100]] {
                let hostile = raw("moq-lite-04").await.unwrap();
                let (mut send, mut receive) = hostile.open_bi().await.unwrap();
                send.write_all(start).await.unwrap();
                let mut sent = 0;
                let piece = vec![0; 4096];
                let deadline = Instant::now() + Duration::from_secs(3);
                while start.len() == 5 && Instant::now() < deadline {
                    match tokio::time::timeout(Duration::from_secs(1), send.write(&piece)).await {
                        Ok(Ok(len)) => sent += len,
                        _ => break,
                    }
                }
                // The stream's window, and the bytes that are read before the bound.
                assert!(sent <= (256 << 10) + (32 << 10), "{sent} bytes were taken");
                let _ = send.finish();
                let answer = tokio::time::timeout(Duration::from_secs(5), receive.read_to_end(64));
                assert!(answer.await.is_ok(), "the stream is answered or reset");
            }
            let track = peer.track("7/film").await.unwrap();
            let read = tokio::spawn(bytes(track, 10_000));
            source.chunk(&TS[100 * 188..]);
            assert!(read.await.unwrap().len() >= 10_000);
        });
    });
}

#[test]
fn a_group_with_a_head_without_end_is_stopped_before_it_is_read() {
    alone(|| {
        let _net = moq_edge(moq_config());
        run(async {
            let hostile = raw("moq-lite-04").await.unwrap();
            let mut send = hostile.open_uni().await.unwrap();
            // A group whose head is 32 MiB long. No integer of it is complete with the first byte.
            for byte in [0, 0x82, 0, 0, 0] {
                send.write_all(&[byte]).await.unwrap();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let piece = vec![0; 4096];
            let mut sent = 0;
            let stopped = async {
                while let Ok(len) = send.write(&piece).await {
                    sent += len;
                }
            };
            // While the stream is read, the writer never stops.
            stopped.await;
            assert!(sent <= (256 << 10) + (32 << 10), "{sent} bytes were taken");
        });
    });
}

#[test]
fn a_client_that_asks_for_sessions_without_end_does_not_lock_out_others() {
    alone(|| {
        let net = moq_edge(moq_config());
        run(async {
            let peer = Peer::raw("moq-lite-06").await;
            let requests = (0..200).map(|number| {
                let consumer = peer.reads.consume();
                tokio::spawn(async move {
                    let path = format!("7/nothing-{number}");
                    consumer.routed_broadcast(path.as_str()).await?.track("0")?;
                    Ok::<(), moq_net::Error>(())
                })
            });
            for request in requests.collect::<Vec<_>>() {
                let _ = request.await.unwrap();
            }
            while count(&*net, "moq_requests_denied") == 0 {
                let consumer = peer.reads.consume();
                for number in 200..400 {
                    let path = format!("7/nothing-{number}");
                    if let Ok(broadcast) = consumer.routed_broadcast(path.as_str()).await
                        && let Ok(track) = broadcast.track("0")
                    {
                        let late = track.subscribe(track::Subscription::default());
                        let _ = tokio::time::timeout(Duration::from_millis(10), late).await;
                    }
                }
            }
            let mut source = Client::put(EDGE, &path("bfed://7/film"));
            source.chunk(&TS[..100 * 188]);
            let other = Peer::raw("moq-lite-06").await;
            let track = other.track("7/film").await.unwrap();
            let read = tokio::spawn(bytes(track, 10_000));
            source.chunk(&TS[100 * 188..]);
            assert!(read.await.unwrap().len() >= 10_000);
        });
    });
}

#[test]
fn names_that_are_no_sessions_and_flows_that_are_not_there_are_not_found() {
    alone(|| {
        let _net = moq_edge(moq_config());
        run(async {
            let peer = Peer::raw("moq-lite-06").await;
            for path in ["x", "", "0/x", "7", "7/a/a/a"] {
                let broadcast = peer.reads.consume().routed_broadcast(path).await;
                let Ok(broadcast) = broadcast else { continue };
                let late = track::Subscription::default();
                let track = broadcast.track("0").unwrap().subscribe(late).await;
                assert!(track.is_err(), "{path}");
            }
            let broadcast = peer.reads.consume().routed_broadcast("7/x").await.unwrap();
            for flow in ["1", "00", "-1", "video", ""] {
                let track = broadcast.track(flow).unwrap();
                assert!(
                    track
                        .subscribe(track::Subscription::default())
                        .await
                        .is_err()
                );
            }
        });
    });
}
