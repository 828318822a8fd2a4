//! `Origin` of requests that pages in browsers send (RFC 6454 §7): which of them may publish.
//!
//! Any page that a host's user visits can send a `POST`, and open a WebTransport session, in that host's name. Programs send no
//! `Origin`, and are not concerned.

use std::net::IpAddr;

use hyper::header::{HeaderMap, ORIGIN};
use hyper::http::Uri;

/// The pages that may publish: those of this server, and those of the configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct Origins {
    /// Origins of the configuration.
    pub(super) listed: Vec<String>,
    /// Name of this server in the configuration. Under other names than this and `localhost`, its own pages are not believed:
    /// an attacker can let a DNS name of its own lead here.
    pub(super) host: Option<String>,
    /// Ports of this server's listeners.
    pub(super) ports: Vec<u16>,
}

impl Origins {
    /// Returns whether a request may publish as far as its `Origin` is concerned. `requested` is the host that it is sent to.
    pub(super) fn may_publish(&self, headers: &HeaderMap, requested: Option<&str>) -> bool {
        headers.get_all(ORIGIN).iter().all(|origin| {
            let origin = origin.to_str();
            origin.is_ok_and(|origin| self.is_listed(origin) || self.is_own(origin, requested))
        })
    }

    fn is_listed(&self, origin: &str) -> bool {
        let same = |listed: &String| listed.eq_ignore_ascii_case(origin);
        self.listed.iter().any(same)
    }

    fn is_own(&self, origin: &str, requested: Option<&str>) -> bool {
        let Ok(uri) = origin.parse::<Uri>() else {
            return false;
        };
        let default = match uri.scheme_str() {
            Some("http") => 80,
            Some("https") => 443,
            _ => return false,
        };
        let Some(host) = uri.host() else { return false };
        let is_named = |name: &str| host.eq_ignore_ascii_case(name);
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let is_certain = bare.parse::<IpAddr>().is_ok()
            || is_named("localhost")
            || self.host.as_deref().is_some_and(is_named);
        let port = uri.port_u16().unwrap_or(default);
        is_certain && requested.is_some_and(is_named) && self.ports.contains(&port)
    }
}

/// Returns the host of an authority, such as `gw.example.org:8081`; `None` if it has characters that no host has.
pub(super) fn host_of(authority: &str) -> Option<String> {
    let uri = format!("http://{authority}/").parse::<Uri>().ok()?;
    let host = uri.host().filter(|_| !authority.contains('@'))?;
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    let fits = !host.is_empty() && host.bytes().all(is_host);
    fits.then(|| host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_this_server_and_listed_ones_may_publish() {
        let origins = Origins {
            listed: vec!["https://studio.example".to_owned()],
            host: Some("gw.example".to_owned()),
            ports: vec![8081, 443],
        };
        let may = |all: &[&str], requested| {
            let mut headers = HeaderMap::new();
            for origin in all {
                headers.append(ORIGIN, origin.parse().unwrap());
            }
            origins.may_publish(&headers, requested)
        };
        assert!(may(&[], None), "a program");
        for (origin, requested) in [
            ("https://studio.example", "gw.example"),
            ("http://gw.example:8081", "gw.example"),
            ("https://GW.example", "gw.example"),
            ("http://127.0.0.1:8081", "127.0.0.1"),
            ("http://[::1]:8081", "[::1]"),
            ("http://localhost:8081", "localhost"),
        ] {
            assert!(may(&[origin], Some(requested)), "{origin}");
            assert!(!may(&[origin, "null"], Some(requested)), "{origin}");
        }
        for (origin, requested) in [
            ("null", "gw.example"),
            ("", "gw.example"),
            ("https://studio.example:444", "gw.example"),
            ("https://studio.example.evil.example", "gw.example"),
            ("http://gw.example", "gw.example"),
            ("http://127.0.0.1:3000", "127.0.0.1"),
            ("http://127.0.0.2:8081", "127.0.0.1"),
            ("ftp://gw.example:8081", "gw.example"),
            // A name that another owner of DNS lets lead here.
            ("http://evil.example:8081", "evil.example"),
        ] {
            assert!(!may(&[origin], Some(requested)), "{origin}");
        }
        assert!(!may(&["http://gw.example:8081"], None));
    }

    #[test]
    fn hosts_have_no_other_characters() {
        for (authority, host) in [
            ("gw.example:8081", Some("gw.example")),
            ("10.0.0.1", Some("10.0.0.1")),
            ("[2001:db8::1]:80", Some("[2001:db8::1]")),
            ("a;script-src", None),
            ("a@b", None),
            ("*", None),
            ("a b", None),
            ("", None),
        ] {
            assert_eq!(host_of(authority).as_deref(), host, "{authority}");
        }
    }
}
