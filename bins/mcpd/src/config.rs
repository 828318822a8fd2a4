//! The configuration: a TOML file, or the options of `run`. The example `mcpd.toml` documents each key.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use clap::ValueEnum;
use control_stream::tls::Credentials;
use daemon_kit::daemon::Configuration;
use daemon_kit::host::HostCheck;
use daemon_kit::reader::Section;
pub use daemon_kit::settings::Daemon;
use daemon_kit::settings::differing;
use daemon_kit::value::text;
use linux_net::{Capability, privileges};
use mcp_control::wire::hello::Capabilities;
use mcp_control::{PORT, ServerConfig};
use nix::unistd::{AccessFlags, access};

/// Path of the status socket unless the configuration sets another.
pub const DEFAULT_SOCKET: &str = "/run/mcpd/mcpd.sock";

/// A protocol that carries data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Carrier {
    /// UDP
    Udp,
    /// IP, protocol 6
    Ip,
}

/// A configuration that `check` accepts.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `receive`.
    pub receive: Receive,
    /// `[daemon]` and `[metrics]`.
    pub daemon: Daemon,
}

/// `[receive]` and `[security]`, which the options of `run` set too.
#[derive(Clone, Debug, PartialEq)]
pub struct Receive {
    /// `receive.listen`; by default all addresses with a key, loopback without.
    pub listen: Option<SocketAddr>,
    /// `receive.dir`.
    pub dir: PathBuf,
    /// `receive.fsync`.
    pub fsync: bool,
    /// `receive.relay`: feed other hosts of a copy.
    pub relay: bool,
    /// `receive.carrier`; `None`: any that the privileges of the process allow.
    pub carrier: Option<Carrier>,
    /// `security.key-file`.
    pub key_file: Option<PathBuf>,
    /// `security.insecure`.
    pub insecure: bool,
    /// `security.encryption`.
    pub encryption: bool,
}

/// Settings of new connections.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) folder: PathBuf,
    pub(crate) server: ServerConfig,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) fsync: bool,
}

impl Receive {
    /// Returns the address to listen on.
    pub(crate) fn address(&self) -> SocketAddr {
        let address: IpAddr = if self.is_open() {
            Ipv6Addr::UNSPECIFIED.into()
        } else {
            Ipv4Addr::LOCALHOST.into()
        };
        self.listen.unwrap_or(SocketAddr::new(address, PORT))
    }

    /// Whether senders on other hosts are accepted.
    fn is_open(&self) -> bool {
        self.key_file.is_some() || self.insecure
    }

    /// Whether anyone who reaches the address could write to the folder without `insecure`.
    pub(crate) fn is_unprotected(&self) -> bool {
        !self.is_open() && !self.address().ip().is_loopback()
    }

    /// Checks that the folder exists and can be written to.
    ///
    /// # Errors
    /// The reason why it does not or cannot.
    pub(crate) fn check_folder(&self) -> Result<(), String> {
        let dir = self.dir.display();
        match self.dir.metadata() {
            Ok(metadata) if metadata.is_dir() => {
                access(&self.dir, AccessFlags::W_OK | AccessFlags::X_OK)
                    .map_err(|error| format!("cannot write to {dir}: {error}"))
            }
            Ok(_) => Err(format!("{dir} is not a folder")),
            Err(error) => Err(format!("{dir}: {error}")),
        }
    }

    /// Reads the key file, and determines what can carry data.
    ///
    /// # Errors
    /// The key file cannot be used, or a privilege is missing.
    pub(crate) fn settings(&self) -> Result<Settings, String> {
        let credentials = self
            .key_file
            .as_deref()
            .map(Credentials::read)
            .transpose()?;
        let carriers = match (self.carrier, privileges::has(Capability::NetRaw)) {
            (Some(Carrier::Udp), _) | (None, false) => Capabilities::UDP,
            (Some(Carrier::Ip), true) => Capabilities::IP,
            (None, true) => Capabilities::UDP.with(Capabilities::IP),
            (Some(Carrier::Ip), false) => {
                return Err(
                    "carrier ip needs CAP_NET_RAW: run as root, or grant it with \
                     `setcap cap_net_raw+ep` on this program, or use carrier udp"
                        .to_owned(),
                );
            }
        };
        let capabilities = if credentials.is_some() && self.encryption {
            carriers.with(Capabilities::AEAD)
        } else {
            carriers
        };
        let capabilities = capabilities
            .with(Capabilities::FED)
            .with(Capabilities::ISLANDS);
        let capabilities = if self.relay {
            capabilities.with(Capabilities::FEEDS)
        } else {
            capabilities
        };
        Ok(Settings {
            folder: self.dir.clone(),
            server: ServerConfig::new(capabilities),
            credentials,
            fsync: self.fsync,
        })
    }
}

