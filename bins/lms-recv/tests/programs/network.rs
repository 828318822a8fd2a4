//! Transfers through a kernel that routes multicast, over virtual links with the offloads that the system
//! gives them.

use std::fs;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::Command;
use std::time::{Duration, Instant};

use linux_net::link::{self, Editor};
use linux_net::mroute::{Route, Table};
use linux_net::netns::Namespace;

use super::common::{Finished, Running, content, lms_recv, lms_router, lms_send};
use super::transfer::{field, folder};

const SOURCE: [u8; 4] = [10, 9, 0, 1];
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

/// A host with a source, a router, and two hosts behind it, each on a link of its own.
struct Network {
    source: Namespace,
    router: Namespace,
    host: Namespace,
    second: Namespace,
    _table: Table,
}

pub(super) fn index(namespace: &Namespace, name: &str) -> u32 {
    let found = namespace.run(|| link::find(name).expect("interface").index);
    found.expect("namespace")
}

/// Joins two hosts; both ends are up.
fn wire(near: (&Namespace, &str, [u8; 4]), far: (&Namespace, &str, [u8; 4])) {
    let make = || {
        let mut editor = Editor::open().expect("netlink");
        editor.add_veth(near.1, far.1, Some(far.0.as_fd()))
    };
    near.0.run(make).expect("namespace").expect("veth");
    for (namespace, name, address) in [near, far] {
        let index = index(namespace, name);
        let set = || {
            let mut editor = Editor::open().expect("netlink");
            editor
                .add_address(index, Ipv4Addr::from(address), 24)
                .expect("address");
            editor.set_up(index, true).expect("up");
        };
        namespace.run(set).expect("namespace");
    }
}

/// Sets a rule of a host's packet filter; whether there is an `nft` to say so.
pub(super) fn filter(namespace: &Namespace, hook: &str, rule: &str) -> bool {
    let rules =
        format!("table inet t {{ chain c {{ type filter hook {hook} priority 0; {rule}; }}; }}");
    let set = || Command::new("nft").arg(rules).status();
    let is_set = namespace.run(set).expect("namespace");
    let is_set = is_set.is_ok_and(|status| status.success());
    if !is_set {
        eprintln!("SKIPPED: no nft here");
    }
    is_set
}

impl Network {
    /// `None`, with a word about it: no namespaces here.
    fn new() -> Option<Network> {
        let made: Option<Vec<Namespace>> = (0..4).map(|_| Namespace::new().ok()).collect();
        let made = made.and_then(|made| <[Namespace; 4]>::try_from(made).ok());
        let Some([source, router, host, second]) = made else {
            eprintln!("SKIPPED: no network namespaces here");
            return None;
        };
        wire((&source, "s0", SOURCE), (&router, "r0", [10, 9, 0, 2]));
        wire((&router, "r1", [10, 9, 1, 1]), (&host, "h0", [10, 9, 1, 3]));
        wire(
            (&router, "r2", [10, 9, 2, 1]),
            (&second, "h0", [10, 9, 2, 3]),
        );
        for (namespace, name, via) in [
            (&source, "s0", [10, 9, 0, 2]),
            (&host, "h0", [10, 9, 1, 1]),
            (&second, "h0", [10, 9, 2, 1]),
        ] {
            let interface = index(namespace, name);
            let route = || {
                let mut editor = Editor::open().expect("netlink");
                let any = Ipv4Addr::UNSPECIFIED;
                editor
                    .set_route(any, 0, Some(Ipv4Addr::from(via)), Some(interface))
                    .expect("route");
            };
            namespace.run(route).expect("namespace");
        }
        let forward = || fs::write("/proc/sys/net/ipv4/ip_forward", "1");
        router.run(forward).expect("namespace").expect("forwarding");
        let [r0, r1, r2] = ["r0", "r1", "r2"].map(|name| index(&router, name));
        let mut table = router
            .run(|| Table::open().expect("routing"))
            .expect("namespace");
        for interface in [r0, r1, r2] {
            table.add_interface(interface).expect("interface");
        }
        let route = Route {
            source: SOURCE.into(),
            group: GROUP,
            input: r0,
            outputs: vec![r1, r2],
        };
        table.set_route(&route).expect("route");
        Some(Network {
            source,
            router,
            host,
            second,
            _table: table,
        })
    }

    /// The router's packet filter drops what is longer than a datagram of these links. Whether there is an
    /// `nft` to say so.
    fn drop_batches(&self) -> bool {
        filter(&self.router, "forward", "meta length > 2000 drop")
    }

    fn in_source(&self, command: &mut Command) -> Running {
        self.source
            .run(|| Running::start("sender", command))
            .expect("namespace")
    }

    /// Sends so many bytes to one receiver; what the sender said. All of it arrives.
    fn transfer(&self, len: usize, extra: &[&str]) -> Finished {
        let (from, to) = (folder(), folder());
        let bytes = content(len);
        let file = from.path().join("x");
        fs::write(&file, &bytes).expect("content");
        let mut command = Command::new(lms_recv());
        command
            .args(["--group", "239.1.2.3:5000", "--output"])
            .arg(to.path());
        let receiver = self.host.run(|| Running::start("receiver", &mut command));
        let mut command = Command::new(lms_send());
        command.args([
            "--group",
            "239.1.2.3:5000",
            "--ttl",
            "4",
            "--receivers",
            "1",
            "--json",
        ]);
        let sender = self.in_source(command.args(extra).arg(&file));
        let sender = sender.finish();
        sender.expect(0);
        receiver.expect("namespace").finish().expect(0);
        assert!(fs::read(to.path().join("x")).expect("file") == bytes);
        sender
    }

