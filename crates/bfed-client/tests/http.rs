//! Sessions in an HTTP network whose server the tests play, hostile ones included; and the examples.
#![allow(missing_docs)]

#[path = "../examples/publish.rs"]
mod publish;
#[path = "../examples/receive.rs"]
mod receive;

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use bfed::ChannelAddress;
use bfed::wire::client::{Answer, AnswerRepr, Request, Want};
use bfed_client::frames::{Deframer, Found};
use bfed_client::http::HttpError;
use bfed_client::{Cancel, Error, Event, JoinOptions, PublishOptions, Publisher, Session, Sink};

const NUMBERED: &str = "bfed://1/talk/?framing=numbered";

fn server() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

/// Accepts a request; returns the connection, its first line, and the body received so far.
fn accept(listener: &TcpListener) -> (TcpStream, String, Vec<u8>) {
    let (mut stream, _) = listener.accept().unwrap();
    let timeout = Some(Duration::from_secs(10));
    stream.set_read_timeout(timeout).unwrap();
    let (mut bytes, mut buffer) = (vec![], [0; 4096]);
    loop {
        let len = stream.read(&mut buffer).unwrap();
        bytes.extend_from_slice(&buffer[..len]);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "));
        if bytes.len() >= end + 4 + length.map_or(0, |length| length.parse().unwrap()) {
            let line = head.lines().next().unwrap().to_owned();
            return (stream, line, bytes[end + 4..].to_vec());
        }
    }
}

/// Answers a request to the mediator: the session is at that URL. Returns the kind of request.
fn mediate(listener: &TcpListener, to: &str) -> Want {
    let (mut stream, line, body) = accept(listener);
    assert_eq!(line, "POST /mediator HTTP/1.1");
    let request = Request::parse(&body).unwrap();
    let answer = AnswerRepr {
        nonce: request.nonce,
        lifetime_s: 100,
        answer: Answer::Translation(vec![ChannelAddress::Native(to.as_bytes().to_vec())]),
        session: request.session,
    };
    let mut bytes = vec![0; answer.buffer_len()];
    answer.emit(&mut bytes);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bytes.len());
    stream
        .write_all(&[head.as_bytes(), &bytes].concat())
        .unwrap();
    request.want
}

#[test]
fn a_server_that_the_user_has_not_named_does_not_get_the_token() {
    // The client reaches all of them: 127.0.0.1 has a mediator and an edge, 127.0.0.2 another server.
    let (mediator, edge) = (server(), server());
    let other = TcpListener::bind("127.0.0.2:0").unwrap();
    let other = (format!("http://{}", other.local_addr().unwrap()), other);
    let head_of = |listener: &TcpListener, answer: String| {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut bytes, mut buffer) = (vec![], [0; 4096]);
        while !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
            let len = stream.read(&mut buffer).unwrap();
            bytes.extend_from_slice(&buffer[..len]);
        }
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(bytes).unwrap().to_ascii_lowercase()
    };
    const FIELD: &str = "authorization: bearer v4.public.secret";
    for hosts in [vec![], vec!["127.0.0.2".to_owned()]] {
        let is_named = !hosts.is_empty();
        let mut options = JoinOptions::new("bfed://1/talk".parse().unwrap());
        options.mediators = vec![mediator.1.parse().unwrap()];
        options.token = bfed::wire::client::Token::new("v4.public.secret");
        options.token_hosts = hosts;
        let cancel = Cancel::new().unwrap();
        let ends = cancel.clone();
        let client = std::thread::spawn(move || {
            let session = Session::join(options, &cancel, &mut Seen::default());
            session.map(|session| session.copy_to(&mut io::sink()))
        });
        mediate(&mediator.0, &format!("{}/s/x", edge.1));
        let redirect = format!(
            "HTTP/1.1 307 x\r\nLocation: {}/s/y\r\nContent-Length: 0\r\n\r\n",
            other.0
        );
        assert!(
            head_of(&edge.0, redirect).contains(FIELD),
            "on the mediator's host"
        );
        let ok = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n".to_owned();
        assert_eq!(head_of(&other.1, ok).contains(FIELD), is_named);
        ends.cancel();
        // It leaves.
        mediate(&mediator.0, "unused");
        let _ = client.join().unwrap();
    }
}

