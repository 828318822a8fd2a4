//! One end of a control connection: the common part of client and server.

use proto_core::time::Instant;

use crate::error::Error;
use crate::link::{Link, Side, Stats, Transmit};
use crate::wire::verdict::{Failed, Reason};
use crate::wire::{Frames, Message as _, Type};

/// Makes an [`Endpoint`] a client or a server: [`crate::ClientRole`] and [`crate::ServerRole`].
pub trait Role: Sized + sealed::Sealed {
    /// An event for the application.
    type Event;
    /// Returns the event that the copy failed.
    fn failed(failed: Failed, side: Side) -> Self::Event;
    #[doc(hidden)]
    fn take(
        endpoint: &mut Endpoint<Self>,
        now: Instant,
        kind: Type,
        frame: &[u8],
    ) -> Result<(), Error>;
}

pub(crate) mod sealed {
    /// Prevents other roles.
    pub trait Sealed {}
}

/// One end of a control connection: a [`crate::Client`] or a [`crate::Server`].
#[derive(Debug)]
pub struct Endpoint<R: Role> {
    pub(crate) link: Link<R::Event>,
    pub(crate) role: R,
    frames: Frames,
}

impl<R: Role> Endpoint<R> {
    pub(crate) fn start(role: R, link: Link<R::Event>) -> Self {
        Endpoint {
            link,
            role,
            frames: Frames::new(),
        }
    }

    /// Handles bytes that arrived, cut anywhere. Takes some from the front of `bytes`, one frame at most; offer
    /// the rest again after polling the events. Returns `false` when the peer broke the protocol and the copy
    /// has failed.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &mut &[u8]) -> bool {
        let mut frames = core::mem::take(&mut self.frames);
        let handled = match frames.next(bytes) {
            Ok(None) => Ok(()),
            Ok(Some(frame)) => self.handle_packet(now, &(), frame),
            Err(error) => Err(self.link.count(error.into())),
        };
        self.frames = frames;
        if let Err(error) = handled {
            self.refuse(now, Reason::Protocol, &alloc::format!("{error}"));
        }
        handled.is_ok()
    }

    /// One whole frame ([`Frames`]) arrived. The driver knows nothing of it besides its bytes.
    ///
    /// # Errors
    /// It is refused: give up with [`Endpoint::fail`].
    pub fn handle_packet(&mut self, now: Instant, _meta: &(), frame: &[u8]) -> Result<(), Error> {
        let taken = match self.link.open(now, frame) {
            Ok(None) => return Ok(()),
            Ok(Some((Type::Failed, frame))) => Failed::parse(frame)
                .map(|failed| self.over(now, failed, Side::Peer))
                .map_err(Error::from),
            Ok(Some((kind, frame))) => R::take(self, now, kind, frame),
            Err(error) => Err(error),
        };
        match taken {
            Ok(()) => self.link.received(now),
            Err(error) => return Err(self.link.count(error)),
        }
        Ok(())
    }

    /// Gives up: FAILED goes out, and the event follows. Harmless after the end.
    pub fn fail(&mut self, now: Instant, failed: Failed) {
        if !self.link.is_ended() {
            self.link.give_up(now, &failed);
            self.link.event(R::failed(failed, Side::Here));
        }
    }

    pub(crate) fn refuse(&mut self, now: Instant, reason: Reason, text: &str) {
        self.fail(now, Failed::new(reason, None, text));
    }

    /// It ended without the connection: nothing is sent any more.
    fn over(&mut self, now: Instant, failed: Failed, side: Side) {
        self.link.end(now);
        self.link.event(R::failed(failed, side));
    }

    /// Handles that the peer closed the connection, or that it broke.
    pub fn handle_close(&mut self, now: Instant) {
        if !self.link.is_ended() {
            self.over(now, Failed::new(Reason::Closed, None, ""), Side::Peer);
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(reason) = self.link.handle_timeout(now) {
            self.refuse(now, reason, "");
        }
    }

    /// Writes the next frame to send into `buffer`. [`crate::limits::MAX_FRAME_LEN`] bytes are enough for each;
    /// a frame that does not fit is kept for a larger buffer.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        self.link.poll_transmit(now, buffer)
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<R::Event> {
        self.link.poll_event()
    }

    /// When to call [`Endpoint::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.link.poll_timeout()
    }

    /// Returns the number of queued frames; an application with many messages pauses while there are many.
    pub fn queued(&self) -> usize {
        self.link.queued()
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.link.stats
    }

    /// Whether the copy was verified or has failed: send the queued frames, then close.
    pub fn is_ended(&self) -> bool {
        self.link.is_ended()
    }
}

proto_core::impl_machine! {
    impl[R: Role] Endpoint<R> {
        Meta = (); Transmit = Transmit; Event = R::Event; Error = Error;
    }
}
