//! LMS routers help in every way that there is: over both versions of IP, by options and by datagrams, with and without
//! privileges.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;

use linux_net::link;
use linux_net::mroute::{Route, Table};
use netlab::{NodeId, Plan, Shape};

use super::common::{Running, content, lms_recv, lms_router, lms_send};
use super::network::{filter, number};
use super::transfer::{field, folder};

const GROUP: Ipv4Addr = Ipv4Addr::new(232, 1, 2, 3);
const GROUP6: Ipv6Addr = Ipv6Addr::new(0xff3e, 0, 0, 0, 0, 0, 0, 0x1234);

/// A source, a router that forwards both groups, and three hosts behind it, each on a link of its own. The last one
/// loses data.
struct Network {
    network: netlab::Network,
    source: NodeId,
    router: NodeId,
    hosts: [NodeId; 3],
    _tables: (Table, Table<Ipv6Addr>),
}

/// What a transfer showed.
struct Seen {
    /// Counters of the router.
    counters: String,
    /// Repairs by the source, to the group and to one receiver.
    by_source: u64,
}

impl Seen {
    fn count(&self, name: &str) -> u64 {
        let at = self.counters.find(&format!("\"{name}\":"));
        let at = at.unwrap_or_else(|| panic!("{name} in {}", self.counters));
        field(&self.counters[at..], name).parse().expect("a number")
    }
}

impl Network {
    /// `None` where namespaces, or a packet filter, are missing, which is printed.
    fn new() -> Option<Network> {
        if !netlab::permitted("lms-recv") {
            return None;
        }
        let mut plan = Plan::default().with_ipv6();
        let (source, router) = (plan.host("source"), plan.router("router"));
        let hosts = ["first", "second", "lossy"].map(|name| plan.host(name));
        for node in [source, hosts[0], hosts[1], hosts[2]] {
            plan.link(router, node, Shape::default());
        }
        let network = netlab::Network::build(plan, 0).expect("network");
        let (from, from6) = (
            network.plan().address(source),
            network.plan().ipv6_address(source),
        );
        let tables = network.namespace(router).run(|| {
            let interfaces = ["eth0", "eth1", "eth2", "eth3"];
            let interfaces = interfaces.map(|name| link::find(name).expect("interface").index);
            let mut table = Table::open().expect("routing");
            let mut table6 = Table::open_for().expect("routing of IPv6");
            for interface in interfaces {
                table.add_interface(interface).expect("interface");
                table6.add_interface(interface).expect("interface");
            }
            let [input, outputs @ ..] = interfaces;
            let outputs = outputs.to_vec();
            let route = Route {
                source: from,
                group: GROUP,
                input,
                outputs: outputs.clone(),
            };
            table.set_route(&route).expect("route");
            let route = Route {
                source: from6,
                group: GROUP6,
                input,
                outputs,
            };
            table6.set_route(&route).expect("route");
            (table, table6)
        });
        let lossy = "udp dport 5000 meta length > 1000 numgen random mod 20 == 0 drop";
        filter(network.namespace(hosts[2]), "input", lossy).then(|| Network {
            network,
            source,
            router,
            hosts,
            _tables: tables.expect("namespace"),
        })
    }

