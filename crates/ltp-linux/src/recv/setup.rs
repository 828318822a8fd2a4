//! From a configuration to machines.

use ltp::store::HeapRing;
use ltp::{Assist, Delivery, Instant, Receiver, ReceiverConfig};

use super::config::ReceiveConfig;
use super::event::ReceiveEvent;
use super::sink::{Content, FileSink, Gather};
use crate::clock::{seed, span};
use crate::interface::Local;
use crate::lms::{self, Lms};
use crate::{Error, Recovery};

/// Block length that the buffer is counted in.
const BLOCK_EXPONENT: u32 = 16;

/// Refuses configurations that cannot work.
pub(super) fn check(given: &ReceiveConfig) -> Result<(), Error> {
    given.group.check()?;
    let has_source = given.source.is_some();
    if given.group.is_source_specific() && !has_source {
        return Err(Error::Config(
            "the group is source-specific: the sender must be named",
        ));
    }
    if given
        .source
        .is_some_and(|source| !given.group.is_of(source))
    {
        return Err(Error::Config(
            "the sender's address and the group are of different versions of IP: name an address of the group's",
        ));
    }
    given.group.check_recovery(&given.recovery)?;
    if !given.recovery.relays().is_empty() && !has_source {
        return Err(Error::Config(
            "relays find a session by its sender and group: the sender must be named",
        ));
    }
    Ok(())
}

/// Opens the LMS endpoint, if configured and permitted.
pub(super) fn open_lms(
    given: &ReceiveConfig,
    local: &Local,
    now: Instant,
    observer: &mut dyn FnMut(ReceiveEvent),
) -> Result<Option<Box<dyn Lms>>, Error> {
    let Recovery::Lms { carrier, port } = given.recovery else {
        return Ok(None);
    };
    let mut unprivileged = |error| observer(ReceiveEvent::LmsUnprivileged(error));
    let opened = lms::open(
        given,
        (carrier, port),
        local,
        seed()?,
        now,
        &mut unprivileged,
    );
    opened.map(Some).map_err(Error::Lms)
}

pub(super) fn config(given: &ReceiveConfig, assist: Assist, is_in_order: bool) -> ReceiverConfig {
    let mut config = ReceiverConfig::new(given.group.address);
    config.source = given.source;
    config.skip = given.skip;
    config.key = given.group.key;
    config.assist = assist;
    config.start = given.start;
    config.delivery = if is_in_order {
        Delivery::Read
    } else {
        Delivery::Store
    };
    config.source_timeout = span(given.timeout);
    config.replier.enabled = assist != Assist::None && given.replier.enabled;
    config.limits.window_blocks = window_blocks(given);
    config
}

fn window_blocks(given: &ReceiveConfig) -> usize {
    let blocks = usize::try_from(given.buffer_bytes >> BLOCK_EXPONENT)
        .unwrap_or(1 << 20)
        .min(1 << 20);
    1 << blocks.max(2).ilog2()
}

pub(super) fn receiver(
    config: &ReceiverConfig,
    now: Instant,
) -> Result<Receiver<'static, Content>, Error> {
    let window = config.limits.window_blocks;
    let content = match (config.delivery, config.replier.enabled) {
        (Delivery::Store, _) => Content::File(Box::new(FileSink::new(window))),
        (Delivery::Read, false) => Content::Stream(Gather::new(window)),
        (Delivery::Read, true) => Content::Ring(HeapRing::new(window << BLOCK_EXPONENT)),
    };
    Ok(Receiver::new(config.clone(), content, seed()?, now))
}
