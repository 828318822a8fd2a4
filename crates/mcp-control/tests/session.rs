//! Both machines together, in virtual time, and each against a peer that breaks the rules.

use std::sync::Arc;

use mcp_control::limits::{BLOCK_LEN, MAX_FRAME_LEN, MAX_SUGGESTIONS};
use mcp_control::wire::held::Held;
use mcp_control::wire::hello::Capabilities;
use mcp_control::wire::offer::{CopyId, Offer, emit_entry};
use mcp_control::wire::plan::{Carrier, DataKey};
use mcp_control::wire::progress::{Done, FileDigest, FileVerdict, Progress};
use mcp_control::wire::{Header, Type};
use mcp_control::*;
use proptest::prelude::*;

fn manifest() -> Arc<Manifest> {
    let entry = |path: &str, kind| Entry {
        path: RelPath::new(path.as_bytes()).unwrap(),
        kind,
        mode: 0o644,
        modified: Timestamp::default(),
    };
    let entries = vec![
        entry("t", Kind::Folder),
        entry("t/a", Kind::File { len: 3 * BLOCK_LEN }),
        entry("t/b", Kind::File { len: 10 }),
    ];
    Arc::new(Manifest::new(entries).unwrap())
}

fn client_config() -> ClientConfig {
    ClientConfig {
        copy: CopyId([3; 16]),
        capabilities: Capabilities::UDP.with(Capabilities::AEAD),
        required: Capabilities::UDP,
        timeouts: Timeouts::default(),
    }
}

struct Pair {
    now: Instant,
    client: Client,
    server: Server,
    at_client: Vec<ClientEvent>,
    at_server: Vec<ServerEvent>,
}

impl Pair {
    fn new(client: ClientConfig, server: ServerConfig) -> Pair {
        Pair::with(client, server, manifest())
    }

    fn with(client: ClientConfig, server: ServerConfig, manifest: Arc<Manifest>) -> Pair {
        let now = Instant::from_secs(1);
        Pair {
            now,
            client: Client::new(client, manifest, now),
            server: Server::new(server, now),
            at_client: Vec::new(),
            at_server: Vec::new(),
        }
    }

    /// Moves messages until both are quiet.
    fn settle(&mut self) {
        let mut buffer = vec![0; MAX_FRAME_LEN];
        loop {
            let mut quiet = true;
            while let Some(frame) = self.client.poll_transmit(self.now, &mut buffer) {
                quiet = false;
                if !self.server.is_ended() {
                    let frame = &buffer[..frame.len];
                    self.server.handle_packet(self.now, &(), frame).unwrap();
                }
                while let Some(event) = self.server.poll_event() {
                    self.at_server.push(event);
                }
            }
            while let Some(frame) = self.server.poll_transmit(self.now, &mut buffer) {
                quiet = false;
                if !self.client.is_ended() {
                    let frame = &buffer[..frame.len];
                    self.client.handle_packet(self.now, &(), frame).unwrap();
                }
                while let Some(event) = self.client.poll_event() {
                    self.at_client.push(event);
                }
            }
            while let Some(event) = self.server.poll_event() {
                self.at_server.push(event);
            }
            while let Some(event) = self.client.poll_event() {
                self.at_client.push(event);
            }
            if quiet {
                return;
            }
        }
    }

    /// Up to the point where ports are negotiated; the server has block 1.
    fn scanned(&mut self) {
        self.settle();
        let held = Held {
            first: 1,
            digests: vec![[9; 32]],
        };
        self.server.held(self.now, &held).unwrap();
        self.server.scanned(self.now).unwrap();
        self.settle();
    }

    fn planned(&mut self) -> Arc<Layout> {
        self.scanned();
        self.client
            .suggest(self.now, Carrier::Udp, 4000, 5000)
            .unwrap();
        self.settle();
        self.server.port(self.now, 5000).unwrap();
        self.settle();
        let runs = vec![Run { first: 0, count: 1 }, Run { first: 2, count: 2 }];
        let layout = Arc::new(Layout::new(&manifest(), runs).unwrap());
        let data = Some((path(), Arc::clone(&layout)));
        self.client.plan(self.now, data).unwrap();
        self.settle();
        self.server.ready(self.now).unwrap();
        self.settle();
        layout
    }

