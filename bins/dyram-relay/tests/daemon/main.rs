//! The program on the loopback interface: a file goes from a source through relays to receivers while relays are
//! reloaded, drained and stopped.

mod multicast;
mod zones;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use daemon_kit::daemon::Configuration;
use dyram_relay::config::Config;
use dyram_relay::metrics::METRICS;
use dyram_relay::status::{self, Show};
use ltp::relayed::{self, OVERHEAD};
use ltp::store::HeapRing;
use ltp::{Assist, Receiver, ReceiverConfig, ReceiverEvent, Sender, SenderConfig};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto_core::clock::Clock;
use serde_json::Value;
use tempfile::TempDir;

const EXAMPLE: &str = include_str!("../../dyram-relay.toml");
const PATIENCE: Duration = Duration::from_secs(30);
const LEN: usize = 1 << 20;

/// Calls `look` until it returns a value.
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A running relay; killed when dropped.
struct Daemon {
    child: Child,
    folder: TempDir,
    address: SocketAddr,
}

fn program(arguments: &[&str], folder: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dyram-relay"));
    let config = folder.path().join("config.toml");
    command.args(arguments).arg("--config").arg(config);
    command
}

fn write(folder: &TempDir, relay: &str, rest: &str) {
    let socket = folder.path().join("sock");
    let text = format!("[relay]\n{relay}\n[daemon]\nsocket = {socket:?}\n{rest}");
    std::fs::write(folder.path().join("config.toml"), text).expect("configuration");
}

fn parents(addresses: &[SocketAddr]) -> String {
    let quoted: Vec<_> = addresses.iter().map(|a| format!("\"{a}\"")).collect();
    format!("parents = [{}]", quoted.join(", "))
}

impl Daemon {
    fn start(id: u8, host: &str, more: &str, rest: &str) -> Daemon {
        let folder = tempfile::tempdir().expect("folder");
        let relay = format!("id = \"192.0.2.{id}\"\nlisten = \"{host}:0\"\n{more}");
        write(&folder, &relay, rest);
        let log = std::fs::File::create(folder.path().join("log")).expect("log");
        let child = program(&["run", "--log", "debug"], &folder)
            .stderr(Stdio::from(log))
            .spawn()
            .expect("start");
        let socket = folder.path().join("sock");
        let overview = eventually("the relay answers", || {
            status::query(&socket, Show::Overview).ok()
        });
        let address = overview["listen"].as_str().expect("listen");
        Daemon {
            address: address.parse().expect("address"),
            child,
            folder,
        }
    }

    fn status(&self, show: Show) -> Value {
        status::query(&self.folder.path().join("sock"), show).expect("status")
    }

    fn counter(&self, part: &str, name: &str) -> u64 {
        self.status(Show::Counters)[part][name]
            .as_u64()
            .expect("counter")
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("kill");
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).expect("log")
    }

    fn ended(&mut self) -> Option<i32> {
        self.child.try_wait().expect("wait")?.code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("relay {}:\n{}", self.address, self.log());
        }
    }
}

