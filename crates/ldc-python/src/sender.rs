//! The sending end.

use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::time::Duration;

use ldc_linux::{SendError, WaitError, any};
use pyo3::exceptions::{PyTimeoutError, PyValueError};
use pyo3::prelude::*;

use crate::convert;
use crate::error::{self, UnknownError, enter, enter_open};

/// The sending end of the rings of all classes, and the thread that drains them.
#[pyclass(frozen, module = "polycast_ldc")]
pub(crate) struct Sender(Mutex<Option<any::Sender>>);

/// How many messages a call changed.
#[pyclass(frozen, get_all, module = "polycast_ldc")]
pub(crate) struct Changed {
    /// Messages changed as requested.
    changed: u32,
    /// Messages that the consumer had already claimed; they are unchanged.
    too_late: u32,
}

#[pymethods]
impl Changed {
    fn __repr__(&self) -> String {
        format!(
            "Changed(changed={}, too_late={})",
            self.changed, self.too_late
        )
    }
}

/// The state of the ring of a class.
#[pyclass(frozen, get_all, module = "polycast_ldc")]
pub(crate) struct State {
    slots: u32,
    slot_bytes: u32,
    free_slots: u32,
    pending: u32,
    is_holding_back: bool,
    is_closed: bool,
    is_attached: bool,
    has_ended: bool,
}

/// Counters of a drain that has ended; those that its kind does not have are 0.
#[pyclass(frozen, get_all, module = "polycast_ldc")]
pub(crate) struct Stats {
    messages: u64,
    bytes: u64,
    cancelled: u64,
    expired: u64,
    acked: u64,
    acks_lost: u64,
    abandoned: u64,
    refused: u64,
    too_big: u64,
    lost_packets: u64,
}

impl From<any::Stats> for Stats {
    fn from(from: any::Stats) -> Stats {
        // All of them: a new counter does not compile until it is here.
        let any::Stats {
            messages,
            bytes,
            cancelled,
            expired,
            acked,
            acks_lost,
            abandoned,
            refused,
            too_big,
            lost_packets,
        } = from;
        Stats {
            messages,
            bytes,
            cancelled,
            expired,
            acked,
            acks_lost,
            abandoned,
            refused,
            too_big,
            lost_packets,
        }
    }
}

fn no_class(error: any::NoClass) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Finishes a sender; `Ok(Ok(None))` if the timeout expired, the outer error if a signal handler of Python raised.
fn finish(
    sender: &mut any::Sender,
    py: Python<'_>,
    timeout: Option<Duration>,
) -> PyResult<Result<Option<any::Stats>, any::Error>> {
    let ended = convert::wait(py, timeout, |left| {
        Ok(py.detach(|| sender.finish(Some(left))).transpose())
    })?;
    Ok(ended.transpose())
}

impl Sender {
    pub(crate) fn new(sender: any::Sender) -> Sender {
        Sender(Mutex::new(Some(sender)))
    }

    fn with<R>(&self, call: impl FnOnce(&mut any::Sender) -> PyResult<R>) -> PyResult<R> {
        enter_open(&self.0, call)
    }

    fn change(
        &self,
        call: impl FnOnce(&mut any::Sender) -> ldc_linux::Changed,
    ) -> PyResult<Changed> {
        self.with(|sender| {
            let changed = call(sender);
            Ok(Changed {
                changed: changed.changed,
                too_late: changed.too_late,
            })
        })
    }
}

#[pymethods]
impl Sender {
    /// Copy a message into the ring of its class. Call notify() afterwards, once for many messages.
    #[pyo3(signature = (seq, data, *, deadline=None, priority=0, class_index=0))]
    fn send(
        &self,
        seq: u64,
        data: &Bound<'_, PyAny>,
        deadline: Option<f64>,
        priority: u32,
        class_index: usize,
    ) -> PyResult<()> {
        let attributes = convert::attributes(deadline, priority)?;
        convert::with_bytes(data, |bytes| {
            self.with(|sender| {
                sender.class(class_index).map_err(no_class)?;
                let sent = sender.send(class_index, seq, bytes, attributes);
                sent.map_err(error::send)
            })
        })
    }

