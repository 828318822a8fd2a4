//! The feeder's end of a link.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mcp_control::wire::link::{
    ACCEPT_LEN, Accept, BlockHeader, Keys, Preface, REQUEST_LEN, Want, is_proof,
};
use mcp_control::{Manifest, Requests};

use crate::channel::{Input, Output};
use crate::handshake::Handshake;
use crate::{Closer, HANDSHAKE, Terms, refused};

/// The interval at which a thread that waits for a block looks whether the link is closed.
const LOOK: Duration = Duration::from_millis(200);

/// Whether a block can be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Availability {
    /// The block can be served now.
    Ready,
    /// The block has not arrived yet.
    Pending,
    /// The block will never arrive.
    Gone,
}

/// The blocks that a feeder serves.
pub trait Source: Send + Sync {
    /// Waits until the block can be served, at most this long.
    fn wait(&self, block: u64, timeout: Duration) -> Availability;

    /// Returns the bytes of a block that is ready; `None` when they are gone.
    fn read(&self, block: u64) -> Option<Arc<Vec<u8>>>;

    /// Counts a block that was served.
    fn served(&self, len: usize);
}

/// A link whose child has proved that the sender arranged it.
pub struct Link {
    stream: TcpStream,
    keys: Option<Keys>,
    closer: Closer,
}

/// Connects to a child.
///
/// # Errors
/// It cannot be reached in time, or it does not know the secret.
pub fn connect(terms: &Terms, child: SocketAddr) -> io::Result<Link> {
    let mut stream = TcpStream::connect_timeout(&child, HANDSHAKE)?;
    let mut handshake = Handshake::begin(&mut stream)?;
    let nonce = linux_net::process::random::<32>()?;
    let preface = Preface {
        sealed: terms.sealed,
        link: terms.link,
        nonce,
    };
    handshake.write_all(&preface.emit())?;
    let mut answer = [0; ACCEPT_LEN];
    handshake.read_exact(&mut answer)?;
    let answer = Accept::parse(&answer);
    let keys = Keys::derive(&terms.secret, &nonce, &answer.nonce);
    if !is_proof(&answer.proof, &keys.child_proof) {
        return Err(refused("the child does not know the secret of the link"));
    }
    handshake.write_all(&keys.feeder_proof)?;
    handshake.end()?;
    let closer = Closer::new(&stream)?;
    Ok(Link {
        stream,
        keys: terms.sealed.then_some(keys),
        closer,
    })
}

/// The requests of the child, shared by the thread that reads them and the one that answers.
struct Asked {
    requests: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    requests: Requests,
    /// How the thread that reads requests ended.
    ended: Option<io::Result<()>>,
}

impl Asked {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, how: io::Result<()>) {
        self.lock().ended.get_or_insert(how);
        self.changed.notify_all();
    }
}

impl Link {
    /// Returns what closes the link from another thread.
    pub fn closer(&self) -> Closer {
        self.closer.clone()
    }

    /// Serves the child until it closes the link.
    ///
    /// # Errors
    /// The connection broke, or the child asked for blocks that do not exist or for more than its share.
    pub fn serve(self, manifest: &Arc<Manifest>, source: &dyn Source) -> io::Result<()> {
        let asked = Asked {
            requests: Mutex::default(),
            changed: Condvar::new(),
        };
        let key = self.keys.as_ref();
        let input = Input::new(self.stream.try_clone()?, key.map(|keys| &keys.requests));
        let mut output = Output::new(self.stream.try_clone()?, key.map(|keys| &keys.blocks));
        std::thread::scope(|scope| {
            let reader = std::thread::Builder::new().name("link requests".to_owned());
            let (asked, closer) = (&asked, &self.closer);
            reader.spawn_scoped(scope, move || {
                asked.end(read(input, manifest, asked));
                // A write that waits for the child ends too.
                closer.close();
            })?;
            let answered = answer(&mut output, manifest, source, asked);
            // The thread that reads ends with the connection.
            closer.close();
            let ended = asked.lock().ended.take();
            ended.filter(Result::is_err).unwrap_or(answered)
        })
    }
}

fn read(mut input: Input, manifest: &Manifest, asked: &Asked) -> io::Result<()> {
    let mut request = [0; REQUEST_LEN];
    loop {
        match input.read_exact(&mut request) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
        let want = Want::parse(&request).map_err(|_| refused("a request is out of bounds"))?;
        if !asked.lock().requests.take(manifest, want) {
            return Err(refused("the child asks for more than its share"));
        }
        asked.changed.notify_all();
    }
}

fn answer(
    output: &mut Output,
    manifest: &Manifest,
    source: &dyn Source,
    asked: &Asked,
) -> io::Result<()> {
    loop {
        let block = {
            let mut state = asked.lock();
            loop {
                if let Some(ended) = state.ended.take() {
                    return ended;
                }
                if let Some(block) = state.requests.front() {
                    break block;
                }
                state = asked
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        };
        let bytes = match source.wait(block, LOOK) {
            Availability::Pending => continue,
            Availability::Ready => source.read(block),
            Availability::Gone => None,
        };
        let bytes = bytes.as_deref().map_or(&[][..], |bytes| bytes);
        let len = bytes.len() as u32;
        // Counted before the block is sent: the child may request the next one as soon as it has this one.
        asked.lock().requests.answered(manifest);
        output.write(&BlockHeader { block, len }.emit())?;
        output.write(bytes)?;
        source.served(bytes.len());
    }
}
