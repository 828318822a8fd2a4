//! Running gateways, and what peers and clients of them send.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use bfed_gateway::status::{self, Show};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

pub(crate) use crate::support::{TIMEOUT, eventually, port};

/// A running gateway; killed when dropped.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) folder: TempDir,
}

pub(crate) fn program(arguments: &[&str], folder: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bfed-gateway"));
    let config = folder.path().join("gateway.toml");
    command.args(arguments).arg("--config").arg(config);
    command
}

pub(crate) fn text(folder: &TempDir, network: u32, gateway: &str, rest: &str) -> String {
    let socket = folder.path().join("sock");
    format!(
        "[gateway]\nnetwork = {network}\n{gateway}\n[daemon]\nsocket = {socket:?}\n[data]\nlisten = \"127.0.0.1:0\"\nnodes = 1\n{rest}"
    )
}

pub(crate) fn write(folder: &TempDir, text: &str) {
    std::fs::write(folder.path().join("gateway.toml"), text).unwrap();
}

pub(crate) fn peer(network: u32, address: SocketAddr) -> String {
    format!("[[peer]]\nnetwork = {network}\naddress = \"{address}\"\n")
}

impl Daemon {
    pub(crate) fn start(mode: &str, network: u32, gateway: &str, rest: &str) -> Daemon {
        let folder = tempfile::tempdir().unwrap();
        write(&folder, &text(&folder, network, gateway, rest));
        Daemon::again(mode, folder)
    }

    pub(crate) fn again(mode: &str, folder: TempDir) -> Daemon {
        let command = program(&[mode, "--log", "debug"], &folder);
        Daemon::spawned(command, folder)
    }

    pub(crate) fn spawned(mut command: Command, folder: TempDir) -> Daemon {
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

    pub(crate) fn show(&self, what: Show) -> Value {
        let socket = self.folder.path().join("sock");
        eventually("an answer", || status::query(&socket, what).ok())
    }

    pub(crate) fn status(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_bfed-gateway"))
            .args(arguments)
            .arg("--socket")
            .arg(self.folder.path().join("sock"))
            .output()
            .unwrap()
    }

    pub(crate) fn peered(&self) {
        eventually("a peering", || {
            (self.show(Show::Overview)["established"] == 1).then_some(())
        });
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Stops it; returns its exit code and its folder.
    pub(crate) fn end(mut self, signal: Signal) -> (Option<i32>, TempDir) {
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

pub(crate) fn listen(at: SocketAddr) -> String {
    format!("listen = \"{at}\"")
}

/// Two gateways that know each other.
pub(crate) fn pair(more: &str) -> (Daemon, Daemon) {
    pair_of("run", more)
}

/// The same; the second in that mode.
pub(crate) fn pair_of(mode: &str, more: &str) -> (Daemon, Daemon) {
    let at = [port(), port()];
    let start = |own: usize| {
        let other = 1 - own;
        let gateway = format!("{}\n{more}", listen(at[own]));
        let cluster = "[cluster]\nlisten = \"127.0.0.1:0\"\n";
        let (mode, cluster) = match own == 1 && mode != "run" {
            true => (mode, cluster),
            false => ("run", ""),
        };
        let rest = format!("{}{cluster}", peer(other as u32 + 1, at[other]));
        Daemon::start(mode, own as u32 + 1, &gateway, &rest)
    };
    (start(0), start(1))
}

pub(crate) fn no_warning(folder: &TempDir) {
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    for line in log.lines() {
        assert!(!line.contains(" WARN ") && !line.contains("ERROR"), "{log}");
    }
}

pub(crate) fn secret(folder: &TempDir, digit: &str) -> String {
    let file = folder.path().join(format!("secret-{digit}"));
    std::fs::write(&file, digit.repeat(64)).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    format!("key-file = {file:?}")
}

/// What a gateway answers to bytes on its port, until it hangs up.
pub(crate) fn say(at: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

pub(crate) fn open(network: u32) -> Vec<u8> {
    let open = crate::support::open(network, 90);
    let mut bytes = vec![0; open.buffer_len()];
    open.emit(&mut bytes);
    bytes
}

/// A client, which notes whether it has joined.
#[derive(Default)]
pub(crate) struct Viewer {
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
pub(crate) fn join(
    session: &str,
    mediator: SocketAddr,
) -> Result<bfed_client::Session, bfed_client::Error> {
    let mut options = bfed_client::JoinOptions::new(session.parse().unwrap());
    options.mediators = vec![format!("http://{mediator}").parse().unwrap()];
    options.connect_timeout = Duration::from_secs(1);
    let cancel = bfed_client::Cancel::new().unwrap();
    bfed_client::Session::join(options, &cancel, &mut Viewer::default())
}

/// Two gateways of HTTP networks, the second of which permits one session, and that one received through the
/// first.
pub(crate) struct Full {
    /// The server of the first network.
    pub(crate) server: SocketAddr,
    /// Its mediator.
    pub(crate) mediator: SocketAddr,
    /// The session.
    pub(crate) first: bfed_client::Session,
    _gateways: [Daemon; 2],
}

impl Full {
    pub(crate) fn start() -> Full {
        let (at, servers, mediators) = ([port(), port()], [port(), port()], [port(), port()]);
        let start = |own: usize, limits: &str| {
            let other = 1 - own;
            let network = format!(
                "[network]\nkind = \"http\"\nlisten = \"{}\"\nmediator = \"{}\"\n",
                servers[own], mediators[own]
            );
            let peer = peer(other as u32 + 1, at[other]);
            let rest = format!("{network}{limits}{peer}");
            Daemon::start("run", own as u32 + 1, &listen(at[own]), &rest)
        };
        let owner = start(1, "[limits]\nsessions-per-peer = 1\n");
        let one = start(0, "");
        one.peered();
        owner.peered();
        let first = eventually("the first session", || {
            let mut session = join("bfed://2/first", mediators[0]).ok()?;
            let mut viewer = Viewer::default();
            while !viewer.joined {
                session.step(Duration::from_millis(100), &mut viewer).ok()?;
            }
            Some(session)
        });
        Full {
            server: servers[0],
            mediator: mediators[0],
            first,
            _gateways: [one, owner],
        }
    }
}
