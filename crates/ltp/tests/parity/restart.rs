//! Restarts on a lossy path: of a receiver over the store that it has left, and of the source.

use ltp::digest::Hashing;
use ltp::store::{HeapRing, Store};
use ltp::{Receiver, ReceiverEvent, Sender};

use super::common::{Group, content, files, receiver_config, seed};
use super::{Duration, LIMIT, Parity, sender};

const LEN: usize = 1 << 20;
/// Packets of the content: 16 blocks of 47.
const PACKETS: u64 = 16 * 47;

/// A session of two receivers that lose one packet of twenty, parity included, with half of the content sent.
fn halfway(bytes: &[u8], parity: Parity, number: u64) -> Group {
    let mut config = sender(bytes, Some(parity));
    config.rate_bps = Some(5_000_000);
    config.receivers = Some(2);
    config.digest = Some(Hashing::new(None).whole(bytes));
    let mut net = files(bytes, 2, number, config, &receiver_config());
    net.set_loss(0.05);
    net.run_until(LIMIT, |net| net.receiver(0).progress().0 > LEN as u64 / 2);
    net
}

fn check_complete(net: &Group, bytes: &[u8]) {
    net.check_content(bytes);
    let complete = ReceiverEvent::Complete {
        length: LEN as u64,
        digest: Some(*blake3::hash(bytes).as_bytes()),
    };
    for receiver in 0..2 {
        assert_eq!(net.events(receiver).last(), Some(&complete));
    }
}

/// The store has most of the content already, some of it wrong: all of it comes again, and none of what was there is
/// taken for a packet of a block that parity restores.
#[test]
fn a_restarted_receiver_gets_everything_again_over_what_its_store_has() {
    for (parity, number) in [(Parity::OnRequest, 30), (Parity::Percent(5), 31)] {
        let bytes = content(LEN, number);
        let mut net = halfway(&bytes, parity, number);
        let restored = net.receiver(0).stats().restored_packets;
        assert!(restored > 0, "parity was used before the restart");
        let mut left = net.take_receiver(0).store().as_bytes().to_vec();
        left.iter_mut().step_by(5_000).for_each(|byte| *byte ^= 1);
        let mut store = HeapRing::new(LEN);
        for (at, block) in left.chunks(1 << 16).enumerate() {
            store.write((at as u64) << 16, block).expect("room");
        }
        let receiver = Receiver::new(receiver_config(), store, seed(number + 70), net.now());
        net.set_receiver(0, receiver);
        net.run_until(LIMIT, |net| net.all_complete() && net.is_confirmed());
        check_complete(&net, &bytes);
        let stats = net.receiver(0).stats();
        let came = stats.data_packets + stats.repairs + stats.restored_packets;
        assert_eq!(came, PACKETS);
        assert!(stats.data_packets > 100, "the source is still sending");
        assert!(stats.restored_packets > 0 && stats.parity > 0);
        assert_eq!((stats.restored_wrongly, stats.blocks_rejected), (0, 0));
    }
}

/// What was received of a block, parity included, counts in the session of the restarted source.
#[test]
fn receivers_follow_a_restarted_source() {
    let bytes = content(LEN, 32);
    let mut net = halfway(&bytes, Parity::Percent(5), 32);
    net.set_sender(None);
    net.run_for(Duration::from_secs(1));
    let mut config = sender(&bytes, Some(Parity::Percent(5)));
    config.receivers = Some(2);
    config.digest = Some(Hashing::new(None).whole(&bytes));
    let store = HeapRing::whole(bytes.clone());
    let again = Sender::new(config, store, seed(33), net.now()).expect("configuration");
    let before: Vec<_> = net.receivers().map(|one| one.stats().parity).collect();
    net.set_sender(Some(again));
    net.run_until(LIMIT, |net| net.all_complete() && net.is_confirmed());
    check_complete(&net, &bytes);
    let resumed = ReceiverEvent::Resumed {
        session: net.sender().session(),
    };
    for (index, before) in before.into_iter().enumerate() {
        assert!(net.events(index).contains(&resumed));
        let stats = net.receiver(index).stats();
        assert!(stats.parity > before, "parity of the second session");
        let came = stats.data_packets + stats.repairs + stats.restored_packets;
        assert_eq!(came, PACKETS, "each packet once");
        assert_eq!(stats.restored_wrongly, 0);
    }
}
