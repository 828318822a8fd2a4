//! EBML (RFC 8794): identifiers, lengths, and elements in a slice.

/// Identifiers of elements (RFC 9559 §5.1), with the marker of their length.
pub(crate) const ID_EBML: u32 = 0x1a45_dfa3;
pub(crate) const ID_SEGMENT: u32 = 0x1853_8067;
pub(crate) const ID_INFO: u32 = 0x1549_a966;
pub(crate) const ID_TIMESTAMP_SCALE: u32 = 0x2a_d7b1;
pub(crate) const ID_TRACKS: u32 = 0x1654_ae6b;
pub(crate) const ID_TRACK: u32 = 0xae;
pub(crate) const ID_TRACK_NUMBER: u32 = 0xd7;
pub(crate) const ID_TRACK_TYPE: u32 = 0x83;
pub(crate) const ID_CODEC: u32 = 0x86;
pub(crate) const ID_CODEC_PRIVATE: u32 = 0x63a2;
pub(crate) const ID_CLUSTER: u32 = 0x1f43_b675;
pub(crate) const ID_TIMESTAMP: u32 = 0xe7;
pub(crate) const ID_SIMPLE_BLOCK: u32 = 0xa3;
pub(crate) const ID_BLOCK_GROUP: u32 = 0xa0;
pub(crate) const ID_BLOCK: u32 = 0xa1;
pub(crate) const ID_BLOCK_DURATION: u32 = 0x9b;
pub(crate) const ID_REFERENCE_BLOCK: u32 = 0xfb;

/// Most bytes of an identifier and a length.
pub(crate) const MAX_HEAD: usize = 12;

/// The head of an element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(crate) id: u32,
    /// Length of the content; `None`: until an element that cannot be in it.
    pub(crate) len: Option<u64>,
    /// Length of the head.
    pub(crate) head_len: usize,
}

/// What the first bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Parsed {
    Head(Head),
    /// More bytes decide.
    Short,
    Wrong,
}

/// Reads the head of an element.
pub(crate) fn head(bytes: &[u8]) -> Parsed {
    let Some(&first) = bytes.first() else {
        return Parsed::Short;
    };
    let id_len = first.leading_zeros() as usize + 1;
    if id_len > 4 {
        return Parsed::Wrong;
    }
    let Some(id) = bytes.get(..id_len) else {
        return Parsed::Short;
    };
    let id = id.iter().fold(0, |id, &byte| id << 8 | u32::from(byte));
    match vint(&bytes[id_len..]) {
        Some((len, n)) => Parsed::Head(Head {
            id,
            len,
            head_len: id_len + n,
        }),
        None => match bytes.get(id_len) {
            Some(0) => Parsed::Wrong,
            _ => Parsed::Short,
        },
    }
}

/// Reads a number of variable length: its value, `None` if all bits are set, and its length.
pub(crate) fn vint(bytes: &[u8]) -> Option<(Option<u64>, usize)> {
    let first = *bytes.first()?;
    let len = first.leading_zeros() as usize + 1;
    let field = bytes.get(..len).filter(|_| len <= 8)?;
    let value = field
        .iter()
        .fold(0, |value, &byte| value << 8 | u64::from(byte));
    let mask = (1u64 << (7 * len)) - 1;
    let value = value & mask;
    Some(((value != mask).then_some(value), len))
}

/// Returns the number in an element's content, at most 8 bytes.
pub(crate) fn number(content: &[u8]) -> Option<u64> {
    let value = content
        .iter()
        .fold(0u64, |value, &byte| value << 8 | u64::from(byte));
    (content.len() <= 8).then_some(value)
}

/// Calls `visit` for each element in `content`; ends at the first that does not fit.
pub(crate) fn each<'b>(content: &'b [u8], mut visit: impl FnMut(u32, &'b [u8])) {
    let mut rest = content;
    while let Parsed::Head(head) = head(rest) {
        let body = &rest[head.head_len..];
        let len = head.len.and_then(|len| usize::try_from(len).ok());
        let Some((content, more)) = len.and_then(|len| body.split_at_checked(len)) else {
            return;
        };
        visit(head.id, content);
        rest = more;
    }
}
