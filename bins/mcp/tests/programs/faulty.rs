//! Hosts that take part in a relay and break its rules, made of `mcp-control` and `mcp-relay`.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use mcp_control::wire::hello::Capabilities;
use mcp_control::wire::progress::Progress;
use mcp_control::wire::relay::{Feed, LinkReport, LinkState};
use mcp_control::{Manifest, Server, ServerConfig, ServerEvent};
use mcp_relay::Terms;
use mcp_relay::feeder::{self, Availability, Source};
use proto_core::clock::Clock;

use crate::common::{Stage, names};

const MIB: usize = 1 << 20;

/// What is wrong with a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// It passes on bytes that are not those of the block.
    Lies,
    /// It passes on nothing, and says that it has everything.
    Stalls,
    /// It reports many times that it is ready for its feeder.
    Repeats,
    /// It reports wrong bytes of every feeder, and feeds none itself.
    Accuses,
}

/// Reports of a host that repeats them.
const REPORTS: usize = 20;

struct Faulty {
    fault: Fault,
    manifest: Arc<Manifest>,
    over: Arc<AtomicBool>,
}

impl Source for Faulty {
    fn wait(&self, _: u64, timeout: Duration) -> Availability {
        if self.over.load(Ordering::Relaxed) {
            return Availability::Gone;
        }
        if self.fault == Fault::Stalls {
            std::thread::sleep(timeout);
            return Availability::Pending;
        }
        Availability::Ready
    }

    fn read(&self, block: u64) -> Option<Arc<Vec<u8>>> {
        let len = self.manifest.locate(block)?.len;
        Some(Arc::new(vec![0x5a; len as usize]))
    }

    fn served(&self, _: usize) {}
}

/// Serves one control connection as a host with this fault, until `mcp` hangs up.
fn serve(listener: &TcpListener, fault: Fault, over: &Arc<AtomicBool>) {
    let (mut stream, _) = listener.accept().expect("mcp");
    stream
        .set_read_timeout(Some(Duration::from_millis(50)))
        .expect("a timeout");
    let clock = Clock::new();
    let links = match fault {
        Fault::Accuses => Capabilities::FED,
        _ => Capabilities::FED.with(Capabilities::FEEDS),
    };
    let config = ServerConfig::new(Capabilities::UDP.with(links));
    let mut server = Server::new(config, clock.now());
    let mut manifest = Arc::new(Manifest::default());
    let mut input = vec![0; 1 << 16];
    let mut frame = vec![0; mcp_control::limits::MAX_FRAME_LEN];
    while !server.is_ended() {
        while let Some(event) = server.poll_event() {
            event_of(&mut server, clock, event, &mut manifest, fault, over);
        }
        while let Some(transmit) = server.poll_transmit(clock.now(), &mut frame) {
            if stream.write_all(&frame[..transmit.len]).is_err() {
                return;
            }
        }
        let read = match stream.read(&mut input) {
            Ok(0) => return,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(_) => return,
        };
        let mut bytes = &input[..read];
        while !bytes.is_empty() && server.handle_bytes(clock.now(), &mut bytes) {
            while let Some(event) = server.poll_event() {
                event_of(&mut server, clock, event, &mut manifest, fault, over);
            }
        }
        server.handle_timeout(clock.now());
    }
}

fn event_of(
    server: &mut Server,
    clock: Clock,
    event: ServerEvent,
    manifest: &mut Arc<Manifest>,
    fault: Fault,
    over: &Arc<AtomicBool>,
) {
    let now = clock.now();
    match event {
        ServerEvent::Offered {
            manifest: offered, ..
        } => {
            *manifest = offered;
            server.scanned(now).expect("in time");
        }
        ServerEvent::Suggested { destination, .. } => {
            server.port(now, destination).expect("in time");
        }
        ServerEvent::Planned { plan, .. } => {
            assert!(plan.has_links_only());
            server.ready(now).expect("in time");
            let has = match fault {
                Fault::Accuses => 0,
                _ => plan.stream_len,
            };
            let progress = Progress {
                received: has,
                held: has,
            };
            server.progress(now, progress).expect("in time");
        }
        // It would be ready for a feeder, and never takes one.
        ServerEvent::Fed(fed) => {
            let state = match fault {
                Fault::Accuses => LinkState::Wrong { block: 0 },
                _ => LinkState::Expected,
            };
            let report = LinkReport {
                link: fed.link,
                state,
            };
            let reports = if fault == Fault::Repeats { REPORTS } else { 1 };
            for _ in 0..reports {
                server.link(now, &report).expect("in time");
            }
        }
        ServerEvent::Feed(feed) => drop(serve_child(feed, Arc::clone(manifest), fault, over)),
        _ => {}
    }
}

fn serve_child(
    feed: Feed,
    manifest: Arc<Manifest>,
    fault: Fault,
    over: &Arc<AtomicBool>,
) -> JoinHandle<()> {
    let source = Faulty {
        fault,
        manifest: Arc::clone(&manifest),
        over: Arc::clone(over),
    };
    std::thread::spawn(move || {
        let terms = Terms {
            link: feed.link,
            secret: feed.secret,
            sealed: feed.sealed,
        };
        let link = feeder::connect(&terms, feed.child).expect("the child");
        // The child hangs up on it.
        let _ = link.serve(&manifest, &source);
    })
}

