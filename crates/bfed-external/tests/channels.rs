//! A data node's side against clients that obey, and clients that do not.

use bfed::data::HEADER_LEN;
use bfed::native::{ChannelId, Direction, NativeError, NativeFlow, Upcall};
use bfed::{Duration, GatewayId, Instant, NativeNet, SessionName};
use bfed_external::frame::{self, Decoder, FrameError, Type};
use bfed_external::{
    Channels, Closed, GREETING_TIMEOUT, Greeting, Limits, MAX_BULK, MAX_DATA_LEN, MAX_HELD,
    MAX_LENT, Part, SILENCE_TIMEOUT,
};
use serde_json::{Value, json};

/// A data node, and the client at its socket.
struct Pair {
    now: Instant,
    channels: Channels,
    decoder: Decoder,
}

impl Pair {
    fn alone() -> Pair {
        let gateway = GatewayId::new(7, 1).unwrap();
        let greeting = Greeting::new(gateway, Part::Data { part: 0, parts: 2 });
        let limits = Limits { queue: 100_000 };
        Pair {
            now: Instant::from_secs(1),
            channels: Channels::new(greeting, limits),
            decoder: Decoder::default(),
        }
    }

    /// With a client that has greeted and lent addresses.
    fn with(addresses: &[&str]) -> Pair {
        let mut pair = Pair::alone();
        pair.connect(addresses);
        pair
    }

