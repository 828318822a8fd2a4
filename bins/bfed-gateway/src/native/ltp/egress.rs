//! Sessions from elsewhere: an LTP sender for each content, on a thread of its own, which reads the bytes from a socket
//! of the data node.
//!
//! | what | waits, or is bounded by |
//! | --- | --- |
//! | bytes that the sender has not read | the socket's buffer, about 0.2 MiB; then the session's source is held back |
//! | bytes that receivers may still request | `buffer`; the sender reads no more while the slowest of its receivers lacks them |
//! | a content that begins | the end of the LTP session before it, and a second after one that was aborted |
//! | a content without data | `idle-timeout`; then its LTP session is canceled |

use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bfed::native::{ChannelId, NativeError};
use bfed::{Duration, Instant};
use bfed_client::contents::{Reader, Step};
use linux_net::poll::Set;
use ltp_linux::{Cancel, Error, SendConfig, SendEvent, Sender, Source};

use super::shared::{Shared, Slot, count};

/// Time from a content that was aborted to the next: a source that begins again and again must not fill the log.
const PAUSE: Duration = Duration::from_secs(1);

/// The LTP session of one content.
#[derive(Debug)]
struct Sending {
    /// Where its bytes are written; `None` after the last. Of one that is aborted it stays open, because the sender takes
    /// its end for the end of the content.
    input: Option<UnixStream>,
    is_aborted: bool,
    is_watched: bool,
    cancel: Cancel,
    /// When it last took data.
    last: Instant,
    /// Receivers that have joined.
    members: Arc<AtomicU32>,
}

impl Sending {
    /// Returns where bytes are written, if more are to come.
    fn open_input(&mut self) -> Option<&mut UnixStream> {
        self.input.as_mut().filter(|_| !self.is_aborted)
    }
}

/// What an egress needs of its network.
pub(super) struct Context<'a> {
    pub(super) now: Instant,
    pub(super) set: &'a Set,
    pub(super) shared: &'a Arc<Shared>,
}

/// A channel into this network.
#[derive(Debug)]
pub(super) struct Egress {
    channel: ChannelId,
    session: String,
    config: SendConfig,
    reader: Reader,
    /// The step that waits for the end of the LTP session before it, or for the time.
    waiting: Option<Step>,
    /// When the next content may begin.
    begin_at: Option<Instant>,
    /// Bytes that the socket has not taken: from the index on.
    unwritten: (Vec<u8>, usize),
    sending: Option<Sending>,
    /// No more data will come.
    is_finishing: bool,
    /// `send` returned `Busy`.
    pub(super) is_blocked: bool,
    _slot: Slot,
}

impl Egress {
    pub(super) fn new(
        channel: ChannelId,
        session: &str,
        config: SendConfig,
        is_numbered: bool,
        slot: Slot,
    ) -> Self {
        Egress {
            channel,
            session: session.to_owned(),
            config,
            reader: Reader::new(is_numbered),
            waiting: None,
            begin_at: None,
            unwritten: (Vec::new(), 0),
            sending: None,
            is_finishing: false,
            is_blocked: false,
            _slot: slot,
        }
    }

    /// Returns how many receivers have joined the content that is sent.
    pub(super) fn members(&self) -> usize {
        let sending = self.sending.as_ref();
        sending.map_or(0, |sending| {
            sending.members.load(Ordering::Relaxed) as usize
        })
    }

    /// Returns how many frames were skipped.
    pub(super) fn skipped_frames(&self) -> u64 {
        self.reader.skipped_frames
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_none() && self.unwritten.1 == self.unwritten.0.len()
    }

    /// Takes a frame of the session.
    ///
    /// # Errors
    /// `Busy`: the sender has not accepted the previous data yet.
    pub(super) fn send(&mut self, context: &Context<'_>, data: &[u8]) -> Result<(), NativeError> {
        self.advance(context);
        if !self.is_idle() {
            self.is_blocked = true;
            return Err(NativeError::Busy);
        }
        self.reader.push(data);
        self.advance(context);
        Ok(())
    }

