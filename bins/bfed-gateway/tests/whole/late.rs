//! Viewers of an HTTP network whose gateway joins a session of fragmented MP4 in the middle.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bfed_client::session_path;
use bfed_gateway::config::Mode;
use bfed_gateway::native::{HttpConfig, NetworkConfig};
use media::{Event, Reader};

use super::cluster::key_file;
use super::quic::over_quic;
use super::{Gateway, eventually, port};

const MP4: &[u8] = include_bytes!("../../../../crates/media/tests/samples/h264.mp4");
const WEBM: &[u8] = include_bytes!("../../../../crates/media/tests/samples/vp8.webm");

/// Length of the head of a cluster.
const CLUSTER: usize = 22;

/// A free port of loopback that no outgoing connection takes: it is below those that the kernel chooses.
fn listener() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id() % 10_000;
    let mut tried = std::iter::repeat_with(|| {
        let port = 20_000 + (first as u16 + NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000;
        SocketAddr::from(([127, 0, 0, 1], port))
    });
    tried.find(|at| TcpListener::bind(at).is_ok()).unwrap()
}

/// Three gateways of HTTP networks in a line, and the addresses of their servers.
fn line(quic: bool) -> (Vec<Gateway>, Vec<SocketAddr>) {
    let keys = tempfile::tempdir().unwrap();
    let (at, servers): (Vec<_>, Vec<_>) = (0..3).map(|_| (port(), listener())).unzip();
    let start = |number: usize| {
        let folder = tempfile::tempdir().unwrap();
        let key = if quic {
            key_file(&keys, "server.pem")
        } else {
            String::new()
        };
        let mut text = format!(
            "[gateway]\nnetwork = {}\nlisten = \"{}\"\n{key}\n[daemon]\nsocket = {:?}\n[data]\nlisten = \"127.0.0.1:0\"\nnodes = 1\n",
            number + 1,
            at[number],
            folder.path().join("sock"),
        );
        for peer in (0..3).filter(|other| number.abs_diff(*other) == 1) {
            let (network, address) = (peer + 1, at[peer]);
            text.push_str(&format!(
                "[[peer]]\nnetwork = {network}\naddress = \"{address}\"\n"
            ));
            if quic {
                text.push_str("tls-name = \"server.example\"\n");
            }
        }
        let network = NetworkConfig::Http(HttpConfig::new(servers[number], listener()));
        Gateway::run_with(Mode::Whole, folder, &text, Some(network))
    };
    let line: Vec<Gateway> = (0..3).map(start).collect();
    for (gateway, peers) in line.iter().zip([1, 2, 1]) {
        gateway.peered(peers);
    }
    (line, servers)
}

/// The initialisation of a stream, the offsets of units that a decoder can start with, and the end of the
/// last unit.
fn parts(stream: &[u8]) -> (Vec<u8>, Vec<usize>, usize) {
    let mut reader = Reader::new();
    reader.push(stream);
    let events: Vec<_> = std::iter::from_fn(|| reader.poll_event()).collect();
    let end = events.iter().rev().find_map(|event| match event {
        Event::Unit(unit) => Some(unit.end() as usize),
        Event::Init => None,
    });
    let starts = events.into_iter().filter_map(|event| match event {
        Event::Unit(unit) if unit.is_start => Some(unit.offset as usize),
        _ => None,
    });
    let starts = starts.collect();
    (reader.init().to_vec(), starts, end.unwrap())
}

