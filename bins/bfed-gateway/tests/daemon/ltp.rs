//! Two islands of LTP joined by two gateways, each host in a network namespace: the programs as their users run them.
//!
//! ```text
//! source --- eth0 gateways (1 and 2, peers over loopback) eth1 --- bridge --- member, member
//! ```

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use bfed_gateway::status::{self, Show};
use netlab::{LinkId, Network, NodeId, Plan, Shape};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::common::eventually;

const SESSION: &str = "bfed://1/239.1.2.3/5004/?framing=numbered&title=film";
const GROUP: &str = "239.1.2.3:5004";
const PEERS: [&str; 2] = ["127.0.0.1:4101", "127.0.0.1:4102"];

/// Returns the path of an example of this package, which is another program: cargo builds examples before it runs the
/// tests of a package, but not with `--test daemon` alone.
fn example(name: &str) -> PathBuf {
    let own = PathBuf::from(env!("CARGO_BIN_EXE_bfed-gateway"));
    let path = own.with_file_name("examples").join(name);
    assert!(path.exists(), "cargo build -p bfed-gateway --examples");
    path
}

fn content(len: usize) -> Vec<u8> {
    let mut word = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::repeat_with(|| {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word as u8
    })
    .take(len)
    .collect()
}

/// A program that runs; killed when dropped.
struct Running(Option<Child>);

impl Running {
    fn signal(&self, signal: Signal) {
        let child = self.0.as_ref().unwrap();
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
    }

    /// Sends a signal to the program and the programs that it has started.
    fn signal_all(&self, signal: Signal) {
        let child = self.0.as_ref().unwrap();
        kill(Pid::from_raw(-(child.id() as i32)), signal).unwrap();
    }

    fn has_ended(&mut self) -> bool {
        self.0.as_mut().unwrap().try_wait().unwrap().is_some()
    }

    /// Waits for its end.
    fn end(mut self, what: &str) -> Output {
        eventually(what, || self.has_ended().then_some(()));
        self.0.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = kill(Pid::from_raw(-(child.id() as i32)), Signal::SIGKILL);
            let _ = child.wait();
        }
    }
}

/// The network, and its two gateways.
struct Islands {
    network: Network,
    source: NodeId,
    members: [NodeId; 2],
    folder: TempDir,
    _gateways: [Running; 2],
}

impl Islands {
    /// `None` where namespaces are not permitted, which is printed. `more` are keys of the second network.
    fn new(more: &str) -> Option<Islands> {
        if !netlab::permitted(env!("CARGO_PKG_NAME")) {
            return None;
        }
        let mut plan = Plan::default();
        let (source, gateways) = (plan.host("source"), plan.host("gateways"));
        let members = [plan.host("one"), plan.host("two")];
        plan.link(source, gateways, Shape::default());
        let ports = [gateways, members[0], members[1]].map(|node| (node, Shape::default()));
        let island = plan.shared(&ports);
        let network = Network::build(plan, 0).expect("network");
        lose(&network, island, members);
        let folder = tempfile::tempdir().unwrap();
        let start = |own: usize, more: &str| {
            let at = folder.path().join(format!("gateway-{own}"));
            std::fs::create_dir(&at).unwrap();
            let text = configuration(own, &at, more);
            std::fs::write(at.join("gateway.toml"), text).unwrap();
            let log = std::fs::File::create(at.join("log")).unwrap();
            let mut command = Command::new(env!("CARGO_BIN_EXE_bfed-gateway"));
            command
                .arg("run")
                .arg("--config")
                .arg(at.join("gateway.toml"));
            command.stderr(log);
            in_node(&network, gateways, command)
        };
        let gateways = [start(0, ""), start(1, more)];
        let islands = Islands {
            network,
            source,
            members,
            folder,
            _gateways: gateways,
        };
        for own in 0..2 {
            eventually("a peering", || {
                let socket = islands.folder.path().join(format!("gateway-{own}/sock"));
                let overview = status::query(&socket, Show::Overview).ok()?;
                (overview["established"] == 1 && overview["nodes"] == 1).then_some(())
            });
        }
        Some(islands)
    }

    fn counter(&self, gateway: usize, name: &str) -> u64 {
        let socket = self.folder.path().join(format!("gateway-{gateway}/sock"));
        let counters = eventually("counters", || status::query(&socket, Show::Counters).ok());
        let text = counters.to_string();
        let found = text.split(&format!("\"{name}\":")).nth(1);
        let digits = found.unwrap_or_else(|| panic!("{name}: {text}"));
        let end = digits.find(|char: char| !char.is_ascii_digit()).unwrap();
        digits[..end].parse().unwrap()
    }

    /// Starts a member that receives the session into a folder of its own.
    fn member(&self, at: usize) -> (Running, PathBuf) {
        let folder = self.folder.path().join(format!("member-{at}"));
        std::fs::create_dir_all(&folder).unwrap();
        let mut command = Command::new(example("bfed-join"));
        command.args(["exec", "--interface", "eth0", SESSION, "--"]);
        command.arg(example("island-lms-recv"));
        command.args([
            "--interface",
            "eth0",
            "--group",
            "{group}",
            "--source",
            "{source}",
        ]);
        command.arg("--quiet").arg("--output").arg(&folder);
        (in_node(&self.network, self.members[at], command), folder)
    }

