//! FAILED: one side ends the copy, with the reason.
//!
//! ```text
//! +-------------------------------+-------------------------------+
//! |  reason                       |  0                            |
//! +-------------------------------+-------------------------------+
//! |  entry that it is about; 0xffffffff: none                     |
//! +---------------------------------------------------------------+
//! |  explanation, UTF-8 without control characters (0 to 512)     |
//! +---------------------------------------------------------------+
//! ```

use alloc::string::String;
use core::fmt;
use core::ops::RangeInclusive;

use super::{Message, ParseError, Type, put_u16, put_u32, u16_at, u32_at};
use crate::limits::MAX_TEXT_LEN;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $number:literal, $name:literal, $text:literal;)+) => {
        /// Why a copy to one receiver failed.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u16)]
        pub enum Reason {
            $($(#[doc = $doc])+ $variant = $number,)+
        }

        impl Reason {
            /// Every reason, by number.
            pub const ALL: &[Reason] = &[$(Reason::$variant),+];

            /// Returns a name for events and metrics: lower case, underscores.
            pub const fn name(self) -> &'static str {
                match self { $(Reason::$variant => $name),+ }
            }
        }

        impl fmt::Display for Reason {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Reason::$variant => $text),+ })
            }
        }
    };
}

reasons! {
    /// The user stopped it; the next run resumes.
    Interrupted = 1, "interrupted", "interrupted";
    /// The peer broke the protocol, or speaks another version.
    Protocol = 2, "protocol", "the other side does not follow the protocol";
    /// The peer was silent for too long.
    Silent = 3, "silent", "went silent";
    /// The server runs as many copies as it accepts.
    Busy = 4, "busy", "is busy with other copies";
    /// More entries or bytes than the server accepts.
    TooLarge = 5, "too_large", "does not take so much";
    /// A name that leaves the folder, or that is not accepted.
    Name = 6, "name", "refuses a name";
    /// No space left on the device, or a quota is used up (ENOSPC, EDQUOT).
    NoSpace = 7, "no_space", "no space left on the device";
    /// The file system does not permit it (EACCES, EPERM, EROFS).
    Permission = 8, "permission", "permission denied";
    /// Something of another kind is where an entry goes: a folder instead of a file.
    InTheWay = 9, "in_the_way", "something else is in the way";
    /// Another copy is writing the same file.
    Locked = 10, "locked", "another copy writes the same file";
    /// Any other error of the file system.
    Storage = 11, "storage", "the file system failed";
    /// No port was found that is free everywhere.
    NoPort = 12, "no_port", "found no common port";
    /// The plan needs a capability that is disabled: encryption, or the carrier.
    Capability = 13, "capability", "cannot do what is asked for";
    /// The data connection failed.
    Data = 14, "data", "the data connection failed";
    /// A file does not match what was sent; the next run sends only the wrong blocks.
    Mismatch = 15, "mismatch", "a digest is wrong";
    /// A file changed while the sender read it, or could not be read to its end.
    Changed = 16, "changed", "a file changed while it was read";
    /// The connection ended early.
    Closed = 17, "closed", "the connection was closed";
}

impl Reason {
    /// Returns the reason with that number.
    pub fn from_number(number: u16) -> Option<Self> {
        Reason::ALL
            .iter()
            .copied()
            .find(|reason| *reason as u16 == number)
    }
}

/// A FAILED.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Failed {
    /// Why.
    pub reason: Reason,
    /// The entry that it concerns.
    pub entry: Option<u32>,
    /// An explanation for people; control characters are removed, more than [`MAX_TEXT_LEN`] bytes are cut.
    pub text: String,
}

/// Length of a FAILED's body without the explanation.
const FIXED_LEN: usize = 8;
/// Longest body of a FAILED.
pub const MAX_FAILED_LEN: usize = FIXED_LEN + MAX_TEXT_LEN;
const NO_ENTRY: u32 = u32::MAX;

impl Failed {
    /// With an explanation made fit for the wire.
    pub fn new(reason: Reason, entry: Option<u32>, text: &str) -> Self {
        let mut clean = String::new();
        for c in text.chars().filter(|c| !c.is_control()) {
            if clean.len() + c.len_utf8() > MAX_TEXT_LEN {
                break;
            }
            clean.push(c);
        }
        Failed {
            reason,
            entry: entry.filter(|&entry| entry != NO_ENTRY),
            text: clean,
        }
    }
}

impl Message for Failed {
    const TYPE: Type = Type::Failed;
    const LENGTHS: RangeInclusive<usize> = FIXED_LEN..=MAX_FAILED_LEN;

    fn body_len(&self) -> usize {
        FIXED_LEN + self.text.len()
    }

    fn parse_body(body: &[u8]) -> Result<Self, ParseError> {
        if u16_at(body, 2) != 0 {
            return Err(ParseError::Reserved);
        }
        let reason = Reason::from_number(u16_at(body, 0)).ok_or(ParseError::Value)?;
        let text = core::str::from_utf8(&body[FIXED_LEN..]).map_err(|_| ParseError::Value)?;
        if text.chars().any(char::is_control) {
            return Err(ParseError::Value);
        }
        let entry = u32_at(body, 4);
        Ok(Failed {
            reason,
            entry: (entry != NO_ENTRY).then_some(entry),
            text: text.into(),
        })
    }

    fn emit_body(&self, body: &mut [u8]) {
        put_u16(body, 0, self.reason as u16);
        put_u16(body, 2, 0);
        put_u32(body, 4, self.entry.unwrap_or(NO_ENTRY));
        body[FIXED_LEN..].copy_from_slice(self.text.as_bytes());
    }
}
