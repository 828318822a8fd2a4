//! Configuration of a sender.

use std::time::Duration;

use ltp::Parity;

use crate::config::{Group, Recovery};

/// What sets the rate of a [`Sender`](crate::Sender). Rates count the bits of Ethernet frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Rate {
    /// Congestion control ([`ltp::tfmcc`], RFC 4654): a TCP's fair share on the path of the receiver with the least.
    /// Relays pass on what that receiver answers.
    #[default]
    Congestion,
    /// At most so many bits a second, for private networks: it falls to an eighth at most while receivers miss more than
    /// a quarter of the packets.
    Fixed(u64),
    /// As fast as this host and the slowest receiver can, for networks without other traffic.
    Unlimited,
}

/// What a [`Sender`](crate::Sender) is to do. Set the fields that differ from [`SendConfig::new`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SendConfig {
    /// The group.
    pub group: Group,
    /// Help with repairs. Default: [`Recovery::Source`].
    pub recovery: Recovery,
    /// What sets the rate. Default: [`Rate::default`].
    pub rate: Rate,
    /// With [`Rate::Congestion`]: a receiver that holds the rate below this for five seconds, in bits of Ethernet frames
    /// a second, is given up ([`ReceiverFailure::TooSlow`](crate::ReceiverFailure::TooSlow)). Not with relays, which answer
    /// for all receivers below them. Default: none is.
    pub min_rate_bps: Option<u64>,
    /// Repair with parity, any packet of which serves any receiver that lacks one of the block, and how much of it is
    /// sent before it is requested; `None`: repair with the packets themselves. Receivers of releases before parity take
    /// no session with it. Default: [`Parity::Auto`].
    pub parity: Option<Parity>,
    /// Hosts that must confirm. Data begins when they have joined; they set the pace, and the transfer ends
    /// when all have confirmed. It fails with [`Error::Unconfirmed`](crate::Error::Unconfirmed) when fewer have
    /// in the end, or a receiver that joined lacks something. Receivers at one address count as one host.
    /// `None`: any number.
    pub receivers: Option<u32>,
    /// With `receivers`: longest wait for all of them before the first data; then data begins without those
    /// that are missing. Default: 10 s.
    pub connect_timeout: Duration,
    /// Requests are answered for this time after the last one, once everything was sent. Default: 3 s.
    pub linger: Duration,
    /// With `receivers`: one that is silent, or does not advance, for this time is given up; with relays: the
    /// transfer fails when none answers for this time. Default: 10 s.
    pub timeout: Duration,
    /// Name that receivers store the content under, at most 255 bytes; `None`: that of the source.
    pub name: Option<String>,
    /// Whether a content of known length is read once for its digest before the start: receivers then notice
    /// that they have it already, and a restarted sender resumes. Default: true.
    pub digest_first: bool,
    /// Longest IP packet on the way to any receiver, at least 576 bytes, or 1280 with IPv6; `None`: the interface's, at most 1500.
    pub mtu: Option<u16>,
    /// Whether the kernel may take many datagrams at once (UDP segmentation offload). Where the loss shows
    /// that such batches do not arrive, the sender stops using them. Default: true.
    pub segmentation: bool,
    /// Memory for repairs of a stream, in bytes. Default: 64 MiB.
    pub buffer_bytes: u64,
}

impl SendConfig {
    /// Defaults for a group.
    #[must_use]
    pub fn new(group: Group) -> Self {
        SendConfig {
            group,
            recovery: Recovery::Source,
            rate: Rate::default(),
            min_rate_bps: None,
            parity: Some(Parity::Auto),
            receivers: None,
            connect_timeout: Duration::from_secs(10),
            linger: Duration::from_secs(3),
            timeout: Duration::from_secs(10),
            name: None,
            digest_first: true,
            mtu: None,
            segmentation: true,
            buffer_bytes: 64 << 20,
        }
    }
}
