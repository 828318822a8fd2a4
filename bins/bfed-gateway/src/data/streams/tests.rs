//! Channels on real sockets.

use bfed::data::DataEvent;
use bfed::wire::join::FlowChannel;
use bfed::wire::subscribe::{Edge, Repr as Subscribe};
use bfed::{ChannelAddress, DataConfig, DataNode, FlowLabel, NodeId, PeerId, SessionName};
use linux_net::netns::Namespace;

use super::*;
use crate::native::NoNetwork;

const NOW: Instant = Instant::from_micros(100_000_000);

/// A data node that is to dial these addresses, and for which edges.
fn dials(to: &[SocketAddr]) -> Vec<(EdgeId, SocketAddr)> {
    let mut config = DataConfig::new(NodeId(1));
    config.stream = Some(SocketAddr::from(([127, 0, 0, 1], 1)));
    let mut node = DataNode::new(config, Box::new(NoNetwork::new().unwrap()), [1; 32], NOW);
    node.connected(NOW);
    for (number, to) in to.iter().enumerate() {
        let message = bfed::wire::Message::Subscribe(Subscribe {
            up: true,
            request: 1,
            epoch: 1,
            edge: Edge::Peer {
                peer: PeerId(1),
                rate_bps: 0,
            },
            flows: vec![FlowChannel {
                label: FlowLabel::new(7),
                address: ChannelAddress::Stream(*to),
            }],
            session: SessionName::parse(&format!("bfed://2/fake/{number}")).unwrap(),
        });
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        node.handle_packet(NOW, &(), &bytes).unwrap();
    }
    let event = |event| match event {
        DataEvent::Dial { edge, to } => (edge, to),
        other => panic!("{other:?}"),
    };
    std::iter::from_fn(|| node.poll_event())
        .map(event)
        .collect()
}

#[test]
fn calls_to_different_nodes_share_ports() {
    let body = || {
        // Two ports for four calls.
        std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40001").unwrap();
        let listeners = (1..=4)
            .map(|host| TcpListener::bind(SocketAddr::from(([127, 0, 0, host], 4141))).unwrap());
        let listeners: Vec<_> = listeners.collect();
        let to: Vec<_> = listeners
            .iter()
            .map(|one| one.local_addr().unwrap())
            .collect();
        let own = SocketAddr::from(([127, 0, 0, 1], 4141));
        let mut streams = Streams::new(Some(own), 100).unwrap();
        for (edge, to) in dials(&to) {
            streams.dial(NOW, edge, to).unwrap();
        }
        for listener in listeners {
            let (_, from) = listener.accept().unwrap();
            assert_eq!(from.ip(), own.ip(), "peers know the node by its address");
        }
    };
    match Namespace::new() {
        Ok(namespace) => namespace.run(body).expect("enter namespace"),
        Err(error) => netlab::skip("bfed-gateway", format_args!("no namespaces here: {error}")),
    }
}

#[test]
fn callers_that_say_nothing_give_way_and_their_memory_is_bounded() {
    let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let at = listener.local_addr().unwrap();
    let mut streams = Streams::new(None, 100).unwrap();
    let caller = |host: u8| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let from = SocketAddr::from(([127, 0, 0, host], 0));
        socket.bind(&from.into()).unwrap();
        socket.connect(&at.into()).unwrap();
        TcpStream::from(socket)
    };
    let named = |address: IpAddr| address == IpAddr::from([127, 0, 0, 2]);
    let mut callers = vec![];
    // Two data nodes that control announced call first.
    callers.extend([caller(2), caller(2)]);
    for number in 0..1100 {
        callers.push(caller(3 + (number % 100) as u8));
        streams.accept(NOW, &listener, named);
    }
    assert_eq!(streams.len(), UNKNOWN.total + 2);
    assert_eq!(streams.counts.evicted, 1100 - UNKNOWN.total as u64);
    assert_eq!(streams.counts.refused, 0);
    callers.push(caller(2));
    streams.accept(NOW, &listener, named);
    assert_eq!(streams.len(), UNKNOWN.total + 3);
    assert!(streams.waits.len() <= 2 * streams.len() + EVENTS + 1);
    // In ten seconds all are gone.
    let late = streams.overdue(NOW + TIMEOUT);
    for conn in late {
        streams.remove(conn);
    }
    assert_eq!((streams.len(), streams.unproved), (0, 0));
}
