//! LTP networks: the data side against LTP senders and receivers of `ltp-linux`, on loopback.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bfed::authorise::Rules;
use bfed::native::{ChannelId, Direction, NativeError, Upcall};
use bfed::wire::client::{Answer, Want};
use bfed::{ChannelAddress, Duration as Span, Instant, SessionName};
use bfed_client::frames::{Deframer, Found, emit_aborted, emit_data, emit_end};
use bfed_gateway::native::{Groups, LtpConfig, Network, NetworkConfig, Role, TokensConfig};
use ltp_linux::{
    Cancel, Error, Group, Rate, ReceiveConfig, Received, SendConfig, SendOutcome, Sender, Sink,
    Source,
};

use linux_net::link::Editor;

use crate::common::*;
use crate::ip;

const NUMBERED: &str = "bfed://9/film/?framing=numbered";
const OWN: &str = "bfed://7/239.1.2.3/5004/?framing=numbered";
const GROUP: &str = "239.1.2.3:5004";

/// How long to wait for what must happen.
const LIMIT: Duration = Duration::from_secs(60);

fn config() -> LtpConfig {
    let mut config = LtpConfig::new(ip::config());
    config.rate = Rate::Fixed(400_000_000);
    config.timeout = Duration::from_secs(3);
    config
}

fn open(config: &LtpConfig) -> Box<dyn Network> {
    channels(&NetworkConfig::Ltp(config.clone()))
}

fn group(address: SocketAddr) -> Group {
    Group::new(address).interface("lo")
}

/// Returns the group of `ltp://SOURCE@GROUP:PORT`.
fn group_of(address: &str) -> SocketAddr {
    let rest = address.strip_prefix("ltp://127.0.0.1@");
    rest.expect(address).parse().expect(address)
}

fn content(len: usize) -> Vec<u8> {
    let mut word = 0x2545_f491_4f6c_dd1d_u64;
    std::iter::repeat_with(|| {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word as u8
    })
    .take(len)
    .collect()
}

/// An LTP receiver of the network.
type Receiving = std::thread::JoinHandle<Result<Received, Error>>;

fn receiver(to: SocketAddr) -> Receiving {
    receiver_at(to, [127, 0, 0, 1])
}

/// A receiver with an address of its own: those at one address count as one host.
fn receiver_at(to: SocketAddr, address: [u8; 4]) -> Receiving {
    std::thread::spawn(move || {
        let mut group = group(to);
        group.local_address = Some(address.into());
        let config = ReceiveConfig::new(group);
        ltp_linux::receive(&config, Sink::buffer(64 << 20))
    })
}

/// Frames of a content, and its end.
fn frames(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    for (number, piece) in bytes.chunks(50_000).enumerate() {
        let mut frame = Vec::new();
        emit_data(number as u64, piece, &mut frame);
        all.push(frame);
    }
    let mut end = Vec::new();
    let count = all.len() as u64;
    emit_end(
        count,
        bytes.len() as u64,
        blake3::hash(bytes).as_bytes(),
        &mut end,
    );
    all.push(end);
    all
}

