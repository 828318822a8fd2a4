//! A machine at one end of a byte stream, driven in tokio.

use std::io;
use std::time::Duration;

use proto_core::time::Instant;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};

use crate::clock::Clock;

/// What a conversation is led by: a sans-IO machine that speaks in a byte stream.
pub trait Speaker {
    /// What the application wants to know.
    type Event;

    /// Bytes arrived, cut anywhere. Takes some from the front of `bytes`, at least one and no more
    /// than one message; the rest is offered again after the events were polled. `false`: nothing
    /// more is wanted, the peer broke the rules.
    fn hear(&mut self, now: Instant, bytes: &mut &[u8]) -> bool;
    /// Nothing more will arrive.
    fn handle_close(&mut self, now: Instant);
    /// Time has passed.
    fn handle_timeout(&mut self, now: Instant);
    /// The next bytes to send, written into the buffer (64 KiB); how many.
    fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize>;
    /// When to call [`Speaker::handle_timeout`].
    fn poll_timeout(&self) -> Option<Instant>;
    /// What the application wants to know.
    fn poll_event(&mut self) -> Option<Self::Event>;
    /// Nothing more is to be said: what waits is sent, then the stream is closed.
    fn is_ended(&self) -> bool;
}

/// Bytes read at once, and the longest message written.
const BUFFER_BYTES: usize = 1 << 16;
/// While the peer takes nothing, the machine's clocks are looked at so often.
const BLOCKED: Duration = Duration::from_millis(50);
/// The last words get so long to leave.
const FAREWELL: Duration = Duration::from_secs(3);

/// A machine and its stream. Memory: 192 KiB of buffers.
#[derive(Debug)]
pub struct Conversation<M, S> {
    /// The machine; call [`Conversation::next`] after giving it commands.
    pub machine: M,
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    clock: Clock,
    input: Box<[u8]>,
    /// Bytes of `input` that were read and not heard.
    heard: std::ops::Range<usize>,
    output: Box<[u8]>,
    written: std::ops::Range<usize>,
    flushed: bool,
    closed: bool,
    error: Option<io::Error>,
}

/// What [`Conversation::turn`] brought.
#[derive(Debug)]
pub enum Turn<E> {
    /// The machine has something to tell.
    Event(E),
    /// What the machine had to say is on its way: it may be given more.
    Sent,
    /// The conversation is over and the stream closed.
    Over,
}

/// What one wait brought.
enum Step {
    Read(io::Result<usize>),
    Wrote(io::Result<usize>),
    Flushed(io::Result<()>),
    Time,
}

impl<M: Speaker, S: AsyncRead + AsyncWrite> Conversation<M, S> {
    /// Nothing was said yet.
    pub fn new(machine: M, stream: S, clock: Clock) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        Conversation {
            machine,
            reader,
            writer,
            clock,
            input: vec![0; BUFFER_BYTES].into(),
            heard: 0..0,
            // As many messages as fit go out at once, while there is room for the longest.
            output: vec![0; 2 * BUFFER_BYTES].into(),
            written: 0..0,
            flushed: true,
            closed: false,
            error: None,
        }
    }

    /// What broke the stream, if something did.
    pub fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    /// The time, as the machine is told.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The next event; `None`: the conversation is over and the stream closed. May be dropped while it
    /// waits, and called again: nothing is lost.
    pub async fn next(&mut self) -> Option<M::Event> {
        loop {
            match self.turn().await {
                Turn::Event(event) => return Some(event),
                Turn::Sent => {}
                Turn::Over => return None,
            }
        }
    }

    /// As [`Conversation::next`], but returns also when something was sent.
    pub async fn turn(&mut self) -> Turn<M::Event> {
        loop {
            if let Some(event) = self.machine.poll_event() {
                return Turn::Event(event);
            }
            if self.hear() {
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
                    let _ = tokio::time::timeout(FAREWELL, self.farewell()).await;
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

    /// Takes what the machine has to say, once all before it was written.
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

    /// Offers what was read to the machine; whether it took some.
    fn hear(&mut self) -> bool {
        if self.heard.is_empty() || self.machine.is_ended() {
            return false;
        }
        let mut rest = &self.input[self.heard.clone()];
        let before = rest.len();
        let now = self.clock.now();
        if !self.machine.hear(now, &mut rest) {
            rest = &[];
        }
        self.heard.start += before - rest.len();
        before > rest.len()
    }

    async fn step(&mut self, now: Instant) -> Step {
        let long = Duration::from_secs(3600);
        let mut wait = Clock::until(now, self.machine.poll_timeout(), long);
        let output = &self.output[self.written.clone()];
        if !output.is_empty() {
            // The machine has more to say, perhaps, and is due; but nobody takes what it said before.
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
            read = self.reader.read(&mut self.input), if self.heard.is_empty() => Step::Read(read),
            () = tokio::time::sleep(wait) => Step::Time,
        }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Read(Ok(len)) if len > 0 => self.heard = 0..len,
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

    /// Sends what waits, and closes the stream for writing.
    async fn farewell(&mut self) -> io::Result<()> {
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
        // Whoever closes with unread bytes resets the connection, and the last words with it.
        while self.reader.read(&mut self.input).await? > 0 {}
        Ok(())
    }
}
