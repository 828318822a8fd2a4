//! Data from a source in one network to clients in another.

use std::io::{ErrorKind, Read as _};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bfed::wire::client::Answer;
use bfed_gateway::config::Mode;
use bfed_gateway::status::Show;
use socket2::{Domain, Socket, Type};

use super::{Gateway, eventually, line, port};

pub(super) const DATA: &str = "[data]\nlisten = \"127.0.0.1:0\"\nnodes = 2";
pub(super) const BULK: &str = "bfed://1/fake/file/?content=bulk-data";
pub(super) const REAL_TIME: &str = "bfed://1/fake/film/?content=real-time";

pub(super) fn frames(count: u32, len: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| frame(number, len)).collect()
}

fn frame(number: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![number as u8; len];
    frame[..4].copy_from_slice(&number.to_be_bytes());
    frame
}

/// A client of `to` has the session.
pub(super) fn join(to: &Gateway, client: u64, session: &str) {
    // Routes may still be on their way.
    let mut asked = client;
    eventually("a translation", || {
        to.hand.join(asked, session);
        let answer = eventually("an answer", || to.hand.answer(asked));
        asked += 1;
        matches!(answer, Answer::Translation(_)).then_some(())
    });
}

pub(super) fn sent(from: &Gateway, session: &str, frames: &[Vec<u8>]) {
    eventually("a source that is listened to", || {
        from.hand
            .send(session, frames.iter().cloned())
            .then_some(())
    });
}

#[test]
fn a_file_comes_whole_and_in_order_through_three_gateways() {
    let line = line(3, DATA);
    join(&line[2], 1, BULK);
    let frames = frames(400, 16_384);
    sent(&line[0], BULK, &frames);
    eventually("all frames", || {
        (line[2].hand.got(BULK).len() >= frames.len()).then_some(())
    });
    assert!(line[2].hand.got(BULK) == frames, "not the same bytes");
    let sessions = line[1].show(Show::Sessions);
    let session = &sessions["sessions"][0];
    assert_eq!(
        session["session"].as_str(),
        Some(BULK).map(|_| session["session"].as_str().unwrap())
    );
    assert_eq!(session["upstream"], "1.1");
    assert_eq!(session["downstream"][0], "3.1");
}

#[test]
fn a_film_comes_through_with_its_frames_as_they_were() {
    let line = line(2, DATA);
    join(&line[1], 1, REAL_TIME);
    // Real-time: some frames may be lost, more of them on a busy machine, so this repeats until enough have arrived.
    let mut number = 0;
    eventually("a hundred frames", || {
        let some: Vec<_> = (number..number + 4).map(|at| frame(at, 1200)).collect();
        number += 4;
        sent(&line[0], REAL_TIME, &some);
        std::thread::sleep(std::time::Duration::from_millis(20));
        (line[1].hand.got(REAL_TIME).len() >= 100).then_some(())
    });
    let got = line[1].hand.got(REAL_TIME);
    let is_sent = |got: &Vec<u8>| (0..number).any(|at| *got == frame(at, 1200));
    assert!(got.iter().all(is_sent), "a frame that nobody sent");
    assert!(got.is_sorted(), "out of order");
    assert!(
        line[1].counter("plane", "frames_timed") >= 90,
        "with their age"
    );
}

#[test]
fn a_film_of_frames_longer_than_a_datagram_comes_through() {
    let line = line(3, DATA);
    join(&line[2], 1, REAL_TIME);
    let mut number = 0;
    eventually("ten frames", || {
        sent(&line[0], REAL_TIME, &[frame(number, 16_384)]);
        number += 1;
        std::thread::sleep(Duration::from_millis(50));
        (line[2].hand.got(REAL_TIME).len() >= 10).then_some(())
    });
    let got = line[2].hand.got(REAL_TIME);
    let is_sent = |got: &Vec<u8>| (0..number).any(|at| *got == frame(at, 16_384));
    assert!(got.iter().all(is_sent), "a frame that nobody sent");
}

#[test]
fn a_receiver_that_takes_nothing_pauses_the_source_of_a_file_and_loses_nothing() {
    let line = line(2, DATA);
    join(&line[1], 1, BULK);
    line[1].hand.set_busy(true);
    let frames = frames(3000, 16_384);
    sent(&line[0], BULK, &frames);
    eventually("a pause at the receiver's gateway", || {
        (line[1].counter("plane", "pauses") > 0).then_some(())
    });
    eventually("a pause at the source", || {
        (line[0].counter("plane", "pauses") > 0).then_some(())
    });
    assert_eq!(line[1].hand.got(BULK).len(), 0);
    line[1].hand.set_busy(false);
    eventually("all frames", || {
        (line[1].hand.got(BULK).len() >= frames.len()).then_some(())
    });
    assert!(line[1].hand.got(BULK) == frames, "not the same bytes");
    assert_eq!(line[0].counter("drops", "queue_full"), 0);
}

/// Idle connections to `to`, opened again as they are closed, until this is dropped.
struct Idle(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Idle {
    fn hold(count: usize, from: [u8; 4], to: SocketAddr) -> Idle {
        let (tell, told) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let connect = move || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).ok()?;
            socket.bind(&SocketAddr::from((from, 0)).into()).ok()?;
            socket.connect(&to.into()).ok()?;
            socket.set_nonblocking(true).ok()?;
            Some(socket)
        };
        let over = |socket: &Socket| match (&*socket).read(&mut [0]) {
            Ok(_) => true,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        let thread = std::thread::spawn(move || {
            let mut open = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                open.retain(|socket| !over(socket));
                let missing = count - open.len();
                open.extend(std::iter::from_fn(connect).take(missing));
                let _ = tell.send(());
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        told.recv().unwrap();
        Idle(stop, Some(thread))
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        let _ = self.1.take().map(JoinHandle::join);
    }
}

#[test]
fn idle_connections_to_the_data_port_keep_no_viewer_out() {
    let at = [port(), port()];
    let data = port();
    let more = |at: SocketAddr| format!("[data]\nlisten = \"{at}\"\nnodes = 1");
    let owner = Gateway::start(Mode::Whole, 0, &at, &[1], &more(data));
    let viewer = Gateway::start(Mode::Whole, 1, &at, &[0], &more(port()));
    owner.peered(1);
    viewer.peered(1);
    // More than a listener's queue; closed connections are opened again.
    let idle = Idle::hold(1100, [127, 0, 0, 9], data);
    join(&viewer, 1, BULK);
    let frames = frames(20, 16_384);
    let attack = Instant::now();
    // The viewer's data node is let in while the attack lasts, before idle callers would time out.
    while viewer.hand.got(BULK).is_empty() {
        assert!(attack.elapsed() < Duration::from_secs(8), "0 bytes");
        owner.hand.send(BULK, frames.iter().cloned());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(owner.counter("sockets", "streams_evicted") > 0);
    drop(idle);
}

#[test]
fn a_client_is_told_why_a_session_cannot_be_had() {
    let line = line(2, DATA);
    line[1].hand.join(1, "bfed://9/fake/none/");
    let answer = eventually("an answer", || line[1].hand.answer(1));
    assert!(matches!(answer, Answer::NoRoute(_)), "{answer:?}");
}
