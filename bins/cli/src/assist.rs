//! `--assist`: who helps with repairs.

use std::fmt;
use std::net::{SocketAddr, SocketAddrV4, ToSocketAddrs as _};
use std::str::FromStr;

/// The port of `dyram-relay` unless told otherwise.
pub const RELAY_PORT: u16 = 4143;
/// Most relays of `--assist dyram://`.
pub const MAX_RELAYS: usize = 4;

/// Who helps with repairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assist {
    /// Nobody: receivers ask the sender.
    None,
    /// LMS routers.
    Lms,
    /// A tree of DyRAM relays: those to attach to, in order of preference.
    Dyram(Carriage, Vec<RelayName>),
}

/// Who carries the data where DyRAM relays help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carriage {
    /// The relays do: `dyram://`.
    Relays,
    /// IP multicast does, and relays serve recovery beside it: `dyram+multicast://`.
    Multicast,
}

/// How the scheme of each is written.
const SCHEMES: [(&str, Carriage); 2] = [
    ("dyram://", Carriage::Relays),
    ("dyram+multicast://", Carriage::Multicast),
];

/// A relay as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayName {
    host: String,
    port: u16,
}

impl fmt::Display for RelayName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl FromStr for RelayName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXAMPLE: &str = "write a relay's host and port, such as dyram://192.0.2.1:4143";
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => {
                let port = port.parse().ok().filter(|port| *port != 0);
                let port = port.ok_or_else(|| format!("{text:?} has no port: {EXAMPLE}"))?;
                (host, port)
            }
            None => (text, RELAY_PORT),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if host.is_empty() || !host.chars().all(plain) {
            return Err(format!("{text:?} is no relay: {EXAMPLE}"));
        }
        Ok(RelayName {
            host: host.to_owned(),
            port,
        })
    }
}

impl RelayName {
    /// Its address.
    ///
    /// # Errors
    /// A sentence: it has none, or one that no host has.
    pub fn resolve(&self) -> Result<SocketAddrV4, String> {
        let found = (self.host.as_str(), self.port).to_socket_addrs();
        let mut found = found.map_err(|error| format!("relay {self}: {error}"))?;
        let address = found.find_map(|address| match address {
            SocketAddr::V4(address) => Some(address),
            SocketAddr::V6(_) => None,
        });
        match address {
            None => Err(format!("relay {self} has no IPv4 address")),
            Some(address) if address.ip().is_multicast() || address.ip().is_unspecified() => Err(
                format!("relay {self}: that is the address of no host (the group goes to --group)"),
            ),
            Some(address) => Ok(address),
        }
    }
}

impl FromStr for Assist {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => return Ok(Assist::None),
            "lms" => return Ok(Assist::Lms),
            _ => {}
        }
        for (scheme, carriage) in SCHEMES {
            if let Some(relays) = text.strip_prefix(scheme) {
                let relay = |text: &str| text.strip_prefix(scheme).unwrap_or(text).parse();
                let relays: Result<_, String> = relays.split(',').map(relay).collect();
                return Ok(Assist::Dyram(carriage, relays?));
            }
        }
        Err("write none, lms, dyram://RELAY:PORT or dyram+multicast://RELAY:PORT".to_owned())
    }
}

impl Assist {
    /// What several `--assist` say together: relays, one after the other.
    ///
    /// # Errors
    /// A sentence: they contradict each other, or name too many relays, or one twice.
    pub fn together(given: &[Assist]) -> Result<Assist, String> {
        let (first, rest) = given.split_first().ok_or("--assist is missing")?;
        let mut all = first.clone();
        for next in rest {
            match (&mut all, next) {
                (Assist::Dyram(carriage, relays), Assist::Dyram(same, more))
                    if carriage == same =>
                {
                    relays.extend_from_slice(more);
                }
                _ => {
                    return Err(
                        "--assist can be repeated only to name several relays: dyram://A:PORT and \
                         dyram://B:PORT"
                            .to_owned(),
                    );
                }
            }
        }
        if let Assist::Dyram(_, relays) = &all {
            if relays.len() > MAX_RELAYS {
                return Err(format!("--assist: at most {MAX_RELAYS} relays"));
            }
            let twice = (1..relays.len()).find(|&at| relays[..at].contains(&relays[at]));
            if let Some(at) = twice {
                return Err(format!("--assist: relay {} is there twice", relays[at]));
            }
        }
        Ok(all)
    }

    /// Whether IP multicast carries the data while relays help.
    #[must_use]
    pub fn is_beside_multicast(&self) -> bool {
        matches!(self, Assist::Dyram(Carriage::Multicast, _))
    }

    /// The relays' addresses; none without such.
    ///
    /// # Errors
    /// As [`RelayName::resolve`].
    pub fn relays(&self) -> Result<Vec<SocketAddrV4>, String> {
        match self {
            Assist::Dyram(_, relays) => relays.iter().map(RelayName::resolve).collect(),
            Assist::None | Assist::Lms => Ok(Vec::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Assist, String> {
        text.parse()
    }

    fn names(assist: &Assist) -> Vec<String> {
        match assist {
            Assist::Dyram(_, relays) => relays.iter().map(ToString::to_string).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn relays_are_named_with_commas_or_by_repeating() {
        assert_eq!(parse("none"), Ok(Assist::None));
        assert_eq!(parse("lms"), Ok(Assist::Lms));
        let two = parse("dyram://a:1,b").expect("two");
        assert_eq!(names(&two), ["a:1", "b:4143"]);
        assert_eq!(parse("dyram://a:1,dyram://b"), Ok(two.clone()));
        let third = parse("dyram://10.0.0.1:5").expect("one");
        let all = Assist::together(&[two.clone(), third]).expect("together");
        assert_eq!(names(&all), ["a:1", "b:4143", "10.0.0.1:5"]);
        assert!(Assist::together(&[two.clone(), two.clone()]).is_err());
        let beside = parse("dyram+multicast://c").expect("one");
        assert!(beside.is_beside_multicast() && !two.is_beside_multicast());
        assert!(Assist::together(&[two.clone(), beside]).is_err());
        assert!(Assist::together(&[two, Assist::Lms]).is_err());
        let five = parse("dyram://a,b,c,d,e").expect("five");
        assert!(Assist::together(&[five]).is_err());
    }

    #[test]
    fn wrong_ones_are_refused_with_a_hint() {
        for text in [
            "dyram://",
            "dyram://a:0",
            "dyram://a:x",
            "dyram://a b:1",
            "dyram://a:1,",
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains("dyram://192.0.2.1:4143"), "{error}");
        }
        assert!(parse("dyram:/a:1").expect_err("one slash").contains("lms"));
        for text in ["239.1.2.3:1", "0.0.0.0:1"] {
            let name: RelayName = text.parse().expect("name");
            assert!(name.resolve().is_err(), "{text}");
        }
        let local: RelayName = "127.0.0.1:7".parse().expect("name");
        assert_eq!(local.resolve(), Ok("127.0.0.1:7".parse().expect("address")));
    }
}