    /// Send a message, and wait for room if the ring is full. FullError: the timeout expired.
    #[pyo3(signature = (seq, data, *, deadline=None, priority=0, class_index=0, timeout=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn send_wait(
        &self,
        py: Python<'_>,
        seq: u64,
        data: &Bound<'_, PyAny>,
        deadline: Option<f64>,
        priority: u32,
        class_index: usize,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let attributes = convert::attributes(deadline, priority)?;
        let timeout = convert::timeout(timeout)?;
        convert::with_bytes(data, |bytes| {
            self.with(|sender| {
                sender.class(class_index).map_err(no_class)?;
                let sent = convert::wait(py, timeout, |left| {
                    let sent = py.detach(|| {
                        sender.send_wait(class_index, seq, bytes, attributes, Some(left))
                    });
                    match sent {
                        Ok(()) => Ok(Some(())),
                        Err(SendError::Full) => Ok(None),
                        Err(error) => Err(error::send(error)),
                    }
                })?;
                sent.ok_or_else(|| error::send(SendError::Full))
            })
        })
    }

    /// Wake the receiver if it sleeps, and return whether it did.
    fn notify(&self) -> PyResult<bool> {
        self.with(|sender| Ok(sender.notify()))
    }

    /// Cancel the messages with this sequence number that were not claimed.
    fn cancel(&self, seq: u64) -> PyResult<Changed> {
        self.change(|sender| sender.cancel(seq))
    }

    /// Cancel, and ask the receiver to stop delivering the messages that it has claimed.
    fn abandon(&self, seq: u64) -> PyResult<Changed> {
        self.change(|sender| {
            let changed = sender.abandon(seq);
            sender.notify();
            changed
        })
    }

    /// Overwrite a part of the oldest message with this sequence number that was not claimed.
    fn modify(&self, seq: u64, offset: usize, data: &Bound<'_, PyAny>) -> PyResult<()> {
        convert::with_bytes(data, |bytes| {
            self.with(|sender| {
                sender.modify(seq, offset, bytes).map_err(error::change)?;
                sender.notify();
                Ok(())
            })
        })
    }

    /// Replace the oldest message with this sequence number that was not claimed, by one of as many slots.
    fn replace(&self, seq: u64, data: &Bound<'_, PyAny>) -> PyResult<()> {
        convert::with_bytes(data, |bytes| {
            self.with(|sender| {
                sender.replace(seq, bytes).map_err(error::change)?;
                sender.notify();
                Ok(())
            })
        })
    }

    /// Hold back the oldest message with this sequence number and all sent after it; without one, all that were not claimed.
    #[pyo3(signature = (seq=None))]
    fn hold_back(&self, seq: Option<u64>) -> PyResult<Changed> {
        self.change(|sender| match seq {
            Some(seq) => sender.hold_back(seq),
            None => sender.hold_back_all(),
        })
    }

    /// End the hold-back; with a sequence number, for the messages sent before it.
    #[pyo3(signature = (until=None))]
    fn release(&self, until: Option<u64>) -> PyResult<()> {
        self.with(|sender| {
            match until {
                None => sender.release(),
                Some(seq) if sender.release_until(seq) => {}
                Some(seq) => {
                    let text = format!("no message with the sequence number {seq} is held back");
                    return Err(UnknownError::new_err(text));
                }
            }
            sender.notify();
            Ok(())
        })
    }

    /// Return the sequence number of the next acknowledged message, or None.
    fn poll_ack(&self) -> PyResult<Option<u64>> {
        self.with(|sender| Ok(sender.poll_ack()))
    }

    /// Wait until slots of a class are free. TimeoutError: the timeout expired.
    #[pyo3(signature = (slots=1, *, timeout=None, class_index=0))]
    fn wait_room(
        &self,
        py: Python<'_>,
        slots: u32,
        timeout: Option<f64>,
        class_index: usize,
    ) -> PyResult<()> {
        let timeout = convert::timeout(timeout)?;
        self.with(|sender| {
            let class = sender.class(class_index).map_err(no_class)?;
            let room = convert::wait(py, timeout, |left| {
                match py.detach(|| class.wait_room(slots, Some(left))) {
                    Ok(()) => Ok(Some(())),
                    Err(WaitError::TimedOut) => Ok(None),
                    Err(error) => Err(error::wait(error)),
                }
            })?;
            room.ok_or_else(|| error::wait(WaitError::TimedOut))
        })
    }

    /// Return the state of the ring of a class.
    #[pyo3(signature = (class_index=0))]
    fn state(&self, class_index: usize) -> PyResult<State> {
        self.with(|sender| {
            let ring = sender.state(class_index).map_err(no_class)?;
            Ok(State {
                slots: ring.shape.slots(),
                slot_bytes: ring.shape.slot_bytes(),
                free_slots: ring.free_slots,
                pending: ring.pending,
                is_holding_back: ring.is_holding_back,
                is_closed: ring.is_closed,
                is_attached: ring.is_attached,
                has_ended: sender.has_ended(),
            })
        })
    }

    /// Return the descriptor that becomes readable when the receiver of class 0 has freed slots, closed the ring or died.
    fn fileno(&self) -> PyResult<i32> {
        self.with(|sender| Ok(sender.class(0).map_err(no_class)?.as_fd().as_raw_fd()))
    }

    /// Pass a ring of shared memory whose receiver died to the process at the other end of a Unix socket.
    fn pass_to(&self, py: Python<'_>, socket: &Bound<'_, PyAny>) -> PyResult<()> {
        let socket = UnixStream::from(convert::socket(socket)?);
        self.with(|sender| {
            let ring = sender.class(0).map_err(no_class)?;
            py.detach(|| ring.pass(socket)).map_err(error::init)
        })
    }

    /// Close the rings, and wait until all messages have left. TimeoutError: call it again.
    #[pyo3(signature = (timeout=None))]
    fn finish(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Stats> {
        let timeout = convert::timeout(timeout)?;
        self.with(|sender| {
            let ended = finish(sender, py, timeout)?.map_err(error::drain)?;
            let stats = ended.ok_or_else(|| PyTimeoutError::new_err("messages have not left"))?;
            Ok(stats.into())
        })
    }

    /// Close the rings and wait for nothing: a thread that drains them continues until all messages have left.
    fn close(&self) -> PyResult<()> {
        drop(enter(&self.0)?.take());
        Ok(())
    }

    fn __enter__(this: Py<Sender>) -> Py<Sender> {
        this
    }

    /// Finish after a block that succeeded, close after one that raised.
    fn __exit__(
        &self,
        py: Python<'_>,
        raised: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        // Out of the handle: whatever happens, the sender is closed afterwards.
        let Some(mut sender) = enter(&self.0)?.take() else {
            return Ok(false);
        };
        if raised.is_none() {
            match finish(&mut sender, py, None)? {
                // The block has called finish.
                Ok(_) | Err(any::Error::Finished) => {}
                Err(error) => return Err(error::drain(error)),
            }
        }
        Ok(false)
    }
}
