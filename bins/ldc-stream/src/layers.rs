//! The layers of a stream: their bytes and their schedule.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::args::SendArgs;
use crate::wire::{self, Data, HEADER_LEN, Header};

/// Maximum bytes of a layer in a window.
const MAX_WINDOW_BYTES: u64 = 64 << 20;

/// The layers of a stream, cut into windows.
pub(crate) struct Layers {
    pub(crate) count: usize,
    pub(crate) window: Duration,
    rate_bps: u64,
    message: usize,
    source: Source,
}

enum Source {
    Generated,
    Files(Vec<File>),
}

/// One layer of one window, cut into messages: header and payload of each.
pub(crate) struct Piece {
    pub(crate) layer: usize,
    pub(crate) window: u32,
    /// Bytes without headers.
    pub(crate) bytes: u64,
    pub(crate) messages: Vec<Vec<u8>>,
}

impl Layers {
    pub(crate) fn new(args: &SendArgs) -> Result<Layers> {
        let open = |path: &PathBuf| {
            File::open(path).with_context(|| format!("cannot open {}", path.display()))
        };
        let files: Vec<File> = args.files.iter().map(open).collect::<Result<_>>()?;
        let layers = Layers {
            count: args.layer_count(),
            window: args.window,
            rate_bps: args.layer_rate.0,
            message: usize::try_from(args.message.0).context("--message")?,
            source: if files.is_empty() {
                Source::Generated
            } else {
                Source::Files(files)
            },
        };
        let bytes = layers
            .bytes_before(1)
            .max(layers.bytes_before(2) - layers.bytes_before(1));
        ensure!(
            bytes > 0,
            "a layer has no byte in a window: raise --layer-rate or --window"
        );
        ensure!(
            bytes <= MAX_WINDOW_BYTES,
            "a layer has {bytes} bytes in a window, more than 64 MiB: lower --layer-rate or --window"
        );
        Ok(layers)
    }

    pub(crate) fn is_generated(&self) -> bool {
        matches!(self.source, Source::Generated)
    }

    pub(crate) fn window_us(&self) -> u64 {
        u64::try_from(self.window.as_micros()).unwrap_or(u64::MAX)
    }

    /// Returns the bytes of a layer before a window.
    fn bytes_before(&self, window: u64) -> u64 {
        let bits = u128::from(self.rate_bps) * u128::from(window) * u128::from(self.window_us());
        u64::try_from(bits / 8_000_000).unwrap_or(u64::MAX)
    }

    /// Returns the maximum number of messages of a window.
    pub(crate) fn messages_per_window(&self) -> u64 {
        let bytes = self
            .bytes_before(1)
            .max(self.bytes_before(2) - self.bytes_before(1))
            + 1;
        bytes.div_ceil(self.message as u64) * self.count as u64
    }

    /// Returns the length of the longest message, including its header.
    pub(crate) fn longest(&self) -> usize {
        HEADER_LEN + self.message
    }

    /// Returns the time since the start at which a layer of a window is due: layers are spaced evenly.
    pub(crate) fn due(&self, window: u32, layer: usize) -> Duration {
        let slot = u64::from(window) * self.count as u64 + layer as u64;
        let us = u128::from(slot) * u128::from(self.window_us()) / self.count as u128;
        Duration::from_micros(u64::try_from(us).unwrap_or(u64::MAX))
    }

    /// Returns the time since the start at which a window ends.
    pub(crate) fn end(&self, window: u32) -> Duration {
        self.due(window, 0) + self.window
    }

    /// Returns one layer of one window, without messages if its file has ended.
    pub(crate) fn piece(&self, window: u32, layer: usize, due: Duration) -> Result<Piece> {
        let begin = self.bytes_before(window.into());
        let mut payload =
            vec![0; usize::try_from(self.bytes_before(u64::from(window) + 1) - begin)?];
        let len = self.read(layer, begin, &mut payload)?;
        payload.truncate(len);
        // Parts of nearly the same length.
        let parts = len.div_ceil(self.message).max(1);
        let size = len.div_ceil(parts).max(1);
        let mut offset = begin;
        let mut messages = Vec::with_capacity(parts);
        for part in payload.chunks(size) {
            let header = Header::Data(Data {
                layer: u8::try_from(layer)?,
                len: u32::try_from(part.len())?,
                window,
                of: u32::try_from(len)?,
                offset,
                due_us: u64::try_from(due.as_micros())?,
            });
            let mut message = Vec::with_capacity(HEADER_LEN + part.len());
            message.extend_from_slice(&header.emit());
            message.extend_from_slice(part);
            messages.push(message);
            offset += part.len() as u64;
        }
        Ok(Piece {
            layer,
            window,
            bytes: len as u64,
            messages,
        })
    }

    fn read(&self, layer: usize, begin: u64, bytes: &mut [u8]) -> Result<usize> {
        match &self.source {
            Source::Generated => {
                let layer = u8::try_from(layer)?;
                for (at, byte) in bytes.iter_mut().enumerate() {
                    *byte = wire::generated(layer, begin + at as u64);
                }
                Ok(bytes.len())
            }
            Source::Files(files) => {
                let mut have = 0;
                while have < bytes.len() {
                    let read = files[layer].read_at(&mut bytes[have..], begin + have as u64);
                    match read {
                        Ok(0) => break,
                        Ok(count) => have += count,
                        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(error).context("cannot read a layer"),
                    }
                }
                Ok(have)
            }
        }
    }
}
