//! Hosts that the sender's multicast does not reach, and that reach each other by multicast.

use std::process::Command;

use crate::common::{Finished, Running, Stage, mcp, number};
use crate::network::{MIB, Network, nft, same, shape, v4, v6};
use crate::pace::held_when;
use netlab::permitted;

/// Drops what the first host multicasts, as a network without multicast routing does.
fn cut_off(network: &Network) {
    let chain = "chain c {\ntype filter hook output priority 0\n\
                 ip daddr 239.0.0.0/8 drop\nip6 daddr ff10::/12 drop\n}";
    nft(network, 1, &format!("table inet t {{\n{chain}\n}}\n"));
}

/// Bytes that a host has sent.
fn sent(network: &Network, host: usize) -> u64 {
    let dev = network.within(host, || {
        std::fs::read_to_string("/proc/thread-self/net/dev")
    });
    let dev = dev.expect("counters");
    let line = dev.lines().find(|line| line.contains("eth0:"));
    let mut fields = line.expect("eth0").split_ascii_whitespace();
    fields.nth(9).expect("a counter").parse().expect("a number")
}

/// A copy of 64 MiB to hosts 2 to 6.
fn copy(network: &Network, stage: &Stage, host: fn(usize) -> String, extra: &[&str]) -> Finished {
    let file = stage.content("image", 64 * MIB);
    let hosts: Vec<String> = (2..=6).map(host).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let file = [file.to_str().expect("text")];
    network.copy(&[extra, &["--rate", "200M"], &file, &hosts].concat())
}

/// The head of the island, by its number.
fn head(done: &Finished, host: fn(usize) -> String) -> usize {
    let line = done.line(&["\"event\":\"island\""]);
    assert_eq!(number(line, "members"), 4, "{line}");
    let is_head = |&number: &usize| line.contains(&format!("\"head\":\"{}\"", host(number)));
    (2..=6).find(is_head).expect("one of the hosts")
}

fn an_island(name: &str, host: fn(usize) -> String, has_key: bool) {
    if !permitted(name) {
        return;
    }
    let stage = Stage::new();
    let network = Network::new(6);
    let key = stage.key("key");
    let key = match has_key {
        true => vec!["--key-file", key.to_str().expect("text")],
        false => vec!["--insecure"],
    };
    let _running = [2, 3, 4, 5, 6].map(|number| network.receiver(&stage, number, &key));
    cut_off(&network);
    let done = copy(&network, &stage, host, &key);
    done.expect(0);
    let head = head(&done, host);
    let mut total = 0;
    for number in 2..=6 {
        done.line(&["\"verified\"", &host(number)]);
        same(&stage, number, "image");
        if number != head {
            done.line(&["\"mode\":\"island\"", &host(number)]);
            total += sent(&network, number);
        }
    }
    // The head sends about one copy, and the others hardly anything: a chain would have them send three copies.
    assert!(total < 32 * MIB as u64, "{total} bytes of members");
    assert!(sent(&network, head) < 110 * MIB as u64);
    let end = done.line(&["\"event\":\"end\""]);
    assert!(end.contains("\"bypassed\":[]"), "{end}");
}

#[test]
fn a_host_that_is_fed_multicasts_to_the_others_while_it_receives() {
    let name = "a_host_that_is_fed_multicasts_to_the_others_while_it_receives";
    an_island(name, v4, true);
}

#[test]
fn an_island_over_ipv6_without_a_key() {
    an_island("an_island_over_ipv6_without_a_key", v6, false);
}

/// No host hears another one's multicast: links bring everything, as without islands.
#[test]
fn where_multicast_does_not_work_links_bring_everything() {
    let name = "where_multicast_does_not_work_links_bring_everything";
    if !permitted(name) {
        return;
    }
    let stage = Stage::new();
    let network = Network::new(6);
    let _running = [2, 3, 4, 5, 6].map(|number| network.receiver(&stage, number, &["--insecure"]));
    cut_off(&network);
    for number in 2..=6 {
        let chain = "chain c {\ntype filter hook input priority 0\nip daddr 239.0.0.0/8 drop\n}";
        nft(&network, number, &format!("table inet t {{\n{chain}\n}}\n"));
    }
    let done = copy(&network, &stage, v4, &["--insecure"]);
    done.expect(0);
    done.line(&["\"event\":\"island\""]);
    for number in 2..=6 {
        done.line(&["\"verified\"", &v4(number)]);
        same(&stage, number, "image");
    }
    assert!(
        !done
            .lines
            .iter()
            .any(|line| line.contains("\"mode\":\"island\""))
    );
}

/// Links bring the rest, and the hosts that are left form another island.
#[test]
fn the_head_of_an_island_is_killed_and_the_others_go_on() {
    let name = "the_head_of_an_island_is_killed_and_the_others_go_on";
    if !permitted(name) {
        return;
    }
    let stage = Stage::new();
    let network = Network::new(6);
    let hosts = [2, 3, 4, 5, 6];
    let mut running: Vec<Running> = hosts
        .map(|number| network.receiver(&stage, number, &["--insecure"]))
        .into();
    cut_off(&network);
    let file = stage.content("image", 96 * MIB);
    let mut command = Command::new(mcp());
    command.args(["--json", "--insecure", "--rate", "200M", "--retries", "0"]);
    command.arg(file).args(hosts.map(v4));
    let mut copy = network.within(1, || Running::start(&mut command));
    let island = copy.wait_for(&["\"event\":\"island\""]);
    copy.wait_for(&["\"mode\":\"island\""]);
    let is_head = |&at: &usize| island.contains(&format!("\"head\":\"{}\"", v4(hosts[at])));
    let head = (0..hosts.len()).find(is_head).expect("one of the hosts");
    drop(running.remove(head));
    let done = copy.finish();
    done.expect(3);
    done.line(&["\"failed\"", &v4(hosts[head])]);
    for number in hosts.into_iter().filter(|&number| number != hosts[head]) {
        done.line(&["\"verified\"", &v4(number)]);
        same(&stage, number, "image");
    }
    let islands = done.lines.iter();
    let islands = islands.filter(|line| line.contains("\"event\":\"island\""));
    assert_eq!(islands.count(), 2, "{:#?}", done.lines);
}

/// The stream of an island is as fast as its slowest member: the others get by links what the head leaves out.
#[test]
fn a_slow_member_of_an_island_does_not_slow_the_others_down() {
    let name = "a_slow_member_of_an_island_does_not_slow_the_others_down";
    if !permitted(name) {
        return;
    }
    let stage = Stage::new();
    let network = Network::new(6);
    let _running = [2, 3, 4, 5, 6].map(|number| network.receiver(&stage, number, &["--insecure"]));
    cut_off(&network);
    shape(&network, 4, "40mbit");
    let done = copy(&network, &stage, v4, &["--insecure"]);
    done.expect(0);
    for host in [2, 3, 5, 6] {
        let held = held_when(&done, 4, host);
        assert!(
            held < 48 * MIB as u64,
            "{held} when {host} had all: {:#?}",
            done.lines
        );
    }
    for host in [2, 3, 5, 6] {
        same(&stage, host, "image");
    }
    same(&stage, 4, "image");
}
