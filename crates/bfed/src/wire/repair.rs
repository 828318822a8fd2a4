//! REPAIR_REQUEST: the receiver of a flow asks its data node upstream for packets that have not arrived.
//!
//! ```text
//! +---------------------------------------------------------------+
//! |  sequence of the first packet                                 |
//! +---------------------------------------------------------------+
//! |  others: bit n of these 64, from the lowest one on, stands    |
//! |  for the packet n + 1 after the first                         |
//! +---------------------------------------------------------------+
//! ```
//!
//! The payload of a packet of type 9, in datagrams only. The answer is each packet as it was sent, with the same sequence, its
//! present age and the flag that says that it was sent before, if it can still arrive in time.

use super::ParseError;

/// Length of a request.
pub const LEN: usize = 12;
/// Number of packets that a request can name.
pub const MAX_PACKETS: u32 = 65;

/// A REPAIR_REQUEST.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Request {
    /// The first packet.
    pub first: u32,
    /// The packets after it: the lowest bit stands for the next one.
    pub others: u64,
}

impl Request {
    /// Creates a request for one packet.
    #[must_use]
    pub const fn new(first: u32) -> Self {
        Request { first, others: 0 }
    }

    /// Adds a packet that comes after the first. Returns `false` if it is too far from it.
    pub fn add(&mut self, sequence: u32) -> bool {
        match sequence.wrapping_sub(self.first) {
            0 => true,
            after if after < MAX_PACKETS => {
                self.others |= 1 << (after - 1);
                true
            }
            _ => false,
        }
    }

    /// Returns the packets in the order in which they were sent.
    pub fn packets(self) -> impl Iterator<Item = u32> {
        let named = move |after: &u32| *after == 0 || self.others >> (after - 1) & 1 == 1;
        (0..MAX_PACKETS)
            .filter(named)
            .map(move |after| self.first.wrapping_add(after))
    }

    /// Parses a request.
    ///
    /// # Errors
    /// It has another length.
    pub fn parse(payload: &[u8]) -> Result<Self, ParseError> {
        let [a, b, c, d, others @ ..] =
            <[u8; LEN]>::try_from(payload).map_err(|_| ParseError::Length)?;
        Ok(Request {
            first: u32::from_be_bytes([a, b, c, d]),
            others: u64::from_be_bytes(others),
        })
    }

    /// Writes it.
    ///
    /// # Panics
    /// `payload` is shorter than [`LEN`].
    pub fn emit(&self, payload: &mut [u8]) {
        payload[..4].copy_from_slice(&self.first.to_be_bytes());
        payload[4..LEN].copy_from_slice(&self.others.to_be_bytes());
    }
}