/// A source that sends a stream, and then its units again and again, until it is dropped.
struct Source(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Source {
    fn start(server: SocketAddr, session: &str, stream: &'static [u8]) -> Source {
        let mut put = TcpStream::connect(server).unwrap();
        let path = session_path(session, 0);
        let head = format!("PUT {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
        put.write_all(head.as_bytes()).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (_, starts, end) = parts(stream);
        let (stream, first) = (&stream[..end], starts[0]);
        let thread = std::thread::spawn(move || {
            let mut rest = stream;
            while !stopped.load(Ordering::Relaxed) {
                for piece in rest.chunks(1000) {
                    let len = format!("{:x}\r\n", piece.len());
                    put.write_all(&[len.as_bytes(), piece, b"\r\n"].concat())
                        .unwrap();
                    std::thread::sleep(Duration::from_millis(2));
                }
                rest = &stream[first..];
            }
        });
        Source(stop, Some(thread))
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        let _ = self.1.take().map(JoinHandle::join);
    }
}

/// The body that a viewer gets, from its first byte on.
struct Viewer(TcpStream, Vec<u8>);

impl Viewer {
    fn start(server: SocketAddr, session: &str) -> Viewer {
        let path = session_path(session, 0);
        // Routes may still be on their way.
        eventually("an answer", || {
            let mut stream = TcpStream::connect(server).ok()?;
            stream
                .set_read_timeout(Some(Duration::from_secs(30)))
                .unwrap();
            let ask = format!("GET {path} HTTP/1.0\r\nHost: x\r\n\r\n");
            stream.write_all(ask.as_bytes()).ok()?;
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") {
                stream.read_exact(&mut byte).ok()?;
                head.push(byte[0]);
            }
            let line = String::from_utf8_lossy(&head);
            let found = line.lines().next()?.contains(" 200 ");
            found.then(|| Viewer(stream, Vec::new()))
        })
    }

    fn until(&mut self, len: usize) -> &[u8] {
        let mut buffer = [0; 4096];
        while self.1.len() < len {
            let read = self.0.read(&mut buffer).unwrap();
            assert!(read > 0, "ended after {} bytes", self.1.len());
            self.1.extend_from_slice(&buffer[..read]);
        }
        &self.1[..len]
    }
}

/// Viewers in the second island, and later in the third one, begin with the initialisation and a key frame.
fn late(session: &str, stream: &'static [u8], quic: bool) {
    let (line, servers) = line(quic);
    let _source = Source::start(servers[0], session, stream);
    let (init, ..) = parts(stream);
    // The initialisation has come when the first viewer does.
    std::thread::sleep(Duration::from_millis(200));
    for server in &servers[1..] {
        let mut viewer = Viewer::start(*server, session);
        let body = viewer.until(init.len() + 20_000);
        assert!(
            body.starts_with(&init),
            "begins with {:?}",
            String::from_utf8_lossy(&body[..80])
        );
        let (_, starts, _) = parts(body);
        assert_eq!(starts[0], init.len(), "goes on with a key frame");
        // In WebM, the head of a cluster is inserted where a unit lies within one.
        let [rest, within] = [0, CLUSTER].map(|head| &body[init.len() + head..]);
        let is_there = stream
            .windows(300)
            .any(|some| rest.starts_with(some) || within.starts_with(some));
        assert!(is_there, "the bytes of the source");
        // The next gateway joins in the middle of a fragment, and not with the source's start.
        std::thread::sleep(Duration::from_millis(100));
    }
    if quic {
        over_quic(&line);
    }
}

#[test]
fn over_tcp_a_gateway_that_joins_late_has_the_initialisation_of_mp4() {
    late("bfed://1/film", MP4, false);
}

#[test]
fn over_tcp_a_gateway_that_joins_late_has_the_initialisation_of_webm() {
    late("bfed://1/film", WEBM, false);
}

#[test]
fn over_quic_streams_a_gateway_that_joins_late_has_the_initialisation() {
    late("bfed://1/film", MP4, true);
}

#[test]
fn over_udp_a_gateway_that_joins_late_has_the_initialisation() {
    late("bfed://1/film/?content=real-time", MP4, false);
}

#[test]
fn over_quic_datagrams_a_gateway_that_joins_late_has_the_initialisation() {
    late("bfed://1/film/?content=real-time", MP4, true);
}
