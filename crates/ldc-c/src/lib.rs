//! Late data choice (LDC) for C: the rings of `ldc-linux` and their drains, behind functions with the C calling convention.
//!
//! `include/ldc.h` is generated from this crate by cbindgen; a test checks that it is current. The README shows how to build and
//! link, `examples/` holds complete programs.
//!
//! # Layout
//!
//! | module | contents |
//! | --- | --- |
//! | `status` | return codes, their text, panics |
//! | `types` | structures that C and Rust share |
//! | `sys::pointer` | checks of pointers; the one place that dereferences them |
//! | `sys::sender`, `sys::open` | sending, and the kinds of drains |
//! | `sys::receiver` | receiving from a ring of shared memory |
//! | `sys::listener` | receiving over QUIC |
//!
//! # Rules for callers
//!
//! - **Errors.** Each function that can fail returns an `ldc_status`. `ldc_last_error` returns a sentence about the last failure of
//!   the calling thread.
//! - **Pointers.** A null or misaligned pointer gives `LDC_STATUS_INVALID`. A pointer to memory that is freed, too short or of
//!   another type cannot be recognized; that is undefined behaviour, as everywhere in C.
//! - **Threads.** A handle may move between threads. Two calls on one handle at the same time are refused:
//!   the second returns `LDC_STATUS_BUSY`. Only `ldc_*_free` must not run beside another call on its handle. The two ends of a
//!   ring are different handles. `ldc_now_us` and the texts may be called from any thread.
//! - **Descriptors** are duplicated: the caller keeps its own, and closes it. The mode of a socket (`O_NONBLOCK`) is shared by
//!   both.
//! - **Panics** never leave this crate. A call that panics (a bug) returns `LDC_STATUS_PANICKED`, as do all later ones on the
//!   same handle; free it.
//! - **fork**: handles belong to the process that made them. A child may only exec or exit.

mod status;
#[allow(
    unsafe_code,
    reason = "functions that C calls, and the pointers that they take"
)]
mod sys;
mod types;

pub use status::Status;
pub use sys::listener::{
    Listener, ldc_listen, ldc_listener_fd, ldc_listener_free, ldc_listener_port,
    ldc_listener_refuse, ldc_listener_wait,
};
pub use sys::open::{ldc_open_pair, ldc_open_quic, ldc_open_shm, ldc_open_tcp, ldc_open_udp};
pub use sys::receiver::{
    Receiver, ldc_receiver_ack, ldc_receiver_attach, ldc_receiver_claim, ldc_receiver_complete,
    ldc_receiver_counters, ldc_receiver_fd, ldc_receiver_free, ldc_receiver_is_abandoned,
    ldc_receiver_read, ldc_receiver_receive, ldc_receiver_wait,
};
pub use sys::sender::{
    Sender, ldc_abandon, ldc_cancel, ldc_finish, ldc_hold_back, ldc_hold_back_all, ldc_modify,
    ldc_notify, ldc_pass, ldc_poll_ack, ldc_release, ldc_release_until, ldc_replace, ldc_send,
    ldc_send_wait, ldc_sender_fd, ldc_sender_free, ldc_sender_state, ldc_wait_room,
};
pub use sys::text::{ldc_last_error, ldc_now_us, ldc_status_text, ldc_version};
pub use types::{
    Attributes, Changed, Counters, Event, EventKind, Limits, Message, QuicConfig, Shape, State,
    Stats, TcpConfig, UdpConfig,
};
