//! Corners where two rules meet.

use std::net::{IpAddr, SocketAddr};

use tcpxm::store::Ring;
use tcpxm::wire::{GroupOption, Options, Segment};
use tcpxm::{Config, ConnId, Endpoint, Error, Event, GroupConfig, Instant, Meta, Seq, State};

use crate::hand::*;

#[test]
fn a_burst_interrupted_by_acknowledgements_goes_on() {
    let now = Instant::ZERO;
    let mut endpoint = Endpoint::new(Config::default(), [3; 32], now);
    let receivers = (1..=2).map(|n| IpAddr::from([10, 0, 0, n])).collect();
    let mut config = GroupConfig::new("10.0.1.1:4444".parse().unwrap(), receivers, PORT);
    config.group = tcpxm::GroupChoice::Given(ip(GROUP));
    let id = endpoint
        .open_group(now, &config, Ring::new(1 << 16))
        .unwrap();
    endpoint.send(now, id, &[9; 8000]).unwrap();
    let mut buffer = [0; 1500];
    let mut iss = Seq(0);
    let inject = |endpoint: &mut Endpoint<Ring>, from: u8, seq, ack: Seq, text: &str| {
        let segment = Segment {
            source_port: PORT,
            destination_port: 4444,
            seq,
            ack,
            flags: flags(text),
            window: 60_000,
            options: Options {
                mss: text.contains('S').then_some(1000),
                group: text.contains('S').then_some(GroupOption(ip(GROUP))),
                ..Options::default()
            },
            payload: &[],
        };
        let mut bytes = vec![0; segment.buffer_len()];
        segment.emit(&mut bytes);
        let meta = Meta {
            source: SocketAddr::new(IpAddr::from([10, 0, 0, from]), PORT),
            destination: ip("10.0.1.1"),
        };
        endpoint.handle_packet(now, &meta, &bytes).unwrap();
    };
    while let Some(transmit) = endpoint.poll_transmit(now, &mut buffer) {
        iss = Segment::parse(&buffer[..transmit.len]).unwrap().seq;
    }
    for from in 1..=2 {
        inject(&mut endpoint, from, Seq(100), iss.plus(1), "SA");
    }
    // The copies to the group leave, and everybody has them before the unicast copies do.
    let mut copies = 0;
    while copies < 8 {
        let transmit = endpoint.poll_transmit(now, &mut buffer).unwrap();
        copies += usize::from(transmit.is_multicast());
    }
    for from in 1..=2 {
        inject(&mut endpoint, from, Seq(101), iss.plus(1 + 8000), "A");
    }
    while endpoint.poll_transmit(now, &mut buffer).is_some() {}
    let members: Vec<ConnId> = endpoint.members(id).unwrap().collect();
    assert_eq!(members.len(), 2);
    for member in members {
        let stats = endpoint.conn_stats(member).unwrap();
        assert_eq!(
            (stats.state, stats.acknowledged),
            (State::Established, 8000)
        );
    }
}