/// A source and receivers with sockets of their own.
struct World {
    clock: Clock,
    root: relayed::Sender<'static, HeapRing>,
    root_socket: UdpSocket,
    leaves: Vec<(relayed::Receiver<'static, HeapRing>, UdpSocket)>,
    complete: Vec<bool>,
    /// One of this many datagrams to a leaf is lost; none if 0.
    loss: u32,
    arrived: u32,
}

fn socket(host: IpAddr) -> UdpSocket {
    let socket = UdpSocket::bind((host, 0)).expect("socket");
    socket.set_nonblocking(true).expect("socket");
    socket
}

impl World {
    /// `leaves[i]` lists the relays of leaf `i`.
    fn new(host: IpAddr, first: SocketAddr, leaves: &[&[SocketAddr]]) -> World {
        let clock = Clock::new();
        let now = clock.now();
        let ip: IpAddr = match host {
            IpAddr::V4(_) => Ipv4Addr::new(239, 1, 2, 3).into(),
            IpAddr::V6(_) => "ff15::123".parse().expect("group"),
        };
        let group = SocketAddr::new(ip, 5000);
        let bytes: Vec<u8> = (0..LEN).map(|i| (i * 7 + i / 251) as u8).collect();
        let mut config = SenderConfig::new(group);
        config.length = Some(LEN as u64);
        config.max_packet_len = 1200;
        config.rate_bps = Some(20_000_000);
        let sender = Sender::new(config, HeapRing::whole(bytes), [1; 32], now).expect("sender");
        let root_socket = socket(host);
        let source = root_socket.local_addr().expect("address");
        let relays = [first].into_iter().collect();
        let root = relayed::Sender::new(sender, source, ip, relays, [2; 32], now).expect("root");
        let leaves: Vec<_> = (3u8..)
            .zip(leaves)
            .map(|(number, relays)| {
                let mut config = ReceiverConfig::new(group);
                config.assist = Assist::Dyram;
                config.source = Some(source.ip());
                let store = HeapRing::new(LEN.next_multiple_of(1 << 16));
                let receiver = Receiver::new(config, store, [number; 32], now);
                let relays = relays.iter().copied().collect();
                let seed = [100 + number; 32];
                let leaf = relayed::Receiver::new(receiver, source.ip(), ip, relays, seed, now);
                (leaf.expect("leaf"), socket(host))
            })
            .collect();
        World {
            clock,
            root,
            root_socket,
            complete: vec![false; leaves.len()],
            leaves,
            loss: 0,
            arrived: 0,
        }
    }

    fn step(&mut self, with_source: bool) {
        let now = self.clock.now();
        let mut buffer = [0; 2048];
        for (number, (leaf, socket)) in self.leaves.iter_mut().enumerate() {
            while let Ok((len, from)) = socket.recv_from(&mut buffer) {
                self.arrived += 1;
                if self.loss == 0 || !self.arrived.is_multiple_of(self.loss) {
                    let _ = leaf.handle_packet(now, &ltp::Meta::unicast(from), &buffer[..len]);
                }
            }
            leaf.handle_timeout(now);
            while let Some(out) = leaf.poll_transmit(now, &mut buffer) {
                let to = out.destination.unicast().expect("a unicast packet");
                let _ = socket.send_to(&buffer[..out.len], to);
            }
            while let Some(event) = leaf.poll_event() {
                let relayed::ReceiverEvent::Receiver(event) = event else {
                    continue;
                };
                assert!(!matches!(event, ReceiverEvent::Failed { .. }), "{event:?}");
                self.complete[number] |= matches!(event, ReceiverEvent::Complete { .. });
            }
        }
        if with_source {
            while let Ok((len, from)) = self.root_socket.recv_from(&mut buffer) {
                let _ = self
                    .root
                    .handle_packet(now, &ltp::Meta::unicast(from), &buffer[..len]);
            }
            self.root.handle_timeout(now);
            while let Some(out) = self.root.poll_transmit(now, &mut buffer) {
                assert!(out.len <= 1200 + OVERHEAD + 24);
                let to = out.destination.unicast().expect("a unicast packet");
                let _ = self.root_socket.send_to(&buffer[..out.len], to);
            }
            while self.root.poll_event().is_some() {}
        }
    }

    /// Runs until all leaves are attached; the source waits.
    fn join(&mut self) {
        eventually("everybody is taken in", || {
            self.step(false);
            self.leaves
                .iter()
                .all(|(leaf, _)| leaf.relay().is_some())
                .then_some(())
        });
    }

