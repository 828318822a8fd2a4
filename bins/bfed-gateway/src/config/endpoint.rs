//! Where a peer or a control node listens: an address, or a DNS name.

use std::fmt;
use std::net::SocketAddr;

use bfed_client::is_dns_name;
use daemon_kit::reader::shown;
use toml::de::DeValue;

/// What [`Endpoint::read`] reads.
pub(super) const ENDPOINT: &str =
    "an address or a name, and a port, such as \"192.0.2.1:4140\" or \"gw.example.org:4140\"";

/// Where a gateway or a control node listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Endpoint {
    /// An address.
    Address(SocketAddr),
    /// A DNS name, which is resolved for each connection.
    Name {
        /// The name, in lower case.
        host: String,
        /// The port.
        port: u16,
    },
}

impl Endpoint {
    /// Reads a value of the configuration.
    pub(super) fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let DeValue::String(text) = value else {
            return Err(format!("{} is not text in quotes", shown(value)));
        };
        let wrong = || format!("{text:?} is neither an address nor a name with a port");
        if let Ok(address) = text.parse::<SocketAddr>() {
            let ip = address.ip();
            return match ip.is_unspecified() || ip.is_multicast() || address.port() == 0 {
                true => Err(format!("{address} is not where a gateway listens")),
                false => Ok(Endpoint::Address(address)),
            };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port: u16 = port.parse().map_err(|_| wrong())?;
        match is_dns_name(host) && port != 0 {
            true => Ok(Endpoint::Name {
                host: host.trim_end_matches('.').to_ascii_lowercase(),
                port,
            }),
            false => Err(wrong()),
        }
    }

    /// Returns the name, or the address without its port: what its certificate is for unless `tls-name` says otherwise.
    #[must_use]
    pub fn host(&self) -> String {
        match self {
            Endpoint::Address(address) => address.ip().to_string(),
            Endpoint::Name { host, .. } => host.clone(),
        }
    }

    /// Returns the address, if it is one.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Endpoint::Address(address) => Some(*address),
            Endpoint::Name { .. } => None,
        }
    }

    /// Returns whether it is on this host whatever DNS says.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Endpoint::Address(address) => address.ip().is_loopback(),
            Endpoint::Name { host, .. } => host == "localhost",
        }
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Endpoint::Address(address)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Address(address) => address.fmt(f),
            Endpoint::Name { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        let value = DeValue::String(text.into());
        Endpoint::read(&value).map(|endpoint| endpoint.to_string())
    }

    #[test]
    fn addresses_and_names_are_told_apart() {
        for (text, shown) in [
            ("192.0.2.1:4140", "192.0.2.1:4140"),
            ("[2001:db8::1]:4140", "[2001:db8::1]:4140"),
            ("GW.Example.org.:4140", "gw.example.org:4140"),
            ("localhost:1", "localhost:1"),
            ("a_b-c:65535", "a_b-c:65535"),
        ] {
            assert_eq!(read(text), Ok(shown.to_owned()));
        }
        for text in [
            "gw.example.org",
            "gw.example.org:0",
            "gw.example.org:65536",
            "gw..example.org:1",
            "-gw:1",
            "gw/x:1",
            "192.0.2.300:4140",
            "2001:db8::1:4140",
            ":4140",
            "0.0.0.0:4140",
            "239.1.2.3:4140",
            "192.0.2.1:0",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
