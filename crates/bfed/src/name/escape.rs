//! Percent-encoding (RFC 3986 §2.1) in normal form.

use alloc::string::String;

use super::NameError;

/// The component, which determines the characters that need no escape.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Native and flow names: `pchar` of RFC 3986 §3.3.
    Path,
    /// Names and values of parameters: `pchar`, `/` and `?`, without `&` and `=`.
    Query,
}

fn unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

fn literal(byte: u8, place: Place) -> bool {
    unreserved(byte)
        || match place {
            Place::Path => b"!$&'()*+,;=:@".contains(&byte),
            Place::Query => b"!$'()*+,;:@/?".contains(&byte),
        }
}

fn hex(byte: u8) -> Option<u8> {
    (byte as char).to_digit(16).map(|digit| digit as u8)
}

const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

fn push_escaped(byte: u8, out: &mut String) {
    out.push('%');
    out.push(DIGITS[usize::from(byte >> 4)] as char);
    out.push(DIGITS[usize::from(byte & 15)] as char);
}

/// Appends `raw` in normal form: escapes of unreserved characters decoded, the others in upper case.
pub(super) fn normalise(raw: &str, place: Place, out: &mut String) -> Result<(), NameError> {
    let mut bytes = raw.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            if !literal(byte, place) {
                return Err(NameError::Character);
            }
            out.push(byte as char);
            continue;
        }
        let high = bytes.next().and_then(hex).ok_or(NameError::Escape)?;
        let low = bytes.next().and_then(hex).ok_or(NameError::Escape)?;
        match high << 4 | low {
            byte if unreserved(byte) => out.push(byte as char),
            // Text formats cannot carry it, and C programs end names there.
            0 => return Err(NameError::Escape),
            byte => push_escaped(byte, out),
        }
    }
    Ok(())
}