    fn deliver(&mut self) {
        eventually("the file arrives", || {
            self.step(true);
            self.complete.iter().all(|complete| *complete).then_some(())
        });
    }
}

fn v4() -> IpAddr {
    Ipv4Addr::LOCALHOST.into()
}

#[test]
fn a_file_arrives_through_a_chain_of_relays_with_losses() {
    for host in ["127.0.0.1", "[::1]"] {
        let top = Daemon::start(1, host, "", "");
        let below = Daemon::start(2, host, &parents(&[top.address]), "");
        let at = [below.address];
        let mut world = World::new(top.address.ip(), top.address, &[&at, &at, &at]);
        world.loss = 25;
        world.join();
        world.deliver();
        assert!(
            below.counter("recovery", "repaired_below") > 0,
            "receivers repair"
        );
        // A busy machine loses some, and gets them as repairs.
        assert!(below.counter("recovery", "data") >= (LEN / 1200 / 2) as u64);
        assert!(below.counter("sockets", "sent") > below.counter("sockets", "received"));
        let sessions = below.status(Show::Sessions);
        assert_eq!(sessions["sessions"][0]["above"], top.address.to_string());
        assert_eq!(sessions["sessions"][0]["children"], 3);
        let children = below.status(Show::Children);
        assert_eq!(children["children"].as_array().map(Vec::len), Some(3));
        for (show, word) in [
            (Show::Overview, "192.0.2.2"),
            (Show::Sessions, "ACKNOWLEDGED"),
            (Show::Children, "RECEIVERS"),
            (Show::Counters, "repaired_below"),
        ] {
            let text = status::render(show, &below.status(show)).expect("text");
            assert!(text.contains(word), "{text}");
        }
    }
}

#[test]
fn sigterm_sends_children_to_their_next_relay_and_nothing_is_lost() {
    let top = Daemon::start(1, "127.0.0.1", "", "");
    let more = parents(&[top.address]);
    let mut first = Daemon::start(2, "127.0.0.1", &more, "");
    let second = Daemon::start(3, "127.0.0.1", &more, "");
    let at = [first.address, second.address];
    let mut world = World::new(v4(), top.address, &[&at, &at]);
    world.join();
    assert_eq!(world.leaves[0].0.relay(), Some(first.address));
    eventually("some of it is there", || {
        world.step(true);
        (first.counter("recovery", "data") > 100).then_some(())
    });
    first.signal(Signal::SIGTERM);
    let code = eventually("it ends", || {
        world.step(true);
        first.ended()
    });
    assert_eq!(code, 0, "{}", first.log());
    assert!(!first.log().contains("drain timed out"));
    world.deliver();
    assert_eq!(world.leaves[0].0.relay(), Some(second.address));
}

#[test]
fn a_second_sigterm_ends_at_once_and_sigusr1_does_not_end() {
    let mut only = Daemon::start(1, "127.0.0.1", "", "[timers]\ndrain = \"1h\"\n");
    let mut world = World::new(v4(), only.address, &[&[only.address]]);
    world.join();
    only.signal(Signal::SIGUSR1);
    eventually("it drains", || {
        (only.status(Show::Overview)["draining"] == true).then_some(())
    });
    only.signal(Signal::SIGTERM);
    eventually("it is asked to end", || {
        only.log().contains("ending").then_some(())
    });
    assert_eq!(only.ended(), None, "a child is left");
    only.signal(Signal::SIGTERM);
    assert_eq!(eventually("it ends", || only.ended()), 1);
    assert!(!only.folder.path().join("sock").exists());
}

#[test]
fn a_reload_changes_parents_or_nothing() {
    let one = Daemon::start(1, "127.0.0.1", "", "");
    let two = Daemon::start(2, "127.0.0.1", "", "");
    let below = Daemon::start(3, "127.0.0.1", &parents(&[one.address]), "");
    let mut world = World::new(v4(), one.address, &[&[below.address]]);
    world.join();
    let above = |address: SocketAddr| {
        let sessions = below.status(Show::Sessions);
        (sessions["sessions"][0]["above"] == address.to_string()).then_some(())
    };
    eventually("the first parent", || above(one.address));
    let head = "id = \"192.0.2.3\"\nlisten = \"127.0.0.1:0\"\n";
    write(&below.folder, &format!("{head}parents = [\"nowhere\"]"), "");
    below.signal(Signal::SIGHUP);
    let error = eventually("it is rejected", || {
        let overview = below.status(Show::Overview);
        overview["configuration"]["last_error"]
            .as_str()
            .map(str::to_owned)
    });
    assert!(
        error.contains("config.toml:4:12: relay.parents: \"nowhere\""),
        "{error}"
    );
    above(one.address).expect("the old parent stays");
    let next = format!("{head}{}", parents(&[two.address]));
    write(&below.folder, &next, "[limits]\nsessions = 3\n");
    below.signal(Signal::SIGHUP);
    eventually("the second parent", || {
        world.step(false);
        above(two.address)
    });
    let overview = below.status(Show::Overview);
    let waiting = &overview["configuration"]["needs_restart"];
    assert_eq!(*waiting, serde_json::json!(["limits.sessions"]));
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_cannot_run_is_refused_with_a_reason() {
    let running = Daemon::start(1, "127.0.0.1", "", "");
    // The same status socket.
    let output = program(&["run"], &running.folder).output().expect("run");
    assert_eq!(output.status.code(), Some(1));
    let message = "another dyram-relay is running with this status socket";
    assert!(said(&output).contains(message), "{}", said(&output));
    // The same address.
    let folder = tempfile::tempdir().expect("folder");
    let relay = format!("id = \"192.0.2.9\"\nlisten = \"{}\"", running.address);
    write(&folder, &relay, "");
    let output = program(&["run"], &folder).output().expect("run");
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("relay.listen"), "{}", said(&output));
    // A wrong configuration, every problem at once.
    write(
        &folder,
        "listen = \"x\"",
        "[limits]\nwindow = 1000\nchilds = 1\n",
    );
    for verb in ["run", "check"] {
        let output = program(&[verb], &folder).output().expect("run");
        assert_eq!(output.status.code(), Some(2));
        for problem in [
            "relay.id: is missing",
            "relay.listen: ",
            "1000 is not a power of two; write 512 or 1024",
            "limits.childs: is unknown",
        ] {
            assert!(
                said(&output).contains(problem),
                "{problem}: {}",
                said(&output)
            );
        }
    }
}

#[test]
fn the_example_shows_the_defaults() {
    let example = Config::parse(EXAMPLE).expect("example");
    assert_eq!(Ok(example), Config::parse("[relay]\nid = \"192.0.2.1\"\n"));
    let mut text = EXAMPLE.replace("carriage = \"relays\"", "carriage = \"multicast\"");
    for key in [
        "[multicast]",
        "interface",
        "groups",
        "listen = \"127",
        "user",
        "cpu",
    ] {
        text = text.replace(&format!("#{key}"), key);
    }
    let all = Config::parse(&text).expect("all keys");
    assert_eq!(all.multicast.expect("multicast").groups.len(), 1);
    assert_eq!(all.daemon.cpu, Some(1));
}

#[test]
fn a_refusal_is_in_the_log_with_the_limit_that_was_met() {
    let relay = Daemon::start(1, "127.0.0.1", "", "[limits]\nchildren-per-host = 1\n");
    let mut world = World::new(v4(), relay.address, &[&[relay.address], &[relay.address]]);
    let line = "child refused: a table is full";
    eventually("the refusal is in the log", || {
        world.step(true);
        let log = relay.log();
        let shown = log.lines().find(|at| at.contains(line))?;
        shown.contains("children_per_host").then_some(())
    });
    assert!(relay.counter("members", "refused") > 0);
}

#[test]
fn metrics_are_served_and_documented() {
    use std::io::{Read, Write};
    let rest = "[metrics]\nlisten = \"127.0.0.1:0\"\n";
    let relay = Daemon::start(1, "127.0.0.1", "", rest);
    let nonsense = socket(v4());
    nonsense.send_to(b"nonsense", relay.address).expect("send");
    eventually("nonsense is counted", || {
        (relay.counter("drops", "malformed") == 1).then_some(())
    });
    let overview = relay.status(Show::Overview);
    let address = overview["metrics"].as_str().expect("metrics");
    let mut stream = std::net::TcpStream::connect(address).expect("connect");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .expect("ask");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("page");
    assert!(
        page.contains("dyram_relay_drops_total{reason=\"malformed\"} 1"),
        "{page}"
    );
    assert!(page.contains("carriage=\"relays\"} 1"), "{page}");
    // One family for one quantity and unit.
    assert!(!page.contains("dyram_relay_sockets_total"), "{page}");
    assert!(
        page.contains("dyram_relay_received_packets_total 1"),
        "{page}"
    );
    assert!(
        page.contains("dyram_relay_received_bytes_total 8"),
        "{page}"
    );
    let manual = include_str!("../../../../docs/manual/metrics.md");
    for metric in METRICS {
        assert!(
            page.contains(&format!("# HELP dyram_relay_{} ", metric.name)),
            "{page}"
        );
        let row = metric.documentation("dyram_relay");
        assert!(manual.contains(&row), "not in the manual: {row}");
    }
}
