//! Copies through networks of namespaces: over IP itself, over IPv6, over links that take less. Where
//! namespaces are forbidden the tests say so and pass.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::common::{Finished, Running, Stage, listening, mcp, mcpd, names, number};
use linux_net::link::{Editor, WireEnd};
use netlab::host::Host;
use netlab::permitted;

pub(crate) const MIB: usize = 1 << 20;

/// Hosts on one switch: `eth0` of the n-th has 10.77.0.n and fd77::n, n from 1.
pub(crate) struct Network {
    hosts: Vec<Host>,
    hub: Host,
}

fn mac(host: usize) -> [u8; 6] {
    [2, 0x77, 0, 0, 0, host as u8]
}

pub(crate) fn v4(host: usize) -> String {
    Ipv4Addr::new(10, 77, 0, host as u8).to_string()
}

pub(crate) fn v6(host: usize) -> String {
    Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, host as u16).to_string()
}

/// Connects port `near` of the editor's namespace to `eth0` of a host; returns the port's index.
fn wire(editor: &mut Editor, near: &str, host: &Host, mac: [u8; 6]) -> u32 {
    let near_end = WireEnd {
        name: near,
        link_address: None,
        namespace: None,
    };
    let far_end = WireEnd {
        name: "eth0",
        link_address: Some(mac),
        namespace: Some(host.namespace.as_fd()),
    };
    editor.add_wire([near_end, far_end]).expect("a wire");
    editor.index(near).expect("the port")
}

/// Addresses of `eth0`, and the route of groups.
fn address(host: &Host, number: usize) {
    host.edit(|editor| {
        let index = editor.index("eth0").expect("eth0");
        editor.set_up(index, true).expect("up");
        for (address, prefix_len) in [(v4(number), 24), (v6(number), 64)] {
            let address: IpAddr = address.parse().expect("an address");
            editor
                .add_address(index, address, prefix_len)
                .expect("added");
        }
        let groups = Ipv4Addr::new(224, 0, 0, 0);
        editor
            .set_route(groups, 4, None, Some(index))
            .expect("a route");
    });
}

impl Network {
    pub(crate) fn new(count: usize) -> Network {
        let hub = Host::new();
        let hosts: Vec<Host> = (0..count).map(|_| Host::new()).collect();
        hub.edit(|editor| {
            editor.add_flooding_bridge("switch").expect("a bridge");
            let switch = editor.index("switch").expect("it");
            editor.set_up(switch, true).expect("up");
            for (at, host) in hosts.iter().enumerate() {
                let port = format!("port{at}");
                let index = wire(editor, &port, host, mac(at + 1));
                editor.set_bridge(index, switch).expect("plugged in");
                editor.set_up(index, true).expect("up");
            }
        });
        for (at, host) in hosts.iter().enumerate() {
            address(host, at + 1);
        }
        Network { hosts, hub }
    }

    pub(crate) fn within<T: Send>(&self, host: usize, work: impl FnOnce() -> T + Send) -> T {
        self.hosts[host - 1].run(work)
    }

    /// A receiver that listens on all addresses.
    pub(crate) fn receiver(&self, stage: &Stage, host: usize, extra: &[&str]) -> Running {
        let mut command = Command::new(mcpd());
        command
            .args(["--json", "--dir"])
            .arg(stage.dir(host as u8))
            .args(extra);
        self.within(host, || listening(&mut command))
    }

    /// Copies from the first host.
    pub(crate) fn copy(&self, args: &[&str]) -> Finished {
        let mut command = Command::new(mcp());
        command.arg("--json").args(args);
        self.within(1, || Running::start(&mut command)).finish()
    }

    /// Datagrams of UDP that have reached a host.
    fn datagrams(&self, host: usize) -> u64 {
        let text = self.within(host, || {
            std::fs::read_to_string("/proc/thread-self/net/snmp").expect("counters")
        });
        let udp: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("Udp: "))
            .collect();
        let count = udp[1].split(' ').nth(1).expect("a counter");
        count.parse().expect("a number")
    }
}

