//! Kernel TCP, one stream to each receiver, all at once.

use std::fs::File;
use std::io::{Read as _, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};

use super::play::Outcome;
use super::stage::Stage;

const PORT: u16 = 7_001;
const BLOCK: usize = 256 * 1024;

/// Where the bytes come from and go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// One block of memory over and over; nobody looks at what arrives.
    Memory,
    /// From the stage's file (`sendfile`) into a file for each receiver.
    Files,
}

/// A receiver's end: the copy it writes, if any, and how many bytes came.
fn sink(listener: &TcpListener, copy: Option<&Path>) -> Result<u64> {
    let (mut stream, _) = listener.accept()?;
    let mut file = copy.map(File::create).transpose()?;
    let mut block = vec![0; BLOCK];
    let mut total = 0;
    loop {
        let count = stream.read(&mut block)?;
        if count == 0 {
            return Ok(total);
        }
        if let Some(file) = &mut file {
            file.write_all(&block[..count])?;
        }
        total += count as u64;
    }
}

/// The sender's end of one stream.
fn pour(stream: &mut TcpStream, file: Option<&Path>, bytes: u64) -> Result<()> {
    if let Some(file) = file {
        std::io::copy(&mut File::open(file)?, stream)?;
        return Ok(());
    }
    let block = vec![0x5a; BLOCK];
    let mut left = bytes;
    while left > 0 {
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
        stream.write_all(&block[..part])?;
        left -= part as u64;
    }
    Ok(())
}

/// Plays one transfer and checks what arrived.
pub(super) fn tcp(stage: &mut Stage, ends: Ends) -> Result<Outcome> {
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
    let mut listeners = Vec::new();
    let mut targets = Vec::new();
    let mut copies: Vec<Option<PathBuf>> = Vec::new();
    for (at, node) in stage.receivers.iter().enumerate() {
        let listener = stage
            .network
            .within(*node, || Ok(TcpListener::bind(any)?))?;
        listeners.push(listener);
        targets.push(SocketAddr::from((
            stage.network.plan().address(*node),
            PORT,
        )));
        let copy = (ends == Ends::Files).then(|| stage.copy(at)).transpose()?;
        copies.push(copy);
    }
    let before = stage.wire_bytes()?;
    let start = Instant::now();
    let received = carry(stage, ends, &listeners, &targets, &copies)?;
    let took = start.elapsed();
    let wanted = stage.bytes * targets.len() as u64;
    ensure!(
        received == wanted,
        "TCP delivered {received} of {wanted} bytes"
    );
    let copies: Vec<PathBuf> = copies.into_iter().flatten().collect();
    stage.compare(&copies)?;
    stage.discard(&copies)?;
    let name = match ends {
        Ends::Memory => "from memory to nowhere",
        Ends::Files => "file to file",
    };
    let name = format!("{} kernel TCP streams, {name}", targets.len());
    let wire = stage.wire_bytes()? - before;
    Ok(Outcome::of(name, stage, took, wire))
}

/// Runs both ends of all streams; how many bytes came.
fn carry(
    stage: &Stage,
    ends: Ends,
    listeners: &[TcpListener],
    targets: &[SocketAddr],
    copies: &[Option<PathBuf>],
) -> Result<u64> {
    let (bytes, file) = (stage.bytes, (ends == Ends::Files).then_some(&stage.file));
    // The kernel takes connections before anybody accepts them; one that fails ends it here.
    let mut streams = stage.network.within(stage.sender, || {
        let connected: std::io::Result<Vec<_>> = targets.iter().map(TcpStream::connect).collect();
        Ok(connected?)
    })?;
    std::thread::scope(|scope| {
        for stream in &mut streams {
            scope.spawn(move || {
                let poured = pour(stream, file.map(PathBuf::as_path), bytes);
                let _ = stream.shutdown(Shutdown::Write);
                poured
            });
        }
        let sinks: Vec<_> = listeners
            .iter()
            .zip(copies)
            .map(|(listener, copy)| scope.spawn(|| sink(listener, copy.as_deref())))
            .collect();
        let mut total = 0;
        for sink in sinks {
            total += sink.join().map_err(|_| anyhow!("a sink panicked"))??;
        }
        Ok(total)
    })
}
