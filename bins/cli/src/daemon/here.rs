//! `check --here`, the dry run: what of a configuration does not fit this host. A file that is checked where
//! it is written need not fit there, so `check` alone does not ask.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

use super::settings::Daemon;
use crate::multicast;

/// What does not fit, by key. Nothing stays open and no port is taken: a running daemon is not disturbed,
/// and does not disturb.
#[derive(Debug, Default)]
pub struct Here {
    problems: Vec<String>,
}

impl Here {
    /// What was found: `KEY: what is wrong`.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Notes a problem of `key`.
    pub fn complain(&mut self, key: &str, problem: impl std::fmt::Display) {
        self.problems.push(format!("{key}: {problem}"));
    }

    /// `[daemon]`: the user exists, the core too, and so does the folder above that of the socket.
    pub fn daemon(&mut self, daemon: &Daemon) {
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

    /// An interface of this name is there.
    pub fn interface(&mut self, key: &str, name: &str) {
        if let Err(problem) = multicast::find(name) {
            self.complain(key, problem);
        }
    }

    /// The address is one of this host's.
    pub fn address(&mut self, key: &str, address: Option<SocketAddr>) {
        let Some(address) = address else { return };
        match UdpSocket::bind((address.ip(), 0)) {
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                self.complain(key, format!("{} is no address of this host", address.ip()));
            }
            Err(error) => self.complain(key, error),
            Ok(_) => {}
        }
    }
}
