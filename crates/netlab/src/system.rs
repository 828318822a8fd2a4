//! Networks as users have them: segmentation offloads as the system has them, loss by nftables, HTB on a host's own
//! interface. The lab's link emulator sees single packets, so that nothing which depends on batches of segments shows
//! on its links; these networks do not use it.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::emulator::LinkReport;
use crate::{LinkId, Network, NodeId, installed, means};

/// The nftables table of the lab.
const TABLE: &str = "polycast_lab";
/// Packets that wait in HTB's queue.
const HTB_QUEUE: u32 = 1_000;

/// Why such a network cannot be built here; `None` when it can.
pub fn missing() -> Option<String> {
    let absent = ["nft", "tc"]
        .into_iter()
        .find(|name| installed(name).is_none())?;
    Some(format!("{absent} is not installed"))
}

/// Runs an installed program to its end.
fn run(name: &str, args: &[&str], input: &str) -> Result<String> {
    let path = installed(name).with_context(|| format!("{name} is not installed"))?;
    let mut child = Command::new(path)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {name}"))?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    stdin.write_all(input.as_bytes())?;
    drop(stdin);
    let output = child.wait_with_output()?;
    ensure!(
        output.status.success(),
        "{name} {}: {}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

impl Network {
    fn interface(&self, node: NodeId, link: LinkId) -> Result<String> {
        self.plan
            .interface_on(node, link)
            .context("the node is not on that link")
    }

    /// Loses this share of the packets that arrive at a node from a link, IGMP and ICMPv6 apart. A batch of segments that the
    /// link carries as one packet is lost as one.
    ///
    /// # Errors
    /// When nftables refuses.
    pub fn lose_by_nftables(&self, node: NodeId, link: LinkId, share: f64) -> Result<()> {
        means::used("loss by nftables");
        let name = self.interface(node, link)?;
        let of_100_000 = (share * 100_000.0).round() as u32;
        let rules = format!(
            "add table inet {TABLE}\n\
             add chain inet {TABLE} loss {{ type filter hook prerouting priority -300; policy accept; }}\n\
             add counter inet {TABLE} {name}\n\
             add rule inet {TABLE} loss iifname \"{name}\" meta l4proto != {{ igmp, ipv6-icmp }} \
             numgen random mod 100000 < {of_100_000} counter name \"{name}\" drop\n"
        );
        self.within(node, || run("nft", &["-f", "-"], &rules).map(|_| ()))
    }

    /// Drops what a node multicasts, membership reports and neighbour discovery apart: its multicast reaches no other node.
    ///
    /// # Errors
    /// When nftables refuses.
    pub fn drop_multicast_of(&self, node: NodeId) -> Result<()> {
        means::used("multicast dropped by nftables");
        let rules = format!(
            "add table inet {TABLE}\n\
             add chain inet {TABLE} mute {{ type filter hook output priority 0; policy accept; }}\n\
             add rule inet {TABLE} mute meta l4proto != {{ igmp, ipv6-icmp }} ip daddr 224.0.0.0/4 drop\n\
             add rule inet {TABLE} mute meta l4proto != {{ igmp, ipv6-icmp }} ip6 daddr ff00::/8 drop\n"
        );
        self.within(node, || run("nft", &["-f", "-"], &rules).map(|_| ()))
    }

    /// Both directions of each link lose this share: packets are lost where they arrive.
    ///
    /// # Errors
    /// When nftables refuses.
    pub fn lose_everywhere(&self, share: f64) -> Result<()> {
        for link in (0..self.plan.links.len()).map(LinkId) {
            for node in &self.plan.links[link.0].nodes {
                self.lose_by_nftables(*node, link, share)?;
            }
        }
        Ok(())
    }

    /// Packets that nftables lost at a node on their way from a link.
    fn lost_by_nftables(&self, node: NodeId, link: LinkId) -> Result<u64> {
        let name = self.interface(node, link)?;
        let args = ["-j", "list", "counters", "table", "inet", TABLE];
        let listed = self.within(node, || run("nft", &args, ""))?;
        let listed: Value = serde_json::from_str(&listed).context("what nft listed")?;
        let mut objects = listed["nftables"].as_array().into_iter().flatten();
        let counter = objects.find(|object| object["counter"]["name"] == name.as_str());
        let counter = counter.with_context(|| format!("no counter {name}"))?;
        Ok(counter["counter"]["packets"].as_u64().unwrap_or(0))
    }

    /// Packets lost on each link on the way from its first node to its others, by the names of [`parts`](Self::parts):
    /// as the emulator counted them or, where there is none, nftables.
    ///
    /// # Errors
    /// When neither can be asked.
    pub fn lost_downward(&mut self) -> Result<Vec<(String, u64)>> {
        if self.emulator.is_some() {
            let shared = self.plan.links.iter().filter(|link| link.bridged);
            let below = shared.flat_map(|link| &link.nodes[1..]);
            let below: Vec<String> = below.map(|node| self.port_name(*node)).collect();
            let lost = |link: LinkReport| match below.contains(&link.name) {
                // A port's first end is its node.
                true => (link.name, link.backward.lost),
                false => (link.name, link.forward.lost),
            };
            return Ok(self.emulated()?.into_iter().map(lost).collect());
        }
        let mut all = Vec::new();
        for (link, planned) in self.plan.links.iter().enumerate() {
            for node in &planned.nodes[1..] {
                let name = match planned.bridged {
                    true => self.port_name(*node),
                    false => self.link_name(LinkId(link)),
                };
                all.push((name, self.lost_by_nftables(*node, LinkId(link))?));
            }
        }
        Ok(all)
    }

    /// The names of what a packet from a link's first node to another one passes: the link, or the ports of both on a
    /// shared one.
    pub fn parts(&self, link: LinkId, to: NodeId) -> Vec<String> {
        let planned = &self.plan.links[link.0];
        match planned.bridged {
            true => [planned.nodes[0], to]
                .map(|node| self.port_name(node))
                .into(),
            false => vec![self.link_name(link)],
        }
    }

    /// Limits a node's sending rate on a link, in bit/s, by HTB with a queue of 1,000 packets.
    ///
    /// # Errors
    /// When `tc` refuses.
    pub fn shape_by_htb(&self, node: NodeId, link: LinkId, rate_bps: u64) -> Result<()> {
        self.shape_by_htb_with_queue(node, link, rate_bps, HTB_QUEUE)
    }

    /// Limits a node's sending rate on a link, in bit/s, by HTB with a queue of this many packets.
    ///
    /// # Errors
    /// When `tc` refuses.
    pub fn shape_by_htb_with_queue(
        &self,
        node: NodeId,
        link: LinkId,
        rate_bps: u64,
        queue_packets: u32,
    ) -> Result<()> {
        means::used("HTB on the sender's interface");
        let name = self.interface(node, link)?;
        let (rate, queue) = (format!("{rate_bps}bit"), queue_packets.to_string());
        let commands = [
            [
                "qdisc", "replace", "dev", &name, "root", "handle", "1:", "htb", "default", "1",
            ]
            .to_vec(),
            [
                "class", "add", "dev", &name, "parent", "1:", "classid", "1:1", "htb", "rate",
                &rate, "burst", "32k", "cburst", "32k",
            ]
            .to_vec(),
            [
                "qdisc", "add", "dev", &name, "parent", "1:1", "pfifo", "limit", &queue,
            ]
            .to_vec(),
        ];
        self.within(node, || {
            let mut commands = commands.iter();
            commands.try_for_each(|command| run("tc", command, "").map(|_| ()))
        })
    }
}
