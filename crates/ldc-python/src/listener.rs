//! Receiving over QUIC: one sender at a time.

use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Mutex;

use ldc_linux::quic;
use pyo3::exceptions::PyTimeoutError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::convert;
use crate::error::{self, LdcError, enter, enter_open};

/// The receiving end of QUIC connections.
#[pyclass(frozen, module = "polycast_ldc")]
pub(crate) struct Listener(Mutex<Option<quic::Receiver>>);

/// What happened on the connection of a sender.
#[pyclass(frozen, get_all, module = "polycast_ldc")]
pub(crate) struct Event {
    /// "connected", "message", "done" or "failed".
    kind: &'static str,
    /// The bytes of a message.
    data: Option<Py<PyBytes>>,
    /// The address of a sender that connected; why a connection failed.
    text: Option<String>,
}

#[pymethods]
impl Event {
    fn __repr__(&self) -> String {
        format!("Event(kind={:?}, text={:?})", self.kind, self.text)
    }
}

/// Listen on an address and a port, such as `[::]:0` (any free port).
#[pyfunction]
#[pyo3(signature = (local, key_file, *, max_message=1 << 20, streams=1024, buffer=16 << 20, idle_timeout=30.0,
    setup_timeout=10.0))]
pub(crate) fn listen(
    local: &str,
    key_file: PathBuf,
    max_message: usize,
    streams: u32,
    buffer: usize,
    idle_timeout: f64,
    setup_timeout: f64,
) -> PyResult<Listener> {
    let limits = quic::Limits {
        message: max_message,
        streams,
        buffer,
        idle_timeout: convert::seconds(idle_timeout)?,
        setup_timeout: convert::seconds(setup_timeout)?,
    };
    let local = convert::address(local)?;
    let server = convert::credentials(&key_file)?.server;
    let receiver = quic::Receiver::bind(local, server, limits).map_err(error::init)?;
    Ok(Listener(Mutex::new(Some(receiver))))
}

#[pymethods]
impl Listener {
    /// The port.
    #[getter]
    fn port(&self) -> PyResult<u16> {
        enter_open(&self.0, |receiver| {
            let address = receiver.local_address();
            Ok(address.map_err(convert::os)?.port())
        })
    }

    /// Wait for the next event. TimeoutError: none has happened.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Event> {
        let timeout = convert::timeout(timeout)?;
        enter_open(&self.0, |receiver| {
            let event = convert::wait(py, timeout, |left| {
                let event = py.detach(|| receiver.wait(left));
                event.map_err(|error| LdcError::new_err(error.to_string()))
            })?;
            let event = event.ok_or_else(|| PyTimeoutError::new_err("nothing has happened"))?;
            Ok(Event::of(py, event))
        })
    }

    /// Close the connection of the sender that is served, with a reason that it sees.
    fn refuse(&self, reason: &str) -> PyResult<()> {
        enter_open(&self.0, |receiver| {
            receiver.refuse(reason);
            Ok(())
        })
    }

    /// Return the socket, for event loops.
    fn fileno(&self) -> PyResult<i32> {
        enter_open(&self.0, |receiver| Ok(receiver.socket().as_raw_fd()))
    }

    /// Close the connection and the socket.
    fn close(&self) -> PyResult<()> {
        if let Some(receiver) = enter(&self.0)?.take() {
            receiver.close();
        }
        Ok(())
    }

    fn __enter__(this: Py<Listener>) -> Py<Listener> {
        this
    }

    fn __exit__(
        &self,
        _raised: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        self.close()?;
        Ok(false)
    }
}

impl Event {
    fn of(py: Python<'_>, event: quic::Event) -> Event {
        let (kind, data, text) = match event {
            quic::Event::Connected(from) => ("connected", None, Some(from.to_string())),
            quic::Event::Message(bytes) => {
                ("message", Some(PyBytes::new(py, &bytes).unbind()), None)
            }
            quic::Event::Done => ("done", None, None),
            quic::Event::Failed(error) => ("failed", None, Some(error.to_string())),
        };
        Event { kind, data, text }
    }
}
