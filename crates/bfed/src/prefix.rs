//! Address prefixes.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

/// An address prefix: `192.0.2.0/24`, `2001:db8::/32`, or one address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

/// Error of parsing a prefix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PrefixError;

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an address prefix, such as 192.0.2.0/24")
    }
}

impl core::error::Error for PrefixError {}

/// Returns the bits of an address, left-aligned, and their number. IPv4-mapped IPv6 addresses are IPv4.
fn bits(address: IpAddr) -> (u128, u8) {
    match address.to_canonical() {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

impl Prefix {
    /// Returns the prefix with the first `len` bits of `address`; `None` if later bits are set, or if there are
    /// fewer.
    #[must_use]
    pub fn new(address: IpAddr, len: u8) -> Option<Self> {
        let address = address.to_canonical();
        let (value, width) = bits(address);
        let rest = u128::MAX.checked_shr(len.into()).unwrap_or(0);
        (len <= width && value & rest == 0).then_some(Prefix { address, len })
    }

    /// Returns the prefix of that address alone.
    #[must_use]
    pub fn host(address: IpAddr) -> Self {
        let address = address.to_canonical();
        let (_, len) = bits(address);
        Prefix { address, len }
    }

    /// Returns the first address of the prefix.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns whether the address begins with the prefix.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let ((own, width), (other, others)) = (bits(self.address), bits(address));
        let rest = u128::MAX.checked_shr(self.len.into()).unwrap_or(0);
        width == others && (own ^ other) & !rest == 0
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let address = |text: &str| text.parse::<IpAddr>().map_err(|_| PrefixError);
        match text.split_once('/') {
            None => Ok(Prefix::host(address(text)?)),
            Some((front, len)) => {
                let len = len.parse().map_err(|_| PrefixError)?;
                Prefix::new(address(front)?, len).ok_or(PrefixError)
            }
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

/// Returns whether an address means the same on every host: not loopback, link-local, `0.0.0.0/8` or
/// reserved.
#[must_use]
pub(crate) fn is_beyond_this_link(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let first = v4.octets()[0];
            !v4.is_loopback() && !v4.is_link_local() && first != 0 && first < 224
        }
        IpAddr::V6(v6) => {
            !v6.is_loopback()
                && !v6.is_unspecified()
                && !v6.is_multicast()
                && !v6.is_unicast_link_local()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    extern crate std;

    use std::string::ToString;

    fn prefix(text: &str) -> Option<Prefix> {
        text.parse().ok()
    }

    #[test]
    fn texts_and_what_they_contain() {
        for (text, inside, outside) in [
            ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
            ("192.0.2.9", "192.0.2.9", "192.0.2.8"),
            ("0.0.0.0/0", "203.0.113.1", "::1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("::/0", "2001:db8::1", "192.0.2.1"),
        ] {
            let prefix = prefix(text).unwrap();
            assert!(prefix.contains(inside.parse().unwrap()), "{text}");
            assert!(!prefix.contains(outside.parse().unwrap()), "{text}");
            assert_eq!(prefix.to_string().parse(), Ok(prefix));
        }
        let mapped = "::ffff:192.0.2.7".parse().unwrap();
        assert!(prefix("192.0.2.0/24").unwrap().contains(mapped));
        for wrong in ["", "192.0.2.1/24", "192.0.2.0/33", "host/8", "::/129", "/8"] {
            assert_eq!(prefix(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn addresses_of_this_host_and_link() {
        for own in [
            "127.0.0.1",
            "169.254.1.1",
            "0.1.2.3",
            "240.0.0.1",
            "::1",
            "fe80::1",
            "::ffff:127.0.0.1",
        ] {
            assert!(!is_beyond_this_link(own.parse().unwrap()), "{own}");
        }
        for other in ["192.0.2.1", "10.0.0.1", "2001:db8::1"] {
            assert!(is_beyond_this_link(other.parse().unwrap()), "{other}");
        }
    }
}
