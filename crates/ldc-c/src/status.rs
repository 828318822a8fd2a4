//! Return codes, the text of the last failure of a thread, and the barrier that no panic passes.

use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, TryLockError};

use ldc_linux::{InitError, ModifyError, SendError, ShapeError, WaitError, any};

/// Result of a call. Everything but `LDC_STATUS_OK` leaves the output parameters as they were, unless the function says
/// otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Status {
    /// The call succeeded.
    Ok = 0,
    /// The ring has too few free slots: cancel messages, wait with `ldc_wait_room`, or discard the message.
    Full = 1,
    /// The message is longer than the ring or than the buffer.
    TooLong = 2,
    /// The other side has closed the ring, or the drain has ended; `ldc_finish` returns why.
    Closed = 3,
    /// The other process died.
    Gone = 4,
    /// The timeout expired.
    TimedOut = 5,
    /// No message with this sequence number or identifier is in the ring.
    Unknown = 6,
    /// The consumer has claimed the message already.
    TooLate = 7,
    /// The message was cancelled.
    Cancelled = 8,
    /// Messages are held back, and so the ring cannot end: release or cancel them first.
    HeldBack = 9,
    /// Nothing to return: no message, no acknowledgement, no event.
    Empty = 10,
    /// Another thread is in a call on the same handle.
    Busy = 11,
    /// An argument is invalid: a null or misaligned pointer, a number out of range, text that is not UTF-8.
    Invalid = 12,
    /// The other process violated the protocol of the ring: stop using it.
    Corrupt = 13,
    /// A system call, a connection or a key file failed; `ldc_last_error` says what to do.
    Failed = 14,
    /// A bug of this library. The handle is unusable: free it.
    Panicked = 15,
}

impl Status {
    /// Returns a sentence for the status alone.
    pub(crate) fn text(self) -> &'static CStr {
        match self {
            Status::Ok => c"no error",
            Status::Full => c"not enough free slots in the ring",
            Status::TooLong => c"the message is longer than the ring or than the buffer",
            Status::Closed => c"the ring is closed",
            Status::Gone => c"the other process is gone",
            Status::TimedOut => c"the timeout expired",
            Status::Unknown => c"no such message is in the ring",
            Status::TooLate => c"the consumer has already claimed the message",
            Status::Cancelled => c"the message was cancelled",
            Status::HeldBack => c"messages are held back: release or cancel them first",
            Status::Empty => c"nothing to return",
            Status::Busy => c"another thread is in a call on this handle",
            Status::Invalid => c"an argument is invalid",
            Status::Corrupt => c"the other process violated the protocol of the ring",
            Status::Failed => c"the operation failed",
            Status::Panicked => c"a bug of the library: free the handle",
        }
    }

    /// Returns the status with this number.
    pub(crate) fn from_number(number: i32) -> Option<Status> {
        let all = [
            Status::Ok,
            Status::Full,
            Status::TooLong,
            Status::Closed,
            Status::Gone,
            Status::TimedOut,
            Status::Unknown,
            Status::TooLate,
            Status::Cancelled,
            Status::HeldBack,
            Status::Empty,
            Status::Busy,
            Status::Invalid,
            Status::Corrupt,
            Status::Failed,
            Status::Panicked,
        ];
        all.into_iter().find(|status| *status as i32 == number)
    }
}

/// A failure on its way to C.
#[derive(Debug)]
pub(crate) struct Failure {
    status: Status,
    /// More than the status says.
    detail: Option<String>,
}

