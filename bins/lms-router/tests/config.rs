//! What `check` accepts, and each of its error messages.

use std::net::IpAddr;
use std::time::Duration;

use daemon_kit::daemon::Configuration;
use linux_net::packet::Backend;
use lms_router::config::{Config, Pattern, Policy, Source};
use lms_xdp::Mode;

const EXAMPLE: &str = include_str!("../lms-router.toml");

fn problems(text: &str) -> Vec<String> {
    match Config::parse(text) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn the_example_is_accepted_and_shows_the_defaults() {
    let example = Config::parse(EXAMPLE).unwrap();
    assert_eq!(example, Config::parse("").unwrap());
    assert_eq!(example.source, Source::Kernel);
    assert_eq!(example.daemon.metrics, None);
}

#[test]
fn the_example_s_commented_keys_are_accepted_too() {
    // One line of comment that is a key or a section becomes one.
    let uncommented = |skip: &dyn Fn(&str) -> bool| {
        let mut text = String::new();
        for line in EXAMPLE.lines() {
            let bare = line
                .strip_prefix('#')
                .filter(|rest| !rest.starts_with(' ') && !skip(rest));
            text.push_str(bare.unwrap_or(line));
            text.push('\n');
        }
        text
    };
    let with_kind = |kind: &str, policy: &str, text: String| {
        text.replace("kind = \"kernel\"", &format!("kind = \"{kind}\""))
            .replace("policy = \"hierarchy\"", &format!("policy = \"{policy}\""))
    };
    let proxy = [
        "upstream = \"eth0\"  ",
        "downstream = [\"*\"]",
        "query-",
        "response-",
        "last-",
        "robust",
    ];
    let is_proxy = |line: &str| proxy.iter().any(|key| line.starts_with(key));
    let skip_static = |line: &str| is_proxy(line) || line.starts_with("copies");
    assert_eq!(
        problems(&with_kind("static", "static", uncommented(&skip_static))),
        [""; 0]
    );
    let mut in_route = false;
    let mut text = String::new();
    for line in EXAMPLE.lines() {
        in_route = match line {
            "#[[route]]" | "#[[replier.static]]" => true,
            _ => in_route && line.starts_with('#'),
        };
        let bare = line
            .strip_prefix('#')
            .filter(|rest| !rest.starts_with(' ') && !in_route);
        text.push_str(bare.unwrap_or(line));
        text.push('\n');
    }
    assert_eq!(
        problems(&with_kind("igmp-proxy", "search-party", text)),
        [""; 0]
    );
}

#[test]
fn values_arrive() {
    let text = r#"
        [daemon]
        socket = "/tmp/x.sock"
        socket-mode = "0600"
        user = "nobody"
        cpu = 1
        [metrics]
        listen = "[::1]:9464"
        [source]
        kind = "static"
        [[route]]
        source = "*"
        group = "239.1.2.3"
        upstream = "eth0"
        downstream = ["eth1", "eth2"]
        [[interface]]
        name = "lan*"
        address = "192.0.2.9"
        [[interface]]
        name = "docker0"
        use = false
        [replier]
        policy = "static"
        cost = 7
        refresh = "100ms"
        [[replier.static]]
        source = "192.0.2.1"
        group = "239.1.2.3"
        interface = "eth1"
        [limits]
        groups = 0x10
        [capture]
        backend = "pnet"
        packet-bytes = 9000
    "#;
    let config = Config::parse(text).unwrap();
    assert_eq!(config.daemon.socket.to_str(), Some("/tmp/x.sock"));
    assert_eq!(
        (config.daemon.socket_mode, config.daemon.cpu),
        (0o600, Some(1))
    );
    assert_eq!(config.daemon.user.as_deref(), Some("nobody"));
    assert_eq!(config.daemon.metrics, Some("[::1]:9464".parse().unwrap()));
    let Source::Static(routes) = &config.source else {
        panic!("{:?}", config.source)
    };
    assert_eq!(routes[0].source, None);
    assert_eq!(routes[0].downstream, ["eth1", "eth2"]);
    assert_eq!(
        config.interface("lan7").unwrap().address,
        Some("192.0.2.9".parse().unwrap())
    );
    assert!(config.uses("eth0") && !config.uses("docker0"));
    assert_eq!(
        (config.replier.policy, config.replier.cost),
        (Policy::Static, 7)
    );
    assert_eq!(config.replier.refresh, Duration::from_millis(100));
    assert_eq!(config.replier.fixed[0].neighbour, None);
    assert_eq!(
        (config.limits.groups, config.capture.packet_bytes),
        (16, Some(9000))
    );
    assert_eq!(config.capture.backend, Backend::Pnet);
    assert_eq!(config.capture.xdp, None);
    let config = Config::parse("[capture]\nbackend = \"xdp\"\nxdp-mode = \"native\"").unwrap();
    assert_eq!(config.capture.backend, Backend::Ring);
    assert_eq!(config.capture.xdp, Some(Mode::Native));
    assert_eq!(Config::parse("").unwrap().capture.backend, Backend::Ring);
}

/// A configuration, and everything that is said about it.
fn wrong(cases: &[(&str, &[&str])]) {
    for (text, expected) in cases {
        assert_eq!(problems(text), *expected, "{text}");
    }
}

#[test]
fn unknown_keys_are_refused_with_a_guess() {
    wrong(&[
        (
            "[limitz]\n",
            &["1:2: limitz: is unknown; did you mean limits?"],
        ),
        (
            "[limits]\ngrups = 3",
            &["2:1: limits.grups: is unknown; did you mean groups?"],
        ),
        (
            "[daemon]\nsocket_mode = \"0660\"",
            &["2:1: daemon.socket_mode: is unknown; did you mean socket-mode?"],
        ),
        (
            "[metrics]\nport = 9464",
            &["2:1: metrics.port: is unknown; known in [metrics]: listen"],
        ),
        (
            "colour = 1",
            &[
                "1:1: colour: is unknown; known here: replier, limits, daemon, metrics, source, route, interface, capture, ipv6",
            ],
        ),
        (
            "[source]\nupstream = \"eth0\"",
            &["2:1: source.upstream: is unknown; known in [source]: kind"],
        ),
    ]);
}

#[test]
fn wrong_types_and_ranges() {
    wrong(&[
        (
            "limits = 3",
            &["1:10: limits: 3 is not a section; write [limits] on a line of its own"],
        ),
        (
            "route = 3",
            &[
                "1:9: route: is not a list of sections; write [[route]] on a line of its own, once for each",
            ],
        ),
        (
            "route = [3]",
            &[
                "1:10: route: 3 is not a section; write [[route]] on a line of its own, once for each",
            ],
        ),
        (
            "[limits]\ngroups = 0",
            &["2:10: limits.groups: 0 is too small; write a whole number from 1 to 1000000"],
        ),
        (
            "[limits]\ngroups = -5",
            &["2:10: limits.groups: -5 is too small; write a whole number from 1 to 1000000"],
        ),
        (
            "[limits]\ngroups = 99999999999999999999999",
            &[
                "2:10: limits.groups: 99999999999999999999999 is too large; write a whole number from 1 to 1000000",
            ],
        ),
        (
            "[limits]\ngroups = 1.5",
            &[
                "2:10: limits.groups: 1.5 is not a whole number; write a whole number from 1 to 1000000",
            ],
        ),
        (
            "[limits]\ngroups = \"many\"",
            &[
                "2:10: limits.groups: \"many\" is not a whole number; write a whole number from 1 to 1000000",
            ],
        ),
        (
            "[capture]\nframes = 1000",
            &["2:10: capture.frames: 1000 is not a power of two; write 512 or 1024"],
        ),
        (
            "[capture]\nbackend = \"pcap\"",
            &[
                "2:11: capture.backend: \"pcap\" is unknown; write one of \"ring\", \"xdp\", \"pnet\"",
            ],
        ),
        (
            "[capture]\nguard = \"yes\"",
            &["2:9: capture.guard: \"yes\" is neither true nor false; write true or false"],
        ),
    ]);
}

#[test]
fn wrong_paths_permissions_and_addresses() {
    wrong(&[
        (
            "[daemon]\nsocket = \"run/x\"",
            &[
                "2:10: daemon.socket: \"run/x\" is not an absolute path; write an absolute path, such as \"/run/polycast/lms-router.sock\"",
            ],
        ),
        (
            "[daemon]\nsocket = 7",
            &[
                "2:10: daemon.socket: 7 is not a text in quotes; write an absolute path, such as \"/run/polycast/lms-router.sock\"",
            ],
        ),
        (
            "[daemon]\nsocket-mode = \"rw\"",
            &[
                "2:15: daemon.socket-mode: \"rw\" is not a set of permissions; write permissions in octal and in quotes, such as \"0660\"",
            ],
        ),
        (
            "[daemon]\nsocket-mode = 660",
            &[
                "2:15: daemon.socket-mode: 660 is not a text in quotes; write permissions in octal and in quotes, such as \"0660\"",
            ],
        ),
        (
            "[daemon]\nuser = \"\"",
            &["2:8: daemon.user: is empty; write the name of a user, such as \"polycast\""],
        ),
        (
            "[metrics]\nlisten = \"9464\"",
            &[
                "2:10: metrics.listen: \"9464\" is not an address and a port; write an address and a port, such as \"127.0.0.1:9464\"",
            ],
        ),
        (
            "[metrics]\nlisten = 9464",
            &[
                "2:10: metrics.listen: 9464 is not an address and a port in quotes; write an address and a port, such as \"127.0.0.1:9464\"",
            ],
        ),
    ]);
    let long = format!("[daemon]\nsocket = \"/{}\"", "x".repeat(107));
    assert!(problems(&long)[0].contains("is longer than 107 bytes; write an absolute path"));
}

#[test]
fn durations_and_words() {
    let range = "write a duration from 100ms to 18s, such as \"500ms\", \"10s\" or \"2m\"";
    for (value, wrong) in [
        ("10", "10 is not a duration in quotes"),
        ("\"10\"", "\"10\" is not a duration"),
        ("\"ten seconds\"", "\"ten seconds\" is not a duration"),
        ("\"99ms\"", "\"99ms\" is too short"),
        ("\"19s\"", "\"19s\" is too long"),
        (
            "\"99999999999999999999s\"",
            "\"99999999999999999999s\" is not a duration",
        ),
    ] {
        let said = problems(&format!("[replier]\nrefresh = {value}"));
        assert_eq!(said, [format!("2:11: replier.refresh: {wrong}; {range}")]);
    }
    wrong(&[
        (
            "[replier]\npolicy = \"hierarchie\"",
            &[
                "2:10: replier.policy: \"hierarchie\" is unknown (did you mean \"hierarchy\"?); write one of \"hierarchy\", \"random\", \"static\", \"search-party\"",
            ],
        ),
        (
            "[source]\nkind = \"ospf\"",
            &[
                "2:8: source.kind: \"ospf\" is unknown; write one of \"kernel\", \"static\", \"igmp-proxy\"",
            ],
        ),
        (
            "[source]\nkind = true",
            &[
                "2:8: source.kind: true is not a text in quotes; write one of \"kernel\", \"static\", \"igmp-proxy\"",
            ],
        ),
        (
            "[replier]\ncopies = 2",
            &["2:10: replier.copies: is only for policy \"search-party\"; leave it out"],
        ),
    ]);
}

#[test]
fn routes() {
    let list = "write a list of interface names, such as [\"eth1\", \"eth2\"]";
    let missing = [
        "3:1: route[1].source: is missing; write the source's address, or \"*\" for any source",
        "3:1: route[1].group: is missing; write a multicast address that routers forward, such as \"239.1.2.3\" or \"ff3e::1234\"",
        "3:1: route[1].upstream: is missing; write the name of a network interface, such as \"eth0\"",
        &format!("3:1: route[1].downstream: is missing; {list}"),
    ];
    assert_eq!(
        problems("[source]\nkind = \"static\"\n[[route]]\n"),
        missing
    );
    let route = |body: &str| problems(&format!("[source]\nkind = \"static\"\n[[route]]\n{body}"));
    assert_eq!(
        route("source = \"239.0.0.1\"\ngroup = \"10.0.0.1\"\nupstream = \"a/b\"\ndownstream = \"eth1\""),
        [
            "4:10: route[1].source: 239.0.0.1 is a multicast address; write the source's address, or \"*\" for any source".to_owned(),
            "5:9: route[1].group: 10.0.0.1 is not a multicast address; write a multicast address that routers forward, such as \"239.1.2.3\" or \"ff3e::1234\"".to_owned(),
            "6:12: route[1].upstream: \"a/b\" is not the name of a network interface; write the name of a network interface, such as \"eth0\"".to_owned(),
            format!("7:14: route[1].downstream: \"eth1\" is not a list; {list}"),
        ]
    );
    assert_eq!(
        route("source = \"0.0.0.0\"\ngroup = \"224.0.0.5\"\nupstream = \"eth0\"\ndownstream = [1, \"eth0\", \"a-name-far-too-long\"]"),
        [
            "4:10: route[1].source: 0.0.0.0 is not the address of a host on a network; write the source's address, or \"*\" for any source".to_owned(),
            "5:9: route[1].group: 224.0.0.5 never leaves its link; write a multicast address that routers forward, such as \"239.1.2.3\" or \"ff3e::1234\"".to_owned(),
            format!("7:15: route[1].downstream: 1 is not a text in quotes; {list}"),
            "7:18: route[1].downstream: \"eth0\" is the upstream interface too; write only interfaces that lead to members".to_owned(),
            format!("7:26: route[1].downstream: \"a-name-far-too-long\" is longer than 15 characters; {list}"),
        ]
    );
    assert_eq!(
        route("source = \"1.2.3\"\ngroup = 7\nupstream = 7\ndownstream = []"),
        [
            "4:10: route[1].source: \"1.2.3\" is not an IP address; write the source's address, or \"*\" for any source",
            "5:9: route[1].group: 7 is not an IP address in quotes; write a multicast address that routers forward, such as \"239.1.2.3\" or \"ff3e::1234\"",
            "6:12: route[1].upstream: 7 is not a text in quotes; write the name of a network interface, such as \"eth0\"",
        ]
    );
    let good = "[[route]]\nsource = \"*\"\ngroup = \"239.1.1.1\"\nupstream = \"eth0\"\ndownstream = [\"eth1\"]\n";
    assert_eq!(
        problems(good),
        [
            "1:1: route[1]: is only for static routes; write kind = \"static\" in [source], or leave [[route]] out",
        ]
    );
    assert_eq!(
        problems(&format!("[source]\nkind = \"static\"\n{good}{good}")),
        [
            "10:9: route[2].group: is the same source and group as route[1]; write one [[route]] for both",
        ]
    );
}

#[test]
fn proxy_interfaces_and_repliers() {
    let list = "write a list of interface names or patterns, such as [\"eth1\", \"lan*\"]";
    wrong(&[
        (
            "[source]\nkind = \"igmp-proxy\"",
            &[
                "1:1: source.upstream: is missing; write the name of a network interface, such as \"eth0\"",
            ],
        ),
        (
            "[source]\nkind = \"igmp-proxy\"\nupstream = \"e0\"\ndownstream = [\"e0\"]\nquery-interval = \"5s\"",
            &[
                "4:15: source.downstream: \"e0\" is the upstream interface too; leave it out here",
                "5:18: source.response-interval: 10s is not shorter than query-interval; write a duration below 5s",
            ],
        ),
        (
            "[[interface]]\nuse = 1",
            &[
                "1:1: interface[1].name: is missing; write the name of a network interface, such as \"eth0\", or a pattern such as \"eth*\"",
                "2:7: interface[1].use: 1 is neither true nor false; write true or false",
            ],
        ),
        (
            "[[interface]]\nname = \"e*\"\n[[interface]]\nname = \"eth0\"",
            &[
                "4:8: interface[2].name: \"eth0\" never applies, interface[1] comes first; write the narrower name first",
            ],
        ),
        (
            "[[interface]]\nname = \"e*h\"\naddress = \"127.0.0.1\"",
            &[
                "2:8: interface[1].name: \"e*h\" is not the name of a network interface; write the name of a network interface, such as \"eth0\", or a pattern such as \"eth*\"",
                "3:11: interface[1].address: 127.0.0.1 is not the address of a host on a network; write a host's IPv4 address, such as \"192.0.2.1\"",
            ],
        ),
        (
            "[[replier.static]]\nsource = \"*\"\ngroup = \"239.1.1.1\"\ninterface = \"e1\"",
            &[
                "1:1: replier.static[1]: is only for policy \"static\"; write policy = \"static\" in [replier], or leave [[replier.static]] out",
            ],
        ),
    ]);
    let replier = "[[replier.static]]\nsource = \"*\"\ngroup = \"239.1.1.1\"\ninterface = \"e1\"\n";
    assert_eq!(
        problems(&format!(
            "[replier]\npolicy = \"static\"\n{replier}{replier}"
        )),
        [
            "9:9: replier.static[2].group: is the same source and group as static[1]; write one replier a group",
        ]
    );
    let said = problems(
        "[source]\nkind = \"igmp-proxy\"\nupstream = \"e0\"\ndownstream = [7, \"averylongpatternname*\"]",
    );
    assert_eq!(
        said,
        [
            format!("4:15: source.downstream: 7 is not a text in quotes; {list}"),
            format!(
                "4:18: source.downstream: \"averylongpatternname*\" is longer than 15 characters; {list}"
            ),
        ]
    );
}

#[test]
fn routes_repliers_and_interfaces_of_ipv6() {
    let ipv6 = Config::parse(
        "[source]\nkind = \"static\"\n[[route]]\nsource = \"2001:db8::1\"\ngroup = \"ff3e::1234\"\nupstream = \"e0\"\ndownstream = [\"e1\"]\n[replier]\npolicy = \"static\"\n[[replier.static]]\nsource = \"2001:db8::1\"\ngroup = \"ff3e::1234\"\ninterface = \"e1\"\nneighbour = \"2001:db8:1::7\"\n[[interface]]\nname = \"e1\"\naddress = \"192.0.2.1\"\nipv6 = \"2001:db8:1::1\"\n",
    )
    .unwrap();
    let Source::Static(routes) = &ipv6.source else {
        panic!("{:?}", ipv6.source);
    };
    assert_eq!(routes[0].group, "ff3e::1234".parse::<IpAddr>().unwrap());
    let neighbour = ipv6.replier.fixed[0].neighbour;
    assert_eq!(neighbour, Some("2001:db8:1::7".parse().unwrap()));
    let own = ipv6.interface("e1").and_then(|rule| rule.ipv6);
    assert_eq!(own, Some("2001:db8:1::1".parse().unwrap()));

    let route =
        "[source]\nkind = \"static\"\n[[route]]\nupstream = \"e0\"\ndownstream = [\"e1\"]\n";
    let replier = "[replier]\npolicy = \"static\"\n[[replier.static]]\ninterface = \"e1\"\n";
    let group =
        "write a multicast address that routers forward, such as \"239.1.2.3\" or \"ff3e::1234\"";
    let two = "is not of the address family of the group; write two IPv4 or two IPv6 addresses";
    for (before, body, expected) in [
        (
            route,
            "source = \"2001:db8::1\"\ngroup = \"239.1.1.1\"",
            format!("6:10: route[1].source: 2001:db8::1 {two}"),
        ),
        (
            route,
            "source = \"192.0.2.1\"\ngroup = \"ff3e::1234\"",
            format!("6:10: route[1].source: 192.0.2.1 {two}"),
        ),
        (
            route,
            "source = \"*\"\ngroup = \"ff02::1234\"",
            format!("7:9: route[1].group: ff02::1234 never leaves its link; {group}"),
        ),
        (
            replier,
            "source = \"2001:db8::1\"\ngroup = \"239.1.1.1\"",
            format!("5:10: replier.static[1].source: 2001:db8::1 {two}"),
        ),
        (
            replier,
            "source = \"*\"\ngroup = \"ff3e::1234\"\nneighbour = \"192.0.2.7\"",
            "7:13: replier.static[1].neighbour: 192.0.2.7 is not of the address family of the group; write an address of the same family".to_owned(),
        ),
    ] {
        assert_eq!(problems(&format!("{before}{body}")), [expected]);
    }
    let own = "write a host's IPv6 address, such as \"2001:db8::1\"";
    for (value, wrong) in [
        ("192.0.2.1", "192.0.2.1 is not an IPv6 address"),
        (
            "fe80::1",
            "fe80::1 is link-local: no other link can reach it",
        ),
        ("::1", "::1 is not the address of a host on a network"),
        ("ff3e::1", "ff3e::1 is a multicast address"),
    ] {
        let said = problems(&format!("[[interface]]\nname = \"e1\"\nipv6 = \"{value}\""));
        assert_eq!(said, [format!("3:8: interface[1].ipv6: {wrong}; {own}")]);
    }
}

#[test]
fn syntax_errors_come_with_their_place() {
    let said = problems("[limits]\ngroups = \n[daemon\n");
    assert!(said.len() >= 2 && said[0].starts_with("2:"), "{said:?}");
    assert!(said[1].starts_with("3:"), "{said:?}");
}

#[test]
fn every_truncation_of_the_example_is_survived() {
    for (end, _) in EXAMPLE.char_indices() {
        let _ = Config::parse(&EXAMPLE[..end]);
    }
}

#[test]
fn what_a_reload_cannot_change_keeps_its_value_and_is_named() {
    let old = Config::parse("").unwrap();
    let new = Config::parse(
        "ipv6 = false\n[daemon]\nsocket = \"/x\"\ncpu = 1\n[metrics]\nlisten = \"127.0.0.1:1\"\n[limits]\ngroups = 5\ngroup-requests-per-second = 5\n[capture]\nbackend = \"pnet\"\nudp-port = 0\nguard = false\n[source]\nkind = \"static\"\n[replier]\ncost = 9",
    )
    .unwrap();
    assert_eq!(
        old.needs_restart(&new),
        [
            "daemon.socket",
            "daemon.cpu",
            "metrics.listen",
            "source.kind",
            "limits.groups",
            "capture.backend",
            "capture.guard",
            "capture.udp-port",
            "ipv6"
        ]
    );
    let running = old.reloaded(new.clone());
    assert_eq!(
        (running.replier.cost, running.limits.group_requests_per_s),
        (9, 5)
    );
    assert_eq!(running.daemon.metrics, None);
    assert!(running.ipv6);
    assert_eq!((running.daemon, running.capture), (old.daemon, old.capture));
    assert_eq!(
        (running.limits.groups, running.source),
        (4096, Source::Kernel)
    );
    assert_eq!(new.needs_restart(&new), [""; 0]);
}

#[test]
fn patterns() {
    let fits = |pattern: &str, name: &str| Pattern(pattern.to_owned()).matches(name);
    assert!(fits("*", "eth0") && fits("eth*", "eth0") && fits("eth0", "eth0"));
    assert!(!fits("eth0", "eth01") && !fits("eth*", "et"));
}
