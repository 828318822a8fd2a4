//! The boxes `moov` and `moof` of fragmented MP4 (ISO/IEC 14496-12 §8).

use alloc::string::String;
use alloc::vec::Vec;

use proto_core::time::Duration;
use proto_core::wire::Reader;

use crate::codecs;
use crate::unit::{believed, ticks};

/// Tracks that are known.
const MAX_TRACKS: usize = 16;
/// Flag of a sample that no decoder can start with.
const IS_NON_SYNC: u32 = 0x0001_0000;

/// Calls `visit` for each box in `content`; ends at the first that does not fit.
fn each<'b>(content: &'b [u8], mut visit: impl FnMut(&'b [u8], &'b [u8])) {
    let mut rest = content;
    while let Some((size, more)) = rest.split_first_chunk::<4>() {
        let size = u32::from_be_bytes(*size) as usize;
        let Some(content) = rest.get(8..size) else {
            return;
        };
        visit(&more[..4], content);
        rest = &rest[size..];
    }
}

/// Returns the content of the first box of that type.
fn find<'b>(content: &'b [u8], name: &[u8; 4]) -> Option<&'b [u8]> {
    let mut found = None;
    each(content, |this, content| {
        if this == name && found.is_none() {
            found = Some(content);
        }
    });
    found
}

/// Returns the content of the box at that path.
fn at_path<'b>(content: &'b [u8], path: &[&[u8; 4]]) -> Option<&'b [u8]> {
    path.iter()
        .try_fold(content, |content, name| find(content, name))
}

/// Returns the version, the flags and the rest of a full box.
fn full(content: &[u8]) -> Option<(u8, u32, Reader<'_>)> {
    let mut fields = Reader::new(content);
    let word = fields.u32().ok()?;
    Some(((word >> 24) as u8, word & 0x00ff_ffff, fields))
}

/// Skips the two times at the front of a full box, and reads the number after them.
fn after_times(content: &[u8]) -> Option<u32> {
    let (version, _, mut fields) = full(content)?;
    match version {
        0 => fields.array::<8>().map(drop),
        _ => fields.array::<16>().map(drop),
    }
    .ok()?;
    fields.u32().ok()
}

#[derive(Clone, Debug)]
struct Track {
    id: u32,
    timescale: u32,
    is_video: bool,
    duration: u32,
    flags: u32,
    codec: Option<String>,
}

/// What `moov` says of the tracks.
#[derive(Debug)]
pub(crate) struct Movie {
    tracks: Vec<Track>,
    /// Identifier of the main track.
    main: u32,
}

impl Movie {
    /// Reads the content of `moov`; `None` if it names no track, or none in fragments.
    pub(crate) fn read(content: &[u8]) -> Option<Movie> {
        let extends = find(content, b"mvex")?;
        let mut tracks = Vec::new();
        each(content, |name, content| {
            if name == b"trak" && tracks.len() < MAX_TRACKS {
                tracks.extend(track(content));
            }
        });
        each(extends, |name, content| {
            let Some((_, _, mut fields)) = full(content).filter(|_| name == b"trex") else {
                return;
            };
            let mut next = || fields.u32().ok();
            let (Some(id), Some(_), Some(duration), Some(_), Some(flags)) =
                (next(), next(), next(), next(), next())
            else {
                return;
            };
            for track in tracks
                .iter_mut()
                .filter(|track: &&mut Track| track.id == id)
            {
                (track.duration, track.flags) = (duration, flags);
            }
        });
        let video = tracks.iter().find(|track| track.is_video);
        let main = video.or(tracks.first())?.id;
        Some(Movie { tracks, main })
    }

    /// Returns the codec strings; none if one is unknown.
    pub(crate) fn codecs(&self) -> Vec<String> {
        let all: Option<Vec<String>> = self
            .tracks
            .iter()
            .map(|track| track.codec.clone())
            .collect();
        all.unwrap_or_default()
    }
}

/// Reads `trak` of a track of video or sound.
fn track(content: &[u8]) -> Option<Track> {
    let media = find(content, b"mdia")?;
    let handler = find(media, b"hdlr")?.get(8..12)?;
    let is_video = match handler {
        b"vide" => true,
        b"soun" => false,
        _ => return None,
    };
    let description = at_path(media, &[b"minf", b"stbl", b"stsd"]);
    Some(Track {
        id: after_times(find(content, b"tkhd")?)?,
        timescale: after_times(find(media, b"mdhd")?)?,
        is_video,
        duration: 0,
        flags: 0,
        codec: description.and_then(|content| entry(content, is_video)),
    })
}

