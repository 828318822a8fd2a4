//! Publishes a file at 10 Mbit/s: `publish SESSION FILE [SERVER]`, for example
//! `publish 'bfed://1/239.1.2.3/5004/?framing=numbered' film.ts`; in an HTTP network with the URL of its server.
#![allow(missing_docs)]

use std::io::Read;
use std::num::NonZeroU64;

use bfed_client::{Cancel, PublishOptions, Publisher};

/// Bytes of payload in a frame: seven packets of an MPEG transport stream.
const FRAME: u64 = 1316;

pub(crate) fn run(arguments: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let [session, file, server @ ..] = arguments else {
        return Err("usage: publish SESSION FILE [SERVER]".into());
    };
    let mut options = PublishOptions::new(session.parse()?);
    options.server = server.first().map(|url| url.parse()).transpose()?;
    options.rate = NonZeroU64::new(10_000_000);
    let mut publisher = Publisher::open(&options, &Cancel::new()?)?;
    let mut input = std::fs::File::open(file)?;
    loop {
        let mut payload = Vec::new();
        if input.by_ref().take(FRAME).read_to_end(&mut payload)? == 0 {
            break;
        }
        publisher.send(&payload)?;
    }
    let published = publisher.finish()?;
    eprintln!("{} bytes in {} frames", published.bytes, published.frames);
    Ok(())
}

#[allow(dead_code, reason = "a test calls `run`")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    run(&std::env::args().skip(1).collect::<Vec<_>>())
}
