//! Checks of pointers from C, and what is behind them.
//!
//! Each function refuses a null or misaligned pointer. What no function can see, the caller of the library promises (the header says
//! so for each call): the memory behind a pointer is of the stated type and length, lives until the call returns, and no
//! other thread writes to it meanwhile. That promise is what every `SAFETY` comment of this module rests on.

use std::ffi::{CStr, c_char};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard};

use ldc_linux::any;

use crate::status::{Failure, Status, enter};

/// A type that C holds by pointer only, behind a lock that refuses a second thread.
pub(crate) trait Handle: Sized {
    /// What the handle holds.
    type Inner: Send;

    /// Returns the lock.
    fn lock(&self) -> &Mutex<Self::Inner>;

    /// Returns a new handle.
    fn over(inner: Mutex<Self::Inner>) -> Self;
}

fn check<T>(pointer: *const T, what: &str) -> Result<(), Failure> {
    if pointer.is_null() {
        return Err(Failure::invalid(format!("{what} is a null pointer")));
    }
    if !pointer.is_aligned() {
        return Err(Failure::invalid(format!("{what} is misaligned")));
    }
    Ok(())
}

/// Enters a handle.
///
/// # Safety
/// A pointer that is not null was returned by [`give`] for the same type, and was not freed.
pub(crate) unsafe fn handle<'a, H: Handle + 'a>(
    pointer: *const H,
) -> Result<MutexGuard<'a, H::Inner>, Failure> {
    check(pointer, "the handle")?;
    // SAFETY: the caller's promise. Shared: the lock alone gives access to the contents.
    let handle = unsafe { &*pointer };
    enter(handle.lock())
}

/// Passes a new handle to C.
///
/// # Safety
/// A pointer that is not null points to a writable pointer.
pub(crate) unsafe fn give<H: Handle>(
    out: *mut *mut H,
    make: impl FnOnce() -> Result<H::Inner, Failure>,
) -> Result<(), Failure> {
    // Before anything is made, which would be lost.
    check(out, "the output parameter")?;
    let handle = Box::into_raw(Box::new(H::over(Mutex::new(make()?))));
    // SAFETY: the caller's promise; checked above.
    unsafe { out.write(handle) };
    Ok(())
}

/// Takes a handle back and drops it. A null pointer is ignored.
///
/// # Safety
/// As for [`handle`]; and no call on the handle runs or follows.
pub(crate) unsafe fn free<H: Handle>(pointer: *mut H) {
    let body = || {
        if !pointer.is_null() {
            check(pointer, "the handle")?;
            // SAFETY: made by `Box::into_raw` in `give`, and by the caller's promise not freed before.
            drop(unsafe { Box::from_raw(pointer) });
        }
        Ok(())
    };
    let _ = crate::status::run(body);
}

/// Checks an output parameter before the call has any effect, and returns a function that writes to it.
///
/// # Safety
/// A pointer that is not null points to a writable `T`.
pub(crate) unsafe fn out<T: Copy>(pointer: *mut T) -> Result<impl FnOnce(T), Failure> {
    check(pointer, "the output parameter")?;
    // SAFETY: the caller's promise; checked above.
    Ok(move |value| unsafe { pointer.write(value) })
}

/// As [`out`], for a parameter that may be null.
///
/// # Safety
/// As for [`out`].
pub(crate) unsafe fn optional_out<T: Copy>(pointer: *mut T) -> Result<impl FnOnce(T), Failure> {
    if !pointer.is_null() {
        check(pointer, "the output parameter")?;
    }
    Ok(move |value| {
        if !pointer.is_null() {
            // SAFETY: the caller's promise; checked above.
            unsafe { pointer.write(value) }
        }
    })
}

/// Returns a copy of a structure; the default for a null pointer.
///
/// # Safety
/// A pointer that is not null points to an initialized `T`.
pub(crate) unsafe fn input<T: Copy + Default>(pointer: *const T) -> Result<T, Failure> {
    if pointer.is_null() {
        return Ok(T::default());
    }
    check(pointer, "a structure")?;
    // SAFETY: the caller's promise; checked above.
    Ok(unsafe { pointer.read() })
}

/// Returns a copy of a structure that has no default.
///
/// # Safety
/// As for [`input`].
pub(crate) unsafe fn required<T: Copy>(pointer: *const T) -> Result<T, Failure> {
    check(pointer, "a structure")?;
    // SAFETY: the caller's promise; checked above.
    Ok(unsafe { pointer.read() })
}

/// Returns `len` elements. The pointer may be null if there are none.
///
/// # Safety
/// A pointer that is not null points to `len` initialized elements.
pub(crate) unsafe fn elements<'a, T: Copy>(
    pointer: *const T,
    len: usize,
) -> Result<&'a [T], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    check(pointer, "the buffer")?;
    check_len::<T>(len)?;
    // SAFETY: the caller's promise; checked above.
    Ok(unsafe { std::slice::from_raw_parts(pointer, len) })
}

/// Returns a buffer of `len` bytes to fill. The pointer may be null if there are none.
///
/// # Safety
/// A pointer that is not null points to `len` initialized bytes that nothing else refers to.
pub(crate) unsafe fn buffer<'a>(pointer: *mut u8, len: usize) -> Result<&'a mut [u8], Failure> {
    if len == 0 {
        return Ok(&mut []);
    }
    check(pointer, "the buffer")?;
    check_len::<u8>(len)?;
    // C may not have written to the buffer: bytes without a value are no `u8`.
    // SAFETY: the caller's promise; checked above.
    unsafe {
        pointer.write_bytes(0, len);
        Ok(std::slice::from_raw_parts_mut(pointer, len))
    }
}

fn check_len<T>(len: usize) -> Result<(), Failure> {
    match len.checked_mul(size_of::<T>()) {
        Some(bytes) if isize::try_from(bytes).is_ok() => Ok(()),
        _ => Err(Failure::invalid("the buffer is longer than memory")),
    }
}

/// Returns a string.
///
/// # Safety
/// A pointer that is not null points to bytes that end with a null byte.
pub(crate) unsafe fn string<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Failure> {
    check(pointer, what)?;
    // SAFETY: the caller's promise; checked above.
    let string = unsafe { CStr::from_ptr(pointer) };
    let string = string.to_str();
    string.map_err(|_| Failure::invalid(format!("{what} is not UTF-8")))
}

/// Duplicates a descriptor. A number that is no descriptor gives an error of the kernel.
///
/// # Safety
/// As for [`any::duplicate`]: a descriptor that the calling program owns.
pub(crate) unsafe fn duplicate(fd: i32) -> Result<OwnedFd, Failure> {
    // SAFETY: the caller's promise.
    let copy = unsafe { any::duplicate(fd) };
    copy.map_err(|error| {
        Failure::new(
            Status::Failed,
            format!("cannot duplicate descriptor {fd}: {error}"),
        )
    })
}
