//! The control node of data nodes under load: it sends them sessions, and does nothing else.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use crate::prelude::*;
use bfed::wire::allocate::{Outcome, Response};
use bfed::wire::join::FlowChannel;
use bfed::wire::node::Heartbeat;
use bfed::wire::subscribe::{Edge, Repr as Subscribe};
use bfed::wire::{Frames, MAX_MESSAGE_LEN, Message};
use bfed::{NodeId, PeerId, SessionName};

/// Time limit for a data node to connect, and to answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Between heartbeats: a data node waits a second for one.
const HEARTBEAT: Duration = Duration::from_millis(200);
/// Largest number of requests in flight.
const WINDOW: usize = 256;
/// The only epoch.
const EPOCH: u64 = 1;

/// A subscription of a data node to a session.
#[derive(Clone, Debug)]
pub(super) struct Subscription {
    /// Receive it; send it otherwise.
    pub(super) up: bool,
    /// The peer; none: the native network.
    pub(super) peer: Option<PeerId>,
    /// The other side's channels.
    pub(super) flows: Vec<FlowChannel>,
    pub(super) session: SessionName,
}

/// A data node, as its control node knows it.
struct Node {
    number: NodeId,
    stream: Arc<Mutex<TcpStream>>,
    answers: Receiver<Response>,
}

pub(super) struct Steering {
    listener: TcpListener,
    nodes: Vec<Node>,
    next: u32,
    over: Arc<AtomicBool>,
}

impl Steering {
    pub(super) fn open() -> Result<Steering> {
        Ok(Steering {
            listener: TcpListener::bind("127.0.0.1:0")?,
            nodes: Vec::new(),
            next: 1,
            over: Arc::default(),
        })
    }

    /// Where data nodes call.
    pub(super) fn address(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// Waits for this many data nodes, and numbers them from 0.
    pub(super) fn gather(&mut self, count: usize) -> Result<()> {
        self.listener.set_nonblocking(true)?;
        let until = Instant::now() + TIMEOUT;
        while self.nodes.len() < count {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let node = greet(stream, Arc::clone(&self.over))?;
                    self.nodes.push(node);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let here = self.nodes.len();
                    ensure!(
                        Instant::now() < until,
                        "{here} of {count} data nodes have called"
                    );
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.nodes.sort_by_key(|node| node.number);
        Ok(())
    }

    /// Sends subscriptions to a data node; returns its channels for each, in the same order.
    pub(super) fn ask(
        &mut self,
        node: usize,
        subscriptions: Vec<Subscription>,
    ) -> Result<Vec<Vec<FlowChannel>>> {
        let node = &self.nodes[node];
        let mut done = Vec::with_capacity(subscriptions.len());
        for some in subscriptions.chunks(WINDOW) {
            let first = self.next;
            let mut bytes = Vec::new();
            for ask in some {
                let mut message = [0; MAX_MESSAGE_LEN];
                let len = subscribe(ask, self.next).emit(&mut message);
                bytes.extend_from_slice(&message[..len]);
                self.next += 1;
            }
            write(&node.stream, &bytes)?;
            for (request, ask) in (first..).zip(some) {
                let answer = node.answers.recv_timeout(TIMEOUT);
                let answer = answer.context("a data node does not answer")?;
                ensure!(answer.request == request, "an answer to another question");
                let (up, outcome) = (ask.up, answer.outcome);
                if outcome != Outcome::Done {
                    bail!("{}: up {up}: {}", ask.session.as_str(), outcome.name());
                }
                done.push(answer.flows);
            }
        }
        Ok(done)
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn subscribe(ask: &Subscription, request: u32) -> Message {
    let edge = match ask.peer {
        Some(peer) => Edge::Peer { peer, rate_bps: 0 },
        None => Edge::Native,
    };
    Message::Subscribe(Subscribe {
        up: ask.up,
        request,
        epoch: EPOCH,
        edge,
        flows: ask.flows.clone(),
        session: ask.session.clone(),
    })
}

fn write(stream: &Mutex<TcpStream>, bytes: &[u8]) -> Result<()> {
    let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(stream.write_all(bytes)?)
}

/// The first message of a data node names it; then a thread reads its messages, and reports that there is a
/// control node.
fn greet(stream: TcpStream, over: Arc<AtomicBool>) -> Result<Node> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(HEARTBEAT / 2))?;
    let mut read = stream.try_clone()?;
    let stream = Arc::new(Mutex::new(stream));
    let (to_answers, answers) = channel();
    let (to_number, number) = channel();
    let heart = Arc::clone(&stream);
    std::thread::spawn(move || {
        let mut messages = NodeMessages {
            to_answers,
            to_number,
        };
        let (mut frames, mut beat) = (Frames::new(), (0, Instant::now()));
        let mut buffer = [0; 1 << 14];
        while !over.load(Ordering::Relaxed) {
            let read = match read.read(&mut buffer) {
                Ok(0) => return,
                Ok(read) => read,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock) => 0,
                Err(_) => return,
            };
            let mut input = &buffer[..read];
            while let Ok(Some(message)) = frames.next(&mut input) {
                messages.message(message);
            }
            if beat.1.elapsed() >= HEARTBEAT {
                beat = (beat.0 + 1, Instant::now());
                if send_heartbeat(&heart, beat.0).is_err() {
                    return;
                }
            }
        }
    });
    let number = number.recv_timeout(TIMEOUT);
    Ok(Node {
        number: number.context("a data node does not say which it is")?,
        stream,
        answers,
    })
}

/// Messages of a data node, and the channel to the waiting thread.
struct NodeMessages {
    to_answers: Sender<Response>,
    to_number: Sender<NodeId>,
}

impl NodeMessages {
    fn message(&mut self, message: &[u8]) {
        // Messages without a request are dropped.
        match Message::parse(message) {
            Ok(Message::AllocateResponse(response)) => drop(self.to_answers.send(response)),
            Ok(Message::Register(register)) => drop(self.to_number.send(register.node)),
            _ => {}
        }
    }
}

fn send_heartbeat(stream: &Mutex<TcpStream>, sequence: u32) -> Result<()> {
    let heartbeat = Heartbeat {
        epoch: EPOCH,
        sequence,
        draining: false,
        complete: false,
    };
    let mut message = [0; MAX_MESSAGE_LEN];
    let len = Message::Heartbeat(heartbeat).emit(&mut message);
    write(stream, &message[..len])
}
