//! Multicasts to a random tree and prints how many events a second that was.
//!
//! `cargo run --release -p netsim --example multicast -- [RECEIVERS [PACKETS]]`

mod network;

use network::Peer;

fn main() {
    let mut args = std::env::args()
        .skip(1)
        .map(|arg| arg.parse().expect("a number"));
    let (receivers, packets) = (args.next().unwrap_or(10_000), args.next().unwrap_or(1_000));
    let tree = network::tree(receivers);
    let started = std::time::Instant::now();
    let sim = network::run(&tree, packets);
    let wall_s = started.elapsed().as_secs_f64();
    let heard = sim.nodes().map(|(_, node)| match node {
        Peer::Receiver { heard } => *heard,
        Peer::Source { .. } | Peer::Router { .. } => 0,
    });
    let heard: u64 = heard.sum();
    let sent = u64::from(packets) * u64::from(receivers);
    println!(
        "{heard} of {sent} packets arrived, {:.2} % lost",
        100.0 - 100.0 * heard as f64 / sent as f64
    );
    let events = sim.stats().events;
    println!(
        "{events} events in {wall_s:.2} s: {:.1} ns each",
        wall_s * 1e9 / events as f64
    );
}
