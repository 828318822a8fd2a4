//! The network that is built from a plan: namespaces, veth pairs and bridges.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use linux_net::Family;
use linux_net::ethtool;
use linux_net::link::WireEnd;
use linux_net::mroute::{Route, Watcher, WatcherConfig};
use linux_net::netns::Namespace;
use serde::Serialize;
use serde_json::Value;

use crate::{Editor, Launch, LinkId, NodeId, Plan, Process, Shape, emulator, ipv6, means};

/// Offload features that a plain wire between two namespaces has switched on.
const OFFLOADS: &[&str] = &[
    "tx-tcp-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-tcp-mangleid-segmentation",
    "tx-tcp6-segmentation",
    "tx-udp-segmentation",
    "tx-generic-segmentation",
    "rx-gro",
];
/// Where a program must compute checksums itself, because the emulator sees the packets.
const CHECKSUM: &str = "tx-checksum-ip-generic";

/// One node's network namespace.
#[derive(Debug)]
struct Space {
    namespace: Namespace,
    editor: Editor,
}

impl Space {
    fn create(ipv6: bool) -> Result<Space> {
        let namespace = Namespace::new()?;
        let editor = namespace.run(|| -> Result<Editor> {
            for scope in ["all", "default"] {
                // Silence, or addresses that are used at once. Kernels without IPv6 have no such switch.
                let (switch, value) = match ipv6 {
                    false => ("disable_ipv6", "1"),
                    true => ("accept_dad", "0"),
                };
                let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/{switch}"), value);
                // No reverse-path check in the way of dmcasts.
                sysctl(&format!("net/ipv4/conf/{scope}/rp_filter"), "0")?;
            }
            Ok(Editor::open()?)
        })??;
        Ok(Space { namespace, editor })
    }

    /// Runs a closure on a thread inside this namespace.
    fn within<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        self.namespace.run(work)?
    }

    /// Switches offloads of an interface, those that this kernel knows.
    fn offloads(&self, interface: &str, names: &[&str], on: bool) -> Result<()> {
        self.within(|| {
            let known = ethtool::offloads(interface)?;
            let wanted: Vec<(&str, bool)> = names
                .iter()
                .filter(|name| known.contains_key(**name))
                .map(|name| (*name, on))
                .collect();
            Ok(ethtool::switch_offloads(interface, &wanted)?)
        })
    }

    /// Makes a bridge and returns its index.
    fn bridge(&mut self, name: &str) -> Result<u32> {
        self.editor.add_flooding_bridge(name)?;
        let index = self.editor.index(name)?;
        self.editor.set_up(index, true)?;
        Ok(index)
    }

    /// The pair between the emulator and a port of a bridge.
    fn port(&mut self, link: LinkId, place: usize, master: u32) -> Result<()> {
        let ends = ["e", "b"].map(|side| emulator_port(link, place, side));
        let (mut near, mut far) = (mac(link, place, true), mac(link, place, true));
        (near[2], far[2]) = (1, 2);
        self.editor
            .add_wire([end(&ends[0], near, None), end(&ends[1], far, None)])?;
        for end in &ends {
            self.offloads(end, &no_offload(), false)?;
            let index = self.editor.index(end)?;
            self.editor.set_up(index, true)?;
            if *end == ends[1] {
                self.editor.set_bridge(index, master)?;
            }
        }
        Ok(())
    }
}

/// An end of a wire; without a space it stays where the editor is.
fn end<'a>(name: &'a str, mac: [u8; 6], space: Option<&'a Space>) -> WireEnd<'a> {
    WireEnd {
        name,
        link_address: Some(mac),
        namespace: space.map(|space| space.namespace.as_fd()),
    }
}

/// Features that must be off where the emulator sees the packets.
fn no_offload() -> Vec<&'static str> {
    OFFLOADS.iter().copied().chain([CHECKSUM]).collect()
}

