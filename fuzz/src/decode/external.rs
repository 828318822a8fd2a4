//! What a client of an external network sends, to the side of a data node, whose gateway allocates, pauses and frees channels
//! meanwhile. Asserts that only subscribed channels that run give data, that lent addresses are bounded and in use once, and
//! that what the client gets are frames.

use std::collections::BTreeSet;

use bfed::data::HEADER_LEN;
use bfed::native::{ChannelId, Direction, NativeFlow, Upcall};
use bfed::{Duration, GatewayId, Instant, NativeNet, SessionName};
use bfed_external::frame::{self, Decoder, Type};
use bfed_external::{Channels, Greeting, Limits, MAX_DATA_LEN, MAX_LENT, Part};

/// Steps: a byte says what happens, and for input of the client the next one how many bytes.
const INPUT: std::ops::RangeInclusive<u8> = 0..=199;

struct World {
    now: Instant,
    channels: Channels,
    sessions: [SessionName; 2],
    all: Vec<(ChannelId, usize, Direction)>,
    paused: BTreeSet<ChannelId>,
    in_use: BTreeSet<Vec<u8>>,
    client: Decoder,
    buffer: Vec<u8>,
}

/// Runs the steps.
pub fn client(bytes: &[u8]) {
    let gateway = GatewayId::new(7, 1).expect("not 0");
    let greeting = Greeting::new(gateway, Part::Data { part: 0, parts: 1 });
    let name = |text| SessionName::parse(text).expect("a name");
    let mut world = World {
        now: Instant::from_secs(1),
        channels: Channels::new(greeting, Limits { queue: 4096 }),
        sessions: [
            name("bfed://9/file"),
            name("bfed://9/tv/?content=real-time"),
        ],
        all: Vec::new(),
        paused: BTreeSet::new(),
        in_use: BTreeSet::new(),
        client: Decoder::default(),
        buffer: vec![0; HEADER_LEN + MAX_DATA_LEN],
    };
    world.connect();
    let mut rest = bytes;
    while let Some((&step, after)) = rest.split_first() {
        rest = after;
        if INPUT.contains(&step) {
            let len = (usize::from(step) + 1).min(rest.len());
            let (piece, after) = rest.split_at(len);
            rest = after;
            world.input(piece);
        } else {
            world.step(step);
        }
        world.drain();
    }
}

impl World {
    fn connect(&mut self) {
        self.channels.connected(self.now);
        self.client = Decoder::default();
    }

    fn lose(&mut self) {
        self.channels.disconnected();
        self.connect();
    }

    fn input(&mut self, piece: &[u8]) {
        let Some(link) = self.channels.link_mut().filter(|link| link.wants_input()) else {
            return;
        };
        let space = link.space();
        let len = piece.len().min(space.len());
        space[..len].copy_from_slice(&piece[..len]);
        link.filled(self.now, len);
        loop {
            match self.channels.poll_data(self.now, &mut self.buffer) {
                Ok(Some(Upcall::Data { channel, len })) => {
                    assert!(len > 0 && len <= MAX_DATA_LEN);
                    assert!(!self.paused.contains(&channel));
                    let of = self.all.iter().find(|one| one.0 == channel);
                    assert_eq!(of.expect("a live channel").2, Direction::Up);
                }
                Ok(Some(other)) => panic!("{other:?}"),
                Ok(None) => break,
                Err(_) => return self.lose(),
            }
        }
    }

    fn step(&mut self, step: u8) {
        let which = usize::from(step) % 2;
        let session = self.sessions[which].clone();
        let last = self.all.last().map(|one| one.0);
        match (step - INPUT.end() - 1) / 2 {
            0..=2 => self.allocate(&session, which, Direction::Up),
            3..=5 => self.allocate(&session, which, Direction::Down),
            6 | 7 => {
                if let Some(id) = last {
                    let paused = which == 0;
                    self.channels.set_paused(self.now, id, paused);
                    match paused {
                        true => self.paused.insert(id),
                        false => self.paused.remove(&id),
                    };
                }
            }
            8..=10 => {
                if let Some((id, which, direction)) = self.all.pop() {
                    let session = self.sessions[which].clone();
                    let flow = NativeFlow::new(&session, "", direction);
                    self.channels.reclaim_channel(self.now, flow, id);
                    self.paused.remove(&id);
                    self.in_use.clear();
                }
            }
            11..=14 => {
                for &(id, _, _) in &self.all {
                    let _ = self.channels.send_data(self.now, id, &[step; 1000]);
                }
            }
            15..=17 => {
                self.now += Duration::from_secs(3);
                let link = self.channels.link_mut();
                if link.is_some_and(|link| link.handle_timeout(self.now).is_err()) {
                    self.lose();
                }
            }
            18 | 19 => self.lose(),
            _ => while self.channels.poll_writable().is_some() {},
        }
    }

    fn allocate(&mut self, session: &SessionName, which: usize, direction: Direction) {
        if self.all.len() >= 16 {
            return;
        }
        let flow = NativeFlow::new(session, "", direction);
        let Ok((id, address)) = self.channels.allocate_channel(self.now, flow) else {
            return;
        };
        assert!(self.all.last().is_none_or(|last| last.0 < id));
        match direction {
            Direction::Up => self
                .channels
                .subscribe(self.now, flow, id, None)
                .expect("it was allocated"),
            Direction::Down => assert!(self.in_use.insert(address), "an address is in use once"),
        }
        self.all.push((id, which, direction));
    }

    /// The client reads everything.
    fn drain(&mut self) {
        let gauges = self.channels.gauges();
        assert!(gauges.iter().all(|(_, value)| *value <= MAX_LENT as u64));
        self.channels.announce();
        while let Some(link) = self.channels.link_mut() {
            let output = link.output();
            let len = output.len().min(60_000);
            if len == 0 {
                break;
            }
            self.client.space()[..len].copy_from_slice(&output[..len]);
            self.client.filled(len);
            link.sent(len);
            while let Some((header, place)) = self.client.next_frame().expect("a frame") {
                assert_eq!(self.client.body(place).len(), header.len);
            }
        }
    }
}

/// Frames of a client, cut into steps.
pub fn seeds() -> Vec<Vec<u8>> {
    let steps = |frames: &[(Type, u64, &[u8])], between: &[u8]| {
        let mut seed = Vec::new();
        for (kind, channel, body) in frames {
            let mut bytes = Vec::new();
            frame::emit(&mut bytes, *kind, *channel, body);
            for piece in bytes.chunks(200) {
                seed.push((piece.len() - 1) as u8);
                seed.extend_from_slice(piece);
            }
            seed.extend_from_slice(between);
        }
        seed
    };
    let hello: (_, _, &[u8]) = (Type::Hello, 0, br#"{"version": 1, "name": "x"}"#);
    let lend: (_, _, &[u8]) = (Type::Lend, 0, br#"{"addresses": ["a", "b", "a", ""]}"#);
    let data: (_, _, &[u8]) = (Type::Data, 1, b"hello");
    vec![
        steps(&[hello, lend, data, (Type::Ping, 0, b"")], &[200]),
        steps(&[hello, lend, data, data], &[200, 212, 213, 222]),
        steps(&[hello, lend, lend], &[206, 222, 216, 238]),
        steps(&[hello, data, lend], &[201, 230, 230, 230, 240]),
        steps(&[(Type::Hello, 0, br#"{"version": 9}"#)], &[]),
        steps(
            &[hello, (Type::Join, 0, br#"{"session": "bfed://9/x"}"#)],
            &[],
        ),
        steps(&[hello, (Type::Lend, 0, b"[")], &[206]),
    ]
}
