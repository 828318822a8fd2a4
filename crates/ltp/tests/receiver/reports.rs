//! Reports to the source: when they go, what they say, and what its answers mean.

use ltp::wire::report::{Report, ReportAck, Status, Verdict};
use ltp::wire::sync;
use ltp::{Destination, Error, Failure, Meta, ReceiverConfig, ReceiverEvent, SessionId};

use super::{BLOCK, Lone, SESSION, Sent, at, host, ms, reports, source};

fn heartbeat(lone: &Lone, next: u64) -> sync::Repr<'static> {
    sync::Repr {
        reports: true,
        ..lone.heartbeat(next)
    }
}

/// A receiver whose source wants reports, and has answered the first.
fn joined(blocks: usize, configure: impl FnOnce(&mut ReceiverConfig)) -> Lone {
    let mut lone = Lone::new(blocks * BLOCK, configure);
    let heartbeat = heartbeat(&lone, 0);
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    let sent = lone.poll();
    let first = reports(&sent)[0];
    assert_eq!((first.status, first.blocks), (Status::Joined, 0));
    assert_eq!(lone.answer(&first, Verdict::Noted), Ok(()));
    lone
}

pub(super) fn only(sent: &[Sent]) -> Report {
    let reports = reports(sent);
    assert_eq!(reports.len(), 1, "{reports:?}");
    reports[0]
}

#[test]
fn a_receiver_says_that_it_takes_part_until_it_is_answered() {
    let mut lone = Lone::new(4 * BLOCK, |config| config.initial_timeout = ms(100));
    let heartbeat = heartbeat(&lone, 0);
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    let sent = lone.poll();
    let first = only(&sent);
    assert_eq!(sent[0].to, Destination::Unicast(source()));
    assert_eq!(
        (first.session, first.receiver),
        (SESSION, lone.receiver.id())
    );
    assert_eq!(
        (first.status, first.token, first.digest),
        (Status::Joined, 0, 0)
    );
    // The timeout doubles, and is up to a quarter longer.
    let sent = lone.run_to(at(1_000));
    let times: Vec<u64> = sent
        .iter()
        .map(|sent| (sent.at - at(0)).total_millis())
        .collect();
    assert!((100..=125).contains(&times[0]), "{times:?}");
    assert!((300..=375).contains(&times[1]), "{times:?}");
    assert!((700..=875).contains(&times[2]), "{times:?}");
    let again = reports(&sent);
    assert!(again.iter().all(|report| report.status == Status::Joined));
    // A token: it goes again at once, as the first attempt.
    let last = again[again.len() - 1];
    assert_eq!(lone.answer(&last, Verdict::Token), Ok(()));
    let sent = lone.poll();
    let verified = only(&sent);
    assert_eq!((verified.token, verified.status), (5, Status::Joined));
    let next = lone.run_to(at(1_125));
    assert_eq!(reports(&next).len(), 1);
    // An answer to an older one is none.
    let old = lone.answer(&verified, Verdict::Noted);
    assert_eq!(old, Err(Error::Unasked));
    let newest = reports(&next)[0];
    assert_eq!(lone.answer(&newest, Verdict::Noted), Ok(()));
    let twice = lone.answer(&newest, Verdict::Noted);
    assert_eq!(twice, Err(Error::Unasked));
    let kept = reports(&lone.run_to(at(4_000)));
    assert_eq!(kept[0].status, Status::Progress);
}