fn sysctl(path: &str, value: &str) -> Result<()> {
    fs::write(format!("/proc/sys/{path}"), value).with_context(|| format!("set {path} to {value}"))
}

/// Whether networks can be built here at all: one wire between two namespaces.
///
/// # Errors
/// When the kernel refuses namespaces.
pub fn probe() -> Result<()> {
    let mut plan = Plan::default();
    let (a, b) = (plan.host("a"), plan.router("b"));
    plan.link(a, b, Shape::default());
    Network::build(plan, 0)
        .map(|_| ())
        .context("namespaces are of no use here")
}

/// A network that exists.
#[derive(Debug)]
pub struct Network {
    pub(crate) plan: Plan,
    spaces: Vec<Space>,
    /// Bridges and the emulator's ends of links.
    hub: Space,
    pub(crate) emulator: Option<Process>,
    questions: u32,
    /// Folders with the programs of nodes that do not run this process's own.
    releases: BTreeMap<NodeId, PathBuf>,
    /// Segmentation offloads that were switched; `None`: as the system has them.
    offloads: Option<bool>,
}

/// The name of an end of a link in the hub.
fn hub_end(link: LinkId, place: usize) -> String {
    format!("l{}p{place}", link.0)
}

/// The pair behind a shaped port of a bridge: side `e` is the emulator's, side `b` the bridge's.
fn emulator_port(link: LinkId, place: usize, side: &str) -> String {
    format!("{}{side}", hub_end(link, place))
}

fn mac(link: LinkId, place: usize, hub: bool) -> [u8; 6] {
    let [high, low] = u16::try_from(link.0).unwrap_or(u16::MAX).to_be_bytes();
    [
        2,
        u8::from(hub),
        0,
        high,
        low,
        u8::try_from(place + 1).unwrap_or(u8::MAX),
    ]
}

impl Network {
    /// Builds the planned network; `seed` decides which frames the emulator loses.
    ///
    /// # Errors
    /// When the kernel refuses a step.
    pub fn build(plan: Plan, seed: u64) -> Result<Network> {
        let spaces = plan
            .nodes
            .iter()
            .map(|_| Space::create(plan.ipv6))
            .collect::<Result<Vec<_>>>()?;
        let mut network = Network {
            plan,
            spaces,
            hub: Space::create(false)?,
            emulator: None,
            questions: 0,
            releases: BTreeMap::new(),
            offloads: None,
        };
        let mut shaped = Vec::new();
        for link in (0..network.plan.links.len()).map(LinkId) {
            network
                .cable(link)
                .with_context(|| format!("link {}", link.0))?;
            shaped.extend(network.emulated_parts(link));
        }
        for node in network.plan.nodes() {
            let name = network.plan.name(node).to_owned();
            network
                .configure(node)
                .with_context(|| format!("node {name}"))?;
        }
        if !shaped.is_empty() {
            network.emulate(emulator::Config {
                seed,
                links: shaped,
            })?;
        }
        Ok(network)
    }

    /// The names of the nodes it joins.
    pub fn link_name(&self, link: LinkId) -> String {
        let names = self.plan.links[link.0]
            .nodes
            .iter()
            .map(|node| self.plan.name(*node));
        names.collect::<Vec<_>>().join("-")
    }

    /// The emulator's configuration of a link.
    fn emulated_parts(&self, link: LinkId) -> Vec<emulator::LinkConfig> {
        let planned = &self.plan.links[link.0];
        if !planned.bridged {
            let ends = [hub_end(link, 0), hub_end(link, 1)];
            let part = emulator::LinkConfig {
                name: self.link_name(link),
                ends,
                shape: planned.shapes[0],
            };
            return planned.is_emulated().then_some(part).into_iter().collect();
        }
        let ports = planned.nodes.iter().zip(&planned.shapes).enumerate();
        ports
            .filter(|(_, (_, shape))| !shape.is_wire())
            .map(|(place, (node, shape))| emulator::LinkConfig {
                name: self.port_name(*node),
                ends: [hub_end(link, place), emulator_port(link, place, "e")],
                shape: *shape,
            })
            .collect()
    }

