//! Late data choice (LDC) for Python: the module `polycast_ldc` over the rings and drains of `ldc-linux`.
//!
//! `polycast_ldc.pyi` is the interface as Python programs see it, with the documentation of each call. README.md shows how to build it.
//!
//! # Layout
//!
//! | module | contents |
//! | --- | --- |
//! | `sender` | `Sender`, and what its calls return |
//! | `open` | functions that create senders |
//! | `receiver` | `Receiver`: a ring of shared memory |
//! | `listener` | `Listener`: QUIC |
//! | `error` | exceptions |
//! | `convert` | arguments: times, buffers, sockets |
//! | `sys` | descriptors that Python has as numbers |
//!
//! # Threads
//!
//! Each call that can wait releases the global interpreter lock. An object serves one thread at a time: a second call meanwhile raises
//! `BusyError`, and waits for nothing. No call keeps a buffer of Python after it returns.

mod convert;
mod error;
mod listener;
mod open;
mod receiver;
mod sender;
#[allow(unsafe_code, reason = "descriptors that Python has as numbers")]
mod sys;

use pyo3::prelude::*;

/// Late data choice: messages that have not left the host can still be cancelled, changed or held back.
#[pymodule]
mod polycast_ldc {
    #[pymodule_export]
    use super::error::{
        BusyError, CancelledError, ClosedError, CorruptError, FullError, GoneError, HeldBackError,
        LdcError, LengthError, TooLateError, UnknownError,
    };
    #[pymodule_export]
    use super::listener::{Event, Listener, listen};
    #[pymodule_export]
    use super::open::{now, open_pair, open_quic, open_shm, open_tcp, open_udp};
    #[pymodule_export]
    use super::receiver::{Message, Receiver, attach};
    #[pymodule_export]
    use super::sender::{Changed, Sender, State, Stats};

    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
