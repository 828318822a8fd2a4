//! The one place where polycast talks to the Linux kernel.

mod error;
#[allow(unsafe_code, reason = "an ioctl")]
pub mod ethtool;
mod filter;
pub mod link;
#[allow(unsafe_code, reason = "structures and an ioctl of multicast routing")]
pub mod mroute;
mod netlink;
pub mod netns;
pub mod nft;
pub mod packet;
#[allow(unsafe_code, reason = "the pollfd array of ppoll")]
pub mod poll;
pub mod privileges;
pub mod raw;
#[allow(unsafe_code, reason = "system calls")]
mod sys;
#[allow(
    unsafe_code,
    reason = "the kernel's structure of a source-specific join"
)]
pub mod udp;
pub mod wake;

pub use error::{Capability, JoinError, OpenError, ReceiveError, SendError};
