//! From the data node to LTP receivers of the network.

use super::*;

#[test]
fn a_content_from_elsewhere_arrives_whole_at_receivers() {
    alone(|| {
        let mut editor = Editor::open().unwrap();
        editor.add_address(1, [127, 0, 0, 2], 32).unwrap();
        let mut config = config();
        config.receivers = 2;
        let mut net = open(&config);
        let (channel, address) = down(&mut *net, &name(NUMBERED)).unwrap();
        assert_eq!(address, "ltp://127.0.0.1@239.200.0.0:6000");
        let receivers = || [1, 2].map(|at| receiver_at(group_of(&address), [127, 0, 0, at]));
        let both = receivers();
        let bytes = content(3_000_000);
        let frames = frames(&bytes);
        send(&mut *net, channel, &frames);
        // Sources repeat the end.
        send(&mut *net, channel, &frames[frames.len() - 1..]);
        settles(&mut *net, "contents_sent", 1);
        for receiver in both {
            let received = receiver.join().unwrap().unwrap();
            assert!(received.bytes == bytes, "{} bytes", received.bytes.len());
        }
        // The next content of the session is another LTP session.
        let both = receivers();
        send(&mut *net, channel, &self::frames(b"another"));
        settles(&mut *net, "contents_sent", 2);
        for receiver in both {
            assert_eq!(receiver.join().unwrap().unwrap().bytes, b"another");
        }
        net.reclaim_channel(now(), first_flow(&name(NUMBERED), Direction::Down), channel);
        settles(&mut *net, "streams", 0);
    });
}

#[test]
fn a_content_that_breaks_off_fails_at_its_receivers() {
    alone(|| {
        let mut net = open(&config());
        let (channel, address) = down(&mut *net, &name(NUMBERED)).unwrap();
        let bytes = content(1_000_000);
        let whole = frames(&bytes);
        let mut aborted = Vec::new();
        emit_aborted(9, &mut aborted);
        // The source gives up; frames are missing; the source begins again, and is whole.
        let broken: [Vec<Vec<u8>>; 2] = [
            [&whole[..9], &[aborted]].concat(),
            [&whole[..9], &whole[12..]].concat(),
        ];
        for (at, frames) in broken.iter().enumerate() {
            let receiver = receiver(group_of(&address));
            send(&mut *net, channel, frames);
            settles(&mut *net, "contents_aborted", at as u64 + 1);
            let error = receiver.join().unwrap().unwrap_err();
            assert!(matches!(error, Error::Incomplete(_)), "{error}");
        }
        let receiver = receiver(group_of(&address));
        send(&mut *net, channel, &whole);
        settles(&mut *net, "contents_sent", 1);
        assert!(receiver.join().unwrap().unwrap().bytes == bytes);
        assert!(count(&*net, "frames_skipped") > 0);
    });
}

#[test]
fn the_end_of_the_channel_or_of_the_gateway_is_not_the_end_of_a_content() {
    alone(|| {
        for is_gateway in [false, true] {
            let mut net = open(&config());
            let (channel, address) = down(&mut *net, &name(NUMBERED)).unwrap();
            let receiver = receiver(group_of(&address));
            let frames = frames(&content(1_000_000));
            send(&mut *net, channel, &frames[..10]);
            drive(&mut *net, "a receiver", |net| count(net, "readers") == 1);
            if is_gateway {
                drop(net);
            } else {
                let flow = name(NUMBERED);
                net.reclaim_channel(now(), first_flow(&flow, Direction::Down), channel);
                // The group is free when the LTP session has ended.
                settles(&mut *net, "contents_aborted", 1);
                settles(&mut *net, "streams", 0);
            }
            assert!(receiver.join().unwrap().is_err());
        }
    });
}

#[test]
fn a_content_is_sent_to_its_end_after_the_session_has_ended() {
    alone(|| {
        let mut config = config();
        // Two seconds for the content: it is on its way when the channel is given back.
        config.rate = Rate::Fixed(8_000_000);
        let mut net = open(&config);
        let (channel, address) = down(&mut *net, &name(NUMBERED)).unwrap();
        let receiver = receiver(group_of(&address));
        let bytes = content(2_000_000);
        send(&mut *net, channel, &frames(&bytes));
        let flow = name(NUMBERED);
        net.reclaim_channel(now(), first_flow(&flow, Direction::Down), channel);
        assert_eq!(
            net.send_data(now(), channel, b"x"),
            Err(NativeError::Refused)
        );
        settles(&mut *net, "contents_sent", 1);
        assert!(receiver.join().unwrap().unwrap().bytes == bytes);
    });
}

