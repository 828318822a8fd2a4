//! Which pictures are key frames, by the units of the video's byte stream (H.264: ITU-T H.264 §7.4.1; HEVC: ITU-T H.265
//! §7.4.2; MPEG-2: ISO/IEC 13818-2 §6.2).

/// How a stream of MPEG-TS is coded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Codec {
    Mpeg2,
    Avc,
    Hevc,
    /// Video of which only the random access indicator is read.
    OtherVideo,
    Audio,
}

impl Codec {
    /// Returns the codec of a stream type (ISO/IEC 13818-1 table 2-34).
    pub(crate) fn of_stream_type(number: u8) -> Option<Codec> {
        Some(match number {
            0x01 | 0x02 => Codec::Mpeg2,
            0x1b => Codec::Avc,
            0x24 => Codec::Hevc,
            0x10 | 0x33 | 0xd1 => Codec::OtherVideo,
            // MPEG audio, AAC, private data (AC-3, Opus), AC-3 and E-AC-3 of ATSC.
            0x03 | 0x04 | 0x06 | 0x0f | 0x11 | 0x81 | 0x87 => Codec::Audio,
            _ => return None,
        })
    }

    pub(crate) fn is_video(self) -> bool {
        self != Codec::Audio
    }
}

/// Bytes of a picture that are searched.
const MAX_SEARCH: u16 = 8192;

/// Looks for the first slice of one picture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Search {
    last: u32,
    searched: u16,
    is_key: Option<bool>,
}

impl Search {
    pub(crate) fn new() -> Self {
        Search {
            last: u32::MAX,
            searched: 0,
            is_key: None,
        }
    }

    /// Returns whether the picture is a key frame, as far as is known.
    pub(crate) fn is_key(&self) -> bool {
        self.is_key.unwrap_or(false)
    }

    /// Reads the next bytes of the picture.
    pub(crate) fn push(&mut self, codec: Codec, bytes: &[u8]) {
        for &byte in bytes {
            if self.is_key.is_some() || self.searched == MAX_SEARCH {
                return;
            }
            self.searched += 1;
            self.last = self.last << 8 | u32::from(byte);
            if self.last >> 8 == 1 {
                self.is_key = is_key(codec, byte);
            }
        }
    }
}

/// Returns whether a unit with this first byte begins a key frame; `None` if it is no slice.
fn is_key(codec: Codec, byte: u8) -> Option<bool> {
    match codec {
        Codec::Avc => match byte & 0x1f {
            5 => Some(true),
            1..=4 => Some(false),
            _ => None,
        },
        Codec::Hevc => match byte >> 1 & 0x3f {
            16..=21 => Some(true),
            0..=9 => Some(false),
            _ => None,
        },
        Codec::Mpeg2 => match byte {
            0xb3 => Some(true),
            0x00 => Some(false),
            _ => None,
        },
        Codec::OtherVideo | Codec::Audio => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(codec: Codec, pieces: &[&[u8]]) -> Option<bool> {
        let mut search = Search::new();
        for piece in pieces {
            search.push(codec, piece);
        }
        search.is_key
    }

    #[test]
    fn the_first_slice_decides_wherever_it_is_cut() {
        // Delimiter, parameter sets, then the slice.
        let idr = [
            0, 0, 0, 1, 9, 0x10, 0, 0, 1, 0x67, 1, 0, 0, 1, 0x68, 2, 0, 0, 1, 0x65, 7,
        ];
        for cut in 0..idr.len() {
            let (first, rest) = idr.split_at(cut);
            assert_eq!(key(Codec::Avc, &[first, rest]), Some(true));
        }
        assert_eq!(
            key(Codec::Avc, &[&[0, 0, 1, 9, 0x10, 0, 0, 1, 0x41]]),
            Some(false)
        );
        assert_eq!(
            key(Codec::Hevc, &[&[0, 0, 1, 35 << 1, 1, 0, 0, 1, 19 << 1]]),
            Some(true)
        );
        assert_eq!(key(Codec::Hevc, &[&[0, 0, 1, 1 << 1]]), Some(false));
        assert_eq!(key(Codec::Mpeg2, &[&[0, 0, 1, 0xb3]]), Some(true));
        assert_eq!(key(Codec::Avc, &[&[0; 20_000]]), None);
    }
}
