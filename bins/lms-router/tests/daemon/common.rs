//! The paper's testbed (LMS Figure 6.15) out of namespaces, with a real router process in it.
use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use linux_net::link;
use linux_net::raw::Ipv4Socket;
use linux_net::udp::{Config, GroupSocket, Membership, OptionBuffer, OptionSocket};
use lms_proto::wire::encap::{DmcastRepr, Placement};
use lms_proto::{Form, Iface, Kind, LmsOption, TurningPoint};
use lms_router::status::{self, Show};
pub(crate) use netlab::host::{Host, eventually, readable, wire, with_namespaces};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
pub(crate) const PORT: u16 = 5000;
pub(crate) const SRC: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);
pub(crate) const H1: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
pub(crate) const H2: Ipv4Addr = Ipv4Addr::new(10, 0, 3, 2);

/// The program.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_lms-router");

/// LMS Figure 6.15: a source and two receivers around a router, one wire each. The router's
/// ends are `up` (10.0.1.1), `one` (10.0.2.1), `two` (10.0.3.1); the hosts' are `eth`.
pub(crate) struct Testbed {
    pub(crate) src: Host,
    pub(crate) h1: Host,
    pub(crate) h2: Host,
    pub(crate) router: Host,
}

impl Testbed {
    pub(crate) fn new() -> Testbed {
        let bed = Testbed {
            src: Host::new(),
            h1: Host::new(),
            h2: Host::new(),
            router: Host::new(),
        };
        for (host, name, address) in [
            (&bed.src, "up", SRC),
            (&bed.h1, "one", H1),
            (&bed.h2, "two", H2),
        ] {
            let [a, b, c, _] = address.octets();
            let gateway = Ipv4Addr::new(a, b, c, 1);
            wire([(&bed.router, name, gateway), (host, "eth", address)]);
            let index = host.index("eth");
            host.edit(|editor| {
                editor
                    .set_route(Ipv4Addr::UNSPECIFIED, 0, Some(gateway), Some(index))
                    .expect("route");
            });
        }
        // Unicast between the hosts goes through the router, as dmcasts to another of its
        // addresses do.
        bed.router
            .run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1"))
            .expect("forward");
        bed
    }

    /// Returns endpoints on SRC, H1 and H2, joined to `source` or to any.
    pub(crate) fn endpoints(&self, source: Option<Ipv4Addr>) -> [Endpoint; 3] {
        [&self.src, &self.h1, &self.h2].map(|host| Endpoint::new(host, source))
    }

    /// H2 asks, and the router turns the request to H1: the number that stands for the router's
    /// interface `two` in the turning point that H1 reads.
    pub(crate) fn asked(&self) -> Iface {
        let h1 = Endpoint::new(&self.h1, None);
        let h2 = Endpoint::new(&self.h2, None);
        h2.ask(request(), b"nak");
        let heard = h1.heard(SOON).expect("H1 hears the request");
        heard.option.turning_point.expect("turned").iface
    }
}

/// Starts a router with the static route, whose replier is H1.
pub(crate) fn start(router: &Host) -> Daemon {
    let daemon = Daemon::start(router, &format!("{STATIC_ROUTE}{H1_REPLIES}"));
    daemon.groups(1);
    daemon
}

/// A running `lms-router`; killed when dropped.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) folder: TempDir,
}

/// The backends of the capture, `xdp` in both modes.
const BACKENDS: [(&str, Option<&str>); 4] = [
    ("ring", None),
    ("xdp", None),
    ("xdp", Some("native")),
    ("pnet", None),
];

thread_local! {
    static BACKEND: Cell<(&'static str, Option<&'static str>)> = const { Cell::new(BACKENDS[0]) };
}

/// Runs a test with each backend of the capture, in a testbed of its own.
pub(crate) fn on_each_backend(test: impl Fn()) {
    for backend in BACKENDS {
        println!("{backend:?}");
        on_backend(backend, &test);
    }
}

