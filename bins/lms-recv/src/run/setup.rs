//! From arguments to machines.

use anyhow::Context;
use cli::assist::Assist;
use cli::multicast::Local;
use linux_net::OpenError;
use ltp::store::HeapRing;
use ltp::{Delivery, Duration, Instant, Receiver, ReceiverConfig, Start};

use super::news::News;
use crate::args::{self, Args};
use crate::lms::Lms;
use crate::sink::{FileSink, Sink, StreamSink};

/// Block length that the buffer is counted in.
const BLOCK_EXPONENT: u32 = 16;

/// The LMS endpoint, if wanted and permitted.
pub(super) fn open_lms(
    args: &Args,
    assist: &Assist,
    local: &Local,
    now: Instant,
    news: &News,
) -> anyhow::Result<Option<Lms>> {
    if *assist != Assist::Lms {
        return Ok(None);
    }
    match Lms::open(args, local, now) {
        Ok(lms) => Ok(Some(lms)),
        Err(error @ OpenError::Privilege { .. }) => {
            let message =
                format!("--assist lms: {error}. Going on without: the sender is asked for repairs");
            news.warn(&message);
            Ok(None)
        }
        Err(error) => Err(error).context("--assist lms"),
    }
}

pub(super) fn config(args: &Args, key: Option<[u8; 32]>, help: ltp::Assist) -> ReceiverConfig {
    let mut config = ReceiverConfig::new(args.group.group.into());
    config.source = args.source.map(Into::into);
    config.key = key;
    config.assist = help;
    config.start = match args.start {
        args::Start::Beginning => Start::Beginning,
        args::Start::Now => Start::Now,
    };
    config.delivery = if args.is_stream() {
        Delivery::Read
    } else {
        Delivery::Store
    };
    config.source_timeout = Duration::from_micros(args.timeout.as_micros() as u64);
    config.replier.enabled = help != ltp::Assist::None && !args.no_replier;
    config.limits.window_blocks = window_blocks(args);
    config
}

fn window_blocks(args: &Args) -> usize {
    let blocks = usize::try_from(args.buffer.0 >> BLOCK_EXPONENT)
        .unwrap_or(1 << 20)
        .min(1 << 20);
    1 << blocks.max(2).ilog2()
}

pub(super) fn receiver(
    args: &Args,
    config: &ReceiverConfig,
    now: Instant,
) -> anyhow::Result<Receiver<'static, Sink>> {
    let window = window_blocks(args);
    let sink = match (args.is_stream(), config.replier.enabled) {
        (false, _) => Sink::File(Box::new(FileSink::new(window))),
        (true, false) => Sink::Stream(StreamSink::new(window)),
        (true, true) => Sink::Ring(HeapRing::new(window << BLOCK_EXPONENT)),
    };
    Ok(Receiver::new(
        config.clone(),
        sink,
        cli::clock::seed()?,
        now,
    ))
}
