//! A native network in a process of its own, over Unix sockets (`docs/manual/external-networks.md`). `bfed-external` has the
//! protocol; here are the sockets.
//!
//! | file in `directory` | part |
//! | --- | --- |
//! | `control.sock` | the control node: `control` |
//! | `data-0.sock`, `data-1.sock`, ... | the data nodes of this process: `data` |
//!
//! One client at a time has a socket; `port` accepts it.

mod control;
mod data;
mod port;

use std::error::Error;
use std::path::PathBuf;

use bfed_external::{Greeting, Part};
use nix::unistd::{Gid, Group};

use super::{ClientLimits, Network, Owner, Role};

/// An external network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExternalConfig {
    /// Folder of the sockets; made when it is missing.
    pub directory: PathBuf,
    /// Permissions of the sockets.
    pub mode: u32,
    /// Group of users that the sockets belong to; that of the process if not set.
    pub group: Option<String>,
    /// Most bytes of real-time data that wait for the client, for each data node.
    pub queue: usize,
    /// Bounds of the mediator.
    pub limits: ClientLimits,
    /// Cost of this gateway for sessions of this network, from their root on; `None`: not told.
    pub cost: Option<u32>,
}

impl ExternalConfig {
    /// Returns the group of the sockets.
    ///
    /// # Errors
    /// There is no such group.
    pub fn gid(&self) -> Result<Option<Gid>, String> {
        let Some(name) = &self.group else {
            return Ok(None);
        };
        match Group::from_name(name) {
            Ok(Some(group)) => Ok(Some(group.gid)),
            Ok(None) => Err(format!(
                "there is no group {name:?}; create it, or leave it out"
            )),
            Err(error) => Err(format!("{name:?}: {error}")),
        }
    }
}

impl Default for ExternalConfig {
    fn default() -> Self {
        ExternalConfig {
            directory: "/run/polycast/external".into(),
            mode: 0o660,
            group: None,
            queue: 4 << 20,
            limits: ClientLimits::default(),
            cost: None,
        }
    }
}

/// Opens the network.
pub(super) fn open(
    config: &ExternalConfig,
    role: Role,
    owner: Owner,
) -> Result<Box<dyn Network>, Box<dyn Error + Send + Sync>> {
    Ok(match role {
        Role::Mediator => {
            let greeting = Greeting::new(owner.gateway, Part::Control);
            Box::new(control::open(config, greeting, owner)?)
        }
        Role::Channels { part, parts } => {
            let greeting = Greeting::new(owner.gateway, Part::Data { part, parts });
            Box::new(data::ExternalNet::open(config, greeting, owner.now)?)
        }
    })
}
