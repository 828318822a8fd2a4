//! Reports of receivers: which are taken, what is answered, and what they mean for the beginning and the end.

use ltp::wire::report::{Loss, Report, Status, Verdict};
use ltp::{
    Destination, Duration, Error, Instant, Meta, ReceiverFailure, ReceiverState, SenderConfig,
    SenderEvent, SessionId,
};

use super::{BLOCK, SESSION, Sent, Solo, at, content, host, report};

const BLOCKS: usize = 10;

/// A sender of ten blocks that waits for that many receivers.
fn waiting(receivers: u32, configure: impl FnOnce(&mut SenderConfig)) -> Solo {
    Solo::whole(&content(BLOCKS * BLOCK), |config| {
        config.receivers = Some(receivers);
        configure(config);
    })
}

fn digest() -> [u8; 32] {
    *blake3::hash(&content(BLOCKS * BLOCK)).as_bytes()
}

fn prefix(digest: [u8; 32]) -> u64 {
    u64::from_be_bytes(*digest.first_chunk().unwrap())
}

/// A report that all has come.
fn complete(token: u64) -> Report {
    Report {
        digest: prefix(digest()),
        ..report(Status::Complete, BLOCKS as u64, token)
    }
}

fn failures(solo: &mut Solo) -> Vec<(u64, ReceiverFailure)> {
    let failure = |event: SenderEvent| match event {
        SenderEvent::ReceiverFailed {
            receiver,
            address,
            blocks,
            failure,
        } => {
            assert_eq!((receiver, address), (3, host(1)));
            Some((blocks, failure))
        }
        _ => None,
    };
    solo.events().into_iter().filter_map(failure).collect()
}

#[test]
fn a_receiver_joins_with_the_token_of_its_address() {
    let mut solo = waiting(2, |_| {});
    let first = report(Status::Joined, 0, 0);
    assert_eq!(solo.report(host(1), &first), Err(Error::ReportUnverified));
    let sent = solo.poll();
    let ack = sent.iter().find_map(Sent::ack).unwrap();
    assert_eq!((ack.verdict, ack.tag, ack.receiver), (Verdict::Token, 6, 3));
    assert_eq!(solo.sender.receivers(), (0, 0));
    let mut joined = report(Status::Joined, 0, ack.token);
    joined.tag = 8;
    assert_eq!(solo.report(host(1), &joined), Ok(()));
    let sent = solo.poll();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].to, Destination::Unicast(host(1)));
    let noted = sent[0].ack().unwrap();
    assert_eq!(
        (noted.verdict, noted.tag, noted.receiver),
        (Verdict::Noted, 8, 3)
    );
    assert_eq!((noted.token, noted.session), (ack.token, SESSION));
    assert_eq!(solo.sender.receivers(), (1, 0));
    let event = SenderEvent::Joined {
        receiver: 3,
        address: host(1),
    };
    assert_eq!(solo.events(), [event]);
    assert_eq!(solo.report(host(1), &joined), Ok(()));
    assert_eq!(solo.events(), [], "once");
    let stats = solo.sender.stats();
    assert_eq!((stats.reports, stats.received), (2, 2));
    let members: Vec<_> = solo.sender.members().collect();
    assert_eq!(members.len(), 1);
    assert_eq!((members[0].receiver, members[0].address), (3, host(1)));
    assert_eq!(members[0].state, ReceiverState::Receiving);
}

#[test]
fn events_that_nobody_takes_are_counted() {
    let mut solo = waiting(100, |_| {});
    for number in 1..=40 {
        assert_eq!(solo.tell(host(number), Status::Joined, 0), Ok(()));
    }
    assert_eq!(solo.events().len(), 32);
    assert_eq!(solo.sender.stats().events_lost, 8);
    assert_eq!(solo.sender.receivers(), (40, 0));
}

