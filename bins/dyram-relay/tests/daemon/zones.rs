//! Relays with link-local IPv6 addresses, whose zone is an interface.

use std::net::{Ipv6Addr, SocketAddrV6};

use netlab::host::{Host, wire, with_namespaces};

use super::*;

const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// Address `host` of the link.
fn global(host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host)
}

#[test]
fn a_file_arrives_through_a_relay_with_a_link_local_address() {
    with_namespaces(|| {
        let (a, b) = (Host::new(), Host::new());
        wire([(&a, "a0", global(1)), (&b, "b0", global(2))]);
        let (at_a, at_b) = (a.index("a0"), b.index("b0"));
        a.edit(|editor| {
            editor.add_address(at_a, LINK_LOCAL, 64).expect("address");
        });
        for (own, seen) in [
            ("a0".to_owned(), "b0".to_owned()),
            (at_a.to_string(), at_b.to_string()),
        ] {
            let top = a.run(|| Daemon::start(1, &format!("[fe80::1%{own}]"), "", ""));
            let checked = a.run(|| program(&["check", "--host"], &top.folder).output());
            let checked = checked.expect("check");
            assert_eq!(checked.status.code(), Some(0), "{}", said(&checked));
            let port = top.address.port();
            let more = format!("parents = [\"[fe80::1%{seen}]:{port}\"]");
            let below = b.run(|| Daemon::start(2, "[::]", &more, ""));
            let first = SocketAddrV6::new(LINK_LOCAL, port, 0, at_b).into();
            let at = SocketAddr::from((global(2), below.address.port()));
            let mut world = b.run(|| World::new(global(2).into(), first, &[&[at], &[at]]));
            world.loss = 25;
            world.join();
            world.deliver();
            let sessions = below.status(Show::Sessions);
            assert_eq!(
                sessions["sessions"][0]["above"],
                format!("[fe80::1]:{port}")
            );
            assert_eq!(below.counter("sockets", "send_failed"), 0);
            assert_eq!(top.counter("sockets", "send_failed"), 0);
        }
    });
}

#[test]
fn interfaces_that_are_not_there_are_named_by_check_and_run() {
    let folder = tempfile::tempdir().expect("folder");
    for (relay, key) in [
        ("listen = \"[fe80::1%nope0]:0\"", "relay.listen"),
        (
            "listen = \"[::]:0\"\nparents = [\"[fe80::1%nope0]:4143\"]",
            "relay.parents",
        ),
    ] {
        write(&folder, &format!("id = \"192.0.2.1\"\n{relay}"), "");
        // A file may be checked on another host.
        let output = program(&["check"], &folder).output().expect("check");
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        for verb in [&["check", "--host"][..], &["run"]] {
            let output = program(verb, &folder).output().expect("run");
            assert_ne!(output.status.code(), Some(0));
            let said = said(&output);
            let problem = "no interface is called or has the number nope0: there are lo";
            assert!(said.contains(key) && said.contains(problem), "{said}");
        }
    }
}

fn read(relay: &str) -> Result<Config, String> {
    let text = format!("[relay]\nid = \"192.0.2.1\"\n{relay}");
    Config::parse(&*text).map_err(|problems| {
        let problems = problems.iter().map(ToString::to_string);
        problems.collect::<Vec<_>>().join("\n")
    })
}

#[test]
fn zones_are_of_link_local_addresses_and_of_one_interface() {
    for (relay, problem) in [
        (
            "listen = \"[fe80::1]:4143\"",
            "[fe80::1]:4143 is a link-local address without the interface",
        ),
        (
            "listen = \"[2001:db8::1%eth0]:4143\"",
            "[2001:db8::1]:4143 is not a link-local address",
        ),
        (
            "listen = \"[::%2]:4143\"",
            "[::]:4143 is not a link-local address",
        ),
        (
            "listen = \"[fe80::1%]:4143\"",
            "write an address and a port",
        ),
        (
            "listen = \"[fe80::1%a/b]:4143\"",
            "\"a/b\" is not the name of a network interface",
        ),
        (
            "listen = \"127.0.0.1%lo:4143\"",
            "is not an address and a port",
        ),
        (
            "listen = \"[::]:4143\"\nparents = [\"[fe80::1]:4143\"]",
            "write up to 4 relays such as",
        ),
        (
            "listen = \"[fe80::2%eth0]:4143\"\nparents = [\"[fe80::1%eth1]:4143\"]",
            "[fe80::1]:4143 is not of interface eth0; write the zone %eth0 in all link-local addresses",
        ),
        (
            "listen = \"[::]:4143\"\nparents = [\"[fe80::1%2]:4143\", \"[fe80::2%3]:4143\"]",
            "[fe80::2]:4143 is not of interface 2",
        ),
        (
            "listen = \"[::]:4143\"\nparents = [\"[fe80::1%eth0]:4143\", \"[fe80::1%eth0]:4143\"]",
            "[fe80::1]:4143 is listed twice",
        ),
        (
            "listen = \"[::]:4143\"\ncarriage = \"multicast\"\n[multicast]\ninterface = \"eth0\"\n\
             groups = [\"[ff15::1%eth0]:5000\"]",
            "[ff15::1%eth0]:5000 has a zone; interface names the interface",
        ),
    ] {
        let said = read(relay).expect_err(relay);
        assert!(said.contains(problem), "{relay}:\n{said}");
    }
}

#[test]
fn another_zone_waits_for_a_restart_with_its_parents() {
    let listen = "listen = \"[::]:4143\"\n";
    let with = |parents: &str| read(&format!("{listen}parents = {parents}")).expect("valid");
    let running = with("[\"[fe80::1%eth0]:4143\"]");
    let other = with("[\"[fe80::2%eth1]:4143\", \"[2001:db8::1]:4143\"]");
    assert_eq!(running.needs_restart(&other), ["relay.parents"]);
    assert_eq!(running.reloaded(other), running);
    let same = with("[\"[fe80::2%eth0]:4143\", \"[2001:db8::1]:4143\"]");
    assert_eq!(running.needs_restart(&same), [""; 0]);
    assert_eq!(running.reloaded(same.clone()), same);
    // The socket keeps its zone, which the other addresses do not use.
    let wide = with("[\"[2001:db8::1]:4143\"]");
    assert_eq!(running.needs_restart(&wide), [""; 0]);
    let now = running.reloaded(wide.clone());
    assert_eq!((&now.relay, &now.zone), (&wide.relay, &running.zone));
    assert_eq!(now.reloaded(running.clone()), running);
    let moved = read("listen = \"[fe80::9%eth1]:4143\"").expect("valid");
    assert_eq!(running.needs_restart(&moved), ["relay.listen"]);
}
