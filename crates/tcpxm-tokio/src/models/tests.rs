//! What a wait must not miss: each kind of waiter against what ends its wait, and against other waiters.

use std::future::Future;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use loom::thread;
use tcpxm::store::Ring;
use tcpxm::{ConnId, Endpoint, Meta, Received};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::driver::Driver;
use crate::group::{GroupEvent, XmGroup};
use crate::shared::Shared;
use crate::sockets::{Packet, Sockets, Wire};
use crate::stream::{XmListener, XmStream};
use crate::wait::block_on;
use crate::{Config, Failure, GroupConfig};

/// Runs all orders of operations in which threads are interrupted at most three times.
fn model(run: impl Fn() + Send + Sync + 'static) {
    model_within(3, run);
}

/// Runs all orders of operations in which threads are interrupted at most that often.
fn model_within(interruptions: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.expect_explicit_explore = true;
    builder.check(run);
}

/// Bytes of the buffers of a connection.
const ROOM: usize = 4_096;

fn here() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7_000))
}

fn there() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 2], 7_001))
}

fn elsewhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 3], 7_001))
}

/// An endpoint whose thread is not started yet.
struct Host {
    shared: Arc<Shared>,
    sockets: Sockets,
    wire: Wire,
}

impl Host {
    fn new() -> Host {
        let mut config = Config::new(here());
        // Little enough to fill.
        config.machine.send_buffer = ROOM;
        config.machine.receive_buffer = ROOM;
        let sockets = Sockets::open(&config).expect("opened");
        let wire = sockets.wire();
        let shared = Arc::new(Shared::new(&config, here()).expect("made"));
        Host {
            shared,
            sockets,
            wire,
        }
    }

    fn listen(&self) -> XmListener {
        XmListener::new(Arc::clone(&self.shared), None, None).expect("listening")
    }

    /// Starts the endpoint's thread. What follows runs in all orders.
    fn start(self) -> Running {
        let running = Running { wire: self.wire };
        loom::explore();
        Driver::start(self.shared, self.sockets).expect("started");
        running
    }
}

/// An endpoint whose thread runs until all handles are dropped.
struct Running {
    wire: Wire,
}

impl Running {
    /// A packet arrives.
    fn deliver(&self, packet: Packet) {
        self.wire.put(packet);
    }
}

/// The other end of a connection: a machine that the model drives.
struct Peer {
    address: SocketAddr,
    machine: Endpoint<Ring>,
    connection: Option<ConnId>,
    now: tcpxm::Instant,
}

impl Peer {
    fn new(host: &Host, address: SocketAddr) -> Peer {
        let now = host.shared.now();
        let mut config = tcpxm::Config::default();
        config.nagle = false;
        let mut machine = Endpoint::new(config, [9; 32], now);
        machine.listen(now, address.port()).expect("listening");
        Peer {
            address,
            machine,
            connection: None,
            now,
        }
    }

    /// The last packet of a handshake that a peer began.
    fn connecting(host: &Host, address: SocketAddr) -> Packet {
        let mut peer = Peer::new(host, address);
        let opened = peer.machine.connect(peer.now, address, here());
        opened.expect("opened");
        peer.deliver(host);
        peer.fetch(host);
        peer.packet()
    }

    /// A peer with a connection to the host, and the host's end of it.
    fn connected(host: &Host) -> (Peer, XmStream) {
        let mut peer = Peer::new(host, there());
        let stream = XmStream::connect(Arc::clone(&host.shared), peer.address).expect("opened");
        peer.settle(host);
        peer.connection = peer.machine.accept(peer.now, peer.address.port());
        assert!(peer.connection.is_some());
        (peer, stream)
    }

    /// Exchanges packets until neither side has any.
    fn settle(&mut self, host: &Host) {
        for _ in 0..8 {
            self.fetch(host);
            self.deliver(host);
        }
    }

    /// Takes what the host has to send.
    fn fetch(&mut self, host: &Host) {
        let mut state = host.shared.lock();
        let meta = Meta {
            source: here(),
            destination: self.address.ip(),
        };
        for packet in packets(&mut state.machine, self.now) {
            let taken = self.machine.handle_packet(self.now, &meta, &packet);
            taken.expect("understood");
        }
    }

    /// Hands the host what this side has to send.
    fn deliver(&mut self, host: &Host) {
        let mut state = host.shared.lock();
        let meta = Meta {
            source: self.address,
            destination: here().ip(),
        };
        for packet in packets(&mut self.machine, self.now) {
            let taken = state.machine.handle_packet(self.now, &meta, &packet);
            taken.expect("understood");
        }
    }