    /// Makes the veth pairs of a link.
    ///
    /// ```text
    /// wire      node eth ---------------------------------------- eth node
    /// emulated  node eth --- l0p0 (emulator) l0p1 --------------- eth node
    /// shared    node eth --- l0p0 [bridge l0] l0p1 -------------- eth node
    ///           ... [bridge l0] l0p2b --- l0p2e (emulator) l0p2 --- eth node
    /// ```
    fn cable(&mut self, link: LinkId) -> Result<()> {
        let Network {
            plan, spaces, hub, ..
        } = self;
        let planned = &plan.links[link.0];
        let emulated = planned.is_emulated();
        let interface = |node: NodeId| plan.interface_on(node, link).context("a node off its link");
        if let ([a, b], false, false) = (&planned.nodes[..], planned.bridged, emulated) {
            let names = [interface(*a)?, interface(*b)?];
            let ends = [
                end(&names[0], mac(link, 0, false), Some(&spaces[a.0])),
                end(&names[1], mac(link, 1, false), Some(&spaces[b.0])),
            ];
            return Ok(hub.editor.add_wire(ends)?);
        }
        let master = if planned.bridged {
            Some(hub.bridge(&format!("l{}", link.0))?)
        } else {
            None
        };
        for (place, node) in planned.nodes.iter().enumerate() {
            let (name, near) = (interface(*node)?, hub_end(link, place));
            let space = &spaces[node.0];
            hub.editor.add_wire([
                end(&near, mac(link, place, true), None),
                end(&name, mac(link, place, false), Some(space)),
            ])?;
            if emulated {
                space.offloads(&name, &no_offload(), false)?;
                hub.offloads(&near, &no_offload(), false)?;
            }
            let index = hub.editor.index(&near)?;
            hub.editor.set_up(index, true)?;
            let Some(master) = master else { continue };
            if planned.shapes[place].is_wire() {
                hub.editor.set_bridge(index, master)?;
            } else {
                hub.port(link, place, master)?;
            }
        }
        Ok(())
    }

    /// Addresses, routes and switches of one node.
    fn configure(&mut self, node: NodeId) -> Result<()> {
        let Network { plan, spaces, .. } = self;
        let space = &mut spaces[node.0];
        let planned = &plan.nodes[node.0];
        let mut indexes = BTreeMap::new();
        for &link in &planned.links {
            let name = plan
                .interface_on(node, link)
                .context("a node off its link")?;
            let index = space.editor.index(&name)?;
            let address = plan.address_on(node, link).context("a node off its link")?;
            space
                .editor
                .add_address(index, address, plan.subnet(link).1)?;
            if plan.ipv6 {
                space.editor.add_address(index, ipv6(address), 64)?;
            }
            space.editor.set_up(index, true)?;
            indexes.insert(link, index);
        }
        for ((to, prefix_len), via, link) in plan.routes(node) {
            let interface = Some(indexes[&link]);
            space
                .editor
                .set_route(to, prefix_len, Some(via), interface)?;
            if plan.ipv6 {
                let (to, via) = (ipv6(to), Some(ipv6(via)));
                space.editor.set_route(to, 64, via, interface)?;
            }
        }
        if planned.router {
            space.within(|| sysctl("net/ipv4/ip_forward", "1"))?;
            if plan.ipv6 {
                space.within(|| sysctl("net/ipv6/conf/all/forwarding", "1"))?;
            }
        } else if let Some(link) = planned.links.first() {
            // A host sends to groups by its first interface.
            let groups = Ipv4Addr::new(224, 0, 0, 0);
            space
                .editor
                .set_route(groups, 4, None, Some(indexes[link]))?;
        }
        Ok(())
    }

