//! Heartbeats: when they go, and what they say.

use ltp::wire::report::Status;
use ltp::wire::sync;
use ltp::{Destination, Duration, Instant, SenderConfig, SenderEvent};

use super::{BLOCK, SESSION, Sent, Solo, at, content, host};

/// Frame of a heartbeat without a name.
const FRAME_BITS: u64 = 8 * (96 + 42);

fn times(sent: &[Sent]) -> Vec<Instant> {
    let syncs = sent.iter().filter(|sent| sent.is(3));
    syncs.map(|sent| sent.at).collect()
}

fn last(sent: &[Sent]) -> sync::Repr<'_> {
    let last = sent.iter().rev().find_map(Sent::sync);
    last.expect("a heartbeat")
}

#[test]
fn they_grow_rare_after_the_end_and_three_say_that_the_source_leaves() {
    let bytes = content(BLOCK);
    let mut solo = Solo::whole(&bytes, |_| {});
    let sent = solo.run_to(at(20_000));
    // Before data, with it, and then fourfold from 2 ms on, up to half a second.
    let open = [0, 2, 8, 8, 10, 18, 50, 178, 678, 1_178, 1_678, 2_178, 2_678];
    let leaving = [3_008, 3_010, 3_018];
    let expected: Vec<Instant> = open.into_iter().chain(leaving).map(at).collect();
    assert_eq!(times(&sent), expected);
    for sync in sent.iter().filter(|sent| sent.is(3)) {
        assert_eq!(sync.to, Destination::Group);
        let closing = sync.sync().unwrap().closing;
        assert_eq!(closing, sync.at >= at(3_008), "{}", sync.at);
    }
    assert_eq!(solo.sender.poll_timeout(), None);
    assert!(solo.sender.is_ended() && !solo.sender.is_finished());
    let digest = Some(*blake3::hash(&bytes).as_bytes());
    let expected = [
        SenderEvent::Started { joined: 0 },
        SenderEvent::Sent {
            length: BLOCK as u64,
            digest,
        },
        SenderEvent::Finished,
    ];
    assert_eq!(solo.events(), expected);
    assert!(solo.sender.is_finished());
    assert_eq!(solo.sender.stats().syncs, 16);
    let frames = sent.iter().map(|sent| sent.bytes.len() as u64 + 42);
    assert_eq!(solo.sender.stats().frame_bytes, frames.sum::<u64>());
    assert_eq!(solo.run_to(at(30_000)).len(), 0);
}

/// The mean time between heartbeats while data flows.
fn interval(rate_bps: u64) -> Duration {
    let mut solo = Solo::whole(&content(1 << 20), |config| {
        config.rate_bps = Some(rate_bps);
    });
    let times = times(&solo.run_to(at(6_000)));
    assert!(solo.sender.progress().0 < 1 << 20, "it still flows");
    let times: Vec<_> = times.into_iter().filter(|&at| at > self::at(20)).collect();
    (times[times.len() - 1] - times[0]) / (times.len() as u32 - 1)
}

#[test]
fn while_data_flows_they_take_a_hundredth_of_a_low_rate() {
    for rate_bps in [100_000, 200_000, 1_000_000] {
        let expected = FRAME_BITS * 100 * 1_000 / rate_bps;
        let interval = interval(rate_bps).total_millis();
        assert!(
            (expected..=expected + 4).contains(&interval),
            "{interval} ms, not {expected}, at {rate_bps} bit/s"
        );
    }
    // And no more than one in 50 ms of a higher one.
    let mut solo = Solo::whole(&content(4 << 20), |config| {
        config.rate_bps = Some(20_000_000);
    });
    let times = times(&solo.run_to(at(1_008)));
    assert!((22..=25).contains(&times.len()), "{times:?}");
}

