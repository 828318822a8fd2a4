//! A control node that did not run for longer than its etcd lease, as its peer sees it.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use bfed::wire::{Frames, MAX_MESSAGE_LEN, Message};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::etcd::Etcd;
use super::support::{TIMEOUT, open};

/// A program, killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id() as i32), signal).unwrap();
    }
}

/// Waits for a call of the control node.
fn called(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                return stream;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(Instant::now() < deadline, "the control node does not call");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn send(stream: &mut TcpStream, message: &Message) {
    let mut bytes = vec![0; MAX_MESSAGE_LEN];
    let length = message.buffer_len();
    message.emit(&mut bytes[..length]);
    stream.write_all(&bytes[..length]).unwrap();
}

/// Reads until a message of that kind has come.
fn expect(stream: &mut TcpStream, wanted: impl Fn(&Message) -> bool) {
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut frames = Frames::new();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        let found = frames.next(&mut &byte[..]).unwrap();
        if found.is_some_and(|message| Message::parse(message).is_ok_and(|it| wanted(&it))) {
            return;
        }
    }
}

/// Establishes a peering over a call of the control node.
fn establish(stream: &mut TcpStream) {
    send(stream, &Message::Open(open(2, 3)));
    expect(stream, |message| matches!(message, Message::Open(_)));
    send(stream, &Message::KeepAlive);
    expect(stream, |message| matches!(message, Message::KeepAlive));
}

/// Reads until the stream ends or stays silent for that long; returns the bytes and whether it ended.
fn rest(stream: &mut TcpStream, silence: Duration) -> (Vec<u8>, bool) {
    stream.set_read_timeout(Some(silence)).unwrap();
    let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return (all, true),
            Ok(read) => all.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return (all, true),
            Err(_) => return (all, false),
        }
    }
}

#[test]
fn a_control_node_that_was_paused_for_longer_than_its_lease_says_nothing_to_its_peer() {
    let folder = tempfile::tempdir().unwrap();
    let Some(etcd) = Etcd::start(false) else {
        return;
    };
    let at = etcd.at[0];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = format!(
        "[gateway]\nnetwork = 1\nhold-time = \"3s\"\n[daemon]\nsocket = {:?}\n\
         [cluster]\nlisten = \"127.0.0.1:0\"\n[etcd]\nendpoints = [\"http://{at}\"]\nname = \"a\"\n\
         [[peer]]\nnetwork = 2\naddress = \"{}\"\n",
        folder.path().join("sock"),
        listener.local_addr().unwrap(),
    );
    let file = folder.path().join("gateway.toml");
    std::fs::write(&file, config).unwrap();
    let control = Command::new(env!("CARGO_BIN_EXE_bfed-gateway"))
        .arg("control")
        .arg("--config")
        .arg(&file)
        .stderr(std::fs::File::create(folder.path().join("log")).unwrap())
        .spawn()
        .unwrap();
    let control = Running(control);
    let mut stream = called(&listener);
    establish(&mut stream);
    control.signal(Signal::SIGSTOP);
    rest(&mut stream, Duration::from_millis(500));
    // Longer than the lease of two seconds, and than the hold time: a notification is due.
    std::thread::sleep(Duration::from_secs(5));
    control.signal(Signal::SIGCONT);
    let (said, ended) = rest(&mut stream, TIMEOUT);
    let log = || std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(said.is_empty(), "{said:?}\n{}", log());
    assert!(ended, "the stream stays\n{}", log());
    // Nothing else is elected: it is the active one again, in a later term.
    establish(&mut called(&listener));
}
