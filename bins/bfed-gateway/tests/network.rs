//! The section `[network]` of the configuration.

use bfed_gateway::native::{Groups, MAX_GROUPS, NetworkConfig};
use daemon_kit::reader;

fn read(text: &str) -> Result<NetworkConfig, String> {
    let parsed = reader::parse(text, |root| NetworkConfig::read(root.section("network")));
    parsed.map_err(|problems| {
        problems
            .iter()
            .map(|problem| format!("{problem}\n"))
            .collect()
    })
}

#[test]
fn an_empty_section_is_no_network() {
    assert_eq!(read(""), Ok(NetworkConfig::None));
    assert_eq!(read("[network]\nkind = \"none\""), Ok(NetworkConfig::None));
}

#[test]
fn each_kind_has_its_defaults() {
    let Ok(NetworkConfig::Ip(ip)) = read("[network]\nkind = \"ip\"") else {
        panic!();
    };
    assert_eq!(
        (ip.mediator, ip.cost, ip.data.port),
        (bfed_client::MEDIATOR_V4, None, 5004)
    );
    assert!(!ip.data.groups.contains(ip.mediator.ip()));
    let text = "[network]\nkind = \"ip\"\ngroups = \"ff18::8000:0/112\"\ncost = 7\ndscp = 34";
    let Ok(NetworkConfig::Ip(ip)) = read(text) else {
        panic!();
    };
    assert_eq!(
        (ip.mediator, ip.cost, ip.data.link.dscp),
        (bfed_client::MEDIATOR_V6, Some(7), 34)
    );
    let Ok(NetworkConfig::Ssm(ssm)) = read("[network]\nkind = \"ssm\"\nmediator = \"10.0.0.1:99\"")
    else {
        panic!();
    };
    assert_eq!(ssm.mediator, "10.0.0.1:99".parse().unwrap());
}

#[test]
fn an_ltp_network_has_the_mediator_of_ip_networks_and_announces_nothing() {
    let text = "[network]\nkind = \"ltp\"\ninterface = \"eth1\"\nassist = \"lms\"\nrate = \"100M\"\n\
                receivers = 0\ntimeout = \"3s\"\nkey-file = \"/etc/key\"";
    let Ok(NetworkConfig::Ltp(ltp)) = read(text) else {
        panic!();
    };
    let multicast = &ltp.multicast;
    assert_eq!(multicast.mediator, bfed_client::MEDIATOR_V4);
    assert!(!multicast.sap.announce && multicast.sap.learn_from.is_empty());
    assert_eq!(multicast.data.link.interface.as_deref(), Some("eth1"));
    assert_eq!(ltp.rate, ltp_linux::Rate::Fixed(100_000_000));
    assert_eq!((ltp.receivers, ltp.sessions), (0, 16));
    assert_eq!(ltp.timeout, std::time::Duration::from_secs(3));
    assert!(ltp.key().unwrap_err().contains("/etc/key"));
}

#[test]
fn wrong_values_are_reported() {
    for (text, complaint) in [
        ("kind = \"ipx\"", "unknown"),
        (
            "kind = \"ip\"\ngroups = \"10.0.0.0/8\"",
            "not a prefix of groups",
        ),
        ("kind = \"ip\"\nmediator = \"10.0.0.1:5\"", "not a group"),
        ("kind = \"ip\"\nmediator = \"239.255.0.5:5\"", "in the pool"),
        ("kind = \"ip\"\nmediator = \"[ff15::1]:5\"", "family"),
        ("kind = \"ssm\"\ngroups = \"239.0.0.0/16\"", "232.0.0.0/8"),
        (
            "kind = \"ssm\"\nmediator = \"239.1.1.1:5\"",
            "source can send",
        ),
        ("kind = \"ip\"\nttl = 0", "too small"),
        (
            "kind = \"ip\"\nexport = [\"10.0.0.0/8\"]",
            "not a prefix of groups",
        ),
        (
            "kind = \"http\"\npublish = [\"10.0.0.1/8\"]",
            "not an address prefix",
        ),
        ("kind = \"http\"\nexport = []", "unknown"),
        (
            "kind = \"http\"\ntls-listen = \"127.0.0.1:8443\"",
            "is incomplete",
        ),
        ("kind = \"http\"\nhls-part = \"5s\"", "hls-part"),
        (
            "kind = \"external\"\ndirectory = \"sockets\"",
            "not an absolute path",
        ),
        (
            "kind = \"external\"\nsocket-mode = \"0999\"",
            "not a set of permissions",
        ),
        ("kind = \"external\"\ngroups = 0", "unknown"),
        (
            "kind = \"ip\"\nlearn-from = [\"x\"]",
            "not an address prefix",
        ),
        ("kind = \"ltp\"\nassist = \"x\"", "dyram://"),
        ("kind = \"ltp\"\nrate = \"x\"", "rate"),
        (
            "kind = \"ltp\"\ngroups = \"224.0.0.0/28\"",
            "routing protocols",
        ),
        ("kind = \"ltp\"\ndscp = 3", "unknown"),
        ("kind = \"ip\"\ncolour = 0", "unknown"),
    ] {
        let problems = read(&format!("[network]\n{text}")).unwrap_err();
        assert!(problems.contains(complaint), "{text}: {problems}");
    }
}

#[test]
fn what_is_no_prefix_of_groups_is_refused() {
    for text in [
        "10.0.0.0/8",
        "239.0.0.0",
        "239.0.0.1/24",
        "224.0.0.0/3",
        "239.0.0.0/33",
        "ff3e::/129",
        "fe80::/64",
        "/",
        "",
    ] {
        assert!(Groups::parse(text).is_err(), "{text}");
    }
    assert_eq!(Groups::parse("ff3e::/32").unwrap().count(), MAX_GROUPS);
}
