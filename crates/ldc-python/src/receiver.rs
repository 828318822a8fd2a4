//! The receiving end of a ring.

use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::time::Duration;

use ldc_linux::{Claimed, Wake, any, shm};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTimeoutError;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::convert;
use crate::error::{
    self, ClosedError, CorruptError, FullError, GoneError, LengthError, UnknownError, enter,
    enter_open,
};

/// The receiving end of a ring: another thread, or another process over shared memory.
#[pyclass(frozen, module = "polycast_ldc")]
pub(crate) struct Receiver(Mutex<Option<any::Receiver>>);

/// A message that was received or claimed.
#[pyclass(frozen, get_all, module = "polycast_ldc")]
pub(crate) struct Message {
    /// Number of a claimed message in calls on its receiver.
    id: Option<u64>,
    /// Sequence number chosen by the sender.
    seq: u64,
    /// Length, bytes.
    length: usize,
    /// Time of now() after which the message is worthless.
    deadline: Option<f64>,
    /// Larger values are more important.
    priority: u32,
    /// The bytes, of a message that receive() returned.
    data: Option<Py<PyBytes>>,
}

#[pymethods]
impl Message {
    fn __len__(&self) -> usize {
        self.length
    }

    fn __repr__(&self) -> String {
        format!("Message(seq={}, length={})", self.seq, self.length)
    }
}

impl Message {
    fn of(claimed: &Claimed) -> Message {
        Message {
            id: None,
            seq: claimed.user_seq(),
            length: claimed.len(),
            deadline: claimed.deadline().map(convert::monotonic),
            priority: claimed.priority(),
            data: None,
        }
    }
}

fn corrupt(error: impl ToString) -> PyErr {
    CorruptError::new_err(error.to_string())
}

fn unknown(id: u64) -> PyErr {
    UnknownError::new_err(format!("no claimed message has the number {id}"))
}

/// Waits until there is a message, which the next `peek` or `claim` returns.
fn wait(receiver: &mut any::Receiver, py: Python<'_>, timeout: Option<Duration>) -> PyResult<()> {
    let arrived = convert::wait(py, timeout, |left| {
        if receiver.peek().map_err(corrupt)?.is_some() {
            return Ok(Some(()));
        }
        if receiver.ring().is_ended() {
            return Err(ClosedError::new_err("the sender has closed the ring"));
        }
        match py.detach(|| receiver.wait(Some(left))) {
            Wake::Gone => Err(GoneError::new_err("the sending process died")),
            Wake::Ready | Wake::Closed | Wake::TimedOut => {
                Ok(receiver.peek().map_err(corrupt)?.map(|_| ()))
            }
        }
    })?;
    arrived.ok_or_else(|| PyTimeoutError::new_err("no message has arrived"))
}

impl Receiver {
    pub(crate) fn new(receiver: any::Receiver) -> Receiver {
        Receiver(Mutex::new(Some(receiver)))
    }

    fn with<R>(&self, call: impl FnOnce(&mut any::Receiver) -> PyResult<R>) -> PyResult<R> {
        enter_open(&self.0, call)
    }

    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Message> {
        let timeout = convert::timeout(timeout)?;
        self.with(|receiver| {
            wait(receiver, py, timeout)?;
            let next = receiver.peek().map_err(corrupt)?;
            let mut message = Message::of(next.ok_or_else(|| corrupt("no message"))?);
            let data = PyBytes::new_with(py, message.length, |bytes| {
                receiver.take(bytes);
                Ok(())
            })?;
            message.data = Some(data.unbind());
            Ok(message)
        })
    }
}

/// Attach to the ring that the process at the other end of a Unix socket offers, of at most max_bytes. It need not be trusted.
/// TimeoutError: no offer has arrived.
#[pyfunction]
#[pyo3(signature = (socket, *, max_bytes=64 << 20, timeout=None))]
pub(crate) fn attach(
    py: Python<'_>,
    socket: &Bound<'_, PyAny>,
    max_bytes: usize,
    timeout: Option<f64>,
) -> PyResult<Receiver> {
    let timeout = convert::timeout(timeout)?;
    let socket = UnixStream::from(convert::socket(socket)?);
    let mut offer = shm::Attachment::new(socket, max_bytes);
    let arrived = convert::wait(py, timeout, |left| {
        let arrived = py.detach(|| offer.wait(left)).map_err(error::init)?;
        Ok(arrived.then_some(()))
    })?;
    arrived.ok_or_else(|| PyTimeoutError::new_err("no ring was offered"))?;
    let attached = py.detach(|| offer.attach());
    Ok(Receiver::new(attached.map_err(error::init)?.into()))
}

