//! What senders and receivers have in common: the group, and the help with repairs.

use std::net::{IpAddr, SocketAddr};

use crate::Error;
use crate::interface::{InterfaceError, Local};

/// A multicast group and this host's way to it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Group {
    /// Multicast address and UDP port. The zone of an IPv6 address names the interface, by index.
    pub address: SocketAddr,
    /// Interface by name or by one of its addresses; `None`: the zone of `address`, else the one that the routing table
    /// gives.
    pub interface: Option<String>,
    /// This host's address on the interface; `None`: the interface's first, for IPv6 the one that the kernel
    /// prefers (RFC 6724).
    pub local_address: Option<IpAddr>,
    /// Time to live, or hop limit, of sent packets, 1 to 255: routers they may pass, plus one. Default 16.
    pub ttl: u8,
    /// Key of the group: digests are keyed and control packets authenticated. See "Trust" in [`ltp`].
    pub key: Option<[u8; 32]>,
}

impl Group {
    /// A group with defaults for everything else.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
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
        let ip = self.address.ip();
        if !ip.is_multicast() {
            return Err(Error::NotMulticast(ip));
        }
        match ip {
            IpAddr::V4(group) if group.octets()[..3] == [224, 0, 0] => {
                return Err(Error::LinkLocal(ip));
            }
            // Well-known groups of a host or a link: routers, neighbour discovery, name services.
            IpAddr::V6(group) if matches!(group.segments()[0], 0xff01 | 0xff02) => {
                return Err(Error::LinkLocal(ip));
            }
            // RFC 4291 §2.7: no packet is sent to it.
            IpAddr::V6(group) if group.segments()[0] & 0xf == 0 => {
                return Err(Error::Config(
                    "the group's scope is 0, which is reserved: ff15::/16 is for a site, ff1e::/16 for any network",
                ));
            }
            _ => {}
        }
        if self.address.port() == 0 {
            return Err(Error::Config("port 0 of the group is no port"));
        }
        if self.ttl == 0 {
            return Err(Error::Config("the TTL is 0: 1 to 255"));
        }
        if self.local_address.is_some_and(|own| !self.is_of(own)) {
            return Err(Error::Config(
                "this host's address and the group are of different versions of IP: name an address of the group's",
            ));
        }
        Ok(())
    }

    /// Whether receivers must name the sender: 232.0.0.0/8 and ff3x::/32 (RFC 4607 §1).
    #[must_use]
    pub fn is_source_specific(&self) -> bool {
        match self.address.ip() {
            IpAddr::V4(group) => group.octets()[0] == 232,
            IpAddr::V6(group) => {
                let [first, second, ..] = group.segments();
                first & 0xfff0 == 0xff30 && second == 0
            }
        }
    }

    /// Whether an address is of the group's version of IP.
    pub(crate) fn is_of(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
    }

    /// Refuses help that this group cannot have.
    pub(crate) fn check_recovery(&self, recovery: &Recovery) -> Result<(), Error> {
        if recovery
            .relays()
            .iter()
            .any(|relay| !self.is_of(relay.ip()))
        {
            return Err(Error::Config(
                "a relay and the group are of different versions of IP: name relays by addresses of the group's",
            ));
        }
        Ok(())
    }

    /// Finds this host's end of the way to `relay`, else to the group. For IPv6 every interface has a route to all
    /// groups, so that a receiver's leads to `source`, where that is known.
    pub(crate) fn local(
        &self,
        relay: Option<SocketAddr>,
        source: Option<IpAddr>,
    ) -> Result<Local, InterfaceError> {
        let destination = relay.unwrap_or(self.address);
        let source = source.filter(|source| relay.is_none() && source.is_ipv6());
        let routed_by = source.unwrap_or(destination.ip());
        let interface = self.interface.as_deref();
        Local::find(destination, routed_by, interface, self.local_address)
    }
}

/// UDP port of LMS routers, unless configured otherwise.
pub const LMS_PORT: u16 = lms_proto::wire::udp::PORT;

