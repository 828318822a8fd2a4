//! Sessions of this network: an LTP receiver for each channel, on a thread of its own, whose bytes go to the data node.
//!
//! A receiver takes one LTP session after the other: each is a content. A session that it has, or whose source may not
//! publish, is skipped while its sender goes on.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bfed::SessionName;
use bfed::authorise::Right;
use bfed::native::ChannelId;
use bfed_client::contents::Numbering;
use bfed_client::frames::MAX_PAYLOAD;
use ltp_linux::{Cancel, Error, ReceiveConfig, ReceiveEvent, Receiver, SessionId, Sink};

use super::shared::{Shared, Slot, count};
use crate::native::Access;

/// Time from a session that failed or was refused to the next.
const PAUSE: Duration = Duration::from_secs(1);
/// How often the end of a content is sent: networks that lose datagrams may carry it on.
const ENDS: usize = 3;
/// Time between them.
const BETWEEN_ENDS: Duration = Duration::from_millis(100);

/// What a receiver is to do.
pub(super) struct Task {
    pub(super) channel: ChannelId,
    pub(super) session: SessionName,
    pub(super) config: ReceiveConfig,
    pub(super) is_numbered: bool,
    pub(super) access: Arc<Access>,
    pub(super) shared: Arc<Shared>,
}

/// A receiver that runs; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Ingress {
    control: Arc<Control>,
    shared: Arc<Shared>,
    channel: ChannelId,
}

#[derive(Debug, Default)]
struct Control {
    stopped: AtomicBool,
    /// Ends the LTP session that is received.
    current: Mutex<Option<Cancel>>,
}

impl Control {
    /// Lets `cancel` end the session that begins; false if it must not begin.
    fn begin(&self, cancel: Cancel) -> bool {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Some(cancel);
        !self.stopped.load(Ordering::SeqCst)
    }
}

impl Ingress {
    /// Starts the thread.
    pub(super) fn start(task: Task, slot: Slot) -> io::Result<Self> {
        let control = Arc::new(Control::default());
        let (shared, channel) = (Arc::clone(&task.shared), task.channel);
        shared.open(channel);
        let thread = {
            let (control, running) = (Arc::clone(&control), task.shared.running());
            std::thread::Builder::new()
                .name("ltp-receive".into())
                .spawn(move || {
                    task.run(&control);
                    drop((slot, running));
                })
        };
        if let Err(error) = thread {
            shared.close(channel);
            return Err(error);
        }
        Ok(Ingress {
            control,
            shared,
            channel,
        })
    }
}

impl Drop for Ingress {
    fn drop(&mut self) {
        self.shared.raise(&self.control.stopped);
        let current = self.control.current.lock();
        if let Some(cancel) = &*current.unwrap_or_else(PoisonError::into_inner) {
            cancel.cancel();
        }
        self.shared.close(self.channel);
    }
}

/// One content: what its LTP receiver, the writer of its bytes and the loop around them share.
struct Content {
    channel: ChannelId,
    shared: Arc<Shared>,
    /// Its source may publish.
    admitted: AtomicBool,
    /// No more of it is taken.
    closed: AtomicBool,
    /// `None`: the session is not numbered.
    numbering: Option<Mutex<Numbering>>,
}

impl Content {
    /// Passes on bytes that were received. Returns false if they are not wanted any more.
    fn data(&self, bytes: &[u8]) -> bool {
        let Some(numbering) = &self.numbering else {
            return self.shared.push(self.channel, bytes.to_vec(), &self.closed);
        };
        let mut frame = Vec::with_capacity(bytes.len() + bfed_client::frames::HEADER_LEN);
        let mut numbering = numbering.lock().unwrap_or_else(PoisonError::into_inner);
        numbering.data(bytes, &mut frame);
        self.shared.push(self.channel, frame, &self.closed)
    }

    /// Passes on the end.
    fn end(&self, stopped: &AtomicBool) {
        let Some(numbering) = &self.numbering else {
            return;
        };
        let mut end = Vec::new();
        let numbering = numbering.lock().unwrap_or_else(PoisonError::into_inner);
        numbering.end(&mut end);
        self.repeat(&end, stopped);
    }

