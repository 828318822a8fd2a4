//! Exceptions. A timeout is the built-in `TimeoutError`, a wrong argument `ValueError`.

use std::sync::{Mutex, MutexGuard, TryLockError};

use ldc_linux::{InitError, ModifyError, SendError, ShapeError, WaitError, any};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyRuntimeError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;

create_exception!(
    polycast_ldc,
    LdcError,
    PyException,
    "A call of this module failed."
);
create_exception!(
    polycast_ldc,
    FullError,
    LdcError,
    "Too few slots of the ring are free."
);
create_exception!(
    polycast_ldc,
    LengthError,
    LdcError,
    "A message is longer than the ring, the buffer or the message that it replaces."
);
create_exception!(
    polycast_ldc,
    ClosedError,
    LdcError,
    "The ring is closed, or its drain has ended."
);
create_exception!(polycast_ldc, GoneError, LdcError, "The other process died.");
create_exception!(
    polycast_ldc,
    UnknownError,
    LdcError,
    "No such message is in the ring."
);
create_exception!(
    polycast_ldc,
    TooLateError,
    LdcError,
    "The consumer has claimed the message already."
);
create_exception!(
    polycast_ldc,
    CancelledError,
    LdcError,
    "The message was cancelled."
);
create_exception!(
    polycast_ldc,
    HeldBackError,
    LdcError,
    "Messages are held back, and so the ring cannot end."
);
create_exception!(
    polycast_ldc,
    CorruptError,
    LdcError,
    "The other process violated the protocol of the ring."
);
create_exception!(
    polycast_ldc,
    BusyError,
    LdcError,
    "Another thread is in a call on the same object."
);

/// Returns the exception of a failed send.
pub(crate) fn send(error: SendError) -> PyErr {
    let text = error.to_string();
    match error {
        SendError::Full => FullError::new_err(text),
        SendError::TooLong => LengthError::new_err(text),
        SendError::Closed => ClosedError::new_err(text),
        SendError::Gone => GoneError::new_err(text),
    }
}

/// Returns the exception of a failed wait.
pub(crate) fn wait(error: WaitError) -> PyErr {
    let text = error.to_string();
    match error {
        WaitError::TimedOut => PyTimeoutError::new_err(text),
        WaitError::Closed => ClosedError::new_err(text),
        WaitError::Gone => GoneError::new_err(text),
    }
}

/// Returns the exception of a failed change.
pub(crate) fn change(error: any::ChangeError) -> PyErr {
    let text = error.to_string();
    match error {
        any::ChangeError::Modify(ModifyError::Unknown) => UnknownError::new_err(text),
        any::ChangeError::Modify(ModifyError::TooLate) => TooLateError::new_err(text),
        any::ChangeError::Modify(ModifyError::Cancelled) => CancelledError::new_err(text),
        any::ChangeError::Length => LengthError::new_err(text),
    }
}

/// Returns the exception of a ring that could not be created.
pub(crate) fn init(error: InitError) -> PyErr {
    let text = error.to_string();
    match error {
        InitError::Gone => GoneError::new_err(text),
        InitError::Closed => ClosedError::new_err(text),
        _ => LdcError::new_err(text),
    }
}

/// Returns the exception of a drain that ended early.
pub(crate) fn drain(error: any::Error) -> PyErr {
    let text = error.to_string();
    match error {
        any::Error::HeldBack => HeldBackError::new_err(text),
        any::Error::Finished => ClosedError::new_err(text),
        _ => LdcError::new_err(text),
    }
}

/// Returns the exception of a wrong shape.
pub(crate) fn shape(error: ShapeError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Enters an object; refuses a second thread.
pub(crate) fn enter<T>(object: &Mutex<T>) -> PyResult<MutexGuard<'_, T>> {
    object.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => {
            BusyError::new_err("another thread is in a call on this object")
        }
        TryLockError::Poisoned(_) => PyRuntimeError::new_err(
            "an earlier call on this object panicked, a bug of polycast_ldc: create a new object",
        ),
    })
}

/// Enters an object that can be closed.
pub(crate) fn enter_open<T, R>(
    object: &Mutex<Option<T>>,
    call: impl FnOnce(&mut T) -> PyResult<R>,
) -> PyResult<R> {
    match &mut *enter(object)? {
        Some(open) => call(open),
        None => Err(ClosedError::new_err("the object was closed")),
    }
}