#[test]
fn reports_that_are_not_for_this_session_are_dropped() {
    let mut solo = Solo::whole(&content(BLOCK), |_| {});
    let joined = report(Status::Joined, 0, 1);
    assert_eq!(solo.report(host(1), &joined), Err(Error::ReportUnwanted));
    let mut solo = waiting(1, |_| {});
    let other = Report {
        session: SessionId(1),
        ..joined
    };
    assert_eq!(solo.report(host(1), &other), Err(Error::OtherSession));
    let mut packet = [0; 40];
    joined.emit(&mut packet);
    let by_group = solo.handle(&Meta::group(host(1)), &packet);
    assert_eq!(by_group, Err(Error::Unexpected));
    assert_eq!(solo.sender.stats().reports, 0);
}

#[test]
fn data_begins_when_all_have_joined_or_the_time_is_over() {
    let mut solo = waiting(2, |_| {});
    let token = solo.report_token(host(1));
    solo.run_to(at(100));
    assert_eq!(
        solo.report(host(1), &report(Status::Joined, 0, token)),
        Ok(())
    );
    solo.run_to(at(500));
    assert_eq!(solo.sender.stats().data_packets, 0);
    assert_eq!(solo.tell(host(2), Status::Joined, 0), Ok(()));
    solo.run_to(at(501));
    assert_eq!(solo.sender.stats().data_packets, 40);
    assert!(solo.events().contains(&SenderEvent::Started { joined: 2 }));
    let mut solo = waiting(2, |_| {});
    assert_eq!(solo.tell(host(1), Status::Joined, 0), Ok(()));
    solo.run_to(at(999));
    assert_eq!(solo.sender.stats().data_packets, 0);
    solo.run_to(at(1_000));
    assert_eq!(solo.sender.stats().data_packets, 40);
    assert!(solo.events().contains(&SenderEvent::Started { joined: 1 }));
}

#[test]
fn progress_is_not_answered_and_all_else_is() {
    let mut solo = waiting(1, |_| {});
    let token = solo.report_token(host(1));
    let statuses = [
        (Status::Joined, 1),
        (Status::Progress, 0),
        (Status::Leaving, 1),
        (Status::Failed, 1),
    ];
    for (status, answers) in statuses {
        assert_eq!(solo.report(host(1), &report(status, 0, token)), Ok(()));
        let sent = solo.run_to(solo.now);
        let acks = sent.iter().filter(|sent| sent.is(7)).count();
        assert_eq!(acks, answers, "{status:?}");
    }
}

#[test]
fn what_no_receiver_can_have_is_not_believed() {
    let implausible = Err(Error::ReportImplausible);
    let mut solo = waiting(2, |_| {});
    let token = solo.report_token(host(1));
    // Nothing was sent.
    let tell = |solo: &mut Solo, report: Report| {
        let result = solo.report(host(1), &report);
        solo.run_to(solo.now);
        result
    };
    let progress = |blocks| report(Status::Progress, blocks, token);
    assert_eq!(tell(&mut solo, progress(1)), implausible);
    assert_eq!(
        tell(&mut solo, complete(token)),
        implausible,
        "whose digest?"
    );
    assert_eq!(solo.sender.receivers(), (0, 0));
    solo.run_to(at(1_100));
    assert_eq!(tell(&mut solo, progress(11)), implausible);
    assert_eq!(tell(&mut solo, progress(10)), Ok(()));
    let mut less = complete(token);
    less.blocks = 9;
    assert_eq!(tell(&mut solo, less), implausible);
    less.blocks = 11;
    assert_eq!(tell(&mut solo, less), implausible);
    assert_eq!(tell(&mut solo, complete(token)), Ok(()));
    // The digest of the whole proves that it has all before that was sent.
    let announced = |config: &mut SenderConfig| config.digest = Some(digest());
    let mut solo = waiting(2, announced);
    let token = solo.report_token(host(1));
    assert_eq!(tell(&mut solo, complete(token)), Ok(()));
    let mut unproven = complete(token);
    unproven.digest = 0;
    assert_eq!(tell(&mut solo, unproven), Ok(()), "a restart of the source");
    let mut more = report(Status::Progress, 11, token);
    assert_eq!(tell(&mut solo, more), implausible);
    more.blocks = 10;
    assert_eq!(tell(&mut solo, more), Ok(()));
}

