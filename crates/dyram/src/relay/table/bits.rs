//! Sets of children as words of 64 bits.

/// Returns the set bits of one word, in order.
pub(super) fn one_word(word: u64) -> impl Iterator<Item = u16> {
    let mut rest = word;
    core::iter::from_fn(move || {
        let bit = rest.checked_sub(1).map(|_| rest.trailing_zeros())?;
        rest &= rest - 1;
        Some(bit as u16)
    })
}

/// Whether the bit is set.
#[inline]
pub(crate) fn has_bit(words: &[u64], bit: u16) -> bool {
    words[usize::from(bit) / 64] >> (bit % 64) & 1 == 1
}

/// Returns the set bits, in order.
#[inline]
pub(crate) fn bits(words: &[u64]) -> impl Iterator<Item = u16> + '_ {
    let (mut rest, mut word, mut first) = (words, 0u64, 0u16);
    core::iter::from_fn(move || {
        while word == 0 {
            let (&next, others) = rest.split_first()?;
            first = (words.len() - rest.len()) as u16 * 64;
            (word, rest) = (next, others);
        }
        let bit = word.trailing_zeros() as u16;
        word &= word - 1;
        Some(first + bit)
    })
}
