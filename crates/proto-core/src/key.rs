//! The content of a key file.

/// Returns the secret that the content of a key file holds: 32 bytes as they are, or 64 hexadecimal digits with
/// white space around them. `None` when it is neither.
#[must_use]
pub fn parse(content: &[u8]) -> Option<[u8; 32]> {
    if let Ok(key) = <[u8; 32]>::try_from(content) {
        return Some(key);
    }
    let digits = content.trim_ascii();
    if digits.len() != 64 {
        return None;
    }
    let mut key = [0; 32];
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        // Two digits of base 16 are one byte.
        *byte = (digit(0)? << 4 | digit(1)?) as u8;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn bytes_and_digits() {
        assert_eq!(parse(&[7; 32]), Some([7; 32]));
        let digits = b" 000102030405060708090a0b0c0d0e0fF0F1F2F3F4F5F6F7F8F9FAFBFCFDFEFF\n";
        let key = parse(digits).expect("64 digits");
        assert_eq!((key[1], key[15], key[16], key[31]), (1, 15, 0xf0, 0xff));
    }

    #[test]
    fn anything_else_is_no_key() {
        for content in [&b""[..], &[1; 31], &[b'0'; 63], &[b'0'; 66], &[b'g'; 64]] {
            assert_eq!(parse(content), None, "{content:?}");
        }
    }
}
