//! What a gateway and its clients agree on: how addresses of groups are written, and the default address of
//! the mediator.

use core::fmt;
use core::str::FromStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bfed::SessionName;

/// UDP port of mediators.
pub const MEDIATOR_PORT: u16 = 25190;
/// The well-known group of mediators in IP multicast networks, in the scope of a site (RFC 2365).
pub const MEDIATOR_V4: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(239, 255, 98, 102)), MEDIATOR_PORT);
/// The well-known group over IPv6: transient, in the scope of a site (RFC 4291 section 2.7).
pub const MEDIATOR_V6: SocketAddr = SocketAddr::new(
    IpAddr::V6(Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 0x6266)),
    MEDIATOR_PORT,
);
/// The UDP port of a flow that has no name (RFC 3551 section 8).
pub const DEFAULT_PORT: u16 = 5004;
/// A request to a mediator at a unicast UDP address is padded with zeros to this many bytes at least: no
/// answer is longer than the request.
pub const PADDED_LEN: usize = 1200;

/// A group that data is sent to, of any source or of one: `239.1.2.3:5004`,
/// `10.0.0.1@232.1.2.3:5004`, `[2001:db8::1]@[ff3e::1]:5004`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupAddress {
    /// Only this source's packets (RFC 4607).
    pub source: Option<IpAddr>,
    /// The group and its UDP port.
    pub group: SocketAddr,
}

/// Text that is not the address of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a group, such as 239.1.2.3:5004 or, of one source, 10.0.0.1@232.1.2.3:5004")]
pub struct GroupError;

/// An IP address, in brackets or not.
fn ip(text: &str) -> Option<IpAddr> {
    let inner = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    match inner {
        Some(inner) => inner.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => text.parse().ok(),
    }
}

impl GroupAddress {
    /// A group of a session's native name (`239.1.2.3`, `10.0.0.1@232.1.2.3`) and of a flow's name:
    /// its port, [`DEFAULT_PORT`] for a flow without a name.
    ///
    /// # Errors
    /// They are not the address of a group that data may be sent to.
    pub fn of_session(native: &[u8], flow: &str) -> Result<Self, GroupError> {
        let native = core::str::from_utf8(native).map_err(|_| GroupError)?;
        let port = match flow {
            "" => DEFAULT_PORT,
            digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().map_err(|_| GroupError)?
            }
            _ => return Err(GroupError),
        };
        let (source, group) = match native.split_once('@') {
            Some((source, group)) => (Some(ip(source).ok_or(GroupError)?), group),
            None => (None, native),
        };
        let group = SocketAddr::new(ip(group).ok_or(GroupError)?, port);
        GroupAddress { source, group }.checked()
    }

    /// The group of a session's flow, by its number from 0, in the network that owns the session.
    ///
    /// # Errors
    /// The session's native name is not a group, or the flow's name is not a port.
    pub fn of_flow(session: &SessionName, flow: usize) -> Result<Self, GroupError> {
        let name = session.flows().nth(flow).unwrap_or("");
        Self::of_session(&session.native_bytes(), name)
    }

    fn checked(self) -> Result<Self, GroupError> {
        let ip = self.group.ip();
        // For routing protocols, on this link alone.
        let reserved = match ip {
            IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
            IpAddr::V6(ip) => ip.octets()[1] & 15 < 2 || ip.octets()[1] == 2,
        };
        let wrong_source = self.source.is_some_and(|source| {
            source.is_multicast() || source.is_unspecified() || source.is_ipv4() != ip.is_ipv4()
        });
        if !ip.is_multicast() || reserved || wrong_source || self.group.port() == 0 {
            return Err(GroupError);
        }
        Ok(self)
    }
}

impl FromStr for GroupAddress {
    type Err = GroupError;

    fn from_str(text: &str) -> Result<Self, GroupError> {
        let (source, group) = match text.split_once('@') {
            Some((source, group)) => (Some(ip(source).ok_or(GroupError)?), group),
            None => (None, text),
        };
        let group = group.parse().map_err(|_| GroupError)?;
        GroupAddress { source, group }.checked()
    }
}

impl fmt::Display for GroupAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source {
            Some(IpAddr::V4(source)) => write!(f, "{source}@")?,
            Some(IpAddr::V6(source)) => write!(f, "[{source}]@")?,
            None => {}
        }
        write!(f, "{}", self.group)
    }
}
