//! `[daemon]`: the process itself.

use std::path::{Path, PathBuf};

use crate::reader::Section;
use crate::value::{MODE, mode, socket_path, text};

/// What a configuration says of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemon {
    /// `socket`: the status socket.
    pub socket: PathBuf,
    /// `socket-mode`: its permissions.
    pub socket_mode: u32,
    /// `user`: whom the process becomes.
    pub user: Option<String>,
    /// `cpu`: the core of the data path.
    pub cpu: Option<usize>,
}

impl Daemon {
    /// Reads the section; what is wrong is noted there.
    #[must_use]
    pub fn read(section: Section<'_, '_>, default_socket: &str) -> Self {
        let wants = format!("an absolute path, such as {default_socket:?}");
        let socket = section.get("socket", &wants, socket_path);
        let socket_mode = section.get("socket-mode", MODE, mode);
        let user = section.get("user", "the name of a user, such as \"polycast\"", text);
        let cpu = match section.number("cpu", 0..=4095, u32::MAX) {
            u32::MAX => None,
            cpu => usize::try_from(cpu).ok(),
        };
        section.finish();
        Daemon {
            socket: socket.map_or_else(|| Path::new(default_socket).into(), |at| at.value),
            socket_mode: socket_mode.map_or(0o660, |at| at.value),
            user: user.map(|at| at.value),
            cpu,
        }
    }

    /// The keys that differ: all of them wait for a restart.
    pub fn differences(&self, next: &Daemon) -> impl Iterator<Item = &'static str> + use<> {
        [
            ("daemon.socket", self.socket != next.socket),
            ("daemon.socket-mode", self.socket_mode != next.socket_mode),
            ("daemon.user", self.user != next.user),
            ("daemon.cpu", self.cpu != next.cpu),
        ]
        .into_iter()
        .filter_map(|(key, differs)| differs.then_some(key))
    }
}
