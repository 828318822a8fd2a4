//! Dropping privileges, in a process of its own: threads of the test runner would be in the way.
//!
//! No test harness: `main` runs the checks in child processes.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::process::{Command, ExitCode};

use linux_net::mroute::{MrouteEvent, Route, Table, TableError, Watcher, WatcherConfig};
use linux_net::netns::{self, Namespace};
use linux_net::nft::{Guard, GuardError};
use linux_net::packet::{Channels, Ring, RingConfig, Sender};
use linux_net::privileges::{self, DropError, User};
use linux_net::raw::{Ipv4Socket, Ipv6Socket};
use linux_net::udp::{Config, OptionBuffer, OptionSocket};
use linux_net::{Capability, OpenError, SendError};

const NOBODY: User = User {
    uid: 65534,
    gid: 65534,
};

/// Opens everything, drops everything but one capability, and looks at what still works.
fn keeps_one(user: Option<User>) {
    let to = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 1), 9);
    let request = [138, 16, 255, 255, 0, 0, 0, 0, 10, 0, 0, 1, 239, 1, 1, 1];
    let options = OptionSocket::open(&Config::default()).expect("option socket");
    options
        .send(to, &request, b"x")
        .expect("sends with CAP_NET_RAW");
    let to6 = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 9, 0, 0);
    let header = [0, 0, 0x1e, 4, 1, 2, 3, 4];
    let headers = OptionSocket::open(&Config::new(to6)).expect("option socket");
    headers
        .send(to6, &header, b"x")
        .expect("sends with CAP_NET_RAW");
    let raw = Ipv6Socket::sender().expect("raw socket");
    let mut ring = Ring::open(&RingConfig {
        frames: 64,
        ..RingConfig::default()
    })
    .expect("ring");
    privileges::drop_to(&[Capability::NetAdmin], user).expect("drop");
    assert!(privileges::has(Capability::NetAdmin) && !privileges::has(Capability::NetRaw));
    assert!(ring.batch(8).is_empty());
    ring.stats().expect("an open ring goes on");
    let refused = Ring::open(&RingConfig::default()).expect_err("no new ring");
    assert!(matches!(
        refused,
        OpenError::Privilege {
            capability: Capability::NetRaw,
            ..
        }
    ));
    assert!(
        refused.to_string().contains("setcap cap_net_raw+ep"),
        "{refused}"
    );
    let refused = options
        .send(to, &request, b"x")
        .expect_err("no unknown options");
    assert!(
        matches!(refused, SendError::Privilege(Capability::NetRaw)),
        "{refused}"
    );
    let refused = headers.send(to6, &header, b"x").expect_err("no headers");
    assert!(
        matches!(refused, SendError::Privilege(Capability::NetRaw)),
        "{refused}"
    );
    let mut buffer = OptionBuffer::new(64);
    let received = headers.receive(&mut buffer).expect("receives");
    assert_eq!(received.map(|got| got.options.len()), Some(header.len()));
    let mut packet = vec![0x60, 0, 0, 0, 0, 8, 0, 1];
    packet.extend([Ipv6Addr::LOCALHOST.octets(), Ipv6Addr::LOCALHOST.octets()].concat());
    packet.extend([59, 0, 0x1e, 4, 1, 2, 3, 4]);
    raw.send(0, &packet).expect("an open raw socket goes on");
    assert!(Ipv6Socket::sender().is_err(), "no new raw socket");
    let back = privileges::drop_to(&[Capability::NetRaw], None).expect_err("gone for good");
    assert!(
        matches!(back, DropError::Missing(Capability::NetRaw)),
        "{back}"
    );
    if let Some(user) = user {
        let status = std::fs::read_to_string("/proc/self/status").expect("status");
        let line = |key: &str| {
            status
                .lines()
                .find(|l| l.starts_with(key))
                .unwrap_or_default()
        };
        let uid = user.uid.to_string();
        assert!(
            line("Uid:")
                .split_whitespace()
                .skip(1)
                .all(|word| word == uid),
            "{status}"
        );
        assert_eq!(line("Groups:").split_whitespace().nth(1), Some("65534"));
        assert!(line("NoNewPrivs:").ends_with('1'));
    }
}

