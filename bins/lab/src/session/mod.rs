//! One multicast session on a network: the owners of the routes, `lms-router` in every router, and the
//! endpoints, all of them the real programs.

mod kind;
mod owner;

use std::collections::BTreeMap;
use std::fs;

use linux_net::udp::GroupSocket;

use crate::prelude::*;
use netlab::{Branch, MulticastRoute};

pub(crate) use kind::{Carrier, Ip};
pub(crate) use owner::Owner;

/// A source, its receivers, and the routers between them.
#[derive(Debug)]
pub(crate) struct Session {
    /// The network it runs on.
    pub(crate) network: Network,
    pub(crate) source: NodeId,
    pub(crate) receivers: Vec<NodeId>,
    pub(crate) group: SocketAddr,
    /// What each router forwards.
    pub(crate) branches: Vec<Branch>,
    /// How LMS's messages travel.
    pub(crate) carrier: Carrier,
    /// `--assist` of the hosts that LMS routers do not help.
    pub(crate) assist: BTreeMap<NodeId, String>,
    /// More arguments of every `lms-recv`.
    pub(crate) receive_more: Vec<String>,
    owners: Vec<Process>,
    /// Members that keep routes alive.
    members: Vec<GroupSocket>,
    /// `lms-router`, one a router.
    pub(crate) routers: Vec<Daemon>,
}

/// How routers keep the replier hierarchy.
#[derive(Clone, Debug)]
pub(crate) struct Replies {
    /// Lines of the `[replier]` section and of the sections after it.
    pub(crate) section: String,
}

impl Default for Replies {
    /// The hierarchy, refreshed quickly enough for experiments of a few seconds.
    fn default() -> Replies {
        Replies::of("hierarchy")
    }
}

impl Replies {
    /// This host alone, behind the router's second interface.
    pub(crate) fn set(
        source: impl Into<IpAddr>,
        group: impl Into<IpAddr>,
        replier: impl Into<IpAddr>,
    ) -> Replies {
        let (source, group, replier) = (source.into(), group.into(), replier.into());
        let section = format!(
            "policy = \"static\"\n[[replier.static]]\nsource = \"{source}\"\ngroup = \"{group}\"\n\
             interface = \"eth1\"\nneighbour = \"{replier}\"\n"
        );
        Replies { section }
    }

    /// By one of `lms-router`'s policies that need no more configuration.
    pub(crate) fn of(policy: &str) -> Replies {
        Replies {
            section: format!(
                "policy = \"{policy}\"
refresh = \"500ms\"
"
            ),
        }
    }
}

/// Starts `lms-router` in a node, beside an owner of the multicast routes.
pub(crate) fn start_router(
    network: &Network,
    node: NodeId,
    replies: &Replies,
    capture: &str,
    cores: &[usize],
) -> Result<Daemon> {
    let sections = format!(
        "[source]\nkind = \"kernel\"\n\
         [limits]\nrequests-per-second = 10000000\ndmcasts-per-second = 10000000\n\
         group-requests-per-second = 10000000\ngroup-dmcasts-per-second = 10000000\n\
         [capture]\n{capture}\n[replier]\n{}",
        replies.section
    );
    let name = network.plan().name(node).to_owned();
    Daemon::start_as(network, ("lms-router", "run"), node, name, &sections, cores)
}

impl Session {
    /// Prepares a session; nothing is started yet.
    pub(crate) fn new(
        network: Network,
        source: NodeId,
        receivers: Vec<NodeId>,
        group: impl Into<SocketAddr>,
    ) -> Session {
        let branches = network.plan().tree(source, &receivers);
        let (owners, routers) = (Vec::new(), Vec::new());
        Session {
            network,
            source,
            receivers,
            group: group.into(),
            branches,
            carrier: Carrier::default(),
            assist: BTreeMap::new(),
            receive_more: Vec::new(),
            members: Vec::new(),
            owners,
            routers,
        }
    }

    /// Starts the owners of the multicast routes.
    pub(crate) fn own(&mut self, owner: Owner) -> Result<()> {
        let source = self.source_address();
        self.owners = owner.start(&self.network, &self.branches, (source, self.group))?;
        Ok(())
    }