/// Copies to a host with a fault, and to one that it is to feed.
#[track_caller]
fn is_bypassed(fault: Fault, reason: &str) {
    let stage = Stage::new();
    let file = stage.content("image", 12 * MIB);
    // It feeds no others: so the other host feeds it.
    let _honest = stage.start(1, &["--no-relay"]);
    let listener = TcpListener::bind((stage.address(2), 4139)).expect("the port");
    let over = Arc::new(AtomicBool::new(false));
    let faulty = {
        let over = Arc::clone(&over);
        std::thread::spawn(move || serve(&listener, fault, &over))
    };
    let options = ["--mode", "unicast", "--retries", "0"];
    let done = stage.copy(&file, &[1, 2], &options);
    over.store(true, Ordering::Relaxed);
    done.expect(3);
    let fed = stage.address(2);
    done.line(&[
        "\"feeder\"",
        &stage.address(1),
        &format!("\"feeder\":\"{fed}\""),
    ]);
    let named = done.line(&["\"event\":\"bypassed\"", &fed]);
    assert!(named.contains(reason), "{named}");
    done.line(&["\"verified\"", &stage.address(1)]);
    let copy = std::fs::read(stage.dir(1).join("image")).expect("a copy");
    assert!(copy == std::fs::read(&file).expect("the file"));
    assert_eq!(names(&stage.dir(1)), ["image"]);
    let end = done.line(&["\"event\":\"end\""]);
    assert!(end.contains(reason), "{end}");
    faulty.join().expect("served");
}

#[test]
fn a_host_that_passes_on_wrong_bytes_is_named_and_bypassed() {
    is_bypassed(Fault::Lies, "\"reason\":\"wrong_bytes\",\"block\":0");
}

#[test]
fn a_host_that_passes_on_nothing_is_named_and_bypassed() {
    is_bypassed(Fault::Stalls, "\"reason\":\"stalled\"");
}

/// Each report would have another host connect to it.
#[test]
fn a_host_that_repeats_that_it_is_ready_is_connected_to_once() {
    let stage = Stage::new();
    let file = stage.content("image", 12 * MIB);
    let _honest = stage.start(1, &["--no-relay"]);
    let listener = TcpListener::bind((stage.address(2), 4139)).expect("the port");
    let links = listener.try_clone().expect("the port");
    let over = Arc::new(AtomicBool::new(false));
    let faulty = std::thread::spawn(move || serve(&listener, Fault::Repeats, &over));
    let options = ["--mode", "unicast", "--retries", "0"];
    let done = stage.copy(&file, &[1, 2], &options);
    done.expect(3);
    faulty.join().expect("served");
    links.set_nonblocking(true).expect("set");
    let connections = std::iter::from_fn(|| links.accept().ok()).count();
    let fed = format!("\"host\":\"{}\",\"feeder\"", stage.address(2));
    let arranged = done.lines.iter().filter(|line| line.contains(&fed));
    assert_eq!(connections, arranged.count(), "{:#?}", done.lines);
}

/// The sender cannot see which of two hosts lies; only its own bytes are beyond doubt.
#[test]
fn a_host_that_accuses_all_its_feeders_has_two_named_and_fails() {
    let stage = Stage::new();
    // The rate keeps the honest hosts there until the other one has had its feeders.
    let file = stage.content("image", 24 * MIB);
    let honest = [1, 3, 4, 5];
    let _running = honest.map(|receiver| stage.start(receiver, &[]));
    let listener = TcpListener::bind((stage.address(2), 4139)).expect("the port");
    let over = Arc::new(AtomicBool::new(false));
    let faulty = std::thread::spawn(move || serve(&listener, Fault::Accuses, &over));
    let options = ["--mode", "unicast", "--retries", "0", "--rate", "100M"];
    let done = stage.copy(&file, &[1, 2, 3, 4, 5], &options);
    done.expect(3);
    faulty.join().expect("served");
    done.line(&["\"failed\"", &stage.address(2), "wrong bytes"]);
    let named = done.lines.iter();
    let named = named
        .filter(|line| line.contains("\"event\":\"bypassed\""))
        .count();
    assert_eq!(named, 2, "{:#?}", done.lines);
    for receiver in honest {
        done.line(&["\"verified\"", &stage.address(receiver)]);
    }
}

/// The port is open to all; a link needs an announcement of the sender.
#[test]
fn a_stranger_cannot_feed_a_host() {
    use mcp_control::wire::link::Preface;
    use mcp_control::wire::relay::LinkId;
    let stage = Stage::new();
    let mut host = stage.start(1, &[]);
    let mut stream = TcpStream::connect((stage.address(1), 4139)).expect("connected");
    let preface = Preface {
        sealed: false,
        link: LinkId([7; 16]),
        nonce: [8; 32],
    };
    stream.write_all(&preface.emit()).expect("sent");
    assert_eq!(stream.read(&mut [0; 64]).expect("closed"), 0);
    host.wait_for(&["\"refused\"", "no sender has announced"]);
}