#[pymethods]
impl Receiver {
    /// Wait for the next message and return it. ClosedError: none will follow.
    #[pyo3(signature = (timeout=None))]
    fn receive(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Message> {
        self.next(py, timeout)
    }

    /// Wait for the next message and copy it to the start of a writable buffer. LengthError: the message stays.
    #[pyo3(signature = (buffer, timeout=None))]
    fn receive_into(
        &self,
        py: Python<'_>,
        buffer: PyBuffer<u8>,
        timeout: Option<f64>,
    ) -> PyResult<Message> {
        let timeout = convert::timeout(timeout)?;
        // Before a message is taken, which would be lost.
        if buffer.as_mut_slice(py).is_none() {
            return Err(PyValueError::new_err(
                "the buffer is read-only or not contiguous",
            ));
        }
        self.with(|receiver| {
            wait(receiver, py, timeout)?;
            let next = receiver.peek().map_err(corrupt)?;
            let message = Message::of(next.ok_or_else(|| corrupt("no message"))?);
            let room = buffer.item_count();
            if message.length > room {
                return Err(LengthError::new_err(format!(
                    "the message has {} bytes, the buffer {room}",
                    message.length
                )));
            }
            let mut bytes = vec![0; message.length];
            receiver.take(&mut bytes);
            convert::fill(&buffer, py, &bytes)?;
            Ok(message)
        })
    }

    /// Claim the next message without copying it. Its slots stay in use until complete().
    #[pyo3(signature = (timeout=None))]
    fn claim(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Message> {
        let timeout = convert::timeout(timeout)?;
        self.with(|receiver| {
            wait(receiver, py, timeout)?;
            let claimed = receiver.claim().map_err(corrupt)?;
            let (id, claimed) = claimed.ok_or_else(|| corrupt("no message"))?;
            let mut message = Message::of(claimed);
            message.id = Some(id);
            Ok(message)
        })
    }

    /// Return length bytes of a claimed message, from offset on; without a length, all that follow.
    #[pyo3(signature = (id, offset=0, length=None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        id: u64,
        offset: usize,
        length: Option<usize>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.with(|receiver| {
            let message = receiver.claimed(id).ok_or_else(|| unknown(id))?;
            let rest = message.len().checked_sub(offset);
            let length = rest.and_then(|rest| match length {
                None => Some(rest),
                Some(length) => (length <= rest).then_some(length),
            });
            let length =
                length.ok_or_else(|| LengthError::new_err("the range exceeds the message"))?;
            PyBytes::new_with(py, length, |bytes| {
                receiver.read(id, offset, bytes);
                Ok(())
            })
        })
    }

    /// Return whether the sender has abandoned a claimed message.
    fn is_abandoned(&self, id: u64) -> PyResult<bool> {
        self.with(|receiver| receiver.is_abandoned(id).ok_or_else(|| unknown(id)))
    }

    /// Tell the sender that a claimed message was acknowledged.
    fn ack(&self, id: u64) -> PyResult<()> {
        self.with(|receiver| {
            let acked = receiver.ack(id).ok_or_else(|| unknown(id))?;
            acked.map_err(|_| FullError::new_err("the sender did not take earlier ones"))
        })
    }

    /// Release the slots of a claimed message.
    fn complete(&self, id: u64) -> PyResult<()> {
        self.with(|receiver| match receiver.complete(id) {
            true => Ok(()),
            false => Err(unknown(id)),
        })
    }

    /// Return how many messages were claimed, skipped as cancelled, and skipped as expired.
    fn counters(&self) -> PyResult<(u64, u64, u64)> {
        self.with(|receiver| {
            let stats = receiver.ring().ring().stats();
            Ok((stats.claimed, stats.cancelled, stats.expired))
        })
    }

    /// Return the descriptor that becomes readable when the sender has notified or died, after a wait that timed out.
    fn fileno(&self) -> PyResult<i32> {
        self.with(|receiver| Ok(receiver.ring().as_fd().as_raw_fd()))
    }

    /// Close the ring: the sender learns of it.
    fn close(&self) -> PyResult<()> {
        drop(enter(&self.0)?.take());
        Ok(())
    }

    fn __enter__(this: Py<Receiver>) -> Py<Receiver> {
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

    fn __iter__(this: Py<Receiver>) -> Py<Receiver> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        match self.next(py, None) {
            Err(error) if error.is_instance_of::<ClosedError>(py) => Ok(None),
            other => other.map(Some),
        }
    }
}
