//! Shares of a peer's rate limit.

use super::*;

const PEER: PeerId = PeerId(1);

fn shares(counts: &[(u32, u32, u64)]) -> Shares {
    let mut shares = Shares::new(Instant::ZERO);
    for &(peer, node, count) in counts {
        shares.counts.insert((PeerId(peer), NodeId(node)), count);
    }
    shares
}

#[test]
fn shares_are_proportional_to_sessions_of_the_link() {
    let shares = shares(&[(1, 1, 3), (1, 2, 1), (2, 1, 100), (0, 3, 100)]);
    assert_eq!(shares.of(PEER, NodeId(1), 8000), 6000);
    assert_eq!(shares.of(PEER, NodeId(2), 8000), 2000);
    // The first session of a data node is one more.
    assert_eq!(shares.of(PEER, NodeId(u32::MAX), 8000), 1600);
    assert_eq!(shares.of(PeerId(3), NodeId(1), 8000), 8000);
}

#[test]
fn the_first_and_the_last_data_node_count() {
    let shares = shares(&[(1, 0, 1), (1, u32::MAX, 1)]);
    for node in [0, u32::MAX] {
        assert_eq!(shares.of(PEER, NodeId(node), 8000), 4000);
    }
}

#[test]
fn a_share_is_never_nothing_because_that_means_no_limit() {
    let shares = shares(&[(1, 1, 1), (1, 2, 1_000_000)]);
    assert_eq!(shares.of(PEER, NodeId(1), 1000), 1);
    assert_eq!(
        shares.of(PEER, NodeId(2), u64::MAX),
        u64::MAX - u64::MAX.div_ceil(1_000_001)
    );
}

#[test]
fn nothing_is_due_while_nothing_has_changed() {
    let mut shares = Shares::new(Instant::from_secs(7));
    assert_eq!(shares.poll_timeout(), None);
    shares.changed();
    assert_eq!(shares.poll_timeout(), Some(Instant::from_secs(7)));
}
