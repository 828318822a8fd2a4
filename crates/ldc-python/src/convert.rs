//! Arguments from Python.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{self, Duration};

use control_stream::tls::Credentials;
use ldc_linux::{Attributes, Instant, Shape};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::{self, LdcError};
use crate::sys;

/// Ten years: sums with the clock do not overflow.
const MAX_SECONDS: f64 = 10.0 * 365.0 * 24.0 * 3600.0;

/// Returns a duration in seconds.
pub(crate) fn seconds(seconds: f64) -> PyResult<Duration> {
    let clamped = seconds.clamp(0.0, MAX_SECONDS);
    Duration::try_from_secs_f64(clamped)
        .map_err(|_| PyValueError::new_err("a time is a number of seconds"))
}

/// Returns a timeout in seconds.
pub(crate) fn timeout(timeout: Option<f64>) -> PyResult<Option<Duration>> {
    timeout.map(seconds).transpose()
}

/// Returns the attributes of a message. The deadline is a time of `now()`, which is that of `time.monotonic()`.
pub(crate) fn attributes(deadline: Option<f64>, priority: u32) -> PyResult<Attributes> {
    let at = |deadline: f64| {
        if deadline.is_finite() {
            // The cast saturates.
            Ok(Instant::from_micros((deadline * 1e6) as i64))
        } else {
            Err(PyValueError::new_err(
                "a deadline is a time of now(), in seconds",
            ))
        }
    };
    Ok(Attributes {
        deadline: deadline.map(at).transpose()?,
        priority,
    })
}

/// Returns a time as Python has it.
pub(crate) fn monotonic(at: Instant) -> f64 {
    at.total_micros() as f64 / 1e6
}

/// Calls `with` with the bytes of any object that has the buffer protocol. Those of `bytes` are not copied.
pub(crate) fn with_bytes<R>(
    data: &Bound<'_, PyAny>,
    with: impl FnOnce(&[u8]) -> PyResult<R>,
) -> PyResult<R> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return with(bytes.as_bytes());
    }
    let buffer = PyBuffer::<u8>::get(data)?;
    with(&buffer.to_vec(data.py())?)
}

/// Copies bytes to the start of a writable buffer. Returns `false` and copies nothing if they exceed it.
pub(crate) fn fill(buffer: &PyBuffer<u8>, py: Python<'_>, bytes: &[u8]) -> PyResult<bool> {
    let Some(cells) = buffer.as_mut_slice(py) else {
        return Err(PyValueError::new_err(
            "the buffer is read-only or not contiguous",
        ));
    };
    if bytes.len() > cells.len() {
        return Ok(false);
    }
    for (cell, byte) in cells.iter().zip(bytes) {
        cell.set(*byte);
    }
    Ok(true)
}

/// Returns the exception of a failed system call.
pub(crate) fn os(error: std::io::Error) -> PyErr {
    PyOSError::new_err((error.raw_os_error(), error.to_string()))
}

/// Calls `step` with the time that it may take until it returns a value, at most `timeout` in all (`None`: without limit); lets
/// Python handle signals every 100 ms. `None` if the timeout expired.
pub(crate) fn wait<R>(
    py: Python<'_>,
    timeout: Option<Duration>,
    mut step: impl FnMut(Duration) -> PyResult<Option<R>>,
) -> PyResult<Option<R>> {
    const STEP: Duration = Duration::from_millis(100);
    let end = timeout.and_then(|timeout| time::Instant::now().checked_add(timeout));
    loop {
        let left = end.map_or(STEP, |end| {
            end.saturating_duration_since(time::Instant::now())
        });
        if let Some(value) = step(left.min(STEP))? {
            return Ok(Some(value));
        }
        if left.is_zero() {
            return Ok(None);
        }
        py.check_signals()?;
    }
}

/// Duplicates the descriptor of a socket, or of a number.
pub(crate) fn socket(socket: &Bound<'_, PyAny>) -> PyResult<OwnedFd> {
    let number: i32 = match socket.extract() {
        Ok(number) => number,
        Err(_) => socket.call_method0("fileno")?.extract()?,
    };
    sys::duplicate(number).map_err(os)
}

/// Returns the geometry of a ring.
pub(crate) fn shape(slots: u32, slot_bytes: u32) -> PyResult<Shape> {
    Shape::new(slots, slot_bytes).map_err(error::shape)
}

/// Returns an address and a port.
pub(crate) fn address(text: &str) -> PyResult<SocketAddr> {
    text.parse().map_err(|_| {
        PyValueError::new_err(format!(
            "{text:?} is not an address and a port, such as 192.0.2.1:4000 or [::1]:4000"
        ))
    })
}

/// Reads a key file.
pub(crate) fn credentials(path: &Path) -> PyResult<Credentials> {
    Credentials::read(path).map_err(LdcError::new_err)
}
