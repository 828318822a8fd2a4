//! Transfers through a kernel that routes multicast, over virtual links with the offloads that the system
//! gives them.

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::{Duration, Instant};

use linux_net::link;
use linux_net::mroute::{Route, Table};
use linux_net::netns::Namespace;
use netlab::{NodeId, Plan, Shape};

use super::common::{Finished, Running, content, lms_recv, lms_router, lms_send};
use super::transfer::{field, folder};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

/// A host with a source, a router, and two hosts behind it, each on a link of its own.
pub(super) struct Network {
    network: netlab::Network,
    pub(super) source: NodeId,
    pub(super) router: NodeId,
    pub(super) host: NodeId,
    pub(super) second: NodeId,
    _table: Table,
}

/// Sets a rule of a host's packet filter; whether there is an `nft` to say so.
pub(super) fn filter(namespace: &Namespace, hook: &str, rule: &str) -> bool {
    let rules =
        format!("table inet t {{ chain c {{ type filter hook {hook} priority 0; {rule}; }}; }}");
    let set = || Command::new("nft").arg(rules).status();
    let is_set = namespace.run(set).expect("namespace");
    let is_set = is_set.is_ok_and(|status| status.success());
    if !is_set {
        netlab::lacks_program(env!("CARGO_PKG_NAME"), "nft");
    }
    is_set
}

impl Network {
    /// `None` where namespaces are not permitted, which is printed.
    pub(super) fn new() -> Option<Network> {
        if !netlab::permitted("lms-recv") {
            return None;
        }
        let mut plan = Plan::default();
        let (source, router) = (plan.host("source"), plan.router("router"));
        let (host, second) = (plan.host("host"), plan.host("second"));
        for node in [source, host, second] {
            plan.link(router, node, Shape::default());
        }
        let network = netlab::Network::build(plan, 0).expect("network");
        let routing = network.namespace(router).run(|| {
            let mut table = Table::open().expect("routing");
            let [input, one, two] = ["eth0", "eth1", "eth2"].map(|name| {
                let interface = link::find(name).expect("interface").index;
                table.add_interface(interface).expect("interface");
                interface
            });
            let route = Route {
                source: network.plan().address(source),
                group: GROUP,
                input,
                outputs: vec![one, two],
            };
            table.set_route(&route).expect("route");
            table
        });
        Some(Network {
            network,
            source,
            router,
            host,
            second,
            _table: routing.expect("namespace"),
        })
    }

    /// Limits the links to the two hosts, with a queue of 64 KiB each. Whether there is a `tc` to say so.
    pub(super) fn limit(&self, mbps: [u32; 2]) -> bool {
        ["eth1", "eth2"].iter().zip(mbps).all(|(device, mbps)| {
            let rate = format!("{mbps}mbit");
            let mut tc = Command::new("tc");
            tc.args(["qdisc", "add", "dev", device, "root", "tbf", "rate", &rate])
                .args(["burst", "32k", "limit", "64k"]);
            let set = self.at(self.router).run(|| tc.status());
            let is_set = set.expect("namespace").is_ok_and(|status| status.success());
            if !is_set {
                netlab::lacks_program(env!("CARGO_PKG_NAME"), "tc");
            }
            is_set
        })
    }

    pub(super) fn address(&self, node: NodeId) -> Ipv4Addr {
        self.network.plan().address(node)
    }

    pub(super) fn at(&self, node: NodeId) -> &Namespace {
        self.network.namespace(node)
    }

    /// The router's packet filter drops what is longer than a datagram of these links. Whether there is an
    /// `nft` to say so.
    fn drop_batches(&self) -> bool {
        filter(self.at(self.router), "forward", "meta length > 2000 drop")
    }

    pub(super) fn in_source(&self, command: &mut Command) -> Running {
        self.at(self.source)
            .run(|| Running::start("sender", command))
            .expect("namespace")
    }

    /// Sends that many bytes to one receiver, all of which arrive. Returns the output of the sender.
    fn transfer(&self, len: usize, extra: &[&str]) -> Finished {
        let (from, to) = (folder(), folder());
        let bytes = content(len);
        let file = from.path().join("x");
        fs::write(&file, &bytes).expect("content");
        let mut command = Command::new(lms_recv());
        command
            .args(["--group", "239.1.2.3:5000", "--output"])
            .arg(to.path());
        let receiver = self
            .at(self.host)
            .run(|| Running::start("receiver", &mut command));
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
        let text = self
            .at(self.router)
            .run(read)
            .expect("namespace")
            .expect("counters");
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
    if !filter(network.at(network.host), "input", lossy) {
        return;
    }
    let config = from.path().join("config.toml");
    let socket = from.path().join("socket");
    let text = format!("[daemon]\nsocket = \"{}\"\n", socket.display());
    fs::write(&config, text).expect("configuration");
    let mut command = Command::new(lms_router());
    command.args(["run", "--config"]).arg(&config);
    let router = network
        .at(network.router)
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
    let receivers: Vec<Running> = [(network.host, "5"), (network.second, "10")]
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
            let receiver = network
                .at(host)
                .run(|| Running::start("receiver", &mut command));
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
    while elected != ["eth1", "eth2"] {
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
