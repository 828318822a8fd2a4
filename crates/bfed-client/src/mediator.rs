//! Requests to a mediator, and its answers.

use core::fmt;
use core::str::FromStr;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{self, Receiver, Sender};

use bfed::SessionName;
use bfed::wire::client::{AnswerRepr, Request, Token, Want};
use bfed::wire::notification::{Reason, Repr as Notification};
use hyper::body::Bytes;
use linux_net::inet::{self, Membership, Transmit, UdpSocket};
use linux_net::link;
use linux_net::udp::Batch;
use linux_net::wake::Waker;

use crate::address::{MEDIATOR_PORT, PADDED_LEN};
use crate::credential::Credential;
use crate::http::{self, Timeouts};
use crate::named::{Named, is_dns_name, unicast_socket};
use crate::{Error, JoinOptions, Url, stream};

/// Longest answer over HTTP in bytes.
const MAX_ANSWER: usize = 64 << 10;

/// The address of a mediator: `239.255.98.102:25190`, `10.0.0.1`, `gw.example.org`, `http://host:8080`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// The group of the mediators of an IP multicast network.
    Group(SocketAddr),
    /// A host of a source-specific multicast network; UDP.
    Unicast(SocketAddr),
    /// The same, by a DNS name, which is looked up when it is needed.
    Named {
        /// The name.
        host: String,
        /// The port.
        port: u16,
    },
    /// A server of an HTTP network.
    Http(Url),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with("http") {
            let wrong = |error: crate::UrlError| error.to_string();
            let url: Url = text.parse().map_err(wrong)?;
            // The server's mediator, unless the URL names a path.
            let path = match url.path() {
                "/" => "/mediator",
                other => other,
            };
            return url.with_path(path).map(Address::Http).map_err(wrong);
        }
        let bare = text.trim_start_matches('[').trim_end_matches(']');
        let address = match (text.parse::<SocketAddr>(), bare.parse::<IpAddr>()) {
            (Ok(address), _) => address,
            (_, Ok(ip)) => SocketAddr::new(ip, MEDIATOR_PORT),
            _ => return named(text),
        };
        if address.port() == 0 || address.ip().is_unspecified() {
            return Err(format!(
                "{text:?} is no mediator: an unspecified address or port 0"
            ));
        }
        Ok(match address.ip().is_multicast() {
            true => Address::Group(address),
            false => Address::Unicast(address),
        })
    }
}

/// Parses `gw.example.org` or `gw.example.org:25190`.
fn named(text: &str) -> Result<Address, String> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().unwrap_or(0)),
        None => (text, MEDIATOR_PORT),
    };
    match is_dns_name(host) && port != 0 {
        true => Ok(Address::Named {
            host: host.to_ascii_lowercase(),
            port,
        }),
        false => Err(format!(
            "{text:?} is no mediator: write 239.255.98.102:25190, 10.0.0.1, gw.example.org or http://host:8080"
        )),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Group(address) | Address::Unicast(address) => address.fmt(f),
            Address::Named { host, port } => write!(f, "{host}:{port}"),
            Address::Http(url) => url.fmt(f),
        }
    }
}

/// A message of a mediator, or of another client that asks it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// An answer for this client's session.
    Answer(AnswerRepr),
    /// Another client asks for the same session.
    OtherJoins,
    /// Another client leaves it.
    OtherLeaves,
    /// A gateway speaks another version, and says so.
    OtherVersion(String),
    /// The request failed.
    Failed(String),
}

#[derive(Debug)]
enum Transport {
    Udp(UdpSocket, Batch),
    Named(Named),
    Http {
        sender: Sender<Result<Bytes, String>>,
        answers: Receiver<Result<Bytes, String>>,
        waker: Waker,
        /// A request has no answer yet.
        pending: bool,
    },
}

/// A conversation with one mediator about one session.
#[derive(Debug)]
pub(crate) struct Conversation {
    pub(crate) address: Address,
    transport: Transport,
    session: SessionName,
    token: Option<Token>,
    nonce: u32,
    timeouts: Timeouts,
}

