//! Every golden of the crates.

use crate::packets::Carrier;
use crate::{Fields, Shown, bfed, dyram, ldc, lms, ltp, mcp, tcpxm};

/// What one protocol's parser reads; `None`: it refuses.
pub(crate) type Parse = fn(&[u8]) -> Option<Fields>;

pub(crate) struct Golden {
    pub(crate) name: &'static str,
    pub(crate) bytes: Vec<u8>,
    pub(crate) carrier: Carrier,
    pub(crate) parse: Parse,
    /// Where the length of the message stands, if a stream carries it: (offset, bytes, what the
    /// number leaves out).
    pub(crate) framing: Option<(usize, usize, usize)>,
    /// Bytes whose flips are not compared, as the parser judges them by rules of text.
    pub(crate) text: Vec<std::ops::Range<usize>>,
}

impl Golden {
    pub(crate) fn new(name: &'static str, bytes: Vec<u8>, carrier: Carrier, parse: Parse) -> Self {
        Golden {
            name,
            bytes,
            carrier,
            parse,
            framing: None,
            text: Vec::new(),
        }
    }

    /// Whether Wireshark's own dissectors see it too, and judge it by their own rules.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(
            self.carrier,
            Carrier::Raw | Carrier::Igmp | Carrier::Segment
        )
    }

    /// What the Rust parser reads in these bytes.
    pub(crate) fn fields(&self, bytes: &[u8]) -> Option<Shown> {
        (self.parse)(bytes).map(|fields| fields.shown)
    }

    /// Cut at each place. In a stream the length of the message is made to agree, else Wireshark
    /// would wait for the rest; options are cut by words.
    pub(crate) fn truncations(&self) -> Vec<Vec<u8>> {
        let (least, step) = match (self.carrier, self.framing) {
            (Carrier::IpOption, _) => (4, 4),
            (Carrier::Raw | Carrier::Igmp, _) => return Vec::new(),
            // Of a datagram without payload, or half a header of a stream, nothing is shown.
            (_, Some((at, width, _))) => (at + width, 1),
            _ => (1, 1),
        };
        (least..self.bytes.len())
            .step_by(step)
            .map(|len| self.framed(self.bytes[..len].to_vec()))
            .collect()
    }

    fn framed(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        if let Some((at, width, without)) = self.framing {
            let number = (bytes.len().saturating_sub(without) as u32).to_be_bytes();
            bytes[at..at + width].copy_from_slice(&number[4 - width..]);
        }
        bytes
    }

    /// Each bit flipped, but for the length of a message in a stream.
    pub(crate) fn flips(&self) -> Vec<Vec<u8>> {
        let framing = self.framing.map(|(at, width, _)| at..at + width);
        let compared = |byte: &usize| {
            !framing
                .iter()
                .chain(&self.text)
                .any(|range| range.contains(byte))
        };
        (0..self.bytes.len())
            .filter(compared)
            .flat_map(|byte| (0..8).map(move |bit| (byte, bit)))
            .map(|(byte, bit)| {
                let mut bytes = self.bytes.clone();
                bytes[byte] ^= 1 << bit;
                bytes
            })
            .collect()
    }
}

pub(crate) fn every_golden() -> Vec<Golden> {
    let all = [
        lms::goldens(),
        ltp::goldens(),
        dyram::goldens(),
        tcpxm::goldens(),
        mcp::goldens(),
        bfed::goldens(),
        ldc::goldens(),
    ];
    all.into_iter().flatten().collect()
}

/// Bytes of a text in hexadecimal; anything else in it is passed over.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// Where the crates keep theirs.
pub(crate) const SOURCES: &[(&str, &str)] = &[
    (
        "lms-proto",
        include_str!("../../../crates/lms-proto/tests/golden_option.rs"),
    ),
    (
        "lms-proto hier",
        include_str!("../../../crates/lms-proto/tests/hier/wire.rs"),
    ),
    (
        "igmp",
        include_str!("../../../crates/igmp/tests/igmp/wire.rs"),
    ),
    (
        "mld",
        include_str!("../../../crates/igmp/tests/igmp/mld.rs"),
    ),
    (
        "ltp",
        include_str!("../../../crates/ltp/tests/golden_wire.rs"),
    ),
    (
        "dyram",
        include_str!("../../../crates/dyram/tests/golden_wire.rs"),
    ),
    (
        "tcpxm",
        include_str!("../../../crates/tcpxm/tests/golden_wire.rs"),
    ),
    (
        "mcp-control",
        include_str!("../../../crates/mcp-control/tests/golden_wire.rs"),
    ),
    (
        "bfed",
        include_str!("../../../crates/bfed/tests/wire/golden.rs"),
    ),
    (
        "ldc-stream",
        include_str!("../../../bins/ldc-stream/tests/golden_wire.rs"),
    ),
];

/// What tests put together to be refused, or to hold others' data: no goldens.
pub(crate) const PIECES: &[&str] = &[
    "110a0000ef0102030000",
    "130a0000ef010203",
    "2200000000000002",
    "04020000ef0102030102030405060708",
    "02020000ef0102044c4d000901010101",
    "fd08584eef000001",
    "fd08584d0a000001",
    "fd08584de0000001",
    "fd07584def000000",
    "020301014d05010203",
    // A BLOCKS without digests, and what travels on links, which is no control message.
    "01120000000000080000000000000003",
    "39a8dcab2dc04600",
    "504d435201010000",
    "000000000000000700000002",
    "000000000000000700000000",
    "000000000000000700000101",
    "ffffffffffffffff00000001",
    "000000000000000700100000",
    "000000000000000700100001",
];

/// The shortest literal that counts as (a part of) a golden.
const SHORTEST: usize = 8;

/// The packets that a test spells out, in hexadecimal: texts of hexadecimal digits up to a
/// placeholder, and arrays of bytes.
pub(crate) fn literals(source: &str) -> Vec<String> {
    let lines: String = source
        .lines()
        .map(|line| line.split(" //").next().unwrap_or(line).to_string() + "\n")
        .collect();
    let mut found = Vec::new();
    for text in lines.split('"').skip(1).step_by(2) {
        let head = text.split('{').next().unwrap_or("");
        let digits: String = head
            .chars()
            .filter(|c| !c.is_whitespace() && *c != '\\')
            .collect();
        let all_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if all_hex && digits.len() >= 2 * SHORTEST {
            found.push(digits);
        }
    }
    for piece in lines.split('[').skip(1) {
        let body = piece.split(']').next().unwrap_or("");
        let bytes: Option<Vec<u8>> = body
            .split(',')
            .map(str::trim)
            .filter(|token| !token.is_empty())
            .map(byte)
            .collect();
        if let Some(bytes) = bytes.filter(|bytes| bytes.len() >= SHORTEST) {
            found.push(bytes.iter().map(|byte| format!("{byte:02x}")).collect());
        }
    }
    found
}

fn byte(token: &str) -> Option<u8> {
    if let Some(digits) = token.strip_prefix("0x") {
        return u8::from_str_radix(digits, 16).ok();
    }
    match token.as_bytes() {
        [b'b', b'\'', character, b'\''] => Some(*character),
        _ => token.parse().ok(),
    }
}
