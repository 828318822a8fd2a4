//! Samples that ffmpeg made (`samples/generate`): key frames and times as ffprobe sees them.

use media::{Container, Duration, Event, Priority, Reader, Unit};

struct Read {
    reader: Reader,
    units: Vec<Unit>,
}

fn read(stream: &[u8]) -> Read {
    let (mut reader, mut units) = (Reader::new(), vec![]);
    for piece in stream.chunks(1000) {
        reader.push(piece);
        while let Some(event) = reader.poll_event() {
            if let Event::Unit(unit) = event {
                units.push(unit);
            }
        }
    }
    Read { reader, units }
}

fn starts(units: &[Unit]) -> Vec<(u64, u64)> {
    let starts = units.iter().filter(|unit| unit.priority() == Priority::Key);
    let at = |unit: &Unit| (unit.offset, unit.time.expect("a time").total_millis());
    starts.map(at).collect()
}

/// What `ffprobe -show_entries packet=pos,dts_time,flags` says of the key frames of the video. The last picture is not
/// known to be whole.
#[test]
fn pictures_of_transport_streams() {
    let h264 = read(include_bytes!("samples/h264.ts"));
    assert_eq!(h264.reader.container(), Some(Container::Ts));
    assert_eq!(h264.reader.init().len(), 376);
    assert_eq!(h264.units.len(), 174);
    let expected = [(564, 1400), (13_536, 2400), (27_824, 3400)];
    assert_eq!(starts(&h264.units)[..3], expected);
    assert_eq!(starts(&h264.units).len(), 7);
    let mpeg2 = read(include_bytes!("samples/mpeg2.ts"));
    assert_eq!(
        starts(&mpeg2.units)[..3],
        [(564, 1400), (10_340, 1880), (20_868, 2360)]
    );
    assert_eq!(starts(&mpeg2.units).len(), 7);
    let hevc = read(include_bytes!("samples/hevc.ts"));
    assert_eq!(
        starts(&hevc.units)[..3],
        [(564, 1400), (11_844, 2360), (23_312, 3280)]
    );
    assert_eq!(starts(&hevc.units).len(), 3);
    for unit in h264.units.iter().chain(&mpeg2.units) {
        assert_eq!(unit.duration, Some(Duration::from_millis(40)));
    }
}

#[test]
fn fragments_of_mp4() {
    let stream = include_bytes!("samples/h264.mp4");
    let mp4 = read(stream);
    assert_eq!(mp4.reader.container(), Some(Container::Mp4));
    assert_eq!(mp4.reader.codecs(), ["avc1.64000a", "mp4a.40.2"]);
    let init = mp4.reader.init();
    assert_eq!(&stream[..init.len()], init);
    assert_eq!(mp4.units[0].offset, init.len() as u64);
    // Every byte after it is of a unit, but for the index at the end.
    let ends = mp4
        .units
        .windows(2)
        .all(|pair| pair[0].end() == pair[1].offset);
    assert!(ends);
    let times: Vec<u64> = starts(&mp4.units).iter().map(|(_, time)| *time).collect();
    assert_eq!(times, [0, 1000, 2000, 3000, 4000, 5000, 6000]);
    let total: u64 = mp4
        .units
        .iter()
        .filter_map(|unit| unit.duration)
        .map(|d| d.total_millis())
        .sum();
    assert_eq!(total, 7000);
    let audio = read(include_bytes!("samples/audio.mp4"));
    assert_eq!(audio.reader.codecs(), ["mp4a.40.2"]);
    assert!(audio.units.len() >= 5 && audio.units.iter().all(|unit| unit.is_start));
}

#[test]
fn blocks_of_webm() {
    let stream = include_bytes!("samples/vp8.webm");
    let webm = read(stream);
    assert_eq!(webm.reader.container(), Some(Container::WebM));
    assert_eq!(webm.reader.codecs(), ["vp8", "opus"]);
    let times: Vec<u64> = starts(&webm.units).iter().map(|(_, time)| *time).collect();
    assert_eq!(times, [7, 1007, 2007, 3007, 4007]);
    // What a late reader gets is a stream of the same blocks.
    let start = webm.units.iter().rfind(|unit| unit.is_start).unwrap();
    let late = [
        webm.reader.init(),
        start.prefix.as_bytes(),
        &stream[start.offset as usize..],
    ]
    .concat();
    let late = read(&late);
    assert_eq!(late.reader.init(), webm.reader.init());
    let after = webm.units.iter().filter(|unit| unit.offset >= start.offset);
    let same = |unit: &Unit| (unit.time, unit.is_start);
    assert_eq!(
        late.units.iter().map(same).collect::<Vec<_>>(),
        after.map(same).collect::<Vec<_>>()
    );
}

