//! A helper process that owns a router's multicast routes. It installs the routes that it reads and
//! holds them until its input ends, so that networks need no routing daemon.

use std::io::{BufRead as _, Read as _};
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use linux_net::mroute::{Route, Table};
use serde::{Deserialize, Serialize};

use crate::emulator::print_event;
use crate::{Branch, Launch, Network, NodeId, Plan, Process, means};

/// One route, by interface names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// The source.
    pub source: Ipv4Addr,
    /// The group.
    pub group: Ipv4Addr,
    /// The interface that leads to the source.
    pub up: String,
    /// The interfaces that lead to members.
    pub down: Vec<String>,
}

impl Wanted {
    /// A router's part of a tree.
    ///
    /// # Errors
    /// When the branch is of another plan.
    pub fn of(plan: &Plan, branch: &Branch, source: Ipv4Addr, group: Ipv4Addr) -> Result<Wanted> {
        let name = |link| {
            plan.interface_on(branch.router, link)
                .context("a router off its link")
        };
        let down = branch
            .down
            .iter()
            .map(|link| name(*link))
            .collect::<Result<_>>()?;
        Ok(Wanted {
            source,
            group,
            up: name(branch.up)?,
            down,
        })
    }
}

/// Installs routes in a router and keeps them while the process lives.
///
/// # Errors
/// When the kernel refuses.
pub fn own(network: &Network, branch: &Branch, routes: &[Wanted]) -> Result<Process> {
    means::used("kernel multicast routing");
    let name = network.plan().name(branch.router).to_owned();
    let launch = Launch::carried("mroute")
        .named(format!("mroute on {name}"))
        .stdin_piped();
    let mut process = network.start(branch.router, launch)?;
    process.write_line(&serde_json::to_string(routes)?)?;
    process.wait_event("ready", Duration::from_secs(20))?;
    Ok(process)
}

/// Has every router between a source and its receivers forward these groups while the processes live.
///
/// # Errors
/// When a kernel refuses.
pub fn serve(
    network: &Network,
    source: NodeId,
    receivers: &[NodeId],
    groups: &[Ipv4Addr],
) -> Result<Vec<Process>> {
    let plan = network.plan();
    let mut processes = Vec::new();
    for branch in plan.tree(source, receivers) {
        let wanted = groups
            .iter()
            .map(|group| Wanted::of(plan, &branch, plan.address(source), *group));
        processes.push(own(network, &branch, &wanted.collect::<Result<Vec<_>>>()?)?);
    }
    Ok(processes)
}

/// The helper process: reads one line of JSON, a list of [`Wanted`]. Fails when another program owns multicast routing here, or an interface is missing.
pub(crate) fn main() -> Result<()> {
    let mut line = String::new();
    let mut input = std::io::stdin().lock();
    input.read_line(&mut line).context("read the routes")?;
    let wanted: Vec<Wanted> = serde_json::from_str(&line).context("the routes")?;
    let mut table = Table::open()?;
    let index = |name: &str| -> Result<u32> {
        let found = linux_net::link::find(name).with_context(|| format!("interface {name}"))?;
        Ok(found.index)
    };
    for route in &wanted {
        let input = index(&route.up)?;
        let outputs = route
            .down
            .iter()
            .map(|name| index(name))
            .collect::<Result<Vec<_>>>()?;
        for interface in outputs.iter().chain([&input]) {
            table.add_interface(*interface)?;
        }
        let (source, group) = (route.source, route.group);
        table.set_route(&Route {
            source,
            group,
            input,
            outputs,
        })?;
    }
    print_event(&serde_json::json!({"event": "ready", "routes": wanted.len()}))?;
    // Until the lab closes the pipe, or ends.
    let _ = input.read_to_end(&mut Vec::new());
    Ok(())
}
