//! Receiving from a ring: another thread, or another process over shared memory.

use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use ldc_linux::{Claimed, Wake, any, shm};

use crate::status::{Failure, Status, run};
use crate::sys::pointer::{self, Handle, duplicate};
use crate::types::{self, Counters, Message};

/// The receiving end of a ring.
pub struct Receiver(Mutex<any::Receiver>);

/// Returns why there is no message.
fn nothing(receiver: &mut any::Receiver) -> Failure {
    let status = match receiver.ring().is_ended() {
        true => Status::Closed,
        false => Status::Empty,
    };
    status.into()
}

impl Handle for Receiver {
    type Inner = any::Receiver;

    fn lock(&self) -> &Mutex<any::Receiver> {
        &self.0
    }

    fn over(inner: Mutex<any::Receiver>) -> Receiver {
        Receiver(inner)
    }
}

fn describe(message: &Claimed, id: u64) -> Message {
    Message {
        id,
        seq: message.user_seq(),
        len: message.len(),
        deadline_us: message.deadline().map_or(0, |at| at.total_micros()),
        priority: message.priority(),
    }
}

/// Attaches to the ring that the process at the other end of the Unix socket `fd` offers, of at most `max_len` bytes. Waits for
/// the offer until the receive timeout of the socket expires. The other process need not be trusted.
///
/// # Safety
/// `fd` is a descriptor of the caller, `receiver` points to a writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_receiver_attach(
    fd: i32,
    max_len: usize,
    receiver: *mut *mut Receiver,
) -> Status {
    run(|| {
        let attach = || {
            // SAFETY: the caller's promise.
            let socket = UnixStream::from(unsafe { duplicate(fd)? });
            Ok(shm::attach(socket, max_len)?.into())
        };
        // SAFETY: the caller's promise.
        unsafe { pointer::give(receiver, attach) }
    })
}

/// Copies the next message into a buffer of `capacity` bytes and completes it. Skips cancelled messages and those whose deadline has
/// passed. `message` gets its sequence number and length.
///
/// `LDC_STATUS_EMPTY`: no message can be claimed now. `LDC_STATUS_CLOSED`: none will follow. `LDC_STATUS_TOO_LONG`: `message` says how
/// many bytes the buffer needs; the next call returns the same message.
///
/// # Safety
/// `receiver` is a valid handle, `buffer` points to `capacity` bytes, `message` to a writable structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_receiver_receive(
    receiver: *mut Receiver,
    buffer: *mut u8,
    capacity: usize,
    message: *mut Message,
) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        let (write, mut state) = unsafe { (pointer::out(message)?, pointer::handle(receiver)?) };
        let Some(next) = state.peek().map_err(|_| Status::Corrupt)? else {
            return Err(nothing(&mut state));
        };
        let len = next.len();
        let described = describe(next, u64::MAX);
        if len > capacity {
            write(described);
            return Err(Status::TooLong.into());
        }
        // SAFETY: the caller's promise.
        let bytes = unsafe { pointer::buffer(buffer, len)? };
        write(described);
        state.take(bytes);
        Ok(())
    })
}

/// Claims the next message without copying it: from now on the sender cannot cancel or modify it. Its slots stay in use until
/// `ldc_receiver_complete`. Several messages may be claimed at once, and completed in any order.
///
/// Returns `LDC_STATUS_EMPTY` or `LDC_STATUS_CLOSED` as `ldc_receiver_receive` does.
///
/// # Safety
/// `receiver` is a valid handle, `message` points to a writable structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_receiver_claim(
    receiver: *mut Receiver,
    message: *mut Message,
) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        let (write, mut state) = unsafe { (pointer::out(message)?, pointer::handle(receiver)?) };
        match state.claim().map_err(|_| Status::Corrupt)? {
            Some((id, message)) => write(describe(message, id)),
            None => return Err(nothing(&mut state)),
        }
        Ok(())
    })
}

