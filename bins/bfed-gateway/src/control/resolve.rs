//! DNS names of peers and control nodes: resolved for each connection, off the event loop.
//!
//! The system's resolver decides where names are looked up (`/etc/hosts`, `/etc/resolv.conf`) and for how long it keeps
//! answers; nothing is kept here. An attacker who answers in its place chooses where this gateway connects to, and nothing
//! else: the other end must prove to be the peer by the key file. Without a key file names lead to loopback only.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::config::Endpoint;

/// Most addresses of a name that are tried.
const MAX_ADDRESSES: usize = 8;
/// Most look-ups at a time in this process; each takes a thread until the resolver answers or gives up.
const MAX_LOOKUPS: usize = 16;
static LOOKUPS: Semaphore = Semaphore::const_new(MAX_LOOKUPS);

/// Connects to an endpoint within `limit`, to each of its addresses in turn. `secured` says whether the other end must prove
/// its identity.
pub(super) async fn connect(
    to: &Endpoint,
    secured: bool,
    limit: Duration,
) -> Result<(TcpStream, SocketAddr), String> {
    let addresses = resolve(to, secured).await?;
    try_each(&addresses, limit).await
}

/// Connects to the first address that accepts.
async fn try_each(
    addresses: &[SocketAddr],
    limit: Duration,
) -> Result<(TcpStream, SocketAddr), String> {
    let mut errors = Vec::new();
    // None takes the time of those after it.
    let each = limit / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    for &address in addresses {
        match timeout(each, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok((stream, address)),
            Ok(Err(error)) if addresses.len() == 1 => return Err(error.to_string()),
            Ok(Err(error)) => errors.push(format!("{}: {error}", address.ip())),
            Err(_) => errors.push(format!("{}: no answer in time", address.ip())),
        }
    }
    Err(errors.join("; "))
}

/// Returns the addresses of an endpoint, at least one.
async fn resolve(to: &Endpoint, secured: bool) -> Result<Vec<SocketAddr>, String> {
    let (host, port) = match to {
        Endpoint::Address(address) => return Ok(vec![*address]),
        Endpoint::Name { host, port } => (host.clone(), *port),
    };
    // The semaphore is never closed.
    let place = LOOKUPS.acquire().await.map_err(|error| error.to_string())?;
    let name = host.clone();
    // The thread keeps its place when the caller no longer waits.
    let found = tokio::task::spawn_blocking(move || {
        let _place = place;
        (name.as_str(), port)
            .to_socket_addrs()
            .map(Iterator::collect::<Vec<_>>)
    });
    let found = found
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)));
    let found = found.map_err(|error| {
        format!("cannot resolve {host}: {error}; check the name, /etc/hosts and /etc/resolv.conf")
    })?;
    usable(&host, found, secured)
}

/// Returns the addresses that may be connected to.
fn usable(host: &str, found: Vec<SocketAddr>, secured: bool) -> Result<Vec<SocketAddr>, String> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in found {
        let ip = address.ip().to_canonical();
        let is_host = !ip.is_unspecified() && !ip.is_multicast();
        let allowed = is_host && (secured || ip.is_loopback());
        if allowed && !addresses.contains(&address) && addresses.len() < MAX_ADDRESSES {
            addresses.push(address);
        }
    }
    match addresses.is_empty() {
        false => Ok(addresses),
        true if secured => Err(format!("{host} has no address of a host")),
        true => Err(format!(
            "{host} is not on loopback, and there is no key file; write key-file = \"...\" in [gateway]"
        )),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn answers_of_dns_are_bounded_and_lead_nowhere_without_a_key() {
        let hostile = [
            "0.0.0.0:1",
            "239.1.2.3:1",
            "192.0.2.1:1",
            "192.0.2.1:1",
            "[::ffff:127.0.0.1]:1",
            "127.0.0.1:1",
        ];
        let hostile: Vec<SocketAddr> = hostile.map(at).into();
        let secured = usable("x", hostile.clone(), true).unwrap();
        assert_eq!(secured, hostile[3..].to_vec());
        let plain = usable("x", hostile.clone(), false).unwrap();
        assert_eq!(plain, hostile[4..].to_vec());
        let why = usable("x", vec![at("192.0.2.1:1")], false).unwrap_err();
        assert!(why.contains("key-file"), "{why}");
        assert!(usable("x", vec![at("239.1.2.3:1")], true).is_err());
        let many = (1..=200).map(|host| SocketAddr::from(([192, 0, 2, host], 1)));
        assert_eq!(
            usable("x", many.collect(), true).unwrap().len(),
            MAX_ADDRESSES
        );
    }

    #[tokio::test]
    async fn addresses_are_tried_in_turn() {
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let refuses = closed.local_addr().unwrap();
        drop(closed);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let accepts = listener.local_addr().unwrap();
        let limit = Duration::from_secs(10);
        let (_, reached) = try_each(&[refuses, accepts], limit).await.unwrap();
        assert_eq!(reached, accepts);
        assert!(try_each(&[refuses], limit).await.is_err());
    }

    #[tokio::test]
    async fn names_are_resolved_and_errors_say_what_to_do() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let name = |host: &str| Endpoint::Name {
            host: host.to_owned(),
            port,
        };
        let limit = Duration::from_secs(10);
        let (_, reached) = connect(&name("localhost"), false, limit).await.unwrap();
        assert_eq!(reached.port(), port);
        // RFC 6761: this name never exists.
        let why = connect(&name("gateway.invalid"), true, limit).await;
        let why = why.map(drop).unwrap_err();
        assert!(why.contains("cannot resolve gateway.invalid"), "{why}");
    }
}
