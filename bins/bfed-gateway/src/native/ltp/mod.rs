//! LTP networks: bulk sessions travel inside an island by LTP over IP multicast, reliably, with LMS routers or DyRAM relays
//! where there are some.
//!
//! The mediator is that of IP multicast networks ([`ip`]). Members join a session there and receive it with an
//! LTP receiver (`bfed-join exec URL -- lms-recv ...`); a source of the network sends with an LTP sender (`lms-send`).
//!
//! | part | module |
//! | --- | --- |
//! | from a channel to an LTP sender | `egress` |
//! | from an LTP receiver to a channel | `ingress` |
//! | what threads of LTP sessions share with the data node | `shared` |
//! | channels | `net` |
//!
//! LTP sessions have threads of their own, because a data node must not wait for them, and `ltp-linux` blocks.
//!
//! | bound | effect |
//! | --- | --- |
//! | `sessions` of a data node: channels into the network, and sessions that are received | further ones are refused (`sessions_no_room`) |
//! | `buffer` bytes of a session that receivers may request | a slow receiver holds the source back |
//! | a receiver that is silent or does not advance for `timeout` | it is given up (`receivers_failed`) |
//! | a content without data for `idle-timeout` | it is aborted |
//! | 0.5 MiB of a session that wait for the data node | the LTP sender is held back |
//! | memory of a session that is sent | `buffer` and about 2 MiB; a thread |
//! | memory of a session that is received | up to `buffer` and about 4 MiB, and socket buffers; two threads |

mod egress;
mod ingress;
mod net;
mod shared;

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use cli::transfer::{Assist, read_key};
use ltp_linux::{LMS_PORT, Rate};

use super::{MulticastConfig, Network, Owner, Role, ip};

pub(super) use net::names_source;

/// An LTP network.
#[derive(Clone, PartialEq, Debug)]
pub struct LtpConfig {
    /// The mediator, groups, interface and TTL. There are no announcements.
    pub multicast: MulticastConfig,
    /// File with the key of LTP sessions.
    pub key_file: Option<PathBuf>,
    /// Help with repairs.
    pub assist: Assist,
    /// UDP port of LMS routers.
    pub lms_port: u16,
    /// What sets the rate of senders.
    pub rate: Rate,
    /// Receivers that a content waits for; 0: none, and none holds it back.
    pub receivers: u32,
    /// Longest wait for them.
    pub connect_timeout: Duration,
    /// Time after which a receiver, or a sender, that is silent is given up.
    pub timeout: Duration,
    /// Time after which a content without data is aborted.
    pub idle_timeout: Duration,
    /// Memory of a session for repairs, in bytes.
    pub buffer: u64,
    /// Most LTP sessions of a data node.
    pub sessions: usize,
}

impl LtpConfig {
    /// Creates a configuration with defaults.
    #[must_use]
    pub fn new(multicast: MulticastConfig) -> Self {
        LtpConfig {
            multicast,
            key_file: None,
            assist: Assist::None,
            lms_port: LMS_PORT,
            rate: Rate::Congestion,
            receivers: 1,
            connect_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            buffer: 16 << 20,
            sessions: 16,
        }
    }

    /// Reads the key of LTP sessions.
    ///
    /// # Errors
    /// The file cannot be read, or holds no key.
    pub fn key(&self) -> Result<Option<[u8; 32]>, String> {
        self.key_file.as_deref().map(read_key).transpose()
    }
}

/// Opens the network.
pub(super) fn open(
    config: &LtpConfig,
    role: Role,
    owner: Owner,
) -> Result<Box<dyn Network>, Box<dyn Error + Send + Sync>> {
    Ok(match role {
        Role::Mediator => ip::mediator(&config.multicast, true, owner)?,
        Role::Channels { .. } => Box::new(net::LtpNet::open(config, role, &owner)?),
    })
}