    fn last_client(&self) -> &ClientEvent {
        self.at_client.last().unwrap()
    }

    fn last_server(&self) -> &ServerEvent {
        self.at_server.last().unwrap()
    }
}

fn path() -> DataPath {
    DataPath {
        carrier: Carrier::Udp,
        group: Some([239, 1, 1, 1].into()),
        source: 4000,
        destination: 5000,
        key: Some(DataKey([4; 32])),
    }
}

fn udp() -> ServerConfig {
    ServerConfig::new(Capabilities::UDP)
}

#[test]
fn a_copy_from_hello_to_verified() {
    let mut pair = Pair::new(client_config(), udp());
    let layout = pair.planned();
    let Some(ServerEvent::Planned {
        plan,
        layout: there,
    }) = pair
        .at_server
        .iter()
        .find(|e| matches!(e, ServerEvent::Planned { .. }))
    else {
        panic!("no plan: {:?}", pair.at_server);
    };
    assert_eq!(there, &layout);
    assert_eq!((plan.key, plan.destination), (Some(DataKey([4; 32])), 5000));

    let progress = Progress {
        received: 5,
        held: 6,
    };
    pair.server.progress(pair.now, progress).unwrap();
    let digest = FileVerdict::Digest([1; 32]);
    pair.client.digest(pair.now, 1, digest).unwrap();
    pair.client.digest(pair.now, 2, digest).unwrap();
    pair.settle();
    let whole = manifest().digest(&[[0; 32], [1; 32], [1; 32]]);
    let done = Done {
        received: layout.len(),
        bytes: manifest().bytes(),
        whole,
    };
    pair.server.done(pair.now, &done).unwrap();
    pair.settle();
    assert!(!pair.client.is_ended(), "what the whole is comes later");
    pair.client.expect(pair.now, whole);
    pair.settle();

    let held = Held {
        first: 1,
        digests: vec![[9; 32]],
    };
    assert_eq!(
        pair.at_client,
        [
            ClientEvent::Welcome {
                capabilities: Capabilities::UDP
            },
            ClientEvent::Held(held),
            ClientEvent::Scanned,
            ClientEvent::Port {
                confirmed: true,
                port: 5000
            },
            ClientEvent::Ready,
            ClientEvent::Progress(progress),
            ClientEvent::Verified,
        ]
    );
    assert_eq!(pair.last_server(), &ServerEvent::Verified);
    assert!(pair.client.is_ended() && pair.server.is_ended());
    assert_eq!(pair.client.poll_timeout(), None);
}

#[test]
fn ports_are_negotiated_until_both_agree_and_not_for_ever() {
    let mut pair = Pair::new(client_config(), udp());
    pair.scanned();
    for number in 0..MAX_SUGGESTIONS {
        pair.client
            .suggest(pair.now, Carrier::Udp, 4000, 5000 + number)
            .unwrap();
        assert_eq!(
            pair.client.suggest(pair.now, Carrier::Udp, 4000, 1),
            Err(UnexpectedMessage)
        );
        pair.settle();
        assert!(matches!(
            pair.last_server(),
            ServerEvent::Suggested { source: 4000, .. }
        ));
        pair.server.port(pair.now, 6000).unwrap();
        pair.settle();
        assert_eq!(
            pair.last_client(),
            &ClientEvent::Port {
                confirmed: false,
                port: 6000
            }
        );
    }
    assert_eq!(
        pair.client.suggest(pair.now, Carrier::Udp, 4000, 6000),
        Err(UnexpectedMessage)
    );
}

#[test]
fn a_host_that_has_everything_gets_no_data() {
    let mut pair = Pair::new(client_config(), udp());
    pair.scanned();
    pair.client.plan(pair.now, None).unwrap();
    pair.settle();
    let ServerEvent::Planned { plan, layout } = pair.last_server() else {
        panic!("{:?}", pair.at_server);
    };
    assert!(layout.is_empty() && plan.runs == 0 && plan.key.is_none());
}

