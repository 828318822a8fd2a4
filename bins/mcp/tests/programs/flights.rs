//! Round trips before the data, counted by a relay of the control connection.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::common::{Running, Stage};

/// A flight is over when nothing more has come for this long.
const QUIET: Duration = Duration::from_millis(300);
/// Longest that a flight is waited for.
const LIMIT: Duration = Duration::from_secs(60);
/// Where the relay listens; `mcpd` has the default port of the same address.
const PORT: u16 = 4999;

/// How many answers of the server may pass.
#[derive(Default)]
struct Gate {
    allowed: Mutex<usize>,
    changed: Condvar,
}

impl Gate {
    fn allow(&self, answers: usize) {
        *self.allowed.lock().expect("no panic") = answers;
        self.changed.notify_all();
    }

    fn wait_for(&self, answer: usize) {
        let allowed = self.allowed.lock().expect("no panic");
        let waited = self
            .changed
            .wait_timeout_while(allowed, LIMIT, |allowed| *allowed < answer);
        assert!(!waited.expect("no panic").1.timed_out(), "answer {answer}");
    }
}

/// Reads a flight: what comes until nothing does for [`QUIET`]. Empty at the end of the stream.
fn flight(from: &mut TcpStream) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), [0; 1 << 16]);
    let end = Instant::now() + LIMIT;
    from.set_read_timeout(Some(QUIET)).expect("a timeout");
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return all,
            Ok(len) => all.extend_from_slice(&buffer[..len]),
            Err(_) if !all.is_empty() || Instant::now() > end => return all,
            Err(_) => {}
        }
    }
}

/// Relays one connection. Flights of the client pass; answers wait at the gate, the first one is number 1.
fn relay(listener: &TcpListener, server: &str, gate: &Arc<Gate>) {
    let (mut client, _) = listener.accept().expect("a client");
    let mut server = TcpStream::connect((server, 4139)).expect("the server");
    let (mut to_server, mut from_client) = (
        server.try_clone().expect("a descriptor"),
        client.try_clone().expect("a descriptor"),
    );
    let _client = std::thread::spawn(move || {
        loop {
            let bytes = flight(&mut from_client);
            if bytes.is_empty() || to_server.write_all(&bytes).is_err() {
                let _ = to_server.shutdown(Shutdown::Write);
                return;
            }
        }
    });
    for answer in 1.. {
        let bytes = flight(&mut server);
        if bytes.is_empty() {
            let _ = client.shutdown(Shutdown::Write);
            return;
        }
        gate.wait_for(answer);
        if client.write_all(&bytes).is_err() {
            return;
        }
    }
}

/// One round trip is TCP's handshake; two answers follow, of TLS and of the comparison; the handshake of the data
/// connection is the fourth.
#[test]
fn the_data_follows_the_second_answer_of_a_new_host() {
    for is_keyed in [true, false] {
        let stage = Stage::new();
        let key = stage.key("key");
        let key = ["--key-file", key.to_str().expect("text")];
        let trust = if is_keyed { &key[..] } else { &["--insecure"] };
        let receiver = stage.start(2, trust);
        let file = stage.content("image", 3_000_000);
        let address = stage.address(2);
        let listener = TcpListener::bind((address.as_str(), PORT)).expect("a port");
        let gate = Arc::new(Gate::default());
        // Without TLS the comparison is the first answer.
        gate.allow(if is_keyed { 2 } else { 1 });
        let (at, relayed) = (address.clone(), Arc::clone(&gate));
        let relay = std::thread::spawn(move || relay(&listener, &at, &relayed));
        let mut send = std::process::Command::new(crate::common::mcp());
        send.arg("--json").args(trust).arg(&file);
        send.arg(format!("{address}:{PORT}"));
        let mut sending = Running::start(&mut send);
        // All data arrives there, and not one more message of the host has arrived here.
        sending.wait_for(&["\"event\":\"sent\""]);
        gate.allow(usize::MAX);
        let done = sending.finish();
        done.expect(0).line(&["\"end\"", "\"verified\":1"]);
        relay.join().expect("the relay");
        let copy = std::fs::read(stage.dir(2).join("image")).expect("a copy");
        assert!(copy == std::fs::read(&file).expect("the file"));
        drop(receiver);
    }
}
