//! The child's end of a link.

use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mcp_control::wire::link::{
    Accept, BlockHeader, CONFIRM_LEN, Keys, Preface, REQUEST_LEN, Want, is_proof,
};
use mcp_control::{Manifest, Run};

use crate::channel::{Input, Output};
use crate::handshake::Handshake;
use crate::{Closer, Terms, refused};

/// The requests that were sent and not answered: the reader accepts no other blocks.
#[derive(Clone, Default)]
struct Due(Arc<Mutex<VecDeque<Run>>>);

impl Due {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Run>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<u64> {
        let mut runs = self.lock();
        let run = runs.front_mut()?;
        let block = run.first;
        run.first += 1;
        run.count -= 1;
        if run.count == 0 {
            runs.pop_front();
        }
        Some(block)
    }
}

/// Sends requests to the feeder.
pub struct Asker {
    output: Output,
    due: Due,
    closer: Closer,
}

/// Reads the blocks of the feeder.
pub struct Blocks {
    input: Input,
    due: Due,
    manifest: Arc<Manifest>,
    /// Bytes of blocks that have arrived, including those of incomplete blocks.
    arrived: Arc<AtomicU64>,
}

/// An answer of the feeder.
#[derive(Debug)]
pub enum Answer {
    /// A block, which is to be verified.
    Block(u64, Vec<u8>),
    /// The feeder cannot serve this block.
    Gone(u64),
}

/// A link whose feeder has proved that the sender arranged it.
pub struct Link {
    /// Its requests.
    pub asker: Asker,
    /// Its blocks.
    pub blocks: Blocks,
    /// The round trip of the last step of the handshake.
    pub round_trip: Duration,
}

/// Answers the preface of a feeder on a connection that it was read from. `arrived` counts the bytes of blocks.
///
/// # Errors
/// The feeder does not know the secret, does not answer in time, or does not seal as agreed.
pub fn accept(
    mut stream: TcpStream,
    preface: &Preface,
    terms: &Terms,
    manifest: Arc<Manifest>,
    arrived: Arc<AtomicU64>,
) -> io::Result<Link> {
    if preface.link != terms.link || preface.sealed != terms.sealed {
        return Err(refused("the preface is not what the sender has arranged"));
    }
    let mut handshake = Handshake::begin(&mut stream)?;
    let nonce = linux_net::process::random::<32>()?;
    let keys = Keys::derive(&terms.secret, &preface.nonce, &nonce);
    let proof = keys.child_proof;
    let began = Instant::now();
    handshake.write_all(&Accept { nonce, proof }.emit())?;
    let mut confirm = [0; CONFIRM_LEN];
    handshake.read_exact(&mut confirm)?;
    let round_trip = began.elapsed();
    if !is_proof(&confirm, &keys.feeder_proof) {
        return Err(refused("the feeder does not know the secret of the link"));
    }
    handshake.end()?;
    let keys = terms.sealed.then_some(&keys);
    let due = Due::default();
    Ok(Link {
        asker: Asker {
            output: Output::new(stream.try_clone()?, keys.map(|keys| &keys.requests)),
            due: due.clone(),
            closer: Closer::new(&stream)?,
        },
        blocks: Blocks {
            input: Input::new(stream, keys.map(|keys| &keys.blocks)),
            due,
            manifest,
            arrived,
        },
        round_trip,
    })
}

impl Asker {
    /// Asks for blocks. The caller keeps count of what it has asked for ([`mcp_control::Requests`]).
    ///
    /// # Errors
    /// The connection broke.
    pub fn ask(&mut self, want: Want) -> io::Result<()> {
        self.due.lock().push_back(Run {
            first: want.first,
            count: want.count.into(),
        });
        let mut request = Vec::with_capacity(REQUEST_LEN);
        want.emit(&mut request);
        self.output.write(&request)
    }

    /// Returns what closes the link from another thread.
    pub fn closer(&self) -> Closer {
        self.closer.clone()
    }
}

impl Blocks {
    /// Returns the next answer.
    ///
    /// # Errors
    /// The connection ended or broke, or the feeder sent a block that was not requested or has the wrong length.
    pub fn read(&mut self) -> io::Result<Answer> {
        let mut header = [0; REQUEST_LEN];
        self.input.read_exact(&mut header)?;
        let header = BlockHeader::parse(&header)
            .map_err(|_| refused("the header of a block is out of bounds"))?;
        if self.due.next() != Some(header.block) {
            return Err(refused("the feeder sent a block that was not requested"));
        }
        if header.len == 0 {
            return Ok(Answer::Gone(header.block));
        }
        let place = self.manifest.locate(header.block);
        if place.is_none_or(|place| place.len != u64::from(header.len)) {
            return Err(refused("the feeder sent a block of the wrong length"));
        }
        let mut bytes = vec![0; header.len as usize];
        self.input.read_block(&mut bytes, |len| {
            self.arrived.fetch_add(len as u64, Ordering::Relaxed);
        })?;
        Ok(Answer::Block(header.block, bytes))
    }
}
