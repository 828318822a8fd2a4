//! External networks: the sockets, with clients that obey, and clients that do not.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use bfed::ChannelAddress;
use bfed::native::{Direction, NativeError, Upcall};
use bfed::wire::client::{Answer, AnswerRepr};
use bfed::wire::no_route::Reason;
use bfed::{Duration, SessionName};
use bfed_external::frame::{self, Decoder, Type};
use bfed_external::{GREETING_TIMEOUT, SILENCE_TIMEOUT};
use bfed_gateway::native::{ExternalConfig, Network, NetworkConfig};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::*;

fn config(folder: &TempDir) -> NetworkConfig {
    NetworkConfig::External(ExternalConfig {
        directory: folder.path().join("external"),
        ..ExternalConfig::default()
    })
}

/// A client's connection.
struct Client {
    stream: UnixStream,
    decoder: Decoder,
}

impl Client {
    fn connect(folder: &TempDir, name: &str) -> Client {
        let path = folder.path().join("external").join(format!("{name}.sock"));
        let stream = UnixStream::connect(path).unwrap();
        stream
            .set_read_timeout(Some(std::time::Duration::from_secs(10)))
            .unwrap();
        Client {
            stream,
            decoder: Decoder::default(),
        }
    }

    /// Connects and greets.
    fn greeted(folder: &TempDir, name: &str) -> Client {
        let mut client = Client::connect(folder, name);
        client.say(Type::Hello, 0, &json!({"version": 1, "name": "test"}));
        client
    }

    fn say(&mut self, kind: Type, channel: u64, body: &Value) {
        self.send(kind, channel, body.to_string().as_bytes());
    }

    fn send(&mut self, kind: Type, channel: u64, body: &[u8]) {
        let mut bytes = Vec::new();
        frame::emit(&mut bytes, kind, channel, body);
        self.stream.write_all(&bytes).unwrap();
    }

    /// The next frame; `None` at the end.
    fn next(&mut self) -> Option<(Type, u64, Vec<u8>)> {
        loop {
            if let Some((header, place)) = self.decoder.next_frame().unwrap() {
                let body = self.decoder.body(place).to_vec();
                return Some((header.kind, header.channel, body));
            }
            match self.stream.read(self.decoder.space()).unwrap_or(0) {
                0 => return None,
                len => self.decoder.filled(len),
            }
        }
    }

    /// The next frame, which is JSON of that type.
    fn expect(&mut self, kind: Type) -> Value {
        let (found, _, body) = self.next().expect("a frame");
        assert_eq!(found, kind);
        serde_json::from_slice(&body).unwrap()
    }
}

/// Lets the network read and write.
fn turn(network: &mut dyn Network) {
    nothing(network);
    network.flush(now());
}

fn answer(session: &SessionName, answer: Answer) -> AnswerRepr {
    AnswerRepr {
        nonce: 0,
        lifetime_s: 60,
        answer,
        session: session.clone(),
    }
}

#[test]
fn the_sockets_have_the_permissions_of_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(&folder);
    let private = NetworkConfig::External(ExternalConfig {
        directory: folder.path().join("private"),
        mode: 0o600,
        ..ExternalConfig::default()
    });
    let _open = [&config, &private].map(|config| [channels(config), mediator(config)]);
    for (directory, expected) in [("external", 0o660), ("private", 0o600)] {
        for name in ["control.sock", "data-0.sock"] {
            let path = folder.path().join(directory).join(name);
            let mode = std::fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, expected);
        }
    }
    let role = bfed_gateway::native::Role::Mediator;
    let error = config.open(role, owner()).err().unwrap().to_string();
    assert!(error.contains("network.directory"), "{error}");
    let group = NetworkConfig::External(ExternalConfig {
        directory: folder.path().join("other"),
        group: Some("no such group".into()),
        ..ExternalConfig::default()
    });
    assert!(group.open(role, owner()).is_err());
}

