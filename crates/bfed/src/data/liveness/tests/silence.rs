//! When a neighbour, and a peer, is silent, and when it is forgotten.

use super::*;

#[test]
fn a_neighbour_is_silent_after_six_intervals_without_a_sign() {
    let mut table = Table::proved(9);
    table.probes();
    table.intervals(5);
    assert_eq!(table.changes(), []);
    table.intervals(1);
    assert_eq!(table.changes(), [(PEER, State::Silent)]);
    assert!(table.table.is_proved(&key()), "its address is what it was");
    table.intervals(10);
    assert_eq!(table.changes(), [], "once");
    table.answer();
    assert_eq!(table.changes(), [(PEER, State::Alive)]);
    // Each answer counts anew.
    for _ in 0..20 {
        table.intervals(5);
        table.answer();
    }
    assert_eq!(table.changes(), []);
}

#[test]
fn data_of_its_flows_is_a_sign_while_it_comes() {
    let mut table = Table::proved(9);
    for _ in 0..40 {
        table.intervals(1);
        table.packets += 1;
    }
    assert_eq!(table.changes(), []);
    // The count is compared from the third interval of silence on.
    table.intervals(10);
    assert_eq!(table.changes(), [(PEER, State::Silent)]);
    // Data alone does not bring it back: its source may be forged.
    table.packets += 1;
    table.intervals(10);
    assert_eq!(table.changes(), []);
}

#[test]
fn data_before_a_neighbour_fell_silent_does_not_count() {
    let mut table = Table::proved(9);
    table.packets = 1000;
    table.intervals(2);
    table.packets = 2000;
    table.intervals(3);
    assert_eq!(table.changes(), []);
    table.intervals(1);
    assert_eq!(table.changes(), [(PEER, State::Silent)]);
}

#[test]
fn time_in_which_this_node_did_not_run_is_not_held_against_others() {
    let mut table = Table::proved(9);
    table.intervals(4);
    table.now += INTERVAL * 100;
    table.timeout();
    assert_eq!(table.changes(), []);
    table.intervals(1);
    assert_eq!(table.changes(), [(PEER, State::Silent)]);
    // A call that is a little late is no pause.
    let mut table = Table::proved(9);
    for _ in 0..5 {
        table.now += Duration::from_millis(100);
        table.intervals(1);
    }
    assert_eq!(table.changes(), [(PEER, State::Silent)]);
}

#[test]
fn nothing_is_due_before_the_interval_is_over_or_without_neighbours() {
    let mut table = Table::new();
    assert_eq!(table.table.poll_timeout(), None);
    table.now += Duration::from_secs(1000);
    table.add(key(), 1, true);
    table.probes();
    assert_eq!(
        table.table.poll_timeout(),
        Some(table.now),
        "its first interval"
    );
    table.timeout();
    let next = table.now + INTERVAL;
    assert_eq!(table.table.poll_timeout(), Some(next));
    table.answer();
    table.add(key(), 2, true);
    assert_eq!(
        table.table.poll_timeout(),
        Some(next),
        "one interval for all"
    );
    table.probes();
    table.now = next - Duration::from_micros(1);
    table.timeout();
    assert_eq!(table.probes(), []);
    table.table.remove(key(), edge(1));
    assert!(table.table.poll_timeout().is_some());
    table.table.remove(key(), edge(2));
    assert_eq!(table.table.poll_timeout(), None);
}

#[test]
fn a_neighbour_is_forgotten_with_its_last_edge() {
    let mut table = Table::proved(9);
    table.add(key(), 2, false);
    table.table.remove(key(), edge(1));
    assert!(table.table.is_proved(&key()));
    assert_eq!(table.changes(), []);
    table.table.remove(key(), edge(2));
    assert!(!table.table.is_proved(&key()));
    assert_eq!(table.changes(), [(PEER, State::Unknown)]);
    // One that no flow is ready for any more is not told so.
    let mut table = Table::new();
    table.add(key(), 1, true);
    let (_, nonce, _) = table.probes()[0];
    table.add(key(), 2, true);
    table.table.remove(key(), edge(2));
    table.echoed(address(1), nonce, 9);
    assert_eq!(table.probes(), [(1, READY, 9)]);
}

#[test]
fn a_peer_is_what_the_best_of_its_data_nodes_is() {
    let mut table = Table::proved(9);
    let second = (address(2), PEER);
    table.add(second, 2, true);
    let nonce = table
        .probes()
        .iter()
        .find(|probe| probe.0 == 2)
        .map(|probe| probe.1);
    table.echoed(address(2), nonce.expect("probed"), 8);
    assert_eq!(table.changes(), [], "alive as before");
    // The first falls silent, the second does not.
    for _ in 0..10 {
        table.intervals(1);
        for (id, nonce, _) in table.probes() {
            if id == 2 {
                table.echoed(address(2), nonce, 8);
            }
        }
    }
    assert_eq!(table.changes(), []);
    table.table.remove(second, edge(2));
    assert_eq!(table.changes(), [(PEER, State::Silent)]);
    // To a new stream all is reported again, and then no more.
    table.table.report_all();
    assert_eq!(table.changes(), [(PEER, State::Silent)]);
    assert_eq!(table.changes(), []);
}

#[test]
fn neighbours_are_known_by_address_at_any_port() {
    let mut table = Table::new();
    table.add((address(7), PeerId(u32::MAX)), 1, false);
    table.add((([10, 0, 0, 8], u16::MAX).into(), PEER), 2, false);
    for (last, known) in [(6, false), (7, true), (8, true), (9, false)] {
        assert_eq!(table.table.is_neighbour([10, 0, 0, last].into()), known);
    }
    let mapped = core::net::Ipv4Addr::new(10, 0, 0, 7).to_ipv6_mapped();
    assert!(table.table.is_neighbour(mapped.into()));
}
