//! Where a group is and how this host reaches it.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};

/// The arguments about the group that senders and receivers share.
#[derive(Debug, Clone, clap::Args)]
pub struct GroupArgs {
    /// Multicast group and UDP port, such as 239.1.2.3:5000 (232.x.y.z is source-specific)
    #[arg(long, value_name = "ADDR:PORT", value_parser = group)]
    pub group: SocketAddrV4,
    /// Interface to use, by name or by its address [default: where the routes lead]
    #[arg(long, value_name = "IF")]
    pub interface: Option<String>,
    /// Routers that multicast packets may pass, plus one: 1 stays on the link
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u8).range(1..))]
    pub ttl: u8,
    /// File with the group's key, 32 bytes raw or as 64 hexadecimal digits: only its owners can
    /// forge data (make one with `openssl rand -hex 32`)
    #[arg(long, value_name = "F")]
    pub key_file: Option<PathBuf>,
}

impl GroupArgs {
    /// The key of the group, if one is set.
    ///
    /// # Errors
    /// As [`read_key`].
    pub fn key(&self) -> Result<Option<[u8; 32]>, String> {
        self.key_file.as_deref().map(read_key).transpose()
    }
}

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

/// Whether a group is in the range of source-specific multicast (RFC 4607), 232.0.0.0/8.
pub fn is_source_specific(group: Ipv4Addr) -> bool {
    group.octets()[0] == 232
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
