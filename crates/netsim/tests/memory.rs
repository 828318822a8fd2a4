//! Memory for each node, link and event in flight. Alone in its process, which it measures.
#![cfg(target_os = "linux")]

use netsim::{Duration, Instant, Io, LinkConfig, Node, NodeId, Port, Sim};

struct Leaf;
struct Fan;

enum Peer {
    Leaf(Leaf),
    Fan(Fan),
}

impl Node for Peer {
    fn handle_packet(&mut self, _now: Instant, port: Port, _packet: &[u8], io: &mut Io<'_>) {
        match self {
            Self::Leaf(Leaf) => {}
            Self::Fan(Fan) => {
                let ports = io.ports();
                io.forward_each((0..ports).map(Port).filter(|other| *other != port));
            }
        }
    }
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn a_hundred_thousand_receivers_cost_what_the_documentation_says() {
    let (fans, leaves) = (10u32, 10_000u32);
    let links = fans * (leaves + 1);
    let before = resident_bytes();
    let mut sim: Sim<Peer> = Sim::new([1; 32]);
    sim.reserve((links + 1) as usize, links as usize);
    let root = sim.add_node(Peer::Fan(Fan));
    let link = LinkConfig::new().delay(Duration::from_millis(10));
    for _ in 0..fans {
        let fan = sim.add_node(Peer::Fan(Fan));
        sim.add_link(root, fan, link);
        for _ in 0..leaves {
            let leaf = sim.add_node(Peer::Leaf(Leaf));
            sim.add_link(fan, leaf, link);
        }
    }
    let built = resident_bytes() - before;
    let each = built / u64::from(links);
    assert!(each <= 128 + 320, "{each} bytes for a node and its link");

    // 10 packets of 1400 bytes: a million events in flight, and 10 times 1400 bytes.
    let before = resident_bytes();
    let packets = 10u32;
    for number in 0..packets {
        sim.with_node(NodeId(0), |_, _, io| {
            io.send_each((0..10).map(Port), &[number as u8; 1400]);
        });
    }
    sim.run_until(Instant::from_millis(15));
    let (events, in_flight) = sim.pending();
    assert_eq!(
        (events as u32, in_flight as u32),
        (packets * fans * leaves, packets)
    );
    let each = (resident_bytes() - before) / events as u64;
    assert!(each <= 64, "{each} bytes for an event");
    sim.run_to_rest();
    assert_eq!(sim.pending(), (0, 0));
}
