//! Counters.

use crate::sdp::SdpError;
use crate::wire::WireError;

/// Why a packet was refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refused {
    /// It is not a packet of SAP that can be read.
    Wire(WireError),
    /// Its description cannot be read.
    Sdp(SdpError),
    /// It is an own packet that the group returned.
    Own,
    /// The host has [`Config::max_per_host`](crate::Config::max_per_host) announcements.
    HostFull,
    /// There are [`Config::max_learned`](crate::Config::max_learned) announcements.
    Full,
}

impl core::fmt::Display for Refused {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Refused::Wire(error) => error.fmt(f),
            Refused::Sdp(error) => error.fmt(f),
            Refused::Own => f.write_str("an own packet"),
            Refused::HostFull => f.write_str("too many announcements of one host"),
            Refused::Full => f.write_str("too many announcements"),
        }
    }
}

impl core::error::Error for Refused {}

/// Counters; they only grow.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Packets sent.
    pub sent: u64,
    /// Packets that were understood.
    pub received: u64,
    /// Malformed packets, and those in forms that are not read: encrypted, compressed, of another version.
    pub malformed: u64,
    /// Own packets that came back.
    pub own: u64,
    /// Announcements for which there was no room.
    pub no_room: u64,
    /// Learned announcements that were not repeated.
    pub expired: u64,
}

impl Stats {
    pub(crate) fn count(&mut self, refused: Refused) {
        match refused {
            Refused::Wire(_) | Refused::Sdp(_) => self.malformed += 1,
            Refused::Own => self.own += 1,
            Refused::HostFull | Refused::Full => self.no_room += 1,
        }
    }
}
