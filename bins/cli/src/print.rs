//! Printing: results go to standard output, messages to standard error, and neither stops the work.
//!
//! One rule for all programs:
//!
//! | what cannot be written | what happens |
//! | --- | --- |
//! | a message (standard error) | it is lost; the work and its exit code are what they would have been |
//! | a result, the reader has closed the pipe | the rest is not printed; the exit code stays |
//! | a result, for any other reason (a full disk) | one line on standard error, the rest is not printed, the work goes on, and the program ends with [`exit::UNWRITTEN`] whatever the work came to |
//!
//! A result is what a program was started to print: text on standard output, and the events of `--json`
//! wherever they go. Data that is passed on (`--output -`) is the work itself: a program that cannot write it
//! ends with the same code, and without a message where the reader has closed the pipe.
//!
//! [`exit::UNWRITTEN`]: crate::exit::UNWRITTEN

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU8, Ordering};

/// All results so far were written.
const WRITTEN: u8 = 0;
/// The reader has closed the pipe.
const CLOSED: u8 = 1;
/// A result was lost.
const LOST: u8 = 2;

/// What has become of the results of this process.
static STATE: AtomicU8 = AtomicU8::new(WRITTEN);

/// Prints a line of the result on standard output, as `println!` does.
#[macro_export]
macro_rules! print_result {
    ($($text:tt)*) => { $crate::print::result(::core::format_args!($($text)*)) };
}

/// Prints a line for people on standard error, as `eprintln!` does, above any progress bar.
#[macro_export]
macro_rules! print_message {
    ($($text:tt)*) => { $crate::print::message(::core::format_args!($($text)*)) };
}

/// Prints a line of the result on standard output; see [`crate::print_result`].
pub fn result(line: fmt::Arguments<'_>) {
    text(&format!("{line}\n"));
}

/// Prints text of the result on standard output as it is.
pub fn text(text: &str) {
    // The bars are back before a failure is printed: `suspend` does not nest.
    let written = crate::progress::suspend(|| try_write(&mut io::stdout().lock(), text.as_bytes()));
    if let Err(error) = written {
        lost(&error);
    }
}

/// Prints a line on standard error; see [`crate::print_message`].
pub fn message(line: fmt::Arguments<'_>) {
    let line = format!("{line}\n");
    // A message that cannot be written is lost.
    let _ = crate::progress::suspend(|| io::stderr().lock().write_all(line.as_bytes()));
}

/// Writes a piece of the result to `writer` and flushes it.
pub(crate) fn write(writer: &mut impl Write, bytes: &[u8]) {
    if let Err(error) = try_write(writer, bytes) {
        lost(&error);
    }
}

/// Writes nothing once a piece was lost: a gap in a result would not be seen.
fn try_write(writer: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    if STATE.load(Ordering::Relaxed) != WRITTEN {
        return Ok(());
    }
    writer.write_all(bytes)?;
    writer.flush()
}

/// Notes that a piece of the result was not written.
pub(crate) fn lost(error: &io::Error) {
    let state = match error.kind() {
        io::ErrorKind::BrokenPipe => CLOSED,
        _ => LOST,
    };
    let first = STATE.compare_exchange(WRITTEN, state, Ordering::Relaxed, Ordering::Relaxed);
    if first.is_ok() && state == LOST {
        message(format_args!("error: cannot write the result: {error}"));
    }
}

/// The exit code of a program whose work came to `code`: that, unless a result was lost.
pub fn exit_code(code: impl Into<ExitCode>) -> ExitCode {
    match STATE.load(Ordering::Relaxed) {
        LOST => ExitCode::from(crate::exit::UNWRITTEN),
        _ => code.into(),
    }
}
