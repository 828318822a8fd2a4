//! Transfers without `--rate`: congestion control on links that differ.

use std::fs;
use std::path::Path;
use std::process::Command;

use netlab::NodeId;

use super::common::{Running, content, lms_recv, lms_send};
use super::network::Network;
use super::relays::Relay;
use super::transfer::folder;

const GROUP: [&str; 2] = ["--group", "239.1.2.3:5000"];

/// `None` where the network or its limits cannot be had, which is printed.
fn limited(mbps: [u32; 2]) -> Option<Network> {
    Network::new().filter(|network| network.limit(mbps))
}

fn receive(network: &Network, node: NodeId, folder: &Path) -> Running {
    let mut command = Command::new(lms_recv());
    command.args(GROUP).arg("--output").arg(folder);
    let start = || Running::start("receiver", &mut command);
    network.at(node).run(start).expect("namespace")
}

fn send(network: &Network, options: &[&str], file: &Path) -> Running {
    let mut command = Command::new(lms_send());
    command.args(GROUP).args(["--ttl", "4", "--json"]);
    command.args(["--receivers", "2"]).args(options).arg(file);
    network.in_source(&mut command)
}

#[test]
fn without_a_rate_the_sender_follows_the_receiver_with_the_slowest_link_and_names_it() {
    let Some(network) = limited([8, 80]) else {
        return;
    };
    let (from, to) = (folder(), [folder(), folder()]);
    let (bytes, file) = (content(4_000_000), from.path().join("x"));
    fs::write(&file, &bytes).expect("content");
    let slow = receive(&network, network.host, to[0].path());
    let fast = receive(&network, network.second, to[1].path());
    let sender = send(&network, &[], &file).finish();
    sender.expect(0);
    slow.finish().expect(0);
    fast.finish().expect(0);
    for folder in &to {
        assert!(fs::read(folder.path().join("x")).expect("file") == bytes);
    }
    let address = format!("\"address\":\"{}:", network.address(network.host));
    let names_it = |event: String| {
        let limiting = event.split_once("\"limiting\":{");
        limiting.is_some_and(|(_, limiting)| limiting.contains(&address))
    };
    assert!(sender.events("progress").any(names_it));
}

#[test]
fn a_receiver_that_holds_the_rate_below_the_lowest_is_given_up_and_named() {
    let Some(network) = limited([2, 80]) else {
        return;
    };
    let (from, to) = (folder(), [folder(), folder()]);
    let (bytes, file) = (content(6_000_000), from.path().join("x"));
    fs::write(&file, &bytes).expect("content");
    let slow = receive(&network, network.host, to[0].path());
    let fast = receive(&network, network.second, to[1].path());
    let sender = send(&network, &["--min-rate", "5M"], &file).finish();
    sender.expect(3);
    sender.says("held the rate below --min-rate");
    fast.finish().expect(0);
    assert!(fs::read(to[1].path().join("x")).expect("file") == bytes);
    let slow = slow.finish();
    slow.expect(1);
    slow.says("slower than the source's lowest rate");
}

#[test]
fn a_lowest_rate_needs_congestion_control() {
    let mut command = Command::new(lms_send());
    command
        .args(GROUP)
        .args(["--rate", "10M", "--min-rate", "5M", "x"]);
    let refused = Running::start("sender", &mut command).finish();
    refused.expect(2);
    refused.says("--min-rate");
}

/// Everything by unicast, through a relay between the sender and two receivers.
#[test]
fn through_a_relay_the_receiver_with_the_slowest_link_sets_the_rate() {
    let Some(network) = limited([8, 80]) else {
        return;
    };
    let listen = format!("{}:4143", network.address(network.router));
    let relay = Relay::start_at(&listen, 1, &[], |command| {
        let spawned = network.at(network.router).run(|| command.spawn());
        spawned.expect("namespace").expect("relay")
    });
    let help = format!("dyram://{}", relay.address);
    let (from, to) = (folder(), [folder(), folder()]);
    let (bytes, file) = (content(6_000_000), from.path().join("x"));
    fs::write(&file, &bytes).expect("content");
    let source = network.address(network.source).to_string();
    let receivers = [network.host, network.second].map(|host| {
        let to = &to[usize::from(host == network.second)];
        let mut command = Command::new(lms_recv());
        command
            .args(GROUP)
            .args(["--source", &source, "--assist", &help]);
        command.arg("--output").arg(to.path());
        let start = || Running::start("receiver", &mut command);
        network.at(host).run(start).expect("namespace")
    });
    let sender = send(&network, &["--assist", &help], &file).finish();
    sender.expect(0);
    for (receiver, folder) in receivers.into_iter().zip(&to) {
        receiver.finish().expect(0);
        assert!(fs::read(folder.path().join("x")).expect("file") == bytes);
    }
    let address = format!("\"address\":\"{}\"", relay.address);
    let names_it = |event: String| {
        let limiting = event.split_once("\"limiting\":{");
        limiting.is_some_and(|(_, limiting)| limiting.contains(&address))
    };
    assert!(sender.events("progress").any(names_it));
}