impl Failure {
    pub(crate) fn new(status: Status, detail: impl Into<String>) -> Failure {
        Failure {
            status,
            detail: Some(detail.into()),
        }
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Failure {
        Failure::new(Status::Invalid, detail)
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        Failure {
            status,
            detail: None,
        }
    }
}

impl From<SendError> for Failure {
    fn from(error: SendError) -> Failure {
        Failure::from(match error {
            SendError::Full => Status::Full,
            SendError::TooLong => Status::TooLong,
            SendError::Closed => Status::Closed,
            SendError::Gone => Status::Gone,
        })
    }
}

impl From<WaitError> for Failure {
    fn from(error: WaitError) -> Failure {
        Failure::from(match error {
            WaitError::TimedOut => Status::TimedOut,
            WaitError::Closed => Status::Closed,
            WaitError::Gone => Status::Gone,
        })
    }
}

impl From<any::ChangeError> for Failure {
    fn from(error: any::ChangeError) -> Failure {
        match error {
            any::ChangeError::Modify(ModifyError::Unknown) => Status::Unknown.into(),
            any::ChangeError::Modify(ModifyError::TooLate) => Status::TooLate.into(),
            any::ChangeError::Modify(ModifyError::Cancelled) => Status::Cancelled.into(),
            any::ChangeError::Length => Failure::new(Status::TooLong, error.to_string()),
        }
    }
}

impl From<InitError> for Failure {
    fn from(error: InitError) -> Failure {
        let status = match error {
            InitError::Gone => Status::Gone,
            InitError::Closed => Status::Closed,
            _ => Status::Failed,
        };
        Failure::new(status, error.to_string())
    }
}

impl From<any::Error> for Failure {
    fn from(error: any::Error) -> Failure {
        let status = match error {
            any::Error::HeldBack => Status::HeldBack,
            any::Error::Finished => Status::Closed,
            any::Error::Panicked => Status::Panicked,
            _ => Status::Failed,
        };
        Failure::new(status, error.to_string())
    }
}

impl From<ShapeError> for Failure {
    fn from(error: ShapeError) -> Failure {
        Failure::invalid(error.to_string())
    }
}

impl From<any::NoClass> for Failure {
    fn from(error: any::NoClass) -> Failure {
        Failure::invalid(error.to_string())
    }
}

/// The last failure of a thread.
enum Last {
    Status(Status),
    Detail(CString),
}

thread_local! {
    static LAST: RefCell<Last> = const { RefCell::new(Last::Status(Status::Ok)) };
}

/// Runs the body of a call, remembers its failure, and turns a panic into a status.
pub(crate) fn run(body: impl FnOnce() -> Result<(), Failure>) -> Status {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return Status::Ok,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            // The payload of a panic may panic when it is dropped.
            std::mem::forget(panic);
            Status::Panicked.into()
        }
    };
    let last = match failure.detail {
        None => Last::Status(failure.status),
        // A detail holds text from outside, which may have a null byte.
        Some(detail) => Last::Detail(CString::new(detail.replace('\0', "?")).unwrap_or_default()),
    };
    // Fails only while the thread ends.
    let _ = LAST.try_with(|cell| cell.replace(last));
    failure.status
}

/// Calls `with` with the text of the last failure of this thread.
pub(crate) fn last_error<R>(with: impl FnOnce(&CStr) -> R) -> Option<R> {
    let read = |cell: &RefCell<Last>| match &*cell.borrow() {
        Last::Status(status) => with(status.text()),
        Last::Detail(detail) => with(detail),
    };
    LAST.try_with(read).ok()
}

/// Enters a handle; refuses a second thread.
pub(crate) fn enter<T>(handle: &Mutex<T>) -> Result<MutexGuard<'_, T>, Failure> {
    handle.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => Status::Busy.into(),
        TryLockError::Poisoned(_) => Status::Panicked.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_status_and_makes_the_handle_unusable() {
        let handle = Mutex::new(0);
        let panicking = || -> Result<(), Failure> {
            let mut number = enter(&handle)?;
            *number = 1;
            panic!("on purpose")
        };
        assert_eq!(run(panicking), Status::Panicked);
        assert_eq!(run(|| enter(&handle).map(|_| ())), Status::Panicked);
        let text = last_error(|text| text.to_owned());
        assert_eq!(text.as_deref(), Some(Status::Panicked.text()));
    }

    #[test]
    fn a_second_thread_is_refused() {
        let handle = Mutex::new(0);
        let held = enter(&handle);
        assert_eq!(run(|| enter(&handle).map(|_| ())), Status::Busy);
        drop(held);
        assert_eq!(run(|| enter(&handle).map(|_| ())), Status::Ok);
    }

    #[test]
    fn details_with_null_bytes_are_kept_readable() {
        assert_eq!(run(|| Err(Failure::invalid("a\0b"))), Status::Invalid);
        assert_eq!(last_error(|text| text.to_owned()).as_deref(), Some(c"a?b"));
    }
}