    /// Passes on what can be passed on. Returns whether the channel takes data again after `Busy`.
    pub(super) fn advance(&mut self, context: &Context<'_>) -> bool {
        while self.write(context) {
            let Some(step) = self.waiting.take().or_else(|| self.reader.next()) else {
                break;
            };
            let is_early = self.begin_at.is_some_and(|at| context.now < at);
            if step == Step::Begin && (is_early || self.sending.is_some()) {
                self.waiting = Some(step);
                break;
            }
            self.take(context, step);
        }
        if self.is_finishing && self.is_idle() {
            self.abort(context.now, "the session ended");
        }
        self.watch(context);
        self.is_idle() && std::mem::take(&mut self.is_blocked)
    }

    fn take(&mut self, context: &Context<'_>, step: Step) {
        match step {
            Step::Begin => {
                if let Err(error) = self.begin(context) {
                    let session = &self.session;
                    tracing::warn!(event = "ltp_send_failed", session, %error, "cannot send a content into the LTP network");
                    self.reader.abandon();
                    self.begin_at = Some(context.now + PAUSE);
                }
            }
            Step::Data(bytes) => {
                let sending = self.sending.as_mut();
                if sending.and_then(Sending::open_input).is_some() {
                    self.unwritten = (bytes, 0);
                }
            }
            // The sender reads the end.
            Step::End => {
                if let Some(sending) = self.sending.as_mut().filter(|one| !one.is_aborted) {
                    sending.input = None;
                }
            }
            Step::Abort(why) => self.abort(context.now, why),
        }
    }

    /// Starts the LTP session of a content.
    fn begin(&mut self, context: &Context<'_>) -> io::Result<()> {
        let (input, output) = UnixStream::pair()?;
        input.set_nonblocking(true)?;
        context
            .set
            .add(input.as_fd(), self.channel.0, false, false)?;
        let cancel = Cancel::new()?;
        let members = Arc::new(AtomicU32::new(0));
        let task = Task {
            channel: self.channel,
            session: self.session.clone(),
            config: self.config.clone(),
            cancel: cancel.clone(),
            members: Arc::clone(&members),
            shared: Arc::clone(context.shared),
        };
        let running = context.shared.running();
        std::thread::Builder::new()
            .name("ltp-send".into())
            .spawn(move || {
                task.run(output);
                drop(running);
            })?;
        self.sending = Some(Sending {
            input: Some(input),
            is_aborted: false,
            is_watched: false,
            cancel,
            last: context.now,
            members,
        });
        Ok(())
    }