    /// Passes on that the rest will not come. Nothing more of the content follows.
    fn abort(&self, stopped: &AtomicBool) {
        self.shared.raise(&self.closed);
        let Some(numbering) = &self.numbering else {
            return;
        };
        let mut end = Vec::new();
        let numbering = numbering.lock().unwrap_or_else(PoisonError::into_inner);
        if numbering.aborted(&mut end) {
            self.repeat(&end, stopped);
        }
    }

    fn repeat(&self, end: &[u8], stopped: &AtomicBool) {
        for time in 0..ENDS {
            if time > 0 {
                self.shared.wait_for(&[stopped], Some(BETWEEN_ENDS));
            }
            if !self.shared.push(self.channel, end.to_vec(), stopped) {
                return;
            }
        }
    }
}

/// Takes the bytes from the receiver.
struct Feed(Arc<Content>);

impl Write for Feed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let content = &self.0;
        content
            .shared
            .wait_for(&[&content.admitted, &content.closed], None);
        // Pieces of equal length.
        let count = bytes.len().div_ceil(MAX_PAYLOAD).max(1);
        let len = bytes.len().div_ceil(count);
        match content.data(&bytes[..len]) {
            true => Ok(len),
            false => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Task {
    fn run(&self, control: &Control) {
        let mut skip = None;
        while !control.stopped.load(Ordering::SeqCst) {
            let failed = match self.receive(control, &mut skip) {
                Ok(()) => continue,
                Err(error) => error,
            };
            if control.stopped.load(Ordering::SeqCst) {
                return;
            }
            if !matches!(failed, Error::Canceled) {
                count(&self.shared.counts.contents_incomplete);
                let (session, group) = (self.session.as_str(), self.config.group.address);
                tracing::warn!(event = "ltp_receive_failed", session, %group, error = %failed, "a content of the LTP network did not arrive whole");
            }
            self.shared.wait_for(&[&control.stopped], Some(PAUSE));
        }
    }

    /// Receives one content.
    fn receive(&self, control: &Control, skip: &mut Option<SessionId>) -> Result<(), Error> {
        let failed = |source| Error::Io {
            what: "an eventfd",
            source,
        };
        let cancel = Cancel::new().map_err(failed)?;
        if !control.begin(cancel.clone()) {
            return Err(Error::Canceled);
        }
        let content = Arc::new(Content {
            channel: self.channel,
            shared: Arc::clone(&self.shared),
            admitted: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            numbering: self.is_numbered.then(Mutex::default),
        });
        let sink = Sink::stream(Feed(Arc::clone(&content)));
        let mut config = self.config.clone();
        config.skip = *skip;
        let mut current = None;
        let received =
            Receiver::open(&config, sink, cancel.clone(), &mut |_| {}).and_then(|mut receiver| {
                let received = receiver.run(&mut |event| match event {
                    ReceiveEvent::Opened {
                        session, source, ..
                    } => match self.admits(source) {
                        true => {
                            current = Some(session);
                            self.shared.raise(&content.admitted);
                        }
                        false => {
                            *skip = Some(session);
                            cancel.cancel();
                        }
                    },
                    ReceiveEvent::Resumed { session } => current = Some(session),
                    ReceiveEvent::BlockRejected { .. } => {
                        count(&self.shared.counts.blocks_rejected);
                    }
                    _ => {}
                });
                receiver.close();
                received
            });
        let received = received.inspect_err(|_| content.abort(&control.stopped))?;
        *skip = current;
        content.end(&control.stopped);
        count(&self.shared.counts.contents_received);
        let (session, bytes) = (self.session.as_str(), received.length);
        tracing::info!(
            event = "ltp_received",
            session,
            bytes,
            "a content of the LTP network was received"
        );
        Ok(())
    }

    /// Decides whether a host may be the source of the session.
    fn admits(&self, source: SocketAddr) -> bool {
        let (right, from) = (Right::Publish, source.ip());
        let checked = self.access.check_client(right, &self.session, from, None);
        let Err(why) = checked else { return true };
        count(&self.shared.counts.sources_refused);
        let session = self.session.as_str();
        tracing::warn!(event = "ltp_source_refused", session, peer = %source, reason = why, "a host may not be the source of a session");
        false
    }
}
