//! Asking a mediator (§5.2.1).

use core::fmt;
use core::str::FromStr;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{self, Receiver, Sender};

use bfed::SessionName;
use bfed::wire::client::{AnswerRepr, Request, Want};
use cli::federation::http::Url;
use cli::federation::{MEDIATOR_PORT, PADDED_LEN};
use linux_net::inet::{self, Membership, Transmit, UdpSocket};
use linux_net::udp::Batch;
use linux_net::wake::Waker;

use crate::http;

/// Where a mediator is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Address {
    /// On a group.
    Group(SocketAddr),
    /// At a UDP address.
    Unicast(SocketAddr),
    /// At an HTTP server.
    Http(Url),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with("http") {
            let url: Url = text.parse()?;
            // The server's mediator, unless the URL names a path.
            let path = match url.path.as_str() {
                "/" => "/mediator",
                other => other,
            };
            return Ok(Address::Http(url.with_path(path)));
        }
        let bare = text.trim_start_matches('[').trim_end_matches(']');
        let address = match (text.parse::<SocketAddr>(), bare.parse::<IpAddr>()) {
            (Ok(address), _) => address,
            (_, Ok(ip)) => SocketAddr::new(ip, MEDIATOR_PORT),
            _ => {
                return Err(format!(
                    "{text:?} is no mediator: write 239.255.98.102:25190, 10.0.0.1 or http://host:8080"
                ));
            }
        };
        if address.port() == 0 || address.ip().is_unspecified() {
            return Err(format!("{text:?} is no mediator: nobody can be there"));
        }
        Ok(match address.ip().is_multicast() {
            true => Address::Group(address),
            false => Address::Unicast(address),
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Group(address) | Address::Unicast(address) => address.fmt(f),
            Address::Http(url) => url.fmt(f),
        }
    }
}

/// What is heard of a mediator, or of others who ask it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    /// An answer for this client's session.
    Answer(AnswerRepr),
    /// Another client asks for the same session.
    OthersJoin,
    /// Another client leaves it.
    OthersLeave,
    /// It could not be asked.
    Failed(String),
}

#[derive(Debug)]
enum Door {
    Udp(UdpSocket, Batch),
    Http {
        sender: Sender<Result<Vec<u8>, String>>,
        answers: Receiver<Result<Vec<u8>, String>>,
        waker: Waker,
        /// A question is on its way.
        asked: bool,
    },
}

/// A line to one mediator, about one session.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) address: Address,
    door: Door,
    session: SessionName,
    nonce: u32,
}

/// A socket that is in a group, or sends to it.
pub(crate) fn group_socket(
    bind: SocketAddr,
    interface: Option<&str>,
    ttl: u8,
) -> Result<(UdpSocket, u32), String> {
    let index = match interface {
        Some(name) => cli::multicast::find(name)?.index,
        None => 0,
    };
    let config = inet::Config {
        interface: index,
        ttl,
        loopback: true,
        ..inet::Config::new(bind)
    };
    let socket = UdpSocket::open(&config).map_err(|error| format!("{bind}: {error}"))?;
    Ok((socket, index))
}

/// A socket that hears a group.
pub(crate) fn listen(
    group: SocketAddr,
    source: Option<IpAddr>,
    interface: Option<&str>,
) -> Result<UdpSocket, String> {
    let (socket, interface) = group_socket(group, interface, 16)?;
    let membership = Membership {
        group: group.ip(),
        source,
        interface,
    };
    let joined = socket.join(&membership);
    joined.map_err(|error| format!("group {group}: {error}"))?;
    Ok(socket)
}

impl Line {
    pub(crate) fn open(
        address: Address,
        interface: Option<&str>,
        session: &SessionName,
        nonce: u32,
    ) -> Result<Self, String> {
        let door = match &address {
            Address::Group(group) => Door::Udp(listen(*group, None, interface)?, Batch::new(2)),
            Address::Unicast(to) => {
                let any: IpAddr = match to {
                    SocketAddr::V4(_) => [0u8; 4].into(),
                    SocketAddr::V6(_) => [0u16; 8].into(),
                };
                let config = inet::Config::new(SocketAddr::new(any, 0));
                let socket = UdpSocket::open(&config).map_err(|error| error.to_string())?;
                Door::Udp(socket, Batch::new(2))
            }
            Address::Http(_) => {
                let (sender, answers) = mpsc::channel();
                let waker = Waker::new().map_err(|error| error.to_string())?;
                Door::Http {
                    sender,
                    answers,
                    waker,
                    asked: false,
                }
            }
        };
        Ok(Line {
            address,
            door,
            session: session.clone(),
            nonce,
        })
    }