pub(crate) fn same(stage: &Stage, host: usize, name: &str) {
    let sent = std::fs::read(stage.path(name)).expect("the file");
    let copy = std::fs::read(stage.dir(host as u8).join(name)).expect("a copy");
    assert!(copy == sent, "host {host} has other bytes");
    assert_eq!(names(&stage.dir(host as u8)), [name]);
}

/// A copy with a key to hosts 2 and 3 by these names; both are to be served by multicast.
fn copies_by_multicast(host: fn(usize) -> String, extra: &[&str]) -> (Network, Finished) {
    let stage = Stage::new();
    let network = Network::new(3);
    let key = stage.key("key");
    let key = ["--key-file", key.to_str().expect("text")];
    let file = stage.content("image", 6 * MIB + 77);
    let _running = [2, 3].map(|number| network.receiver(&stage, number, &key));
    let (two, three) = (host(2), host(3));
    let file = file.to_str().expect("text");
    let args = [&key[..], &["--rate", "100M"], extra, &[file, &two, &three]].concat();
    let done = network.copy(&args);
    done.expect(0);
    assert!(done.line(&["\"started\""]).contains("\"sealed\":true"));
    for number in [2, 3] {
        done.line(&["\"mode\"", &host(number), "\"multicast\""]);
        done.line(&["\"verified\"", &host(number)]);
        same(&stage, number, "image");
    }
    (network, done)
}

#[test]
fn over_ip_by_multicast_sealed_and_verified() {
    if !permitted("over_ip_by_multicast_sealed_and_verified") {
        return;
    }
    let (network, done) = copies_by_multicast(v4, &["--carrier", "ip"]);
    assert!(done.line(&["\"started\""]).contains("\"carrier\":\"ip\""));
    assert_eq!(network.datagrams(2), 0);
}

#[test]
fn over_udp_and_ipv6_by_multicast() {
    if permitted("over_udp_and_ipv6_by_multicast") {
        let (_, done) = copies_by_multicast(v6, &[]);
        assert!(done.line(&["\"started\""]).contains("\"group\":\"ff18:"));
    }
}

#[test]
fn over_ip_and_ipv6_by_source_specific_multicast() {
    if permitted("over_ip_and_ipv6_by_source_specific_multicast") {
        let group = ["--carrier", "ip", "--group", "ff38::8000:77"];
        let (_, done) = copies_by_multicast(v6, &group);
        assert!(
            done.line(&["\"started\""])
                .contains("\"group\":\"ff38::8000:77\"")
        );
    }
}

#[test]
fn link_local_addresses_with_their_interface() {
    if !permitted("link_local_addresses_with_their_interface") {
        return;
    }
    // From the Ethernet address (RFC 4291, appendix A).
    let local = |host: usize| format!("[fe80::77:ff:fe00:{host:x}%eth0]:4139");
    copies_by_multicast(local, &[]);
    copies_by_multicast(local, &["--carrier", "ip"]);
}

#[test]
fn a_host_that_takes_no_data_over_ip_says_so() {
    if !permitted("a_host_that_takes_no_data_over_ip_says_so") {
        return;
    }
    let stage = Stage::new();
    let network = Network::new(3);
    let file = stage.content("image", MIB);
    let _able = network.receiver(&stage, 2, &["--insecure"]);
    let _unable = network.receiver(&stage, 3, &["--insecure", "--carrier", "udp"]);
    let file = file.to_str().expect("text");
    let over_ip = ["--insecure", "--carrier", "ip", file, &v4(2), &v4(3)];
    let done = network.copy(&over_ip);
    done.expect(3);
    let failed = done.line(&["\"failed\"", &v4(3), "\"capability\""]);
    assert!(failed.contains("--carrier ip"), "{failed}");
    same(&stage, 2, "image");
    // A host that takes nothing else is not served over UDP either.
    let _strict = network.receiver(&stage, 1, &["--insecure", "--carrier", "ip"]);
    let done = network.copy(&["--insecure", file, &v4(1)]);
    done.expect(4)
        .line(&["\"failed\"", "\"capability\"", "--carrier ip"]);
}