/// Reads the first sample entry of `stsd` (§8.5.2, §12.1.3, §12.2.3).
fn entry(content: &[u8], is_video: bool) -> Option<String> {
    let mut codec = None;
    each(content.get(8..)?, |name, content| {
        let head = if is_video { 78 } else { 28 };
        if let Some(boxes) = content.get(head..).filter(|_| codec.is_none()) {
            codec = codecs::of_entry(name, |name| find(boxes, name));
        }
    });
    codec
}

/// What `moof` says of the samples after it.
#[derive(Debug)]
pub(crate) struct Fragment {
    pub(crate) time: Option<Duration>,
    pub(crate) duration: Option<Duration>,
    pub(crate) is_start: bool,
}

impl Fragment {
    /// Reads the content of `moof`; `None` if it has no track that is known.
    pub(crate) fn read(content: &[u8], movie: &Movie) -> Option<Fragment> {
        let mut fragment = None;
        each(content, |name, content| {
            if name != b"traf" {
                return;
            }
            let Some((id, samples)) = run(content, movie) else {
                return;
            };
            if id == movie.main && samples.time.is_some() {
                fragment = Some(samples);
            } else if fragment.is_none() {
                // A fragment of other tracks alone has no time and is no start.
                fragment = Some(Fragment {
                    time: None,
                    duration: None,
                    is_start: false,
                });
            }
        });
        fragment
    }
}

/// Reads `traf`: its track, and its samples.
fn run(content: &[u8], movie: &Movie) -> Option<(u32, Fragment)> {
    let (_, flags, mut fields) = full(find(content, b"tfhd")?)?;
    let id = fields.u32().ok()?;
    let track = movie.tracks.iter().find(|track| track.id == id)?;
    let (mut duration, mut default_flags) = (track.duration, track.flags);
    if flags & 0x01 != 0 {
        fields.u64().ok()?;
    }
    for (flag, field) in [
        (0x02, None),
        (0x08, Some(&mut duration)),
        (0x10, None),
        (0x20, Some(&mut default_flags)),
    ] {
        if flags & flag != 0 {
            let value = fields.u32().ok()?;
            if let Some(field) = field {
                *field = value;
            }
        }
    }
    let start = find(content, b"tfdt")
        .and_then(full)
        .and_then(|(version, _, mut fields)| match version {
            0 => fields.u32().ok().map(u64::from),
            _ => fields.u64().ok(),
        });
    let (mut total, mut first) = (0u64, None);
    each(content, |name, content| {
        if name == b"trun"
            && let Some((sum, flags)) = samples(content, duration, default_flags)
        {
            total = total.saturating_add(sum);
            first = first.or(flags);
        }
    });
    let is_sync = first.is_some_and(|flags: u32| flags & IS_NON_SYNC == 0);
    let fragment = Fragment {
        time: start.and_then(|start| ticks(start, track.timescale)),
        duration: ticks(total, track.timescale).and_then(believed),
        is_start: is_sync,
    };
    Some((id, fragment))
}

/// Reads `trun` (§8.8.8): the sum of the durations, and the flags of the first sample.
fn samples(content: &[u8], duration: u32, default_flags: u32) -> Option<(u64, Option<u32>)> {
    let (_, flags, mut fields) = full(content)?;
    let count = fields.u32().ok()?;
    if flags & 0x1 != 0 {
        fields.u32().ok()?;
    }
    let mut first = match flags & 0x4 != 0 {
        true => Some(fields.u32().ok()?),
        false => None,
    };
    let has = |flag: u32| usize::from(flags & flag != 0);
    let each = 4 * (has(0x100) + has(0x200) + has(0x400) + has(0x800));
    let sum = match each {
        0 => u64::from(count) * u64::from(duration),
        _ => {
            let records = fields.rest().chunks_exact(each).take(count as usize);
            records.fold(0u64, |sum, record| {
                let mut record = Reader::new(record);
                let duration = match has(0x100) {
                    1 => record.u32().unwrap_or(0),
                    _ => duration,
                };
                if first.is_none() && has(0x400) == 1 {
                    let skipped = has(0x200) == 0 || record.u32().is_ok();
                    first = record.u32().ok().filter(|_| skipped);
                }
                sum.saturating_add(u64::from(duration))
            })
        }
    };
    let first = first.unwrap_or(default_flags);
    Some((sum, (count > 0).then_some(first)))
}
