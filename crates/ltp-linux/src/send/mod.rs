//! Sending: a file, a stream or a buffer, to every receiver of a group.

mod adapt;
mod config;
mod event;
mod notice;
mod setup;
mod source;
mod transfer;

pub use config::{Rate, SendConfig};
pub use event::{LimitingStatus, ReceiverStatus, SendEvent, SendOutcome, Unconfirmed};
pub use source::Source;
pub use transfer::Sender;

use crate::transfer::Transfer;
use crate::{Cancel, Error};

/// Sends a content; blocks until the transfer has ended.
///
/// Set [`SendConfig::receivers`]: without it `Ok` does not mean that a receiver has the content.
///
/// # Errors
/// As [`Sender::open`] and [`Sender::run`].
pub fn send(config: &SendConfig, source: Source) -> Result<SendOutcome, Error> {
    let cancel = Cancel::new().map_err(Error::io("eventfd"))?;
    Sender::open(config, source, cancel, &mut |_| {})?.complete(&mut |_| {})
}
