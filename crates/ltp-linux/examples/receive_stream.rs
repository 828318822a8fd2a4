//! Receives a stream and counts its lines while it arrives: `receive_stream 239.1.2.3:5000 lo`.

use std::io::{self, BufRead, BufReader};
use std::thread;

use anyhow::{Context as _, anyhow};
use ltp_linux::{Group, ReceiveConfig, Sink, receive};

/// Receives one stream through a pipe, whose other end may be anything that reads: here it counts lines.
pub(crate) fn count_lines(group: Group) -> anyhow::Result<usize> {
    let (reader, writer) = io::pipe()?;
    let reading = thread::spawn(move || {
        let mut lines = BufReader::new(reader).lines();
        lines.try_fold(0, |count, line| line.map(|_| count + 1))
    });
    let received = receive(&ReceiveConfig::new(group), Sink::stream(writer))?;
    let lines = reading
        .join()
        .map_err(|_| anyhow!("the reader panicked"))??;
    println!("{lines} lines in {} bytes", received.length);
    Ok(lines)
}

#[allow(dead_code, reason = "a test includes this file")]
fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let address = args
        .next()
        .context("usage: receive_stream GROUP:PORT [INTERFACE]")?;
    let mut group = Group::new(address.parse()?);
    group.interface = args.next();
    count_lines(group)?;
    Ok(())
}