    /// `IpFragFails` of the router.
    fn fragmentation_failures(&self) -> u64 {
        let read = || fs::read_to_string("/proc/thread-self/net/snmp");
        let text = self.router.run(read).expect("namespace").expect("counters");
        let mut lines = text.lines().filter(|line| line.starts_with("Ip:"));
        let names = lines.next().expect("names").split(' ');
        let mut values = names.zip(lines.next().expect("values").split(' '));
        let (_, value) = values
            .find(|(name, _)| *name == "FragFails")
            .expect("FragFails");
        value.parse().expect("a number")
    }
}

pub(super) fn number(sender: &Finished, name: &str) -> u64 {
    let end = sender.event("end").expect("an event");
    field(&end, name).parse().expect("a number")
}

#[test]
fn a_kernel_multicast_router_loses_nothing_of_what_is_sent_in_batches() {
    let Some(network) = Network::new() else {
        return;
    };
    let sender = network.transfer(6_000_000, &["--rate", "100M"]);
    assert_eq!(network.fragmentation_failures(), 0);
    let (asked, sent) = (
        number(&sender, "requested_packets"),
        number(&sender, "data_packets"),
    );
    assert!(asked * 50 < sent, "{asked} of {sent} packets were lost");
}

#[test]
fn where_batches_are_lost_the_sender_goes_over_to_single_datagrams() {
    let Some(network) = Network::new() else {
        return;
    };
    if !network.drop_batches() {
        return;
    }
    let sender = network.transfer(80_000_000, &["--rate", "100M"]);
    sender.says("sending single datagrams from now on");
    let (asked, sent) = (
        number(&sender, "requested_packets"),
        number(&sender, "data_packets"),
    );
    assert!(asked > 100, "the filter drops nothing: {asked} of {sent}");
}

#[test]
fn no_gso_sends_single_datagrams_from_the_start() {
    let Some(network) = Network::new() else {
        return;
    };
    if !network.drop_batches() {
        return;
    }
    let sender = network.transfer(6_000_000, &["--rate", "100M", "--no-gso"]);
    let (asked, sent) = (
        number(&sender, "requested_packets"),
        number(&sender, "data_packets"),
    );
    assert!(asked * 50 < sent, "{asked} of {sent} packets were lost");
}

#[test]
fn a_replier_that_loses_packets_itself_is_replaced_by_one_that_does_not() {
    let Some(network) = Network::new() else {
        return;
    };
    let (from, to) = (folder(), [folder(), folder()]);
    let lossy = "udp dport 5000 meta length > 1000 numgen random mod 5 == 0 drop";
    if !filter(&network.host, "input", lossy) {
        return;
    }
    let config = from.path().join("config.toml");
    let socket = from.path().join("socket");
    let text = format!("[daemon]\nsocket = \"{}\"\n", socket.display());
    fs::write(&config, text).expect("configuration");
    let mut command = Command::new(lms_router());
    command.args(["run", "--config"]).arg(&config);
    let router = network
        .router
        .run(|| Running::start("router", &mut command));
    let router = router.expect("namespace");
    let replier = || {
        let mut command = Command::new(lms_router());
        command.args(["status", "groups", "--json", "--socket"]);
        let output = command.arg(&socket).output().expect("status runs");
        let text = String::from_utf8_lossy(&output.stdout).replace([' ', '\n'], "");
        let at = text.find("\"replier\":{")?;
        Some(field(&text[at..], "interface"))
    };
    let receivers: Vec<Running> = [(&network.host, "5"), (&network.second, "10")]
        .into_iter()
        .zip(&to)
        .map(|((host, cost), to)| {
            let mut command = Command::new(lms_recv());
            command.args([
                "--group",
                "239.1.2.3:5000",
                "--assist",
                "lms",
                "--replier-cost",
            ]);
            command.arg(cost).arg("--output").arg(to.path());
            let receiver = host.run(|| Running::start("receiver", &mut command));
            receiver.expect("namespace")
        })
        .collect();
    let file = from.path().join("x");
    fs::write(&file, content(60_000_000)).expect("content");
    let mut command = Command::new(lms_send());
    command.args([
        "--group",
        "239.1.2.3:5000",
        "--ttl",
        "4",
        "--receivers",
        "2",
    ]);
    command.args(["--assist", "lms", "--rate", "20M", "--no-gso"]);
    let sender = network.in_source(command.arg(&file));
    let mut elected = Vec::new();
    let end = Instant::now() + Duration::from_secs(120);
    while elected != ["r1", "r2"] {
        assert!(Instant::now() < end, "repliers were elected on {elected:?}");
        if let Some(now) = replier().filter(|now| elected.last() != Some(now)) {
            elected.push(now);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    for program in receivers.into_iter().chain([sender, router]) {
        drop(program);
    }
}
