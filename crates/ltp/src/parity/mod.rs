//! Parity: packets computed from a whole block, any of which stands for any packet of it, as in NORM (RFC 5740).
//!
//! A repair helps the receivers that lack that packet; parity helps each receiver that lacks some packet of the block.
//! To `n` receivers with independent losses the source sends as many parity packets as the worst of them lost, instead of
//! the union of all losses. A block of `k` packets has `k` parity packets; any `k` of these `2k` restore it.
//!
//! The code is Reed-Solomon over GF(2^16), as `reed-solomon-simd` lays it out. Each packet is one shard: its payload,
//! zeros past the end of the block included, and one more zero where the payload has an odd length.
//!
//! Without a heap (feature `alloc`) a sender has no parity, and a receiver asks for the packets themselves.

#[cfg(not(feature = "alloc"))]
#[path = "without_heap.rs"]
mod codec;
#[cfg(feature = "alloc")]
mod codec;
#[cfg(feature = "alloc")]
mod shelf;
#[cfg(all(test, feature = "alloc"))]
mod tests;

pub(crate) use codec::Encoder;
#[cfg(not(feature = "alloc"))]
pub(crate) use codec::Shelf;
#[cfg(feature = "alloc")]
pub(crate) use shelf::Shelf;

use crate::store::StoreError;
use crate::wire::data::DATA_HEADER_LEN;
use crate::wire::parity::PARITY_HEADER_LEN;

/// Where an encoder lies, so that a machine without parity is no larger.
#[cfg(feature = "alloc")]
pub(crate) type Owned<T> = alloc::boxed::Box<T>;
#[cfg(not(feature = "alloc"))]
pub(crate) type Owned<T> = T;

/// What became of a parity packet that came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Put {
    /// It is held.
    Held,
    /// It is held instead of one of that block.
    Instead(u32),
    /// It is held already.
    Duplicate,
    /// There is no room for it.
    Full,
}

/// Why a block was not restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotRestored {
    /// The store has not the bytes, or failed.
    Store(StoreError),
    /// Too little parity is held, or the code does not take it.
    Code,
}

/// The packets of one block, for restoring it.
pub(crate) trait Packets {
    /// Reads the payload of a packet that came, with zeros past the end of the block.
    fn read(&mut self, index: u32, payload: &mut [u8]) -> Result<(), StoreError>;
    /// Writes the payload of one that did not come.
    fn write(&mut self, index: u32, payload: &[u8]) -> Result<(), StoreError>;
}

/// Returns the length of a shard, for packets with this payload.
pub(crate) const fn shard_len(payload_len: u16) -> usize {
    (payload_len as usize).next_multiple_of(2)
}

/// Returns the length of the longest DATA packet in a session whose PARITY is to fit `max_packet_len`, in bytes of UDP
/// payload.
pub(crate) const fn longest_data(max_packet_len: u16) -> u16 {
    let shard = max_packet_len.saturating_sub(PARITY_HEADER_LEN as u16);
    (shard & !1) + DATA_HEADER_LEN as u16
}
