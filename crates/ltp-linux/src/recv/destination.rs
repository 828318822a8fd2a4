//! The destination of the bytes: a file that gets its name when it is complete, a stream, or a buffer.

use std::io;
use std::path::{Path, PathBuf};

use linux_net::wake::Waker;
use ltp::{Instant, Receiver, SessionId};

use super::existing::Existing;
use super::sink::{Content, StreamWriter};
use super::{Folder, Kind, Sink};
use crate::{Error, name};

/// Bytes that are worth waking the writer for while packets come.
const MANY_BYTES: u64 = 512 << 10;

type Machine = Receiver<'static, Content>;
/// Bytes for the writer: a buffer, and how many of its bytes count, from the first on.
type Piece = (Box<[u8]>, usize);

/// Where the bytes go.
enum Target {
    Folder(Folder),
    Stream(StreamWriter),
    Buffer { bytes: Vec<u8>, max_len: usize },
}

/// The file, the stream or the buffer that is being written.
pub(super) struct Destination {
    target: Target,
    /// Where the file will stand, once it has a name.
    path: Option<PathBuf>,
    /// An older file of that name, while it is compared with the announced digest.
    existing: Option<Existing>,
    /// The older file has the announced digest.
    pub(super) is_adopted: bool,
    is_reserved: bool,
    /// Where the next piece for the writer or the buffer starts in the content.
    next: u64,
    /// A piece that the writer's queue had no space for.
    waiting: Option<Piece>,
}

impl Destination {
    /// `waker` is woken when a stream can go on.
    pub(super) fn new(sink: Sink, waker: &Waker) -> io::Result<Self> {
        let target = match sink.0 {
            Kind::Folder(folder) => Target::Folder(folder),
            Kind::Stream(out) => Target::Stream(StreamWriter::start(out, waker.clone())?),
            Kind::Buffer(max_len) => Target::Buffer {
                bytes: Vec::new(),
                max_len,
            },
        };
        Ok(Destination {
            target,
            path: None,
            existing: None,
            is_adopted: false,
            is_reserved: false,
            next: 0,
            waiting: None,
        })
    }

    fn target_folder(&self) -> Option<&Folder> {
        match &self.target {
            Target::Folder(folder) => Some(folder),
            Target::Stream(_) | Target::Buffer { .. } => None,
        }
    }

    /// Where the file stands or will stand; `None` without a file.
    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The folder of the file; empty without a file.
    pub(super) fn folder(&self) -> &Path {
        self.target_folder()
            .map_or(Path::new(""), |folder| &folder.path)
    }

    /// An error of the file system, about the folder.
    pub(super) fn error(&self, source: io::Error, wanted: Option<u64>) -> Error {
        Error::Output {
            folder: self.folder().to_owned(),
            wanted,
            source,
        }
    }

    /// Begins a session, or begins it again after a forged heartbeat had a wrong geometry. Call it before the
    /// machine gets another packet: from then on it writes blocks. Returns the name of the content.
    pub(super) fn open(
        &mut self,
        receiver: &mut Machine,
        session: SessionId,
        start: u64,
    ) -> Result<String, Error> {
        let given = self.target_folder().and_then(|folder| folder.name.clone());
        let name = given.or_else(|| name::sanitise(receiver.name()));
        let name = name.unwrap_or_else(|| format!("received-{session}"));
        let block_len = receiver.geometry().map_or(0, |g| g.block_len());
        receiver.store_mut().begin(block_len, start);
        self.is_reserved = false;
        (self.next, self.waiting) = (start, None);
        self.take_bytes();
        let Some(file) = receiver.store_mut().file() else {
            return Ok(name);
        };
        let folder = self.folder();
        let path = folder.join(&name);
        if path.is_dir() {
            return Err(Error::IsFolder(path));
        }
        file.create(folder, &name)
            .map_err(|error| self.error(error, None))?;
        self.existing = Existing::find(&path, start);
        self.path = Some(path);
        Ok(name)
    }

    /// Reserves space once the length is known. A buffer refuses a content that it cannot hold before it is
    /// confirmed.
    pub(super) fn reserve(&mut self, receiver: &mut Machine) -> Result<(), Error> {
        let (_, Some(length)) = receiver.progress() else {
            return Ok(());
        };
        if std::mem::replace(&mut self.is_reserved, true) {
            return Ok(());
        }
        if let Target::Buffer { bytes, max_len } = &self.target
            && length.saturating_sub(self.next) > (max_len - bytes.len()) as u64
        {
            return Err(Error::TooLong(*max_len));
        }
        let Some(file) = receiver.store_mut().file() else {
            return Ok(());
        };
        file.reserve(length)
            .map_err(|error| self.error(error, Some(length)))
    }

