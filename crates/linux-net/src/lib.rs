//! The one place where polycast talks to the Linux kernel.

mod error;
mod filter;
pub mod packet;
#[allow(unsafe_code, reason = "the pollfd array of ppoll")]
pub mod poll;
pub mod privileges;
#[allow(unsafe_code, reason = "system calls")]
mod sys;
#[allow(
    unsafe_code,
    reason = "the kernel's structure of a source-specific join"
)]
pub mod udp;
pub mod wake;

pub use error::{Capability, JoinError, OpenError, ReceiveError, SendError};