#[test]
fn an_answer_must_come_from_the_source_and_be_for_this_receiver() {
    let mut lone = Lone::new(BLOCK, |_| {});
    let ack = |report: &Report| ReportAck {
        verdict: Verdict::Noted,
        tag: report.tag,
        session: SESSION,
        receiver: report.receiver,
        token: 5,
    };
    let mut packet = [0; 24];
    let nothing = super::Report {
        status: Status::Joined,
        tag: 1,
        session: SESSION,
        receiver: 1,
        blocks: 0,
        token: 0,
        digest: 0,
        loss: Default::default(),
    };
    assert_eq!(lone.ack(&ack(&nothing)), Err(Error::BeforeSync));
    let heartbeat = heartbeat(&lone, 0);
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    let report = only(&lone.poll());
    ack(&report).emit(&mut packet);
    let elsewhere = lone.handle(&Meta::unicast(host(1)), &packet);
    assert_eq!(elsewhere, Err(Error::OtherSource));
    let by_group = lone.handle(&Meta::group(source()), &packet);
    assert_eq!(by_group, Err(Error::Unexpected));
    let mut other = ack(&report);
    other.session = SessionId(1);
    assert_eq!(lone.ack(&other), Err(Error::OtherSession));
    let mut other = ack(&report);
    other.receiver ^= 1;
    assert_eq!(lone.ack(&other), Err(Error::Unasked));
    other.verdict = Verdict::Token;
    assert_eq!(lone.ack(&other), Err(Error::Unasked));
    let mut other = ack(&report);
    other.tag ^= 1;
    assert_eq!(lone.ack(&other), Err(Error::Unasked));
    assert_eq!(lone.ack(&ack(&report)), Ok(()));
}

#[test]
fn the_answer_to_a_report_gives_the_round_trip() {
    let mut lone = Lone::new(BLOCK, |_| {});
    let heartbeat = heartbeat(&lone, 0);
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    let report = only(&lone.poll());
    lone.now = at(30);
    assert_eq!(lone.answer(&report, Verdict::Noted), Ok(()));
    assert_eq!(lone.receiver.round_trip(), Some(ms(30)));
}

#[test]
fn progress_is_reported_every_few_blocks() {
    let mut lone = joined(16, |_| {});
    let step = sync::Repr {
        progress_blocks: 3,
        ..heartbeat(&lone, 0)
    };
    assert_eq!(lone.sync(&step), Ok(()));
    let mut told = Vec::new();
    for block in 0..9u32 {
        lone.all_data(4 * block..4 * block + 4);
        assert_eq!(lone.digests(block as usize, block as usize, None), Ok(()));
        told.extend(reports(&lone.poll()).iter().map(|report| report.blocks));
    }
    assert_eq!(told, [3, 6, 9]);
    let kept = reports(&lone.run_to(at(2_000)));
    assert_eq!(kept, [], "it has just reported");
    let kept = only(&lone.run_to(at(2_501)));
    assert_eq!(
        (kept.status, kept.blocks),
        (Status::Progress, 9),
        "it lives"
    );
    // A source that waits is told at once.
    lone.all_data(36..40);
    assert_eq!(lone.digests(9, 9, None), Ok(()));
    assert_eq!(reports(&lone.poll()), []);
    let stalled = sync::Repr {
        stalled: true,
        ..heartbeat(&lone, 40)
    };
    assert_eq!(lone.sync(&stalled), Ok(()));
    assert_eq!(only(&lone.poll()).blocks, 10);
    assert_eq!(lone.sync(&stalled), Ok(()));
    assert_eq!(reports(&lone.poll()), [], "nothing is new");
}

#[test]
fn reports_are_spread_over_the_time_that_the_source_names() {
    let window = |us: u32| {
        let mut lone = Lone::new(BLOCK, |_| {});
        let wide = sync::Repr {
            report_window_us: us,
            ..heartbeat(&lone, 0)
        };
        assert_eq!(lone.sync(&wide), Ok(()));
        lone
    };
    let mut lone = window(1_000_000);
    let sent = lone.run_to(at(1_000));
    let first = sent[0].at;
    assert!(first > at(0) && first <= at(1_000), "{first}");
    // One that is shorter counts at once.
    let mut lone = window(60_000_000);
    assert_eq!(lone.run_to(at(1)).len(), 0);
    let short = heartbeat(&lone, 0);
    assert_eq!(lone.sync(&short), Ok(()));
    assert_eq!(only(&lone.poll()).status, Status::Joined);
}