#[test]
fn over_ip_needs_a_capability_and_says_how_to_give_it() {
    if !permitted("over_ip_needs_a_capability_and_says_how_to_give_it") {
        return;
    }
    let stage = Stage::new();
    let file = stage.content("image", MIB);
    // As an ordinary user, where there is another one to be.
    let ordinary = |program: std::path::PathBuf| {
        let copy = stage.path(&program.file_name().expect("a name").to_string_lossy());
        std::fs::copy(&program, &copy).expect("a copy");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(stage.folder.path(), open).expect("chmod");
        let mut command = Command::new(copy);
        command.uid(65_534).gid(65_534);
        command
    };
    let mut send = ordinary(mcp());
    send.args(["--carrier", "ip"]).arg(&file).arg("127.0.0.1");
    let mut receive = ordinary(mcpd());
    receive.args(["--carrier", "ip", "--dir", "/tmp"]);
    for mut command in [send, receive] {
        let done = Running::start(&mut command).finish();
        done.expect(1).says("CAP_NET_RAW").says("setcap");
    }
}

/// What a killed `mcpd` held is free for the next one, and its kernel answers for its ports again.
#[test]
fn a_killed_receiver_over_ip_leaves_nothing_behind() {
    if !permitted("a_killed_receiver_over_ip_leaves_nothing_behind") {
        return;
    }
    let stage = Stage::new();
    let network = Network::new(2);
    let file = stage.content("image", 8 * MIB);
    let file = file.to_str().expect("text");
    let two = v4(2);
    let args = ["--insecure", "--carrier", "ip", "--rate", "20M", file, &two];
    let first = network.receiver(&stage, 2, &["--insecure"]);
    let mut command = Command::new(mcp());
    command.arg("--json").args(args);
    let mut sending = network.within(1, || Running::start(&mut command));
    let port = crate::common::number(&sending.wait_for(&["\"started\""]), "port");
    sending.wait_for(&["\"progress\""]);
    let held = || std::net::TcpListener::bind(("10.77.0.2", port as u16));
    assert!(network.within(2, held).is_err(), "the port is held");
    first.signal("KILL");
    sending.finish().expect(4);
    drop(first);
    network.within(2, held).expect("the port is free");
    let _second = network.receiver(&stage, 2, &["--insecure"]);
    let done = network.copy(&args[..]);
    done.expect(0);
    same(&stage, 2, "image");
}

#[test]
fn versions_of_ip_do_not_mix() {
    if !permitted("versions_of_ip_do_not_mix") {
        return;
    }
    let stage = Stage::new();
    let file = stage.content("image", MIB);
    let file = file.to_str().expect("text");
    let network = Network::new(1);
    let mixed = network.copy(&["--insecure", file, "10.77.0.1", "::1"]);
    mixed.expect(2).says("IPv4 and IPv6");
    let group = network.copy(&["--insecure", "--group", "ff18::1", file, "10.77.0.1"]);
    group.expect(2).says("IPv4 and IPv6");
    let narrow = network.copy(&["--insecure", "--group", "ff12::1", file, "::1"]);
    narrow.expect(2).says("admin-local");
}

/// A link on the path drops long packets silently: a switch with a smaller MTU.
fn copies_through_a_silent_hole(host: fn(usize) -> String, carrier: &str) {
    let stage = Stage::new();
    let network = Network::new(3);
    network.hub.edit(|editor| {
        let port = editor.index("port1").expect("the port");
        editor.set_mtu(port, 1400).expect("an MTU");
    });
    let file = stage.content("image", 3 * MIB);
    let _running = [2, 3].map(|number| network.receiver(&stage, number, &["--insecure"]));
    let (two, three) = (host(2), host(3));
    let file = file.to_str().expect("text");
    let done = network.copy(&["--insecure", "--carrier", carrier, file, &two, &three]);
    done.expect(0);
    same(&stage, 2, "image");
    same(&stage, 3, "image");
}

