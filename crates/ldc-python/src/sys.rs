//! Descriptors that Python has as numbers: all `unsafe` of the crate.

use std::io;
use std::os::fd::{OwnedFd, RawFd};

use ldc_linux::any;

/// Duplicates a descriptor.
///
/// # Errors
/// The kernel's: the number is no descriptor, or no more can be opened.
pub(crate) fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: a Python program names descriptors by number and answers for them, as in calls of `os.dup`. Descriptors of
    // this library's own objects reach Python by `fileno()` alone, whose copies end no wait and close nothing.
    unsafe { any::duplicate(number) }
}