/// Runs a test with one backend of the capture, and mode of XDP.
pub(crate) fn on_backend(backend: (&'static str, Option<&'static str>), test: impl FnOnce()) {
    BACKEND.set(backend);
    test();
    BACKEND.set(BACKENDS[0]);
}

impl Daemon {
    /// Starts one on `host`. `config` is the configuration without `[daemon]`.
    pub(crate) fn start(host: &Host, config: &str) -> Daemon {
        Daemon::start_in(host, config, tempfile::tempdir().expect("folder"))
    }

    pub(crate) fn start_in(host: &Host, config: &str, folder: TempDir) -> Daemon {
        let mut daemon = Daemon {
            child: Daemon::spawn(host, config, &folder),
            folder,
        };
        eventually("the router answers", || {
            assert!(
                daemon.child.try_wait().expect("wait").is_none(),
                "{}",
                daemon.log()
            );
            status::query(&daemon.socket(), Show::Overview).ok()
        });
        daemon
    }

    /// Starts one that is expected to fail; returns its exit code and its log.
    pub(crate) fn refused(host: &Host, config: &str, folder: TempDir) -> (i32, String) {
        let child = Daemon::spawn(host, config, &folder);
        let mut daemon = Daemon { child, folder };
        let status = eventually("the router ends", || daemon.child.try_wait().expect("wait"));
        (status.code().expect("code"), daemon.log())
    }

    fn spawn(host: &Host, config: &str, folder: &TempDir) -> Child {
        let at = |name: &str| folder.path().join(name);
        write_config(folder, config);
        let log = std::fs::File::create(at("log")).expect("log");
        let (backend, mode) = BACKEND.get();
        host.run(|| {
            Command::new(PROGRAM)
                .envs(mode.map(|mode| ("POLYCAST_CAPTURE__XDP_MODE", mode)))
                .env("POLYCAST_CAPTURE__BACKEND", backend)
                .args(["run", "--log", "debug", "--config"])
                .arg(at("config.toml"))
                .stderr(Stdio::from(log))
                .stdin(Stdio::null())
                .spawn()
                .expect("start")
        })
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("sock")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).expect("log")
    }

    pub(crate) fn status(&self, show: Show) -> Value {
        status::query(&self.socket(), show).expect("status")
    }

    /// One counter, such as `drops` `no_entry`.
    pub(crate) fn counter(&self, part: &str, name: &str) -> u64 {
        let counters = self.status(Show::Counters);
        counters[part][name]
            .as_u64()
            .unwrap_or_else(|| panic!("{part} {name}: {counters}"))
    }

    /// Waits until a counter reaches a value.
    pub(crate) fn wait_for(&self, part: &str, name: &str, least: u64) {
        let what = format!("{part} {name} reaches {least}");
        let reached = || (self.counter(part, name) >= least).then_some(());
        eventually(&what, reached);
    }

    /// Waits until there are `count` routes, and returns them.
    pub(crate) fn groups(&self, count: usize) -> Value {
        eventually("routes", || {
            let groups = self.status(Show::Groups);
            let found = groups["groups"]
                .as_array()
                .is_some_and(|groups| groups.len() == count);
            found.then(|| groups["groups"].clone())
        })
    }

    /// The router's own number of an interface; turning points name it otherwise.
    pub(crate) fn number(&self, name: &str) -> Iface {
        eventually("the interface is in use", || {
            let interfaces = self.status(Show::Interfaces);
            let mut all = interfaces["interfaces"].as_array().expect("list").iter();
            let found = all.find(|interface| interface["name"] == name)?;
            Some(Iface(found["number"].as_u64()?.try_into().ok()?))
        })
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(pid, signal).expect("kill");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A new configuration and SIGHUP; waits until it was accepted or rejected.
    pub(crate) fn reload(&self, config: &str) -> Value {
        let before = self.reloads();
        write_config(&self.folder, config);
        self.signal(nix::sys::signal::Signal::SIGHUP);
        eventually("the reload is over", || {
            (self.reloads() > before).then_some(())
        });
        self.status(Show::Overview)
    }

    fn reloads(&self) -> u64 {
        let overview = self.status(Show::Overview);
        let of = |name: &str| overview["configuration"][name].as_u64().expect("count");
        of("reloads") + of("rejected")
    }

    /// SIGTERM, and how it ended.
    pub(crate) fn stop(self) -> (ExitStatus, TempDir) {
        self.stop_by(nix::sys::signal::Signal::SIGTERM)
    }

    /// A signal, and how it ended.
    pub(crate) fn stop_by(mut self, signal: nix::sys::signal::Signal) -> (ExitStatus, TempDir) {
        self.signal(signal);
        let status = eventually("the router ends", || self.child.try_wait().expect("wait"));
        let folder = tempfile::tempdir().expect("folder");
        (status, std::mem::replace(&mut self.folder, folder))
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) -> TempDir {
        self.child.kill().expect("kill");
        let status = self.child.wait().expect("wait");
        assert_eq!(status.signal(), Some(9));
        let folder = tempfile::tempdir().expect("folder");
        std::mem::replace(&mut self.folder, folder)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            eprintln!("the router's log:\n{}", self.log());
        }
    }
}

