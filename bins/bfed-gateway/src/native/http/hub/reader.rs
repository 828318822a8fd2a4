//! One reader of a stream, and its bounded queue.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker as TaskWaker;
use std::time::Instant;

use hyper::body::Bytes;
use tokio::sync::Notify;

use super::Key;

pub(super) struct Reader {
    pub(super) stream: Key,
    pub(super) queue: VecDeque<Bytes>,
    pub(super) bytes: usize,
    /// When the reader last took data, or the queue was empty.
    pub(super) took: Instant,
    /// It begins with the next key frame, and gets nothing before it.
    pub(super) waits: bool,
    /// It has got nothing yet.
    pub(super) is_fresh: bool,
    pub(super) ended: bool,
    /// It is a client that watches, not the part of this server that passes the stream on over MoQ.
    pub(super) is_viewer: bool,
    pub(super) task: Option<TaskWaker>,
    /// Ends the connection.
    cut: Arc<Notify>,
}

impl Reader {
    pub(super) fn new(stream: Key, cut: Arc<Notify>) -> Self {
        Reader {
            stream,
            queue: VecDeque::new(),
            bytes: 0,
            took: Instant::now(),
            waits: false,
            is_fresh: true,
            ended: false,
            is_viewer: true,
            task: None,
            cut,
        }
    }

    /// Queues data.
    pub(super) fn push(&mut self, data: Bytes) {
        if self.queue.is_empty() {
            self.took = Instant::now();
        }
        self.is_fresh = false;
        self.bytes += data.len();
        self.queue.push_back(data);
        self.wake();
    }

    /// Drops the oldest data. Returns whether there was some.
    pub(super) fn drop_oldest(&mut self) -> bool {
        let oldest = self.queue.pop_front();
        self.bytes -= oldest.as_ref().map_or(0, Bytes::len);
        oldest.is_some()
    }

    /// Cuts off the reader: its connection ends at once.
    pub(super) fn cut_off(&mut self) {
        self.ended = true;
        self.queue.clear();
        self.bytes = 0;
        self.cut.notify_one();
    }

    pub(super) fn wake(&mut self) {
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }
}
