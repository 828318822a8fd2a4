//! Receiving over QUIC: one sender at a time.

use std::ffi::c_char;
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::time::Duration;

use ldc_linux::quic;

use crate::status::{Failure, Status, run};
use crate::sys::open::{address, credentials};
use crate::sys::pointer::{self, Handle};
use crate::types::{self, Event, EventKind, Limits};

/// The receiving end of QUIC connections.
pub struct Listener(Mutex<State>);

/// What a listener holds.
pub(crate) struct State {
    receiver: quic::Receiver,
    /// The event that the buffer had no room for.
    unread: Option<(EventKind, Vec<u8>)>,
}

impl Handle for Listener {
    type Inner = State;

    fn lock(&self) -> &Mutex<State> {
        &self.0
    }

    fn over(inner: Mutex<State>) -> Listener {
        Listener(inner)
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(Status::Failed, error.to_string())
}

/// Listens on an address and a port, such as `192.0.2.1:4000` or `[::]:0` (any free port). `key_file` is that of
/// `ldc_open_quic`.
///
/// # Safety
/// The strings end with a null byte, `limits` points to a structure or is null, `listener` to a writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_listen(
    local: *const c_char,
    key_file: *const c_char,
    limits: *const Limits,
    listener: *mut *mut Listener,
) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let local = address(pointer::string(local, "the address")?)?;
            let credentials = credentials(pointer::string(key_file, "the key file")?)?;
            let limits = pointer::input(limits)?.into();
            pointer::give(listener, || {
                Ok(State {
                    receiver: quic::Receiver::bind(local, credentials.server, limits)?,
                    unread: None,
                })
            })
        }
    })
}

/// Returns the port of a listener.
///
/// # Safety
/// `listener` is a valid handle, `port` points to a writable number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_listener_port(listener: *mut Listener, port: *mut u16) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        let (write, state) = unsafe { (pointer::out(port)?, pointer::handle(listener)?) };
        write(state.receiver.local_address().map_err(failed)?.port());
        Ok(())
    })
}

/// Waits for the next event, at most `timeout_us` microseconds (negative: without limit), and copies its bytes into a buffer of
/// `capacity` bytes. Unread messages stay in QUIC's receive buffer; flow control then pauses the sender.
///
/// `LDC_STATUS_TOO_LONG`: `event` says how many bytes the buffer needs; the next call returns the same event.
///
/// # Safety
/// `listener` is a valid handle, `buffer` points to `capacity` bytes, `event` to a writable structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_listener_wait(
    listener: *mut Listener,
    timeout_us: i64,
    buffer: *mut u8,
    capacity: usize,
    event: *mut Event,
) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        let (write, mut state) = unsafe { (pointer::out(event)?, pointer::handle(listener)?) };
        let (kind, bytes) = match state.unread.take() {
            Some(unread) => unread,
            None => next(&mut state.receiver, types::timeout(timeout_us))?,
        };
        let len = bytes.len();
        write(Event { kind, len });
        if len > capacity {
            state.unread = Some((kind, bytes));
            return Err(Status::TooLong.into());
        }
        // SAFETY: the caller's promise.
        match unsafe { pointer::buffer(buffer, len) } {
            Ok(buffer) => buffer.copy_from_slice(&bytes),
            Err(failure) => {
                state.unread = Some((kind, bytes));
                return Err(failure);
            }
        }
        Ok(())
    })
}

/// Returns the next event and its bytes.
fn next(
    receiver: &mut quic::Receiver,
    timeout: Option<Duration>,
) -> Result<(EventKind, Vec<u8>), Failure> {
    const HOUR: Duration = Duration::from_secs(3_600);
    loop {
        let event = receiver.wait(timeout.unwrap_or(HOUR)).map_err(failed)?;
        return Ok(match event {
            Some(quic::Event::Connected(from)) => {
                (EventKind::Connected, from.to_string().into_bytes())
            }
            Some(quic::Event::Message(bytes)) => (EventKind::Message, bytes),
            Some(quic::Event::Done) => (EventKind::Done, Vec::new()),
            Some(quic::Event::Failed(error)) => (EventKind::Failed, error.to_string().into_bytes()),
            None if timeout.is_none() => continue,
            None => return Err(Status::TimedOut.into()),
        });
    }
}

/// Closes the connection of the sender that is served, with a reason that it sees. Another one may come.
///
/// # Safety
/// `listener` is a valid handle, `reason` ends with a null byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_listener_refuse(
    listener: *mut Listener,
    reason: *const c_char,
) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        let (reason, mut state) = unsafe {
            (
                pointer::string(reason, "the reason")?,
                pointer::handle(listener)?,
            )
        };
        state.receiver.refuse(reason);
        Ok(())
    })
}

/// Returns the socket, for event loops; -1 on failure. It belongs to the handle. When it is readable, and at least once a second
/// even if it is not, because timers run only there, call `ldc_listener_wait` with a timeout of 0 until it returns
/// `LDC_STATUS_TIMED_OUT`.
///
/// # Safety
/// `listener` is a valid handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_listener_fd(listener: *mut Listener) -> i32 {
    let mut fd = -1;
    run(|| {
        // SAFETY: the caller's promise.
        fd = unsafe { pointer::handle(listener)? }
            .receiver
            .socket()
            .as_raw_fd();
        Ok(())
    });
    fd
}

/// Frees a listener; null is ignored. The drain of a sender that is served ends with an error.
///
/// # Safety
/// `listener` is a listener or null; no call on it runs or follows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_listener_free(listener: *mut Listener) {
    // SAFETY: the caller's promise.
    unsafe { pointer::free(listener) }
}