#[test]
fn a_silent_hole_in_the_path_is_found() {
    if permitted("a_silent_hole_in_the_path_is_found") {
        copies_through_a_silent_hole(v4, "udp");
        copies_through_a_silent_hole(v4, "ip");
        copies_through_a_silent_hole(v6, "udp");
    }
}

/// Runs `nft` with these rules within a host.
pub(crate) fn nft(network: &Network, host: usize, rules: &str) {
    let run = || {
        let mut command = Command::new("nft");
        command
            .arg("-f")
            .arg("-")
            .stdin(std::process::Stdio::piped());
        let mut child = command.spawn()?;
        let mut input = child.stdin.take().expect("piped");
        std::io::Write::write_all(&mut input, rules.as_bytes())?;
        drop(input);
        child.wait()
    };
    let status = network.within(host, run).expect("nft runs");
    assert!(status.success(), "{rules}");
}

fn drops(what: &str) -> String {
    let chain = format!("chain c {{\ntype filter hook input priority 0\n{what} drop\n}}");
    format!("table inet t {{\n{chain}\n}}\n")
}

/// A copy with `--mode multicast` to three hosts, of which multicast reaches two.
#[test]
fn a_host_that_multicast_does_not_reach_fails_where_multicast_alone_is_asked_for() {
    let name = "a_host_that_multicast_does_not_reach_fails_where_multicast_alone_is_asked_for";
    if !permitted(name) {
        return;
    }
    let stage = Stage::new();
    let network = Network::new(4);
    let _running = [2, 3, 4].map(|number| network.receiver(&stage, number, &["--insecure"]));
    nft(&network, 3, &drops("ip daddr 239.0.0.0/8"));
    let file = stage.content("image", 4 * MIB);
    let file = file.to_str().expect("text");
    let mode = ["--insecure", "--mode", "multicast", "--rate", "100M"];
    let done = network.copy(&[&mode[..], &[file, &v4(2), &v4(3), &v4(4)]].concat());
    done.expect(3);
    let failed = done.line(&["\"failed\"", &v4(3)]);
    assert!(failed.contains("multicast does not reach it"), "{failed}");
    assert!(failed.contains("\"will_retry\":false"), "{failed}");
    for number in [2, 4] {
        done.line(&["\"verified\"", &v4(number)]);
        same(&stage, number, "image");
    }
    assert!(names(&stage.dir(3)).iter().all(|name| name != "image"));
}

/// The others begin, finish, and the user learns which host it was and what to look at.
#[test]
fn a_host_behind_a_firewall_is_named_and_does_not_stop_the_others() {
    if !permitted("a_host_behind_a_firewall_is_named_and_does_not_stop_the_others") {
        return;
    }
    let stage = Stage::new();
    let network = Network::new(4);
    let _running = [2, 3, 4].map(|number| network.receiver(&stage, number, &["--insecure"]));
    nft(&network, 3, &drops("ip protocol udp"));
    let file = stage.content("image", 4 * MIB);
    let file = file.to_str().expect("text");
    let relayed = network.copy(&["--insecure", file, &v4(2), &v4(3), &v4(4)]);
    relayed.expect(0);
    // The host gets it from one of the others, which multicast reaches.
    relayed.line(&["\"mode\"", &v4(2), "\"multicast\""]);
    relayed.line(&["\"mode\"", &v4(4), "\"multicast\""]);
    relayed.line(&["\"feeder\"", &v4(3), "\"feeder\":\"10."]);
    for number in [2, 3, 4] {
        same(&stage, number, "image");
        std::fs::remove_file(stage.dir(number as u8).join("image")).expect("removed");
    }
    let done = network.copy(&["--insecure", "--no-relay", file, &v4(2), &v4(3), &v4(4)]);
    done.expect(3);
    done.line(&["\"waiting\"", &v4(3), "\"silent\""]);
    let failed = done.line(&["\"failed\"", &v4(3), "\"will_retry\":true"]);
    assert!(failed.contains("does a firewall drop UDP?"), "{failed}");
    let place = |words: &[&str]| {
        let fits = |line: &String| words.iter().all(|word| line.contains(word));
        done.lines.iter().position(fits).expect("the line")
    };
    // The others have everything before it is tried again.
    let again = place(&["\"round\":2"]);
    for number in [2, 4] {
        assert!(place(&["\"verified\"", &v4(number)]) < again);
    }
}

