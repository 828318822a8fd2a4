//! No native network: a gateway that only joins others.

use std::os::fd::{AsFd, BorrowedFd};

use bfed::native::{ChannelId, Direction, NativeError, NativeFlow};
use bfed::wire::sroute::Outcome;
use bfed::{GatewayId, Instant, NativeNet, SessionName, Sroutes};
use linux_net::wake::Waker;

use super::Network;

/// Has no sessions and no clients.
#[derive(Debug)]
pub struct NoNetwork(Waker);

impl NoNetwork {
    /// Creates an empty network.
    ///
    /// # Errors
    /// The process is out of file descriptors.
    pub fn new() -> std::io::Result<Self> {
        Waker::new().map(NoNetwork)
    }
}

impl AsFd for NoNetwork {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl NativeNet for NoNetwork {
    fn allocate_channel(
        &mut self,
        _: Instant,
        flow: NativeFlow<'_>,
    ) -> Result<(ChannelId, Vec<u8>), NativeError> {
        Err(match flow.direction {
            Direction::Up => NativeError::NoSession,
            Direction::Down => NativeError::Refused,
        })
    }

    fn get_sroutes(
        &mut self,
        _: Instant,
        _: u32,
        _: &SessionName,
        _: &[GatewayId],
    ) -> Option<Sroutes> {
        Some(Sroutes::none(Outcome::NoSession))
    }
}

impl Network for NoNetwork {}