    /// Returns the only packet that this side has to send.
    fn packet(&mut self) -> Packet {
        let mut all = packets(&mut self.machine, self.now);
        assert_eq!(all.len(), 1);
        (self.address, all.remove(0))
    }

    /// Sends bytes, at most one segment; returns the packet with them.
    fn send(&mut self, bytes: &[u8]) -> Packet {
        let connection = self.connection.expect("connected");
        let sent = self.machine.send(self.now, connection, bytes);
        assert_eq!(sent, Ok(bytes.len()));
        self.packet()
    }

    /// Reads everything that has arrived.
    fn read(&mut self) {
        let connection = self.connection.expect("connected");
        let mut room = [0; 8_192];
        while let Ok(Received::Data(_)) = self.machine.recv(self.now, connection, &mut room) {}
    }
}

fn packets<S: tcpxm::store::Store>(machine: &mut Endpoint<S>, now: tcpxm::Instant) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; machine.max_segment_bytes()];
    let mut all = Vec::new();
    while let Some(sent) = machine.poll_transmit(now, &mut buffer) {
        all.push(buffer[..sent.len].to_vec());
    }
    all
}

/// Ends a connection, so that the endpoint's thread can end.
fn end(stream: XmStream) {
    loom::stop_exploring();
    stream.abort();
}

/// Reads as a task does: the endpoint's thread drives.
fn read_as_task(stream: &mut XmStream) -> std::io::Result<u8> {
    block_on(None, |context| {
        let mut bytes = [0; 1];
        let mut room = ReadBuf::new(&mut bytes);
        let read = Pin::new(&mut *stream).poll_read(context, &mut room);
        read.map_ok(|()| room.filled()[0])
    })
}

/// Reads as a thread does, which may drive.
fn read_as_thread(stream: &mut XmStream) -> u8 {
    let mut byte = [0];
    stream.read_exact(&mut byte).expect("read");
    byte[0]
}

#[test]
fn a_connection_reaches_the_listener_that_waits() {
    model(|| {
        let host = Host::new();
        let listener = host.listen();
        let last = Peer::connecting(&host, there());
        let running = host.start();
        let waiting = thread::spawn(move || end(listener.wait(None).expect("accepted")));
        running.deliver(last);
        waiting.join().expect("no panic");
    });
}

#[test]
fn a_waiter_that_gives_up_takes_no_wake_up_from_another() {
    model(|| {
        let host = Host::new();
        let listener = host.listen();
        let last = Peer::connecting(&host, there());
        let running = host.start();
        running.deliver(last);
        {
            let given_up = pin!(listener.accept());
            let context = &mut Context::from_waker(Waker::noop());
            if let Poll::Ready(accepted) = given_up.poll(context) {
                return end(accepted.expect("accepted"));
            }
        }
        end(listener.wait(None).expect("accepted"));
    });
}

#[test]
fn data_reaches_the_task_that_reads() {
    model(|| {
        let host = Host::new();
        let (mut peer, mut stream) = Peer::connected(&host);
        let running = host.start();
        let reading = thread::spawn(move || {
            assert_eq!(read_as_task(&mut stream).expect("read"), 5);
            end(stream);
        });
        running.deliver(peer.send(&[5]));
        reading.join().expect("no panic");
    });
}

#[test]
fn room_reaches_the_thread_that_writes() {
    model(|| {
        let host = Host::new();
        let (mut peer, mut stream) = Peer::connected(&host);
        // Fills the send buffer.
        stream.write_all(&[5; ROOM]).expect("written");
        peer.fetch(&host);
        peer.read();
        let running = host.start();
        let writing = thread::spawn(move || {
            stream.write_all(&[6]).expect("written");
            end(stream);
        });
        running.deliver(peer.packet());
        writing.join().expect("no panic");
    });
}

#[test]
fn delivery_reaches_the_task_that_closes() {
    model(|| {
        let host = Host::new();
        let (mut peer, mut stream) = Peer::connected(&host);
        stream.finish().expect("open");
        peer.fetch(&host);
        let running = host.start();
        let closing = thread::spawn(move || {
            block_on(None, |context| Pin::new(&mut stream).poll_shutdown(context)).expect("closed");
            end(stream);
        });
        running.deliver(peer.packet());
        closing.join().expect("no panic");
    });
}

