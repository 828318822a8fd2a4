//! What senders and receivers have in common: the group, and the help with repairs.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::Error;
use crate::interface::{InterfaceError, Local};

/// A multicast group and this host's way to it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Group {
    /// Multicast address and UDP port.
    pub address: SocketAddrV4,
    /// Interface by name or by one of its addresses; `None`: the one that the routing table gives.
    pub interface: Option<String>,
    /// This host's address on the interface; `None`: the interface's first.
    pub local_address: Option<Ipv4Addr>,
    /// Time to live of sent packets, 1 to 255: routers they may pass, plus one. Default 16.
    pub ttl: u8,
    /// Key of the group: digests are keyed and control packets authenticated. See "Trust" in [`ltp`].
    pub key: Option<[u8; 32]>,
}

impl Group {
    /// A group with defaults for everything else.
    #[must_use]
    pub fn new(address: SocketAddrV4) -> Self {
        Group {
            address,
            interface: None,
            local_address: None,
            ttl: 16,
            key: None,
        }
    }

    /// Names the interface, by name or by one of its addresses.
    #[must_use]
    pub fn interface(mut self, name: impl Into<String>) -> Self {
        self.interface = Some(name.into());
        self
    }

    /// Refuses a group that cannot work. `open` of both ends does so first.
    ///
    /// # Errors
    /// [`Error::NotMulticast`], [`Error::LinkLocal`], and [`Error::Config`] where the port or the TTL is 0.
    pub fn check(&self) -> Result<(), Error> {
        let ip = *self.address.ip();
        if !ip.is_multicast() {
            return Err(Error::NotMulticast(ip));
        }
        if ip.octets()[..3] == [224, 0, 0] {
            return Err(Error::LinkLocal(ip));
        }
        if self.address.port() == 0 {
            return Err(Error::Config("port 0 of the group is no port"));
        }
        if self.ttl == 0 {
            return Err(Error::Config("the TTL is 0: 1 to 255"));
        }
        Ok(())
    }

    /// Finds this host's end of the way to `relay`, else to the group.
    pub(crate) fn local(&self, relay: Option<SocketAddrV4>) -> Result<Local, InterfaceError> {
        let destination = relay.unwrap_or(self.address);
        Local::find(destination, self.interface.as_deref(), self.local_address)
    }
}

/// Help with repairs, beside the sender.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Recovery {
    /// The sender alone: receivers ask it.
    #[default]
    Source,
    /// LMS routers and the receivers they choose as repliers. A receiver needs CAP_NET_RAW.
    Lms,
    /// A tree of DyRAM relays.
    Dyram {
        /// Relays to attach to, in order of preference: 1 to 4.
        relays: Vec<SocketAddrV4>,
        /// What carries the data.
        carriage: Carriage,
    },
}

/// The carrier of the data where DyRAM relays help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carriage {
    /// The relays, by unicast.
    Relays,
    /// IP multicast; relays serve recovery beside it.
    Multicast,
}

impl Recovery {
    /// Returns the relays, in order of preference; none without DyRAM.
    #[must_use]
    pub fn relays(&self) -> &[SocketAddrV4] {
        match self {
            Recovery::Dyram { relays, .. } => relays,
            Recovery::Source | Recovery::Lms => &[],
        }
    }

    /// Whether IP multicast carries the data while relays help.
    pub(crate) fn is_beside_multicast(&self) -> bool {
        matches!(
            self,
            Recovery::Dyram {
                carriage: Carriage::Multicast,
                ..
            }
        )
    }

    /// The relay that carries the data.
    pub(crate) fn carrier(&self) -> Option<SocketAddrV4> {
        let first = self.relays().first().copied();
        first.filter(|_| !self.is_beside_multicast())
    }
}
