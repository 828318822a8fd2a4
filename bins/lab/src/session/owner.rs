//! Owners of a network's multicast routes: the lab's own helper, or a routing daemon that is
//! installed here. `lms-router` follows their routes.

use std::fmt::Write as _;
use std::fs;

use nix::unistd::{User, chown};

use super::Ip;
use crate::prelude::*;
use netlab::Branch;
use netlab::means;
use netlab::mroute::{self, Wanted};

/// An owner of multicast routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The lab's helper: static routes, no daemon.
    Lab,
    /// smcroute: static routes.
    Smcroute,
    /// FRR's pimd: routes built by PIM from what hosts join.
    Pimd,
}

impl Owner {
    /// The owner that an option names: `lab`, `smcroute` or `pimd`.
    pub(crate) fn of(word: &str) -> Owner {
        match word {
            "smcroute" => Owner::Smcroute,
            "pimd" => Owner::Pimd,
            _ => Owner::Lab,
        }
    }

    /// As in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Owner::Lab => "lab mroute",
            Owner::Smcroute => "smcroute",
            Owner::Pimd => "FRR pimd",
        }
    }

    /// Why it cannot be used here for this version of IP; `None` when it can.
    pub(crate) fn missing(self, ip: Ip) -> Option<String> {
        if (self, ip) == (Owner::Pimd, Ip::V6) {
            return Some("pimd routes IPv4 alone".to_owned());
        }
        let programs: &[&str] = match self {
            Owner::Lab => &[],
            Owner::Smcroute => &["smcrouted"],
            Owner::Pimd => &["zebra", "pimd"],
        };
        let absent = programs.iter().find(|program| installed(program).is_none());
        if let Some(program) = absent {
            return Some(format!("{program} is not installed"));
        }
        let root = nix::unistd::geteuid().is_root() && !in_user_namespace();
        if self == Owner::Pimd && !root {
            return Some("its daemons take root".to_owned());
        }
        None
    }

    /// Starts it in every router of the tree.
    pub(crate) fn start(
        self,
        network: &Network,
        branches: &[Branch],
        (source, group): (IpAddr, SocketAddr),
    ) -> Result<Vec<Process>> {
        let mut processes = Vec::new();
        for branch in branches {
            let wanted = Wanted::of(network.plan(), branch, source, group.ip())?;
            means::used("kernel multicast routing");
            match self {
                Owner::Lab => processes.push(mroute::own(network, branch, &[wanted])?),
                Owner::Smcroute => processes.push(smcroute(network, branch, &wanted)?),
                Owner::Pimd => processes.extend(pimd(network, branch, &wanted)?),
            }
        }
        Ok(processes)
    }
}

/// Whether root here is root of a user namespace only: then not every user number is mapped.
fn in_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().nth(2) != Some("4294967295")
}

fn program(name: &str) -> Result<PathBuf> {
    installed(name).with_context(|| format!("{name} is not installed"))
}

/// A folder of a router's own.
fn folder(network: &Network, branch: &Branch, of: &str) -> Result<PathBuf> {
    let folder = Path::new(SCRATCH)
        .join(of)
        .join(network.plan().name(branch.router));
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn smcroute(network: &Network, branch: &Branch, wanted: &Wanted) -> Result<Process> {
    let folder = folder(network, branch, "smcroute")?;
    let mut config = String::new();
    for name in wanted.down.iter().chain([&wanted.up]) {
        let _ = writeln!(config, "phyint {name} enable");
    }
    let Wanted {
        source,
        group,
        up,
        down,
    } = wanted;
    let _ = writeln!(
        config,
        "mroute from {up} source {source} group {group} to {}",
        down.join(" ")
    );
    let file = folder.join("smcroute.conf");
    fs::write(&file, config)?;
    let name = format!("smcrouted on {}", network.plan().name(branch.router));
    let launch = Launch::external(program("smcrouted")?, &name)
        .args(["-n", "-N", "-l", "debug", "-f"])
        .arg(&file)
        .arg("-P")
        .arg(folder.join("pid"))
        .arg("-u")
        .arg(folder.join("sock"));
    network.start(branch.router, launch)
}

/// zebra and pimd of one router. Its links lose packets, and a lost PIM join is repeated only with the next
/// periodic one, by default after a minute; here it is set to the minimum. Neighbours are kept longer than
/// a busy machine may stall a daemon.
fn pimd(network: &Network, branch: &Branch, wanted: &Wanted) -> Result<Vec<Process>> {
    let folder = folder(network, branch, "frr")?;
    let router = network.plan().name(branch.router).to_owned();
    let mut config = format!("hostname {router}\nlog stdout\nip pim join-prune-interval 5\n");
    for name in wanted.down.iter().chain([&wanted.up]) {
        let _ = writeln!(
            config,
            "interface {name}\n ip pim\n ip pim hello 1 30\n ip igmp"
        );
    }
    fs::write(folder.join("pimd.conf"), config)?;
    fs::write(
        folder.join("zebra.conf"),
        format!("hostname {router}\nlog stdout\n"),
    )?;
    // FRR's daemons become the user that its package has made, and write here as that.
    let user = User::from_name("frr")?.context("the frr package has made no user frr")?;
    for path in [
        folder.clone(),
        folder.join("pimd.conf"),
        folder.join("zebra.conf"),
    ] {
        chown(&path, Some(user.uid), Some(user.gid))?;
    }
    let api = folder.join("zserv.api");
    let start = |daemon: &str| {
        let launch = Launch::external(program(daemon)?, &format!("{daemon} on {router}"))
            .args(["-P", "0", "-z"])
            .arg(&api)
            .arg("-i")
            .arg(folder.join(format!("{daemon}.pid")))
            .arg("--vty_socket")
            .arg(&folder)
            .arg("-f")
            .arg(folder.join(format!("{daemon}.conf")));
        network.start(branch.router, launch)
    };
    let mut zebra = start("zebra")?;
    let end = std::time::Instant::now() + Duration::from_secs(10);
    while !api.exists() {
        if zebra.ended().is_some() || std::time::Instant::now() > end {
            bail!("zebra does not come up\n{}", zebra.tail());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(vec![zebra, start("pimd")?])
}
