//! Byte streams of the control node: to peers and to data nodes, each carried by a task of its own.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bfed::ConnId;
use bfed::wire::Frames;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::Input;
use super::lease::Guarded;

/// Bytes read at once.
const BUFFER: usize = 1 << 14;
/// Messages that may wait for a stream here: more stay with the machine, whose queue is bounded. The
/// last place is for the notification that ends the session.
const WAITING: usize = 64;
/// Bytes written at once.
const GATHERED: usize = 1 << 16;
/// Time to send queued messages when a stream is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// A byte stream of any kind.
pub(crate) trait Bytes: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Bytes for S {}

/// A byte stream.
pub(crate) type Stream = Box<dyn Bytes>;

/// Cuts received bytes into messages.
#[derive(Debug)]
pub(crate) struct Cutter {
    frames: Frames,
    buffer: Box<[u8]>,
    at: Range<usize>,
}

/// The result of a read.
#[derive(Debug)]
pub(crate) enum Cut {
    /// A whole message.
    Message(Vec<u8>),
    /// The first bytes of something that is not a message.
    Garbage(Vec<u8>),
    /// The end of the stream.
    End,
}

impl Cutter {
    pub(crate) fn new() -> Self {
        Cutter {
            frames: Frames::new(),
            buffer: vec![0; BUFFER].into(),
            at: 0..0,
        }
    }

    pub(crate) async fn next(&mut self, reader: &mut (impl AsyncRead + Unpin)) -> Cut {
        loop {
            let mut input = &self.buffer[self.at.clone()];
            let before = input.len();
            let message = match self.frames.next(&mut input) {
                Ok(message) => message.map(<[u8]>::to_vec),
                Err(_) => return Cut::Garbage(self.frames.partial().to_vec()),
            };
            self.at.start += before - input.len();
            if let Some(message) = message {
                return Cut::Message(message);
            }
            match reader.read(&mut self.buffer).await {
                Ok(0) | Err(_) => return Cut::End,
                Ok(read) => self.at = 0..read,
            }
        }
    }
}

/// The driver's end of a stream.
#[derive(Debug)]
pub(crate) struct Conn {
    messages: mpsc::Sender<Vec<u8>>,
    full: Arc<AtomicBool>,
    task: AbortHandle,
    /// The stream of a data node.
    pub(crate) is_node: bool,
}

impl Conn {
    /// Starts the task that carries a stream.
    pub(crate) fn start(
        id: ConnId,
        stream: Guarded<Stream>,
        cutter: Cutter,
        inputs: mpsc::Sender<Input>,
        is_node: bool,
    ) -> Self {
        let (messages, waiting) = mpsc::channel(WAITING);
        let full = Arc::new(AtomicBool::new(false));
        let carried = carry(id, stream, cutter, inputs, waiting, Arc::clone(&full));
        Conn {
            messages,
            full,
            task: tokio::spawn(carried).abort_handle(),
            is_node,
        }
    }

    /// Queues a message; returns true if the next one must wait for [`Input::Writable`].
    pub(crate) fn send(&self, message: Vec<u8>) -> bool {
        // If the task has ended, it has reported that.
        let _ = self.messages.try_send(message);
        let full = self.messages.capacity() <= 1;
        if full {
            self.full.store(true, Ordering::Relaxed);
        }
        full
    }

    /// Returns the task that carries the stream.
    pub(crate) fn task(&self) -> AbortHandle {
        self.task.clone()
    }

    /// Closes the stream once all queued messages are sent, or after three seconds.
    pub(crate) fn close(self) {
        drop(self.messages);
        let task = self.task;
        tokio::spawn(async move {
            tokio::time::sleep(CLOSE_TIMEOUT).await;
            task.abort();
        });
    }
}

async fn carry(
    id: ConnId,
    stream: Guarded<Stream>,
    mut cutter: Cutter,
    inputs: mpsc::Sender<Input>,
    waiting: mpsc::Receiver<Vec<u8>>,
    full: Arc<AtomicBool>,
) {
    let (mut reader, writer) = tokio::io::split(stream);
    let reading = async {
        loop {
            let (input, last) = match cutter.next(&mut reader).await {
                Cut::Message(message) => (Input::Message(id, message), false),
                Cut::Garbage(begins) => (Input::Message(id, begins), true),
                Cut::End => (Input::Ended(id), true),
            };
            if inputs.send(input).await.is_err() {
                return;
            }
            if last {
                // The driver closes the stream.
                return std::future::pending().await;
            }
        }
    };
    tokio::select! {
        () = reading => {}
        broke = write(id, writer, waiting, &inputs, &full) => {
            if broke {
                let _ = inputs.send(Input::Ended(id)).await;
            }
        }
    }
}

/// Writes until the driver has closed the stream; returns true if the stream broke before.
async fn write(
    id: ConnId,
    mut writer: impl AsyncWrite + Unpin,
    mut waiting: mpsc::Receiver<Vec<u8>>,
    inputs: &mpsc::Sender<Input>,
    full: &AtomicBool,
) -> bool {
    let mut bytes = Vec::new();
    while let Some(message) = waiting.recv().await {
        bytes.clear();
        bytes.extend_from_slice(&message);
        while bytes.len() < GATHERED
            && let Ok(message) = waiting.try_recv()
        {
            bytes.extend_from_slice(&message);
        }
        let written = async {
            writer.write_all(&bytes).await?;
            writer.flush().await
        };
        if written.await.is_err() {
            return true;
        }
        let none = waiting.is_empty();
        if none
            && full.swap(false, Ordering::Relaxed)
            && inputs.send(Input::Writable(id)).await.is_err()
        {
            return false;
        }
    }
    let _ = writer.shutdown().await;
    false
}