    /// Writes what waits. Returns whether nothing is left.
    fn write(&mut self, context: &Context<'_>) -> bool {
        let (bytes, at) = &mut self.unwritten;
        while let Some(sending) = &mut self.sending
            && let Some(input) = sending.open_input()
            && *at < bytes.len()
        {
            match input.write(&bytes[*at..]) {
                Ok(len) => {
                    *at += len;
                    sending.last = context.now;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                // The sender has ended, and its thread says why.
                Err(_) => {
                    sending.input = None;
                    self.reader.abandon();
                }
            }
        }
        self.unwritten = (Vec::new(), 0);
        true
    }

    /// Waits for room in the socket while something is unwritten.
    fn watch(&mut self, context: &Context<'_>) {
        let wanted = self.unwritten.1 < self.unwritten.0.len();
        if let Some(sending) = &mut self.sending
            && let Some(input) = &sending.input
            && std::mem::replace(&mut sending.is_watched, wanted) != wanted
        {
            // The socket is in the set, so this cannot fail.
            let _ = context
                .set
                .change(input.as_fd(), self.channel.0, false, wanted);
        }
    }

    /// Cancels the LTP session of the content: its receivers fail.
    fn abort(&mut self, now: Instant, why: &str) {
        self.begin_at = Some(now + PAUSE);
        self.unwritten = (Vec::new(), 0);
        let Some(sending) = &mut self.sending else {
            return;
        };
        // Of one that has all bytes nothing is missing.
        if sending.open_input().is_some() {
            sending.is_aborted = true;
            sending.cancel.cancel();
            let session = &self.session;
            tracing::warn!(
                event = "ltp_send_aborted",
                session,
                reason = why,
                "a content is not sent to its end into the LTP network; its receivers fail"
            );
        }
    }

    /// The session is not wanted any more. A content whose end was taken is sent to its end; another is aborted.
    pub(super) fn finish(&mut self, context: &Context<'_>) -> bool {
        self.is_finishing = true;
        self.advance(context)
    }

    /// Ends the LTP session at once.
    pub(super) fn cancel(&mut self) {
        if let Some(sending) = &mut self.sending {
            sending.is_aborted = true;
            sending.cancel.cancel();
        }
    }

    /// Returns whether no LTP session runs, and none will begin.
    pub(super) fn has_ended(&self) -> bool {
        self.sending.is_none() && self.is_idle()
    }

    /// The thread has ended. Returns whether the channel takes data again after `Busy`.
    pub(super) fn sender_ended(&mut self, context: &Context<'_>) -> bool {
        let Some(sending) = self.sending.take() else {
            return false;
        };
        if sending.input.is_some() && !sending.is_aborted {
            // It failed before the end.
            self.unwritten = (Vec::new(), 0);
            self.reader.abandon();
        }
        self.advance(context)
    }

    /// Aborts a content that has had no data for `limit`, and begins one that has waited. Returns whether the channel takes
    /// data again after `Busy`.
    pub(super) fn handle_timeout(&mut self, context: &Context<'_>, limit: Duration) -> bool {
        if let Some(sending) = &mut self.sending {
            if self.unwritten.1 < self.unwritten.0.len() {
                // The receivers hold it back, not the source.
                sending.last = context.now;
            } else if context.now - sending.last >= limit && sending.open_input().is_some() {
                self.abort(context.now, "the source sends nothing");
                self.reader.abandon();
            }
        }
        self.advance(context)
    }
}

/// What the thread of a sender does.
struct Task {
    channel: ChannelId,
    session: String,
    config: SendConfig,
    cancel: Cancel,
    members: Arc<AtomicU32>,
    shared: Arc<Shared>,
}

impl Task {
    fn run(self, content: UnixStream) {
        let source = Source::stream(content);
        let (counts, members) = (&self.shared.counts, &self.members);
        let opened = Sender::open(&self.config, source, self.cancel.clone(), &mut |_| {});
        let sent = opened.and_then(|mut sender| {
            let sent = sender.run(&mut |event| match event {
                SendEvent::Started { joined } | SendEvent::Progress { joined, .. } => {
                    members.store(joined, Ordering::Relaxed);
                }
                SendEvent::ReceiverFailed { .. } => count(&counts.receivers_failed),
                _ => {}
            });
            sender.close();
            sent.map(|_| sender.progress().0)
        });
        let (session, group) = (self.session.as_str(), self.config.group.address);
        match sent {
            Ok(bytes) => {
                count(&counts.contents_sent);
                tracing::info!(event = "ltp_sent", session, %group, bytes, "a content was sent into the LTP network");
            }
            Err(Error::Canceled) => count(&counts.contents_aborted),
            Err(Error::Unconfirmed(why)) => {
                count(&counts.contents_unconfirmed);
                tracing::warn!(event = "ltp_unconfirmed", session, %group, reason = %why, "not all receivers of the LTP network have a content");
            }
            Err(error) => {
                count(&counts.contents_aborted);
                tracing::warn!(event = "ltp_send_failed", session, %group, %error, "cannot send a content into the LTP network");
            }
        }
        self.shared.sender_ended(self.channel);
    }
}