/// Returns the index of the interface with a name or an address; 0 without one, where the routes decide.
fn interface_index(name: Option<&str>) -> Result<u32, Error> {
    let Some(name) = name else { return Ok(0) };
    Ok(link::find_named(name)?.index)
}

/// Opens a socket that is to join a group, or sends to one; also returns the index of its interface.
pub(crate) fn group_socket(
    bind: SocketAddr,
    interface: Option<&str>,
    ttl: u8,
) -> Result<(UdpSocket, u32), Error> {
    let interface = interface_index(interface)?;
    let config = inet::Config {
        interface,
        ttl,
        loopback: true,
        ..inet::Config::new(bind)
    };
    let socket = UdpSocket::open(&config);
    let socket = socket.map_err(|error| Error::Network(format!("{bind}: {error}")))?;
    Ok((socket, interface))
}

/// Opens a socket that receives a group.
pub(crate) fn listen(
    group: SocketAddr,
    source: Option<IpAddr>,
    interface: Option<&str>,
) -> Result<UdpSocket, Error> {
    let (socket, interface) = group_socket(group, interface, 16)?;
    let membership = Membership {
        group: group.ip(),
        source,
        interface,
    };
    let joined = socket.join(&membership);
    joined.map_err(|error| Error::Network(format!("group {group}: {error}")))?;
    Ok(socket)
}

impl Conversation {
    pub(crate) fn open(
        address: Address,
        options: &JoinOptions,
        credential: &Credential,
        nonce: u32,
    ) -> Result<Self, Error> {
        let transport = match &address {
            Address::Group(group) => Transport::Udp(
                listen(*group, None, options.interface.as_deref())?,
                Batch::new(2),
            ),
            Address::Unicast(to) => Transport::Udp(unicast_socket(*to)?, Batch::new(2)),
            Address::Named { host, port } => Transport::Named(Named::new(host, *port)?),
            Address::Http(_) => {
                let (sender, answers) = mpsc::channel();
                let waker = Waker::new().map_err(|error| Error::Network(error.to_string()))?;
                Transport::Http {
                    sender,
                    answers,
                    waker,
                    pending: false,
                }
            }
        };
        let token = credential.for_mediator(&address);
        Ok(Conversation {
            address,
            transport,
            session: options.session.clone(),
            token,
            nonce,
            timeouts: options.timeouts,
        })
    }

