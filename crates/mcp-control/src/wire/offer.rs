//! OFFER and ENTRIES: the entries of the copy.
//!
//! ```text
//!  OFFER (client)
//! +---------------------------------------------------------------+
//! |  identifier of the copy, random (16 bytes)                    |
//! +---------------------------------------------------------------+
//! |  number of entries                                            |
//! +---------------------------------------------------------------+
//! |  bytes of all files (64 bits)                                 |
//! +---------------------------------------------------------------+
//!
//!  ENTRIES (client): one or more of
//! +---------------+---------------+-------------------------------+
//! |  kind         |  0            |  mode: nine permission bits   |
//! +---------------+---------------+-------------------------------+
//! |  length of the path           |  length of the target         |
//! +-------------------------------+-------------------------------+
//! |  written, nanoseconds                                         |
//! +---------------------------------------------------------------+
//! |  written, seconds since 1970 (64 bits, signed)                |
//! +---------------------------------------------------------------+
//! |  length of the file (64 bits)                                 |
//! +---------------------------------------------------------------+
//! |  path, target of a link                                       |
//! +---------------------------------------------------------------+
//! ```
//!
//! Kind: 1 folder, 2 file, 3 symbolic link.

use core::ops::RangeInclusive;

use super::{HEADER_LEN, MAX_BODY_LEN, Message, ParseError, Type, array_at, begin, body};
use super::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::limits::{MAX_PATH_LEN, MAX_TARGET_LEN};
use crate::manifest::{Entry, Kind, ManifestError, Timestamp};
use crate::path::RelPath;

/// Identifies a copy in the logs of both sides.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CopyId(pub [u8; 16]);

impl core::fmt::Display for CopyId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl core::fmt::Debug for CopyId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{self}")
    }
}

/// An OFFER.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Offer {
    /// Which copy.
    pub copy: CopyId,
    /// Entries that follow, at least 1.
    pub entries: u32,
    /// Bytes of all files.
    pub bytes: u64,
}

/// Length of an entry without path and target.
const FIXED_LEN: usize = 28;
/// The longest an entry can be on the wire.
pub const MAX_ENTRY_LEN: usize = FIXED_LEN + MAX_PATH_LEN + MAX_TARGET_LEN;

impl Message for Offer {
    const TYPE: Type = Type::Offer;
    const LENGTHS: RangeInclusive<usize> = 28..=28;

    fn parse_body(body: &[u8]) -> Result<Self, ParseError> {
        let entries = u32_at(body, 16);
        if entries == 0 {
            return Err(ParseError::Value);
        }
        Ok(Offer {
            copy: CopyId(array_at(body, 0)),
            entries,
            bytes: u64_at(body, 20),
        })
    }

    fn emit_body(&self, body: &mut [u8]) {
        body[..16].copy_from_slice(&self.copy.0);
        put_u32(body, 16, self.entries);
        put_u64(body, 20, self.bytes);
    }
}

/// Length of an entry on the wire.
pub fn entry_len(entry: &Entry) -> usize {
    let target = match &entry.kind {
        Kind::Link { target } => target.len(),
        _ => 0,
    };
    FIXED_LEN + entry.path.as_bytes().len() + target
}

/// Writes an entry; its length.
///
/// # Panics
/// If the buffer is shorter than [`entry_len`].
pub fn emit_entry(entry: &Entry, out: &mut [u8]) -> usize {
    let (kind, target): (u8, &[u8]) = match &entry.kind {
        Kind::Folder => (1, &[]),
        Kind::File { .. } => (2, &[]),
        Kind::Link { target } => (3, target),
    };
    let path = entry.path.as_bytes();
    out[0] = kind;
    out[1] = 0;
    put_u16(out, 2, entry.mode);
    put_u16(out, 4, path.len() as u16);
    put_u16(out, 6, target.len() as u16);
    put_u32(out, 8, entry.modified.nanos);
    put_u64(out, 12, entry.modified.seconds.cast_unsigned());
    put_u64(out, 20, entry.len());
    let target_at = FIXED_LEN + path.len();
    out[FIXED_LEN..target_at].copy_from_slice(path);
    let end = target_at + target.len();
    out[target_at..end].copy_from_slice(target);
    end
}

/// Parses the entry at the front of `bytes`; returns it with the rest.
///
/// # Errors
/// Cut short, or fields that contradict the kind.
pub fn parse_entry(bytes: &[u8]) -> Result<(Entry, &[u8]), EntryError> {
    if bytes.len() < FIXED_LEN {
        return Err(ParseError::Truncated.into());
    }
    let path_end = FIXED_LEN + usize::from(u16_at(bytes, 4));
    let end = path_end + usize::from(u16_at(bytes, 6));
    if bytes.len() < end {
        return Err(ParseError::Truncated.into());
    }
    if bytes[1] != 0 {
        return Err(ParseError::Reserved.into());
    }
    let len = u64_at(bytes, 20);
    let target = &bytes[path_end..end];
    let kind = match bytes[0] {
        1 => Kind::Folder,
        2 => Kind::File { len },
        3 => Kind::Link {
            target: target.into(),
        },
        _ => return Err(ParseError::Value.into()),
    };
    let is_file = matches!(kind, Kind::File { .. });
    let is_link = matches!(kind, Kind::Link { .. });
    if (len > 0 && !is_file) || target.is_empty() == is_link {
        return Err(ParseError::Value.into());
    }
    let path = RelPath::new(&bytes[FIXED_LEN..path_end]).map_err(ManifestError::Path)?;
    let entry = Entry {
        path,
        kind,
        mode: u16_at(bytes, 2),
        modified: Timestamp {
            seconds: u64_at(bytes, 12).cast_signed(),
            nanos: u32_at(bytes, 8),
        },
    };
    Ok((entry, &bytes[end..]))
}

/// The reason why an entry is refused: malformed, or not allowed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EntryError {
    /// The bytes are not a valid entry.
    Parse(ParseError),
    /// The entry violates a rule of [`crate::Manifest`].
    Manifest(ManifestError),
}

impl From<ParseError> for EntryError {
    fn from(error: ParseError) -> Self {
        EntryError::Parse(error)
    }
}

impl From<ManifestError> for EntryError {
    fn from(error: ManifestError) -> Self {
        EntryError::Manifest(error)
    }
}

/// The body of an ENTRIES frame: entries for [`parse_entry`], at least one.
///
/// # Errors
/// The frame is not a valid ENTRIES.
pub fn parse_entries(frame: &[u8]) -> Result<&[u8], ParseError> {
    body(frame, Type::Entries, FIXED_LEN..=MAX_BODY_LEN)
}

/// Writes an ENTRIES frame with as many of `entries` as fit the buffer and a frame: its length, and how
/// many there are in it. No entry fits, or there is none: `None`.
pub fn emit_entries(entries: &[Entry], frame: &mut [u8]) -> Option<(usize, usize)> {
    let most = frame.len().min(HEADER_LEN + MAX_BODY_LEN);
    let mut end = HEADER_LEN;
    let mut count = 0;
    for entry in entries {
        if end + entry_len(entry) > most {
            break;
        }
        end += emit_entry(entry, &mut frame[end..]);
        count += 1;
    }
    if count == 0 {
        return None;
    }
    begin(frame, Type::Entries, end);
    Some((end, count))
}
