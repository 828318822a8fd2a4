//! Streams over this machine's loopback, to a receiver that discards everything.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use crate::prelude::*;
use ldc_linux::tcp::{self, Config};
use ldc_linux::{Attributes, SendError, Shape};

/// Bytes of a ring: sixteen of the longest messages.
const RING: usize = 1 << 20;
const READ: usize = 256 << 10;
const TIMEOUT: Option<Duration> = Some(Duration::from_secs(30));

/// When the sender notifies the drain of new data (thesis §4.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notify {
    /// After each message, and the next only when it has left: the loop that held the thesis to 250 kbit/s.
    EachAndWait,
    /// After each message.
    Each,
    /// When the ring is full: the thesis's remedy.
    WhenFull,
}

/// One stream.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Run {
    /// From the first byte sent to the last one received.
    pub(super) bps: f64,
    pub(super) messages: u64,
    /// System calls that woke the drain.
    pub(super) wakes: u64,
}

impl Run {
    /// Wake-ups for 1,000 messages.
    pub(super) fn wakes_per_1000(&self) -> f64 {
        self.wakes as f64 * 1e3 / self.messages as f64
    }
}

struct Sink {
    stream: TcpStream,
    thread: JoinHandle<std::io::Result<u64>>,
}

impl Sink {
    fn open() -> Result<Sink> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        let mut far = listener.accept()?.0;
        let thread = std::thread::spawn(move || {
            let (mut bytes, mut total) = (vec![0; READ], 0);
            loop {
                match far.read(&mut bytes)? {
                    0 => return Ok(total),
                    count => total += count as u64,
                }
            }
        });
        Ok(Sink { stream, thread })
    }
}

fn finish(thread: JoinHandle<std::io::Result<u64>>, began: Instant, expected: u64) -> Result<f64> {
    let total = thread.join().map_err(|_| anyhow!("the sink panicked"))??;
    let seconds = began.elapsed().as_secs_f64();
    ensure!(total == expected, "{total} of {expected} bytes arrived");
    Ok(total as f64 * 8.0 / seconds)
}

/// A loop of `send`: messages of `size` bytes, `bytes` in all.
pub(super) fn plain(size: usize, bytes: u64) -> Result<Run> {
    let Sink { mut stream, thread } = Sink::open()?;
    let message = vec![0x5a; size];
    let count = bytes / size as u64;
    let began = Instant::now();
    for _ in 0..count {
        stream.write_all(&message)?;
    }
    drop(stream);
    Ok(Run {
        bps: finish(thread, began, count * size as u64)?,
        messages: count,
        wakes: 0,
    })
}

/// The same through a ring.
pub(super) fn late(size: usize, bytes: u64, notify: Notify) -> Result<Run> {
    let Sink { stream, thread } = Sink::open()?;
    let message = vec![0x5a; size];
    let count = bytes / size as u64;
    let slots = (RING / size).clamp(8, 4_096);
    let shape = Shape::new(u32::try_from(slots)?, u32::try_from(size)?)?;
    let mut ldc = tcp::init(stream, shape, Config::default())?;
    let mut wakes = 0;
    let began = Instant::now();
    for number in 0..count {
        let sent = ldc.send(number, &message, Attributes::default());
        if sent == Err(SendError::Full) {
            wakes += u64::from(ldc.notify());
            ldc.send_wait(number, &message, Attributes::default(), TIMEOUT)
                .context("the ring")?;
        } else {
            sent.context("the ring")?;
        }
        if notify != Notify::WhenFull {
            wakes += u64::from(ldc.notify());
        }
        if notify == Notify::EachAndWait {
            ldc.wait_room(shape.slots(), TIMEOUT)?;
        }
    }
    let ended = ldc.finish()?;
    drop(ended.socket);
    Ok(Run {
        bps: finish(thread, began, count * size as u64)?,
        messages: count,
        wakes,
    })
}
