//! Quantities on the command line, and the errors of malformed ones.

use std::time::Duration;

use cli::units::{BitRate, ByteSize, Rate, duration};

#[test]
fn rates_are_bits_in_powers_of_1000() {
    for (text, bits) in [
        ("100M", 100_000_000),
        ("2.5G", 2_500_000_000),
        ("800k", 800_000),
        ("64", 64),
        ("100Mbit", 100_000_000),
        ("100 Mbit/s", 100_000_000),
        ("10Mbps", 10_000_000),
        ("1T", 1_000_000_000_000),
    ] {
        assert_eq!(text.parse::<BitRate>(), Ok(BitRate(bits)), "{text}");
    }
    assert_eq!("unlimited".parse::<Rate>(), Ok(Rate::Unlimited));
    assert_eq!(
        "1G".parse::<Rate>().map(Rate::bits),
        Ok(Some(1_000_000_000))
    );
}

#[test]
fn wrong_rates_say_what_to_write() {
    for (text, hint) in [
        ("100MB", "bits, not bytes"),
        ("10MB/s", "bits, not bytes"),
        ("fast", "100M"),
        ("", "100M"),
        ("0", "out of range"),
        ("0.0000001M", "out of range"),
        ("100X", "unknown unit"),
        ("100Mi", "powers of 1000"),
        ("-5M", "100M"),
        ("1.2.3M", "100M"),
        ("99999999999999999999T", "out of range"),
    ] {
        let message = text.parse::<Rate>().expect_err(text).to_string();
        assert!(message.contains(hint), "{text}: {message}");
    }
}

#[test]
fn sizes_are_bytes() {
    for (text, bytes) in [
        ("65536", 65536),
        ("64K", 65536),
        ("64KiB", 65536),
        ("64kB", 64000),
        ("1.5MiB", 1_572_864),
        ("2G", 2 << 30),
        ("0", 0),
        ("7B", 7),
    ] {
        assert_eq!(text.parse::<ByteSize>(), Ok(ByteSize(bytes)), "{text}");
    }
    for text in ["64Q", "KiB", "64KiBs", "99999999999999999999T"] {
        assert!(text.parse::<ByteSize>().is_err(), "{text}");
    }
}

#[test]
fn times_have_units() {
    for (text, time) in [
        ("5", Duration::from_secs(5)),
        ("250ms", Duration::from_millis(250)),
        ("2.5s", Duration::from_millis(2500)),
        ("2m", Duration::from_secs(120)),
        ("1h", Duration::from_secs(3600)),
        ("0", Duration::ZERO),
    ] {
        assert_eq!(duration(text), Ok(time), "{text}");
    }
    for text in ["soon", "5 days", "", "-1"] {
        assert!(duration(text).is_err(), "{text}");
    }
}

#[test]
fn shown_with_one_decimal() {
    assert_eq!(BitRate(93_100_000).to_string(), "93.1 Mbit/s");
    assert_eq!(BitRate(640).to_string(), "640 bit/s");
    assert_eq!(Rate::Unlimited.to_string(), "unlimited");
    assert_eq!(ByteSize(64 << 20).to_string(), "64.0 MiB");
    assert_eq!(ByteSize(12).to_string(), "12 B");
}

#[test]
fn one_is_singular() {
    let text = [0, 1, 2].map(|number| cli::units::count(number, "host"));
    assert_eq!(text, ["0 hosts", "1 host", "2 hosts"]);
}
