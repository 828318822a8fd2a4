//! Whole sessions over a faulty switch, in virtual time.

mod common;

use common::{content, files, link, receiver_config, sender_config};
use ltp::{Assist, Duration, ReceiverEvent, Sender};
use netsim::Loss;

const LIMIT: Duration = Duration::from_secs(120);

#[test]
fn a_file_without_loss() {
    let bytes = content(1_000_000, 1);
    let mut group = files(&bytes, 3, 1, sender_config(bytes.len()), &receiver_config());
    group.run_until(LIMIT, |group| group.all_complete());
    group.check_content(&bytes);
    let digest = *blake3::hash(&bytes).as_bytes();
    for index in 0..3 {
        let complete = ReceiverEvent::Complete {
            length: 1_000_000,
            digest: Some(digest),
        };
        assert_eq!(group.events(index).last(), Some(&complete));
    }
    let sent = group.source_bytes();
    assert!(
        sent as f64 <= 1.06 * bytes.len() as f64,
        "{sent} bytes for {}",
        bytes.len()
    );
    for receiver in group.receivers() {
        assert_eq!(
            receiver.stats().requests_source,
            0,
            "{:?}",
            receiver.stats()
        );
    }
}

#[test]
fn a_file_with_loss_duplicates_and_reordering() {
    let bytes = content(1_500_000, 2);
    for lms in [false, true] {
        let mut config = receiver_config();
        config.assist = if lms { Assist::Lms } else { Assist::None };
        let mut sender = sender_config(bytes.len());
        sender.receivers = Some(4);
        let mut group = files(&bytes, 4, 2, sender, &config);
        if lms {
            group.elect_replier();
        }
        let links = link().delay(Duration::from_millis(2)).duplicate(0.01);
        let links = links.reorder(0.03, Duration::from_millis(3));
        group.set_links(links.loss(Loss::Bernoulli(0.02)));
        group.run_until(LIMIT, |group| group.all_complete() && group.is_confirmed());
        group.check_content(&bytes);
        eprintln!("lms {lms}: at {} {}", group.now(), group.state());
    }
}

/// The source's last acknowledgement may be lost, and the source gone: receivers that get its last heartbeat do
/// not wait for long then. All times are virtual.
#[test]
fn a_receiver_that_misses_the_last_acknowledgement_ends_soon_after_the_source() {
    for seed in 0..40 {
        let bytes = content(60_000, seed);
        let mut sender = sender_config(bytes.len());
        sender.receivers = Some(8);
        let mut group = files(&bytes, 8, seed, sender, &receiver_config());
        group.set_loss(0.03);
        group.run_until(LIMIT, |group| group.is_confirmed());
        group.with_sender(Sender::close);
        group.run_until(LIMIT, |group| group.sender().is_ended());
        group.set_sender(None);
        let left = group.now();
        group.run_until(LIMIT, |group| group.all_complete());
        let waited = group.now() - left;
        assert!(waited < Duration::from_secs(5), "seed {seed}: {waited}");
        group.check_content(&bytes);
    }
}

/// A small content may be whole before the source has answered that its receiver joined; that answer
/// does not put the last report off until the next sign of life.
#[test]
fn a_content_that_is_whole_before_its_receiver_joined_is_confirmed_at_once() {
    let mut overtaken = 0;
    for seed in 0..300 {
        let bytes = content(1, seed);
        let mut sender = sender_config(bytes.len());
        sender.receivers = Some(1);
        sender.digest = Some(*blake3::hash(&bytes).as_bytes());
        // The last report waits for up to 4 ms, and the answer to the first comes meanwhile.
        sender.reports_per_second = 250;
        let mut group = files(&bytes, 1, seed, sender, &receiver_config());
        group.set_links(link().reorder(0.5, Duration::from_millis(3)));
        let mut whole = None;
        group.run_until(LIMIT, |group| {
            let here = group.receiver(0).progress().0 == 1;
            whole = whole.or(here.then_some(group.now()));
            group.is_confirmed()
        });
        let waited = group.now() - whole.expect("it is whole");
        overtaken += u32::from(group.receiver(0).stats().reports > 1);
        assert!(waited < Duration::from_secs(1), "seed {seed}: {waited}");
    }
    assert!(
        overtaken > 0,
        "no report was sent before the content was whole"
    );
}

/// A receiver that joined and is not done is waited for, also when it asks for nothing for longer
/// than the source lingers.
#[test]
fn the_source_stays_for_a_receiver_that_is_cut_off_for_a_while() {
    let bytes = content(400_000, 31);
    let mut sender = sender_config(bytes.len());
    sender.receivers = Some(2);
    sender.linger = Duration::from_secs(1);
    let mut group = files(&bytes, 2, 31, sender, &receiver_config());
    group.run_until(LIMIT, |group| group.sender().progress().0 > 200_000);
    group.set_deaf(1, true);
    group.run_for(Duration::from_secs(6));
    assert!(!group.sender().is_ended());
    group.set_deaf(1, false);
    group.run_until(LIMIT, |group| group.all_complete() && group.is_confirmed());
    group.check_content(&bytes);
}
