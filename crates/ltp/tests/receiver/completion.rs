//! Completions that the source denies, or names otherwise later.

use ltp::wire::report::{Report, ReportAck, Status, Verdict};
use ltp::wire::request::{self, Kind};
use ltp::wire::sync;
use ltp::{Error, Failure, Meta, ReceiverEvent, SessionId};

use super::reports::{complete, only};
use super::{Lone, ms, reports, requests, source};

fn is_complete(event: &ReceiverEvent) -> bool {
    matches!(event, ReceiverEvent::Complete { .. })
}

/// The source's answer to the question that was asked.
fn confirm(lone: &mut Lone, question: &request::Repr, heartbeat: sync::Repr<'static>) {
    let answer = sync::Repr {
        answer: Some(question.nonce),
        ..heartbeat
    };
    assert_eq!(lone.sync_from(&Meta::unicast(source()), &answer), Ok(()));
}

/// A heartbeat of a complete session names another digest. Returns the question about it, and whether the source
/// got another report at once when it confirmed that digest, or the first.
fn disputed(lone: &mut Lone, digest: [u8; 32]) -> bool {
    let truth = sync::Repr {
        reports: true,
        ..lone.last_heartbeat()
    };
    let other = sync::Repr {
        digest: Some([3; 32]),
        ..truth
    };
    assert_eq!(lone.sync(&other), Err(Error::Contradiction));
    let sent = lone.poll();
    let question = requests(&sent, Kind::Sync).remove(0);
    let confirmed = sync::Repr {
        digest: Some(digest),
        ..truth
    };
    confirm(lone, &question, confirmed);
    !reports(&lone.poll()).is_empty()
}

#[test]
fn a_completion_is_withdrawn_when_the_source_names_another_content() {
    let (mut lone, report) = complete();
    disputed(&mut lone, [3; 32]);
    assert!(!lone.receiver.is_complete());
    // An answer to the report of that completion is late.
    let late = lone.answer(&report, Verdict::Noted);
    assert_eq!(late, Err(Error::Unasked));
    assert!(!lone.events().iter().any(is_complete));
    assert_eq!(lone.receiver.stats().audits, 1);
}

#[test]
fn a_completion_that_the_source_names_again_stands() {
    let (mut lone, report) = complete();
    let digest = lone.digest();
    assert!(!disputed(&mut lone, digest), "it waits for its answer");
    assert!(lone.receiver.is_complete());
    assert_eq!(lone.answer(&report, Verdict::Noted), Ok(()));
    assert!(lone.events().iter().any(is_complete));
}

#[test]
fn what_the_application_was_told_stands() {
    let (mut lone, report) = complete();
    assert_eq!(lone.answer(&report, Verdict::Noted), Ok(()));
    assert!(lone.events().iter().any(is_complete));
    assert!(!disputed(&mut lone, [3; 32]));
    assert!(lone.receiver.is_complete() && lone.receiver.is_finished());
    assert_eq!(lone.receiver.stats().audits, 0);
}

/// A source that was started again, and whether it wants reports.
fn restarted(lone: &mut Lone, wants: bool) -> Vec<Report> {
    let other = sync::Repr {
        session: SessionId(78),
        reports: wants,
        ..lone.last_heartbeat()
    };
    assert_eq!(lone.sync(&other), Err(Error::OtherSession));
    let question = requests(&lone.poll(), Kind::Sync).remove(0);
    confirm(lone, &question, other);
    assert_eq!(lone.receiver.session(), Some(SessionId(78)));
    reports(&lone.run_for(ms(100)))
}

#[test]
fn a_source_that_was_started_again_is_told_what_is_complete() {
    let (mut lone, report) = complete();
    assert_eq!(lone.answer(&report, Verdict::Noted), Ok(()));
    lone.events();
    let told = restarted(&mut lone, true);
    assert_eq!((told[0].status, told[0].blocks), (Status::Complete, 4));
    // It cannot take back what the application was told.
    let denied = lone.ack(&ReportAck {
        verdict: Verdict::Mismatch,
        tag: told[told.len() - 1].tag,
        session: SessionId(78),
        receiver: report.receiver,
        token: 5,
    });
    assert_eq!(denied, Ok(()));
    assert!(lone.receiver.is_complete());
    assert_eq!(reports(&lone.run_for(ms(60_000))), []);
    let resumed = ReceiverEvent::Resumed {
        session: SessionId(78),
    };
    assert_eq!(lone.events(), [resumed]);
    // Unless it does not ask.
    let (mut lone, report) = complete();
    assert_eq!(lone.answer(&report, Verdict::Noted), Ok(()));
    assert_eq!(restarted(&mut lone, false), []);
}

/// A single bit that changes on the way makes one denial.
#[test]
fn a_source_that_denies_three_times_what_it_confirms_ends_the_session() {
    let (mut lone, mut report) = complete();
    for denials in 1..=3 {
        assert_eq!(lone.failure(), None);
        assert!(lone.receiver.is_complete());
        assert_eq!(lone.answer(&report, Verdict::Mismatch), Ok(()));
        if denials == 3 {
            break;
        }
        // It is asked at once, however short ago that was done.
        let question = requests(&lone.poll(), Kind::Sync).remove(0);
        let truth = sync::Repr {
            reports: true,
            ..lone.last_heartbeat()
        };
        confirm(&mut lone, &question, truth);
        report = only(&lone.poll());
        assert_eq!(report.status, Status::Complete);
    }
    assert_eq!(lone.failure(), Some(Failure::WholeDigest));
}
