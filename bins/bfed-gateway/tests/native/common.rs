//! A network of one host, and clients in it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket as StdSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration as StdDuration;

use bfed::authorise::Rules;
use bfed::native::{ChannelId, Direction, NativeFlow, Upcall};
use bfed::wire::client::{Answer, AnswerRepr, Request, Token, Want};
use bfed::wire::data::{HEADER_LEN, MAX_PAYLOAD_LEN};
use bfed::{GatewayId, Instant, SessionName};
use bfed_gateway::native::{
    Access, AccessConfig, Network, NetworkConfig, Owner, Role, TokensConfig,
};
use linux_net::inet::{self, Membership, Transmit, UdpSocket};
use linux_net::netns::Namespace;
use linux_net::poll::{self, Watch};
use linux_net::udp::Batch;

pub(crate) const OWN: u32 = 7;

/// Runs `body` in a network where there is a loopback interface and nothing else.
pub(crate) fn alone(body: impl FnOnce() + Send) {
    if netlab::permitted(env!("CARGO_PKG_NAME")) {
        let namespace = Namespace::new().expect("namespace");
        namespace.run(body).expect("enter namespace");
    }
}

pub(crate) fn gateway() -> GatewayId {
    GatewayId::new(OWN, 1).unwrap()
}

pub(crate) fn owner() -> Owner {
    Owner {
        gateway: gateway(),
        seed: [7; 32],
        now: now(),
        access: access(&TokensConfig::default(), &Rules::default()),
    }
}

/// What clients must present.
pub(crate) fn access(tokens: &TokensConfig, rules: &Rules) -> Arc<Access> {
    let names = BTreeMap::new();
    let config = AccessConfig {
        tokens,
        rules,
        names: &names,
    };
    Access::new(gateway().network, config, [7; 32]).unwrap()
}

/// The same network for another gateway's clients.
pub(crate) fn guarded(access: &Arc<Access>) -> Owner {
    Owner {
        access: Arc::clone(access),
        ..owner()
    }
}

pub(crate) fn name(text: &str) -> SessionName {
    SessionName::parse(text).unwrap()
}

pub(crate) fn now() -> Instant {
    Instant::from_secs(1000)
}

/// Polls the network once if it is readable, as a driver does.
pub(crate) fn started(mut network: Box<dyn Network>) -> Box<dyn Network> {
    if !is_readable(&network, 0) {
        return network;
    }
    let mut buffer = vec![0; HEADER_LEN + MAX_PAYLOAD_LEN];
    assert_eq!(network.poll_upcall(now(), &mut buffer), None);
    network
}

pub(crate) fn channels(config: &NetworkConfig) -> Box<dyn Network> {
    started(
        config
            .open(Role::Channels { part: 0, parts: 1 }, owner())
            .unwrap(),
    )
}

pub(crate) fn mediator(config: &NetworkConfig) -> Box<dyn Network> {
    started(config.open(Role::Mediator, owner()).unwrap())
}

fn is_readable(fd: &impl AsFd, millis: u64) -> bool {
    let mut watch = [Watch::readable(fd.as_fd())];
    poll::wait(&mut watch, Some(StdDuration::from_millis(millis))).unwrap() > 0
}

/// The next event of a network, with its data, within five seconds.
pub(crate) fn soon(network: &mut dyn Network) -> (Upcall, Vec<u8>) {
    let mut buffer = vec![0; HEADER_LEN + MAX_PAYLOAD_LEN];
    for _ in 0..50 {
        if let Some(upcall) = network.poll_upcall(now(), &mut buffer) {
            let data = match upcall {
                Upcall::Data { len, .. } | Upcall::Frame { len, .. } => {
                    buffer[HEADER_LEN..HEADER_LEN + len].to_vec()
                }
                _ => vec![],
            };
            return (upcall, data);
        }
        is_readable(&network, 100);
    }
    panic!("nothing came");
}

