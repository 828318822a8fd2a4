//! `[daemon]` and `[metrics]`: the settings of the process itself.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::reader::Section;
use crate::value::{LISTEN, MODE, listen, mode, socket_path, text};

/// The settings that every daemon has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemon {
    /// `socket`: the status socket.
    pub socket: PathBuf,
    /// `socket-mode`: its permissions.
    pub socket_mode: u32,
    /// `user`: the user that the process changes to.
    pub user: Option<String>,
    /// `cpu`: the core of the data path.
    pub cpu: Option<usize>,
    /// `metrics.listen`: the address on which metrics are served.
    pub metrics: Option<SocketAddr>,
}

impl Daemon {
    /// Reads the sections below `root`.
    #[must_use]
    pub fn read(root: &Section<'_, '_>, default_socket: &str) -> Self {
        let section = root.section("daemon");
        let wants = format!("an absolute path, such as {default_socket:?}");
        let socket = section.get("socket", &wants, socket_path);
        let socket_mode = section.get("socket-mode", MODE, mode);
        let user = section.get("user", "the name of a user, such as \"polycast\"", text);
        let cpu = match section.number("cpu", 0..=4095, u32::MAX) {
            u32::MAX => None,
            cpu => usize::try_from(cpu).ok(),
        };
        section.finish();
        let section = root.section("metrics");
        let metrics = section.get("listen", LISTEN, listen);
        section.finish();
        Daemon {
            socket: socket.map_or_else(|| Path::new(default_socket).into(), |at| at.value),
            socket_mode: socket_mode.map_or(0o660, |at| at.value),
            user: user.map(|at| at.value),
            cpu,
            metrics: metrics.map(|at| at.value),
        }
    }

    /// Returns the keys that differ. All of them require a restart.
    pub fn differences(&self, next: &Daemon) -> impl Iterator<Item = &'static str> + use<> {
        differing([
            ("daemon.socket", self.socket != next.socket),
            ("daemon.socket-mode", self.socket_mode != next.socket_mode),
            ("daemon.user", self.user != next.user),
            ("daemon.cpu", self.cpu != next.cpu),
            ("metrics.listen", self.metrics != next.metrics),
        ])
    }
}

/// Returns the keys that differ.
pub fn differing<const N: usize>(
    keys: [(&'static str, bool); N],
) -> impl Iterator<Item = &'static str> {
    let keys = keys.into_iter();
    keys.filter_map(|(key, differs)| differs.then_some(key))
}
