//! LTP networks: the data side against LTP senders and receivers of `ltp-linux`, on loopback.

mod egress;
mod ingress;

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
