//! The protocol between a feeder and its child: a handshake that proves to both that the sender of the copy arranged the
//! link, then requests for blocks, and blocks.
//!
//! ```text
//!  PREFACE (feeder)
//! +---------------------------------------------------------------+
//! |  identifier "PMCR"                                            |
//! +---------------+---------------+-------------------------------+
//! |  version 1    |  0x01: sealed |  0                            |
//! +---------------+---------------+-------------------------------+
//! |  link (16 bytes)                                              |
//! +---------------------------------------------------------------+
//! |  nonce of the feeder (32 bytes)                               |
//! +---------------------------------------------------------------+
//!
//!  ACCEPT (child)
//! +---------------------------------------------------------------+
//! |  nonce of the child (32 bytes)                                |
//! +---------------------------------------------------------------+
//! |  proof of the child (32 bytes)                                |
//! +---------------------------------------------------------------+
//!
//!  CONFIRM (feeder)
//! +---------------------------------------------------------------+
//! |  proof of the feeder (32 bytes)                               |
//! +---------------------------------------------------------------+
//!
//!  then, in sealed records where the link is sealed:
//!
//!  WANT (child)
//! +---------------------------------------------------------------+
//! |  number of the first block (64 bits)                          |
//! +---------------------------------------------------------------+
//! |  number of blocks, 1 to 256 (32 bits)                         |
//! +---------------------------------------------------------------+
//!
//!  BLOCK (feeder)
//! +---------------------------------------------------------------+
//! |  number of the block (64 bits)                                |
//! +---------------------------------------------------------------+
//! |  its length in bytes; 0: the feeder cannot serve it (32 bits) |
//! +---------------------------------------------------------------+
//! |  its bytes                                                    |
//! +---------------------------------------------------------------+
//! ```
//!
//! A proof is BLAKE3 over both nonces, the feeder's first, with a key that is derived from the secret of the link; the keys
//! of the records are derived from the secret and both nonces ([`Keys`]). BLOCK answers requests in their order. A child has
//! at most [`MAX_REQUESTS`] blocks requested at a time.

use alloc::vec::Vec;

use super::relay::{LinkId, LinkSecret, sealed};
use super::{ParseError, array_at, put_u32, put_u64, u32_at, u64_at};
use crate::limits::{BLOCK_LEN, MAX_BLOCKS, MAX_REQUESTS};

/// Says in the first bytes of a connection that a feeder opens a link: "PMCR".
pub const LINK_IDENTIFIER: u32 = 0x504d_4352;
/// Version of the link protocol.
const LINK_VERSION: u8 = 1;

/// Bytes of a PREFACE.
pub const PREFACE_LEN: usize = 56;
/// Bytes of an ACCEPT.
pub const ACCEPT_LEN: usize = 64;
/// Bytes of a CONFIRM.
pub const CONFIRM_LEN: usize = 32;
/// Bytes of a WANT, and of the fixed part of a BLOCK.
pub const REQUEST_LEN: usize = 12;

/// A random number of one end, used once.
pub type Nonce = [u8; 32];
/// A proof that an end knows the secret of the link.
pub type Proof = [u8; 32];

/// A PREFACE.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Preface {
    /// Whether data on the link is sealed.
    pub sealed: bool,
    /// The link.
    pub link: LinkId,
    /// The nonce of the feeder.
    pub nonce: Nonce,
}

impl Preface {
    /// Parses a preface.
    ///
    /// # Errors
    /// It is another protocol, another version, or not valid.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let bytes: &[u8; PREFACE_LEN] = bytes.try_into().map_err(|_| ParseError::Length)?;
        if u32_at(bytes, 0) != LINK_IDENTIFIER || bytes[4] != LINK_VERSION {
            return Err(ParseError::Version);
        }
        if bytes[6..8] != [0; 2] {
            return Err(ParseError::Reserved);
        }
        Ok(Preface {
            sealed: sealed(bytes[5])?,
            link: LinkId(array_at(bytes, 8)),
            nonce: array_at(bytes, 24),
        })
    }

    /// Returns its bytes.
    pub fn emit(&self) -> [u8; PREFACE_LEN] {
        let mut bytes = [0; PREFACE_LEN];
        put_u32(&mut bytes, 0, LINK_IDENTIFIER);
        bytes[4] = LINK_VERSION;
        bytes[5] = self.sealed.into();
        bytes[8..24].copy_from_slice(&self.link.0);
        bytes[24..].copy_from_slice(&self.nonce);
        bytes
    }
}