#[test]
fn the_examples_receive_and_publish() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let data: Vec<u8> = (0..5000u32).map(|n| (n * n / 8) as u8).collect();
    std::fs::write(&from, &data).unwrap();
    let (listener, url) = server();
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();

    let arguments = [NUMBERED.to_owned(), text(&from), url.clone()];
    let source = std::thread::spawn(move || publish::run(&arguments).map_err(|e| e.to_string()));
    let (mut stream, line, mut body) = accept(&listener);
    assert_eq!(
        line,
        "PUT /s/bfed%3A%2F%2F1%2Ftalk%2F%3Fframing%3Dnumbered HTTP/1.1"
    );
    while !body.ends_with(b"\r\n0\r\n\r\n") {
        let mut buffer = [0; 4096];
        let len = stream.read(&mut buffer).unwrap();
        body.extend_from_slice(&buffer[..len]);
    }
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        .unwrap();
    assert_eq!(source.join().unwrap(), Ok(()));
    // What stands between the frames are the lines of chunks.
    let (mut deframer, mut payloads) = (Deframer::default(), vec![]);
    deframer.push(&body);
    while let Some(found) = deframer.next() {
        match found {
            Found::Data { payload, .. } => payloads.extend(payload),
            Found::End { bytes, digest, .. } => {
                assert_eq!((bytes, digest), (5000, *blake3::hash(&data).as_bytes()));
            }
            Found::OtherVersion(version) => panic!("version {version}"),
        }
    }
    assert_eq!(payloads, data);

    let arguments = [NUMBERED.to_owned(), url.clone(), text(&to)];
    let viewer = std::thread::spawn(move || receive::run(&arguments).map_err(|e| e.to_string()));
    assert_eq!(mediate(&listener, &format!("{url}/s/x")), Want::Join);
    let (mut stream, line, _) = accept(&listener);
    assert_eq!(line, "GET /s/x HTTP/1.1");
    let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(&[&head[..], &body].concat()).unwrap();
    assert_eq!(mediate(&listener, "unused"), Want::Leave);
    assert_eq!(viewer.join().unwrap(), Ok(()));
    assert_eq!(std::fs::read(&to).unwrap(), data);
}

/// Collects events.
#[derive(Default)]
struct Seen(Vec<Event>);

impl Sink for Seen {
    fn data(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn event(&mut self, event: Event) {
        self.0.push(event);
    }
}

/// What interrupts the stream of a session whose server answers so.
fn interruption(answers: &'static [&'static [u8]]) -> String {
    interruption_of(JoinOptions::new(NUMBERED.parse().unwrap()), answers)
}

fn interruption_of(mut options: JoinOptions, answers: &'static [&'static [u8]]) -> String {
    let (listener, url) = server();
    options.mediators = vec![url.parse().unwrap()];
    let (mut seen, cancel) = (Seen::default(), Cancel::new().unwrap());
    let mut session = Session::join(options, &cancel, &mut seen).unwrap();
    let server = std::thread::spawn(move || {
        mediate(&listener, &format!("{url}/s/x"));
        for answer in answers {
            let (mut stream, ..) = accept(&listener);
            let _ = stream.write_all(answer);
            if answer.is_empty() {
                // Until the client hangs up.
                let _ = stream.read(&mut [0]);
            }
        }
    });
    let reason = loop {
        session.step(Duration::from_secs(1), &mut seen).unwrap();
        let reasons = seen.0.iter().filter_map(|event| match event {
            Event::Interrupted { reason } => Some(reason.clone()),
            _ => None,
        });
        if let Some(reason) = { reasons }.next() {
            break reason;
        }
    };
    server.join().unwrap();
    // The server is gone: a LEAVE would wait for it.
    drop(session);
    reason
}

