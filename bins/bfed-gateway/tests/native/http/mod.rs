//! HTTP networks: sources, readers and channels.

mod hostile;
mod late;
mod mediator;
mod moq;
mod relay;
mod secure;
mod slow;
mod viewers;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration as StdDuration;

use bfed::native::{ChannelId, Direction, NativeError, Upcall};
use bfed_client::{Url, session_path};
use bfed_gateway::native::{HttpConfig, Network, NetworkConfig, Role};

use crate::common::*;

pub(crate) const EDGE: &str = "127.0.0.1:8081";
pub(crate) const MEDIATOR: &str = "127.0.0.1:8080";

pub(crate) fn config() -> HttpConfig {
    HttpConfig::new(EDGE.parse().unwrap(), MEDIATOR.parse().unwrap())
}

fn edge() -> Box<dyn Network> {
    channels(&NetworkConfig::Http(config()))
}

pub(crate) fn path(session: &str) -> String {
    session_path(name(session).as_str(), 0)
}

/// One request to one server.
pub(crate) struct Client {
    stream: TcpStream,
    /// Bytes that were read and not parsed yet.
    raw: Vec<u8>,
    status: u16,
    pub(crate) location: Option<String>,
    body: Vec<u8>,
    chunked: bool,
    /// Bytes left of the body, or of a chunk and the line end after it.
    left: usize,
    /// The whole answer has been read.
    is_done: bool,
    ended: bool,
}

impl Client {
    pub(crate) fn ask(at: &str, head: &str, body: &[u8]) -> Self {
        let at: SocketAddr = at.parse().unwrap();
        Client::over(TcpStream::connect(at).unwrap(), head, body)
    }

    /// Asks from an address of this host.
    pub(crate) fn ask_from(from: [u8; 4], at: &str, head: &str) -> Self {
        let at: SocketAddr = at.parse().unwrap();
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.unwrap();
        socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
        socket.connect(&at.into()).unwrap();
        Client::over(socket.into(), head, b"")
    }

    fn over(mut stream: TcpStream, head: &str, body: &[u8]) -> Self {
        stream
            .set_read_timeout(Some(StdDuration::from_secs(30)))
            .unwrap();
        stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        Client {
            stream,
            raw: vec![],
            status: 0,
            location: None,
            body: vec![],
            chunked: false,
            left: 0,
            is_done: false,
            ended: false,
        }
    }