    fn emulate(&mut self, config: emulator::Config) -> Result<()> {
        let launch = Launch::carried("emulator").stdin_piped();
        let mut process = self.hub.within(|| launch.start())?;
        process.write_line(&serde_json::to_string(&config)?)?;
        process.wait_event("ready", Duration::from_secs(10))?;
        self.emulator = Some(process);
        Ok(())
    }

    /// Returns the emulator's counters of each link.
    ///
    /// # Errors
    /// When it has died.
    pub fn emulated(&mut self) -> Result<Vec<emulator::LinkReport>> {
        let Some(process) = &mut self.emulator else {
            return Ok(Vec::new());
        };
        self.questions += 1;
        let question = format!("report {}", self.questions);
        process.write_line(&question)?;
        let limit = Duration::from_secs(20);
        let answered =
            process.wait_that("report", limit, |value| text(value, "question") == question)?;
        Ok(serde_json::from_value(answered.value["links"].clone())?)
    }

    /// Processor time of the emulator.
    pub fn emulator_time(&self) -> Duration {
        self.emulator
            .as_ref()
            .map_or(Duration::ZERO, Process::cpu_time)
    }

    /// The plan it was built from.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Starts a program in a node.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self, node: NodeId, launch: Launch) -> Result<Process> {
        if self.emulator.is_some() {
            means::used("link emulator, no segmentation offloads on its links");
        }
        if self.plan.links.iter().any(|link| !link.is_emulated()) {
            means::used(match self.offloads {
                None => "veth pairs with segmentation offloads as the system has them",
                Some(true) => "veth pairs with segmentation offloads on",
                Some(false) => "veth pairs with segmentation offloads off",
            });
        }
        let launch = match self.releases.get(&node) {
            Some(folder) => launch.of_release(folder),
            None => launch,
        };
        self.spaces[node.0].within(|| launch.start())
    }

    /// Has a node run the programs of another release: those in this folder, or those that `lab` there carries.
    pub fn use_release(&mut self, node: NodeId, folder: PathBuf) {
        self.releases.insert(node, folder);
    }

    /// Starts a program beside the bridges and the emulator's ends.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_in_hub(&self, launch: Launch) -> Result<Process> {
        self.hub.within(|| launch.start())
    }

    /// The network namespace of a node.
    pub fn namespace(&self, node: NodeId) -> &Namespace {
        &self.spaces[node.0].namespace
    }

    /// Runs a closure on a thread inside a node.
    ///
    /// # Errors
    /// The closure's.
    pub fn within<T: Send>(
        &self,
        node: NodeId,
        work: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        self.spaces[node.0].within(work)
    }

    /// What changes the interfaces of a node.
    pub fn editor(&mut self, node: NodeId) -> &mut Editor {
        &mut self.spaces[node.0].editor
    }

    /// Index of a node's interface on a link.
    ///
    /// # Errors
    /// When there is none.
    pub fn index(&mut self, node: NodeId, link: LinkId) -> Result<u32> {
        let name = self
            .plan
            .interface_on(node, link)
            .context("the node is not on that link")?;
        Ok(self.spaces[node.0].editor.index(&name)?)
    }

    /// Whether multicast leaves a shared link by the port of this node. On a link of two nodes there
    /// is no such switch.
    ///
    /// # Errors
    /// When the node has no port there.
    pub fn multicast(&mut self, node: NodeId, link: LinkId, on: bool) -> Result<()> {
        let planned = &self.plan.links[link.0];
        let place = planned.nodes.iter().position(|other| *other == node);
        let place = place.context("the node is not on that link")?;
        let port = if planned.shapes[place].is_wire() {
            hub_end(link, place)
        } else {
            emulator_port(link, place, "b")
        };
        let index = self.hub.editor.index(&port)?;
        Ok(self.hub.editor.set_multicast_flood(index, on)?)
    }

    /// Multicast and broadcast frames that all nodes on a shared link have sent, and their bytes with
    /// Ethernet headers.
    ///
    /// # Errors
    /// When the link is not shared.
    pub fn flooded(&mut self, link: LinkId) -> Result<(u64, u64)> {
        const ETHERNET: u64 = 14;
        let index = self.hub.editor.index(&format!("l{}", link.0))?;
        let counters = self.hub.editor.counters(index)?;
        // A bridge counts what reaches it without the header.
        let bytes = counters.rx_bytes + counters.rx_packets * ETHERNET;
        Ok((counters.rx_packets, bytes))
    }

    /// Changes the shape of a link (or of a node's port of a shared link) from now on. It must
    /// have had a shape when it was built; frames in flight keep their times.
    ///
    /// # Errors
    /// When the emulator does not know the link, or has died.
    pub fn reshape(&mut self, node: NodeId, link: LinkId, shape: Shape) -> Result<()> {
        let planned = &self.plan.links[link.0];
        let name = if planned.bridged {
            self.port_name(node)
        } else {
            self.link_name(link)
        };
        let process = self.emulator.as_mut().context("no link has a shape")?;
        self.questions += 1;
        let question = self.questions.to_string();
        let change = emulator::Change {
            question: question.clone(),
            name,
            shape,
        };
        process.write_line(&format!("shape {}", serde_json::to_string(&change)?))?;
        let limit = Duration::from_secs(20);
        let answered =
            process.wait_that("answer", limit, |value| text(value, "question") == question)?;
        ensure!(
            text(&answered.value, "event") == "shaped",
            "the emulator has no link {:?}",
            change.name
        );
        Ok(())
    }

    /// The name of the port of a shared link in the emulator's reports.
    pub(crate) fn port_name(&self, node: NodeId) -> String {
        format!("{} port", self.plan.name(node))
    }

    /// Switches segmentation offloads (and GRO) of all interfaces of wires and bridges.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn offloads(&mut self, on: bool) -> Result<()> {
        self.offloads = Some(on);
        for link in (0..self.plan.links.len()).map(LinkId) {
            for (place, node) in self.plan.links[link.0].nodes.iter().enumerate() {
                let name = self.plan.interface_on(*node, link);
                let name = name.context("a node off its link")?;
                self.spaces[node.0].offloads(&name, OFFLOADS, on)?;
                let near = hub_end(link, place);
                if self.hub.editor.index(&near).is_ok() {
                    self.hub.offloads(&near, OFFLOADS, on)?;
                }
            }
        }
        Ok(())
    }

    /// The kernel's multicast routes in a node, by source and group, those of IPv4 first.
    ///
    /// # Errors
    /// When the dump fails.
    pub fn multicast_routes(&self, node: NodeId) -> Result<Vec<MulticastRoute>> {
        self.within(node, || {
            let watcher = Watcher::open(&WatcherConfig::default())?;
            let mut routes: Vec<_> = watcher.routes().map(MulticastRoute::from).collect();
            if self.plan.ipv6 {
                let watcher = Watcher::<Ipv6Addr>::open_for(&WatcherConfig::default())?;
                routes.extend(watcher.routes().map(MulticastRoute::from));
            }
            Ok(routes)
        })
    }
}

/// One kernel multicast route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MulticastRoute {
    /// Source; 0.0.0.0 or `::` for (*, G).
    pub source: IpAddr,
    /// Group.
    pub group: IpAddr,
    /// Index of the interface that leads to the source.
    pub incoming: u32,
    /// Indexes of the interfaces that packets leave by, sorted.
    pub outgoing: Vec<u32>,
}

impl<A: Family> From<&Route<A>> for MulticastRoute {
    fn from(route: &Route<A>) -> MulticastRoute {
        let mut outgoing = route.outputs.clone();
        outgoing.sort_unstable();
        MulticastRoute {
            source: route.source.into(),
            group: route.group.into(),
            incoming: route.input,
            outgoing,
        }
    }
}

/// The text of a value's field, or an empty string.
pub fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}
