//! A mediator with a DNS name: looked up on a thread, so that neither the data nor the caller waits for DNS.
//!
//! The name is looked up for the first request, and again when two requests had no answer; then the next of its addresses
//! has its turn. Requests in between go to the last address that was found.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{self, Receiver, Sender};

use linux_net::inet::{self, Transmit, UdpSocket};
use linux_net::udp::Batch;
use linux_net::wake::Waker;

use crate::Error;

/// Requests without an answer before the name is looked up again.
const UNANSWERED: u32 = 2;

/// Returns whether text is a DNS name: of letters, digits, hyphens and underscores, and no number in its last label, which
/// would be a mistyped address.
#[must_use]
pub fn is_dns_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let fits = (1..=63).contains(&label.len());
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        fits && label.bytes().all(allowed) && !label.starts_with('-') && !label.ends_with('-')
    };
    let text = text.strip_suffix('.').unwrap_or(text);
    let last = text.rsplit('.').next().unwrap_or_default();
    text.len() <= 253
        && text.split('.').all(is_label)
        && !last.bytes().all(|byte| byte.is_ascii_digit())
}

/// Opens a socket for requests to a host.
pub(crate) fn unicast_socket(to: SocketAddr) -> Result<UdpSocket, Error> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => [0u8; 4].into(),
        SocketAddr::V6(_) => [0u16; 8].into(),
    };
    let config = inet::Config::new(SocketAddr::new(any, 0));
    UdpSocket::open(&config).map_err(|error| Error::Network(error.to_string()))
}

/// Where the name led to.
#[derive(Debug)]
struct Found {
    to: SocketAddr,
    socket: UdpSocket,
    batch: Batch,
}

/// The way to a mediator with a name.
#[derive(Debug)]
pub(crate) struct Named {
    host: String,
    port: u16,
    found: Option<Found>,
    sender: Sender<io::Result<Vec<SocketAddr>>>,
    answers: Receiver<io::Result<Vec<SocketAddr>>>,
    waker: Waker,
    /// A look-up has no result yet.
    is_looking: bool,
    /// The request that waits for the look-up.
    waiting: Option<Vec<u8>>,
    unanswered: u32,
    /// Which of the addresses is next.
    turn: usize,
}

impl Named {
    pub(crate) fn new(host: &str, port: u16) -> Result<Self, Error> {
        let (sender, answers) = mpsc::channel();
        Ok(Named {
            host: host.to_owned(),
            port,
            found: None,
            sender,
            answers,
            waker: Waker::new().map_err(|error| Error::Network(error.to_string()))?,
            is_looking: false,
            waiting: None,
            unanswered: 0,
            turn: 0,
        })
    }

    /// Sends a request, at once or after the look-up.
    pub(crate) fn send(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        if self.is_looking && self.found.is_some() {
            // The address from before is as good as ever.
            let _ = self.update();
        }
        if self.found.is_none() || self.unanswered >= UNANSWERED {
            self.look_up()?;
        }
        self.unanswered += 1;
        match &self.found {
            Some(found) => found.send(&bytes),
            None => {
                self.waiting = Some(bytes);
                Ok(())
            }
        }
    }

    fn look_up(&mut self) -> io::Result<()> {
        if self.is_looking {
            return Ok(());
        }
        let (host, port) = (self.host.clone(), self.port);
        let (sender, waker) = (self.sender.clone(), self.waker.clone());
        let look = move || {
            let found = (host.as_str(), port).to_socket_addrs();
            // The conversation may have ended.
            let _ = sender.send(found.map(Iterator::collect));
            waker.wake();
        };
        let thread = std::thread::Builder::new().name("resolver".into());
        thread.spawn(look)?;
        self.is_looking = true;
        Ok(())
    }

    /// Takes the result of a look-up.
    ///
    /// # Errors
    /// Why requests cannot be sent, where no earlier result can be used.
    pub(crate) fn update(&mut self) -> Result<(), String> {
        // Before the result is taken: the thread wakes after it has sent it.
        self.waker.reset();
        let Ok(found) = self.answers.try_recv() else {
            return Ok(());
        };
        (self.is_looking, self.unanswered) = (false, 0);
        let turn = self.turn;
        self.turn = turn.wrapping_add(1);
        let to = match found {
            Ok(addresses) => usable(&addresses, turn).ok_or_else(|| {
                let host = &self.host;
                format!("{host} has no address of a host")
            }),
            Err(error) => Err(format!("cannot resolve {}: {error}", self.host)),
        };
        let opened = to.and_then(|to| {
            let is_same = self.found.as_ref().is_some_and(|found| found.to == to);
            if !is_same {
                let socket = unicast_socket(to).map_err(|error| error.to_string())?;
                let batch = Batch::new(2);
                self.found = Some(Found { to, socket, batch });
            }
            Ok(())
        });
        match (&self.found, self.waiting.take()) {
            (None, _) => opened,
            (Some(found), Some(bytes)) => found.send(&bytes).map_err(|error| error.to_string()),
            (Some(_), None) => Ok(()),
        }
    }

