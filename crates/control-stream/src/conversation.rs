//! A sans-IO machine at one end of a byte stream, driven in tokio.

use std::io;
use std::time::Duration;

use proto_core::clock::Clock;
use proto_core::time::Instant;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};

/// A sans-IO machine whose input and output are byte streams.
pub trait StreamMachine {
    /// An event for the application.
    type Event;

    /// Handles bytes that arrived, cut anywhere. Takes some from the front of `bytes`, at least one and no more than
    /// one message; the driver offers the rest again after it has polled the events. Returns `false` when the peer
    /// broke the protocol: no more input is wanted.
    fn handle_bytes(&mut self, now: Instant, bytes: &mut &[u8]) -> bool;
    /// Handles the end of the input.
    fn handle_close(&mut self, now: Instant);
    /// Handles the passing of time.
    fn handle_timeout(&mut self, now: Instant);
    /// Writes the next bytes to send into `buffer` (64 KiB) and returns how many.
    fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize>;
    /// Returns when to call [`StreamMachine::handle_timeout`].
    fn poll_timeout(&self) -> Option<Instant>;
    /// Returns the next event.
    fn poll_event(&mut self) -> Option<Self::Event>;
    /// Returns whether the machine has ended: queued output is sent, then the stream is closed.
    fn is_ended(&self) -> bool;
}

/// Bytes read at once, and the longest message written.
const BUFFER_BYTES: usize = 1 << 16;
/// The interval between two calls for timeouts while the peer accepts nothing.
const BLOCKED: Duration = Duration::from_millis(50);
/// The time allowed for the last output to be sent.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// A machine and its stream, driven in tokio. Memory: 192 KiB of buffers.
#[derive(Debug)]
pub struct Conversation<M, S> {
    /// The machine; call [`Conversation::next`] after giving it commands.
    pub machine: M,
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    clock: Clock,
    input: Box<[u8]>,
    /// The part of `input` that the machine has not taken yet.
    unread: std::ops::Range<usize>,
    output: Box<[u8]>,
    written: std::ops::Range<usize>,
    flushed: bool,
    closed: bool,
    error: Option<io::Error>,
}

/// The result of [`Conversation::turn`].
#[derive(Debug)]
pub enum Turn<E> {
    /// An event of the machine.
    Event(E),
    /// The output of the machine was sent: it may be given more.
    Sent,
    /// The machine has ended and the stream is closed.
    Over,
}

/// The result of one wait.
enum Step {
    Read(io::Result<usize>),
    Wrote(io::Result<usize>),
    Flushed(io::Result<()>),
    Time,
}

impl<M: StreamMachine, S: AsyncRead + AsyncWrite> Conversation<M, S> {
    /// Creates a conversation on a stream that nothing was sent on yet.
    pub fn new(machine: M, stream: S, clock: Clock) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        Conversation {
            machine,
            reader,
            writer,
            clock,
            input: vec![0; BUFFER_BYTES].into(),
            unread: 0..0,
            // Several messages are written at once, while the longest still fits.
            output: vec![0; 2 * BUFFER_BYTES].into(),
            written: 0..0,
            flushed: true,
            closed: false,
            error: None,
        }
    }

    /// Returns the error that broke the stream, if one did.
    pub fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    /// Returns the time of the clock that drives the machine.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Returns the next event, or `None` once the machine has ended and the stream is closed.
    ///
    /// # Cancel safety
    /// The future may be dropped and the method called again: nothing is lost.
    pub async fn next(&mut self) -> Option<M::Event> {
        loop {
            match self.turn().await {
                Turn::Event(event) => return Some(event),
                Turn::Sent => {}
                Turn::Over => return None,
            }
        }
    }

    /// As [`Conversation::next`], but also returns when output was sent.
    pub async fn turn(&mut self) -> Turn<M::Event> {
        loop {
            if let Some(event) = self.machine.poll_event() {
                return Turn::Event(event);
            }
            if self.handle_input() {
                continue;
            }
            let now = self.clock.now();
            self.machine.handle_timeout(now);
            self.fill(now);
            if self.machine.is_ended() {
                if let Some(event) = self.machine.poll_event() {
                    return Turn::Event(event);
                }
                if !self.closed {
                    let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.close()).await;
                    self.closed = true;
                }
                return Turn::Over;
            }
            let step = self.step(now).await;
            let sent = matches!(step, Step::Wrote(Ok(1..)));
            self.apply(step);
            if sent && self.written.is_empty() {
                return Turn::Sent;
            }
        }
    }

    /// Takes output of the machine, once all earlier output was written.
    fn fill(&mut self, now: Instant) {
        if !self.written.is_empty() || self.closed {
            return;
        }
        let mut len = 0;
        while self.output.len() - len >= BUFFER_BYTES
            && let Some(more) = self.machine.poll_transmit(now, &mut self.output[len..])
        {
            len += more;
        }
        self.written = 0..len;
    }

    /// Offers the input to the machine; returns whether it took some.
    fn handle_input(&mut self) -> bool {
        if self.unread.is_empty() || self.machine.is_ended() {
            return false;
        }
        let mut rest = &self.input[self.unread.clone()];
        let before = rest.len();
        let now = self.clock.now();
        if !self.machine.handle_bytes(now, &mut rest) {
            rest = &[];
        }
        self.unread.start += before - rest.len();
        before > rest.len()
    }

    async fn step(&mut self, now: Instant) -> Step {
        let long = Duration::from_secs(3600);
        let mut wait = Clock::until(now, self.machine.poll_timeout(), long);
        let output = &self.output[self.written.clone()];
        if !output.is_empty() {
            // The machine may be due because it has more output, but the peer has not accepted the last.
            wait = wait.max(BLOCKED);
        }
        let (writer, flushed) = (&mut self.writer, self.flushed);
        let wants_to_write = !output.is_empty() || !flushed;
        let write = async {
            if output.is_empty() {
                Step::Flushed(writer.flush().await)
            } else {
                Step::Wrote(writer.write(output).await)
            }
        };
        tokio::select! {
            step = write, if wants_to_write => step,
            read = self.reader.read(&mut self.input), if self.unread.is_empty() => Step::Read(read),
            () = tokio::time::sleep(wait) => Step::Time,
        }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Read(Ok(len)) if len > 0 => self.unread = 0..len,
            Step::Wrote(Ok(len)) if len > 0 => {
                self.written.start += len;
                self.flushed = false;
            }
            Step::Flushed(Ok(())) => self.flushed = true,
            Step::Time => {}
            Step::Read(result) | Step::Wrote(result) => self.broke(result.err()),
            Step::Flushed(result) => self.broke(result.err()),
        }
    }

    fn broke(&mut self, error: Option<io::Error>) {
        self.closed = true;
        self.error = error;
        self.machine.handle_close(self.clock.now());
    }

    /// Sends the queued output, and closes the stream for writing.
    async fn close(&mut self) -> io::Result<()> {
        loop {
            self.writer
                .write_all(&self.output[self.written.clone()])
                .await?;
            let now = self.clock.now();
            match self.machine.poll_transmit(now, &mut self.output) {
                Some(len) => self.written = 0..len,
                None => break,
            }
        }
        self.writer.shutdown().await?;
        // Closing with unread bytes resets the connection, and the last output would be lost.
        while self.reader.read(&mut self.input).await? > 0 {}
        Ok(())
    }
}
