//! A stream, written by a thread of its own: a slow reader must not keep packets waiting.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use linux_net::wake::Waker;

/// Pieces that wait for the reader.
const PIECES: usize = 16;

/// Bytes to be written: the first `len` of a buffer.
struct Piece {
    buffer: Box<[u8]>,
    len: usize,
}

/// Writes pieces in order.
pub(in crate::recv) struct StreamWriter {
    pieces: Option<SyncSender<Piece>>,
    written: Receiver<Box<[u8]>>,
    shared: Arc<Shared>,
}

/// What both threads look at.
#[derive(Default)]
struct Shared {
    /// The receiver waits for room.
    awaited: AtomicBool,
    /// How writing ended, once it did.
    ended: Mutex<Option<io::Result<()>>>,
}

impl StreamWriter {
    /// Wakes `waker` when the queue has space for a piece that was refused, and when writing ended.
    pub(in crate::recv) fn start(out: Box<dyn Write + Send>, waker: Waker) -> io::Result<Self> {
        let (pieces, queue) = sync_channel(PIECES);
        let (done, written) = channel();
        let shared = Arc::new(Shared::default());
        let writing = Writing {
            queue,
            done,
            shared: shared.clone(),
            waker,
        };
        std::thread::Builder::new()
            .name("ltp-writer".into())
            .spawn(move || writing.run(out))?;
        Ok(StreamWriter {
            pieces: Some(pieces),
            written,
            shared,
        })
    }

    /// Queues the first `len` bytes of a buffer. Returns the buffer when the queue is full.
    pub(in crate::recv) fn offer(&self, buffer: Box<[u8]>, len: usize) -> Result<(), Box<[u8]>> {
        let Some(pieces) = &self.pieces else {
            return Err(buffer);
        };
        let refused = match pieces.try_send(Piece { buffer, len }) {
            Ok(()) => return Ok(()),
            // `ended` tells why.
            Err(TrySendError::Disconnected(_)) => return Ok(()),
            Err(TrySendError::Full(refused)) => refused,
        };
        // Room may have been made before the flag was up: the second attempt sees it then.
        self.shared.awaited.store(true, Ordering::SeqCst);
        match pieces.try_send(refused) {
            Err(TrySendError::Full(refused)) => Err(refused.buffer),
            _ => Ok(()),
        }
    }

    /// A buffer that was written and is free again.
    pub(in crate::recv) fn reclaim(&self) -> Option<Box<[u8]>> {
        self.written.try_recv().ok()
    }

    /// Nothing more will be offered.
    pub(in crate::recv) fn close(&mut self) {
        self.pieces = None;
    }

    /// How writing ended, once: after [`close`](Self::close), or too early with an error.
    pub(in crate::recv) fn ended(&self) -> Option<io::Result<()>> {
        let ended = self.shared.ended.lock();
        ended.unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The thread's end.
struct Writing {
    queue: Receiver<Piece>,
    done: Sender<Box<[u8]>>,
    shared: Arc<Shared>,
    waker: Waker,
}

impl Writing {
    fn run(self, mut out: Box<dyn Write + Send>) {
        let result = self.write(&mut *out);
        let mut ended = self
            .shared
            .ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *ended = Some(result);
        drop(ended);
        self.waker.wake();
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        while let Ok(piece) = self.queue.recv() {
            if self.shared.awaited.swap(false, Ordering::SeqCst) {
                self.waker.wake();
            }
            out.write_all(&piece.buffer[..piece.len])?;
            // The receiver may be gone by now.
            let _ = self.done.send(piece.buffer);
        }
        out.flush()
    }
}
