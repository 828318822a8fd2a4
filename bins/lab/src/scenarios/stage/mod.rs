//! The network in which tools are compared: one sender and its receivers on one switch, one file. What the
//! sender's wire carries is counted there, and each copy is compared with the original.
//!
//! | part | what |
//! | --- | --- |
//! | [`Setting`], [`Stage`] | the network: the sender's link, each receiver's own, and whether multicast reaches it |
//! | [`copy`] | `mcpd` on each receiver, `mcp` on the sender, and their reports |
//! | [`tcp`] | kernel TCP, one stream to each receiver, all at once |
//! | [`strongest`] | the same by several programs, the fastest of which is what others are compared with |
//! | [`endless`] | a kernel TCP flow beside which something else is measured |
//! | [`contest`] | several tools, the best of some rounds of each |
//! | [`play`], [`tools`], [`norm`] | other tools, where they are installed |

pub(super) mod contest;
pub(super) mod copy;
pub(super) mod endless;
pub(super) mod norm;
pub(super) mod play;
pub(super) mod strongest;
pub(super) mod tcp;
pub(super) mod tools;

use std::fs;

use crate::prelude::*;
use netlab::means;
use netlab::mroute;

/// The token bucket of a sender's link: burst and queue, in bytes.
const BUCKET_BURST: u32 = 16 * 1024;
const BUCKET_QUEUE: u32 = 1 << 20;

/// A receiver's own link, between it and the switch.
#[derive(Clone, Debug, Default)]
pub(super) struct Port {
    /// Its name; `h1` and so on where it is empty.
    pub(super) name: String,
    /// Rate, loss and delay there. Anything but the default needs the emulator, and offloads off.
    pub(super) shape: Shape,
    /// Multicast does not reach the receiver.
    pub(super) unreachable: bool,
}

/// What the stage is like.
#[derive(Clone, Debug, Default)]
pub(super) struct Setting {
    /// The receivers' links.
    pub(super) ports: Vec<Port>,
    /// The sender's own link to the switch.
    pub(super) sender: Shape,
    /// Length of the file.
    pub(super) bytes: u64,
    /// Segmentation offloads and GRO on all links.
    pub(super) offloads: bool,
    /// IPv6 addresses beside those of IPv4.
    pub(super) ipv6: bool,
    /// Rate limit of the sender, by the kernel's token bucket, bit/s; 0 for none.
    pub(super) rate_bps: u64,
    /// A kernel multicast router between the sender and each receiver, in a network shaped by the system.
    pub(super) system: Option<System>,
}

/// A network shaped by the system: offloads as they are, HTB, nftables.
#[derive(Clone, Copy, Debug)]
pub(super) struct System {
    /// The group that the router forwards.
    pub(super) group: Ipv4Addr,
    /// Rate limit of HTB on the sender's interface, bit/s.
    pub(super) rate_bps: u64,
    /// The share of packets to each receiver that nftables drops.
    pub(super) loss: f64,
}

impl Setting {
    /// This many receivers on plain wires, no limit, no offloads.
    pub(super) fn plain(receivers: usize, bytes: u64) -> Setting {
        Setting {
            ports: vec![Port::default(); receivers],
            bytes,
            ..Setting::default()
        }
    }

    /// The same with every receiver's link of this shape.
    #[must_use]
    pub(super) fn shaped(mut self, shape: Shape) -> Setting {
        for port in &mut self.ports {
            port.shape = shape;
        }
        self
    }

    /// The same where each receiver loses this share of the packets sent to it.
    #[must_use]
    pub(super) fn lossy(self, loss: f64) -> Setting {
        self.shaped(Shape {
            inbound_only: loss > 0.0,
            ..Shape::lossy(loss)
        })
    }
}

/// Ethernet bytes that the sender has sent. Packets of several segments that pass as one
/// count as one: switch offloads off where bytes matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Wire {
    pub(super) bytes: u64,
    /// To groups, including the few bytes of ARP and IGMP.
    pub(super) multicast: u64,
}

impl Wire {
    pub(super) fn unicast(self) -> u64 {
        self.bytes.saturating_sub(self.multicast)
    }

    /// Since an earlier count.
    fn since(self, before: Wire) -> Wire {
        Wire {
            bytes: self.bytes - before.bytes,
            multicast: self.multicast - before.multicast,
        }
    }
}

/// One network and one file.
pub(super) struct Stage {
    pub(super) network: Network,
    pub(super) sender: NodeId,
    pub(super) receivers: Vec<NodeId>,
    pub(super) link: LinkId,
    pub(super) file: PathBuf,
    /// Its length.
    pub(super) bytes: u64,
    /// Owners of the routers' multicast routes.
    pub(super) routes: Vec<Process>,
    /// Time limit of every transfer, instead of one that follows from the file's length.
    pub(super) limit: Option<Duration>,
}

/// Bytes of IP packets that this namespace has sent to groups.
fn multicast_octets() -> Result<u64> {
    let text = fs::read_to_string("/proc/thread-self/net/netstat")?;
    let mut lines = text.lines().filter(|line| line.starts_with("IpExt:"));
    let names = lines.next().context("no IpExt counters")?;
    let values = lines.next().context("no IpExt counters")?;
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    let (_, octets) = pairs
        .find(|(name, _)| *name == "OutMcastOctets")
        .context("no counter of multicast bytes")?;
    Ok(octets.parse()?)
}