#[test]
fn a_wrong_digest_of_the_whole_is_a_mismatch() {
    let mut pair = Pair::new(client_config(), udp());
    let layout = pair.planned();
    pair.client.expect(pair.now, [7; 32]);
    let done = Done {
        received: layout.len(),
        bytes: manifest().bytes(),
        whole: [8; 32],
    };
    pair.server.done(pair.now, &done).unwrap();
    pair.settle();
    let failed = Failed::new(Reason::Mismatch, None, "");
    assert_eq!(
        pair.last_client(),
        &ClientEvent::Failed {
            failed: failed.clone(),
            side: Side::Here
        }
    );
    assert_eq!(
        pair.last_server(),
        &ServerEvent::Failed {
            failed,
            side: Side::Peer
        }
    );
}

#[test]
fn whoever_gives_up_tells_the_other_why() {
    let mut pair = Pair::new(client_config(), udp());
    pair.planned();
    pair.server.fail(
        pair.now,
        Failed::new(Reason::NoSpace, Some(1), "12 bytes short"),
    );
    pair.settle();
    let ClientEvent::Failed {
        failed,
        side: Side::Peer,
    } = pair.last_client()
    else {
        panic!("{:?}", pair.at_client);
    };
    assert_eq!((failed.reason, failed.entry), (Reason::NoSpace, Some(1)));
    assert_eq!(failed.text, "12 bytes short");
}

#[test]
fn limits_of_the_server_are_kept() {
    let limits: [fn(&mut ServerConfig); 3] = [
        |config| config.max_entries = 2,
        |config| config.max_blocks = 2,
        |config| config.max_manifest_bytes = 40,
    ];
    for limit in limits {
        let mut config = udp();
        limit(&mut config);
        let mut pair = Pair::new(client_config(), config);
        pair.settle();
        let ClientEvent::Failed { failed, .. } = pair.last_client() else {
            panic!("{:?}", pair.at_client);
        };
        assert_eq!(failed.reason, Reason::TooLarge);
    }
    let mut config = client_config();
    config.required = Capabilities::AEAD;
    let mut pair = Pair::new(config, udp());
    pair.settle();
    let ClientEvent::Failed { failed, .. } = pair.last_client() else {
        panic!("{:?}", pair.at_client);
    };
    assert_eq!(failed.reason, Reason::Capability);
}

#[test]
fn silence_ends_it_and_keep_alive_prevents_that() {
    let mut pair = Pair::new(client_config(), udp());
    pair.scanned();
    for _ in 0..20 {
        pair.now = pair
            .client
            .poll_timeout()
            .unwrap()
            .min(pair.server.poll_timeout().unwrap());
        pair.client.handle_timeout(pair.now);
        pair.server.handle_timeout(pair.now);
        pair.settle();
    }
    assert!(pair.now > Instant::from_secs(40) && !pair.client.is_ended());
    // The server's messages are lost from now on.
    let mut buffer = vec![0; MAX_FRAME_LEN];
    while !pair.client.is_ended() {
        pair.now = pair.client.poll_timeout().unwrap();
        pair.client.handle_timeout(pair.now);
        while pair.client.poll_transmit(pair.now, &mut buffer).is_some() {}
    }
    let failed = Failed::new(Reason::Silent, None, "");
    let event = ClientEvent::Failed {
        failed,
        side: Side::Here,
    };
    assert_eq!(pair.client.poll_event(), Some(event));
}

#[test]
fn a_greeting_or_offer_that_does_not_come_ends_the_connection() {
    let start = Instant::from_secs(1);
    for greets in [false, true] {
        let mut server = Server::new(udp(), start);
        let mut buffer = vec![0; MAX_FRAME_LEN];
        let mut limit = udp().greeting;
        if greets {
            let mut client = Client::new(client_config(), manifest(), start);
            let hello = client.poll_transmit(start, &mut buffer).unwrap();
            server
                .handle_packet(start, &(), &buffer[..hello.len])
                .unwrap();
            limit = udp().setup;
        }
        let mut now = start;
        let mut alive = [0; 8];
        mcp_control::wire::emit_keep_alive(&mut alive);
        while !server.is_ended() {
            now = server.poll_timeout().unwrap();
            server.handle_timeout(now);
            // Saying "still there" does not help.
            let _ = server.handle_packet(now, &(), &alive);
            while server.poll_transmit(now, &mut buffer).is_some() {}
        }
        assert_eq!(now, start + limit);
    }
}

