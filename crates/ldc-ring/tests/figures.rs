//! The figures of the paper: what each side may do in each of them. Figures 4.1 and 4.3 show a kernel, Figure 4.2 the
//! ring.

mod common;

use common::{claim_all, ring};
use ldc_ring::{Attributes, Changed};

/// A ring as in Figures 3.2 to 3.6: seven messages, 0 to 6, in ten or more slots.
fn seven() -> (common::P, common::C) {
    let (mut producer, consumer) = ring(16, 64);
    for seq in 0..7 {
        producer
            .send(seq, &[seq as u8; 10], Attributes::default())
            .unwrap();
    }
    (producer, consumer)
}

fn changed(changed: u32, too_late: u32) -> Changed {
    Changed { changed, too_late }
}

#[test]
fn figure_3_1_empty_packet_ring() {
    let (mut producer, mut consumer) = ring(16, 64);
    assert_eq!(producer.free_slots(), 16);
    assert_eq!(producer.pending().count(), 0);
    assert_eq!(consumer.claim(None), Ok(None));
}

#[test]
fn figure_3_2_user_adds_packets() {
    let (mut producer, mut consumer) = seven();
    assert_eq!(producer.pending().count(), 7);
    assert_eq!(producer.free_slots(), 9);
    assert_eq!(claim_all(&mut consumer), [0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn figure_3_3_kernel_processes_packets_0_and_1() {
    let (mut producer, mut consumer) = seven();
    let first = consumer.claim(None).unwrap().unwrap();
    let second = consumer.claim(None).unwrap().unwrap();
    assert_eq!((first.user_seq(), second.user_seq()), (0, 1));
    // kern_i has moved, dev_i has not: the slots are not free.
    assert_eq!(producer.free_slots(), 9);
    assert_eq!(
        producer
            .pending()
            .map(|sent| sent.user_seq)
            .collect::<Vec<_>>(),
        [2, 3, 4, 5, 6]
    );
    // Messages complete in any order; dev_i advances in the order of the ring.
    consumer.complete(second);
    assert_eq!(producer.free_slots(), 9);
    consumer.complete(first);
    assert_eq!(producer.free_slots(), 11);
}

#[test]
fn figure_3_4_user_marks_packets_1_3_and_5_as_dead() {
    let (mut producer, mut consumer) = seven();
    let first = consumer.claim(None).unwrap().unwrap();
    let second = consumer.claim(None).unwrap().unwrap();
    // "Marking packet 1 as dead is safe": it is only too late.
    assert_eq!(producer.cancel(1), changed(0, 1));
    assert_eq!(producer.cancel(3), changed(1, 0));
    assert_eq!(producer.cancel(5), changed(1, 0));
    consumer.complete(first);
    consumer.complete(second);
    assert_eq!(claim_all(&mut consumer), [2, 4, 6]);
    assert_eq!(consumer.stats().cancelled, 2);
    assert_eq!(producer.free_slots(), 16);
}

#[test]
fn figure_3_5_user_moves_umod_i_back() {
    let (mut producer, mut consumer) = seven();
    let claimed = [0, 1, 2].map(|_| consumer.claim(None).unwrap().unwrap());
    assert_eq!(producer.hold_back(3), changed(4, 0));
    // Packets 3 to 6 are safe to modify, and the consumer gets none of them.
    assert_eq!(consumer.claim(None), Ok(None));
    for seq in 3..7 {
        producer
            .modify(seq, |payload| payload.write(0, b"anew"))
            .unwrap();
    }
    assert_eq!(consumer.claim(None), Ok(None));
    producer.release();
    claimed
        .into_iter()
        .for_each(|message| consumer.complete(message));
    for seq in 3..7 {
        let message = consumer.claim(None).unwrap().unwrap();
        let mut bytes = [0; 10];
        consumer.read(&message, 0, &mut bytes);
        assert_eq!((message.user_seq(), &bytes[..4]), (seq, &b"anew"[..]));
        consumer.complete(message);
    }
}

#[test]
fn figure_3_6_kernel_moves_kern_i_at_the_same_time() {
    let (mut producer, mut consumer) = seven();
    // The user holds back 3 to 6; the kernel has claimed up to 4.
    let claimed = [0, 1, 2, 3, 4].map(|_| consumer.claim(None).unwrap().unwrap());
    assert_eq!(producer.hold_back(3), changed(2, 2));
    assert_eq!(consumer.claim(None), Ok(None));
    let held = |producer: &mut common::P| {
        producer
            .pending()
            .filter(|sent| sent.held)
            .map(|sent| sent.user_seq)
            .collect::<Vec<_>>()
    };
    assert_eq!(held(&mut producer), [5, 6]);
    assert!(producer.modify(4, |_| ()).is_err());
    producer.release();
    assert_eq!(held(&mut producer), []);
    claimed
        .into_iter()
        .for_each(|message| consumer.complete(message));
    assert_eq!(claim_all(&mut consumer), [5, 6]);
}

#[test]
fn figure_4_2_tcp_ldc_packet_ring_and_indexes() {
    // kern_i = 2, user_i = umod_i = 6 of a ring of eight; packet 4 is deleted; the ring wraps.
    let (mut producer, mut consumer) = ring(8, 64);
    for seq in 0..6 {
        producer.send(seq, b"", Attributes::default()).unwrap();
    }
    for _ in 0..2 {
        let message = consumer.claim(None).unwrap().unwrap();
        consumer.complete(message);
    }
    assert_eq!(producer.cancel(4), changed(1, 0));
    assert_eq!(producer.free_slots(), 4);
    for seq in 6..10 {
        producer.send(seq, b"", Attributes::default()).unwrap();
    }
    assert_eq!(producer.free_slots(), 0);
    // ldc_next_pkt: skips the deleted one, and sets kern_flag when the ring is empty.
    let _ = producer.notify();
    assert_eq!(claim_all(&mut consumer), [2, 3, 5, 6, 7, 8, 9]);
    assert!(!producer.notify());
    assert!(consumer.idle());
    assert!(producer.notify());
}