    /// The address of the source, of the group's version of IP.
    pub(crate) fn source_address(&self) -> IpAddr {
        let plan = self.network.plan();
        match self.group {
            SocketAddr::V4(_) => plan.address(self.source).into(),
            SocketAddr::V6(_) => plan.ipv6_address(self.source).into(),
        }
    }

    /// Waits until every router of the tree forwards the group as planned.
    pub(crate) fn wait_for_routes(&mut self, limit: Duration) -> Result<()> {
        let end = Instant::now() + limit;
        loop {
            let missing = self.missing_route()?;
            let Some(missing) = missing else {
                return Ok(());
            };
            for owner in &mut self.owners {
                if owner.ended().is_some() {
                    bail!("{} has ended\n{}", owner.name(), owner.tail());
                }
            }
            if Instant::now() > end {
                let tails: String = self.owners.iter().map(Process::tail).collect();
                bail!("no multicast routes within {limit:?}: {missing}\n{tails}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn missing_route(&mut self) -> Result<Option<String>> {
        for branch in self.branches.clone() {
            let name = self.network.plan().name(branch.router).to_owned();
            let mut wanted = Vec::new();
            for link in &branch.down {
                wanted.push(self.network.index(branch.router, *link)?);
            }
            wanted.sort_unstable();
            match self.route_in(branch.router)? {
                None => return Ok(Some(format!("{name} has no route"))),
                Some(route) if !wanted.iter().all(|index| route.outgoing.contains(index)) => {
                    return Ok(Some(format!(
                        "{name} forwards to interfaces {:?}, {wanted:?} are wanted",
                        route.outgoing
                    )));
                }
                Some(_) => {}
            }
        }
        Ok(None)
    }

    /// The kernel's route of this session in a router.
    fn route_in(&self, router: NodeId) -> Result<Option<MulticastRoute>> {
        let (source, group) = (self.source_address(), self.group.ip());
        let mut routes = self.network.multicast_routes(router)?.into_iter();
        Ok(routes.find(|route| route.source == source && route.group == group))
    }

    /// The receivers whose router does not forward the group to them.
    pub(crate) fn unserved(&mut self) -> Result<Vec<NodeId>> {
        let hops = self.network.plan().toward(self.source);
        let mut unserved = Vec::new();
        for receiver in self.receivers.clone() {
            let Some((link, router)) = hops[receiver.0] else {
                continue;
            };
            let index = self.network.index(router, link)?;
            let route = self.route_in(router)?;
            if !route.is_some_and(|route| route.outgoing.contains(&index)) {
                unserved.push(receiver);
            }
        }
        Ok(unserved)
    }

    /// The kernel's multicast routes of every router on the tree.
    pub(crate) fn routes(&self) -> Result<Vec<(String, Vec<MulticastRoute>)>> {
        let routers: Vec<NodeId> = self.branches.iter().map(|branch| branch.router).collect();
        let mut all = Vec::new();
        for router in routers {
            let name = self.network.plan().name(router).to_owned();
            all.push((name, self.network.multicast_routes(router)?));
        }
        Ok(all)
    }

    /// Starts `lms-router` in every router of the tree and waits until each answers.
    pub(crate) fn start_routers(&mut self, replies: &Replies) -> Result<()> {
        for branch in &self.branches {
            let router = start_router(&self.network, branch.router, replies, "", &[])?;
            self.routers.push(router);
        }
        for router in &mut self.routers {
            router.wait(Duration::from_secs(40))?;
        }
        Ok(())
    }

    /// Waits until every router of the tree has a replier for the group.
    pub(crate) fn wait_for_repliers(&mut self, limit: Duration) -> Result<()> {
        let end = Instant::now() + limit;
        let group = self.group.ip().to_string();
        for router in &self.routers {
            while router.group(&group)?["replier"].is_null() {
                if Instant::now() > end {
                    bail!(
                        "no repliers within {limit:?}:\n{}",
                        self.describe_routers(&group)
                    );
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }

    /// How many receivers are members of the group from the source alone, as their kernels see it.
    pub(crate) fn source_specific_members(&self) -> usize {
        let file = match self.group {
            SocketAddr::V4(_) => "/proc/thread-self/net/mcfilter",
            SocketAddr::V6(_) => "/proc/thread-self/net/mcfilter6",
        };
        let wanted = [self.group.ip(), self.source_address()].map(|address| match address {
            IpAddr::V4(address) => format!("0x{:08x}", address.to_bits()),
            IpAddr::V6(address) => format!("{:032x}", address.to_bits()),
        });
        let specific = |node: &NodeId| {
            let read = || Ok(fs::read_to_string(file)?);
            let filters = self.network.within(*node, read).unwrap_or_default();
            let lines: Vec<Vec<&str>> = filters
                .lines()
                .map(|line| line.split_whitespace().collect())
                .collect();
            // Interface number and name, group, source, members that include it, that exclude it.
            let of_group = |line: &&Vec<&str>| line.get(2) == Some(&wanted[0].as_str());
            let fine = |line: &Vec<&str>| {
                line.get(3) == Some(&wanted[1].as_str()) && line.get(5) == Some(&"0")
            };
            lines.iter().any(|line| of_group(&line)) && lines.iter().filter(of_group).all(fine)
        };
        self.receivers.iter().filter(|node| specific(node)).count()
    }

    /// Keeps memberships while the session lives.
    pub(crate) fn keep(&mut self, members: Vec<GroupSocket>) {
        self.members.extend(members);
    }

    /// Records the replier of each router, once there is one: (router, replier and interface). They withdraw at
    /// the end, when it is too late to query them.
    pub(crate) fn remember_repliers(&self, known: &mut Vec<(String, String)>) {
        let group = self.group.ip().to_string();
        for router in &self.routers {
            if known.iter().any(|(name, _)| *name == router.name) {
                continue;
            }
            let Ok(entry) = router.group(&group) else {
                continue;
            };
            let replier = &entry["replier"];
            if let (Some(interface), who) =
                (replier["interface"].as_str(), replier["neighbour"].as_str())
            {
                let who = who.unwrap_or("all");
                known.push((router.name.clone(), format!("{who} on {interface}")));
            }
        }
    }

    /// The routers' state of a group, for a message.
    fn describe_routers(&self, group: &str) -> String {
        let describe = |router: &Daemon| -> Result<String> {
            let counters = router.counters()?;
            Ok(format!(
                "    {}: {}; {}; dropped {}\n",
                router.name,
                router.group(group)?,
                counters["hierarchy"],
                counters["drops"]
            ))
        };
        self.routers
            .iter()
            .map(|router| describe(router).unwrap_or_default())
            .collect()
    }

    /// The folder that a receiver writes to.
    pub(crate) fn folder(&self, receiver: NodeId) -> PathBuf {
        Path::new(SCRATCH)
            .join("got")
            .join(self.network.plan().name(receiver))
    }

    /// Arguments of both ends of a transfer.
    fn endpoint(&self, program: &str, node: NodeId) -> Launch {
        let lms = self.carrier.assist();
        let assist = self.assist.get(&node).map_or(lms, String::as_str);
        Launch::carried(program)
            .args(["--json", "--quiet", "--assist", assist])
            .args(["--interface", "eth0", "--group"])
            .arg(self.group.to_string())
    }

    /// Starts `lms-recv` in a receiver.
    pub(crate) fn receive(&self, receiver: NodeId, more: &[&str]) -> Result<Process> {
        let folder = self.folder(receiver);
        // A receiver that has the file already reports that instead of receiving it.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        let name = self.network.plan().name(receiver);
        let launch = self
            .endpoint("lms-recv", receiver)
            .named(format!("lms-recv on {name}"))
            .arg("--output")
            .arg(&folder)
            .args(&self.receive_more)
            .args(more);
        self.network.start(receiver, launch)
    }

    /// Starts `lms-send` in the source. Without `--parity` it repairs with packets, as in the papers: the experiments
    /// compare how many were lost, and who repaired them.
    pub(crate) fn send(&self, file: &Path, more: &[&str]) -> Result<Process> {
        let mut launch = self.endpoint("lms-send", self.source);
        if !more.contains(&"--parity") {
            launch = launch.args(["--parity", "off"]);
        }
        let launch = launch.args(more).arg(file);
        self.network.start(self.source, launch)
    }
}