#[test]
fn data_goes_both_ways() {
    let folder = tempfile::tempdir().unwrap();
    let mut net = channels(&config(&folder));
    assert_eq!(down(&mut *net, &name("bfed://9/x")), Err(NativeError::Full));
    let mut client = Client::greeted(&folder, "data-0");
    client.say(Type::Lend, 0, &json!({"addresses": ["room 1"]}));
    turn(&mut *net);
    let hello = client.expect(Type::Hello);
    assert_eq!(
        (&hello["network"], &hello["role"]),
        (&json!(OWN), &json!("data"))
    );
    let (channel, address) = down(&mut *net, &name("bfed://9/x")).unwrap();
    assert_eq!(address, "room 1");
    let presented = net.presented();
    assert_eq!(
        (presented.len(), presented[0].address.as_str()),
        (1, "room 1")
    );
    net.send_data(now(), channel, b"from elsewhere").unwrap();
    let session = name("bfed://7/own");
    let own = up(&mut *net, &session).unwrap();
    net.flush(now());
    assert_eq!(client.expect(Type::Present)["session"], "bfed://9/x");
    let data = (Type::Data, channel.0, b"from elsewhere".to_vec());
    assert_eq!(client.next(), Some(data));
    assert_eq!(client.expect(Type::Subscribe)["session"], "bfed://7/own");
    client.send(Type::Data, own.0, b"from here");
    let upcall = Upcall::Data {
        channel: own,
        len: 9,
    };
    assert_eq!(soon(&mut *net), (upcall, b"from here".to_vec()));
    net.set_paused(own, true);
    net.flush(now());
    assert_eq!(client.next(), Some((Type::Pause, own.0, vec![])));
    client.send(Type::Data, own.0, b"waits");
    nothing(&mut *net);
    net.set_paused(own, false);
    net.flush(now());
    assert_eq!(soon(&mut *net).1, b"waits");
    assert_eq!(client.next(), Some((Type::Resume, own.0, vec![])));
    assert_eq!(count(&*net, "frames_received"), 2);
    assert_eq!(first_flow(&session, Direction::Up).session, &session);
}

#[test]
fn a_client_that_was_killed_comes_back_and_bulk_data_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut net = channels(&config(&folder));
    let mut client = Client::greeted(&folder, "data-0");
    client.say(Type::Lend, 0, &json!({"addresses": ["room 1"]}));
    turn(&mut *net);
    let (channel, _) = down(&mut *net, &name("bfed://9/x")).unwrap();
    drop(client);
    turn(&mut *net);
    assert_eq!(count(&*net, "clients_connected"), 0);
    assert_eq!(count(&*net, "clients_lost"), 1);
    assert_eq!(net.send_data(now(), channel, b"x"), Err(NativeError::Busy));
    let mut client = Client::greeted(&folder, "data-0");
    turn(&mut *net);
    assert_eq!(net.poll_writable(), Some(channel));
    net.send_data(now(), channel, b"x").unwrap();
    net.flush(now());
    client.expect(Type::Hello);
    let present = client.expect(Type::Present);
    assert_eq!(
        (&present["address"], &present["resumed"]),
        (&json!("room 1"), &json!(true))
    );
    assert_eq!(client.next(), Some((Type::Data, channel.0, b"x".to_vec())));
}

#[test]
fn a_client_that_takes_nothing_stops_a_bulk_session_until_it_reads() {
    let folder = tempfile::tempdir().unwrap();
    let mut net = channels(&config(&folder));
    let mut client = Client::greeted(&folder, "data-0");
    client.say(Type::Lend, 0, &json!({"addresses": ["a"]}));
    turn(&mut *net);
    let (channel, _) = down(&mut *net, &name("bfed://9/x")).unwrap();
    let frame = vec![1; 50_000];
    let mut sent = 0;
    while net.send_data(now(), channel, &frame).is_ok() {
        sent += 1;
        assert!(sent < 1000, "bounded");
    }
    turn(&mut *net);
    assert_eq!(net.poll_writable(), None);
    client.expect(Type::Hello);
    client.expect(Type::Present);
    let reader = std::thread::spawn(move || {
        let frames = std::iter::from_fn(|| client.next()).take(sent);
        let bytes = frames.map(|(_, _, body)| body.len()).sum::<usize>();
        (client, bytes)
    });
    let writable = (0..1000).find_map(|_| {
        turn(&mut *net);
        net.poll_writable()
    });
    assert_eq!(writable, Some(channel));
    while !reader.is_finished() {
        turn(&mut *net);
    }
    assert_eq!(
        reader.join().unwrap().1,
        sent * frame.len(),
        "all of it, in full"
    );
}

#[test]
fn half_open_frozen_and_surplus_clients_are_closed() {
    let folder = tempfile::tempdir().unwrap();
    let mut net = channels(&config(&folder));
    let mut silent = Client::connect(&folder, "data-0");
    turn(&mut *net);
    let mut second = Client::greeted(&folder, "data-0");
    turn(&mut *net);
    let error = second.expect(Type::Error);
    assert!(
        error["error"].as_str().unwrap().contains("another client"),
        "{error}"
    );
    assert_eq!(second.next(), None);
    assert_eq!(net.poll_timeout(), Some(now() + GREETING_TIMEOUT));
    net.handle_timeout(now() + GREETING_TIMEOUT);
    silent.expect(Type::Hello);
    assert!(
        silent.expect(Type::Error)["error"]
            .as_str()
            .unwrap()
            .contains("HELLO")
    );
    assert_eq!(silent.next(), None);

    let mut frozen = Client::greeted(&folder, "data-0");
    turn(&mut *net);
    let half = now() + SILENCE_TIMEOUT / 2;
    assert_eq!(net.poll_timeout(), Some(half));
    net.handle_timeout(half);
    net.flush(half);
    net.handle_timeout(now() + SILENCE_TIMEOUT);
    frozen.expect(Type::Hello);
    assert_eq!(frozen.next(), Some((Type::Ping, 0, vec![])));
    frozen.expect(Type::Error);
    assert_eq!(frozen.next(), None);
    assert_eq!(count(&*net, "clients_lost"), 2);
    assert_eq!(count(&*net, "clients_refused"), 1);
}

