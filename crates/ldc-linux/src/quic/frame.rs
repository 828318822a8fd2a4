//! Messages in a stream: each is its length, as a variable-length integer of QUIC (RFC 9000 §16), and its bytes.
//!
//! ```text
//! +---------------+------------------+---------------+------------------+---
//! | length (1..8) | message          | length (1..8) | message          | ...
//! +---------------+------------------+---------------+------------------+---
//! ```

use thiserror::Error;

/// Longest encoding of a length, bytes.
pub(super) const MAX_PREFIX: usize = 8;

/// A stream does not hold whole messages of acceptable length.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(super) enum FrameError {
    /// A message is longer than the receiver accepts.
    #[error("a message of {len} bytes, more than the limit of {limit}")]
    TooLong {
        /// Length that the stream states.
        len: u64,
        /// The limit.
        limit: usize,
    },
    /// The stream ends within a message.
    #[error("the stream ends within a message")]
    Truncated,
}

/// Returns the encoding of a message's length. Lengths of messages of a ring are below 2^31.
pub(super) fn prefix(len: u32) -> ([u8; MAX_PREFIX], usize) {
    let mut bytes = [0; MAX_PREFIX];
    let used = match len {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    };
    // The two highest bits state the number of bytes, as a power of two.
    let tag = match used {
        1 => 0,
        2 => 1 << 14,
        4 => 2 << 30,
        _ => 3 << 62,
    };
    let word = (u64::from(len) | tag).to_be_bytes();
    bytes[..used].copy_from_slice(&word[8 - used..]);
    (bytes, used)
}

/// Cuts the bytes of one stream into messages. Holds at most one incomplete message, of at most `limit` bytes; its
/// memory grows with the bytes that arrive, not with the length that the peer states.
#[derive(Debug)]
pub(super) struct Reader {
    limit: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Within a length, of which `used` bytes have arrived.
    Prefix {
        bytes: [u8; MAX_PREFIX],
        used: usize,
    },
    /// Within a message of `len` bytes.
    Message { bytes: Vec<u8>, len: usize },
}

impl State {
    const START: State = State::Prefix {
        bytes: [0; MAX_PREFIX],
        used: 0,
    };
}

impl Reader {
    /// Returns a reader at the start of a stream, for messages of at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Reader {
        Reader {
            limit,
            state: State::START,
        }
    }

    /// Returns the number of bytes that the reader holds.
    pub(super) fn held(&self) -> usize {
        match &self.state {
            State::Prefix { .. } => 0,
            State::Message { bytes, .. } => bytes.len(),
        }
    }

    /// Takes bytes of the stream from `input`, which advances past them, up to the end of the next message. Returns that
    /// message, or `None` once all bytes were taken.
    ///
    /// # Errors
    /// The message is too long. The stream cannot be read any further.
    pub(super) fn next(&mut self, input: &mut &[u8]) -> Result<Option<Vec<u8>>, FrameError> {
        loop {
            match &mut self.state {
                State::Prefix { bytes, used } => {
                    let Some((first, rest)) = input.split_first() else {
                        return Ok(None);
                    };
                    *input = rest;
                    bytes[*used] = *first;
                    *used += 1;
                    if *used < 1 << (bytes[0] >> 6) {
                        continue;
                    }
                    let len = value(&bytes[..*used]);
                    let limit = self.limit;
                    let fits = usize::try_from(len).ok().filter(|len| *len <= limit);
                    let len = fits.ok_or(FrameError::TooLong { len, limit })?;
                    let bytes = Vec::new();
                    self.state = State::Message { bytes, len };
                }
                State::Message { bytes, len } => {
                    let (part, rest) = input.split_at(input.len().min(*len - bytes.len()));
                    bytes.extend_from_slice(part);
                    *input = rest;
                    if bytes.len() < *len {
                        return Ok(None);
                    }
                    let message = std::mem::take(bytes);
                    self.state = State::START;
                    return Ok(Some(message));
                }
            }
        }
    }

    /// Checks that the stream may end here.
    ///
    /// # Errors
    /// It ends within a message.
    pub(super) fn end(&self) -> Result<(), FrameError> {
        match self.state {
            State::Prefix { used: 0, .. } => Ok(()),
            _ => Err(FrameError::Truncated),
        }
    }
}

/// Returns the value of a complete length.
fn value(bytes: &[u8]) -> u64 {
    let first = u64::from(bytes[0] & 0x3f);
    let rest = bytes[1..].iter();
    rest.fold(first, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(messages: &[&[u8]]) -> Vec<u8> {
        let mut stream = Vec::new();
        for message in messages {
            let (bytes, used) = prefix(u32::try_from(message.len()).expect("a short message"));
            stream.extend_from_slice(&bytes[..used]);
            stream.extend_from_slice(message);
        }
        stream
    }

    #[test]
    fn lengths_are_the_examples_of_rfc_9000() {
        // Appendix A.1.
        for (len, bytes) in [
            (37, &[0x25][..]),
            (15_293, &[0x7b, 0xbd]),
            (494_878_333, &[0x9d, 0x7f, 0x3e, 0x7d]),
            (0x7fff_ffff, &[0xc0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff]),
        ] {
            let (prefix, used) = prefix(len);
            assert_eq!(&prefix[..used], bytes, "{len}");
            assert_eq!(value(bytes), u64::from(len));
        }
    }

    #[test]
    fn any_division_of_the_stream_gives_the_same_messages() {
        let (short, long) = ([7; 63], [8; 20_000]);
        let messages: [&[u8]; 4] = [&short, b"", &long, b"x"];
        let stream = encoded(&messages);
        for size in [1, 2, 63, 1_000, stream.len()] {
            let mut reader = Reader::new(20_000);
            let mut got = Vec::new();
            for mut part in stream.chunks(size) {
                while let Some(message) = reader.next(&mut part).expect("short enough") {
                    got.push(message);
                }
                assert!(part.is_empty());
            }
            assert_eq!(got, messages);
            assert_eq!(reader.end(), Ok(()));
        }
    }

    #[test]
    fn a_stream_may_end_only_between_messages() {
        let stream = encoded(&[&[1; 100], b"abc"]);
        for end in 0..=stream.len() {
            let mut reader = Reader::new(100);
            let mut part = &stream[..end];
            while reader.next(&mut part).expect("short enough").is_some() {}
            let whole = [0, 102, stream.len()].contains(&end);
            assert_eq!(reader.end().is_ok(), whole, "{end}");
        }
    }

    #[test]
    fn a_long_message_is_refused_before_memory_is_reserved() {
        let mut reader = Reader::new(1_000);
        let mut stream = &[0xff; 16][..];
        let error = reader.next(&mut stream);
        let len = (1 << 62) - 1;
        assert_eq!(error, Err(FrameError::TooLong { len, limit: 1_000 }));
        let mut reader = Reader::new(usize::MAX);
        assert_eq!(reader.next(&mut &[0xbf; 5][..]), Ok(None));
        assert_eq!(reader.held(), 1);
    }
}
