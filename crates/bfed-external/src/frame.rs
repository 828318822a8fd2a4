//! Frames: a header of fixed length, and a body.
//!
//! ```text
//!  0               1               2               3
//! +---------------+---------------+---------------+---------------+
//! |  length of the body in bytes                                  |
//! +---------------+---------------+---------------+---------------+
//! |  type         |  0                                            |
//! +---------------+---------------+---------------+---------------+
//! |  channel, 0 where there is none                               |
//! |                                                               |
//! +---------------+---------------+---------------+---------------+
//! |  body: of DATA the bytes as they are, of the others JSON      |
//! +---------------------------------------------------------------+
//! ```
//!
//! All numbers are in network byte order: `struct.Struct(">IB3xQ")` in Python.

use core::ops::Range;

use bfed::wire::data::MAX_PAYLOAD_LEN;

/// Length of the header.
pub const HEADER_LEN: usize = 16;
/// Longest body in bytes.
pub const MAX_BODY_LEN: usize = 65_536;
/// Size of the input buffer: two frames, so that a whole frame fits after the rest of the last one.
const ROOM: usize = 2 * MAX_BODY_LEN;

proto_core::errors! {
    /// Why bytes are not a frame, or a frame is not a message that may come.
    pub enum FrameError {
        /// The body is longer than [`MAX_BODY_LEN`], or than [`MAX_DATA_LEN`](crate::MAX_DATA_LEN) in DATA.
        TooLong = "the body of a frame is too long",
        /// Bytes that must be zero are not.
        Reserved = "reserved bytes of a header are not zero",
        /// An unknown type.
        Unknown = "the type of a frame is unknown",
        /// A type that only the gateway sends, or that belongs to the other kind of socket.
        Unexpected = "a frame of this type must not come from a client on this socket",
        /// The body is not the JSON object that belongs to the type.
        Body = "the body is not the JSON object that belongs to the type of the frame",
        /// A message before HELLO, or a second HELLO.
        Order = "the first message must be HELLO, and no other may be",
        /// Another version of the protocol.
        Version = "the versions of the protocol differ",
    }
}

/// Type of a frame, in the header.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Type {
    /// The first message of either side.
    Hello = 1,
    /// Asks for a PONG.
    Ping = 2,
    /// Answers a PING.
    Pong = 3,
    /// Why the gateway closes the connection.
    Error = 4,
    /// Lends addresses (`allocate_channel`, in advance).
    Lend = 16,
    /// A session from elsewhere has this address from now on.
    Present = 17,
    /// Returns an address (`reclaim_channel`).
    Reclaim = 18,
    /// Send the data of a flow from now on (`subscribe`).
    Subscribe = 19,
    /// The subscription is still needed (`refresh`).
    Refresh = 20,
    /// Send no more (`unsubscribe`).
    Unsubscribe = 21,
    /// The receivers cannot keep up: send nothing until RESUME.
    Pause = 22,
    /// Send again.
    Resume = 23,
    /// Data of a channel (`send_data`, `recvd_data`).
    Data = 24,
    /// A member of the network wants a session (`recvd_join_request`).
    Join = 32,
    /// The last member has left it (`recvd_leave_request`).
    Leave = 33,
    /// The addresses of a session, or why there are none.
    Answer = 34,
}

impl Type {
    /// All types.
    pub const ALL: [Type; 16] = [
        Type::Hello,
        Type::Ping,
        Type::Pong,
        Type::Error,
        Type::Lend,
        Type::Present,
        Type::Reclaim,
        Type::Subscribe,
        Type::Refresh,
        Type::Unsubscribe,
        Type::Pause,
        Type::Resume,
        Type::Data,
        Type::Join,
        Type::Leave,
        Type::Answer,
    ];

    fn parse(number: u8) -> Result<Self, FrameError> {
        let found = Type::ALL.into_iter().find(|kind| *kind as u8 == number);
        found.ok_or(FrameError::Unknown)
    }
}

/// A parsed header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// Length of the body in bytes.
    pub len: usize,
    /// Type.
    pub kind: Type,
    /// Channel; 0 where there is none.
    pub channel: u64,
}

impl Header {
    /// Parses a header.
    ///
    /// # Errors
    /// [`FrameError::TooLong`], [`FrameError::Reserved`] or [`FrameError::Unknown`].
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Result<Self, FrameError> {
        let [a, b, c, d, kind, zeros @ .., e, f, g, h, i, j, k, l] = *bytes;
        let len = u32::from_be_bytes([a, b, c, d]) as usize;
        let kind = Type::parse(kind)?;
        if zeros != [0; 3] {
            return Err(FrameError::Reserved);
        }
        let most = match kind {
            Type::Data => MAX_PAYLOAD_LEN,
            _ => MAX_BODY_LEN,
        };
        if len > most {
            return Err(FrameError::TooLong);
        }
        let channel = u64::from_be_bytes([e, f, g, h, i, j, k, l]);
        Ok(Header { len, kind, channel })
    }

    /// Returns the bytes of the header.
    #[must_use]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..4].copy_from_slice(&(self.len as u32).to_be_bytes());
        bytes[4] = self.kind as u8;
        bytes[8..].copy_from_slice(&self.channel.to_be_bytes());
        bytes
    }
}

/// Appends a frame to `out`. `body` must be no longer than [`Header::parse`] permits.
pub fn emit(out: &mut Vec<u8>, kind: Type, channel: u64, body: &[u8]) {
    let len = body.len();
    debug_assert!(len <= MAX_BODY_LEN);
    out.extend_from_slice(&Header { len, kind, channel }.emit());
    out.extend_from_slice(body);
}

/// Frames out of a byte stream, in 128 KiB of memory.
#[derive(Debug)]
pub struct Decoder {
    bytes: Box<[u8]>,
    /// Bytes that are not read yet.
    filled: Range<usize>,
}

impl Default for Decoder {
    fn default() -> Self {
        Decoder {
            bytes: vec![0; ROOM].into(),
            filled: 0..0,
        }
    }
}

impl Decoder {
    /// Returns room for more bytes of the stream: at least 65,520 after [`next_frame`](Self::next_frame) has returned `None`.
    pub fn space(&mut self) -> &mut [u8] {
        if self.filled.start > 0 {
            self.bytes.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
        }
        &mut self.bytes[self.filled.end..]
    }

    /// Says that `len` bytes were written to the front of [`space`](Self::space).
    pub fn filled(&mut self, len: usize) {
        self.filled.end = (self.filled.end + len).min(self.bytes.len());
    }

    /// Returns the next frame, with the place of its body for [`body`](Self::body), which is valid until the next call of
    /// [`space`](Self::space). `None` if it is not whole yet.
    ///
    /// # Errors
    /// As [`Header::parse`]; nothing after that can be read.
    pub fn next_frame(&mut self) -> Result<Option<(Header, Range<usize>)>, FrameError> {
        let waiting = &self.bytes[self.filled.clone()];
        let Some(header) = waiting.first_chunk() else {
            return Ok(None);
        };
        let header = Header::parse(header)?;
        if waiting.len() < HEADER_LEN + header.len {
            return Ok(None);
        }
        let start = self.filled.start + HEADER_LEN;
        self.filled.start = start + header.len;
        Ok(Some((header, start..self.filled.start)))
    }

    /// Returns the body of a frame.
    #[must_use]
    pub fn body(&self, place: Range<usize>) -> &[u8] {
        self.bytes.get(place).unwrap_or_default()
    }
}
