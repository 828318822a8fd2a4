//! The real program on the loopback: peers and strangers, and an operator who does what operators do.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use bfed::wire::notification::{Reason, Repr as Notification};
use bfed::wire::open::Repr as Open;
use bfed::{GatewayId, Tables};
use bfed_gateway::metrics::METRICS;
use bfed_gateway::status::{self, Show};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A port of loopback that nobody has now.
fn port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// A running gateway; killed when dropped.
struct Daemon {
    child: Child,
    folder: TempDir,
}

fn program(arguments: &[&str], folder: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bfed-gateway"));
    let config = folder.path().join("gateway.toml");
    command.args(arguments).arg("--config").arg(config);
    command
}

fn text(folder: &TempDir, network: u32, gateway: &str, rest: &str) -> String {
    let socket = folder.path().join("sock");
    format!(
        "[gateway]\nnetwork = {network}\n{gateway}\n[daemon]\nsocket = {socket:?}\n[data]\nlisten = \"127.0.0.1:0\"\nnodes = 1\n{rest}"
    )
}

fn write(folder: &TempDir, text: &str) {
    std::fs::write(folder.path().join("gateway.toml"), text).unwrap();
}

fn peer(network: u32, address: SocketAddr) -> String {
    format!("[[peer]]\nnetwork = {network}\naddress = \"{address}\"\n")
}

impl Daemon {
    fn start(mode: &str, network: u32, gateway: &str, rest: &str) -> Daemon {
        let folder = tempfile::tempdir().unwrap();
        write(&folder, &text(&folder, network, gateway, rest));
        Daemon::again(mode, folder)
    }

    fn again(mode: &str, folder: TempDir) -> Daemon {
        let command = program(&[mode, "--log", "debug"], &folder);
        Daemon::spawned(command, folder)
    }

    fn spawned(mut command: Command, folder: TempDir) -> Daemon {
        let log = folder.path().join("log");
        let log = std::fs::File::options()
            .append(true)
            .create(true)
            .open(log)
            .unwrap();
        let child = command.stderr(Stdio::from(log)).spawn().unwrap();
        let daemon = Daemon { child, folder };
        daemon.show(Show::Overview);
        daemon
    }

    fn show(&self, what: Show) -> Value {
        let socket = self.folder.path().join("sock");
        eventually("an answer", || status::query(&socket, what).ok())
    }

    fn status(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_bfed-gateway"))
            .args(arguments)
            .arg("--socket")
            .arg(self.folder.path().join("sock"))
            .output()
            .unwrap()
    }

    fn peered(&self) {
        eventually("a peering", || {
            (self.show(Show::Overview)["established"] == 1).then_some(())
        });
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Its exit code, and what it leaves.
    fn end(mut self, signal: Signal) -> (Option<i32>, TempDir) {
        self.signal(signal);
        let code = self.child.wait().unwrap().code();
        (
            code,
            std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap()),
        )
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen(at: SocketAddr) -> String {
    format!("listen = \"{at}\"")
}

/// Two gateways that know each other.
fn pair(more: &str) -> (Daemon, Daemon) {
    pair_of("all", more)
}

/// The same; the second in that mode.
fn pair_of(mode: &str, more: &str) -> (Daemon, Daemon) {
    let at = [port(), port()];
    let start = |own: usize| {
        let other = 1 - own;
        let gateway = format!("{}\n{more}", listen(at[own]));
        let cluster = "[cluster]\nlisten = \"127.0.0.1:0\"\n";
        let (mode, cluster) = match own == 1 && mode != "all" {
            true => (mode, cluster),
            false => ("all", ""),
        };
        let rest = format!("{}{cluster}", peer(other as u32 + 1, at[other]));
        Daemon::start(mode, own as u32 + 1, &gateway, &rest)
    };
    (start(0), start(1))
}

#[test]
fn check_and_wrong_usage_have_their_exit_codes() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder, &text(&folder, 1, "", ""));
    let fine = program(&["check"], &folder).output().unwrap();
    assert_eq!(fine.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&fine.stdout).contains("no problems"));
    for mode in ["control", "data"] {
        let missing = program(&[mode], &folder).output().unwrap();
        assert_eq!(missing.status.code(), Some(2));
        let said = String::from_utf8_lossy(&missing.stderr).into_owned();
        assert!(
            said.contains(":1:1: cluster.") && said.contains("is missing"),
            "{said}"
        );
    }
    write(&folder, "[gateway]\nnetwork = 1\nnumbr = 2\n");
    let wrong = program(&["check"], &folder).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(
        said.contains("gateway.toml:3:1: gateway.numbr: is unknown; did you mean number?"),
        "{said}"
    );
    let usage = Command::new(env!("CARGO_BIN_EXE_bfed-gateway"))
        .arg("sing")
        .output()
        .unwrap();
    assert_eq!(usage.status.code(), Some(2));
}

