//! Standard output, written by a thread of its own: a slow reader must not keep packets waiting.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use linux_net::wake::Waker;

/// Pieces that wait for the reader.
const PIECES: usize = 16;

/// Writes pieces in order.
pub(crate) struct StreamWriter {
    pieces: Option<SyncSender<Vec<u8>>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl StreamWriter {
    /// Wakes `waker` when there is room for another piece, or writing failed.
    pub(crate) fn start(waker: Waker) -> io::Result<Self> {
        let (pieces, queue) = sync_channel(PIECES);
        let thread = std::thread::Builder::new()
            .name("stdout".into())
            .spawn(move || {
                let result = write(&queue, &waker);
                waker.wake();
                result
            })?;
        Ok(StreamWriter {
            pieces: Some(pieces),
            thread: Some(thread),
        })
    }

    /// Queues a piece; false: there is no room now.
    pub(crate) fn offer(&self, bytes: &[u8]) -> bool {
        let Some(pieces) = &self.pieces else {
            return false;
        };
        !matches!(pieces.try_send(bytes.to_vec()), Err(TrySendError::Full(_)))
    }

    /// Why writing ended, once it did too early.
    pub(crate) fn error(&mut self) -> Option<io::Error> {
        if !self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
            return None;
        }
        self.finish().err()
    }

    /// Waits until everything is written.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.pieces = None;
        match self.thread.take() {
            Some(thread) => thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("the writer panicked"))),
            None => Ok(()),
        }
    }
}

fn write(queue: &Receiver<Vec<u8>>, waker: &Waker) -> io::Result<()> {
    // The descriptor itself: no line buffer in between.
    let mut out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    while let Ok(piece) = queue.recv() {
        out.write_all(&piece)?;
        waker.wake();
    }
    Ok(())
}