    /// Whether an older file is being read.
    pub(super) fn is_comparing(&self, receiver: &Machine) -> bool {
        self.existing.is_some() && receiver.announced().is_some()
    }

    /// Compares an older file of that name with the announced digest, a step at a time.
    pub(super) fn compare_existing(
        &mut self,
        now: Instant,
        receiver: &mut Machine,
        key: Option<[u8; 32]>,
    ) {
        let Some(existing) = &mut self.existing else {
            return;
        };
        let (Some(length), Some(announced)) = (receiver.progress().1, receiver.announced()) else {
            return;
        };
        match existing.compare(length, announced, key) {
            None => {}
            Some(false) => self.existing = None,
            Some(true) => {
                if let Some(file) = self.existing.take().map(Existing::into_file)
                    && receiver.adopt(now, announced)
                {
                    self.is_adopted = true;
                    if let Some(sink) = receiver.store_mut().file() {
                        sink.adopt(file);
                    }
                }
            }
        }
    }

    /// Hands verified bytes to the writer of a stream, or to a buffer: `all` of them, else many at once or none,
    /// since each call may wake the writer.
    pub(super) fn deliver(
        &mut self,
        now: Instant,
        receiver: &mut Machine,
        all: bool,
    ) -> Result<(), Error> {
        if !all && receiver.progress().0 < self.next + MANY_BYTES {
            return Ok(());
        }
        let writer = match &mut self.target {
            Target::Folder(_) => return Ok(()),
            Target::Stream(writer) => writer,
            Target::Buffer { bytes, max_len } => {
                while let Some((piece, len)) = next_piece(now, receiver, self.next)? {
                    if len > *max_len - bytes.len() {
                        return Err(Error::TooLong(*max_len));
                    }
                    bytes.extend_from_slice(&piece[..len]);
                    self.next += len as u64;
                    receiver.store_mut().give_back(piece);
                }
                return Ok(());
            }
        };
        while let Some(buffer) = writer.reclaim() {
            receiver.store_mut().give_back(buffer);
        }
        loop {
            let (buffer, len) = match self.waiting.take() {
                Some(waiting) => waiting,
                None => match next_piece(now, receiver, self.next)? {
                    Some(piece) => {
                        self.next += piece.1 as u64;
                        piece
                    }
                    None => return Ok(()),
                },
            };
            if let Err(refused) = writer.offer(buffer, len) {
                self.waiting = Some((refused, len));
                return Ok(());
            }
        }
    }

    /// Whether a stream is being written.
    pub(super) fn is_stream(&self) -> bool {
        matches!(self.target, Target::Stream(_))
    }

    /// Whether everything is written. `length` is that of the content, once all of it is verified. Call it again
    /// when woken, and no more once it is.
    pub(super) fn is_drained(&mut self, length: Option<u64>) -> Result<bool, Error> {
        let is_delivered = length.is_some_and(|length| self.next >= length);
        let writer = match &mut self.target {
            Target::Folder(_) => return Ok(true),
            Target::Buffer { .. } => return Ok(is_delivered),
            Target::Stream(writer) => writer,
        };
        if is_delivered && self.waiting.is_none() {
            writer.close();
        }
        match writer.ended() {
            None => Ok(false),
            Some(ended) => ended.map(|()| true).map_err(Error::Write),
        }
    }

    /// Takes the bytes of a buffer; none of another destination.
    pub(super) fn take_bytes(&mut self) -> Vec<u8> {
        match &mut self.target {
            Target::Buffer { bytes, .. } => std::mem::take(bytes),
            Target::Folder(_) | Target::Stream(_) => Vec::new(),
        }
    }

    /// Everything is verified: the file gets its name.
    pub(super) fn finish(&mut self, receiver: &mut Machine) -> Result<(), Error> {
        let Some(file) = receiver.store_mut().file() else {
            return Ok(());
        };
        let fsync = self.target_folder().is_some_and(|folder| folder.fsync);
        file.finish(fsync).map_err(|error| self.error(error, None))
    }
}

/// Takes the verified bytes of a stream from `start` on.
fn next_piece(now: Instant, receiver: &mut Machine, start: u64) -> Result<Option<Piece>, Error> {
    let len = receiver
        .peek()
        .map_err(|error| lost(error.to_string()))?
        .len();
    if len == 0 {
        return Ok(None);
    }
    let buffer = receiver.store_mut().pass_on(start, len);
    let buffer = buffer.ok_or_else(|| lost("verified bytes are gone".to_owned()))?;
    receiver.consume(now, len);
    Ok(Some((buffer, len)))
}

/// Bytes that were verified cannot be read.
fn lost(reason: String) -> Error {
    Error::Content {
        name: "the stream".to_owned(),
        reason,
    }
}
