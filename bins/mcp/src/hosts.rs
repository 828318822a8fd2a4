//! Whom to copy to.

use std::fmt;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::path::Path;

use cli::copying::PORT;

/// One host as the user wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// What the user wrote: it is called that in messages.
    pub(crate) text: String,
    /// Name or address.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Parses `HOST[:PORT]`.
pub(crate) fn target(text: &str) -> Result<Target, String> {
    let text = text.trim();
    let (host, port) = match text.rsplit_once(':') {
        None => (text, PORT),
        Some((host, port)) => {
            let port = port.parse().ok().filter(|&port| port > 0);
            (
                host,
                port.ok_or_else(|| format!("{text}: no port after the colon"))?,
            )
        }
    };
    let odd = |c: char| c.is_whitespace() || c.is_control() || c == '/';
    if host.is_empty() || host.starts_with('-') || host.contains(odd) {
        return Err(format!(
            "{text:?} is no host: write a name or an IPv4 address"
        ));
    }
    if host.contains(':') {
        return Err(format!("{text}: IPv6 is not supported yet"));
    }
    Ok(Target {
        text: text.to_owned(),
        host: host.to_owned(),
        port,
    })
}

/// Reads a file of hosts, one a line; `#` starts a comment.
pub(crate) fn read(path: &Path) -> Result<Vec<Target>, String> {
    let shown = path.display();
    let text = if path.as_os_str() == "-" {
        let mut text = String::new();
        let read = std::io::stdin().read_to_string(&mut text);
        read.map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    let text = text.map_err(|error| format!("--hosts-file {shown}: {error}"))?;
    let mut targets = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if !line.is_empty() {
            let parsed = target(line);
            let wrong = |message| format!("--hosts-file {shown}, line {}: {message}", number + 1);
            targets.push(parsed.map_err(wrong)?);
        }
    }
    Ok(targets)
}

/// The addresses of a host, IPv4.
pub(crate) async fn resolve(target: &Target) -> Result<Vec<SocketAddrV4>, String> {
    if let Ok(address) = target.host.parse::<Ipv4Addr>() {
        return Ok(vec![SocketAddrV4::new(address, target.port)]);
    }
    let found = tokio::net::lookup_host((target.host.as_str(), target.port)).await;
    let found = found.map_err(|error| format!("cannot be resolved: {error}"))?;
    let only_v4 = found.filter_map(|address| match address.ip() {
        IpAddr::V4(ip) => Some(SocketAddrV4::new(ip, address.port())),
        IpAddr::V6(_) => None,
    });
    let addresses: Vec<_> = only_v4.collect();
    if addresses.is_empty() {
        return Err("has no IPv4 address".to_owned());
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_as_people_write_them() {
        let parsed = target("alpha").expect("a name");
        assert_eq!((parsed.host.as_str(), parsed.port), ("alpha", PORT));
        let parsed = target(" 10.0.0.1:99 ").expect("an address");
        assert_eq!((parsed.host.as_str(), parsed.port), ("10.0.0.1", 99));
        for wrong in ["", ":99", "a:", "a:0", "a:70000", "a b", "::1", "-x", "a/b"] {
            assert!(target(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_of_hosts_takes_comments() {
        let file = tempfile::NamedTempFile::new().expect("file");
        std::fs::write(file.path(), "# all\nalpha\n\n beta:99 # busy\n").expect("written");
        let hosts = read(file.path()).expect("hosts");
        let names: Vec<_> = hosts.iter().map(|host| host.text.as_str()).collect();
        assert_eq!(names, ["alpha", "beta:99"]);
        std::fs::write(file.path(), "alpha\na:b\n").expect("written");
        let error = read(file.path()).expect_err("a bad line");
        assert!(error.contains("line 2"), "{error}");
    }
}
