//! Addresses of groups and of mediators.

use bfed_client::{Address, GroupAddress, GroupError};

#[test]
fn addresses_of_groups_make_the_round_trip() {
    for text in [
        "239.1.2.3:5004",
        "10.0.0.1@232.1.2.3:9",
        "[ff15::1]:5004",
        "[2001:db8::1]@[ff3e::1]:65535",
    ] {
        let address: GroupAddress = text.parse().unwrap();
        assert_eq!(address.to_string(), text);
    }
}

#[test]
fn sessions_name_groups_and_ports() {
    let of = |native: &[u8], flow| GroupAddress::of_session(native, flow).map(|a| a.to_string());
    assert_eq!(of(b"224.5.6.7", "8888").unwrap(), "224.5.6.7:8888");
    assert_eq!(of(b"224.5.6.7", "").unwrap(), "224.5.6.7:5004");
    assert_eq!(
        of(b"10.0.0.1@232.1.1.1", "1").unwrap(),
        "10.0.0.1@232.1.1.1:1"
    );
    assert_eq!(of(b"[ff15::1]", "7").unwrap(), "[ff15::1]:7");
    assert_eq!(of(b"ff15::1", "7").unwrap(), "[ff15::1]:7");
}

#[test]
fn what_is_no_group_is_refused() {
    for (native, flow) in [
        (&b"10.0.0.1"[..], "5004"),
        (b"224.0.0.5", "5004"),
        (b"ff02::5", "5004"),
        (b"239.1.2.3", "0"),
        (b"239.1.2.3", "65536"),
        (b"239.1.2.3", "+5"),
        (b"239.1.2.3", "audio"),
        (b"[239.1.2.3]", ""),
        (b"", ""),
        (b"\xff", ""),
        (b"232.9.9.9@232.1.1.1", ""),
        (b"0.0.0.0@232.1.1.1", ""),
        (b"2001:db8::1@232.1.1.1", ""),
        (b"@232.1.1.1", ""),
    ] {
        assert_eq!(
            GroupAddress::of_session(native, flow),
            Err(GroupError),
            "{native:?}"
        );
    }
    for text in [
        "239.1.2.3",
        "239.1.2.3:0",
        "10.0.0.1:5004",
        "x@239.1.2.3:5",
        "",
    ] {
        assert_eq!(text.parse::<GroupAddress>(), Err(GroupError), "{text}");
    }
}

#[test]
fn addresses_of_mediators() {
    for (text, shown) in [
        ("239.255.98.102:9", "239.255.98.102:9"),
        ("10.0.0.1", "10.0.0.1:25190"),
        ("[ff15::6266]", "[ff15::6266]:25190"),
        ("::1", "[::1]:25190"),
        ("gw.Example.org", "gw.example.org:25190"),
        ("localhost:9", "localhost:9"),
        ("http://h:1", "http://h:1/mediator"),
        ("http://h:1/x", "http://h:1/x"),
    ] {
        assert_eq!(text.parse::<Address>().unwrap().to_string(), shown);
    }
    assert!(matches!("239.1.1.1".parse(), Ok(Address::Group(_))));
    assert!(matches!("10.1.1.1".parse(), Ok(Address::Unicast(_))));
    for wrong in [
        "",
        "host:0",
        "host:x",
        "a b",
        "10.0.0.300",
        "0.0.0.0",
        "10.0.0.1:0",
        "https://h/",
    ] {
        assert!(wrong.parse::<Address>().is_err(), "{wrong}");
    }
}