#[test]
fn they_name_the_longest_silence() {
    let silence = |configure: fn(&mut SenderConfig)| {
        let mut solo = Solo::whole(&content(BLOCK), configure);
        last(&solo.poll()).silence_ms
    };
    assert_eq!(silence(|_| {}), 500);
    assert_eq!(silence(|config| config.rate_bps = Some(100_000)), 1_104);
    assert_eq!(silence(|config| config.rate_bps = Some(1_000)), 60_000);
    let idle = |config: &mut SenderConfig| config.heartbeat_idle = Duration::from_secs(90);
    assert_eq!(silence(idle), 60_000);
    let none = |config: &mut SenderConfig| {
        config.heartbeat_idle = Duration::ZERO;
        config.heartbeat = Duration::ZERO;
    };
    assert_eq!(silence(none), 1);
    assert_eq!(
        silence(|config| config.heartbeat = Duration::from_secs(2)),
        2_000
    );
}

#[test]
fn a_longest_interval_below_two_milliseconds_counts_as_that() {
    let mut solo = Solo::stream(4, |config| config.heartbeat_idle = Duration::ZERO);
    let times = times(&solo.run_to(at(40)));
    let every: Vec<_> = (0..=20).map(|step| at(2 * step)).collect();
    assert_eq!(times, every);
}

#[test]
fn they_say_how_far_the_content_was_sent() {
    let bytes = content(2 * BLOCK + 1);
    let mut solo = Solo::whole(&bytes, |config| {
        let _ = config.name.extend_from_slice(b"a name");
    });
    let first = solo.poll();
    let first = last(&first);
    assert_eq!((first.session, first.next, first.oldest), (SESSION, 0, 0));
    assert_eq!((first.length, first.digested), (Some(2_049), Some(0)));
    assert_eq!((first.digest, first.name), (None, &b"a name"[..]));
    assert!(!first.reports && !first.stream && !first.stalled);
    assert_eq!((first.progress_blocks, first.report_window_us), (0, 0));
    let sent = solo.run_to(at(100));
    let end = last(&sent);
    assert_eq!((end.next, end.digested), (9, Some(3)));
    assert_eq!(end.digest, Some(*blake3::hash(&bytes).as_bytes()));
    // The whole is named when the digests of all blocks were sent.
    for sync in sent.iter().filter_map(Sent::sync) {
        assert!(sync.digest.is_none() || sync.digested == Some(3));
    }
    // Without digests.
    let mut solo = Solo::whole(&bytes, |config| config.integrity = false);
    let sent = solo.run_to(at(100));
    assert_eq!((last(&sent).digested, last(&sent).digest), (None, None));
    assert!(!sent.iter().any(|sent| sent.is(4)));
}

#[test]
fn those_of_a_stream_name_its_end_and_what_the_ring_still_has() {
    let bytes = content(6 * BLOCK + 10);
    let digest = *blake3::hash(&bytes).as_bytes();
    let mut solo = Solo::stream(4, |config| config.digest = Some(digest));
    let mut written = 0;
    for step in 1..=8 {
        written += solo.sender.send(solo.now, &bytes[written..]).unwrap();
        let sent = solo.run_to(at(20 * step));
        for sync in sent.iter().filter_map(Sent::sync) {
            assert!(sync.stream && sync.length.is_none());
            assert_eq!(sync.digest, None, "only with the length");
        }
    }
    assert_eq!(written, bytes.len());
    assert_eq!(solo.sender.progress(), (6 * BLOCK as u64, None));
    solo.sender.finish(solo.now);
    let sent = solo.run_to(at(300));
    let end = last(&sent);
    assert_eq!((end.next, end.oldest), (25, 12), "ten bytes of block 6");
    assert_eq!((end.length, end.digest), (Some(6_154), Some(digest)));
    assert!(end.stream);
    assert_eq!(solo.sender.progress(), (6_154, Some(6_154)));
    let total: u64 = bytes.len() as u64;
    let ended = SenderEvent::Sent {
        length: total,
        digest: Some(digest),
    };
    assert!(solo.events().contains(&ended));
}

