//! Hosts with slow links among hosts that relay to hosts.

use crate::common::{Finished, Running, Stage, number};
use crate::network::{MIB, Network, same, shape, shape_uplink, v4};
use netlab::permitted;

/// Without multicast links feed all hosts from the start.
fn copy(network: &Network, stage: &Stage, hosts: &[usize], mib: usize) -> Finished {
    let file = stage.content("image", mib * MIB);
    let options = [
        "--insecure",
        "--mode",
        "unicast",
        "--rate",
        "200M",
        "--retries",
        "0",
    ];
    let hosts: Vec<String> = hosts.iter().copied().map(v4).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let file = [file.to_str().expect("text")];
    network.copy(&[&options[..], &file, &hosts].concat())
}

/// The hosts that were bypassed, and why.
fn bypassed(done: &Finished) -> Vec<&str> {
    let lines = done.lines.iter().map(String::as_str);
    lines
        .filter(|line| line.contains("\"event\":\"bypassed\""))
        .collect()
}

/// Returns the bytes that `host` had, as far as it had reported, when `other` had everything.
pub(crate) fn held_when(done: &Finished, host: usize, other: usize) -> u64 {
    let [own, other] = [host, other].map(|host| format!("\"host\":\"{}\"", v4(host)));
    let mut held = 0;
    for line in done
        .lines
        .iter()
        .filter(|line| line.contains("\"progress\""))
    {
        if line.contains(&own) {
            held = number(line, "held");
        } else if line.contains(&other) && number(line, "held") == number(line, "bytes") {
            return held;
        }
    }
    panic!("{other} has not everything: {done:#?}");
}

#[test]
fn a_feeder_with_a_slow_uplink_is_told_from_a_slow_host() {
    let name = "a_feeder_with_a_slow_uplink_is_told_from_a_slow_host";
    if !permitted(name) {
        return;
    }
    let stage = Stage::new();
    let network = Network::new(4);
    let start = |host, extra: &[&str]| -> Running {
        network.receiver(&stage, host, &[&["--insecure"], extra].concat())
    };
    let _running = [
        start(2, &[]),
        start(3, &["--no-relay"]),
        start(4, &["--no-relay"]),
    ];
    shape_uplink(&network, 2, "16mbit");
    let done = copy(&network, &stage, &[2, 3, 4], 96);
    done.expect(0);
    let named = bypassed(&done);
    assert_eq!(named.len(), 1, "{named:?}");
    assert!(
        named[0].contains(&v4(2)) && named[0].contains("\"slow\""),
        "{named:?}"
    );
    for host in [2, 3, 4] {
        same(&stage, host, "image");
    }
    // Over the slow uplink two copies would take 100 s, more than any copy here may take.
}

/// Wherever it stands in the chain: nothing tells what the first host could receive, so the second is tried in its place.
#[test]
fn a_slow_host_moves_to_the_end_and_the_others_do_not_wait_for_it() {
    let name = "a_slow_host_moves_to_the_end_and_the_others_do_not_wait_for_it";
    if !permitted(name) {
        return;
    }
    let stage = Stage::new();
    let network = Network::new(4);
    let _running = [2, 3, 4].map(|host| network.receiver(&stage, host, &["--insecure"]));
    shape(&network, 2, "40mbit");
    let done = copy(&network, &stage, &[2, 3, 4], 128);
    done.expect(0);
    let named = bypassed(&done);
    assert_eq!(named.len(), 1, "{named:?}");
    assert!(
        named[0].contains(&v4(2)) && named[0].contains("\"slow\""),
        "{named:?}"
    );
    for host in [2, 3, 4] {
        same(&stage, host, "image");
    }
    for other in [3, 4] {
        let held = held_when(&done, 2, other);
        assert!(held < 96 * MIB as u64, "{held} when {other} had all");
    }
}