/// Drives a network as a data node does, until `done`; data from the network is dropped.
fn drive(network: &mut dyn Network, what: &str, mut done: impl FnMut(&mut dyn Network) -> bool) {
    let until = std::time::Instant::now() + LIMIT;
    let mut buffer = vec![0; bfed::wire::data::HEADER_LEN + bfed::wire::data::MAX_PAYLOAD_LEN];
    while !done(network) {
        assert!(std::time::Instant::now() < until, "{what}");
        let now = Instant::now();
        network.handle_timeout(now);
        while network.poll_upcall(now, &mut buffer).is_some() {}
        while network.poll_writable().is_some() {}
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends frames; waits while the network is busy. Returns how often it was.
fn send(network: &mut dyn Network, channel: ChannelId, frames: &[Vec<u8>]) -> u32 {
    let mut busy = 0;
    for frame in frames {
        drive(network, "a frame is sent", |network| {
            match network.send_data(Instant::now(), channel, frame) {
                Ok(()) => true,
                Err(NativeError::Busy) => {
                    busy += 1;
                    false
                }
                Err(error) => panic!("{error}"),
            }
        });
    }
    busy
}

/// A channel that carries a session into this network from now on, and its address.
fn down(
    network: &mut dyn Network,
    session: &SessionName,
) -> Result<(ChannelId, String), NativeError> {
    let flow = first_flow(session, Direction::Down);
    let (channel, address) = network.allocate_channel(Instant::now(), flow)?;
    Ok((channel, String::from_utf8(address).unwrap()))
}

fn settles(network: &mut dyn Network, counter: &str, value: u64) {
    drive(network, counter, |network| count(network, counter) == value);
}

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

/// Sends a content as a host of the network.
fn sender(
    bytes: Vec<u8>,
    key: Option<[u8; 32]>,
) -> std::thread::JoinHandle<Result<SendOutcome, Error>> {
    std::thread::spawn(move || {
        let mut group = group(GROUP.parse().unwrap());
        group.key = key;
        let mut config = SendConfig::new(group);
        config.rate = Rate::Fixed(400_000_000);
        config.receivers = Some(1);
        config.connect_timeout = Duration::from_secs(30);
        ltp_linux::send(&config, Source::buffer(bytes))
    })
}

/// Reads the frames of a session until the next end: the data, and what the end says.
fn contents(network: &mut dyn Network, ends: usize) -> Vec<(Vec<u8>, u64)> {
    let until = std::time::Instant::now() + LIMIT;
    let mut buffer = vec![0; bfed::wire::data::HEADER_LEN + bfed::wire::data::MAX_PAYLOAD_LEN];
    let (mut deframer, mut data, mut all) = (Deframer::default(), Vec::new(), Vec::new());
    while all.len() < ends {
        assert!(std::time::Instant::now() < until, "no end");
        match network.poll_upcall(now(), &mut buffer) {
            Some(Upcall::Data { len, .. }) => {
                let start = bfed::wire::data::HEADER_LEN;
                deframer.push(&buffer[start..start + len]);
            }
            None => std::thread::sleep(Duration::from_millis(1)),
            other => panic!("{other:?}"),
        }
        while let Some(found) = deframer.next() {
            match found {
                Found::Data { number, payload } => {
                    if number == 0 {
                        data.clear();
                    }
                    data.extend_from_slice(&payload);
                }
                Found::End { bytes, digest, .. } => {
                    let whole = *blake3::hash(&data).as_bytes() == digest;
                    assert_eq!(whole, bytes == data.len() as u64, "{bytes}");
                    all.push((data.clone(), bytes));
                }
                Found::OtherVersion(version) => panic!("{version}"),
            }
        }
    }
    all
}

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
fn sessions_are_bounded_and_what_ltp_cannot_carry_is_refused() {
    alone(|| {
        let mut config = config();
        config.sessions = 2;
        let mut net = open(&config);
        let (channel, _) = down(&mut *net, &name(NUMBERED)).unwrap();
        up(&mut *net, &name(OWN)).unwrap();
        let other = "bfed://7/239.1.2.4/5004";
        assert_eq!(down(&mut *net, &name(NUMBERED)), Err(NativeError::Full));
        assert_eq!(up(&mut *net, &name(other)), Err(NativeError::Full));
        assert_eq!(count(&*net, "sessions_no_room"), 2);
        let flow = name(NUMBERED);
        net.reclaim_channel(now(), first_flow(&flow, Direction::Down), channel);
        up(&mut *net, &name(other)).unwrap();
        for session in [
            "bfed://9/film/?content=real-time",
            "bfed://9/film/?multi-source=true",
        ] {
            assert_eq!(down(&mut *net, &name(session)), Err(NativeError::Refused));
        }
        for session in [
            // Not exported, of the pool with and without a source, no group, the mediator's group.
            "bfed://7/238.1.2.3/5004",
            "bfed://7/239.200.0.1/5004",
            "bfed://7/127.0.0.1@239.200.0.1/5004",
            "bfed://7/film",
            "bfed://7/239.255.98.102/5004",
        ] {
            assert_eq!(
                up(&mut *net, &name(session)),
                Err(NativeError::NoSession),
                "{session}"
            );
        }
        assert_eq!(count(&*net, "sessions_refused"), 7);
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

#[test]
fn with_help_of_routers_where_there_are_none_the_gateway_repairs_itself() {
    alone(|| {
        let mut config = config();
        config.assist = "lms+udp".parse().unwrap();
        let mut net = open(&config);
        let (channel, address) = down(&mut *net, &name(NUMBERED)).unwrap();
        let receiver = receiver(group_of(&address));
        let bytes = content(1_000_000);
        send(&mut *net, channel, &frames(&bytes));
        settles(&mut *net, "contents_sent", 1);
        assert!(receiver.join().unwrap().unwrap().bytes == bytes);
        up(&mut *net, &name(OWN)).unwrap();
        let sent = sender(bytes.clone(), None);
        assert!(contents(&mut *net, 1)[0].0 == bytes);
        sent.join().unwrap().unwrap();
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

#[test]
fn members_join_at_the_mediator_as_in_ip_networks() {
    alone(|| {
        let mut net = mediator(&NetworkConfig::Ltp(config()));
        let mut member = Host::in_group(ip::MEDIATOR.parse().unwrap(), None);
        let session = name(NUMBERED);
        member.send(
            ip::MEDIATOR.parse().unwrap(),
            &request(Want::Join, 5, &session),
        );
        let (upcall, _) = soon(&mut *net);
        let Upcall::Join(join) = upcall else {
            panic!("{upcall:?}");
        };
        let address = b"ltp://10.0.0.1@239.200.0.0:6000".to_vec();
        let translation = Answer::Translation(vec![ChannelAddress::Native(address)]);
        net.answer(
            now() + Span::from_millis(1),
            Some(join.client),
            &answer(translation, &session),
        );
        let received = member.receive(5000);
        assert!(!received.is_empty());
        let gateways = [gateway()];
        for (session, is_known) in [
            (OWN, true),
            ("bfed://7/10.0.0.9@239.1.2.3/5004", true),
            ("bfed://7/10.0.0.9@238.1.2.3/5004", false),
        ] {
            let costs = net
                .get_sroutes(now(), 1, &name(session), &gateways)
                .unwrap();
            let unknown = costs.outcome == bfed::wire::sroute::Outcome::NoSession;
            assert_eq!(!unknown, is_known, "{session}");
        }
    });
}