#[test]
fn names_that_escape_end_the_copy() {
    let mut pair = Pair::new(client_config(), udp());
    // The client's own checks are gone around: an entry written by hand.
    let now = pair.now;
    let mut buffer = vec![0; MAX_FRAME_LEN];
    let hello = pair.client.poll_transmit(now, &mut buffer).unwrap();
    pair.server
        .handle_packet(now, &(), &buffer[..hello.len])
        .unwrap();
    let offer = Offer {
        copy: CopyId([1; 16]),
        entries: 1,
        bytes: 0,
    };
    let mut frame = vec![0; offer.buffer_len()];
    offer.emit(&mut frame);
    pair.server.handle_packet(now, &(), &frame).unwrap();
    let entry = Entry {
        path: RelPath::new(b"aa/b").unwrap(),
        kind: Kind::File { len: 0 },
        mode: 0o644,
        modified: Timestamp::default(),
    };
    let mut frame = vec![0; 8 + 28 + 4];
    emit_entry(&entry, &mut frame[8..]);
    frame[36..].copy_from_slice(b"../b");
    Header {
        kind: Type::Entries,
        body_len: 32,
    }
    .emit(&mut frame);
    pair.server.handle_packet(now, &(), &frame).unwrap();
    let Some(ServerEvent::Failed {
        failed,
        side: Side::Here,
    }) = pair.server.poll_event()
    else {
        panic!("it was taken");
    };
    assert_eq!((failed.reason, failed.entry), (Reason::Name, Some(0)));
}

#[test]
fn many_entries_and_runs_take_several_frames() {
    let mut entries = vec![Entry {
        path: RelPath::new(b"t").unwrap(),
        kind: Kind::Folder,
        mode: 0o755,
        modified: Timestamp::default(),
    }];
    for number in 0..10_000 {
        entries.push(Entry {
            path: RelPath::new(format!("t/file {number:05}").as_bytes()).unwrap(),
            kind: Kind::File { len: 5 },
            mode: 0o600,
            modified: Timestamp::default(),
        });
    }
    let manifest = Arc::new(Manifest::new(entries).unwrap());
    let mut pair = Pair::with(client_config(), udp(), Arc::clone(&manifest));
    pair.settle();
    let ServerEvent::Offered {
        manifest: there, ..
    } = pair.last_server()
    else {
        panic!("{:?}", pair.at_server);
    };
    assert_eq!(there, &manifest);
    pair.server.scanned(pair.now).unwrap();
    pair.settle();
    let runs = (0..5000)
        .map(|run| Run {
            first: run * 2,
            count: 1,
        })
        .collect();
    let layout = Arc::new(Layout::new(&manifest, runs).unwrap());
    pair.client
        .suggest(pair.now, Carrier::Udp, 4000, 5000)
        .unwrap();
    pair.settle();
    pair.server.port(pair.now, 5000).unwrap();
    pair.settle();
    pair.client
        .plan(pair.now, Some((path(), Arc::clone(&layout))))
        .unwrap();
    pair.settle();
    let ServerEvent::Planned { layout: there, .. } = pair.last_server() else {
        panic!("{:?}", pair.at_server);
    };
    assert_eq!(there, &layout);
}

#[test]
fn a_carrier_that_the_server_lacks_is_refused() {
    // A client that cares before the offer.
    let ip = ClientConfig {
        capabilities: Capabilities::IP,
        required: Capabilities::IP,
        ..client_config()
    };
    let mut pair = Pair::new(ip, udp());
    pair.settle();
    let ClientEvent::Failed { failed, side } = pair.last_client() else {
        panic!("{:?}", pair.at_client);
    };
    assert_eq!((failed.reason, *side), (Reason::Capability, Side::Here));
    assert!(failed.text.contains("--carrier ip"), "{}", failed.text);
    // One that does not.
    let mut pair = Pair::new(client_config(), udp());
    pair.scanned();
    pair.client
        .suggest(pair.now, Carrier::Ip, 4000, 5000)
        .unwrap();
    pair.settle();
    let ServerEvent::Failed { failed, side } = pair.last_server() else {
        panic!("{:?}", pair.at_server);
    };
    assert_eq!((failed.reason, *side), (Reason::Capability, Side::Here));
}

