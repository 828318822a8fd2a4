//! Receiving: into a file that gets its name when it is complete, into a stream, or into a buffer.

mod config;
mod destination;
mod event;
mod existing;
mod setup;
mod sink;
mod transfer;

use std::io::{self, Write};
use std::path::PathBuf;

pub use config::{ReceiveConfig, Replier};
pub use event::{ReceiveEvent, Received};
pub use transfer::Receiver;

use crate::transfer::Transfer as _;
use crate::{Cancel, Error};

/// The destination of the bytes.
pub struct Sink(Kind);

enum Kind {
    Folder(Folder),
    Stream(Box<dyn Write + Send>),
    /// Memory, up to this length in bytes.
    Buffer(usize),
}

/// A file in a folder.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// The sender's name for it unless given.
    name: Option<String>,
    fsync: bool,
}

impl Sink {
    /// Refuses a folder that does not exist, or is none.
    fn check(&self) -> Result<(), Error> {
        let Kind::Folder(Folder { path, .. }) = &self.0 else {
            return Ok(());
        };
        let source = match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => return Ok(()),
            Ok(_) => io::ErrorKind::NotADirectory.into(),
            Err(error) => error,
        };
        Err(Error::Output {
            folder: path.clone(),
            wanted: None,
            source,
        })
    }

    /// Whether the bytes are passed on in order.
    fn is_in_order(&self) -> bool {
        matches!(self.0, Kind::Stream(_) | Kind::Buffer(_))
    }

    /// A file in this folder, under the sender's name, sanitised by [`name::sanitise`](crate::name::sanitise).
    ///
    /// The file has a temporary name until it is complete, and then replaces an older file of its name in one
    /// step. An older file with the announced digest is kept as it is.
    #[must_use]
    pub fn folder(path: impl Into<PathBuf>) -> Sink {
        Sink(Kind::Folder(Folder {
            path: path.into(),
            name: None,
            fsync: false,
        }))
    }

    /// A stream: blocks are verified before they are written, in order, by a thread of its own. When the
    /// transfer fails in the middle, the bytes before were written.
    #[must_use]
    pub fn stream(writer: impl Write + Send + 'static) -> Sink {
        Sink(Kind::Stream(Box::new(writer)))
    }

    /// Memory: [`Received::bytes`] of the result holds the content. One of more than `max_len` bytes is an error,
    /// [`Error::TooLong`].
    #[must_use]
    pub fn buffer(max_len: usize) -> Sink {
        Sink(Kind::Buffer(max_len))
    }

    /// Names the file instead of the sender. Changes nothing without a file.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Sink {
        if let Kind::Folder(folder) = &mut self.0 {
            folder.name = Some(name.into());
        }
        self
    }

    /// Flushes the file to the disk before the transfer counts as complete. Changes nothing without a file.
    #[must_use]
    pub fn fsync(mut self, fsync: bool) -> Sink {
        if let Kind::Folder(folder) = &mut self.0 {
            folder.fsync = fsync;
        }
        self
    }
}

/// Receives a content; blocks until it is complete.
///
/// # Errors
/// As [`Receiver::open`] and [`Receiver::run`].
pub fn receive(config: &ReceiveConfig, sink: Sink) -> Result<Received, Error> {
    let cancel = Cancel::new().map_err(Error::io("eventfd"))?;
    Receiver::open(config, sink, cancel, &mut |_| {})?.complete(&mut |_| {})
}

/// Receives a content of at most `max_len` bytes into memory: [`receive`] with [`Sink::buffer`].
///
/// # Errors
/// [`Error::TooLong`]; else as [`receive`].
pub fn receive_buffer(config: &ReceiveConfig, max_len: usize) -> Result<Vec<u8>, Error> {
    Ok(receive(config, Sink::buffer(max_len))?.bytes)
}