#[test]
fn without_digests_a_receiver_has_what_was_sent_at_most() {
    let mut solo = waiting(2, |config| {
        config.integrity = false;
        config.digest = Some(digest());
    });
    let token = solo.report_token(host(1));
    let early = solo.report(host(1), &complete(token));
    assert_eq!(early, Err(Error::ReportImplausible));
    let early = solo.report(host(1), &report(Status::Progress, 1, token));
    assert_eq!(early, Err(Error::ReportImplausible));
    solo.run_to(at(1_100));
    let mut done = complete(token);
    done.digest = 0;
    assert_eq!(solo.report(host(1), &done), Ok(()));
    assert_eq!(solo.sender.receivers(), (1, 1));
}

#[test]
fn the_transfer_is_complete_when_all_hosts_have_confirmed_it() {
    let mut solo = waiting(2, |_| {});
    let tokens = [1, 2].map(|number| {
        let token = solo.report_token(host(number));
        let joined = report(Status::Joined, 0, token);
        assert_eq!(solo.report(host(number), &joined), Ok(()));
        token
    });
    solo.run_to(at(10));
    solo.events();
    assert_eq!(solo.report(host(1), &complete(tokens[0])), Ok(()));
    solo.poll();
    assert_eq!(solo.sender.receivers(), (2, 1));
    let first = SenderEvent::ReceiverComplete {
        receiver: 3,
        address: host(1),
    };
    assert_eq!(solo.events(), [first]);
    assert!(!solo.sender.is_finished());
    assert_eq!(solo.report(host(2), &complete(tokens[1])), Ok(()));
    let second = SenderEvent::ReceiverComplete {
        receiver: 3,
        address: host(2),
    };
    assert!(!solo.sender.is_finished(), "the event was not taken");
    assert_eq!(solo.events(), [second, SenderEvent::Complete]);
    assert!(!solo.sender.is_finished(), "the answer is not sent");
    solo.poll();
    assert!(solo.sender.is_finished() && !solo.sender.is_ended());
    assert_eq!(solo.report(host(2), &complete(tokens[1])), Ok(()));
    assert_eq!(solo.events(), [], "once");
}

#[test]
fn another_digest_is_denied() {
    let mut solo = waiting(1, |_| {});
    let token = solo.report_token(host(1));
    assert_eq!(
        solo.report(host(1), &report(Status::Joined, 0, token)),
        Ok(())
    );
    solo.run_to(at(10));
    solo.events();
    let mut wrong = complete(token);
    wrong.digest ^= 1;
    assert_eq!(solo.report(host(1), &wrong), Ok(()));
    let sent = solo.poll();
    assert_eq!(sent[0].ack().unwrap().verdict, Verdict::Mismatch);
    assert_eq!(solo.sender.receivers(), (1, 0));
    let gave_up = report(Status::Failed, 10, token);
    assert_eq!(solo.report(host(1), &gave_up), Ok(()));
    assert_eq!(failures(&mut solo), [(10, ReceiverFailure::Mismatch)]);
    // One that does not know the digest is taken at its word.
    let mut unknown = complete(token);
    unknown.digest = 0;
    assert_eq!(solo.report(host(1), &unknown), Ok(()));
    assert_eq!(solo.sender.receivers(), (1, 1));
    // As is one that was right before.
    assert_eq!(solo.report(host(1), &wrong), Ok(()));
    let sent = solo.poll();
    let last = sent.iter().rev().find_map(Sent::ack).unwrap();
    assert_eq!(last.verdict, Verdict::Noted);
}