#[test]
fn heavy_loss_is_reported_without_waiting_for_progress() {
    let mut lone = joined(64, |config| config.limits.window_blocks = 64);
    lone.run_to(at(1_000));
    lone.all_data(0..97);
    assert_eq!(reports(&lone.poll()), []);
    lone.all_data([99]);
    assert_eq!(reports(&lone.poll()), [], "2 of 100 are tolerated");
    lone.all_data([100, 102]);
    let report = only(&lone.poll());
    assert_eq!((report.status, report.blocks), (Status::Progress, 0));
    assert_eq!((report.loss.expected, report.loss.lost), (103, 3));
    // No more often than each 100 ms, and counted anew. Repairs are losses of the source's rate too.
    for number in [97, 98, 101] {
        assert_eq!(lone.repair(&Meta::unicast(source()), number, 0), Ok(()));
    }
    lone.run_to(at(1_099));
    lone.all_data([200]);
    assert_eq!(reports(&lone.poll()), []);
    lone.run_to(at(1_100));
    lone.all_data([202]);
    let report = only(&lone.poll());
    assert_eq!((report.loss.expected, report.loss.lost), (100, 98));
    // A few packets show nothing.
    lone.run_to(at(2_000));
    lone.all_data([210, 220]);
    assert_eq!(reports(&lone.poll()), []);
}

#[test]
fn packets_from_before_it_began_are_no_loss() {
    let mut lone = Lone::new(64 * BLOCK, |config| config.limits.window_blocks = 64);
    let late = heartbeat(&lone, 150);
    assert_eq!(lone.sync(&late), Ok(()));
    let first = only(&lone.poll());
    assert_eq!(lone.answer(&first, Verdict::Noted), Ok(()));
    lone.all_data(150..220);
    let report = reports(&lone.run_to(at(3_000)));
    let report = report
        .iter()
        .find(|report| report.status == Status::Progress);
    let loss = report.expect("a report").loss;
    assert_eq!((loss.expected, loss.lost), (70, 0));
}

/// A receiver that has everything, and its first report of that.
pub(super) fn complete() -> (Lone, Report) {
    let mut lone = joined(4, |config| config.initial_timeout = ms(100));
    lone.all_data(0..16);
    assert_eq!(lone.digests(0, 3, None), Ok(()));
    let wants = sync::Repr {
        reports: true,
        ..lone.last_heartbeat()
    };
    assert_eq!(lone.sync(&wants), Ok(()));
    let report = reports(&lone.poll());
    let report = report
        .iter()
        .rev()
        .find(|report| report.status == Status::Complete);
    let report = *report.expect("a report");
    (lone, report)
}

#[test]
fn completion_is_told_to_the_application_when_the_source_has_confirmed_it() {
    let (mut lone, report) = complete();
    let prefix = u64::from_be_bytes(*lone.digest().first_chunk().unwrap());
    assert_eq!((report.blocks, report.digest), (4, prefix));
    assert!(lone.receiver.is_complete());
    let told = |lone: &mut Lone| {
        let is_complete = |event: &ReceiverEvent| matches!(event, ReceiverEvent::Complete { .. });
        lone.events().iter().any(is_complete)
    };
    assert!(!told(&mut lone) && !lone.receiver.is_finished());
    let again = reports(&lone.run_for(ms(150)));
    assert_eq!(again[0].status, Status::Complete);
    assert_eq!(lone.answer(&again[again.len() - 1], Verdict::Noted), Ok(()));
    assert!(!lone.receiver.is_finished());
    assert!(told(&mut lone) && lone.receiver.is_finished());
    assert_eq!(reports(&lone.run_to(at(60_000))), []);
}

#[test]
fn a_source_that_does_not_answer_keeps_nothing_from_the_application() {
    let (mut lone, _) = complete();
    let sent = lone.run_to(at(60_000));
    assert_eq!(reports(&sent).len(), 9, "ten in all");
    let complete = ReceiverEvent::Complete {
        length: 4_096,
        digest: Some(lone.digest()),
    };
    assert_eq!(lone.events().last(), Some(&complete));
    assert!(lone.receiver.is_finished());
}