#[test]
fn the_plan_keeps_to_the_carrier_whose_port_is_kept() {
    let server = ServerConfig::new(Capabilities::UDP.with(Capabilities::IP));
    let mut pair = Pair::new(client_config(), server);
    pair.scanned();
    pair.client
        .suggest(pair.now, Carrier::Ip, 4000, 5000)
        .unwrap();
    pair.settle();
    pair.server.port(pair.now, 5000).unwrap();
    pair.settle();
    let runs = vec![Run { first: 0, count: 1 }];
    let layout = Arc::new(Layout::new(&manifest(), runs).unwrap());
    pair.client.plan(pair.now, Some((path(), layout))).unwrap();
    let mut buffer = vec![0; MAX_FRAME_LEN];
    let frame = pair.client.poll_transmit(pair.now, &mut buffer).unwrap();
    let refused = pair
        .server
        .handle_packet(pair.now, &(), &buffer[..frame.len]);
    assert_eq!(refused, Err(Error::Contradiction));
}

#[test]
fn events_that_nobody_takes_stop_the_peer() {
    let mut pair = Pair::new(client_config(), udp());
    pair.planned();
    let mut frame = [0; 24];
    Progress {
        received: 0,
        held: 0,
    }
    .emit(&mut frame);
    let mut taken = 0;
    let refused = loop {
        match pair.client.handle_packet(pair.now, &(), &frame) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((refused, taken), (Error::Full, 16));
    pair.client.poll_event();
    assert_eq!(pair.client.handle_packet(pair.now, &(), &frame), Ok(()));
}

#[test]
fn counts_that_contradict_are_refused() {
    let mut pair = Pair::new(client_config(), udp());
    pair.planned();
    let mut frame = [0; 24];
    Progress {
        received: u64::MAX,
        held: 0,
    }
    .emit(&mut frame);
    let refused = pair.client.handle_packet(pair.now, &(), &frame);
    assert_eq!(refused, Err(Error::Contradiction));
    assert_eq!(pair.client.stats().contradicting, 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// At every point of a copy, either machine takes any frame without a panic, and tells the
    /// application nothing when it refuses one.
    #[test]
    fn hostile_peers(
        steps in 0usize..5,
        frames in prop::collection::vec(
            (0u8..19, prop::collection::vec(any::<u8>(), 0..90), any::<u16>()), 1..30),
    ) {
        let mut pair = Pair::new(client_config(), udp());
        match steps {
            0 => {}
            1 => pair.settle(),
            2 => pair.scanned(),
            _ => { pair.planned(); }
        }
        for (kind, body, small) in frames {
            let mut frame = vec![1, kind, 0, 0];
            frame.extend_from_slice(&(body.len() as u32).to_be_bytes());
            frame.extend_from_slice(&body);
            // Small numbers get further than random ones.
            if body.len() > 8 && small % 2 == 0 {
                frame[8..15].fill(0);
            }
            let now = pair.now;
            if pair.client.handle_packet(now, &(), &frame).is_err() {
                prop_assert_eq!(pair.client.poll_event(), None);
            }
            if pair.server.handle_packet(now, &(), &frame).is_err() {
                prop_assert_eq!(pair.server.poll_event(), None);
            }
            while pair.client.poll_event().is_some() {}
            while pair.server.poll_event().is_some() {}
        }
    }
}

#[test]
fn each_file_has_one_digest() {
    let mut pair = Pair::new(client_config(), udp());
    pair.planned();
    let now = pair.now;
    let digest = |entry| FileDigest {
        entry,
        verdict: FileVerdict::Digest([1; 32]),
    };
    let mut frame = vec![0; digest(0).buffer_len()];
    // The folder, the second file, the first one, the second one again.
    let wrong = Err(Error::Contradiction);
    for (entry, expected) in [(0, wrong), (2, Ok(())), (1, wrong), (2, wrong)] {
        digest(entry).emit(&mut frame);
        assert_eq!(
            pair.server.handle_packet(now, &(), &frame),
            expected,
            "{entry}"
        );
    }
    let verdict = FileVerdict::Changed;
    pair.client.digest(now, 2, verdict).unwrap();
    assert_eq!(pair.client.digest(now, 2, verdict), Err(UnexpectedMessage));
}