#[test]
fn receivers_that_give_up_or_leave_are_named() {
    for (status, failure) in [
        (Status::Failed, ReceiverFailure::GaveUp),
        (Status::Leaving, ReceiverFailure::Left),
    ] {
        let mut solo = waiting(1, |_| {});
        let token = solo.report_token(host(1));
        assert_eq!(
            solo.report(host(1), &report(Status::Joined, 0, token)),
            Ok(())
        );
        solo.run_to(at(10));
        assert_eq!(solo.report(host(1), &report(status, 4, token)), Ok(()));
        assert_eq!(failures(&mut solo), [(4, failure)]);
        assert_eq!(solo.report(host(1), &report(status, 4, token)), Ok(()));
        assert_eq!(failures(&mut solo), []);
    }
}

#[test]
fn a_full_table_is_said() {
    let mut solo = waiting(1, |config| config.limits.receivers = 1);
    assert_eq!(solo.tell(host(1), Status::Joined, 0), Ok(()));
    let token = solo.report_token(host(2));
    let joined = report(Status::Joined, 0, token);
    assert_eq!(solo.report(host(2), &joined), Err(Error::ReceiversFull));
    let sent = solo.run_to(solo.now);
    let full = sent
        .iter()
        .find(|sent| sent.to == Destination::Unicast(host(2)));
    assert_eq!(full.unwrap().ack().unwrap().verdict, Verdict::Full);
    assert_eq!(solo.sender.receivers(), (1, 0));
    assert_eq!(solo.sender.stats().reports, 1);
}

/// When a receiver of which nothing more comes is given up.
fn given_up(
    configure: impl FnOnce(&mut SenderConfig),
    reports: bool,
) -> (Instant, ReceiverFailure) {
    let mut solo = waiting(1, |config| {
        config.receiver_timeout = Duration::from_secs(2);
        config.limits.receivers = 8;
        configure(config);
    });
    let token = solo.report_token(host(1));
    assert_eq!(
        solo.report(host(1), &report(Status::Joined, 0, token)),
        Ok(())
    );
    for step in 1..600 {
        solo.run_to(at(100 * step));
        if let Some((blocks, failure)) = failures(&mut solo).first() {
            assert_eq!(*blocks, 0);
            return (solo.now, *failure);
        }
        if reports {
            let progress = report(Status::Progress, 0, token);
            assert_eq!(solo.report(host(1), &progress), Ok(()));
        }
    }
    panic!("it is waited for without end");
}

#[test]
fn a_receiver_is_given_up_when_it_is_silent_or_stands_still() {
    let within = |(at, failure), expected, from: i64| {
        assert_eq!(failure, expected);
        // The table is looked through eight times in a timeout, and the test looks each 100 ms.
        let at: Instant = at;
        let range = self::at(from)..self::at(from + 400);
        assert!(range.contains(&at), "{at}");
    };
    within(given_up(|_| {}, false), ReceiverFailure::Silent, 2_000);
    within(given_up(|_| {}, true), ReceiverFailure::NoProgress, 2_000);
    // Reports are spread over three seconds.
    let spread = |config: &mut SenderConfig| {
        config.receivers = Some(1);
        config.reports_per_second = 1;
    };
    within(given_up(spread, true), ReceiverFailure::NoProgress, 3_000);
    within(given_up(spread, false), ReceiverFailure::Silent, 2_000);
    // Four blocks take 6.5 s; one packet of the first has gone by a second.
    let slow = |config: &mut SenderConfig| config.rate_bps = Some(5_000);
    let (at, failure) = given_up(slow, true);
    assert_eq!(failure, ReceiverFailure::NoProgress);
    assert!((at - self::at(0)).total_millis() > 6_500, "{at}");
}

#[test]
fn a_large_table_is_looked_through_in_parts() {
    let mut solo = waiting(1, |config| {
        config.receiver_timeout = Duration::from_secs(8);
        config.limits.receivers = 2_048;
    });
    // In eight parts, each eight times in a timeout.
    assert_eq!(solo.tell(host(1), Status::Joined, 0), Ok(()));
    solo.run_to(at(8_000));
    solo.run_to(at(9_001));
    assert_eq!(failures(&mut solo), [(0, ReceiverFailure::Silent)]);
}

