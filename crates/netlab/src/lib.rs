//! Networks out of Linux namespaces, for experiments and for the tests of programs.
//!
//! A [`Plan`] names hosts, routers and links, and finds addresses and routes. [`Network::build`] makes it
//! of network namespaces, veth pairs and bridges; no other program is needed for that. Programs run in its
//! nodes ([`Network::start`]), code does too ([`Network::within`]), and a [`Capture`] shows the packets of an
//! interface. The namespaces have no names: they end with the value.
//!
//! ```no_run
//! use netlab::{Launch, Network, Plan, Shape};
//!
//! # fn main() -> anyhow::Result<()> {
//! let mut plan = Plan::default();
//! let (source, router, host) = (plan.host("source"), plan.router("router"), plan.host("host"));
//! plan.link(source, router, Shape::default());
//! plan.link(router, host, Shape::default());
//! let network = Network::build(plan, 1)?;
//! let to = network.plan().address(host).to_string();
//! let ping = Launch::external("/usr/bin/ping", "ping").args(["-c", "1", &to]);
//! network.start(source, ping)?.succeed(std::time::Duration::from_secs(5))?;
//! # Ok(())
//! # }
//! ```
//!
//! # Helper processes
//!
//! Links with a [`Shape`] need the link emulator, and [`mroute::own`] needs an owner of multicast routes.
//! Both are processes: the calling program starts itself again, with the name of the helper as its first
//! argument. A program that uses them therefore calls [`helper`] before it parses its arguments.
//!
//! # Parts
//!
//! | part | what |
//! | --- | --- |
//! | [`Plan`], [`Shape`] | nodes, links, addresses, shortest paths; no kernel involved |
//! | [`Network`] | the namespaces, what happens on their links, multicast routes |
//! | [`system`] | links that the kernel shapes: nftables, HTB |
//! | [`Launch`], [`Process`] | programs, their JSON events, logs and resources |
//! | [`Capture`] | IPv4 packets of one interface |
//! | [`host`] | single hosts and wires, for tests |
//! | [`emulator`], [`mroute`] | the helper processes |
//! | [`means`] | the mechanisms that the networks of this process use |
#![forbid(unsafe_code)]

pub mod emulator;
pub mod host;
pub mod means;
pub mod mroute;
pub mod system;

mod capture;
mod network;
mod plan;
mod program;

use std::path::PathBuf;

use anyhow::Result;
use linux_net::netns::Namespace;

pub use capture::Capture;
pub use linux_net::link::{Editor, LinkCounters};
pub use network::{MulticastRoute, Network, probe, text};
pub use plan::{Branch, LinkId, NodeId, Plan, Shape, ipv6};
pub use program::{Event, Launch, OverTime, Process, pin};

/// The folder that logs of programs go to, below `logs`.
pub const SCRATCH: &str = "/run/lab";

/// Whether a helper process has that name.
fn is_helper(name: &str) -> bool {
    matches!(name, "emulator" | "mroute")
}

/// Runs the helper process of that name; `None` when no helper has it.
pub fn helper(name: &str) -> Option<Result<()>> {
    match name {
        "emulator" => Some(emulator::main()),
        "mroute" => Some(mroute::main()),
        _ => None,
    }
}

/// The path of an installed program, if it is installed. Beside `PATH`, the folders of daemons are searched.
pub fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/sbin", "/sbin", "/usr/bin", "/usr/lib/frr"].map(PathBuf::from));
    folders
        .into_iter()
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// Whether a test may make network namespaces. Where the kernel refuses, the test is [skipped](skip).
///
/// # Panics
/// When namespaces are required and refused.
pub fn permitted(test: &str) -> bool {
    match Namespace::new() {
        Ok(_) => true,
        Err(error) => {
            skip(test, format_args!("no namespaces here: {error}"));
            false
        }
    }
}

/// Prints that a test is skipped and why, for lack of something that not every kernel has, such as BPF.
pub fn lacks(test: &str, why: impl std::fmt::Display) {
    eprintln!("SKIPPED {test}: {why}");
}

/// Prints that a test is skipped for lack of an installed program. Where `POLYCAST_REQUIRE_PROGRAMS` lists it, as CI does, the
/// test fails instead; the list has names separated by spaces, or `all`.
///
/// # Panics
/// When the program is required.
pub fn lacks_program(test: &str, program: &str) {
    let required = std::env::var("POLYCAST_REQUIRE_PROGRAMS").unwrap_or_default();
    let is_required = is_listed(&required, program);
    assert!(
        !is_required,
        "{test}: {program} is not installed, and POLYCAST_REQUIRE_PROGRAMS requires it"
    );
    lacks(test, format_args!("{program} is not installed"));
}

fn is_listed(list: &str, program: &str) -> bool {
    let mut names = list.split_whitespace();
    names.any(|name| name == program || name == "all")
}

/// Prints that a test is skipped and why. With `POLYCAST_REQUIRE_NAMESPACES=1`, which CI sets, the test fails instead:
/// there nothing may be skipped for a lack of privileges.
///
/// # Panics
/// When namespaces are required.
pub fn skip(test: &str, why: impl std::fmt::Display) {
    let required = std::env::var("POLYCAST_REQUIRE_NAMESPACES").is_ok_and(|value| value == "1");
    assert!(!required, "{test}: {why}");
    eprintln!("SKIPPED {test}: {why}");
}

#[cfg(test)]
mod tests {
    use super::is_listed;

    #[test]
    fn required_programs_are_listed_by_name() {
        assert!(is_listed("cc  python3", "python3"));
        assert!(is_listed("all", "python3"));
        assert!(!is_listed("cc python", "python3"));
        assert!(!is_listed("", "cc"));
    }
}