fn write_config(folder: &TempDir, config: &str) {
    let socket = folder.path().join("sock");
    let text = format!("{config}\n[daemon]\nsocket = {socket:?}\n");
    std::fs::write(folder.path().join("config.toml"), text).expect("configuration");
}

/// (SRC, GROUP) from `up` to `one` and `two`.
pub(crate) const STATIC_ROUTE: &str = r#"
[source]
kind = "static"
[[route]]
source = "10.0.1.2"
group = "239.1.2.3"
upstream = "up"
downstream = ["one", "two"]
"#;

/// H1 is the replier, by configuration.
pub(crate) const H1_REPLIES: &str = r#"
[replier]
policy = "static"
[[replier.static]]
source = "10.0.1.2"
group = "239.1.2.3"
interface = "one"
neighbour = "10.0.2.2"
"#;

/// A request's option, not turned yet.
pub(crate) fn request() -> LmsOption {
    LmsOption {
        kind: Kind::Request,
        turning_point: None,
        source: SRC.into(),
        group: GROUP.into(),
    }
}

pub(crate) fn turned(option: LmsOption, router: Ipv4Addr, iface: Iface) -> LmsOption {
    let turning_point = Some(TurningPoint {
        router: router.into(),
        iface,
        cookie: 0,
    });
    LmsOption {
        turning_point,
        ..option
    }
}

/// A host's sockets: requests in and out, data in.
pub(crate) struct Endpoint {
    options: OptionSocket,
    data: GroupSocket,
}

/// A request that an endpoint received.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) source: Ipv4Addr,
    pub(crate) option: LmsOption,
    pub(crate) payload: Vec<u8>,
}

impl Endpoint {
    pub(crate) fn new(host: &Host, source: Option<Ipv4Addr>) -> Endpoint {
        let interface = host.index("eth");
        host.run(|| {
            let bind = SocketAddrV4::new(GROUP, PORT);
            let config = Config {
                bind,
                interface,
                ttl: 32,
                ..Config::default()
            };
            let options = OptionSocket::open(&config).expect("option socket");
            let refuse = linux_net::udp::Options::Refuse;
            let data = GroupSocket::open(&Config {
                options: refuse,
                ..config
            })
            .expect("socket");
            let membership = Membership {
                group: GROUP,
                source,
                interface,
            };
            options.join(&membership).expect("join");
            data.join(&membership).expect("join");
            Endpoint { options, data }
        })
    }

