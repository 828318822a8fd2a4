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
