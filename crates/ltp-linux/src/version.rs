//! Peers that speak another version of a protocol.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ltp::Error;

/// A peer that speaks a version of a protocol which this release does not serve: its packets are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OtherVersion {
    /// The peer, as its packets say: nothing proves it.
    pub peer: IpAddr,
    /// The protocol: LTP, DyRAM or LMS-HIER.
    pub protocol: &'static str,
    /// The version that the peer speaks.
    pub version: u8,
    /// The version that this host speaks.
    pub own_version: u8,
}

impl fmt::Display for OtherVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OtherVersion {
            peer,
            protocol,
            version,
            own_version,
        } = self;
        write!(
            f,
            "{peer} speaks version {version} of {protocol}, this host version {own_version}: install the same \
             release of polycast on both"
        )
    }
}

impl OtherVersion {
    pub(crate) fn new(
        peer: impl Into<IpAddr>,
        protocol: &'static str,
        version: u8,
        own_version: u8,
    ) -> Self {
        OtherVersion {
            peer: peer.into(),
            protocol,
            version,
            own_version,
        }
    }

    /// Returns the version of a datagram that was refused with this error, where that is the reason.
    pub(crate) fn of(error: Error, source: SocketAddr, datagram: &[u8]) -> Option<Self> {
        use dyram::wire as relay;
        let peer = source.ip();
        Some(match error {
            Error::Version => {
                let version = ltp::relayed::version(datagram)?;
                OtherVersion::new(peer, "LTP", version, ltp::wire::VERSION)
            }
            Error::RelayVersion => {
                let version = relay::version(datagram)?;
                OtherVersion::new(peer, "DyRAM", version, relay::VERSION)
            }
            _ => return None,
        })
    }
}

/// The first peer of another version; later ones are only counted.
#[derive(Debug, Default)]
pub(crate) struct FirstOther {
    first: Option<OtherVersion>,
    is_reported: bool,
}

impl FirstOther {
    /// Notes a peer.
    pub(crate) fn note(&mut self, other: Option<OtherVersion>) {
        self.first = self.first.or(other);
    }

    /// Returns the peer.
    pub(crate) fn get(&self) -> Option<OtherVersion> {
        self.first
    }

    /// Returns the peer once, for an event.
    pub(crate) fn take_new(&mut self) -> Option<OtherVersion> {
        let is_new = !std::mem::replace(&mut self.is_reported, self.first.is_some());
        self.first.filter(|_| is_new)
    }
}
