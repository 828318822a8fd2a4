//! LEAVE: no more of this session (§5.2.3). The body is the session's name, its length before it.

use super::reader::name_len;
use super::{HEADER_LEN, ParseError, Type, body, header};
use crate::name::SessionName;

/// Reads a message.
///
/// # Errors
/// It is not a LEAVE.
pub fn parse(bytes: &[u8]) -> Result<SessionName, ParseError> {
    let mut reader = body(bytes, Type::Leave)?;
    let session = reader.name()?;
    reader.end()?;
    Ok(session)
}

/// Length of the message in bytes.
#[must_use]
pub fn buffer_len(session: &SessionName) -> usize {
    HEADER_LEN + name_len(session)
}

/// Writes the message.
///
/// # Panics
/// `buffer` is shorter than [`buffer_len`].
pub fn emit(session: &SessionName, buffer: &mut [u8]) {
    header(buffer, Type::Leave, buffer_len(session)).name(session);
}
