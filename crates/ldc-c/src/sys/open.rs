//! Opening a sender: a ring, and what empties it.

use std::ffi::c_char;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::Path;

use control_stream::tls::Credentials;
use ldc_linux::any;

use crate::status::{Failure, Status, run};
use crate::sys::pointer::{self, duplicate};
use crate::sys::receiver::Receiver;
use crate::sys::sender::Sender;
use crate::types::{QuicConfig, Shape, TcpConfig, UdpConfig};

/// Creates a ring for two threads of this process: one sends, the other receives.
///
/// # Safety
/// `shape` points to a structure, `sender` and `receiver` to a writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_open_pair(
    shape: *const Shape,
    sender: *mut *mut Sender,
    receiver: *mut *mut Receiver,
) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let shape = pointer::required(shape)?.single()?;
            let (ours, theirs) = any::Sender::pair(shape)?;
            // Checked before the receiver is passed on, which would be lost.
            let _ = pointer::out(sender)?;
            pointer::give(receiver, || Ok(theirs))?;
            pointer::give(sender, || Ok(ours))
        }
    })
}

/// Creates a ring in memory that this process shares with the one at the other end of the Unix stream socket `fd`, which calls
/// `ldc_receiver_attach`. Sending can begin at once.
///
/// # Safety
/// `fd` is a descriptor of the caller, `shape` points to a structure, `sender` to a writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_open_shm(
    fd: i32,
    shape: *const Shape,
    sender: *mut *mut Sender,
) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let shape = pointer::required(shape)?.single()?;
            pointer::give(sender, || {
                let socket = UnixStream::from(duplicate(fd)?);
                Ok(any::Sender::shm(socket, shape)?)
            })
        }
    })
}

/// Creates rings that a thread drains into the connected TCP socket `fd`. The thread owns a copy of the descriptor: the
/// connection ends when both copies are closed, or the caller calls `shutdown`.
///
/// # Safety
/// `fd` is a descriptor of the caller, `shape` points to a structure, `config` to one or is null, `sender` points to a writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_open_tcp(
    fd: i32,
    shape: *const Shape,
    config: *const TcpConfig,
    sender: *mut *mut Sender,
) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let shape = pointer::required(shape)?;
            let scheduler = scheduler(&shape)?;
            let config = pointer::input(config)?.into();
            let geometry = shape.geometry()?;
            pointer::give(sender, || {
                let socket = TcpStream::from(duplicate(fd)?);
                Ok(any::Sender::tcp(socket, geometry, scheduler, config)?)
            })
        }
    })
}

/// Creates a ring that a thread drains into the connected UDP socket `fd`, a datagram per message.
///
/// # Safety
/// As for `ldc_open_tcp`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_open_udp(
    fd: i32,
    shape: *const Shape,
    config: *const UdpConfig,
    sender: *mut *mut Sender,
) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let shape = pointer::required(shape)?.single()?;
            let config = pointer::input(config)?.into();
            pointer::give(sender, || {
                let socket = UdpSocket::from(duplicate(fd)?);
                Ok(any::Sender::udp(socket, shape, config)?)
            })
        }
    })
}

/// Creates rings that a thread drains into a QUIC connection to `remote`, an address and a port such as "192.0.2.1:4000".
/// `key_file` is the path of the key file of both ends: a secret (32 bytes, or 64 hexadecimal digits), or certificates and a key in PEM.
/// With certificates, the peer's must be for `name`; null: for the address. The connection is set up meanwhile; if that fails,
/// `ldc_finish` says why.
///
/// # Safety
/// The strings end with a null byte, `name` may be null; the rest as for `ldc_open_tcp`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ldc_open_quic(
    remote: *const c_char,
    name: *const c_char,
    key_file: *const c_char,
    shape: *const Shape,
    config: *const QuicConfig,
    sender: *mut *mut Sender,
) -> Status {
    run(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let shape = pointer::required(shape)?;
            let scheduler = scheduler(&shape)?;
            let config = pointer::input(config)?.checked()?;
            let geometry = shape.geometry()?;
            let remote = address(pointer::string(remote, "the address")?)?;
            let name = match name.is_null() {
                true => remote.ip().to_string(),
                false => pointer::string(name, "the name")?.to_owned(),
            };
            let credentials = credentials(pointer::string(key_file, "the key file")?)?;
            let failed = |error: String| Failure::new(Status::Failed, error);
            let name = credentials.server_name(&name).map_err(failed)?;
            pointer::give(sender, || {
                Ok(any::Sender::quic(
                    remote,
                    &name.to_str(),
                    credentials.client,
                    geometry,
                    scheduler,
                    config,
                )?)
            })
        }
    })
}

/// Returns the scheduler of a shape.
///
/// # Safety
/// The weights are null, or as many as there are classes.
unsafe fn scheduler(shape: &Shape) -> Result<ldc_linux::schedule::Scheduler, Failure> {
    if shape.weights.is_null() {
        return shape.scheduler(None);
    }
    // So a wrong number of classes reads nothing.
    shape.scheduler(None)?;
    // SAFETY: the caller's promise; at most 8 elements.
    let weights = unsafe { pointer::elements(shape.weights, shape.class_count())? };
    shape.scheduler(Some(weights))
}

/// Returns an address and a port.
pub(crate) fn address(text: &str) -> Result<SocketAddr, Failure> {
    let wrong =
        || format!("{text:?} is not an address and a port, such as 192.0.2.1:4000 or [::1]:4000");
    text.parse().map_err(|_| Failure::invalid(wrong()))
}

/// Reads a key file.
pub(crate) fn credentials(path: &str) -> Result<Credentials, Failure> {
    Credentials::read(Path::new(path)).map_err(|error| Failure::new(Status::Failed, error))
}
