//! HTTP networks.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration as StdDuration;

use bfed::native::{ChannelId, Direction, NativeError, Upcall};
use bfed::wire::client::{Answer, AnswerRepr, Want};
use bfed::wire::no_route::Reason;
use bfed::{ChannelAddress, Cost, Scope, SessionName};
use bfed_client::{Url, session_path};
use bfed_gateway::native::{ClientLimits, HttpConfig, Network, NetworkConfig, Role};

use linux_net::link::Editor;

use crate::common::*;

const EDGE: &str = "127.0.0.1:8081";
const MEDIATOR: &str = "127.0.0.1:8080";

fn config() -> HttpConfig {
    HttpConfig::new(EDGE.parse().unwrap(), MEDIATOR.parse().unwrap())
}

fn edge() -> Box<dyn Network> {
    channels(&NetworkConfig::Http(config()))
}

fn path(session: &str) -> String {
    session_path(name(session).as_str(), 0)
}

/// One request to one server.
struct Client {
    stream: TcpStream,
    /// Bytes that were read and not parsed yet.
    raw: Vec<u8>,
    status: u16,
    location: Option<String>,
    body: Vec<u8>,
    chunked: bool,
    /// Bytes left of the body, or of a chunk and the line end after it.
    left: usize,
    /// The whole answer has been read.
    is_done: bool,
    ended: bool,
}