    fn connect(&mut self, addresses: &[&str]) {
        self.channels.connected(self.now);
        self.decoder = Decoder::default();
        self.say(Type::Hello, 0, br#"{"version": 1, "name": "test"}"#);
        self.lend(addresses);
        assert_eq!(self.read(), Ok(vec![]));
        let told = self.told();
        assert_eq!((told[0].0, &told[0].2["parts"]), (Type::Hello, &json!(2)));
    }

    fn lend(&mut self, addresses: &[&str]) {
        let body = json!({ "addresses": addresses }).to_string();
        self.say(Type::Lend, 0, body.as_bytes());
    }

    /// The client sends a frame.
    fn say(&mut self, kind: Type, channel: u64, body: &[u8]) {
        let mut bytes = Vec::new();
        frame::emit(&mut bytes, kind, channel, body);
        let link = self.channels.link_mut().unwrap();
        link.space()[..bytes.len()].copy_from_slice(&bytes);
        link.filled(self.now, bytes.len());
    }

    /// What the data plane gets.
    fn read(&mut self) -> Result<Vec<(u64, Vec<u8>)>, Closed> {
        let mut buffer = vec![0; HEADER_LEN + MAX_DATA_LEN];
        let mut found = Vec::new();
        while let Some(upcall) = self.channels.poll_data(self.now, &mut buffer)? {
            let Upcall::Data { channel, len } = upcall else {
                panic!("{upcall:?}");
            };
            found.push((channel.0, buffer[HEADER_LEN..HEADER_LEN + len].to_vec()));
        }
        Ok(found)
    }

    /// What the client gets; of DATA the body as text.
    fn told(&mut self) -> Vec<(Type, u64, Value)> {
        self.channels.announce();
        let mut told = Vec::new();
        while let Some(link) = self.channels.link_mut() {
            let output = link.output().to_vec();
            if output.is_empty() {
                break;
            }
            link.sent(output.len());
            for piece in output.chunks(60_000) {
                self.decoder.space()[..piece.len()].copy_from_slice(piece);
                self.decoder.filled(piece.len());
                while let Some((header, place)) = self.decoder.next_frame().unwrap() {
                    let body = self.decoder.body(place);
                    let value = match header.kind {
                        Type::Data => String::from_utf8_lossy(body).into_owned().into(),
                        _ => serde_json::from_slice(body).unwrap_or_default(),
                    };
                    told.push((header.kind, header.channel, value));
                }
            }
            self.channels.announce();
        }
        told
    }

    fn down(&mut self, session: &SessionName) -> Result<(ChannelId, String), NativeError> {
        let flow = NativeFlow::new(session, "", Direction::Down);
        let (channel, address) = self.channels.allocate_channel(self.now, flow)?;
        Ok((channel, String::from_utf8(address).unwrap()))
    }

    fn up(&mut self, session: &SessionName) -> ChannelId {
        let flow = NativeFlow::new(session, "", Direction::Up);
        let (channel, _) = self.channels.allocate_channel(self.now, flow).unwrap();
        self.channels
            .subscribe(self.now, flow, channel, None)
            .unwrap();
        channel
    }

    fn count(&self, name: &str) -> u64 {
        let counters = self.channels.counters();
        counters.iter().find(|(found, _)| *found == name).unwrap().1
    }
}

fn bulk() -> SessionName {
    SessionName::parse("bfed://9/file").unwrap()
}

fn real_time() -> SessionName {
    SessionName::parse("bfed://9/tv/?content=real-time").unwrap()
}

fn kinds(told: &[(Type, u64, Value)]) -> Vec<(Type, u64)> {
    told.iter().map(|(kind, id, _)| (*kind, *id)).collect()
}

#[test]
fn a_session_from_elsewhere_gets_a_lent_address_and_gives_it_back() {
    let mut pair = Pair::with(&["room 1"]);
    let session = bulk();
    let (channel, address) = pair.down(&session).unwrap();
    assert_eq!(address, "room 1");
    assert_eq!(pair.down(&session), Err(NativeError::Full));
    pair.channels
        .send_data(pair.now, channel, b"hello")
        .unwrap();
    let flow = NativeFlow::new(&session, "", Direction::Down);
    pair.channels.reclaim_channel(pair.now, flow, channel);
    let told = pair.told();
    assert_eq!(
        kinds(&told),
        [(Type::Present, 1), (Type::Data, 1), (Type::Reclaim, 1)],
        "data comes before the end"
    );
    assert_eq!(told[0].2["session"], "bfed://9/file");
    assert_eq!(
        (&told[0].2["address"], &told[2].2["address"]),
        (&json!("room 1"), &json!("room 1"))
    );
    assert_eq!(
        pair.down(&session),
        Err(NativeError::Full),
        "it is the client's again"
    );
    pair.lend(&["room 1"]);
    pair.read().unwrap();
    assert_eq!(
        pair.down(&session).unwrap().0,
        ChannelId(2),
        "numbers are not used again"
    );
}

#[test]
fn addresses_are_bounded_and_known_once() {
    let mut pair = Pair::with(&["a"]);
    let (_, used) = pair.down(&bulk()).unwrap();
    assert_eq!(used, "a");
    let long = "x".repeat(513);
    pair.lend(&["a", "", "line\nbreak", &long, "b", "b"]);
    pair.read().unwrap();
    assert_eq!(pair.count("addresses_refused"), 5);
    for number in 0..MAX_LENT / 1000 + 1 {
        let addresses: Vec<String> = (0..1000).map(|n| format!("{number}-{n}")).collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        pair.lend(&addresses);
        pair.read().unwrap();
    }
    let [_, (_, free), _] = pair.channels.gauges();
    assert_eq!(free, MAX_LENT as u64 - 1);
}

#[test]
fn only_data_of_subscribed_channels_enters() {
    let mut pair = Pair::with(&["a"]);
    let (down, _) = pair.down(&bulk()).unwrap();
    let up = pair.up(&real_time());
    for (channel, text) in [(up.0, "one"), (down.0, "two"), (99, "three"), (up.0, "")] {
        pair.say(Type::Data, channel, text.as_bytes());
    }
    assert_eq!(pair.read(), Ok(vec![(up.0, b"one".to_vec())]));
    assert_eq!(pair.count("frames_unknown_channel"), 1);
    assert_eq!(pair.count("frames_not_subscribed"), 1);
    let session = real_time();
    let flow = NativeFlow::new(&session, "", Direction::Up);
    pair.channels.unsubscribe(pair.now, flow, up);
    pair.say(Type::Data, up.0, b"late");
    assert_eq!(pair.read(), Ok(vec![]));
    let told = pair.told();
    assert!(
        told.iter()
            .any(|one| one.0 == Type::Unsubscribe && one.1 == up.0)
    );
}

#[test]
fn data_for_a_paused_channel_waits_in_order_and_in_bounds() {
    let mut pair = Pair::with(&[]);
    let up = pair.up(&bulk());
    pair.channels.set_paused(pair.now, up, true);
    let frame = vec![7; 60_000];
    // A client that does not obey.
    let mut sent = 0;
    while pair.channels.link().unwrap().wants_input() {
        pair.say(Type::Data, up.0, &frame);
        assert_eq!(pair.read(), Ok(vec![]));
        sent += 1;
        assert!(sent * frame.len() <= MAX_HELD + frame.len());
    }
    // It is not read, so it is not silent either.
    pair.now += SILENCE_TIMEOUT * 3;
    let link = pair.channels.link_mut().unwrap();
    assert_eq!(link.handle_timeout(pair.now), Ok(()));
    pair.channels.set_paused(pair.now, up, false);
    assert!(pair.channels.is_ready());
    assert_eq!(pair.read().unwrap().len(), sent);
    assert!(pair.channels.link().unwrap().wants_input());
    let told = pair.told();
    assert_eq!(
        kinds(&told),
        [
            (Type::Subscribe, up.0),
            (Type::Pause, up.0),
            (Type::Resume, up.0)
        ]
    );
    assert_eq!(
        pair.channels.link_mut().unwrap().handle_timeout(pair.now),
        Ok(())
    );
}

#[test]
fn a_channel_paused_again_keeps_its_order() {
    let mut pair = Pair::with(&[]);
    let up = pair.up(&bulk());
    pair.channels.set_paused(pair.now, up, true);
    for text in ["1", "2", "3"] {
        pair.say(Type::Data, up.0, text.as_bytes());
    }
    pair.read().unwrap();
    pair.channels.set_paused(pair.now, up, false);
    let mut buffer = vec![0; HEADER_LEN + MAX_DATA_LEN];
    assert!(
        pair.channels
            .poll_data(pair.now, &mut buffer)
            .unwrap()
            .is_some()
    );
    pair.channels.set_paused(pair.now, up, true);
    pair.say(Type::Data, up.0, b"4");
    assert_eq!(pair.read(), Ok(vec![]));
    pair.channels.set_paused(pair.now, up, false);
    let rest: Vec<_> = pair.read().unwrap().into_iter().map(|one| one.1).collect();
    assert_eq!(rest, [b"2", b"3", b"4"]);
}

#[test]
fn a_client_that_does_not_read_stops_bulk_and_loses_the_oldest_of_real_time() {
    let mut pair = Pair::with(&["a", "b"]);
    let (file, _) = pair.down(&bulk()).unwrap();
    let (tv, _) = pair.down(&real_time()).unwrap();
    let frame = vec![b'x'; 10_000];
    let mut taken = 0;
    while pair.channels.send_data(pair.now, file, &frame).is_ok() {
        taken += frame.len();
    }
    assert!(
        (MAX_BULK - 10_000..=MAX_BULK + 10_000).contains(&taken),
        "{taken}"
    );
    for number in 0..100u8 {
        let frame = [&[b'0' + number % 10][..], &frame].concat();
        pair.channels.send_data(pair.now, tv, &frame).unwrap();
    }
    assert_eq!(
        pair.count("frames_dropped"),
        91,
        "9 of 10 KB fit into 100 KB"
    );
    assert_eq!(pair.channels.poll_writable(), None);
    let told = pair.told();
    let of = |id: u64| {
        told.iter()
            .filter(move |one| one.0 == Type::Data && one.1 == id)
    };
    let bulk: usize = of(file.0).map(|one| one.2.as_str().unwrap().len()).sum();
    assert_eq!(bulk, taken);
    let first = of(tv.0).next().unwrap().2.as_str().unwrap();
    assert!(first.starts_with('1'), "91 is the oldest that is left");
    assert_eq!(pair.channels.poll_writable(), Some(file));
    assert_eq!(pair.channels.poll_writable(), None);
    assert_eq!(pair.channels.send_data(pair.now, file, &frame), Ok(()));
}

#[test]
fn a_client_that_comes_back_gets_its_channels_again() {
    let mut pair = Pair::with(&["a", "b"]);
    let (file, _) = pair.down(&bulk()).unwrap();
    let up = pair.up(&bulk());
    pair.told();
    pair.channels.disconnected();
    assert_eq!(
        pair.down(&bulk()),
        Err(NativeError::Full),
        "its addresses went with it"
    );
    assert_eq!(
        pair.channels.send_data(pair.now, file, b"waits"),
        Err(NativeError::Busy)
    );
    pair.channels.connected(pair.now);
    pair.decoder = Decoder::default();
    pair.say(Type::Hello, 0, br#"{"version": 1}"#);
    pair.read().unwrap();
    let told = pair.told();
    assert_eq!(
        kinds(&told),
        [
            (Type::Hello, 0),
            (Type::Present, file.0),
            (Type::Subscribe, up.0)
        ]
    );
    assert_eq!(
        (&told[1].2["resumed"], &told[1].2["address"]),
        (&json!(true), &json!("a"))
    );
    assert_eq!(pair.channels.poll_writable(), Some(file));
    assert_eq!(pair.channels.send_data(pair.now, file, b"waits"), Ok(()));
}

#[test]
fn thousands_of_channels_are_announced_in_steps() {
    let mut pair = Pair::with(&[]);
    for number in 0..5000 {
        let session = SessionName::parse(&format!("bfed://9/{number}{}", "x".repeat(900))).unwrap();
        pair.up(&session);
        pair.told();
    }
    pair.channels.disconnected();
    pair.channels.connected(pair.now);
    pair.decoder = Decoder::default();
    pair.say(Type::Hello, 0, br#"{"version": 1}"#);
    pair.read().unwrap();
    let told = pair.told();
    assert_eq!(
        told.iter().filter(|one| one.0 == Type::Subscribe).count(),
        5000
    );
    assert_eq!(
        pair.channels.link_mut().unwrap().handle_timeout(pair.now),
        Ok(())
    );
}

#[test]
fn what_breaks_the_protocol_ends_the_connection() {
    let hello = (Type::Hello, &br#"{"version": 1}"#[..]);
    for (frames, why) in [
        (&[(Type::Ping, &b""[..])][..], FrameError::Order),
        (&[hello, hello], FrameError::Order),
        (&[(Type::Hello, br#"{"version": 2}"#)], FrameError::Version),
        (&[(Type::Hello, b"hello")], FrameError::Body),
        (
            &[hello, (Type::Join, br#"{"session": "bfed://9/x"}"#)],
            FrameError::Unexpected,
        ),
        (&[hello, (Type::Present, b"{}")], FrameError::Unexpected),
        (&[hello, (Type::Lend, b"{}")], FrameError::Body),
    ] {
        let mut pair = Pair::alone();
        pair.channels.connected(pair.now);
        for (kind, body) in frames {
            pair.say(*kind, 0, body);
        }
        assert_eq!(pair.read(), Err(Closed::Broken(why)), "{frames:?}");
    }
}

#[test]
fn half_open_and_silent_clients_are_closed_and_a_ping_is_answered() {
    let mut pair = Pair::alone();
    pair.channels.connected(pair.now);
    let link = pair.channels.link_mut().unwrap();
    let due = link.poll_timeout().unwrap();
    assert_eq!(due, pair.now + GREETING_TIMEOUT);
    assert_eq!(link.handle_timeout(due), Err(Closed::NoHello));

    let mut pair = Pair::with(&[]);
    pair.now += SILENCE_TIMEOUT / 2;
    pair.channels
        .link_mut()
        .unwrap()
        .handle_timeout(pair.now)
        .unwrap();
    assert_eq!(kinds(&pair.told()), [(Type::Ping, 0)]);
    pair.say(Type::Pong, 0, b"");
    pair.say(Type::Ping, 5, b"");
    pair.read().unwrap();
    assert_eq!(kinds(&pair.told()), [(Type::Pong, 5)]);
    let link = pair.channels.link_mut().unwrap();
    let almost = pair.now + SILENCE_TIMEOUT - Duration::from_micros(1);
    assert_eq!(link.handle_timeout(almost), Ok(()));
    assert_eq!(
        link.handle_timeout(pair.now + SILENCE_TIMEOUT),
        Err(Closed::Silent)
    );
}

#[test]
fn a_client_that_pings_and_never_reads_is_closed() {
    let mut pair = Pair::with(&[]);
    let mut pings = 0u32;
    let end = loop {
        pair.say(Type::Ping, 0, b"");
        if let Err(end) = pair.read() {
            break end;
        }
        pings += 1;
    };
    assert_eq!(end, Closed::Unread);
    assert!(pings > 1000);
}
