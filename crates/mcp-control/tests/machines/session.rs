//! Both machines together, in virtual time.

use std::sync::Arc;

use mcp_control::limits::{MAX_FRAME_LEN, MAX_SUGGESTIONS};
use mcp_control::wire::held::{Held, Scanned};
use mcp_control::wire::hello::{Capabilities, Prepared, Welcome};
use mcp_control::wire::plan::{Carrier, DataKey};
use mcp_control::wire::port::Suggest;
use mcp_control::wire::progress::{Done, FileVerdict, Progress};
use mcp_control::wire::{self, Message as _};
use mcp_control::*;

use crate::common::*;

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
    let whole = whole();
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
                capabilities: Capabilities::UDP.with(Capabilities::PREPARES)
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
    let mut ip = client_config();
    ip.capabilities = Capabilities::IP;
    ip.required = Capabilities::IP;
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

/// Messages that one side sends without an answer of the other: half a round trip.
fn flight<F: Role, T: Role>(now: Instant, from: &mut Endpoint<F>, to: &mut Endpoint<T>) -> usize {
    let mut buffer = vec![0; MAX_FRAME_LEN];
    let mut frames = 0;
    while let Some(frame) = from.poll_transmit(now, &mut buffer) {
        to.handle_packet(now, &(), &buffer[..frame.len]).unwrap();
        frames += 1;
    }
    frames
}

fn prepared() -> Prepared {
    Prepared {
        carrier: Carrier::Udp,
        source: 4000,
        destination: 5000,
        key: Some(DataKey([4; 32])),
    }
}

fn prepared_config() -> ClientConfig {
    let mut config = client_config();
    config.prepared = Some(prepared());
    config
}

/// With TCP's handshake and that of TLS these are three round trips; the handshake of the data connection is the
/// fourth, beside the plan.
#[test]
fn a_new_host_has_the_plan_after_one_answer_and_listens_before() {
    let Pair {
        now,
        mut client,
        mut server,
        ..
    } = Pair::new(prepared_config(), udp());
    flight(now, &mut client, &mut server);
    let Some(ServerEvent::Offered { .. }) = server.poll_event() else {
        panic!("no offer in the first flight");
    };
    let suggested = ServerEvent::Suggested {
        carrier: Carrier::Udp,
        source: 4000,
        destination: 5000,
        prepared: Some(prepared()),
    };
    assert_eq!(server.poll_event(), Some(suggested));
    server.port(now, 5000).unwrap();
    server.scanned(now).unwrap();
    flight(now, &mut server, &mut client);
    let events: Vec<_> = std::iter::from_fn(|| client.poll_event()).collect();
    let port = ClientEvent::Port {
        confirmed: true,
        port: 5000,
    };
    assert!(events.contains(&port) && events.contains(&ClientEvent::Scanned));
    client.plan(now, Some((path(), layout()))).unwrap();
    flight(now, &mut client, &mut server);
    let planned = server.poll_event();
    assert!(matches!(planned, Some(ServerEvent::Planned { .. })));
    server.ready(now).unwrap();
    flight(now, &mut server, &mut client);
    assert_eq!(client.poll_event(), Some(ClientEvent::Ready));
}

#[test]
fn a_suggestion_with_the_offer_may_be_declined_and_repeated() {
    let mut pair = Pair::new(prepared_config(), udp());
    pair.settle();
    assert_eq!(
        pair.client.suggest(pair.now, Carrier::Udp, 4000, 5001),
        Err(UnexpectedMessage),
        "it waits for the answer"
    );
    pair.server.port(pair.now, 6000).unwrap();
    pair.server.scanned(pair.now).unwrap();
    pair.settle();
    pair.client
        .suggest(pair.now, Carrier::Udp, 4000, 6000)
        .unwrap();
    pair.settle();
    let ServerEvent::Suggested { prepared, .. } = pair.last_server() else {
        panic!("{:?}", pair.at_server);
    };
    assert_eq!(*prepared, None, "it waits for READY");
    pair.server.port(pair.now, 6000).unwrap();
    pair.settle();
    let confirmed = ClientEvent::Port {
        confirmed: true,
        port: 6000,
    };
    assert_eq!(pair.last_client(), &confirmed);
}

/// A server that does not know the suggestion in HELLO answers without the capability.
#[test]
fn an_older_server_gets_its_suggestion_later() {
    let now = Instant::from_secs(1);
    let mut client = Client::new(prepared_config(), manifest(), now);
    let welcome = Welcome {
        version: 1,
        capabilities: Capabilities::UDP,
        max_entries: 100,
        max_bytes: 1 << 40,
    };
    let mut frame = vec![0; welcome.buffer_len()];
    welcome.emit(&mut frame);
    client.handle_packet(now, &(), &frame).unwrap();
    let mut frame = vec![0; MAX_FRAME_LEN];
    let len = Scanned { blocks: 0 }.buffer_len();
    Scanned { blocks: 0 }.emit(&mut frame[..len]);
    client.handle_packet(now, &(), &frame[..len]).unwrap();
    client.suggest(now, Carrier::Udp, 4000, 5000).unwrap();
    while let Some(sent) = client.poll_transmit(now, &mut frame) {
        let (kind, _) = wire::split(&frame[..sent.len]).unwrap();
        if kind == wire::Type::Suggest {
            let suggest = Suggest::parse(&frame[..sent.len]).unwrap();
            assert_eq!((suggest.number, suggest.destination), (1, 5000));
            return;
        }
    }
    panic!("no SUGGEST");
}
