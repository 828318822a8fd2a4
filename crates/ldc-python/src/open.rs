//! Functions that create senders.

use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use ldc_linux::schedule::Scheduler;
use ldc_linux::{any, quic, tcp, udp};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::convert;
use crate::error::{self, LdcError};
use crate::receiver::Receiver;
use crate::sender::Sender;

fn scheduler(classes: usize, weights: Option<Vec<u32>>) -> PyResult<Scheduler> {
    let made = match weights {
        Some(weights) => Scheduler::weighted(&weights),
        None => Scheduler::strict(classes),
    };
    made.map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Return the time of the clock of deadlines, in seconds: that of time.monotonic().
#[pyfunction]
pub(crate) fn now() -> f64 {
    convert::monotonic(ldc_linux::now())
}

/// Create a ring for two threads of this process, and return its sender and its receiver.
#[pyfunction]
#[pyo3(signature = (*, slots=64, slot_bytes=1500))]
pub(crate) fn open_pair(slots: u32, slot_bytes: u32) -> PyResult<(Sender, Receiver)> {
    let shape = convert::shape(slots, slot_bytes)?;
    let (sender, receiver) = any::Sender::pair(shape).map_err(error::init)?;
    Ok((Sender::new(sender), Receiver::new(receiver)))
}

/// Create a ring in memory that is shared with the process at the other end of a Unix stream socket, which calls attach().
#[pyfunction]
#[pyo3(signature = (socket, *, slots=64, slot_bytes=1500))]
pub(crate) fn open_shm(
    py: Python<'_>,
    socket: &Bound<'_, PyAny>,
    slots: u32,
    slot_bytes: u32,
) -> PyResult<Sender> {
    let shape = convert::shape(slots, slot_bytes)?;
    let socket = UnixStream::from(convert::socket(socket)?);
    let sender = py
        .detach(|| any::Sender::shm(socket, shape))
        .map_err(error::init)?;
    Ok(Sender::new(sender))
}

/// Create rings, one per class, that a thread drains into a connected TCP socket.
#[pyfunction]
#[pyo3(signature = (socket, *, slots=64, slot_bytes=1500, classes=1, weights=None, acks=false, unsent_bytes=None))]
pub(crate) fn open_tcp(
    socket: &Bound<'_, PyAny>,
    slots: u32,
    slot_bytes: u32,
    classes: usize,
    weights: Option<Vec<u32>>,
    acks: bool,
    unsent_bytes: Option<u32>,
) -> PyResult<Sender> {
    let shape = convert::shape(slots, slot_bytes)?;
    let scheduler = scheduler(classes, weights)?;
    let unsent = unsent_bytes.map_or(tcp::Unsent::default(), tcp::Unsent::fixed);
    let config = tcp::Config { unsent, acks };
    let socket = TcpStream::from(convert::socket(socket)?);
    let sender = any::Sender::tcp(socket, shape, scheduler, config).map_err(error::init)?;
    Ok(Sender::new(sender))
}

/// Create a ring that a thread drains into a connected UDP socket, a datagram per message.
#[pyfunction]
#[pyo3(signature = (socket, *, slots=64, slot_bytes=1500, rate_bps=None))]
pub(crate) fn open_udp(
    socket: &Bound<'_, PyAny>,
    slots: u32,
    slot_bytes: u32,
    rate_bps: Option<u64>,
) -> PyResult<Sender> {
    let shape = convert::shape(slots, slot_bytes)?;
    let config = udp::Config {
        rate_bps,
        ..udp::Config::default()
    };
    let socket = UdpSocket::from(convert::socket(socket)?);
    let sender = any::Sender::udp(socket, shape, config).map_err(error::init)?;
    Ok(Sender::new(sender))
}

/// Create rings, one per class, that a thread drains into a QUIC connection.
#[pyfunction]
#[pyo3(signature = (remote, key_file, *, name=None, slots=64, slot_bytes=1500, classes=1, weights=None, acks=false,
    datagrams_below=0, stream_per_sequence=false, congestion="cubic", idle_timeout=30.0, linger=30.0))]
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
pub(crate) fn open_quic(
    remote: &str,
    key_file: PathBuf,
    name: Option<String>,
    slots: u32,
    slot_bytes: u32,
    classes: usize,
    weights: Option<Vec<u32>>,
    acks: bool,
    datagrams_below: u32,
    stream_per_sequence: bool,
    congestion: &str,
    idle_timeout: f64,
    linger: f64,
) -> PyResult<Sender> {
    let shape = convert::shape(slots, slot_bytes)?;
    let scheduler = scheduler(classes, weights)?;
    let config = quic::Config {
        congestion: match congestion {
            "cubic" => quic::Congestion::Cubic,
            "newreno" => quic::Congestion::NewReno,
            "bbr" => quic::Congestion::Bbr,
            other => {
                return Err(PyValueError::new_err(format!(
                    "no congestion control is called {other:?}: write cubic, newreno or bbr"
                )));
            }
        },
        streams: if stream_per_sequence {
            quic::Streams::PerSequence
        } else {
            quic::Streams::PerMessage
        },
        datagrams_below,
        idle_timeout: convert::seconds(idle_timeout)?,
        linger: convert::seconds(linger)?,
        acks,
    };
    let remote = convert::address(remote)?;
    let name = name.unwrap_or_else(|| remote.ip().to_string());
    let credentials = convert::credentials(&key_file)?;
    let name = credentials.server_name(&name).map_err(LdcError::new_err)?;
    let tls = credentials.client;
    let sender = any::Sender::quic(remote, &name.to_str(), tls, shape, scheduler, config);
    Ok(Sender::new(sender.map_err(error::init)?))
}