#[test]
fn the_receiver_that_is_waited_for_is_the_last_one() {
    let mut solo = waiting(2, |_| {});
    assert_eq!(solo.sender.waiting_for(), None);
    for (number, blocks) in [(1, 0), (2, 0)] {
        assert_eq!(solo.tell(host(number), Status::Joined, blocks), Ok(()));
    }
    solo.run_to(at(10));
    assert_eq!(solo.tell(host(1), Status::Progress, 9), Ok(()));
    assert_eq!(solo.tell(host(2), Status::Progress, 8), Ok(()));
    let waiting = solo.sender.waiting_for().unwrap();
    assert_eq!((waiting.address, waiting.blocks), (host(2), 8));
    // While data flows nothing waits.
    let mut flowing = waiting_flow();
    assert_eq!(flowing.tell(host(1), Status::Joined, 0), Ok(()));
    flowing.run_to(at(100));
    assert!(flowing.sender.stats().data_packets > 0);
    assert_eq!(flowing.sender.waiting_for(), None);
}

/// A sender at a low rate.
fn waiting_flow() -> Solo {
    waiting(1, |config| config.rate_bps = Some(50_000))
}

#[test]
fn the_worst_loss_of_the_receivers_is_told() {
    let mut solo = waiting(1, |_| {});
    let token = solo.report_token(host(1));
    assert_eq!(
        solo.report(host(1), &report(Status::Joined, 0, token)),
        Ok(())
    );
    solo.run_to(at(10));
    assert_eq!(solo.sender.take_worst_loss(), None);
    let mut progress = report(Status::Progress, 1, token);
    progress.loss = Loss {
        expected: 200,
        lost: 10,
    };
    assert_eq!(solo.report(host(1), &progress), Ok(()));
    assert_eq!(solo.sender.take_worst_loss(), Some(50));
}

/// The first packet that a restarted sender sends, where receivers have that much of the content.
fn first_packet(blocks: &[u64], announced: bool) -> Option<u32> {
    let mut solo = waiting(blocks.len() as u32, |config| {
        config.digest = announced.then(digest);
    });
    let mut sent = Vec::new();
    for (number, &blocks) in (1..).zip(blocks) {
        let token = solo.report_token(host(number));
        let mut joined = report(Status::Joined, blocks, token);
        joined.receiver = u64::from(number);
        let _ = solo.report(host(number), &joined);
        sent.extend(solo.run_to(solo.now));
    }
    sent.extend(solo.run_to(at(2_000)));
    let first = sent.iter().find_map(Sent::sequence);
    if first.is_some() {
        assert!(solo.sender.digest().is_some());
    }
    first
}

#[test]
fn a_restarted_sender_begins_at_the_first_block_that_a_receiver_lacks() {
    let mut solo = waiting(2, |config| config.digest = Some(digest()));
    let tokens = [1, 2].map(|number| solo.report_token(host(number)));
    let joined = |blocks, token| report(Status::Joined, blocks, token);
    assert_eq!(solo.report(host(1), &joined(7, tokens[0])), Ok(()));
    assert_eq!(solo.report(host(2), &joined(5, tokens[1])), Ok(()));
    let sent = solo.run_to(at(100));
    assert_eq!(sent.iter().find_map(Sent::sequence), Some(20));
    assert_eq!(solo.sender.stats().data_packets, 20);
    // Their digests are announced; those before were by the run before.
    let first = sent.iter().find_map(Sent::digests).unwrap();
    assert_eq!(first.0.first_block, 5);
    let last = sent.iter().rev().find_map(Sent::sync).unwrap();
    assert_eq!((last.digested, last.digest), (Some(10), Some(digest())));
    assert_eq!(solo.sender.progress(), (10_240, Some(10_240)));
    assert!(!solo.events().contains(&SenderEvent::StoreFailed));
    assert_eq!(first_packet(&[7, 0], true), Some(0));
    // Unless it cannot know that they have the same.
    assert_eq!(first_packet(&[7, 5], false), Some(0));
}

