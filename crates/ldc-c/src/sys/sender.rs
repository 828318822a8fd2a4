//! Sending messages, and changing them before they leave.

use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use ldc_linux::any;

use crate::status::{Failure, Status, run};
use crate::sys::pointer::{self, Handle, duplicate};
use crate::types::{self, Attributes, Changed, State, Stats};

/// The sending ends of the rings of all classes, and the thread that drains them.
pub struct Sender(Mutex<any::Sender>);

impl Handle for Sender {
    type Inner = any::Sender;

    fn lock(&self) -> &Mutex<any::Sender> {
        &self.0
    }

    fn over(inner: Mutex<any::Sender>) -> Sender {
        Sender(inner)
    }
}

/// Runs a call that returns how many messages it changed.
///
/// # Safety
/// `sender` is a valid handle; `changed` points to a writable structure, or is null.
unsafe fn change(
    sender: *mut Sender,
    changed: *mut Changed,
    call: impl FnOnce(&mut any::Sender) -> ldc_linux::Changed,
) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        let (write, mut sender) =
            unsafe { (pointer::optional_out(changed)?, pointer::handle(sender)?) };
        write(call(&mut sender).into());
        Ok(())
    })
}

/// Fails unless the sender has this class, which the sends expect.
fn class(sender: &mut any::Sender, attributes: &Attributes) -> Result<usize, Failure> {
    let class = attributes.class_index as usize;
    sender.class(class)?;
    Ok(class)
}

/// Copies a message into the ring of its class, without a system call. Call `ldc_notify` afterwards, once for many messages.
/// Several messages may have the same sequence number.
///
/// Returns `LDC_STATUS_FULL`, `LDC_STATUS_TOO_LONG` or `LDC_STATUS_CLOSED` if nothing was sent.
///
/// # Safety
/// `sender` is a valid handle, `bytes` points to `len` bytes, `attributes` points to a structure or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_send(
    sender: *mut Sender,
    seq: u64,
    bytes: *const u8,
    len: usize,
    attributes: *const Attributes,
) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        let (bytes, attributes, mut sender) = unsafe {
            (
                pointer::elements(bytes, len)?,
                pointer::input(attributes)?,
                pointer::handle(sender)?,
            )
        };
        let class = class(&mut sender, &attributes)?;
        Ok(sender.send(class, seq, bytes, attributes.into())?)
    })
}

/// As `ldc_send`, and waits for room if the ring is full, at most `timeout_us` microseconds (negative: without limit). Wakes the
/// receiver while it waits. `LDC_STATUS_FULL`: the timeout expired.
///
/// # Safety
/// As for `ldc_send`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_send_wait(
    sender: *mut Sender,
    seq: u64,
    bytes: *const u8,
    len: usize,
    attributes: *const Attributes,
    timeout_us: i64,
) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        let (bytes, attributes, mut sender) = unsafe {
            (
                pointer::elements(bytes, len)?,
                pointer::input(attributes)?,
                pointer::handle(sender)?,
            )
        };
        let class = class(&mut sender, &attributes)?;
        let timeout = types::timeout(timeout_us);
        Ok(sender.send_wait(class, seq, bytes, attributes.into(), timeout)?)
    })
}

/// Wakes the receiver if it sleeps.
///
/// # Safety
/// `sender` is a valid handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_notify(sender: *mut Sender) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        unsafe { pointer::handle(sender)?.notify() };
        Ok(())
    })
}

/// Cancels the messages with this sequence number that were not claimed.
///
/// # Safety
/// `sender` is a valid handle, `changed` points to a writable structure or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_cancel(
    sender: *mut Sender,
    seq: u64,
    changed: *mut Changed,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { change(sender, changed, |sender| sender.cancel(seq)) }
}

/// As `ldc_cancel`, and asks the receiver to stop delivering the messages that it has claimed: a drain into QUIC resets their
/// streams. Wakes the receiver.
///
/// # Safety
/// As for `ldc_cancel`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_abandon(
    sender: *mut Sender,
    seq: u64,
    changed: *mut Changed,
) -> Status {
    let abandon = |sender: &mut any::Sender| {
        let changed = sender.abandon(seq);
        sender.notify();
        changed
    };
    // SAFETY: the caller's promise.
    unsafe { change(sender, changed, abandon) }
}

/// Overwrites `len` bytes from `offset` on of the oldest message with this sequence number that was not claimed.
///
/// Returns `LDC_STATUS_UNKNOWN`, `LDC_STATUS_TOO_LATE`, `LDC_STATUS_CANCELLED`, or `LDC_STATUS_TOO_LONG` if the bytes exceed
/// the message.
///
/// # Safety
/// `sender` is a valid handle, `bytes` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_modify(
    sender: *mut Sender,
    seq: u64,
    offset: usize,
    bytes: *const u8,
    len: usize,
) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        let (bytes, mut sender) =
            unsafe { (pointer::elements(bytes, len)?, pointer::handle(sender)?) };
        sender.modify(seq, offset, bytes)?;
        sender.notify();
        Ok(())
    })
}

/// Replaces the oldest message with this sequence number that was not claimed. The new one must take as many slots.
///
/// # Safety
/// As for `ldc_modify`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_replace(
    sender: *mut Sender,
    seq: u64,
    bytes: *const u8,
    len: usize,
) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        let (bytes, mut sender) =
            unsafe { (pointer::elements(bytes, len)?, pointer::handle(sender)?) };
        sender.replace(seq, bytes)?;
        sender.notify();
        Ok(())
    })
}

