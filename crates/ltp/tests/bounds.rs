//! The ends of what can be configured.

mod common;

use common::{content, files, receiver_config, sender_config};
use ltp::Duration;

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn the_longest_duration_means_no_limit() {
    let bytes = content(200_000, 1);
    let mut sender = sender_config(bytes.len());
    sender.receivers = Some(1);
    sender.connect_timeout = Duration::MAX;
    sender.receiver_timeout = Duration::MAX;
    sender.linger = Duration::MAX;
    let mut receiver = receiver_config();
    receiver.source_timeout = Duration::MAX;
    receiver.replier.burst = Duration::MAX;
    let mut net = files(&bytes, 1, 1, sender, &receiver);
    net.run_until(LIMIT, |net| net.all_complete());
    net.check_content(&bytes);
    net.run_for(Duration::from_secs(600));
    assert!(!net.sender().is_ended());
}

#[test]
fn the_longest_udp_payload() {
    for rate in [None, Some(1_000_000_000)] {
        let bytes = content(3_000_000, 2);
        let mut sender = sender_config(bytes.len());
        sender.max_packet_len = 65_507;
        sender.block_exponent = 20;
        sender.rate_bps = rate;
        let mut net = files(&bytes, 1, 2, sender, &receiver_config());
        net.run_until(LIMIT, |net| net.all_complete());
        net.check_content(&bytes);
    }
}