#[test]
fn a_restarted_sender_whose_receivers_have_all_sends_nothing() {
    let mut solo = waiting(1, |config| config.digest = Some(digest()));
    let token = solo.report_token(host(1));
    let joined = report(Status::Joined, BLOCKS as u64, token);
    assert_eq!(solo.report(host(1), &joined), Ok(()));
    assert_eq!(solo.report(host(1), &complete(token)), Ok(()));
    solo.run_to(at(100));
    assert_eq!(solo.sender.stats().data_packets, 0);
    assert!(solo.events().contains(&SenderEvent::Complete));
}

/// When a sender ends whose only receiver completes at 10 ms, while another host asks for packets all the time.
fn end(linger_ms: u64, timeout_ms: u64, asks: bool) -> Instant {
    let mut solo = waiting(1, |config| {
        config.linger = Duration::from_millis(linger_ms);
        config.receiver_timeout = Duration::from_millis(timeout_ms);
    });
    let token = solo.report_token(host(1));
    assert_eq!(
        solo.report(host(1), &report(Status::Joined, 0, token)),
        Ok(())
    );
    solo.run_to(at(10));
    assert_eq!(solo.report(host(1), &complete(token)), Ok(()));
    for step in 0.. {
        solo.run_to(at(10 + 100 * step));
        if solo.sender.is_ended() {
            return solo.now;
        }
        if asks {
            let _ = solo.ask_packets(&Meta::group(host(2)), 0, 0);
        }
        assert!(step < 1_000, "it does not end");
    }
    unreachable!("it ends")
}

#[test]
fn requests_delay_the_end_for_a_while_after_the_last_receiver() {
    // Three heartbeats of the end take 10 ms.
    assert_eq!(end(1_000, 4_000, false), at(1_110));
    assert_eq!(end(1_000, 4_000, true), at(4_110), "by the timeout");
    assert_eq!(end(3_000, 1_000, true), at(3_110), "or the linger time");
}

#[test]
fn a_receiver_that_is_waited_for_delays_the_end() {
    let mut solo = waiting(1, |config| {
        config.linger = Duration::from_millis(500);
        config.receiver_timeout = Duration::from_secs(3);
    });
    let token = solo.report_token(host(1));
    assert_eq!(
        solo.report(host(1), &report(Status::Joined, 0, token)),
        Ok(())
    );
    let mut failed = None;
    for step in 1..200 {
        solo.run_to(at(100 * step));
        if solo.sender.is_ended() {
            break;
        }
        // It advances a block a second, up to the last but one.
        let blocks = (step as u64 / 10).min(9);
        let _ = solo.report(host(1), &report(Status::Progress, blocks, token));
        if let Some(failure) = failures(&mut solo).first() {
            assert_eq!(*failure, (9, ReceiverFailure::NoProgress));
            failed = Some(solo.now);
        }
    }
    let failed = failed.expect("it is given up");
    assert!((at(12_000)..at(12_500)).contains(&failed), "{failed}");
    let ended = solo.now - failed;
    assert!(ended <= Duration::from_millis(700), "{ended}");
}

/// Such a receiver had the content before, and proves it by the digest.
#[test]
fn a_receiver_may_have_what_was_not_sent_yet() {
    let bytes = content(4 * BLOCK);
    let digest = *blake3::hash(&bytes).as_bytes();
    let mut solo = Solo::stream(8, |config| {
        config.receivers = Some(1);
        config.digest = Some(digest);
    });
    assert_eq!(solo.sender.send(at(0), &bytes), Ok(bytes.len()));
    solo.sender.finish(at(0));
    let token = solo.report_token(host(1));
    assert_eq!(solo.sender.progress().0, 0);
    let unproven = report(Status::Complete, 4, token);
    assert_eq!(
        solo.report(host(1), &unproven),
        Err(Error::ReportImplausible)
    );
    let proven = Report {
        digest: u64::from_be_bytes(*digest.first_chunk().unwrap()),
        ..unproven
    };
    assert_eq!(solo.report(host(1), &proven), Ok(()));
    assert_eq!(solo.sender.receivers(), (1, 1));
}
