//! Printing: results to standard output, messages to standard error. A failed write never stops the work.
//!
//! The same rule holds for all programs:
//!
//! | what cannot be written | effect |
//! | --- | --- |
//! | a message (standard error) | it is lost; work and exit code are unchanged |
//! | a result, because the reader has closed the pipe | the rest is not printed; the exit code is unchanged |
//! | a result, for any other reason (a full disk) | one message on standard error; the rest is not printed, the work continues, and the program ends with [`exit::UNWRITTEN`] |
//!
//! Results are text on standard output, and the events of `--json` on either stream. A program that cannot write the
//! data itself (`--output -`) ends with the same code, without a message if the reader has closed the pipe.
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

/// State of the results of this process.
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

/// Prints text of the result on standard output unchanged.
pub fn text(text: &str) {
    // Print a failure after `suspend` has returned: it does not nest.
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

/// Writes nothing once a piece was lost, so that a result has no gaps.
fn try_write(writer: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    if STATE.load(Ordering::Relaxed) != WRITTEN {
        return Ok(());
    }
    writer.write_all(bytes)?;
    writer.flush()
}

/// Records that a piece of the result was not written.
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

/// Returns `code`, or [`crate::exit::UNWRITTEN`] if a result was lost.
pub fn exit_code(code: impl Into<ExitCode>) -> ExitCode {
    match STATE.load(Ordering::Relaxed) {
        LOST => ExitCode::from(crate::exit::UNWRITTEN),
        _ => code.into(),
    }
}
