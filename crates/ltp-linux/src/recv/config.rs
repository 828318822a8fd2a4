//! Configuration of a receiver.

use std::net::IpAddr;
use std::time::Duration;

use ltp::{SessionId, Start};

use crate::config::{Group, Recovery};

/// What a [`Receiver`](crate::Receiver) is to do. Set the fields that differ from [`ReceiveConfig::new`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ReceiveConfig {
    /// The group.
    pub group: Group,
    /// Address of the sender: source-specific multicast (RFC 4607). Needed for a group in 232.0.0.0/8 or
    /// ff3x::/32 and with relays. `None`: the sender that is heard first.
    pub source: Option<IpAddr>,
    /// A session that is not received: one that the application has already, and whose sender may still serve others.
    /// Default: none.
    pub skip: Option<SessionId>,
    /// Help with repairs. Default: [`Recovery::Source`].
    pub recovery: Recovery,
    /// How this receiver repairs losses of others, with [`Recovery::Lms`] and [`Recovery::Dyram`].
    pub replier: Replier,
    /// Where to start when the sender began earlier. Default: at the first byte.
    pub start: Start,
    /// The transfer fails when the sender, once heard, or every relay is silent for this time. Default: 10 s.
    pub timeout: Duration,
    /// Longest wait for a sender to appear. `None`: no limit, the default.
    pub connect_timeout: Option<Duration>,
    /// Time after completion in which others' losses are repaired. `None`: with LMS or DyRAM until the sender
    /// ends, or 3 s after the last request; else zero.
    pub linger: Option<Duration>,
    /// Memory for data that cannot be written yet, because something before it is missing, in bytes; rounded
    /// down to a power of two, at least 128 KiB and at most 64 GiB. Default: 64 MiB.
    pub buffer_bytes: u64,
}

/// How a receiver repairs losses of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replier {
    /// Whether it does so at all. Default: true.
    pub enabled: bool,
    /// With LMS: the cost that is offered, 1 to 65,534; routers prefer lower values. It rises while this host
    /// loses packets itself. Default: 10.
    pub cost: u16,
    /// With LMS: whether to repair also where routers choose repliers by chance and elect none. Default: false.
    pub repair_unelected: bool,
}

impl Default for Replier {
    fn default() -> Self {
        Replier {
            enabled: true,
            cost: 10,
            repair_unelected: false,
        }
    }
}

impl ReceiveConfig {
    /// Defaults for a group.
    #[must_use]
    pub fn new(group: Group) -> Self {
        ReceiveConfig {
            group,
            source: None,
            skip: None,
            recovery: Recovery::Source,
            replier: Replier::default(),
            start: Start::Beginning,
            timeout: Duration::from_secs(10),
            connect_timeout: None,
            linger: None,
            buffer_bytes: 64 << 20,
        }
    }
}
