//! The two directions of a link, sealed or not.

use std::io::{self, BufReader, Read};
use std::net::TcpStream;
use std::os::fd::AsFd;

use linux_net::poll::{self, Watch};
use linux_net::tcp;
use tcpxm_tokio::seal::{self, Opener};

/// Buffer of an input that is not sealed, in bytes.
const AHEAD: usize = 1 << 16;
/// Bytes of a block for which a thread wakes up: packets by themselves cost more than their data.
const WAKE: usize = 16 << 10;

/// The direction in which this end sends.
pub(crate) struct Output {
    stream: TcpStream,
    output: seal::Output,
}

impl Output {
    pub(crate) fn new(stream: TcpStream, key: Option<&[u8; 32]>) -> Output {
        let output = seal::Output::new(key);
        Output { stream, output }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.output.write_all(&mut self.stream, bytes)
    }
}

/// The direction in which this end receives.
pub(crate) enum Input {
    Plain(BufReader<Stream>),
    Sealed(Box<Opener<Stream>>),
}

/// A stream whose reads return once [`WAKE`] bytes have arrived, as far as it is certain that they will.
pub(crate) struct Stream {
    stream: TcpStream,
    /// Bytes that are on their way.
    certain: usize,
    /// As set on the stream.
    low_water: usize,
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let low_water = self.certain.clamp(1, WAKE);
        if self.low_water != low_water {
            tcp::set_receive_low_water(&self.stream, low_water as u32)?;
            self.low_water = low_water;
        }
        if low_water > 1 {
            let mut watched = [Watch::readable(self.stream.as_fd())];
            while !watched[0].is_readable() {
                poll::wait(&mut watched, None)?;
            }
        }
        let read = self.stream.read(out)?;
        self.certain = self.certain.saturating_sub(read);
        Ok(read)
    }
}

impl Input {
    pub(crate) fn new(stream: TcpStream, key: Option<&[u8; 32]>) -> Input {
        let stream = Stream {
            stream,
            certain: 0,
            low_water: 1,
        };
        match key {
            Some(key) => Input::Sealed(Box::new(Opener::new(stream, key))),
            None => Input::Plain(BufReader::with_capacity(AHEAD, stream)),
        }
    }

    pub(crate) fn read_exact(&mut self, out: &mut [u8]) -> io::Result<()> {
        match self {
            Input::Plain(input) => input.read_exact(out),
            Input::Sealed(input) => input.read_exact(out),
        }
    }

    /// Reads the bytes of a block whose header was read, and reports them as they arrive.
    pub(crate) fn read_block(&mut self, out: &mut [u8], arrived: impl Fn(usize)) -> io::Result<()> {
        // A record is longer than its contents, and at most a part of its header has been read ahead.
        match self {
            Input::Plain(input) => {
                let ahead = input.buffer().len();
                input.get_mut().certain = out.len().saturating_sub(ahead);
            }
            Input::Sealed(input) => input.get_mut().certain = out.len(),
        }
        let mut left = out;
        while !left.is_empty() {
            let read = match self {
                Input::Plain(input) => input.read(left),
                Input::Sealed(input) => input.read(left),
            };
            match read {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    arrived(read);
                    left = &mut left[read..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
