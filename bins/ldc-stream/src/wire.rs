//! The format of the connection: a hello, then messages, then an end. `docs/wire.md` draws it.
//!
//! Each message is in the ring as a whole, header and payload, so that the stream stays readable when one is dropped.

use thiserror::Error;

/// Maximum number of layers of a stream.
pub const MAX_LAYERS: u8 = 64;
/// Maximum payload bytes of a message.
pub const MAX_PAYLOAD: u32 = 1 << 20;
/// Bytes of a hello.
pub const HELLO_LEN: usize = 32;
/// Bytes of the header of a message, and of an end.
pub const HEADER_LEN: usize = 32;

const MAGIC: [u8; 4] = *b"LDCS";
/// The version of the format. One more in a build of the next version (`docs/wire.md`).
const VERSION: u8 = 1 + cfg!(polycast_next_version) as u8;
const GENERATED: u8 = 1;
const DATA: u8 = 1;
const END: u8 = 2;

/// Why bytes are not a valid stream. A receiver closes the connection.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum WireError {
    /// Another protocol.
    #[error("not a stream of ldc-stream")]
    Magic,
    /// Another version of this one.
    #[error(
        "it sends version {0} of the format of ldc-stream, this program reads version {VERSION}: install the same \
         release of polycast on both"
    )]
    Version(u8),
    /// A field has an invalid value.
    #[error("malformed: {0}")]
    Malformed(&'static str),
}

/// The beginning of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Number of layers, 1 to [`MAX_LAYERS`].
    pub layers: u8,
    /// The bytes are a function of layer and offset ([`generated`]), so that the receiver can check them.
    pub generated: bool,
    /// Length of a time window, microseconds, not 0.
    pub window_us: u32,
    /// Maximum payload of a message, 1 to [`MAX_PAYLOAD`] bytes.
    pub max_payload: u32,
    /// Bits per second of each layer, for information.
    pub layer_rate_bps: u64,
    /// Start of the first window: microseconds since 1970 by the sender's clock.
    pub start_us: u64,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].try_into().map_or(0, u32::from_be_bytes)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].try_into().map_or(0, u64::from_be_bytes)
}

impl Hello {
    /// Returns the bytes.
    pub fn emit(&self) -> [u8; HELLO_LEN] {
        let mut bytes = [0; HELLO_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = self.layers;
        bytes[6] = if self.generated { GENERATED } else { 0 };
        bytes[8..12].copy_from_slice(&self.window_us.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.max_payload.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.layer_rate_bps.to_be_bytes());
        bytes[24..].copy_from_slice(&self.start_us.to_be_bytes());
        bytes
    }

    /// Checks the first bytes of a hello, which have the same meaning in all versions, as far as they have arrived.
    ///
    /// # Errors
    /// They are not those of a hello of this version.
    pub fn check_start(bytes: &[u8]) -> Result<(), WireError> {
        let known = bytes.len().min(MAGIC.len());
        if bytes[..known] != MAGIC[..known] {
            return Err(WireError::Magic);
        }
        match bytes.get(MAGIC.len()) {
            Some(&version) if version != VERSION => Err(WireError::Version(version)),
            _ => Ok(()),
        }
    }

    /// Parses a hello.
    ///
    /// # Errors
    /// The bytes are not a valid hello.
    pub fn parse(bytes: &[u8; HELLO_LEN]) -> Result<Hello, WireError> {
        Hello::check_start(bytes)?;
        if bytes[6] & !GENERATED != 0 || bytes[7] != 0 {
            return Err(WireError::Malformed("reserved bits of the hello"));
        }
        let hello = Hello {
            layers: bytes[5],
            generated: bytes[6] & GENERATED != 0,
            window_us: word(bytes, 8),
            max_payload: word(bytes, 12),
            layer_rate_bps: long(bytes, 16),
            start_us: long(bytes, 24),
        };
        if !(1..=MAX_LAYERS).contains(&hello.layers) {
            return Err(WireError::Malformed("number of layers"));
        }
        if hello.window_us == 0 || !(1..=MAX_PAYLOAD).contains(&hello.max_payload) {
            return Err(WireError::Malformed("window or payload of zero"));
        }
        Ok(hello)
    }
}

/// The header of a message, or the end of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// A message: a piece of one layer in one window.
    Data(Data),
    /// The end of the stream.
    End {
        /// Number of windows.
        windows: u32,
        /// Bytes of all layers, including dropped ones.
        offered: u64,
    },
}

/// A piece of one layer in one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// The layer; 0 is the base layer.
    pub layer: u8,
    /// Payload bytes.
    pub len: u32,
    /// The window.
    pub window: u32,
    /// Bytes of this layer in this window.
    pub of: u32,
    /// Offset of the payload in the layer.
    pub offset: u64,
    /// Time at which it was due at the sender: microseconds since the start.
    pub due_us: u64,
}

impl Header {
    /// Returns the bytes.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        match self {
            Header::Data(data) => {
                bytes[0] = DATA;
                bytes[1] = data.layer;
                bytes[4..8].copy_from_slice(&data.len.to_be_bytes());
                bytes[8..12].copy_from_slice(&data.window.to_be_bytes());
                bytes[12..16].copy_from_slice(&data.of.to_be_bytes());
                bytes[16..24].copy_from_slice(&data.offset.to_be_bytes());
                bytes[24..].copy_from_slice(&data.due_us.to_be_bytes());
            }
            Header::End { windows, offered } => {
                bytes[0] = END;
                bytes[8..12].copy_from_slice(&windows.to_be_bytes());
                bytes[16..24].copy_from_slice(&offered.to_be_bytes());
            }
        }
        bytes
    }

    /// Parses a header of a stream that began with `hello`.
    ///
    /// # Errors
    /// The bytes are not a valid header.
    pub fn parse(bytes: &[u8; HEADER_LEN], hello: &Hello) -> Result<Header, WireError> {
        let zero = |range: std::ops::Range<usize>| bytes[range].iter().all(|byte| *byte == 0);
        match bytes[0] {
            DATA => {
                let data = Data {
                    layer: bytes[1],
                    len: word(bytes, 4),
                    window: word(bytes, 8),
                    of: word(bytes, 12),
                    offset: long(bytes, 16),
                    due_us: long(bytes, 24),
                };
                if !zero(2..4) {
                    return Err(WireError::Malformed("reserved bits of a message"));
                }
                if data.layer >= hello.layers {
                    return Err(WireError::Malformed("a layer that the hello does not have"));
                }
                if !(1..=hello.max_payload).contains(&data.len) || data.len > data.of {
                    return Err(WireError::Malformed("length of a message"));
                }
                if data.offset.checked_add(data.len.into()).is_none() {
                    return Err(WireError::Malformed("offset of a message"));
                }
                Ok(Header::Data(data))
            }
            END => {
                if !zero(1..8) || !zero(12..16) || !zero(24..32) {
                    return Err(WireError::Malformed("reserved bits of the end"));
                }
                Ok(Header::End {
                    windows: word(bytes, 8),
                    offered: long(bytes, 16),
                })
            }
            _ => Err(WireError::Malformed("type of a message")),
        }
    }
}

/// Returns the byte of a generated layer at an offset.
pub fn generated(layer: u8, offset: u64) -> u8 {
    let mixed = (offset as u32).wrapping_mul(0x9e37_79b1);
    (mixed >> 24) as u8 ^ (offset >> 32) as u8 ^ layer
}
