//! From arguments to a machine.

use std::time::Duration as StdDuration;

use anyhow::{Context, anyhow};
use cli::multicast::Local;
use cli::progress::Progress;
use cli::units::Rate;
use ltp::{Duration, Geometry, Name, SenderConfig};

use crate::args::Args;
use crate::source::{self, Source};

/// How far new data may run ahead of the slowest receiver, in bytes: less than the socket buffer of
/// a receiver, so that at any rate nothing is lost there.
const WINDOW_BYTES: u64 = 24 << 20;
/// At an unlimited rate those that report set the pace, however many there are: the machine is told
/// that there are so many (more may join) and not waited for.
const UNCOUNTED: u32 = 64;
/// Those that are there already have so long to say so.
const UNCOUNTED_WAIT: Duration = Duration::from_millis(200);
/// What a relay's packets take beside the headers of IP and UDP.
const RELAY_HEADERS: u16 = 20 + 8 + ltp::tree::OVERHEAD as u16;
/// Headers that IP and UDP add, and what a dmcast adds on top (LMS option and outer header).
const HEADERS: u16 = 20 + 8 + 36;

/// The digest of the whole, where it is wanted before the start; the outer `None`: interrupted.
pub(super) fn first_digest(
    args: &Args,
    source: &Source,
    key: Option<[u8; 32]>,
    wanted: bool,
) -> anyhow::Result<Option<Option<[u8; 32]>>> {
    let Source::File { file, path, length } = source else {
        return Ok(Some(None));
    };
    if args.start_at_once {
        return Ok(Some(None));
    }
    let bar = Progress::new(wanted, "reading", Some(*length));
    let digest = source::digest(file, *length, key, |done| {
        bar.set_position(done);
        !cli::interrupt::raised()
    });
    let digest = digest.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(digest.map(Some))
}

pub(super) fn config(
    args: &Args,
    local: &Local,
    length: Option<u64>,
    key: Option<[u8; 32]>,
    digest: Option<[u8; 32]>,
    relayed: bool,
) -> anyhow::Result<SenderConfig> {
    let millis = |time: StdDuration| Duration::from_millis(time.as_millis().min(1 << 40) as u64);
    let mtu = args
        .mtu
        .unwrap_or_else(|| u16::try_from(local.interface.mtu).unwrap_or(1500).min(1500));
    let max_packet_len = mtu - if relayed { RELAY_HEADERS } else { HEADERS };
    let mut config = SenderConfig::new(args.group.group.into());
    config.name = name(args)?;
    config.length = length;
    config.digest = digest;
    config.key = key;
    config.max_packet_len = max_packet_len;
    config.block_exponent = block_exponent(max_packet_len);
    config.receivers = args.receivers;
    config.start_wait = millis(args.start_wait);
    if args.receivers.is_none() && args.rate == Rate::Unlimited {
        config.receivers = Some(UNCOUNTED);
        config.start_wait = UNCOUNTED_WAIT;
    }
    let window = (WINDOW_BYTES >> config.block_exponent) as u32;
    // Relays tell how far the slowest below them is, whoever that is.
    let has_window = relayed || config.receivers.is_some();
    config.window_blocks = has_window.then_some(window);
    config.receiver_timeout = millis(args.timeout);
    config.linger = millis(args.linger);
    // Room for twice as many as expected: a guess at a stranger's identifier costs nothing.
    let receivers = args.receivers.unwrap_or(0) as usize;
    config.limits.receivers = config.limits.receivers.max(2 * receivers);
    Ok(config)
}

/// The largest block, 64 KiB at most, that packets of this length cut into 64 or fewer.
fn block_exponent(max_packet_len: u16) -> u8 {
    let fits = |exponent: &u8| {
        Geometry::for_packet_len(*exponent, max_packet_len, ltp::wire::Sequence(0)).is_some()
    };
    (Geometry::MIN_EXPONENT..=16)
        .rev()
        .find(fits)
        .unwrap_or(Geometry::MIN_EXPONENT)
}

/// The name receivers store the content under; empty for a stream without one.
fn name(args: &Args) -> anyhow::Result<Name> {
    let name = match &args.name {
        Some(name) => name.clone(),
        None if args.is_stream() => String::new(),
        None => args
            .file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
    };
    Name::from_slice(name.as_bytes()).map_err(|_| {
        anyhow!("the name is too long for the protocol: give a shorter one with --name")
    })
}