/// Holds back the oldest message with this sequence number and all messages of its class sent after it, and those sent from
/// now on. Messages that were claimed stay claimed.
///
/// # Safety
/// As for `ldc_cancel`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_hold_back(
    sender: *mut Sender,
    seq: u64,
    changed: *mut Changed,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { change(sender, changed, |sender| sender.hold_back(seq)) }
}

/// Holds back all messages that were not claimed.
///
/// # Safety
/// As for `ldc_cancel`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_hold_back_all(sender: *mut Sender, changed: *mut Changed) -> Status {
    // SAFETY: the caller's promise.
    unsafe { change(sender, changed, any::Sender::hold_back_all) }
}

/// Ends the hold-back, and wakes the receiver.
///
/// # Safety
/// `sender` is a valid handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_release(sender: *mut Sender) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        let mut sender = unsafe { pointer::handle(sender)? };
        sender.release();
        sender.notify();
        Ok(())
    })
}

/// Ends the hold-back for the messages sent before the oldest held one with this sequence number, and wakes the receiver.
/// `LDC_STATUS_UNKNOWN`: no such message is held back.
///
/// # Safety
/// `sender` is a valid handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_release_until(sender: *mut Sender, seq: u64) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        let mut sender = unsafe { pointer::handle(sender)? };
        if !sender.release_until(seq) {
            return Err(Status::Unknown.into());
        }
        sender.notify();
        Ok(())
    })
}

/// Returns the sequence number of the next acknowledged message in `seq`. `LDC_STATUS_EMPTY`: there is none.
///
/// # Safety
/// `sender` is a valid handle, `seq` points to a writable number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_poll_ack(sender: *mut Sender, seq: *mut u64) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        let (write, mut sender) = unsafe { (pointer::out(seq)?, pointer::handle(sender)?) };
        write(sender.poll_ack().ok_or(Status::Empty)?);
        Ok(())
    })
}

/// Waits until `slots` slots of a class are free, at most `timeout_us` microseconds (negative: without limit).
///
/// # Safety
/// `sender` is a valid handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_wait_room(
    sender: *mut Sender,
    class_index: u32,
    slots: u32,
    timeout_us: i64,
) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        let mut sender = unsafe { pointer::handle(sender)? };
        let class = sender.class(class_index as usize)?;
        Ok(class.wait_room(slots, types::timeout(timeout_us))?)
    })
}

/// Returns the descriptor that becomes readable when the receiver of a class has freed slots that `ldc_wait_room` asked for
/// with a timeout of 0, closed the ring or died; -1 on failure. It belongs to the handle.
///
/// # Safety
/// `sender` is a valid handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_sender_fd(sender: *mut Sender, class_index: u32) -> i32 {
    let mut fd = -1;
    run(|| {
        // SAFETY: the caller's promise.
        let mut sender = unsafe { pointer::handle(sender)? };
        fd = sender.class(class_index as usize)?.as_fd().as_raw_fd();
        Ok(())
    });
    fd
}

/// Returns the state of the ring of a class. Counts the pending messages one by one.
///
/// # Safety
/// `sender` is a valid handle, `state` points to a writable structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_sender_state(
    sender: *mut Sender,
    class_index: u32,
    state: *mut State,
) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        let (write, mut sender) = unsafe { (pointer::out(state)?, pointer::handle(sender)?) };
        let ring = sender.state(class_index as usize)?;
        write(State {
            slots: ring.shape.slots(),
            slot_bytes: ring.shape.slot_bytes(),
            free_slots: ring.free_slots,
            pending: ring.pending,
            is_holding_back: ring.is_holding_back,
            is_closed: ring.is_closed,
            is_attached: ring.is_attached,
            has_ended: sender.has_ended(),
        });
        Ok(())
    })
}

/// Passes a ring of shared memory whose receiver died to the process at the other end of the Unix socket `fd`, which calls
/// `ldc_receiver_attach`. Messages that were claimed and not completed are claimed again.
///
/// # Safety
/// `sender` is a valid handle, `fd` a descriptor of the caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_pass(sender: *mut Sender, fd: i32) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        let mut sender = unsafe { pointer::handle(sender)? };
        // SAFETY: the caller's promise.
        let socket = UnixStream::from(unsafe { duplicate(fd)? });
        Ok(sender.class(0)?.pass(socket)?)
    })
}

/// Closes the rings, and waits until all messages have left and the drain has ended, at most `timeout_us` microseconds
/// (negative: without limit). `LDC_STATUS_TIMED_OUT`: call it again; messages can be cancelled meanwhile. `LDC_STATUS_FAILED`: the
/// drain ended early, `ldc_last_error` says why. `LDC_STATUS_HELD_BACK`: nothing was done. A ring that another thread or process
/// empties is closed, and not waited for. The handle must be freed afterwards.
///
/// # Safety
/// `sender` is a valid handle, `stats` points to a writable structure or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_finish(
    sender: *mut Sender,
    timeout_us: i64,
    stats: *mut Stats,
) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        let (write, mut sender) =
            unsafe { (pointer::optional_out(stats)?, pointer::handle(sender)?) };
        let ended = sender.finish(types::timeout(timeout_us))?;
        write(ended.ok_or(Status::TimedOut)?.into());
        Ok(())
    })
}

/// Frees a sender; null is ignored. The thread of its drain continues until all messages have left or sending fails.
///
/// # Safety
/// `sender` is a valid handle or null; no call on it runs or follows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_sender_free(sender: *mut Sender) {
    // SAFETY: the caller's promise.
    unsafe { pointer::free(sender) }
}