#[test]
fn hostile_servers_end_a_stream_and_no_more() {
    let around: &[u8] = b"HTTP/1.1 307 x\r\nLocation: /s/x\r\nContent-Length: 0\r\n\r\n";
    let elsewhere: &[u8] = b"HTTP/1.1 301 x\r\nLocation: https://x/\r\n\r\n";
    for (answers, expected) in [
        (vec![around; 6], "more than 5 redirections"),
        (vec![elsewhere], "is not like http://host:port/path"),
        (vec![&b"HTTP/1.1 404 x\r\n\r\n"[..]], "status 404"),
        (vec![b"SSH-2.0-x\r\n\r\n"], "not an answer in HTTP/1"),
        (
            vec![b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"],
            "in the middle",
        ),
        (
            vec![
                [b"HTTP/1.1 200 OK\r\nx: ", [b'x'; 40_000].as_slice()]
                    .concat()
                    .leak(),
            ],
            "too long",
        ),
    ] {
        let reason = interruption(answers.leak());
        assert!(reason.contains(expected), "{reason}");
    }
}

#[test]
fn a_server_that_does_not_answer_is_given_up() {
    let mut options = JoinOptions::new(NUMBERED.parse().unwrap());
    options.timeouts.head = Duration::from_millis(200);
    let reason = interruption_of(options, &[b""]);
    assert!(reason.contains("no answer within 200ms"), "{reason}");
}

#[test]
fn a_server_that_reads_nothing_of_a_published_stream_is_given_up() {
    let (listener, url) = server();
    let mut options = PublishOptions::new(NUMBERED.parse().unwrap());
    options.server = Some(url.parse().unwrap());
    options.timeouts.stall = Duration::from_millis(200);
    let mut publisher = Publisher::open(&options, &Cancel::new().unwrap()).unwrap();
    let (_stream, ..) = accept(&listener);
    let error = loop {
        // More than the sockets' buffers hold, after some of them.
        if let Err(error) = publisher.send(&[7; 16_384]) {
            break error;
        }
    };
    assert!(
        matches!(error, Error::Http(HttpError::TimedOut(limit)) if limit == options.timeouts.stall),
        "{error}"
    );
}

#[test]
fn a_cancelled_session_ends_at_once() {
    let (_listener, url) = server();
    let mut options = JoinOptions::new(NUMBERED.parse().unwrap());
    options.mediators = vec![url.parse().unwrap()];
    let cancel = Cancel::new().unwrap();
    let session = Session::join(options, &cancel, &mut Seen::default()).unwrap();
    let raise = cancel.clone();
    let canceller = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        raise.cancel();
    });
    let done = session.copy_to(&mut io::sink());
    assert!(matches!(done, Err(Error::Cancelled)), "{done:?}");
    canceller.join().unwrap();
}

#[test]
fn a_source_learns_why_it_is_refused_and_one_that_stops_is_cut_off() {
    let (listener, url) = server();
    let mut options = PublishOptions::new(NUMBERED.parse().unwrap());
    options.server = Some(url.parse().unwrap());
    let cancel = Cancel::new().unwrap();

    let publisher = Publisher::open(&options, &cancel).unwrap();
    let (mut stream, ..) = accept(&listener);
    let refusal = b"HTTP/1.1 403 x\r\nContent-Length: 8\r\n\r\nnot here";
    stream.write_all(refusal).unwrap();
    drop(stream);
    let error = publisher.finish().unwrap_err().to_string();
    assert_eq!(error, "the server says 403 not here");

    let mut publisher = Publisher::open(&options, &cancel).unwrap();
    publisher.send(b"data").unwrap();
    let (mut stream, _, mut body) = accept(&listener);
    drop(publisher);
    let _ = stream.read_to_end(&mut body);
    assert!(!body.ends_with(b"0\r\n\r\n"), "no proper end: {body:?}");
}
