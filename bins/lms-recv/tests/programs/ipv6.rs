//! Transfers over IPv6: through a kernel that routes multicast, on one link, and with relays.

use std::fs;
use std::net::{Ipv6Addr, SocketAddr};
use std::process::{Child, Command};

use linux_net::link;
use linux_net::mroute::{Route, Table};
use netlab::{NodeId, Plan, Shape};

use super::common::{Finished, Running, content, lms_recv, lms_send};
use super::network::number;
use super::relays::Relay;
use super::transfer::folder;

/// Of a site, and source-specific of global scope.
const GROUP: Ipv6Addr = Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 0x1234);
const SSM: Ipv6Addr = Ipv6Addr::new(0xff3e, 0, 0, 0, 0, 0, 0, 0x1234);

/// A source, a router that forwards the groups, and two hosts behind it.
struct Network {
    network: netlab::Network,
    source: NodeId,
    router: NodeId,
    hosts: [NodeId; 2],
    _table: Table<Ipv6Addr>,
}

impl Network {
    /// `None` where namespaces are not permitted, which is printed.
    fn new() -> Option<Network> {
        if !netlab::permitted("lms-recv") {
            return None;
        }
        let mut plan = Plan::default().with_ipv6();
        let (source, router) = (plan.host("source"), plan.router("router"));
        let hosts = [plan.host("host"), plan.host("second")];
        for node in [source, hosts[0], hosts[1]] {
            plan.link(router, node, Shape::default());
        }
        let network = netlab::Network::build(plan, 0).expect("network");
        let from = network.plan().ipv6_address(source);
        let routing = network.namespace(router).run(|| {
            let mut table = Table::open_for().expect("routing");
            let [input, one, two] = ["eth0", "eth1", "eth2"].map(|name| {
                let interface = link::find(name).expect("interface").index;
                table.add_interface(interface).expect("interface");
                interface
            });
            for group in [GROUP, SSM] {
                let route = Route {
                    source: from,
                    group,
                    input,
                    outputs: vec![one, two],
                };
                table.set_route(&route).expect("route");
            }
            table
        });
        Some(Network {
            network,
            source,
            router,
            hosts,
            _table: routing.expect("namespace"),
        })
    }

    fn address(&self, node: NodeId) -> Ipv6Addr {
        self.network.plan().ipv6_address(node)
    }

    /// Starts a program on a host.
    fn start(&self, node: NodeId, name: &'static str, command: &mut Command) -> Running {
        let start = || Running::start(name, command);
        self.network.namespace(node).run(start).expect("namespace")
    }

    fn spawn(&self, node: NodeId, command: &mut Command) -> Child {
        let spawn = || command.spawn().expect("a program");
        self.network.namespace(node).run(spawn).expect("namespace")
    }

    /// Sends a file to receivers at these nodes, which all get it. Returns what the sender and the receivers printed.
    fn transfer(
        &self,
        receivers: &[NodeId],
        group: &str,
        of_receivers: &[&str],
        of_sender: &[&str],
    ) -> (Finished, Vec<Finished>) {
        let from = folder();
        let bytes = content(3_000_017);
        let file = from.path().join("x");
        fs::write(&file, &bytes).expect("content");
        let running: Vec<_> = receivers
            .iter()
            .map(|node| {
                let to = folder();
                let mut command = Command::new(lms_recv());
                command.args(["--group", group, "--json", "--output"]);
                command.arg(to.path()).args(of_receivers);
                (self.start(*node, "receiver", &mut command), to)
            })
            .collect();
        let count = receivers.len().to_string();
        let mut command = Command::new(lms_send());
        command.args(["--group", group, "--ttl", "4", "--rate", "200M", "--json"]);
        command
            .args(["--receivers", &count])
            .args(of_sender)
            .arg(&file);
        let sender = self.start(self.source, "sender", &mut command).finish();
        sender.expect(0);
        let finished = running.into_iter().map(|(receiver, to)| {
            let receiver = receiver.finish();
            receiver.expect(0);
            assert!(fs::read(to.path().join("x")).expect("file") == bytes);
            receiver
        });
        (sender, finished.collect())
    }
}

/// The value of a field that is a text.
fn text(line: &str, name: &str) -> String {
    let (_, rest) = line
        .split_once(&format!("\"{name}\":\""))
        .expect("the field");
    rest.split('"').next().unwrap_or_default().to_owned()
}