impl Client {
    fn ask(at: &str, head: &str, body: &[u8]) -> Self {
        let at: SocketAddr = at.parse().unwrap();
        let mut stream = TcpStream::connect(at).unwrap();
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

    fn get(at: &str, path: &str) -> Self {
        Client::ask(at, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n"), b"")
    }

    fn put(at: &str, path: &str) -> Self {
        let head = format!("PUT {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n");
        Client::ask(at, &head, b"")
    }

    fn chunk(&mut self, bytes: &[u8]) {
        let chunk = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
        self.stream.write_all(&chunk).unwrap();
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
    fn head(&mut self) -> u16 {
        while self.status == 0 && !self.ended {
            self.read();
        }
        self.status
    }

    /// Until the end.
    fn all(&mut self) -> (u16, &[u8]) {
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

/// A server takes notice of who comes and goes by and by.
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
            net.allocate_channel(now(), &session, "5004", Direction::Down),
            Err(NativeError::Refused)
        );
        let mut source = Client::put(EDGE, url.path());
        assert_eq!(source.head(), 403, "its source is elsewhere");
        net.reclaim_channel(now(), &session, "5004", Direction::Down, channel);
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
        net.subscribe(now(), &session, "", Direction::Down, channel, None)
            .unwrap();
        let url: Url = url.parse().unwrap();
        let mut source = Client::put(EDGE, url.path());
        source.chunk(b"upwards");
        assert_eq!(
            soon(&mut *net),
            (Upcall::Data { channel, len: 7 }, b"upwards".to_vec())
        );
        net.unsubscribe(now(), &session, "", Direction::Down, channel);
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

/// Sends frames until the channel is busy, or `most` were sent.
fn fill(net: &mut dyn Network, channel: ChannelId, most: usize) -> usize {
    let frame = [7; 16_384];
    (0..most)
        .take_while(|_| net.send_data(now(), channel, &frame) == Ok(()))
        .count()
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
        assert_eq!(net.send_data(now(), channel, b"x"), Err(NativeError::Busy));
        assert_eq!(count(&*net, "frames_dropped_slow_reader"), 0);
        // It reads on: the channel takes data again, and nothing was lost.
        slow.until(sent * 16_384);
        let mut writable = None;
        for _ in 0..100 {
            writable = writable.or_else(|| net.poll_writable());
            std::thread::sleep(StdDuration::from_millis(10));
        }
        assert_eq!((writable, slow.body.len()), (Some(channel), sent * 16_384));
        // It takes nothing for good: the session goes on without it.
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
fn the_mediator_answers_in_the_body() {
    alone(|| {
        let mut front = mediator(&NetworkConfig::Http(config()));
        let session = name("bfed://9/x");
        let post = |body: &[u8]| {
            let len = body.len();
            let head = format!("POST /mediator HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\n");
            Client::ask(MEDIATOR, &head, body)
        };
        let mut asks = [
            post(&request(Want::Cost, 5, &session)),
            post(&request(Want::Join, 6, &session)),
        ];
        for _ in 0..2 {
            let Upcall::Join {
                client,
                scope: Scope::Chosen,
                cost_only,
                ..
            } = soon(&mut *front).0
            else {
                panic!();
            };
            let told = match cost_only {
                true => Answer::Cost(Cost(4)),
                false => {
                    Answer::Translation(vec![ChannelAddress::Native(b"http://h/s/x".to_vec())])
                }
            };
            front.answer(now(), Some(client), &answer(told, &session));
        }
        let heard = asks
            .each_mut()
            .map(|ask| AnswerRepr::parse(ask.all().1).unwrap());
        assert_eq!(
            (heard[0].nonce, &heard[0].answer),
            (5, &Answer::Cost(Cost(4)))
        );
        assert_eq!((heard[1].nonce, heard[1].lifetime_s), (6, 100));
        let mut leave = post(&request(Want::Leave, 6, &session));
        assert_eq!(soon(&mut *front).0, Upcall::Leave(session));
        assert_eq!(leave.all().0, 200);
        assert_eq!(post(b"nonsense").head(), 400);
        assert_eq!(post(&[0; 5000]).head(), 413);
        assert_eq!(Client::get(MEDIATOR, "/elsewhere").head(), 404);
        assert_eq!(count(&*front, "requests_malformed"), 1);
    });
}

#[test]
fn a_player_that_knows_the_mediator_alone_is_led_to_an_edge() {
    alone(|| {
        let mut front = mediator(&NetworkConfig::Http(config()));
        for (session, told, expected) in [
            (
                "bfed://9/x",
                Answer::Translation(vec![ChannelAddress::Native(b"http://h:1/s/x".to_vec())]),
                Ok("http://h:1/s/x".to_owned()),
            ),
            (
                "bfed://7/x",
                Answer::NoRoute(Reason::Local),
                Ok(format!("http://{EDGE}{}", path("bfed://7/x"))),
            ),
            ("bfed://9/y", Answer::NoRoute(Reason::Unreachable), Err(404)),
        ] {
            let mut player = Client::get(MEDIATOR, &path(session));
            let Upcall::Join { client, .. } = soon(&mut *front).0 else {
                panic!();
            };
            front.answer(now(), Some(client), &answer(told, &name(session)));
            match (player.head(), expected) {
                (307, Ok(to)) => assert_eq!(player.location, Some(to)),
                (status, Err(expected)) => assert_eq!(status, expected),
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn an_edge_asks_the_mediator_for_what_it_has_not() {
    alone(|| {
        let (mut net, mut front) = (edge(), mediator(&NetworkConfig::Http(config())));
        let session = name("bfed://9/x");
        let mut player = Client::get(EDGE, &path("bfed://9/x"));
        let Upcall::Join {
            client,
            session: wanted,
            ..
        } = soon(&mut *front).0
        else {
            panic!();
        };
        assert_eq!(wanted, session);
        let (channel, url) = down(&mut *net, &session).unwrap();
        let address = ChannelAddress::Native(url.into_bytes());
        front.answer(
            now(),
            Some(client),
            &answer(Answer::Translation(vec![address]), &session),
        );
        assert_eq!(player.head(), 200);
        net.send_data(now(), channel, b"hello").unwrap();
        assert_eq!(player.until(5), b"hello");
    });
}

/// The control node has a channel allocated while it joins the tree. A player that comes then gets the control
/// node's answer, not a stream that ends at once.
#[test]
fn a_session_that_may_be_refused_is_not_served_before_the_mediator_answers() {
    alone(|| {
        let (mut net, mut front) = (edge(), mediator(&NetworkConfig::Http(config())));
        let session = name("bfed://9/x");
        let (channel, url) = down(&mut *net, &session).unwrap();
        // Both ask at once: one answer serves both.
        let ask = || Client::get(EDGE, &path("bfed://9/x"));
        let mut players = [ask(), ask()];
        let Upcall::Join { client, .. } = soon(&mut *front).0 else {
            panic!();
        };
        for _ in 0..100 {
            nothing(&mut *front);
            if count(&*front, "requests_damped") == 1 {
                break;
            }
        }
        let refused = Answer::NoRoute(Reason::Limit);
        front.answer(now(), Some(client), &answer(refused, &session));
        for player in &mut players {
            assert_eq!(player.head(), 503);
            let text = String::from_utf8_lossy(player.all().1).into_owned();
            assert!(text.contains("no route to the session"), "{text}");
        }
        // The next one asks again.
        let mut player = ask();
        let Upcall::Join { client, .. } = soon(&mut *front).0 else {
            panic!();
        };
        let address = ChannelAddress::Native(url.into_bytes());
        let served = Answer::Translation(vec![address]);
        front.answer(now(), Some(client), &answer(served, &session));
        assert_eq!(player.head(), 200);
        // Once data has come no player asks.
        net.send_data(now(), channel, b"hello").unwrap();
        assert_eq!(player.until(5), b"hello");
        assert_eq!(ask().head(), 200);
        nothing(&mut *front);
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
        second.unsubscribe(now(), &name(session), "", Direction::Up, channel);
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
fn connections_are_bounded_and_the_silent_are_sent_away() {
    alone(|| {
        let mut config = config();
        config.max_connections = 2;
        let _net = channels(&NetworkConfig::Http(config));
        // Half a head each, and no more.
        let mut silent: Vec<TcpStream> = (0..2)
            .map(|_| {
                let mut stream = TcpStream::connect(EDGE).unwrap();
                stream.write_all(b"GET /s/x HTTP/1.1\r\nHost:").unwrap();
                stream
            })
            .collect();
        std::thread::sleep(StdDuration::from_millis(200));
        let mut third = Client::get(EDGE, "/");
        third
            .stream
            .set_read_timeout(Some(StdDuration::from_millis(200)))
            .unwrap();
        assert!(third.stream.read(&mut [0; 10]).is_err(), "not served yet");
        third
            .stream
            .set_read_timeout(Some(StdDuration::from_secs(30)))
            .unwrap();
        assert_eq!(third.head(), 404, "once the silent are gone");
        for stream in &mut silent {
            stream
                .set_read_timeout(Some(StdDuration::from_secs(30)))
                .unwrap();
            let mut rest = vec![];
            let _ = stream.read_to_end(&mut rest);
        }
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

#[test]
fn hostile_requests_end_and_nothing_else_does() {
    alone(|| {
        let net = edge();
        let long = format!("GET /{} HTTP/1.1\r\nHost: x\r\n", "x".repeat(200_000));
        let many = format!("GET / HTTP/1.1\r\n{}", "A: b\r\n".repeat(1000));
        for head in [long.as_str(), &many, "\x16\x03\x01\x02", "GET / SPDY/9\r\n"] {
            let mut stream = TcpStream::connect(EDGE).unwrap();
            stream
                .set_read_timeout(Some(StdDuration::from_secs(30)))
                .unwrap();
            // The server may end it before all is written.
            let _ = stream
                .write_all(head.as_bytes())
                .and_then(|()| stream.write_all(b"\r\n"));
            let mut answer = vec![];
            let _ = stream.read_to_end(&mut answer);
            assert!(
                answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"),
                "{answer:?}"
            );
        }
        for path in [
            "/s/",
            "/s/http%3A%2F%2Fx",
            "/s/bfed%3A%2F%2F7%2Fx/1",
            "/c/99",
            "/c/x",
            "/s/%ff",
        ] {
            assert_eq!(Client::get(EDGE, path).head(), 404, "{path}");
        }
        let delete = format!("DELETE {} HTTP/1.1\r\nHost: x\r\n", path("bfed://7/x"));
        assert_eq!(Client::ask(EDGE, &delete, b"").head(), 405);
        assert_eq!(Client::put(EDGE, &path("bfed://9/x")).head(), 403);
        // A source that breaks off in the middle of a chunk.
        let mut source = Client::put(EDGE, &path("bfed://7/x"));
        source.stream.write_all(b"ff\r\nhalf").unwrap();
        drop(source);
        until(&*net, "streams", 0);
    });
}

#[test]
fn floods_of_requests_are_turned_away_by_503() {
    alone(|| {
        let mut config = config();
        config.limits = ClientLimits {
            clients: 2,
            requests_per_second: 100,
        };
        let mut front = mediator(&NetworkConfig::Http(config));
        let mut asks: Vec<Client> = (1..=5)
            .map(|nonce| {
                let session: SessionName = name(&format!("bfed://9/{nonce}"));
                let body = request(Want::Join, nonce, &session);
                let head = format!(
                    "POST /mediator HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n",
                    body.len()
                );
                Client::ask(MEDIATOR, &head, &body)
            })
            .collect();
        for _ in 0..2 {
            assert!(matches!(soon(&mut *front).0, Upcall::Join { .. }));
        }
        for _ in 0..100 {
            nothing(&mut *front);
            if asks.iter().filter(|ask| ask.is_answered()).count() == 3 {
                break;
            }
        }
        assert_eq!(count(&*front, "requests_no_room"), 3);
        drop(front);
        let refused = asks
            .iter_mut()
            .filter_map(|ask| (ask.head() == 503).then_some(()))
            .count();
        assert_eq!(refused, 3);
    });
}

#[test]
fn hosts_that_are_not_listed_are_no_sources() {
    alone(|| {
        let mut editor = Editor::open().unwrap();
        let lo = editor.index("lo").unwrap();
        let host = std::net::Ipv4Addr::new(192, 0, 2, 1);
        editor.add_address(lo, host, 32).unwrap();
        let edge = "192.0.2.1:8081";
        let session = path("bfed://7/film");
        let open = |publish: &[&str]| {
            let mut config = HttpConfig::new(edge.parse().unwrap(), MEDIATOR.parse().unwrap());
            if !publish.is_empty() {
                config.publish = publish.iter().map(|text| text.parse().unwrap()).collect();
            }
            channels(&NetworkConfig::Http(config))
        };
        // The client connects from the address that it connects to.
        for (publish, status) in [
            (&[][..], 403),
            (&["192.0.2.0/30"][..], 200),
            (&["10.0.0.0/8"][..], 403),
        ] {
            let _net = open(publish);
            for method in ["PUT", "POST"] {
                let head =
                    format!("{method} {session} HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n");
                let mut source = Client::ask(edge, &head, b"film");
                assert_eq!(source.head(), status, "{method} {publish:?}");
            }
        }
        // On loopback, by default.
        let _net = self::edge();
        let mut source = Client::ask(
            EDGE,
            &format!("PUT {session} HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"),
            b"film",
        );
        assert_eq!(source.head(), 200);
    });
}
