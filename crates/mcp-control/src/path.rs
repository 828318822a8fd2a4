//! Relative paths that stay below the folder they are used in.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;

use crate::limits::{MAX_DEPTH, MAX_NAME_LEN, MAX_PATH_LEN, MAX_TARGET_LEN};

/// Suffix of the names of partial files, which are never copied.
pub const PART_SUFFIX: &[u8] = b".mcp-part";

/// Why bytes are not a path that may be copied to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PathError {
    /// An empty path, or an empty component.
    Empty,
    /// `.` or `..`: such a path could leave the folder.
    Dots,
    /// A zero byte, which file systems do not allow.
    Zero,
    /// A component longer than [`MAX_NAME_LEN`].
    LongName,
    /// Longer than [`MAX_PATH_LEN`], or than [`MAX_TARGET_LEN`] for a link.
    Long,
    /// More than [`MAX_DEPTH`] components.
    Deep,
    /// A component has the name of a partial file (`.….mcp-part`).
    Reserved,
    /// The target of a link is absolute, or outside the copy.
    Escapes,
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PathError::Empty => "a part of the path is empty",
            PathError::Dots => "\".\" and \"..\" are not allowed in the path",
            PathError::Zero => "the path has a zero byte",
            PathError::LongName => "a name is longer than 255 bytes",
            PathError::Long => "the path is longer than 4096 bytes",
            PathError::Deep => "the path is more than 128 folders deep",
            PathError::Reserved => "the name is one that unfinished files have",
            PathError::Escapes => "the link leads out of what is copied",
        })
    }
}

impl core::error::Error for PathError {}

/// A path relative to a folder, which it cannot leave: components of 1 to [`MAX_NAME_LEN`] bytes, joined by
/// single slashes, none of them `.` or `..`. All other bytes except zero are allowed, as in Linux file names;
/// they are escaped for display ([`fmt::Display`]).
///
/// Paths are ordered component by component, so that a folder comes right before its contents.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RelPath(Box<[u8]>);

impl RelPath {
    /// Checks the bytes.
    ///
    /// # Errors
    /// The first rule that they break.
    pub fn new(bytes: &[u8]) -> Result<Self, PathError> {
        if bytes.len() > MAX_PATH_LEN {
            return Err(PathError::Long);
        }
        let mut depth = 0;
        for name in bytes.split(|&byte| byte == b'/') {
            check_name(name)?;
            depth += 1;
        }
        if depth > MAX_DEPTH {
            return Err(PathError::Deep);
        }
        Ok(RelPath(bytes.into()))
    }

    /// This path with one more component.
    ///
    /// # Errors
    /// The name is none, or the whole is too long or too deep.
    pub fn join(&self, name: &[u8]) -> Result<Self, PathError> {
        if name.contains(&b'/') {
            return Err(PathError::Dots);
        }
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + name.len());
        bytes.extend_from_slice(&self.0);
        bytes.push(b'/');
        bytes.extend_from_slice(name);
        RelPath::new(&bytes)
    }

    /// Returns the bytes, with slashes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the components, at least one.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|&byte| byte == b'/')
    }

    /// Returns the number of components, at least 1.
    pub fn depth(&self) -> usize {
        self.components().count()
    }

    /// Returns the last component.
    pub fn name(&self) -> &[u8] {
        self.components().next_back().unwrap_or(&[])
    }

    /// Returns all but the last component; `None` for a path of one.
    pub fn parent(&self) -> Option<&[u8]> {
        let slash = self.0.iter().rposition(|&byte| byte == b'/')?;
        Some(&self.0[..slash])
    }

    /// Whether this path is below the folder `folder`.
    pub fn is_below(&self, folder: &RelPath) -> bool {
        self.0.len() > folder.0.len()
            && self.0.starts_with(&folder.0)
            && self.0[folder.0.len()] == b'/'
    }
}

impl PartialOrd for RelPath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RelPath {
    fn cmp(&self, other: &Self) -> Ordering {
        self.components().cmp(other.components())
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(&self.0, f)
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// Writes bytes as text that is safe for a terminal: control characters, changes of text direction and invalid
/// UTF-8 become `\x..` or `\u{..}`.
///
/// # Errors
/// [`fmt::Error`] when `f` refuses the text.
pub fn show(bytes: &[u8], f: &mut impl fmt::Write) -> fmt::Result {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            let steers = matches!(c,
                '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
            if c.is_control() || c == '\\' || steers {
                write!(f, "{}", c.escape_default())?;
            } else {
                f.write_char(c)?;
            }
        }
        for byte in chunk.invalid() {
            write!(f, "\\x{byte:02x}")?;
        }
    }
    Ok(())
}

fn check_name(name: &[u8]) -> Result<(), PathError> {
    match name {
        [] => Err(PathError::Empty),
        b"." | b".." => Err(PathError::Dots),
        _ if name.contains(&0) => Err(PathError::Zero),
        _ if name.len() > MAX_NAME_LEN => Err(PathError::LongName),
        _ if is_part(name) => Err(PathError::Reserved),
        _ => Ok(()),
    }
}

/// Whether this is the name of a partial file.
pub fn is_part(name: &[u8]) -> bool {
    name.starts_with(b".") && name.ends_with(PART_SUFFIX)
}

/// Returns the hidden name of the partial file of `name`, in the same folder: `.NAME.mcp-part`, or with a
/// digest of the name where that would be too long.
pub fn part_name(name: &[u8]) -> Vec<u8> {
    let mut part = Vec::with_capacity(name.len() + 1 + PART_SUFFIX.len());
    part.push(b'.');
    if name.len() + 1 + PART_SUFFIX.len() <= MAX_NAME_LEN {
        part.extend_from_slice(name);
    } else {
        part.extend_from_slice(&name[..200]);
        part.push(b'.');
        for byte in &blake3::hash(name).as_bytes()[..8] {
            for digit in [byte >> 4, byte & 0xf] {
                part.push(b"0123456789abcdef"[usize::from(digit)]);
            }
        }
    }
    part.extend_from_slice(PART_SUFFIX);
    part
}

/// Checks the target of a symbolic link at `depth` folders below the top of the copy (0: in the top folder).
///
/// Allowed: up to `depth` times `..`, followed by names only. If every link of a tree obeys this, no chain of
/// links leads out of it: the names are preceded by real folders, and none of them can be left upwards again.
///
/// # Errors
/// [`PathError::Escapes`], or what is wrong with the names.
pub fn check_target(target: &[u8], depth: usize) -> Result<(), PathError> {
    if target.len() > MAX_TARGET_LEN {
        return Err(PathError::Long);
    }
    if target.starts_with(b"/") {
        return Err(PathError::Escapes);
    }
    if target.is_empty() {
        return Err(PathError::Empty);
    }
    let mut ups = 0;
    let mut names = 0;
    for part in target.split(|&byte| byte == b'/') {
        match part {
            b".." if names == 0 && ups < depth => ups += 1,
            b".." => return Err(PathError::Escapes),
            b"" | b"." => {}
            name => {
                check_name(name)?;
                names += 1;
            }
        }
    }
    Ok(())
}