#[test]
fn a_source_specific_group_is_routed_to_two_hosts() {
    let Some(network) = Network::new() else {
        return;
    };
    let source = network.address(network.source).to_string();
    let (sender, receivers) = network.transfer(
        &network.hosts,
        "[ff3e::1234]:5000",
        &["--source", &source],
        &[],
    );
    // The router's kernel forwards what is sent in batches.
    let (lost, sent) = (
        number(&sender, "requested_packets"),
        number(&sender, "data_packets"),
    );
    assert!(lost * 50 < sent, "{lost} of {sent} packets were lost");
    let opened = sender.event("opened").expect("opened");
    let from: SocketAddr = text(&opened, "source").parse().expect("an address");
    assert_eq!(from.ip(), network.address(network.source));
    for receiver in receivers {
        let waiting = receiver.event("waiting").expect("waiting");
        assert_eq!(text(&waiting, "group"), "[ff3e::1234]:5000");
        assert_eq!(receiver.stderr, "");
    }
    let joined = sender.event("joined").expect("joined");
    let host: SocketAddr = text(&joined, "address").parse().expect("an address");
    let hosts = network.hosts.map(|node| network.address(node));
    assert!(hosts.iter().any(|address| host.ip() == *address), "{host}");
}

#[test]
fn a_zone_names_the_interface() {
    let Some(network) = Network::new() else {
        return;
    };
    network.transfer(&network.hosts, "[ff15::1234%eth0]:5000", &[], &[]);
    // On the link to the router, between link-local addresses: the sender's zone is one of its own interfaces.
    let (sender, _) = network.transfer(&[network.router], "[ff12::1234%eth0]:5000", &[], &[]);
    let opened = sender.event("opened").expect("opened");
    assert!(text(&opened, "source").starts_with("[fe80::"), "{opened}");
    let mut command = Command::new(lms_recv());
    command.args(["--group", "[ff15::1234%eth0]:5000", "--interface", "eth1"]);
    command.args(["--output", "-"]);
    let refused = network.start(network.router, "receiver", &mut command);
    refused
        .finish()
        .expect(1)
        .says("name the interface in one of the two places");
}

#[test]
fn a_receiver_joins_where_its_source_is() {
    let Some(network) = Network::new() else {
        return;
    };
    let nodes = [(network.source, "eth0"), (network.hosts[1], "eth2")];
    for (node, interface) in nodes {
        let (source, to) = (network.address(node).to_string(), folder());
        let mut command = Command::new(lms_recv());
        command.args(["--group", "[ff3e::99]:5000", "--source", &source]);
        command.args(["--connect-timeout", "100ms", "--json", "--output"]);
        let receiver = network.start(network.router, "receiver", command.arg(to.path()));
        let receiver = receiver.finish();
        let waiting = receiver.expect(1).event("waiting").expect("waiting");
        assert_eq!(text(&waiting, "interface"), interface);
    }
}

#[test]
fn data_goes_through_relays_alone() {
    let Some(network) = Network::new() else {
        return;
    };
    let listen = format!("[{}]:0", network.address(network.router));
    let spawn = |command: &mut Command| network.spawn(network.router, command);
    let top = Relay::start_at(&listen, 1, &[], spawn);
    let spawn = |command: &mut Command| network.spawn(network.router, command);
    let below = Relay::start_at(&listen, 2, &[top.address], spawn);
    let to_below = format!("dyram://{}", below.address);
    let source = network.address(network.source).to_string();
    let (_, receivers) = network.transfer(
        &network.hosts,
        "[ff15::77]:5000",
        &["--source", &source, "--assist", &to_below],
        &["--assist", &format!("dyram://{}", top.address)],
    );
    for receiver in receivers {
        let relay = receiver.event("relay").expect("relay");
        assert_eq!(text(&relay, "state"), "attached");
        assert_eq!(receiver.stderr, "");
    }
}

#[test]
fn relays_help_beside_multicast() {
    let Some(network) = Network::new() else {
        return;
    };
    let at_router = network.address(network.router);
    let more = "carriage = \"multicast\"\n[multicast]\ninterface = \"eth0\"\ngroups = [\"[ff15::1234]:5000\"]";
    let spawn = |command: &mut Command| network.spawn(network.router, command);
    let relay = Relay::start_with(&format!("[{at_router}]:0"), 1, &[], more, spawn);
    let help = format!("dyram+multicast://{}", relay.address);
    let source = network.address(network.source).to_string();
    network.transfer(
        &network.hosts,
        "[ff15::1234]:5000",
        &["--source", &source, "--assist", &help],
        &["--assist", &help],
    );
}
