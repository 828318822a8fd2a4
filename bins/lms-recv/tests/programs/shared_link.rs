//! LMS on one link: sender and receivers on one switch, without a router.

use std::fs;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::Command;

use linux_net::link::Editor;
use linux_net::netns::Namespace;

use super::common::{Running, content, lms_recv, lms_send};
use super::network::{filter, index, number};
use super::transfer::folder;

fn edit(namespace: &Namespace, work: impl FnOnce(&mut Editor) + Send) {
    let edit = || work(&mut Editor::open().expect("netlink"));
    namespace.run(edit).expect("namespace");
}

/// The namespaces of a switch and of three hosts on it, which must be kept; `None`: no namespaces here.
fn switch() -> Option<(Namespace, [Namespace; 3])> {
    let made: Option<Vec<Namespace>> = (0..4).map(|_| Namespace::new().ok()).collect();
    let made = made.and_then(|made| <[Namespace; 4]>::try_from(made).ok());
    let Some([switch, first, second, third]) = made else {
        eprintln!("SKIPPED: no network namespaces here");
        return None;
    };
    edit(&switch, |editor| {
        editor.add_flooding_bridge("bridge").expect("bridge");
    });
    let bridge = index(&switch, "bridge");
    edit(&switch, |editor| {
        editor.set_up(bridge, true).expect("up");
    });
    let hosts = [first, second, third];
    for (number, host) in (1..).zip(&hosts) {
        let name = format!("p{number}");
        edit(&switch, |editor| {
            let far = Some(host.as_fd());
            editor.add_veth(&name, "eth0", far).expect("veth");
        });
        let (port, eth0) = (index(&switch, &name), index(host, "eth0"));
        edit(&switch, |editor| {
            editor.set_bridge(port, bridge).expect("port");
            editor.set_up(port, true).expect("up");
        });
        edit(host, |editor| {
            let address = Ipv4Addr::new(10, 9, 0, number);
            editor.add_address(eth0, address, 24).expect("address");
            editor.set_up(eth0, true).expect("up");
            let groups = Ipv4Addr::new(224, 0, 0, 0);
            editor
                .set_route(groups, 4, None, Some(eth0))
                .expect("route");
        });
    }
    Some((switch, hosts))
}

#[test]
fn what_one_receiver_loses_is_not_repaired_to_the_others() {
    let Some((_switch, [source, lossy, other])) = switch() else {
        return;
    };
    let loss = "udp dport 5000 meta length > 1000 numgen random mod 40 == 0 drop";
    if !filter(&lossy, "input", loss) {
        return;
    }
    let (from, to) = (folder(), [folder(), folder()]);
    let bytes = content(4_000_000);
    let file = from.path().join("x");
    fs::write(&file, &bytes).expect("content");
    let receivers = [&lossy, &other].into_iter().zip(&to).map(|(host, to)| {
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
    let (group, alone) = (
        number(&sender, "repairs_group"),
        number(&sender, "repairs_unicast"),
    );
    let asked = number(&receivers[0], "requests_group");
    let unneeded = number(&receivers[1], "unneeded_repairs");
    assert!(asked > 10, "{asked} requests to the group");
    assert!(
        alone > 20 && group * 10 < alone && unneeded * 10 < alone,
        "repairs to the group {group}, by unicast {alone}; {unneeded} unneeded"
    );
}