#[test]
fn nonsense_ends_the_connection_and_the_next_client_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(&folder);
    let (mut net, mut control) = (channels(&config), mediator(&config));
    for (name, bytes) in [
        ("data-0", &b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..]),
        ("data-0", &[0xff; 100]),
        ("control", &[0; 100]),
    ] {
        let mut client = Client::connect(&folder, name);
        client.stream.write_all(bytes).unwrap();
        match name {
            "control" => turn(&mut *control),
            _ => turn(&mut *net),
        }
        client.expect(Type::Hello);
        client.expect(Type::Error);
        assert_eq!(client.next(), None);
    }
    let mut client = Client::greeted(&folder, "control");
    turn(&mut *control);
    assert_eq!(client.expect(Type::Hello)["role"], "control");
}

#[test]
fn the_client_joins_for_all_members_of_its_network() {
    let folder = tempfile::tempdir().unwrap();
    let mut net = mediator(&config(&folder));
    let mut client = Client::greeted(&folder, "control");
    let session = name("bfed://9/x");
    client.say(Type::Join, 0, &json!({"session": "BFED://9/x"}));
    let Upcall::Join(request) = soon(&mut *net).0 else {
        panic!();
    };
    assert_eq!(request.session, session);
    client.expect(Type::Hello);
    let addresses = vec![ChannelAddress::Native(b"room 1".to_vec())];
    let translation = answer(&session, Answer::Translation(addresses));
    net.answer(now(), Some(request.client), &translation);
    let expected = json!({"session": "bfed://9/x", "addresses": ["room 1"], "lifetime_s": 60});
    assert_eq!(client.expect(Type::Answer), expected);
    // What becomes of it later is told, too.
    net.answer(
        now(),
        None,
        &answer(&session, Answer::NoRoute(Reason::Policy)),
    );
    let lost = client.expect(Type::Answer);
    assert_eq!(lost["session"], "bfed://9/x");
    assert!(lost["error"].is_string());
    // A name that is none.
    client.say(Type::Join, 0, &json!({"session": "news"}));
    turn(&mut *net);
    assert!(
        client.expect(Type::Answer)["error"]
            .as_str()
            .unwrap()
            .contains("bfed://")
    );
    assert_eq!(count(&*net, "requests_malformed"), 1);
}

#[test]
fn sessions_of_a_client_that_is_gone_leave_unless_it_comes_back_soon() {
    let folder = tempfile::tempdir().unwrap();
    let mut net = mediator(&config(&folder));
    let session = name("bfed://9/x");
    let join = |net: &mut Box<dyn Network>| {
        let mut client = Client::greeted(&folder, "control");
        client.say(Type::Join, 0, &json!({"session": "bfed://9/x"}));
        let Upcall::Join(request) = soon(&mut **net).0 else {
            panic!();
        };
        let addresses = vec![ChannelAddress::Native(b"a".to_vec())];
        let translation = answer(&session, Answer::Translation(addresses));
        net.answer(now(), Some(request.client), &translation);
        client
    };
    drop(join(&mut net));
    nothing(&mut *net);
    // It comes back, and the session stays.
    let client = join(&mut net);
    net.handle_timeout(now() + Duration::from_secs(6));
    nothing(&mut *net);
    drop(client);
    nothing(&mut *net);
    nothing(&mut *net);
    net.handle_timeout(now() + Duration::from_secs(5));
    assert_eq!(soon(&mut *net).0, Upcall::Leave(session));
}

#[test]
fn the_directory_is_made_and_stale_sockets_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(&folder);
    drop(channels(&config));
    let socket = folder.path().join("external/data-0.sock");
    assert!(!socket.exists());
    std::os::unix::net::UnixListener::bind(&socket)
        .map(drop)
        .unwrap();
    assert!(Path::new(&socket).exists());
    let mut net = channels(&config);
    let mut client = Client::greeted(&folder, "data-0");
    turn(&mut *net);
    client.expect(Type::Hello);
}
