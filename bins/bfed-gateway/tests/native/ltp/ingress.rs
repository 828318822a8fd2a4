//! From LTP senders of the network to the data node.

use super::*;

#[test]
fn a_content_of_the_network_reaches_the_data_node_whole_and_once() {
    alone(|| {
        let mut net = open(&config());
        let channel = up(&mut *net, &name(OWN)).unwrap();
        let bytes = content(2_000_000);
        let sent = sender(bytes.clone(), None);
        let read = contents(&mut *net, 3);
        for (data, len) in &read {
            assert_eq!(*len, 2_000_000);
            assert!(*data == bytes);
        }
        assert_eq!(sent.join().unwrap().unwrap(), SendOutcome::Complete);
        // The end was repeated; the content is not received again.
        settles(&mut *net, "contents_received", 1);
        // Another content follows.
        let sent = sender(b"another".to_vec(), None);
        assert_eq!(contents(&mut *net, 1), [(b"another".to_vec(), 7)]);
        sent.join().unwrap().unwrap();
        let session = name(OWN);
        net.unsubscribe(now(), first_flow(&session, Direction::Up), channel);
        settles(&mut *net, "streams", 0);
    });
}

#[test]
fn a_paused_channel_holds_its_sender_back() {
    alone(|| {
        let mut config = config();
        config.buffer = 1 << 20;
        let mut net = open(&config);
        let channel = up(&mut *net, &name(OWN)).unwrap();
        net.set_paused(channel, true);
        let bytes = content(6_000_000);
        let sent = sender(bytes.clone(), None);
        std::thread::sleep(Duration::from_secs(2));
        nothing(&mut *net);
        assert!(!sent.is_finished(), "the gateway took 6 MB into 1 MiB");
        net.set_paused(channel, false);
        let read = contents(&mut *net, 1);
        assert!(read[0].0 == bytes);
        sent.join().unwrap().unwrap();
    });
}

#[test]
fn a_sender_that_gives_up_is_told_on() {
    alone(|| {
        let mut net = open(&config());
        up(&mut *net, &name(OWN)).unwrap();
        let cancel = Cancel::new().unwrap();
        let sent = std::thread::spawn({
            let cancel = cancel.clone();
            move || {
                let mut config = SendConfig::new(group(GROUP.parse().unwrap()));
                config.rate = Rate::Fixed(20_000_000);
                config.receivers = Some(1);
                let source = Source::buffer(content(20_000_000));
                let opened = Sender::open(&config, source, cancel, &mut |_| {});
                opened.unwrap().run(&mut |_| {})
            }
        });
        let mut buffer = vec![0; bfed::wire::data::HEADER_LEN + bfed::wire::data::MAX_PAYLOAD_LEN];
        let until = std::time::Instant::now() + LIMIT;
        while net.poll_upcall(now(), &mut buffer).is_none() {
            assert!(std::time::Instant::now() < until, "no data");
            std::thread::sleep(Duration::from_millis(1));
        }
        cancel.cancel();
        let ends = contents(&mut *net, 1);
        assert_eq!(ends[0].1, bfed_client::frames::ABORTED);
        assert!(sent.join().unwrap().is_err());
        settles(&mut *net, "contents_incomplete", 1);
        // It is started again.
        let sent = sender(b"whole".to_vec(), None);
        let ends = contents(&mut *net, 3);
        assert!(ends.contains(&(b"whole".to_vec(), 5)), "{}", ends.len());
        sent.join().unwrap().unwrap();
    });
}

#[test]
fn sources_that_may_not_publish_and_forgers_without_the_key_are_not_taken() {
    alone(|| {
        // No host of loopback may publish.
        let rules: Rules = deny_publishers();
        let access = access(&TokensConfig::default(), &rules);
        let role = Role::Channels { part: 0, parts: 1 };
        let network = NetworkConfig::Ltp(config());
        let mut net = started(network.open(role, guarded(&access)).unwrap());
        up(&mut *net, &name(OWN)).unwrap();
        let sent = sender(b"forged".to_vec(), None);
        settles(&mut *net, "sources_refused", 1);
        drop((net, sent));
        // With a key.
        let folder = tempfile::tempdir().unwrap();
        let key_file = folder.path().join("key");
        std::fs::write(&key_file, [5; 32]).unwrap();
        let mut config = config();
        config.key_file = Some(key_file);
        let mut net = open(&config);
        up(&mut *net, &name(OWN)).unwrap();
        let forged = sender(b"forged".to_vec(), Some([6; 32]));
        let plain = sender(b"plain".to_vec(), None);
        let sent = sender(b"true".to_vec(), Some([5; 32]));
        assert_eq!(contents(&mut *net, 1)[0].0, b"true");
        sent.join().unwrap().unwrap();
        settles(&mut *net, "contents_received", 1);
        drop((forged, plain));
    });
}

#[test]
fn a_flood_of_forged_packets_begins_nothing_and_keeps_nothing() {
    alone(|| {
        let mut net = open(&config());
        up(&mut *net, &name(OWN)).unwrap();
        let host = Host::bound(([127, 0, 0, 1], 0).into());
        let noise = content(1400);
        for round in 0..20_000usize {
            // All lengths, and the first bytes of LTP in half of them.
            let len = 1 + round % 1400;
            let mut packet = noise[..len].to_vec();
            if round % 2 == 0 {
                // Each type of packet of this version.
                packet[0] = 0x10 | (round / 2 % 16) as u8;
            }
            host.send(GROUP.parse().unwrap(), &packet);
        }
        nothing(&mut *net);
        assert_eq!(count(&*net, "contents_received"), 0);
        let sent = sender(b"whole".to_vec(), None);
        assert_eq!(contents(&mut *net, 1), [(b"whole".to_vec(), 5)]);
        sent.join().unwrap().unwrap();
    });
}

#[test]
fn a_session_may_name_its_source() {
    alone(|| {
        let mut net = open(&config());
        let session = name("bfed://7/127.0.0.1@239.1.2.3/5004/?framing=numbered");
        let channel = up(&mut *net, &session).unwrap();
        let sent = sender(b"named".to_vec(), None);
        assert_eq!(contents(&mut *net, 1), [(b"named".to_vec(), 5)]);
        sent.join().unwrap().unwrap();
        settles(&mut *net, "contents_received", 1);
        net.unsubscribe(now(), first_flow(&session, Direction::Up), channel);
        // What another host sends to the group is not of the session.
        let session = name("bfed://7/10.0.0.9@239.1.2.4/5004/?framing=numbered");
        up(&mut *net, &session).unwrap();
        let to = "239.1.2.4:5004".parse().unwrap();
        let mut forger = SendConfig::new(group(to));
        forger.rate = Rate::Fixed(400_000_000);
        let sent = ltp_linux::send(&forger, Source::buffer(*b"forged"));
        assert_eq!(sent.unwrap(), SendOutcome::Sent);
        assert_eq!(count(&*net, "contents_received"), 1);
        nothing(&mut *net);
    });
}

/// Rules by which loopback may be the source of nothing.
fn deny_publishers() -> Rules {
    use bfed::authorise::{Action, Right, Rule};
    Rules {
        rules: vec![Rule {
            name: "no sources".into(),
            rights: vec![Right::Publish],
            clients: vec!["127.0.0.0/8".parse().unwrap()],
            action: Action::Deny,
            ..Rule::default()
        }],
        ..Rules::default()
    }
}
