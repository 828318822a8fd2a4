//! Three networks in a line, a gateway in each: what the first one learns of the others.
//!
//! `cargo run -p bfed --example three_networks`

use bfed::wire::MAX_MESSAGE_LEN;
use bfed::{Config, ConnId, ControlNode, Duration, GatewayId, Instant, PeerConfig, PeerId};

fn main() {
    let mut now = Instant::ZERO;
    let ids = [1, 2, 3].map(|network| GatewayId::new(network, 1).expect("a network"));
    let gateway = |id: GatewayId| {
        let seed = [id.network.get() as u8; 32];
        ControlNode::new(Config::new(id), seed, now).expect("a valid configuration")
    };
    let mut gateways = ids.map(gateway);

    // A stream between neighbours. Both ends call it by the same number here; the one that called is
    // the one with `true`.
    let links = [(0, 1, ConnId(1)), (1, 2, ConnId(2))];
    for (left, right, conn) in links {
        for (own, other, called) in [(left, right, true), (right, left, false)] {
            let peer = PeerId(ids[other].network.get());
            let config = PeerConfig::new(ids[other]);
            gateways[own]
                .add_peer(now, peer, config)
                .expect("room for a peer");
            gateways[own].connected(now, conn, peer, called);
        }
    }

    // Carry messages until nothing happens any more: a second is plenty.
    let mut buffer = [0; MAX_MESSAGE_LEN];
    while now < Instant::ZERO + Duration::from_secs(1) {
        for own in 0..gateways.len() {
            while let Some(message) = gateways[own].poll_transmit(now, &mut buffer) {
                let link = links.iter().find(|link| link.2 == message.conn);
                let &(left, right, conn) = link.expect("a link");
                let other = if own == left { right } else { left };
                gateways[other]
                    .handle_packet(now, &conn, &buffer[..message.len])
                    .expect("a message that is understood");
            }
            while let Some(event) = gateways[own].poll_event() {
                println!("{now} {}: {event:?}", ids[own]);
            }
        }
        now += Duration::from_millis(10);
        gateways
            .iter_mut()
            .for_each(|gateway| gateway.handle_timeout(now));
    }

    for route in gateways[0].routes().filter(|route| route.best) {
        let path: Vec<String> = route.route.path.iter().map(ToString::to_string).collect();
        println!(
            "{}: {} by way of {}",
            route.table,
            route.destination,
            path.join(", ")
        );
    }
    assert!(
        gateways[0]
            .routes()
            .any(|route| route.destination == ids[2])
    );
}
