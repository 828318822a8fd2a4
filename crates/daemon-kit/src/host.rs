//! `check --host`: whether a configuration fits this host. `check` alone does not ask, because a file may be checked on
//! a host other than the one that it is for.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

use linux_net::link;

use crate::settings::Daemon;

/// The keys that do not fit this host. The checks leave nothing open and take no port: they neither disturb a
/// running daemon nor fail because of it.
#[derive(Debug, Default)]
pub struct HostCheck {
    problems: Vec<String>,
}

impl HostCheck {
    /// Returns the problems found, each as `KEY: PROBLEM`.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Adds a problem of `key`.
    pub fn complain(&mut self, key: &str, problem: impl std::fmt::Display) {
        self.problems.push(format!("{key}: {problem}"));
    }

    /// Checks `[daemon]` and `[metrics]`: the user, the core, the address and the folder above that of the socket exist.
    pub fn daemon(&mut self, daemon: &Daemon) {
        self.address("metrics.listen", daemon.metrics);
        if let Some(name) = &daemon.user {
            match nix::unistd::User::from_name(name) {
                Ok(Some(_)) => {}
                Ok(None) => self.complain("daemon.user", format!("there is no user {name:?}")),
                Err(error) => self.complain("daemon.user", error),
            }
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if let Some(cpu) = daemon.cpu.filter(|cpu| *cpu >= cores) {
            let problem = format!("there is no core {cpu}: there are {cores}, from 0 on");
            self.complain("daemon.cpu", problem);
        }
        // One level is made at the start.
        let above = daemon.socket.parent().and_then(Path::parent);
        if let Some(above) = above.filter(|above| !above.is_dir()) {
            self.complain(
                "daemon.socket",
                format!("{}: no such folder", above.display()),
            );
        }
    }

    /// Checks that an interface of this name exists.
    pub fn interface(&mut self, key: &str, name: &str) {
        if let Err(problem) = link::find_named(name) {
            self.complain(key, problem);
        }
    }

    /// Checks that the address is one of this host.
    pub fn address(&mut self, key: &str, address: Option<SocketAddr>) {
        let Some(mut address) = address else { return };
        address.set_port(0);
        match UdpSocket::bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                self.complain(key, format!("{} is no address of this host", address.ip()));
            }
            Err(error) => self.complain(key, error),
            Ok(_) => {}
        }
    }
}