#[test]
fn a_reader_goes_on_after_damage() {
    for stream in [
        &include_bytes!("samples/h264.ts")[..],
        include_bytes!("samples/h264.mp4"),
        include_bytes!("samples/vp8.webm"),
    ] {
        let whole = read(stream);
        let gap = stream.len() * 2 / 5;
        let damaged = [&stream[..gap], &stream[gap + 777..]].concat();
        let damaged = read(&damaged);
        let later = |units: &[Unit], from: usize| {
            let far = units
                .iter()
                .filter(|unit| unit.offset as usize >= from && unit.is_start);
            far.map(|unit| unit.time).collect::<Vec<_>>()
        };
        let after = stream.len() * 7 / 10;
        let expected = later(&whole.units, after);
        assert!(!expected.is_empty());
        assert_eq!(later(&damaged.units, after - 777), expected);
    }
}

#[test]
fn what_is_no_container_is_passed_over() {
    let text = read(&[b'x'; 10_000]);
    assert!(text.reader.is_unknown() && text.units.is_empty());
    // A file whose samples lie in one `mdat` is no stream.
    let mut file = b"\0\0\0\x10ftypisom\0\0\0\0".to_vec();
    file.extend_from_slice(b"\0\0\x10\0mdat");
    file.extend_from_slice(&[0; 5000]);
    assert!(read(&file).units.is_empty());
}

#[test]
fn absurd_sizes_take_no_memory_and_end_no_unit() {
    let init = &include_bytes!("samples/h264.mp4")[..1400];
    for head in [
        &b"\xff\xff\xff\xffmoof"[..],
        b"\0\0\0\x01mdat\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\0\0\0\x01moov\0\0\0\0\0\0\0\x01",
        b"\0\0\0\x02trak",
        b"\0\0\0\0mdat",
    ] {
        let stream = [init, head, &[0; 9000]].concat();
        assert!(read(&stream).units.is_empty());
    }
    let init = &include_bytes!("samples/vp8.webm")[..500];
    for head in [
        &b"\x1f\x43\xb6\x75\xff\xa3\x08\xff\xff\xff\xff\xff\xff"[..],
        b"\xa0\x01\xff\xff\xff\xff\xff\xff\xff\xa1\x81",
        b"\xe7\x90",
        b"\x15\x49\xa9\x66\x08\xff\xff\xff\xff\xff",
    ] {
        let stream = [init, head, &[0; 9000]].concat();
        assert!(read(&stream).units.is_empty());
    }
}

/// From any byte on, the units are those of the whole stream, from the next place on where one begins.
#[test]
fn a_reader_with_the_initialisation_goes_on_anywhere() {
    for stream in [
        &include_bytes!("samples/h264.mp4")[..],
        include_bytes!("samples/audio.mp4"),
        include_bytes!("samples/vp8.webm"),
    ] {
        let whole = read(stream);
        let init = whole.reader.init();
        for from in (init.len()..stream.len() / 2).step_by(997) {
            let mut reader = Reader::resume(init).expect("an initialisation");
            assert_eq!(reader.poll_event(), Some(Event::Init));
            assert_eq!(reader.init(), init);
            reader.push(&stream[from..]);
            let units =
                std::iter::from_fn(|| reader.poll_event()).filter_map(|event| match event {
                    Event::Unit(unit) => {
                        Some((unit.offset + from as u64 + unit.len, unit.is_start))
                    }
                    Event::Init => None,
                });
            let units: Vec<_> = units.collect();
            let all = whole.units.iter().map(|unit| (unit.end(), unit.is_start));
            let all: Vec<_> = all.collect();
            assert!(!units.is_empty(), "from {from}");
            assert!(all.ends_with(&units), "from {from}");
        }
    }
    for none in [
        &b""[..],
        b"ftyp",
        include_bytes!("samples/h264.ts"),
        &[0; 5000],
    ] {
        assert!(Reader::resume(none).is_none());
    }
}
