//! Codec strings (RFC 6381; for AVC its §3.3, for HEVC ISO/IEC 14496-15 annex E, for AV1 and VP9 their bindings).

use alloc::format;
use alloc::string::{String, ToString};

/// Returns the codec string of a sample entry of MP4. `find` returns the content of a box in it.
pub(crate) fn of_entry<'b>(
    name: &[u8],
    find: impl Fn(&[u8; 4]) -> Option<&'b [u8]>,
) -> Option<String> {
    match name {
        b"avc1" | b"avc3" => {
            let [_, profile, constraints, level, ..] = find(b"avcC")? else {
                return None;
            };
            let name = core::str::from_utf8(name).ok()?;
            Some(format!("{name}.{profile:02x}{constraints:02x}{level:02x}"))
        }
        b"hvc1" | b"hev1" => hevc(name, find(b"hvcC")?),
        b"vp09" => {
            // A full box: version and flags, then profile, level, and bits for each colour in the upper half.
            let [_, _, _, _, profile, level, depth, ..] = find(b"vpcC")? else {
                return None;
            };
            Some(format!("vp09.{profile:02}.{level:02}.{:02}", depth >> 4))
        }
        b"av01" => av1(find(b"av1C")?),
        b"mp4a" => aac(find(b"esds")?),
        b"Opus" => Some("opus".to_string()),
        b"fLaC" => Some("flac".to_string()),
        _ => None,
    }
}

/// Returns the codec string of a track of WebM.
pub(crate) fn of_webm(codec: &[u8], private: &[u8]) -> Option<String> {
    match codec {
        b"V_VP8" => Some("vp8".to_string()),
        b"V_VP9" => Some("vp9".to_string()),
        b"V_AV1" => av1(private),
        b"A_OPUS" => Some("opus".to_string()),
        b"A_VORBIS" => Some("vorbis".to_string()),
        _ => None,
    }
}

/// Returns the string of a decoder configuration of HEVC (ISO/IEC 14496-15 §8.3.3.1).
fn hevc(name: &[u8], config: &[u8]) -> Option<String> {
    let [_, profile, rest @ ..] = config else {
        return None;
    };
    let (compatibility, rest) = rest.split_first_chunk::<4>()?;
    let (constraints, rest) = rest.split_first_chunk::<6>()?;
    let level = *rest.first()?;
    let name = core::str::from_utf8(name).ok()?;
    let space = ["", "A", "B", "C"][usize::from(profile >> 6)];
    let tier = if profile & 0x20 == 0 { 'L' } else { 'H' };
    let compatibility = u32::from_be_bytes(*compatibility).reverse_bits();
    let mut text = format!(
        "{name}.{space}{}.{compatibility:X}.{tier}{level}",
        profile & 0x1f
    );
    let last = constraints
        .iter()
        .rposition(|&byte| byte != 0)
        .map_or(0, |at| at + 1);
    for byte in &constraints[..last] {
        text.push_str(&format!(".{byte:X}"));
    }
    Some(text)
}

/// Returns the string of a decoder configuration of AV1.
fn av1(config: &[u8]) -> Option<String> {
    let [_, second, third, ..] = config else {
        return None;
    };
    let (profile, level) = (second >> 5, second & 0x1f);
    let tier = if third & 0x80 == 0 { 'M' } else { 'H' };
    let depth = match third & 0x60 {
        0x60 => 12,
        0x40 => 10,
        _ => 8,
    };
    Some(format!("av01.{profile}.{level:02}{tier}.{depth:02}"))
}

/// Returns the string of an elementary stream descriptor of MPEG-4 sound (ISO/IEC 14496-1 §7.2.6): its object type, and
/// for AAC the audio object type.
fn aac(esds: &[u8]) -> Option<String> {
    let mut rest = descriptor(esds.get(4..)?, 3)?.get(3..)?;
    rest = descriptor(rest, 4)?;
    let object = *rest.first()?;
    if object != 0x40 {
        return Some(format!("mp4a.{object:02x}"));
    }
    let specific = descriptor(rest.get(13..)?, 5)?;
    let kind = specific.first()? >> 3;
    // 31 announces a longer number, of which browsers know none.
    (kind != 31).then(|| format!("mp4a.40.{kind}"))
}

/// Returns the content of a descriptor with that tag, and what follows it.
fn descriptor(bytes: &[u8], tag: u8) -> Option<&[u8]> {
    let (&first, mut rest) = bytes.split_first()?;
    // Up to four bytes of length; the box bounds the content.
    for _ in 0..4 {
        let (&byte, more) = rest.split_first()?;
        rest = more;
        if byte & 0x80 == 0 {
            return (first == tag).then_some(rest);
        }
    }
    None
}
