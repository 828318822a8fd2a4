//! TCP segments and the options of TCP-XM.

use tcpxm::wire::{Feedback, GroupOption, Options, Place, Segment, SegmentKey, Tag};

pub fn segment(bytes: &[u8]) {
    let Ok(segment) = Segment::parse(bytes) else {
        return;
    };
    let _ = Segment::verify(bytes, [10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let place = Place {
        receiver: None,
        offset: 0,
    };
    let _ = SegmentKey([7; 16]).verify(place, bytes);
    written(&segment.options);
}

/// Options are normalised by parsing; the options that remain are written and parsed again.
pub fn options(bytes: &[u8]) {
    let _ = (
        Feedback::parse(bytes),
        GroupOption::parse(bytes),
        Tag::parse(bytes),
    );
    if let Ok(options) = Options::parse(bytes) {
        written(&options);
    }
}

fn written(options: &Options) {
    let mut options = *options;
    options.shrink_to_fit();
    let mut out = vec![0; options.buffer_len()];
    options.emit(&mut out);
    assert_eq!(Options::parse(&out), Ok(options));
}
