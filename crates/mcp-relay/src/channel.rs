//! The two directions of a link, sealed or not.

use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;

use tcpxm_tokio::seal::{MAX_RECORD, Opener, Sealer};

/// Buffer of an input that is not sealed, in bytes.
const AHEAD: usize = 1 << 16;

/// The direction in which this end sends.
pub(crate) struct Output {
    stream: TcpStream,
    sealer: Option<(Box<Sealer>, Vec<u8>)>,
}

impl Output {
    pub(crate) fn new(stream: TcpStream, key: Option<&[u8; 32]>) -> Output {
        let sealer = key.map(|key| (Box::new(Sealer::new(key)), Vec::new()));
        Output { stream, sealer }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some((sealer, record)) = &mut self.sealer else {
            return self.stream.write_all(bytes);
        };
        for piece in bytes.chunks(MAX_RECORD) {
            record.clear();
            sealer.seal(piece, record)?;
            self.stream.write_all(record)?;
        }
        Ok(())
    }
}

/// The direction in which this end receives.
pub(crate) enum Input {
    Plain(BufReader<TcpStream>),
    Sealed(Box<Opener<TcpStream>>),
}

impl Input {
    pub(crate) fn new(stream: TcpStream, key: Option<&[u8; 32]>) -> Input {
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
}
