//! A session's data in the native network: from a group, or over HTTP.

use core::fmt;
use core::str::FromStr;
use std::os::fd::{AsFd, BorrowedFd};

use linux_net::inet::UdpSocket;
use linux_net::udp::Batch;

use crate::credential::Credential;
use crate::http::Timeouts;
use crate::stream::{Download, Piece};
use crate::{Error, GroupAddress, Url, mediator};

/// Most pieces of a stream in one read.
const PIECES: usize = 16;

/// Where the data of a session is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// A group, any-source or source-specific.
    Group(GroupAddress),
    /// A URL at a server.
    Http(Url),
    /// A group of LTP: `ltp://10.0.0.1@239.255.0.0:5004`. The data is received by an LTP receiver, such as `lms-recv`.
    Ltp(GroupAddress),
}

/// Begins the address of a group of LTP.
const LTP: &str = "ltp://";

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |_| format!("{text:?} is no address");
        if let Some(group) = text.strip_prefix(LTP) {
            return group.parse().map(Place::Ltp).map_err(wrong);
        }
        match text.starts_with("http://") {
            true => text
                .parse()
                .map(Place::Http)
                .map_err(|error: crate::UrlError| error.to_string()),
            false => text.parse().map(Place::Group).map_err(wrong),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Group(group) => group.fmt(f),
            Place::Http(url) => url.fmt(f),
            Place::Ltp(group) => write!(f, "{LTP}{group}"),
        }
    }
}

/// The result of a read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// More may come.
    Open,
    /// The stream has come to its end.
    Ended,
    /// The stream broke.
    Broken(String),
}

/// The data.
#[derive(Debug)]
pub(crate) enum Input {
    Group(UdpSocket, Batch),
    Http(Download),
}

impl Input {
    pub(crate) fn open(
        place: &Place,
        interface: Option<&str>,
        credential: Credential,
        timeouts: Timeouts,
    ) -> Result<Input, Error> {
        match place {
            Place::Group(address) => {
                let socket = mediator::listen(address.group, address.source, interface)?;
                Ok(Input::Group(socket, Batch::new(8)))
            }
            Place::Http(url) => match Download::open(url.clone(), credential, timeouts) {
                Ok(download) => Ok(Input::Http(download)),
                Err(error) => Err(Error::Network(format!("{url}: {error}"))),
            },
            Place::Ltp(group) => Err(Error::NeedsLtp(*group)),
        }
    }

    /// Reads a bounded part of the received data and passes on each datagram, or piece of a stream.
    pub(crate) fn read(&mut self, mut take: impl FnMut(&[u8])) -> Outcome {
        match self {
            Input::Group(socket, batch) => {
                if let Err(error) = socket.receive(batch) {
                    return Outcome::Broken(error.to_string());
                }
                batch.received().for_each(|datagram| take(datagram.payload));
                Outcome::Open
            }
            Input::Http(download) => {
                download.clear_wakeup();
                for _ in 0..PIECES {
                    match download.next() {
                        Some(Piece::Data(data)) => take(&data),
                        Some(Piece::End) => return Outcome::Ended,
                        Some(Piece::Broken(why)) => return Outcome::Broken(why),
                        None => return Outcome::Open,
                    }
                }
                download.wake();
                Outcome::Open
            }
        }
    }
}

impl AsFd for Input {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Input::Group(socket, _) => socket.as_fd(),
            Input::Http(download) => download.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in [
            "239.1.2.3:5004",
            "10.0.0.1@232.1.2.3:5004",
            "http://cdn.example:8081/s/x",
            "ltp://10.0.0.1@239.255.0.0:5004",
            "ltp://239.255.0.0:5004",
            "ltp://[2001:db8::1]@[ff15::1]:5004",
        ] {
            let place = text.parse::<Place>().expect(text);
            assert_eq!(place.to_string(), text);
        }
        for text in [
            "",
            "ltp://",
            "ltp://10.0.0.1:5004",
            "ltp:239.255.0.0:5004",
            "x",
        ] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