    /// Whether others ask on the same line: then requests are damped.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.address, Address::Group(_))
    }

    /// Sends a request; whether it was sent.
    pub(crate) fn ask(&mut self, want: Want, redirects: u8) -> bool {
        let request = Request {
            nonce: self.nonce,
            want,
            redirects,
            session: self.session.clone(),
        };
        let mut bytes = vec![0; request.buffer_len()];
        request.emit(&mut bytes);
        match (&mut self.door, &self.address) {
            (Door::Udp(socket, _), Address::Group(to) | Address::Unicast(to)) => {
                if matches!(self.address, Address::Unicast(_)) {
                    let room = PADDED_LEN.max(bytes.len() + 64 * (1 + self.session.flow_count()));
                    bytes.resize(room, 0);
                }
                let (destination, bytes) = (*to, &bytes[..]);
                let transmit = Transmit {
                    source: None,
                    destination,
                    bytes,
                    segment_len: None,
                };
                let sent = socket.send(&transmit);
                if let Err(error) = &sent {
                    tracing::warn!(mediator = %self.address, %error, "not asked");
                }
                sent.is_ok()
            }
            (
                Door::Http {
                    sender,
                    waker,
                    asked,
                    ..
                },
                Address::Http(url),
            ) => {
                if core::mem::replace(asked, want != Want::Leave) {
                    return false;
                }
                let (sender, waker, url) = (sender.clone(), waker.clone(), url.clone());
                let ask = move || {
                    let answer = http::post(&url, &bytes);
                    if want != Want::Leave {
                        let _ = sender.send(answer);
                        waker.wake();
                    }
                };
                match want {
                    // The program waits for nothing afterwards.
                    Want::Leave => ask(),
                    _ => drop(std::thread::spawn(ask)),
                }
                true
            }
            _ => false,
        }
    }

    /// What has come.
    pub(crate) fn receive(&mut self) -> Vec<Heard> {
        let mut heard = Vec::new();
        match &mut self.door {
            Door::Udp(socket, batch) => {
                if let Err(error) = socket.receive(batch) {
                    tracing::debug!(%error, "the mediator's line");
                    return heard;
                }
                for datagram in batch.received() {
                    let from = match self.address {
                        Address::Unicast(mediator) => datagram.source == mediator,
                        _ => true,
                    };
                    if let Some(one) = sort(datagram.payload, &self.session, self.nonce)
                        && from
                    {
                        heard.push(one);
                    }
                }
            }
            Door::Http {
                answers,
                waker,
                asked,
                ..
            } => {
                waker.reset();
                while let Ok(answer) = answers.try_recv() {
                    *asked = false;
                    heard.push(match answer {
                        Ok(bytes) => match sort(&bytes, &self.session, self.nonce) {
                            Some(answer @ Heard::Answer(_)) => answer,
                            _ => Heard::Failed(format!("{}: not an answer", self.address)),
                        },
                        Err(why) => Heard::Failed(why),
                    });
                }
            }
        }
        heard
    }
}

/// What a message is to the client that asks for that session with that nonce.
fn sort(bytes: &[u8], session: &SessionName, nonce: u32) -> Option<Heard> {
    if let Ok(answer) = AnswerRepr::parse(bytes) {
        let fits = answer.session == *session && [0, nonce].contains(&answer.nonce);
        return fits.then_some(Heard::Answer(answer));
    }
    let request = Request::parse(bytes).ok()?;
    if request.session != *session || request.nonce == nonce {
        return None;
    }
    match request.want {
        Want::Join => Some(Heard::OthersJoin),
        Want::Leave => Some(Heard::OthersLeave),
        Want::Cost => None,
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.door {
            Door::Udp(socket, _) => socket.as_fd(),
            Door::Http { waker, .. } => waker.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_mediators() {
        for (text, shown) in [
            ("239.255.98.102:9", "239.255.98.102:9"),
            ("10.0.0.1", "10.0.0.1:25190"),
            ("[ff15::6266]", "[ff15::6266]:25190"),
            ("::1", "[::1]:25190"),
            ("http://h:1", "http://h:1/mediator"),
            ("http://h:1/x", "http://h:1/x"),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), shown);
        }
        assert!(matches!("239.1.1.1".parse(), Ok(Address::Group(_))));
        assert!(matches!("10.1.1.1".parse(), Ok(Address::Unicast(_))));
        for wrong in ["", "host", "0.0.0.0", "10.0.0.1:0", "https://h/"] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }
}