#[test]
fn a_session_without_numbers_is_a_stream_that_can_only_break_off() {
    alone(|| {
        let mut config = config();
        config.idle_timeout = Duration::from_secs(1);
        let mut net = open(&config);
        let (channel, address) = down(&mut *net, &name("bfed://9/film")).unwrap();
        let to = group_of(&address);
        let got = Arc::new(Mutex::new(Vec::new()));
        struct Into(Arc<Mutex<Vec<u8>>>);
        impl std::io::Write for Into {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().unwrap().extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let sink = Sink::stream(Into(Arc::clone(&got)));
        let receiver =
            std::thread::spawn(move || ltp_linux::receive(&ReceiveConfig::new(group(to)), sink));
        // A block of LTP leaves when it is full.
        let bytes = content(4 * 65_536);
        let pieces: Vec<_> = bytes.chunks(10_000).map(<[u8]>::to_vec).collect();
        send(&mut *net, channel, &pieces);
        drive(&mut *net, "the bytes", |_| {
            let got = got.lock().unwrap();
            got.len() >= 3 * 65_536 && bytes.starts_with(&got)
        });
        // Then the source sends nothing.
        settles(&mut *net, "contents_aborted", 1);
        assert!(receiver.join().unwrap().is_err());
    });
}

#[test]
fn a_receiver_that_does_not_advance_holds_the_source_back_and_is_given_up() {
    alone(|| {
        let mut config = config();
        config.buffer = 1 << 20;
        config.receivers = 2;
        let mut net = open(&config);
        let (channel, address) = down(&mut *net, &name(NUMBERED)).unwrap();
        let to = group_of(&address);
        struct Never;
        impl std::io::Write for Never {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                std::thread::sleep(LIMIT);
                Err(std::io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let cancel = Cancel::new().unwrap();
        let stuck = std::thread::spawn({
            let cancel = cancel.clone();
            move || {
                let mut config = ReceiveConfig::new(group(to));
                config.buffer_bytes = 128 << 10;
                let sink = Sink::stream(Never);
                let receiver = ltp_linux::Receiver::open(&config, sink, cancel, &mut |_| {});
                receiver.unwrap().run(&mut |_| {}).is_err()
            }
        });
        let well = receiver(to);
        let bytes = content(8_000_000);
        let busy = send(&mut *net, channel, &frames(&bytes));
        assert!(busy > 0, "nothing held the source back");
        settles(&mut *net, "contents_unconfirmed", 1);
        assert!(count(&*net, "receivers_failed") >= 1);
        assert!(
            well.join().unwrap().unwrap().bytes == bytes,
            "the others go on"
        );
        cancel.cancel();
        assert!(stuck.join().unwrap());
    });
}

#[test]
fn groups_may_be_of_ipv6() {
    alone(|| {
        // The loopback interface has no route to IPv6 groups, others have.
        let mut editor = Editor::open().unwrap();
        editor.add_veth("v0", "v1", None).unwrap();
        for name in ["v1", "v0"] {
            let index = editor.index(name).unwrap();
            editor.set_up(index, true).unwrap();
        }
        let index = editor.index("v0").unwrap();
        let own: std::net::Ipv6Addr = "fd00::1".parse().unwrap();
        editor.add_address(index, own, 64).unwrap();
        let mut config = config();
        config.multicast.data.link.interface = Some("v0".into());
        config.multicast.data.groups = Groups::parse("ff15::100/126").unwrap();
        config.multicast.mediator = "[ff15::6266]:25190".parse().unwrap();
        let mut net = open(&config);
        let (channel, address) = down(&mut *net, &name(NUMBERED)).unwrap();
        assert_eq!(address, "ltp://[fd00::1]@[ff15::100]:6000");
        let receiver = std::thread::spawn(|| {
            let to = "[ff15::100]:6000".parse().unwrap();
            let mut config = ReceiveConfig::new(Group::new(to).interface("v0"));
            config.source = Some("fd00::1".parse().unwrap());
            ltp_linux::receive_buffer(&config, 1 << 20)
        });
        let bytes = content(300_000);
        send(&mut *net, channel, &frames(&bytes));
        settles(&mut *net, "contents_sent", 1);
        assert!(receiver.join().unwrap().unwrap() == bytes);
    });
}

#[test]
fn a_source_that_begins_again_and_again_gets_one_ltp_session_a_second() {
    alone(|| {
        let mut net = open(&config());
        let (channel, _) = down(&mut *net, &name(NUMBERED)).unwrap();
        let first = &frames(&content(100_000))[0];
        let began = std::time::Instant::now();
        let mut busy = 0;
        for _ in 0..3 {
            busy += send(&mut *net, channel, std::slice::from_ref(first));
        }
        settles(&mut *net, "contents_aborted", 2);
        assert!(busy > 0, "the source was not held back");
        assert!(began.elapsed() >= Duration::from_secs(1));
        assert_eq!(count(&*net, "streams"), 1);
    });
}
