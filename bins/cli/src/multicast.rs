//! Where a group is and how this host reaches it.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;

/// Parses `ADDR:PORT` of a multicast group.
///
/// # Errors
/// Says what a group looks like.
pub fn group(text: &str) -> Result<SocketAddrV4, String> {
    const EXAMPLE: &str = "write a group and a port, such as 239.1.2.3:5000";
    let address: SocketAddrV4 = text.parse().map_err(|_| {
        if text.parse::<Ipv4Addr>().is_ok() {
            format!("the port is missing: {EXAMPLE}")
        } else {
            EXAMPLE.to_owned()
        }
    })?;
    if !address.ip().is_multicast() {
        return Err(format!(
            "{} is not a multicast address (224.0.0.0 to 239.255.255.255): {EXAMPLE}",
            address.ip()
        ));
    }
    if address.ip().octets()[..3] == [224, 0, 0] {
        return Err(format!(
            "{} is reserved for routing protocols: {EXAMPLE}",
            address.ip()
        ));
    }
    if address.port() == 0 {
        return Err(format!("port 0 is no port: {EXAMPLE}"));
    }
    Ok(address)
}

/// Reads the key of a group.
///
/// # Errors
/// The file cannot be read or is no key; a sentence that says what to do.
pub fn read_key(path: &Path) -> Result<[u8; 32], String> {
    let shown = path.display();
    let bytes = std::fs::read(path).map_err(|e| format!("key file {shown}: {e}"))?;
    proto_core::key::parse(&bytes).ok_or_else(|| {
        format!(
            "key file {shown} is neither 32 bytes nor 64 hexadecimal digits: \
             make one with `openssl rand -hex 32 > {shown}`"
        )
    })
}
