//! Copies through a router in a namespace of its own.

use std::net::Ipv4Addr;
use std::process::Command;

use crate::common::{Finished, Running, Stage, listening, mcp, mcpd};
use crate::network::{MIB, same};
use linux_net::mroute::{Route, Table};
use netlab::host::{Host, wire};
use netlab::permitted;

/// A sender and a receiver with a router between them.
struct Routed {
    sender: Host,
    router: Host,
    receiver: Host,
}

const FAR: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);

impl Routed {
    /// Creates the hosts; the link to the receiver has this MTU.
    fn new(mtu: u32) -> Routed {
        let [sender, router, receiver] = [(); 3].map(|()| Host::new());
        for (host, number, port) in [(&sender, 77, "net77"), (&receiver, 78, "net78")] {
            let [near, far] = [1, 2].map(|last| Ipv4Addr::new(10, number, 0, last));
            wire([(&router, port, near), (host, "eth0", far)]);
            host.edit(|editor| {
                let all = Ipv4Addr::UNSPECIFIED;
                editor.set_route(all, 0, Some(near), None).expect("a route");
            });
        }
        let far = router.index("net78");
        router.edit(|editor| editor.set_mtu(far, mtu).expect("an MTU"));
        let forwards = router.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1"));
        forwards.expect("forwarding");
        Routed {
            sender,
            router,
            receiver,
        }
    }

    /// Copies a file of `len` bytes to a receiver; returns the finished `mcp`.
    fn copy(&self, stage: &Stage, len: usize, extra: &[&str]) -> Finished {
        let mut receive = Command::new(mcpd());
        receive
            .args(["--json", "--insecure", "--dir"])
            .arg(stage.dir(2));
        let _running = self.receiver.run(|| listening(&mut receive));
        let file = stage.content("image", len);
        let mut send = Command::new(mcp());
        send.args(["--json", "--insecure"])
            .args(extra)
            .arg(&file)
            .arg(FAR.to_string());
        let done = self.sender.run(|| Running::start(&mut send)).finish();
        done.expect(0);
        same(stage, 2, "image");
        done
    }
}

#[test]
fn a_router_s_word_about_its_link_is_heard() {
    if !permitted("a_router_s_word_about_its_link_is_heard") {
        return;
    }
    for carrier in ["udp", "ip"] {
        let stage = Stage::new();
        let network = Routed::new(1400);
        network.copy(&stage, 3 * MIB, &["--carrier", carrier]);
        // The router said so, not a timeout: the kernel knows the MTU of the link.
        let learnt = network.sender.run(|| linux_net::inet::route(FAR.into(), 0));
        assert_eq!(learnt.expect("a route").mtu, 1400);
        drop(network.router);
    }
}

/// Virtual links carry a whole batch of datagrams as one packet, and the kernel's multicast forwarding looks
/// at that packet's length. The offloads are the system's.
#[test]
fn batches_cross_a_kernel_multicast_router() {
    if !permitted("batches_cross_a_kernel_multicast_router") {
        return;
    }
    for extra in [&[][..], &["--no-gso"], &["--carrier", "ip"]] {
        let stage = Stage::new();
        let network = Routed::new(1500);
        let [near, far] = ["net77", "net78"].map(|name| network.router.index(name));
        let _table = network.router.run(|| {
            let mut table = Table::open().expect("multicast routing");
            table.add_interface(near).expect("an interface");
            table.add_interface(far).expect("an interface");
            let route = Route {
                source: Ipv4Addr::new(10, 77, 0, 2),
                group: Ipv4Addr::new(239, 1, 2, 3),
                input: near,
                outputs: vec![far],
            };
            table.set_route(&route).expect("a route");
            table
        });
        let options = [
            "--mode",
            "multicast",
            "--rate",
            "200M",
            "--group",
            "239.1.2.3",
        ];
        network.copy(&stage, 12 * MIB, &[&options[..], extra].concat());
        let dropped = network.router.run(|| {
            let text = std::fs::read_to_string("/proc/thread-self/net/snmp").expect("counters");
            let ip: Vec<Vec<String>> = text
                .lines()
                .filter_map(|line| line.strip_prefix("Ip: "))
                .map(|line| line.split(' ').map(str::to_owned).collect())
                .collect();
            let at = ip[0]
                .iter()
                .position(|name| name == "FragFails")
                .expect("it");
            ip[1][at].clone()
        });
        assert_eq!(dropped, "0", "{extra:?}: batches were dropped");
    }
}