impl Configuration for Config {
    fn read(root: &Section<'_, '_>) -> Config {
        Config {
            receive: receive(root.section("receive"), root.section("security")),
            daemon: Daemon::read(root, DEFAULT_SOCKET),
        }
    }

    fn check_host(&self, host: &mut HostCheck) {
        host.address("receive.listen", Some(self.receive.address()));
        if let Err(problem) = self.receive.check_folder() {
            host.complain("receive.dir", problem);
        }
        if let Some(file) = &self.receive.key_file
            && let Err(problem) = Credentials::read(file)
        {
            host.complain("security.key-file", problem);
        }
    }
    fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    fn needs_restart(&self, next: &Config) -> Vec<&'static str> {
        let (old, new) = (self.receive.address(), next.receive.address());
        differing([("receive.listen", old != new)])
            .chain(self.daemon.differences(&next.daemon))
            .collect()
    }

    fn reloaded(&self, next: Config) -> Config {
        Config {
            receive: Receive {
                listen: Some(self.receive.address()),
                ..next.receive
            },
            ..self.clone()
        }
    }
}

fn receive(section: Section<'_, '_>, security: Section<'_, '_>) -> Receive {
    let listen_wants = "an address and a port, such as \"0.0.0.0:4139\"";
    let listen = section.get("listen", listen_wants, |value| listen(&text(value)?));
    let dir = section.require("dir", "a folder, such as \"/srv/incoming\"", text);
    let fsync = section.flag("fsync", false);
    let relay = section.flag("relay", true);
    let carriers = [
        ("any", None),
        ("udp", Some(Carrier::Udp)),
        ("ip", Some(Carrier::Ip)),
    ];
    let carrier = section.choice("carrier", &carriers, None);
    let key_file = security.get(
        "key-file",
        "a path, such as \"/etc/polycast/mcp.key\"",
        text,
    );
    let insecure = security.flag("insecure", false);
    let encryption = security.flag("encryption", true);
    let receive = Receive {
        listen: listen.map(|at| at.value),
        dir: dir.map_or_else(PathBuf::new, |at| at.value.into()),
        fsync,
        relay,
        carrier: carrier.flatten(),
        key_file: key_file.map(|at| at.value.into()),
        insecure,
        encryption,
    };
    if receive.is_unprotected() {
        section.complain(
            section.offset_of("listen"),
            "listen",
            "without a key anyone who reaches this address can write to the folder",
            "set security.key-file, or security.insecure = true",
        );
    }
    section.finish();
    security.finish();
    receive
}

/// Parses an address with or without a port.
pub(crate) fn listen(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(SocketAddr::new(address, PORT)),
        Err(_) => Err("write an address and a port, such as 10.0.0.1:4139 or [::]:4139".into()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn problem(text: &str) -> String {
        let problems = Config::parse(text).expect_err(text);
        problems.first().expect("a problem").to_string()
    }

    #[test]
    fn the_example_is_accepted() {
        let config = Config::parse(include_str!("../mcpd.toml")).expect("the example");
        assert!(!config.receive.is_unprotected());
    }

    #[test]
    fn the_folder_must_be_named_and_be_protected() {
        assert!(problem("").contains("receive.dir"));
        let text = "[receive]\ndir = \"/srv\"\nlisten = \"0.0.0.0:4139\"\n";
        assert!(problem(text).contains("without a key"));
        for more in ["insecure = true", "key-file = \"/k\""] {
            Config::parse(&format!("{text}[security]\n{more}\n")).expect(more);
        }
        let loopback = Config::parse("[receive]\ndir = \"/srv\"\n").expect("loopback");
        assert!(loopback.receive.address().ip().is_loopback());
    }

    #[test]
    fn a_reload_changes_all_but_addresses_and_the_daemon() {
        let old = Config::parse("[receive]\ndir = \"/a\"\n").expect("old");
        let text = "[receive]\ndir = \"/b\"\nfsync = true\nlisten = \"127.0.0.1:1\"\n[daemon]\nuser = \"x\"\n";
        let next = Config::parse(text).expect("next");
        assert_eq!(old.needs_restart(&next), ["receive.listen", "daemon.user"]);
        let now = old.reloaded(next);
        assert_eq!(now.receive.dir, Path::new("/b"));
        assert_eq!(now.receive.address(), old.receive.address());
        assert!(now.receive.fsync && now.daemon.user.is_none());
    }
}
