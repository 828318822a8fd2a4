//! One process of a ring is killed at each of its steps: accesses to shared memory, half-copied payloads, messages on
//! the socket. The other process goes on.
//!
//! `RUSTFLAGS="--cfg polycast_faults" cargo test -p ldc-linux --test faults`
//!
//! For each operation and each n this program starts itself again as the process that dies at step n of that
//! operation, until an operation ends before step n. This process then has to learn within [`SOON`] that its peer has
//! died, by the error of that name; all messages that it gets are whole and in order, none that had to arrive is
//! missing, and none that must not arrive does; its memory is unmapped when it drops its end; and a new ring works.
#![cfg(polycast_faults)]

#[path = "../rings/common.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod common;
mod dying;
mod receivers;
mod senders;

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::{message, numbers};
use dying::Dying;
use ldc_linux::{Attributes, Receiver, Shape, Wake, shm};

/// Longest time from the death of a process until the other one knows.
const SOON: Duration = Duration::from_secs(5);
const LIMIT: Option<Duration> = Some(Duration::from_secs(30));
const LARGEST: usize = 1 << 20;
const PLAIN: Attributes = Attributes {
    deadline: None,
    priority: 0,
};

/// 16 slots of 256 bytes: a message of up to three slots, and of one.
fn shape() -> Shape {
    Shape::new(16, 256).unwrap()
}

/// One test at a time, because each counts the mappings of the process.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The place where the other process connects.
struct Meeting {
    path: PathBuf,
    listener: UnixListener,
}

impl Meeting {
    fn new(name: &str) -> Meeting {
        let path = std::env::temp_dir().join(format!("ldc-{}-{name}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        Meeting { path, listener }
    }

    /// Starts the process that dies at this step of this operation.
    fn start(&self, role: &str, operation: usize, step: u64) -> (Dying, UnixStream) {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "dying::the_process_that_dies", "--nocapture"])
            .env(dying::ROLE, role)
            .env(dying::MEETING, &self.path)
            .env(dying::OPERATION, operation.to_string())
            .env(dying::STEP, step.to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let accept = || self.listener.accept().unwrap().0;
        let (ring, account) = (accept(), accept());
        (Dying::new(child, account), ring)
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Receives until the ring ends. Calls `each` with the number of each message, which has to be whole.
fn receive(ring: &mut Receiver, mut each: impl FnMut(u32)) -> Wake {
    loop {
        while let Some(message) = ring.claim(None).unwrap() {
            let mut bytes = vec![0; message.len()];
            ring.ring().read(&message, 0, &mut bytes);
            let ticket = message.ticket();
            ring.complete(message);
            ring.ring().ack(ticket).unwrap();
            numbers(&bytes[..]).into_iter().for_each(&mut each);
        }
        match ring.wait(LIMIT) {
            Wake::Ready => {}
            end => return end,
        }
    }
}

/// The number of rings mapped into this process.
fn mapped() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .filter(|line| line.contains("memfd:ldc-ring"))
        .count()
}

/// A new ring works, and nothing of the old one is left.
fn starts_anew() {
    assert_eq!(mapped(), 0);
    let (near, far) = UnixStream::pair().unwrap();
    let mut ldc = shm::init(near, shape()).unwrap();
    let mut ring = shm::attach(far, LARGEST).unwrap();
    ldc.send(7, &message(7, 100), PLAIN).unwrap();
    drop(ldc);
    let mut seen = Vec::new();
    assert_eq!(receive(&mut ring, |number| seen.push(number)), Wake::Closed);
    assert_eq!(seen, [7]);
}
