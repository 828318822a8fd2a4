//! `bfed-join` against real gateways, on loopback.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn program(name: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.arg(name);
    command
}

/// Returns a free port of loopback.
fn port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// A process that is killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A gateway of an HTTP network.
struct Gateway {
    socket: PathBuf,
    mediator: SocketAddr,
    _process: Running,
}

impl Gateway {
    /// Starts the gateway of network `own`, 1 or 2, whose peer is the other one.
    fn start(folder: &Path, own: usize, peers: [SocketAddr; 2], limits: &str) -> Gateway {
        let socket = folder.join(format!("sock{own}"));
        let (mediator, server) = (port(), port());
        let (listen, peer) = (peers[own - 1], peers[2 - own]);
        let other = 3 - own;
        let text = format!(
            "[gateway]\nnetwork = {own}\nlisten = \"{listen}\"\n\
             [daemon]\nsocket = {socket:?}\n\
             [data]\nlisten = \"127.0.0.1:0\"\nnodes = 1\n\
             [network]\nkind = \"http\"\nlisten = \"{server}\"\nmediator = \"{mediator}\"\n{limits}\
             [[peer]]\nnetwork = {other}\naddress = \"{peer}\"\n"
        );
        let file = folder.join(format!("gateway{own}.toml"));
        std::fs::write(&file, text).unwrap();
        let mut command = program("bfed-gateway");
        command
            .args(["run", "--log", "error", "--config"])
            .arg(file);
        Gateway {
            socket,
            mediator,
            _process: Running(command.spawn().unwrap()),
        }
    }

    /// Waits until its peering is established.
    fn wait_for_peer(&self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let mut status = program("bfed-gateway");
            let status = status.args(["status", "peers", "--socket"]);
            let shown = status.arg(&self.socket).output().unwrap();
            if String::from_utf8_lossy(&shown.stdout).contains("established") {
                return;
            }
            assert!(Instant::now() < deadline, "no peering");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn join(&self, session: &str) -> Command {
        let mediator = format!("http://{}", self.mediator);
        let mut command = program("bfed-join");
        command.args(["recv", session, "--json", "--output", "/dev/null"]);
        command.args(["--connect-timeout", "1s", "--mediator", &mediator]);
        command
    }
}

#[test]
fn a_session_refused_for_a_limit_has_exit_code_3() {
    let folder = tempfile::tempdir().unwrap();
    let peers = [port(), port()];
    let limits = "[limits]\nsessions-per-peer = 1\n";
    let gateways = [
        Gateway::start(folder.path(), 1, peers, ""),
        Gateway::start(folder.path(), 2, peers, limits),
    ];
    for gateway in &gateways {
        gateway.wait_for_peer();
    }
    let first = gateways[0]
        .join("bfed://2/first")
        .stdout(Stdio::piped())
        .spawn();
    let mut first = Running(first.unwrap());
    let events = BufReader::new(first.0.stdout.take().unwrap());
    let joined = |line: &String| line.contains("\"event\":\"joined\"");
    assert!(
        events
            .lines()
            .map_while(Result::ok)
            .any(|line| joined(&line))
    );
    let refused = gateways[0].join("bfed://2/second").output().unwrap();
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(3), "{errors}");
    let limit = bfed::wire::no_route::Reason::Limit.to_string();
    assert!(errors.contains(&limit), "{errors}");
}