    /// Starts to send a file.
    fn sender(&self, bytes: &[u8], rate: &str) -> Running {
        let file = self.folder.path().join("film");
        std::fs::write(&file, bytes).unwrap();
        let mut command = Command::new(example("island-lms-send"));
        command.args([
            "--group",
            GROUP,
            "--interface",
            "eth0",
            "--rate",
            rate,
            "--quiet",
        ]);
        command
            .args(["--receivers", "1", "--connect-timeout", "30s"])
            .arg(file);
        in_node(&self.network, self.source, command)
    }
}

/// Loses 1 % of what arrives at members, where there is an `nft`.
fn lose(network: &Network, island: LinkId, members: [NodeId; 2]) {
    if let Some(missing) = netlab::system::missing() {
        eprintln!("SKIPPED: without loss: {missing}");
        return;
    }
    for member in members {
        network
            .lose_by_nftables(member, island, 0.01)
            .expect("loss");
    }
}

fn configuration(own: usize, at: &Path, more: &str) -> String {
    let socket = at.join("sock");
    let (network, peer) = (own + 1, 2 - own);
    format!(
        "[gateway]\nnetwork = {network}\nlisten = \"{}\"\n\
         [daemon]\nsocket = {socket:?}\n\
         [data]\nlisten = \"127.0.0.1:0\"\nnodes = 1\n\
         [[peer]]\nnetwork = {peer}\naddress = \"{}\"\n\
         [network]\nkind = \"ltp\"\ninterface = \"eth{own}\"\nexport = [\"239.1.0.0/16\"]\n\
         rate = \"100M\"\ntimeout = \"3s\"\n{more}",
        PEERS[own],
        PEERS[1 - own]
    )
}

fn in_node(network: &Network, node: NodeId, mut command: Command) -> Running {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    // A process group for each program, so that a signal reaches what it has started, as Ctrl-C does.
    command.process_group(0);
    let child = network.namespace(node).run(|| command.spawn());
    Running(Some(child.expect("namespace").expect("a program")))
}

#[test]
fn a_file_arrives_bit_for_bit_at_all_members() {
    let Some(islands) = Islands::new("receivers = 2\n") else {
        return;
    };
    let bytes = content(6 << 20);
    let members = [0, 1].map(|at| islands.member(at));
    let sender = islands.sender(&bytes, "100M");
    for (member, folder) in members {
        let ended = member.end("a member");
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        let received = std::fs::read(folder.join("film")).unwrap();
        assert!(received == bytes, "{} bytes", received.len());
    }
    let ended = sender.end("the sender");
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    eventually("the end", || {
        (islands.counter(1, "contents_sent") == 1).then_some(())
    });
}

#[test]
fn a_late_member_gets_the_beginning_and_one_that_is_killed_is_given_up() {
    let Some(islands) = Islands::new("receivers = 1\n") else {
        return;
    };
    let bytes = content(6 << 20);
    let (first, _) = islands.member(0);
    // Five seconds for the file.
    let sender = islands.sender(&bytes, "10M");
    eventually("data", || {
        (islands.counter(1, "readers") == 1).then_some(())
    });
    std::thread::sleep(Duration::from_secs(1));
    let (late, folder) = islands.member(1);
    eventually("the late member", || {
        (islands.counter(1, "readers") == 2).then_some(())
    });
    first.signal_all(Signal::SIGKILL);
    let ended = late.end("the late member");
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(std::fs::read(folder.join("film")).unwrap() == bytes);
    let ended = sender.end("the sender");
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    eventually("the killed member is given up", || {
        (islands.counter(1, "receivers_failed") >= 1).then_some(())
    });
}

#[test]
fn a_sender_that_is_killed_and_started_again_soon_continues() {
    let Some(islands) = Islands::new("receivers = 2\n") else {
        return;
    };
    let bytes = content(6 << 20);
    let members = [0, 1].map(|at| islands.member(at));
    let sender = islands.sender(&bytes, "20M");
    eventually("data", || {
        (islands.counter(1, "readers") == 2).then_some(())
    });
    sender.signal(Signal::SIGKILL);
    drop(sender);
    let sender = islands.sender(&bytes, "100M");
    for (member, folder) in members {
        let ended = member.end("a member");
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        assert!(std::fs::read(folder.join("film")).unwrap() == bytes);
    }
    assert_eq!(sender.end("the sender").status.code(), Some(0));
    eventually("the content", || {
        (islands.counter(0, "contents_received") == 1).then_some(())
    });
}

#[test]
fn a_sender_that_is_interrupted_fails_at_all_members_and_may_send_again() {
    let Some(islands) = Islands::new("receivers = 2\n") else {
        return;
    };
    let bytes = content(20 << 20);
    let members = [0, 1].map(|at| islands.member(at));
    let sender = islands.sender(&bytes, "20M");
    eventually("data", || {
        (islands.counter(1, "readers") == 2).then_some(())
    });
    std::thread::sleep(Duration::from_secs(1));
    sender.signal(Signal::SIGINT);
    assert_eq!(sender.end("the sender").status.code(), Some(130));
    for (member, folder) in members {
        let ended = member.end("a member");
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        let left: Vec<_> = std::fs::read_dir(folder).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
    // The next attempt is whole.
    let members = [0, 1].map(|at| islands.member(at));
    let bytes = &bytes[..1 << 20];
    let sender = islands.sender(bytes, "100M");
    for (member, folder) in members {
        let ended = member.end("a member");
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        assert!(std::fs::read(folder.join("film")).unwrap() == bytes);
    }
    assert_eq!(sender.end("the sender").status.code(), Some(0));
}
