//! The token, and the hosts that get it: those that the user named, and no others that a mediator or a server names.

use std::net::SocketAddr;

use bfed::wire::client::Token;

use crate::mediator::Address;
use crate::{JoinOptions, Url};

/// A token, and where it may be sent.
#[derive(Clone, Debug)]
pub(crate) struct Credential {
    token: Option<Token>,
    /// The mediators that the user named.
    mediators: Vec<Address>,
    /// Hosts of these that are HTTP servers, and further ones that the user named; in lower case.
    hosts: Vec<String>,
}

impl Credential {
    pub(crate) fn of(options: &JoinOptions) -> Self {
        let servers = options
            .mediators
            .iter()
            .filter_map(|address| match address {
                Address::Http(_) => host_of(address),
                _ => None,
            });
        let named = options.token_hosts.iter();
        let named = named.map(|host| bare(host).to_ascii_lowercase());
        Credential {
            token: options.token.clone(),
            mediators: options.mediators.clone(),
            hosts: servers.chain(named).collect(),
        }
    }

    /// Whether there is a token.
    pub(crate) fn is_some(&self) -> bool {
        self.token.is_some()
    }

    /// Returns the token for a mediator.
    pub(crate) fn for_mediator(&self, mediator: &Address) -> Option<Token> {
        let is_named = self.mediators.contains(mediator);
        let host = host_of(mediator);
        let is_known = is_named || host.as_ref().is_some_and(|host| self.hosts.contains(host));
        self.given(is_known, mediator)
    }

    /// Returns the token for a server.
    pub(crate) fn for_server(&self, server: &Url) -> Option<Token> {
        self.given(self.hosts.contains(&host(server)), server)
    }

    fn given(&self, is_known: bool, to: &impl std::fmt::Display) -> Option<Token> {
        if !is_known && self.token.is_some() {
            tracing::warn!(event = "token_withheld", %to, "the token is not for this host, which the user has not named; see --token-host");
        }
        self.token.clone().filter(|_| is_known)
    }
}

/// Returns the host of a mediator; `None` of a group, where any host may answer.
fn host_of(mediator: &Address) -> Option<String> {
    match mediator {
        Address::Group(_) => None,
        Address::Unicast(address) => Some(address.ip().to_string()),
        Address::Named { host, .. } => Some(host.clone()),
        Address::Http(url) => Some(host(url)),
    }
}

/// Returns the host of a server, in lower case, an IPv6 address without brackets and in its shortest form.
fn host(url: &Url) -> String {
    let server = url.server();
    if let Ok(address) = server.parse::<SocketAddr>() {
        return address.ip().to_string();
    }
    let name = server.rsplit_once(':').map_or(&*server, |(name, _)| name);
    bare(name).to_ascii_lowercase()
}

/// Returns a host without brackets.
fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hosts_that_the_user_named_get_the_token() {
        let mut options = JoinOptions::new("bfed://1/film".parse().unwrap());
        options.token = Token::new("v4.public.x");
        let named = [
            "http://CDN.example:8080",
            "10.0.0.1",
            "239.1.2.3:25190",
            "http://[2001:db8::1]:80",
        ];
        options.mediators = named.map(|text| text.parse().unwrap()).into();
        options.token_hosts = vec!["Edge.example".to_owned(), "[::1]".to_owned()];
        let credential = Credential::of(&options);
        for server in [
            "http://cdn.example/s/x",
            "http://cdn.example:8081/s/x",
            "http://edge.example:1/",
            "http://[::1]:8081/",
            "http://[2001:db8:0::1]:8081/",
        ] {
            let url: Url = server.parse().unwrap();
            assert!(credential.for_server(&url).is_some(), "{server}");
        }
        for server in [
            "http://cdn.example.evil.example/",
            "http://evil.example/cdn.example",
            "http://10.0.0.1:8081/",
            "http://10.0.0.2/",
        ] {
            let url: Url = server.parse().unwrap();
            assert!(credential.for_server(&url).is_none(), "{server}");
        }
        for (mediator, is_given) in [
            ("http://cdn.example:9/mediator", true),
            ("10.0.0.1", true),
            ("239.1.2.3:25190", true),
            ("10.0.0.1:9", false),
            ("239.1.2.4:25190", false),
            ("http://evil.example:8080", false),
            ("evil.example", false),
        ] {
            let address: Address = mediator.parse().unwrap();
            let given = credential.for_mediator(&address).is_some();
            assert_eq!(given, is_given, "{mediator}");
        }
    }
}
