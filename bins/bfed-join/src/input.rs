//! A session's data in the native network: from a group, or over HTTP.

use core::fmt;
use core::str::FromStr;
use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use cli::federation::GroupAddress;
use cli::federation::http::{Part, Reader, Url};
use linux_net::inet::UdpSocket;
use linux_net::udp::Batch;

use crate::{http, mediator};

/// Most redirections from server to server.
const MAX_REDIRECTS: usize = 5;

/// Where the data is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Group(GroupAddress),
    Http(Url),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.starts_with("http://") {
            true => text.parse().map(Place::Http),
            false => text
                .parse()
                .map(Place::Group)
                .map_err(|_| format!("{text:?} is no address")),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Group(group) => group.fmt(f),
            Place::Http(url) => url.fmt(f),
        }
    }
}

/// What became of a read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// More may come.
    Open,
    /// The stream has come to its end.
    Ended,
    /// It broke.
    Broken(String),
}

/// The data.
pub(crate) enum Input {
    Group(UdpSocket, Batch),
    Http {
        url: Url,
        stream: TcpStream,
        reader: Reader,
        redirects: usize,
    },
}

impl Input {
    pub(crate) fn open(place: &Place, interface: Option<&str>) -> Result<Input, String> {
        match place {
            Place::Group(address) => {
                let socket = mediator::listen(address.group, address.source, interface)?;
                Ok(Input::Group(socket, Batch::new(8)))
            }
            Place::Http(url) => Input::get(url.clone(), 0),
        }
    }

    fn get(url: Url, redirects: usize) -> Result<Input, String> {
        let opened = http::open(&url, "GET", "").and_then(|stream| {
            stream.set_nonblocking(true)?;
            Ok(stream)
        });
        let stream = opened.map_err(|error| format!("{url}: {error}"))?;
        Ok(Input::Http {
            url,
            stream,
            reader: Reader::default(),
            redirects,
        })
    }

    /// Reads what is there, a bounded part of it: each datagram, or piece of a stream, by itself.
    pub(crate) fn read(&mut self, mut take: impl FnMut(&[u8])) -> Outcome {
        match self {
            Input::Group(socket, batch) => {
                if let Err(error) = socket.receive(batch) {
                    return Outcome::Broken(error.to_string());
                }
                batch.received().for_each(|datagram| take(datagram.payload));
                Outcome::Open
            }
            Input::Http {
                url,
                stream,
                reader,
                redirects,
            } => {
                let mut buffer = [0; 65_536];
                let len = match stream.read(&mut buffer) {
                    Ok(len) => len,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Outcome::Open,
                    Err(error) if error.kind() == ErrorKind::Interrupted => return Outcome::Open,
                    Err(error) => return Outcome::Broken(format!("{url}: {error}")),
                };
                if len == 0 {
                    return match reader.finish() {
                        Ok(()) => Outcome::Ended,
                        Err(error) => Outcome::Broken(format!("{url}: {error}")),
                    };
                }
                let mut rest = &buffer[..len];
                while !rest.is_empty() {
                    let (used, part) = match reader.feed(rest) {
                        Ok(fed) => fed,
                        Err(error) => return Outcome::Broken(format!("{url}: {error}")),
                    };
                    match part {
                        Some(Part::Head(head)) if head.status == 200 => {}
                        Some(Part::Head(head)) => {
                            let to = head.location.filter(|_| (301..=308).contains(&head.status));
                            let moved = match to {
                                Some(to) if *redirects < MAX_REDIRECTS => url.follow(&to),
                                Some(_) => Err(format!("more than {MAX_REDIRECTS} redirections")),
                                None => Err(format!("status {}", head.status)),
                            };
                            let moved = moved.and_then(|url| Input::get(url, *redirects + 1));
                            return match moved {
                                Ok(input) => {
                                    *self = input;
                                    Outcome::Open
                                }
                                Err(why) => Outcome::Broken(format!("{url}: {why}")),
                            };
                        }
                        Some(Part::Data(range)) => take(&rest[range]),
                        None => {}
                    }
                    rest = &rest[used..];
                }
                match reader.is_done() {
                    true => Outcome::Ended,
                    false => Outcome::Open,
                }
            }
        }
    }
}

impl AsFd for Input {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Input::Group(socket, _) => socket.as_fd(),
            Input::Http { stream, .. } => stream.as_fd(),
        }
    }
}
