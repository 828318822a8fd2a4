//! A helper process that owns a router's multicast routes. It installs the routes that it reads and
//! holds them until its input ends, so that networks need no routing daemon.

use std::io::{BufRead as _, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use linux_net::Family;
use linux_net::mroute::{Route, Table};
use serde::{Deserialize, Serialize};

use crate::emulator::print_event;
use crate::{Branch, Launch, Network, NodeId, Plan, Process, means};

/// One route, by interface names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// The source.
    pub source: IpAddr,
    /// The group, of the same version of IP.
    pub group: IpAddr,
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
    pub fn of(
        plan: &Plan,
        branch: &Branch,
        source: impl Into<IpAddr>,
        group: impl Into<IpAddr>,
    ) -> Result<Wanted> {
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
            source: source.into(),
            group: group.into(),
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
    groups: &[impl Into<IpAddr> + Copy],
) -> Result<Vec<Process>> {
    let plan = network.plan();
    let mut processes = Vec::new();
    for branch in plan.tree(source, receivers) {
        let wanted = groups.iter().map(|group| {
            let group = (*group).into();
            let source = match group {
                IpAddr::V4(_) => plan.address(source).into(),
                IpAddr::V6(_) => IpAddr::from(plan.ipv6_address(source)),
            };
            Wanted::of(plan, &branch, source, group)
        });
        processes.push(own(network, &branch, &wanted.collect::<Result<Vec<_>>>()?)?);
    }
    Ok(processes)
}

/// The route with the numbers of its interfaces.
fn resolve<A>(route: &Wanted, source: A, group: A) -> Result<Route<A>> {
    let index = |name: &String| -> Result<u32> {
        let found = linux_net::link::find(name).with_context(|| format!("interface {name}"))?;
        Ok(found.index)
    };
    Ok(Route {
        source,
        group,
        input: index(&route.up)?,
        outputs: route.down.iter().map(index).collect::<Result<_>>()?,
    })
}

/// Installs the routes of one version of IP; they last as long as the table.
fn install<A: Family>(routes: &[Route<A>]) -> Result<Option<Table<A>>> {
    if routes.is_empty() {
        return Ok(None);
    }
    let mut table = Table::open_for()?;
    for route in routes {
        for interface in route.outputs.iter().chain([&route.input]) {
            table.add_interface(*interface)?;
        }
        table.set_route(route)?;
    }
    Ok(Some(table))
}

/// The helper process: reads one line of JSON, a list of [`Wanted`]. Fails when another program owns multicast routing here, or an interface is missing.
pub(crate) fn main() -> Result<()> {
    let mut line = String::new();
    let mut input = std::io::stdin().lock();
    input.read_line(&mut line).context("read the routes")?;
    let wanted: Vec<Wanted> = serde_json::from_str(&line).context("the routes")?;
    let mut routes = (Vec::new(), Vec::new());
    for route in &wanted {
        match (route.source, route.group) {
            (IpAddr::V4(source), IpAddr::V4(group)) => {
                routes.0.push(resolve(route, source, group)?);
            }
            (IpAddr::V6(source), IpAddr::V6(group)) => {
                routes.1.push(resolve(route, source, group)?);
            }
            (source, group) => bail!("{source} and {group} are of different versions of IP"),
        }
    }
    let _tables = (
        install::<Ipv4Addr>(&routes.0)?,
        install::<Ipv6Addr>(&routes.1)?,
    );
    print_event(&serde_json::json!({"event": "ready", "routes": wanted.len()}))?;
    // Until the lab closes the pipe, or ends.
    let _ = input.read_to_end(&mut Vec::new());
    Ok(())
}
