//! Kernel TCP, one stream to each receiver, all at once. The congestion control of every stream is set, whatever
//! the machine's default is; it is CUBIC unless the caller names another.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice};
use nix::sys::socket::{setsockopt, sockopt};

use super::play::Outcome;
use super::{Stage, Wire};
use crate::prelude::*;

pub(super) const PORT: u16 = 7_001;
const BLOCK: usize = 256 * 1024;
/// Bytes of the pipe between a spliced stream and its file.
const PIPE: usize = 1 << 20;
pub(super) const CONTROL: &str = "cubic";
/// Time between looks at a stream's time limit.
const LOOK: Duration = Duration::from_millis(200);

/// Where the bytes come from and go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// One block of memory repeatedly; the received bytes are discarded.
    Memory,
    /// From the stage's file (`sendfile`) into a file for each receiver.
    Files,
    /// The same, without a copy in the receiver's memory (`splice`).
    Spliced,
}

impl Ends {
    fn are_files(self) -> bool {
        self != Ends::Memory
    }
}

/// The result of streams to some receivers.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    /// How long each took, from the start of all.
    pub(crate) took: Vec<Duration>,
    /// Bytes that the sender sent.
    pub(crate) wire: Wire,
}

impl Streams {
    /// When the last one was done.
    pub(crate) fn last(&self) -> Duration {
        self.took.iter().copied().max().unwrap_or_default()
    }
}

/// What all streams of one transfer have in common.
#[derive(Clone, Copy, Debug)]
struct Flow<'a> {
    ends: Ends,
    /// The congestion control.
    control: &'a str,
    /// When the streams are given up.
    until: Option<Instant>,
}

/// A receiver's end: the copy it writes, if any, how many bytes came and when the last did. When the time is over, the
/// stream is closed, and the sender's end fails.
fn sink(
    listener: &TcpListener,
    copy: Option<&Path>,
    Flow { ends, until, .. }: Flow<'_>,
) -> Result<(u64, Instant)> {
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(until.map(|_| LOOK))?;
    let mut file = copy.map(File::create).transpose()?;
    if ends == Ends::Spliced
        && let Some(file) = &file
    {
        return spliced(&stream, file, until);
    }
    let mut block = vec![0; BLOCK];
    let mut total = 0;
    loop {
        if until.is_some_and(|until| Instant::now() > until) {
            bail!("TCP delivered {total} bytes within the time limit");
        }
        let count = match stream.read(&mut block) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            read => read?,
        };
        if count == 0 {
            return Ok((total, Instant::now()));
        }
        if let Some(file) = &mut file {
            file.write_all(&block[..count])?;
        }
        total += count as u64;
    }
}

/// Moves a stream into a file through a pipe.
fn spliced(stream: &TcpStream, file: &File, until: Option<Instant>) -> Result<(u64, Instant)> {
    let (out, into) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&into, FcntlArg::F_SETPIPE_SZ(PIPE as i32))?;
    let mut total = 0;
    loop {
        if until.is_some_and(|until| Instant::now() > until) {
            bail!("TCP delivered {total} bytes within the time limit");
        }
        let flags = SpliceFFlags::SPLICE_F_MOVE;
        let mut left = match splice(stream, None, &into, None, PIPE, flags) {
            Err(Errno::EAGAIN) => continue,
            moved => moved?,
        };
        if left == 0 {
            return Ok((total, Instant::now()));
        }
        total += left as u64;
        while left > 0 {
            left -= splice(&out, None, file, None, left, flags)?;
        }
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

/// Runs one transfer to all receivers and compares the copies.
pub(crate) fn tcp(stage: &mut Stage, ends: Ends) -> Result<Outcome> {
    let all: Vec<usize> = (0..stage.receivers.len()).collect();
    let streams = streams(stage, &all, ends)?;
    let name = match ends {
        Ends::Memory => "from memory to nowhere",
        Ends::Files => "file to file",
        Ends::Spliced => "spliced file to file",
    };
    let name = format!("{} kernel TCP streams, {name}", all.len());
    Ok(Outcome::of(name, stage, streams.last(), streams.wire))
}

/// Streams to these receivers (counted from 0), all at once; what arrived is checked.
pub(crate) fn streams(stage: &mut Stage, receivers: &[usize], ends: Ends) -> Result<Streams> {
    streams_by(stage, receivers, ends, CONTROL)
}

/// The same with this congestion control, within the stage's time limit if it has one.
pub(crate) fn streams_by(
    stage: &mut Stage,
    receivers: &[usize],
    ends: Ends,
    control: &str,
) -> Result<Streams> {
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
    let mut listeners = Vec::new();
    let mut targets = Vec::new();
    let mut copies: Vec<Option<PathBuf>> = Vec::new();
    for at in receivers {
        let node = stage.receivers[*at];
        let listener = stage.network.within(node, || Ok(TcpListener::bind(any)?))?;
        listeners.push(listener);
        let address = stage.network.plan().address(node);
        targets.push(SocketAddr::from((address, PORT)));
        let copy = ends.are_files().then(|| stage.copy(*at)).transpose()?;
        copies.push(copy);
    }
    let before = stage.wire()?;
    let start = Instant::now();
    let flow = Flow {
        ends,
        control,
        until: stage.limit.map(|limit| start + limit),
    };
    let received = carry(stage, flow, &listeners, &targets, &copies)?;
    let wire = stage.wire()?.since(before);
    for (bytes, _) in &received {
        ensure!(
            *bytes == stage.bytes,
            "TCP delivered {bytes} of {} bytes",
            stage.bytes
        );
    }
    let copies: Vec<PathBuf> = copies.into_iter().flatten().collect();
    stage.compare(&copies)?;
    stage.discard(&copies)?;
    Ok(Streams {
        took: received.iter().map(|(_, at)| *at - start).collect(),
        wire,
    })
}

/// Runs both ends of all streams; returns the bytes that each received, and when the last arrived.
fn carry(
    stage: &Stage,
    flow: Flow<'_>,
    listeners: &[TcpListener],
    targets: &[SocketAddr],
    copies: &[Option<PathBuf>],
) -> Result<Vec<(u64, Instant)>> {
    let Flow { ends, control, .. } = flow;
    let (bytes, file) = (stage.bytes, ends.are_files().then_some(&stage.file));
    // The kernel completes connections before they are accepted; a failed one ends the transfer.
    let mut streams = stage.network.within(stage.sender, || {
        let connected: std::io::Result<Vec<_>> = targets.iter().map(TcpStream::connect).collect();
        Ok(connected?)
    })?;
    for stream in &streams {
        setsockopt(stream, sockopt::TcpCongestion, &control.into())
            .with_context(|| format!("congestion control {control}"))?;
    }
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
            .map(|(listener, copy)| scope.spawn(move || sink(listener, copy.as_deref(), flow)))
            .collect();
        sinks
            .into_iter()
            .map(|sink| sink.join().map_err(|_| anyhow!("a sink panicked"))?)
            .collect()
    })
}
