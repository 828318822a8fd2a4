//! The process that dies, as itself and as its parent sees it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::signal::{Signal, raise};

use crate::{receivers, senders};

pub(crate) const ROLE: &str = "LDC_FAULTS_ROLE";
pub(crate) const MEETING: &str = "LDC_FAULTS_MEETING";
pub(crate) const OPERATION: &str = "LDC_FAULTS_OPERATION";
pub(crate) const STEP: &str = "LDC_FAULTS_STEP";

/// Steps until the process dies.
static LEFT: AtomicU64 = AtomicU64::new(u64::MAX);

fn die() {
    let _ = raise(Signal::SIGKILL);
}

fn step() {
    if LEFT.fetch_sub(1, Ordering::Relaxed) == 1 {
        die();
    }
}

/// What the process tells its parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Report {
    /// It is about to complete this message.
    Completing(u32),
    /// It has completed this message.
    Completed(u32),
    /// The operation has ended before the step at which the process dies.
    Ended,
}

impl Report {
    fn bytes(self) -> [u8; 5] {
        let (kind, number) = match self {
            Report::Completing(number) => (0, number),
            Report::Completed(number) => (1, number),
            Report::Ended => (2, 0),
        };
        let mut bytes = [kind; 5];
        bytes[1..].copy_from_slice(&number.to_be_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Report {
        let number = u32::from_be_bytes(bytes[1..].try_into().unwrap());
        match bytes[0] {
            0 => Report::Completing(number),
            1 => Report::Completed(number),
            _ => Report::Ended,
        }
    }
}

/// The socket to its parent, in the process that dies.
pub(crate) struct Account {
    socket: UnixStream,
    step: u64,
}

impl Account {
    pub(crate) fn report(&mut self, report: Report) {
        self.socket.write_all(&report.bytes()).unwrap();
    }

    /// Counts steps from now on.
    pub(crate) fn begin(&self) {
        LEFT.store(self.step, Ordering::Relaxed);
    }
}

/// No test of its own: what the process does.
#[test]
fn the_process_that_dies() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let number = |name| std::env::var(name).unwrap().parse().unwrap();
    let connect = || UnixStream::connect(std::env::var_os(MEETING).unwrap()).unwrap();
    ldc_ring::faults::on_step(step);
    let ring = connect();
    let account = Account {
        socket: connect(),
        step: number(STEP),
    };
    let operation = number(OPERATION) as usize;
    // The end that it still has is not dropped before.
    let (_sender, _receiver, mut account) = match role.as_str() {
        "sender" => (senders::operate(operation, ring, &account), None, account),
        _ => {
            let (receiver, account) = receivers::operate(operation, ring, account);
            (None, receiver, account)
        }
    };
    LEFT.store(u64::MAX, Ordering::Relaxed);
    account.report(Report::Ended);
    die();
}

/// The process, as its parent sees it.
pub(crate) struct Dying {
    child: Child,
    account: UnixStream,
}

impl Dying {
    pub(crate) fn new(child: Child, account: UnixStream) -> Dying {
        Dying { child, account }
    }

    /// Waits until it is dead, and returns its reports.
    pub(crate) fn reports(mut self) -> Vec<Report> {
        let status = self.child.wait().unwrap();
        assert_eq!(status.signal(), Some(Signal::SIGKILL as i32), "{status}");
        let mut bytes = Vec::new();
        self.account.read_to_end(&mut bytes).unwrap();
        bytes.chunks(5).map(Report::parse).collect()
    }
}

impl Drop for Dying {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