    /// Sends a file to the three hosts, which speak to the router with these arguments.
    fn transfer(&self, is_ipv6: bool, assists: [&str; 3], has_privileges: bool) -> Seen {
        let plan = self.network.plan();
        let (group, source): (IpAddr, IpAddr) = match is_ipv6 {
            true => (GROUP6.into(), plan.ipv6_address(self.source).into()),
            false => (GROUP.into(), plan.address(self.source).into()),
        };
        let group = match group {
            IpAddr::V4(group) => format!("{group}:5000"),
            IpAddr::V6(group) => format!("[{group}]:5000"),
        };
        let from = folder();
        let (router, socket) = self.start_router(from.path());
        let to = [folder(), folder(), folder()];
        let bytes = content(3_000_000);
        let file = from.path().join("x");
        fs::write(&file, &bytes).expect("content");
        let receivers = self.hosts.into_iter().zip(assists).zip(["5", "10", "20"]);
        let receivers = receivers.zip(&to).map(|(((host, assist), cost), to)| {
            let mut command = program(&lms_recv(), has_privileges);
            command.args(["--group", &group, "--source", &source.to_string(), "--json"]);
            command.args(["--assist", assist, "--replier-cost", cost]);
            command.arg("--output").arg(to.path());
            self.start(host, "receiver", &mut command)
        });
        let receivers: Vec<Running> = receivers.collect();
        let mut command = program(&lms_send(), has_privileges);
        command.args([
            "--group",
            &group,
            "--ttl",
            "4",
            "--receivers",
            "3",
            "--json",
        ]);
        command.args(["--assist", assists[2], "--rate", "10M", "--no-gso"]);
        command.args(["--parity", "off"]).arg(&file);
        let sender = self.start(self.source, "sender", &mut command).finish();
        sender.expect(0);
        for (receiver, to) in receivers.into_iter().zip(&to) {
            receiver.finish().expect(0);
            assert!(fs::read(to.path().join("x")).expect("file") == bytes);
        }
        let mut command = Command::new(lms_router());
        command.args(["status", "counters", "--json", "--socket"]);
        let output = command.arg(&socket).output().expect("status runs");
        drop(router);
        assert!(output.status.success(), "{output:?}");
        Seen {
            counters: String::from_utf8_lossy(&output.stdout).replace([' ', '\n'], ""),
            by_source: number(&sender, "repairs_group") + number(&sender, "repairs_unicast"),
        }
    }

    fn start_router(&self, folder: &std::path::Path) -> (Running, std::path::PathBuf) {
        let config = folder.join("config.toml");
        let socket = folder.join("socket");
        let text = format!(
            "[daemon]\nsocket = \"{}\"\n[replier]\nrefresh = \"300ms\"\n",
            socket.display()
        );
        fs::write(&config, text).expect("configuration");
        let mut command = Command::new(lms_router());
        command.args(["run", "--config"]).arg(&config);
        (self.start(self.router, "router", &mut command), socket)
    }

    fn start(&self, node: NodeId, name: &'static str, command: &mut Command) -> Running {
        let start = || Running::start(name, command);
        self.network.namespace(node).run(start).expect("namespace")
    }
}

/// A program, which has no capabilities unless `has_privileges`.
fn program(path: &std::path::Path, has_privileges: bool) -> Command {
    if has_privileges {
        return Command::new(path);
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--bounding-set=-all", "--inh-caps=-all", "--"])
        .arg(path);
    command
}

/// Most losses were repaired by receivers, and nothing of LMS was refused.
fn check(seen: &Seen) {
    let (dmcasts, turned) = (seen.count("dmcast"), seen.count("request_turned"));
    assert!(
        dmcasts > 30 && turned > 10 && seen.by_source < dmcasts / 2,
        "{dmcasts} dmcasts, {turned} requests turned, {} repairs by the source: {}",
        seen.by_source,
        seen.counters
    );
    for reason in [
        "cookie",
        "not_downstream",
        "no_entry",
        "group_mismatch",
        "datagram",
    ] {
        assert_eq!(seen.count(reason), 0, "{reason}");
    }
}

#[test]
fn by_options_over_ipv4() {
    if let Some(network) = Network::new() {
        check(&network.transfer(false, ["lms"; 3], true));
    }
}

#[test]
fn by_hop_by_hop_options_over_ipv6() {
    if let Some(network) = Network::new() {
        check(&network.transfer(true, ["lms"; 3], true));
    }
}

#[test]
fn by_datagrams_without_privileges_over_ipv4() {
    if let Some(network) = Network::new() {
        check(&network.transfer(false, ["lms+udp"; 3], false));
    }
}

#[test]
fn by_datagrams_without_privileges_over_ipv6() {
    if let Some(network) = Network::new() {
        check(&network.transfer(true, ["lms+udp"; 3], false));
    }
}

#[test]
fn lms_without_privileges_speaks_by_datagrams() {
    if let Some(network) = Network::new() {
        check(&network.transfer(false, ["lms"; 3], false));
    }
}

#[test]
fn a_request_by_datagram_is_answered_by_a_host_that_speaks_by_options() {
    if let Some(network) = Network::new() {
        check(&network.transfer(false, ["lms", "lms", "lms+udp"], true));
        check(&network.transfer(true, ["lms", "lms", "lms+udp"], true));
    }
}
