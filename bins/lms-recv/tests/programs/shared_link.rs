//! LMS on one link: sender and receivers on one switch, without a router.

use std::fs;
use std::process::Command;

use netlab::{Network, Plan, Shape};

use super::common::{Running, content, lms_recv, lms_send};
use super::network::{filter, number};
use super::transfer::folder;

#[test]
fn what_one_receiver_loses_is_not_repaired_to_the_others() {
    if !netlab::permitted("lms-recv") {
        return;
    }
    let mut plan = Plan::default();
    let nodes = ["source", "lossy", "other"].map(|name| plan.host(name));
    plan.shared(&nodes.map(|node| (node, Shape::default())));
    let network = Network::build(plan, 0).expect("network");
    let [source, lossy, other] = nodes.map(|node| network.namespace(node));
    let loss = "udp dport 5000 meta length > 1000 numgen random mod 40 == 0 drop";
    if !filter(lossy, "input", loss) {
        return;
    }
    let (from, to) = (folder(), [folder(), folder()]);
    let bytes = content(4_000_000);
    let file = from.path().join("x");
    fs::write(&file, &bytes).expect("content");
    let receivers = [lossy, other].into_iter().zip(&to).map(|(host, to)| {
        let mut command = Command::new(lms_recv());
        command.args(["--group", "239.1.2.3:5000", "--assist", "lms", "--json"]);
        command.arg("--output").arg(to.path());
        let receiver = host.run(|| Running::start("receiver", &mut command));
        receiver.expect("namespace")
    });
    let receivers: Vec<Running> = receivers.collect();
    let mut command = Command::new(lms_send());
    command.args(["--group", "239.1.2.3:5000", "--receivers", "2", "--json"]);
    command.args(["--assist", "lms", "--rate", "20M", "--no-gso"]);
    command.arg(&file);
    let sender = source.run(|| Running::start("sender", &mut command));
    let sender = sender.expect("namespace").finish();
    sender.expect(0);
    let receivers: Vec<_> = receivers.into_iter().map(Running::finish).collect();
    for (receiver, to) in receivers.iter().zip(&to) {
        receiver.expect(0);
        assert!(fs::read(to.path().join("x")).expect("file") == bytes);
    }
    let sum = |of, names: [&str; 2]| names.iter().map(|name| number(of, name)).sum::<u64>();
    let group = sum(&sender, ["repairs_group", "parity_group"]);
    let alone = sum(&sender, ["repairs_unicast", "parity_unicast"]);
    let asked = number(&receivers[0], "requests_group");
    let unneeded = sum(&receivers[1], ["unneeded_repairs", "unneeded_parity"]);
    assert!(asked > 10, "{asked} requests to the group");
    assert!(
        alone > 20 && group * 10 < alone && unneeded * 10 < alone,
        "repairs to the group {group}, by unicast {alone}; {unneeded} unneeded"
    );
}
