//! Texts, the version and the clock.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};

use crate::status::{Status, last_error};

/// Returns a sentence for a status. It is never null and never freed.
#[unsafe(no_mangle)]
pub extern "C" fn ldc_status_text(status: i32) -> *const c_char {
    let known = Status::from_number(status);
    known.map_or(c"unknown status", Status::text).as_ptr()
}

/// Returns a sentence about the last failure of the calling thread, or "no error". It is valid until the next call of this
/// function on the same thread, and must not be freed.
#[unsafe(no_mangle)]
pub extern "C" fn ldc_last_error() -> *const c_char {
    thread_local! {
        static SHOWN: RefCell<CString> = RefCell::default();
    }
    let copied = last_error(CStr::to_owned).unwrap_or_default();
    let shown = SHOWN.try_with(|shown| {
        shown.replace(copied);
        shown.borrow().as_ptr()
    });
    shown.unwrap_or(c"".as_ptr())
}

/// Returns the version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn ldc_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// Returns the time of the clock of deadlines, CLOCK_MONOTONIC, in microseconds.
#[unsafe(no_mangle)]
pub extern "C" fn ldc_now_us() -> i64 {
    ldc_linux::now().total_micros()
}