impl Stage {
    /// Builds the network and writes the file.
    pub(super) fn build(setting: &Setting) -> Result<Stage> {
        if let Some(system) = setting.system {
            return Stage::build_routed(setting, system);
        }
        let mut plan = Plan::default();
        let sender = plan.host("sender");
        let name = |(at, port): (usize, &Port)| match port.name.as_str() {
            "" => format!("h{}", at + 1),
            name => name.to_owned(),
        };
        let receivers: Vec<NodeId> = setting
            .ports
            .iter()
            .enumerate()
            .map(|port| plan.host(&name(port)))
            .collect();
        let mut ports = vec![(sender, setting.sender)];
        let shapes = setting.ports.iter().map(|port| port.shape);
        ports.extend(receivers.iter().copied().zip(shapes));
        let link = plan.shared(&ports);
        if setting.ipv6 {
            plan = plan.with_ipv6();
        }
        let mut network = Network::build(plan, 5)?;
        let wires = setting.ports.iter().all(|port| port.shape.is_wire());
        if wires && setting.sender.is_wire() {
            network.offloads(setting.offloads)?;
        }
        for (node, port) in receivers.iter().zip(&setting.ports) {
            network.multicast(*node, link, !port.unreachable)?;
        }
        if setting.rate_bps > 0 {
            means::used("token bucket on the sender's interface");
            let index = network.index(sender, link)?;
            network.editor(sender).set_token_bucket(
                index,
                setting.rate_bps,
                BUCKET_BURST,
                BUCKET_QUEUE,
            )?;
        }
        Stage::new(network, sender, receivers, link, setting.bytes)
    }

    /// A network that exists: writes the file.
    pub(super) fn new(
        network: Network,
        sender: NodeId,
        receivers: Vec<NodeId>,
        link: LinkId,
        bytes: u64,
    ) -> Result<Stage> {
        let file = Path::new(SCRATCH).join("original.bin");
        write_file(&file, bytes)?;
        Ok(Stage {
            network,
            sender,
            receivers,
            link,
            file,
            bytes,
            routes: Vec::new(),
            limit: None,
        })
    }

    /// The sender behind one interface of a router, each receiver behind another.
    fn build_routed(setting: &Setting, system: System) -> Result<Stage> {
        let mut plan = Plan::default();
        let (sender, router) = (plan.host("sender"), plan.router("router"));
        let link = plan.link(sender, router, Shape::default());
        let receivers: Vec<NodeId> = (1..=setting.ports.len())
            .map(|number| plan.host(&format!("h{number}")))
            .collect();
        let down: Vec<LinkId> = receivers
            .iter()
            .map(|receiver| plan.link(router, *receiver, Shape::default()))
            .collect();
        let network = Network::build(plan, 5)?;
        for (receiver, link) in receivers.iter().zip(&down) {
            network.lose_by_nftables(*receiver, *link, system.loss)?;
        }
        network.shape_by_htb(sender, link, system.rate_bps)?;
        let routes = mroute::serve(&network, sender, &receivers, &[system.group])?;
        let stage = Stage::new(network, sender, receivers, link, setting.bytes)?;
        Ok(Stage { routes, ..stage })
    }

    /// Bytes that the sender has sent so far.
    pub(super) fn wire(&mut self) -> Result<Wire> {
        let index = self.network.index(self.sender, self.link)?;
        // On a link of two nodes only the sender's IP layer distinguishes multicast from unicast.
        let multicast = match self.network.plan().is_shared(self.link) {
            true => self.network.flooded(self.link)?.1,
            false => self.network.within(self.sender, multicast_octets)?,
        };
        Ok(Wire {
            bytes: self.network.editor(self.sender).counters(index)?.tx_bytes,
            multicast,
        })
    }

    /// Opens or closes a receiver's port (counted from 0) for multicast.
    pub(super) fn multicast(&mut self, receiver: usize, on: bool) -> Result<()> {
        let node = self.receivers[receiver];
        self.network.multicast(node, self.link, on)
    }

    /// The path of a receiver's copy, in an empty folder of its own.
    pub(super) fn copy(&self, receiver: usize) -> Result<PathBuf> {
        self.copy_into(&format!("h{receiver}"))
    }

    /// The same for a folder of this name.
    fn copy_into(&self, name: &str) -> Result<PathBuf> {
        let folder = Path::new(SCRATCH).join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        let name = self.file.file_name().context("a file without a name")?;
        Ok(folder.join(name))
    }

    /// Deletes copies: the next transfer needs the space.
    pub(super) fn discard(&self, copies: &[PathBuf]) -> Result<()> {
        for copy in copies.iter().filter(|copy| copy.exists()) {
            fs::remove_file(copy)?;
        }
        Ok(())
    }

    /// Fails unless each of these files is the original.
    pub(super) fn compare(&self, copies: &[PathBuf]) -> Result<()> {
        for copy in copies {
            if !same(&self.file, copy)? {
                bail!("{} is not the file that was sent", copy.display());
            }
        }
        Ok(())
    }

    /// Time limit of a transfer by polycast's tools.
    pub(super) fn timeout(&self) -> Duration {
        let usual = Duration::from_secs(40 + self.bytes / 100_000);
        self.limit.unwrap_or(usual)
    }

    /// Time limit of each program of other tools: ten times what 100 Mbit/s need, and 20 s.
    pub(super) fn foreign_limit(&self) -> Duration {
        let usual = Duration::from_secs(20 + self.bytes / 1_250_000);
        self.limit.unwrap_or(usual)
    }
}