    /// Readable when a request was heard.
    pub(crate) fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.options.as_fd()
    }

    pub(crate) fn ask(&self, option: LmsOption, payload: &[u8]) {
        self.ask_as(option, Form::Classic, payload);
    }

    pub(crate) fn ask_as(&self, option: LmsOption, form: Form, payload: &[u8]) {
        let mut bytes = [0; 40];
        let len = option.emit(form, &mut bytes).expect("option");
        let to = SocketAddrV4::new(GROUP, PORT);
        self.options.send(to, &bytes[..len], payload).expect("send");
    }

    /// Sends data to the group.
    pub(crate) fn send_data(&self, payload: &[u8]) {
        let to = SocketAddrV4::new(GROUP, PORT);
        self.options.send(to, &[], payload).expect("send");
    }

    /// The next request heard; `None` when none comes for a while.
    pub(crate) fn heard(&self, patience: Duration) -> Option<Heard> {
        let mut buffer = OptionBuffer::new(2000);
        if !readable(self.options.as_fd(), patience) {
            return None;
        }
        let datagram = self.options.receive(&mut buffer).expect("receive")?;
        let (_, option) = LmsOption::parse::<Ipv4Addr>(datagram.options).expect("option");
        Some(Heard {
            source: *datagram.source.ip(),
            option,
            payload: datagram.payload.to_vec(),
        })
    }

    /// The next data heard, with its source.
    pub(crate) fn data(&self, patience: Duration) -> Option<(SocketAddrV4, Vec<u8>)> {
        let mut batch = linux_net::udp::Batch::new(1);
        if !readable(self.data.as_fd(), patience) {
            return None;
        }
        self.data.receive(&mut batch).expect("receive");
        let datagram = batch.iter().next()?;
        Some((datagram.source, datagram.payload.to_vec()))
    }
}

/// Long enough for what should come, short enough for what should not.
pub(crate) const SOON: Duration = Duration::from_secs(10);
pub(crate) const NEVER: Duration = Duration::from_millis(200);

/// A whole UDP packet from `source` to the group.
pub(crate) fn data_packet(source: Ipv4Addr, group: Ipv4Addr, ttl: u8, payload: &[u8]) -> Vec<u8> {
    let mut udp = Vec::new();
    udp.extend(PORT.to_be_bytes());
    udp.extend(PORT.to_be_bytes());
    udp.extend(((8 + payload.len()) as u16).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(payload);
    ipv4(17, source, group, ttl, &[], &udp)
}

/// A whole IPv4 packet.
pub(crate) fn ipv4(
    protocol: u8,
    source: Ipv4Addr,
    to: Ipv4Addr,
    ttl: u8,
    options: &[u8],
    body: &[u8],
) -> Vec<u8> {
    let header = 20 + options.len().next_multiple_of(4);
    let mut packet = vec![0x40 | (header / 4) as u8, 0];
    packet.extend(((header + body.len()) as u16).to_be_bytes());
    packet.extend([0, 1, 0x40, 0, ttl, protocol, 0, 0]);
    packet.extend(source.octets());
    packet.extend(to.octets());
    packet.extend(options);
    packet.resize(header, 0);
    lms_proto::wire::ipv4::fill_checksum(&mut packet[..header]);
    packet.extend(body);
    packet
}

/// A dmcast of `inner` from `replier` to the turning point.
pub(crate) fn dmcast(replier: Ipv4Addr, router: Ipv4Addr, iface: Iface, inner: &[u8]) -> Vec<u8> {
    let repr = DmcastRepr {
        replier,
        router,
        iface,
        cookie: 0,
        form: Form::Classic,
        placement: Placement::Outer,
        ttl: 32,
        identification: 7,
    };
    let mut packet = vec![0; repr.buffer_len(inner.len())];
    let len = repr.emit(inner, &mut packet).expect("dmcast");
    packet.truncate(len);
    packet
}

/// Sends a whole packet from a host.
pub(crate) fn send_raw(host: &Host, packet: &[u8]) {
    host.run(|| {
        let socket = Ipv4Socket::sender().expect("raw socket");
        socket
            .send(link::find("eth").expect("eth").index, packet)
            .expect("send");
    });
}
