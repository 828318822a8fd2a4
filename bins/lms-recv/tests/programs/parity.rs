//! Transfers whose losses parity repairs.

use std::fs;
use std::path::Path;
use std::process::Command;

use netlab::NodeId;

use super::common::{Finished, Running, content, lms_recv, lms_send};
use super::network::{Network, filter, number};
use super::transfer::folder;

const GROUP: [&str; 2] = ["--group", "239.1.2.3:5000"];

fn receive(network: &Network, node: NodeId, folder: &Path) -> Running {
    let mut command = Command::new(lms_recv());
    command
        .args(GROUP)
        .arg("--json")
        .arg("--output")
        .arg(folder);
    let start = || Running::start("receiver", &mut command);
    network.at(node).run(start).expect("namespace")
}

/// Sends to two receivers that lose one packet of 25 each. Returns what the sender and the receivers printed in the end;
/// `None` where there is no network, which is printed.
fn transfer(options: &[&str]) -> Option<[Finished; 3]> {
    let network = Network::new()?;
    let loss = "udp dport 5000 meta length > 1000 numgen random mod 25 == 0 drop";
    let hosts = [network.host, network.second];
    if !hosts
        .iter()
        .all(|&host| filter(network.at(host), "input", loss))
    {
        return None;
    }
    let (from, to) = (folder(), [folder(), folder()]);
    let (bytes, file) = (content(6_000_000), from.path().join("x"));
    fs::write(&file, &bytes).expect("content");
    let receivers = [
        receive(&network, network.host, to[0].path()),
        receive(&network, network.second, to[1].path()),
    ];
    let mut command = Command::new(lms_send());
    command.args(GROUP).args(["--ttl", "4", "--json"]);
    command.args(["--rate", "50M", "--receivers", "2"]);
    let sender = network.in_source(command.args(options).arg(&file)).finish();
    sender.expect(0);
    let [first, second] = receivers.map(Running::finish);
    first.expect(0);
    second.expect(0);
    for folder in &to {
        assert!(fs::read(folder.path().join("x")).expect("file") == bytes);
    }
    Some([sender, first, second])
}

#[test]
fn receivers_restore_what_they_lost() {
    let Some([sender, receivers @ ..]) = transfer(&[]) else {
        return;
    };
    assert!(number(&sender, "parity_group") > 0);
    for receiver in receivers {
        assert!(number(&receiver, "restored_packets") > 0);
        assert_eq!(number(&receiver, "restored_wrongly"), 0);
    }
}

#[test]
fn without_parity_they_get_the_packets() {
    let Some([sender, receivers @ ..]) = transfer(&["--parity", "off"]) else {
        return;
    };
    assert_eq!(number(&sender, "parity_group"), 0);
    for receiver in receivers {
        assert_eq!(number(&receiver, "restored_packets"), 0);
        assert!(number(&receiver, "repairs") > 0);
    }
}

#[test]
fn another_share_is_refused() {
    let mut command = Command::new(lms_send());
    command.args(GROUP).args(["--parity", "5", "x"]);
    let refused = Running::start("sender", &mut command).finish();
    refused.expect(2);
    refused.says("use a share of 0% to 100%, \"auto\" or \"off\"");
}