#[test]
fn what_cannot_be_opened_ends_the_program_with_a_sentence() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (gateway, rest, said) in [
        (listen(at), String::new(), "gateway.listen"),
        (
            "key-file = \"/nowhere\"".to_owned(),
            String::new(),
            "gateway.key-file",
        ),
        (
            String::new(),
            format!("[metrics]\nlisten = \"{at}\""),
            "metrics.listen",
        ),
    ] {
        write(&folder, &text(&folder, 1, &gateway, &rest));
        let failed = program(&["all"], &folder).output().unwrap();
        assert_eq!(failed.status.code(), Some(1));
        let error = String::from_utf8_lossy(&failed.stderr).into_owned();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn gateways_peer_and_show_it() {
    let (one, other) = pair("");
    one.peered();
    other.peered();
    eventually("routes", || {
        let routes = one.show(Show::Routes);
        (routes["routes"].as_array()?.len() == 12).then_some(())
    });
    for what in [
        "overview", "routes", "peers", "sessions", "nodes", "counters",
    ] {
        let shown = one.status(&["status", what]);
        assert_eq!(shown.status.code(), Some(0), "{what}");
        assert!(!shown.stdout.is_empty() || what == "sessions", "{what}");
        let json = one.status(&["status", what, "--json"]);
        assert!(
            serde_json::from_slice::<Value>(&json.stdout)
                .unwrap()
                .is_object()
        );
    }
    assert_eq!(one.status(&["drain", "9"]).status.code(), Some(1));
    assert_eq!(one.status(&["drain", "1"]).status.code(), Some(0));
    // An end that is told: the other side knows why.
    let (code, folder) = other.end(Signal::SIGTERM);
    let said = std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(!said.contains("control lost"), "{said}");
    assert_eq!(code, Some(0));
    let why = eventually("the reason", || {
        let peers = one.show(Show::Peers);
        let why = peers["peers"][0]["last_end"].as_str()?.to_owned();
        why.contains("shutdown").then_some(why)
    });
    assert!(why.contains("ended by the peer"), "{why}");
    // A second signal ends it at once, whatever waits.
    assert_eq!(one.end(Signal::SIGINT).0, Some(0));
}

#[test]
fn an_ordinary_start_and_stop_logs_no_warning() {
    for more in [
        "",
        "[network]\nkind = \"http\"\nlisten = \"127.0.0.1:0\"\nmediator = \"127.0.0.1:0\"\n",
    ] {
        let at = [port(), port()];
        let start = |own: usize| {
            let rest = format!("{}{more}", peer(2 - own as u32, at[1 - own]));
            Daemon::start("all", own as u32 + 1, &listen(at[own]), &rest)
        };
        // The first calls the second before it is there.
        let (one, other) = (start(0), start(1));
        one.peered();
        other.peered();
        let ends = [other.end(Signal::SIGTERM), one.end(Signal::SIGTERM)];
        for (code, folder) in ends {
            no_warning(&folder);
            assert_eq!(code, Some(0));
        }
    }
}

#[test]
fn a_data_node_that_starts_before_its_control_node_logs_no_warning() {
    let call = port();
    let cluster = format!("first-node = 5\n[cluster]\ncontrol = [\"{call}\"]\n");
    let data = Daemon::start("data", 1, "", &cluster);
    let control = Daemon::start(
        "control",
        1,
        "",
        &format!("[cluster]\nlisten = \"{call}\"\n"),
    );
    eventually("the data node", || {
        (control.show(Show::Overview)["nodes"] == 1).then_some(())
    });
    assert!(data.log().contains("waiting for the control node"));
    no_warning(&data.end(Signal::SIGTERM).1);
    eventually("its end", || {
        (control.show(Show::Overview)["nodes"] == 0).then_some(())
    });
    assert!(control.log().contains("drained data node left"));
    assert_eq!(control.show(Show::Counters)["control"]["nodes_lost"], 0);
    no_warning(&control.folder);
}

fn no_warning(folder: &TempDir) {
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    for line in log.lines() {
        assert!(!line.contains(" WARN ") && !line.contains("ERROR"), "{log}");
    }
}

#[test]
fn an_end_for_a_restart_keeps_the_peers_routes() {
    let (one, other) = pair_of("control", "");
    one.peered();
    other.peered();
    eventually("routes", || {
        (one.show(Show::Routes)["routes"].as_array()?.len() == 12).then_some(())
    });
    let (code, folder) = other.end(Signal::SIGUSR2);
    assert_eq!(code, Some(0));
    eventually("the loss", || {
        (one.show(Show::Overview)["established"] == 0).then_some(())
    });
    let peers = one.show(Show::Peers);
    assert_eq!(peers["peers"][0]["stale"], true);
    assert_eq!(
        one.show(Show::Routes)["routes"].as_array().unwrap().len(),
        12
    );
    let other = Daemon::again("control", folder);
    one.peered();
    other.peered();
    eventually("no stale routes", || {
        (one.show(Show::Peers)["peers"][0]["stale"] == false).then_some(())
    });
}

#[test]
fn nobody_waits_for_a_gateway_whose_data_nodes_end_with_it() {
    let (one, other) = pair("");
    one.peered();
    other.peered();
    let (code, _folder) = other.end(Signal::SIGUSR2);
    assert_eq!(code, Some(0));
    eventually("the loss", || {
        (one.show(Show::Overview)["established"] == 0).then_some(())
    });
    assert_eq!(one.show(Show::Peers)["peers"][0]["stale"], false);
    assert_eq!(one.show(Show::Routes)["routes"], serde_json::json!([]));
}

#[test]
fn a_reload_is_taken_whole_or_not_at_all() {
    let (one, other) = pair("");
    one.peered();
    let config = one.folder.path().join("gateway.toml");
    let good = std::fs::read_to_string(&config).unwrap();
    std::fs::write(
        &config,
        good.replace("network = 2", "network = 2\ncost = 0"),
    )
    .unwrap();
    one.signal(Signal::SIGHUP);
    let told = eventually("a rejection", || {
        let overview = one.show(Show::Overview);
        overview["configuration"]["last_error"]
            .as_str()
            .map(str::to_owned)
    });
    assert!(told.contains("cost: 0 is too small"), "{told}");
    one.peered();
    // A policy counts at once; a new port for peers waits, and is named.
    let policy = "network = 2\nimport-default = \"reject\"";
    let next = good
        .replace("network = 2", policy)
        .replace("nodes = 1", "nodes = 2");
    std::fs::write(&config, next).unwrap();
    one.signal(Signal::SIGHUP);
    eventually("no route that is used", || {
        let routes = one.show(Show::Routes);
        let mut routes = routes["routes"].as_array()?.iter();
        routes.all(|route| route["best"] == false).then_some(())
    });
    let overview = one.show(Show::Overview);
    assert_eq!(overview["configuration"]["reloads"], 1);
    assert_eq!(overview["configuration"]["rejected"], 1);
    assert_eq!(overview["configuration"]["needs_restart"][0], "data");
    assert_eq!(overview["established"], 1);
    // Without its peer.
    let at = good.find("[[peer]]").unwrap();
    std::fs::write(&config, &good[..at]).unwrap();
    one.signal(Signal::SIGHUP);
    eventually("the peer is gone", || {
        (one.show(Show::Overview)["peers"] == 0).then_some(())
    });
    eventually("the other knows why", || {
        let peers = other.show(Show::Peers);
        let why = peers["peers"][0]["last_end"].as_str()?;
        (why.contains("reconfigured") || why.contains("no such peer")).then_some(())
    });
}

fn secret(folder: &TempDir, digit: &str) -> String {
    let file = folder.path().join(format!("secret-{digit}"));
    std::fs::write(&file, digit.repeat(64)).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    format!("key-file = {file:?}")
}

/// A client, which notes whether it has joined.
#[derive(Default)]
struct Viewer {
    joined: bool,
}

impl bfed_client::Sink for Viewer {
    fn data(&mut self, _: &[u8]) -> std::io::Result<()> {
        Ok(())
    }

    fn event(&mut self, event: bfed_client::Event) {
        self.joined |= matches!(event, bfed_client::Event::Joined { .. });
    }
}

/// Joins a session at a mediator.
fn join(session: &str, mediator: SocketAddr) -> Result<bfed_client::Session, bfed_client::Error> {
    let mut options = bfed_client::JoinOptions::new(session.parse().unwrap());
    options.mediators = vec![format!("http://{mediator}").parse().unwrap()];
    options.wait = Duration::from_secs(1);
    let cancel = bfed_client::Cancel::new().unwrap();
    bfed_client::Session::join(options, &cancel, &mut Viewer::default())
}

/// The status line of an HTTP server's answer.
fn get(server: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = [0; 1024];
    let len = stream.read(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer[..len]).into_owned();
    answer.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn a_gateway_without_room_refuses_viewers_of_another_network() {
    let (at, servers, mediators) = ([port(), port()], [port(), port()], [port(), port()]);
    let start = |own: usize, limits: &str| {
        let other = 1 - own;
        let network = format!(
            "[network]\nkind = \"http\"\nlisten = \"{}\"\nmediator = \"{}\"\n",
            servers[own], mediators[own]
        );
        let peer = peer(other as u32 + 1, at[other]);
        let rest = format!("{network}{limits}{peer}");
        Daemon::start("all", own as u32 + 1, &listen(at[own]), &rest)
    };
    let owner = start(1, "[limits]\nsessions-per-peer = 1\n");
    let one = start(0, "");
    one.peered();
    owner.peered();
    let mut first = eventually("the first session", || {
        let mut session = join("bfed://2/first", mediators[0]).ok()?;
        let mut viewer = Viewer::default();
        while !viewer.joined {
            session.step(Duration::from_millis(100), &mut viewer).ok()?;
        }
        Some(session)
    });
    // The second one is refused: to a client of the federation, and to a player.
    let mut second = join("bfed://2/second", mediators[0]).unwrap();
    let mut viewer = Viewer::default();
    let refused = loop {
        match second.step(Duration::from_millis(100), &mut viewer) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    let limit = bfed::wire::no_route::Reason::Limit;
    assert!(
        matches!(refused, bfed_client::Error::Refused(reason) if reason == limit),
        "{refused}"
    );
    let path = bfed_client::session_path("bfed://2/second", 0);
    for server in [servers[0], mediators[0]] {
        let began = Instant::now();
        let status = get(server, &path);
        assert!(status.starts_with("HTTP/1.1 503"), "{status}");
        // No answer of the control node within 15 s would be 504.
        let waited = began.elapsed();
        assert!(waited < Duration::from_secs(10), "{waited:?}");
    }
    // The first one is not touched.
    first.step(Duration::from_millis(100), &mut viewer).unwrap();
    first.leave();
}

#[test]
fn peers_prove_who_they_are_or_are_not_heard() {
    let folder = tempfile::tempdir().unwrap();
    let key = secret(&folder, "a");
    let (one, other) = pair(&key);
    one.peered();
    other.peered();
    // Another secret, and none at all.
    let at = one.show(Show::Overview)["listen"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let forger = Daemon::start("all", 2, &secret(&folder, "b"), &peer(1, at));
    let why = eventually("a failed call", || {
        let peers = forger.show(Show::Peers);
        peers["peers"][0]["last_end"].as_str().map(str::to_owned)
    });
    assert!(!why.is_empty());
    let plain = Daemon::start("all", 2, "", &peer(1, at));
    eventually("strangers", || {
        let counters = one.show(Show::Counters);
        (counters["control"]["strangers"].as_u64()? >= 2).then_some(())
    });
    assert_eq!(plain.show(Show::Overview)["established"], 0);
    assert_eq!(forger.show(Show::Overview)["established"], 0);
    one.peered();
}

/// What a gateway answers to bytes on its port, until it hangs up.
fn say(at: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

fn open(network: u32) -> Vec<u8> {
    let open = Open {
        version_low: 1,
        version_high: 1,
        hold_time_s: 90,
        gateway: GatewayId::new(network, 1).unwrap(),
        boot: 7,
        tables: Tables::ALL,
        graceful: None,
    };
    let mut bytes = vec![0; open.buffer_len()];
    open.emit(&mut bytes);
    bytes
}

#[test]
fn nonsense_costs_its_sender_the_session_and_nobody_else() {
    let at = [port(), port()];
    let more = format!("{}[[peer]]\nnetwork = 3\n", peer(2, at[1]));
    let one = Daemon::start("all", 1, &listen(at[0]), &more);
    let other = Daemon::start("all", 2, &listen(at[1]), &peer(1, at[0]));
    one.peered();
    let reason = |answer: &[u8]| {
        let mut frames = bfed::wire::Frames::new();
        let (mut input, mut last) = (answer, None);
        while let Ok(Some(message)) = frames.next(&mut input) {
            last = Notification::parse(message).ok();
        }
        last.map(|last| last.reason)
    };
    assert_eq!(
        reason(&say(at[0], b"GET / HTTP/1.1\r\n\r\n")),
        Some(Reason::BadMessage)
    );
    assert_eq!(reason(&say(at[0], &open(9))), Some(Reason::BadPeer));
    // A peer that is known, and then talks nonsense.
    let nonsense = [open(3), b"nonsense, and more of it".to_vec()].concat();
    let answer = say(at[0], &nonsense);
    assert!(
        matches!(reason(&answer), Some(Reason::BadMessage | Reason::Version)),
        "{answer:?}"
    );
    let why = eventually("the reason", || {
        let peers = one.show(Show::Peers);
        let mut all = peers["peers"].as_array()?.iter();
        let third = all.find(|peer| peer["gateway"] == "3.1")?;
        third["last_end"].as_str().map(str::to_owned)
    });
    assert!(why.contains("ended here"), "{why}");
    one.peered();
    other.peered();
    assert!(one.log().contains("no such peer is configured here"));
}

/// Connections to `to` that say nothing, from five addresses.
fn idle(to: SocketAddr, count: u16) -> Vec<socket2::Socket> {
    let connect = |number: u16| {
        let from = SocketAddr::from(([127, 0, 0, 1 + (number % 5) as u8], 0));
        let kind = socket2::Type::STREAM;
        let socket = socket2::Socket::new(socket2::Domain::IPV4, kind, None).unwrap();
        socket.bind(&from.into()).unwrap();
        // Where the queue of the kernel is full the connection comes about later, or never.
        socket.set_nonblocking(true).unwrap();
        let _ = socket.connect(&to.into());
        socket
    };
    (0..count).map(connect).collect()
}

/// As many of them as it takes until some are closed. A queue of the kernel that is full loses some for ever:
/// their client has its SYN cookie and says nothing.
fn idle_until_evicted(daemon: &Daemon, to: SocketAddr) -> Vec<socket2::Socket> {
    let mut all = Vec::new();
    eventually("some are closed", || {
        all.extend(idle(to, 100));
        std::thread::sleep(Duration::from_millis(100));
        (daemon.show(Show::Counters)["control"]["evicted"].as_u64()? > 0).then_some(())
    });
    all
}

#[test]
fn idle_connections_keep_no_peer_out() {
    let at = [port(), port()];
    let one = Daemon::start("all", 1, &listen(at[0]), &peer(2, at[1]));
    let idle = idle_until_evicted(&one, at[0]);
    // It calls from an address that has idle connections too, and is called by nobody.
    let other = Daemon::start("all", 2, "", &peer(1, at[0]));
    other.peered();
    drop(idle);
}

/// The descriptors that the system permits run out long before the bounds on idle connections are reached.
#[test]
fn idle_connections_that_use_all_descriptors_keep_no_peer_out() {
    let at = [port(), port()];
    let folder = tempfile::tempdir().unwrap();
    let rest = peer(2, at[1]);
    write(&folder, &text(&folder, 1, &listen(at[0]), &rest));
    let limited = |program: &Command| {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n 200; exec \"$0\" \"$@\""]);
        command.arg(program.get_program()).args(program.get_args());
        command
    };
    let one = Daemon::spawned(
        limited(&program(&["all", "--log", "debug"], &folder)),
        folder,
    );
    let idle = idle_until_evicted(&one, at[0]);
    let other = Daemon::start("all", 2, "", &peer(1, at[0]));
    other.peered();
    drop(idle);
}

#[test]
fn idle_connections_keep_no_data_node_out() {
    let call = port();
    let cluster = format!("[cluster]\nlisten = \"{call}\"\n");
    let control = Daemon::start("control", 1, "", &cluster);
    let idle = idle_until_evicted(&control, call);
    let cluster = format!("first-node = 5\n[cluster]\ncontrol = [\"{call}\"]\n");
    let _data = Daemon::start("data", 1, "", &cluster);
    eventually("the data node", || {
        (control.show(Show::Overview)["nodes"] == 1).then_some(())
    });
    drop(idle);
}

#[test]
fn calls_that_are_not_taken_are_logged_a_few_times_and_then_counted() {
    let at = port();
    let one = Daemon::start("all", 1, &listen(at), "");
    for _ in 0..500 {
        drop(TcpStream::connect(at).unwrap());
    }
    eventually("all of them", || {
        let shown = one.show(Show::Counters);
        let count = |name: &str| shown["control"][name].as_u64();
        (count("strangers")? + count("evicted")? >= 400).then_some(())
    });
    eventually("the sum", || {
        one.log()
            .contains("more calls were not taken")
            .then_some(())
    });
    let lines = one.log().matches("a call was not taken").count();
    assert!(lines <= 20, "{lines} lines");
}

#[test]
fn a_peering_that_may_cross_no_hop_stands_on_one_link() {
    let at = [port(), port()];
    let folder = tempfile::tempdir().unwrap();
    let key = secret(&folder, "c");
    let gateway = |at| format!("{}\n{key}", listen(at));
    let near = |network, at| format!("{}max-hops = 1\n", peer(network, at));
    let one = Daemon::start("all", 1, &gateway(at[0]), &near(2, at[1]));
    let other = Daemon::start("all", 2, &gateway(at[1]), &near(1, at[0]));
    one.peered();
    other.peered();
    // Who does not send with the highest TTL may have crossed any number of hops: it is not heard.
    drop(other);
    eventually("the loss", || {
        (one.show(Show::Overview)["established"] == 0).then_some(())
    });
    let far = Daemon::start("all", 2, &key, &peer(1, at[0]));
    eventually("an OPEN that is not confirmed", || {
        let peers = one.show(Show::Peers);
        (peers["peers"][0]["state"] == "open-confirm").then_some(())
    });
    drop(far);
    eventually("the loss", || {
        let peers = one.show(Show::Peers);
        (peers["peers"][0]["state"] != "open-confirm").then_some(())
    });
    assert!(one.log().matches("peering established").nth(1).is_none());
}

#[test]
fn every_metric_of_the_table_is_on_the_page() {
    let one = Daemon::start("all", 1, "", "[metrics]\nlisten = \"127.0.0.1:0\"");
    let overview = one.show(Show::Overview);
    let at: SocketAddr = overview["metrics"].as_str().unwrap().parse().unwrap();
    eventually("its data node", || {
        (one.show(Show::Overview)["nodes"] == 1).then_some(())
    });
    let page = say(
        at,
        b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    );
    let page = String::from_utf8(page).unwrap();
    // What goes up and down is no counter.
    for gauge in ["client_sessions", "readers", "streams"] {
        assert!(!page.contains(&format!("event=\"{gauge}\"")), "{page}");
    }
    assert!(
        page.contains("bfed_gateway_mediator_client_sessions 0"),
        "{page}"
    );
    for metric in METRICS {
        let name = format!("# TYPE bfed_gateway_{} ", metric.name);
        assert!(page.contains(&name), "{}", metric.name);
        let documented = format!(
            "`bfed_gateway_{}{}`",
            metric.name,
            if metric.counter { "_total" } else { "" }
        );
        assert!(
            include_str!("../src/lib.rs").contains(&documented),
            "{documented}"
        );
        assert!(
            include_str!("../../../docs/manual/metrics.md").contains(&documented),
            "{documented}"
        );
    }
}