#[test]
fn an_abort_reaches_the_task_that_reads() {
    model(|| {
        let host = Host::new();
        let (_peer, mut stream) = Peer::connected(&host);
        let handle = stream.handle();
        let _running = host.start();
        let reading = thread::spawn(move || {
            let error = read_as_task(&mut stream).expect_err("aborted");
            assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
            end(stream);
        });
        handle.abort();
        reading.join().expect("no panic");
    });
}

#[test]
fn an_abort_reaches_the_task_that_observes_the_group() {
    model(|| {
        let host = Host::new();
        let mut peer = Peer::new(&host, there());
        let config = GroupConfig::new(here(), vec![there().ip()], there().port());
        let group = XmGroup::open(Arc::clone(&host.shared), config, None).expect("opened");
        peer.settle(&host);
        let handle = group.handle();
        let _running = host.start();
        let observer = group.handle();
        let observing = thread::spawn(move || {
            let event = block_on(None, |context| {
                pin!(observer.next_event()).poll(context).map(Ok)
            });
            let aborted = GroupEvent::Closed(0, Some(Failure::Aborted));
            assert_eq!(event.expect("no error"), Some(aborted));
        });
        handle.abort(0);
        observing.join().expect("no panic");
        loom::stop_exploring();
        drop(group);
    });
}

#[test]
fn failed_sockets_end_all_waits() {
    model(|| {
        let host = Host::new();
        let listener = host.listen();
        let (_peer, mut stream) = Peer::connected(&host);
        let running = host.start();
        let accepting = thread::spawn(move || {
            let error = listener.wait(None).expect_err("failed");
            assert_eq!(error.kind(), ErrorKind::Other);
        });
        running.wire.fail();
        let error = read_as_task(&mut stream).expect_err("failed");
        assert_eq!(error.kind(), ErrorKind::Other);
        accepting.join().expect("no panic");
    });
}

#[test]
fn the_thread_ends_with_the_last_handle() {
    model(|| {
        let host = Host::new();
        host.shared.hold();
        let shared = Arc::clone(&host.shared);
        let _running = host.start();
        shared.release();
    });
}

/// The thread that reads drives, between its reads nobody does, and the endpoint's thread is parked.
#[test]
fn data_reaches_the_thread_that_drives() {
    model(|| {
        let host = Host::new();
        let (mut peer, mut stream) = Peer::connected(&host);
        host.wire.put(peer.send(&[5]));
        let second = peer.send(&[6]);
        let running = host.start();
        let reading = thread::spawn(move || {
            assert_eq!(read_as_thread(&mut stream), 5);
            assert_eq!(read_as_thread(&mut stream), 6);
            end(stream);
        });
        running.deliver(second);
        reading.join().expect("no panic");
    });
}

#[test]
fn a_task_that_begins_to_wait_ends_the_lease() {
    model_within(2, || {
        let host = Host::new();
        let listener = host.listen();
        let (mut peer, mut stream) = Peer::connected(&host);
        host.wire.put(peer.send(&[5]));
        let second = peer.send(&[6]);
        let last = Peer::connecting(&host, elsewhere());
        let running = host.start();
        let reading = thread::spawn(move || {
            assert_eq!(read_as_thread(&mut stream), 5);
            assert_eq!(read_as_thread(&mut stream), 6);
            stream
        });
        running.deliver(last);
        let accepted = listener.wait(None).expect("accepted");
        running.deliver(second);
        let stream = reading.join().expect("no panic");
        stream.abort();
        end(accepted);
    });
}

/// The second read makes enough room that the peer has to be told, for which the endpoint's thread is needed.
#[test]
fn a_thread_that_drives_leaves_nothing_to_send() {
    model(|| {
        let host = Host::new();
        let (mut peer, mut stream) = Peer::connected(&host);
        host.wire.put(peer.send(&[5]));
        host.wire.put(peer.send(&[6; ROOM / 4]));
        let last = peer.send(&[7]);
        let running = host.start();
        let reading = thread::spawn(move || {
            assert_eq!(read_as_thread(&mut stream), 5);
            stream.read_exact(&mut [0; ROOM / 4]).expect("read");
            assert_eq!(read_as_thread(&mut stream), 7);
            end(stream);
        });
        running.deliver(last);
        reading.join().expect("no panic");
    });
}

/// A thread that has read may read again soon, or not.
#[test]
fn a_thread_that_has_read_and_writes_sends() {
    model(|| {
        let host = Host::new();
        let (mut peer, mut stream) = Peer::connected(&host);
        host.wire.put(peer.send(&[5]));
        let running = host.start();
        assert_eq!(read_as_thread(&mut stream), 5);
        stream.write_all(&[6]).expect("written");
        running.wire.sent.wait();
        end(stream);
    });
}
