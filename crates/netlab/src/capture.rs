//! What really went over a link: frames captured at an interface, in order.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv};

use crate::emulator::open_port;
use crate::{Network, NodeId};

/// A capture at one interface of a node, both directions.
#[derive(Debug)]
pub struct Capture {
    socket: OwnedFd,
    /// Interface and node, for messages.
    place: String,
}

impl Capture {
    /// Starts to capture.
    ///
    /// # Errors
    /// When there is no such interface.
    pub fn start(network: &Network, node: NodeId, interface: &str) -> Result<Capture> {
        let socket = network.within(node, || open_port(interface))?;
        Ok(Capture {
            socket,
            place: format!("{} on {}", interface, network.plan().name(node)),
        })
    }

    /// Waits for an IP packet of which `wanted` makes something, and returns that.
    ///
    /// # Errors
    /// When none arrives in time.
    pub fn wait<T>(
        &self,
        what: &str,
        limit: Duration,
        wanted: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<T> {
        let end = Instant::now() + limit;
        while let Some(packet) = self.next(end.saturating_duration_since(Instant::now()))? {
            if let Some(found) = wanted(&packet) {
                return Ok(found);
            }
        }
        bail!("no {what} was captured by {}", self.place)
    }

    /// Returns the next IPv4 or IPv6 packet, or `None` when none arrives in time.
    ///
    /// # Errors
    /// When the interface fails.
    pub fn next(&self, limit: Duration) -> Result<Option<Vec<u8>>> {
        let end = Instant::now() + limit;
        let mut frame = vec![0; 2_048];
        loop {
            match recv(self.socket.as_raw_fd(), &mut frame, MsgFlags::MSG_DONTWAIT) {
                Ok(length) if matches!(frame.get(12..14), Some([0x08, 0x00] | [0x86, 0xdd])) => {
                    return Ok(frame.get(14..length).map(<[u8]>::to_vec));
                }
                Ok(_) | Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(None);
                    }
                    let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
                    let left = left
                        .min(Duration::from_secs(1))
                        .max(Duration::from_millis(1));
                    let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
                    match poll(&mut fds, timeout) {
                        Ok(_) | Err(Errno::EINTR) => {}
                        Err(error) => return Err(error).context("wait for a packet"),
                    }
                }
                Err(error) => return Err(error).with_context(|| self.place.clone()),
            }
        }
    }

    /// Returns everything captured so far.
    ///
    /// # Errors
    /// When the interface fails.
    pub fn drain(&self) -> Result<Vec<Vec<u8>>> {
        let mut all = Vec::new();
        while let Some(packet) = self.next(Duration::ZERO)? {
            all.push(packet);
        }
        Ok(all)
    }
}