/// Copies `len` bytes from `offset` on of a claimed message. `LDC_STATUS_TOO_LONG`: they exceed the message.
/// `LDC_STATUS_UNKNOWN`: no claimed message has this identifier.
///
/// # Safety
/// `receiver` is a valid handle, `buffer` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_receiver_read(
    receiver: *mut Receiver,
    id: u64,
    offset: usize,
    buffer: *mut u8,
    len: usize,
) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        let mut state = unsafe { pointer::handle(receiver)? };
        let message = state.claimed(id).ok_or(Status::Unknown)?;
        let end = offset.checked_add(len);
        if end.is_none_or(|end| end > message.len()) {
            return Err(Status::TooLong.into());
        }
        // SAFETY: the caller's promise.
        state.read(id, offset, unsafe { pointer::buffer(buffer, len)? });
        Ok(())
    })
}

/// Tells in `is_abandoned` whether the sender has abandoned a claimed message: stop delivering it, and complete it.
///
/// # Safety
/// `receiver` is a valid handle, `is_abandoned` points to a writable `bool`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_receiver_is_abandoned(
    receiver: *mut Receiver,
    id: u64,
    is_abandoned: *mut bool,
) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        let (write, mut state) =
            unsafe { (pointer::out(is_abandoned)?, pointer::handle(receiver)?) };
        write(state.is_abandoned(id).ok_or(Status::Unknown)?);
        Ok(())
    })
}

/// Tells the sender that a claimed message was acknowledged. `LDC_STATUS_FULL`: it did not take earlier acknowledgements.
///
/// # Safety
/// `receiver` is a valid handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_receiver_ack(receiver: *mut Receiver, id: u64) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        let mut state = unsafe { pointer::handle(receiver)? };
        let acked = state.ack(id).ok_or(Status::Unknown)?;
        Ok(acked.map_err(|_| Status::Full)?)
    })
}

/// Releases the slots of a claimed message.
///
/// # Safety
/// `receiver` is a valid handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_receiver_complete(receiver: *mut Receiver, id: u64) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        let mut state = unsafe { pointer::handle(receiver)? };
        match state.complete(id) {
            true => Ok(()),
            false => Err(Status::Unknown.into()),
        }
    })
}

/// Waits until a message may be claimed, at most `timeout_us` microseconds (negative: without limit). `LDC_STATUS_CLOSED`: no message
/// will follow. `LDC_STATUS_GONE`: the sender died, and the ring is empty.
///
/// # Safety
/// `receiver` is a valid handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_receiver_wait(receiver: *mut Receiver, timeout_us: i64) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        let mut state = unsafe { pointer::handle(receiver)? };
        match state.wait(types::timeout(timeout_us)) {
            Wake::Ready => Ok(()),
            Wake::TimedOut => Err(Status::TimedOut.into()),
            Wake::Closed => Err(Status::Closed.into()),
            Wake::Gone => Err(Status::Gone.into()),
        }
    })
}

/// Returns the descriptor that becomes readable when the sender has notified or died, after `ldc_receiver_wait` with a timeout of 0
/// has returned `LDC_STATUS_TIMED_OUT`; -1 on failure. It belongs to the handle.
///
/// # Safety
/// `receiver` is a valid handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_receiver_fd(receiver: *mut Receiver) -> i32 {
    let mut fd = -1;
    run(|| {
        // SAFETY: the caller's promise.
        let mut receiver = unsafe { pointer::handle(receiver)? };
        fd = receiver.ring().as_fd().as_raw_fd();
        Ok(())
    });
    fd
}

/// Returns the counters of a receiver.
///
/// # Safety
/// `receiver` is a valid handle, `counters` points to a writable structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_receiver_counters(
    receiver: *mut Receiver,
    counters: *mut Counters,
) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        let (write, mut state) = unsafe { (pointer::out(counters)?, pointer::handle(receiver)?) };
        let stats = state.ring().ring().stats();
        write(Counters {
            claimed: stats.claimed,
            cancelled: stats.cancelled,
            expired: stats.expired,
        });
        Ok(())
    })
}

/// Frees a receiver and closes its ring; null is ignored.
///
/// # Safety
/// `receiver` is a valid handle or null; no call on it runs or follows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_receiver_free(receiver: *mut Receiver) {
    // SAFETY: the caller's promise.
    unsafe { pointer::free(receiver) }
}