#[test]
fn a_failure_is_reported_until_the_source_knows_it() {
    let fail = || {
        let mut lone = joined(4, |config| {
            config.source_timeout = ms(500);
            config.initial_timeout = ms(100);
        });
        let sent = lone.run_to(at(1_500));
        assert_eq!(lone.failure(), Some(Failure::SourceLost));
        let failed = reports(&sent);
        let failed = failed
            .iter()
            .rev()
            .find(|report| report.status == Status::Failed);
        (*failed.expect("a report"), lone)
    };
    let (report, mut lone) = fail();
    assert!(!lone.receiver.is_finished());
    assert_eq!(lone.answer(&report, Verdict::Noted), Ok(()));
    assert!(lone.receiver.is_finished());
    assert_eq!(reports(&lone.run_to(at(60_000))), []);
    let (_, mut lone) = fail();
    lone.run_to(at(60_000));
    assert!(lone.receiver.is_finished(), "it has tried");
}

#[test]
fn a_receiver_that_leaves_says_so_once() {
    let mut lone = joined(4, |_| {});
    lone.all_data(0..4);
    assert_eq!(lone.digests(0, 0, None), Ok(()));
    lone.receiver.close(lone.now);
    assert!(!lone.receiver.is_ended());
    let report = only(&lone.poll());
    assert_eq!((report.status, report.blocks), (Status::Leaving, 1));
    assert!(lone.receiver.is_ended() && lone.receiver.is_finished());
    assert_eq!(lone.run_to(at(60_000)).len(), 0);
    // Nor one that the source has not answered yet.
    let mut lone = Lone::new(4 * BLOCK, |_| {});
    let wants = heartbeat(&lone, 0);
    assert_eq!(lone.sync(&wants), Ok(()));
    lone.receiver.close(lone.now);
    assert!(lone.receiver.is_ended());
    // One that is complete has said so.
    let (mut lone, report) = complete();
    assert_eq!(lone.answer(&report, Verdict::Noted), Ok(()));
    lone.events();
    lone.receiver.close(lone.now);
    assert!(lone.receiver.is_ended());
    assert_eq!(lone.poll().len(), 0);
    // Where the source does not know it there is nothing to say.
    let mut lone = Lone::open(4 * BLOCK, |_| {});
    lone.receiver.close(lone.now);
    assert!(lone.receiver.is_ended());
    assert_eq!(lone.poll().len(), 0);
}

#[test]
fn bytes_that_the_application_has_not_taken_limit_the_source() {
    let mut lone = joined(4, |config| config.delivery = ltp::Delivery::Read);
    let step = sync::Repr {
        progress_blocks: 1,
        ..heartbeat(&lone, 0)
    };
    assert_eq!(lone.sync(&step), Ok(()));
    lone.all_data(0..8);
    assert_eq!(lone.digests(0, 1, None), Ok(()));
    assert_eq!(lone.receiver.progress().0, 2 * BLOCK as u64);
    assert_eq!(reports(&lone.poll()), []);
    lone.receiver.consume(lone.now, BLOCK);
    assert_eq!(only(&lone.poll()).blocks, 1);
}

#[test]
fn a_completion_that_the_source_denies_is_looked_into() {
    let (mut lone, report) = complete();
    assert_eq!(lone.answer(&report, Verdict::Mismatch), Ok(()));
    assert!(!lone.receiver.is_complete());
    let complete = |event: &ReceiverEvent| matches!(event, ReceiverEvent::Complete { .. });
    assert!(!lone.events().iter().any(complete));
    // The source is asked, and names another digest: the blocks are compared with its own.
    let sent = lone.poll();
    let question = super::requests(&sent, super::Kind::Sync)[0].clone();
    let confirmed = sync::Repr {
        answer: Some(question.nonce),
        digest: Some([3; 32]),
        reports: true,
        ..lone.last_heartbeat()
    };
    assert_eq!(lone.sync_from(&Meta::unicast(source()), &confirmed), Ok(()));
    assert_eq!(lone.receiver.stats().audits, 1);
    assert_eq!(lone.receiver.progress().0, 0);
}