/// An ACCEPT.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Accept {
    /// The nonce of the child.
    pub nonce: Nonce,
    /// The proof of the child.
    pub proof: Proof,
}

impl Accept {
    /// Parses an ACCEPT; any bytes are one.
    pub fn parse(bytes: &[u8; ACCEPT_LEN]) -> Self {
        Accept {
            nonce: array_at(bytes, 0),
            proof: array_at(bytes, 32),
        }
    }

    /// Returns its bytes.
    pub fn emit(&self) -> [u8; ACCEPT_LEN] {
        let mut bytes = [0; ACCEPT_LEN];
        bytes[..32].copy_from_slice(&self.nonce);
        bytes[32..].copy_from_slice(&self.proof);
        bytes
    }
}

/// Proofs and keys that both ends derive from the secret and the nonces of a link.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// The proof that the child sends.
    pub child_proof: Proof,
    /// The proof that the feeder sends.
    pub feeder_proof: Proof,
    /// The key of the records from the child.
    pub requests: [u8; 32],
    /// The key of the records from the feeder.
    pub blocks: [u8; 32],
}

impl Keys {
    /// Derives the proofs and keys of a link.
    pub fn derive(secret: &LinkSecret, feeder: &Nonce, child: &Nonce) -> Self {
        let derive = |context: &str| {
            let mut hasher = blake3::Hasher::new_derive_key(context);
            hasher.update(&secret.0);
            hasher.update(feeder);
            hasher.update(child);
            *hasher.finalize().as_bytes()
        };
        Keys {
            child_proof: derive("polycast mcp link 1 proof of the child"),
            feeder_proof: derive("polycast mcp link 1 proof of the feeder"),
            requests: derive("polycast mcp link 1 key of requests"),
            blocks: derive("polycast mcp link 1 key of blocks"),
        }
    }
}

/// Compares two proofs in a time that does not depend on them.
pub fn is_proof(given: &Proof, expected: &Proof) -> bool {
    // BLAKE3 hashes compare in constant time.
    blake3::Hash::from(*given) == blake3::Hash::from(*expected)
}

/// A WANT.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Want {
    /// The first block.
    pub first: u64,
    /// Number of blocks: 1 to [`MAX_REQUESTS`].
    pub count: u32,
}

impl Want {
    /// Parses a WANT.
    ///
    /// # Errors
    /// A field is out of bounds.
    pub fn parse(bytes: &[u8; REQUEST_LEN]) -> Result<Self, ParseError> {
        let want = Want {
            first: u64_at(bytes, 0),
            count: u32_at(bytes, 8),
        };
        let counted = (1..=MAX_REQUESTS as u32).contains(&want.count);
        if !counted || want.first > MAX_BLOCKS - u64::from(want.count) {
            return Err(ParseError::Value);
        }
        Ok(want)
    }

    /// Appends its bytes.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut bytes = [0; REQUEST_LEN];
        put_u64(&mut bytes, 0, self.first);
        put_u32(&mut bytes, 8, self.count);
        out.extend_from_slice(&bytes);
    }
}

/// The fixed part of a BLOCK.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BlockHeader {
    /// The block.
    pub block: u64,
    /// Its length in bytes, at most [`BLOCK_LEN`]; 0: the feeder cannot serve it.
    pub len: u32,
}

impl BlockHeader {
    /// Parses the fixed part of a BLOCK.
    ///
    /// # Errors
    /// A field is out of bounds.
    pub fn parse(bytes: &[u8; REQUEST_LEN]) -> Result<Self, ParseError> {
        let header = BlockHeader {
            block: u64_at(bytes, 0),
            len: u32_at(bytes, 8),
        };
        if header.block >= MAX_BLOCKS || u64::from(header.len) > BLOCK_LEN {
            return Err(ParseError::Value);
        }
        Ok(header)
    }

    /// Returns its bytes.
    pub fn emit(&self) -> [u8; REQUEST_LEN] {
        let mut bytes = [0; REQUEST_LEN];
        put_u64(&mut bytes, 0, self.block);
        put_u32(&mut bytes, 8, self.len);
        bytes
    }
}
