//! Headers of groups, and streams of media, in two ways of cutting them, and the segments that are made of them. Asserts that the cut makes no
//! difference, that units lie in order within the stream, and that segments stay within their bound.

use media::group::Header;
use media::hls::{Config, Recorder};
use media::rtp::{self, Format};
use media::{Event, MAX_INIT, Reader};

/// Reads a stream whose first byte says how the rest is cut.
pub fn stream(bytes: &[u8]) {
    let Some((&cut, stream)) = bytes.split_first() else {
        return;
    };
    let whole = read(stream, stream.len().max(1));
    let cut = read(stream, usize::from(cut).max(1));
    assert_eq!(whole, cut);
    let mut end = 0;
    for event in whole {
        if let Event::Unit(unit) = event {
            assert!(unit.offset >= end && unit.len > 0);
            end = unit.end();
        }
    }
    assert!(end <= stream.len() as u64);
    packets(stream);
    resumed(stream);
}

/// The bytes as packets of RTP.
fn packets(bytes: &[u8]) {
    let all: Vec<_> = (0..=255)
        .map(|number| {
            (
                number,
                if number % 2 == 0 {
                    Format::H264
                } else {
                    Format::Vp8
                },
            )
        })
        .collect();
    let (mut known, mut none) = (rtp::Reader::new(&all), rtp::Reader::new(&[]));
    for packet in bytes.chunks(40) {
        let _ = known.read(packet);
        assert_eq!(none.read(packet), None);
    }
}

/// The bytes as an initialisation, and again as what follows it.
fn resumed(bytes: &[u8]) {
    let Some(mut reader) = Reader::resume(bytes) else {
        return;
    };
    reader.push(bytes);
    while let Some(event) = reader.poll_event() {
        if let Event::Unit(unit) = event {
            assert!(unit.end() <= bytes.len() as u64);
        }
    }
}

/// The header of a group: what is parsed is written the same, but for flags that are ignored.
pub fn group(bytes: &[u8]) {
    if let Ok(header) = Header::parse(bytes) {
        assert!(header.init.len() <= 2 * MAX_INIT);
        assert_eq!(Header::parse(&header.to_vec()), Ok(header));
    }
}

fn read(stream: &[u8], len: usize) -> Vec<Event> {
    let (mut reader, mut events) = (Reader::new(), vec![]);
    let config = Config {
        bytes: 64 << 10,
        ..Config::default()
    };
    let mut recorder: Option<Recorder<()>> = None;
    for piece in stream.chunks(len) {
        reader.push(piece);
        while let Some(event) = reader.poll_event() {
            assert!(reader.init().len() <= 2 * MAX_INIT);
            if recorder.is_none() {
                let of = reader.container().expect("events have a container");
                recorder = Recorder::new(config.clone(), of);
            }
            if let Some(recorder) = &mut recorder {
                match &event {
                    Event::Init => recorder.set_init((), reader.init().len()),
                    Event::Unit(unit) => {
                        recorder.push(unit, [()]);
                    }
                }
                assert!(recorder.bytes() <= config.bytes * 5 / 4 + reader.init().len());
                let _ = recorder.playlist();
            }
            let _ = reader.open_priority();
            events.push(event);
        }
    }
    events
}

/// A header with everything, and an empty one.
pub fn group_seeds() -> Vec<Vec<u8>> {
    let whole = Header {
        is_start: true,
        init: b"initialisation",
        prefix: b"prefix",
    };
    vec![whole.to_vec(), Header::default().to_vec()]
}

/// The front of each sample of the crate's tests, cut to what a fuzzer changes well.
pub fn seeds() -> Vec<Vec<u8>> {
    let samples: [&[u8]; 4] = [
        include_bytes!("../../../crates/media/tests/samples/h264.ts"),
        include_bytes!("../../../crates/media/tests/samples/mpeg2.ts"),
        include_bytes!("../../../crates/media/tests/samples/vp8.webm"),
        include_bytes!("../../../crates/media/tests/samples/h264.mp4"),
    ];
    let cut = |sample: &&[u8]| [&[200][..], &sample[..sample.len().min(12_000)]].concat();
    samples.iter().map(cut).collect()
}
