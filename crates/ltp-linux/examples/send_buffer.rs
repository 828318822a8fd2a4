//! Sends bytes in memory to one receiver: `send_buffer 239.1.2.3:5000 lo`.

use anyhow::Context as _;
use ltp_linux::{Error, Group, SendConfig, SendOutcome, Source, send};

/// Sends `bytes` under the name `greeting.txt`; returns when one receiver has confirmed them.
pub(crate) fn send_buffer(group: Group, bytes: Vec<u8>) -> Result<SendOutcome, Error> {
    let mut config = SendConfig::new(group);
    config.receivers = Some(1);
    send(&config, Source::buffer(bytes).named("greeting.txt"))
}

#[allow(dead_code, reason = "a test includes this file")]
fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let address = args
        .next()
        .context("usage: send_buffer GROUP:PORT [INTERFACE]")?;
    let mut group = Group::new(address.parse()?);
    group.interface = args.next();
    send_buffer(group, b"good morning, everybody\n".repeat(10_000))?;
    println!("the receiver has everything");
    Ok(())
}
