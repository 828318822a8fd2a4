//! Playlists of units, line by line.

use media::hls::{Config, Found, Recorder};
use media::{Container, Duration, Unit};

struct Source {
    recorder: Recorder<u64>,
    time: u64,
    offset: u64,
}

impl Source {
    fn new(container: Container) -> Self {
        let mut recorder = Recorder::new(Config::default(), container).unwrap();
        recorder.set_init(u64::MAX, 10);
        Source {
            recorder,
            time: 7_000_000,
            offset: 0,
        }
    }

    /// A unit of that many milliseconds, 1000 bytes.
    fn unit(&mut self, millis: u64, is_start: bool) {
        let unit = Unit {
            offset: self.offset,
            len: 1000,
            time: Some(Duration::from_micros(self.time)),
            duration: Some(Duration::from_millis(millis)),
            is_start,
            prefix: Default::default(),
        };
        self.recorder.push(&unit, [self.offset]);
        self.offset += 1000;
        self.time += millis * 1000;
    }

    /// Groups of 25 pictures of 40 ms.
    fn seconds(&mut self, count: u64) {
        for picture in 0..count * 25 {
            self.unit(40, picture % 25 == 0);
        }
    }
}

#[test]
fn there_is_no_playlist_before_the_first_segment_is_complete() {
    let mut source = Source::new(Container::Ts);
    source.unit(40, false);
    source.seconds(1);
    assert_eq!(source.recorder.playlist(), None);
    assert_eq!(source.recorder.lists(0, None), Found::Later);
    source.unit(40, true);
    assert!(source.recorder.playlist().is_some());
}

#[test]
fn a_playlist_of_transport_streams() {
    let mut source = Source::new(Container::Ts);
    source.seconds(2);
    for picture in 0..10 {
        source.unit(40, picture == 0);
    }
    let expected = "#EXTM3U
#EXT-X-VERSION:9
#EXT-X-TARGETDURATION:2
#EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=0.900
#EXT-X-PART-INF:PART-TARGET=0.300
#EXT-X-MEDIA-SEQUENCE:0
#EXT-X-DISCONTINUITY-SEQUENCE:0
#EXT-X-PART:DURATION=0.280,URI=\"0.0.ts\",INDEPENDENT=YES
#EXT-X-PART:DURATION=0.280,URI=\"0.1.ts\"
#EXT-X-PART:DURATION=0.280,URI=\"0.2.ts\"
#EXT-X-PART:DURATION=0.160,URI=\"0.3.ts\"
#EXTINF:1.000,
0.ts
#EXT-X-PART:DURATION=0.280,URI=\"1.0.ts\",INDEPENDENT=YES
#EXT-X-PART:DURATION=0.280,URI=\"1.1.ts\"
#EXT-X-PART:DURATION=0.280,URI=\"1.2.ts\"
#EXT-X-PART:DURATION=0.160,URI=\"1.3.ts\"
#EXTINF:1.000,
1.ts
#EXT-X-PART:DURATION=0.280,URI=\"2.0.ts\",INDEPENDENT=YES
#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"2.1.ts\"
";
    assert_eq!(source.recorder.playlist().as_deref(), Some(expected));
    // A segment is its parts, the tables first.
    let Found::Now(segment) = source.recorder.segment(1) else {
        panic!();
    };
    assert_eq!(
        (segment.len(), segment[0], segment[1]),
        (26, u64::MAX, 25_000)
    );
    let parts = (0..4).flat_map(|part| match source.recorder.part(1, part) {
        Found::Now(part) => part,
        other => panic!("{other:?}"),
    });
    assert_eq!(parts.collect::<Vec<_>>(), segment);
}

