//! Reads golden byte vectors out of the sources of the tests that hold them, so that seeds follow
//! the formats: strings of hex digits, and arrays of numbers.

use std::path::Path;

/// The goldens of LMS-HIER and IGMP messages.
pub fn link_local() -> Vec<Vec<u8>> {
    let mut goldens = of("crates/lms-proto/tests/hier/wire.rs");
    goldens.extend(of("crates/igmp/tests/igmp/wire.rs"));
    goldens.sort();
    goldens.dedup();
    goldens
}

/// Every vector of at least 4 bytes in a source file, relative to the root of the repository.
///
/// # Panics
/// If the file cannot be read: it has moved, and the seeds must follow.
pub fn of(file: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    let source = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut found: Vec<Vec<u8>> = Vec::new();
    let code: String = source
        .lines()
        .map(|line| {
            if line.contains('"') {
                line
            } else {
                line.split("//").next().unwrap_or("")
            }
        })
        .flat_map(|line| [line, "\n"])
        .collect();
    found.extend(source.split('"').skip(1).step_by(2).filter_map(hex));
    found.extend(
        code.split('[')
            .skip(1)
            .filter_map(|rest| array(rest.split(']').next()?)),
    );
    found.retain(|bytes| bytes.len() >= 4);
    found.sort();
    found.dedup();
    found
}

/// A string literal of hex digits and spaces, also one that continues on the next line.
fn hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = text
        .chars()
        .filter(|c| !c.is_whitespace() && *c != '\\')
        .map(|c| c.to_digit(16))
        .collect::<Option<_>>()?;
    let whole = !digits.is_empty() && digits.len().is_multiple_of(2);
    whole.then(|| {
        digits
            .chunks(2)
            .map(|pair| (pair[0] * 16 + pair[1]) as u8)
            .collect()
    })
}

/// The elements of an array of bytes: decimal, hexadecimal or `b'x'`.
fn array(text: &str) -> Option<Vec<u8>> {
    let words = text
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty());
    words
        .map(
            |word| match (word.strip_prefix("0x"), word.strip_prefix("b'")) {
                (Some(hex), _) => {
                    u8::from_str_radix(hex.strip_suffix("u8").unwrap_or(hex), 16).ok()
                }
                (_, Some(letter)) => letter.strip_suffix('\'')?.bytes().next(),
                _ => word.parse().ok(),
            },
        )
        .collect()
}