/// A name that does not resolve, or a host that is down, does not delay the others for long.
#[test]
fn a_host_that_is_away_is_postponed() {
    if !permitted("a_host_that_is_away_is_postponed") {
        return;
    }
    let stage = Stage::new();
    let network = Network::new(3);
    let _running = [2].map(|number| network.receiver(&stage, number, &["--insecure"]));
    nft(&network, 3, &drops("tcp dport 4139"));
    let file = stage.content("image", MIB);
    let file = file.to_str().expect("text");
    let hosts = [v4(2), v4(3)];
    let args = ["--insecure", file, &hosts[0], &hosts[1]];
    let done = network.copy(&args);
    done.expect(3);
    let failed = done.line(&["\"failed\"", &hosts[1], "\"will_retry\":true"]);
    assert!(failed.contains("the others begin"), "{failed}");
    let last = done.line(&["\"failed\"", &hosts[1], "\"will_retry\":false"]);
    assert!(last.contains("does not answer on port 4139"), "{last}");
    // All are waited for where the user says so.
    let waited = network.copy(&[&["--to", "b/", "--connect-timeout", "5s"], &args[..]].concat());
    waited.expect(3);
    let failed = waited
        .lines
        .iter()
        .filter(|line| line.contains("\"event\":\"failed\""));
    assert_eq!(failed.count(), 1, "{waited:#?}");
}

/// Gives what a host receives this rate in bits per second.
pub(crate) fn shape(network: &Network, host: usize, rate: &str) {
    limit(&network.hub, &format!("port{}", host - 1), rate);
}

/// Gives what a host sends this rate.
pub(crate) fn shape_uplink(network: &Network, host: usize, rate: &str) {
    limit(&network.hosts[host - 1], "eth0", rate);
}

/// The queue of a device with this rate.
fn limit(host: &Host, device: &str, rate: &str) {
    let run = || {
        let mut tc = Command::new("tc");
        tc.args(["qdisc", "add", "dev", device, "root"]);
        tc.args(["tbf", "rate", rate, "burst", "32kbit", "latency", "50ms"]);
        tc.status()
    };
    let status = host.run(run).expect("tc runs");
    assert!(status.success(), "{rate}");
}

/// Three receivers, of which host 3 has a link of 4 Mbit/s; the finished `mcp`.
fn beside_a_slow_host(extra: &[&str]) -> Finished {
    let stage = Stage::new();
    let network = Network::new(4);
    let _running = [2, 3, 4].map(|number| network.receiver(&stage, number, &["--insecure"]));
    shape(&network, 3, "4mbit");
    let file = stage.content("image", 4 * MIB);
    let file = file.to_str().expect("text");
    let hosts = [2, 3, 4].map(v4);
    let hosts = hosts.each_ref().map(String::as_str);
    let done = network.copy(&[&["--insecure", file], extra, &hosts].concat());
    done.expect(0);
    for number in [2, 3, 4] {
        same(&stage, number, "image");
    }
    done
}

#[test]
fn a_slow_host_is_named_with_the_option_that_frees_the_others() {
    if !permitted("a_slow_host_is_named_with_the_option_that_frees_the_others") {
        return;
    }
    let done = beside_a_slow_host(&["--min-rate", "none"]);
    let waiting: Vec<_> = done
        .lines
        .iter()
        .filter(|line| line.contains("\"waiting\""))
        .collect();
    assert!(!waiting.is_empty(), "{done:#?}");
    let named = |line: &&String| line.contains(&v4(3)) && line.contains("\"slow\"");
    assert!(
        waiting.iter().copied().all(|line| named(&line)),
        "{waiting:#?}"
    );
    let limiting = format!("\"limiting\":{{\"host\":\"{}\"", v4(3));
    let told = done.line(&["\"progress\"", &limiting, "\"option\":\"--min-rate "]);
    let rate = number(told.split_once("\"limiting\"").expect("it").1, "rate_bps");
    assert!((1_000_000..8_000_000).contains(&rate), "{told}");
    done.line(&["\"end\"", &limiting, "\"separate\":[]"]);
    assert!(!done.lines.iter().any(|line| line.contains("\"detached\"")));
}

