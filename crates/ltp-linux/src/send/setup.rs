//! From a configuration to a machine.

use ltp::{Duration, Geometry, Name, SenderConfig};

use super::config::{Rate, SendConfig};
use super::source::Source;
use crate::clock::span;
use crate::interface::Local;
use crate::{Error, Recovery};

/// How far new data may run ahead of the slowest receiver, in bytes: less than the socket buffer of
/// a receiver, so that at any rate nothing is lost there.
const WINDOW_BYTES: u64 = 24 << 20;
/// At an unlimited rate the receivers that report set the pace. The machine is told that there are this
/// many; more may join, and it does not wait for them.
const UNCOUNTED: u32 = 64;
/// Time for receivers that already listen to report.
const UNCOUNTED_WAIT: Duration = Duration::from_millis(200);
/// What each version of IP takes of a packet, and the shortest MTU that each host takes (RFC 791, RFC 8200 §5).
struct Headers {
    min_mtu: u16,
    /// IP and UDP; for IPv4 also what a dmcast with the classic option adds on top, or a datagram.
    plain: u16,
    /// IP, UDP, and what a dmcast with LMS's own option adds on top.
    lms: u16,
    /// IP, UDP and those of a relay.
    relayed: u16,
}

const IPV4: Headers = Headers {
    min_mtu: 576,
    plain: 20 + 8 + 36,
    lms: 20 + 8 + 48,
    relayed: 20 + 8 + ltp::relayed::OVERHEAD as u16,
};
const IPV6: Headers = Headers {
    min_mtu: 1280,
    plain: 40 + 8,
    lms: 40 + 8 + 112,
    relayed: 40 + 8 + ltp::relayed::OVERHEAD_V6 as u16,
};

/// Refuses configurations that cannot work.
pub(super) fn check(given: &SendConfig) -> Result<(), Error> {
    given.group.check()?;
    given.group.check_recovery(&given.recovery)?;
    if given.rate == Rate::Fixed(0) {
        return Err(Error::Config("the rate is 0 bit/s"));
    }
    if given.min_rate_bps.is_some() && !given.recovery.relays().is_empty() {
        return Err(Error::Config(
            "no lowest rate through relays: a relay answers for all receivers below it, so that none can be given up alone",
        ));
    }
    if given.min_rate_bps.is_some() && given.rate != Rate::Congestion {
        return Err(Error::Config(
            "a lowest rate is for congestion control: without it no receiver is too slow",
        ));
    }
    if given.receivers == Some(0) {
        return Err(Error::Config("0 receivers: `None` is any number"));
    }
    Ok(())
}

pub(super) fn config(
    given: &SendConfig,
    local: &Local,
    source: &Source,
    digest: Option<[u8; 32]>,
) -> Result<SenderConfig, Error> {
    let relayed = !given.recovery.relays().is_empty();
    let mtu = given
        .mtu
        .unwrap_or_else(|| u16::try_from(local.interface.mtu).unwrap_or(1500).min(1500));
    let headers = if given.group.address.is_ipv4() {
        IPV4
    } else {
        IPV6
    };
    if mtu < headers.min_mtu {
        return Err(Error::Config(match headers.min_mtu {
            1280.. => "the MTU is below 1280 bytes, the least that IPv6 has",
            _ => "the MTU is below 576 bytes",
        }));
    }
    let taken = if relayed {
        headers.relayed
    } else if matches!(given.recovery, Recovery::Lms { .. }) {
        headers.lms
    } else {
        headers.plain
    };
    let mut config = SenderConfig::new(given.group.address);
    config.name = name(given, source)?;
    config.length = source.length();
    config.digest = digest;
    config.key = given.group.key;
    config.max_packet_len = mtu - taken;
    config.parity = given.parity;
    config.block_exponent = block_exponent(&config);
    config.receivers = given.receivers;
    config.congestion = given.rate == Rate::Congestion;
    config.min_rate_bps = given.min_rate_bps;
    config.connect_timeout = span(given.connect_timeout);
    if given.receivers.is_none() && given.rate == Rate::Unlimited {
        config.receivers = Some(UNCOUNTED);
        config.connect_timeout = UNCOUNTED_WAIT;
    }
    let window = (WINDOW_BYTES >> config.block_exponent) as u32;
    // Relays tell how far the slowest below them is, whichever that is.
    let has_window = relayed || config.receivers.is_some();
    config.window_blocks = has_window.then_some(window);
    config.receiver_timeout = span(given.timeout);
    config.linger = span(given.linger);
    // Room for twice as many as expected: a forged identifier costs its sender nothing.
    let receivers = given.receivers.unwrap_or(0) as usize;
    config.limits.receivers = config.limits.receivers.max(2 * receivers);
    Ok(config)
}

/// The largest block, 64 KiB at most, that packets of this length cut into 64 or fewer.
fn block_exponent(config: &SenderConfig) -> u8 {
    let mut config = config.clone();
    let fits = |exponent: &u8| {
        config.block_exponent = *exponent;
        config.geometry().is_some()
    };
    (Geometry::MIN_EXPONENT..=16)
        .rev()
        .find(fits)
        .unwrap_or(Geometry::MIN_EXPONENT)
}

/// Returns the name receivers store the content under; empty for a content without one.
fn name(given: &SendConfig, source: &Source) -> Result<Name, Error> {
    let name = given.name.as_deref().unwrap_or(source.name());
    Name::from_slice(name.as_bytes()).map_err(|_| Error::NameTooLong)
}