    /// Whether other clients ask at the same address: then requests are damped.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.address, Address::Group(_))
    }

    /// Sends a request; returns whether it was sent.
    pub(crate) fn ask(&mut self, want: Want, redirects: u8) -> bool {
        let request = Request {
            nonce: self.nonce,
            want,
            redirects,
            session: self.session.clone(),
            token: self.token.clone().filter(|_| want != Want::Leave),
        };
        let mut bytes = vec![0; request.buffer_len()];
        request.emit(&mut bytes);
        match (&mut self.transport, &self.address) {
            (Transport::Udp(socket, _), Address::Group(to) | Address::Unicast(to)) => {
                if matches!(self.address, Address::Unicast(_)) {
                    pad(&mut bytes, &self.session);
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
                    tracing::warn!(event = "request_not_sent", mediator = %self.address, %error, "cannot send the request");
                }
                sent.is_ok()
            }
            (Transport::Named(named), _) => {
                pad(&mut bytes, &self.session);
                let sent = named.send(bytes);
                if let Err(error) = &sent {
                    tracing::warn!(event = "request_not_sent", mediator = %self.address, %error, "cannot send the request");
                }
                sent.is_ok()
            }
            (
                Transport::Http {
                    sender,
                    waker,
                    pending,
                    ..
                },
                Address::Http(url),
            ) => {
                if core::mem::replace(pending, want != Want::Leave) {
                    return false;
                }
                let (sender, waker, url) = (sender.clone(), waker.clone(), url.clone());
                let timeouts = self.timeouts;
                let ask = move || {
                    let answer = post(&url, bytes, &timeouts);
                    if want != Want::Leave {
                        let _ = sender.send(answer);
                        waker.wake();
                    }
                };
                match want {
                    // The caller does not wait for an answer.
                    Want::Leave => ask(),
                    _ => {
                        let thread = std::thread::Builder::new().name("mediator".into());
                        if let Err(error) = thread.spawn(ask) {
                            tracing::warn!(event = "thread_failed", %error, "cannot spawn a thread that asks the mediator");
                            *pending = false;
                            return false;
                        }
                    }
                }
                true
            }
            _ => false,
        }
    }

    /// Returns the messages that have arrived.
    pub(crate) fn receive(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        match &mut self.transport {
            Transport::Udp(socket, batch) => {
                if let Err(error) = socket.receive(batch) {
                    tracing::debug!(%error, "cannot read the mediator's socket");
                    return messages;
                }
                for datagram in batch.received() {
                    let from = match self.address {
                        Address::Unicast(mediator) => datagram.source == mediator,
                        _ => true,
                    };
                    if let Some(one) = classify(datagram.payload, &self.session, self.nonce)
                        && from
                    {
                        messages.push(one);
                    }
                }
            }
            Transport::Named(named) => {
                if let Err(why) = named.update() {
                    messages.push(Message::Failed(why));
                }
                let (session, nonce) = (&self.session, self.nonce);
                named.receive(|payload| {
                    let one = classify(payload, session, nonce);
                    let is_answer = one.is_some();
                    messages.extend(one);
                    is_answer
                });
            }
            Transport::Http {
                answers,
                waker,
                pending,
                ..
            } => {
                waker.reset();
                while let Ok(answer) = answers.try_recv() {
                    *pending = false;
                    messages.push(match answer {
                        Ok(bytes) => match classify(&bytes, &self.session, self.nonce) {
                            Some(answer @ Message::Answer(_)) => answer,
                            _ => Message::Failed(format!("{}: not an answer", self.address)),
                        },
                        Err(why) => Message::Failed(why),
                    });
                }
            }
        }
        messages
    }
}

/// Pads a request to a unicast address: no answer is longer.
fn pad(bytes: &mut Vec<u8>, session: &SessionName) {
    let room = PADDED_LEN.max(bytes.len() + 64 * (1 + session.flow_count()));
    bytes.resize(room, 0);
}

/// Posts a request; the body of the answer.
fn post(url: &Url, bytes: Vec<u8>, timeouts: &Timeouts) -> Result<Bytes, String> {
    let answer = match stream::block_on(http::post(url, bytes, MAX_ANSWER, timeouts)) {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    answer.map_err(|why| format!("{url}: {why}"))
}

/// A text from the network, without control characters.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

/// What a message means to the client that asks for that session with that nonce.
fn classify(bytes: &[u8], session: &SessionName, nonce: u32) -> Option<Message> {
    if let Ok(answer) = AnswerRepr::parse(bytes) {
        let fits = answer.session == *session && [0, nonce].contains(&answer.nonce);
        return fits.then_some(Message::Answer(answer));
    }
    if let Ok(why) = Notification::parse(bytes) {
        let is_version = why.reason == Reason::Version;
        return is_version.then(|| Message::OtherVersion(printable(&why.text)));
    }
    let request = Request::parse(bytes).ok()?;
    if request.session != *session || request.nonce == nonce {
        return None;
    }
    match request.want {
        Want::Join => Some(Message::OtherJoins),
        Want::Leave => Some(Message::OtherLeaves),
        Want::Cost => None,
    }
}

impl AsFd for Conversation {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.transport {
            Transport::Udp(socket, _) => socket.as_fd(),
            Transport::Named(named) => named.as_fd(),
            Transport::Http { waker, .. } => waker.as_fd(),
        }
    }
}