#[test]
fn a_slow_host_is_served_separately_and_the_others_end_before_it() {
    if !permitted("a_slow_host_is_served_separately_and_the_others_end_before_it") {
        return;
    }
    let done = beside_a_slow_host(&[]);
    let detached = done.line(&["\"detached\"", &v4(3)]);
    let (rate, others) = (number(detached, "rate_bps"), number(detached, "others_bps"));
    assert!(rate > 0 && others >= 2 * rate, "{detached}");
    let place = |words: &[&str]| {
        let fits = |line: &String| words.iter().all(|word| line.contains(word));
        done.lines.iter().position(fits).expect("a line")
    };
    let last = place(&["\"verified\"", &v4(3)]);
    for number in [2, 4] {
        assert!(place(&["\"verified\"", &v4(number)]) < last);
    }
    let separate = format!("\"separate\":[{{\"host\":\"{}\"", v4(3));
    done.line(&["\"end\"", &separate]);
    let once = done
        .lines
        .iter()
        .filter(|line| line.contains("\"detached\""));
    assert_eq!(once.count(), 1, "{done:#?}");
}

#[test]
fn no_host_is_served_separately_for_a_link_that_all_share() {
    if !permitted("no_host_is_served_separately_for_a_link_that_all_share") {
        return;
    }
    let stage = Stage::new();
    let network = Network::new(4);
    let _running = [2, 3, 4].map(|number| network.receiver(&stage, number, &["--insecure"]));
    network.within(1, || {
        let mut tc = Command::new("tc");
        tc.args(["qdisc", "add", "dev", "eth0", "root", "tbf"]);
        tc.args(["rate", "10mbit", "burst", "32kbit", "latency", "50ms"]);
        assert!(tc.status().expect("tc runs").success());
    });
    let file = stage.content("image", 4 * MIB);
    let file = file.to_str().expect("text");
    let done = network.copy(&["--insecure", file, &v4(2), &v4(3), &v4(4)]);
    done.expect(0);
    assert!(!done.lines.iter().any(|line| line.contains("\"detached\"")));
    done.line(&["\"end\"", "\"limiting\":null", "\"separate\":[]"]);
}

/// The end of the data connection arrives long before the reason on the control connection, which is the one
/// that the user is told.
#[test]
fn the_reason_of_a_host_counts_though_its_reset_is_first() {
    if !permitted("the_reason_of_a_host_counts_though_its_reset_is_first") {
        return;
    }
    let stage = Stage::new();
    let network = Network::new(2);
    let mut running = network.receiver(&stage, 2, &["--insecure"]);
    let tree = stage.path("tree");
    std::fs::create_dir(&tree).expect("made");
    std::fs::write(tree.join("a"), crate::common::content(4 * MIB)).expect("written");
    std::fs::write(tree.join("z"), crate::common::content(8 * MIB)).expect("written");
    let mut send = Command::new(mcp());
    send.args(["--json", "--insecure", "--rate", "20M"])
        .arg(&tree)
        .arg(v4(2));
    let mut sending = network.within(1, || Running::start(&mut send));
    sending.wait_for(&["\"progress\""]);
    std::fs::create_dir(stage.dir(2).join("tree/a")).expect("planted");
    // What the host says over TCP is late: it is lost at first.
    let chain = "chain c {\ntype filter hook output priority 0\ntcp sport 4139 drop\n}";
    nft(&network, 2, &format!("table inet t {{\n{chain}\n}}\n"));
    running.wait_for(&["\"event\":\"failed\""]);
    nft(&network, 2, "flush ruleset\n");
    let done = sending.finish();
    done.expect(4);
    let failed = done.line(&["\"event\":\"failed\""]);
    assert!(failed.contains("\"in_the_way\""), "{failed}");
}