#[test]
fn they_say_how_reports_are_spread_and_stepped() {
    let of = |configure: fn(&mut SenderConfig)| {
        let mut solo = Solo::whole(&content(64 * BLOCK), configure);
        let sent = solo.poll();
        let sync = last(&sent);
        assert!(sync.reports);
        (sync.report_window_us, sync.progress_blocks)
    };
    assert_eq!(of(|config| config.receivers = Some(3)), (150, 256));
    let few = |config: &mut SenderConfig| {
        config.receivers = Some(3);
        config.reports_per_second = 2;
        config.window_blocks = Some(32);
    };
    assert_eq!(of(few), (1_500_000, 8));
    let small = |config: &mut SenderConfig| {
        config.receivers = Some(1);
        config.reports_per_second = 0;
        config.window_blocks = Some(3);
    };
    assert_eq!(of(small), (1_000_000, 1));
    let most = |config: &mut SenderConfig| {
        config.receivers = Some(u32::MAX);
        config.reports_per_second = 1;
    };
    assert_eq!(of(most), (60_000_000, 256));
}

#[test]
fn more_receivers_than_expected_spread_their_reports_further() {
    let mut solo = Solo::whole(&content(BLOCK), |config| {
        config.receivers = Some(1);
        config.reports_per_second = 10;
    });
    for number in 1..=3 {
        assert_eq!(solo.tell(host(number), Status::Joined, 0), Ok(()));
    }
    let sent = solo.run_to(at(100));
    assert_eq!(last(&sent).report_window_us, 300_000);
}

#[test]
fn the_source_says_when_new_data_waits_for_receivers() {
    let mut solo = Solo::whole(&content(16 * BLOCK), |config| {
        config.receivers = Some(1);
        config.window_blocks = Some(4);
    });
    assert_eq!(solo.tell(host(1), Status::Joined, 0), Ok(()));
    let sent = solo.run_to(at(1));
    assert_eq!(solo.sender.progress().0, 4 * BLOCK as u64);
    assert!(last(&sent).stalled);
    assert_eq!(solo.sender.stats().stalls, 1);
    let waiting = solo.sender.waiting_for().expect("the receiver");
    assert_eq!((waiting.address, waiting.blocks), (host(1), 0));
    // Data goes on with the receiver, to the end.
    assert_eq!(solo.tell(host(1), Status::Progress, 3), Ok(()));
    solo.run_to(at(2));
    assert_eq!(solo.sender.progress().0, 7 * BLOCK as u64);
    assert_eq!(solo.sender.stats().stalls, 2);
    assert_eq!(solo.tell(host(1), Status::Progress, 7), Ok(()));
    assert_eq!(solo.tell(host(1), Status::Progress, 7), Ok(()));
    let token = solo.report_token(host(1));
    for blocks in 8..=12 {
        let report = super::report(Status::Progress, blocks, token);
        assert_eq!(solo.report(host(1), &report), Ok(()), "{blocks}");
        solo.run_to(solo.now);
    }
    let sent = solo.run_to(at(10));
    assert!(!last(&sent).stalled);
    assert_eq!(solo.sender.progress().0, 16 * BLOCK as u64);
}

#[test]
fn at_a_low_rate_they_do_not_follow_each_packet() {
    let mut solo = Solo::whole(&content(64 * BLOCK), |config| {
        config.rate_bps = Some(20_000);
    });
    let sent = solo.run_to(at(6_000));
    assert!(sent.iter().filter(|sent| sent.is(1)).count() > 30);
    let times = times(&sent);
    let times = times.iter().filter(|&&time| time > at(200));
    assert_eq!(times.count(), 1, "five seconds and a half are between two");
}

/// How long after new data a heartbeat names it, where there was a pause before.
fn after_a_pause(pause: i64) -> u64 {
    let mut solo = Solo::stream(64, |_| {});
    solo.run_to(at(100));
    let bytes = content(BLOCK);
    assert_eq!(solo.sender.send(solo.now, &bytes), Ok(BLOCK));
    solo.run_to(at(100 + pause));
    assert_eq!(solo.sender.send(solo.now, &bytes), Ok(BLOCK));
    let sent = solo.run_to(at(200 + pause));
    let names = |sent: &&Sent| sent.sync().is_some_and(|sync| sync.next == 8);
    let first = sent.iter().find(names).expect("a heartbeat");
    (first.at - at(100 + pause)).total_millis()
}

#[test]
fn after_a_short_pause_the_next_data_is_waited_for_longer() {
    assert_eq!(after_a_pause(49), 8);
    assert_eq!(after_a_pause(50), 2);
}