/// Nothing has come.
pub(crate) fn nothing(network: &mut dyn Network) {
    let mut buffer = vec![0; HEADER_LEN + MAX_PAYLOAD_LEN];
    is_readable(&network, 50);
    assert_eq!(network.poll_upcall(now(), &mut buffer), None);
}

pub(crate) fn count(network: &dyn Network, what: &str) -> u64 {
    let counters = [network.counters(), network.gauges()].concat();
    let found = counters.iter().find(|(name, _)| *name == what);
    found.unwrap_or_else(|| panic!("{what} in {counters:?}")).1
}

/// The first flow of a session.
pub(crate) fn first_flow(session: &SessionName, direction: Direction) -> NativeFlow<'_> {
    NativeFlow::new(session, session.flows().next().unwrap(), direction)
}

/// A channel that listens to a session of this network.
pub(crate) fn up(
    network: &mut dyn Network,
    session: &SessionName,
) -> Result<ChannelId, bfed::native::NativeError> {
    let flow = first_flow(session, Direction::Up);
    let (channel, _) = network.allocate_channel(now(), flow)?;
    network.subscribe(now(), flow, channel, None)?;
    Ok(channel)
}

/// A channel that carries a session into this network, and its address.
pub(crate) fn down(
    network: &mut dyn Network,
    session: &SessionName,
) -> Result<(ChannelId, String), bfed::native::NativeError> {
    let flow = first_flow(session, Direction::Down);
    let (channel, address) = network.allocate_channel(now(), flow)?;
    Ok((channel, String::from_utf8(address).unwrap()))
}

/// A host of the network, which can receive a group and send to any address.
pub(crate) struct Host(UdpSocket, Batch);

impl Host {
    pub(crate) fn bound(address: SocketAddr) -> Self {
        Host::bound_on(address, 1)
    }

    pub(crate) fn bound_on(address: SocketAddr, interface: u32) -> Self {
        let config = inet::Config {
            interface,
            loopback: true,
            ..inet::Config::new(address)
        };
        Host(UdpSocket::open(&config).unwrap(), Batch::new(4))
    }

    pub(crate) fn in_group(group: SocketAddr, source: Option<IpAddr>) -> Self {
        Host::in_group_on(group, source, 1)
    }

    pub(crate) fn in_group_on(group: SocketAddr, source: Option<IpAddr>, interface: u32) -> Self {
        let host = Host::bound_on(group, interface);
        let membership = Membership {
            group: group.ip(),
            source,
            interface,
        };
        host.0.join(&membership).unwrap();
        host
    }

    pub(crate) fn send(&self, to: SocketAddr, bytes: &[u8]) {
        let transmit = Transmit {
            source: None,
            destination: to,
            bytes,
            segment_len: None,
        };
        self.0.send(&transmit).unwrap();
    }

    /// The next datagrams, within five seconds; none if none come.
    pub(crate) fn receive(&mut self, millis: u64) -> Vec<Vec<u8>> {
        is_readable(&self.0, millis);
        self.0.receive(&mut self.1).unwrap();
        self.1
            .received()
            .map(|datagram| datagram.payload.to_vec())
            .collect()
    }
}

/// Opens a socket of another host at that address.
pub(crate) fn stranger(address: &str) -> StdSocket {
    StdSocket::bind(address).unwrap()
}

pub(crate) fn request(want: Want, nonce: u32, session: &SessionName) -> Vec<u8> {
    request_with(want, nonce, session, None)
}

/// A request with a token.
pub(crate) fn request_with(
    want: Want,
    nonce: u32,
    session: &SessionName,
    token: Option<&str>,
) -> Vec<u8> {
    let request = Request {
        nonce,
        want,
        redirects: 0,
        session: session.clone(),
        token: token.and_then(Token::new),
    };
    let mut bytes = vec![0; request.buffer_len()];
    request.emit(&mut bytes);
    bytes
}

pub(crate) fn answer(answer: Answer, session: &SessionName) -> AnswerRepr {
    AnswerRepr {
        nonce: 0,
        lifetime_s: 100,
        answer,
        session: session.clone(),
    }
}
