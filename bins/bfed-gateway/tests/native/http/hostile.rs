//! Limits of HTTP networks, and requests that are refused.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration as StdDuration;

use bfed::SessionName;
use bfed::native::Upcall;
use bfed::wire::client::Want;
use bfed_gateway::native::{ClientLimits, HttpConfig, NetworkConfig};
use linux_net::link::Editor;

use super::*;

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
            assert!(matches!(soon(&mut *front).0, Upcall::Join(_)));
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

#[test]
fn pages_of_other_origins_are_no_sources() {
    alone(|| {
        let mut config = config();
        config.origins = vec!["https://studio.example".to_owned()];
        let net = channels(&NetworkConfig::Http(config));
        let session = path("bfed://7/film");
        for (origin, host, status) in [
            ("http://evil.example", "127.0.0.1:8081", 403),
            ("null", "127.0.0.1:8081", 403),
            ("http://127.0.0.1:3000", "127.0.0.1:8081", 403),
            // A name of the attacker's that leads here.
            ("http://evil.example:8081", "evil.example:8081", 403),
            ("http://127.0.0.1:8081", "127.0.0.1:8081", 200),
            ("https://studio.example", "gw.example:8081", 200),
        ] {
            for method in ["PUT", "POST"] {
                let head = format!(
                    "{method} {session} HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\nContent-Length: 4\r\n"
                );
                let mut source = Client::ask(EDGE, &head, b"film");
                assert_eq!(source.head(), status, "{method} {origin}");
            }
        }
        assert_eq!(count(&*net, "chunks_received"), 4);
    });
}