    /// Reads datagrams of the mediator; `take` says whether one is an answer.
    pub(crate) fn receive(&mut self, mut take: impl FnMut(&[u8]) -> bool) {
        let Some(found) = &mut self.found else {
            return;
        };
        if let Err(error) = found.socket.receive(&mut found.batch) {
            tracing::debug!(%error, "cannot read the mediator's socket");
            return;
        }
        for datagram in found.batch.received() {
            if datagram.source == found.to && take(datagram.payload) {
                self.unanswered = 0;
            }
        }
    }
}

impl AsFd for Named {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // A later look-up is noticed with the next request.
        match &self.found {
            Some(found) => found.socket.as_fd(),
            None => self.waker.as_fd(),
        }
    }
}

impl Found {
    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let sent = self.socket.send(&Transmit {
            source: None,
            destination: self.to,
            bytes,
            segment_len: None,
        });
        sent.map(drop).map_err(io::Error::other)
    }
}

/// One of the addresses of hosts, a later one with each turn.
fn usable(addresses: &[SocketAddr], turn: usize) -> Option<SocketAddr> {
    let is_host = |address: &&SocketAddr| {
        let ip = address.ip().to_canonical();
        !ip.is_unspecified() && !ip.is_multicast()
    };
    let hosts: Vec<&SocketAddr> = addresses.iter().filter(is_host).collect();
    let at = turn.checked_rem(hosts.len())?;
    hosts.get(at).map(|address| **address)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use linux_net::poll::{self, Watch};

    use super::*;

    #[test]
    fn names_are_told_from_mistyped_addresses() {
        for text in ["gw.example.org", "localhost", "a_b-c.example.", "1.example"] {
            assert!(is_dns_name(text), "{text}");
        }
        for text in [
            "",
            ".",
            "10.0.0.300",
            "1234",
            "a..b",
            "-a",
            "a-",
            "a/b",
            "a b",
            "[::1]",
        ] {
            assert!(!is_dns_name(text), "{text}");
        }
        assert!(!is_dns_name(&"a".repeat(64)));
        assert!(!is_dns_name(&["a."; 130].concat()));
    }

    #[test]
    fn an_answer_that_is_no_host_is_not_used() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let all = [
            at("0.0.0.0:1"),
            at("239.1.2.3:1"),
            at("192.0.2.1:1"),
            at("192.0.2.2:1"),
        ];
        let turns = [0, 1, 2, usize::MAX].map(|turn| usable(&all, turn));
        assert_eq!(turns, [2, 3, 2, 3].map(|at| Some(all[at])));
        assert_eq!(usable(&all[..2], 0), None);
    }

    /// Waits until the descriptor is readable.
    fn wait(named: &Named) {
        let mut watch = [Watch::readable(named.as_fd())];
        let limit = Some(Duration::from_secs(10));
        assert_eq!(poll::wait(&mut watch, limit).unwrap(), 1);
    }

    #[test]
    fn a_request_waits_for_the_look_up_and_its_answer_comes_from_there() {
        // At the first address of the name, of either version of IP.
        let mediator = std::net::UdpSocket::bind("localhost:0").unwrap();
        let port = mediator.local_addr().unwrap().port();
        let mut named = Named::new("localhost", port).unwrap();
        named.send(b"first".to_vec()).unwrap();
        wait(&named);
        named.update().unwrap();
        let mut buffer = [0; 100];
        let (len, from) = mediator.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], b"first");
        mediator.send_to(b"answer", from).unwrap();
        wait(&named);
        let mut answers = Vec::new();
        named.receive(|bytes| {
            answers.push(bytes.to_vec());
            true
        });
        assert_eq!((answers, named.unanswered), (vec![b"answer".to_vec()], 0));
        // Two requests without an answer: the name is looked up again, and requests go on meanwhile.
        for _ in 0..3 {
            named.send(b"again".to_vec()).unwrap();
            mediator.recv_from(&mut buffer).unwrap();
        }
        while named.is_looking {
            named.update().unwrap();
            std::thread::yield_now();
        }
        assert_eq!(named.unanswered, 0);
    }

    #[test]
    fn a_name_that_does_not_exist_is_an_error_and_is_tried_again() {
        let mut named = Named::new("mediator.invalid", 1).unwrap();
        for _ in 0..2 {
            named.send(b"x".to_vec()).unwrap();
            wait(&named);
            let why = named.update().unwrap_err();
            assert!(why.contains("cannot resolve mediator.invalid"), "{why}");
        }
    }
}