#[test]
fn what_is_there_what_comes_and_what_never_does() {
    let mut source = Source::new(Container::Mp4);
    source.seconds(2);
    for picture in 0..10 {
        source.unit(40, picture == 0);
    }
    let recorder = &source.recorder;
    assert_eq!(recorder.lists(1, None), Found::Now(()));
    assert_eq!(recorder.lists(2, None), Found::Later);
    assert_eq!(recorder.lists(2, Some(0)), Found::Now(()));
    assert_eq!(recorder.lists(2, Some(1)), Found::Later);
    // After the last part of segment 1 comes the first of segment 2.
    assert_eq!(recorder.lists(1, Some(4)), Found::Now(()));
    assert_eq!(recorder.lists(3, Some(0)), Found::Later);
    assert_eq!(recorder.lists(4, None), Found::Never);
    assert_eq!(recorder.part(2, 1), Found::Later);
    assert_eq!(recorder.part(2, 2), Found::Never);
    assert_eq!(recorder.segment(2), Found::Later);
    assert_eq!(recorder.segment(9), Found::Never);
    assert_eq!(recorder.init(0), Some(&u64::MAX));
    assert_eq!(recorder.init(1), None);
    let playlist = recorder.playlist().unwrap();
    assert!(
        playlist.contains("#EXT-X-MAP:URI=\"init.0.mp4\"\n"),
        "{playlist}"
    );
    assert!(Recorder::<()>::new(Config::default(), Container::WebM).is_none());
}

#[test]
fn the_window_moves_and_old_segments_stay_for_slow_readers() {
    let mut source = Source::new(Container::Ts);
    source.seconds(40);
    let playlist = source.recorder.playlist().unwrap();
    assert!(
        playlist.contains("#EXT-X-MEDIA-SEQUENCE:33\n"),
        "{playlist}"
    );
    assert_eq!(playlist.matches("#EXTINF").count(), 6);
    assert!(
        !playlist.contains("33.0.ts"),
        "parts of old segments are not listed: {playlist}"
    );
    assert!(matches!(source.recorder.segment(28), Found::Now(_)));
    assert_eq!(source.recorder.segment(20), Found::Never);
}

#[test]
fn a_source_that_starts_again_is_a_discontinuity() {
    let mut source = Source::new(Container::Mp4);
    source.seconds(3);
    source.recorder.set_init(1, 10);
    source.time = 0;
    source.seconds(3);
    let playlist = source.recorder.playlist().unwrap();
    let after: Vec<&str> = playlist.split("#EXT-X-DISCONTINUITY\n").collect();
    assert_eq!(after.len(), 2, "{playlist}");
    assert!(
        after[1].starts_with("#EXT-X-MAP:URI=\"init.1.mp4\"\n"),
        "{playlist}"
    );
    // Once it has left the playlist, the sequence counts it.
    source.seconds(10);
    let playlist = source.recorder.playlist().unwrap();
    assert!(
        playlist.contains("#EXT-X-DISCONTINUITY-SEQUENCE:1\n"),
        "{playlist}"
    );
    assert!(!playlist.contains("#EXT-X-DISCONTINUITY\n"), "{playlist}");
    // Time that jumps without a new initialisation is one as well.
    source.time += 60_000_000;
    source.seconds(2);
    assert!(
        source
            .recorder
            .playlist()
            .unwrap()
            .contains("#EXT-X-DISCONTINUITY\n")
    );
}

#[test]
fn a_stream_with_few_key_frames_is_cut_at_the_target_duration() {
    let mut source = Source::new(Container::Ts);
    source.unit(40, true);
    for _ in 0..1000 {
        source.unit(40, false);
    }
    let playlist = source.recorder.playlist().unwrap();
    assert!(
        playlist.contains("#EXT-X-TARGETDURATION:10\n"),
        "{playlist}"
    );
    for line in playlist
        .lines()
        .filter_map(|line| line.strip_prefix("#EXTINF:"))
    {
        let duration: f64 = line.trim_end_matches(',').parse().unwrap();
        assert!(duration < 10.5, "{playlist}");
    }
}

#[test]
fn memory_is_bounded_whatever_the_source_sends() {
    let config = Config {
        bytes: 100_000,
        ..Config::default()
    };
    let mut source = Source::new(Container::Ts);
    source.recorder = Recorder::new(config.clone(), Container::Ts).unwrap();
    source.recorder.set_init(0, 376);
    for at in 0..10_000u64 {
        // No time passes, and no key frame comes after the first.
        source.unit(0, at == 0);
        assert!(source.recorder.bytes() <= config.bytes + config.bytes / 4);
    }
    // A unit that is too long is left out.
    let whole = Unit {
        offset: 0,
        len: 1 << 40,
        time: None,
        duration: None,
        is_start: true,
        prefix: Default::default(),
    };
    assert!(!source.recorder.push(&whole, [0]));
}