/// How requests and repairs travel with [`Recovery::Lms`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LmsCarrier {
    /// With CAP_NET_RAW by the option of IP headers, and by datagrams where those are not answered; else by datagrams.
    #[default]
    Auto,
    /// By datagrams alone: no privileges are used.
    Udp,
}

/// Help with repairs, beside the sender.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Recovery {
    /// The sender alone: receivers ask it.
    #[default]
    Source,
    /// LMS routers and the receivers they choose as repliers.
    Lms {
        /// How requests and repairs travel.
        carrier: LmsCarrier,
        /// Port of those that travel by datagram: the routers'. [`LMS_PORT`] unless they are configured otherwise.
        port: u16,
    },
    /// A tree of DyRAM relays.
    Dyram {
        /// Relays to attach to, in order of preference: 1 to 4.
        relays: Vec<SocketAddr>,
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
    pub fn relays(&self) -> &[SocketAddr] {
        match self {
            Recovery::Dyram { relays, .. } => relays,
            Recovery::Source | Recovery::Lms { .. } => &[],
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
    pub(crate) fn carrier(&self) -> Option<SocketAddr> {
        let first = self.relays().first().copied();
        first.filter(|_| !self.is_beside_multicast())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(address: &str) -> Group {
        Group::new(address.parse().expect("an address"))
    }

    #[test]
    fn groups_that_cannot_work_are_refused_with_the_reason() {
        for (address, reason) in [
            ("10.0.0.1:5", "224.0.0.0 to 239.255.255.255"),
            ("[2001:db8::1]:5", "(ff00::/8)"),
            ("224.0.0.9:5", "routing protocols"),
            ("[ff02::1234]:5", "ff01::/16 and ff02::/16"),
            ("[ff01::1]:5", "ff01::/16 and ff02::/16"),
            ("[ff10::1]:5", "scope is 0"),
            ("[ff15::1]:0", "port 0"),
        ] {
            let error = group(address).check().expect_err(address).to_string();
            assert!(error.contains(reason), "{address}: {error}");
        }
        for address in [
            "239.1.2.3:5",
            "232.1.2.3:5",
            "[ff3e::1234]:5",
            "[ff15::1]:5",
            "[ff12::1%3]:5",
        ] {
            assert!(group(address).check().is_ok(), "{address}");
        }
        let mut own = group("[ff15::1]:5");
        own.local_address = Some("10.0.0.1".parse().expect("an address"));
        let error = own.check().expect_err("two versions").to_string();
        assert!(error.contains("different versions of IP"), "{error}");
    }

    #[test]
    fn source_specific_groups_are_known() {
        for (address, is_specific) in [
            ("232.1.2.3:5", true),
            ("239.1.2.3:5", false),
            ("[ff3e::1234]:5", true),
            ("[ff35::8000:1]:5", true),
            // Of a unicast prefix (RFC 3306), and with an embedded rendezvous point (RFC 3956).
            ("[ff3e:40:2001:db8::1]:5", false),
            ("[ff7e:140:2001:db8::1]:5", false),
            ("[ff15::1]:5", false),
        ] {
            assert_eq!(
                group(address).is_source_specific(),
                is_specific,
                "{address}"
            );
        }
    }

    #[test]
    fn help_is_of_the_groups_version() {
        let group = group("[ff15::1]:5");
        let help = |relay: &str| Recovery::Dyram {
            relays: vec![relay.parse().expect("an address")],
            carriage: Carriage::Relays,
        };
        assert!(group.check_recovery(&Recovery::Source).is_ok());
        assert!(group.check_recovery(&help("[2001:db8::1]:4143")).is_ok());
        let routers = Recovery::Lms {
            carrier: LmsCarrier::Auto,
            port: LMS_PORT,
        };
        assert!(group.check_recovery(&routers).is_ok());
        let other = group.check_recovery(&help("192.0.2.1:4143"));
        let error = other.expect_err("another version");
        let reason = "different versions of IP";
        assert!(error.to_string().contains(reason), "{error}");
    }
}
