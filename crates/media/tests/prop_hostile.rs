//! Whatever the bytes are: no panic, the same events for any pieces, units within the stream and in order, bounded memory.

use media::hls::{Config, Recorder};
use media::{Container, Duration, Event, MAX_INIT, MAX_UNIT, Reader, Unit};
use proptest::prelude::*;

const SAMPLES: [&[u8]; 5] = [
    include_bytes!("samples/h264.ts"),
    include_bytes!("samples/mpeg2.ts"),
    include_bytes!("samples/vp8.webm"),
    include_bytes!("samples/h264.mp4"),
    include_bytes!("samples/audio.mp4"),
];

const MAGIC: [&[u8]; 3] = [b"", b"\x1a\x45\xdf\xa3", b"\0\0\0\x10ftypisom\0\0\0\0"];

/// Reads a stream in pieces of these lengths.
fn read(stream: &[u8], lengths: &[usize]) -> (Vec<Event>, Vec<u8>) {
    let (mut reader, mut events) = (Reader::new(), vec![]);
    let (mut rest, mut lengths) = (stream, lengths.iter().cycle());
    while !rest.is_empty() {
        let len = lengths
            .next()
            .copied()
            .unwrap_or(usize::MAX)
            .clamp(1, rest.len());
        let (piece, more) = rest.split_at(len);
        reader.push(piece);
        events.extend(std::iter::from_fn(|| reader.poll_event()));
        assert!(reader.open_offset() <= (stream.len() - more.len()) as u64);
        assert!(reader.init().len() <= 2 * MAX_INIT);
        rest = more;
    }
    (events, reader.init().to_vec())
}

fn check(stream: &[u8], lengths: &[usize]) -> Result<(), TestCaseError> {
    let (whole, init) = read(stream, &[usize::MAX]);
    let (pieces, init_of_pieces) = read(stream, lengths);
    prop_assert_eq!(&whole, &pieces);
    prop_assert_eq!(init, init_of_pieces);
    let mut end = 0;
    for event in whole {
        if let Event::Unit(unit) = event {
            prop_assert!(unit.offset >= end && unit.len > 0 && unit.len <= MAX_UNIT);
            end = unit.end();
        }
    }
    prop_assert!(end <= stream.len() as u64);
    Ok(())
}

fn sample() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(&SAMPLES[..])
        .prop_map(|sample| sample[..sample.len().min(60_000)].to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_initialisation_and_any_bytes_after_it(
        magic in prop::sample::select(&MAGIC[..]),
        bytes in prop::collection::vec(any::<u8>(), 0..3000),
        stream in sample(),
        cut in any::<prop::sample::Index>(),
    ) {
        let init = stream.split_at(cut.index(stream.len())).0.to_vec();
        for init in [init, [magic, &bytes].concat()] {
            if let Some(mut reader) = Reader::resume(&init) {
                reader.push(&bytes);
                reader.push(&stream);
                while let Some(event) = reader.poll_event() {
                    if let Event::Unit(unit) = event {
                        prop_assert!(unit.end() <= (bytes.len() + stream.len()) as u64);
                    }
                }
            }
        }
    }

    #[test]
    fn any_bytes(
        magic in prop::sample::select(&MAGIC[..]),
        bytes in prop::collection::vec(any::<u8>(), 0..6000),
        lengths in prop::collection::vec(1usize..700, 1..5),
    ) {
        check(&[magic, &bytes].concat(), &lengths)?;
    }

    #[test]
    fn damaged_samples(
        mut stream in sample(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
        cut in any::<prop::sample::Index>(),
        gap in 0usize..3000,
        lengths in prop::collection::vec(1usize..3000, 1..5),
    ) {
        for (at, byte) in damage {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        let from = cut.index(stream.len());
        let to = (from + gap).min(stream.len());
        stream.drain(from..to);
        if !stream.is_empty() {
            check(&stream, &lengths)?;
        }
    }

    #[test]
    fn any_units_keep_the_recorder_within_its_bounds(
        units in prop::collection::vec(
            (0u64..20_000_000, prop::option::of(0u64..11_000_000), 1u64..300_000, any::<bool>(), any::<bool>()),
            1..300,
        ),
        is_ts in any::<bool>(),
    ) {
        let config = Config { bytes: 1 << 20, ..Config::default() };
        let container = if is_ts { Container::Ts } else { Container::Mp4 };
        let mut recorder = Recorder::new(config.clone(), container).unwrap();
        recorder.set_init(100, 100);
        let mut offset = 0;
        for (time, duration, len, is_start, again) in units {
            if again {
                recorder.set_init(100, 100);
            }
            let unit = Unit {
                offset,
                len,
                time: Some(Duration::from_micros(time)),
                duration: duration.map(Duration::from_micros),
                is_start,
                prefix: Default::default(),
            };
            offset += len;
            recorder.push(&unit, [len as usize]);
            prop_assert!(recorder.bytes() <= config.bytes + config.bytes / 4);
            if let Some(playlist) = recorder.playlist() {
                prop_assert!(playlist.len() < 64 << 10);
                let inf = playlist.lines().filter(|line| line.starts_with("#EXTINF"));
                prop_assert!(inf.count() <= config.listed);
                prop_assert_eq!(playlist.matches("PRELOAD-HINT").count(), 1);
            }
        }
    }
}