#[test]
fn packets_that_come_twice_count_as_what_was_expected() {
    let mut lone = joined(64, |config| config.limits.window_blocks = 64);
    lone.all_data(0..98);
    // A source that was started again sends some once more.
    lone.all_data(0..3);
    lone.all_data([102]);
    assert_eq!(reports(&lone.poll()), [], "1 of 103");
    lone.all_data([105]);
    let report = only(&lone.poll());
    assert_eq!((report.loss.expected, report.loss.lost), (106, 3));
}

#[test]
fn a_source_that_wants_no_reports_any_more_gets_none_of_loss() {
    let mut lone = joined(64, |config| config.limits.window_blocks = 64);
    let unwanted = lone.heartbeat(0);
    assert_eq!(lone.sync(&unwanted), Ok(()));
    lone.run_to(at(5_000));
    lone.all_data((0..128).step_by(2));
    assert_eq!(reports(&lone.poll()), []);
}

#[test]
fn completion_is_reported_within_the_time_that_the_source_names() {
    let mut lone = joined(4, |_| {});
    lone.all_data(0..16);
    assert_eq!(lone.digests(0, 3, None), Ok(()));
    let wants = sync::Repr {
        reports: true,
        report_window_us: 10_000_000,
        ..lone.last_heartbeat()
    };
    assert_eq!(lone.sync(&wants), Ok(()));
    assert!(lone.receiver.is_complete());
    assert_eq!(reports(&lone.poll()), []);
    let sent = reports(&lone.run_to(at(10_000)));
    assert_eq!(sent[0].status, Status::Complete);
}

#[test]
fn a_source_that_never_answered_is_told_of_the_end_as_often_as_others() {
    let mut lone = Lone::new(4 * BLOCK, |config| {
        config.initial_timeout = ms(20);
        config.min_timeout = ms(20);
        config.max_timeout = ms(20);
    });
    let wants = heartbeat(&lone, 0);
    assert_eq!(lone.sync(&wants), Ok(()));
    assert!(reports(&lone.run_to(at(1_000))).len() > 10);
    lone.all_data(0..16);
    assert_eq!(lone.digests(0, 3, None), Ok(()));
    let wants = sync::Repr {
        reports: true,
        ..lone.last_heartbeat()
    };
    assert_eq!(lone.sync(&wants), Ok(()));
    let sent = reports(&lone.run_to(at(60_000)));
    let ends = sent.iter().filter(|one| one.status == Status::Complete);
    assert_eq!(ends.count(), 10);
}

#[test]
fn a_receiver_that_is_too_slow_is_given_up_by_the_source_alone() {
    let mut lone = joined(4, |_| {});
    let ack = |token: u64| ReportAck {
        verdict: Verdict::TooSlow,
        tag: 0,
        session: SESSION,
        receiver: 0,
        token,
    };
    for forged in [0, 4] {
        assert_eq!(lone.ack(&ack(forged)), Err(Error::Unasked));
    }
    assert_eq!(lone.failure(), None);
    assert_eq!(lone.ack(&ack(5)), Ok(()));
    assert_eq!(lone.failure(), Some(Failure::TooSlow));
    // Before it has a token nobody can name it.
    let mut lone = Lone::open(4 * BLOCK, |_| {});
    assert_eq!(lone.ack(&ack(0)), Err(Error::Unasked));
    // One that has everything stays.
    let (mut lone, report) = complete();
    assert_eq!(lone.answer(&report, Verdict::Noted), Ok(()));
    assert_eq!(lone.ack(&ack(5)), Ok(()));
    assert_eq!(lone.failure(), None);
    assert!(lone.receiver.is_complete());
}