/// What the table of the crate's documentation says needs nothing once it is open.
fn open_doors_stay_open() {
    let lo = linux_net::link::find("lo").expect("loopback").index;
    let mut table = Table::open().expect("table");
    let mut guard = Guard::open(None).expect("guard");
    let mut routes = Watcher::open(&WatcherConfig::default()).expect("watcher");
    let sender = Sender::open().expect("sender");
    let raw = Ipv4Socket::sender().expect("raw socket");
    let mut ring = Ring::open(&RingConfig {
        frames: 64,
        ..RingConfig::default()
    })
    .expect("ring");
    let config = RingConfig::default();
    let mut channels = Channels::open(&config, 1).expect("packet sockets");
    privileges::drop_to(&[], None).expect("drop");
    channels
        .add_interface(lo)
        .expect("an interface that appears later");
    table.add_interface(lo).expect("adding an interface");
    let (source, group) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(239, 1, 1, 1));
    let route = Route {
        source,
        group,
        input: lo,
        outputs: vec![],
    };
    table.set_route(&route).expect("setting a route");
    let event = routes.next_event().expect("event");
    assert_eq!(event, Some(MrouteEvent::Added(route)));
    routes.resync().expect("resync");
    // IPIP from and to this host, with the option of a dmcast.
    let mut dmcast = vec![
        0x49, 0, 0, 36, 0, 1, 0, 0, 9, 4, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1,
    ];
    dmcast.extend([139, 16, 0, 1, 10, 0, 0, 9, 10, 0, 0, 1, 239, 1, 1, 1]);
    raw.send(0, &dmcast).expect("raw send");
    assert_eq!(sender.send(lo, [0; 6], &dmcast).sent, 1);
    ring.receive_all_multicast(lo).expect("all multicast");
    assert!(ring.batch(8).len() >= 2, "both dmcasts");
    assert!(channels.batch(8).len() >= 2, "both dmcasts");
    assert!(matches!(guard.counters(), Err(GuardError::Privilege)));
    assert!(matches!(Guard::open(None), Err(GuardError::Privilege)));
    assert!(matches!(
        Table::open(),
        Err(TableError::Open(OpenError::Privilege { .. }))
    ));
    drop(table);
    assert!(matches!(
        routes.next_event(),
        Ok(Some(MrouteEvent::Removed(_)))
    ));
}

fn refuses_threads() {
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || stopped.recv());
    let error = privileges::drop_to(&[], None).expect_err("with threads");
    assert!(
        matches!(error, DropError::Threads { threads: 2 }),
        "{error}"
    );
    drop(stop);
    let _ = thread.join();
}

fn main() -> ExitCode {
    let tests: [(&str, fn()); 5] = [
        ("keeps_one", || keeps_one(None)),
        ("changes_user", || keeps_one(Some(NOBODY))),
        ("drops_all", || {
            privileges::drop_to(&[], None).expect("drop");
            assert!(!privileges::has(Capability::NetAdmin));
        }),
        ("open_doors_stay_open", open_doors_stay_open),
        ("refuses_threads", refuses_threads),
    ];
    let wanted = std::env::var("LINUX_NET_PRIVILEGES_CHILD").ok();
    if let Some(wanted) = wanted {
        // As root a network of its own; else root of its own namespaces.
        if Namespace::new()
            .and_then(|network| network.enter())
            .is_err()
        {
            if let Err(error) = netns::become_root() {
                netlab::skip(&wanted, format_args!("no namespaces here: {error}"));
                return ExitCode::SUCCESS;
            }
            if wanted == "changes_user" {
                eprintln!("SKIPPED {wanted}: an ordinary user's namespace has one user");
                return ExitCode::SUCCESS;
            }
        }
        let Some((_, test)) = tests.iter().find(|(name, _)| *name == wanted) else {
            return ExitCode::FAILURE;
        };
        test();
        return ExitCode::SUCCESS;
    }
    let mut failed = 0;
    for (name, _) in tests {
        let exe = std::env::current_exe().expect("own path");
        let status = Command::new(exe)
            .env("LINUX_NET_PRIVILEGES_CHILD", name)
            .status();
        let ok = status.is_ok_and(|s| s.success());
        println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        failed += usize::from(!ok);
    }
    ExitCode::from(u8::from(failed > 0))
}