    pub(crate) fn get(at: &str, path: &str) -> Self {
        Client::ask(at, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n"), b"")
    }

    pub(crate) fn put(at: &str, path: &str) -> Self {
        let head = format!("PUT {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n");
        Client::ask(at, &head, b"")
    }

    pub(crate) fn chunk(&mut self, bytes: &[u8]) {
        let chunk = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
        self.stream.write_all(&chunk).unwrap();
    }

    /// Ends the body.
    pub(crate) fn end(&mut self) {
        self.stream.write_all(b"0\r\n\r\n").unwrap();
    }

    /// The status of an answer that needs the mediator's driver, which has nothing to decide.
    pub(crate) fn head_while(&mut self, front: &mut dyn Network) -> u16 {
        for _ in 0..100 {
            nothing(front);
            if self.is_answered() {
                break;
            }
        }
        self.head()
    }

    /// Reads once; the end is noted.
    fn read(&mut self) {
        let mut buffer = [0; 8192];
        let len = self.stream.read(&mut buffer).unwrap_or(0);
        self.ended = len == 0;
        self.raw.extend_from_slice(&buffer[..len]);
        while !self.is_done && self.parse() {}
        self.ended |= self.is_done;
    }

    /// Parses the next part of the answer, if it is there.
    fn parse(&mut self) -> bool {
        if self.status == 0 {
            return self.parse_head();
        }
        if self.left == 0 && self.chunked {
            let Ok(httparse::Status::Complete((at, size))) = httparse::parse_chunk_size(&self.raw)
            else {
                return false;
            };
            self.raw.drain(..at);
            self.is_done = size == 0;
            self.left = usize::try_from(size).unwrap() + 2;
            return true;
        }
        let line_end = if self.chunked { 2 } else { 0 };
        let data = self.raw.len().min(self.left.saturating_sub(line_end));
        self.body.extend_from_slice(&self.raw[..data]);
        let used = self.raw.len().min(self.left);
        self.raw.drain(..used);
        self.left -= used;
        self.is_done = self.left == 0 && !self.chunked;
        used > 0
    }

    fn parse_head(&mut self) -> bool {
        let mut fields = [httparse::EMPTY_HEADER; 32];
        let mut head = httparse::Response::new(&mut fields);
        let Ok(httparse::Status::Complete(len)) = head.parse(&self.raw) else {
            return false;
        };
        self.status = head.code.unwrap();
        for field in head.headers.iter() {
            let value = std::str::from_utf8(field.value).unwrap();
            match field.name.to_ascii_lowercase().as_str() {
                "location" => self.location = Some(value.to_owned()),
                "transfer-encoding" => self.chunked = true,
                "content-length" => self.left = value.parse().unwrap(),
                _ => {}
            }
        }
        self.is_done = self.left == 0 && !self.chunked;
        self.raw.drain(..len);
        true
    }

    /// Whether there is something to read.
    fn is_answered(&self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let there = matches!(self.stream.peek(&mut [0]), Ok(1));
        self.stream.set_nonblocking(false).unwrap();
        there
    }

    /// Until the head of the answer is there.
    pub(crate) fn head(&mut self) -> u16 {
        while self.status == 0 && !self.ended {
            self.read();
        }
        self.status
    }

    /// Until the end.
    pub(crate) fn all(&mut self) -> (u16, &[u8]) {
        while !self.ended {
            self.read();
        }
        (self.status, &self.body)
    }

    fn until(&mut self, len: usize) -> &[u8] {
        while self.body.len() < len && !self.ended {
            self.read();
        }
        &self.body
    }
}

/// Waits until a counter has that value.
fn until(network: &dyn Network, what: &str, value: u64) {
    for _ in 0..500 {
        if count(network, what) == value {
            return;
        }
        std::thread::sleep(StdDuration::from_millis(10));
    }
    panic!("{what} is {}", count(network, what));
}

#[test]
fn a_source_is_read_by_players_and_by_the_gateway() {
    alone(|| {
        let mut net = edge();
        let session = "bfed://7/talk";
        let channel = up(&mut *net, &name(session)).unwrap();
        let mut reader = Client::get(EDGE, &path(session));
        assert_eq!(reader.head(), 200);
        let mut source = Client::put(EDGE, &path(session));
        source.chunk(b"hello, ");
        assert_eq!(
            soon(&mut *net),
            (Upcall::Data { channel, len: 7 }, b"hello, ".to_vec())
        );
        let mut other = Client::put(EDGE, &path(session));
        assert_eq!(other.head(), 409, "one source");
        source.chunk(&[b'x'; 20_000]);
        let mut data = vec![];
        while data.len() < 20_000 {
            let (upcall, more) = soon(&mut *net);
            assert!(matches!(
                upcall,
                Upcall::Data {
                    len: 1..=16_384,
                    ..
                }
            ));
            data.extend(more);
        }
        source.stream.write_all(b"0\r\n\r\n").unwrap();
        assert_eq!(source.all(), (200, &b"20007 bytes\n"[..]));
        let (status, body) = reader.all();
        assert_eq!(
            (status, body.len(), &body[..8]),
            (200, 20_007, &b"hello, x"[..])
        );
        until(&*net, "readers", 0);
        // The next source of the session.
        let mut source = Client::put(EDGE, &path(session));
        source.chunk(b"again");
        assert_eq!(soon(&mut *net).1, b"again");
    });
}

#[test]
fn a_session_from_elsewhere_has_a_url() {
    alone(|| {
        let mut net = edge();
        let session = name("bfed://9/239.1.1.1/5004");
        let (channel, url) = down(&mut *net, &session).unwrap();
        assert_eq!(
            url,
            "http://127.0.0.1:8081/s/bfed%3A%2F%2F9%2F239.1.1.1%2F5004"
        );
        assert_eq!(net.send_data(now(), channel, b"to nobody"), Ok(()));
        let url: Url = url.parse().unwrap();
        let mut readers = [Client::get(EDGE, url.path()), Client::get(EDGE, url.path())];
        for reader in &mut readers {
            assert_eq!(reader.head(), 200);
        }
        net.send_data(now(), channel, b"hello").unwrap();
        for reader in &mut readers {
            assert_eq!(reader.until(5), b"hello");
        }
        assert_eq!(
            net.allocate_channel(now(), first_flow(&session, Direction::Down)),
            Err(NativeError::Refused)
        );
        let mut source = Client::put(EDGE, url.path());
        assert_eq!(source.head(), 403, "its source is elsewhere");
        net.reclaim_channel(now(), first_flow(&session, Direction::Down), channel);
        assert_eq!(readers[0].all(), (200, &b"hello"[..]));
        assert!(readers[0].is_done, "a proper end");
        until(&*net, "streams", 0);
    });
}

#[test]
fn sessions_of_many_sources_go_both_ways() {
    alone(|| {
        let mut net = edge();
        let session = name("bfed://9/x/?multi-source=true");
        let (channel, url) = down(&mut *net, &session).unwrap();
        let flow = first_flow(&session, Direction::Down);
        net.subscribe(now(), flow, channel, None).unwrap();
        let url: Url = url.parse().unwrap();
        let mut source = Client::put(EDGE, url.path());
        source.chunk(b"upwards");
        assert_eq!(
            soon(&mut *net),
            (Upcall::Data { channel, len: 7 }, b"upwards".to_vec())
        );
        net.unsubscribe(now(), flow, channel);
        source.chunk(b"unheard");
        nothing(&mut *net);
    });
}

#[test]
fn names_too_long_for_an_address_get_a_short_url() {
    alone(|| {
        let mut net = edge();
        let session = name(&format!("bfed://9/{}", "n".repeat(900)));
        let (channel, url) = down(&mut *net, &session).unwrap();
        assert!(url.len() < 60, "{url}");
        let mut reader = Client::get(EDGE, url.parse::<Url>().unwrap().path());
        assert_eq!(reader.head(), 200);
        net.send_data(now(), channel, b"hello").unwrap();
        assert_eq!(reader.until(5), b"hello");
    });
}

/// Sends up to `limit` frames, until one is not taken because the channel is busy. Returns how many were taken.
fn fill(net: &mut dyn Network, channel: ChannelId, limit: usize) -> usize {
    let frame = [7; 16_384];
    for sent in 0..limit {
        match net.send_data(now(), channel, &frame) {
            Ok(()) => {}
            refused => {
                assert_eq!(refused, Err(NativeError::Busy));
                return sent;
            }
        }
    }
    limit
}

#[test]
fn a_slow_reader_holds_a_bulk_session_back_and_is_cut_off_in_the_end() {
    alone(|| {
        let mut config = config();
        (config.queue, config.idle_timeout) = (1 << 20, StdDuration::from_secs(1));
        let mut net = channels(&NetworkConfig::Http(config));
        let (channel, url) = down(&mut *net, &name("bfed://9/x")).unwrap();
        let url: Url = url.parse().unwrap();
        let mut slow = Client::get(EDGE, url.path());
        assert_eq!(slow.head(), 200);
        let sent = fill(&mut *net, channel, 10_000);
        assert!(sent < 10_000);
        assert_eq!(count(&*net, "frames_dropped_slow_reader"), 0);
        // It reads on: the channel takes data again, and nothing was lost.
        slow.until(sent * 16_384);
        let mut writable = None;
        for _ in 0..100 {
            writable = writable.or_else(|| net.poll_writable());
            std::thread::sleep(StdDuration::from_millis(10));
        }
        assert_eq!((writable, slow.body.len()), (Some(channel), sent * 16_384));
        // It takes nothing more: the session continues without it.
        let mut done = 0;
        while done < 2000 {
            done += fill(&mut *net, channel, 100);
            std::thread::sleep(StdDuration::from_millis(20));
        }
        assert_eq!(count(&*net, "readers_cut_off"), 1);
        slow.all();
        assert!(!slow.is_done, "no proper end");
        until(&*net, "readers", 0);
    });
}

#[test]
fn a_slow_reader_of_a_real_time_session_misses_the_oldest() {
    alone(|| {
        let mut config = config();
        config.queue = 1 << 20;
        let mut net = channels(&NetworkConfig::Http(config));
        let (channel, url) = down(&mut *net, &name("bfed://9/x/?content=real-time")).unwrap();
        let mut slow = Client::get(EDGE, url.parse::<Url>().unwrap().path());
        assert_eq!(slow.head(), 200);
        assert_eq!(fill(&mut *net, channel, 2000), 2000, "nobody holds it back");
        assert!(count(&*net, "frames_dropped_slow_reader") > 500);
        net.send_data(now(), channel, b"newest").unwrap();
        while !slow.body.ends_with(b"newest") {
            assert!(!slow.ended);
            slow.read();
        }
        assert_eq!((slow.body.len() - 6) % 16_384, 0, "whole frames");
    });
}

#[test]
fn data_nodes_read_sources_from_the_origin() {
    alone(|| {
        let config = NetworkConfig::Http(config());
        let origin = channels(&config);
        let second = config.open(Role::Channels { part: 1, parts: 2 }, owner());
        let mut second = started(second.unwrap());
        let session = "bfed://7/talk";
        let channel = up(&mut *second, &name(session)).unwrap();
        let mut refused = Client::put("127.0.0.1:8082", &path(session));
        assert_eq!(refused.head(), 421, "sources send to the origin");
        until(&*origin, "readers", 1);
        let mut source = Client::put(EDGE, &path(session));
        source.chunk(b"hello");
        assert_eq!(
            soon(&mut *second),
            (Upcall::Data { channel, len: 5 }, b"hello".to_vec())
        );
        // A player at any edge.
        let mut player = Client::get("127.0.0.1:8082", &path(session));
        assert_eq!(player.head(), 200);
        source.chunk(b"more");
        assert_eq!(player.until(4), b"more");
        second.unsubscribe(now(), first_flow(&name(session), Direction::Up), channel);
        until(&*origin, "readers", 0);
    });
}

#[test]
fn a_paused_channel_holds_its_source_back() {
    alone(|| {
        let mut net = edge();
        let session = "bfed://7/talk";
        let channel = up(&mut *net, &name(session)).unwrap();
        net.set_paused(channel, true);
        let mut source = Client::put(EDGE, &path(session));
        source.chunk(b"hello");
        nothing(&mut *net);
        net.set_paused(channel, false);
        assert_eq!(soon(&mut *net).1, b"hello");
    });
}

#[test]
fn a_server_listens_at_once_and_serves_once_it_is_driven() {
    // A process gives its privileges up in between, and must have one thread then.
    alone(|| {
        let config = NetworkConfig::Http(config());
        let role = Role::Channels { part: 0, parts: 1 };
        let net = config.open(role, owner()).unwrap();
        let mut early = Client::get(EDGE, "/");
        let short = Some(StdDuration::from_millis(200));
        early.stream.set_read_timeout(short).unwrap();
        assert!(early.stream.read(&mut [0; 10]).is_err());
        let _net = started(net);
        early
            .stream
            .set_read_timeout(Some(StdDuration::from_secs(30)))
            .unwrap();
        assert_eq!(early.head(), 404);
    });
}
